"""MemoryStore, reading: whose database it is, hits, pages, filters, changes, health. Both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

import pytest

from memory_core.answers import HitRow, SearchFilters
from memory_core.errors import ForeignDatabaseError
from memory_core.models import ContentType, DocumentState, EmbeddedDocument, Fingerprint
from memory_core.store_ports import AttributeWrite, ListQuery, MemoryStore
from memory_core.store_request import Provenance

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

LATER = timedelta(hours=1)


async def ids_of(store: MemoryStore, document_id: str) -> list[str]:
    """The document's chunk ids in order."""
    return [key.chunk_id for key in (await store.read_chunk_keys([document_id]))[document_id]]


# --- whose database it is ---------------------------------------------------------------------------------------------


async def test_a_database_that_nothing_was_written_to_has_no_space(
    reopen: Callable[[], MemoryStore], space: Fingerprint
) -> None:
    """Reading it is harmless, and preparing it makes it ours; a second process finds the same."""
    first, second = reopen(), reopen()
    assert await first.read_active_space() is None
    assert await first.read_states(["notes/a"]) == {}
    health = await first.check_health()
    assert (health.documents, health.chunks, health.faults) == (0, 0, ())

    active = await first.prepare(space)
    assert active.fingerprint == space.key
    assert active.lineage
    assert await first.prepare(space) == active
    assert await second.prepare(space) == active
    assert await second.read_active_space() == active


async def test_another_fingerprint_may_read_but_not_write(
    put: Put, reopen: Callable[[], MemoryStore], space: Fingerprint
) -> None:
    """The refusal names both spaces; what is stored can still be read."""
    stored = await put("notes/a", "alpha")
    other = reopen()
    foreign = replace(space, dimensions=384)
    with pytest.raises(ForeignDatabaseError) as refusal:
        await other.prepare(foreign)
    assert space.key in refusal.value.message
    assert foreign.key in refusal.value.message
    assert await other.read_states(["notes/a"]) == {"notes/a": stored}


async def test_rows_without_our_meta_are_another_programs(
    put: Put, reopen: Callable[[], MemoryStore], space: Fingerprint, lose_meta: Callable[[], None]
) -> None:
    """A database that we did not make is refused and stays as it is."""
    await put("notes/a", "alpha")
    lose_meta()
    other = reopen()
    with pytest.raises(ForeignDatabaseError):
        await other.prepare(space)
    assert await other.read_active_space() is None


async def test_another_schema_is_refused(
    put: Put, reopen: Callable[[], MemoryStore], space: Fingerprint, age_schema: Callable[[], None]
) -> None:
    """A database of another version of this program is not written."""
    await put("notes/a", "alpha")
    age_schema()
    with pytest.raises(ForeignDatabaseError):
        await reopen().prepare(space)


async def test_a_transaction_may_hold_some_megabytes_at_least(store: MemoryStore) -> None:
    """8 % of the smallest cache that a server takes is 20 MB."""
    assert await store.transaction_budget_bytes() > 20_000_000


async def test_closing_twice_is_harmless(reopen: Callable[[], MemoryStore]) -> None:
    """The second time there is nothing to close."""
    opened = reopen()
    await opened.close()
    await opened.close()


# --- documents and hits -----------------------------------------------------------------------------------------------


async def test_a_document_is_found_by_source_id_and_by_document_id(store: MemoryStore, put: Put) -> None:
    """Both give the same; an unknown id, or one that only differs in case, gives nothing."""
    state = await put("Notes/A", "alpha")
    found = await store.read_document("Notes/A")
    assert found is not None
    assert found.state == state
    assert await store.read_document(state.document_id) == found
    for unknown in ("notes/a", "f" * 24, "", "Notes"):
        assert await store.read_document(unknown) is None


async def test_a_source_id_may_look_like_a_document_id(store: MemoryStore, put: Put) -> None:
    """24 hexadecimal digits name the document of that id first, else the source (as in the original)."""
    odd = await put("abcdefabcdefabcdefabcdef", "alpha")
    found = await store.read_document("abcdefabcdefabcdefabcdef")
    assert found is not None
    assert found.state == odd
    shadow = await put(odd.document_id, "beta")
    by_id = await store.read_document(odd.document_id)
    assert by_id is not None
    assert by_id.state.document_id == odd.document_id != shadow.document_id


async def test_a_hit_has_its_place_and_its_documents_attributes(store: MemoryStore, put: Put) -> None:
    """Everything that an answer shows."""
    attributes = {"title": "Notes", "tags": ("x",), "uri": "file:///a", "content_type": ContentType.MARKDOWN}
    state = await put("notes/a", "alpha", "beta two \U0001f600", attributes=attributes)
    _, second = await ids_of(store, state.document_id)
    assert await store.read_hits([second, "e" * 24]) == {
        second: HitRow(
            chunk_id=second,
            document_id=state.document_id,
            source_id="notes/a",
            title="Notes",
            uri="file:///a",
            content_type=ContentType.MARKDOWN,
            tags=("x",),
            chunk_index=1,
            heading_path=("Part", "1"),
            char_start=7,
            char_end=17,
            token_count=3,
            text="beta two \U0001f600",
        )
    }


async def test_a_row_of_another_revision_is_never_a_hit(
    store: MemoryStore, put: Put, break_row: Callable[[str], None]
) -> None:
    """No search shows half of a write."""
    state = await put("notes/a", "alpha", "beta")
    first, second = await ids_of(store, state.document_id)
    break_row(first)
    assert list(await store.read_hits([first, second])) == [second]


async def test_a_row_without_its_document_is_never_a_hit(
    store: MemoryStore, put: Put, lose_document: Callable[[str], None]
) -> None:
    """Orphans are not searchable (W7)."""
    state = await put("notes/a", "alpha")
    ids = await ids_of(store, state.document_id)
    lose_document("notes/a")
    assert await store.read_hits(ids) == {}


async def test_chunk_rows_and_keys_belong_to_the_documents_asked_for(store: MemoryStore, put: Put) -> None:
    """Others stay out; a document without rows has none."""
    first, second = await put("notes/a", "alpha", "beta"), await put("notes/b", "gamma")
    await put("notes/c", "delta")
    rows = await store.read_chunk_rows([first.document_id, second.document_id, "e" * 24])
    assert sorted(row.text for row in rows) == ["alpha", "beta", "gamma"]
    assert {row.fingerprint for row in rows} == {first.fingerprint}
    keys = await store.read_chunk_keys([first.document_id, "e" * 24])
    assert [[key.index for key in found] for found in keys.values()] == [[0, 1], []]
    assert list(keys) == [first.document_id, "e" * 24]


# --- pages ------------------------------------------------------------------------------------------------------------


async def test_pages_are_newest_first_without_gaps_or_repeats(store: MemoryStore, put: Put, now: datetime) -> None:
    """Also where many were stored at the same moment: then the highest document id, the newest, is first."""
    for number in range(5):
        await put(f"same/{number}", "text")
    await put("newest", "text", at=now + LATER)
    await put("oldest", "text", at=now - LATER)
    seen: list[str] = []
    for offset in range(0, 8, 2):
        page = await store.list_sources(ListQuery(limit=2, offset=offset))
        assert (page.total, page.offset, page.limit) == (7, offset, 2)
        seen += [found.state.source_id for found in page.sources]
    assert seen == ["newest", *(f"same/{number}" for number in (4, 3, 2, 1, 0)), "oldest"]
    past_the_end = await store.list_sources(ListQuery(limit=2, offset=100))
    assert (past_the_end.sources, past_the_end.total) == ((), 7)


async def test_an_edit_brings_a_document_to_the_front(store: MemoryStore, put: Put, now: datetime) -> None:
    """Newest means last changed."""
    await put("notes/a", "alpha")
    await put("notes/b", "beta", at=now + LATER)
    state = await put("notes/a", "alpha two", at=now + 2 * LATER)
    page = await store.list_sources(ListQuery())
    assert [found.state.source_id for found in page.sources] == ["notes/a", "notes/b"]
    assert page.sources[0] == await store.read_document("notes/a")
    assert page.sources[0].state == state


async def test_a_page_can_be_of_one_tag_or_one_feed(store: MemoryStore, put: Put) -> None:
    """Tags and feed names are exact, and the total counts what matches."""
    docs = Provenance(channel="sync", feed="docs")
    await put("docs/a", "alpha", attributes={"tags": ("red", "blue")}, provenance=docs)
    await put("docs/b", "beta", attributes={"tags": ("redder",)}, provenance=docs)
    await put("notes/c", "gamma", attributes={"tags": ("red",)})

    async def sources(query: ListQuery) -> tuple[set[str], int]:
        page = await store.list_sources(query)
        return {found.state.source_id for found in page.sources}, page.total

    assert await sources(ListQuery(tag="red")) == ({"docs/a", "notes/c"}, 2)
    assert await sources(ListQuery(feed="docs")) == ({"docs/a", "docs/b"}, 2)
    assert await sources(ListQuery(feed="docs", tag="red")) == ({"docs/a"}, 1)
    assert await sources(ListQuery(feed="doc")) == (set(), 0)


# --- feeds and filters ------------------------------------------------------------------------------------------------


async def test_a_feed_owns_what_it_stored(
    store: MemoryStore, put: Put, build_attributes: Callable[..., AttributeWrite], now: datetime
) -> None:
    """A caller's write does not take a source out of its feed; a feed's write takes a source in."""
    docs = Provenance(channel="sync", feed="docs")
    await put("docs/a", "alpha", provenance=docs)
    edited = await put("docs/a", "alpha by a caller")
    await store.write_together([build_attributes(edited, "alpha by a caller", title="T")], now=now)
    await put("notes/b", "beta")
    assert set(await store.read_feed_states("docs")) == {"docs/a"}
    await put("notes/b", "beta by the feed", provenance=docs)
    await put("other/c", "gamma", provenance=Provenance(channel="sync", feed="docs2"))
    states = await store.read_feed_states("docs")
    assert states == await store.read_states(["docs/a", "notes/b"])
    assert {state.feed for state in states.values()} == {"docs"}


async def test_filters_hold_together(store: MemoryStore, put: Put) -> None:
    """Any of the source ids, document ids and content types; all of the tags; every condition at once."""
    a = await put("a", "alpha", attributes={"tags": ("red", "blue"), "content_type": ContentType.MARKDOWN})
    b = await put("b", "beta", attributes={"tags": ("red",)})
    c = await put("c", "gamma", attributes={"tags": ("blue",), "content_type": ContentType.CODE})

    async def check(filters: SearchFilters, *expected: DocumentState) -> None:
        assert await store.find_document_ids(filters) == {state.document_id for state in expected}

    await check(SearchFilters(), a, b, c)
    await check(SearchFilters(source_ids=("a", "c", "nothing")), a, c)
    await check(SearchFilters(source_ids=("A",)))
    await check(SearchFilters(document_ids=(b.document_id, "e" * 24, "no id at all")), b)
    await check(SearchFilters(document_ids=("no id at all",)))
    await check(SearchFilters(tags=("red",)), a, b)
    await check(SearchFilters(tags=("red", "blue")), a)
    await check(SearchFilters(content_types=(ContentType.TEXT, ContentType.CODE)), b, c)
    await check(SearchFilters(source_ids=("a", "b"), tags=("red",), content_types=(ContentType.TEXT,)), b)
    await check(SearchFilters(source_ids=("a",), document_ids=(b.document_id,)))


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_all_live_documents_are_a_change_since_nothing(store: MemoryStore, put: Put) -> None:
    """A new search index takes in what is there."""
    states = [await put("notes/a", "alpha"), await put("notes/b", "beta")]
    changes, server_now = await store.read_changes(None)
    assert {(change.document_id, change.revision) for change in changes} == {
        (state.document_id, state.revision) for state in states
    }
    assert all(change.committed_at <= server_now for change in changes)
    assert server_now.utcoffset() == timedelta(0)


async def test_changes_are_found_again_from_their_own_moment_on(
    store: MemoryStore, put: Put, build_attributes: Callable[..., AttributeWrite], now: datetime
) -> None:
    """`since` is inclusive and by the server's clock, so an overlap misses nothing: edits and attributes included."""
    first = await put("notes/a", "alpha")
    untouched = await put("notes/b", "beta")
    (mark,) = [c.committed_at for c in (await store.read_changes(None))[0] if c.document_id == untouched.document_id]
    edited = await put("notes/a", "alpha two")
    (change,) = [c for c in (await store.read_changes(mark))[0] if c.document_id == first.document_id]
    assert change.revision == edited.revision
    await store.write_together([build_attributes(edited, "alpha two", title="T")], now=now)
    (change,) = [c for c in (await store.read_changes(mark))[0] if c.document_id == first.document_id]
    assert change.revision == (await store.read_states(["notes/a"]))["notes/a"].revision
    again, server_now = await store.read_changes(change.committed_at)
    assert change in again
    nothing, _ = await store.read_changes(server_now + LATER)
    assert list(nothing) == []


# --- health -----------------------------------------------------------------------------------------------------------


async def test_a_sound_database_has_counts_and_no_faults(store: MemoryStore, put: Put) -> None:
    """After stores, edits and a delete."""
    await put("notes/a", "alpha", "beta")
    await put("notes/a", "alpha", "gamma", "delta")
    await put("notes/b", "epsilon")
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (2, 4, ())
    assert health.server_version
    assert health.transactions


async def test_faults_are_named(
    store: MemoryStore,
    put: Put,
    break_row: Callable[[str], None],
    lose_row: Callable[[str], None],
    lose_document: Callable[[str], None],
) -> None:
    """A short document, a mixed one and rows without an owner: each is a sentence, the first two name the source."""
    short = await put("notes/short", "alpha", "beta")
    lose_row((await ids_of(store, short.document_id))[0])
    (fault,) = (await store.check_health()).faults
    assert "notes/short" in fault

    await put("notes/short", "alpha", "beta", "gamma")
    mixed = await put("notes/mixed", "alpha", "beta")
    break_row((await ids_of(store, mixed.document_id))[0])
    assert any("notes/mixed" in fault for fault in (await store.check_health()).faults)

    await put("notes/mixed", "something else")
    await put("notes/lost", "alpha", "beta")
    lose_document("notes/lost")
    assert any(fault.startswith("2 chunks") for fault in (await store.check_health()).faults)
