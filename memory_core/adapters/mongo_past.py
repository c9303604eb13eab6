"""Whole documents and rows, for a copy of a memory. In: a place to go on from, ids. Out: values; no body is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bson import ObjectId

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import CHUNKS, DOCUMENTS
from memory_core.answers import StoredDocument
from memory_core.models import ChunkTally, PastRow

_ROW_FIELDS = (*rows.KEY_FIELDS, "revision", "embedding", "embeddingWindows")


def find_documents(
    connection: MongoConnection,
    after: str | None,
    limit: int,
    read_tallies: Callable[[Sequence[ObjectId]], Mapping[ObjectId, ChunkTally]],
) -> list[StoredDocument]:
    """Documents by ascending id, from behind `after`."""
    condition: Row = {"_id": {"$gt": ObjectId(after)}} if after else {}
    found = list(connection.collection(DOCUMENTS).find(condition).sort("_id", 1).limit(limit))
    tallies = read_tallies([row["_id"] for row in found])
    return [rows.read_stored_document(row, tallies.get(row["_id"])) for row in found]


def read_past_rows(connection: MongoConnection, document_ids: Sequence[str]) -> dict[str, list[PastRow]]:
    """The rows of each document's current revision, by index, with their vectors."""
    ids = [ObjectId(one) for one in document_ids]
    owners = connection.collection(DOCUMENTS).find({"_id": {"$in": ids}}, {"revision": 1})
    revisions = {row["_id"]: row["revision"] for row in owners}
    found = (
        connection.collection(CHUNKS)
        .find({"documentId": {"$in": ids}}, dict.fromkeys(_ROW_FIELDS, 1))
        .sort([("documentId", 1), ("chunkIndex", 1)])
    )
    past: dict[str, list[PastRow]] = {one: [] for one in document_ids}
    for row in found:
        if revisions.get(row["documentId"]) == row["revision"]:
            past[str(row["documentId"])].append(
                PastRow(
                    key=rows.read_chunk_key(row),
                    vector=rows.decode_vector(row["embedding"]),
                    windows=row["embeddingWindows"],
                )
            )
    return past
