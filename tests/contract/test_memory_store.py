"""MemoryStore, writing content: compare-and-swap, groups, rows that stay, versions. On the fake and on MongoDB."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

import numpy as np
import pytest

from memory_core.models import ChunkTally, DocumentState, EmbeddedDocument, Fingerprint
from memory_core.store_ports import AttributeWrite, MemoryStore, WriteVerdict
from memory_core.store_request import Provenance

Build: TypeAlias = Callable[..., EmbeddedDocument]
BuildAttributes: TypeAlias = Callable[..., AttributeWrite]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

LATER = timedelta(hours=1)


async def texts_of(store: MemoryStore, document_id: str) -> list[str]:
    """The document's chunk texts in order, as a search may show them."""
    keys = (await store.read_chunk_keys([document_id]))[document_id]
    hits = await store.read_hits([key.chunk_id for key in keys])
    return [hits[key.chunk_id].text for key in keys if key.chunk_id in hits]


async def ids_of(store: MemoryStore, document_id: str) -> list[str]:
    """The document's chunk ids in order."""
    return [key.chunk_id for key in (await store.read_chunk_keys([document_id]))[document_id]]


async def vectors_of(store: MemoryStore, document_id: str) -> Mapping[str, bytes]:
    """The bits of the document's vectors by chunk id."""
    return {row.chunk_id: row.vector.tobytes() for row in await store.read_chunk_rows([document_id])}


# --- a first store ----------------------------------------------------------------------------------------------------


async def test_a_new_document_reads_back_as_it_was_written(
    store: MemoryStore, build: Build, now: datetime, space: Fingerprint
) -> None:
    """What is stored is what was handed in, version 1."""
    write = build("notes/a", "alpha one", "beta two", attributes={"tags": ("x", "y"), "uri": "file:///a"})
    write = replace(write, document=replace(write.document, agent="tester", session_id="s1"))
    assert [result.verdict for result in await store.write_together([write], now=now)] == [WriteVerdict.WRITTEN]

    document = write.document
    assert await store.read_states(["notes/a", "notes/b"]) == {
        "notes/a": DocumentState(
            document_id=document.document_id,
            source_id="notes/a",
            revision=document.revision,
            version=1,
            content_hash=document.content_hash,
            recipe=document.recipe,
            strategy="paragraph",
            fingerprint=space.key,
            chunk_count=2,
            tally=ChunkTally(
                count=2,
                revisions=frozenset({document.revision}),
                content_hashes=frozenset({document.content_hash}),
                fingerprints=frozenset({space.key}),
            ),
            attributes=document.attributes,
            context_basis=write.context_basis,
            context_stale=False,
            feed=None,
            body_id=(await store.read_states(["notes/a"]))["notes/a"].body_id,
            created_at=now,
            updated_at=now,
            agent="tester",
            session_id="s1",
            stored_at=now,
        )
    }


async def test_a_stored_document_shows_its_versions_and_no_body(
    store: MemoryStore, put: Put, now: datetime, space: Fingerprint
) -> None:
    """Each version names who brought it; the text is read by its body id alone."""
    state = await put("notes/a", "alpha", "beta", agent="tester", provenance=Provenance(channel="mcp", flow_run_id="f"))
    found = await store.read_document("notes/a")
    assert found is not None
    assert (found.state, found.content_length, found.fingerprint) == (state, len("alpha\n\nbeta"), space)
    (version,) = found.versions
    assert (version.version, version.content_hash, version.stored_at) == (1, state.content_hash, now)
    assert [version.ingest[name] for name in ("channel", "flowRunId", "agent")] == ["mcp", "f", "tester"]
    assert version.body_id == state.body_id
    assert await store.read_body(state.body_id) == "alpha\n\nbeta"


async def test_states_never_expose_a_body_or_a_chunk_text(store: MemoryStore, put: Put) -> None:
    """What decides the next write is read without reading a text."""
    state = await put("notes/a", "zanzibar")
    keys = await store.read_chunk_keys([state.document_id])
    assert "zanzibar" not in repr((state, keys))


async def test_an_empty_call_changes_nothing(store: MemoryStore, now: datetime) -> None:
    """No ids, no answers; no writes, no results."""
    assert list(await store.write_together([], now=now)) == []
    assert await store.read_states([]) == {}
    assert await store.read_chunk_keys([]) == {}
    assert await store.read_hits([]) == {}
    assert list(await store.read_chunk_rows([])) == []


# --- compare-and-swap -------------------------------------------------------------------------------------------------


async def test_a_second_first_store_of_one_source_conflicts(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """Two writers that both saw no document cannot both create it (W6)."""
    first = await put("notes/a", "alpha")
    (result,) = await store.write_together([build("notes/a", "other")], now=now)
    assert (result.verdict, result.version) == (WriteVerdict.CONFLICT, None)
    assert await store.read_states(["notes/a"]) == {"notes/a": first}
    assert (await store.check_health()).documents == 1


async def test_of_two_concurrent_first_stores_one_wins(store: MemoryStore, build: Build, now: datetime) -> None:
    """The same at the same moment."""
    writes = [build("notes/a", "alpha"), build("notes/a", "beta")]
    results = await asyncio.gather(*(store.write_together([write], now=now) for write in writes))
    assert sorted(result.verdict for (result,) in results) == [WriteVerdict.CONFLICT, WriteVerdict.WRITTEN]
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (1, 1, ())


async def test_an_update_on_the_current_base_makes_the_next_version(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """The text is replaced, the id and the day of creation stay."""
    first = await put("notes/a", "alpha")
    (result,) = await store.write_together([build("notes/a", "beta", base=first)], now=now + LATER)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 2)
    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert (state.document_id, state.created_at, state.updated_at) == (first.document_id, now, now + LATER)
    assert state.stored_at == now + LATER
    assert await texts_of(store, state.document_id) == ["beta"]
    assert await store.read_body(state.body_id) == "beta"
    assert await store.read_body(first.body_id) == "alpha"


async def test_an_update_on_a_stale_base_conflicts_and_changes_nothing(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """The slower of two edits does not overwrite the newer one (W5)."""
    first = await put("notes/a", "alpha")
    second = await put("notes/a", "beta")
    (result,) = await store.write_together([build("notes/a", "gamma", base=first)], now=now + LATER)
    assert result.verdict is WriteVerdict.CONFLICT
    assert await store.read_states(["notes/a"]) == {"notes/a": second}
    assert await texts_of(store, second.document_id) == ["beta"]
    assert (await store.check_health()).chunks == 1


async def test_of_two_concurrent_updates_of_one_base_one_wins(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """One version more, and rows of the winner alone."""
    base = await put("notes/a", "alpha")
    writes = [build("notes/a", f"edit {number}", base=base) for number in range(4)]
    results = [result for (result,) in await asyncio.gather(*(store.write_together([w], now=now) for w in writes))]
    won = [result.verdict for result in results].index(WriteVerdict.WRITTEN)
    assert [result.verdict for result in results].count(WriteVerdict.CONFLICT) == len(writes) - 1
    assert (await store.read_states(["notes/a"]))["notes/a"].version == 2
    assert await texts_of(store, base.document_id) == [f"edit {won}"]
    assert (await store.check_health()).faults == ()


async def test_a_repeated_write_is_harmless(store: MemoryStore, build: Build, put: Put, now: datetime) -> None:
    """A write whose answer was lost is told again that it is written; there is one version of it."""
    base = await put("notes/a", "alpha")
    write = build("notes/a", "beta", "gamma", base=base)
    await store.write_together([write], now=now)
    after = await store.read_document("notes/a")
    (result,) = await store.write_together([write], now=now + LATER)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 2)
    assert await store.read_document("notes/a") == after
    assert await texts_of(store, base.document_id) == ["beta", "gamma"]


async def test_a_repeated_first_store_is_harmless(store: MemoryStore, build: Build, now: datetime) -> None:
    """The same where the document is new."""
    write = build("notes/a", "alpha")
    for time in (now, now + LATER):
        (result,) = await store.write_together([write], now=time)
        assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert (state.updated_at, state.stored_at) == (now, now)


# --- groups -----------------------------------------------------------------------------------------------------------


async def test_a_group_with_a_conflict_is_never_half_written(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """The others are written or undone, as their verdict says; an undone one succeeds alone."""
    stale = await put("notes/b", "old")
    newest = await put("notes/b", "new")
    group = [build("notes/a", "alpha", "one"), build("notes/b", "lost", base=stale), build("notes/c", "gamma")]
    results = await store.write_together(group, now=now)
    assert results[1].verdict is WriteVerdict.CONFLICT
    for position in (0, 2):
        write, verdict = group[position], results[position].verdict
        is_there = write.document.source_id in await store.read_states([write.document.source_id])
        assert is_there == (verdict is WriteVerdict.WRITTEN)
        assert verdict in {WriteVerdict.WRITTEN, WriteVerdict.ABORTED}
        (again,) = await store.write_together([write], now=now)
        assert (again.verdict, again.version) == (WriteVerdict.WRITTEN, 1)
        assert await texts_of(store, write.document.document_id) == [chunk.chunk.text for chunk in write.chunks]
    assert (await store.read_states(["notes/b"]))["notes/b"] == newest
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (3, 4, ())


async def test_a_group_without_a_conflict_is_written_in_order(
    store: MemoryStore, build: Build, build_attributes: BuildAttributes, put: Put, now: datetime
) -> None:
    """New documents, new content and new attributes travel together; each result stands at its write's place."""
    edited = await put("notes/a", "alpha")
    tagged = await put("notes/b", "beta")
    await put("notes/b", "beta", "more")
    tagged = (await store.read_states(["notes/b"]))["notes/b"]
    group = [
        build("notes/a", "alpha two", base=edited),
        build("notes/c", "gamma"),
        build_attributes(tagged, "beta\n\nmore", tags=("t",)),
    ]
    results = await store.write_together(group, now=now)
    assert [(result.verdict, result.version) for result in results] == [
        (WriteVerdict.WRITTEN, 2),
        (WriteVerdict.WRITTEN, 1),
        (WriteVerdict.WRITTEN, 2),
    ]


@pytest.mark.parametrize("is_stored", [False, True])
async def test_two_writes_of_one_source_in_a_group_do_not_both_lose(
    store: MemoryStore, build: Build, put: Put, now: datetime, *, is_stored: bool
) -> None:
    """One of them can be written, now or alone: if both were told of a conflict they would meet again for ever."""
    base = await put("notes/a", "alpha") if is_stored else None
    group = [build("notes/a", "beta", base=base), build("notes/a", "gamma", base=base)]
    results = await store.write_together(group, now=now)
    assert [result.verdict for result in results].count(WriteVerdict.CONFLICT) == 1
    undone = [write for write, result in zip(group, results, strict=True) if result.verdict is WriteVerdict.ABORTED]
    for write in undone:
        (again,) = await store.write_together([write], now=now)
        assert again.verdict is WriteVerdict.WRITTEN


# --- rows that stay ---------------------------------------------------------------------------------------------------


async def test_an_edit_keeps_the_rows_that_did_not_change(store: MemoryStore, put: Put) -> None:
    """Kept chunks have their id and their vector's bits; only their place moves."""
    first = await put("notes/a", "alpha", "beta", "gamma")
    ids, vectors = await ids_of(store, first.document_id), await vectors_of(store, first.document_id)
    await put("notes/a", "a new first one", "alpha", "gamma")

    new_ids = await ids_of(store, first.document_id)
    assert new_ids[1:] == [ids[0], ids[2]]
    assert new_ids[0] not in ids
    new_vectors = await vectors_of(store, first.document_id)
    assert [new_vectors[one] for one in new_ids[1:]] == [vectors[ids[0]], vectors[ids[2]]]
    hits = await store.read_hits(new_ids)
    assert [(hits[one].chunk_index, hits[one].char_start, hits[one].heading_path) for one in new_ids] == [
        (0, 0, ("Part", "0")),
        (1, 17, ("Part", "1")),
        (2, 24, ("Part", "2")),
    ]
    assert await texts_of(store, first.document_id) == ["a new first one", "alpha", "gamma"]
    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert (state.tally.revisions, state.tally.content_hashes) == ({state.revision}, {state.content_hash})


async def test_a_kept_row_takes_a_new_context_and_keeps_its_vector(store: MemoryStore, put: Put) -> None:
    """The text leg's context moves at once, the vector is not paid for again."""
    first = await put("notes/a", "alpha", "beta")
    before = await vectors_of(store, first.document_id)
    await put("notes/a", "alpha", "beta", "gamma", context="another context")
    rows = await store.read_chunk_rows([first.document_id])
    assert {row.context for row in rows} == {"another context"}
    assert before.items() <= (await vectors_of(store, first.document_id)).items()


async def test_a_document_that_shrinks_leaves_no_row_behind(store: MemoryStore, put: Put) -> None:
    """Forty chunks become three."""
    first = await put("notes/a", *(f"paragraph {number}" for number in range(40)))
    state = await put("notes/a", "paragraph 1", "paragraph 5", "something else")
    assert (state.chunk_count, state.tally.count) == (3, 3)
    assert await texts_of(store, first.document_id) == ["paragraph 1", "paragraph 5", "something else"]
    assert (await store.check_health()).chunks == 3


async def test_equal_paragraphs_are_rows_of_their_own(store: MemoryStore, put: Put) -> None:
    """Twenty times the same text is twenty chunks at twenty places (S6)."""
    state = await put("notes/a", *["the same"] * 20)
    state = await put("notes/a", *["the same"] * 19, "the end")
    hits = await store.read_hits(await ids_of(store, state.document_id))
    assert len({hit.char_start for hit in hits.values()}) == 20


@pytest.mark.parametrize("is_attribute_write", [False, True])
async def test_a_write_that_counts_on_a_row_that_is_gone_conflicts(
    store: MemoryStore,
    build: Build,
    build_attributes: BuildAttributes,
    put: Put,
    now: datetime,
    lose_row: Callable[[str], None],
    *,
    is_attribute_write: bool,
) -> None:
    """It goes back to validate, which finds the document short and writes it whole; nothing is half changed."""
    base = await put("notes/a", "alpha", "beta")
    keys = (await store.read_chunk_keys([base.document_id]))[base.document_id]
    kept = build("notes/a", "alpha", "beta", "gamma", base=base, keep=keys)
    lose_row(keys[0].chunk_id)
    write = build_attributes(base, "alpha\n\nbeta", title="T") if is_attribute_write else kept
    (result,) = await store.write_together([write], now=now)
    assert result.verdict is WriteVerdict.CONFLICT
    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert replace(state, tally=base.tally) == base
    assert (state.chunk_count, state.tally.count) == (2, 1)


async def test_a_repair_replaces_rows_of_another_revision(
    store: MemoryStore, build: Build, put: Put, now: datetime, break_row: Callable[[str], None]
) -> None:
    """The same content stored again heals a document, and is no new version."""
    base = await put("notes/a", "alpha", "beta")
    break_row((await ids_of(store, base.document_id))[0])
    broken = (await store.read_states(["notes/a"]))["notes/a"]
    assert broken.tally.revisions != {base.revision}
    (result,) = await store.write_together([build("notes/a", "alpha", "beta", base=broken)], now=now + LATER)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert (state.tally.count, state.tally.revisions, state.updated_at) == (2, {state.revision}, now)
    assert state.stored_at == now
    assert (await store.check_health()).faults == ()


async def test_vectors_come_back_bit_by_bit(store: MemoryStore, build: Build, now: datetime) -> None:
    """Negative zero, the smallest and the largest numbers included."""
    bits = [0x80000000, 0x00000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x3EAAAAAB, 0x33D6BF95, 0x00000000, 0x3F800000]
    vector = np.array(bits, dtype=np.uint32).view(np.float32)
    write = build("notes/a", "alpha")
    write = replace(write, chunks=(replace(write.chunks[0], vector=vector),))
    await store.write_together([write], now=now)
    (row,) = await store.read_chunk_rows([write.document.document_id])
    assert row.vector.dtype == np.float32
    assert row.vector.view(np.uint32).tolist() == bits
    assert (row.text, row.context, row.revision) == ("alpha", "a context", write.document.revision)
