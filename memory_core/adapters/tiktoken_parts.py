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
import string
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import regex
import tiktoken
from numpy.typing import NDArray

from memory_core.errors import InternalError

PART_CHARS: Final = 1 << 16
WINDOW_CHARS: Final = 1 << 12
# What stands at the ends of a chunk, as in `.` and `**`: the same few again and again.
_SHORT_CHARS: Final = 8
_KEPT_COUNTS: Final = 1 << 12

Tokens = NDArray[np.uint32]

# What the pattern calls blank, and the blanks that no sign ahead of them takes along.
_BLANKS: Final = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_FREE_BLANKS: Final = r"\t\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# A piece ends behind each of these: what is not blank, ahead of a blank; a letter or digit of ASCII, ahead of ASCII of
# another kind; a line end of either kind, ahead of a non-blank. (Some calls blank what others do not.)
_FILLED: Final = r"[^\s\x1c-\x1f]"
_LAST_EDGE = regex.compile(
    rf"(?r){_FILLED}(?=[{_FREE_BLANKS}])|[A-Za-z](?=[\r\n -@\[-`{{-~])|[0-9](?=[\r\n -/:-~])|[\r\n](?={_FILLED})"
)
_BLANK = re.compile(f"[{_BLANKS}]")
_BLANK_RUN = re.compile(f"[{_BLANKS}]*+")
_LAST_NO_BLANK = regex.compile(f"(?r)[^{_BLANKS}]")
_LINE_ENDS = re.compile(r"[\r\n]*+")
_LETTER: Final = r"\p{L}"
_DIGIT: Final = r"\p{N}"
_SYMBOL: Final = r"[^\s\p{L}\p{N}]"
_DIGITS_A_PIECE: Final = 3
# A contraction is a piece of its own, of two or three characters: no cut inside one.
_CONTRACTION = regex.compile(r"'(?i:[sdmt]|ll|ve|re)")
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80


class PartEncoder:
    """Encodes texts of any length with one encoding, whose pattern is that of cl100k_base. Safe to share."""

    def __init__(
        self, encoding: tiktoken.Encoding, *, part_chars: int = PART_CHARS, window_chars: int = WINDOW_CHARS
    ) -> None:
        self.encoding = encoding
        self._count_short = lru_cache(_KEPT_COUNTS)(self._count_at_once)
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
        # Of some tokens only the last bytes of a code point are ahead of the next one.
        self._goes_over = self._begins_inside & (self._chars_per_token > 0)

    def count(self, text: str) -> int:
        """Tokens of the text."""
        if len(text) <= _SHORT_CHARS:
            return self._count_short(text)
        if len(text) <= self._part_chars:
            return self._count_at_once(text)
        return sum(map(len, self.encode(text)))

    def _count_at_once(self, text: str) -> int:
        return len(self.encoding.encode_ordinary(text))

    def ends(self, text: str) -> Iterator[NDArray[np.int64]]:
        """Yield, in parts, the code-point offset behind each token.

        A token that ends inside a code point ends behind it; where the next one goes on over that, behind the next one.
        """
        offset = 0
        for tokens in self.encode(text):
            ends = np.cumsum(self._chars_per_token[tokens], dtype=np.int64) + offset
            offset = int(ends[-1])
            for row in np.flatnonzero(self._goes_over[tokens])[::-1].tolist():
                inside = int(np.searchsorted(ends, ends[row - 1]))
                ends[inside:row] = ends[row]
            yield ends

    def encode(self, text: str) -> Iterator[Tokens]:
        """Yield the tokens of the text in parts, none of them empty."""
        done, length = 0, len(text)
        before: int | None = None
        while done < length:
            high = done + self._part_chars
            # Only near the end: behind that, windows are cheaper than a longer search.
            edge = _LAST_EDGE.search(text, high - self._window_chars, high + 1) if high < length else None
            if high >= length or edge is not None:
                end = edge.end() if edge else length
                yield self._joined(before, self._pass(text, done, end), done)
                done, before = end, None
            elif blank := _BLANK.search(text, high - 1, high + self._window_chars):
                # No window may reach into blanks: it could not end in them, and would grow until they end.
                done, before = yield from self._encode_blanks(text, done, blank.end(), before=before)
            else:
                done, before = yield from self._encode_windows(
                    text,
                    done,
                    length,
                    stop=high,
                    before=before,
                    can_cut=lambda start, cut: _is_inside(text, start, cut),
                )

    def _pass(self, text: str, start: int, end: int) -> Tokens:
        return self.encoding.encode_to_numpy(text[start:end], disallowed_special=())

    def _encode_blanks(
        self, text: str, done: int, high: int, *, before: int | None
    ) -> Generator[Tokens, None, tuple[int, int | None]]:
        """Go on to the end of the blanks ahead of `high`, by the pieces that the pattern cuts them into.

        Those are: line ends that a sign ahead takes; all up to the last line end; all but the last blank, which goes
        with what follows. At the end of the text all are one. A piece of nothing but blanks is one by itself too.
        """
        ahead = _LAST_NO_BLANK.search(text, done, high)
        start = ahead.end() if ahead else done
        run = _BLANK_RUN.match(text, high)
        end = run.end() if run else high
        taken = _LINE_ENDS.match(text, start, end) if start > done and _is(_SYMBOL, text[start - 1]) else None
        free = taken.end() if taken else start
        line_end = max(text.rfind("\n", free, end), text.rfind("\r", free, end)) + 1
        places = [free, end] if end == len(text) else [free, max(line_end, free), max(end - 1, free)]
        for place in places:
            if place > done:
                done, before = yield from self._encode_windows(
                    text,
                    done,
                    place,
                    stop=place,
                    before=before,
                    can_cut=lambda begin, cut: cut > start or _is_inside(text, begin, cut),
                )
        return done, None

    def _encode_windows(
        self, text: str, done: int, end: int, *, stop: int, before: int | None, can_cut: Callable[[int, int], bool]
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
        self, text: str, done: int, end: int, tokens: Tokens, can_cut: Callable[[int, int], bool]
    ) -> tuple[int, int, Tokens] | None:
        """The last place in a window where the next one may begin: tokens ahead, position, the next one's tokens."""
        cut = done + int(np.add.reduce(self._chars_per_token[tokens], dtype=np.int64))
        for kept in range(len(tokens) - 1, 0, -1):
            cut -= int(self._chars_per_token[tokens[kept]])
            if self._begins_inside[tokens[kept]] or not can_cut(done, cut):
                continue
            following = self._pass(text, cut, min(cut + self._window_chars, end))
            if _are_digits(text, cut) or self._stay_apart(int(tokens[kept - 1]), int(following[0])):
                return kept, cut, following
        return None

    def _stay_apart(self, first: int, second: int) -> bool:
        """Whether the bytes of two tokens, as one piece, are these two tokens."""
        joined = b"".join(map(self.encoding.decode_single_token_bytes, (first, second)))
        return self.encoding._encode_single_piece(joined) == [first, second]  # noqa: SLF001 - there is no public way


def goes_on(text: str, cut: int) -> bool:
    """Whether a row of letters or of signs goes on over a place, so that its rest is a piece of its own there."""
    if not 0 < cut < len(text) or _splits_contraction(text, cut):
        return False
    before, after = text[cut - 1], text[cut]
    if _is(_LETTER, before):
        return _is(_LETTER, after)
    return all(_is(_SYMBOL, char) for char in (before, after, text[cut + 1 : cut + 2]))


def _is_inside(text: str, start: int, cut: int) -> bool:
    """Whether what is ahead of a place and behind it has the pieces of the whole, but for one that is cut there.

    `start` is where a piece begins, or a row of digits goes on after a whole number of pieces.
    """
    if _BLANK.match(text, cut - 1) or _BLANK.match(text, cut) or _splits_contraction(text, cut):
        return False
    if _are_digits(text, cut):
        first = start + len(text[start:cut].rstrip(string.digits))
        while first > start and _is(_DIGIT, text[first - 1]):
            first -= 1
        return (cut - first) % _DIGITS_A_PIECE == 0
    # The last of a row of signs would go with the letters behind it, if it stood alone.
    return not all(_is(_SYMBOL, char) for char in text[cut - 1 : cut + 1]) or _is(_SYMBOL, text[cut + 1 : cut + 2])


def _splits_contraction(text: str, cut: int) -> bool:
    if "'" not in text[max(cut - 2, 0) : cut]:
        return False
    found = (_CONTRACTION.match(text, at) for at in range(max(cut - 2, 0), cut))
    return any(contraction and contraction.end() > cut for contraction in found)


def _are_digits(text: str, cut: int) -> bool:
    return _is(_DIGIT, text[cut - 1]) and _is(_DIGIT, text[cut])


@lru_cache(maxsize=1 << 12)
def _is(pattern: str, char: str) -> bool:
    """Whether the tokenizer's own engine matches a character; none matches where the text has ended.

    `regex` and Python know other versions of Unicode: thousands of letters are signs to one and not to the other.
    """
    return bool(_load_engine(pattern).encode_ordinary(char))


@lru_cache(maxsize=4)
def _load_engine(pattern: str) -> tiktoken.Encoding:
    """An encoding with a token for each byte, so that every match has tokens, and what lies between has none."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    return tiktoken.Encoding("bytes", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
