"""The embed stage when a model, a vector or a document is wrong: whose failure it is, and what it costs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from memory_core.embed import embed_documents
from memory_core.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    InternalError,
    ProviderRefusedError,
)
from memory_core.models import (
    EmbeddedDocument,
    Failure,
    Vector,
)
from memory_core.sizes import estimate_row_bytes
from tests.unit.embed_world import (
    RecordingEmbedder,
    Spoil,
    World,
    failure_of,
    make_document,
)

# --- what goes wrong --------------------------------------------------------------------------------------------------


def drop_last(vectors: list[Vector]) -> object:
    return np.stack(vectors[:-1])


def narrow_fourth(vectors: list[Vector]) -> object:
    return [*vectors[:3], vectors[3][:-1], *vectors[4:]]


def put_nan_in_eighth(vectors: list[Vector]) -> object:
    vectors[7][1] = np.nan
    return np.stack(vectors)


def put_infinity_in_last(vectors: list[Vector]) -> object:
    vectors[-1][-1] = np.inf
    return np.stack(vectors)


def widen_components(vectors: list[Vector]) -> object:
    return np.stack(vectors).astype(np.float64)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (drop_last, "9 vectors for 10"),
        (narrow_fourth, r"vector 3 of 10 with shape \(3,\)"),
        (put_nan_in_eighth, "vector 7 of 10 .*not finite"),
        (put_infinity_in_last, "vector 9 of 10 .*not finite"),
        (widen_components, "vector 0 of 10 as float64"),
    ],
)
async def test_a_wrong_answer_fails_its_document_and_no_other(spoil: Spoil, message: str) -> None:
    """The error names the count or the vector; nothing of the document goes on, and nothing is asked twice."""
    world = World(embedder=RecordingEmbedder(spoil={"poison": spoil}))
    bad = make_document("bad", "poison", *[f"text {number}" for number in range(9)])
    good, failed, also_good = await world.embed(make_document("a", "good"), bad, make_document("b", "fine"))

    failure = failure_of(failed)
    assert failure.source_id == "bad"
    assert isinstance(failure.error, EmbeddingError)
    with pytest.raises(EmbeddingError, match=message):
        raise failure.error
    assert isinstance(good, EmbeddedDocument)
    assert isinstance(also_good, EmbeddedDocument)
    assert len(world.embedder.requests) == 1


async def test_a_refused_batch_is_asked_again_by_document() -> None:
    """Only the guilty document fails, and no request is sent twice."""
    error = EmbeddingError("The model refused the text.")
    world = World(embedder=RecordingEmbedder(refuse={"poison": error}))
    good, failed, fine = await world.embed(
        make_document("a", "good"), make_document("bad", "poison"), make_document("b", "fine")
    )

    assert failure_of(failed).error is error
    assert isinstance(good, EmbeddedDocument)
    assert isinstance(fine, EmbeddedDocument)
    assert [len(request) for request in world.embedder.requests] == [3, 1, 1, 1]


async def test_a_refused_document_alone_is_not_asked_again() -> None:
    """The same request would fail again."""
    world = World(embedder=RecordingEmbedder(refuse={"poison": EmbeddingError("No.")}))
    (failed,) = await world.embed(make_document("bad", "poison"))

    assert isinstance(failed, Failure)
    assert len(world.embedder.requests) == 1


async def test_a_twin_of_a_failed_document_does_not_share_its_fate() -> None:
    """A text that was sent with a document whose answer was wrong is asked for again for the other one."""
    world = World(embedder=RecordingEmbedder(spoil={"\n\npoison": drop_last}))
    shared = "alpha alpha beta beta"
    # One title and equal words give the two first chunks one input.
    first, second = make_document("bad", shared, "poison"), make_document("good", shared, "poison")
    second = replace(second, chunking=replace(second.chunking, chunks=second.chunking.chunks[:1]))
    failed, good = await world.embed(first, second)

    assert isinstance(failed, Failure)
    assert isinstance(good, EmbeddedDocument)
    assert [sum(map(len, request)) for request in world.embedder.requests] == [2, 1]


async def test_an_absent_provider_is_raised_for_the_task_to_retry() -> None:
    """A retry can heal it, so no document is failed; the next attempt embeds."""
    world = World(embedder=RecordingEmbedder(refuse={"good": EmbeddingUnavailableError("Busy.")}))
    with pytest.raises(EmbeddingUnavailableError):
        await world.embed(make_document("a", "good"))
    world.embedder.refuse.clear()

    assert await world.embed_one(make_document("a", "good"))


def test_rows_are_estimated_from_body_text_vector_and_overhead() -> None:
    """The formula of the refusal, in numbers."""
    estimated = estimate_row_bytes(body_bytes=1_000, rows=10, row_text_bytes=1_500, row_parent_bytes=20, dimensions=384)

    assert estimated == 1_000 + 1_500 + 10 * (4 * 384 + 20 + 600)


async def test_a_fingerprint_that_is_not_the_embedders_is_a_defect() -> None:
    """Vectors are never stamped as of a space that they are not of."""
    core = replace(World().core, fingerprint=replace(World().core.fingerprint, model="another"))
    with pytest.raises(InternalError, match="another"):
        await embed_documents([make_document("a", "text")], core=core)


async def test_the_event_loop_stays_free() -> None:
    """Five million characters are read in a thread."""
    longest, last = 0.0, asyncio.get_running_loop().time()
    stage = asyncio.ensure_future(World().embed(make_document("a", "word " * 1_000_000)))
    while not stage.done():
        await asyncio.sleep(0.001)
        now = asyncio.get_running_loop().time()
        longest, last = max(longest, now - last), now

    assert isinstance((await stage)[0], EmbeddedDocument)
    assert longest < 2


async def test_a_provider_that_refuses_everything_is_asked_once() -> None:
    """A wrong key is no document's fault: every document fails with it, and none is asked for alone."""
    world = World()
    refusal = ProviderRefusedError("The key was refused. Check OPENAI_API_KEY.")
    world.embedder.refuse = {"": refusal}
    shared = make_document("a", "Alpha."), make_document("b", "Beta."), make_document("c", "Alpha.")
    results = await world.embed(*shared)
    assert [cast("Failure", result).error for result in results] == [refusal] * 3
    assert len(world.embedder.requests) == 1
