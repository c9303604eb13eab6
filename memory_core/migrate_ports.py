"""The socket of a migration: the memory of another program, read and never written. Nothing here does anything.

What is read is untrusted: any field may be missing, of another type, or at odds with the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ForeignProgram(StrEnum):
    """Whose memories can be migrated."""

    MONGODB_MEMORY_MCP = "mongodb-memory-mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFacts:
    """What a database is. `documents` is about how many rows it has; `is_ours`: a memory of this program."""

    documents: int
    is_ours: bool
    is_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRow:
    """A document with a proper id (24 hex digits), by its own field names, without its text."""

    document_id: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangeDocument:
    """A document whose `_id` is no ObjectId; `shown_id` is for people."""

    shown_id: str
    source_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedChunks:
    """Chunks that belong to no document with a proper id; `shown_id` is what they say of it, None: nothing."""

    shown_id: str | None
    source_id: str | None
    chunks: int


class ForeignMemory(Protocol):
    """The documents of a memory that another program keeps."""

    async def inspect(self) -> ForeignFacts:
        """What this database is."""
        ...

    async def read_page(self, *, after: str | None, limit: int) -> Sequence[ForeignRow]:
        """Documents with a proper id by ascending id, from behind `after`. Reads no text and no vector."""
        ...

    async def read_content(self, document_id: str) -> object:
        """What stands where a document's text should be; None where nothing does.

        A text with bytes that are not UTF-8 has lone surrogates in their place.
        """
        ...

    async def find_strange_documents(self) -> Sequence[StrangeDocument]:
        """The documents that `read_page` cannot name."""
        ...

    async def find_shared_sources(self) -> Mapping[str, Sequence[str]]:
        """Source ids that several documents have, with the `_id` of each in ascending order."""
        ...

    async def find_orphaned_chunks(self) -> Sequence[OrphanedChunks]:
        """Chunks that belong to no document with a proper id, one entry for each id that they name."""
        ...

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        ...
