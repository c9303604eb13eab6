"""A mongod that fails on request (the fail point `failCommand`), a recorder of commands, and how an error is read."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pymongo import MongoClient, monitoring

from deployments.local_mongodb import find_mongod
from memory_core.adapters.mongo_connection import MongoConnection
from memory_core.adapters.mongo_setup import LocalMongo, make_ready
from memory_core.errors import StorageError
from memory_core.models import EmbeddedDocument, Holder

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


async def read_error(connection: MongoConnection, call: Callable[[], object]) -> StorageError:
    """Our error for a call that fails; nothing of a document is in it."""
    with pytest.raises(StorageError) as raised:
        await connection.run(call)
    assert "diary" not in f"{raised.value.message} {raised.value.cause}".lower()
    return raised.value


def insert_diary(connection: MongoConnection) -> object:
    """A write with somebody's content."""
    return connection.collection("rows").insert_one({"text": DIARY})
