"""EmbeddingCache on MongoDB. In: vectors and written contexts by opaque keys. Out: the same, until they are evicted.

It knows no document, no text that was embedded, no provider. One row a key: `vector` and `windows`, or `text`; `bytes`
is what the size is counted in, `at` is when it was paid for, `expiresAt` is when the server forgets it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import EMBEDDING_CACHE, EMBEDDING_CACHE_AGE
from memory_core.adapters.mongo_rows import decode_vector, encode_vector
from memory_core.embedding_ports import CachedVector

# A key of 64 characters takes at most 77 bytes of a command, which may have 16 MB.
_KEYS_A_QUERY = 100_000
_ROWS_A_DELETE = 20_000
_OLDEST_FIRST = [("at", 1), ("_id", 1)]
_BY_AGE = EMBEDDING_CACHE_AGE
_CODE_DUPLICATE_KEY = 11000


class MongoEmbeddingCache:
    """What was paid for, in one collection; a row is kept for `days` and all of them in `max_bytes`.

    The size counts vectors and UTF-8 texts, without keys and indexes (about 330 bytes a row).
    """

    def __init__(self, connection: MongoConnection, *, days: int, max_bytes: int) -> None:
        self._connection = connection
        self._age = timedelta(days=days)
        self._max_bytes = max_bytes

    async def read_vectors(self, keys: Sequence[str]) -> Mapping[str, CachedVector]:
        """See EmbeddingCache."""
        return await self._connection.run(self._read_vectors, keys)

    def _read_vectors(self, keys: Sequence[str]) -> dict[str, CachedVector]:
        return {
            row["_id"]: CachedVector(vector=decode_vector(row["vector"]), windows=row["windows"])
            for row in self._find(keys, ["vector", "windows"])
            if "vector" in row
        }

    async def write_vectors(self, entries: Mapping[str, CachedVector], *, now: datetime) -> None:
        """See EmbeddingCache."""
        await self._connection.run(self._write_vectors, entries, now)

    def _write_vectors(self, entries: Mapping[str, CachedVector], now: datetime) -> None:
        rows: dict[str, Row] = {}
        for key, entry in entries.items():
            vector = encode_vector(entry.vector)
            rows[key] = {"vector": vector, "windows": entry.windows, "bytes": 4 * entry.vector.size}
        self._insert(rows, now)

    async def read_texts(self, keys: Sequence[str]) -> Mapping[str, str]:
        """See EmbeddingCache."""
        return await self._connection.run(self._read_texts, keys)

    def _read_texts(self, keys: Sequence[str]) -> dict[str, str]:
        return {row["_id"]: row["text"] for row in self._find(keys, ["text"]) if "text" in row}

    async def write_texts(self, entries: Mapping[str, str], *, now: datetime) -> None:
        """See EmbeddingCache."""
        await self._connection.run(self._write_texts, entries, now)

    def _write_texts(self, entries: Mapping[str, str], now: datetime) -> None:
        self._insert({key: {"text": text, "bytes": len(text.encode())} for key, text in entries.items()}, now)

    async def evict(self, *, now: datetime) -> int:
        """See EmbeddingCache."""
        oldest = now - self._age
        return await self._connection.run(evict_rows, self._rows(), oldest=oldest, max_bytes=self._max_bytes)

    def _rows(self) -> Collection[Row]:
        return self._connection.collection(EMBEDDING_CACHE)

    def _find(self, keys: Sequence[str], fields: list[str]) -> Iterator[Row]:
        for start in range(0, len(keys), _KEYS_A_QUERY):
            yield from self._rows().find({"_id": {"$in": list(keys[start : start + _KEYS_A_QUERY])}}, fields)

    def _insert(self, rows: Mapping[str, Row], now: datetime) -> None:
        """Insert what is not there yet. A row that another process inserts at the same moment is as good as ours."""
        if not rows:
            return
        times = {"at": now, "expiresAt": now + self._age}
        inserts = [UpdateOne({"_id": key}, {"$setOnInsert": row | times}, upsert=True) for key, row in rows.items()]
        try:
            self._rows().bulk_write(inserts, ordered=False)
        except BulkWriteError as error:
            if not _is_duplicate_only(error):
                raise


def evict_rows(rows: Collection[Row], *, oldest: datetime, max_bytes: int) -> int:
    """Delete what is older, then the oldest that do not fit the size. Returns how many."""
    evicted = _delete(rows, {"at": {"$lt": oldest}})
    total = next(rows.aggregate(total_since(oldest)), {"bytes": 0})["bytes"]
    if total > max_bytes:
        for first in rows.aggregate(first_beyond(max_bytes)):
            evicted += _delete(rows, _not_after(first))
    return evicted


def _delete(rows: Collection[Row], query: Row) -> int:
    """Delete a range of times, the oldest first, in slices that stay far from the time limit of a call.

    The hint: of itself the planner may go through the keys of the whole cache to find those of one time.
    """
    deleted = 0
    while edge := rows.find_one(query, ["at"], sort=_OLDEST_FIRST, skip=_ROWS_A_DELETE, hint=_BY_AGE):
        deleted += rows.delete_many(_not_after(edge), hint=_BY_AGE).deleted_count
    return deleted + rows.delete_many(query, hint=_BY_AGE).deleted_count


def total_since(oldest: datetime) -> list[Row]:
    """How many bytes there are. One pass over an index, in a tenth of the time of the running total."""
    return [{"$match": {"at": {"$gte": oldest}}}, {"$group": {"_id": None, "bytes": {"$sum": "$bytes"}}}]


def first_beyond(max_bytes: int) -> list[Row]:
    """The newest row that does not fit any more, counted from the newest of all; none where everything fits.

    Counted from the newest, the answer stays the same while another process deletes the oldest: two that evict at once
    do not delete twice as much. One pass over an index, without a sort.
    """
    newest_first = {"at": -1, "_id": -1}
    running_total = {"$sum": "$bytes", "window": {"documents": ["unbounded", "current"]}}
    return [
        {"$sort": newest_first},
        {"$project": {"at": 1, "bytes": 1}},
        {"$setWindowFields": {"sortBy": newest_first, "output": {"total": running_total}}},
        {"$match": {"total": {"$gt": max_bytes}}},
        {"$limit": 1},
    ]


def _not_after(row: Mapping[str, Any]) -> Row:
    """That row and everything older. Rows of one write have one time, so the key decides among them."""
    return {"$or": [{"at": {"$lt": row["at"]}}, {"at": row["at"], "_id": {"$lte": row["_id"]}}]}


def _is_duplicate_only(error: BulkWriteError) -> bool:
    details: Any = error.details
    codes = {entry["code"] for entry in details["writeErrors"]}
    return codes == {_CODE_DUPLICATE_KEY} and not details["writeConcernErrors"]
