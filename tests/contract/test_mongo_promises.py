"""What only a real MongoDB can show: concerns, errors without content, and what a killed process leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pytest
from bson import ObjectId
from pymongo import monitoring
from pymongo.database import Database

from memory_core.adapters.mongo_connection import (
    MongoConnection,
    call_translated,
    connect,
)
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MongoSubmissionStore
from memory_core.adapters.mongo_sweeps import ORPHAN_AGE
from memory_core.errors import StorageError
from memory_core.models import DocumentState, EmbeddedDocument, Fingerprint, Holder, StoreRequest
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest

pytestmark = [pytest.mark.services, pytest.mark.parametrize("backend", ["mongodb"], indirect=True)]

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

ANN = Holder(host="laptop", pid=1, started=1.0, token="a" * 32)
DIARY = "Dear diary, nobody may read this."
LATEST = timedelta(minutes=1)


class Transactions(monitoring.CommandListener):
    """The first command and the commit of every transaction."""

    def __init__(self) -> None:
        self.starts: list[dict[str, Any]] = []
        self.commits: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep what says how the transaction reads and writes."""
        command = dict(event.command)
        if command.get("startTransaction"):
            self.starts.append(command)
        if event.command_name == "commitTransaction":
            self.commits.append(command)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


_transactions = Transactions()
monitoring.register(_transactions)


@pytest.fixture
async def database(
    contract_database: Database[dict[str, Any]], store: MongoStore
) -> AsyncGenerator[Database[dict[str, Any]]]:
    """The database of `store`, for damage behind its back."""
    assert isinstance(store, MongoStore)
    yield contract_database
    await store.close()


def connect_of(store: MongoStore) -> MongoConnection:
    """The store's own connection, for another store beside it."""
    return store._connection  # pyright: ignore[reportPrivateUsage] - it is closed with the store


# --- concerns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["readPreference=secondaryPreferred", "w=0", "w=1&journal=false"])
async def test_a_uri_does_not_weaken_a_transaction(
    database: Database[dict[str, Any]],
    mongodb_uri: str,
    build: Build,
    space: Fingerprint,
    now: datetime,
    options: str,
) -> None:
    """It reads a snapshot on the primary and commits to the majority and the journal, whatever the address says."""
    connection = connect(f"{mongodb_uri}&{options}", database.name, max_pool_size=4, server_selection_timeout_ms=5_000)
    store = MongoStore(connection, versions_kept=5)
    await store.prepare(space)
    _transactions.starts.clear()
    _transactions.commits.clear()
    await store.write_together([build("notes/a", "alpha")], now=now)
    request = StoreRequest(request=StoreContentRequest(content="beta"), provenance=Provenance(channel="cli"))
    await MongoSubmissionStore(connection).stage(request, key="k", holder=ANN, seconds=60, now=now)
    deletion = await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    await store.close()
    assert deletion.deleted_documents == 1
    assert [start["readConcern"]["level"] for start in _transactions.starts] == ["snapshot"] * 3
    assert [commit["writeConcern"] for commit in _transactions.commits] == [{"w": "majority", "j": True}] * 3


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_bulk", [True, False])
async def test_an_error_of_the_server_does_not_hold_what_was_written(
    database: Database[dict[str, Any]], *, is_bulk: bool
) -> None:
    """The cause names the code and the index; the text and the key's value stay out of the log."""
    row = {"_id": DIARY, "text": DIARY}
    feeds = database["feeds"]
    feeds.insert_one(row)
    insert: Callable[[], object] = (lambda: feeds.insert_many([row])) if is_bulk else (lambda: feeds.insert_one(row))
    with pytest.raises(StorageError) as refusal:
        call_translated(insert)
    cause = refusal.value.cause or ""
    assert "11000" in cause
    assert "_id_" in cause
    assert "diary" not in f"{cause} {refusal.value.message}"


async def test_a_value_that_cannot_be_encoded_is_not_quoted(database: Database[dict[str, Any]]) -> None:
    """The driver's own error holds the whole row."""
    with pytest.raises(StorageError) as refusal:
        call_translated(database["feeds"].insert_one, {"text": DIARY, "odd": {DIARY}})
    assert "diary" not in f"{refusal.value.cause} {refusal.value.message}"


# --- what a killed process leaves behind ------------------------------------------------------------------------------


def an_old_id() -> ObjectId:
    """An id made before anything can still be under way."""
    then = ObjectId.from_datetime(datetime.now(UTC) - ORPHAN_AGE - LATEST)
    return ObjectId(then.binary[:4] + ObjectId().binary[4:])  # that second, and never the same id twice


async def prepare_anew(
    database: Database[dict[str, Any]], reopen: Callable[[], MongoStore], space: Fingerprint
) -> MongoStore:
    """What the next process does before its first write, some time later."""
    database["meta"].update_many({}, {"$unset": {"orphansSweptAt": ""}})
    store = reopen()
    await store.prepare(space)
    return store


async def test_a_deletion_that_was_cut_off_takes_nothing_from_a_living_document(
    database: Database[dict[str, Any]],
    store: MongoStore,
    reopen: Callable[[], MongoStore],
    space: Fingerprint,
    put: Put,
) -> None:
    """Without transactions a document can stand in the trash and be alive: it keeps its text and stays in the index."""
    state, gone = await put("notes/a", "alpha"), await put("notes/gone", "beta")
    ((first, _), _) = await store.read_changes(None)
    expired = {"deletedAt": first.committed_at, "expiresAt": first.committed_at, "committedAt": first.committed_at}
    row = database["documents"].find_one({"sourceId": "notes/a"})
    assert row is not None
    await store.delete(DeleteSelector(source_ids=("notes/gone",)), now=first.committed_at)
    database["trash"].update_many({}, {"$set": {"expiresAt": first.committed_at}})
    database["trash"].insert_one({**row, **expired})
    changes, _ = await store.read_changes(first.committed_at)
    assert {change.document_id: change.revision for change in changes} == {
        state.document_id: state.revision,
        gone.document_id: None,
    }
    await prepare_anew(database, reopen, space)
    assert await store.read_body(state.body_id) == "alpha"
    assert database["trash"].count_documents({"_id": row["_id"]}) == 1  # too young: it may be under way
    database["trash"].update_many({}, {"$set": {"committedAt": first.committed_at - ORPHAN_AGE - LATEST}})
    await prepare_anew(database, reopen, space)
    assert await store.read_body(state.body_id) == "alpha"
    assert [tombstone["sourceId"] for tombstone in database["trash"].find()] == ["notes/gone"]
    assert (await store.check_health()).faults == ()


async def test_the_next_store_removes_what_nobody_owns(
    database: Database[dict[str, Any]],
    store: MongoStore,
    reopen: Callable[[], MongoStore],
    space: Fingerprint,
    put: Put,
) -> None:
    """An old text or chunk without an owner goes; a young one may still be about to get its owner; the rest stays."""
    state = await put("notes/a", "alpha")
    fresh, old = [{"bodyId": f"loose-{n}", "part": 0, "text": "x"} for n in range(2)]
    database["contents"].insert_many([fresh, {**old, "_id": an_old_id()}])
    (chunk,) = database["chunks"].find({})
    orphan = {**chunk, "documentId": ObjectId()}
    database["chunks"].insert_many([{**orphan, "_id": ObjectId()}, {**orphan, "_id": an_old_id()}])
    faults = (await store.check_health()).faults
    assert [fault.split()[:2] for fault in faults] == [["2", "chunks"], ["2", "texts"]]
    assert all("an hour old" in fault for fault in faults)

    await prepare_anew(database, reopen, space)
    assert {row["bodyId"] for row in database["contents"].find()} == {state.body_id, "loose-0"}
    assert [fault.split()[:2] for fault in (await store.check_health()).faults] == [["1", "chunks"], ["1", "texts"]]
    assert (await store.read_states(["notes/a"]))["notes/a"] == state


async def test_old_texts_with_an_owner_stay(
    database: Database[dict[str, Any]],
    store: MongoStore,
    reopen: Callable[[], MongoStore],
    space: Fingerprint,
    put: Put,
) -> None:
    """Of a submission, of an earlier version, of a document in the trash: whatever their age."""
    now = datetime.now(UTC)
    request = StoreRequest(request=StoreContentRequest(content="staged"), provenance=Provenance(channel="cli"))
    submissions = MongoSubmissionStore(connect_of(store))
    staged = await submissions.stage(request, key="k", holder=ANN, seconds=60, now=now)
    earlier = await put("notes/a", "alpha")
    await put("notes/a", "beta")
    trashed = await put("notes/b", "gamma")
    await store.delete(DeleteSelector(source_ids=("notes/b",)), now=now)
    for row in list(database["contents"].find()):
        database["contents"].delete_one({"_id": row["_id"]})
        database["contents"].insert_one({**row, "_id": an_old_id()})
    await prepare_anew(database, reopen, space)
    for body_id, text in ((staged.request.body_id, "staged"), (earlier.body_id, "alpha"), (trashed.body_id, "gamma")):
        assert await store.read_body(body_id or "") == text


async def test_orphans_are_not_looked_for_at_every_start(
    database: Database[dict[str, Any]], reopen: Callable[[], MongoStore], space: Fingerprint
) -> None:
    """That reads an index of everything; the next one looks some minutes later."""
    database["contents"].insert_one({"_id": an_old_id(), "bodyId": "loose", "part": 0, "text": "x"})
    await reopen().prepare(space)
    assert database["contents"].count_documents({}) == 1


async def test_staging_leaves_no_text_when_it_fails_half_way(
    database: Database[dict[str, Any]], store: MongoStore, now: datetime
) -> None:
    """Text and submission are one transaction."""
    request = StoreContentRequest(content=DIARY, metadata={"n": 2**70})
    submissions = MongoSubmissionStore(connect_of(store))
    with pytest.raises(StorageError):
        await submissions.stage(
            StoreRequest(request=request, provenance=Provenance(channel="cli")),
            key="k",
            holder=ANN,
            seconds=60,
            now=now,
        )
    assert database["contents"].count_documents({}) == 0


async def test_a_look_at_the_health_is_of_one_moment(store: MongoStore, build: Build, put: Put, now: datetime) -> None:
    """Documents that are stored and replaced meanwhile are no damage."""
    for number in range(4):
        await put(f"notes/{number}", *(f"first {number} {part}" for part in range(30)))
    is_writing = True

    async def write() -> None:
        for turn in range(12):
            for source_id, base in (await store.read_states([f"notes/{n}" for n in range(4)])).items():
                await store.write_together([build(source_id, *(f"{turn} {n}" for n in range(30)), base=base)], now=now)

    async def look() -> list[str]:
        faults: list[str] = []
        while is_writing:
            faults += (await store.check_health()).faults
        return faults

    looking = asyncio.create_task(look())
    await write()
    is_writing = False
    assert await looking == []


async def test_a_fault_counts_without_transactions_when_it_stays(
    store: MongoStore, put: Put, lose_row: Callable[[str], None]
) -> None:
    """Such a server cannot be looked at in one moment: it is looked at twice."""
    state = await put("notes/a", "alpha", "beta")
    (key, *_) = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    lose_row(key.chunk_id)
    store._has_transactions = False  # pyright: ignore[reportPrivateUsage] - as on a stand-alone server
    (fault,) = (await store.check_health()).faults
    assert "notes/a" in fault
