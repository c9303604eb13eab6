"""The process that owns the services of one home. In: requests on a local socket. Out: servers that run while leased.

Clients hold a lease by holding their connection open, so that a lease ends with its client, however that ends. A
service without a lease stops after the idle time; without any service left, the supervisor ends too. One per home: it
holds the home's lock as long as it lives.

    python -m deployments.supervisor --home DIR     returns when the socket listens; the daemon goes on alone
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deployments.child_process import stop_recorded
from deployments.home import ServiceHome, take_lock
from deployments.local_mongodb import NAME as MONGODB
from deployments.local_mongodb import LocalMongodb
from deployments.local_postgres import NAME as POSTGRES
from deployments.local_postgres import LocalPostgres, find_programs
from deployments.local_prefect import NAME as PREFECT
from deployments.local_prefect import LocalPrefect, sqlite_url
from deployments.managed_service import ManagedService
from deployments.service_messages import (
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Acquire,
    Event,
    Message,
    Service,
    decode,
    decode_acquire,
    encode,
)
from deployments.supervisor_client import EXIT_LOCKED
from memory_core.errors import AgentMemoryError

_REQUEST_SECONDS = 10.0
# How long a supervisor that nobody talks to waits for the client that started it.
_FIRST_LEASE_SECONDS = 30.0
# Prefect writes to PostgreSQL until it has ended.
_STOP_ORDER = (PREFECT, POSTGRES, MONGODB)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A client and the services that run because of it."""

    services: frozenset[str]
    pid: int
    command: str
    since: float


class Supervisor:
    """The leases and the services of one home, on one event loop, on the main thread."""

    def __init__(self, home: ServiceHome) -> None:
        self.home = home
        self._holders: dict[int, LeaseHolder] = {}
        self._unused_since: dict[str, float] = {}
        self._idle_stop_seconds = _FIRST_LEASE_SECONDS
        self._stop_lock = asyncio.Lock()
        self._finished = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._closing = False
        credentials = home.load_credentials()
        self._has_postgres = find_programs() is not None
        self._mongodb = LocalMongodb(home=home, credentials=credentials)
        self._postgres = LocalPostgres(home=home, credentials=credentials)
        self._prefect = LocalPrefect(home=home, credentials=credentials, database_url=self._database_url)
        self.services = {
            server.name: ManagedService(server, is_needed=partial(self._is_leased, server.name))
            for server in (self._mongodb, self._postgres, self._prefect)
        }

    async def run(self, listener: socket.socket) -> None:
        """Serve until nothing is left to do or a signal asks to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._finished.set)
        for name in _STOP_ORDER:
            if await asyncio.to_thread(stop_recorded, self.home, name):
                _log(f"{name}: stopped a server that an earlier supervisor left behind")
        server = await asyncio.start_unix_server(self._accept, sock=listener, limit=MAX_MESSAGE_BYTES)
        loop.call_later(_FIRST_LEASE_SECONDS, self._check_idle)
        await self._finished.wait()
        self._closing = True
        self.home.socket_file().unlink(missing_ok=True)
        server.close()
        await self._stop_all()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    # --- requests

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            self._connections.add(task)
        try:
            line = await asyncio.wait_for(reader.readline(), _REQUEST_SECONDS)
            if line and not self._closing:
                await self._answer(decode(line), reader, writer)
        except (ConnectionError, TimeoutError) as error:
            _log(f"a request was dropped: {error!r}")
        except asyncio.CancelledError:
            pass  # the supervisor is ending; the closed connection tells the client
        except Exception as error:  # noqa: BLE001 - a client that gets no answer would ask again for minutes
            traceback.print_exc()
            await _refuse(writer, _describe_failure(error))
        finally:
            if task:
                self._connections.discard(task)
            writer.close()

    async def _answer(self, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if message.get("protocol") != PROTOCOL:
            text = (
                f"Another version of this program keeps the services running (process {os.getpid()}). End its "
                f"commands and stop it with `kill {os.getpid()}`, then run this again."
            )
            await _refuse(writer, text)
            return
        match message["operation"]:
            case "acquire":
                await self._hold(decode_acquire(message), reader, writer)
            case "status":
                writer.write(encode({"event": Event.STATUS, **self._status()}))
                await writer.drain()
            case "stop":
                await self._stop_for(writer, force=bool(message["force"]))
            case other:
                raise ValueError(f"unknown operation {other}")

    async def _hold(self, request: Acquire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep the services for as long as the connection is open."""
        holder = LeaseHolder(
            services=self._services_of(request.needs), pid=request.pid, command=request.command, since=time.time()
        )
        self._idle_stop_seconds = request.options.idle_stop_seconds
        self._mongodb.options = request.options
        self._holders[id(holder)] = holder
        gone = asyncio.create_task(reader.read())
        preparing = asyncio.create_task(self._prepare(request, holder, writer))
        try:
            await asyncio.wait({gone, preparing}, return_when=asyncio.FIRST_COMPLETED)
            if preparing.done() and preparing.result():
                await gone
        finally:
            preparing.cancel()
            gone.cancel()
            await asyncio.gather(preparing, gone, return_exceptions=True)
            self._release(holder)

    async def _prepare(self, request: Acquire, holder: LeaseHolder, writer: asyncio.StreamWriter) -> bool:
        def say(sentence: str) -> None:
            writer.write(encode({"event": Event.PROGRESS, "text": sentence}))

        results = await asyncio.gather(
            *(self.services[name].ensure(say) for name in sorted(holder.services)), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        try:
            if failures:
                raise failures[0]
            answer: Message = {"event": Event.READY, "addresses": await self._addresses(request)}
        except AgentMemoryError as error:
            answer = {"event": Event.ERROR, "text": error.message, "cause": error.cause}
        writer.write(encode(answer))
        await writer.drain()
        return answer["event"] is Event.READY

    async def _addresses(self, request: Acquire) -> dict[str, str]:
        addresses: dict[str, str] = {}
        if Service.MONGODB in request.needs:
            addresses["mongodb_uri"] = await self._mongodb.open_database(request.options.database)
        if Service.PREFECT in request.needs:
            addresses["prefect_api_url"] = self._prefect.api_url
            addresses["prefect_auth"] = self._prefect.auth
            addresses["prefect_ui_url"] = self._prefect.ui_url
        return addresses

    async def _stop_for(self, writer: asyncio.StreamWriter, *, force: bool) -> None:
        if self._holders and not force:
            held = ", ".join(f"{holder.command} (process {holder.pid})" for holder in self._holders.values())
            writer.write(encode({"event": Event.REFUSED, "text": held, "leases": len(self._holders)}))
            await writer.drain()
            return
        self._closing = True
        stopped = await self._stop_all()
        writer.write(encode({"event": Event.STOPPED, "services": stopped}))
        await writer.drain()
        self._finished.set()

    def _status(self) -> dict[str, Any]:
        services = {
            name: {
                **service.server.describe(),
                "running": service.is_running,
                "pid": service.pid,
                "error": service.error,
                "leases": sum(name in holder.services for holder in self._holders.values()),
            }
            for name, service in self.services.items()
            if name != POSTGRES or self._has_postgres
        }
        leases = [
            {"pid": holder.pid, "command": holder.command, "since": holder.since, "services": sorted(holder.services)}
            for holder in self._holders.values()
        ]
        return {"pid": os.getpid(), "services": services, "leases": leases}

    # --- leases

    def _services_of(self, needs: frozenset[Service]) -> frozenset[str]:
        names = set(needs)
        return frozenset({*names, POSTGRES} if Service.PREFECT in names and self._has_postgres else names)

    async def _database_url(self) -> str:
        if not self._has_postgres:
            return sqlite_url(self.home)
        await self.services[POSTGRES].ensure(_ignore)  # who asks for Prefect asks for this too, and is told
        return self._postgres.prefect_url()

    def _is_leased(self, name: str) -> bool:
        return any(name in holder.services for holder in self._holders.values())

    def _release(self, holder: LeaseHolder) -> None:
        del self._holders[id(holder)]
        now = time.monotonic()
        self._unused_since.update({name: now for name in holder.services if not self._is_leased(name)})
        asyncio.get_running_loop().call_later(self._idle_stop_seconds, self._check_idle)

    def _check_idle(self) -> None:
        task = asyncio.create_task(self._stop_unused())
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _stop_unused(self) -> None:
        """Stop what nobody has used for the idle time; come again for what is not due; end when nothing is left."""
        waits: list[float] = []
        async with self._stop_lock:
            for name in _STOP_ORDER:
                if self._is_leased(name) or not self.services[name].is_active or self._closing:
                    continue
                wait = self._unused_since.get(name, 0.0) + self._idle_stop_seconds - time.monotonic()
                if wait > 0:
                    waits.append(wait)
                else:
                    await self.services[name].stop()
        if waits:
            asyncio.get_running_loop().call_later(min(waits), self._check_idle)
        elif not self._holders and not any(service.is_active for service in self.services.values()):
            self._finished.set()

    async def _stop_all(self) -> list[str]:
        async def stop_in_turn(*names: str) -> list[str]:
            return [name for name in names if await self.services[name].stop()]

        async with self._stop_lock:
            stopped = await asyncio.gather(stop_in_turn(PREFECT, POSTGRES), stop_in_turn(MONGODB))
        return [name for names in stopped for name in names]


async def _refuse(writer: asyncio.StreamWriter, text: str) -> None:
    with contextlib.suppress(ConnectionError):  # whoever asked has gone
        writer.write(encode({"event": Event.ERROR, "text": text}))
        await writer.drain()


def _describe_failure(error: Exception) -> str:
    what = "did not understand a request" if isinstance(error, (ValueError, KeyError, TypeError)) else "failed"
    return (
        f"The supervisor of the local services (process {os.getpid()}) {what}. Its log says more (`memory doctor` "
        f"names the directory); stop it with `kill {os.getpid()}` and run this again."
    )


def main(arguments: list[str] | None = None) -> int:
    """Take the lock and the socket, then go on as a daemon. Returns 0 when it runs and 3 when another one does."""
    parser = argparse.ArgumentParser(prog="python -m deployments.supervisor", description="Owns the local services.")
    parser.add_argument("--home", type=Path, required=True, help="MEMORY_HOME")
    home = ServiceHome(parser.parse_args(arguments).home)
    os.umask(0o077)
    home.prepare()
    if take_lock(home) is None:
        return EXIT_LOCKED
    listener = _listen(home.socket_file())
    # The starter is not our parent from here on: it neither waits for us nor leaves a zombie.
    if os.fork():
        os._exit(0)
    try:
        asyncio.run(Supervisor(home).run(listener))
    except BaseException:  # the log is the only place where this can be said
        traceback.print_exc()
        raise
    return 0


def _listen(path: Path) -> socket.socket:
    """Listen where the last supervisor did; the lock says that it is gone."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(socket.SOMAXCONN)
    listener.setblocking(False)
    return listener


def _ignore(_sentence: str) -> None:
    """Listen to nothing."""


def _log(sentence: str) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with contextlib.suppress(OSError):  # a full disk must not end the services
        sys.stderr.write(f"{moment} {sentence}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
