"""A Structure and a size in, the units to pack out: the largest blocks that fit, and the smallest that do not.

A block is divided at its strongest cuts, and only where it does not fit by itself inside one section: so whatever
fits is whole, at every level.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from memory_core.chunk.ruler import Ruler
from memory_core.chunk.structure import Cut, Structure

# Estimates are off by so many tokens at most edges (parts.md): nearer to the size than this, a slice is counted.
MARGIN_TOKENS = 4

_NON_BLANK = re.compile(r"\S")


@dataclass(slots=True)
class Units:
    """Parallel lists, one row a unit: its slice without blanks around it, and the cut at its start.

    `before` and `through` are the ruler's measures of start and end. `bodies` is the start of what a heading must stay
    with (else the unit's own start). `divisible` units do not fit and have no cuts inside.
    """

    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    cuts: list[Cut] = field(default_factory=list[Cut])
    bodies: list[int] = field(default_factory=list[int])
    section_ends: list[int] = field(default_factory=list[int])
    before: list[int] = field(default_factory=list[int])
    through: list[int] = field(default_factory=list[int])
    divisible: list[bool] = field(default_factory=list[bool])

    def __len__(self) -> int:
        return len(self.starts)


def build_units(content: str, structure: Structure, ruler: Ruler, *, size: int) -> Units:
    """Divide the text into units of at most `size` tokens, as far as its structure goes."""
    atoms = _trim(content, structure)
    atoms.before = ruler.before_all(atoms.starts)
    atoms.through = ruler.through_all(atoms.ends)
    return _Division(atoms, ruler, size).divide()


def _trim(content: str, structure: Structure) -> Units:
    """The slices between neighbouring cuts, without the blanks around them and without blank ones."""
    atoms = Units()
    cuts = list(structure.cuts)
    if not cuts or cuts[0].position > 0:
        cuts.insert(0, Cut(0, 0))
    stops = [cut.position for cut in cuts[1:]] + [len(content)]
    section, sections = 0, structure.sections
    for cut, stop in zip(cuts, stops, strict=True):
        text = content[cut.position : stop]
        trimmed = text.lstrip()
        if not trimmed:
            continue
        start = cut.position + len(text) - len(trimmed)
        while section + 1 < len(sections) and sections[section + 1].start <= start:
            section += 1
        atoms.starts.append(start)
        atoms.ends.append(start + len(trimmed.rstrip()))
        atoms.cuts.append(cut)
        atoms.section_ends.append(sections[section].end)
        body = structure.bodies.get(cut.position)
        atoms.bodies.append(start if body is None else first_non_blank(content, body))
    return atoms


def first_non_blank(content: str, position: int) -> int:
    """The first place at or behind the position that is not blank, or the end."""
    found = _NON_BLANK.search(content, position)
    return found.start() if found else len(content)


class _Division:
    """Walks down the hierarchy of cuts. Row numbers stand for atoms; `first` to `stop` is a block."""

    def __init__(self, atoms: Units, ruler: Ruler, size: int) -> None:
        self._atoms = atoms
        self._ruler = ruler
        self._size = size
        self._levels = [cut.level for cut in atoms.cuts]
        self._units = Units()

    def divide(self) -> Units:
        self._visit(0, len(self._atoms))
        return self._units

    def _visit(self, first: int, stop: int) -> None:
        """Recursion is as deep as there are levels: each call goes at least one level down."""
        fits = self._fits(first, stop)
        if fits or stop - first == 1:
            self._keep(first, stop, divisible=not fits)
            return
        strongest = min(self._levels[first + 1 : stop])
        edges = [first, *(row for row in range(first + 1, stop) if self._levels[row] == strongest), stop]
        for inner_first, inner_stop in pairwise(edges):
            self._visit(inner_first, inner_stop)

    def _fits(self, first: int, stop: int) -> bool:
        atoms, last = self._atoms, stop - 1
        if atoms.ends[last] > atoms.section_ends[first]:
            return False
        estimate = atoms.through[last] - atoms.before[first]
        if abs(estimate - self._size) > MARGIN_TOKENS:
            return estimate <= self._size
        return self._ruler.count(atoms.starts[first], atoms.ends[last]) <= self._size

    def _keep(self, first: int, stop: int, *, divisible: bool) -> None:
        atoms, units, last = self._atoms, self._units, stop - 1
        units.starts.append(atoms.starts[first])
        units.ends.append(atoms.ends[last])
        units.cuts.append(atoms.cuts[first])
        units.bodies.append(atoms.bodies[first])
        units.section_ends.append(atoms.section_ends[first])
        units.before.append(atoms.before[first])
        units.through.append(atoms.through[last])
        units.divisible.append(divisible)
