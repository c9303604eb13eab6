from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.answers import LegAnswer, LegHit
from memory_core.fuse import FLOOR_RANK, FusedHit, fuse_legs, rank_alone


def leg(**scores: float) -> list[LegHit]:
    return [LegHit(chunk_id=name, document_id=f"doc-{name}", score=score) for name, score in scores.items()]


def near(**scores: float) -> LegAnswer:
    return LegAnswer(hits=leg(**scores))


def scores_of(hits: tuple[FusedHit, ...]) -> dict[str, float]:
    return {hit.chunk_id: hit.score for hit in hits}


def test_nothing_fuses_to_nothing() -> None:
    """Two empty legs give an empty ranking."""
    assert fuse_legs(LegAnswer(), [], vector_weight=0.5) == ()
    assert rank_alone([], []) == ()


def test_each_leg_is_scaled_before_it_is_weighted() -> None:
    """BM25 is divided by its best; a cosine is scaled between the last of its leg and its best."""
    fused = fuse_legs(near(a=0.8, b=0.6, c=0.4), leg(b=10.0, d=5.0), vector_weight=0.4)
    assert scores_of(fused) == pytest.approx({"b": 0.4 * 0.5 + 0.6, "a": 0.4, "d": 0.3, "c": 0.0})
    assert [hit.chunk_id for hit in fused] == ["b", "a", "d", "c"]


def test_a_cosine_is_scaled_from_the_lowest_of_all_rows() -> None:
    """And a hit of the text leg has its own, though it is not among the nearest."""
    answer = LegAnswer(hits=leg(a=0.8, b=0.6), also=leg(far=0.2), lowest=0.0)
    fused = fuse_legs(answer, leg(far=10.0), vector_weight=0.5)
    assert scores_of(fused) == pytest.approx({"far": 0.5 * 0.25 + 0.5, "a": 0.5, "b": 0.375})
    (far,) = (hit for hit in fused if hit.chunk_id == "far")
    assert (far.vector_score, far.vector_rank, far.text_rank) == (0.2, None, 1)


def test_raw_scores_and_ranks_are_kept() -> None:
    """The answer shows what each leg said."""
    fused = {hit.chunk_id: hit for hit in fuse_legs(near(a=0.8, b=0.6), leg(b=10.0), vector_weight=0.5)}
    assert (fused["b"].vector_score, fused["b"].vector_rank) == (0.6, 2)
    assert (fused["b"].text_score, fused["b"].text_rank) == (10.0, 1)
    assert (fused["a"].text_score, fused["a"].text_rank) == (None, None)


def test_agreement_beats_the_first_of_one_leg() -> None:
    """A chunk that both legs rank high comes before one that a single leg ranks first."""
    fused = fuse_legs(near(a=0.9, both=0.85, z=0.1), leg(b=9.0, both=8.5), vector_weight=0.5)
    assert fused[0].chunk_id == "both"


@pytest.mark.parametrize(("weight", "expected"), [(1.0, {"a": 1.0, "b": 0.0}), (0.0, {"a": 0.0, "b": 1.0})])
def test_a_leg_without_weight_is_still_reported(weight: float, expected: dict[str, float]) -> None:
    """Weight 1 or 0 silences a leg; its hits stay with score 0."""
    assert scores_of(fuse_legs(near(a=0.5), leg(b=3.0), vector_weight=weight)) == expected


@pytest.mark.parametrize(("weight", "same_as"), [(7.0, 1.0), (-1.0, 0.0), (math.nan, 0.5), (math.inf, 0.5)])
def test_a_senseless_weight_is_mended(weight: float, same_as: float) -> None:
    """Outside 0..1 counts as the nearer end, no number as one half."""
    vector, text = near(a=0.9, b=0.2), leg(b=4.0)
    assert fuse_legs(vector, text, vector_weight=weight) == fuse_legs(vector, text, vector_weight=same_as)


def test_a_chunk_that_a_leg_repeats_keeps_its_first_place() -> None:
    """The second mention counts for nothing but uses its rank up."""
    doubled = [*leg(a=5.0), *leg(a=4.0), *leg(b=3.0)]
    fused = fuse_legs(LegAnswer(), doubled, vector_weight=0.0)
    assert [(hit.chunk_id, hit.text_score, hit.text_rank) for hit in fused] == [("a", 5.0, 1), ("b", 3.0, 3)]


def test_ties_are_ordered_by_chunk_id() -> None:
    """Equal scores come in the same order every time."""
    fused = fuse_legs(LegAnswer(), leg(c=2.0, a=2.0, b=2.0), vector_weight=0.5)
    assert [hit.chunk_id for hit in fused] == ["a", "b", "c"]
    assert [hit.chunk_id for hit in rank_alone(leg(c=0.2, a=0.2), [])] == ["a", "c"]


def test_scores_that_are_no_numbers_count_as_the_worst() -> None:
    """NaN and infinity neither win nor spoil the others."""
    fused = scores_of(fuse_legs(near(a=math.nan, b=0.5, c=0.1), leg(d=math.inf, e=2.0), vector_weight=0.5))
    assert fused == {"a": 0.0, "b": 0.5, "c": 0.0, "d": 0.0, "e": 0.5}
    lone = rank_alone(leg(a=math.nan, b=0.5), [])
    assert [hit.chunk_id for hit in lone] == ["b", "a"]


def test_equal_cosines_are_all_best() -> None:
    """A single vector hit, or equal ones, score the leg's whole weight."""
    assert scores_of(fuse_legs(near(a=0.3), [], vector_weight=0.5)) == {"a": 0.5}
    assert scores_of(fuse_legs(near(a=0.3, b=0.3), [], vector_weight=0.5)) == {"a": 0.5, "b": 0.5}


def test_asking_for_more_does_not_reorder_the_first() -> None:
    """The floor of the vector leg is a fixed rank, not the end of the pool."""
    cosines = [LegHit(chunk_id=f"{rank:04}", document_id="d", score=1 - rank / 1000) for rank in range(400)]
    text = leg(**{"0050": 3.0, "0010": 1.0})
    short = fuse_legs(LegAnswer(hits=cosines[:FLOOR_RANK]), text, vector_weight=0.5)
    deep = fuse_legs(LegAnswer(hits=cosines), text, vector_weight=0.5)
    assert short[:90] == deep[:90]


def test_one_leg_alone_keeps_its_own_scores() -> None:
    """In a single mode the score is the cosine or BM25."""
    assert scores_of(rank_alone(leg(a=0.4, b=-0.2), [])) == {"a": 0.4, "b": -0.2}
    assert [hit.text_rank for hit in rank_alone([], leg(a=7.0, b=3.0))] == [1, 2]


@given(
    vector=st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(-1, 1))),
    text=st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 50))),
    weight=st.floats(allow_nan=True),
)
def test_every_chunk_comes_once_with_a_score_in_bounds(
    vector: list[tuple[str, float]], text: list[tuple[str, float]], weight: float
) -> None:
    """Whatever the legs bring: each id once, scores within 0..1 and falling, the inputs untouched."""
    legs = [[LegHit(chunk_id=name, document_id="d", score=score) for name, score in part] for part in (vector, text)]
    copies = [list(part) for part in legs]
    fused = fuse_legs(LegAnswer(hits=legs[0]), legs[1], vector_weight=weight)
    assert legs == copies
    assert sorted(hit.chunk_id for hit in fused) == sorted({name for name, _ in vector + text})
    assert all(0 <= hit.score <= 1 + 1e-9 for hit in fused)
    assert [hit.score for hit in fused] == sorted((hit.score for hit in fused), reverse=True)
