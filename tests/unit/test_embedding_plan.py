"""How texts become requests, and what is learned of a provider."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory_core.calibration import START_FACTOR, Calibration
from memory_core.embedding_plan import (
    PlacedUnit,
    PlannedRequest,
    Unit,
    assemble,
    find_leaves,
    fit,
    halve,
    lay_out,
    pack,
)
from memory_core.embedding_ports import ProviderLimits
from memory_core.errors import EmbeddingError

WIDE = ProviderLimits(request_tokens=10_000, request_texts=1_000)

generated = settings(derandomize=True, deadline=None, max_examples=100)


class WordCounter:
    """A token a word, with the blanks before it."""

    name = "words"

    def count(self, text: str) -> int:
        """Words of the text."""
        return len(text.split())

    def ends(self, text: str) -> NDArray[np.int64]:
        """The offset behind each."""
        return np.array([match.end() for match in re.finditer(r"\S+", text)], dtype=np.int64)


COUNTER = WordCounter()


def words(count: int, name: str = "w") -> str:
    """A text of so many words."""
    return " ".join(f"{name}{number}" for number in range(count))


def unit(*tokens: int, name: str = "u") -> Unit:
    """A unit of texts with so many tokens."""
    return Unit(texts=tuple(words(count, f"{name}{place}-") for place, count in enumerate(tokens)), tokens=tokens)


def pack_flat(documents: Sequence[Sequence[Unit]], room: int, limits: ProviderLimits = WIDE) -> list[PlannedRequest]:
    """Pack for a flat model."""
    return pack(documents, room=room, limits=limits, is_contextual=False)


def sizes(requests: Sequence[PlannedRequest]) -> list[list[list[int]]]:
    """Tokens by request, run and unit."""
    return [[[item.total for item in run] for run in request.runs] for request in requests]


def vectors_of(units: Sequence[Unit]) -> dict[Unit, NDArray[np.float32]]:
    """For each text of a unit a vector that is known by it."""
    return {item: np.stack([np.full(3, 1 + hash(text) % 1_000, np.float32) for text in item.texts]) for item in units}


def write_text(tokens: int, glue: str, edge: str) -> str:
    """Numbers between blanks."""
    return edge + glue.join(f"{token:x}" for token in range(tokens)) + edge


texts = st.lists(
    st.builds(
        write_text,
        st.integers(1, 40),
        st.sampled_from([" ", "\n", " \n\n ", "\t"]),
        st.sampled_from(["", " ", "\n\n"]),
    ),
    min_size=1,
    max_size=6,
)
corpora = st.lists(texts, min_size=1, max_size=5)
limits_of_any_size = st.builds(
    ProviderLimits,
    request_tokens=st.integers(1, 80),
    request_texts=st.integers(1, 12),
    request_groups=st.none() | st.integers(1, 4),
    group_tokens=st.none() | st.integers(1, 60),
    text_tokens=st.none() | st.integers(1, 40),
)


# --- packing


def test_documents_share_a_request_and_stay_whole() -> None:
    """A document that does not fit behind the others begins the next request."""
    documents = [[unit(3), unit(3)], [unit(2)], [unit(2), unit(4)], [unit(1)]]

    assert sizes(pack_flat(documents, room=10)) == [[[3, 3], [2]], [[2, 4], [1]]]


def test_a_document_beyond_a_request_is_cut_between_its_texts() -> None:
    """Its parts fill a request each, and the next document joins the last of them."""
    documents = [[unit(1)], [unit(4)] * 5, [unit(1)]]

    assert sizes(pack_flat(documents, room=9)) == [[[1], [4, 4]], [[4, 4]], [[4], [1]]]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (ProviderLimits(request_tokens=99, request_texts=3), [[[1, 1]], [[1, 1], [1]]]),
        (ProviderLimits(request_tokens=99, request_texts=9, request_groups=1), [[[1, 1]], [[1, 1]], [[1]]]),
    ],
)
def test_texts_and_groups_of_a_request_are_limited_too(limits: ProviderLimits, expected: list[list[list[int]]]) -> None:
    """Whichever limit is reached first closes the request."""
    assert sizes(pack_flat([[unit(1)] * 2, [unit(1)] * 2, [unit(1)]], room=99, limits=limits)) == expected


def test_windows_of_a_contextual_model_are_groups_of_their_own() -> None:
    """Two windows of one document are two inputs of the provider, also within one request."""
    packed = pack([[unit(2, 2), unit(3)], [unit(1)]], room=8, limits=WIDE, is_contextual=True)

    assert [[len(group) for group in request.write("document").groups] for request in packed] == [[2, 1, 1]]


@generated
@given(corpora, limits_of_any_size, st.booleans(), st.integers(1, 60))
def test_every_text_is_sent_once_in_order_and_within_the_limits(
    corpus: list[list[str]], limits: ProviderLimits, is_contextual: bool, room: int
) -> None:
    """Whatever the sizes: the requests hold exactly the texts, and only what cannot be cut is over a limit."""
    layouts = [lay_out(group, counter=COUNTER, limits=limits, is_contextual=is_contextual) for group in corpus]
    documents = [[placed.unit for placed in layout] for layout in layouts]
    packed = pack(documents, room=room, limits=limits, is_contextual=is_contextual)

    assert [item for request in packed for item in request.units] == [item for units in documents for item in units]
    assert ["".join(text for item in units for text in item.texts) for units in documents] == list(map("".join, corpus))
    for request in packed:
        assert request.tokens <= room or len(request.units) == 1
        assert sum(len(item.texts) for item in request.units) <= limits.request_texts
        assert limits.request_groups is None or len(request.runs) <= limits.request_groups
        assert not is_contextual or all(len(run) == 1 for run in request.runs)
    own = limits.group_tokens if is_contextual else limits.text_tokens
    bound = min(own or 10_000, limits.request_tokens)
    for item in (item for units in documents for item in units):
        assert math.ceil(item.total * START_FACTOR) <= bound or item.total <= 1
        assert not any(text.isspace() for text in item.texts)


@generated
@given(corpora, limits_of_any_size, st.booleans(), st.data())
def test_what_is_put_together_mirrors_the_texts(
    corpus: list[list[str]], limits: ProviderLimits, is_contextual: bool, data: st.DataObject
) -> None:
    """After any number of refusals each text has one vector, made of its own pieces and of no others."""
    layouts = [lay_out(group, counter=COUNTER, limits=limits, is_contextual=is_contextual) for group in corpus]
    documents = [list(dict.fromkeys(placed.unit for placed in layout)) for layout in layouts]
    waiting = pack(documents, room=50, limits=limits, is_contextual=is_contextual)
    halves: dict[Unit, tuple[Unit, Unit]] = {}
    for _ in range(data.draw(st.integers(0, 12))):
        refused = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        try:
            smaller, cut = halve(refused, counter=COUNTER)
        except EmbeddingError:
            assert len(refused.units) == 1
            assert len(refused.units[0].texts[0].strip()) == 1
            waiting.append(refused)
            continue
        halves |= cut
        waiting += smaller
    for layout, group in zip(layouts, corpus, strict=True):
        leaves = [leaf for placed in layout for leaf in find_leaves(placed, halves)]
        pieces: list[list[str]] = [[] for _ in group]
        for leaf in leaves:
            for place, text in zip(leaf.places, leaf.unit.texts, strict=True):
                pieces[place].append(text)
        rows, windows = assemble(leaves, vectors_of([leaf.unit for leaf in leaves]))

        assert list(map("".join, pieces)) == group
        assert windows == tuple(map(len, pieces))
        assert rows.shape == (len(group), 3)
        assert rows.dtype == np.float32


# --- windows


def test_a_text_beyond_the_window_is_cut_at_a_blank() -> None:
    """Nothing is lost and nothing is blank; each half is as long as the other."""
    limits = ProviderLimits(request_tokens=99, request_texts=9, text_tokens=22)
    pieces = lay_out([words(40)], counter=COUNTER, limits=limits, is_contextual=False)

    assert [piece.unit.tokens for piece in pieces] == [(20,), (20,)]
    assert "".join(piece.unit.texts[0] for piece in pieces) == words(40)
    assert pieces[1].unit.texts[0].startswith(" ")
    assert {piece.places for piece in pieces} == {(0,)}


def test_a_long_document_of_a_contextual_model_is_windowed_between_its_texts() -> None:
    """Its windows are consecutive, and a text that is too long for one shares its windows with its neighbours."""
    limits = ProviderLimits(request_tokens=99, request_texts=99, group_tokens=33)
    even = lay_out([words(10)] * 6, counter=COUNTER, limits=limits, is_contextual=True)
    long = lay_out([words(4), words(40), words(4)], counter=COUNTER, limits=limits, is_contextual=True)

    assert [item.places for item in even] == [(0, 1, 2), (3, 4, 5)]
    assert [item.places for item in long] == [(0, 1), (1, 2)]


def test_a_document_is_windowed_alike_whatever_was_cut_at_once() -> None:
    """Refusals cut a document where a smaller limit would have: the next process finds the same windows."""
    group = [words(7, f"t{number}-") for number in range(9)]
    small = ProviderLimits(request_tokens=99, request_texts=99, group_tokens=20)
    (whole,) = lay_out(group, counter=COUNTER, limits=WIDE, is_contextual=True)
    at_once = lay_out(group, counter=COUNTER, limits=small, is_contextual=True)
    _, halves = fit(PlannedRequest(runs=((whole.unit,),)), counter=COUNTER, room=99, limits=small, is_contextual=True)

    assert tuple(find_leaves(whole, halves)) == at_once
    assert len(at_once) > 3


def test_windows_are_averaged_by_direction_and_tokens() -> None:
    """A vector's length says nothing; a window of three tokens weighs three times one of one."""
    leaves = [
        PlacedUnit(unit=unit(3, name="a"), places=(0,)),
        PlacedUnit(unit=unit(1, name="b"), places=(0,)),
        PlacedUnit(unit=unit(1, name="c"), places=(1,)),
    ]
    rows = [[[2.0, 0.0]], [[0.0, 7.0]], [[5.0, 0.0]]]
    vectors = {leaf.unit: np.array(row, np.float32) for leaf, row in zip(leaves, rows, strict=True)}
    found, windows = assemble(leaves, vectors)

    assert windows == (2, 1)
    assert found[0] == pytest.approx(np.array([3, 1]) / math.sqrt(10))
    assert found[1].tolist() == [5.0, 0.0]  # one window: as the provider gave it


def test_windows_in_opposite_directions_are_an_error() -> None:
    """A vector without a direction is not stored."""
    leaves = [PlacedUnit(unit=unit(1, name=name), places=(0,)) for name in "ab"]
    vectors = {leaf.unit: np.array([[sign, 0]], np.float32) for leaf, sign in zip(leaves, (1, -1), strict=True)}

    with pytest.raises(EmbeddingError, match="without a direction"):
        assemble(leaves, vectors)


# --- refusals


def test_a_refused_request_is_cut_between_documents_then_texts_then_within_the_text() -> None:
    """The coarsest cut that there is comes first."""
    request = PlannedRequest(runs=((unit(4), unit(4)), (unit(8),)))
    (first, second), none = halve(request, counter=COUNTER)
    (third, fourth), neither = halve(first, counter=COUNTER)
    (fifth, sixth), halves = halve(second, counter=COUNTER)

    assert sizes([first, second]) == [[[4, 4]], [[8]]]
    assert sizes([third, fourth]) == [[[4]], [[4]]]
    assert sizes([fifth, sixth]) == [[[4]], [[4]]]
    assert none == neither == {}
    assert list(halves) == [unit(8)]


def test_a_refused_window_becomes_two_windows() -> None:
    """A contextual model's window is cut between its texts, and it is recorded how."""
    whole = unit(5, 1, 6)
    smaller, halves = halve(PlannedRequest(runs=((whole,),)), counter=COUNTER)

    assert [request.write("document").groups for request in smaller] == [(whole.texts[:2],), (whole.texts[2:],)]
    assert halves == {whole: (unit(5, 1), Unit(texts=whole.texts[2:], tokens=(6,)))}


def test_one_shortest_text_that_is_refused_is_an_error() -> None:
    """There is nothing left to cut."""
    with pytest.raises(EmbeddingError, match="one character"):
        halve(PlannedRequest(runs=((Unit(texts=(" x ",), tokens=(1,)),),)), counter=COUNTER)


# --- calibration


def test_the_factor_goes_up_at_once_and_down_slowly() -> None:
    """An estimate that was too low costs a refusal; one that was too high only room."""
    start = Calibration()
    higher = start.observed(1_000, 2_000)
    lower = higher.observed(1_000, 1_000)

    assert start.factor == START_FACTOR
    assert higher.factor == pytest.approx(2.1)
    assert 1.9 < lower.factor < 2.1
    assert start.observed(10, 100).factor == START_FACTOR  # marks around a short text are not the rule
    assert start.observed(1_000, None).factor == START_FACTOR
    assert start.observed(1_000, 10**9).factor <= 16


def test_many_answers_bring_the_factor_down() -> None:
    """The requests fill up to what the provider really counts."""
    learned = Calibration()
    factors = [(learned := learned.observed(1_000, 1_000)).factor for _ in range(60)]

    assert all(later <= earlier for earlier, later in pairwise(factors))
    assert learned.factor == pytest.approx(1.05, abs=0.001)


def test_a_refusals_numbers_make_later_requests_smaller() -> None:
    """A named limit of the whole request is kept, and the factor is set by what was sent."""
    published = ProviderLimits(request_tokens=300_000, request_texts=9, text_tokens=8_191)
    learned = Calibration().refused_at(100_000, units=50, limits=published, limit=120_000, sent=150_000)

    assert learned.narrow(published).request_tokens == 120_000
    assert learned.estimate(100_000) == pytest.approx(157_500, abs=1)
    assert learned.room(published) < 80_000


def test_a_limit_of_one_text_does_not_make_requests_smaller() -> None:
    """A model's window of 8,192 tokens says nothing of a request of many texts."""
    published = ProviderLimits(request_tokens=300_000, request_texts=9, text_tokens=8_191)
    learned = Calibration().refused_at(100_000, units=50, limits=published, limit=512, sent=600)

    assert learned.narrow(published).text_tokens == 512
    assert learned.room(published) == Calibration().room(published)


def test_a_refusal_without_numbers_halves_until_requests_pass() -> None:
    """The room is half of what was refused, unless more than that has been accepted."""
    learned = Calibration().refused_at(8_000, units=9, limits=WIDE, limit=None, sent=None)

    assert learned.room(WIDE) == 4_000
    assert learned.observed(6_000, None).room(WIDE) == 6_000
    assert Calibration().refused_at(8_000, units=1, limits=WIDE, limit=None, sent=None) == Calibration()


def test_a_misread_limit_is_not_believed() -> None:
    """A limit of three tokens would cut every text into letters."""
    learned = Calibration().refused_at(5_000, units=1, limits=WIDE, limit=3, sent=None)

    assert not learned.has_refusals
