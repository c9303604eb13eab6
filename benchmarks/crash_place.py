"""What the processes of `crash.py` share. In: where the server is. Out: a core, a connection, and what is stored.

Each process makes its own: nothing of a driver crosses a fork.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from crash_checks import Seen, View
from crash_texts import CHUNK_TOKENS, SOURCES
from pymongo.client_session import ClientSession

from memory_core.adapters.mongo_connection import MongoConnection, connect
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS
from memory_core.adapters.mongo_sweeps import owned_bodies
from memory_core.bootstrap import build_core
from memory_core.ports import Core
from memory_core.settings import load_settings

DATABASE = "crash"
_DIMENSIONS = 64
_VERSIONS_KEPT = 2  # so that old texts are removed all the time
# A server that was killed is there again by then.
_SELECTION_MS = 30_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is. `uri` leads over the wire that is cut, `direct_uri` does not."""

    folder: Path
    uri: str
    direct_uri: str
    atomic: bool

    @property
    def log(self) -> Path:
        """What the writers say."""
        return self.folder / "writers.jsonl"

    @property
    def readings(self) -> Path:
        """What the reader found."""
        return self.folder / "reader.json"

    def open_core(self) -> Core:
        """The product, as it is wired, with small chunks and an embedder that costs nothing."""
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        settings = load_settings(
            MEMORY_HOME=self.folder / "home",
            MONGODB_DB_NAME=DATABASE,
            MONGODB_SERVER_SELECTION_TIMEOUT_MS=_SELECTION_MS,
            MEMORY_VERSIONS_KEPT=_VERSIONS_KEPT,
            EMBEDDING_PROVIDER="hash",
            EMBEDDING_DIMENSIONS=_DIMENSIONS,
            CHUNK_SIZE_TOKENS=CHUNK_TOKENS,
            CHUNK_MIN_TOKENS=1,
        )
        return build_core(settings, mongodb_uri=self.uri)

    def connect(self) -> MongoConnection:
        """A connection that is not cut."""
        return connect(self.direct_uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=_SELECTION_MS)


def read_view(connection: MongoConnection, *, atomic: bool, sources: Sequence[str] = SOURCES) -> View:
    """Everything stored of these sources, at one moment where the server has such; all bodies where all are asked."""
    if not atomic:
        return _read_view(connection, sources, None)
    with connection.client.start_session(snapshot=True) as session:
        return _read_view(connection, sources, session)


def _read_view(connection: MongoConnection, sources: Sequence[str], session: ClientSession | None) -> View:
    chosen = {"sourceId": {"$in": list(sources)}}
    documents = list(connection.collection(DOCUMENTS).find(chosen, session=session))
    chunks = list(connection.collection(CHUNKS).find(chosen, {"embedding": 0}, session=session))
    is_whole = len(sources) == len(SOURCES)
    wanted: dict[str, Any] = {} if is_whole else {"bodyId": {"$in": [row["bodyId"] for row in documents]}}
    bodies: dict[str, str] = {}
    for row in connection.collection(CONTENTS).find(wanted, session=session).sort("part", 1):
        bodies[row["bodyId"]] = bodies.get(row["bodyId"], "") + row["text"]
    owned = owned_bodies(connection.database, session) if is_whole else set(bodies)
    return View(documents=documents, chunks=chunks, bodies=bodies, owned=frozenset(owned))


def seen_in(view: View) -> dict[str, Seen]:
    """What the documents of a view say, by source."""
    return {row["sourceId"]: Seen(row["uri"], next(iter(row["tags"]), None), row["version"]) for row in view.documents}
