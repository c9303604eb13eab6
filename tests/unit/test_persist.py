"""Stage 4: what is written together, what is tried alone, what is refused, and what is said afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pytest

from memory_core.chunk.chunk_content import chunk_documents
from memory_core.embed import embed_documents
from memory_core.errors import InternalError, StorageError, StorageUnavailableError
from memory_core.models import (
    ChunkedDocument,
    Conflict,
    Document,
    EmbeddedDocument,
    Failure,
    Outcome,
    Plan,
    StoreOutcome,
    StoreRequest,
    Vector,
)
from memory_core.persist import GROUP_BYTES, persist_documents
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_ports import AttributeWrite, DocumentWrite, MemoryStore, WriteResult, WriteVerdict
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.validate import validate_requests

MakeCore = Callable[..., Core]
Answer = Callable[[Sequence[DocumentWrite]], Sequence[WriteResult] | None]


def ask(content: str, source_id: str, **fields: Any) -> StoreRequest:
    request = StoreContentRequest(content=content, source_id=source_id, **fields)
    return StoreRequest(request=request, provenance=Provenance(channel="cli"))


async def make_writes(requests: Sequence[StoreRequest], core: Core) -> list[EmbeddedDocument]:
    """Requests taken through the first three stages."""
    documents = [one for one in await validate_requests(requests, core=core) if isinstance(one, Document)]
    chunked = [one for one in await chunk_documents(documents, core=core) if isinstance(one, ChunkedDocument)]
    embedded = [one for one in await embed_documents(chunked, core=core) if isinstance(one, EmbeddedDocument)]
    assert len(embedded) == len(requests)
    return embedded


@dataclass
class WatchedStore:
    """A store that remembers each group and lets a test answer instead of it."""

    inner: MemoryStore
    answer: Answer = lambda _: None
    budget_bytes: int = 40_000_000
    groups: list[list[str]] = field(default_factory=list[list[str]])
    in_parts: list[str] = field(default_factory=list[str])

    async def transaction_budget_bytes(self) -> int:
        """What the test says."""
        return self.budget_bytes

    async def write_together(self, writes: Sequence[DocumentWrite], *, now: datetime) -> Sequence[WriteResult]:
        """The test's answer, else the store's."""
        self.groups.append([write.document.source_id for write in writes])
        answer = self.answer(writes)
        return await self.inner.write_together(writes, now=now) if answer is None else answer

    async def write_in_parts(self, write: EmbeddedDocument, *, now: datetime) -> WriteResult:
        """The test's answer, else the store's."""
        self.in_parts.append(write.document.source_id)
        answer = self.answer([write])
        return await self.inner.write_in_parts(write, now=now) if answer is None else answer[0]


def watch(core: Core, answer: Answer = lambda _: None, *, budget_bytes: int = 40_000_000) -> tuple[Core, WatchedStore]:
    store = WatchedStore(inner=core.store, answer=answer, budget_bytes=budget_bytes)
    return replace(core, store=cast("Any", store)), store


async def test_small_documents_share_a_transaction(make_core: MakeCore) -> None:
    """One commit for the batch, one outcome a document, in order."""
    plain = make_core()
    core, store = watch(plain)
    writes = await make_writes([ask("one", "a"), ask("two", "b")], plain)
    first, second = await persist_documents(writes, core=core)
    assert store.groups == [["a", "b"]]
    assert isinstance(first, StoreOutcome)
    assert isinstance(second, StoreOutcome)
    assert (first.outcome, first.source_id, first.version, first.chunk_count) == (Outcome.CREATED, "a", 1, 1)
    assert (second.source_id, second.fingerprint) == ("b", core.fingerprint)
    assert first.tokens_embedded > 0


@pytest.mark.parametrize(("budget", "groups", "in_parts"), [(40_000_000, 1, 0), (20_000, 3, 0), (9_000, 0, 3)])
async def test_a_transaction_is_bounded_in_bytes(make_core: MakeCore, budget: int, groups: int, in_parts: int) -> None:
    """By what the server holds; a document above the bound goes alone and in parts."""
    plain = make_core()
    core, store = watch(plain, budget_bytes=budget)
    writes = await make_writes([ask("word " * 1_000, name) for name in "abc"], plain)
    results = await persist_documents(writes, core=core)
    assert (len(store.groups), len(store.in_parts)) == (groups, in_parts)
    assert [cast("StoreOutcome", one).outcome for one in results] == [Outcome.CREATED] * 3


async def test_attributes_alone_count_with_the_rows_they_touch(make_core: MakeCore) -> None:
    """A touched row takes its whole size in the server's cache."""
    plain = make_core()
    core, store = watch(plain, budget_bytes=9_000)
    await store_content([ask("word " * 1_000, name) for name in "abc"], core=plain)
    tagged = [ask("word " * 1_000, name, tags=["x"]) for name in "abc"]
    documents = [one for one in await validate_requests(tagged, core=plain) if isinstance(one, Document)]
    assert {one.plan for one in documents} == {Plan.ATTRIBUTES}
    results = await persist_documents([AttributeWrite(document=one) for one in documents], core=core)
    assert store.groups == [["a"], ["b"], ["c"]]
    assert {cast("StoreOutcome", one).outcome for one in results} == {Outcome.ATTRIBUTES_UPDATED}
    assert {cast("StoreOutcome", one).version for one in results} == {1}


async def test_what_was_undone_for_a_neighbour_is_tried_alone(make_core: MakeCore) -> None:
    """A lost race of one is not the failure of the others."""
    plain = make_core()
    core, store = watch(plain)
    await store_content([ask("old", "b")], core=plain)
    writes = await make_writes([ask("one", "a"), ask("new", "b"), ask("three", "c")], plain)
    await store_content([ask("meanwhile", "b")], core=plain)
    first, lost, third = await persist_documents(writes, core=core)
    assert store.groups == [["a", "b", "c"], ["a"], ["c"]]
    assert cast("StoreOutcome", first).outcome is Outcome.CREATED
    assert lost == Conflict(source_id="b")
    assert cast("StoreOutcome", third).outcome is Outcome.CREATED
    assert await stored_text("b", plain) == "meanwhile"


async def stored_text(source_id: str, core: Core) -> str:
    stored = await core.store.read_document(source_id)
    assert stored is not None
    return await core.store.read_body(stored.state.body_id)


async def test_a_document_that_mongodb_refuses_fails_alone(make_core: MakeCore) -> None:
    """One of a group is guilty: the others are written."""

    def refuse_b(writes: Sequence[DocumentWrite]) -> None:
        if any(write.document.source_id == "b" for write in writes):
            raise StorageError("The rows were refused. Report this.")

    plain = make_core()
    core, _ = watch(plain, refuse_b)
    writes = await make_writes([ask("one", "a"), ask("two", "b"), ask("three", "c")], plain)
    first, refused, third = await persist_documents(writes, core=core)
    assert isinstance(refused, Failure)
    assert (refused.source_id, refused.error.message) == ("b", "The rows were refused. Report this.")
    assert {cast("StoreOutcome", one).outcome for one in (first, third)} == {Outcome.CREATED}


async def test_mongodb_being_away_is_raised_and_a_repeat_recognises_what_is_done(make_core: MakeCore) -> None:
    """The commit happened, the answer was lost: the same call again says the same, and writes nothing twice."""
    plain = make_core()
    core, store = watch(plain)
    await store_content([ask("old", "a")], core=plain)
    writes = await make_writes([ask("new", "a"), ask("two", "b")], plain)
    await store.inner.write_together(writes, now=datetime.now(UTC))

    def away(_: Sequence[DocumentWrite]) -> None:
        raise StorageUnavailableError("MongoDB is away. Try again.")

    store.answer = away
    with pytest.raises(StorageUnavailableError):
        await persist_documents(writes, core=core)
    store.answer = lambda _: None
    updated, created = (cast("StoreOutcome", one) for one in await persist_documents(writes, core=core))
    assert (updated.outcome, updated.version) == (Outcome.UPDATED, 2)
    assert (created.outcome, created.version) == (Outcome.CREATED, 1)
    stored = await plain.store.read_document("a")
    assert stored is not None
    assert [kept.version for kept in stored.versions] == [1, 2]


HONEST = np.ones(16, dtype=np.float32)


@pytest.mark.parametrize(
    "vector",
    [
        None,
        HONEST[:-1],
        HONEST * np.float32(np.nan),
        np.where(np.arange(16) == 3, np.float32(np.inf), HONEST),
        HONEST.reshape(1, -1),
    ],
    ids=["missing", "short", "nan", "infinite", "nested"],
)
async def test_a_document_that_is_not_whole_is_not_written(make_core: MakeCore, vector: Vector | None) -> None:
    """Checked a last time before the only write; its neighbour is stored."""
    plain = make_core()
    core, store = watch(plain)
    good, bad = await make_writes([ask("one", "a"), ask("two", "b")], plain)
    broken = replace(bad, chunks=tuple(replace(chunk, vector=vector, kept=None) for chunk in bad.chunks))
    stored, failed = await persist_documents([good, broken], core=core)
    assert cast("StoreOutcome", stored).outcome is Outcome.CREATED
    assert isinstance(failed, Failure)
    assert isinstance(failed.error, InternalError)
    assert "chunk 0" in failed.error.message
    assert store.groups == [["a"]]


async def test_a_document_without_chunks_or_out_of_order_is_not_written(make_core: MakeCore) -> None:
    """Nobody would ever find it, or only a part of it."""
    plain = make_core()
    core, store = watch(plain)
    (write,) = await make_writes([ask("word " * 2_000, "a")], plain)
    assert len(write.chunks) > 1
    results = await persist_documents(
        [replace(write, chunks=()), replace(write, chunks=write.chunks[::-1]), replace(write, chunks=write.chunks[1:])],
        core=core,
    )
    assert all(isinstance(one, Failure) and isinstance(one.error, InternalError) for one in results)
    assert store.groups == []


async def test_an_aborted_write_that_is_alone_goes_round_again(make_core: MakeCore) -> None:
    """It cannot be tried more alone than that."""
    plain = make_core()
    core, store = watch(plain, lambda writes: [WriteResult(verdict=WriteVerdict.ABORTED)] * len(writes))
    writes = await make_writes([ask("one", "a"), ask("two", "b")], plain)
    assert await persist_documents(writes, core=core) == [Conflict(source_id="a"), Conflict(source_id="b")]
    assert store.groups == [["a", "b"], ["a"], ["b"]]


def test_a_group_is_small_beside_a_transaction() -> None:
    """A lost race undoes little."""
    assert GROUP_BYTES <= 40_000_000
