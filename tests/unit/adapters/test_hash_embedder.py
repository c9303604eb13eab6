"""The embedder without a model."""

from __future__ import annotations

import numpy as np
import pytest

from memory_core.adapters.hash_embedder import HashEmbedder
from memory_core.errors import ConfigError
from memory_core.models import Vector

EXPECTED = [0.5773503, 0.0, 0.0, 0.0, -0.5773503, 0.0, 0.0, -0.5773503]


async def embed_one(text: str, *, dimensions: int = 384) -> Vector:
    result = await HashEmbedder(dimensions).embed([[text]], kind="document")
    return result.groups[0][0]


async def test_case_and_punctuation_do_not_count() -> None:
    """Only words are seen."""
    assert np.array_equal(await embed_one("Red, fox!"), await embed_one("red FOX"))


async def test_a_repeated_word_counts_less_each_time() -> None:
    """A word that is said often does not drown the others."""
    cosine = float(await embed_one("red fox") @ await embed_one("red red red red fox"))

    assert 0.5 < cosine < 0.999


async def test_texts_without_words_share_one_vector() -> None:
    """Symbols alone are legal and have a direction."""
    assert np.array_equal(await embed_one("!?"), await embed_one("+++ ---"))


async def test_vectors_are_the_same_everywhere() -> None:
    """The numbers are part of stored data: a change of them needs a new model name."""
    vector = await embed_one("memory", dimensions=8)

    assert vector.tolist() == pytest.approx(EXPECTED, abs=1e-6)


async def test_one_dimension_is_enough() -> None:
    """Every width of at least one gives unit vectors, even where all votes cancel."""
    vectors = [await embed_one(f"word{number} other{number}", dimensions=1) for number in range(20)]

    assert {abs(float(vector[0])) for vector in vectors} == {1.0}


def test_a_width_below_one_is_a_settings_error() -> None:
    """The message names the variable."""
    with pytest.raises(ConfigError, match="EMBEDDING_DIMENSIONS"):
        HashEmbedder(0)


async def test_usage_counts_words_and_no_requests() -> None:
    """Nothing left the process."""
    usage = (await HashEmbedder().embed([["a b", "c"], ["d"]], kind="document")).usage

    assert (usage.tokens, usage.requests) == (4, 0)
