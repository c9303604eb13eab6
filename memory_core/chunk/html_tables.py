"""The tags of tables in, the header row of each table out. It never looks at the text of a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Lead(NamedTuple):
    """A table, and where the row stands that names its columns."""

    start: int
    end: int
    header_start: int
    header_end: int


@dataclass(slots=True)
class _Table:
    """`header_start` is -1 where no header is being read."""

    start: int
    header: tuple[int, int] | None = None
    header_start: int = -1
    in_thead: bool = False
    has_rows: bool = False
    has_names: bool = False


class Tables:
    """Follows the open tables. The header is the `thead`, or a first row with `th` and without `td`."""

    def __init__(self) -> None:
        self._open: list[_Table] = []
        self._found: list[Lead] = []

    def start(self, name: str, position: int) -> None:
        """A block or a cell begins; outside of a table only a table itself counts."""
        if name == "table":
            self._open.append(_Table(position))
        elif self._open:
            _start_part(self._open[-1], name, position)

    def end(self, name: str, position: int) -> None:
        """A block or a cell of a table ends, or the table does."""
        if not self._open:
            return
        table = self._open[-1]
        if name == "table":
            self._open.pop()
            if table.header:
                self._found.append(Lead(table.start, position, *table.header))
        elif name == ("thead" if table.in_thead else "tr") and table.header_start >= 0 and table.has_names:
            table.header, table.header_start = (table.header_start, position), -1

    def leads(self) -> list[Lead]:
        """In order, none inside of another: a table in a table that has a header goes on with that one's."""
        leads: list[Lead] = []
        for lead in sorted(self._found):
            if not leads or lead.start >= leads[-1].end:
                leads.append(lead)
        return leads


def _start_part(table: _Table, name: str, position: int) -> None:
    match name:
        case "thead" | "tr" if not table.has_rows:
            table.has_rows, table.header_start, table.in_thead = True, position, name == "thead"
        case "th":
            table.has_names = True
        case "td" if table.in_thead:
            table.has_names = True
        case "td":
            table.header_start = -1
        case _:
            pass
