"""Slices of a text in, the same slices without the blanks around them out. Array operations; it builds no strings."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from memory_core.chunk.structure import Places

_LAST_BLANK = 0x3000  # the last code point of which `str.isspace` is true
_IS_BLANK = np.array([chr(code).isspace() for code in range(_LAST_BLANK + 1)] + [False])
_IS_FILLED_BYTE = ~_IS_BLANK[:256]
_PART_CHARS = 1 << 16
_NON_BLANK = re.compile(r"\S")


def first_non_blank(content: str, position: int) -> int:
    """The first place at or behind the position that is not blank, or the end."""
    found = _NON_BLANK.search(content, position)
    return found.start() if found else len(content)


def trim(content: str, starts: Places, stops: Places) -> tuple[Places, Places]:
    """The first non-blank at or behind each start (else the end), and the end of the last one ahead of each stop.

    Both ascend. Of a slice that is blank the first is not ahead of its stop.
    """
    firsts = np.full(len(starts), len(content), dtype=np.int32)
    lasts = np.zeros(len(stops), dtype=np.int32)
    start_row = stop_row = last = 0
    for offset in range(0, len(content), _PART_CHARS):
        end = offset + _PART_CHARS
        filled = _find_non_blanks(content[offset:end]) + offset
        found = np.searchsorted(filled, starts[start_row : np.searchsorted(starts, end)])
        found = found[found < len(filled)]
        firsts[start_row : start_row + len(found)] = filled[found]
        start_row += len(found)
        upto = int(np.searchsorted(stops, end, "right"))
        ahead = np.searchsorted(filled, stops[stop_row:upto])
        lasts[stop_row:upto] = np.where(ahead > 0, filled[ahead - 1] + 1, last) if len(filled) else last
        stop_row = upto
        last = int(filled[-1]) + 1 if len(filled) else last
    return firsts, lasts


def _find_non_blanks(part: str) -> NDArray[np.int64]:
    if part.isascii():
        return np.flatnonzero(_IS_FILLED_BYTE[np.frombuffer(part.encode("ascii"), dtype=np.uint8)])
    codes = np.frombuffer(part.encode("utf-32-le"), dtype=np.uint32)
    return np.flatnonzero(~_IS_BLANK[np.minimum(codes, _LAST_BLANK + 1)])
