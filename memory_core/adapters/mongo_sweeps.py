"""Cleaning up. In: a database that may be written meanwhile. Out: the same without what nobody owns any more.

A row of the trash stays as a tombstone when its grace period has ended: search indexes learn of the deletion from it,
and a source that is stored again goes on counting versions. What a process that was killed left behind (a text or
chunks without an owner) is removed once it is old enough that no write can still be about to own it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from bson import ObjectId
from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, META, SUBMISSIONS, TRASH
from memory_core.adapters.mongo_intents import settle_intents
from memory_core.models import Holder

# Longer than any write takes between its first row and its last.
ORPHAN_AGE = timedelta(hours=1)
# Looking for orphans reads the index of every collection: not at each start of a process.
_ORPHAN_INTERVAL = timedelta(minutes=15)
_SWEEP_LIMIT = 500
_TOMBSTONE_FIELDS = ("sourceId", "version", "committedAt", "revision", "deletedAt")


def sweep(connection: MongoConnection, *, is_alive: Callable[[Holder], bool]) -> None:
    """Remove what killed writers had begun, end grace periods, and now and then remove what has no owner."""
    now = ask_server(connection).now
    settle_intents(connection, is_alive=is_alive, now=now, oldest=now - ORPHAN_AGE)
    sweep_trash(connection, now=now)
    due = {"$or": [{"orphansSweptAt": {"$exists": False}}, {"orphansSweptAt": {"$lt": now - _ORPHAN_INTERVAL}}]}
    if connection.collection(META).update_one(due, {"$set": {"orphansSweptAt": now}}).matched_count:
        sweep_orphans(connection, now=now)


def sweep_trash(connection: MongoConnection, *, now: datetime) -> int:
    """End the grace period of what expired: bodies and attributes go, a tombstone stays. Returns how many.

    A document that is alive too (its deletion was killed half-way on a server without transactions) keeps its bodies,
    and its row of the trash goes.
    """
    trash = connection.collection(TRASH)
    expired = list(trash.find({"expiresAt": {"$lte": now}}).limit(_SWEEP_LIMIT))
    if not expired:
        return 0
    alive = living_ids(connection, [row["_id"] for row in expired])
    # A young row may be of a deletion that is only half-way at this moment: it is left alone.
    trash.delete_many({"_id": {"$in": list(alive)}, "committedAt": {"$lt": now - ORPHAN_AGE}})
    dead = [row for row in expired if row["_id"] not in alive]
    if not dead:
        return 0
    bodies = [entry["bodyId"] for row in dead for entry in row.get("versions", [])]
    connection.collection(CONTENTS).delete_many({"bodyId": {"$in": bodies}})
    trash.bulk_write(
        [
            UpdateOne({"_id": row["_id"]}, {"$unset": dict.fromkeys(set(row) - {"_id", *_TOMBSTONE_FIELDS}, "")})
            for row in dead
        ],
        ordered=False,
    )
    return len(dead)


def living_ids(connection: MongoConnection, ids: list[ObjectId]) -> set[ObjectId]:
    """Which of these ids of trash rows are documents all the same."""
    if not ids:
        return set()
    return {row["_id"] for row in connection.collection(DOCUMENTS).find({"_id": {"$in": ids}}, {"_id": 1})}


def sweep_orphans(connection: MongoConnection, *, now: datetime) -> None:
    """Remove bodies that no version and no submission has, and chunks whose document does not exist, when they are old.

    What exists is read ahead of who owns it: a row that comes in between is not taken for an orphan.
    """
    oldest_safe = {"$lt": ObjectId.from_datetime(now - ORPHAN_AGE)}
    bodies, chunks = connection.collection(CONTENTS), connection.collection(CHUNKS)
    stored = {row["_id"] for row in bodies.aggregate([{"$match": {"_id": oldest_safe}}, *_group("bodyId")])}
    if loose := stored - owned_bodies(connection.database):
        bodies.delete_many({"bodyId": {"$in": list(loose)}, "_id": oldest_safe})
    parents = {
        row["_id"]
        for row in chunks.aggregate(
            [{"$project": {"_id": 0, "documentId": 1}}, *_group("documentId")], hint="chunks_tally"
        )
    }
    if parents:
        parents -= {row["_id"] for row in connection.collection(DOCUMENTS).find({}, {"_id": 1})}
    if parents:
        chunks.delete_many({"documentId": {"$in": list(parents)}, "_id": oldest_safe})


def _group(field: str) -> list[Row]:
    return [{"$group": {"_id": f"${field}"}}]


def owned_bodies(database: Database[Row], session: ClientSession | None = None) -> set[str]:
    """The bodies of all submissions and versions.

    A text goes from its submission to its document to the trash, and is entered in the next before it leaves the last:
    read in that order, no owner is missed.
    """
    staged = database[SUBMISSIONS].find({"bodyId": {"$ne": None}}, {"_id": 0, "bodyId": 1}, session=session)
    owned: set[str] = {row["bodyId"] for row in staged}
    for name in (DOCUMENTS, TRASH):
        found = database[name].find({}, {"_id": 0, "versions.bodyId": 1}, session=session)
        owned |= {entry["bodyId"] for row in found for entry in row.get("versions", [])}
    return owned
