"""A text and a window of it in, a place between two words out; nothing outside of the window is searched.

Words are parted by blanks. Chinese and Japanese may be cut at almost any character (Unicode's Annex 14), but not ahead
of closing punctuation or small kana, not in a run of katakana and not in a date. Where there is neither, a run is cut
behind punctuation or between letters and digits, and in a number only when it has nothing else.
"""

from __future__ import annotations

import regex

# Blanks that hold together what they stand between, as in `10 km`.
_GLUE = r"\xa0\u2007\u202f"
_BLANK = rf"(?![{_GLUE}])\s"
_FIRST_BLANK = regex.compile(_BLANK)
_LAST_BLANK = regex.compile(rf"(?r){_BLANK}")

_UNPARTED = r"[\p{Script=Han}\p{Script=Hiragana}]"
_FIRST_UNPARTED = regex.compile(_UNPARTED)
_DATE_UNITS = "\u5e74\u6708\u6642\u65f6\u5206"
_MAY_START = (
    r"(?=[^\p{LB=CJ}\p{LB=NS}\p{LB=CL}\p{LB=CP}\p{LB=EX}\p{LB=IS}\p{LB=QU}\p{LB=IN}\p{LB=PO}\p{LB=SY}\p{LB=BA}"
    r"\p{LB=CM}\p{LB=ZWJ}\p{LB=EM}\p{LB=WJ}\p{LB=GL}])"
)
_MAY_END = r"(?<=[^\p{LB=OP}\p{LB=QU}\p{LB=PR}\p{LB=GL}\p{LB=WJ}\p{LB=ZWJ}\p{N}])"
# These take the one character that the engine leaps to. The edge is behind it where `behind` took part, or ahead of it.
_EDGE = (
    rf"(?:(?={_UNPARTED}{_MAY_START}(?!(?<=[{_DATE_UNITS}])\p{{N}}))(?P<behind>)"
    rf"|{_MAY_END}(?={_UNPARTED}){_MAY_START})"
)
_FIRST_EDGE = regex.compile(rf"(?={_UNPARTED}){_EDGE}{_UNPARTED}")
_LAST_EDGE = regex.compile(rf"(?r){_EDGE}{_UNPARTED}")
_CLAUSE_MARKS = r"[\u3001\uff0c\uff1a\uff1b\uff64\u3009\u300b\u300d\u300f\u3011\uff09]"
_LAST_CLAUSE = regex.compile(rf"(?r)(?={_CLAUSE_MARKS}{_MAY_START})(?P<behind>){_CLAUSE_MARKS}")

_NOT_IN_NUMBER = r"(?!(?<=\p{N}.)\p{N})"
# The last row: zero width space, and marks between words of Tibetan, Ethiopic, Burmese and Khmer.
_SEPARATORS = (
    rf",;&|)\]}}>{_GLUE}"
    r"\u200b\u0f0b\u1361\u104a\u104b\u17d4\u17d5"
)
_JOINTS = r"/\\\-_.:=?#+*~!%"
_BEST_RUN_EDGES = (
    regex.compile(rf"(?r)(?=[{_SEPARATORS}](?![{_SEPARATORS}\"'.:!?]){_NOT_IN_NUMBER})(?P<behind>)[{_SEPARATORS}]"),
    regex.compile(rf"(?r)(?<=[\w/])(?=[{_JOINTS}](?=\w){_NOT_IN_NUMBER})(?P<behind>)[{_JOINTS}]"),
)
_CASE_EDGE = regex.compile(r"(?r)(?:(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[0-9])|(?=[0-9][A-Za-z])(?P<behind>))[0-9A-Z]")
_LAST_RUN_SIGN = regex.compile(rf"(?r)[!-~\p{{P}}\p{{N}}{_GLUE}]")
# A number or a name in a script that parts no words (Thai, Lao, Khmer) is a run of its own.
_LAST_TOKEN = regex.compile(r"(?r)[!-~\p{N}]*+")
_IN_TOKEN = regex.compile(r"[!-~\p{N}]")
_IN_NUMBER = regex.compile(r"(?<=\p{N}\p{P}?)(?=\p{P}?\p{N})")
_LAST_NUMBER = regex.compile(r"(?r)(?:\p{N}|(?<=\p{N})[.,:/\-])*+")
_LIST_EDGE = regex.compile(r"(?r)(?=[,;](?!\p{N}{3}(?!\p{N})))(?P<behind>)[,;]")
# So near to the end of a window a less good cut is taken rather than a good one further ahead.
_NEAR_SHARE = 4
_CASE_WINDOW_CHARS = 64


def has_word_edges(text: str) -> bool:
    """False where there is nothing between words: neither a blank nor Chinese or Japanese."""
    return _FIRST_BLANK.search(text) is not None or _FIRST_UNPARTED.search(text) is not None


def first_word_edge(text: str, start: int, end: int) -> int | None:
    """The first place from `start` to `end` that a word begins at, or that blanks ahead of a word do."""
    blank = _FIRST_BLANK.search(text, max(start - 1, 0), end)
    stop = blank.end() if blank else end
    if blank and blank.start() < start:
        return start
    # What stands at an edge is looked at, too.
    for found in _FIRST_EDGE.finditer(text, max(start - 1, 0), min(stop + 1, len(text))):
        edge = _edge(found)
        if start <= edge <= stop and edge > 0:
            return edge
    return blank.start() if blank else None


def last_word_edge(text: str, start: int, end: int) -> int | None:
    """The last place behind `start`, up to `end`, that a word ends at; a clause's rather where it is near."""
    found = _LAST_BLANK.search(text, start, end + 1)
    blank = found.start() if found and found.start() > start else None
    near = end - (end - start) // _NEAR_SHARE
    if blank is not None and blank >= near:
        return blank
    for window_start, pattern in ((near, _LAST_CLAUSE), (blank or start, _LAST_EDGE)):
        for found in pattern.finditer(text, window_start, end + 1):
            if start < (edge := _edge(found)) <= end:
                return edge
    return blank


def last_run_edge(text: str, start: int, end: int) -> int | None:
    """The best place to cut a run without words, near the end of the window; None where any place is as good."""
    near = end - (end - start) // _NEAR_SHARE
    half = end - (end - start) // 2
    if not _LAST_RUN_SIGN.search(text, near, end):
        return None
    if _IN_TOKEN.match(text, end) and half < (token := _run_start(_LAST_TOKEN, text, half, end)) < end:
        return token
    searches = [*((pattern, near) for pattern in _BEST_RUN_EDGES), (_CASE_EDGE, max(near, end - _CASE_WINDOW_CHARS))]
    is_number = _IN_NUMBER.match(text, end) is not None
    if is_number:
        searches.append((_LIST_EDGE, near))
    for pattern, window_start in searches:
        found = pattern.search(text, window_start, end + 1)
        if found and near < (edge := _edge(found)) <= end:
            return edge
    number = _run_start(_LAST_NUMBER, text, half, end) if is_number else half
    return number if number > half else None


def _run_start(pattern: regex.Pattern[str], text: str, start: int, end: int) -> int:
    found = pattern.match(text, start, end)
    return found.start() if found else end


def _edge(found: regex.Match[str]) -> int:
    return found.start() if found["behind"] is None else found.end()
