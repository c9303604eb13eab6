"""Blocks, headings and named elements in reading order in, a Structure out. Shared by all scanners."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from memory_core.chunk.structure import (
    BARE_LEVEL,
    BLOCK_LEVEL,
    GLUE_STEP,
    MAX_DEPTH,
    Cuts,
    Hidden,
    Leads,
    Places,
    Sections,
    Structure,
)

# A path is stored with every chunk below it: a heading of a million characters must not be.
MAX_PATH_NAME_CHARS = 256
# Neighbours of one level that are no longer together are one block: it fits any chunk, and a text of millions of them
# has far fewer.
SMALL_BLOCK_CHARS = 16


class Outline:
    """Collects cuts and sections. Positions ascend; the first block at a position counts.

    A text has either headings or named elements. No chunk goes over the edge of a heading's section, but one of
    headings that have no text of their own. Named elements (keys, definitions) share a chunk while they fit.
    """

    def __init__(self) -> None:
        self._positions = array("i")
        self._levels = array("B")
        self._glued = array("B")
        self._bodies = array("i")
        self._is_last_whole = True
        # The headings that no text has followed yet: the row of the cut ahead of them, where the last one ends. The
        # first block below them waits: it may turn out to be a heading too.
        self._chain_cut: int | None = None
        self._pending: tuple[int, int, bool] | None = None
        self._chain_depth = 0
        self._chain_end = 0
        self._starts = array("i", [0])
        self._rows = array("i", [0])
        self._ends = array("i", [-1])
        self._parents = array("i", [0])
        self._names = [""]
        self._known_names: dict[str, str] = {}
        self._open: list[tuple[int, int]] = []
        # The first of the sections that no text has followed yet, and the cut ahead of it.
        self._bare_from = 1
        self._bare_cut: int | None = None
        self._binding = True
        self._too_deep = 0
        self._leads = (array("i"), array("i"), array("i"))
        self._hidden = (array("i"), array("i"))
        self._shown: list[str] = []

    # --- blocks -------------------------------------------------------------------------------------------------------

    def add_block(self, position: int, level: int, *, whole: bool = False, was_block: bool = False) -> None:
        """A block begins. `whole`: it, or each item of it, is not to be cut for the sake of the heading above it.

        `was_block`: what was added at this position turned out to be another block (a table).
        """
        if was_block:
            self._take_back(position)
        if self._pending is not None and self._pending[0] != position:
            self._flush()
        if self._pending is None:
            if self._chain_cut is None:
                self._add_cut(position, level, whole=whole)
            else:
                self._pending = (position, level, whole)

    def add_blocks(self, positions: Sequence[int], level: int, *, offset: int = 0) -> None:
        """Blocks of one level begin at these places behind `offset`, at least one, with nothing else between them."""
        self.add_block(positions[0] + offset, level)
        # A single one may still turn out to be a heading.
        if len(positions) > 1:
            self._flush()
        for position in positions[1:]:
            self._add_cut(position + offset, level, whole=False)

    def _add_cut(self, position: int, level: int, *, whole: bool = True, glued: bool = False) -> None:
        positions, levels = self._positions, self._levels
        if positions and positions[-1] == position:
            return
        if (
            not self._is_last_whole
            and level >= BLOCK_LEVEL
            and len(positions) > 1
            and position - positions[-2] <= SMALL_BLOCK_CHARS
            and levels[-1] == levels[-2] == level
        ):
            # The block that ends here and the one ahead of it are small together: one block.
            positions[-1] = self._bodies[-1] = position
            self._is_last_whole = whole
            return
        self._is_last_whole = whole
        positions.append(position)
        levels.append(level)
        self._glued.append(glued)
        self._bodies.append(position)

    def _flush(self) -> None:
        if self._pending is None or self._chain_cut is None:
            return
        position, level, whole = self._pending
        self._pending = None
        self._bodies[self._chain_cut] = self._chain_end if whole else position
        self._close_bare(self._positions[self._chain_cut])
        self._chain_cut = None
        if whole:
            self._add_cut(position, level + GLUE_STEP, glued=True)

    # --- headings -----------------------------------------------------------------------------------------------------

    def add_heading(self, position: int, end: int, depth: int, name: str, *, was_block: bool = False) -> None:
        """A heading begins. `was_block`: what was added at this position turned out to be the heading (setext)."""
        if was_block:
            self._take_back(position)
        self._flush()
        if self._chain_cut is None or depth <= self._chain_depth:
            self._chain_cut = len(self._positions)
            self._add_cut(position, depth)
            if self._bare_cut is None:
                self._bare_cut = self._chain_cut
        self._chain_depth, self._chain_end = depth, end
        while self._open and self._open[-1][0] >= depth:
            self._ends[self._open.pop()[1]] = position
        self._open.append((depth, self._add_section(position, name)))

    def add_headings(self, starts: array[int], ends: array[int], depth: int, names: Sequence[str]) -> None:
        """Headings of one depth with nothing between them, at least one: what `add_heading` does, in one go."""
        self.add_heading(starts[0], ends[0], depth, names[0])
        following = starts[1:]
        if not following:
            return
        count, row = len(following), len(self._names)
        self._positions.extend(following)
        self._bodies.extend(following)
        self._levels.extend(array("B", (depth,)) * count)
        self._glued.extend(array("B", (0,)) * count)
        self._chain_cut, self._chain_end = len(self._positions) - 1, ends[-1]
        self._starts.extend(following)
        self._rows.extend(range(row, row + count))
        self._ends[-1:] = following
        self._ends.append(-1)
        self._parents.extend(array("i", (self._parents[-1],)) * count)
        self._names.extend(map(self._share_name, names[1:]))
        self._open[-1] = (depth, row + count - 1)

    def _take_back(self, position: int) -> None:
        if self._pending is not None:
            if self._pending[0] == position:
                self._pending = None
        elif self._positions and self._positions[-1] == position:
            for column in (self._positions, self._levels, self._glued, self._bodies):
                column.pop()

    def _close_bare(self, chain_start: int) -> None:
        """Let the sections ahead of this heading that are nothing but headings end together, so that they pack."""
        for row in range(self._bare_from, len(self._names)):
            if 0 <= self._ends[row] < chain_start:
                self._ends[row] = chain_start
        self._bare_from = len(self._names)
        if self._bare_cut is not None and self._chain_cut is not None:
            stop = self._chain_cut + (self._positions[self._chain_cut] < chain_start)
            self._chain_cut -= self._weaken(self._bare_cut + 1, stop)
        self._bare_cut = None

    def _weaken(self, first: int, stop: int) -> int:
        """Make cuts between headings without text weaker than all between others; return how many are gone."""
        if first >= stop:
            return 0
        kept = array("i", self._positions[first : first + 1])
        for position in self._positions[first + 1 : stop]:
            if len(kept) > 1 and position - kept[-2] <= SMALL_BLOCK_CHARS:
                kept[-1] = position
            else:
                kept.append(position)
        self._positions[first:stop] = self._bodies[first:stop] = kept
        self._levels[first:stop] = array("B", bytes((BARE_LEVEL,)) * len(kept))
        self._glued[first:stop] = array("B", bytes(len(kept)))
        return stop - first - len(kept)

    # --- named elements -----------------------------------------------------------------------------------------------

    def enter(self, position: int, name: str) -> None:
        """A named element begins; the text may be cut ahead of it only where a block begins too."""
        self._binding = False
        if len(self._open) >= MAX_DEPTH:
            self._too_deep += 1
            return
        self._open.append((0, self._add_section(position, name)))

    def leave(self, position: int) -> None:
        """The innermost named element ends."""
        if self._too_deep:
            self._too_deep -= 1
            return
        _, row = self._open.pop()
        self._ends[row] = position
        self._begin(position, self._parents[row])

    def _add_section(self, position: int, name: str) -> int:
        row = len(self._names)
        self._begin(position, row)
        self._ends.append(-1)
        self._parents.append(self._open[-1][1] if self._open else 0)
        self._names.append(self._share_name(name))
        return row

    def _share_name(self, name: str) -> str:
        """The name as it is shown, one string for equal ones."""
        known = self._known_names.get(name)
        if known is None:
            known = _clip(name)
            known = self._known_names.setdefault(known, known)
        return known

    def _begin(self, position: int, row: int) -> None:
        if len(self._starts) > 1 and self._starts[-1] == position:
            self._rows[-1] = row
        else:
            self._starts.append(position)
            self._rows.append(row)

    # --- header rows, and what is not read ----------------------------------------------------------------------------

    def add_lead(self, start: int, end: int, lead_start: int, lead_end: int) -> None:
        """`content[lead_start:lead_end]` is the header row of what is between `start` and `end`. In order, apart."""
        if start < end:
            for column, value in zip(self._leads, (end, lead_start, lead_end), strict=True):
                column.append(value)

    def hide(self, start: int, end: int, shown: str = "") -> None:
        """A reader sees `shown` instead of what is between the two. In order, apart."""
        starts, ends = self._hidden
        starts.append(start)
        ends.append(end)
        self._shown.append(shown)

    def build(self, content: str, *, lines: str, strategy: str) -> Structure:
        """The structure of everything that was added."""
        self._flush()
        length = len(content)
        if self._chain_cut is not None:
            self._close_bare(length)
        ends = _column(self._ends)
        ends[ends < 0] = length
        cuts = Cuts(
            _column(self._positions),
            np.frombuffer(self._levels, dtype=np.uint8) if self._levels else np.zeros(0, np.uint8),
            np.frombuffer(self._glued, dtype=np.bool_) if self._glued else np.zeros(0, np.bool_),
            _column(self._bodies),
        )
        spans = Sections(self._starts, self._rows, self._ends, self._parents, self._names, self._binding)
        return Structure(
            strategy=strategy,
            lines=lines,
            cuts=cuts,
            spans=spans,
            leads=Leads(*self._leads),
            hidden=Hidden(*self._hidden, self._shown),
        )


def _column(values: array[int]) -> Places:
    """A view of the values, not a copy."""
    return np.frombuffer(values, dtype=np.int32) if values else np.zeros(0, np.int32)


def _clip(name: str) -> str:
    words = " ".join(name.split())
    return words if len(words) <= MAX_PATH_NAME_CHARS else words[: MAX_PATH_NAME_CHARS - 1] + "…"
