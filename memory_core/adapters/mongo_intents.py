"""What a write outside of a transaction is about to do, written down first. In: the write. Out: no row is left over.

A process that is killed in the middle leaves its intent behind, and the next one that prepares the database removes
exactly what was begun. An intent whose holder may still be alive is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, INTENTS, TRASH
from memory_core.adapters.mongo_leases import holder_row, read_holder
from memory_core.models import Holder

# Of a store that was not told who uses it: its intents are given up only by their age.
NOBODY = Holder(host="", pid=0, started=0.0)


def believe_alive(holder: Holder) -> bool:
    """Whoever cannot ask the system believes it."""
    del holder
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Rows that are about to be written under a revision, or (without one) removed with their documents.

    `moves_rows`: rows that stay are moved to the revision before the flip, so rows under it are not all new.
    `replaced` are the revisions whose rows go after the flip. `body_ids` are the texts that it writes or drops: those
    that nobody owns in the end are removed.
    """

    key: str
    document_ids: Sequence[ObjectId]
    revision: str | None = None
    body_ids: Sequence[str] = ()
    moves_rows: bool = False
    replaced: Sequence[str] = ()


@contextmanager
def announced(connection: MongoConnection, intent: Intent, *, holder: Holder) -> Generator[None]:
    """Keep the intent while the block runs. A block that fails leaves it, for the next process to settle."""
    intents = connection.collection(INTENTS)
    row: Row = {
        "documentIds": list(intent.document_ids),
        "revision": intent.revision,
        "bodyIds": list(intent.body_ids),
        "movesRows": intent.moves_rows,
        "replaced": list(intent.replaced),
        "holder": holder_row(holder),
    }
    intents.update_one({"_id": intent.key}, {"$set": row, "$currentDate": {"at": True}}, upsert=True)
    yield
    intents.delete_one({"_id": intent.key})


@dataclass(frozen=True, slots=True, kw_only=True)
class Underway:
    """What living processes have announced, and the keys of intents whose processes are gone."""

    document_ids: frozenset[ObjectId]
    body_ids: frozenset[str]
    dead: tuple[str, ...]


def read_underway(
    database: Database[Row],
    *,
    is_alive: Callable[[Holder], bool],
    oldest: datetime,
    session: ClientSession | None = None,
) -> Underway:
    """What is not to be touched or taken for damage. An intent from before `oldest` is of a process that is gone."""
    found = list(database[INTENTS].find({}, session=session))
    alive = [row for row in found if row["at"] > oldest and is_alive(read_holder(row["holder"]))]
    return Underway(
        document_ids=frozenset(one for row in alive for one in row["documentIds"]),
        body_ids=frozenset(one for row in alive for one in row["bodyIds"]),
        dead=tuple(str(row["_id"]) for row in found if row not in alive),
    )


def settle_intents(
    connection: MongoConnection, *, is_alive: Callable[[Holder], bool], now: datetime, oldest: datetime
) -> int:
    """Remove what writers that are gone had begun. Returns how many there were.

    Args:
        connection: the database.
        is_alive: whether a holder may still be at work; it is believed up to `oldest`.
        now: the server's time.
        oldest: an intent from before it is of a process that cannot be asked and is given up.
    """
    intents = connection.collection(INTENTS)
    settled = 0
    for row in list(intents.find({"at": {"$lt": now}})):
        if row["at"] > oldest and is_alive(read_holder(row["holder"])):
            continue
        _settle_one(connection, row)
        settled += 1
    return settled


def settle_own(connection: MongoConnection, key: str) -> None:
    """Remove what an earlier attempt at the same write had begun, if there was one that failed."""
    if row := connection.collection(INTENTS).find_one({"_id": key}):
        _settle_one(connection, row)


def _settle_one(connection: MongoConnection, intent: Row) -> None:
    for document_id in intent["documentIds"]:
        _settle(connection, document_id, intent)
    connection.collection(INTENTS).delete_one({"_id": intent["_id"]})


def _settle(connection: MongoConnection, document_id: ObjectId, intent: Row) -> None:
    chunks, revision = connection.collection(CHUNKS), intent["revision"]
    found = connection.collection(DOCUMENTS).find_one({"_id": document_id}, {"revision": 1})
    if found is None:
        chunks.delete_many({"documentId": document_id})
    elif revision is not None and found["revision"] == revision:
        chunks.delete_many({"documentId": document_id, "revision": {"$in": intent["replaced"]}})
    elif revision is not None and not intent["movesRows"]:
        chunks.delete_many({"documentId": document_id, "revision": revision})
    if intent["bodyIds"]:
        remove_unowned(connection, document_id, intent["bodyIds"])


def remove_unowned(connection: MongoConnection, document_id: ObjectId, body_ids: Sequence[str]) -> None:
    """Remove those of the texts that the document does not have, alive or in the trash.

    A write whose answer was lost may be done, and others may have come since: no revision tells. A deletion enters the
    document in the trash before it leaves the others, a restore does the reverse: read like that, no owner is missed.
    """
    owned: set[str] = set()
    for name in (DOCUMENTS, TRASH, DOCUMENTS):
        found = connection.collection(name).find_one({"_id": document_id}, {"versions.bodyId": 1}) or {}
        owned |= {entry["bodyId"] for entry in found.get("versions", [])}
    connection.collection(CONTENTS).delete_many({"bodyId": {"$in": sorted(set(body_ids) - owned)}})
