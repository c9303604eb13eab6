"""What others do while a real MongoDB is mended: writes that are announced, restores and deletions amid the looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pytest
from bson import ObjectId
from pymongo import monitoring
from pymongo.database import Database

from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_sweeps import ORPHAN_AGE
from memory_core.health import FaultKind
from memory_core.models import DocumentState, Fingerprint
from memory_core.store_ports import DeleteSelector

pytestmark = [pytest.mark.services, pytest.mark.parametrize("backend", ["mongodb"], indirect=True)]

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

HOLDER = {"token": "t" * 32, "host": "laptop", "pid": 1, "started": 1.0}
EVERYTHING = tuple(FaultKind)


class Interloper(monitoring.CommandListener):
    """Does something right before a command is sent: what another process may do at that moment."""

    def __init__(self) -> None:
        self.is_moment: Callable[[dict[str, Any]], bool] | None = None
        self.act: Callable[[], None] = lambda: None

    def wait_for(self, is_moment: Callable[[dict[str, Any]], bool], act: Callable[[], None]) -> None:
        """Act once, ahead of the first command that is the moment."""
        self.is_moment, self.act = is_moment, act

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Look at the command."""
        if self.is_moment and self.is_moment(dict(event.command)):
            self.is_moment = None
            self.act()

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to do."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to do."""


_interloper = Interloper()
monitoring.register(_interloper)


@pytest.fixture
def database(contract_database: Database[dict[str, Any]], store: MongoStore) -> Database[dict[str, Any]]:  # noqa: ARG001 - it is emptied and prepared
    """The database of `store`, for damage behind its back."""
    return contract_database


async def find(store: MongoStore) -> dict[FaultKind, int]:
    """How many have each fault."""
    return {one.kind: one.size for one in (await store.check_health()).findings}


async def mend(store: MongoStore, *kinds: FaultKind) -> dict[FaultKind, int]:
    """What was mended of these kinds; of all without any."""
    return {one.kind: one.count for one in await store.mend(kinds or EVERYTHING)}


def intent(revision: str, document_id: ObjectId, *, at: datetime) -> dict[str, Any]:
    """What a writer announces."""
    return {
        "_id": revision,
        "documentIds": [document_id],
        "revision": revision,
        "bodyIds": [revision],
        "movesRows": False,
        "replaced": [],
        "holder": HOLDER,
        "at": at,
    }


def add_unfinished_write(database: Database[dict[str, Any]]) -> ObjectId:
    """What a write leaves that was killed before its flip: rows, a text and its intent. Returns the document's id."""
    document_id, revision = ObjectId(), "e" * 24
    row = database["chunks"].find_one({})
    assert row is not None
    old = ObjectId.from_datetime(datetime.now(UTC) - 2 * ORPHAN_AGE)  # as rows that are imported have
    database["chunks"].insert_one({**row, "_id": old, "documentId": document_id, "revision": revision})
    database["contents"].insert_one({"bodyId": revision, "part": 0, "text": "words"})
    database["intents"].insert_one(intent(revision, document_id, at=datetime.now(UTC)))
    return document_id


# --- intents ----------------------------------------------------------------------------------------------------------


async def test_what_a_living_process_writes_is_no_fault(
    database: Database[dict[str, Any]],
    store: MongoStore,
    reopen: Callable[[], MongoStore],
    space: Fingerprint,
    put: Put,
) -> None:
    """Neither a look nor a mending nor the sweep of the next process takes it for damage, however old its rows are."""
    await put("notes/a", "alpha")
    document_id = add_unfinished_write(database)
    assert (await find(store), await mend(store)) == ({}, {})
    database["meta"].update_many({}, {"$unset": {"orphansSweptAt": ""}})
    await reopen().prepare(space)
    assert database["chunks"].count_documents({"documentId": document_id}) == 1
    assert database["contents"].count_documents({"bodyId": "e" * 24}) == 1


# --- races ------------------------------------------------------------------------------------------------------------


def move_back(database: Database[dict[str, Any]]) -> None:
    """As a restore."""
    row = database["trash"].find_one_and_delete({})
    assert row is not None
    database["documents"].insert_one({name: row[name] for name in row if name not in {"deletedAt", "expiresAt"}})


def move_away(database: Database[dict[str, Any]]) -> None:
    """As a deletion."""
    row = database["documents"].find_one_and_delete({})
    assert row is not None
    now = datetime.now(UTC)
    moved = {**row, "deletedAt": now, "expiresAt": now + timedelta(days=7), "committedAt": now}
    database["trash"].replace_one({"_id": row["_id"]}, moved, upsert=True)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("is_restored", [True, False])
async def test_a_text_whose_document_moves_meanwhile_keeps_its_owner(
    database: Database[dict[str, Any]], store: MongoStore, put: Put, *, place: int, is_restored: bool
) -> None:
    """From the trash or into it, ahead of each of the looks for owners: no text of it is removed."""
    state = await put("notes/a", "alpha")
    if is_restored:
        await store.delete(DeleteSelector(source_ids=("notes/a",)), now=datetime.now(UTC))
    looks = 0

    def is_look(command: dict[str, Any]) -> bool:
        nonlocal looks
        looks += command.get("projection") == {"_id": 0, "versions.bodyId": 1}
        return looks == place + 1

    _interloper.wait_for(is_look, lambda: (move_back if is_restored else move_away)(database))
    assert FaultKind.ORPHAN_TEXTS not in await mend(store, FaultKind.ORPHAN_TEXTS)
    _interloper.is_moment = None
    assert await store.read_body(state.body_id) == "alpha"


async def test_a_document_that_is_deleted_meanwhile_stays_in_the_trash(
    database: Database[dict[str, Any]], store: MongoStore, put: Put
) -> None:
    """It was alive and in the trash when it was looked at; by the time its row would go, only the trash has it."""
    await put("notes/a", "alpha")
    row = database["documents"].find_one({})
    assert row is not None
    now = datetime.now(UTC)
    database["trash"].insert_one({**row, "deletedAt": now, "expiresAt": now + timedelta(days=7)})
    _interloper.wait_for(lambda command: command.get("delete") == "trash", lambda: move_away(database))
    await mend(store, FaultKind.TRASHED_DOCUMENTS)
    assert database["documents"].count_documents({}) == 0
    assert [one.document.state.source_id for one in await store.read_trash()] == ["notes/a"]
