"""What reading, searching and deleting return. All frozen; no behaviour of their own.

Offsets and lengths count Unicode code points, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from memory_core.chunk_values import ChunkOptions
from memory_core.models import ContentType, DocumentState, Fingerprint, StoredVersion, Vector


class SearchMode(StrEnum):
    """Which legs rank the chunks."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A stored document without its body."""

    state: DocumentState
    content_length: int
    fingerprint: Fingerprint
    options: ChunkOptions
    versions: tuple[StoredVersion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """A stored chunk as a search index takes it in: `text` is what a reader sees of it.

    A row whose text is blank (nothing but a script or markup) is never a hit: no leg takes it in.
    """

    chunk_id: str
    document_id: str
    revision: str
    text: str
    context: str
    fingerprint: str
    vector: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRow:
    """A stored chunk as an answer shows it; only rows whose revision is their document's are ever returned.

    `text` is the exact slice; `lead` and `readable` are those of the chunk.
    """

    chunk_id: str
    document_id: str
    source_id: str
    title: str
    uri: str | None
    content_type: ContentType
    tags: tuple[str, ...]
    chunk_index: int
    heading_path: tuple[str, ...]
    char_start: int
    char_end: int
    token_count: int
    text: str
    lead: str = ""
    readable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """Which documents may answer: every given condition holds; `tags` must all be present."""

    source_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    content_types: tuple[ContentType, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when every document may answer."""
        return not (self.source_ids or self.document_ids or self.tags or self.content_types)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegHit:
    """One rank of one leg. `score` is the leg's own: cosine in [-1, 1], or BM25."""

    chunk_id: str
    document_id: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LegAnswer:
    """What a leg found, best first; of the vector leg in `also` what was asked for and is not among its hits.

    `lowest` is the worst cosine of all rows that may answer, None where an engine compares only some of them.
    """

    hits: Sequence[LegHit] = ()
    also: Sequence[LegHit] = ()
    lowest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk that answers, with its place, its fused score and what each leg said."""

    row: HitRow
    score: float
    vector_score: float | None
    text_score: float | None
    vector_rank: int | None
    text_rank: int | None
    highlights: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of what is stored has vectors of one embedding space, as the documents say it."""

    fingerprint: str
    documents: int
    chunks: int
    covered_documents: int
    covered_chunks: int

    @property
    def is_complete(self) -> bool:
        """True where every document is of the space."""
        return self.covered_documents == self.documents


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """An answer that explains itself: `explanation` says why it is empty or degraded, None when it is neither.

    `coverage` is how much of what is stored the vector leg can find, while documents are moved to another space.
    """

    query: str
    mode: SearchMode
    effective_mode: SearchMode
    engine: str
    hits: tuple[Hit, ...]
    fingerprint: Fingerprint
    explanation: str | None = None
    coverage: Coverage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceListing:
    """One page of stored documents, newest first, and how many there are in all.

    `total` is exact up to 10,000 and stays there beyond (`total_is_exact` is False). `offset` is None for a page that
    starts behind a cursor; `next_cursor` is None for the last page.
    """

    sources: tuple[StoredDocument, ...]
    total: int
    offset: int | None
    limit: int
    total_is_exact: bool = True
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What a delete removed (or, with `dry_run`, would remove), and until when it can be restored."""

    source_ids: tuple[str, ...]
    deleted_documents: int
    deleted_chunks: int
    dry_run: bool = False
    restorable_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedDocument:
    """A deleted document that can be restored until `expires_at`: as it was, but for its rows."""

    document: StoredDocument
    deleted_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """What a purge removed (or, with `dry_run`, would remove): rows by collection, and the sources.

    `flow_run_ids` are the runs that stored it; search indexes of `lineage` hold its words until they are discarded.
    """

    source_ids: tuple[str, ...]
    removed: Mapping[str, int]
    flow_run_ids: tuple[str, ...] = ()
    lineage: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """A document as the change feed reports it: `revision` is None for a deleted one."""

    document_id: str
    revision: str | None
    committed_at: datetime
