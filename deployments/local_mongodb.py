"""A MongoDB of our own. In: a home and options. Out: a mongod that is primary, with its users. Knows no client.

One node on loopback, as a replica set (transactions, change streams), behind a password. The packaged server is of the
6.0 series, which is out of support: it is meant for one user on one machine.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import re
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deployments.child_process import Child, Launch, run_to_end, spawn
from deployments.home import Credentials, Record, ServiceHome, choose_port, write_private
from deployments.managed_service import Say
from deployments.service_messages import Options
from memory_core.errors import InternalError, ServiceError

if TYPE_CHECKING:
    from memory_core.adapters.mongo_setup import LocalMongo

NAME = "mongodb"
# A change stream must find its place again after a large ingest: 512 MB hold about 200,000 written chunks at
# 2.5 kB each. Without the option mongod takes 5 % of the disk.
_OPLOG_MB = 512
# Recovery after a kill replays up to a minute of journal.
_READY_SECONDS = 120.0
# A client that is killed inside a transaction keeps its documents locked for so long. Our transactions hold 8 MB of
# rows as a rule and 8 % of the cache at most, which takes a second or two; MongoDB's own limit is a minute.
_TRANSACTION_SECONDS = 20
_STOP_SECONDS = 60.0
_VERSION_SECONDS = 30.0
_PORT_ATTEMPTS = 5
_PORT_TAKEN = "Address already in use"
_POLL_SECONDS = 0.01
_CONNECT_SECONDS = 1.0
_VERSION = re.compile(r"db version v(\d+)\.(\d+)\.(\d+)")


@dataclass(slots=True, kw_only=True)
class LocalMongodb:
    """How the MongoDB of one home is started. `options` are those of the newest request."""

    home: ServiceHome
    credentials: Credentials
    options: Options | None = None
    name: str = NAME
    local: LocalMongo | None = field(default=None, init=False)
    _databases: frozenset[str] = field(default_factory=frozenset[str], init=False)
    _granting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def start(self, say: Say) -> Child:
        """Start mongod on the home's files and return it when it is primary.

        Raises:
            ServiceError: no mongod, files of another version, or a start that failed, with the log's last lines.
        """
        options = self._require_options()
        program, version = await choose_mongod(self.home, configured=options.mongod)
        say(f"Starting MongoDB {version} ...")
        for _ in range(_PORT_ATTEMPTS):
            port = choose_port(self.home, NAME)
            child = await spawn(self._launch(program, version, port, cache_gb=options.mongod_cache_gb), home=self.home)
            try:
                await asyncio.gather(
                    wait_for_port(child, port, seconds=_READY_SECONDS), asyncio.to_thread(_load_driver)
                )
                await self._make_ready(child, port, database=options.database)
            except ServiceError as error:
                await child.stop()
                if _PORT_TAKEN not in error.message:
                    raise
            else:
                return child
        raise ServiceError(f"MongoDB found no free port on 127.0.0.1 in {_PORT_ATTEMPTS} attempts. Try again.")

    def describe(self) -> dict[str, Any]:
        """Version, program and port, as far as they are known."""
        known = self.home.read_record("mongod") or {}
        port = (self.home.read_record("ports") or {}).get(NAME)
        return {"version": known.get("version"), "program": known.get("program"), "port": port}

    async def open_database(self, database: str) -> str:
        """Let the application user into this database too, and return the address for clients.

        Raises:
            ServiceError: MongoDB refused.
        """
        if self.local is None:
            raise ServiceError("MongoDB is not running. Run the command again.")
        async with self._granting:  # a second client of the same new database waits until it may really use it
            if database not in self._databases:
                await asyncio.to_thread(_grant, self.local, self._databases | {database})
                self._remember(database)  # only now: a grant that failed is tried again by the next client
        return self.local.application_uri

    def _require_options(self) -> Options:
        if self.options is None:
            raise InternalError("MongoDB was to be started before anybody asked for it.")
        return self.options

    def _launch(self, program: Path, version: str, port: int, *, cache_gb: float) -> Launch:
        directory = self.home.own_directory(NAME)
        data = self.home.own_directory(f"{NAME}/data")
        keyfile = directory / "keyfile"
        if not keyfile.exists():
            # A key is 6 to 1,024 characters of base64; of the URL-safe alphabet two are not.
            key = self.credentials.mongodb_keyfile.replace("-", "a").replace("_", "b")
            write_private(keyfile, key)
        arguments = {
            "--dbpath": data,
            "--port": port,
            "--bind_ip": "127.0.0.1",
            "--replSet": "memory",
            "--keyFile": keyfile,
            "--oplogSize": _OPLOG_MB,
            "--wiredTigerCacheSizeGB": cache_gb,
            "--networkMessageCompressors": "disabled",
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        # --quiet leaves out a line per connection; diagnostic files would grow to 200 MB that nobody reads here.
        parameters = (
            "diagnosticDataCollectionEnabled=false",
            f"transactionLifetimeLimitSeconds={_TRANSACTION_SECONDS}",
        )
        flags = ["--auth", "--quiet", "--nounixsocket"]
        for parameter in parameters:
            flags += ["--setParameter", parameter]
        return Launch(
            name=NAME,
            title=f"MongoDB {version}",
            command=(str(program), *words, *flags),
            directory=directory,
            log=self.home.log(NAME),
            stop_signal=signal.SIGTERM,
            stop_seconds=_STOP_SECONDS,
        )

    async def _make_ready(self, child: Child, port: int, *, database: str) -> None:
        from memory_core.adapters.mongo_setup import LocalMongo, make_ready  # noqa: PLC0415 - see _load_driver

        self.local = LocalMongo(
            port=port,
            root_password=self.credentials.mongodb_root,
            application_password=self.credentials.mongodb_application,
        )
        databases = self._remember(database)
        try:
            await asyncio.to_thread(make_ready, self.local, databases=databases, timeout_seconds=_READY_SECONDS)
        except ServiceError:
            if child.is_running:
                raise
            raise child.failure("ended while it was made ready") from None

    def _remember(self, database: str) -> frozenset[str]:
        """Write down which databases the application user may use; a request never takes one away."""
        known = frozenset((self.home.read_record("databases") or {}).get("names", []))
        self._databases = known | {database}
        if self._databases != known:
            self.home.write_record("databases", {"names": sorted(self._databases)})
        return self._databases


async def choose_mongod(home: ServiceHome, *, configured: str | None) -> tuple[Path, str]:
    """The program to start and its version: the configured one, else the home's, else PATH's, else the packaged one.

    Raises:
        ServiceError: there is none, or it is of another major version than the home's files.
    """
    recorded = home.read_record("mongod") or {}
    program = find_mongod(recorded, configured=configured)
    mark = f"{program}:{program.stat().st_size}:{program.stat().st_mtime_ns}"
    version = str(recorded["version"]) if recorded.get("mark") == mark else await _ask_version(program, home=home)
    written_by = recorded.get("version")
    if written_by and str(written_by).split(".")[0] != version.split(".")[0]:
        raise ServiceError(
            f"The MongoDB files of {home.root} were written by version {written_by} ({recorded.get('program')}), and "
            f"{program} is version {version}. Set MEMORY_MONGOD to a mongod {str(written_by).split('.')[0]}.x, or set "
            "MEMORY_HOME to an empty directory and ingest again."
        )
    if recorded.get("mark") != mark:
        home.write_record("mongod", {"program": str(program), "version": version, "mark": mark})
    return program, version


def find_mongod(recorded: Record, *, configured: str | None) -> Path:
    """Where mongod is. Raises ServiceError when it is nowhere."""
    if configured:
        program = Path(configured)
        if not program.is_file():
            raise ServiceError(f"MEMORY_MONGOD names {configured}, which is not a file. Correct it or unset it.")
        return program
    if recorded and Path(str(recorded["program"])).is_file():
        return Path(str(recorded["program"]))
    if on_path := shutil.which("mongod"):
        return Path(on_path)
    if packaged := _find_packaged():
        return packaged
    raise ServiceError(
        "There is no mongod on this machine. Install the extra that brings one (`pip install agent-memory[embedded]`), "
        "or set MEMORY_MONGOD to a mongod, or set MONGODB_URI to a MongoDB that runs elsewhere."
    )


async def wait_for_port(child: Child, port: int, *, seconds: float) -> None:
    """Return when something listens on the port. Raises ServiceError when the child ends or the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        if not child.is_running:
            raise child.failure("did not start")
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), _CONNECT_SECONDS)
        except (OSError, TimeoutError):
            if loop.time() > deadline:
                await child.stop()
                raise child.failure(f"did not answer within {seconds:g} s") from None
            await asyncio.sleep(_POLL_SECONDS)
            continue
        writer.close()
        await writer.wait_closed()
        return


def _find_packaged() -> Path | None:
    spec = importlib.util.find_spec("fiftyone")  # found, never imported: its import sets up things of its own
    for place in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(place) / "db" / "bin" / "mongod"
        if program.is_file():
            _make_runnable(program)
            return program
    return None


def _make_runnable(program: Path) -> None:
    """Some installers drop the run bit of files inside a wheel."""
    if os.access(program, os.X_OK):
        return
    try:
        program.chmod(program.stat().st_mode | 0o111)
    except OSError as error:
        raise ServiceError(f"{program} is not executable. Run `chmod +x` on it.", cause=error) from None


async def _ask_version(program: Path, *, home: ServiceHome) -> str:
    launch = Launch(
        name="mongod-version",
        title=f"MongoDB ({program})",
        command=(str(program), "--version"),
        directory=home.directory,
        log=home.log(NAME),
        stop_signal=signal.SIGTERM,
        stop_seconds=_STOP_SECONDS,
    )
    said = await run_to_end(launch, seconds=_VERSION_SECONDS)
    if not (found := _VERSION.search(said)):
        raise ServiceError(f"{program} does not say which version it is. Set MEMORY_MONGOD to a mongod.")
    return ".".join(found.groups())


def _load_driver() -> None:
    """Import pymongo (0.3 s) while mongod starts: the supervisor itself must listen at once."""
    importlib.import_module("memory_core.adapters.mongo_setup")


def _grant(local: LocalMongo, databases: frozenset[str]) -> None:
    from memory_core.adapters.mongo_setup import grant_databases  # noqa: PLC0415 - pymongo is loaded by now

    grant_databases(local, databases=databases)
