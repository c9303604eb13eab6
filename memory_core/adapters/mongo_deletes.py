"""Deletion. In: a selector. Out: what was removed; body and attributes wait in the trash for the grace period.

What happens when the grace period has ended is in `mongo_sweeps`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bson import ObjectId
from bson.errors import InvalidId
from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from memory_core.adapters.mongo_connection import MongoConnection, Row, run_transaction
from memory_core.adapters.mongo_indexes import CHUNKS, DOCUMENTS, TRASH
from memory_core.errors import ConflictError, ValidationError
from memory_core.models import Deletion
from memory_core.ports import DeleteSelector

_MAX_TRIES = 5


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
            return run_transaction(
                connection,
                lambda session: _delete(
                    connection, condition, now=now, trash_days=trash_days, dry_run=False, session=session
                ),
            )
        except _MovedError:
            continue
    raise ConflictError("The document kept changing while it was to be deleted. Try again when its writers are done.")


def _condition(selector: DeleteSelector, feed: str | None) -> Row:
    given = [
        bool(selector.source_ids),
        selector.document_id is not None,
        bool(selector.tags),
        bool(selector.revisions),
    ]
    if sum(given) != 1:
        raise ValidationError("Say exactly one of sourceId, documentId and tags to name what to delete.")
    condition: Row = {"feed": feed} if feed else {}
    if selector.revisions:
        condition["$or"] = [
            {"sourceId": source_id, "revision": revision} for source_id, revision in selector.revisions.items()
        ]
    elif selector.source_ids:
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
