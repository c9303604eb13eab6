"""Local services for a client. In: settings and what is needed. Out: a lease with addresses, held until released.

Starts the supervisor of the home when none runs, and asks it; knows nothing of how a server is started. What the user
runs elsewhere (MONGODB_URI, PREFECT_API_URL) is never started: its address is handed through.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr

from deployments.home import ServiceHome, lock_taken
from deployments.service_messages import (
    PROTOCOL,
    Acquire,
    Event,
    Options,
    Service,
    encode_acquire,
)
from deployments.supervisor_client import ask, connect_or_start, converse, pause
from memory_core.errors import ServiceError, register_secret
from memory_core.settings import Settings

__all__ = [
    "Addresses",
    "Lease",
    "LeaseState",
    "Service",
    "ServiceState",
    "ServiceStatus",
    "StopReport",
    "acquire",
    "read_status",
    "stop",
]

# Longer than the supervisor's own limits for one start, which answer with the reason.
_ACQUIRE_SECONDS = 400.0
_STOP_SECONDS = 120.0
_STATUS_SECONDS = 10.0
_SERVER_NAMES = ("mongodb", "postgres", "prefect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the needed services are: ours, or the user's own (then without what only the user knows)."""

    mongodb_uri: SecretStr | None = None
    prefect_api_url: str | None = None
    prefect_auth: SecretStr | None = None
    prefect_ui_url: str | None = None


class Lease:
    """Services that run at least until `release`; they may stop when this process has ended, however it ends."""

    def __init__(self, addresses: Addresses, connection: socket.socket | None) -> None:
        self.addresses = addresses
        self._connection = connection

    @property
    def is_held(self) -> bool:
        """False after `release`, or when the supervisor has ended and the services with it."""
        if self._connection is None:
            return False
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def release(self) -> None:
        """Let the services stop when nobody else needs them; harmless when repeated."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """One local server as it is now."""

    name: str
    running: bool
    pid: int | None
    version: str | None
    port: int | None
    directory: Path
    log: Path
    leases: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """Who holds which services, and since when (seconds since 1970)."""

    pid: int
    command: str
    since: float
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """Everything about the services of one home. `problems` are sentences with their remedy."""

    home: Path
    supervisor_pid: int | None
    supervisor_log: Path
    services: tuple[ServiceState, ...]
    leases: tuple[LeaseState, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """What `stop` did: the names of the servers that it stopped, or in `refused` why it stopped none."""

    stopped: tuple[str, ...]
    refused: str | None = None


def acquire(settings: Settings, needs: frozenset[Service], *, on_progress: Callable[[str], None]) -> Lease:
    """Make the needed services run and hold them. Waits until they answer.

    Raises:
        ServiceError: a service did not start; the message has its log's last lines and the remedy.
    """
    started_here = _started_here(settings, needs)
    if not started_here:
        return Lease(_addresses(settings, needs, {}), None)
    home = ServiceHome(settings.memory_home)
    _prepare(home)
    request = encode_acquire(_request(settings, started_here))
    deadline = time.monotonic() + _ACQUIRE_SECONDS
    while True:
        connection = connect_or_start(home, deadline=deadline)
        answer = converse(connection, request, on_progress=on_progress, deadline=deadline)
        if answer is None:  # the supervisor was just ending: the next one answers
            connection.close()
            pause(home, deadline=deadline)
            continue
        if answer["event"] != Event.READY:
            connection.close()
            raise ServiceError(str(answer["text"]), cause=answer.get("cause"))
        return Lease(_addresses(settings, needs, answer["addresses"]), connection)


def read_status(settings: Settings) -> ServiceStatus:
    """Say which services run and what is wrong; starts nothing and changes nothing."""
    home = ServiceHome(settings.memory_home)
    answer = ask(home, {"protocol": PROTOCOL, "operation": "status"}, seconds=_STATUS_SECONDS)
    problems: list[str] = []
    if answer and answer["event"] == Event.ERROR:
        problems.append(str(answer["text"]))
        answer = None
    live: dict[str, Any] = answer["services"] if answer else {}
    services = tuple(_service_state(home, name, live.get(name)) for name in _SERVER_NAMES)
    problems += [f"{state.name}: {state.error}" for state in services if state.error]
    return ServiceStatus(
        home=home.root,
        supervisor_pid=answer["pid"] if answer else None,
        supervisor_log=home.supervisor_log,
        services=services,
        leases=tuple(_lease_state(lease) for lease in (answer["leases"] if answer else ())),
        problems=tuple(problems),
    )


def stop(settings: Settings, *, force: bool = False) -> StopReport:
    """Stop every service of the home and wait for the end. While others hold leases only with `force`.

    Raises:
        ServiceError: the supervisor does not answer, or is of another version.
    """
    home = ServiceHome(settings.memory_home)
    request = {"protocol": PROTOCOL, "operation": "stop", "force": force}
    answer = ask(home, request, seconds=_STOP_SECONDS, until_closed=True)
    if answer is None:
        return StopReport(stopped=_stop_left_behind(home))
    if answer["event"] == Event.STOPPED:
        return StopReport(stopped=tuple(answer["services"]))
    if answer["event"] == Event.REFUSED:
        text = f"The services are in use by {answer['text']}. End these commands first, or stop with force."
        return StopReport(stopped=(), refused=text)
    raise ServiceError(str(answer["text"]))


def _started_here(settings: Settings, needs: frozenset[Service]) -> frozenset[Service]:
    ours = {Service.MONGODB: settings.starts_mongodb, Service.PREFECT: settings.starts_prefect}
    return frozenset(service for service in needs if ours[service])


def _addresses(settings: Settings, needs: frozenset[Service], found: dict[str, str]) -> Addresses:
    """Ours where we started it, the user's where it is set; what is not needed stays empty."""
    uri, auth = found.get("mongodb_uri"), found.get("prefect_auth")
    for secret in (uri, auth, auth.partition(":")[2] if auth else None):
        register_secret(secret)
    theirs_uri = settings.mongodb_uri if Service.MONGODB in needs else None
    theirs_url = settings.prefect_api_url if Service.PREFECT in needs else None
    return Addresses(
        mongodb_uri=SecretStr(uri) if uri else theirs_uri,
        prefect_api_url=found.get("prefect_api_url") or theirs_url,
        prefect_auth=SecretStr(auth) if auth else None,
        prefect_ui_url=found.get("prefect_ui_url"),
    )


def _request(settings: Settings, needs: frozenset[Service]) -> Acquire:
    options = Options(
        mongod=str(settings.memory_mongod.absolute()) if settings.memory_mongod else None,
        mongod_cache_gb=settings.mongod_cache_gb,
        database=settings.mongodb_db_name,
        idle_stop_seconds=settings.idle_stop_seconds,
    )
    # The first two words only: the rest of a command line can hold what a user searches for.
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
    return Acquire(needs=needs, options=options, pid=os.getpid(), command=command)


def _prepare(home: ServiceHome) -> None:
    try:
        home.prepare()
    except OSError as error:
        raise ServiceError(
            f"{home.directory} cannot be made. Set MEMORY_HOME to a directory that you can write to.", cause=error
        ) from None


def _service_state(home: ServiceHome, name: str, live: dict[str, Any] | None) -> ServiceState:
    known = live or _recorded(home, name)
    return ServiceState(
        name=name,
        running=bool(known.get("running")),
        pid=known.get("pid"),
        version=known.get("version"),
        port=known.get("port"),
        directory=Path(known.get("directory") or home.directory / name),
        log=home.log(name),
        leases=int(known.get("leases", 0)),
        error=known.get("error"),
    )


def _lease_state(lease: dict[str, Any]) -> LeaseState:
    return LeaseState(
        pid=int(lease["pid"]),
        command=str(lease["command"]),
        since=float(lease["since"]),
        services=tuple(lease["services"]),
    )


def _recorded(home: ServiceHome, name: str) -> dict[str, Any]:
    """What the home knows of a server that no supervisor speaks for."""
    chosen = home.read_record({"mongodb": "mongod"}.get(name, name)) or {}
    port = (home.read_record("ports") or {}).get(name)
    return {"version": chosen.get("version"), "directory": chosen.get("directory"), "port": port}


def _stop_left_behind(home: ServiceHome) -> tuple[str, ...]:
    """Stop servers whose supervisor was killed, where the system did not do so."""
    if not home.directory.is_dir():
        return ()
    from deployments.child_process import stop_recorded  # noqa: PLC0415 - only this rare path needs psutil

    with lock_taken(home) as free:
        if not free:
            return ()
        return tuple(name for name in reversed(_SERVER_NAMES) if stop_recorded(home, name))
