"""Deletion. In: a selector. Out: what was removed; body and attributes wait in the trash for the grace period.

What happens when the grace period has ended is in `mongo_sweeps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bson import ObjectId
from bson.errors import InvalidId
from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from memory_core.adapters.mongo_connection import MongoConnection, Row, run_transaction
from memory_core.adapters.mongo_indexes import CHUNKS, DOCUMENTS, TRASH
from memory_core.adapters.mongo_intents import Intent, announced
from memory_core.answers import Deletion
from memory_core.errors import ConflictError, ValidationError
from memory_core.models import Holder
from memory_core.store_ports import DeleteSelector

_MAX_TRIES = 5
# Of one transaction: deleting a row brings it and its neighbours, with their vectors, into the server's cache.
_ROWS_IN_A_TRANSACTION = 5_000
_DOCUMENTS_AT_ONCE = 1_000


class _MovedError(Exception):
    """A document changed between its reading and its removal: look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRules:
    """What holds for every deletion of a store. `atomic`: the server has transactions."""

    trash_days: int
    holder: Holder
    atomic: bool


def delete_documents(
    connection: MongoConnection,
    selector: DeleteSelector,
    *,
    now: datetime,
    feed: str | None,
    rules: DeleteRules,
    dry_run: bool,
) -> Deletion:
    """Move the selected documents to the trash.

    Raises:
        ValidationError: not exactly one selector, or an id that is none.
        ConflictError: a document was stored again and again while it was to be deleted.
    """
    condition = _condition(selector, feed)
    expires_at = now + timedelta(days=rules.trash_days)
    keep: Row = {"deletedAt": now, "expiresAt": expires_at}
    names: list[str] = []
    rows_removed = 0
    for _ in range(_MAX_TRIES):
        found = list(connection.collection(DOCUMENTS).find(condition))
        if dry_run:
            return _preview(connection, found)
        moved = False
        # Without transactions each is a deletion of its own: what is removed stays removed.
        for group in [found] if rules.atomic and found else [[row] for row in found]:
            try:
                rows_removed += _delete(connection, group, keep, rules=rules)
                names += [row["sourceId"] for row in group]
            except _MovedError:
                moved = True
        if not moved:
            return Deletion(
                source_ids=tuple(names),
                deleted_documents=len(names),
                deleted_chunks=rows_removed,
                restorable_until=expires_at if names else None,
            )
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


def _preview(connection: MongoConnection, found: Sequence[Row]) -> Deletion:
    ids = [row["_id"] for row in found]
    count = connection.collection(CHUNKS).count_documents({"documentId": {"$in": ids}}) if ids else 0
    names = tuple(row["sourceId"] for row in found)
    return Deletion(source_ids=names, deleted_documents=len(ids), deleted_chunks=count, dry_run=True)


def _delete(connection: MongoConnection, found: Sequence[Row], keep: Row, *, rules: DeleteRules) -> int:
    """Returns how many rows went: in the transaction, or after it where they are too many, as nobody reads them then.

    Raises:
        _MovedError: one of them is not what was read any more; nothing was removed.
    """
    ids = [row["_id"] for row in found]
    takes_rows = rules.atomic and sum(row["chunking"]["chunkCount"] for row in found) <= _ROWS_IN_A_TRANSACTION

    def remove(session: ClientSession | None) -> int:
        _move_to_trash(connection, found, keep, session)
        return _delete_rows(connection, ids, session) if takes_rows else 0

    if takes_rows:
        return run_transaction(connection, remove)
    with announced(connection, Intent(key=str(ObjectId()), document_ids=ids), holder=rules.holder):
        if rules.atomic:
            run_transaction(connection, remove)
        else:
            remove(None)
        return _delete_rows(connection, ids, None)


def _move_to_trash(connection: MongoConnection, found: Sequence[Row], keep: Row, session: ClientSession | None) -> None:
    """The trash first, the document next, its rows last: no text is without an owner, no row without its document."""
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
    removed = 0
    for start in range(0, len(found), _DOCUMENTS_AT_ONCE):
        some = found[start : start + _DOCUMENTS_AT_ONCE]
        condition = {"$or": [{"_id": row["_id"], "revision": row["revision"]} for row in some]}
        removed += connection.collection(DOCUMENTS).delete_many(condition, session=session).deleted_count
    if removed != len(found):
        if session is None:
            _take_back_trash(connection, [row["_id"] for row in found])
        raise _MovedError


def _delete_rows(connection: MongoConnection, ids: Sequence[ObjectId], session: ClientSession | None) -> int:
    chunks = connection.collection(CHUNKS)
    return sum(
        chunks.delete_many(
            {"documentId": {"$in": list(ids[start : start + _DOCUMENTS_AT_ONCE])}}, session=session
        ).deleted_count
        for start in range(0, len(ids), _DOCUMENTS_AT_ONCE)
    )


def _take_back_trash(connection: MongoConnection, ids: list[ObjectId]) -> None:
    """Without a transaction: a document that is still there must not stand in the trash too."""
    alive = [row["_id"] for row in connection.collection(DOCUMENTS).find({"_id": {"$in": ids}}, {"_id": 1})]
    connection.collection(TRASH).delete_many({"_id": {"$in": alive}})
