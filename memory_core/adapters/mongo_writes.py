"""The one order of writes. In: whole documents. Out: what became of each; it never reads a text or a vector.

Rows under the next revision, then the flip of the document by compare-and-swap, then deletion of what is left over.
A transaction merely wraps that order. Without one (stand-alone server) the order can only under-populate a document,
never mix it, because readers drop rows whose revision is not their document's; the next store of it heals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from bson import ObjectId
from pymongo import InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, TRASH
from memory_core.models import EmbeddedChunk, EmbeddedDocument
from memory_core.ports import DocumentWrite, WriteResult, WriteVerdict

_DUPLICATE_KEY = 11000

_ChunkOperation: TypeAlias = InsertOne[Row] | ReplaceOne[Row] | UpdateOne | UpdateMany


class _LostRaceError(Exception):
    """Some documents of the group were changed by another writer: undo the group."""

    def __init__(self, source_ids: frozenset[str]) -> None:
        super().__init__("compare-and-swap lost")
        self.source_ids = source_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One write with what the database says of its document at this moment."""

    write: DocumentWrite
    version: int
    versions: list[Row]
    dropped_bodies: list[str]
    is_done: bool = False


def write_group(
    connection: MongoConnection, writes: Sequence[DocumentWrite], *, now: datetime, versions_kept: int, atomic: bool
) -> list[WriteResult]:
    """Write the group in one transaction, or each document bare where the server has none."""
    if atomic:
        return _write_atomically(connection, writes, now=now, versions_kept=versions_kept)
    results: list[WriteResult] = []
    for write in writes:
        try:
            results += _write_in_order(connection, [write], now=now, versions_kept=versions_kept, session=None)
        except _LostRaceError:
            _undo_bare(connection, write)
            results.append(WriteResult(verdict=WriteVerdict.CONFLICT))
    return results


def _write_atomically(
    connection: MongoConnection, writes: Sequence[DocumentWrite], *, now: datetime, versions_kept: int
) -> list[WriteResult]:
    def attempt(session: ClientSession) -> list[WriteResult]:
        return _write_in_order(connection, writes, now=now, versions_kept=versions_kept, session=session)

    with connection.client.start_session() as session:
        try:
            return session.with_transaction(attempt)
        except _LostRaceError as lost:
            return [
                WriteResult(
                    verdict=WriteVerdict.CONFLICT
                    if write.document.source_id in lost.source_ids
                    else WriteVerdict.ABORTED
                )
                for write in writes
            ]


def _write_in_order(
    connection: MongoConnection,
    writes: Sequence[DocumentWrite],
    *,
    now: datetime,
    versions_kept: int,
    session: ClientSession | None,
) -> list[WriteResult]:
    steps = _compare(connection, writes, now=now, versions_kept=versions_kept, session=session)
    open_steps = [step for step in steps if not step.is_done]
    if open_steps:
        _write_bodies(connection, open_steps, session)
        _write_chunks(connection, open_steps, now=now, session=session)
        _flip(connection, open_steps, now=now, session=session)
        _delete_leftovers(connection, open_steps, session)
    return [WriteResult(verdict=WriteVerdict.WRITTEN, version=step.version) for step in steps]


def _compare(
    connection: MongoConnection,
    writes: Sequence[DocumentWrite],
    *,
    now: datetime,
    versions_kept: int,
    session: ClientSession | None,
) -> list[_Step]:
    """Read what the group is about to replace, once, and refuse it where another writer was first."""
    found = list(
        connection.collection(DOCUMENTS).find(
            {
                "$or": [
                    {"_id": {"$in": [ObjectId(write.document.document_id) for write in writes]}},
                    {"sourceId": {"$in": [write.document.source_id for write in writes]}},
                ]
            },
            {"sourceId": 1, "revision": 1, "version": 1, "versions": 1},
            session=session,
        )
    )
    by_id = {str(row["_id"]): row for row in found}
    holders = {row["sourceId"]: str(row["_id"]) for row in found}
    lost = frozenset(write.document.source_id for write in writes if _is_lost(write, by_id, holders))
    if lost:
        raise _LostRaceError(lost)
    new_ids = [write.document.source_id for write in writes if write.document.document_id not in by_id]
    trashed = _last_trashed_versions(connection, new_ids, session)
    return [
        _plan_step(
            write,
            by_id.get(write.document.document_id),
            last_version=trashed.get(write.document.source_id, 0),
            now=now,
            versions_kept=versions_kept,
        )
        for write in writes
    ]


def _is_lost(write: DocumentWrite, by_id: dict[str, Row], holders: dict[str, str]) -> bool:
    document = write.document
    row = by_id.get(document.document_id)
    if holders.get(document.source_id, document.document_id) != document.document_id:
        return True  # the source id belongs to another document now
    if row is None:
        return document.base is not None
    if row["revision"] == document.revision:
        return False  # our own earlier attempt was committed
    return document.base is None or row["revision"] != document.base.revision


def _last_trashed_versions(
    connection: MongoConnection, source_ids: Sequence[str], session: ClientSession | None
) -> dict[str, int]:
    """A source that was deleted goes on counting versions where it stopped."""
    if not source_ids:
        return {}
    found = connection.collection(TRASH).find(
        {"sourceId": {"$in": list(source_ids)}}, {"_id": 0, "sourceId": 1, "version": 1}, session=session
    )
    last: dict[str, int] = {}
    for row in found:
        last[row["sourceId"]] = max(row["version"], last.get(row["sourceId"], 0))
    return last


def _plan_step(write: DocumentWrite, row: Row | None, *, last_version: int, now: datetime, versions_kept: int) -> _Step:
    document = write.document
    versions: list[Row] = list(row["versions"]) if row else []
    version: int = row["version"] if row else last_version
    if row and row["revision"] == document.revision:
        return _Step(write=write, version=version, versions=versions, dropped_bodies=[], is_done=True)
    if not is_new_content(write):
        return _Step(write=write, version=version, versions=versions, dropped_bodies=[])
    entry = {
        "version": version + 1,
        "bodyId": body_id_of(write),
        "contentHash": document.content_hash,
        "contentLength": len(document.content),
        "storedAt": now,
        "ingest": rows.ingest_block(document, now),
    }
    kept = [*versions, entry][-versions_kept:]
    dropped = [old["bodyId"] for old in versions if old not in kept]
    return _Step(write=write, version=version + 1, versions=kept, dropped_bodies=dropped)


def is_new_content(write: DocumentWrite) -> bool:
    """True where the write brings a text that the document does not have now: only that makes a version."""
    base = write.document.base
    return base is None or base.content_hash != write.document.content_hash


def body_id_of(write: DocumentWrite) -> str:
    """The staged body that is adopted, else one named by this write's revision (which is unique)."""
    return write.document.body_id or write.document.revision


def _write_bodies(connection: MongoConnection, steps: Sequence[_Step], session: ClientSession | None) -> None:
    texts = [step.write for step in steps if is_new_content(step.write) and step.write.document.body_id is None]
    parts = [row for write in texts for row in rows.body_rows(body_id_of(write), write.document.content)]
    if not parts:
        return
    contents = connection.collection(CONTENTS)
    if session is None:  # a bare attempt that failed half-way may have left parts of its own
        contents.delete_many({"bodyId": {"$in": [body_id_of(write) for write in texts]}})
    contents.insert_many(parts, ordered=False, session=session)


def _write_chunks(
    connection: MongoConnection, steps: Sequence[_Step], *, now: datetime, session: ClientSession | None
) -> None:
    operations: list[_ChunkOperation] = []
    expected_matches = 0
    for step in steps:
        write = step.write
        if isinstance(write, EmbeddedDocument):
            operations += [_write_chunk(write, chunk, step.version, now, session) for chunk in write.chunks]
            expected_matches += sum(chunk.vector is None for chunk in write.chunks)
        elif base := write.document.base:
            condition = {"documentId": ObjectId(base.document_id), "revision": base.revision}
            operations.append(UpdateMany(condition, {"$set": {**rows.parent_fields(write.document), "updatedAt": now}}))
            expected_matches += base.chunk_count
    if not operations:
        return
    result = connection.collection(CHUNKS).bulk_write(operations, ordered=False, session=session)
    if session and result.matched_count != expected_matches:
        # Rows that were to be kept are gone: everybody looks again, and finds the document short.
        raise _LostRaceError(frozenset(step.write.document.source_id for step in steps))


def _write_chunk(
    embedded: EmbeddedDocument, chunk: EmbeddedChunk, version: int, now: datetime, session: ClientSession | None
) -> _ChunkOperation:
    parent = rows.parent_fields(embedded.document)
    if chunk.vector is None:
        update = rows.kept_row_update(embedded, chunk, parent, version=version, now=now)
        return UpdateOne({"_id": ObjectId(chunk.chunk_id)}, {"$set": update})
    row = rows.chunk_row(embedded, chunk, parent, version=version, now=now)
    # A bare attempt may meet rows of its own that an earlier one wrote before it failed.
    return InsertOne(row) if session else ReplaceOne({"_id": row["_id"]}, row, upsert=True)


def _flip(connection: MongoConnection, steps: Sequence[_Step], *, now: datetime, session: ClientSession | None) -> None:
    """Make the new revisions current. The server's own clock stamps the commit: search indexes order by it."""
    operations = [_flip_one(step, now=now) for step in steps]
    try:
        result = connection.collection(DOCUMENTS).bulk_write(operations, ordered=True, session=session)
    except BulkWriteError as error:
        failed: list[Row] = (error.details or {}).get("writeErrors", [])
        entry: Row = failed[0] if failed else {}
        if entry.get("code") != _DUPLICATE_KEY:
            raise
        raise _LostRaceError(frozenset({steps[int(entry["index"])].write.document.source_id})) from None
    if result.matched_count + result.upserted_count < len(steps):
        raise _LostRaceError(_unflipped(connection, steps, session))


def _flip_one(step: _Step, *, now: datetime) -> UpdateOne:
    write, document, base = step.write, step.write.document, step.write.document.base
    fields: Row = {
        **rows.attribute_fields(document),
        "revision": document.revision,
        "version": step.version,
        "versions": step.versions,
    }
    if isinstance(write, EmbeddedDocument):
        fields |= rows.content_fields(write)
    if is_new_content(write):
        fields |= {"bodyId": body_id_of(write), "ingest": rows.ingest_block(document, now)}
    if base is None:
        fields |= {"createdAt": now, "updatedAt": now}
    elif is_new_content(write) or base.attributes != document.attributes or base.source_id != document.source_id:
        fields |= {"updatedAt": now}
    condition: Row = {"_id": ObjectId(document.document_id)}
    condition["revision"] = base.revision if base else {"$exists": False}
    return UpdateOne(condition, {"$set": fields, "$currentDate": {"committedAt": True}}, upsert=base is None)


def _unflipped(connection: MongoConnection, steps: Sequence[_Step], session: ClientSession | None) -> frozenset[str]:
    wanted = {step.write.document.document_id: step.write.document for step in steps}
    flipped = {
        str(row["_id"])
        for row in connection.collection(DOCUMENTS).find(
            {"_id": {"$in": [ObjectId(one) for one in wanted]}}, {"revision": 1}, session=session
        )
        if row["revision"] == wanted[str(row["_id"])].revision
    }
    return frozenset(document.source_id for key, document in wanted.items() if key not in flipped)


def _delete_leftovers(connection: MongoConnection, steps: Sequence[_Step], session: ClientSession | None) -> None:
    """Remove rows of the revisions that the bases were read with, never those of a writer that came later."""
    stale = [step for step in steps if step.write.document.base and isinstance(step.write, EmbeddedDocument)]
    revisions = {
        revision
        for step in stale
        if step.write.document.base
        for revision in (*step.write.document.base.tally.revisions, step.write.document.base.revision)
    }
    if revisions:
        connection.collection(CHUNKS).delete_many(
            {
                "documentId": {"$in": [ObjectId(step.write.document.document_id) for step in stale]},
                "revision": {"$in": sorted(revisions)},
            },
            session=session,
        )
    dropped = [body for step in steps for body in step.dropped_bodies]
    if dropped:
        connection.collection(CONTENTS).delete_many({"bodyId": {"$in": dropped}}, session=session)


def _undo_bare(connection: MongoConnection, write: DocumentWrite) -> None:
    """Take back the rows of a bare write that lost its race; rows that it had moved are healed by the next store."""
    if not isinstance(write, EmbeddedDocument):
        return
    fresh = [ObjectId(chunk.chunk_id) for chunk in write.chunks if chunk.vector is not None]
    connection.collection(CHUNKS).delete_many({"_id": {"$in": fresh}, "revision": write.document.revision})
    if is_new_content(write) and write.document.body_id is None:
        connection.collection(CONTENTS).delete_many({"bodyId": body_id_of(write)})
