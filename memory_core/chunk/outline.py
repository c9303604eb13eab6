"""Blocks and headings in reading order in, a Structure out. Shared by every scanner of a text that has headings."""

from __future__ import annotations

from memory_core.chunk.structure import GLUE_STEP, Cut, Section, Structure

# A path is stored with every chunk below it: a heading of a million characters must not be.
MAX_PATH_NAME_CHARS = 256


class Outline:
    """Collects cuts and headings. Positions ascend; the first block at a position counts."""

    def __init__(self) -> None:
        self._cuts: list[Cut] = []
        self._headings: list[tuple[int, int, str]] = []
        self._bodies: dict[int, int] = {}
        self._pending: tuple[int, int, bool] | None = None
        self._chain_start: int | None = None
        self._chain_depth = 0
        self._chain_end = 0

    def add_block(self, position: int, level: int, *, whole: bool = False) -> None:
        """A block begins. `whole`: it, or each item of it, is not to be cut for the sake of the heading above it."""
        if self._pending is None or self._pending[0] != position:
            self._flush()
            self._pending = (position, level, whole)

    def add_heading(self, position: int, end: int, depth: int, name: str, *, was_block: bool = False) -> None:
        """A heading begins. `was_block`: what was added at this position turned out to be the heading (setext)."""
        if was_block:
            self._pending = None
        self._flush()
        if self._chain_start is None or depth <= self._chain_depth:
            self._cuts.append(Cut(position, depth))
            self._chain_start = position
        self._chain_depth, self._chain_end = depth, end
        self._headings.append((position, depth, _clip(name)))

    def build(self, content: str, *, lines: str, strategy: str) -> Structure:
        """The structure of everything that was added."""
        self._flush()
        return Structure(
            strategy=strategy,
            lines=lines,
            cuts=self._cuts,
            sections=_nest(self._headings, len(content)),
            bodies=self._bodies,
        )

    def _flush(self) -> None:
        if self._pending is None:
            return
        position, level, whole = self._pending
        self._pending = None
        if self._chain_start is None:
            self._cuts.append(Cut(position, level))
            return
        if whole:
            self._cuts.append(Cut(position, level + GLUE_STEP, glued=True))
        self._bodies[self._chain_start] = self._chain_end if whole else position
        self._chain_start = None


def _clip(name: str) -> str:
    words = " ".join(name.split())
    return words if len(words) <= MAX_PATH_NAME_CHARS else words[: MAX_PATH_NAME_CHARS - 1] + "…"


def _nest(headings: list[tuple[int, int, str]], length: int) -> list[Section]:
    """The whole text, then a section for every heading, in order of their starts."""
    starts, ends = [0], [length]
    paths: list[tuple[str, ...]] = [()]
    open_sections: list[tuple[int, int]] = []
    for position, depth, name in headings:
        while open_sections and open_sections[-1][0] >= depth:
            ends[open_sections.pop()[1]] = position
        above = paths[open_sections[-1][1]] if open_sections else ()
        open_sections.append((depth, len(starts)))
        starts.append(position)
        ends.append(length)
        paths.append((*above, name) if name else above)
    return [Section(*row) for row in zip(starts, ends, paths, strict=True)]
