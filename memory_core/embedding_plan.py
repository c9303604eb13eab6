"""Texts by document and a provider's limits in, the requests to send out; their vectors in, the documents' out. Pure.

A unit is what a provider sees as one input and what the cache keeps as one: a text of a flat model, a window of a
document of a contextual one. Units are cut by halving alone, at places that depend on nothing but their texts: a
document that is cut again, by a limit or by a refusal, is cut at the same places. What a process has learned about a
provider decides how units are packed, which moves no vector, and which of those cuts are made at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory_core.calibration import START_FACTOR, at_most
from memory_core.embedding_ports import EmbeddingKind, ProviderLimits, ProviderRequest
from memory_core.errors import EmbeddingError
from memory_core.models import Vector
from memory_core.ports import TokenCounter

_NEAR_DIVISOR: Final = 4  # a cut moves to a blank within this part of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Texts that are sent and kept together, and the tokens of each by our counter."""

    texts: tuple[str, ...]
    tokens: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens of all texts."""
        return sum(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedUnit:
    """A unit and, for each of its texts, which text of its document it is or is a piece of."""

    unit: Unit
    places: tuple[int, ...]


Halves: TypeAlias = Mapping[Unit, tuple[Unit, Unit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """Units for one request, by document: a run is one group of the request."""

    runs: tuple[tuple[Unit, ...], ...]

    @property
    def units(self) -> tuple[Unit, ...]:
        """All units, in order."""
        return tuple(unit for run in self.runs for unit in run)

    @property
    def tokens(self) -> int:
        """Tokens of all texts, by our counter."""
        return sum(unit.total for unit in self.units)

    @property
    def digest(self) -> str:
        """Equal for requests that a provider cannot tell apart."""
        return hashlib.sha256(json.dumps(_write_groups(self.runs)).encode()).hexdigest()

    def without(self, known: Container[Unit]) -> PlannedRequest | None:
        """What is left when these units are known; None for nothing."""
        runs = (tuple(unit for unit in run if unit not in known) for run in self.runs)
        left = tuple(run for run in runs if run)
        return PlannedRequest(runs=left) if left else None

    def write(self, kind: EmbeddingKind) -> ProviderRequest:
        """The request as a transport takes it."""
        return ProviderRequest(groups=_write_groups(self.runs), kind=kind)


def _write_groups(runs: Iterable[Sequence[Unit]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(text for unit in run for text in unit.texts) for run in runs)


# --- cutting: a document into its units -------------------------------------------------------------------------------


def lay_out(
    texts: Sequence[str], *, counter: TokenCounter, limits: ProviderLimits, is_contextual: bool
) -> tuple[PlacedUnit, ...]:
    """The units of a document, in order.

    A text that is too long is cut into windows. A contextual model's document is one unit; if it is too long, each
    consecutive window of its texts is one. `text_tokens` binds flat models; a contextual one has its window for both.
    """
    pieces = [
        piece
        for place, text in enumerate(texts)
        for piece in _cut(
            PlacedUnit(unit=Unit(texts=(text,), tokens=(counter.count(text),)), places=(place,)),
            counter=counter,
            limits=limits,
            is_contextual=is_contextual,
        )
    ]
    if not is_contextual:
        return tuple(pieces)
    whole = PlacedUnit(
        unit=Unit(
            texts=tuple(text for piece in pieces for text in piece.unit.texts),
            tokens=tuple(count for piece in pieces for count in piece.unit.tokens),
        ),
        places=tuple(place for piece in pieces for place in piece.places),
    )
    return tuple(_cut(whole, counter=counter, limits=limits, is_contextual=is_contextual))


def _cut(
    placed: PlacedUnit, *, counter: TokenCounter, limits: ProviderLimits, is_contextual: bool
) -> Iterator[PlacedUnit]:
    halves = None if _fits(placed.unit, limits, is_contextual=is_contextual) else _halve_unit(placed.unit, counter)
    if halves is None:
        yield placed
        return
    for half in _place_halves(placed, halves):
        yield from _cut(half, counter=counter, limits=limits, is_contextual=is_contextual)


def _fits(unit: Unit, limits: ProviderLimits, *, is_contextual: bool) -> bool:
    """By the factor of the start: were it a learned one, a document's windows would depend on earlier documents."""
    own = limits.group_tokens if is_contextual else limits.text_tokens
    return math.ceil(unit.total * START_FACTOR) <= at_most(own, limits.request_tokens) and (
        len(unit.texts) <= limits.request_texts
    )


def _place_halves(placed: PlacedUnit, halves: tuple[Unit, Unit]) -> tuple[PlacedUnit, PlacedUnit]:
    left, right = halves
    if len(placed.places) == 1:
        return PlacedUnit(unit=left, places=placed.places), PlacedUnit(unit=right, places=placed.places)
    middle = len(left.texts)
    return (
        PlacedUnit(unit=left, places=placed.places[:middle]),
        PlacedUnit(unit=right, places=placed.places[middle:]),
    )


def _halve_unit(unit: Unit, counter: TokenCounter) -> tuple[Unit, Unit] | None:
    """Between two texts near the middle, else within the one text; None where there is nothing to cut."""
    if len(unit.texts) == 1:
        text = unit.texts[0]
        offset = _find_cut(text, counter)
        if offset is None:
            return None
        left, right = text[:offset], text[offset:]
        return Unit(texts=(left,), tokens=(counter.count(left),)), Unit(texts=(right,), tokens=(counter.count(right),))
    middle = _find_middle(unit.tokens)
    return (
        Unit(texts=unit.texts[:middle], tokens=unit.tokens[:middle]),
        Unit(texts=unit.texts[middle:], tokens=unit.tokens[middle:]),
    )


def _find_middle(sizes: Sequence[int]) -> int:
    """How many of the sizes make up the first half: at least one, and not all."""
    ends = list(accumulate(sizes))
    above = min(max(bisect_left(ends, ends[-1] / 2) + 1, 1), len(sizes) - 1)
    below = max(above - 1, 1)
    return below if abs(2 * ends[below - 1] - ends[-1]) < abs(2 * ends[above - 1] - ends[-1]) else above


def _find_cut(text: str, counter: TokenCounter) -> int | None:
    """An offset that leaves something to read on both sides, at a blank if one is near, else at a token's end."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    if last - first < 2:  # noqa: PLR2004 - one character has no middle
        return None
    ends = [int(end) for end in counter.ends(text) if first < end < last]
    middle = ends[len(ends) // 2] if ends else (first + last) // 2
    near = middle - (last - first) // _NEAR_DIVISOR
    blank = max(text.rfind(mark, near, middle + 1) for mark in " \n")
    return blank if first < blank < last else middle


def find_leaves(placed: PlacedUnit, halves: Halves) -> Iterator[PlacedUnit]:
    """The units that were sent in place of this one, in order; itself where it was not cut."""
    if placed.unit not in halves:
        yield placed
        return
    for half in _place_halves(placed, halves[placed.unit]):
        yield from find_leaves(half, halves)


# --- packing: units into requests -------------------------------------------------------------------------------------


def pack(
    documents: Iterable[Sequence[Unit]], *, room: int, limits: ProviderLimits, is_contextual: bool
) -> list[PlannedRequest]:
    """Fill requests with whole documents, in order; `room` is how many of our tokens one may hold.

    A document that fits no request is cut between its units. One unit is sent even if it is over the room: the room is
    an estimate, and the provider has the last word.
    """
    runs = [
        run
        for document in documents
        if document
        for run in ([(unit,) for unit in document] if is_contextual else _cut_run(document, room, limits))
    ]
    packed: list[list[tuple[Unit, ...]]] = []
    tokens = texts = 0
    for run in runs:
        run_tokens, run_texts = _measure(run)
        is_full = (
            not packed
            or tokens + run_tokens > room
            or texts + run_texts > limits.request_texts
            or (limits.request_groups is not None and len(packed[-1]) >= limits.request_groups)
        )
        if is_full:
            packed.append([])
            tokens = texts = 0
        packed[-1].append(run)
        tokens, texts = tokens + run_tokens, texts + run_texts
    return [PlannedRequest(runs=tuple(group)) for group in packed]


def _cut_run(document: Sequence[Unit], room: int, limits: ProviderLimits) -> list[tuple[Unit, ...]]:
    """The document as it is, or in parts that fill a request each."""
    parts: list[list[Unit]] = []
    tokens = texts = 0
    for unit in document:
        if not parts or tokens + unit.total > room or texts + len(unit.texts) > limits.request_texts:
            parts.append([])
            tokens = texts = 0
        parts[-1].append(unit)
        tokens, texts = tokens + unit.total, texts + len(unit.texts)
    return [tuple(part) for part in parts]


def _measure(run: Sequence[Unit]) -> tuple[int, int]:
    return sum(unit.total for unit in run), sum(len(unit.texts) for unit in run)


# --- after a refusal --------------------------------------------------------------------------------------------------


def halve(
    planned: PlannedRequest, *, counter: TokenCounter
) -> tuple[tuple[PlannedRequest, ...], dict[Unit, tuple[Unit, Unit]]]:
    """Smaller requests in place of one that was refused, and the halves of its unit where that had to be cut.

    It is cut between documents, else between units, else within its only unit: between the texts of a contextual
    model's window, whose window becomes smaller, or within the text.

    Raises:
        EmbeddingError: it is one shortest text.
    """
    if len(planned.runs) > 1:
        middle = _find_middle([_measure(run)[0] for run in planned.runs])
        return (PlannedRequest(runs=planned.runs[:middle]), PlannedRequest(runs=planned.runs[middle:])), {}
    units = planned.units
    if len(units) > 1:
        middle = _find_middle([unit.total for unit in units])
        return (PlannedRequest(runs=(units[:middle],)), PlannedRequest(runs=(units[middle:],))), {}
    unit = next(iter(units))
    halves = _halve_unit(unit, counter)
    if halves is None:
        raise EmbeddingError(
            "The embedding model refused a text of one character as too long. Nothing shorter can be sent: check that "
            "EMBEDDING_MODEL and the base URL name an embedding model."
        )
    return tuple(PlannedRequest(runs=((half,),)) for half in halves), {unit: halves}


def fit(
    planned: PlannedRequest, *, counter: TokenCounter, room: int, limits: ProviderLimits, is_contextual: bool
) -> tuple[tuple[PlannedRequest, ...], dict[Unit, tuple[Unit, Unit]]]:
    """Requests in place of one that was planned before the limits were known; the halves of units that were cut."""
    halves: dict[Unit, tuple[Unit, Unit]] = {}
    runs = [
        [leaf for unit in run for leaf in _divide(unit, halves, counter, limits, is_contextual=is_contextual)]
        for run in planned.runs
    ]
    return tuple(pack(runs, room=room, limits=limits, is_contextual=is_contextual)), halves


def _divide(
    unit: Unit,
    found: dict[Unit, tuple[Unit, Unit]],
    counter: TokenCounter,
    limits: ProviderLimits,
    *,
    is_contextual: bool,
) -> Iterator[Unit]:
    """The units of these limits that a unit is cut into, and in `found` how."""
    halves = None if _fits(unit, limits, is_contextual=is_contextual) else _halve_unit(unit, counter)
    if halves is None:
        yield unit
        return
    found[unit] = halves
    for half in halves:
        yield from _divide(half, found, counter, limits, is_contextual=is_contextual)


# --- putting together -------------------------------------------------------------------------------------------------


def assemble(leaves: Iterable[PlacedUnit], vectors: Mapping[Unit, Vector]) -> tuple[Vector, tuple[int, ...]]:
    """A document's vectors, one a text, and in how many windows each text was embedded.

    A text of several windows has the mean of their directions, weighted by their tokens.

    Raises:
        EmbeddingError: the windows of a text point in opposite directions.
    """
    rows: list[list[tuple[Vector, int]]] = []
    for leaf in leaves:
        for place, vector, tokens in zip(leaf.places, vectors[leaf.unit], leaf.unit.tokens, strict=True):
            if place == len(rows):
                rows.append([])
            rows[place].append((vector, tokens))
    return np.stack([_average(windows) for windows in rows]), tuple(len(windows) for windows in rows)


def _average(windows: Sequence[tuple[Vector, int]]) -> Vector:
    if len(windows) == 1:
        return windows[0][0]
    directions = [_normalise(vector.astype(np.float64)) * max(tokens, 1) for vector, tokens in windows]
    return _normalise(np.sum(directions, axis=0)).astype(np.float32)


def _normalise(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = float(np.linalg.norm(vector))
    if norm == 0:
        raise EmbeddingError(
            "The embedding model returned vectors without a direction for the windows of a long text. Store the "
            "document in smaller parts, or use another EMBEDDING_MODEL."
        )
    return vector / norm
