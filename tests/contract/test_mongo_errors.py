"""Every error of the driver is ours: what is read, whether a retry helps, and that no content is in it.

On a mongod of its own that fails on request (the fail point `failCommand`). At the end: the concerns of every command
that the adapters send, whatever the URI says.
"""

from __future__ import annotations

import asyncio
import functools
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from pymongo import InsertOne, MongoClient, UpdateOne, monitoring
from pymongo.client_session import ClientSession

from deployments.local_mongodb import find_mongod
from memory_core.adapters import mongo_connection
from memory_core.adapters.mongo_connection import MongoConnection, connect, run_transaction
from memory_core.adapters.mongo_embedding_cache import MongoEmbeddingCache
from memory_core.adapters.mongo_feeds import MongoFeedStore
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, INDEXES, INTENTS, META
from memory_core.adapters.mongo_setup import LocalMongo, make_ready
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MongoSubmissionStore
from memory_core.embedding_ports import CachedVector
from memory_core.errors import StorageError, StorageUnavailableError, TooLargeError
from memory_core.models import (
    EmbeddedDocument,
    Fingerprint,
    Holder,
    Provenance,
    StoreContentRequest,
    StoreRequest,
)
from memory_core.ports import DeleteSelector, Feed, FileState, ManifestEntry, WriteVerdict

pytestmark = pytest.mark.services

Build: TypeAlias = Callable[..., EmbeddedDocument]
Row: TypeAlias = dict[str, Any]

DATABASE = "errors"
DIARY = "Dear diary, nobody may read this."
MEGABYTE = 1024 * 1024
START_SECONDS = 60.0
POLL_SECONDS = 0.02
# The journal alone takes 300 MB.
TINY_DISK = "400m"
ANN = Holder(host="laptop", pid=1, started=1.0, token="a" * 32)
BOB = Holder(host="laptop", pid=2, started=1.0, token="b" * 32)


# --- a mongod that fails on request -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailingMongo:
    """A replica set of one with authentication, and its root's client."""

    local: LocalMongo
    root: MongoClient[Row]
    process: subprocess.Popen[bytes]

    @property
    def uri(self) -> str:
        """Of the application's user. A client learns within half a second that the primary is there again."""
        return f"{self.local.application_uri}&heartbeatFrequencyMS=500"

    @property
    def set_uri(self) -> str:
        """The same for a client that chooses a member by itself: of a direct connection it asks whoever is there."""
        return self.uri.replace("directConnection=true", "replicaSet=memory")

    @contextmanager
    def failing(self, *commands: str, mode: str | Row = "alwaysOn", **how: Any) -> Generator[None]:
        """Let these commands fail as `how` says: errorCode, closeConnection, blockConnection, writeConcernError."""
        point = {"configureFailPoint": "failCommand", "mode": mode}
        self.root.admin.command(point | {"data": {"failCommands": list(commands), **how}})
        try:
            yield
        finally:
            self.root.admin.command({"configureFailPoint": "failCommand", "mode": "off"})

    @contextmanager
    def parameter(self, name: str, value: object) -> Generator[None]:
        """Set a parameter of the server for a while."""
        before = self.root.admin.command({"getParameter": 1, name: 1})[name]
        self.root.admin.command({"setParameter": 1, name: value})
        try:
            yield
        finally:
            self.root.admin.command({"setParameter": 1, name: before})

    def step_down(self) -> None:
        """Make it a secondary."""
        self.root.admin.command({"replSetStepDown": 60, "force": True})

    def stand_again(self) -> None:
        """Let it be elected, and wait until it is."""
        self.root.admin.command({"replSetFreeze": 0})
        await_true(lambda: self.root.admin.command("hello")["isWritablePrimary"])


def await_true(check: Callable[[], object]) -> None:
    """Ask until it is so: of a server's state there is no event."""
    deadline = time.monotonic() + START_SECONDS
    while not check():
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


@contextmanager
def start_mongod(directory: Path, *, around: Sequence[str] = ()) -> Generator[FailingMongo]:
    """A mongod that is primary; `around` is a program that starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    keyfile = directory / "keyfile"
    keyfile.write_text("k" * 40)
    keyfile.chmod(0o600)
    (directory / "data").mkdir()
    command = [*around, str(find_mongod({}, configured=None)), "--dbpath", str(directory / "data")]
    command += ["--port", str(port), "--bind_ip", "127.0.0.1", "--replSet", "memory", "--oplogSize", "16", "--auth"]
    command += ["--keyFile", str(keyfile), "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25"]
    for parameter in ("enableTestCommands=1", "diagnosticDataCollectionEnabled=false"):
        command += ["--setParameter", parameter]
    local = LocalMongo(port=port, root_password="r" * 16, application_password="p" * 16)
    with (directory / "mongod.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        await_true(lambda: is_listening(process, port))
        make_ready(local, databases=frozenset({DATABASE}), timeout_seconds=START_SECONDS)
        uri = f"mongodb://memory_root:{local.root_password}@{local.member}/?authSource=admin&directConnection=true"
        with MongoClient[Row](uri) as root:
            yield FailingMongo(local, root, process)
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


def is_listening(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether the server takes connections; it must not have ended."""
    assert process.poll() is None, "mongod did not start"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Generator[FailingMongo]:
    """One for the module."""
    with start_mongod(tmp_path_factory.mktemp("mongod")) as started:
        yield started


@dataclass
class Recorder(monitoring.CommandListener):
    """What was sent. `on_start` is called with a command's name just before it is."""

    commands: list[Row] = field(default_factory=list[Row])
    on_start: Callable[[str], None] = lambda _: None

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep the command with its name."""
        self.commands.append({**event.command, "name": event.command_name})
        self.on_start(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""

    def count(self, name: str) -> int:
        """How often that command was sent."""
        return sum(command["name"] == name for command in self.commands)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What every connection made from now on sends."""
    recorder = Recorder()
    monkeypatch.setattr(mongo_connection, "MongoClient", functools.partial(MongoClient, event_listeners=[recorder]))
    return recorder


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction is not tried again: the driver does so for two minutes."""
    monkeypatch.setattr("pymongo.client_session_shared._WITH_TRANSACTION_RETRY_TIME_LIMIT", 0)


@pytest.fixture
async def connection(mongod: FailingMongo, sent: Recorder) -> AsyncGenerator[MongoConnection]:
    """A connection as the program makes it, to an empty database."""
    for name in mongod.root[DATABASE].list_collection_names():
        mongod.root[DATABASE].drop_collection(name)
    opened = connect(mongod.uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    await opened.run(opened.collection("rows").insert_one, {"_id": 0})
    sent.commands.clear()
    yield opened
    await opened.close()


@pytest.fixture
async def store(connection: MongoConnection, space: Fingerprint) -> MongoStore:
    """A store on it that is ready to write."""
    opened = MongoStore(connection, versions_kept=5)
    await opened.prepare(space)
    return opened


async def read_error(connection: MongoConnection, call: Callable[[], object]) -> StorageError:
    """Our error for a call that fails; nothing of a document is in it."""
    with pytest.raises(StorageError) as raised:
        await connection.run(call)
    assert "diary" not in f"{raised.value.message} {raised.value.cause}".lower()
    return raised.value


def insert_diary(connection: MongoConnection) -> object:
    """A write with somebody's content."""
    return connection.collection("rows").insert_one({"text": DIARY})


# --- codes of the server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (10334, TooLargeError, "16 MB for a row"),
        (17280, TooLargeError, "16 MB for a row"),
        (17419, TooLargeError, "16 MB for a row"),
        (17420, TooLargeError, "smaller pieces"),
        (388, TooLargeError, "one transaction of this MongoDB"),
        (13, StorageError, "readWrite on its database"),
        (18, StorageError, "user or password is wrong"),
        (14031, StorageUnavailableError, "disk is full"),
        (64, StorageUnavailableError, "a majority of its members did not confirm"),
        (112, StorageUnavailableError, "Other writers"),
        (251, StorageUnavailableError, "transactionLifetimeLimitSeconds"),
        (290, StorageUnavailableError, "transactionLifetimeLimitSeconds"),
        (43, StorageUnavailableError, "before all of its answer was read"),
        (11601, StorageUnavailableError, "killOp"),
        (50, StorageUnavailableError, "longer than its time limit"),
        (262, StorageUnavailableError, "longer than its time limit"),
        (91, StorageUnavailableError, "changing its primary"),
        (189, StorageUnavailableError, "changing its primary"),
        (11600, StorageUnavailableError, "changing its primary"),
        (11602, StorageUnavailableError, "changing its primary"),
        (10107, StorageUnavailableError, "changing its primary"),
        (13435, StorageUnavailableError, "changing its primary"),
        (9, StorageError, "MongoDB refused the operation"),  # FailedToParse: one that the table does not know
    ],
)
async def test_each_code_has_its_sentence(
    mongod: FailingMongo, connection: MongoConnection, code: int, kind: type[StorageError], words: str
) -> None:
    """It says what happened and what to do; its class says whether a retry can help; the cause has the code."""
    with mongod.failing("insert", errorCode=code):
        error = await read_error(connection, lambda: insert_diary(connection))
    assert type(error) is kind
    assert words in error.message
    assert f": {code} " in (error.cause or "")
    assert "failpoint" in (error.cause or "")


async def test_an_error_that_passes_is_healed_by_the_driver(
    mongod: FailingMongo, connection: MongoConnection, sent: Recorder
) -> None:
    """A primary that is none any more is asked twice: the second answer counts, and a second failure is ours."""
    with mongod.failing("insert", mode={"times": 1}, errorCode=10107):
        await connection.run(insert_diary, connection)
    assert sent.count("insert") == 2
    assert connection.collection("rows").count_documents({"text": DIARY}) == 1
    sent.commands.clear()
    with mongod.failing("insert", errorCode=10107):
        error = await read_error(connection, lambda: insert_diary(connection))
    assert sent.count("insert") == 2
    assert error.retryable
    assert (error.cause or "").startswith("NotPrimaryError: 10107 NotWritablePrimary: ")


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", ["insert", "update", "bulk", "aggregation"])
async def test_what_is_above_16_mb_is_too_large(connection: MongoConnection, growth: str) -> None:
    """Seen by the driver or by the server, in one write or in a part of many."""
    rows = connection.collection("rows")
    nine = {"text": DIARY + "x" * 9 * MEGABYTE}
    rows.update_one({"_id": 0}, {"$set": {"first": nine}})
    writes: dict[str, Callable[[], object]] = {
        "insert": lambda: rows.insert_one({"first": nine, "second": nine}),
        "update": lambda: rows.update_one({"_id": 0}, {"$set": {"second": nine}}),
        "bulk": lambda: rows.bulk_write(
            [UpdateOne({"_id": 0}, {"$set": {"second": nine}}), InsertOne({"_id": DIARY})], ordered=False
        ),
        "aggregation": lambda: rows.update_one({"_id": 0}, [{"$set": {"second": "$first"}}]),
    }
    error = await read_error(connection, writes[growth])
    assert isinstance(error, TooLargeError)
    assert not error.retryable
    assert growth == "insert" or "10334" in (error.cause or "")
    # Of many writes those that fit are stored: nothing in the message says otherwise.
    assert rows.count_documents({"_id": DIARY}) == (growth == "bulk")


async def test_a_row_that_does_not_fit_the_schema_is_a_defect(
    mongod: FailingMongo, connection: MongoConnection
) -> None:
    """No retry and no user can heal it; the server's details, which quote the row, stay out."""
    rules = {"$jsonSchema": {"properties": {"text": {"bsonType": "int"}}}}
    mongod.root[DATABASE].command({"create": "strict", "validator": rules})
    strict = connection.collection("strict")
    bulk = [InsertOne({"text": DIARY}), InsertOne({"text": 1}), InsertOne({"text": DIARY})]
    for write in (lambda: strict.insert_one({"text": DIARY}), lambda: strict.bulk_write(bulk, ordered=False)):
        error = await read_error(connection, write)
        assert type(error) is StorageError
        assert "report it" in error.message
        assert (error.cause or "").endswith("Error: 121: Document failed validation")


async def test_a_duplicate_key_names_the_index_and_not_the_key(connection: MongoConnection) -> None:
    """Outside of the races that an adapter knows; a retry meets the other's row and updates it."""
    rows = connection.collection("rows")
    rows.insert_one({"_id": DIARY})

    def write_together() -> object:
        return run_transaction(connection, lambda session: rows.insert_one({"_id": DIARY}, session=session))

    bulk = [InsertOne({"_id": DIARY}), InsertOne({"_id": 1})]
    for write in (
        lambda: rows.insert_one({"_id": DIARY}),
        lambda: rows.bulk_write(bulk, ordered=False),
        write_together,
    ):
        error = await read_error(connection, write)
        assert error.retryable
        assert "same key" in error.message
        assert "11000: E11000 duplicate key error collection: errors.rows index: _id_" in (error.cause or "")


# --- who may do what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("database", "command", "words"),
    [
        (DATABASE, "insert", "insert needs the role readWrite on the database errors"),
        (DATABASE, "findAndModify", "findAndModify needs the role readWrite on the database errors"),
        (DATABASE, "createIndexes", "createIndexes needs the role readWrite on the database errors"),
        (DATABASE, "collMod", "collMod needs the role dbAdmin on the database errors"),
        ("other", "find", "find needs the role read on the database other"),
        ("other", "aggregate", "aggregate needs the role read on the database other"),
        ("admin", "serverStatus", "serverStatus needs the role clusterMonitor on the database admin"),
    ],
)
async def test_a_user_without_a_role_is_told_which(
    mongod: FailingMongo, connection: MongoConnection, database: str, command: str, words: str
) -> None:
    """The command, the role and the database; not the command's arguments."""
    reads = [{"role": "read", "db": DATABASE}]
    if not mongod.root.admin.command({"usersInfo": "reader"})["users"]:
        mongod.root.admin.command({"createUser": "reader", "pwd": "r" * 16, "roles": reads})
    uri = f"mongodb://reader:{'r' * 16}@{mongod.local.member}/?authSource=admin&directConnection=true"
    reader = connect(uri, database, max_pool_size=4, server_selection_timeout_ms=5_000)
    rows = reader.collection("rows")
    calls: dict[str, Callable[[], object]] = {
        "insert": lambda: rows.insert_one({"text": DIARY}),
        "findAndModify": lambda: rows.find_one_and_update({"text": DIARY}, {"$set": {"text": DIARY}}),
        "createIndexes": lambda: rows.create_index("diary"),
        "collMod": lambda: reader.database.command("collMod", "rows", validator={"text": DIARY}),
        "find": lambda: rows.find_one({"text": DIARY}),
        "aggregate": lambda: list(rows.aggregate([{"$match": {"text": DIARY}}])),
        "serverStatus": lambda: reader.client.admin.command("serverStatus"),
    }
    error = await read_error(connection, calls[command])
    await reader.close()
    assert type(error) is StorageError
    assert words in error.message
    assert error.cause == f"OperationFailure: 13 Unauthorized: not authorized on {database}"


@pytest.mark.parametrize(
    ("user", "words"),
    [("", "name a user and a password in MONGODB_URI"), ("memory:wrong-password@", "user or password is wrong")],
)
async def test_who_is_not_known_is_told_so(
    mongod: FailingMongo, connection: MongoConnection, user: str, words: str
) -> None:
    """No user at all, or a wrong password."""
    uri = f"mongodb://{user}{mongod.local.member}/?directConnection=true"
    stranger = connect(uri, "admin", max_pool_size=4, server_selection_timeout_ms=5_000)
    error = await read_error(connection, lambda: stranger.collection("rows").find_one({"text": DIARY}))
    await stranger.close()
    assert type(error) is StorageError
    assert words in error.message


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_a_transaction_that_took_too_long_is_told_as_such(
    mongod: FailingMongo, connection: MongoConnection
) -> None:
    """The server ends it after its lifetime; nothing of it is stored; the driver's own words would be "time-out"."""
    rows = connection.collection("rows")

    def count_ended() -> int:
        return int(mongod.root.admin.command("serverStatus")["transactions"]["totalAborted"])

    def dawdle(session: ClientSession) -> None:
        before = count_ended()
        rows.insert_one({"text": DIARY}, session=session)
        await_true(lambda: count_ended() > before)
        rows.insert_one({"text": DIARY}, session=session)

    with mongod.parameter("transactionLifetimeLimitSeconds", 1):
        error = await read_error(connection, lambda: run_transaction(connection, dawdle))
    assert error.retryable
    assert "transactionLifetimeLimitSeconds" in error.message
    assert (error.cause or "").startswith("OperationFailure: 251 NoSuchTransaction: ")
    assert rows.count_documents({"text": DIARY}) == 0


@pytest.mark.parametrize("heals", [True, False])
async def test_a_write_conflict_is_healed_or_told(
    connection: MongoConnection, request: pytest.FixtureRequest, *, heals: bool
) -> None:
    """The driver tries again while the other holds the row; where that lasts it is not called an absent server."""
    if not heals:
        request.getfixturevalue("impatient")
    rows = connection.collection("rows")
    with connection.client.start_session() as other:
        other.start_transaction()
        rows.update_one({"_id": 0}, {"$set": {"by": "other"}}, session=other)
        attempts: list[int] = []

        def write(session: ClientSession) -> None:
            attempts.append(len(attempts))
            if heals and len(attempts) == 2:
                other.commit_transaction()
            rows.update_one({"_id": 0}, {"$set": {"text": DIARY}}, session=session)

        if heals:
            await connection.run(run_transaction, connection, write)
        else:
            error = await read_error(connection, lambda: run_transaction(connection, write))
            assert error.retryable
            assert "Other writers" in error.message
            assert "112 WriteConflict" in (error.cause or "")
            other.abort_transaction()
    assert len(attempts) == (2 if heals else 1)
    assert rows.count_documents({"text": DIARY}) == heals


def count_rows(connection: MongoConnection) -> dict[str, int]:
    """How much of documents there is."""
    return {name: connection.collection(name).count_documents({}) for name in (DOCUMENTS, CONTENTS, CHUNKS)}


WRITE_CONCERN_ERROR = {"code": 91, "codeName": "ShutdownInProgress", "errmsg": "replication is being shut down"}


@pytest.mark.parametrize("how", [{"writeConcernError": WRITE_CONCERN_ERROR}, {"closeConnection": True}])
async def test_a_commit_without_an_answer_is_asked_for_again_and_stores_once(
    mongod: FailingMongo, store: MongoStore, sent: Recorder, build: Build, now: datetime, how: Row
) -> None:
    """Whether it was done (an error of the concern) or was not (a connection that was cut)."""
    sent.commands.clear()
    with mongod.failing("commitTransaction", mode={"times": 1}, **how):
        (result,) = await store.write_together([build("notes/a", "alpha", "beta")], now=now)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert sent.count("commitTransaction") == 2
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 2}


async def test_a_primary_that_steps_down_at_the_commit_stores_once(
    mongod: FailingMongo, store: MongoStore, sent: Recorder, build: Build, now: datetime
) -> None:
    """The whole transaction runs again on the next primary."""
    fell: list[str] = []

    def fall(name: str) -> None:
        if name == "commitTransaction" and not fell:
            fell.append(name)
            mongod.step_down()
            mongod.stand_again()

    sent.on_start = fall
    (result,) = await store.write_together([build("notes/a", "alpha", "beta")], now=now)
    assert fell
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 2}


@pytest.mark.usefixtures("impatient")
async def test_a_commit_that_is_never_confirmed_may_be_done_and_is_recognised(
    mongod: FailingMongo, store: MongoStore, build: Build, now: datetime
) -> None:
    """The message does not claim that nothing was stored; the same write again says which version it is."""
    write = build("notes/a", "alpha")
    with (
        mongod.failing("commitTransaction", writeConcernError=WRITE_CONCERN_ERROR),
        pytest.raises(StorageUnavailableError, match="did not confirm a transaction") as unknown,
    ):
        await store.write_together([write], now=now)
    assert "nothing" not in unknown.value.message
    assert "91 ShutdownInProgress" in (unknown.value.cause or "")
    (again,) = await store.write_together([write], now=now)
    assert (again.verdict, again.version) == (WriteVerdict.WRITTEN, 1)
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 1}


async def test_rows_of_an_attempt_that_failed_do_not_stop_the_next(
    mongod: FailingMongo, store: MongoStore, build: Build, now: datetime
) -> None:
    """A large document's rows are written ahead of its transaction: the same write again meets them."""
    write = build("notes/a", "alpha", "beta")
    with (
        mongod.failing("insert", mode={"skip": 2}, errorCode=11601),  # rows and text are written, the document is not
        pytest.raises(StorageUnavailableError, match="killOp"),
    ):
        await store.write_in_parts(write, now=now)
    assert count_rows(store._connection) == {DOCUMENTS: 0, CONTENTS: 0, CHUNKS: 2}
    result = await store.write_in_parts(write, now=now)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 2}


# --- a majority that does not confirm ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_bulk", [True, False])
@pytest.mark.parametrize("info", [{}, {"errInfo": {"wtimeout": True}}])
async def test_a_write_that_no_majority_confirmed_is_told(
    mongod: FailingMongo, connection: MongoConnection, info: Row, *, is_bulk: bool
) -> None:
    """It is on the primary and may be lost: that is not "stored", and not "nothing was changed"."""
    rows = connection.collection("rows")
    refusal = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out", **info}

    def write() -> object:
        return rows.bulk_write([InsertOne({"text": DIARY})]) if is_bulk else rows.insert_one({"text": DIARY})

    with mongod.failing("insert", mode={"times": 1}, writeConcernError=refusal):
        error = await read_error(connection, write)
    assert error.retryable
    assert "a majority of its members did not confirm it" in error.message
    assert (error.cause or "").endswith("64 WriteConcernFailed: waiting for replication timed out")


# --- the connection ---------------------------------------------------------------------------------------------------


async def test_a_connection_that_is_cut_is_told(mongod: FailingMongo, connection: MongoConnection) -> None:
    """Also at the driver's second attempt."""
    with mongod.failing("insert", closeConnection=True):
        error = await read_error(connection, lambda: insert_diary(connection))
    assert error.retryable
    assert "was cut" in error.message
    assert "AutoReconnect: 127.0.0.1" in (error.cause or "")


async def test_a_server_that_takes_too_long_is_told(
    mongod: FailingMongo, monkeypatch: pytest.MonkeyPatch, connection: MongoConnection
) -> None:
    """No call waits for ever."""
    monkeypatch.setattr(mongo_connection, "SOCKET_TIMEOUT_MS", 100)
    hasty = connect(mongod.uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    with mongod.failing("find", blockConnection=True, blockTimeMS=500):
        error = await read_error(connection, lambda: hasty.collection("rows").find_one({"text": DIARY}))
    await hasty.close()
    assert error.retryable
    assert "did not answer in time" in error.message
    assert (error.cause or "").startswith("NetworkTimeout: ")


async def test_who_waits_for_a_connection_of_the_pool_is_told_which_setting(
    mongod: FailingMongo, sent: Recorder, monkeypatch: pytest.MonkeyPatch, connection: MongoConnection
) -> None:
    """The only one is in use by somebody else."""
    monkeypatch.setattr(mongo_connection, "WAIT_QUEUE_TIMEOUT_MS", 50)
    narrow = connect(mongod.uri, DATABASE, max_pool_size=1, server_selection_timeout_ms=5_000)
    rows = narrow.collection("rows")
    asked = threading.Event()
    sent.on_start = lambda name: asked.set() if name == "find" else None
    with mongod.failing("find", blockConnection=True, blockTimeMS=1_000):
        first = asyncio.create_task(narrow.run(rows.find_one, {"_id": 0}))
        assert await asyncio.to_thread(asked.wait, START_SECONDS)
        error = await read_error(connection, lambda: rows.find_one({"text": DIARY}))
        assert await first == {"_id": 0}
    await narrow.close()
    assert error.retryable
    assert "MONGODB_MAX_POOL_SIZE" in error.message


async def test_a_set_without_a_primary_is_not_called_absent(mongod: FailingMongo, connection: MongoConnection) -> None:
    """Its members answer; what is missing is an election."""
    mongod.step_down()
    member = connect(mongod.set_uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=1_000)
    try:
        errors = [
            await read_error(connection, lambda: member.collection("rows").insert_one({"text": DIARY})),
            await read_error(connection, lambda: member.collection("rows").find_one({"text": DIARY})),
        ]
    finally:
        mongod.stand_again()
        await member.close()
    assert [error.retryable for error in errors] == [True, True]
    assert all("has no primary" in error.message for error in errors)


async def test_a_cursor_that_is_gone_is_told(connection: MongoConnection) -> None:
    """The server forgets one that nobody reads for ten minutes; here it is closed."""
    rows = connection.collection("rows")
    rows.insert_many([{"_id": f"{DIARY} {number}"} for number in range(9)])
    found = rows.find({}, batch_size=2)
    next(found)
    connection.database.command({"killCursors": "rows", "cursors": [found.cursor_id]})
    error = await read_error(connection, lambda: list(found))
    assert error.retryable
    assert (error.cause or "").startswith("CursorNotFound: 43 CursorNotFound: cursor id ")


async def test_a_connection_that_this_process_closed_is_told(mongod: FailingMongo, connection: MongoConnection) -> None:
    """A thread that was still at work while the process ended."""
    ended = connect(mongod.uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    await ended.close()
    error = await read_error(connection, lambda: insert_diary(ended))
    assert "was closed while it was in use" in error.message


# --- a member that has just started -----------------------------------------------------------------------------------


@pytest.fixture
def newborn(tmp_path: Path) -> Generator[str]:
    """The address of a member that does not know its set: for a moment each one is that after its start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [str(find_mongod({}, configured=None)), "--dbpath", str(tmp_path), "--port", str(port)]
    command += ["--bind_ip", "127.0.0.1", "--replSet", "memory", "--oplogSize", "16", "--nounixsocket"]
    with (tmp_path / "mongod.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        await_true(lambda: is_listening(process, port))
        yield f"mongodb://127.0.0.1:{port}/?directConnection=true&heartbeatFrequencyMS=500"
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


async def test_a_member_that_has_just_started_is_not_taken_for_stand_alone(newborn: str) -> None:
    """It is asked again later: writes that went without transactions from then on could be cut off half-way."""
    connection = connect(newborn, DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    calls: list[Callable[[], object]] = [
        lambda: mongo_connection.ask_server(connection),
        lambda: run_transaction(connection, lambda session: connection.collection("rows").find_one(session=session)),
    ]
    for call in calls:
        error = await read_error(connection, call)
        assert error.retryable
        assert "is starting" in error.message
    store = MongoStore(connection, versions_kept=5)
    selector = DeleteSelector(source_ids=("notes/a",))
    with pytest.raises(StorageUnavailableError, match="is starting"):
        await store.delete(selector, now=datetime.now(UTC))
    host = newborn.removeprefix("mongodb://").partition("/")[0]
    with MongoClient[Row](newborn) as client:
        client.admin.command({"replSetInitiate": {"_id": "memory", "members": [{"_id": 0, "host": host}]}})
        await_true(lambda: client.admin.command("hello")["isWritablePrimary"])
    assert (await store.delete(selector, now=datetime.now(UTC))).deleted_documents == 0
    assert store._has_transactions
    await connection.close()


# --- a disk that is really full ---------------------------------------------------------------------------------------


@pytest.fixture
def full_soon(tmp_path: Path) -> Generator[FailingMongo]:
    """A server with hardly more disk than its journal takes; the mount is seen by that process alone."""
    data = str(tmp_path / "data")
    around = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f'mount -t tmpfs -o size={TINY_DISK} tmpfs "$0"'
    if not shutil.which("unshare") or subprocess.run([*around, mount, str(tmp_path)], check=False).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    with start_mongod(tmp_path, around=[*around, f'{mount} && exec "$@"', data]) as started:
        yield started


async def test_a_server_whose_disk_is_full_stops_and_the_user_is_told_where_to_look(
    full_soon: FailingMongo, tmp_path: Path
) -> None:
    """The server ends itself: its users read of a connection that was cut, then of a server that does not answer."""
    connection = connect(full_soon.uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=300)
    rows = connection.collection("rows")
    noise = random.Random(0)

    def fill() -> None:
        while True:
            rows.insert_many([{"noise": noise.randbytes(MEGABYTE)} for _ in range(8)])

    errors = [await read_error(connection, fill)]
    await asyncio.to_thread(full_soon.process.wait, START_SECONDS)
    errors.append(await read_error(connection, lambda: insert_diary(connection)))
    await connection.close()
    assert all(error.retryable and "full disk" in error.message for error in errors)
    assert "does not answer" in errors[1].message
    assert b"No space left on device" in (tmp_path / "mongod.log").read_bytes()


# --- concerns ---------------------------------------------------------------------------------------------------------


WEAK = "w=1&journal=false&readConcernLevel=local&readPreference=secondary"
WRITES = {"insert", "update", "delete", "findAndModify", "create", "createIndexes", "collMod"}
READS = {"find", "aggregate", "count", "distinct"}
MAJORITY = {"w": "majority", "j": True}


def find_weak(commands: Sequence[Row]) -> list[Row]:
    """Commands outside of a transaction that write or read with less than they must."""
    weak: list[Row] = []
    for command in commands:
        name, level = command["name"], command.get("readConcern", {}).get("level")
        is_strong = command.get("writeConcern") == MAJORITY if name in WRITES else level in {"majority", "snapshot"}
        if not is_strong:
            weak.append(command)
    return weak


@pytest.fixture
async def weak(mongod: FailingMongo, connection: MongoConnection) -> AsyncGenerator[MongoConnection]:
    """A connection whose address asks for less than is safe."""
    opened = connect(f"{mongod.set_uri}&{WEAK}", DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    assert opened.database.name == connection.database.name
    yield opened
    await opened.close()


@pytest.mark.parametrize("has_transactions", [True, False])
async def test_a_uri_weakens_no_command_of_any_adapter(
    weak: MongoConnection,
    sent: Recorder,
    build: Build,
    space: Fingerprint,
    now: datetime,
    *,
    has_transactions: bool,
) -> None:
    """Writes are majority and journaled, deciding reads majority and primary, in transactions and outside of them."""
    sent.commands.clear()
    store = MongoStore(weak, versions_kept=1)
    store._has_transactions = has_transactions
    await use_documents(store, build, space, now)
    await use_submissions(MongoSubmissionStore(weak), now)
    await use_feeds(MongoFeedStore(weak))
    await use_cache(MongoEmbeddingCache(weak, days=7, max_bytes=1), now)
    work = [command for command in sent.commands if command["name"] in WRITES | READS]
    bare = [command for command in work if "autocommit" not in command]
    assert find_weak(bare) == []
    assert all(command.get("$readPreference", {}).get("mode") != "secondary" for command in sent.commands)
    starts = [command for command in work if command.get("startTransaction")]
    commits = [command for command in sent.commands if command["name"] == "commitTransaction"]
    assert {start["readConcern"]["level"] for start in starts} == {"snapshot"}
    assert [commit["writeConcern"] for commit in commits] == [MAJORITY] * len(starts)
    # Nothing was overlooked: every way of writing, and every collection that has an index or a single row.
    names = {command["name"] for command in bare}
    assert names >= {"insert", "update", "delete", "findAndModify", "createIndexes", "find", "aggregate"}
    written = {command[command["name"]] for command in work if command["name"] in {"insert", "update", "delete"}}
    assert written >= {index.collection for index in INDEXES} | {META, INTENTS}
    # Documents without transactions are written bare, and still to the majority.
    assert any(command.get("update") == DOCUMENTS for command in bare) != has_transactions


async def use_documents(store: MongoStore, build: Build, space: Fingerprint, now: datetime) -> None:
    """Everything that MemoryStore writes, and the reads that decide."""
    other = Fingerprint(provider="hash", model="other", dimensions=8, context_policy="prefix-1")
    await store.prepare(space)
    await store.write_together([build("notes/a", "alpha", "beta"), build("notes/b", "gamma")], now=now)
    state = (await store.read_states(["notes/a"]))["notes/a"]
    keep = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    await store.write_in_parts(build("notes/a", "alpha", "delta", base=state, keep=keep), now=now)
    await store.delete(DeleteSelector(source_ids=("notes/b",)), now=now)
    await store.check_health()
    await store.purge("notes/a")
    await store.declare_space(other)
    await store.acquire_reembed_lease(ANN, seconds=60)
    await store.steal_reembed_lease(BOB, ANN, seconds=60)
    await store.release_reembed_lease(BOB)
    await store.activate_space(other, complete=True)


async def use_submissions(submissions: MongoSubmissionStore, now: datetime) -> None:
    """A submission from its staging to its end."""
    request = StoreRequest(request=StoreContentRequest(content=DIARY), provenance=Provenance(channel="cli"))
    staged = await submissions.stage(request, key="k", holder=ANN, seconds=60, now=now)
    ids = [staged.submission_id]
    await submissions.claim(ids, holder=ANN, seconds=60)
    await submissions.renew(ids, holder=ANN, seconds=60)
    await submissions.finish({ids[0]: {"outcome": "created"}}, holder=ANN, now=now)
    await submissions.release(ids, holder=ANN)
    assert await submissions.find_open(limit=9) == []


async def use_feeds(feeds: MongoFeedStore) -> None:
    """A feed, its lease and its manifest."""
    await feeds.register_feed(Feed(name="notes", root="/notes"))
    await feeds.acquire_lease("notes", ANN, seconds=60)
    await feeds.steal_lease("notes", BOB, ANN, seconds=60)
    await feeds.release_lease("notes", BOB)
    entry = ManifestEntry(
        path="a.md",
        source_id="notes/a",
        size=1,
        mtime_ns=1,
        ctime_ns=1,
        state=FileState.STORED,
        content_hash="0" * 64,
        reason=None,
        encoding="utf-8",
    )
    await feeds.write_manifest("notes", [entry], removed_paths=["b.md"])
    assert [found.path for found in await feeds.read_manifest("notes")] == ["a.md"]


async def use_cache(cache: MongoEmbeddingCache, now: datetime) -> None:
    """What is paid for, until it is too much."""
    await cache.write_vectors({"v": CachedVector(vector=np.ones(8, dtype=np.float32))}, now=now)
    await cache.write_texts({"t": "a text"}, now=now)
    await cache.read_vectors(["v"])
    await cache.evict(now=now + timedelta(days=1))
