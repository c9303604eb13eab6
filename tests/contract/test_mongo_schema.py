"""What MongoDB itself refuses, and how a database of an older schema becomes one of this program's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

import pytest
from bson import ObjectId
from pymongo import monitoring
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

from memory_core.adapters.mongo_connection import MongoConnection
from memory_core.adapters.mongo_migrations import MIGRATIONS, Migration, migrate
from memory_core.adapters.mongo_schema import VALIDATORS, apply_validators
from memory_core.adapters.mongo_store import MongoStore
from memory_core.errors import ForeignDatabaseError, StorageError
from memory_core.models import DocumentState, EmbeddedDocument, Fingerprint
from memory_core.spaces import SCHEMA_VERSION
from memory_core.store_ports import MemoryStore, SchemaChange, SchemaStep

pytestmark = [pytest.mark.services, pytest.mark.parametrize("backend", ["mongodb"], indirect=True)]

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]
Stored: TypeAlias = Database[dict[str, Any]]

_REFUSED = 121  # DocumentValidationFailure


class Wire(monitoring.CommandListener):
    """The names of the commands that are sent."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep the name."""
        self.names.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


_wire = Wire()
monitoring.register(_wire)


@pytest.fixture
async def stored(contract_database: Stored, store: MemoryStore, put: Put) -> Stored:
    """A database with one document of two chunks."""
    assert isinstance(store, MongoStore)
    await put("notes/a", "alpha", "beta", attributes={"uri": "file:///a", "tags": ("x",), "metadata": {"k": [1]}})
    return contract_database


def connection_of(store: MemoryStore) -> MongoConnection:
    """The store's own connection."""
    assert isinstance(store, MongoStore)
    return store._connection  # pyright: ignore[reportPrivateUsage] - it is closed with the store


def sound_row(stored: Stored, name: str) -> dict[str, Any]:
    """A row that the server would take, under an id of its own."""
    row = stored[name].find_one({})
    assert row is not None
    other = {"documents": {"sourceId": "notes/copy"}, "contents": {"part": 7}, "chunks": {}}[name]
    return {**row, "_id": ObjectId(), **other}


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(VALIDATORS))
async def test_every_field_of_a_row_is_named(stored: Stored, name: str) -> None:
    """A rule that knows less than what is written would refuse it; a copy of a sound row is taken."""
    row = sound_row(stored, name)
    assert set(row) <= set(VALIDATORS[name]["$jsonSchema"]["properties"])
    stored[name].insert_one(row)


@pytest.mark.parametrize("name", sorted(VALIDATORS))
async def test_a_row_that_lacks_a_field_is_refused(stored: Stored, name: str) -> None:
    """Each of them in turn; on a change too."""
    row = sound_row(stored, name)
    optional = {"_id", "embeddingWindows"}
    for field in set(row) - optional:
        with pytest.raises(WriteError) as refusal:
            stored[name].insert_one({key: value for key, value in row.items() if key != field} | {"_id": ObjectId()})
        assert refusal.value.code == _REFUSED, field
        with pytest.raises(WriteError) as refusal:
            stored[name].update_one({}, {"$unset": {field: ""}})
        assert refusal.value.code == _REFUSED, field


@pytest.mark.parametrize("name", sorted(VALIDATORS))
async def test_a_field_of_another_type_is_refused(stored: Stored, name: str) -> None:
    """No field takes a broken number; numbers, dates, lists and vectors take no text."""
    row = sound_row(stored, name)
    for field, value in row.items():
        for other in (1.5,) if isinstance(value, str) or value is None else (1.5, "a text"):
            with pytest.raises(WriteError) as refusal:
                stored[name].insert_one({**row, "_id": ObjectId(), field: other})
            assert refusal.value.code == _REFUSED, (field, other)


@pytest.mark.parametrize("name", sorted(VALIDATORS))
async def test_a_field_that_nobody_knows_is_refused(stored: Stored, name: str) -> None:
    """A misspelt one is not stored in silence."""
    for write in (
        lambda: stored[name].insert_one({**sound_row(stored, name), "tittle": "x"}),
        lambda: stored[name].update_one({}, {"$set": {"tittle": "x"}}),
    ):
        with pytest.raises(WriteError) as refusal:
            write()
        assert refusal.value.code == _REFUSED


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("documents", "sourceId", ""),
        ("documents", "sourceId", "s" * 257),
        ("documents", "version", 0),
        ("documents", "versions", []),
        ("documents", "versions", [{"version": 1}]),
        ("documents", "contentHash", "abc"),
        ("documents", "contentType", "video"),
        ("documents", "tags", ["t"] * 51),
        ("documents", "chunking.chunkCount", 0),
        ("documents", "embedding.dimensions", 0),
        ("documents", "embedding.contextBasis", {"title": "t"}),
        ("chunks", "chunkIndex", -1),
        ("chunks", "charEnd", 0),
        ("chunks", "embedding", [0.5]),
        ("chunks", "embeddingWindows", 0),
        ("contents", "part", -1),
        ("contents", "text", "x" * 1_000_001),
    ],
)
async def test_a_value_beyond_its_bounds_is_refused(stored: Stored, name: str, field: str, value: object) -> None:
    """On a change of a sound row."""
    with pytest.raises(WriteError) as refusal:
        stored[name].update_one({}, {"$set": {field: value}})
    assert refusal.value.code == _REFUSED


async def test_optional_fields_are_taken(stored: Stored) -> None:
    """Those that most rows lack, on a chunk and on a document."""
    row = sound_row(stored, "chunks")
    stored["chunks"].insert_one(
        {**row, "lead": "a | b", "readable": "alpha", "situated": "of A", "embeddingWindows": 2}
    )
    stored["chunks"].insert_one(
        {key: value for key, value in row.items() if key != "embeddingWindows"} | {"_id": ObjectId()}
    )
    stored["documents"].update_one(
        {}, {"$set": {"embedding.windows": [2, 1]}, "$unset": {"chunking.chunkLanguage": ""}}
    )


async def test_a_row_of_before_the_rules_can_still_be_mended(stored: Stored) -> None:
    """It breaks a rule already: it may be changed, and from the moment that it is sound it is held to the rules."""
    row = sound_row(stored, "chunks")
    stored.command("insert", "chunks", documents=[{**row, "context": None, "old": 1}], bypassDocumentValidation=True)
    stored["chunks"].update_one({"_id": row["_id"]}, {"$set": {"context": "mended"}})
    stored["chunks"].update_one({"_id": row["_id"]}, {"$unset": {"old": ""}})
    with pytest.raises(WriteError):
        stored["chunks"].update_one({"_id": row["_id"]}, {"$set": {"old": 1}})


@pytest.mark.usefixtures("stored")
async def test_rules_cost_one_question_where_they_are_there(store: MemoryStore) -> None:
    """Every process asks before its first write."""
    database = connection_of(store).database
    _wire.names.clear()
    apply_validators(database)
    assert _wire.names == ["listCollections"]


async def test_rules_that_differ_or_lack_are_put_right(
    stored: Stored, reopen: Callable[[], MemoryStore], space: Fingerprint
) -> None:
    """By whoever prepares next; several at once do no harm."""
    stored.command("collMod", "chunks", validator={}, validationLevel="off")
    stored.drop_collection("contents")
    others = [reopen() for _ in range(4)]
    await asyncio.gather(*(one.prepare(space) for one in others))
    options = {one["name"]: one["options"] for one in stored.list_collections()}
    assert {name: options[name]["validator"] for name in VALIDATORS} == VALIDATORS
    assert {options[name]["validationLevel"] for name in VALIDATORS} == {"moderate"}


async def test_a_broken_write_is_refused_whole(stored: Stored, store: MemoryStore, build: Build, now: datetime) -> None:
    """The server stands behind the checks of the stages: nothing of the group is stored."""
    good, bad = build("notes/b", "gamma"), build("notes/c", "delta")
    broken = replace(bad, document=replace(bad.document, source_id="s" * 300))
    with pytest.raises(StorageError, match="does not fit the schema"):
        await store.write_together([good, broken], now=now)
    assert set(await store.read_states(["notes/a", "notes/b", "s" * 300])) == {"notes/a"}
    assert stored["contents"].count_documents({}) == 1


# --- migrations -------------------------------------------------------------------------------------------------------


async def make_old(stored: Stored) -> None:
    """The database as schema 1 left it: no rules, no recipe, nothing recorded."""
    for name in VALIDATORS:
        stored.command("collMod", name, validator={}, validationLevel="off")
    stored["meta"].update_one({}, {"$set": {"schemaVersion": 1}, "$unset": {"migrations": "", "recipe": ""}})


async def test_an_old_database_is_read_and_then_migrated(
    stored: Stored, reopen: Callable[[], MemoryStore], space: Fingerprint
) -> None:
    """Refused with the command; a dry run changes nothing; a step is recorded with its time; then it is written."""
    await make_old(stored)
    old = reopen()
    with pytest.raises(ForeignDatabaseError, match=r"schema 1 .*schema 2.*`memory migrate`"):
        await old.prepare(space)
    assert set(await old.read_states(["notes/a"])) == {"notes/a"}
    planned = await old.migrate(dry_run=True)
    steps = (SchemaStep(number=2, name=MIGRATIONS[1].name),)
    assert planned == SchemaChange(before=1, after=2, steps=steps, dry_run=True)
    meta = stored["meta"].find_one({}) or {}
    assert (meta["schemaVersion"], meta.get("migrations")) == (1, None)
    assert await old.migrate() == SchemaChange(before=1, after=2, steps=steps)
    [entry] = (stored["meta"].find_one({}) or {})["migrations"]
    assert (entry["number"], entry["name"], type(entry["at"])) == (2, MIGRATIONS[1].name, datetime)
    assert await old.migrate() == SchemaChange(before=2, after=2)
    assert (await old.prepare(space)).schema_version == SCHEMA_VERSION
    with pytest.raises(OperationFailure):
        stored["chunks"].insert_one({"typo": 1})


async def test_two_migrations_at_once_record_a_step_once(stored: Stored, reopen: Callable[[], MemoryStore]) -> None:
    """Both do it, one says so."""
    await make_old(stored)
    changes = await asyncio.gather(*(reopen().migrate() for _ in range(4)))
    assert sum(len(change.steps) for change in changes) == 1
    meta = stored["meta"].find_one({}) or {}
    assert (meta["schemaVersion"], [one["number"] for one in meta["migrations"]]) == (2, [2])


async def test_a_migration_that_was_killed_goes_on_with_the_step_that_it_was_at(
    stored: Stored, store: MemoryStore
) -> None:
    """What was recorded is not repeated; what was cut off is."""
    await make_old(stored)
    ran: list[int] = []

    def killed(database: Database[dict[str, Any]]) -> None:
        del database
        ran.append(3)
        if ran.count(3) == 1:
            raise KeyboardInterrupt

    steps = (
        *MIGRATIONS[:1],
        Migration(number=2, name="two", apply=lambda _: ran.append(2)),
        Migration(number=3, name="three", apply=killed),
    )
    with pytest.raises(KeyboardInterrupt):
        migrate(connection_of(store), dry_run=False, migrations=steps)
    assert (stored["meta"].find_one({}) or {})["schemaVersion"] == 2
    change = migrate(connection_of(store), dry_run=False, migrations=steps)
    assert (ran, [one.number for one in change.steps], change.before, change.after) == ([2, 3, 3], [3], 2, 3)


async def test_a_running_process_does_not_write_to_a_schema_that_it_does_not_know(
    stored: Stored, store: MemoryStore, build: Build, now: datetime
) -> None:
    """A newer program migrated the database while it was embedding."""
    stored["meta"].update_one({}, {"$set": {"schemaVersion": SCHEMA_VERSION + 1}})
    with pytest.raises(ForeignDatabaseError, match="newer version of this program"):
        await store.write_together([build("notes/b", "gamma")], now=now)
    with pytest.raises(ForeignDatabaseError, match="newer version of this program"):
        await store.migrate()
    with pytest.raises(ForeignDatabaseError, match="newer version of this program"):
        await store.activate_recipe("another")
    assert stored["documents"].count_documents({}) == 1


async def test_rows_of_another_program_are_not_migrated(
    stored: Stored, reopen: Callable[[], MemoryStore], lose_meta: Callable[[], None]
) -> None:
    """They have no `meta` of ours."""
    lose_meta()
    with pytest.raises(ForeignDatabaseError):
        await reopen().migrate()
    assert stored["meta"].count_documents({}) == 0
