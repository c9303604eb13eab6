"""What the contract suites run on: the fake and the real MongoDB, by one set of fixtures, and builders of documents.

`backend` is parametrised, so every test runs once on each. Damage that no port can do (a row of another revision, a
lost `meta`) is done behind the store's back, by each backend in its own way.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.database import Database

from deployments.services import Service, acquire
from memory_core.adapters.mongo_connection import MongoConnection, connect
from memory_core.adapters.mongo_feeds import MongoFeedStore
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MongoSubmissionStore
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkingStats, ChunkOptions
from memory_core.fakes import FakeDatabase, FakeFeedStore, FakeStore, FakeSubmissionStore
from memory_core.models import (
    Attributes,
    ContentType,
    ContextBasis,
    Document,
    DocumentState,
    EmbeddedChunk,
    EmbeddedDocument,
    Fingerprint,
    Plan,
    StoredChunkKey,
    Vector,
    hash_text,
)
from memory_core.settings import load_settings
from memory_core.store_ports import AttributeWrite, MemoryStore, WriteVerdict
from memory_core.store_request import Provenance
from memory_core.work_ports import FeedStore, SubmissionStore

VERSIONS_KEPT = 5
DIMENSIONS = 8
HASH_SPACE = Fingerprint(provider="hash", model="hash", dimensions=DIMENSIONS, context_policy="prefix-1")
PARAGRAPH_GAP = "\n\n"


class _FakeBackend:
    """A FakeDatabase and stores over it."""

    def __init__(self) -> None:
        self._database = FakeDatabase()
        self._ids = map("{:024x}".format, itertools.count(0xFA4E))

    def open_store(self) -> MemoryStore:
        return FakeStore(self._database, clock=read_clock, versions_kept=VERSIONS_KEPT)

    def open_feeds(self) -> FeedStore:
        return FakeFeedStore(self._database, clock=read_clock)

    def open_submissions(self) -> SubmissionStore:
        return FakeSubmissionStore(self._database, clock=read_clock, new_id=lambda: next(self._ids))

    async def close(self) -> None:
        pass

    def break_row(self, chunk_id: str) -> None:
        self._database.rows[chunk_id] = replace(self._database.rows[chunk_id], revision="f" * 24)

    def lose_row(self, chunk_id: str) -> None:
        del self._database.rows[chunk_id]

    def lose_document(self, source_id: str) -> None:
        del self._database.documents[self._database.sources.pop(source_id)]

    def lose_meta(self) -> None:
        self._database.meta = None

    def age_schema(self) -> None:
        assert self._database.meta
        self._database.meta = replace(self._database.meta, schema_version=0)


class _MongoBackend:
    """One database of a real server, emptied before each test, and a connection of its own for every store."""

    def __init__(self, uri: str, database: Database[dict[str, Any]]) -> None:
        self._uri = uri
        self._database = database
        self._connections: list[MongoConnection] = []
        for name in database.list_collection_names():
            database[name].delete_many({})

    def _connect(self) -> MongoConnection:
        connection = connect(self._uri, self._database.name, max_pool_size=10, server_selection_timeout_ms=5_000)
        self._connections.append(connection)
        return connection

    def open_store(self) -> MemoryStore:
        return MongoStore(self._connect(), versions_kept=VERSIONS_KEPT)

    def open_feeds(self) -> FeedStore:
        return MongoFeedStore(self._connect())

    def open_submissions(self) -> SubmissionStore:
        return MongoSubmissionStore(self._connect())

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def break_row(self, chunk_id: str) -> None:
        self._database["chunks"].update_one({"_id": ObjectId(chunk_id)}, {"$set": {"revision": "f" * 24}})

    def lose_row(self, chunk_id: str) -> None:
        self._database["chunks"].delete_one({"_id": ObjectId(chunk_id)})

    def lose_document(self, source_id: str) -> None:
        self._database["documents"].delete_one({"sourceId": source_id})

    def lose_meta(self) -> None:
        self._database["meta"].delete_many({})

    def age_schema(self) -> None:
        self._database["meta"].update_many({}, {"$set": {"schemaVersion": 0}})


# A place where stores keep things. Each `open` is another process's view of the same place.
_Backend: TypeAlias = _FakeBackend | _MongoBackend


def read_clock() -> datetime:
    """The server's time, in whole milliseconds as MongoDB keeps it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1_000 * 1_000)


@pytest.fixture(scope="session")
def contract_database(session_home: Path, mongodb_uri: str) -> Generator[Database[dict[str, Any]]]:
    """A database of a random name, dropped at the end. One for all tests: its indexes take longer than a test."""
    name = f"contract_{secrets.token_hex(6)}"
    settings = load_settings(MEMORY_HOME=session_home, MONGODB_DB_NAME=name)
    # The user of a home may use the databases that were asked for, and no other: this asks for ours.
    with (
        acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None),
        closing(MongoClient[dict[str, Any]](mongodb_uri)) as client,
    ):
        yield client[name]
        client.drop_database(name)


@pytest.fixture(params=["fake", pytest.param("mongodb", marks=pytest.mark.services)])
async def backend(request: pytest.FixtureRequest) -> AsyncGenerator[_Backend]:
    """Where the test's stores keep things."""
    if request.param == "fake":
        place: _Backend = _FakeBackend()
    else:
        place = _MongoBackend(request.getfixturevalue("mongodb_uri"), request.getfixturevalue("contract_database"))
    yield place
    await place.close()


@pytest.fixture
async def store(backend: _Backend, space: Fingerprint) -> AsyncGenerator[MemoryStore]:
    """A store that is ready to write."""
    opened = backend.open_store()
    await opened.prepare(space)
    yield opened
    await opened.close()


@pytest.fixture
def reopen(backend: _Backend) -> Callable[[], MemoryStore]:
    """Opens the same database as another process would; `prepare` was not called."""
    return backend.open_store


@pytest.fixture
def feeds(backend: _Backend, store: MemoryStore) -> FeedStore:  # noqa: ARG001 - the indexes are there
    """A feed store on a prepared database."""
    return backend.open_feeds()


@pytest.fixture
def submissions(backend: _Backend, store: MemoryStore) -> SubmissionStore:  # noqa: ARG001 - the indexes are there
    """A submission store on the same database as `store`."""
    return backend.open_submissions()


@pytest.fixture
def break_row(backend: _Backend) -> Callable[[str], None]:
    """Gives a chunk row a revision that is not its document's."""
    return backend.break_row


@pytest.fixture
def lose_row(backend: _Backend) -> Callable[[str], None]:
    """Takes a chunk row away."""
    return backend.lose_row


@pytest.fixture
def lose_document(backend: _Backend) -> Callable[[str], None]:
    """Takes a document away and leaves its rows."""
    return backend.lose_document


@pytest.fixture
def lose_meta(backend: _Backend) -> Callable[[], None]:
    """Makes the database one that we did not write."""
    return backend.lose_meta


@pytest.fixture
def age_schema(backend: _Backend) -> Callable[[], None]:
    """Makes the database one of another schema version."""
    return backend.age_schema


# --- builders ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def now() -> datetime:
    """The caller's time, in whole milliseconds; not the server's."""
    return datetime(2026, 11, 1, 12, 30, 0, 123_000, tzinfo=UTC)


@pytest.fixture
def space() -> Fingerprint:
    """The embedding space of every document that `build` makes."""
    return HASH_SPACE


@pytest.fixture
def new_id() -> Callable[[], str]:
    """24 hexadecimal digits, counted up: ids of the same test never repeat."""
    ids = map("{:024x}".format, itertools.count(1))
    return lambda: next(ids)


@pytest.fixture
def build(new_id: Callable[[], str]) -> Callable[..., EmbeddedDocument]:
    """Makes a whole document of paragraphs, one chunk each.

    `build(source_id, *paragraphs, base=, keep=, attributes=, context=, **fields)`: with `base` it is the next write of
    that state; rows among `keep` whose text is a paragraph again are kept with their vectors; `attributes` are changes;
    `fields` are any of Document's.
    """

    def build_document(
        source_id: str,
        *paragraphs: str,
        base: DocumentState | None = None,
        keep: Sequence[StoredChunkKey] = (),
        attributes: Mapping[str, Any] | None = None,
        context: str = "a context",
        **fields: Any,
    ) -> EmbeddedDocument:
        document = make_document(source_id, PARAGRAPH_GAP.join(paragraphs), base, attributes or {}, new_id)
        chunks = embed_chunks(cut_paragraphs(paragraphs), list(keep), context, new_id)
        return EmbeddedDocument(
            document=replace(document, **fields),
            chunking=ChunkingResult(
                chunks=tuple(chunk.chunk for chunk in chunks),
                strategy="paragraph",
                stats=ChunkingStats(input_chars=len(document.content), chunk_count=len(chunks), total_tokens=0),
            ),
            chunks=tuple(chunks),
            fingerprint=HASH_SPACE,
            context_basis=ContextBasis(title=document.attributes.title, words=("harbour", "lantern")),
            context_stale=False,
            tokens_embedded=sum(chunk.vector is not None for chunk in chunks),
        )

    return build_document


@pytest.fixture
def build_attributes(new_id: Callable[[], str]) -> Callable[..., AttributeWrite]:
    """Makes new attributes for a stored state: `build_attributes(base, content, source_id=, **attributes)`."""

    def build_write(
        base: DocumentState, content: str, *, source_id: str | None = None, **attributes: Any
    ) -> AttributeWrite:
        document = make_document(source_id or base.source_id, content, base, attributes, new_id)
        return AttributeWrite(document=replace(document, plan=Plan.ATTRIBUTES))

    return build_write


@pytest.fixture
def put(
    store: MemoryStore, build: Callable[..., EmbeddedDocument], now: datetime
) -> Callable[..., Awaitable[DocumentState]]:
    """Stores paragraphs as the path would (on the current state, keeping rows), and returns the new state.

    `put(source_id, *paragraphs, at=, **what build takes)`.
    """

    async def put_document(source_id: str, *paragraphs: str, at: datetime = now, **options: Any) -> DocumentState:
        base = (await store.read_states([source_id])).get(source_id)
        keep = (await store.read_chunk_keys([base.document_id]))[base.document_id] if base else ()
        write = build(source_id, *paragraphs, base=base, keep=keep, **options)
        (result,) = await store.write_together([write], now=at)
        assert result.verdict is WriteVerdict.WRITTEN
        return (await store.read_states([source_id]))[source_id]

    return put_document


def make_document(
    source_id: str,
    content: str,
    base: DocumentState | None,
    changes: Mapping[str, Any],
    new_id: Callable[[], str],
) -> Document:
    """A validated document on its base; attributes that are not changed keep the stored value."""
    fresh = Attributes(
        title=source_id, uri=None, content_type=ContentType.TEXT, tags=(), metadata={}, owners={"title": "caller"}
    )
    return Document(
        document_id=base.document_id if base else new_id(),
        source_id=source_id,
        revision=new_id(),
        content=content,
        content_hash=hash_text(content),
        attributes=replace(base.attributes if base else fresh, **changes),
        options=ChunkOptions(size=400, overlap=0, minimum=32),
        recipe="paragraph/1/400/0/32",
        provenance=Provenance(channel="cli"),
        agent=None,
        session_id=None,
        base=base,
        plan=Plan.STORE,
    )


def cut_paragraphs(paragraphs: Sequence[str]) -> list[Chunk]:
    """One chunk a paragraph, at its offset in code points."""
    chunks: list[Chunk] = []
    start = 0
    for index, text in enumerate(paragraphs):
        chunks.append(
            Chunk(
                index=index,
                text=text,
                char_start=start,
                char_end=start + len(text),
                token_count=len(text.split()),
                heading_path=("Part", str(index)),
            )
        )
        start += len(text) + len(PARAGRAPH_GAP)
    return chunks


def embed_chunks(
    chunks: Sequence[Chunk], keep: list[StoredChunkKey], context: str, new_id: Callable[[], str]
) -> list[EmbeddedChunk]:
    """Chunks with vectors; a stored row is kept, once, where its embedding input is the same."""
    embedded: list[EmbeddedChunk] = []
    for chunk in chunks:
        input_hash = hash_text(chunk.text)
        kept = next((key for key in keep if key.embedding_input_hash == input_hash), None)
        if kept:
            keep.remove(kept)
        embedded.append(
            EmbeddedChunk(
                chunk_id=kept.chunk_id if kept else new_id(),
                chunk=chunk,
                context=context,
                embedding_input_hash=input_hash,
                row_hash=hash_text(f"{context}\n{chunk.text}"),
                vector=None if kept else make_vector(chunk.text),
                kept=kept,
            )
        )
    return embedded


def make_vector(text: str) -> Vector:
    """Numbers that depend on the text alone."""
    digest = hashlib.sha256(text.encode()).digest()
    return (np.frombuffer(digest, dtype="<u4")[:DIMENSIONS] / 2**32).astype(np.float32)
