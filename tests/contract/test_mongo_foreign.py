"""Another program's memory, on the fake and on the real MongoDB: what is read, what is damaged, and nothing written."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from bson import BSON, ObjectId, encode
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, monitoring
from pymongo.database import Database

from deployments.services import Service, acquire
from memory_core.adapters.mongo_connection import MongoConnection, connect
from memory_core.adapters.mongo_foreign import MongoForeignMemory, open_foreign
from memory_core.errors import ConfigError, StorageUnavailableError
from memory_core.fakes.foreign import FakeForeignMemory
from memory_core.migrate_ports import ForeignMemory, ForeignRow, OrphanedChunks, StrangeDocument
from memory_core.settings import load_settings

Rows: TypeAlias = list[dict[str, Any]]
Open: TypeAlias = Callable[..., ForeignMemory]

WRITTEN = datetime(2025, 3, 1, 12, 0, 0, 5_000, tzinfo=UTC)
A, B, C = (digit * 24 for digit in "abc")


def with_object_ids(row: dict[str, Any]) -> dict[str, Any]:
    """24 hex digits become an ObjectId, as the real program writes ids."""
    return {
        name: ObjectId(value) if name in {"_id", "documentId"} and ObjectId.is_valid(str(value)) else value
        for name, value in row.items()
    }


@pytest.fixture(scope="session")
def foreign_database(session_home: Path, mongodb_uri: str) -> Generator[Database[dict[str, Any]]]:
    """A database of a random name that the session's user may use; dropped at the end."""
    name = f"foreign_{secrets.token_hex(6)}"
    settings = load_settings(MEMORY_HOME=session_home, MONGODB_DB_NAME=name)
    with (
        acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None),
        closing(MongoClient[dict[str, Any]](mongodb_uri)) as client,
    ):
        yield client[name]
        client.drop_database(name)


@pytest.fixture
def empty_database(foreign_database: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    """The same, without collections."""
    for name in foreign_database.list_collection_names():
        foreign_database.drop_collection(name)
    return foreign_database


@pytest.fixture(params=["fake", pytest.param("mongodb", marks=pytest.mark.services)])
def open_memory(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Makes a memory of these documents and chunks: `open_memory(documents, chunks, is_ours=)`."""
    if request.param == "fake":
        yield FakeForeignMemory
        return
    uri: str = request.getfixturevalue("mongodb_uri")
    database: Database[dict[str, Any]] = request.getfixturevalue("empty_database")
    connection = connect(uri, database.name, max_pool_size=2, server_selection_timeout_ms=5_000)

    def make(documents: Rows | None = None, chunks: Rows | None = None, *, is_ours: bool = False) -> ForeignMemory:
        for name, rows in (("documents", documents), ("chunks", chunks)):
            if rows:
                database[name].insert_many(map(with_object_ids, rows))
        if is_ours:
            database["meta"].insert_one({"_id": "memory"})
        return MongoForeignMemory(connection)

    yield make
    connection.client.close()


async def read_all(memory: ForeignMemory, limit: int) -> list[ForeignRow]:
    """Page after page, until one is empty."""
    found: list[ForeignRow] = []
    while page := await memory.read_page(after=found[-1].document_id if found else None, limit=limit):
        assert len(page) <= limit
        found += page
    return found


async def test_what_a_database_is(open_memory: Open) -> None:
    """Empty, theirs or ours."""
    facts = await open_memory().inspect()
    assert (facts.documents, facts.is_empty, facts.is_ours) == (0, True, False)
    facts = await open_memory([{"_id": A}, {"_id": B}]).inspect()
    assert (facts.documents, facts.is_empty, facts.is_ours) == (2, False, False)
    assert (await open_memory([], [], is_ours=True).inspect()).is_ours


async def test_chunks_alone_are_not_nothing(open_memory: Open) -> None:
    """A database whose documents were lost is no empty one."""
    memory = open_memory([], [{"documentId": A}])
    assert not (await memory.inspect()).is_empty
    assert await read_all(memory, 10) == []
    assert await memory.find_strange_documents() == []


async def test_pages_have_every_proper_document_once_and_no_text(open_memory: Open) -> None:
    """By ascending id, with the fields as they are, whatever their types."""
    rows: Rows = [
        {"_id": C, "sourceId": "notes/c", "content": "C", "version": 3, "metadata": {"a": {"b": [1, None, True]}}},
        {"_id": A, "sourceId": 5, "title": None, "tags": "one", "createdAt": WRITTEN, "content": 7},
        {"_id": 17, "sourceId": "number"},
        {"_id": "text", "sourceId": "text"},
        {"_id": True},
        {"_id": B, "ingest": {"agent": "a"}, "contentHash": "0" * 64},
    ]
    memory = open_memory(rows)
    for limit in (1, 2, 10):
        found = await read_all(memory, limit)
        assert [one.document_id for one in found] == [A, B, C]
        assert [dict(one.fields) for one in found] == [
            {"sourceId": 5, "title": None, "tags": "one", "createdAt": WRITTEN},
            {"ingest": {"agent": "a"}, "contentHash": "0" * 64},
            {"sourceId": "notes/c", "version": 3, "metadata": {"a": {"b": [1, None, True]}}},
        ]
    assert [await memory.read_content(one) for one in (A, B, C, "d" * 24)] == [7, None, "C", None]
    strange = await memory.find_strange_documents()
    assert sorted(strange, key=lambda one: one.shown_id) == [
        StrangeDocument(shown_id="'text'", source_id="text"),
        StrangeDocument(shown_id="17", source_id="number"),
        StrangeDocument(shown_id="True", source_id=None),
    ]


async def test_source_ids_that_are_shared(open_memory: Open) -> None:
    """Only texts, with every document that has them; a list that holds one is another thing."""
    rows: Rows = [
        {"_id": B, "sourceId": "same"},
        {"_id": A, "sourceId": "same"},
        {"_id": C, "sourceId": "alone"},
        {"_id": "d" * 24, "sourceId": ["same"]},
        {"_id": "e" * 24},
        {"_id": "f" * 24},
    ]
    assert await open_memory(rows).find_shared_sources() == {"same": [A, B]}


async def test_chunks_without_a_document(open_memory: Open) -> None:
    """One entry for each id that they name, in any order; those of a document that is there are none."""
    chunks: Rows = [
        {"documentId": A, "sourceId": "there"},
        {"documentId": B, "sourceId": "gone"},
        {"documentId": B, "sourceId": "gone"},
        {"documentId": "not an id", "sourceId": "odd"},
        {"sourceId": "nameless"},
    ]
    found = await open_memory([{"_id": A}], chunks).find_orphaned_chunks()
    assert sorted(found, key=lambda one: one.shown_id or "") == [
        OrphanedChunks(shown_id=None, source_id=None, chunks=1),
        OrphanedChunks(shown_id="'not an id'", source_id=None, chunks=1),
        OrphanedChunks(shown_id=B, source_id="gone", chunks=2),
    ]


# --- what only MongoDB has --------------------------------------------------------------------------------------------


class Commands(monitoring.CommandListener):
    """The names of everything that is sent."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Note it."""
        self.names.add(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to note."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """None of them fails."""
        raise AssertionError(event.failure)


@pytest.mark.services
async def test_nothing_is_ever_written(empty_database: Database[dict[str, Any]], mongodb_uri: str) -> None:
    """Every method sends commands that read, and nothing else."""
    empty_database["documents"].insert_many([{"_id": ObjectId(A), "sourceId": "a"}, {"sourceId": "a"}, {"_id": 5}])
    empty_database["chunks"].insert_one({"documentId": ObjectId(B)})
    commands = Commands()
    client: MongoClient[dict[str, Any]] = MongoClient(mongodb_uri, event_listeners=[commands])
    memory = MongoForeignMemory(MongoConnection(client=client, database=client[empty_database.name]))
    await memory.inspect()
    await read_all(memory, 10)
    await memory.read_content(A)
    assert await memory.find_strange_documents()
    assert await memory.find_shared_sources()
    assert await memory.find_orphaned_chunks()
    await memory.close()
    await memory.close()
    assert commands.names - {"saslStart", "saslContinue", "endSessions"} == {
        "find",
        "aggregate",
        "count",
        "listIndexes",
    }


@pytest.mark.services
async def test_broken_bytes_and_dates_stop_no_page(empty_database: Database[dict[str, Any]], mongodb_uri: str) -> None:
    """A text that is no UTF-8 shows it, and a date of the year 20,000 is none that Python has."""
    good = encode({"_id": ObjectId(A), "sourceId": "a", "title": "bad#", "content": "bad#", "createdAt": WRITTEN})
    broken = BSON(good.replace(b"bad#", b"bad\xff"))
    empty_database["documents"].insert_one(RawBSONDocument(broken))
    late = {"_id": ObjectId(B), "updatedAt": {"$add": [WRITTEN, 18_000 * 366 * 86_400_000]}}
    empty_database["documents"].aggregate(
        [{"$match": {"_id": ObjectId(A)}}, {"$project": late}, {"$merge": {"into": "documents"}}]
    )
    memory = open_foreign(mongodb_uri, empty_database.name, variable="X", server_selection_timeout_ms=5_000)
    first, second = await read_all(memory, 10)
    assert (first.fields["title"], await memory.read_content(A)) == ("bad\udcff", "bad\udcff")
    assert not isinstance(second.fields["updatedAt"], datetime)
    await memory.close()


@pytest.mark.services
async def test_a_unique_index_answers_for_all_documents(
    empty_database: Database[dict[str, Any]], mongodb_uri: str
) -> None:
    """The other program makes one, and then no document needs to be counted; a partial one says nothing."""
    documents = empty_database["documents"]
    documents.create_index("sourceId", unique=True, partialFilterExpression={"version": 1}, name="partial")
    documents.insert_many([{"_id": ObjectId(A), "sourceId": "a"}, {"_id": ObjectId(B), "sourceId": "a"}])
    memory = open_foreign(mongodb_uri, empty_database.name, variable="X", server_selection_timeout_ms=5_000)
    assert await memory.find_shared_sources() == {"a": [A, B]}
    documents.delete_one({"_id": ObjectId(B)})
    documents.drop_index("partial")
    documents.create_index("sourceId", unique=True)
    assert await memory.find_shared_sources() == {}
    await memory.close()


async def test_an_error_names_the_setting_of_the_source() -> None:
    """Not the one of the memory, which may be right."""
    with pytest.raises(ConfigError, match=r"source of the migration.*MIGRATE_MONGODB_URI cannot be understood"):
        open_foreign("mongodb://a:b:c@/", "old", variable="MIGRATE_MONGODB_URI", server_selection_timeout_ms=50)
    memory = open_foreign(
        "mongodb://127.0.0.1:9/", "old", variable="MIGRATE_MONGODB_URI", server_selection_timeout_ms=50
    )
    with pytest.raises(StorageUnavailableError, match=r"Check that MIGRATE_MONGODB_URI is right"):
        await memory.inspect()
    await memory.close()
