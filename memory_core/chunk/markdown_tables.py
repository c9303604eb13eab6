"""The second line of what may be a Markdown table in, where the table ends out; None where it is none.

A table is a header row, a line of dashes with as many cells, and the lines below up to a blank one or another block.
"""

from __future__ import annotations

import re

# A bar is in it somewhere: dashes alone are a thematic break or an underlined heading.
_MARK_LINE = re.compile(r"(?=[^\n|]*+\|)\|?+[ \t]*+:?+-++:?+[ \t]*+(?:\|[ \t]*+:?+-++:?+[ \t]*+)*+\|?+[ \t]*+\n")
_ROWS = re.compile(r"(?:\n(?![ \t]*+(?:\n|>|#{1,6}[ \t]|```|~~~|[-+*][ \t]))[^\n]*+)*+")
# A cell's own bar is escaped.
_CELL_EDGE = re.compile(r"(?<!\\)\|")


def measure_table(source: str, header: int, line: int, start: int) -> int | None:
    """The line end behind the last row. `header` and `line` are the line ends ahead of the first two lines."""
    mark = _MARK_LINE.match(source, start)
    if mark is None or _count_cells(source[header + 1 : line]) != _count_cells(mark[0]):
        return None
    rows = _ROWS.match(source, mark.end() - 1)
    return rows.end() if rows else mark.end() - 1


def _count_cells(row: str) -> int:
    row = row.strip()
    closes = row.endswith("|") and not row.endswith("\\|")
    return len(_CELL_EDGE.findall(row)) + 1 - row.startswith("|") - closes
