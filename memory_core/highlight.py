"""The places of a text that answer a question. In: a text and a query. Out: ranges, snippets, escaped HTML. Pure.

All offsets are code points of the text as it was given. Folding (case, accents of Latin and Greek letters) is done
character by character and remembers where each came from, so that no letter that folds to two moves a mark. The only
markup that is ever made is `<mark>`, after everything else is escaped.
"""

from __future__ import annotations

import html
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

WINDOW_CHARS: Final = 240
MAX_FRAGMENTS: Final = 2
_MINIMUM_WINDOW_CHARS = 40
_MAX_TERMS = 12
_MAX_MATCHES_PER_TERM = 32
_EDGE_CHARS = 24  # how far an edge may move to stand between two words
_SHORTEST_STEM_CHARS = 4

# Scripts without blanks: a query in them is looked for in pairs of neighbours, anywhere, as the text leg does.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+(?:\+\+|#(?!\w))?", regex.VERSION1)
_UNSPACED_CHAR = regex.compile(rf"[{_UNSPACED}]")
_ACCENTED_SCRIPT = regex.compile(r"[\p{Latin}\p{Greek}]")
_ENDINGS = ("ing", "ies", "ed", "es", "s", "y")  # a light touch for what the text leg's stemmer finds
_STOP_WORDS = frozenset(
    """
    a an and are as at be but by can do does for from had has have how i if in into is it its my no not of on or our so
    that the their then there these they this to was we what when where which who why will with you your
    """.split()
)


@dataclass(frozen=True, slots=True, order=True)
class Match:
    """One place `text[start:end]` that a term of the query reaches; `term` is that term's number."""

    start: int
    end: int
    term: int


@dataclass(frozen=True, slots=True)
class _Folded:
    """A folded text; `origins[i]` is its character i's place in the text, and the last one the text's length."""

    text: str
    origins: Sequence[int]


def read_terms(query: str) -> tuple[str, ...]:
    """What to look for: the folded words of the query, at most 12, without stop words and single letters.

    `C++` and `C#` are words. A query of nothing but stop words or single letters keeps them.
    """
    words: list[str] = []
    for word in _WORD.findall(_fold(query).text):
        if _UNSPACED_CHAR.match(word) and len(word) > 1:
            words += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            words.append(word)
    telling = [word for word in words if word not in _STOP_WORDS and (len(word) > 1 or _UNSPACED_CHAR.match(word))]
    return tuple(dict.fromkeys(telling or words))[:_MAX_TERMS]


def find_matches(text: str, query: str) -> tuple[Match, ...]:
    """Every place of the text that a term of the query begins a word at, in order; at most 32 a term.

    A word begins behind anything that is no letter or digit, behind `_`, and at a capital inside `camelCase`. It may go
    on behind the term: `field` marks the beginning of `fields`.
    """
    folded = _fold(text)
    matches: list[Match] = []
    for number, term in enumerate(read_terms(query)):
        matches += _find_term(text, folded, _strip_ending(term), number)
    return tuple(sorted(matches))


def cut_fragments(text: str, query: str, *, window: int = WINDOW_CHARS, limit: int = MAX_FRAGMENTS) -> tuple[str, ...]:
    """Plain snippets around the matches, best first, for terminals and agents; not safe as HTML.

    The best window has the most different terms, then the most matches, then comes first. Blanks are collapsed, and an
    ellipsis stands where something was left out. A text without a match gives its head; a blank one gives nothing.
    """
    width = max(window, _MINIMUM_WINDOW_CHARS)
    if not text.strip():
        return ()
    if len(text) <= width:
        return (_collapse(text),)
    chosen: list[tuple[int, int]] = []
    rest = find_matches(text, query)
    while rest and len(chosen) < limit:
        best = _best_window(rest, width, len(text), chosen)
        chosen.append(best)
        rest = tuple(match for match in rest if match.end <= best[0] or match.start >= best[1])
    return tuple(_render(text, start, end) for start, end in chosen or [(0, width)])


def mark_html(text: str, query: str) -> str:
    """The text as HTML: every piece escaped, the matches inside `<mark>`; touching ones are one mark."""
    pieces: list[str] = []
    done = 0
    for start, end in _merge(find_matches(text, query)):
        pieces += [html.escape(text[done:start]), "<mark>", html.escape(text[start:end]), "</mark>"]
        done = end
    return "".join([*pieces, html.escape(text[done:])])


def mark_fragments(text: str, query: str, *, window: int = WINDOW_CHARS, limit: int = MAX_FRAGMENTS) -> tuple[str, ...]:
    """The same snippets as `cut_fragments`, as HTML that is safe to show."""
    return tuple(mark_html(fragment, query) for fragment in cut_fragments(text, query, window=window, limit=limit))


def _fold(text: str) -> _Folded:
    if text.isascii():
        return _Folded(text.lower(), range(len(text) + 1))
    characters: list[str] = []
    origins: list[int] = []
    after_accented = False
    for place, char in enumerate(text):
        for part in unicodedata.normalize("NFD", char.casefold()):
            if unicodedata.combining(part):
                if after_accented:
                    continue
            else:
                after_accented = _ACCENTED_SCRIPT.match(part) is not None
            characters.append(part)
            origins.append(place)
    origins.append(len(text))
    return _Folded("".join(characters), origins)


def _strip_ending(term: str) -> str:
    for ending in _ENDINGS:
        if term.endswith(ending) and len(term) - len(ending) >= _SHORTEST_STEM_CHARS and not term.endswith("ss"):
            return term.removesuffix(ending)
    return term


def _find_term(text: str, folded: _Folded, term: str, number: int) -> list[Match]:
    found: list[Match] = []
    at = folded.text.find(term)
    while at >= 0 and len(found) < _MAX_MATCHES_PER_TERM:
        start = folded.origins[at]
        begins_character = at == 0 or folded.origins[at - 1] != start
        if begins_character and _begins_word(text, start):
            found.append(Match(start, _end_of(text, folded, at + len(term)), number))
        at = folded.text.find(term, at + len(term))
    return found


def _begins_word(text: str, place: int) -> bool:
    here = text[place]
    if place == 0 or _UNSPACED_CHAR.match(here):
        return True
    before = text[place - 1]
    if unicodedata.combining(before):
        return False
    return not before.isalnum() or (here.isupper() and before.islower()) or _UNSPACED_CHAR.match(before) is not None


def _end_of(text: str, folded: _Folded, behind: int) -> int:
    """The end of a match in the text: never inside a character that folds to several, never before its own accents."""
    end = folded.origins[behind - 1] + 1
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return end


def _best_window(
    matches: Sequence[Match], width: int, length: int, taken: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    best: tuple[tuple[int, int, int], tuple[int, int]] | None = None
    starts = [match.start for match in matches]
    for anchor in matches:
        start, end = _place_window(anchor, width, length, taken)
        near = matches[bisect_left(starts, start) : bisect_left(starts, end)]
        inside = [match for match in near if match.end <= end]
        rank = (-len({match.term for match in inside}), -len(inside), anchor.start)
        if best is None or rank < best[0]:
            best = (rank, (start, end))
    if best is None:
        raise ValueError("a window is placed around at least one match")
    return best[1]


def _place_window(anchor: Match, width: int, length: int, taken: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """A quarter of the width precedes the anchor; windows that were taken already are not entered."""
    start = max(0, min(anchor.start - width // 4, length - width))
    end = min(length, start + width)
    for other_start, other_end in taken:
        if other_end <= anchor.start:
            start = max(start, other_end)
        elif other_start >= anchor.end:
            end = min(end, other_start)
    return start, end


def _render(text: str, start: int, end: int) -> str:
    start = _move_start(text, start)
    end = _move_end(text, end)
    body = _collapse(text[start:end])
    before = "…" if text[:start].strip() else ""
    behind = "…" if text[end:].strip() else ""
    return f"{before}{body}{behind}"


def _move_start(text: str, start: int) -> int:
    if start == 0:
        return 0
    for place in range(start, min(len(text), start + _EDGE_CHARS)):
        if text[place - 1].isspace():
            return place
    return _at_cluster(text, start)


def _move_end(text: str, end: int) -> int:
    if end >= len(text):
        return len(text)
    for place in range(end, max(0, end - _EDGE_CHARS), -1):
        if text[place].isspace():
            return place
    return _at_cluster(text, end)


def _at_cluster(text: str, place: int) -> int:
    """Back to where a grapheme begins: half an emoji or a lost accent is no edge."""
    around = max(0, place - _EDGE_CHARS)
    begins = [around + found.start() for found in regex.finditer(r"\X", text[around : place + 1])]
    return begins[-1] if begins else place


def _merge(matches: Sequence[Match]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for match in matches:
        if merged and match.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], match.end))
        else:
            merged.append((match.start, match.end))
    return merged


def _collapse(text: str) -> str:
    return " ".join(text.split())
