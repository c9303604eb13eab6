"""Where a grapheme cluster ends, found from any place of a text without reading all that is before it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from memory_core.chunk.clusters import Clusters

# One of each kind that Unicode's rules tell apart, the consonants and marks of Indic conjuncts included.
_SIGNS = [
    *("a", "漢", " ", "\r", "\n", "\u200b", "e", "\u0301", "\u200d", "\u200c", "\ufe0f", "👩", "❤", "©", "🏽"),
    *("🇩", "🇪", "\u1100", "\u1161", "\u11a8", "가", "각", "\u0600", "\u0d4e", "\U000110bd"),
    *("\u0915", "\u094d", "\u0903", "\u0b95", "\u0ac7", "\u0e01", "\u0e33"),
]
_FAMILY = "👩\u200d👩\u200d👧\u200d👦"


@given(
    signs=st.lists(st.sampled_from(_SIGNS), min_size=1, max_size=6),
    order=st.lists(st.integers(0, 5), min_size=1, max_size=150),
    places=st.lists(st.integers(0, 149), min_size=1, max_size=8),
)
def test_clusters_are_those_of_a_full_walk(signs: list[str], order: list[int], places: list[int]) -> None:
    """Whatever the text and the order of the questions, the answer is that of reading from the start."""
    text = "".join(signs[index % len(signs)] for index in order)
    edges = [0, *(found.end() for found in regex.finditer(r"\X", text))]
    clusters = Clusters(text)

    for place in (place % len(text) for place in places):
        row = bisect_right(edges, place) - 1
        assert clusters.is_edge(place) == (place in edges)
        assert clusters.around(place) == (edges[row], edges[row + 1])


@pytest.mark.parametrize("text", ["e" + "\u0301" * 100_000, "👩\u200d" * 50_000, "\u0600" * 99_999 + "a"])
def test_a_huge_cluster_is_found_once(text: str) -> None:
    """Ten thousand questions about one cluster of a hundred thousand characters are answered at once."""
    clusters = Clusters(text + "b" + text)

    for place in range(0, len(text), 10):
        assert clusters.around(place) == (0, len(text))
        assert clusters.around(len(text)) == (len(text), len(text) + 1)
        assert not clusters.is_edge(len(text) + 1 + place) or place == 0


_RUNS: dict[str, str] = {
    "flags": "🇩🇪",
    "emoji": "🚀",
    "families": _FAMILY,
    "joined": "👩\u200d",
    "marks": "\u0301",
    "prepended": "\u0600",
    "jamo": "\u1100\u1161\u11a8",
    "thai": "กำ",
    "conjuncts": "\u0915\u094d",
}


@pytest.mark.parametrize("kind", list(_RUNS))
def test_time_is_linear_in_runs_of_signs_that_join(kind: str, assert_linear: Callable[..., None]) -> None:
    """Flags, joined emoji and marks without an end: each edge costs the same wherever it is."""

    def walk(text: str) -> None:
        clusters = Clusters(text)
        for place in range(0, len(text), 100):
            clusters.around(place)
            clusters.is_edge(place + 1)

    def repeat(chars: int) -> str:
        return _RUNS[kind] * (chars // len(_RUNS[kind]))

    assert_linear(walk, repeat, chars=20_000)
