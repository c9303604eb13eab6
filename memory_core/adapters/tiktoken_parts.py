"""A text and the cl100k_base encoding in, its tokens in parts out: those of one pass over the whole, in little memory.

One pass over a million letters, signs or blanks in a row takes 100 to 300 MB and four times as long as windows do, and
on a million blanks it fails. So a long text is cut where the encoding's pattern begins a piece anyway, and where there
is no such place near, inside a piece, between two tokens that stay apart.

Why that is exact: a row of tokens is the encoding of their bytes if and only if each two neighbours are the encoding
of theirs (what GitHub's `bpe` rests on). Two windows are each encoded in full, so only the two tokens that meet have to
be asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Final

import numpy as np
import regex
import tiktoken
from numpy.typing import NDArray

from memory_core.errors import InternalError

PART_CHARS: Final = 1 << 16
WINDOW_CHARS: Final = 1 << 12

Tokens = NDArray[np.uint32]

# What the pattern calls blank, and the blanks that no sign ahead of them takes along.
_BLANKS: Final = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_FREE_BLANKS: Final = r"\t\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# A piece ends behind each of these: what is not blank, ahead of a blank; a letter or digit of ASCII, ahead of ASCII of
# another kind; a line end, ahead of a line that begins with a non-blank. (Some calls blank what others do not.)
_FILLED: Final = r"[^\s\x1c-\x1f]"
_LAST_EDGE = regex.compile(
    rf"(?r){_FILLED}(?=[{_FREE_BLANKS}])|[A-Za-z](?=[\n -@\[-`{{-~])|[0-9](?=[\n -/:-~])|\n(?={_FILLED})"
)
_BLANK = re.compile(f"[{_BLANKS}]")
_BLANK_RUN = re.compile(f"[{_BLANKS}]*+")
_LAST_NO_BLANK = regex.compile(f"(?r)[^{_BLANKS}]")
_LINE_ENDS = re.compile(r"[\r\n]*+")
_DIGIT = regex.compile(r"\p{N}")
_LAST_NO_DIGIT = regex.compile(r"(?r)\P{N}")
_SYMBOL = regex.compile(rf"[^{_BLANKS}\p{{L}}\p{{N}}]")
_DIGITS_A_PIECE: Final = 3
# A contraction ('s, 'll) is a piece of its own: no cut so near behind an apostrophe.
_CONTRACTION_CHARS: Final = 3
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80


class PartEncoder:
    """Encodes texts of any length with one encoding, whose pattern is that of cl100k_base. Safe to share."""

    def __init__(
        self, encoding: tiktoken.Encoding, *, part_chars: int = PART_CHARS, window_chars: int = WINDOW_CHARS
    ) -> None:
        self.encoding = encoding
        self._part_chars = part_chars
        self._window_chars = window_chars
        self._chars_per_token = np.zeros(encoding.max_token_value + 1, dtype=np.uint8)
        self._begins_inside = np.zeros(encoding.max_token_value + 1, dtype=np.bool_)
        for token in encoding.token_byte_values():
            rank = encoding.encode_single_token(token)
            # Code points that begin in the token: what follows in a later token then ends at the same place.
            leads = [byte & _CONTINUATION_MASK != _CONTINUATION for byte in token]
            self._chars_per_token[rank] = sum(leads)
            self._begins_inside[rank] = not leads[0]

    def count(self, text: str) -> int:
        """Tokens of the text."""
        if len(text) <= self._part_chars:
            return len(self.encoding.encode_ordinary(text))
        return sum(map(len, self.encode(text)))

    def ends(self, text: str) -> Iterator[NDArray[np.int64]]:
        """Yield, in parts, the code-point offset behind each token."""
        offset = 0
        for tokens in self.encode(text):
            ends = np.cumsum(self._chars_per_token[tokens], dtype=np.int64) + offset
            offset = int(ends[-1])
            yield ends

    def encode(self, text: str) -> Iterator[Tokens]:
        """Yield the tokens of the text in parts, none of them empty."""
        done, length = 0, len(text)
        before: int | None = None
        while done < length:
            high = done + self._part_chars
            edge = _LAST_EDGE.search(text, done + self._part_chars // 2, high + 1) if high < length else None
            if high >= length or edge is not None:
                end = edge.end() if edge else length
                yield self._joined(before, self._pass(text, done, end), done)
                done, before = end, None
            elif _BLANK.match(text, high - 1):
                done, before = yield from self._encode_blanks(text, done, high, before=before)
            else:
                done, before = yield from self._encode_windows(
                    text,
                    done,
                    length,
                    stop=high,
                    before=before,
                    can_cut=lambda cut, done=done: _is_inside(text, done, cut),
                )

    def _pass(self, text: str, start: int, end: int) -> Tokens:
        return self.encoding.encode_to_numpy(text[start:end], disallowed_special=())

    def _encode_blanks(
        self, text: str, done: int, high: int, *, before: int | None
    ) -> Generator[Tokens, None, tuple[int, int | None]]:
        """Go on to the end of the blanks around `high`, by the pieces that the pattern cuts them into.

        Those are: line ends that a sign ahead takes; all up to the last line end; all but the last blank, which goes
        with what follows. At the end of the text all are one. A piece of nothing but blanks is one by itself too.
        """
        ahead = _LAST_NO_BLANK.search(text, done, high)
        start = ahead.end() if ahead else done
        run = _BLANK_RUN.match(text, high)
        end = run.end() if run else high
        taken = _LINE_ENDS.match(text, start, end) if start > done and _SYMBOL.match(text, start - 1) else None
        free = taken.end() if taken else start
        line_end = max(text.rfind("\n", free, end), text.rfind("\r", free, end)) + 1
        places = [free, end] if end == len(text) else [free, max(line_end, free), max(end - 1, free)]
        for place in places:
            if place > done:
                floor = max(start, done)
                done, before = yield from self._encode_windows(
                    text, done, place, stop=place, before=before, can_cut=lambda cut, floor=floor: cut > floor
                )
        return done, None

    def _encode_windows(
        self, text: str, done: int, end: int, *, stop: int, before: int | None, can_cut: Callable[[int], bool]
    ) -> Generator[Tokens, None, tuple[int, int | None]]:
        """Yield the tokens of windows up to `end`, or to the first cut at or behind `stop`.

        `before` is the token that the first one has to meet, if any; so is what is returned with where it stopped.
        """
        chars = self._window_chars
        tokens = self._pass(text, done, min(done + chars, end))
        while done + chars < end:
            # A window that was made longer has to begin as it did, or with what the one ahead of it can meet too.
            join = self._find_join(text, done, end, tokens, can_cut) if self._meet(before, tokens) else None
            if join is None:
                chars *= 2
                tokens = self._pass(text, done, min(done + chars, end))
                continue
            kept, cut, following = join
            yield tokens[:kept]
            before = None if _are_digits(text, cut) else int(tokens[kept - 1])
            done, tokens, chars = cut, following, self._window_chars
            if done >= stop:
                return done, before
        yield self._joined(before, tokens, done)
        return end, None

    def _joined(self, before: int | None, tokens: Tokens, position: int) -> Tokens:
        if not self._meet(before, tokens):
            raise InternalError(f"The tokens at character {position} depend on text far behind it. Report this.")
        return tokens

    def _meet(self, before: int | None, tokens: Tokens) -> bool:
        return before is None or self._stay_apart(before, int(tokens[0]))

    def _find_join(
        self, text: str, done: int, end: int, tokens: Tokens, can_cut: Callable[[int], bool]
    ) -> tuple[int, int, Tokens] | None:
        """The last place in a window where the next one may begin: tokens ahead, position, the next one's tokens."""
        cut = done + int(np.add.reduce(self._chars_per_token[tokens], dtype=np.int64))
        for kept in range(len(tokens) - 1, 0, -1):
            cut -= int(self._chars_per_token[tokens[kept]])
            if self._begins_inside[tokens[kept]] or not can_cut(cut):
                continue
            following = self._pass(text, cut, min(cut + self._window_chars, end))
            if _are_digits(text, cut) or self._stay_apart(int(tokens[kept - 1]), int(following[0])):
                return kept, cut, following
        return None

    def _stay_apart(self, first: int, second: int) -> bool:
        """Whether the bytes of two tokens, as one piece, are these two tokens."""
        joined = b"".join(map(self.encoding.decode_single_token_bytes, (first, second)))
        return self.encoding._encode_single_piece(joined) == [first, second]  # noqa: SLF001 - there is no public way


def _is_inside(text: str, done: int, cut: int) -> bool:
    """Whether what is ahead of a place and behind it has the pieces of the whole, but for one that is cut there."""
    if _BLANK.match(text, cut - 1) or _BLANK.match(text, cut) or "'" in text[max(cut - _CONTRACTION_CHARS, 0) : cut]:
        return False
    if _are_digits(text, cut):
        ahead = _LAST_NO_DIGIT.search(text, done, cut)
        return (cut - (ahead.end() if ahead else done)) % _DIGITS_A_PIECE == 0
    # A single sign ahead of letters would go with them, where it ends a row of signs in the whole.
    return not _SYMBOL.match(text, cut) or bool(_SYMBOL.match(text, cut + 1))


def _are_digits(text: str, cut: int) -> bool:
    return bool(_DIGIT.match(text, cut - 1) and _DIGIT.match(text, cut))
