"""The measures of `benchmarks/chunk_quality.py`, by hand: what is found, what it cost, and where a chunk stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The benchmarks are commands, not a package: only their folder's parent is on no path.
sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.chunk_metrics import Place, Scores, average, covered_chars, place_in_order, score

ANSWER = Place("book", 100, 200)


def at(start: int, end: int, document: str = "book") -> Place:
    return Place(document, start, end)


def test_a_chunk_that_holds_the_answer_finds_all_of_it() -> None:
    """Its length beyond the answer costs precision and IoU, not recall."""
    assert score([ANSWER], [at(50, 250)]) == Scores(recall=1.0, precision=0.5, iou=0.5)


def test_what_was_not_found_lowers_the_iou_and_not_the_precision() -> None:
    """Half of the answer at the end of a chunk of 100 characters."""
    assert score([ANSWER], [at(50, 150)]) == Scores(recall=0.5, precision=0.5, iou=50 / 150)


def test_nothing_found_is_zero() -> None:
    """Neighbours touch the answer, another document has the same offsets; none holds a character of it."""
    assert score([ANSWER], [at(0, 100), at(200, 300), at(100, 200, "other")]) == Scores(0.0, 0.0, 0.0)


def test_nothing_retrieved_is_zero() -> None:
    """A question without a hit is no division by zero."""
    assert score([ANSWER], []) == Scores(0.0, 0.0, 0.0)


def test_what_is_retrieved_elsewhere_costs_precision() -> None:
    """A chunk of another document was read all the same."""
    assert score([ANSWER], [ANSWER, at(0, 300, "other")]) == Scores(recall=1.0, precision=0.25, iou=0.25)


def test_overlap_is_found_once_and_paid_twice() -> None:
    """As the authors of the set count: chunks that repeat each other gain nothing."""
    assert score([ANSWER], [ANSWER, ANSWER]) == Scores(recall=1.0, precision=0.5, iou=0.5)


def test_an_answer_in_several_places_counts_by_its_length() -> None:
    """100 of 100 characters here and 0 of 300 there are a quarter."""
    assert score([ANSWER, at(500, 800)], [at(100, 200)]).recall == 0.25


def test_a_split_answer_is_found_in_its_parts() -> None:
    """Two chunks side by side hold all of it."""
    assert covered_chars([ANSWER], [at(150, 260), at(40, 150)]) == 100


def test_excerpts_that_overlap_count_each_character_once_where_they_are_found() -> None:
    """Their lengths add up below the line, as published: such a question cannot reach 1."""
    assert score([at(0, 100), at(50, 150)], [at(0, 150)]) == Scores(recall=0.75, precision=1.0, iou=1.0)


def test_an_average_is_over_questions() -> None:
    """A long answer weighs as much as a short one."""
    assert average([Scores(1.0, 0.5, 0.25), Scores(0.0, 0.0, 0.75)]) == Scores(0.5, 0.25, 0.5)


def test_repeated_text_is_placed_in_order() -> None:
    """The second of two equal chunks stands behind the first, not on it."""
    places = place_in_order("same\n\nsame\n\n\U0001f680 end", ["same", "same", "\U0001f680 end"], document="book")
    assert places == [at(0, 4), at(6, 10), at(12, 17)]


def test_a_chunk_that_is_no_slice_is_refused() -> None:
    """A splitter that changes text cannot be measured by offsets."""
    with pytest.raises(ValueError, match="not a slice"):
        place_in_order("one\ntwo", ["one two"], document="book")
