"""A Structure and a size in, the units to pack out: the largest blocks that fit, and the smallest that do not.

A block is divided at its strongest cuts, and only where it does not fit by itself inside one section: so whatever
fits is whole, at every level.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from memory_core.chunk.ruler import Ruler
from memory_core.chunk.structure import Sections, Structure
from memory_core.chunk.trim import first_non_blank

# Estimates are off by so many tokens at most edges (parts.md): nearer to the size than this, a slice is counted.
MARGIN_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Units:
    """Parallel columns, one row a unit: its slice without blanks around it, and the cut at its start.

    `before` and `through` are the ruler's measures of start and end. `bodies` is the start of what a heading must stay
    with (else the unit's own start). `divisible` units do not fit and have no cuts inside.
    """

    starts: array[int]
    ends: array[int]
    levels: array[int]
    glued: array[int]
    bodies: array[int]
    before: array[int]
    through: array[int]
    divisible: array[int]

    def __len__(self) -> int:
        return len(self.starts)


class _Atoms(NamedTuple):
    """The slices between neighbouring cuts, without the blanks around them and without blank ones."""

    starts: array[int]
    ends: array[int]
    levels: array[int]
    glued: array[int]
    bodies: array[int]
    before: array[int]
    through: array[int]


def build_units(content: str, structure: Structure, ruler: Ruler, *, size: int) -> Units:
    """Divide the text into units of at most `size` tokens, as far as its structure goes."""
    atoms = _find_atoms(content, structure, ruler)
    firsts, divisible = _Divider(atoms, structure.spans, ruler, size).divide()
    if len(firsts) == len(atoms.starts):
        return Units(*atoms, divisible=divisible)
    lasts = [*(first - 1 for first in firsts[1:]), len(atoms.starts) - 1]
    return Units(
        starts=_take(atoms.starts, firsts),
        ends=_take(atoms.ends, lasts),
        levels=_take(atoms.levels, firsts),
        glued=_take(atoms.glued, firsts),
        bodies=_take(atoms.bodies, firsts),
        before=_take(atoms.before, firsts),
        through=_take(atoms.through, lasts),
        divisible=divisible,
    )


def _take(column: array[int], rows: Sequence[int]) -> array[int]:
    return array(column.typecode, map(column.__getitem__, rows))


def _find_atoms(content: str, structure: Structure, ruler: Ruler) -> _Atoms:
    cuts = structure.cuts
    positions = cuts.positions.tolist()
    columns = zip(positions, cuts.levels.tolist(), cuts.glued.tolist(), cuts.bodies.tolist(), strict=True)
    head = ((0, 0, False, 0),) if not positions or positions[0] > 0 else ()
    stops = chain(positions if head else positions[1:], (len(content),))
    atoms = _Atoms(array("i"), array("i"), array("B"), array("B"), array("i"), array("i"), array("i"))
    for (start, level, glued, body), stop in zip(chain(head, columns), stops, strict=True):
        part = content[start:stop].rstrip()
        if not part:
            continue
        first, end = start + len(part) - len(part.lstrip()), start + len(part)
        body_start = first if body == start else first_non_blank(content, body)
        atoms.starts.append(first)
        atoms.ends.append(end)
        atoms.levels.append(level)
        atoms.glued.append(glued)
        # Nothing but blanks that the scanner took for text: no body.
        atoms.bodies.append(body_start if body_start < end else first)
    before, through = ruler.measure_all(*(np.frombuffer(column, dtype=np.int32) for column in atoms[:2]))
    return atoms._replace(before=array("i", before.tobytes()), through=array("i", through.tobytes()))


class _Divider:
    """Divides from the strongest level of cuts to the weakest: a block that does not fit at all its cuts of a level."""

    def __init__(self, atoms: _Atoms, spans: Sections, ruler: Ruler, size: int) -> None:
        self._atoms = atoms
        self._spans = spans
        self._ruler = ruler
        self._size = size
        self._firsts, self._divisible = array("i"), array("B")
        levels = np.frombuffer(atoms.levels, dtype=np.uint8)
        by_level = np.argsort(levels, kind="stable")
        rows = np.split(by_level, np.flatnonzero(np.diff(levels[by_level])) + 1)
        self._rows = [array("q", row.tobytes()) for row in rows]

    def divide(self) -> tuple[array[int], array[int]]:
        """The first atom of each unit in order, and whether the unit is too big and has no cuts inside."""
        self._divide((0, len(self._atoms.starts)), 0)
        return self._firsts, self._divisible

    def _divide(self, edges: Sequence[int], rank: int) -> None:
        """Divide the blocks between the edges by the cuts from the level of this rank on."""
        for first, stop in pairwise(edges):
            fits = self._fits(first, stop)
            if fits or stop - first == 1:
                self._firsts.append(first)
                self._divisible.append(not fits)
            else:
                self._divide(*self._cut(first, stop, rank))

    def _cut(self, first: int, stop: int, rank: int) -> tuple[Sequence[int], int]:
        """The edges in a block: its own, and the strongest cuts inside it."""
        while True:
            rows = self._rows[rank]
            rank += 1
            inside = rows[bisect_right(rows, first) : bisect_left(rows, stop)]
            if inside:
                return (first, *inside, stop), rank

    def _fits(self, first: int, stop: int) -> bool:
        """Whether a block fits a chunk: inside one section and within the size; counted where an estimate is close."""
        atoms, size = self._atoms, self._size
        tokens = atoms.through[stop - 1] - atoms.before[first]
        if tokens > size + MARGIN_TOKENS:
            return False
        start, end = atoms.starts[first], atoms.ends[stop - 1]
        if end > self._spans.end_at(start):
            return False
        return tokens < size - MARGIN_TOKENS or self._ruler.count(start, end) <= size
