"""A Structure and a size in, the units to pack out: the largest blocks that fit, and the smallest that do not.

A block is divided at its strongest cuts, and only where it does not fit by itself inside one section: so whatever
fits is whole, at every level.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory_core.chunk.ruler import Ruler
from memory_core.chunk.structure import Places, Sections, Structure
from memory_core.chunk.trim import first_non_blank, trim

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

    starts: Places
    ends: Places
    levels: NDArray[np.uint8]
    glued: NDArray[np.bool_]
    bodies: Places
    bounds: Places
    before: Places
    through: Places


def build_units(content: str, structure: Structure, ruler: Ruler, *, size: int) -> Units:
    """Divide the text into units of at most `size` tokens, as far as its structure goes."""
    atoms = _find_atoms(content, structure, ruler)
    firsts, stops, divisible = _divide(atoms, ruler, size)
    lasts = stops - 1
    return Units(
        starts=_pack("i", atoms.starts[firsts]),
        ends=_pack("i", atoms.ends[lasts]),
        levels=_pack("B", atoms.levels[firsts]),
        glued=_pack("B", atoms.glued[firsts]),
        bodies=_pack("i", atoms.bodies[firsts]),
        before=_pack("i", atoms.before[firsts]),
        through=_pack("i", atoms.through[lasts]),
        divisible=_pack("B", divisible),
    )


def _pack(code: str, values: Places | NDArray[np.uint8] | NDArray[np.bool_]) -> array[int]:
    """Plain integers in little room: single values of a NumPy array are slow to take."""
    return array(code, values.tobytes())


def _find_atoms(content: str, structure: Structure, ruler: Ruler) -> _Atoms:
    cuts = structure.cuts
    positions, levels, glued, bodies = cuts.positions, cuts.levels, cuts.glued, cuts.bodies
    if not len(positions) or positions[0] > 0:
        positions, bodies = (np.concatenate((np.zeros(1, np.int32), column)) for column in (positions, bodies))
        levels, glued = np.concatenate((np.zeros(1, np.uint8), levels)), np.concatenate((np.zeros(1, np.bool_), glued))
    stops = np.append(positions[1:], np.int32(len(content)))
    starts, ends = trim(content, positions, stops)
    kept = starts < stops
    starts, ends = starts[kept], ends[kept]
    body_starts = starts.copy()
    bodies = bodies[kept]
    for row in np.flatnonzero(bodies != positions[kept]).tolist():
        body = first_non_blank(content, int(bodies[row]))
        # Nothing but blanks that the scanner took for text: no body.
        if body < ends[row]:
            body_starts[row] = body
    return _Atoms(
        starts=starts,
        ends=ends,
        levels=levels[kept],
        glued=glued[kept],
        bodies=body_starts,
        bounds=_find_bounds(structure.spans, starts, len(content)),
        before=ruler.before_all(starts),
        through=ruler.through_all(ends),
    )


def _find_bounds(spans: Sections, starts: Places, length: int) -> Places:
    """Where a chunk that begins at each of the places must end."""
    if not spans.binding or len(spans.starts) == 1:
        return np.full(len(starts), length, dtype=np.int32)
    rows = np.asarray(spans.rows)[np.searchsorted(np.asarray(spans.starts), starts, "right") - 1]
    return np.asarray(spans.ends)[rows]


def _divide(atoms: _Atoms, ruler: Ruler, size: int) -> tuple[Places, Places, NDArray[np.bool_]]:
    """Rows of first and last (exclusive) atoms of the units, and which of them do not fit.

    From the strongest level of cuts to the weakest: a block that does not fit is divided at all its cuts of the level.
    """
    firsts, stops = np.array([0], np.int32), np.array([len(atoms.starts)], np.int32)
    done: list[tuple[Places, Places, bool]] = []
    for level in (None, *np.unique(atoms.levels[1:]).tolist()):
        if level is not None:
            rows = np.flatnonzero(atoms.levels == level).astype(np.int32)
            blocks = np.searchsorted(firsts, rows, "right") - 1
            rows = rows[(blocks >= 0) & (rows > firsts[blocks]) & (rows < stops[blocks])]
            if not len(rows):
                continue
            firsts, stops = _divide_at(rows, firsts, stops)
        fits = _find_fitting(atoms, firsts, stops - 1, ruler, size)
        single = ~fits & (stops - firsts == 1)
        done += [(firsts[fits], stops[fits], False), (firsts[single], stops[single], True)]
        open_blocks = ~(fits | single)
        firsts, stops = firsts[open_blocks], stops[open_blocks]
        if not len(firsts):
            break
    all_firsts = np.concatenate([rows for rows, _, _ in done])
    order = np.argsort(all_firsts)
    all_stops = np.concatenate([rows for _, rows, _ in done])
    divisible = np.concatenate([np.full(len(rows), flag) for rows, _, flag in done])
    return all_firsts[order], all_stops[order], divisible[order]


def _divide_at(rows: Places, firsts: Places, stops: Places) -> tuple[Places, Places]:
    """Divide blocks at rows that are each inside one."""
    divided = np.sort(np.concatenate((firsts, rows)))
    ends = stops[np.searchsorted(firsts, divided, "right") - 1]
    return divided, np.minimum(np.append(divided[1:], ends[-1]), ends)


def _find_fitting(atoms: _Atoms, firsts: Places, lasts: Places, ruler: Ruler, size: int) -> NDArray[np.bool_]:
    """Which blocks fit a chunk: inside one section and within the size; counted only where an estimate is too close."""
    tokens = atoms.through[lasts] - atoms.before[firsts]
    bound = atoms.ends[lasts] <= atoms.bounds[firsts]
    fits = bound & (tokens <= size)
    for row in np.flatnonzero(bound & (np.abs(tokens - size) <= MARGIN_TOKENS)).tolist():
        start, end = int(atoms.starts[firsts[row]]), int(atoms.ends[lasts[row]])
        fits[row] = ruler.count(start, end) <= size
    return fits
