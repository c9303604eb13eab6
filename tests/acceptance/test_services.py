"""Local services through their public interface: real mongod, PostgreSQL and Prefect, real kills."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from deployments.home import ServiceHome
from deployments.services import Lease, Service, ServiceState, acquire, read_status, stop
from memory_core.errors import ServiceError
from memory_core.settings import Settings, load_settings

pytestmark = pytest.mark.services

MONGODB = frozenset({Service.MONGODB})
DEADLINE_SECONDS = 30.0
CLIENT = """
import sys
from pathlib import Path
from deployments.services import Service, acquire, read_status
from memory_core.settings import load_settings
settings = load_settings(MEMORY_HOME=sys.argv[1])
with acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None):
    status = read_status(settings)
    print(status.supervisor_pid, status.services[0].pid, status.services[0].port, flush=True)
    sys.stdin.read()
"""


def settings_of(home: Path, **more: Any) -> Settings:
    return load_settings(MEMORY_HOME=str(home), MONGODB_URI=None, PREFECT_API_URL=None, **more)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, discard_home: Callable[[Path], None]) -> Generator[Path]:
    """One home for all: with blanks in its path, and too deep for a socket."""
    path = tmp_path_factory.mktemp("a home") / ("deep " * 15) / "memory"
    yield path
    discard_home(path)


@pytest.fixture
def empty_home(tmp_path: Path, discard_home: Callable[[Path], None]) -> Generator[Path]:
    """A home that nothing was ever started in."""
    yield tmp_path / "empty"
    discard_home(tmp_path / "empty")


def is_alive(pid: int | None) -> bool:
    """False for a process that has ended, even where nobody collects the dead."""
    try:
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def hold(home: Path, needs: frozenset[Service] = MONGODB, **more: Any) -> Lease:
    return acquire(settings_of(home, **more), needs, on_progress=lambda _: None)


def state(home: Path, name: str = "mongodb") -> ServiceState:
    return next(found for found in read_status(settings_of(home)).services if found.name == name)


@contextlib.contextmanager
def database(lease: Lease) -> Generator[Any]:
    assert lease.addresses.mongodb_uri
    with MongoClient[dict[str, Any]](lease.addresses.mongodb_uri.get_secret_value(), timeoutMS=10_000) as client:
        yield client["memory"]


def keep(memory: Any, name: str) -> None:
    """Store something that a test finds again."""
    memory["kept"].replace_one({"_id": name}, {}, upsert=True)


def is_kept(memory: Any, name: str) -> bool:
    return memory["kept"].find_one({"_id": name}) is not None


@contextlib.contextmanager
def squat(port: int) -> Generator[None]:
    """Another program's server, which hangs up on everybody."""

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                squatter.accept()[0].close()

    with socket.create_server(("127.0.0.1", port)) as squatter:
        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            yield
        finally:
            squatter.shutdown(socket.SHUT_RDWR)
            thread.join()


def start_client(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CLIENT, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in {"MONGODB_URI", "PREFECT_API_URL"}},
    )


def first_line(client: subprocess.Popen[str]) -> list[int]:
    assert client.stdout
    return [int(word) for word in client.stdout.readline().split()]


def end(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.communicate()


def test_an_empty_home_gets_a_mongodb_and_says_so(empty_home: Path) -> None:
    """The first command on a machine says what it starts, and does not keep its user waiting."""
    said: list[str] = []
    with acquire(settings_of(empty_home), MONGODB, on_progress=said.append) as lease:
        with database(lease) as memory:
            keep(memory, "first")
        assert said == [f"Starting MongoDB {state(empty_home).version} ..."]
        assert lease.is_held
    assert not lease.is_held


def test_only_the_owner_reads_what_a_home_holds(home: Path) -> None:
    """No other user of the machine can open a credential, a log or a database file."""
    with hold(home):
        found = [home, *home.rglob("*")]
        open_to_others = [path for path in found if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077]
        directories = {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()}
    assert not open_to_others
    assert directories == {0o700}
    assert stat.S_IMODE((home / "services" / "credentials.json").stat().st_mode) == 0o600


def test_mongodb_refuses_whoever_has_no_password(home: Path) -> None:
    """A program on the same machine that finds the port reads and writes nothing."""
    with hold(home):
        for login in ("", "memory:guess@"):
            uri = f"mongodb://{login}127.0.0.1:{state(home).port}/?directConnection=true"
            with MongoClient[Any](uri) as stranger, pytest.raises(OperationFailure, match=r"(?i)auth"):
                stranger["memory"]["kept"].find_one()


def test_the_application_user_reaches_its_own_databases_only(home: Path) -> None:
    """The password that clients get opens the asked databases and the server's figures, and nothing else."""
    with hold(home), hold(home, MONGODB_DB_NAME="second") as lease, database(lease) as memory:
        second = memory.client["second"]
        second["rows"].insert_one({})
        second["rows"].create_index("a")
        assert memory.client.admin.command("serverStatus")["ok"]
        keep(memory, "ours")
        with pytest.raises(OperationFailure):
            memory.client["third"]["rows"].insert_one({})
        with pytest.raises(OperationFailure):
            memory.client.admin.command({"createUser": "x", "pwd": "x", "roles": []})
        with memory.client.start_session() as session, session.start_transaction():
            second["rows"].insert_one({}, session=session)


def test_two_first_clients_share_one_mongodb(empty_home: Path) -> None:
    """Two commands started together on an empty home find the same server."""
    clients = [start_client(empty_home), start_client(empty_home)]
    try:
        assert len({tuple(first_line(client)) for client in clients}) == 1
    finally:
        for client in clients:
            end(client)


def test_a_killed_client_holds_nothing(home: Path) -> None:
    """A command that is killed does not keep the services running for ever."""
    client = start_client(home)
    try:
        first_line(client)
        assert state(home).leases == 1
    finally:
        end(client)
    wait_until(lambda: state(home).leases == 0)


def test_a_killed_supervisor_takes_its_servers_along_and_is_replaced(home: Path) -> None:
    """After the worst kill the next command works, and what was stored is there."""
    with hold(home) as orphaned:
        with database(orphaned) as memory:
            keep(memory, "before the kill")
        before = read_status(settings_of(home))
        assert before.supervisor_pid
        os.kill(before.supervisor_pid, signal.SIGKILL)
        with hold(home) as lease, database(lease) as memory:
            assert is_kept(memory, "before the kill")
            after = read_status(settings_of(home))
        assert not orphaned.is_held
    assert after.supervisor_pid != before.supervisor_pid
    assert after.services[0].pid != before.services[0].pid
    assert after.services[0].port == before.services[0].port
    assert not is_alive(before.services[0].pid)


def test_a_killed_mongod_comes_back_at_the_same_address(home: Path) -> None:
    """A client that holds a lease goes on with the address it has."""
    with hold(home) as lease, database(lease) as memory:
        keep(memory, "before mongod was killed")
        killed = state(home).pid
        assert killed
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: state(home).running and state(home).pid != killed)
        assert is_kept(memory, "before mongod was killed")
        keep(memory, "at the same address")


def test_stop_says_who_still_uses_the_services(home: Path) -> None:
    """Nobody's command loses its database because another one asks to stop; with force it does."""
    settings = settings_of(home)
    with hold(home) as lease:
        refused = stop(settings)
        assert not refused.stopped
        assert f"process {os.getpid()}" in str(refused.refused)
        assert lease.is_held
        assert stop(settings, force=True).stopped == ("mongodb",)
        wait_until(lambda: not lease.is_held)
    assert stop(settings).stopped == ()


def test_a_taken_port_is_replaced(home: Path) -> None:
    """When another program sits on last time's port, MongoDB moves and its data comes along."""
    with hold(home) as lease, database(lease) as memory:
        keep(memory, "before the port was taken")
        port = state(home).port
    stop(settings_of(home))
    with squat(port or 0), hold(home) as lease, database(lease) as memory:
        assert state(home).port != port
        assert is_kept(memory, "before the port was taken")
    stop(settings_of(home))


def test_unused_services_stop_and_so_does_the_supervisor(home: Path) -> None:
    """A memory that nobody uses costs nothing."""
    with hold(home, MEMORY_IDLE_STOP_SECONDS=1):
        status = read_status(settings_of(home))
    pids = [status.supervisor_pid, status.services[0].pid]
    assert all(is_alive(pid) for pid in pids)
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert read_status(settings_of(home)).supervisor_pid is None


def test_a_server_that_cannot_start_says_what_to_install(empty_home: Path, tmp_path: Path) -> None:
    """On a machine without a system library the error names its Debian package."""
    program = tmp_path / "mongod"
    broken = "error while loading shared libraries: libcurl.so.4: cannot open shared object file"
    program.write_text(f"#!/bin/sh\necho 'mongod: {broken}' >&2\nexit 127\n", encoding="utf-8")
    program.chmod(0o700)
    with pytest.raises(ServiceError, match="apt-get install libcurl4"):
        hold(empty_home, MEMORY_MONGOD=str(program))


def test_prefect_and_its_database_want_passwords(home: Path) -> None:
    """Prefect answers its password only, and its PostgreSQL has no port and lets no stranger in."""
    with hold(home, frozenset({Service.PREFECT, Service.MONGODB})) as lease:
        found = lease.addresses
        assert found.prefect_api_url
        assert found.prefect_auth
        assert ask_prefect(found.prefect_api_url, None) == 401
        assert ask_prefect(found.prefect_api_url, "memory:guess") == 401
        assert ask_prefect(found.prefect_api_url, found.prefect_auth.get_secret_value()) == 200
        assert state(home, "postgres").leases == 1
        assert state(home, "postgres").port is None
    sockets = str((ServiceHome(home).read_record("postgres") or {})["sockets"])
    assert stat.S_IMODE(Path(sockets).stat().st_mode) == 0o700
    for user, password in (("prefect", None), ("postgres", None), ("prefect", "guess")):
        with pytest.raises(asyncpg.PostgresError, match=r"(?i)password"):
            asyncio.run(ask_postgres(sockets, user, password))


async def ask_postgres(sockets: str, user: str, password: str | None) -> None:
    connect = cast("Any", asyncpg.connect)  # its parameters have no types
    connection = await connect(host=sockets, port=5432, database="prefect", user=user, password=password)
    await connection.close()


def ask_prefect(api_url: str, auth: str | None) -> int:
    place = urlsplit(api_url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port or 0, timeout=10)
    headers = {"Authorization": f"Basic {base64.b64encode(auth.encode()).decode()}"} if auth else {}
    try:
        connection.request("POST", "/api/flow_runs/filter", body=json.dumps({}), headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
