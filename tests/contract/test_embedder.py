"""What every embedder promises (ports.Embedder)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from memory_core.adapters.hash_embedder import HashEmbedder
from memory_core.adapters.local_embedder import load_local_embedder
from memory_core.errors import ValidationError
from memory_core.ports import Embedder

LEASES = "A lease protects a directory against two runs at the same time."
LEASES_TOO = "Two runs of one directory at the same time are kept apart by a lease."
PASTA = "Boil the spaghetti in salted water and stir in fresh basil."

MAKERS: dict[str, Callable[[], Embedder]] = {"hash": HashEmbedder, "local": load_local_embedder}


@pytest.fixture(params=MAKERS)
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    made = MAKERS[str(request.param)]()
    yield made
    await made.close()


async def test_the_result_mirrors_the_groups(embedder: Embedder) -> None:
    """Each document gets its vectors, in order, each of the promised width."""
    result = await embedder.embed([[LEASES, PASTA], [LEASES_TOO]], kind="document")
    alone = await embedder.embed([[LEASES], [PASTA], [LEASES_TOO]], kind="document")

    assert [group.shape for group in result.groups] == [(2, embedder.dimensions), (1, embedder.dimensions)]
    assert [list(windows) for windows in result.windows] == [[1, 1], [1]]
    assert np.array_equal(np.concatenate(result.groups), np.concatenate(alone.groups))
    assert result.usage.tokens > 0


async def test_vectors_are_finite_float32_of_length_one(embedder: Embedder) -> None:
    """Symbols, emoji and control characters have a direction too."""
    texts = [LEASES, "?", "\u200b.", "👩‍👩‍👧‍👦", "[SEP] [PAD]", "中文", "\x01"]
    (vectors,) = (await embedder.embed([texts], kind="document")).groups

    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)


async def test_equal_text_gives_equal_bits(embedder: Embedder) -> None:
    """A second instance, a second call and another kind give the very same vector."""
    other = MAKERS[embedder.provider]()
    first = await embedder.embed([[LEASES]], kind="document")
    second = await other.embed([[PASTA, LEASES]], kind="query")
    await other.close()

    assert first.groups[0][0].tobytes() == second.groups[0][1].tobytes()


async def test_related_texts_are_nearer_than_unrelated_ones(embedder: Embedder) -> None:
    """That is what vectors are for."""
    (vectors,) = (await embedder.embed([[LEASES, LEASES_TOO, PASTA]], kind="document")).groups

    assert float(vectors[0] @ vectors[1]) > 0.5
    assert float(vectors[0] @ vectors[2]) < 0.25


@pytest.mark.parametrize(
    ("groups", "position"),
    [
        ([["a"], []], r"documents\[1\] "),
        ([["a"], ["b", ""]], r"documents\[1\]\[1\]"),
        ([["a", " \n\t"]], r"documents\[0\]\[1\]"),
    ],
)
async def test_a_blank_text_is_refused_by_position(embedder: Embedder, groups: list[list[str]], position: str) -> None:
    """The caller learns which text is wrong, and nothing is computed."""
    with pytest.raises(ValidationError, match=position):
        await embedder.embed(groups, kind="document")


async def test_a_blank_query_is_called_a_query(embedder: Embedder) -> None:
    """The position is named in the caller's words."""
    with pytest.raises(ValidationError, match=r"queries\[0\]\[0\]"):
        await embedder.embed([[" "]], kind="query")


async def test_nothing_in_gives_nothing_out(embedder: Embedder) -> None:
    """An empty list is no error."""
    result = await embedder.embed([], kind="document")

    assert (list(result.groups), list(result.windows), result.usage.tokens) == ([], [], 0)


async def test_closing_twice_is_harmless(embedder: Embedder) -> None:
    """Whoever cleans up need not know who did before."""
    await embedder.embed([[LEASES]], kind="query")
    await embedder.close()
    await embedder.close()


async def test_a_megabyte_without_blanks_ends(embedder: Embedder) -> None:
    """No text makes an embedder hang."""
    result = await embedder.embed([["x" * 1_000_000]], kind="document")

    assert np.isfinite(result.groups[0]).all()
