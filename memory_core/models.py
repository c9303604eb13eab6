"""The values that travel between the doors, the stages and the adapters. All frozen; no behaviour of their own.

In order of travel: StoreContentRequest and StoreRequest (a door's), Document (validated), ChunkedDocument,
EmbeddedDocument, StoreOutcome; `answers` has what reading returns. Offsets and lengths count Unicode code points
everywhere (a JavaScript client slices by UTF-16 units instead). JSON names are camelCase, Python names snake_case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory_core.chunk_values import Chunk, ChunkingResult, ChunkOptions
from memory_core.errors import AgentMemoryError
from memory_core.store_request import Provenance, StoreContentRequest

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
class Holder:
    """Who holds a lease: a process, named so that the next one on this machine can tell whether it still lives."""

    host: str
    pid: int
    started: float
    token: str = field(default="")


def hash_text(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, in hex: the `contentHash` of normalised content."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
