"""A store whose documents a test sets, and an embedded index over it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import numpy as np

from memory_core.adapters import embedded_record
from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.answers import ChunkRow, DocumentChange, LegHit, SearchFilters
from memory_core.models import Vector
from memory_core.store_ports import ActiveSpace, MemoryStore

DIMENSIONS = 8
SPACE = "hash/test/8/prefix-1"
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stored:
    """A document of the stand-in store."""

    revision: str
    stamp: datetime
    rows: tuple[ChunkRow, ...]
    tags: frozenset[str] = frozenset()


@dataclass
class MirroredStore:
    """The few methods of a store that an index calls, in memory; `invisible` holds commits that nobody sees yet."""

    documents: dict[str, Stored] = field(default_factory=dict[str, Stored])
    trash: dict[str, datetime] = field(default_factory=dict[str, datetime])
    invisible: set[str] = field(default_factory=set[str])
    now: datetime = START
    lineage: str | None = "first"
    rows_read: int = 0
    feeds: list[datetime | None] = field(default_factory=list["datetime | None"])
    _writes: int = 0

    def put(
        self,
        document_id: str,
        *texts: str,
        tags: Sequence[str] = (),
        stamp: datetime | None = None,
        vector: Vector | None = None,
        space: str = SPACE,
        context: str = "",
    ) -> None:
        """Store a document whose chunks are `texts`, at the store's time or at `stamp`."""
        self._writes += 1
        revision = f"r{self._writes}"
        rows = tuple(
            ChunkRow(
                chunk_id=f"{document_id}-{number}",
                document_id=document_id,
                revision=revision,
                text=text,
                context=context,
                fingerprint=space,
                vector=vector_of(text) if vector is None else vector,
            )
            for number, text in enumerate(texts)
        )
        self.documents[document_id] = Stored(revision, stamp or self.now, rows, frozenset(tags))
        self.trash.pop(document_id, None)

    def drop(self, document_id: str) -> None:
        """Delete a document."""
        del self.documents[document_id]
        self.trash[document_id] = self.now

    def wait(self, seconds: float) -> None:
        """Let the server's time go on."""
        self.now += timedelta(seconds=seconds)

    def dump(self) -> tuple[dict[str, Stored], dict[str, datetime]]:
        """What a restore brings back."""
        return dict(self.documents), dict(self.trash)

    def restore(self, dump: tuple[dict[str, Stored], dict[str, datetime]]) -> None:
        """Set the database back; its clock goes on."""
        self.documents, self.trash = dict(dump[0]), dict(dump[1])

    async def read_active_space(self) -> ActiveSpace | None:
        """See MemoryStore."""
        return ActiveSpace(schema_version=1, fingerprint=SPACE, lineage=self.lineage) if self.lineage else None

    async def read_changes(self, since: datetime | None) -> tuple[Sequence[DocumentChange], datetime]:
        """See MemoryStore."""
        self.feeds.append(since)
        changes = [
            DocumentChange(document_id=one, revision=stored.revision, committed_at=stored.stamp)
            for one, stored in self.documents.items()
            if one not in self.invisible and (since is None or stored.stamp >= since)
        ]
        if since is not None:
            changes += [
                DocumentChange(document_id=one, revision=None, committed_at=stamp)
                for one, stamp in self.trash.items()
                if stamp >= since
            ]
        return changes, self.now

    async def read_chunk_rows(self, document_ids: Sequence[str]) -> Sequence[ChunkRow]:
        """See MemoryStore."""
        await asyncio.sleep(0)
        rows = [row for one in document_ids if one in self.documents for row in self.documents[one].rows]
        self.rows_read += len(rows)
        return rows

    async def find_document_ids(self, filters: SearchFilters) -> frozenset[str]:
        """See MemoryStore; tags only."""
        return frozenset(one for one, stored in self.documents.items() if stored.tags >= set(filters.tags))


def vector_of(text: str) -> Vector:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)


def open_index(directory: Path, store: MirroredStore, *, language: str = "english") -> EmbeddedSearchIndex:
    return EmbeddedSearchIndex(directory, cast("MemoryStore", store), dimensions=DIMENSIONS, language=language)


async def find_words(
    index: EmbeddedSearchIndex, query: str, *, filters: SearchFilters | None = None, limit: int = 10
) -> list[str]:
    hits = await index.text_leg(query, filters=filters or SearchFilters(), limit=limit)
    return [hit.chunk_id for hit in hits]


async def find_near(
    index: EmbeddedSearchIndex, text: str, *, filters: SearchFilters | None = None, limit: int = 10
) -> list[LegHit]:
    answer = await index.vector_leg(vector_of(text), fingerprint=SPACE, filters=filters or SearchFilters(), limit=limit)
    return list(answer.hits)


def folder_of(lineage: str) -> str:
    return f"{lineage}-{DIMENSIONS}"


def record_of(directory: Path, lineage: str = "first") -> embedded_record.Record:
    record = embedded_record.read_record(directory / folder_of(lineage))
    assert record is not None
    return record
