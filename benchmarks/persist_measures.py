"""What `persist.py` measures of writing. In: texts and a core. Out: seconds and counts. Nothing here judges.

Seconds are wall time. What is compared runs in turns, so that a busy moment meets all of it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persist_wire import Traffic, listen
from pymongo import MongoClient

from deployments.services import Service, acquire
from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row, connect
from memory_core.bootstrap import build_core
from memory_core.chunk.chunk_content import chunk_documents
from memory_core.embed import embed_documents
from memory_core.models import ChunkedDocument, Document, EmbeddedDocument, Outcome, StoreOutcome, StoreRequest
from memory_core.persist import persist_documents
from memory_core.ports import Core, Stages
from memory_core.settings import load_settings
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.validate import validate_requests

_BATCH_DOCUMENTS = 32
_SAMPLE_SECONDS = 0.01
_BARE = "bare"


@dataclass(frozen=True, slots=True)
class Place:
    """A database on the command's own server, as the product is wired to it, and a connection beside the product."""

    core: Core
    connection: MongoConnection


@asynccontextmanager
async def open_place(home: Path, database: str, **chosen: Any) -> AsyncGenerator[Place]:  # noqa: ANN401 - one per variable
    """A new database with every index, which one small document was stored in; it is dropped at the end."""
    settings = load_settings(MEMORY_HOME=home, MONGODB_DB_NAME=database, EMBEDDING_PROVIDER="hash", **chosen)
    with acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None) as lease:
        assert lease.addresses.mongodb_uri is not None
        uri = lease.addresses.mongodb_uri.get_secret_value()
        core = build_core(settings, mongodb_uri=uri)
        connection = connect(uri, database, max_pool_size=4, server_selection_timeout_ms=10_000)
        try:
            await store(["The first store makes the indexes and opens the connections."], core, prefix="warm")
            yield Place(core, connection)
        finally:
            connection.client.drop_database(database)
            await connection.close()
            await core.close()


def make_requests(contents: Sequence[str], prefix: str, **fields: Any) -> list[StoreRequest]:  # noqa: ANN401 - the request's
    """Each content as Markdown under a source id of its own."""
    return [
        StoreRequest(
            request=StoreContentRequest(
                content=content, source_id=f"{prefix}/{number:05}", content_type="text/markdown", **fields
            ),
            provenance=Provenance(channel="benchmark"),
        )
        for number, content in enumerate(contents)
    ]


async def store(
    contents: Sequence[str],
    core: Core,
    *,
    prefix: str,
    stages: Stages = PLAIN_STAGES,
    **fields: Any,  # noqa: ANN401 - the request's
) -> list[StoreOutcome]:
    """Store each content down the path, in one batch."""
    return await store_content(make_requests(contents, prefix, **fields), core=core, stages=stages)


# --- persist alone ----------------------------------------------------------------------------------------------------


async def embed_all(contents: Sequence[str], core: Core) -> list[EmbeddedDocument]:
    """New documents as the embed stage hands them on."""
    embedded: list[EmbeddedDocument] = []
    for start in range(0, len(contents), _BATCH_DOCUMENTS):
        requests = make_requests(contents[start : start + _BATCH_DOCUMENTS], f"batch-{start}")
        documents = [one for one in await validate_requests(requests, core=core) if isinstance(one, Document)]
        chunked = [one for one in await chunk_documents(documents, core=core) if isinstance(one, ChunkedDocument)]
        found = [one for one in await embed_documents(chunked, core=core) if isinstance(one, EmbeddedDocument)]
        assert len(found) == len(requests), "a document left the path"
        embedded += found
    return embedded


def make_rows(embedded: Sequence[EmbeddedDocument], core: Core) -> list[Row]:
    """The chunk documents that persist writes for these."""
    now = core.clock()
    return [row for one in embedded for row in rows.new_chunk_rows(one, version=1, now=now)]


async def time_persist(embedded: Sequence[EmbeddedDocument], core: Core) -> float:
    """Seconds of the persist stage."""
    began = time.perf_counter()
    outcomes = await persist_documents(embedded, core=core)
    seconds = time.perf_counter() - began
    assert all(isinstance(one, StoreOutcome) and one.outcome is Outcome.CREATED for one in outcomes)
    return seconds


def time_bare(documents: Sequence[Row], connection: MongoConnection) -> float:
    """Seconds of one insert_many, majority and journaled, into a collection without an index of its own."""
    collection = connection.collection(_BARE)
    collection.insert_one({"_id": "the collection is there"})
    began = time.perf_counter()
    collection.insert_many(documents)
    return time.perf_counter() - began


# --- stores and edits -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreRun:
    """One store down the path: its outcome, the seconds of each stage and of the whole, and what was sent."""

    outcome: StoreOutcome
    stages: Mapping[str, float]
    seconds: float
    traffic: Traffic

    @property
    def without_embedding(self) -> float:
        """Seconds of the whole but for the embed stage."""
        return self.seconds - self.stages["embed"]


async def watch_store(content: str, core: Core, *, prefix: str, **fields: Any) -> StoreRun:  # noqa: ANN401 - the request's
    """Store one content and watch it."""
    seconds: defaultdict[str, float] = defaultdict(float)
    with listen() as traffic:
        began = time.perf_counter()
        (outcome,) = await store([content], core, prefix=prefix, stages=time_stages(seconds), **fields)
        whole = time.perf_counter() - began
    return StoreRun(outcome, seconds, whole, traffic)


def time_stages(seconds: dict[str, float]) -> Stages:
    """The plain stages, each of which adds its seconds under its name."""

    def timed(name: str, stage: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(values: Sequence[Any], *, core: Core) -> Any:  # noqa: ANN401 - whatever the stage returns
            began = time.perf_counter()
            try:
                return await stage(values, core=core)
            finally:
                seconds[name] += time.perf_counter() - began

        return run

    return Stages(
        validate=timed("validate", PLAIN_STAGES.validate),
        chunk=timed("chunk", PLAIN_STAGES.chunk),
        embed=timed("embed", PLAIN_STAGES.embed),
        persist=timed("persist", PLAIN_STAGES.persist),
    )


# --- the server's cache -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CacheUse:
    """Bytes of the server's cache: its size, and what was dirty before and at most."""

    size: int
    before: int
    peak: int


@contextmanager
def watch_cache(connection: MongoConnection) -> Generator[CacheUse]:
    """Ask the server for its cache's dirty bytes, a hundred times a second, until the block ends."""
    client = connection.client
    first = read_cache(client)
    dirty = first["tracked dirty bytes in the cache"]
    use = CacheUse(size=first["maximum bytes configured"], before=dirty, peak=dirty)
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            use.peak = max(use.peak, read_cache(client)["tracked dirty bytes in the cache"])

    thread = threading.Thread(target=sample, name="watch-cache")
    thread.start()
    try:
        yield use
    finally:
        ended.set()
        thread.join()


def read_cache(client: MongoClient[Row]) -> dict[str, int]:
    """What WiredTiger says of its cache."""
    return client.admin.command("serverStatus")["wiredTiger"]["cache"]
