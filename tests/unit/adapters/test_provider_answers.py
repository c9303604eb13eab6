"""Answers in, checked vectors out: any order is right, and any flaw refuses the whole."""

from __future__ import annotations

import base64
import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.adapters.provider_answers import rebuild_flat, rebuild_nested
from memory_core.errors import EmbeddingError

WHO = "The embedding provider openai"
WIDTH = 3


def entry(index: object, *numbers: object) -> dict[str, object]:
    """One vector with its place."""
    return {"index": index, "embedding": list(numbers)}


def encode(*numbers: float) -> str:
    """Numbers as base64 of little-endian float32."""
    return base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()


@given(st.data(), st.lists(st.integers(min_value=1, max_value=4), min_size=1, max_size=5))
def test_any_order_of_entries_gives_the_same_vectors(data: st.DataObject, sizes: list[int]) -> None:
    """The index alone says where a vector belongs, in flat answers and in nested ones."""
    flat = {"data": data.draw(st.permutations([entry(place, place, 0, 1) for place in range(sum(sizes))]))}
    answer = rebuild_flat(flat, sizes, dimensions=WIDTH, who=WHO)
    assert [len(group) for group in answer.groups] == sizes
    assert [row[0] for group in answer.groups for row in group] == list(range(sum(sizes)))

    groups = [
        {"index": group, "data": data.draw(st.permutations([entry(place, group, place, 1) for place in range(size)]))}
        for group, size in enumerate(sizes)
    ]
    answer = rebuild_nested({"data": data.draw(st.permutations(groups))}, sizes, dimensions=WIDTH, who=WHO)
    assert [[tuple(row) for row in group] for group in answer.groups] == [
        [(group, place, 1) for place in range(size)] for group, size in enumerate(sizes)
    ]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=WIDTH, max_size=WIDTH))
def test_both_encodings_give_the_same_vector(numbers: list[float]) -> None:
    """Base64 and lists of numbers are equal to the last bit, whatever was asked for."""
    answers = [
        rebuild_flat({"data": [{"index": 0, "embedding": form}]}, [1], dimensions=WIDTH, who=WHO)
        for form in (numbers, encode(*numbers))
    ]
    assert answers[0].groups[0].dtype == np.float32
    assert answers[0].groups[0].tobytes() == answers[1].groups[0].tobytes()


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 8, "total_tokens": 9}, 9),
        ({"prompt_tokens": 8}, 8),
        ({"total_tokens": 0}, 0),
        ({"total_tokens": -1}, None),
        ({"total_tokens": True}, None),
        ({"total_tokens": "9"}, None),
        (None, None),
        ([], None),
    ],
)
def test_tokens_are_what_the_provider_says_or_nothing(usage: object, tokens: int | None) -> None:
    """A missing count is None, never nought."""
    answer = rebuild_flat({"data": [entry(0, 1, 2, 3)], "usage": usage}, [1], dimensions=WIDTH, who=WHO)
    assert answer.tokens == tokens


def two(second: object) -> dict[str, object]:
    """An answer whose second entry is this one."""
    return {"data": [entry(0, 1, 2, 3), second]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param({}, "data is no list", id="no data"),
        pytest.param({"data": {"0": 1}}, "data is no list", id="data of another shape"),
        pytest.param({"data": [entry(0, 1, 2, 3)]}, "1 entries for 2", id="one too few"),
        pytest.param({"data": [entry(place, 1, 2, 3) for place in range(3)]}, "3 entries for 2", id="one too many"),
        pytest.param(two([1, 2, 3]), "no object", id="no object"),
        pytest.param(two(entry(0, 1, 2, 3)), "index 0 twice", id="repeated"),
        pytest.param(two(entry(2, 1, 2, 3)), "not in 0 to 1", id="out of range"),
        pytest.param(two(entry(-1, 1, 2, 3)), "not in 0 to 1", id="negative"),
        pytest.param(two(entry(1.0, 1, 2, 3)), "not in 0 to 1", id="a fraction"),
        pytest.param(two(entry(True, 1, 2, 3)), "not in 0 to 1", id="a boolean"),
        pytest.param(two({"embedding": [1, 2, 3]}), "missing", id="no index"),
        pytest.param(two({"index": 1}), "data[1].embedding is missing", id="no vector"),
        pytest.param(two(entry(1, 1, 2)), "2 numbers instead of 3", id="narrow"),
        pytest.param(two(entry(1, 1, 2, 3, 4)), "4 numbers instead of 3", id="wide"),
        pytest.param(two(entry(1, 1, 2, float("nan"))), "not finite", id="nan"),
        pytest.param(two(entry(1, 1, 2, float("-inf"))), "not finite", id="infinite"),
        pytest.param(two(entry(1, 1, 2, 1e39)), "not finite", id="beyond float32"),
        pytest.param(two(entry(1, 1, 2, 10**400)), "not finite", id="beyond float64"),
        pytest.param(two(entry(1, 1, 2, "3")), "no number", id="a text"),
        pytest.param(two(entry(1, 1, 2, None)), "no number", id="null"),
        pytest.param(two(entry(1, 1, 2, True)), "no number", id="a boolean number"),
        pytest.param(two(entry(1, 1, 2, [3])), "no number", id="a list"),
        pytest.param(two({"index": 1, "embedding": "AAAA?"}), "no base64", id="no base64"),
        pytest.param(two({"index": 1, "embedding": "ü"}), "no base64", id="no ascii"),
        pytest.param(two({"index": 1, "embedding": "AAAA"}), "no list of float32", id="three bytes"),
        pytest.param(two({"index": 1, "embedding": encode(1, 2)}), "2 numbers instead of 3", id="narrow base64"),
        pytest.param(two({"index": 1, "embedding": encode(1, 2, float("inf"))}), "not finite", id="infinite base64"),
    ],
)
def test_a_flaw_is_named_and_refuses_all(answer: dict[str, Any], said: str) -> None:
    """Flat and nested answers are held to the same; the message says where the flaw is."""
    nested = {"data": [{"index": 0, **copy.deepcopy(answer)}]}
    for rebuild, given_answer, sizes in ((rebuild_flat, answer, [1, 1]), (rebuild_nested, nested, [2])):
        with pytest.raises(EmbeddingError) as caught:
            rebuild(given_answer, sizes, dimensions=WIDTH, who=WHO)
        assert said in caught.value.message
        assert caught.value.message.startswith(WHO)


def test_groups_of_a_nested_answer_are_checked_too() -> None:
    """A vector in the wrong document is as bad as none."""
    group = {"index": 0, "data": [entry(0, 1, 2, 3)]}
    for groups, said in (([group], "1 entries for 2"), ([group, group], "index 0 twice")):
        with pytest.raises(EmbeddingError, match=said):
            rebuild_nested({"data": groups}, [1, 1], dimensions=WIDTH, who=WHO)
