"""The values that travel between the doors, the stages and the adapters. All frozen; no behaviour of their own.

In order of travel: StoreContentRequest and StoreRequest (a door's), Document (validated), ChunkedDocument,
EmbeddedDocument, StoreOutcome; then what reading returns. Offsets and lengths count Unicode code points everywhere
(a JavaScript client slices by UTF-16 units instead). JSON names are camelCase, Python names snake_case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from memory_core.errors import AgentMemoryError

MAX_CONTENT_CHARS = 5_000_000
MAX_METADATA_CHARS = 32_768
MAX_METADATA_DEPTH = 16
MAX_TAGS = 50
MAX_TAG_CHARS = 64
MAX_TITLE_CHARS = 512
MAX_URI_CHARS = 2_048
MAX_SOURCE_ID_CHARS = 256
MAX_NAME_CHARS = 128

Vector: TypeAlias = NDArray[np.float32]
Metadata: TypeAlias = Mapping[str, Any]


class ContentType(StrEnum):
    """What the chunker switches on."""

    MARKDOWN = "markdown"
    TEXT = "text"
    CODE = "code"
    HTML = "html"
    JSON = "json"
    RST = "rst"
    CSV = "csv"


class Outcome(StrEnum):
    """What happened to one document. `accepted` is a handle: the wait ended first and the work goes on."""

    ACCEPTED = "accepted"
    CREATED = "created"
    UPDATED = "updated"
    ATTRIBUTES_UPDATED = "attributes_updated"
    UNCHANGED = "unchanged"
    FAILED = "failed"


class SearchMode(StrEnum):
    """Which legs rank the chunks."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    TEXT = "text"


class WireModel(BaseModel):
    """Base of what crosses a door: frozen, camelCase or snake_case in, camelCase out, unknown names refused.

    Its errors never quote what came in: they reach the log.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class StoreContentRequest(WireModel):
    """One piece of content to remember. An argument that is left out keeps the stored value; an empty one clears it."""

    content: Annotated[
        str, Field(description="The text to remember, 1 to 5,000,000 characters with at least one that is not blank.")
    ]
    title: Annotated[
        str | None, Field(description="A title of 1 to 512 characters; else it is taken from the text.")
    ] = None
    source_id: Annotated[
        str | None,
        Field(
            description="A stable id of your own, such as notes/deploy. Storing under the same id again replaces "
            "the document. At most 256 letters, digits and . _ : @ - /, the first a letter or digit."
        ),
    ] = None
    uri: Annotated[str | None, Field(description="Where the content comes from, at most 2,048 characters.")] = None
    content_type: Annotated[
        str | None,
        Field(
            description="markdown (default), text, code, html, json, rst or csv, or a MIME type that means one of them."
        ),
    ] = None
    tags: Annotated[
        list[str] | None, Field(description="At most 50 tags of 1 to 64 characters; trimmed, lowercased, deduplicated.")
    ] = None
    metadata: Annotated[
        dict[str, Any] | None,
        Field(description="A JSON object of at most 32,768 characters and depth 16, stored as it is."),
    ] = None
    agent: Annotated[str | None, Field(description="The agent that stores this, at most 128 characters.")] = None
    session_id: Annotated[str | None, Field(description="The session that stores this, at most 128 characters.")] = None
    chunk_size_tokens: Annotated[int | None, Field(description="Chunk size in tokens, 32 to 8,192.")] = None
    chunk_overlap_tokens: Annotated[
        int | None, Field(description="Overlap of neighbouring chunks in tokens, 0 to 4,096 and below the size.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who brought a piece of content and how. `attribute_owner` is what is written beside the attributes it sets."""

    channel: str
    feed: str | None = None
    client_name: str | None = None
    client_version: str | None = None
    token_name: str | None = None
    submission_id: str | None = None
    flow_run_id: str | None = None

    @property
    def attribute_owner(self) -> str:
        """`feed:NAME` for a directory, `caller` for everyone else."""
        return f"feed:{self.feed}" if self.feed else "caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRequest:
    """What goes down the path: the caller's request, who brought it, and what its reader noted on the way.

    `previous_source_id` names the source that this one continues (a renamed file): its document keeps its id.
    `body_id` names a staged body that the stored version adopts instead of writing the text again. `staged_at` is when
    a submission was accepted: it never replaces a text that was stored later. `past` is what the document already was
    when it comes back or comes over.
    """

    request: StoreContentRequest
    provenance: Provenance
    notes: tuple[str, ...] = ()
    previous_source_id: str | None = None
    body_id: str | None = None
    staged_at: datetime | None = None
    past: Past | None = None


EmbeddingKind: TypeAlias = Literal["document", "query"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """Sizes in tokens: `size` is the ceiling of every chunk, overlap included. `language` is that of code, "" else."""

    size: int = 400
    overlap: int = 0
    minimum: int = 32
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A slice `content[char_start:char_end]` of a document, in code points, with the headings in force at its start.

    `lead` is the header row of the table that the chunk goes on with, from elsewhere in the document; "" where it has
    none or holds it itself. `readable` is what a reader sees of the slice, where that is not the slice (HTML): a model
    and the text index read it instead.
    """

    index: int
    text: str
    char_start: int
    char_end: int
    token_count: int
    heading_path: tuple[str, ...] = ()
    lead: str = ""
    readable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingStats:
    """Counts of one chunking. `cluster_cuts` is 0 on every real file (design: section 4)."""

    input_chars: int
    chunk_count: int
    total_tokens: int
    merged_count: int = 0
    cluster_cuts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingResult:
    """The chunks of one document, and the name of the code path that cut them."""

    chunks: tuple[Chunk, ...]
    strategy: str
    stats: ChunkingStats


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBasis:
    """What the contexts of a document's chunks are made of: recorded, so that an edit elsewhere moves no vector.

    `words` are the document's most telling words in alphabetical order.
    """

    title: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """An embedding space: vectors of two fingerprints are never ranked together."""

    provider: str
    model: str
    dimensions: int
    context_policy: str

    @property
    def key(self) -> str:
        """The short string that is stamped on every chunk and pinned by every vector leg."""
        return f"{self.provider}/{self.model}/{self.dimensions}/{self.context_policy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTally:
    """What the rows of one document say of themselves, counted without reading a text or a vector."""

    count: int
    revisions: frozenset[str]
    content_hashes: frozenset[str]
    fingerprints: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What describes a document without being its text. `owners` maps an attribute's name to who set it."""

    title: str
    uri: str | None
    content_type: ContentType
    tags: tuple[str, ...]
    metadata: Metadata
    owners: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """One kept version of a document's content and who stored it."""

    version: int
    body_id: str
    content_hash: str
    content_length: int
    stored_at: datetime
    ingest: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRow:
    """A chunk row that was: where the document is cut and embedded into the same again, its id and vector are used."""

    key: StoredChunkKey
    vector: Vector
    windows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a document already was when it comes back (restored) or comes over (imported, migrated).

    Its id, dates, attributes and versions stay. `versions` are ascending, the last is the request's text; `texts` has
    the text of each version, by number, that this database does not hold. `is_restored`: its row waits in the trash.
    """

    document_id: str
    created_at: datetime
    updated_at: datetime
    attributes: Attributes
    feed: str | None
    versions: tuple[StoredVersion, ...]
    texts: Mapping[int, str] = field(default_factory=dict[int, str])
    is_restored: bool = False
    context_basis: ContextBasis | None = None
    rows: tuple[PastRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentState:
    """What is stored of one source at this moment: the base of the next write. No body, no vector.

    `stored_at` is when the current text was stored; `updated_at` moves with attributes too.
    """

    document_id: str
    source_id: str
    revision: str
    version: int
    content_hash: str
    recipe: str
    strategy: str
    fingerprint: str
    chunk_count: int
    tally: ChunkTally
    attributes: Attributes
    context_basis: ContextBasis
    context_stale: bool
    feed: str | None
    body_id: str
    created_at: datetime
    updated_at: datetime
    agent: str | None = None
    session_id: str | None = None
    stored_at: datetime | None = None


class Plan(StrEnum):
    """What the path still has to do for a validated document."""

    STORE = "store"
    ATTRIBUTES = "attributes"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Validated, normalised content with identity, and the stored state that it was compared with.

    `revision` is the id that this write gives the document; it is minted here so that a repeated persist recognises
    its own work. `reason` says why content that is equal is stored again (re-chunk, re-embed, repair).
    """

    document_id: str
    source_id: str
    revision: str
    content: str
    content_hash: str
    attributes: Attributes
    options: ChunkOptions
    recipe: str
    provenance: Provenance
    agent: str | None
    session_id: str | None
    base: DocumentState | None
    plan: Plan
    reason: str | None = None
    notes: tuple[str, ...] = ()
    body_id: str | None = None
    past: Past | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedDocument:
    """A document and its chunks."""

    document: Document
    chunking: ChunkingResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunkKey:
    """What decides whether a stored chunk row can stay: no text, no vector.

    `situated` is the sentence that a chat model wrote of it (context policy llm), "" where there is none. The place is
    that of the chunk, -1 and () where it is not known.
    """

    chunk_id: str
    index: int
    row_hash: str
    embedding_input_hash: str
    fingerprint: str
    situated: str = ""
    char_start: int = -1
    char_end: int = -1
    token_count: int = -1
    heading_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedChunk:
    """A chunk with its context (text leg) and its vector.

    `chunk_id` is a stored row's id where that row's vector is reused; then `vector` is None and nothing of it is sent.
    `row_hash` covers text and context: where the stored row has the same, they are not sent either. `situated` is the
    line of the context that a chat model wrote, "" without one.
    """

    chunk_id: str
    chunk: Chunk
    context: str
    embedding_input_hash: str
    row_hash: str
    vector: Vector | None
    windows: int = 1
    kept: StoredChunkKey | None = None
    situated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedDocument:
    """A document ready to be written: every chunk has a vector, its own or a stored one.

    `texts_embedded` counts the texts whose vectors were computed now, `tokens_embedded` their tokens. `spans` is as in
    EmbeddingResult, () for a document that was embedded as one or text by text.
    """

    document: Document
    chunking: ChunkingResult
    chunks: tuple[EmbeddedChunk, ...]
    fingerprint: Fingerprint
    context_basis: ContextBasis
    context_stale: bool
    tokens_embedded: int
    texts_embedded: int = 0
    spans: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A document that left the path with an error. `source_id` is None where validation could not name it."""

    error: AgentMemoryError
    source_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A document whose base revision was gone when it was to be written: it goes back to validate."""

    source_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOutcome:
    """The truth about one request, told only after the write is committed.

    `texts_embedded` counts the chunks whose vectors were computed, `tokens_embedded` their tokens (0 for unchanged
    content): all others were found again. `notes` are sentences for the
    caller: a lowered overlap, a derived id that was taken, a removed NUL.
    """

    outcome: Outcome
    source_id: str | None
    document_id: str | None = None
    title: str | None = None
    version: int | None = None
    chunk_count: int = 0
    strategy: str | None = None
    fingerprint: Fingerprint | None = None
    tokens_embedded: int = 0
    texts_embedded: int = 0
    reason: str | None = None
    notes: tuple[str, ...] = ()
    error: AgentMemoryError | None = None


# --- what reading returns ---------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingUsage:
    """What an embedding call consumed."""

    tokens: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingResult:
    """Vectors that mirror the groups given: `groups[d]` is a float32 array of shape (texts of d, dimensions).

    `windows[d][t]` says in how many windows text t of group d was embedded and averaged; 1 for almost every text.
    `spans[d]` is how many texts each window of a long document has, where a contextual model saw it in several; and
    `cached[d]` how many texts of the group had been paid for before.
    """

    groups: Sequence[Vector]
    windows: Sequence[Sequence[int]]
    usage: EmbeddingUsage
    spans: Sequence[tuple[int, ...]] = ()
    cached: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease: a process, named so that the next one on this machine can tell whether it still lives."""

    host: str
    pid: int
    started: float
    token: str = field(default="")


def readable_text(chunk: Chunk | HitRow) -> str:
    """What a reader, a model and the text index see of a chunk; blank for nothing but scripts and markup."""
    return chunk.text if chunk.readable is None else chunk.readable


def hash_text(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, in hex: the `contentHash` of normalised content."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
