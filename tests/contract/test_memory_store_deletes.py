"""MemoryStore, deleting: what is chosen, what is gone, and what a store meets that overlaps. Both backends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import pytest

from memory_core.answers import Deletion
from memory_core.errors import ValidationError
from memory_core.models import DocumentState, EmbeddedDocument
from memory_core.store_ports import AttributeWrite, DeleteSelector, ListQuery, MemoryStore, WriteVerdict
from memory_core.store_request import Provenance

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

LATER = timedelta(hours=1)


async def sources_of(store: MemoryStore) -> set[str]:
    """Every stored source id."""
    return {found.state.source_id for found in (await store.list_sources(ListQuery())).sources}


async def test_a_deleted_document_is_gone_everywhere(store: MemoryStore, put: Put, now: datetime) -> None:
    """No state, no document, no hit, no row, no filter finds it; the others stay."""
    state, other = await put("notes/a", "alpha", "beta"), await put("notes/b", "gamma")
    ids = [key.chunk_id for key in (await store.read_chunk_keys([state.document_id]))[state.document_id]]
    deletion = await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    until = now + timedelta(days=7)
    assert deletion == Deletion(source_ids=("notes/a",), deleted_documents=1, deleted_chunks=2, restorable_until=until)

    assert await store.read_states(["notes/a", "notes/b"]) == {"notes/b": other}
    assert await store.read_document("notes/a") is None
    assert await store.read_document(state.document_id) is None
    assert await store.read_hits(ids) == {}
    assert list(await store.read_chunk_rows([state.document_id])) == []
    assert await sources_of(store) == {"notes/b"}
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (1, 1, ())


async def test_the_change_feed_reports_a_deletion(store: MemoryStore, put: Put, now: datetime) -> None:
    """With no revision, from its own moment on; for a new index it never existed."""
    state = await put("notes/a", "alpha")
    ((stored,), _) = await store.read_changes(None)
    await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    changes, _ = await store.read_changes(stored.committed_at)
    (change,) = changes
    assert (change.document_id, change.revision) == (state.document_id, None)
    assert change in (await store.read_changes(change.committed_at))[0]
    assert list((await store.read_changes(None))[0]) == []


async def test_source_ids_choose_exactly(store: MemoryStore, put: Put, now: datetime) -> None:
    """Several at once; case counts; unknown ones are not missed."""
    for source_id in ("notes/a", "Notes/A", "notes/a2", "notes/b"):
        await put(source_id, "text")
    deletion = await store.delete(DeleteSelector(source_ids=("notes/a", "notes/b", "unknown")), now=now)
    assert (sorted(deletion.source_ids), deletion.deleted_documents) == (["notes/a", "notes/b"], 2)
    assert await sources_of(store) == {"Notes/A", "notes/a2"}


async def test_a_document_id_chooses_one(store: MemoryStore, put: Put, now: datetime) -> None:
    """The same delete again finds nothing, which is no error."""
    state = await put("notes/a", "alpha")
    await put("notes/b", "beta")
    selector = DeleteSelector(document_id=state.document_id)
    assert (await store.delete(selector, now=now)).source_ids == ("notes/a",)
    assert await store.delete(selector, now=now) == Deletion(source_ids=(), deleted_documents=0, deleted_chunks=0)
    assert await sources_of(store) == {"notes/b"}


async def test_tags_choose_documents_that_carry_all_of_them(store: MemoryStore, put: Put, now: datetime) -> None:
    """A document with some of them stays."""
    await put("notes/both", "alpha", attributes={"tags": ("red", "blue", "green")})
    await put("notes/one", "beta", attributes={"tags": ("red",)})
    await put("notes/none", "gamma")
    deletion = await store.delete(DeleteSelector(tags=("blue", "red")), now=now)
    assert deletion.source_ids == ("notes/both",)
    assert await sources_of(store) == {"notes/one", "notes/none"}


@pytest.mark.parametrize(
    "selector",
    [
        DeleteSelector(),
        DeleteSelector(source_ids=("notes/a",), tags=("red",)),
        DeleteSelector(source_ids=("notes/a",), document_id="0" * 24),
        DeleteSelector(document_id="notes/a"),
        DeleteSelector(document_id=""),
        DeleteSelector(source_ids=("notes/a",), revisions={"notes/a": "0" * 24}),
    ],
)
async def test_a_selector_that_is_not_exactly_one_deletes_nothing(
    store: MemoryStore, put: Put, now: datetime, selector: DeleteSelector
) -> None:
    """No selector is never everything, and an id that cannot be one is refused."""
    await put("notes/a", "alpha", attributes={"tags": ("red",)})
    with pytest.raises(ValidationError):
        await store.delete(selector, now=now)
    assert await sources_of(store) == {"notes/a"}


async def test_a_dry_run_says_the_same_and_changes_nothing(store: MemoryStore, put: Put, now: datetime) -> None:
    """What would go: the counts of the real delete."""
    state = await put("notes/a", "alpha", "beta")
    selector = DeleteSelector(source_ids=("notes/a",))
    planned = await store.delete(selector, now=now, dry_run=True)
    assert planned == Deletion(source_ids=("notes/a",), deleted_documents=1, deleted_chunks=2, dry_run=True)
    assert await store.read_states(["notes/a"]) == {"notes/a": state}
    assert (await store.check_health()).chunks == 2
    done = await store.delete(selector, now=now)
    assert (done.deleted_documents, done.deleted_chunks) == (1, 2)


async def test_a_feed_deletes_only_what_it_owns(store: MemoryStore, put: Put, now: datetime) -> None:
    """A sync never takes away what a caller or another feed stored (S5), by whatever selector."""
    red = {"tags": ("red",)}
    mine = await put("docs/a", "alpha", provenance=Provenance(channel="sync", feed="docs"), attributes=red)
    theirs = await put("docs/b", "beta", attributes=red)
    await put("docs/c", "gamma", provenance=Provenance(channel="sync", feed="docs2"), attributes=red)
    for selector in (
        DeleteSelector(source_ids=("docs/b", "docs/c")),
        DeleteSelector(document_id=theirs.document_id),
    ):
        assert (await store.delete(selector, now=now, feed="docs")).deleted_documents == 0
    deletion = await store.delete(DeleteSelector(tags=("red",)), now=now, feed="docs")
    assert deletion.source_ids == (mine.source_id,)
    assert await sources_of(store) == {"docs/b", "docs/c"}


async def test_a_planned_revision_that_is_gone_is_not_deleted(store: MemoryStore, put: Put, now: datetime) -> None:
    """What was written after the plan stays; the rest of the plan goes, each source by its own revision (B11)."""
    planned = [await put(source_id, "alpha") for source_id in ("notes/a", "notes/b", "notes/c")]
    edited = await put("notes/b", "an edit")
    revisions = {state.source_id: state.revision for state in planned} | {"unknown": "f" * 24}
    assert (await store.delete(DeleteSelector(revisions=revisions), now=now, dry_run=True)).deleted_documents == 2
    assert (await store.delete(DeleteSelector(revisions=revisions), now=now, feed="docs")).deleted_documents == 0
    deletion = await store.delete(DeleteSelector(revisions=revisions), now=now)
    assert sorted(deletion.source_ids) == ["notes/a", "notes/c"]
    assert await store.read_states(["notes/a", "notes/b", "notes/c"]) == {"notes/b": edited}
    swapped = {"notes/b": planned[0].revision}
    assert (await store.delete(DeleteSelector(revisions=swapped), now=now)).deleted_documents == 0


@pytest.mark.parametrize("is_attribute_write", [False, True])
async def test_a_store_that_began_before_a_delete_conflicts_with_it(
    store: MemoryStore,
    build: Build,
    build_attributes: Callable[..., AttributeWrite],
    put: Put,
    now: datetime,
    *,
    is_attribute_write: bool,
) -> None:
    """It does not bring the document back (W7), and leaves no row."""
    base = await put("notes/a", "alpha")
    await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    write = build_attributes(base, "alpha", title="T") if is_attribute_write else build("notes/a", "beta", base=base)
    (result,) = await store.write_together([write], now=now)
    assert (result.verdict, result.version) == (WriteVerdict.CONFLICT, None)
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (0, 0, ())


async def test_a_store_that_begins_after_a_delete_goes_on_counting_versions(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """Version 2 was deleted, so the next one is 3, with the same text or another, and after a second delete too."""
    await put("notes/a", "alpha")
    old = await put("notes/a", "beta")
    await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    write = build("notes/a", "beta")
    (result,) = await store.write_together([write], now=now + LATER)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 3)
    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert (state.document_id, state.created_at) == (write.document.document_id, now + LATER)
    assert state.document_id != old.document_id
    assert await store.read_body(state.body_id) == "beta"
    found = await store.read_document("notes/a")
    assert found is not None
    assert [version.version for version in found.versions] == [3]

    await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now + LATER)
    assert (await put("notes/a", "gamma")).version == 4
    assert (await put("notes/a", "delta")).version == 5
    assert (await put("notes/new", "beta")).version == 1


async def test_changes_tell_the_deleted_from_the_new_document(store: MemoryStore, put: Put, now: datetime) -> None:
    """Of one source stored, deleted and stored again, an index drops the first and takes in the second."""
    old = await put("notes/a", "alpha")
    ((stored,), _) = await store.read_changes(None)
    await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    new = await put("notes/a", "alpha")
    changes, _ = await store.read_changes(stored.committed_at)
    assert {change.document_id: change.revision for change in changes} == {
        old.document_id: None,
        new.document_id: new.revision,
    }


async def test_a_delete_and_an_update_at_the_same_moment_are_ordered(
    store: MemoryStore, build: Build, put: Put, now: datetime
) -> None:
    """The delete removes what was stored, or the store conflicts with the delete: either way nothing is left (W7)."""
    for number in range(5):
        source_id = f"notes/{number}"
        base = await put(source_id, "alpha", "beta")
        deletion, (result,) = await asyncio.gather(
            store.delete(DeleteSelector(source_ids=(source_id,)), now=now),
            store.write_together([build(source_id, "gamma", base=base)], now=now),
        )
        assert deletion.deleted_documents == 1
        assert deletion.deleted_chunks == (1 if result.verdict is WriteVerdict.WRITTEN else 2)
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (0, 0, ())


async def test_two_deletes_at_the_same_moment_count_a_document_once(
    store: MemoryStore, put: Put, now: datetime
) -> None:
    """One removes it, the other finds nothing; neither fails."""
    await put("notes/a", "alpha")
    selector = DeleteSelector(source_ids=("notes/a",))
    deletions = await asyncio.gather(*(store.delete(selector, now=now) for _ in range(3)))
    assert sum(deletion.deleted_documents for deletion in deletions) == 1
