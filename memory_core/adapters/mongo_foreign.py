"""The database of mongodb-memory-mcp. In: its address and name. Out: its rows as they are; it sends no write.

Damage must not stop a read: bytes that are no UTF-8 become lone surrogates, and a date beyond what Python has a value
of another type. Whoever takes the rows finds both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, ParamSpec, TypeVar

from bson import CodecOptions, MaxKey, MinKey, ObjectId
from bson.codec_options import DatetimeConversion
from pymongo.collection import Collection

from memory_core.adapters.mongo_connection import MongoConnection, Row, connect
from memory_core.adapters.mongo_indexes import META
from memory_core.adapters.mongo_spaces import META_ID
from memory_core.errors import AgentMemoryError
from memory_core.migrate_ports import ForeignFacts, ForeignRow, OrphanedChunks, StrangeDocument

P = ParamSpec("P")
T = TypeVar("T")

_DOCUMENTS: Final = "documents"
_CHUNKS: Final = "chunks"
_FIELDS: Final = (
    "sourceId",
    "title",
    "uri",
    "contentType",
    "contentHash",
    "tags",
    "metadata",
    "ingest",
    "version",
    "createdAt",
    "updatedAt",
)
_ANY_BYTES: CodecOptions[Row] = CodecOptions(
    tz_aware=True,
    unicode_decode_error_handler="surrogateescape",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_LEAST_ID: Final = ObjectId("0" * 24)
# What sorts below all ObjectIds, and what sorts above them. (`min` and `max` compare across types, conditions do not.)
_STRANGE_IDS: tuple[tuple[Any, Any], ...] = ((MinKey(), _LEAST_ID), (False, MaxKey()))
_OWNERS_AT_ONCE: Final = 1_000
_OWN_VARIABLE: Final = "MONGODB_URI"


def open_foreign(uri: str, database: str, *, variable: str, server_selection_timeout_ms: int) -> MongoForeignMemory:
    """Make a client; nothing is sent yet. `variable` is the setting that the address is from, for messages.

    Raises:
        ConfigError: the address cannot be understood.
    """
    try:
        connection = connect(uri, database, max_pool_size=2, server_selection_timeout_ms=server_selection_timeout_ms)
    except AgentMemoryError as error:
        raise _about_source(error, variable) from None
    return MongoForeignMemory(connection, variable=variable)


class MongoForeignMemory:
    """A ForeignMemory on MongoDB."""

    def __init__(self, connection: MongoConnection, *, variable: str = _OWN_VARIABLE) -> None:
        self._connection = connection
        self._variable = variable
        self._documents = connection.database.get_collection(_DOCUMENTS, codec_options=_ANY_BYTES)
        self._chunks = connection.database.get_collection(_CHUNKS, codec_options=_ANY_BYTES)

    async def inspect(self) -> ForeignFacts:
        """See ForeignMemory."""
        return await self._ask(self._inspect)

    def _inspect(self) -> ForeignFacts:
        holds = [one.find_one({}, {"_id": 1}) is not None for one in (self._documents, self._chunks)]
        return ForeignFacts(
            documents=self._documents.estimated_document_count(),
            is_ours=self._connection.collection(META).find_one({"_id": META_ID}, {"_id": 1}) is not None,
            is_empty=not any(holds),
        )

    async def read_page(self, *, after: str | None, limit: int) -> Sequence[ForeignRow]:
        """See ForeignMemory."""
        return await self._ask(self._read_page, after, limit)

    def _read_page(self, after: str | None, limit: int) -> list[ForeignRow]:
        # A comparison with an ObjectId finds ObjectIds alone.
        condition = {"$gt": ObjectId(after)} if after else {"$gte": _LEAST_ID}
        found = self._documents.find({"_id": condition}, dict.fromkeys(_FIELDS, 1)).sort("_id", 1).limit(limit)
        return [ForeignRow(document_id=str(row.pop("_id")), fields=row) for row in found]

    async def read_content(self, document_id: str) -> object:
        """See ForeignMemory."""
        row = await self._ask(self._documents.find_one, {"_id": ObjectId(document_id)}, {"content": 1})
        return row.get("content") if row else None

    async def find_strange_documents(self) -> Sequence[StrangeDocument]:
        """See ForeignMemory."""
        return await self._ask(lambda: list(self._find_strange_documents()))

    def _find_strange_documents(self) -> Iterator[StrangeDocument]:
        for least, most in _STRANGE_IDS:
            found = self._documents.find({}, {"sourceId": 1}).hint([("_id", 1)])
            for row in found.min([("_id", least)]).max([("_id", most)]):
                yield StrangeDocument(shown_id=repr(row["_id"]), source_id=_text_or_none(row.get("sourceId")))

    async def find_shared_sources(self) -> Mapping[str, Sequence[str]]:
        """See ForeignMemory."""
        return await self._ask(self._find_shared_sources)

    def _find_shared_sources(self) -> dict[str, list[str]]:
        if _is_unique(self._documents, "sourceId"):
            return {}
        pipeline: list[Mapping[str, Any]] = [
            {"$group": {"_id": "$sourceId", "documents": {"$sum": 1}}},
            {"$match": {"documents": {"$gt": 1}, "_id": {"$type": "string"}}},
        ]
        found = (row["_id"] for row in self._documents.aggregate(pipeline, allowDiskUse=True))
        shared = [one for one in found if _is_text(one)]
        ids: dict[str, list[str]] = {one: [] for one in shared}
        for names in _in_groups(iter(shared)):
            for row in self._documents.find({"sourceId": {"$in": names}}, {"sourceId": 1}).sort("_id", 1):
                if isinstance(row["sourceId"], str):  # a list that has the text among others matches too
                    ids[row["sourceId"]].append(str(row["_id"]))
        return ids

    async def find_orphaned_chunks(self) -> Sequence[OrphanedChunks]:
        """See ForeignMemory."""
        return await self._ask(lambda: list(self._find_orphaned_chunks()))

    def _find_orphaned_chunks(self) -> Iterator[OrphanedChunks]:
        pipeline: list[Mapping[str, Any]] = [
            {"$sort": {"documentId": 1}},  # by the index, so that no chunk is read
            {"$group": {"_id": "$documentId", "chunks": {"$sum": 1}}},
        ]
        for groups in _in_groups(self._chunks.aggregate(pipeline, allowDiskUse=True)):
            proper = [group["_id"] for group in groups if isinstance(group["_id"], ObjectId)]
            there = {row["_id"] for row in self._documents.find({"_id": {"$in": proper}}, {"_id": 1})}
            for group in groups:
                owner, chunks = group["_id"], group["chunks"]
                if not isinstance(owner, ObjectId):
                    shown = None if owner is None else repr(owner)
                    yield OrphanedChunks(shown_id=shown, source_id=None, chunks=chunks)
                elif owner not in there:
                    chunk = self._chunks.find_one({"documentId": owner}, {"sourceId": 1}) or {}
                    named = _text_or_none(chunk.get("sourceId"))
                    yield OrphanedChunks(shown_id=str(owner), source_id=named, chunks=chunks)

    async def close(self) -> None:
        """See ForeignMemory."""
        await self._connection.close()

    async def _ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._connection.run(call, *args, **kwargs)
        except AgentMemoryError as error:
            raise _about_source(error, self._variable) from None


def _is_unique(collection: Collection[Row], field: str) -> bool:
    """Whether the server itself keeps two rows from having the same value."""
    return any(
        index.get("unique") and "partialFilterExpression" not in index and list(index["key"]) == [(field, 1)]
        for index in collection.index_information().values()
    )


def _in_groups(rows: Iterator[T]) -> Iterator[list[T]]:
    while group := list(islice(rows, _OWNERS_AT_ONCE)):
        yield group


def _is_text(value: str) -> bool:
    """Whether the server takes it in a question; broken bytes are found when the document is read."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _about_source(error: AgentMemoryError, variable: str) -> AgentMemoryError:
    """The same error, said of the source and with its own setting as the remedy."""
    message = error.message.replace(_OWN_VARIABLE, variable)
    return type(error)(f"The source of the migration could not be read: {message}", cause=error.cause)
