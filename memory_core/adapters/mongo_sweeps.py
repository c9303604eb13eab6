"""Cleaning up. In: a database that may be written meanwhile. Out: the same without what nobody owns or needs any more.

A row of the trash stays as a tombstone when its grace period has ended: search indexes learn of the deletion from it,
and a source that is stored again goes on counting versions. Tombstones and submissions go by their age. What a process
that was killed left behind (a text or chunks without an owner) is removed once it is old enough that no write can still
be about to own it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bson import ObjectId
from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, META, SUBMISSIONS, TRASH
from memory_core.adapters.mongo_intents import read_underway, settle_intents
from memory_core.models import Holder
from memory_core.work_ports import SubmissionState

# Longer than any write takes between its first row and its last.
ORPHAN_AGE = timedelta(hours=1)
# Looking for orphans reads the index of every collection: not at each start of a process.
_ORPHAN_INTERVAL = timedelta(minutes=15)
_SWEEP_LIMIT = 500
_TOMBSTONE_FIELDS = ("sourceId", "version", "committedAt", "revision", "deletedAt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many days things are kept that nobody asks for by themselves.

    Tombstones must be kept for longer than the search index goes without a full comparison (a day): what it never hears
    of it must be able to miss.
    """

    submission_days: int = 7
    failed_submission_days: int = 30
    tombstone_days: int = 365


USUAL_RETENTION = Retention()


def sweep(connection: MongoConnection, *, is_alive: Callable[[Holder], bool], retention: Retention) -> None:
    """Remove what killed writers had begun and what is old, and now and then what has no owner."""
    now = ask_server(connection).now
    settle_intents(connection, is_alive=is_alive, now=now, oldest=now - ORPHAN_AGE)
    sweep_trash(connection, now=now)
    sweep_tombstones(connection, before=now - timedelta(days=retention.tombstone_days))
    sweep_submissions(connection, now=now, retention=retention)
    due = {"$or": [{"orphansSweptAt": {"$exists": False}}, {"orphansSweptAt": {"$lt": now - _ORPHAN_INTERVAL}}]}
    if connection.collection(META).update_one(due, {"$set": {"orphansSweptAt": now}}).matched_count:
        sweep_orphans(connection, is_alive=is_alive, now=now)


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
    _make_tombstones(connection, dead)
    return len(dead)


def end_grace(connection: MongoConnection, ids: list[ObjectId]) -> None:
    """End the grace period of these documents now."""
    _make_tombstones(connection, list(connection.collection(TRASH).find({"_id": {"$in": ids}})))


def _make_tombstones(connection: MongoConnection, dead: list[Row]) -> None:
    bodies = [entry["bodyId"] for row in dead for entry in row.get("versions", [])]
    connection.collection(CONTENTS).delete_many({"bodyId": {"$in": bodies}})
    connection.collection(TRASH).bulk_write(
        [
            UpdateOne({"_id": row["_id"]}, {"$unset": dict.fromkeys(set(row) - {"_id", *_TOMBSTONE_FIELDS}, "")})
            for row in dead
        ],
        ordered=False,
    )


def sweep_tombstones(connection: MongoConnection, *, before: datetime) -> int:
    """Forget deletions from before then whose grace period has ended. Returns how many."""
    trash = connection.collection(TRASH)
    old = {"committedAt": {"$lt": before}, "expiresAt": {"$exists": False}}
    ids = [row["_id"] for row in trash.find(old, {"_id": 1}, hint="trash_committedAt").limit(_SWEEP_LIMIT)]
    return trash.delete_many({"_id": {"$in": ids}}).deleted_count if ids else 0


def sweep_submissions(connection: MongoConnection, *, now: datetime, retention: Retention) -> int:
    """Remove submissions that ended long ago, with texts that no version adopted. Returns how many."""
    finished = now - timedelta(days=retention.submission_days)
    failed = now - timedelta(days=retention.failed_submission_days)
    ended: list[Row] = [
        {"state": SubmissionState.DONE.value, "finishedAt": {"$lt": finished}},
        {"state": SubmissionState.FAILED.value, "finishedAt": {"$lt": failed}},
        {"state": SubmissionState.PARKED.value, "stagedAt": {"$lt": failed}},
    ]
    submissions, removed = connection.collection(SUBMISSIONS), 0
    for condition in ended:
        found = list(submissions.find(condition, {"bodyId": 1, "adopted": 1}).limit(_SWEEP_LIMIT))
        own = [row["bodyId"] for row in found if row["bodyId"] and not row["adopted"]]
        if own:
            connection.collection(CONTENTS).delete_many({"bodyId": {"$in": own}})
        if found:
            chosen = {"_id": {"$in": [row["_id"] for row in found]}, "state": condition["state"]}
            removed += submissions.delete_many(chosen).deleted_count
    return removed


def living_ids(connection: MongoConnection, ids: list[ObjectId]) -> set[ObjectId]:
    """Which of these ids of trash rows are documents all the same."""
    if not ids:
        return set()
    return {row["_id"] for row in connection.collection(DOCUMENTS).find({"_id": {"$in": ids}}, {"_id": 1})}


def sweep_orphans(connection: MongoConnection, *, is_alive: Callable[[Holder], bool], now: datetime) -> None:
    """Remove bodies that no version and no submission has, and chunks whose document does not exist, when they are old.

    What exists is read ahead of who owns it: a row that comes in between is not taken for an orphan. Rows that are
    brought from elsewhere keep their ids and look old from the first: those that are announced are left alone.
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
        parents -= read_underway(connection.database, is_alive=is_alive, oldest=now - ORPHAN_AGE).document_ids
        parents -= {row["_id"] for row in connection.collection(DOCUMENTS).find({}, {"_id": 1})}
    if parents:
        chunks.delete_many({"documentId": {"$in": list(parents)}, "_id": oldest_safe})


def _group(field: str) -> list[Row]:
    return [{"$group": {"_id": f"${field}"}}]


def owned_bodies(database: Database[Row], session: ClientSession | None = None) -> set[str]:
    """The bodies of all submissions and versions.

    A text goes from its submission to its document to the trash, and from there back to its document where that is
    restored; it is entered in the next before it leaves the last. Read in that order, no owner is missed.
    """
    staged = database[SUBMISSIONS].find({"bodyId": {"$ne": None}}, {"_id": 0, "bodyId": 1}, session=session)
    owned: set[str] = {row["bodyId"] for row in staged}
    for name in (TRASH, DOCUMENTS, TRASH):
        found = database[name].find({}, {"_id": 0, "versions.bodyId": 1}, session=session)
        owned |= {entry["bodyId"] for row in found for entry in row.get("versions", [])}
    return owned
