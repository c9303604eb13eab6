"""An embed stage with a store of rows and an embedder that records what it is asked and can be made to fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np

from memory_core.chunk_values import Chunk, ChunkingResult, ChunkingStats, ChunkOptions
from memory_core.context import name_policy
from memory_core.embed import embed_documents, fingerprint_of
from memory_core.embedding_ports import ContextWriter, EmbeddingKind, EmbeddingResult, EmbeddingUsage
from memory_core.embedding_settings import ContextPolicy
from memory_core.errors import (
    EmbeddingError,
)
from memory_core.models import (
    Attributes,
    ChunkedDocument,
    ChunkTally,
    ContentType,
    Document,
    DocumentState,
    EmbeddedDocument,
    Failure,
    Plan,
    StoredChunkKey,
    Vector,
    hash_text,
)
from memory_core.ports import Core
from memory_core.settings import load_settings
from memory_core.store_request import Provenance

NOW = datetime(2026, 11, 30, tzinfo=UTC)
DIMENSIONS = 4

Spoil = Callable[[list[Vector]], object]


@dataclass
class RecordingEmbedder:
    """Answers with recognisable vectors, keeps every request, and does what a test asks for some texts."""

    requests: list[list[list[str]]] = field(default_factory=list[list[list[str]]])
    spoil: dict[str, Spoil] = field(default_factory=dict[str, Spoil])
    refuse: dict[str, EmbeddingError] = field(default_factory=dict[str, EmbeddingError])
    usage_tokens: int = 0
    provider: str = "test"
    model: str = "recorder"
    dimensions: int = DIMENSIONS
    max_input_tokens: int | None = None
    is_contextual: bool = False

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Record the request and answer it."""
        assert kind == "document"
        self.requests.append([list(group) for group in groups])
        for word, error in self.refuse.items():
            if any(word in text for group in groups for text in group):
                raise error
        return EmbeddingResult(
            groups=cast("Any", [self._answer(group) for group in groups]),
            windows=[[1] * len(group) for group in groups],
            usage=EmbeddingUsage(tokens=self.usage_tokens, requests=1),
        )

    async def close(self) -> None:
        """Nothing to close."""

    def _answer(self, group: Sequence[str]) -> object:
        vectors = [np.full(DIMENSIONS, len(text), dtype=np.float32) for text in group]
        for word, spoil in self.spoil.items():
            if any(word in text for text in group):
                return spoil(vectors)
        return np.stack(vectors)


@dataclass
class RowStore:
    """The two reads that the stage makes."""

    keys: dict[str, list[StoredChunkKey]] = field(default_factory=dict[str, list[StoredChunkKey]])
    budget: int = 40_000_000
    reads: list[list[str]] = field(default_factory=list[list[str]])

    async def read_chunk_keys(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[StoredChunkKey]]:
        """The rows of the documents that are stored."""
        self.reads.append(list(document_ids))
        return {name: self.keys[name] for name in document_ids if name in self.keys}

    async def transaction_budget_bytes(self) -> int:
        """What the test says."""
        return self.budget


class WordCounter:
    """A token is a word."""

    name = "words"

    def count(self, text: str) -> int:
        """Words of the text."""
        return len(text.split())


@dataclass
class World:
    """A core with only what the stage needs, and handles on its parts."""

    embedder: RecordingEmbedder = field(default_factory=RecordingEmbedder)
    store: RowStore = field(default_factory=RowStore)
    policy: ContextPolicy = ContextPolicy.PREFIX
    writer: ContextWriter | None = None

    @property
    def core(self) -> Core:
        """The wired core."""
        ids = itertools.count(1)
        parts: dict[str, Any] = dict.fromkeys(part.name for part in fields(Core))
        parts |= {
            "store": self.store,
            "embedder": self.embedder,
            "counter": WordCounter(),
            "settings": load_settings().model_copy(update={"embedding_context": self.policy, "context_model": "chat"}),
            "fingerprint": fingerprint_of(self.embedder, name_policy(self.policy, "chat")),
            "context_writer": self.writer,
            "new_id": lambda: f"new-{next(ids)}",
        }
        return Core(**parts)

    async def embed(self, *documents: ChunkedDocument) -> list[EmbeddedDocument | Failure]:
        """Run the stage on a batch."""
        return await embed_documents(documents, core=self.core)

    async def embed_one(self, document: ChunkedDocument) -> EmbeddedDocument:
        """Run the stage on one document that must succeed."""
        (result,) = await self.embed(document)
        assert isinstance(result, EmbeddedDocument), result
        return result

    def keep(self, stored: EmbeddedDocument) -> DocumentState:
        """Store the rows as persist would, and give the state that the next store has as its base."""
        self.store.keys[stored.document.document_id] = [
            StoredChunkKey(
                chunk_id=f"row-{chunk.chunk.index}",
                index=chunk.chunk.index,
                row_hash=chunk.row_hash,
                embedding_input_hash=chunk.embedding_input_hash,
                fingerprint=stored.fingerprint.key,
                situated=chunk.situated,
            )
            for chunk in stored.chunks
        ]
        return make_state(stored)


def make_document(
    name: str, *texts: str, title: str = "Title", base: DocumentState | None = None, path: tuple[str, ...] = ()
) -> ChunkedDocument:
    """A document of the given chunks."""
    content = "\n\n".join(texts)
    starts = itertools.accumulate((len(text) + 2 for text in texts[:-1]), initial=0)
    chunks = tuple(
        Chunk(index=index, text=text, char_start=start, char_end=start + len(text), token_count=1, heading_path=path)
        for index, (text, start) in enumerate(zip(texts, starts, strict=True))
    )
    attributes = Attributes(title=title, uri=None, content_type=ContentType.MARKDOWN, tags=(), metadata={}, owners={})
    document = Document(
        document_id=f"id-{name}",
        source_id=name,
        revision="r2",
        content=content,
        content_hash=hash_text(content),
        attributes=attributes,
        options=ChunkOptions(),
        recipe="test",
        provenance=Provenance(channel="test"),
        agent=None,
        session_id=None,
        base=base,
        plan=Plan.STORE,
    )
    stats = ChunkingStats(input_chars=len(content), chunk_count=len(chunks), total_tokens=len(chunks))
    return ChunkedDocument(document=document, chunking=ChunkingResult(chunks=chunks, strategy="test", stats=stats))


def with_parts(item: ChunkedDocument, **changes: Any) -> ChunkedDocument:
    """The document with a lead or a readable text on each of its chunks."""
    chunks = tuple(replace(chunk, **changes) for chunk in item.chunking.chunks)
    return replace(item, chunking=replace(item.chunking, chunks=chunks))


def make_state(stored: EmbeddedDocument) -> DocumentState:
    document = stored.document
    return DocumentState(
        document_id=document.document_id,
        source_id=document.source_id,
        revision="r1",
        version=1,
        content_hash=document.content_hash,
        recipe="test",
        strategy="test",
        fingerprint=stored.fingerprint.key,
        chunk_count=len(stored.chunks),
        tally=ChunkTally(count=0, revisions=frozenset(), content_hashes=frozenset(), fingerprints=frozenset()),
        attributes=document.attributes,
        context_basis=stored.context_basis,
        context_stale=stored.context_stale,
        feed=None,
        body_id="b",
        created_at=NOW,
        updated_at=NOW,
    )


def failure_of(result: EmbeddedDocument | Failure) -> Failure:
    assert isinstance(result, Failure), result
    return result
