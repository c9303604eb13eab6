"""MemoryStore on MongoDB. In: what the core asks. Out: values; no listing reads a body and no decision a vector.

The client is synchronous and every call runs in a thread: an asynchronous client belongs to one event loop, and flow
runs have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from bson import ObjectId
from bson.errors import InvalidId
from pymongo.errors import OperationFailure

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server
from memory_core.adapters.mongo_deletes import DeleteRules, delete_documents
from memory_core.adapters.mongo_errors import UNAUTHORIZED, error_codes
from memory_core.adapters.mongo_filters import find_document_ids
from memory_core.adapters.mongo_health import Watcher, check_health
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, TRASH, create_indexes
from memory_core.adapters.mongo_intents import NOBODY, believe_alive
from memory_core.adapters.mongo_listing import list_sources
from memory_core.adapters.mongo_migrations import migrate
from memory_core.adapters.mongo_past import find_documents, read_past_rows
from memory_core.adapters.mongo_repair import forget_versions, mend
from memory_core.adapters.mongo_schema import apply_validators
from memory_core.adapters.mongo_spaces import MongoSpaces, read_space
from memory_core.adapters.mongo_sweeps import USUAL_RETENTION, Retention, living_ids, sweep
from memory_core.adapters.mongo_trash import count_traces, read_traces, read_trash, remove_traces, renew_lineage
from memory_core.adapters.mongo_writes import WriteRules, write_group, write_in_parts
from memory_core.answers import (
    ChunkRow,
    Deletion,
    DocumentChange,
    HitRow,
    Purge,
    SearchFilters,
    SourceListing,
    StoredDocument,
    TrashedDocument,
)
from memory_core.errors import ForeignDatabaseError, NotFoundError
from memory_core.health import NO_LIMITS, FaultKind, HealthLimits, Mended, StoreHealth
from memory_core.models import ChunkTally, DocumentState, EmbeddedDocument, Fingerprint, Holder, PastRow, StoredChunkKey
from memory_core.spaces import refuse_other
from memory_core.store_ports import ActiveSpace, DeleteSelector, DocumentWrite, ListQuery, SchemaChange, WriteResult

_TRANSACTION_SHARE_OF_CACHE = 0.08
# Where serverStatus is not allowed: the smallest cache that MongoDB accepts, so that the guard errs on the safe side.
_SMALLEST_CACHE_BYTES = 256 * 1024 * 1024


class MongoStore(MongoSpaces):
    """Documents, bodies and chunk rows in one database."""

    def __init__(
        self,
        connection: MongoConnection,
        *,
        versions_kept: int,
        trash_days: int = 7,
        holder: Holder = NOBODY,
        is_alive: Callable[[Holder], bool] = believe_alive,
        retention: Retention = USUAL_RETENTION,
    ) -> None:
        super().__init__(connection)
        self._versions_kept = versions_kept
        self._trash_days = trash_days
        self._holder = holder
        self._is_alive = is_alive
        self._retention = retention
        self._prepared: ActiveSpace | None = None
        self._asked: tuple[str, str | None] | None = None
        self._has_transactions: bool | None = None
        self._budget_bytes: int | None = None

    # --- meta ---

    async def prepare(self, fingerprint: Fingerprint, *, recipe: str | None = None) -> ActiveSpace:
        """See MemoryStore."""
        asked = (fingerprint.key, recipe)
        if self._prepared is None or self._asked != asked:
            self._prepared = await self._connection.run(self._prepare, fingerprint, recipe)
            self._asked = asked
        return self._prepared

    def _prepare(self, fingerprint: Fingerprint, recipe: str | None) -> ActiveSpace:
        space = self._settle_space(fingerprint, recipe)
        apply_validators(self._connection.database)
        create_indexes(self._connection.database)
        sweep(self._connection, is_alive=self._is_alive, retention=self._retention)
        return space

    async def migrate(self, *, dry_run: bool = False) -> SchemaChange:
        """See MemoryStore."""
        return await self._connection.run(migrate, self._connection, dry_run=dry_run)

    # --- states ---

    async def read_states(
        self, source_ids: Sequence[str], document_ids: Sequence[str] = ()
    ) -> Mapping[str, DocumentState]:
        """See MemoryStore."""
        condition: Row = {"sourceId": {"$in": list(source_ids)}}
        if document_ids:
            condition = {"$or": [condition, {"_id": {"$in": [ObjectId(one) for one in document_ids]}}]}
        return await self._connection.run(self._read_states, condition)

    async def read_feed_states(self, feed: str) -> Mapping[str, DocumentState]:
        """See MemoryStore."""
        return await self._connection.run(self._read_states, {"feed": feed})

    def _read_states(self, condition: Row) -> dict[str, DocumentState]:
        found = list(self._connection.collection(DOCUMENTS).find(condition, dict.fromkeys(rows.STATE_FIELDS, 1)))
        tallies = self._read_tallies([row["_id"] for row in found])
        return {row["sourceId"]: rows.read_state(row, tallies.get(row["_id"])) for row in found}

    def _read_tallies(self, ids: Sequence[ObjectId]) -> dict[ObjectId, ChunkTally]:
        if not ids:
            return {}
        # Every field of the group is in the index `chunks_tally`: no chunk row is read.
        pipeline: list[Mapping[str, Any]] = [
            {"$match": {"documentId": {"$in": list(ids)}}},
            {
                "$project": {
                    "_id": 0,
                    "documentId": 1,
                    "revision": 1,
                    "documentContentHash": 1,
                    "embeddingFingerprint": 1,
                }
            },
            {
                "$group": {
                    "_id": "$documentId",
                    "count": {"$sum": 1},
                    "revisions": {"$addToSet": "$revision"},
                    "contentHashes": {"$addToSet": "$documentContentHash"},
                    "fingerprints": {"$addToSet": "$embeddingFingerprint"},
                }
            },
        ]
        found = self._connection.collection(CHUNKS).aggregate(pipeline, hint="chunks_tally")
        return {row["_id"]: rows.read_tally(row) for row in found}

    async def read_chunk_keys(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[StoredChunkKey]]:
        """See MemoryStore."""
        return await self._connection.run(self._read_chunk_keys, document_ids)

    def _read_chunk_keys(self, document_ids: Sequence[str]) -> dict[str, list[StoredChunkKey]]:
        fields = dict.fromkeys(rows.KEY_FIELDS, 1)
        found = (
            self._connection.collection(CHUNKS)
            .find({"documentId": {"$in": [ObjectId(one) for one in document_ids]}}, fields)
            .sort([("documentId", 1), ("chunkIndex", 1)])
        )
        keys: dict[str, list[StoredChunkKey]] = {one: [] for one in document_ids}
        for row in found:
            keys[str(row["documentId"])].append(rows.read_chunk_key(row))
        return keys

    # --- writes ---

    async def transaction_budget_bytes(self) -> int:
        """See MemoryStore."""
        if self._budget_bytes is None:
            self._budget_bytes = await self._connection.run(self._read_budget)
        return self._budget_bytes

    def _read_budget(self) -> int:
        try:
            status = self._connection.client.admin.command("serverStatus", 1)
            cache_bytes = int(status["wiredTiger"]["cache"]["maximum bytes configured"])
        except KeyError:
            cache_bytes = _SMALLEST_CACHE_BYTES
        except OperationFailure as error:
            if UNAUTHORIZED not in error_codes(error):
                raise
            cache_bytes = _SMALLEST_CACHE_BYTES
        return int(cache_bytes * _TRANSACTION_SHARE_OF_CACHE)

    async def write_together(self, writes: Sequence[DocumentWrite], *, now: datetime) -> Sequence[WriteResult]:
        """See MemoryStore."""
        return await self._connection.run(self._write_together, writes, now)

    def _write_together(self, writes: Sequence[DocumentWrite], now: datetime) -> list[WriteResult]:
        self._refuse_retired_space(writes)
        return write_group(self._connection, writes, rules=self._rules(now), atomic=self._transactions())

    async def write_in_parts(self, write: EmbeddedDocument, *, now: datetime) -> WriteResult:
        """See MemoryStore."""
        return await self._connection.run(self._write_in_parts, write, now)

    def _write_in_parts(self, write: EmbeddedDocument, now: datetime) -> WriteResult:
        if not self._transactions():
            return self._write_together([write], now)[0]
        self._refuse_retired_space([write])
        return write_in_parts(self._connection, write, rules=self._rules(now))

    def _rules(self, now: datetime) -> WriteRules:
        return WriteRules(now=now, versions_kept=self._versions_kept, holder=self._holder)

    def _refuse_retired_space(self, writes: Sequence[DocumentWrite]) -> None:
        """Another process may have made another space, recipe or schema the active one since this one prepared."""
        spaces = {write.fingerprint.key for write in writes if isinstance(write, EmbeddedDocument)}
        space = read_space(self._connection) if spaces else None
        if space is None:
            return
        recipe = self._asked[1] if self._asked else None
        try:
            for fingerprint in sorted(spaces):
                refuse_other(space, fingerprint=fingerprint, recipe=recipe)
        except ForeignDatabaseError:
            self._prepared = None  # the next store is refused before it pays for vectors
            raise

    def _transactions(self) -> bool:
        if self._has_transactions is None:
            self._has_transactions = ask_server(self._connection).has_transactions
        return self._has_transactions

    async def delete(
        self, selector: DeleteSelector, *, now: datetime, dry_run: bool = False, feed: str | None = None
    ) -> Deletion:
        """See MemoryStore."""
        return await self._connection.run(self._delete, selector, now, dry_run=dry_run, feed=feed)

    def _delete(self, selector: DeleteSelector, now: datetime, *, dry_run: bool, feed: str | None) -> Deletion:
        return delete_documents(
            self._connection,
            selector,
            now=now,
            feed=feed,
            rules=DeleteRules(trash_days=self._trash_days, holder=self._holder, atomic=self._transactions()),
            dry_run=dry_run,
        )

    async def read_trash(self, identifier: str | None = None, *, limit: int = 50) -> Sequence[TrashedDocument]:
        """See MemoryStore."""
        return await self._connection.run(read_trash, self._connection, identifier, limit=limit)

    async def purge(self, identifier: str, *, dry_run: bool = False) -> Purge:
        """See MemoryStore."""
        return await self._connection.run(self._purge, identifier, dry_run)

    def _purge(self, identifier: str, dry_run: bool) -> Purge:  # noqa: FBT001 - private, called by position
        traces = read_traces(self._connection, identifier)
        if dry_run:
            return count_traces(self._connection, traces)
        now = ask_server(self._connection).now
        gone = [
            self._delete(DeleteSelector(document_id=str(one)), now, dry_run=False, feed=None)
            for one in traces.document_ids
        ]
        deleted = {
            DOCUMENTS: sum(one.deleted_documents for one in gone),
            CHUNKS: sum(one.deleted_chunks for one in gone),
        }
        # Again, for what was stored until the deletion.
        purge = remove_traces(self._connection, read_traces(self._connection, identifier), deleted=deleted)
        return replace(purge, lineage=renew_lineage(self._connection))

    # --- reads ---

    async def read_document(self, identifier: str) -> StoredDocument | None:
        """See MemoryStore."""
        return await self._connection.run(self._read_document, identifier)

    def _read_document(self, identifier: str) -> StoredDocument | None:
        documents = self._connection.collection(DOCUMENTS)
        object_id = _object_id(identifier)
        row = documents.find_one({"_id": object_id}) if object_id else None
        row = row or documents.find_one({"sourceId": identifier})
        if row is None:
            return None
        return rows.read_stored_document(row, self._read_tallies([row["_id"]]).get(row["_id"]))

    async def read_body(self, body_id: str) -> str:
        """See MemoryStore."""
        return await self._connection.run(self._read_body, body_id)

    def _read_body(self, body_id: str) -> str:
        parts = self._connection.collection(CONTENTS).find({"bodyId": body_id}, {"_id": 0, "text": 1}).sort("part", 1)
        text = "".join(row["text"] for row in parts)
        if not text:
            raise NotFoundError("That version is no longer kept. `memory get` without a version shows the newest.")
        return text

    async def list_sources(self, query: ListQuery) -> SourceListing:
        """See MemoryStore."""
        return await list_sources(self._connection, query, read_tallies=self._read_tallies)

    async def read_hits(self, chunk_ids: Sequence[str]) -> Mapping[str, HitRow]:
        """See MemoryStore."""
        return await self._connection.run(self._read_hits, chunk_ids)

    def _read_hits(self, chunk_ids: Sequence[str]) -> dict[str, HitRow]:
        found = list(
            self._connection.collection(CHUNKS).find(
                {"_id": {"$in": [ObjectId(one) for one in chunk_ids]}}, dict.fromkeys(rows.HIT_FIELDS, 1)
            )
        )
        owners = self._connection.collection(DOCUMENTS).find(
            {"_id": {"$in": list({row["documentId"] for row in found})}}, {"revision": 1}
        )
        revisions = {row["_id"]: row["revision"] for row in owners}
        return {
            str(row["_id"]): rows.read_hit_row(row)
            for row in found
            if revisions.get(row["documentId"]) == row["revision"]
        }

    async def find_document_ids(self, filters: SearchFilters) -> frozenset[str]:
        """See MemoryStore."""
        return await self._connection.run(find_document_ids, self._connection, filters)

    async def read_changes(self, since: datetime | None) -> tuple[Sequence[DocumentChange], datetime]:
        """See MemoryStore."""
        return await self._connection.run(self._read_changes, since)

    def _read_changes(self, since: datetime | None) -> tuple[list[DocumentChange], datetime]:
        # The clock is read first: what is committed while the lists are read is found again next time.
        now = ask_server(self._connection).now
        condition: Row = {"committedAt": {"$gte": since}} if since else {}
        live = self._connection.collection(DOCUMENTS).find(condition, {"revision": 1, "committedAt": 1})
        changes = [
            DocumentChange(document_id=str(row["_id"]), revision=row["revision"], committed_at=row["committedAt"])
            for row in live
        ]
        if since:
            gone = list(self._connection.collection(TRASH).find(condition, {"committedAt": 1}))
            alive = living_ids(self._connection, [row["_id"] for row in gone])  # after a deletion that was cut off
            changes += [
                DocumentChange(document_id=str(row["_id"]), revision=None, committed_at=row["committedAt"])
                for row in gone
                if row["_id"] not in alive
            ]
        return changes, now

    async def read_chunk_rows(self, document_ids: Sequence[str]) -> Sequence[ChunkRow]:
        """See MemoryStore."""
        return await self._connection.run(self._read_chunk_rows, document_ids)

    def _read_chunk_rows(self, document_ids: Sequence[str]) -> list[ChunkRow]:
        fields = dict.fromkeys(rows.INDEX_FIELDS, 1)
        found = self._connection.collection(CHUNKS).find(
            {"documentId": {"$in": [ObjectId(one) for one in document_ids]}}, fields
        )
        return [rows.read_index_row(row) for row in found]

    async def find_documents(self, *, after: str | None, limit: int) -> Sequence[StoredDocument]:
        """See MemoryStore."""
        return await self._connection.run(find_documents, self._connection, after, limit, self._read_tallies)

    async def read_past_rows(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[PastRow]]:
        """See MemoryStore."""
        return await self._connection.run(read_past_rows, self._connection, document_ids)

    async def check_health(self, limits: HealthLimits = NO_LIMITS) -> StoreHealth:
        """See MemoryStore."""
        return await self._connection.run(lambda: check_health(self._connection, self._watch(limits)))

    async def mend(self, kinds: Collection[FaultKind], limits: HealthLimits = NO_LIMITS) -> Sequence[Mended]:
        """See MemoryStore."""
        return await self._connection.run(lambda: mend(self._connection, kinds, self._watch(limits)))

    def _watch(self, limits: HealthLimits) -> Watcher:
        return Watcher(transactions=self._transactions(), is_alive=self._is_alive, limits=limits)

    async def forget_versions(self, document_id: str, versions: Collection[int]) -> int:
        """See MemoryStore."""
        return await self._connection.run(forget_versions, self._connection, ObjectId(document_id), versions)

    async def close(self) -> None:
        """See MemoryStore."""
        await self._connection.close()


def _object_id(text: str) -> ObjectId | None:
    try:
        return ObjectId(text)
    except InvalidId:
        return None
