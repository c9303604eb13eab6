"""Connections that are cut, slow or closed, a member that has just started, a disk that is full."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pymongo import MongoClient

from deployments.local_mongodb import find_mongod
from memory_core.adapters import mongo_connection
from memory_core.adapters.mongo_connection import MongoConnection, connect, run_transaction
from memory_core.adapters.mongo_store import MongoStore
from memory_core.errors import StorageUnavailableError
from memory_core.store_ports import DeleteSelector
from tests.contract.mongo_errors.failing_mongo import (
    DATABASE,
    DIARY,
    MEGABYTE,
    START_SECONDS,
    TINY_DISK,
    FailingMongo,
    Recorder,
    Row,
    await_true,
    insert_diary,
    is_listening,
    read_error,
    start_mongod,
)

pytestmark = pytest.mark.services


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
