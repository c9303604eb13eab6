"""The one order of writes. In: whole documents. Out: what became of each; it never reads a text or a vector.

Rows under the next revision, then the flip of the document by compare-and-swap, then deletion of what is left over.
A transaction merely wraps that order. Without one (stand-alone server) the order can only under-populate a document,
never mix it, because readers drop rows whose revision is not their document's; the next store of it heals.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from bson import ObjectId
from pymongo import InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_compare import LostRaceError, Step, compare, is_new_content
from memory_core.adapters.mongo_connection import MongoConnection, Row, run_transaction
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS
from memory_core.models import EmbeddedChunk, EmbeddedDocument
from memory_core.ports import DocumentWrite, WriteResult, WriteVerdict
from memory_core.wire import ingest_block

_DUPLICATE_KEY = 11000

_ChunkOperation: TypeAlias = InsertOne[Row] | ReplaceOne[Row] | UpdateOne | UpdateMany


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
        except LostRaceError:
            _undo_bare(connection, write)
            results.append(WriteResult(verdict=WriteVerdict.CONFLICT))
    return results


def _write_atomically(
    connection: MongoConnection, writes: Sequence[DocumentWrite], *, now: datetime, versions_kept: int
) -> list[WriteResult]:
    def attempt(session: ClientSession) -> list[WriteResult]:
        return _write_in_order(connection, writes, now=now, versions_kept=versions_kept, session=session)

    try:
        return run_transaction(connection, attempt)
    except LostRaceError as lost:
        return [
            WriteResult(verdict=WriteVerdict.CONFLICT if position in lost.positions else WriteVerdict.ABORTED)
            for position in range(len(writes))
        ]


def _write_in_order(
    connection: MongoConnection,
    writes: Sequence[DocumentWrite],
    *,
    now: datetime,
    versions_kept: int,
    session: ClientSession | None,
) -> list[WriteResult]:
    steps = compare(connection, writes, now=now, versions_kept=versions_kept, session=session)
    open_steps = [step for step in steps if not step.is_done]
    if open_steps:
        _write_bodies(connection, open_steps, session)
        _write_chunks(connection, open_steps, now=now, session=session)
        _flip(connection, open_steps, now=now, session=session)
        _delete_leftovers(connection, open_steps, session)
    return [WriteResult(verdict=WriteVerdict.WRITTEN, version=step.version) for step in steps]


def _write_bodies(connection: MongoConnection, steps: Sequence[Step], session: ClientSession | None) -> None:
    fresh = [step for step in steps if is_new_content(step.write) and not step.adopts_body]
    parts = [row for step in fresh for row in rows.body_rows(step.body_id, step.write.document.content)]
    if not parts:
        return
    contents = connection.collection(CONTENTS)
    if session is None:  # a bare attempt that failed half-way may have left parts of its own
        contents.delete_many({"bodyId": {"$in": [step.body_id for step in fresh]}})
    contents.insert_many(parts, ordered=False, session=session)


def _write_chunks(
    connection: MongoConnection, steps: Sequence[Step], *, now: datetime, session: ClientSession | None
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
        raise LostRaceError(frozenset(step.position for step in steps))


def _write_chunk(
    embedded: EmbeddedDocument, chunk: EmbeddedChunk, version: int, now: datetime, session: ClientSession | None
) -> _ChunkOperation:
    parent = rows.parent_fields(embedded.document)
    if chunk.vector is None:
        update = rows.kept_row_update(embedded, chunk, parent, version=version, now=now)
        return UpdateOne({"_id": ObjectId(chunk.chunk_id)}, update)
    row = rows.chunk_row(embedded, chunk, parent, version=version, now=now)
    # A bare attempt may meet rows of its own that an earlier one wrote before it failed.
    return InsertOne(row) if session else ReplaceOne({"_id": row["_id"]}, row, upsert=True)


def _flip(connection: MongoConnection, steps: Sequence[Step], *, now: datetime, session: ClientSession | None) -> None:
    """Make the new revisions current. The server's own clock stamps the commit: search indexes order by it."""
    operations = [_flip_one(step, now=now) for step in steps]
    try:
        result = connection.collection(DOCUMENTS).bulk_write(operations, ordered=True, session=session)
    except BulkWriteError as error:
        failed: list[Row] = (error.details or {}).get("writeErrors", [])
        entry: Row = failed[0] if failed else {}
        if entry.get("code") != _DUPLICATE_KEY:
            raise
        raise LostRaceError(frozenset({steps[int(entry["index"])].position})) from None
    if result.matched_count + result.upserted_count < len(steps):
        raise LostRaceError(_unflipped(connection, steps, session))


def _flip_one(step: Step, *, now: datetime) -> UpdateOne:
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
        fields |= {"bodyId": step.body_id, "ingest": ingest_block(document, now=now)}
    if base is None:
        fields |= {"createdAt": now, "updatedAt": now}
    elif is_new_content(write) or base.attributes != document.attributes or base.source_id != document.source_id:
        fields |= {"updatedAt": now}
    condition: Row = {"_id": ObjectId(document.document_id)}
    condition["revision"] = base.revision if base else {"$exists": False}
    return UpdateOne(condition, {"$set": fields, "$currentDate": {"committedAt": True}}, upsert=base is None)


def _unflipped(connection: MongoConnection, steps: Sequence[Step], session: ClientSession | None) -> frozenset[int]:
    found = connection.collection(DOCUMENTS).find(
        {"_id": {"$in": [ObjectId(step.write.document.document_id) for step in steps]}},
        {"revision": 1},
        session=session,
    )
    revisions = {str(row["_id"]): row["revision"] for row in found}
    return frozenset(
        step.position
        for step in steps
        if revisions.get(step.write.document.document_id) != step.write.document.revision
    )


def _delete_leftovers(connection: MongoConnection, steps: Sequence[Step], session: ClientSession | None) -> None:
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
    if is_new_content(write):
        connection.collection(CONTENTS).delete_many({"bodyId": write.document.revision})
