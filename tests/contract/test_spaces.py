"""Embedding spaces: which one is active, who may write, how much is covered, what is stale, and who re-embeds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

import pytest
from pymongo.database import Database

from memory_core.adapters.mongo_store import MongoStore
from memory_core.errors import ForeignDatabaseError, NotFoundError
from memory_core.models import DocumentState, EmbeddedDocument, Fingerprint, Holder
from memory_core.spaces import SCHEMA_VERSION
from memory_core.store_ports import ActiveSpace, AttributeWrite, MemoryStore, RowSizes, WriteVerdict

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

ANN = Holder(host="laptop", pid=1, started=1.0, token="a" * 32)
BEN = Holder(host="server", pid=2, started=2.0, token="b" * 32)


@pytest.fixture
def other(space: Fingerprint) -> Fingerprint:
    """A space that is not the one of `put`."""
    return replace(space, model="other")


@pytest.fixture
def third(space: Fingerprint) -> Fingerprint:
    """Neither."""
    return replace(space, model="third")


async def spaces_of(store: MemoryStore) -> tuple[str, str | None, str | None]:
    found = await store.read_active_space()
    assert found is not None
    return found.fingerprint, found.pending, found.previous


# --- who may write ----------------------------------------------------------------------------------------------------


async def test_a_pending_space_may_be_written_beside_the_active_one(
    store: MemoryStore,
    reopen: Callable[[], MemoryStore],
    build: Build,
    now: datetime,
    space: Fingerprint,
    other: Fingerprint,
    third: Fingerprint,
) -> None:
    """Both processes store; a third space is refused, at its start and at its write."""
    declared = await store.declare_space(other)
    assert (declared.fingerprint, declared.pending) == (space.key, other.key)
    assert await store.declare_space(other) == declared == await store.read_active_space()
    newcomer = reopen()
    assert await newcomer.prepare(other) == declared
    writes = [build("notes/old", "alpha"), replace(build("notes/new", "beta"), fingerprint=other)]
    for place, write in zip((store, newcomer), writes, strict=True):
        [result] = await place.write_together([write], now=now)
        assert result.verdict is WriteVerdict.WRITTEN
    with pytest.raises(ForeignDatabaseError):
        await reopen().prepare(third)
    with pytest.raises(ForeignDatabaseError) as refusal:
        await store.write_together(
            [build("notes/good", "gamma"), replace(build("notes/bad", "delta"), fingerprint=third)], now=now
        )
    assert third.key in refusal.value.message
    assert "`memory reembed`" in refusal.value.message
    assert set(await store.read_states(["notes/old", "notes/new", "notes/good", "notes/bad"])) == {
        "notes/old",
        "notes/new",
    }


async def test_a_running_process_of_a_retired_space_is_refused(
    store: MemoryStore,
    reopen: Callable[[], MemoryStore],
    put: Put,
    build: Build,
    build_attributes: Callable[..., AttributeWrite],
    now: datetime,
    space: Fingerprint,
    other: Fingerprint,
) -> None:
    """Its vectors come too late; from then on it is refused before it pays for any."""
    stored = await put("notes/a", "alpha")
    switched = await reopen().activate_space(other, complete=False)
    assert (switched.fingerprint, switched.pending, switched.previous) == (other.key, None, space.key)
    with pytest.raises(ForeignDatabaseError):
        await store.write_together([build("notes/b", "beta")], now=now)
    with pytest.raises(ForeignDatabaseError):
        await store.prepare(space)
    assert await store.read_states(["notes/a", "notes/b"]) == {"notes/a": stored}
    # New attributes bring no vector, so they belong to no space.
    [result] = await store.write_together([build_attributes(stored, "alpha", tags=("blue",))], now=now)
    assert result.verdict is WriteVerdict.WRITTEN


async def test_the_first_writers_recipe_is_the_memorys(reopen: Callable[[], MemoryStore], space: Fingerprint) -> None:
    """Of two that come at once with different ones, one is refused; who cuts nothing may write all the same."""
    empty = reopen()
    assert (await empty.prepare(space)).recipe is None
    answers = await asyncio.gather(
        *(reopen().prepare(space, recipe=recipe) for recipe in ("2/400", "2/200")), return_exceptions=True
    )
    [refusal] = [one for one in answers if isinstance(one, ForeignDatabaseError)]
    [settled] = [one for one in answers if isinstance(one, ActiveSpace)]
    assert settled.recipe in {"2/400", "2/200"}
    assert settled == await reopen().read_active_space() == await reopen().prepare(space)
    assert all(recipe in refusal.message for recipe in ("2/400", "2/200"))


async def test_a_process_of_another_recipe_reads_but_does_not_write(
    reopen: Callable[[], MemoryStore], build: Build, now: datetime, space: Fingerprint
) -> None:
    """Also one that runs while another recipe is made the memory's: it is refused before it pays for the next text."""
    running = reopen()
    await running.prepare(space, recipe="2/400")
    await running.write_together([build("notes/a", "alpha")], now=now)
    newcomer = reopen()
    with pytest.raises(ForeignDatabaseError, match="`memory reembed --rechunk`"):
        await newcomer.prepare(space, recipe="2/200")
    assert set(await newcomer.read_states(["notes/a"])) == {"notes/a"}
    assert (await newcomer.activate_recipe("2/200")).recipe == "2/200"
    assert (await newcomer.prepare(space, recipe="2/200")).recipe == "2/200"
    with pytest.raises(ForeignDatabaseError, match="2/400"):
        await running.write_together([build("notes/b", "beta")], now=now)
    with pytest.raises(ForeignDatabaseError, match="2/400"):
        await running.prepare(space, recipe="2/400")
    [result] = await newcomer.write_together([build("notes/c", "gamma")], now=now)
    assert result.verdict is WriteVerdict.WRITTEN
    assert set(await running.read_states(["notes/a", "notes/b", "notes/c"])) == {"notes/a", "notes/c"}


async def test_a_space_that_is_activated_keeps_the_recipe(
    reopen: Callable[[], MemoryStore], space: Fingerprint, other: Fingerprint
) -> None:
    """They are two things."""
    store = reopen()
    await store.prepare(space, recipe="2/400")
    await store.declare_space(other)
    assert (await store.activate_space(other, complete=True)).recipe == "2/400"
    assert (await store.activate_recipe("2/200")).fingerprint == other.key


async def test_an_older_schema_is_migrated(
    store: MemoryStore, reopen: Callable[[], MemoryStore], put: Put, space: Fingerprint, age_schema: Callable[[], None]
) -> None:
    """It is read, not written, until then; an empty database has none to migrate."""
    stored = await put("notes/a", "alpha")
    age_schema()
    old = reopen()
    for refused in (old.prepare(space), old.declare_space(space), old.activate_recipe("2/400")):
        with pytest.raises(ForeignDatabaseError, match="`memory migrate`"):
            await refused
    assert await old.read_states(["notes/a"]) == {"notes/a": stored}
    planned = await old.migrate(dry_run=True)
    assert (planned.before, planned.after, [one.number for one in planned.steps]) == (0, SCHEMA_VERSION, [1, 2])
    aged = await store.read_active_space()
    assert aged
    assert aged.schema_version == 0
    done = await old.migrate()
    assert replace(done, dry_run=True) == planned
    assert (await old.prepare(space)).schema_version == SCHEMA_VERSION
    assert (await old.migrate()).steps == ()


async def test_an_empty_database_starts_with_the_newest_schema(
    reopen: Callable[[], MemoryStore], space: Fingerprint
) -> None:
    """There is nothing to migrate, and a migration makes nothing."""
    empty = reopen()
    assert (await empty.migrate()).before is None
    assert await empty.read_active_space() is None
    assert (await empty.prepare(space)).schema_version == SCHEMA_VERSION


async def test_one_space_is_pending_at_most(
    store: MemoryStore, reopen: Callable[[], MemoryStore], space: Fingerprint, other: Fingerprint, third: Fingerprint
) -> None:
    """Of two processes that declare at once one is refused, and its sentence names all three."""
    answers = await asyncio.gather(store.declare_space(other), reopen().declare_space(third), return_exceptions=True)
    [refusal] = [one for one in answers if isinstance(one, ForeignDatabaseError)]
    [winner] = [one for one in answers if isinstance(one, ActiveSpace)]
    assert all(name in refusal.message for name in (space.key, other.key, third.key))
    loser = third if winner.pending == other.key else other
    with pytest.raises(ForeignDatabaseError):
        await store.activate_space(loser, complete=True)
    with pytest.raises(ForeignDatabaseError):
        await store.declare_space(space)  # the active one: it would take back what is done
    assert await store.read_active_space() == winner


async def test_a_space_is_activated_in_two_steps(store: MemoryStore, space: Fingerprint, other: Fingerprint) -> None:
    """The one before is kept in mind until nothing is of it any more."""
    await store.declare_space(other)
    await store.activate_space(other, complete=False)
    assert await spaces_of(store) == (other.key, None, space.key)
    await store.activate_space(other, complete=False)
    assert await spaces_of(store) == (other.key, None, space.key)
    await store.activate_space(other, complete=True)
    assert await spaces_of(store) == (other.key, None, None)


async def test_a_pending_space_is_given_up(store: MemoryStore, space: Fingerprint, other: Fingerprint) -> None:
    """Its documents are the ones to take back now."""
    await store.declare_space(other)
    await store.activate_space(space, complete=False)
    assert await spaces_of(store) == (space.key, None, other.key)


async def test_without_anything_stored_there_is_no_space_to_change(
    reopen: Callable[[], MemoryStore], other: Fingerprint
) -> None:
    """Neither is there a lease."""
    empty = reopen()
    with pytest.raises(NotFoundError):
        await empty.declare_space(other)
    with pytest.raises(NotFoundError):
        await empty.activate_space(other, complete=True)
    with pytest.raises(NotFoundError):
        await empty.activate_recipe("2/400")
    with pytest.raises(NotFoundError):
        await empty.acquire_reembed_lease(ANN, seconds=60)
    assert await empty.read_active_space() is None
    assert (await empty.count_coverage(other.key)).is_complete


# --- what is covered, and what is stale -------------------------------------------------------------------------------


async def test_coverage_counts_documents_and_chunks(
    store: MemoryStore, put: Put, build: Build, now: datetime, space: Fingerprint, other: Fingerprint
) -> None:
    """Of one space and of all."""
    await store.declare_space(other)
    await put("notes/a", "alpha", "beta")
    await store.write_together([replace(build("notes/b", "gamma", "delta", "epsilon"), fingerprint=other)], now=now)
    ours, theirs = await store.count_coverage(space.key), await store.count_coverage(other.key)
    assert (ours.documents, ours.chunks, ours.covered_documents, ours.covered_chunks) == (2, 5, 1, 2)
    assert (theirs.documents, theirs.chunks, theirs.covered_documents, theirs.covered_chunks) == (2, 5, 1, 3)
    assert not ours.is_complete


async def test_health_tells_of_a_move_that_is_not_finished(
    store: MemoryStore, put: Put, space: Fingerprint, other: Fingerprint
) -> None:
    """While a space is pending, and while the active one does not cover everything; each with the command."""
    await put("notes/a", "alpha")
    assert (await store.check_health()).faults == ()
    await store.declare_space(other)
    [pending] = (await store.check_health()).faults
    assert f"A re-embed to {other.key} is not finished: it covers 0 of 1 documents" in pending
    await store.activate_space(other, complete=False)
    [partial] = (await store.check_health()).faults
    assert "1 of 1 documents are not of the active embedding space" in partial
    assert all("`memory reembed`" in told for told in (pending, partial))
    await store.activate_space(space, complete=False)
    assert (await store.check_health()).faults == ()


async def test_stale_documents_are_found_in_pages(
    store: MemoryStore, put: Put, build: Build, now: datetime, space: Fingerprint, other: Fingerprint
) -> None:
    """Those of another space and those whose context is old, by id; each says how it was chunked."""
    await store.declare_space(other)
    stored = await put("notes/a", "alpha", "beta", attributes={"uri": "file:///a"})
    await store.write_together([replace(build("notes/b", "gamma"), context_stale=True)], now=now)
    await store.write_together([replace(build("notes/c", "delta"), fingerprint=other)], now=now)
    await store.write_together([replace(build("notes/d", "epsilon"), fingerprint=other, context_stale=True)], now=now)

    async def names(**asked: Any) -> list[str]:
        return [one.source_id for one in await store.find_embedded(limit=10, **asked)]

    assert await names(stale_in=None) == ["notes/a", "notes/b", "notes/c", "notes/d"]
    assert await names(stale_in=space.key) == ["notes/b", "notes/c", "notes/d"]
    assert await names(stale_in=other.key) == ["notes/a", "notes/b", "notes/d"]
    assert await names(stale_in=space.key, source_ids=["notes/a", "notes/c"]) == ["notes/c"]
    [first] = await store.find_embedded(stale_in=None, limit=1)
    assert await names(stale_in=None, after=first.document_id) == ["notes/b", "notes/c", "notes/d"]
    assert (first.document_id, first.body_id, first.recipe) == (stored.document_id, stored.body_id, stored.recipe)
    assert (first.title, first.uri, first.content_type.value) == ("notes/a", "file:///a", "text")
    assert (first.content_length, first.chunk_count, first.options.size) == (len("alpha\n\nbeta"), 2, 400)
    assert (first.fingerprint, first.context_stale) == (space.key, False)


async def test_rows_are_measured_by_the_server(store: MemoryStore, put: Put) -> None:
    """Tokens of the slices and characters of the contexts, in code points."""
    one = await put("notes/a", "alpha beta", "gamma", context="Größe 記憶")
    two = await put("notes/b", "delta", context="xy")
    assert await store.measure_rows([one.document_id, two.document_id]) == RowSizes(tokens=4, context_chars=18)
    assert await store.measure_rows([]) == RowSizes()


@pytest.mark.services
@pytest.mark.parametrize("backend", ["mongodb"], indirect=True)
async def test_coverage_is_answered_by_an_index_alone(
    store: MongoStore, put: Put, contract_database: Database[dict[str, Any]]
) -> None:
    """Each search may ask for it: no document is fetched."""
    await put("notes/a", "alpha")
    contract_database.command("profile", 2)
    try:
        await store.count_coverage("any")
    finally:
        contract_database.command("profile", 0)
    [asked] = contract_database["system.profile"].find({"op": "command", "command.aggregate": "documents"})
    contract_database.drop_collection("system.profile")
    assert (asked["planSummary"].split()[0], asked["docsExamined"], asked["keysExamined"]) == ("IXSCAN", 0, 1)


# --- the lease --------------------------------------------------------------------------------------------------------


async def test_one_process_re_embeds_at_a_time(
    store: MemoryStore, reopen: Callable[[], MemoryStore], space: Fingerprint
) -> None:
    """The second is told who does; a release by somebody else changes nothing; the dead are robbed."""
    elsewhere = reopen()
    assert await store.acquire_reembed_lease(ANN, seconds=60) is None
    assert await store.acquire_reembed_lease(ANN, seconds=60) is None
    assert await elsewhere.acquire_reembed_lease(BEN, seconds=60) == ANN
    await elsewhere.release_reembed_lease(BEN)
    assert await elsewhere.acquire_reembed_lease(BEN, seconds=60) == ANN
    assert not await elsewhere.steal_reembed_lease(ANN, BEN, seconds=60)
    assert await elsewhere.steal_reembed_lease(BEN, ANN, seconds=60)
    assert await store.acquire_reembed_lease(ANN, seconds=60) == BEN
    await elsewhere.release_reembed_lease(BEN)
    assert await store.acquire_reembed_lease(ANN, seconds=60) is None
    assert (await spaces_of(store))[0] == space.key


async def test_a_lease_lapses(store: MemoryStore) -> None:
    """A killed process does not keep it."""
    assert await store.acquire_reembed_lease(ANN, seconds=0.05) is None
    assert await store.acquire_reembed_lease(BEN, seconds=60) == ANN
    await asyncio.sleep(0.1)
    assert await store.acquire_reembed_lease(BEN, seconds=60) is None
