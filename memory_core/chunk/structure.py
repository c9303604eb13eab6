"""What a scanner knows of a text, as one value the packer reads: where it may be cut and what goes together.

A scanner never decides sizes. It names cut positions by level (a smaller level is a stronger cut), the sections, and
the headings that must keep what is below them. Lines, sentences, words and grapheme clusters are the packer's own.
All is kept in columns: a text of a million headings must not become a million objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Places: TypeAlias = NDArray[np.int32]

SECTION_LEVELS = 6  # levels 1 to 6 are the edges of sections: HTML and Markdown know six depths of headings
BARE_LEVEL = 7  # between headings that have no text of their own
BLOCK_LEVEL = 10
LEVELS_PER_DEPTH = 4  # a block, a list item, a glued cut; one in reserve
ITEM_STEP = 1
GLUE_STEP = 2
MAX_DEPTH = 50  # containers inside each other; deeper ones are plain text


class Section(NamedTuple):
    """The text from one heading to the next of its depth or above, and the names of the headings it stands below."""

    start: int
    end: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Places where the text may be cut, in parallel columns; positions ascend.

    A glued cut parts a heading from its body: only where the two do not fit. `bodies` is, at the start of a heading or
    of a chain of headings, where what it must stay with begins, and the position itself elsewhere.
    """

    positions: Places
    levels: NDArray[np.uint8]
    glued: NDArray[np.bool_]
    bodies: Places


@dataclass(frozen=True, slots=True)
class Sections:
    """Sections in parallel columns. Row 0 is the whole text; `parents` points at the row around a row.

    `starts` are the places where a section begins or is gone back to, ascending; `rows` says which one. `binding`
    sections hold every chunk that begins in them; a chunk goes over the edges of others and takes the path of all that
    holds the whole of it.
    """

    starts: Sequence[int]
    rows: Sequence[int]
    ends: Sequence[int]
    parents: Sequence[int]
    names: Sequence[str]
    binding: bool

    def row_at(self, position: int) -> int:
        """The section in force at the position."""
        return self.rows[bisect_right(self.starts, position) - 1]

    def start_at(self, position: int) -> int:
        """Where a chunk that ends at the position, or goes on behind it, may begin."""
        return self.starts[bisect_right(self.starts, position) - 1] if self.binding else 0

    def end_at(self, position: int) -> int:
        """Where a chunk that begins at the position must end."""
        return self.ends[self.row_at(position) if self.binding else 0]

    def path_of(self, start: int, end: int) -> tuple[str, ...]:
        """The names around the slice, outermost first."""
        row = self.row_at(start)
        while row and self.ends[row] < end:
            row = self.parents[row]
        names: list[str] = []
        while row:
            if self.names[row]:
                names.append(self.names[row])
            row = self.parents[row]
        return tuple(reversed(names))


@dataclass(frozen=True, slots=True)
class Leads:
    """Header rows: `lead_starts` to `lead_ends` is that of what begins behind it, up to `ends`. Positions ascend."""

    ends: Sequence[int] = ()
    lead_starts: Sequence[int] = ()
    lead_ends: Sequence[int] = ()

    def row_at(self, position: int) -> int | None:
        """The row of the header that the text at the position is below."""
        row = bisect_right(self.lead_ends, position) - 1
        return row if row >= 0 and position < self.ends[row] else None


@dataclass(frozen=True, slots=True)
class Hidden:
    """What a reader does not see as it stands: `starts` to `ends` is read as `shown`. Ascending, apart."""

    starts: Sequence[int] = ()
    ends: Sequence[int] = ()
    shown: Sequence[str] = ()

    def read(self, content: str, start: int, end: int) -> str:
        """What a reader sees of the slice, without blank lines. A range is shown where it begins."""
        parts: list[str] = []
        row = max(bisect_right(self.starts, start) - 1, 0)
        at = start
        while row < len(self.starts) and self.starts[row] < end:
            if self.ends[row] > at:
                if self.starts[row] >= start:
                    parts += (content[at : self.starts[row]], self.shown[row])
                at = self.ends[row]
            row += 1
        parts.append(content[at:end])
        lines = (line.rstrip() for line in "".join(parts).split("\n"))
        return "\n".join(line for line in lines if line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The structure of one text. Positions count code points.

    `lines` is the text with a line feed as its only line end, of equal length.
    """

    strategy: str
    lines: str
    cuts: Cuts
    spans: Sections
    leads: Leads
    hidden: Hidden

    @property
    def sections(self) -> list[Section]:
        """All sections in the order of their starts; the first is the whole text."""
        spans = self.spans
        return [
            Section(start, spans.ends[row], spans.path_of(start, start))
            for start, row in zip(spans.starts, spans.rows, strict=True)
        ]


def block_level(depth: int) -> int:
    """The level of a block's edge inside so many containers (list items, quotes)."""
    return BLOCK_LEVEL + LEVELS_PER_DEPTH * (min(MAX_DEPTH, depth))
