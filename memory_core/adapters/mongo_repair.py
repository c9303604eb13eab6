"""What `memory doctor --repair` removes or settles in MongoDB. In: kinds of faults. Out: what was done, counted.

It reads no text and makes none up. Nothing goes that a living process may be about to own: rows are read ahead of the
intents, the intents ahead of the documents, and only rows that were read are removed. On a server without transactions
a text is staged unannounced, so there it must be old as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId

from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server
from memory_core.adapters.mongo_embedding_cache import evict_rows
from memory_core.adapters.mongo_health import LONG_AGO, Watcher, busy_feeds, is_held
from memory_core.adapters.mongo_index_check import mend_indexes
from memory_core.adapters.mongo_indexes import (
    CHUNKS,
    CONTENTS,
    DOCUMENTS,
    EMBEDDING_CACHE,
    FEED_FILES,
    FEEDS,
    META,
    TRASH,
)
from memory_core.adapters.mongo_intents import Underway, read_underway, settle_intents
from memory_core.adapters.mongo_spaces import read_space, refuse_foreign_rows
from memory_core.adapters.mongo_sweeps import ORPHAN_AGE, end_grace, owned_bodies
from memory_core.adapters.mongo_texts import StoredTexts, read_texts
from memory_core.health import FaultKind, Mended
from memory_core.spaces import refuse_other_schema
from memory_core.work_ports import FileState

_AT_ONCE = 1_000
_PARENTS_AT_ONCE = 100
_ANY_BYTES = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repair:
    """One repair: the database, how to look at it, and the server's time at its beginning."""

    connection: MongoConnection
    watcher: Watcher
    now: datetime

    def rows(self, name: str) -> Any:  # noqa: ANN401 - a Collection of rows
        return self.connection.collection(name)

    def underway(self) -> Underway:
        return read_underway(self.connection.database, is_alive=self.watcher.is_alive, oldest=self.now - ORPHAN_AGE)


def mend(connection: MongoConnection, kinds: Collection[FaultKind], watcher: Watcher) -> list[Mended]:
    """Mend these kinds, one after the other: what one settles may leave rows for the next.

    Raises:
        ForeignDatabaseError: the database is not ours, or of another schema.
    """
    space = read_space(connection)
    if space is None:
        refuse_foreign_rows(connection)
        return []
    refuse_other_schema(space)
    repair = _Repair(connection=connection, watcher=watcher, now=ask_server(connection).now)
    done: list[Mended] = []
    if not {FaultKind.MISSING_INDEXES, FaultKind.DIFFERENT_INDEXES}.isdisjoint(kinds):
        done += [Mended(kind=kind, count=count) for kind, count in mend_indexes(connection.database).items()]
    done += [Mended(kind=kind, count=work(repair)) for kind, work in _WORK.items() if kind in kinds]
    return [one for one in done if one.count]


def _settle_writes(repair: _Repair) -> int:
    return settle_intents(
        repair.connection, is_alive=repair.watcher.is_alive, now=repair.now, oldest=repair.now - ORPHAN_AGE
    )


def _give_back_leases(repair: _Repair) -> int:
    """The condition names the lease that was seen: who took it since keeps it."""
    released = 0
    for name in (FEEDS, META):
        for row in list(repair.rows(name).find({"lease": {"$exists": True}}, {"lease": 1})):
            if not is_held(row, is_alive=repair.watcher.is_alive, now=repair.now):
                seen = {"_id": row["_id"], "lease": row["lease"]}
                released += repair.rows(name).update_one(seen, {"$unset": {"lease": ""}}).modified_count
    return released


def _remove_orphan_chunks(repair: _Repair) -> int:
    chunks, documents, removed = repair.rows(CHUNKS), repair.rows(DOCUMENTS), 0
    pipeline = [{"$project": {"_id": 0, "documentId": 1}}, {"$group": {"_id": "$documentId"}}]
    parents = {row["_id"] for row in chunks.aggregate(pipeline, hint="chunks_tally", allowDiskUse=True)}
    lost = sorted(parents - {row["_id"] for row in documents.find({}, {"_id": 1})})
    for start in range(0, len(lost), _PARENTS_AT_ONCE):
        some = lost[start : start + _PARENTS_AT_ONCE]
        rows = list(chunks.find({"documentId": {"$in": some}}, {"documentId": 1, "revision": 1}))
        owned = set(repair.underway().document_ids)
        owned |= {row["_id"] for row in documents.find({"_id": {"$in": some}}, {"_id": 1})}
        removed += _delete_read(repair, [row for row in rows if row["documentId"] not in owned])
    return removed


def _delete_read(repair: _Repair, rows: Sequence[Row]) -> int:
    """Only the very rows that were read: those of a writer that came since are of another revision."""
    removed = 0
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        condition = {
            "_id": {"$in": [row["_id"] for row in some]},
            "documentId": {"$in": sorted({row["documentId"] for row in some})},
            "revision": {"$in": sorted({row["revision"] for row in some})},
        }
        removed += repair.rows(CHUNKS).delete_many(condition).deleted_count
    return removed


def _remove_orphan_texts(repair: _Repair) -> int:
    database = repair.connection.database
    stored = set(read_texts(database).keys())
    underway = repair.underway()
    current = {row["bodyId"] for row in repair.rows(DOCUMENTS).find({}, {"_id": 0, "bodyId": 1})}
    loose = sorted(stored - underway.body_ids - owned_bodies(database) - current)
    is_old: Row = {"_id": {"$lt": ObjectId.from_datetime(repair.now - ORPHAN_AGE)}}
    oldest: Row = {} if repair.watcher.transactions else is_old
    removed = 0
    for start in range(0, len(loose), _AT_ONCE):
        bodies = {"bodyId": {"$in": loose[start : start + _AT_ONCE]}, **oldest}
        removed += len(repair.rows(CONTENTS).distinct("bodyId", bodies))
        repair.rows(CONTENTS).delete_many(bodies)
    return removed


def _settle_trash(repair: _Repair) -> int:
    """A document that lives does not stand in the trash; its texts stay, as they are the living one's."""
    found = {row["_id"]: row["committedAt"] for row in repair.rows(TRASH).find({}, {"committedAt": 1})}
    underway = repair.underway().document_ids
    ids = sorted(found.keys() - underway)
    removed = 0
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        alive = [row["_id"] for row in repair.rows(DOCUMENTS).find({"_id": {"$in": some}}, {"_id": 1})]
        for one in alive:  # a deletion since then has another time
            removed += repair.rows(TRASH).delete_one({"_id": one, "committedAt": found[one]}).deleted_count
    return removed


def _forget_lost_versions(repair: _Repair) -> int:
    """Entries of versions whose text is gone. What of the trash has lost its newest text becomes a tombstone."""
    database, forgotten = repair.connection.database, 0
    texts = read_texts(database)
    for name in (DOCUMENTS, TRASH):
        for row in repair.rows(name).find({}, {"versions": 1, "bodyId": 1}):
            gone = [one["bodyId"] for one in _lost(row, texts)]
            # Asked once more: the row may have been written since the texts were listed.
            again = read_texts(database, body_ids=gone) if gone else texts
            gone = [one["bodyId"] for one in _lost(row, again) if one["bodyId"] in gone]
            if name == TRASH and row.get("bodyId") in gone:
                end_grace(repair.connection, [row["_id"]])
                forgotten += len(gone)
            else:
                forgotten += forget_bodies(repair.connection, name, row["_id"], gone)
    return forgotten


def _lost(row: Row, texts: StoredTexts) -> list[Row]:
    return [one for one in row.get("versions", []) if not texts.has(one["bodyId"], one["contentLength"])]


def forget_bodies(connection: MongoConnection, name: str, row_id: ObjectId, body_ids: Sequence[str]) -> int:
    """Remove versions by their texts' ids, never that of the current text, and what is left of these texts."""
    forgotten = 0
    for body_id in body_ids:
        mine = {"_id": row_id, "bodyId": {"$ne": body_id}, "versions.bodyId": body_id}
        update = {"$pull": {"versions": {"bodyId": body_id}}}
        if connection.collection(name).update_one(mine, update).modified_count:
            connection.collection(CONTENTS).delete_many({"bodyId": body_id})
            forgotten += 1
    return forgotten


def forget_versions(connection: MongoConnection, document_id: ObjectId, versions: Collection[int]) -> int:
    """Remove these earlier versions of a document with their texts."""
    row = connection.collection(DOCUMENTS).find_one({"_id": document_id}, {"versions": 1})
    bodies = [one["bodyId"] for one in row["versions"] if one["version"] in versions] if row else []
    return forget_bodies(connection, DOCUMENTS, document_id, bodies)


def _forget_lost_files(repair: _Repair) -> int:
    files, removed = repair.rows(FEED_FILES), 0
    busy = busy_feeds(repair.connection.database, is_alive=repair.watcher.is_alive, now=repair.now)
    known = {row["sourceId"] for row in repair.rows(DOCUMENTS).find({}, {"_id": 0, "sourceId": 1})}
    stored = {"state": FileState.STORED.value}
    for row in list(files.find(stored, {"feed": 1, "sourceId": 1})):
        if row["feed"] in busy or row["sourceId"] in known:
            continue
        if repair.rows(DOCUMENTS).find_one({"sourceId": row["sourceId"]}, {"_id": 1}) is None:
            removed += files.delete_one({"_id": row["_id"], "sourceId": row["sourceId"], **stored}).deleted_count
    return removed


def _evict_cache(repair: _Repair) -> int:
    limits = repair.watcher.limits
    return evict_rows(
        repair.rows(EMBEDDING_CACHE),
        oldest=LONG_AGO if limits.cache_days is None else repair.now - timedelta(days=limits.cache_days),
        max_bytes=_ANY_BYTES if limits.cache_bytes is None else limits.cache_bytes,
    )


# In this order: what was cut off first, as its rows would count as orphans.
_WORK: dict[FaultKind, Callable[[_Repair], int]] = {
    FaultKind.DEAD_WRITES: _settle_writes,
    FaultKind.DEAD_RUNS: _give_back_leases,
    FaultKind.TRASHED_DOCUMENTS: _settle_trash,
    FaultKind.ORPHAN_CHUNKS: _remove_orphan_chunks,
    FaultKind.MISSING_VERSIONS: _forget_lost_versions,
    FaultKind.ORPHAN_TEXTS: _remove_orphan_texts,
    FaultKind.LOST_FILES: _forget_lost_files,
    FaultKind.LARGE_CACHE: _evict_cache,
}
