"""Embedding spaces in MongoDB. In: what `meta` and the documents say. Out: the same as values, or the next `meta`.

`meta` has one row. It is changed by compare-and-set: two processes that change it at once decide one after the other,
each by the rules of `memory_core.spaces`. No body, text or vector leaves the server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bson import ObjectId
from pymongo.errors import DuplicateKeyError

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import CHUNKS, DOCUMENTS, META
from memory_core.adapters.mongo_leases import lease_row, read_holder
from memory_core.adapters.mongo_rows import read_options
from memory_core.answers import Coverage
from memory_core.errors import ForeignDatabaseError, NotFoundError
from memory_core.models import ContentType, Fingerprint, Holder
from memory_core.spaces import SCHEMA_VERSION, activate, adopt_recipe, declare, refuse_other_schema, refuse_other_space
from memory_core.store_ports import ActiveSpace, RowSizes, StoredEmbedding

META_ID = "memory"
_EMBEDDING_FIELDS = (
    "sourceId",
    "title",
    "uri",
    "contentType",
    "bodyId",
    "contentLength",
    "chunking",
    "embedding.fingerprint",
    "embedding.contextStale",
)


class MongoSpaces:
    """The part of MongoStore that knows of embedding spaces and of the lease of a re-embed."""

    def __init__(self, connection: MongoConnection) -> None:
        self._connection = connection

    async def read_active_space(self) -> ActiveSpace | None:
        """See MemoryStore."""
        return await self._connection.run(read_space, self._connection)

    async def declare_space(self, fingerprint: Fingerprint) -> ActiveSpace:
        """See MemoryStore."""
        return await self._connection.run(self._change_space, lambda space: declare(space, fingerprint.key))

    async def activate_space(self, fingerprint: Fingerprint, *, complete: bool) -> ActiveSpace:
        """See MemoryStore."""
        return await self._connection.run(
            self._change_space, lambda space: activate(space, fingerprint.key, complete=complete)
        )

    async def activate_recipe(self, recipe: str) -> ActiveSpace:
        """See MemoryStore."""
        return await self._connection.run(self._change_space, lambda space: replace(space, recipe=recipe))

    def _settle_space(self, fingerprint: Fingerprint, recipe: str | None) -> ActiveSpace:
        """What `meta` says to a process that is about to write; what is not said yet, it says.

        Raises:
            ForeignDatabaseError: this process must not write.
        """
        space = read_space(self._connection) or found_space(self._connection, fingerprint)
        refuse_other_schema(space)
        refuse_other_space(space, fingerprint.key)
        return space if recipe is None else self._change_space(lambda found: adopt_recipe(found, recipe), space)

    def _change_space(
        self, change: Callable[[ActiveSpace], ActiveSpace], found: ActiveSpace | None = None
    ) -> ActiveSpace:
        """Change `meta` by compare-and-set; `found` is what it was a moment ago, where that is known.

        Raises:
            ForeignDatabaseError: the database has another schema, or the change is refused.
            NotFoundError: nothing was ever stored.
        """
        before = found
        while True:
            before = before or read_space(self._connection)
            if before is None:
                raise nothing_stored()
            refuse_other_schema(before)
            after = change(before)
            if after == before:
                return after
            # A field that is missing equals None here.
            condition = {"_id": META_ID, "schemaVersion": before.schema_version, **_space_fields(before)}
            if self._connection.collection(META).update_one(condition, {"$set": _space_fields(after)}).matched_count:
                return after
            before = None

    async def count_coverage(self, fingerprint: str) -> Coverage:
        """See MemoryStore."""
        return await self._connection.run(count_coverage, self._connection, fingerprint)

    async def find_embedded(
        self, *, stale_in: str | None, source_ids: Sequence[str] = (), after: str | None = None, limit: int
    ) -> Sequence[StoredEmbedding]:
        """See MemoryStore."""
        condition: Row = {}
        if stale_in is not None:
            condition["$or"] = [{"embedding.fingerprint": {"$ne": stale_in}}, {"embedding.contextStale": True}]
        if source_ids:
            condition["sourceId"] = {"$in": list(source_ids)}
        if after is not None:
            condition["_id"] = {"$gt": ObjectId(after)}
        return await self._connection.run(self._find_embedded, condition, limit)

    def _find_embedded(self, condition: Row, limit: int) -> list[StoredEmbedding]:
        documents = self._connection.collection(DOCUMENTS)
        found = documents.find(condition, dict.fromkeys(_EMBEDDING_FIELDS, 1)).sort("_id", 1).limit(limit)
        return [_read_embedding(row) for row in found]

    async def measure_rows(self, document_ids: Sequence[str]) -> RowSizes:
        """See MemoryStore."""
        return await self._connection.run(self._measure_rows, document_ids)

    def _measure_rows(self, document_ids: Sequence[str]) -> RowSizes:
        pipeline: list[Mapping[str, Any]] = [
            {"$match": {"documentId": {"$in": [ObjectId(one) for one in document_ids]}}},
            {
                "$group": {
                    "_id": None,
                    "tokens": {"$sum": "$tokenCount"},
                    "contextChars": {"$sum": {"$strLenCP": "$context"}},
                }
            },
        ]
        for row in self._connection.collection(CHUNKS).aggregate(pipeline):
            return RowSizes(tokens=row["tokens"], context_chars=row["contextChars"])
        return RowSizes()

    # --- the lease of a re-embed ---

    async def acquire_reembed_lease(self, holder: Holder, *, seconds: float) -> Holder | None:
        """See MemoryStore."""
        return await self._connection.run(self._acquire_lease, holder, seconds)

    def _acquire_lease(self, holder: Holder, seconds: float) -> Holder | None:
        free = [
            {"lease": {"$exists": False}},
            {"lease.token": holder.token},
            {"$expr": {"$lt": ["$lease.until", "$$NOW"]}},
        ]
        if self._set_lease({"$or": free}, holder, seconds):
            return None
        row = self._connection.collection(META).find_one({"_id": META_ID}, {"lease": 1})
        if row is None:
            raise nothing_stored()
        return read_holder(row["lease"]) if "lease" in row else self._acquire_lease(holder, seconds)

    async def steal_reembed_lease(self, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """See MemoryStore."""
        return await self._connection.run(self._set_lease, {"lease.token": dead.token}, holder, seconds)

    def _set_lease(self, condition: Row, holder: Holder, seconds: float) -> bool:
        result = self._connection.collection(META).update_one(
            {"_id": META_ID, **condition}, [{"$set": {"lease": lease_row(holder, seconds)}}]
        )
        return result.matched_count == 1

    async def release_reembed_lease(self, holder: Holder) -> None:
        """See MemoryStore."""
        await self._connection.run(self._release_lease, holder)

    def _release_lease(self, holder: Holder) -> None:
        ours = {"_id": META_ID, "lease.token": holder.token}
        self._connection.collection(META).update_one(ours, {"$unset": {"lease": ""}})


def read_space(connection: MongoConnection) -> ActiveSpace | None:
    """What `meta` says, or None for a database that nothing was written to."""
    row = connection.collection(META).find_one({"_id": META_ID})
    if row is None:
        return None
    return ActiveSpace(
        schema_version=row["schemaVersion"],
        fingerprint=row["fingerprint"],
        lineage=row["lineage"],
        pending=row.get("pending"),
        previous=row.get("previous"),
        recipe=row.get("recipe"),
    )


def found_space(connection: MongoConnection, fingerprint: Fingerprint) -> ActiveSpace:
    """Make an empty database ours, of the newest schema. Two processes at once agree: the first insert wins."""
    refuse_foreign_rows(connection)
    row: Row = {
        "_id": META_ID,
        "schemaVersion": SCHEMA_VERSION,
        "fingerprint": fingerprint.key,
        "lineage": uuid.uuid4().hex,
    }
    try:
        connection.collection(META).insert_one(row)
    except DuplicateKeyError:
        space = read_space(connection)
        if space:
            return space
        raise
    return ActiveSpace(schema_version=SCHEMA_VERSION, fingerprint=fingerprint.key, lineage=row["lineage"])


def refuse_foreign_rows(connection: MongoConnection) -> None:
    """Leave a database alone that has no `meta` of ours and yet rows.

    Raises:
        ForeignDatabaseError: naming them.
    """
    for name in (DOCUMENTS, CHUNKS):
        if connection.collection(name).find_one({}, {"_id": 1}):
            raise ForeignDatabaseError(
                f"The database {connection.database.name!r} holds {name} that this program did not make. "
                "Nothing was written: set MONGODB_DB_NAME to an empty database."
            )


def count_coverage(connection: MongoConnection, fingerprint: str) -> Coverage:
    """How much is of that embedding space: one pass over an index that has all the fields."""
    pipeline: list[Mapping[str, Any]] = [
        # Every fingerprint is a text: the condition chooses the index that has all the fields.
        {"$match": {"embedding.fingerprint": {"$gte": ""}}},
        {"$project": {"_id": 0, "embedding.fingerprint": 1, "chunking.chunkCount": 1}},
        {
            "$group": {
                "_id": "$embedding.fingerprint",
                "documents": {"$sum": 1},
                "chunks": {"$sum": "$chunking.chunkCount"},
            }
        },
    ]
    found = list(connection.collection(DOCUMENTS).aggregate(pipeline))
    ours: Row = next((row for row in found if row["_id"] == fingerprint), {"documents": 0, "chunks": 0})
    return Coverage(
        fingerprint=fingerprint,
        documents=sum(row["documents"] for row in found),
        chunks=sum(row["chunks"] for row in found),
        covered_documents=ours["documents"],
        covered_chunks=ours["chunks"],
    )


def nothing_stored() -> NotFoundError:
    """There is no `meta` to change."""
    return NotFoundError("Nothing is stored yet, so there is nothing to embed again.")


def _space_fields(space: ActiveSpace) -> Row:
    return {
        "fingerprint": space.fingerprint,
        "pending": space.pending,
        "previous": space.previous,
        "recipe": space.recipe,
    }


def _read_embedding(row: Mapping[str, Any]) -> StoredEmbedding:
    chunking, embedding = row["chunking"], row["embedding"]
    return StoredEmbedding(
        document_id=str(row["_id"]),
        source_id=row["sourceId"],
        title=row["title"],
        uri=row["uri"],
        content_type=ContentType(row["contentType"]),
        body_id=row["bodyId"],
        content_length=row["contentLength"],
        recipe=chunking["recipe"],
        options=read_options(chunking),
        chunk_count=chunking["chunkCount"],
        fingerprint=embedding["fingerprint"],
        context_stale=embedding["contextStale"],
    )
