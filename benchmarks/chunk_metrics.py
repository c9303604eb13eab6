"""Ranges of characters in, recall, precision and IoU out: the published measures of chunking-eval. Pure.

They are those of the set's authors (Chroma, "Evaluating Chunking Strategies for Retrieval", its `base_evaluation.py`)
with characters as the unit. What is found counts once. What is retrieved counts with its full length, wherever it lies,
and twice where it is retrieved twice: overlap costs precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Place:
    """A slice of one of several documents, in code points."""

    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Shares from 0 to 1."""

    recall: float
    precision: float
    iou: float


def score(excerpts: Sequence[Place], retrieved: Sequence[Place]) -> Scores:
    """Score one question: what holds its answer, and what was retrieved for it.

    recall = found / excerpts; precision = found / retrieved; IoU = found / (retrieved + excerpts that were not found).
    """
    found = covered_chars(excerpts, retrieved)
    wanted = sum(excerpt.end - excerpt.start for excerpt in excerpts)
    taken = sum(place.end - place.start for place in retrieved)
    missed = _measure_union(excerpts) - found
    return Scores(recall=_share(found, wanted), precision=_share(found, taken), iou=_share(found, taken + missed))


def covered_chars(excerpts: Sequence[Place], retrieved: Sequence[Place]) -> int:
    """How many characters of the excerpts are in what was retrieved, each counted once."""
    return _measure_union(
        Place(excerpt.document, max(excerpt.start, place.start), min(excerpt.end, place.end))
        for excerpt in excerpts
        for place in retrieved
        if place.document == excerpt.document and place.start < excerpt.end and excerpt.start < place.end
    )


def average(scores: Sequence[Scores]) -> Scores:
    """The plain average over questions. Raises StatisticsError where there are none."""
    return Scores(
        recall=fmean(one.recall for one in scores),
        precision=fmean(one.precision for one in scores),
        iou=fmean(one.iou for one in scores),
    )


def place_in_order(content: str, texts: Iterable[str], *, document: str) -> list[Place]:
    """Find texts that a splitter cut out of the content, in order and without overlap, and say where they stand.

    Raises:
        ValueError: a text does not stand behind the one before it: the splitter changed it.
    """
    places: list[Place] = []
    behind = 0
    for text in texts:
        start = content.find(text, behind)
        if start < 0:
            raise ValueError(f"A chunk of {document} is not a slice of it behind character {behind}: {text[:60]!r}")
        behind = start + len(text)
        places.append(Place(document, start, behind))
    return places


def _measure_union(places: Iterable[Place]) -> int:
    chars, document, behind = 0, "", 0
    for place in sorted(places, key=lambda place: (place.document, place.start)):
        if place.document != document:
            document, behind = place.document, 0
        chars += max(0, place.end - max(place.start, behind))
        behind = max(behind, place.end)
    return chars


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
