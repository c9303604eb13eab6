"""The fakes, where they promise more than the ports: an embedder that fails to a script, and clocks as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from memory_core.embedding_ports import EmbeddingKind, EmbeddingResult, EmbeddingUsage
from memory_core.errors import EmbeddingError, EmbeddingUnavailableError, InternalError
from memory_core.fakes import (
    EmbeddingFault,
    FakeDatabase,
    FakeFeedStore,
    FakeStore,
    FakeSubmissionStore,
    ScriptedEmbedder,
)
from memory_core.models import Holder, StoreRequest
from memory_core.ports import Embedder
from memory_core.store_ports import MemoryStore
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.work_ports import Feed, FeedStore, SubmissionStore

GROUPS = [["alpha", "beta"], ["gamma", "delta"]]
ANN = Holder(host="laptop", pid=1, started=1.0, token="a" * 32)
BEN = Holder(host="laptop", pid=2, started=2.0, token="b" * 32)


class OnesEmbedder:
    """Honest: one vector of ones a text."""

    provider = "hash"
    model = "ones"
    dimensions = 4
    max_input_tokens = None
    is_contextual = False

    def __init__(self) -> None:
        self.closings = 0

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:  # noqa: ARG002 - the port's
        """Ones."""
        return EmbeddingResult(
            groups=[np.ones((len(group), self.dimensions), dtype=np.float32) for group in groups],
            windows=[[1] * len(group) for group in groups],
            usage=EmbeddingUsage(tokens=1, requests=1),
        )

    async def close(self) -> None:
        """Count."""
        self.closings += 1


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Where the hand stands."""
        return self.now


def test_the_fakes_are_of_their_ports() -> None:
    """A type checker reads this: each fake fits its socket."""
    database, clock = FakeDatabase(), Hand()
    store: MemoryStore = FakeStore(database, clock=clock)
    feeds: FeedStore = FakeFeedStore(database, clock=clock)
    submissions: SubmissionStore = FakeSubmissionStore(database, clock=clock, new_id=lambda: "1")
    embedder: Embedder = ScriptedEmbedder(OnesEmbedder())
    assert all((store, feeds, submissions, embedder))


async def test_a_scripted_embedder_fails_and_then_recovers() -> None:
    """Away twice, refusing once, honest from then on; every call is remembered."""
    script = [EmbeddingFault.UNAVAILABLE, EmbeddingFault.UNAVAILABLE, EmbeddingFault.REFUSED, None]
    embedder = ScriptedEmbedder(OnesEmbedder(), script=script)
    for _ in range(2):
        with pytest.raises(EmbeddingUnavailableError):
            await embedder.embed(GROUPS, kind="document")
    with pytest.raises(EmbeddingError) as refusal:
        await embedder.embed(GROUPS, kind="document")
    assert not refusal.value.retryable
    for _ in range(2):
        result = await embedder.embed(GROUPS, kind="query")
        assert [group.shape for group in result.groups] == [(2, 4), (2, 4)]
    assert [call.kind for call in embedder.calls] == ["document"] * 3 + ["query"] * 2
    assert embedder.calls[0].texts == ("alpha", "beta", "gamma", "delta")


async def test_a_scripted_embedder_spoils_the_last_document_only() -> None:
    """Each fault is one that a check must find; the first document's vectors stay right."""
    faults = [
        EmbeddingFault.VECTOR_MISSING,
        EmbeddingFault.WRONG_WIDTH,
        EmbeddingFault.NOT_FINITE,
        EmbeddingFault.GROUP_MISSING,
    ]
    embedder = ScriptedEmbedder(OnesEmbedder(), script=faults)
    results = [(await embedder.embed(GROUPS, kind="document")).groups for _ in faults]
    assert all(np.array_equal(groups[0], np.ones((2, 4))) for groups in results)
    missing, narrow, broken, short = results
    assert (missing[1].shape, narrow[1].shape, broken[1].shape, len(short)) == ((1, 4), (2, 3), (2, 4), 1)
    assert np.isnan(broken[1]).sum() == 1


async def test_a_script_can_wait_for_a_word() -> None:
    """The first call that holds it fails; others neither fail nor use the script up."""
    embedder = ScriptedEmbedder(OnesEmbedder(), script=[EmbeddingFault.REFUSED], only_with="gamma")
    await embedder.embed([["alpha"]], kind="document")
    with pytest.raises(EmbeddingError):
        await embedder.embed(GROUPS, kind="document")
    await embedder.embed(GROUPS, kind="document")


async def test_a_scripted_embedder_is_its_wrapped_one_otherwise() -> None:
    """Names, width and closing."""
    ones = OnesEmbedder()
    embedder = ScriptedEmbedder(ones)
    assert (embedder.provider, embedder.model, embedder.dimensions, embedder.max_input_tokens) == (
        "hash",
        "ones",
        4,
        None,
    )
    await embedder.close()
    assert (embedder.is_closed, ones.closings) == (True, 1)


async def test_a_fake_store_that_was_not_prepared_does_not_write() -> None:
    """Without `prepare` there is no unique index: a path that forgets it is found here."""
    clock = Hand()
    with pytest.raises(InternalError):
        await FakeStore(FakeDatabase(), clock=clock).write_together([], now=clock())


async def test_leases_lapse_by_the_servers_clock() -> None:
    """Held up to its last moment, free behind it; the callers' clocks do not matter."""
    database, clock = FakeDatabase(), Hand()
    feeds = FakeFeedStore(database, clock=clock)
    submissions = FakeSubmissionStore(database, clock=clock, new_id=iter("12").__next__)
    await feeds.register_feed(Feed(name="docs", root="/data/docs"))
    await feeds.acquire_lease("docs", ANN, seconds=60)
    request = StoreRequest(request=StoreContentRequest(content="alpha"), provenance=Provenance(channel="cli"))
    staged = await submissions.stage(request, key="k", holder=ANN, seconds=60, now=clock())

    clock.now += timedelta(seconds=60)
    assert await feeds.acquire_lease("docs", BEN, seconds=60) == ANN
    assert not await submissions.claim([staged.submission_id], holder=BEN, seconds=60)
    clock.now += timedelta(milliseconds=1)
    assert await feeds.acquire_lease("docs", BEN, seconds=60) is None
    assert await submissions.claim([staged.submission_id], holder=BEN, seconds=60)
