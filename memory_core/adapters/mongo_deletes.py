"""Deletion. In: a selector. Out: what was removed; body and attributes wait in the trash for the grace period.

A row of the trash stays as a tombstone when its grace period has ended: search indexes learn of the deletion from it,
and a source that is stored again goes on counting versions.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bson import ObjectId
from bson.errors import InvalidId
from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, TRASH
from memory_core.errors import ConflictError, ValidationError
from memory_core.models import Deletion
from memory_core.ports import DeleteSelector

_SWEEP_LIMIT = 500
_MAX_TRIES = 5
_TOMBSTONE_FIELDS = ("sourceId", "version", "committedAt", "revision", "deletedAt")


class _MovedError(Exception):
    """A document changed between its reading and its removal: look again."""


def delete_documents(
    connection: MongoConnection,
    selector: DeleteSelector,
    *,
    now: datetime,
    feed: str | None,
    trash_days: int,
    dry_run: bool,
    atomic: bool,
) -> Deletion:
    """Move the selected documents to the trash.

    Raises:
        ValidationError: not exactly one selector, or an id that is none.
        ConflictError: a document was stored again and again while it was to be deleted.
    """
    condition = _condition(selector, feed)
    for _ in range(_MAX_TRIES):
        try:
            if not atomic or dry_run:
                return _delete(connection, condition, now=now, trash_days=trash_days, dry_run=dry_run, session=None)
            with connection.client.start_session() as session:
                return session.with_transaction(
                    lambda session: _delete(
                        connection, condition, now=now, trash_days=trash_days, dry_run=False, session=session
                    )
                )
        except _MovedError:
            continue
    raise ConflictError("The document kept changing while it was to be deleted. Try again when its writers are done.")


def _condition(selector: DeleteSelector, feed: str | None) -> Row:
    given = [bool(selector.source_ids), selector.document_id is not None, bool(selector.tags)]
    if sum(given) != 1:
        raise ValidationError("Say exactly one of sourceId, documentId and tags to name what to delete.")
    condition: Row = {"feed": feed} if feed else {}
    if selector.source_ids:
        condition["sourceId"] = {"$in": list(selector.source_ids)}
    elif selector.document_id is not None:
        try:
            condition["_id"] = ObjectId(selector.document_id)
        except InvalidId:
            raise ValidationError("documentId must be 24 hexadecimal digits. Use sourceId for your own ids.") from None
    else:
        condition["tags"] = {"$all": list(selector.tags)}
    return condition


def _delete(
    connection: MongoConnection,
    condition: Row,
    *,
    now: datetime,
    trash_days: int,
    dry_run: bool,
    session: ClientSession | None,
) -> Deletion:
    documents, chunks = connection.collection(DOCUMENTS), connection.collection(CHUNKS)
    found = list(documents.find(condition, session=session))
    ids = [row["_id"] for row in found]
    source_ids = tuple(row["sourceId"] for row in found)
    if dry_run or not found:
        count = chunks.count_documents({"documentId": {"$in": ids}}) if ids else 0
        return Deletion(source_ids=source_ids, deleted_documents=len(ids), deleted_chunks=count, dry_run=dry_run)
    # The trash first, the document next, its rows last: at no moment is a body without an owner or a row searchable
    # without its document.
    keep = {"deletedAt": now, "expiresAt": now + timedelta(days=trash_days)}
    connection.collection(TRASH).bulk_write(
        [
            UpdateOne(
                {"_id": row["_id"]},
                {
                    "$set": {**{key: value for key, value in row.items() if key not in {"_id", "committedAt"}}, **keep},
                    "$currentDate": {"committedAt": True},
                },
                upsert=True,
            )
            for row in found
        ],
        ordered=False,
        session=session,
    )
    removed = documents.delete_many(
        {"$or": [{"_id": row["_id"], "revision": row["revision"]} for row in found]}, session=session
    )
    if removed.deleted_count != len(found):
        if session is None:
            _take_back_trash(connection, ids)
        raise _MovedError
    deleted_chunks = chunks.delete_many({"documentId": {"$in": ids}}, session=session).deleted_count
    return Deletion(source_ids=source_ids, deleted_documents=len(found), deleted_chunks=deleted_chunks)


def _take_back_trash(connection: MongoConnection, ids: list[ObjectId]) -> None:
    """Without a transaction: a document that is still there must not stand in the trash too."""
    alive = [row["_id"] for row in connection.collection(DOCUMENTS).find({"_id": {"$in": ids}}, {"_id": 1})]
    connection.collection(TRASH).delete_many({"_id": {"$in": alive}})


def sweep_trash(connection: MongoConnection) -> int:
    """End the grace period of what expired: bodies and attributes go, a tombstone stays. Returns how many."""
    now = connection.client.admin.command("hello")["localTime"]
    trash = connection.collection(TRASH)
    expired = list(trash.find({"expiresAt": {"$lte": now}}).limit(_SWEEP_LIMIT))
    if not expired:
        return 0
    bodies = [entry["bodyId"] for row in expired for entry in row.get("versions", [])]
    connection.collection(CONTENTS).delete_many({"bodyId": {"$in": bodies}})
    trash.bulk_write(
        [
            UpdateOne(
                {"_id": row["_id"]},
                {"$unset": dict.fromkeys(set(row) - {"_id", *_TOMBSTONE_FIELDS}, "")},
            )
            for row in expired
        ],
        ordered=False,
    )
    return len(expired)
