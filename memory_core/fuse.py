"""Two rankings in, one out: relative-score fusion. Pure: no I/O, no settings; its inputs are left as they are.

Each leg is brought to 0..1 first, so that a weight means what it says: BM25 is divided by the best of its leg, a cosine
is scaled between the lowest of all rows that may answer and the best. A hit of the text leg has the cosine that it has,
however far down it ranks: to count it as zero costs 1.5 to 2 points. An engine that compares only some rows says no
lowest; then the leg's hundredth (or last) is the floor, which costs another point or two. What was measured stands in
docs/evaluation.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memory_core.answers import LegAnswer, LegHit

DEFAULT_WEIGHT: Final = 0.5
FLOOR_RANK: Final = 100
"""The floor where no lowest is said: a fixed rank, so that more hits do not put the first ones in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedHit:
    """A chunk's fused score in 0..1, and what each leg said of it; ranks begin with 1."""

    chunk_id: str
    score: float
    vector_score: float | None
    text_score: float | None
    vector_rank: int | None
    text_rank: int | None


@dataclass(frozen=True, slots=True)
class _Placed:
    rank: int | None
    score: float


def fuse_legs(vector: LegAnswer, text: Sequence[LegHit], *, vector_weight: float) -> tuple[FusedHit, ...]:
    """Fuse two legs, best first, ties by chunk id. The text leg has the weight 1 - `vector_weight`.

    A weight outside 0..1 is moved to the nearer end; one that is no number counts as 0.5. A chunk that a leg names
    twice keeps its first place, and the second place stays used up. A score that is no finite number counts as the
    worst.
    """
    weight = min(1.0, max(0.0, vector_weight)) if math.isfinite(vector_weight) else DEFAULT_WEIGHT
    by_vector, by_text = _place(vector.hits), _place(text)
    for hit in vector.also:
        by_vector.setdefault(hit.chunk_id, _Placed(None, hit.score))
    scaled_vector, scaled_text = _scale_cosines(by_vector, vector.lowest), _scale_bm25(by_text)
    fused = [
        _join(
            chunk_id,
            weight * scaled_vector.get(chunk_id, 0.0) + (1 - weight) * scaled_text.get(chunk_id, 0.0),
            by_vector.get(chunk_id),
            by_text.get(chunk_id),
        )
        for chunk_id in by_vector | by_text
    ]
    return tuple(sorted(fused, key=lambda hit: (-hit.score, hit.chunk_id)))


def rank_alone(vector: Sequence[LegHit], text: Sequence[LegHit]) -> tuple[FusedHit, ...]:
    """Rank by one leg's own scores; exactly one of the two holds hits (or neither)."""
    by_vector, by_text = _place(vector), _place(text)
    hits = [
        _join(chunk_id, _read_score(one.score, worst=worst), by_vector.get(chunk_id), by_text.get(chunk_id))
        for placed, worst in ((by_vector, -1.0), (by_text, 0.0))
        for chunk_id, one in placed.items()
    ]
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id)))


def _read_score(score: float, *, worst: float) -> float:
    return score if math.isfinite(score) else worst


def _place(leg: Sequence[LegHit]) -> dict[str, _Placed]:
    placed: dict[str, _Placed] = {}
    for rank, hit in enumerate(leg, start=1):
        placed.setdefault(hit.chunk_id, _Placed(rank, hit.score))
    return placed


def _scale_bm25(placed: Mapping[str, _Placed]) -> dict[str, float]:
    best = max((one.score for one in placed.values() if math.isfinite(one.score)), default=0.0)
    if best <= 0:
        return dict.fromkeys(placed, 0.0)
    return {
        chunk_id: max(0.0, one.score / best) if math.isfinite(one.score) else 0.0 for chunk_id, one in placed.items()
    }


def _scale_cosines(placed: Mapping[str, _Placed], lowest: float | None) -> dict[str, float]:
    finite = [one for one in placed.values() if math.isfinite(one.score)]
    best = max((one.score for one in finite), default=0.0)
    ranked = (one.score for one in finite if one.rank is not None and one.rank <= FLOOR_RANK)
    floor = lowest if lowest is not None and math.isfinite(lowest) else min(ranked, default=0.0)
    spread = best - floor

    def scale(score: float) -> float:
        if not math.isfinite(score):
            return 0.0
        return max(0.0, (score - floor) / spread) if spread > 0 else 1.0

    return {chunk_id: scale(one.score) for chunk_id, one in placed.items()}


def _join(chunk_id: str, score: float, vector: _Placed | None, text: _Placed | None) -> FusedHit:
    return FusedHit(
        chunk_id=chunk_id,
        score=score,
        vector_score=vector.score if vector else None,
        text_score=text.score if text else None,
        vector_rank=vector.rank if vector else None,
        text_rank=text.rank if text else None,
    )
