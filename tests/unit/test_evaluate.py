"""The measures by hand: what is found, at which rank, and what was read for it."""

from __future__ import annotations

from statistics import StatisticsError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.evaluate import Place, Question, Scores, average, covered_chars, evaluate, score

ANSWER = Place("book", 100, 200)


def at(start: int, end: int, source_id: str = "book") -> Place:
    return Place(source_id, start, end)


def ask(*places: Place) -> Question:
    return Question(text="Where?", places=places)


def test_a_result_that_holds_the_answer_finds_all_of_it() -> None:
    """Its length beyond the answer costs precision and IoU, not recall."""
    assert score(ask(ANSWER), [at(50, 250)], 5) == Scores(
        recall=1.0, passed=1.0, reciprocal_rank=1.0, precision=0.5, iou=0.5
    )


def test_half_an_answer_is_half_the_recall_and_no_pass() -> None:
    """What is cut through counts by its characters; a place is passed only as a whole."""
    assert score(ask(ANSWER), [at(50, 150)], 5) == Scores(
        recall=0.5, passed=0.0, reciprocal_rank=1.0, precision=0.5, iou=50 / 150
    )


def test_an_answer_in_two_parts_is_whole() -> None:
    """Two results side by side hold all of it."""
    assert score(ask(ANSWER), [at(150, 260), at(40, 150)], 5).passed == 1.0
    assert score(ask(ANSWER), [at(150, 260), at(40, 149)], 5).passed == 0.0


def test_only_the_first_k_count() -> None:
    """The third result is none at k = 2; its rank is 3."""
    ranking = [at(0, 100), at(100, 200, "other"), ANSWER]
    assert score(ask(ANSWER), ranking, 2) == Scores(recall=0.0, passed=0.0, reciprocal_rank=0.0, precision=0.0, iou=0.0)
    assert score(ask(ANSWER), ranking, 3).reciprocal_rank == 1 / 3


def test_neighbours_and_other_documents_are_not_relevant() -> None:
    """They touch the answer, or have its offsets elsewhere; none holds a character of it."""
    nothing = score(ask(ANSWER), [at(0, 100), at(200, 300), at(100, 200, "other")], 5)
    assert (nothing.recall, nothing.reciprocal_rank, nothing.precision) == (0.0, 0.0, 0.0)


def test_pass_is_the_share_of_places_and_recall_that_of_characters() -> None:
    """One of two golden chunks is half a pass; with a quarter of the characters it is a quarter of the recall."""
    one_of_two = score(ask(ANSWER, at(500, 800)), [ANSWER], 5)
    assert (one_of_two.passed, one_of_two.recall) == (0.5, 0.25)


def test_what_comes_twice_is_found_once_and_paid_twice() -> None:
    """As the authors of chunking-eval count: overlap gains nothing."""
    twice = score(ask(ANSWER), [ANSWER, ANSWER], 5)
    assert (twice.recall, twice.precision, twice.iou) == (1.0, 0.5, 0.5)


def test_nothing_retrieved_is_zero() -> None:
    """A question without a hit is no division by zero."""
    assert score(ask(ANSWER), [], 5) == Scores(recall=0.0, passed=0.0, reciprocal_rank=0.0, precision=0.0, iou=0.0)


def test_whole_documents_have_no_precision() -> None:
    """Any result of a relevant document finds it; several results of one find one."""
    question = Question(text="Which?", source_ids=("a", "b", "b"))
    ranking = [at(0, 9, "x"), at(0, 9, "a"), at(9, 20, "a")]
    assert score(question, ranking, 3) == Scores(recall=0.5, passed=0.5, reciprocal_rank=0.5)
    assert score(question, ranking, 1) == Scores(recall=0.0, passed=0.0, reciprocal_rank=0.0)


def test_questions_weigh_alike() -> None:
    """However many places each has; precision is averaged over those that have one."""
    questions = [ask(ANSWER, at(300, 400), at(500, 600)), ask(ANSWER), Question(text="Which?", source_ids=("x",))]
    averaged = evaluate(questions, [[], [ANSWER], [at(0, 9, "x")]], 5)
    assert (averaged.recall, averaged.passed) == (2 / 3, 2 / 3)
    assert (averaged.precision, averaged.iou) == (0.5, 0.5)


def test_a_ranking_is_needed_for_each_question() -> None:
    """Silently dropping a question would move every figure, and no question has no average."""
    with pytest.raises(ValueError, match="zip"):
        evaluate([ask(ANSWER)], [], 5)
    with pytest.raises(StatisticsError):
        average([])


def make_place(source_id: str, start: int, length: int) -> Place:
    return Place(source_id, start, start + length)


PLACES = st.builds(make_place, st.sampled_from("ab"), st.integers(0, 30), st.integers(1, 10))


@given(st.lists(PLACES, min_size=1, max_size=4), st.lists(PLACES, max_size=8))
def test_characters_are_counted_as_a_set(relevant: list[Place], retrieved: list[Place]) -> None:
    """However the places lie: covered are the characters that are in both."""

    def spread(places: list[Place]) -> set[tuple[str, int]]:
        return {(place.source_id, char) for place in places for char in range(place.start, place.end)}

    assert covered_chars(relevant, retrieved) == len(spread(relevant) & spread(retrieved))


@given(st.lists(PLACES, min_size=1, max_size=4), st.lists(PLACES, max_size=8), st.integers(1, 8))
def test_more_results_never_find_less(relevant: list[Place], ranking: list[Place], k: int) -> None:
    """Recall, pass and MRR grow with k; every measure is a share; whoever recalls all passes all."""
    fewer, more = score(ask(*relevant), ranking, k), score(ask(*relevant), ranking, k + 1)
    assert fewer.recall <= more.recall
    assert fewer.passed <= more.passed
    assert fewer.reciprocal_rank <= more.reciprocal_rank
    assert more.precision is not None
    assert more.iou is not None
    assert all(0 <= share <= 1 for share in (more.recall, more.passed, more.reciprocal_rank, more.precision, more.iou))
    assert more.recall < 1 or more.passed == 1
