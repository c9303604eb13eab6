"""MemoryStore, what was deleted: it waits, comes back as it was, or goes without a trace. Both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

import pytest

from memory_core.answers import StoredDocument
from memory_core.errors import NotFoundError
from memory_core.models import DocumentState, EmbeddedDocument, Past, StoredVersion
from memory_core.store_ports import DeleteSelector, MemoryStore, WriteVerdict
from tests.contract.conftest import PARAGRAPH_GAP, VERSIONS_KEPT, read_clock

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]


async def trash(store: MemoryStore, source_id: str) -> StoredDocument:
    """Delete a source and find it in the trash."""
    await store.delete(DeleteSelector(source_ids=(source_id,)), now=read_clock())
    (found,) = await store.read_trash(source_id)
    return found.document


def returning(build: Build, document: StoredDocument, *paragraphs: str) -> EmbeddedDocument:
    """The write that brings a document of the trash back."""
    state = document.state
    past = Past(
        document_id=state.document_id,
        created_at=state.created_at,
        updated_at=state.updated_at,
        attributes=state.attributes,
        feed=None,
        versions=document.versions,
        is_restored=True,
    )
    made = build(state.source_id, *paragraphs, document_id=state.document_id, past=past)
    return replace(made, document=replace(made.document, attributes=state.attributes))


async def test_a_deleted_document_waits_with_its_dates(store: MemoryStore, put: Put) -> None:
    """Found by source id and by document id, the last deleted first."""
    first, second = await put("notes/a", "alpha"), await put("notes/b", "beta")
    now = read_clock()
    deletion = await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    await store.delete(DeleteSelector(source_ids=("notes/b",)), now=now + timedelta(seconds=1))
    assert deletion.restorable_until == now + timedelta(days=7)
    listed = await store.read_trash()
    assert [one.document.state.source_id for one in listed] == ["notes/b", "notes/a"]
    assert [one.document.state.source_id for one in await store.read_trash(limit=1)] == ["notes/b"]
    (found,) = await store.read_trash(first.document_id)
    assert (found.deleted_at, found.expires_at) == (now, now + timedelta(days=7))
    assert found.document.state.attributes == first.attributes
    assert [one.document.state.document_id for one in await store.read_trash("notes/b")] == [second.document_id]
    assert list(await store.read_trash("unknown")) == []


async def test_it_comes_back_as_it_was(store: MemoryStore, put: Put, build: Build) -> None:
    """Id, version, dates and earlier texts; the trash does not have it any more; the count of versions goes on."""
    await put("notes/a", "one")
    before = await put("notes/a", "two", attributes={"tags": ("red",)})
    document = await trash(store, "notes/a")
    write = returning(build, document, "two")
    (result,) = await store.write_together([write], now=read_clock())
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 2)
    after = (await store.read_states(["notes/a"]))["notes/a"]
    assert after == replace(
        before, revision=write.document.revision, tally=after.tally, context_basis=after.context_basis
    )
    assert after.tally.revisions == {after.revision}
    assert list(await store.read_trash()) == []
    stored = await store.read_document("notes/a")
    assert stored is not None
    assert [await store.read_body(version.body_id) for version in stored.versions] == ["one", "two"]
    (again,) = await store.write_together([write], now=read_clock())  # a repeated call is harmless
    assert (again.verdict, again.version) == (WriteVerdict.WRITTEN, 2)
    assert (await put("notes/a", "three")).version == 3
    assert (await store.check_health()).faults == ()


async def test_what_is_not_in_the_trash_does_not_come_back(store: MemoryStore, put: Put, build: Build) -> None:
    """Its texts may be gone: a restore that met a purge is a conflict, and nothing is written."""
    await put("notes/a", "one")
    write = returning(build, await trash(store, "notes/a"), "one")
    await store.purge("notes/a")
    (result,) = await store.write_together([write], now=read_clock())
    assert result.verdict is WriteVerdict.CONFLICT
    assert await store.read_document("notes/a") is None
    assert (await store.check_health()).faults == ()


async def test_a_document_comes_over_with_its_texts(store: MemoryStore, build: Build) -> None:
    """From another database: the texts of its earlier versions come with it, the newest only as many as are kept."""
    count = VERSIONS_KEPT + 2
    versions = tuple(
        StoredVersion(
            version=number + 3,
            body_id="of another database",
            content_hash="0" * 64,
            content_length=5,
            stored_at=read_clock() - timedelta(days=30 - number),
            ingest={
                **dict.fromkeys(("sessionId", "feed", "clientName", "clientVersion", "tokenName", "flowRunId")),
                "agent": "other",
                "channel": "mcp",
                "submissionId": None,
                "at": read_clock() - timedelta(days=30 - number),
            },
        )
        for number in range(count)
    )
    texts = {one.version: f"text {one.version}" for one in versions}
    made = build("notes/over", texts[versions[-1].version])
    created = read_clock() - timedelta(days=40)
    past = Past(
        document_id=made.document.document_id,
        created_at=created,
        updated_at=created + timedelta(days=1),
        attributes=made.document.attributes,
        feed="docs",
        versions=versions,
        texts=texts,
    )
    provenance = replace(made.document.provenance, feed="docs")
    write = replace(made, document=replace(made.document, past=past, provenance=provenance))
    (result,) = await store.write_together([write], now=read_clock())
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, count + 2)
    stored = await store.read_document("notes/over")
    assert stored is not None
    assert (stored.state.created_at, stored.state.updated_at) == (created, created + timedelta(days=1))
    assert (stored.state.feed, stored.state.agent, stored.state.version) == ("docs", "other", count + 2)
    assert [one.version for one in stored.versions] == [one.version for one in versions[-VERSIONS_KEPT:]]
    assert [await store.read_body(one.body_id) for one in stored.versions] == [
        texts[one.version] for one in versions[-VERSIONS_KEPT:]
    ]
    assert (await store.check_health()).faults == ()


async def test_a_purge_takes_every_version_and_the_lineage(
    store: MemoryStore, put: Put, reopen: Callable[[], MemoryStore]
) -> None:
    """Also of what waits in the trash. A dry run counts the same and takes nothing."""
    await put("notes/a", PARAGRAPH_GAP.join(["one", "two"]))
    state = await put("notes/a", "three", "four")
    kept = await put("notes/b", "other")
    before = await store.read_active_space()
    assert before is not None
    counted = await store.purge("notes/a", dry_run=True)
    assert (await store.read_states(["notes/a"]))["notes/a"] == state
    purge = await store.purge("notes/a")
    assert purge.source_ids == counted.source_ids == ("notes/a",)
    assert purge.lineage == before.lineage
    assert counted.removed["documents"] == purge.removed["documents"] == 1
    assert counted.removed["contents"] == purge.removed["contents"] == 2
    assert counted.removed["chunks"] == purge.removed["chunks"] == 2
    after = await reopen().read_active_space()
    assert after is not None
    assert after.lineage != before.lineage
    assert await store.read_document("notes/a") is None
    assert list(await store.read_trash("notes/a")) == []
    with pytest.raises(NotFoundError):
        await store.read_body(state.body_id)
    with pytest.raises(NotFoundError):
        await store.purge("notes/a")
    assert (await store.read_states(["notes/b"]))["notes/b"] == kept
    assert (await store.check_health()).faults == ()


async def test_a_purge_of_what_was_deleted(store: MemoryStore, put: Put) -> None:
    """By its document id, as by its source id."""
    state = await put("notes/a", "one")
    await trash(store, "notes/a")
    purge = await store.purge(state.document_id)
    assert purge.source_ids == ("notes/a",)
    assert list(await store.read_trash()) == []
    assert (await put("notes/a", "anew")).version == 1
