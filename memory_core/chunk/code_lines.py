"""A text in, where its lines begin and how far they are indented out, as arrays. Knows no programming language."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int32]

# An indentation is compared, never shown: so a tab may count for the commonest width.
_TAB_COLUMNS = 4
_LINE_FEED, _TAB, _BLANK = b"\n\t "


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLines:
    """The lines of a text that are not blank, one row a line; positions count code points.

    `starts` is where a line begins, `inks` its first character that is not blank, `columns` its indentation;
    `after_blank` is true where blank lines stand before it. `length` is that of the text.
    """

    starts: Positions
    inks: Positions
    columns: Positions
    after_blank: NDArray[np.bool_]
    length: int

    def rows_at(self, positions: Positions) -> NDArray[np.intp]:
        """The row that each position stands in; -1 ahead of the first."""
        return np.searchsorted(self.starts, positions, side="right") - 1

    def starts_from(self, rows: NDArray[np.intp]) -> Positions:
        """Where each row begins; the row behind the last one begins at the end of the text."""
        return np.append(self.starts, np.int32(self.length))[rows]


def read_lines(text: str) -> CodeLines:
    """Read the lines of a text whose only line end is a line feed."""
    # One byte a character keeps positions: whatever Latin-1 does not have becomes a question mark, which is not blank.
    codes = np.frombuffer(text.encode("latin-1", errors="replace"), dtype=np.uint8)
    begins = np.concatenate(([0], np.flatnonzero(codes == _LINE_FEED) + 1)).astype(np.int32)
    inks = _first_inks(codes, begins)
    ends = np.append(begins[1:], np.int32(len(codes)))
    rows = np.flatnonzero(inks < ends)
    starts, inks = begins[rows], inks[rows]
    columns = inks - starts
    columns[codes[starts] == _TAB] *= _TAB_COLUMNS
    return CodeLines(
        starts=starts,
        inks=inks,
        columns=columns,
        after_blank=np.diff(rows, prepend=-1) > 1,
        length=len(codes),
    )


def _first_inks(codes: NDArray[np.uint8], begins: Positions) -> Positions:
    """The first character at or behind each position that is no blank and no control character, else the length."""
    is_ink = codes > _BLANK
    # Only where a run of them begins is of interest: the first one of a line always begins one.
    runs = np.append(np.flatnonzero(is_ink & ~np.append(np.False_, is_ink[:-1])).astype(np.int32), np.int32(len(codes)))
    return runs[np.searchsorted(runs, begins)]
