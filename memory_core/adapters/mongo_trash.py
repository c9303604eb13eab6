"""What was deleted: what can be restored of it, and the removal of every trace. In: an id. Out: values and counts.

A purge goes through a deletion, so that no reader sees half of it; the row of the trash goes last, so that a purge that
was cut off is finished by the same command.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from bson import ObjectId
from bson.errors import InvalidId

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server
from memory_core.adapters.mongo_indexes import (
    CHUNKS,
    CONTENTS,
    DOCUMENTS,
    EMBEDDING_CACHE,
    FEED_FILES,
    META,
    SUBMISSIONS,
    TRASH,
)
from memory_core.answers import Purge, TrashedDocument
from memory_core.errors import NotFoundError


def read_trash(connection: MongoConnection, identifier: str | None, *, limit: int) -> list[TrashedDocument]:
    """Deleted documents whose texts are still there, the last deleted first."""
    # A row that is a document too is left of a deletion that was cut off.
    condition: Row = {"expiresAt": {"$gt": ask_server(connection).now}, **_named(identifier)}
    found = list(connection.collection(TRASH).find(condition).sort([("expiresAt", -1), ("_id", -1)]).limit(limit))
    alive = {
        row["_id"]
        for row in connection.collection(DOCUMENTS).find({"_id": {"$in": [row["_id"] for row in found]}}, {"_id": 1})
    }
    return [
        TrashedDocument(
            document=rows.read_stored_document(row, None), deleted_at=row["deletedAt"], expires_at=row["expiresAt"]
        )
        for row in found
        if row["_id"] not in alive
    ]


def read_traces(connection: MongoConnection, identifier: str) -> Traces:
    """Everything that is known of a document, deleted or not.

    Raises:
        NotFoundError: nothing is.
    """
    condition = _named(identifier)
    found = [row for name in (DOCUMENTS, TRASH) for row in connection.collection(name).find(condition, _TRACE_FIELDS)]
    traces = Traces(found, _find_submissions(connection, identifier, found))
    if not traces.source_ids and not traces.submissions:
        raise NotFoundError("There is no trace of such a document. `memory list` shows what is stored.")
    return traces


class Traces:
    """The rows of documents, trash and submissions that one purge is about."""

    def __init__(self, owners: Sequence[Row], submissions: Sequence[Row]) -> None:
        self.submissions = [row["_id"] for row in submissions]
        self.document_ids = sorted({row["_id"] for row in owners})
        self.source_ids = tuple(sorted({row["sourceId"] for row in owners}))
        versions = [entry for row in owners for entry in row.get("versions", [])]
        self.body_ids = sorted({entry["bodyId"] for entry in versions} | _given(row["bodyId"] for row in submissions))
        # The run of a directory is also the report of everything else that it stored.
        own = [entry["ingest"] for entry in versions if not entry["ingest"].get("feed")]
        self.flow_run_ids = tuple(sorted(_given(ingest.get("flowRunId") for ingest in own)))

    def conditions(self) -> dict[str, Row]:
        """What goes, by collection. The rows of the trash are last."""
        return {
            CONTENTS: {"bodyId": {"$in": self.body_ids}},
            CHUNKS: {"documentId": {"$in": self.document_ids}},
            SUBMISSIONS: {"_id": {"$in": self.submissions}},
            FEED_FILES: {"sourceId": {"$in": list(self.source_ids)}},
            # Its keys are hashes, which do not say whose texts they are of; what goes is only paid again.
            EMBEDDING_CACHE: {},
            TRASH: {"_id": {"$in": self.document_ids}},
        }


def count_traces(connection: MongoConnection, traces: Traces) -> Purge:
    """What a purge would remove."""
    removed = {name: connection.collection(name).count_documents(what) for name, what in traces.conditions().items()}
    removed[DOCUMENTS] = connection.collection(DOCUMENTS).count_documents({"_id": {"$in": traces.document_ids}})
    return _purge(traces, removed, dry_run=True)


def remove_traces(connection: MongoConnection, traces: Traces, *, deleted: dict[str, int]) -> Purge:
    """Remove what a deletion has left. `deleted` counts what that took away."""
    removed = dict(deleted)
    for name, condition in traces.conditions().items():
        count = connection.collection(name).delete_many(condition).deleted_count
        removed[name] = removed.get(name, 0) + count
    removed[TRASH] -= removed[DOCUMENTS]  # these only passed through it
    return _purge(traces, removed, dry_run=False)


def renew_lineage(connection: MongoConnection) -> str | None:
    """Give the database a new lineage, so that every search index is built anew. Returns the old one."""
    before = connection.collection(META).find_one_and_update({}, {"$set": {"lineage": uuid.uuid4().hex}})
    return before["lineage"] if before else None


def _purge(traces: Traces, removed: dict[str, int], *, dry_run: bool) -> Purge:
    return Purge(
        source_ids=traces.source_ids,
        removed={name: count for name, count in sorted(removed.items()) if count},
        flow_run_ids=traces.flow_run_ids,
        dry_run=dry_run,
    )


_TRACE_FIELDS = {"sourceId": 1, "versions.bodyId": 1, "versions.ingest": 1}


def _find_submissions(connection: MongoConnection, identifier: str, owners: Sequence[Row]) -> list[Row]:
    source_ids = sorted({identifier, *(row["sourceId"] for row in owners)})
    bodies = [entry["bodyId"] for row in owners for entry in row.get("versions", [])]
    condition = {
        "$or": [
            {"request.fields.sourceId": {"$in": source_ids}},
            {"outcome.sourceId": {"$in": source_ids}},
            {"bodyId": {"$in": bodies}},
        ]
    }
    return list(connection.collection(SUBMISSIONS).find(condition, {"bodyId": 1}))


def _named(identifier: str | None) -> Row:
    if identifier is None:
        return {}
    try:
        return {"$or": [{"sourceId": identifier}, {"_id": ObjectId(identifier)}]}
    except InvalidId:
        return {"sourceId": identifier}


def _given(values: Iterable[Any]) -> set[str]:
    return {value for value in values if value}
