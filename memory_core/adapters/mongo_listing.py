"""One page of stored documents. In: a query. Out: documents, newest first, without a body or a vector; writes nothing.

Every query is a range of one index in its own order: neither the page nor the count grows with the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bson import ObjectId

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import DOCUMENTS
from memory_core.answers import SourceListing
from memory_core.models import ChunkTally
from memory_core.paging import EXACT_TOTAL, Position, find_start, write_cursor
from memory_core.store_ports import ListQuery

_NEWEST_FIRST = [("updatedAt", -1), ("_id", -1)]

# The server's own number of all rows costs nothing. After a crash it can be off by what the last minute brought.
_SURELY_MORE = 2

ReadTallies = Callable[[Sequence[ObjectId]], Mapping[ObjectId, ChunkTally]]


async def list_sources(connection: MongoConnection, query: ListQuery, *, read_tallies: ReadTallies) -> SourceListing:
    """See MemoryStore. The page and the count are asked for side by side: the page takes longer."""
    start = find_start(query)
    page, counted = await asyncio.gather(
        connection.run(_read_page, connection, query, start, read_tallies=read_tallies),
        connection.run(_count, connection, query),
    )
    return replace(page, total=min(counted, EXACT_TOTAL), total_is_exact=counted <= EXACT_TOTAL)


def _read_page(
    connection: MongoConnection, query: ListQuery, start: Position | None, *, read_tallies: ReadTallies
) -> SourceListing:
    """The page without its total. One row more than it shows is read, where there is one: then there is a next page."""
    found = _find(connection, query, start)
    page = found[: query.limit]
    tallies = read_tallies([row["_id"] for row in page])
    has_more = len(found) > query.limit > 0
    return SourceListing(
        sources=tuple(rows.read_stored_document(row, tallies.get(row["_id"])) for row in page),
        total=0,
        offset=None if start else query.offset,
        limit=query.limit,
        next_cursor=write_cursor(Position(page[-1]["updatedAt"], str(page[-1]["_id"]))) if has_more else None,
    )


def _find(connection: MongoConnection, query: ListQuery, start: Position | None) -> list[Row]:
    found = connection.collection(DOCUMENTS).find(_behind(start, _condition(query)))
    if hint := _index(query):
        found = found.hint(hint)
    return list(found.sort(_NEWEST_FIRST).skip(query.offset).limit(query.limit + 1))


def _count(connection: MongoConnection, query: ListQuery) -> int:
    """How many documents fit, at most one more than a listing says.

    The driver's `count_documents` aggregates, which takes the server twice as long as this command.
    """
    condition = _condition(query)
    if not condition and connection.collection(DOCUMENTS).estimated_document_count() >= _SURELY_MORE * EXACT_TOTAL:
        return EXACT_TOTAL + 1
    command: Row = {"count": DOCUMENTS, "query": condition, "limit": EXACT_TOTAL + 1}
    if hint := _index(query):
        command["hint"] = hint
    # A command does not ask the database's handle how it reads.
    answer: Row = connection.database.command({**command, "readConcern": {"level": "majority"}})
    return answer["n"]


def _condition(query: ListQuery) -> Row:
    feed: Row = {"feed": query.feed} if query.feed else {}
    return {**feed, "tags": query.tag} if query.tag else feed


def _behind(start: Position | None, condition: Row) -> Row:
    """Two ranges of the index, which the server merges in its order; the condition stands in both of them."""
    if start is None:
        return condition
    at, document_id = start.updated_at, ObjectId(start.document_id)
    return {
        "$or": [
            {**condition, "updatedAt": {"$lt": at}},
            {**condition, "updatedAt": at, "_id": {"$lt": document_id}},
        ]
    }


def _index(query: ListQuery) -> str | None:
    """The index that has the page in its order: a plan that the server remembers of one tag may scan for another."""
    if query.tag and query.feed:
        return None  # the server chooses the one of both where it is there
    if query.tag:
        return "documents_tags_updatedAt"
    return "documents_feed_updatedAt" if query.feed else "documents_updatedAt"
