"""A memory whose vectors come from a fake provider. In: a FakeProvider. Out: a wired core on a real MongoDB.

`PaidMemory` stores and searches through the product, and reads everything that a run said or left behind.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pymongo import MongoClient
from pymongo.database import Database

from deployments.services import Service, acquire
from memory_core.adapters.mongo_rows import decode_vector
from memory_core.answers import SearchMode
from memory_core.bootstrap import build_core
from memory_core.models import StoreOutcome, StoreRequest
from memory_core.ports import Core, Stages
from memory_core.search import search_knowledge
from memory_core.settings import load_settings
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_request import Provenance, StoreContentRequest
from tests.providers.fake_provider import FakeProvider, SeenRequest, vector_of
from tests.providers.faults import Fault
from tests.providers.vendors import OPENAI, VOYAGE, Vendor

KEY: Final = "lantern~harbour~7Qx9"  # looks like no key: only the setting's own value can keep it out of a message
DIMENSIONS: Final = 256
VENDORS: Final[Mapping[str, Vendor]] = {"openai": OPENAI, "voyage": VOYAGE}

Rows = Mapping[str, list[dict[str, Any]]]


class TimedProvider(FakeProvider):
    """A FakeProvider that accepts KEY alone and knows when each request came."""

    def __init__(self, vendor: str, **options: Any) -> None:
        super().__init__(vendor=VENDORS[vendor], dimensions=DIMENSIONS, key=KEY, **options)
        self.came: list[float] = []

    def enter(self) -> Fault | None:
        """A request begins."""
        self.came.append(time.monotonic())
        return super().enter()

    @property
    def documents(self) -> list[SeenRequest]:
        """The requests for chunks, without those for queries."""
        return [seen for seen in self.requests if seen.body.get("input_type") != "query"]


def environment_of(vendor: str, base_url: str, **chosen: str) -> dict[str, str]:
    """The variables of a memory that pays this vendor. Chunks are small, so that a page has ten."""
    own = (
        {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": base_url}
        if vendor == "openai"
        else {"VOYAGE_API_KEY": KEY, "VOYAGE_API_BASE_URL": base_url}
    )
    return {
        "EMBEDDING_PROVIDER": vendor,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "EMBEDDING_MAX_RETRIES": "2",
        "EMBEDDING_TIMEOUT_MS": "10000",
        "CHUNK_SIZE_TOKENS": "160",
        "CHUNK_OVERLAP_TOKENS": "0",
        "CHUNK_MIN_TOKENS": "16",
        **own,
        **chosen,
    }


def write_page(word: str, parts: int = 10) -> str:
    """A document of so many chunks, none of which another word's page has."""
    return "\n\n".join(
        f"## {word} {number}\n\n"
        + " ".join(f"The {word} of part {number} is told in sentence {line}." for line in range(4))
        for number in range(parts)
    )


@dataclass(frozen=True, slots=True)
class PaidMemory:
    """One core, the provider that it pays, and its database."""

    core: Core
    provider: TimedProvider
    database: Database[dict[str, Any]]

    async def store(self, source_id: str, content: str, *, stages: Stages = PLAIN_STAGES) -> StoreOutcome:
        """Store one document down the path."""
        [outcome] = await self.store_all({source_id: content}, stages=stages)
        return outcome

    async def store_all(self, contents: Mapping[str, str], *, stages: Stages = PLAIN_STAGES) -> list[StoreOutcome]:
        """Store documents in one batch."""
        requests = [
            StoreRequest(
                request=StoreContentRequest(content=content, source_id=source_id, content_type="text/markdown"),
                provenance=Provenance(channel="test"),
            )
            for source_id, content in contents.items()
        ]
        return await store_content(requests, core=self.core, stages=stages)

    async def find(self, query: str, mode: SearchMode = SearchMode.HYBRID) -> set[str]:
        """The sources that a search finds; every leg that is asked must answer."""
        answer = await search_knowledge(query, core=self.core, mode=mode, limit=10)
        assert answer.effective_mode == answer.mode, answer.explanation
        return {hit.row.source_id for hit in answer.hits}

    def read_rows(self, source_id: str) -> Rows:
        """Every row of a document, with bodies; equal before and after means that nothing was written."""
        document = self.database.documents.find_one({"sourceId": source_id})
        if document is None:
            return {"documents": [], "chunks": [], "contents": []}
        chunks = self.database.chunks.find({"documentId": document["_id"]}).sort("chunkIndex")
        contents = self.database.contents.find({}).sort("_id")
        return {"documents": [document], "chunks": [*chunks], "contents": [*contents]}

    def check_vectors(self, source_id: str) -> None:
        """Each stored vector is that of its own text; a contextual model saw all texts of a window, in order."""
        rows = self.read_rows(source_id)
        [document], chunks = rows["documents"], rows["chunks"]
        assert len(chunks) == document["chunking"]["chunkCount"]
        made = places_of_vectors(self.provider.documents)
        seen = [made[decode_vector(row["embedding"]).tobytes()] for row in chunks]
        for row, (group, place) in zip(chunks, seen, strict=True):
            assert group[place].endswith(row["text"].splitlines()[-1])
        if self.core.embedder.is_contextual:
            sizes: list[int] = document["embedding"].get("windows", [len(chunks)])
            assert [place for _, place in seen] == [place for size in sizes for place in range(size)]
            assert [len(group) for group, place in seen if place == 0] == sizes


def places_of_vectors(requests: Sequence[SeenRequest]) -> dict[bytes, tuple[tuple[str, ...], int]]:
    """Which group and place each vector that was given belongs to."""
    made: dict[bytes, tuple[tuple[str, ...], int]] = {}
    for seen in requests:
        is_nested = "inputs" in seen.body
        for group in seen.groups:
            for place, text in enumerate(group):
                vector = vector_of(text, DIMENSIONS, group=group if is_nested else None, place=place)
                made[vector.tobytes()] = (tuple(group), place)
    return made


@asynccontextmanager
async def open_memory(
    home: Path, database: str, vendor: str, provider: TimedProvider, **chosen: str
) -> AsyncGenerator[PaidMemory]:
    """A core as the product wires it, on this database."""
    variables: dict[str, Any] = environment_of(vendor, provider.base_url, **chosen)
    settings = load_settings(MEMORY_HOME=home, MONGODB_DB_NAME=database, MEMORY_IDLE_STOP_SECONDS=600, **variables)
    with acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None) as lease:
        assert lease.addresses.mongodb_uri is not None
        uri = lease.addresses.mongodb_uri.get_secret_value()
        core = build_core(settings, mongodb_uri=uri)
        try:
            with MongoClient[dict[str, Any]](uri) as client:
                yield PaidMemory(core, provider, client[database])
        finally:
            await core.close()


def tell_outcome(outcome: StoreOutcome) -> str:
    """Everything that an outcome could carry to a door, a log or Prefect's records."""
    error = outcome.error
    told = "" if error is None else "".join([*traceback.format_exception(error), repr(vars(error))])
    return repr(outcome) + told + repr(pickle.dumps(outcome))


def tell_database(database: Database[dict[str, Any]]) -> str:
    """Every row of every collection."""
    return "".join(repr(row) for name in database.list_collection_names() for row in database[name].find({}))


def files_with(word: str, folders: Sequence[Path]) -> Iterator[Path]:
    """The files below that contain the word. A server's own data may be compressed: its rows are read elsewhere."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and "mongodb/data" not in str(path) and word.encode() in path.read_bytes():
                yield path
