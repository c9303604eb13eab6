"""The reading half of the fake MemoryStore. In: ids, filters, pages. Out: copies of what is stored; writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from memory_core.answers import ChunkRow, DocumentChange, HitRow, SearchFilters, SourceListing, StoredDocument
from memory_core.errors import NotFoundError
from memory_core.fakes.database import ChunkRecord, DocumentRecord, FakeDatabase, take_turns
from memory_core.fakes.records import (
    read_chunk_row,
    read_document,
    read_hit,
    read_key,
    read_past_row,
    read_state,
    satisfies,
)
from memory_core.models import DocumentState, PastRow, StoredChunkKey
from memory_core.paging import EXACT_TOTAL, Position, find_start, write_cursor
from memory_core.ports import Clock
from memory_core.store_ports import ActiveSpace, ListQuery


class FakeStoreReads:
    """What FakeStore reads from a FakeDatabase. `clock` is the server's, for the change feed."""

    def __init__(self, database: FakeDatabase, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read_active_space(self) -> ActiveSpace | None:
        """What `meta` says, or None."""
        return self._database.meta

    # --- reads that decide

    async def read_states(
        self, source_ids: Sequence[str], document_ids: Sequence[str] = ()
    ) -> Mapping[str, DocumentState]:
        """The states of those of the sources and documents that are stored."""
        await take_turns()
        database = self._database
        found = {database.sources[source_id] for source_id in source_ids if source_id in database.sources}
        found |= {document_id for document_id in document_ids if document_id in database.documents}
        return self._states(database.documents[document_id] for document_id in sorted(found))

    async def read_feed_states(self, feed: str) -> Mapping[str, DocumentState]:
        """The states of all sources that the feed owns."""
        await take_turns()
        return self._states(record for record in self._documents() if record.state.feed == feed)

    def _states(self, records: Iterable[DocumentRecord]) -> dict[str, DocumentState]:
        chosen = list(records)
        rows = self._rows_by_document({record.state.document_id for record in chosen})
        return {record.state.source_id: read_state(record, rows[record.state.document_id]) for record in chosen}

    def _rows_by_document(self, document_ids: Iterable[str]) -> dict[str, list[ChunkRecord]]:
        rows: dict[str, list[ChunkRecord]] = {document_id: [] for document_id in document_ids}
        for row in tuple(self._database.rows.values()):
            if row.document_id in rows:
                rows[row.document_id].append(row)
        for found in rows.values():
            found.sort(key=lambda row: (row.chunk.index, row.chunk_id))
        return rows

    async def read_chunk_keys(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[StoredChunkKey]]:
        """The keys of each document's rows by index; none for a document without rows."""
        await take_turns()
        rows = self._rows_by_document(document_ids)
        return {document_id: [read_key(row) for row in found] for document_id, found in rows.items()}

    # --- reads for people and for search

    async def read_document(self, identifier: str) -> StoredDocument | None:
        """The document with that id, else the one with that source id."""
        await take_turns()
        documents, sources = self._database.documents, self._database.sources
        record = documents.get(identifier) or documents.get(sources.get(identifier, ""))
        return self._read_documents([record])[0] if record else None

    def _read_documents(self, records: Sequence[DocumentRecord]) -> list[StoredDocument]:
        rows = self._rows_by_document([record.state.document_id for record in records])
        return [read_document(record, rows[record.state.document_id]) for record in records]

    async def read_body(self, body_id: str) -> str:
        """The text of one version, while it is kept."""
        await take_turns()
        body = self._database.bodies.get(body_id)
        if body is None:
            raise NotFoundError(
                "This version of the text is no longer kept. `memory log SOURCE_ID` lists those that are."
            )
        return body.text

    async def list_sources(self, query: ListQuery) -> SourceListing:
        """One page, newest first, ties by document id."""
        start = find_start(query)
        await take_turns()
        chosen = [
            record
            for record in self._documents()
            if (query.tag is None or query.tag in record.state.attributes.tags)
            and (query.feed is None or record.state.feed == query.feed)
        ]
        chosen.sort(key=_place, reverse=True)
        rest = [record for record in chosen if start is None or _place(record) < start][query.offset :]
        page = rest[: query.limit]
        return SourceListing(
            sources=tuple(self._read_documents(page)),
            total=min(len(chosen), EXACT_TOTAL),
            total_is_exact=len(chosen) <= EXACT_TOTAL,
            offset=None if start else query.offset,
            limit=query.limit,
            next_cursor=write_cursor(_place(page[-1])) if page and len(rest) > len(page) else None,
        )

    async def read_hits(self, chunk_ids: Sequence[str]) -> Mapping[str, HitRow]:
        """The rows that a search may show."""
        await take_turns()
        documents, rows = self._database.documents, self._database.rows
        hits: dict[str, HitRow] = {}
        for row in (rows[chunk_id] for chunk_id in chunk_ids if chunk_id in rows):
            record = documents.get(row.document_id)
            if record and record.state.revision == row.revision:
                hits[row.chunk_id] = read_hit(row, record.state)
        return hits

    async def find_document_ids(self, filters: SearchFilters) -> frozenset[str]:
        """The ids of all documents that satisfy the filters."""
        await take_turns()
        return frozenset(record.state.document_id for record in self._documents() if satisfies(record.state, filters))

    async def read_changes(self, since: datetime | None) -> tuple[Sequence[DocumentChange], datetime]:
        """The last change of each document at or after `since`, oldest first."""
        await take_turns()
        changes = [
            DocumentChange(
                document_id=record.state.document_id,
                revision=record.state.revision,
                committed_at=record.committed_at,
            )
            for record in self._documents()
        ]
        if since is not None:
            changes += [
                DocumentChange(document_id=document_id, revision=None, committed_at=deleted_at)
                for document_id, deleted_at in tuple(self._database.tombstones.items())
            ]
            changes = [change for change in changes if change.committed_at >= since]
        return sorted(changes, key=lambda change: change.committed_at), self._clock()

    async def read_chunk_rows(self, document_ids: Sequence[str]) -> Sequence[ChunkRow]:
        """All rows of the documents, by index."""
        await take_turns()
        rows = self._rows_by_document(document_ids)
        return [read_chunk_row(row) for found in rows.values() for row in found]

    async def find_documents(self, *, after: str | None, limit: int) -> Sequence[StoredDocument]:
        """A page by document id."""
        await take_turns()
        chosen = [record for record in self._documents() if after is None or record.state.document_id > after]
        return self._read_documents(sorted(chosen, key=lambda record: record.state.document_id)[:limit])

    async def read_past_rows(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[PastRow]]:
        """The rows that are of their document's revision."""
        await take_turns()
        documents = self._database.documents
        return {
            document_id: [
                read_past_row(row)
                for row in rows
                if document_id in documents and row.revision == documents[document_id].state.revision
            ]
            for document_id, rows in self._rows_by_document(document_ids).items()
        }

    def _documents(self) -> tuple[DocumentRecord, ...]:
        return tuple(self._database.documents.values())


def _place(record: DocumentRecord) -> Position:
    return Position(record.state.updated_at, record.state.document_id)
