"""A mongod that can be killed, and a wire to it that can be cut, for `crash.py`. In: a folder. Out: their addresses.

The wire is a process that passes on bytes and drops all of its connections when it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymongo.errors as vendor
from pymongo import MongoClient

from deployments.local_mongodb import find_mongod

FORK = multiprocessing.get_context("fork")
_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_POLL_SECONDS = 0.02
_CACHE_GB = "0.25"
# A client that is killed inside a transaction keeps its documents locked for so long; the product's own server has 20.
_TRANSACTION_SECONDS = 1
_PIECE_BYTES = 65_536
_PORT_BYTES = 5
_CUT = b"cut"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Mongod:
    """A server on the files of a folder, a replica set of one or stand-alone."""

    folder: Path
    atomic: bool
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it on its files and return when it takes writes."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        command = [str(find_mongod({}, configured=None)), "--dbpath", str(data), "--port", str(self.port)]
        command += ["--bind_ip", _HOST, "--nounixsocket", "--quiet", "--wiredTigerCacheSizeGB", _CACHE_GB]
        command += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
        command += ["--setParameter", f"transactionLifetimeLimitSeconds={_TRANSACTION_SECONDS}"]
        if self.atomic:
            command += ["--replSet", "crash", "--oplogSize", "64"]
        with (self.folder / "mongod.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        # In a process of its own: whoever forks must have no driver's threads.
        waiting = FORK.Process(target=_wait_until_writable, args=(self.port, self.atomic))
        waiting.start()
        waiting.join()
        assert waiting.exitcode == 0, f"mongod did not start: see {self.folder / 'mongod.log'}"

    def kill(self) -> None:
        """End it without a word."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    @property
    def uri(self) -> str:
        """The address without the wire."""
        return make_uri(self.port)


def make_uri(port: int) -> str:
    """The address of whoever listens on that port."""
    return f"mongodb://{_HOST}:{port}/?directConnection=true&heartbeatFrequencyMS=500"


def _wait_until_writable(port: int, atomic: bool) -> None:  # noqa: FBT001 - the arguments of a process are positional
    deadline = time.monotonic() + _START_SECONDS
    with MongoClient[dict[str, Any]](make_uri(port), serverSelectionTimeoutMS=int(_START_SECONDS * 1_000)) as client:
        hello = client.admin.command("hello")
        if atomic and not hello.get("setName") and "isreplicaset" in hello:
            members = [{"_id": 0, "host": f"{_HOST}:{port}"}]
            with contextlib.suppress(vendor.OperationFailure):  # it has its configuration, and is about to read it
                client.admin.command({"replSetInitiate": {"_id": "crash", "members": members}})
        while not client.admin.command("hello")["isWritablePrimary"]:
            assert time.monotonic() < deadline, "no primary"
            time.sleep(_POLL_SECONDS)


# --- the wire ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wire:
    """A port that leads to another one."""

    port: int
    _control: socket.socket

    def cut(self) -> None:
        """Drop every connection at once; new ones are taken."""
        self._control.send(_CUT)
        assert self._control.recv(len(_CUT)) == _CUT

    @property
    def uri(self) -> str:
        """The address over the wire."""
        return make_uri(self.port)


@contextlib.contextmanager
def open_wire(target: int) -> Generator[Wire]:
    """A wire to the target's port, as long as the block runs."""
    ours, theirs = socket.socketpair()
    process = FORK.Process(target=_serve, args=(target, theirs))
    process.start()
    try:
        yield Wire(int(ours.recv(_PORT_BYTES)), ours)
    finally:
        process.kill()
        process.join()
        ours.close()
        theirs.close()


def _serve(target: int, control: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_pass_on(target, control))


async def _pass_on(target: int, control: socket.socket) -> None:
    writers: set[asyncio.StreamWriter] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(_HOST, target)
        except OSError:
            writer.transport.abort()
            return
        writers.update((writer, far_writer))
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        writers.difference_update((writer, far_writer))

    def obey() -> None:
        command = control.recv(len(_CUT))
        for writer in writers:
            writer.transport.abort()
        control.send(command)

    server = await asyncio.start_server(accept, _HOST, 0)
    asyncio.get_running_loop().add_reader(control.fileno(), obey)
    control.send(str(server.sockets[0].getsockname()[1]).encode())
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while received := await reader.read(_PIECE_BYTES):
            writer.write(received)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort() if reader.exception() else writer.close()
