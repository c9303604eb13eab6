"""The one order of writes. In: whole documents. Out: what became of each; it never reads a text or a vector.

Rows under the next revision, then the flip of the document by compare-and-swap, then deletion of what is left over.
A transaction merely wraps that order. Without one (stand-alone server) the order can only under-populate a document,
never mix it, because readers drop rows whose revision is not their document's; the next store of it heals. A document
that is too large for one transaction has its new rows written ahead of it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from bson import ObjectId
from pymongo import InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_compare import LostRaceError, Step, compare, is_new_content, new_body_ids
from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server, run_transaction
from memory_core.adapters.mongo_errors import error_codes
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, TRASH
from memory_core.adapters.mongo_intents import Intent, announced, remove_unowned, settle_own
from memory_core.adapters.mongo_kept_rows import move_kept_rows
from memory_core.models import EmbeddedDocument, Holder
from memory_core.store_ports import DocumentWrite, WriteResult, WriteVerdict

_DUPLICATE_KEY = 11000
# Rows of an insert outside of a transaction: about 9 MB with vectors of 1,024 numbers.
_ROWS_AT_ONCE = 2_000

_ChunkOperation: TypeAlias = InsertOne[Row] | ReplaceOne[Row] | UpdateOne | UpdateMany


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """What holds for every write of a store: the time, the versions kept, and who writes."""

    now: datetime
    versions_kept: int
    holder: Holder


def write_group(
    connection: MongoConnection, writes: Sequence[DocumentWrite], *, rules: WriteRules, atomic: bool
) -> list[WriteResult]:
    """Write the group in one transaction, or each document bare where the server has none."""
    if atomic:
        return _write_atomically(connection, writes, rules=rules)
    return [_write_bare(connection, write, rules=rules) for write in writes]


def write_in_parts(connection: MongoConnection, write: EmbeddedDocument, *, rules: WriteRules) -> WriteResult:
    """Write a document whose rows do not fit one transaction: new rows first, then one transaction that flips it.

    Nobody reads the new rows before the flip, as they are of a revision that is no document's. The transaction moves
    the rows that stay, whose vectors are not touched. What is left over goes after it: by then nobody reads that.
    """
    with announced(connection, _intent_of(write, moves_rows=False), holder=rules.holder):
        try:
            (step,) = compare(connection, [write], now=rules.now, versions_kept=rules.versions_kept, session=None)
        except LostRaceError:
            _undo(connection, write)
            return WriteResult(verdict=WriteVerdict.CONFLICT)
        if not step.is_done:
            _write_new_rows(connection, write, version=step.version, now=rules.now)
        (result,) = _write_atomically(connection, [write], rules=rules, in_parts=True)
        if result.verdict is WriteVerdict.WRITTEN:
            _delete_old_rows(connection, [write], session=None)
        else:
            _undo(connection, write)
    return result


def _write_bare(connection: MongoConnection, write: DocumentWrite, *, rules: WriteRules) -> WriteResult:
    key = write.document.revision
    try:
        (step,) = compare(connection, [write], now=rules.now, versions_kept=rules.versions_kept, session=None)
        if not step.is_done:
            intent = _intent_of(write, moves_rows=True, dropped_bodies=step.dropped_bodies)
            with announced(connection, intent, holder=rules.holder):
                _write_steps(connection, [step], now=rules.now, session=None)
    except LostRaceError:
        _undo(connection, write)
        settle_own(connection, key)
        return WriteResult(verdict=WriteVerdict.CONFLICT)
    if step.is_done:
        settle_own(connection, key)
    return WriteResult(verdict=WriteVerdict.WRITTEN, version=step.version)


def _intent_of(write: DocumentWrite, *, moves_rows: bool, dropped_bodies: Sequence[str] = ()) -> Intent:
    document = write.document
    return Intent(
        key=document.revision,
        document_ids=[ObjectId(document.document_id)],
        revision=document.revision,
        body_ids=[*new_body_ids(write), *dropped_bodies],
        moves_rows=moves_rows,
        replaced=_replaced_revisions(write),
    )


def _replaced_revisions(write: DocumentWrite) -> list[str]:
    """The revisions of all rows that the base was read with."""
    base = write.document.base
    return sorted({*base.tally.revisions, base.revision}) if base else []


def _write_atomically(
    connection: MongoConnection, writes: Sequence[DocumentWrite], *, rules: WriteRules, in_parts: bool = False
) -> list[WriteResult]:
    def attempt(session: ClientSession) -> list[WriteResult]:
        return _write_in_order(connection, writes, rules=rules, session=session, in_parts=in_parts)

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
    rules: WriteRules,
    session: ClientSession,
    in_parts: bool = False,
) -> list[WriteResult]:
    """The order. With `in_parts` the new rows are there already and the old ones go later."""
    steps = compare(connection, writes, now=rules.now, versions_kept=rules.versions_kept, session=session)
    open_steps = [step for step in steps if not step.is_done]
    if open_steps:
        _write_steps(connection, open_steps, now=rules.now, session=session, in_parts=in_parts)
    return [WriteResult(verdict=WriteVerdict.WRITTEN, version=step.version) for step in steps]


def _write_steps(
    connection: MongoConnection,
    steps: Sequence[Step],
    *,
    now: datetime,
    session: ClientSession | None,
    in_parts: bool = False,
) -> None:
    _write_bodies(connection, steps, session)
    _write_chunks(connection, steps, now=now, session=session, only_kept=in_parts)
    _flip(connection, steps, now=now, session=session)
    if not in_parts:
        _delete_old_rows(connection, [step.write for step in steps], session)
    _delete_replaced(connection, steps, session)


def _write_bodies(connection: MongoConnection, steps: Sequence[Step], session: ClientSession | None) -> None:
    texts = {body_id: text for step in steps for body_id, text in step.new_bodies.items()}
    parts = [row for body_id, text in texts.items() for row in rows.body_rows(body_id, text)]
    if not parts:
        return
    contents = connection.collection(CONTENTS)
    if session is None:  # a bare attempt that failed half-way may have left parts of its own
        contents.delete_many({"bodyId": {"$in": list(texts)}})
    contents.insert_many(parts, ordered=False, session=session)


def _write_new_rows(connection: MongoConnection, write: EmbeddedDocument, *, version: int, now: datetime) -> None:
    """Every row with a new vector, bare. Rows of an earlier attempt of this very write are there already."""
    new = rows.new_chunk_rows(write, version=version, now=now)
    for start in range(0, len(new), _ROWS_AT_ONCE):
        try:
            connection.collection(CHUNKS).insert_many(new[start : start + _ROWS_AT_ONCE], ordered=False)
        except BulkWriteError as error:
            if error_codes(error) != {_DUPLICATE_KEY}:
                raise


def _write_chunks(
    connection: MongoConnection,
    steps: Sequence[Step],
    *,
    now: datetime,
    session: ClientSession | None,
    only_kept: bool = False,
) -> None:
    operations: list[_ChunkOperation] = []
    expected_matches = 0
    for step in steps:
        write = step.write
        if isinstance(write, EmbeddedDocument):
            moves, matches = move_kept_rows(write, version=step.version, now=now)
            operations += moves
            expected_matches += matches
            if not only_kept:
                operations += _new_rows(write, version=step.version, now=now, session=session)
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


def _new_rows(
    write: EmbeddedDocument, *, version: int, now: datetime, session: ClientSession | None
) -> Iterator[_ChunkOperation]:
    for row in rows.new_chunk_rows(write, version=version, now=now):
        # A bare attempt may meet rows of its own, of an attempt that failed, but none of another document.
        mine = {"_id": row["_id"], "documentId": row["documentId"]}
        yield InsertOne(row) if session else ReplaceOne(mine, row, upsert=True)


def _flip(connection: MongoConnection, steps: Sequence[Step], *, now: datetime, session: ClientSession | None) -> None:
    """Make the new revisions current. The server's own clock stamps the commit: search indexes order by it."""
    new = [step for step in steps if step.write.document.base is None]
    if new:
        _insert_documents(connection, new, now=now, session=session)
    moved = [step for step in steps if step.write.document.base is not None]
    if not moved:
        return
    operations = [_flip_one(step, now=now) for step in moved]
    with _lost_by_duplicates(moved):
        result = connection.collection(DOCUMENTS).bulk_write(operations, ordered=True, session=session)
    if result.matched_count < len(moved):
        raise LostRaceError(_unflipped(connection, moved, session))


def _insert_documents(
    connection: MongoConnection, steps: Sequence[Step], *, now: datetime, session: ClientSession | None
) -> None:
    """Documents that are not there yet. An insert is several times as fast as an upsert; the time is asked for."""
    stamp = ask_server(connection).now
    documents: list[Row] = [
        {
            "_id": ObjectId(step.write.document.document_id),
            **_document_fields(step, now=now),
            "committedAt": stamp,
        }
        for step in steps
    ]
    with _lost_by_duplicates(steps):
        connection.collection(DOCUMENTS).insert_many(documents, ordered=True, session=session)


@contextmanager
def _lost_by_duplicates(steps: Sequence[Step]) -> Generator[None]:
    """Another writer has the source id, or the document, since the group was compared."""
    try:
        yield
    except BulkWriteError as error:
        failed: list[Row] = (error.details or {}).get("writeErrors", [])
        entry: Row = failed[0] if failed else {}
        if entry.get("code") != _DUPLICATE_KEY:
            raise
        raise LostRaceError(frozenset({steps[int(entry["index"])].position})) from None


def _flip_one(step: Step, *, now: datetime) -> UpdateOne:
    document = step.write.document
    base = document.base
    condition: Row = {"_id": ObjectId(document.document_id), "revision": base.revision if base else None}
    return UpdateOne(condition, {"$set": _document_fields(step, now=now), "$currentDate": {"committedAt": True}})


def _document_fields(step: Step, *, now: datetime) -> Row:
    """What the step changes of its document's row; all of it for a new one."""
    write, document, base = step.write, step.write.document, step.write.document.base
    fields: Row = {
        **rows.attribute_fields(document),
        "revision": document.revision,
        "version": step.version,
        "versions": step.versions,
    }
    if isinstance(write, EmbeddedDocument):
        fields |= rows.content_fields(write)
    if document.past or is_new_content(write):
        newest = step.versions[-1]
        fields |= {"bodyId": newest["bodyId"], "ingest": newest["ingest"]}
    if document.past:
        fields |= {"createdAt": document.past.created_at, "updatedAt": document.past.updated_at}
    elif base is None:
        fields |= {"createdAt": now, "updatedAt": now}
    elif is_new_content(write) or base.attributes != document.attributes or base.source_id != document.source_id:
        fields |= {"updatedAt": now}
    return fields


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


def _delete_old_rows(
    connection: MongoConnection, writes: Sequence[DocumentWrite], session: ClientSession | None
) -> None:
    """Remove rows of the revisions that the bases were read with, never those of a writer that came later."""
    stale = [write for write in writes if write.document.base and isinstance(write, EmbeddedDocument)]
    revisions = sorted({revision for write in stale for revision in _replaced_revisions(write)})
    if revisions:
        ids = [ObjectId(write.document.document_id) for write in stale]
        connection.collection(CHUNKS).delete_many(
            {"documentId": {"$in": ids}, "revision": {"$in": revisions}}, session=session
        )


def _delete_replaced(connection: MongoConnection, steps: Sequence[Step], session: ClientSession | None) -> None:
    """Remove texts that are no longer kept, and what stood in the trash and is a document again."""
    if dropped := [body for step in steps for body in step.dropped_bodies]:
        connection.collection(CONTENTS).delete_many({"bodyId": {"$in": dropped}}, session=session)
    if trashed := [ObjectId(step.write.document.document_id) for step in steps if step.leaves_trash]:
        connection.collection(TRASH).delete_many({"_id": {"$in": trashed}}, session=session)


def _undo(connection: MongoConnection, write: DocumentWrite) -> None:
    """Take back what a write that lost its race wrote bare; rows that it had moved are healed by the next store."""
    if not isinstance(write, EmbeddedDocument):
        return
    fresh = [ObjectId(chunk.chunk_id) for chunk in write.chunks if chunk.vector is not None]
    connection.collection(CHUNKS).delete_many({"_id": {"$in": fresh}, "revision": write.document.revision})
    remove_unowned(connection, ObjectId(write.document.document_id), new_body_ids(write))
