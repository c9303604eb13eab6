"""The service files of a memory home. In: MEMORY_HOME. Out: paths, private files, the lock. Starts and stops nothing.

MEMORY_HOME/services/            0700
    credentials.json             0600, made once
    supervisor.lock  .log  .sock
    state/NAME.json              what was chosen and what runs: programs, ports, children
    mongodb/  postgres/  prefect/
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from memory_core.errors import ServiceError, register_secret

Record: TypeAlias = dict[str, Any]

# A socket's path must stay under 104 bytes on macOS and 108 on Linux.
MAX_SOCKET_PATH_BYTES = 100
_PASSWORD_BYTES = 32
# Not tempfile.gettempdir(): every process of one user must find the same directory, whatever its TMPDIR says.
_SHORT_DIRECTORY = Path("/tmp")  # noqa: S108 - its owner and mode are checked before use
_PRIVATE_DIRECTORY = 0o700
_PRIVATE_FILE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The passwords of the servers that we start, made on the first start of a home and kept."""

    mongodb_root: str
    mongodb_application: str
    mongodb_keyfile: str
    postgres_admin: str
    postgres_prefect: str
    prefect_api: str


@dataclass(frozen=True, slots=True)
class ServiceHome:
    """Where the files of one home's services are."""

    root: Path

    @property
    def directory(self) -> Path:
        """Everything of the services, private to the user."""
        return self.root / "services"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor as long as it lives: one per home."""
        return self.directory / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """The supervisor's own words and its last traceback."""
        return self.directory / "supervisor.log"

    def log(self, name: str) -> Path:
        """What one server says."""
        return self.directory / name / f"{name}.log"

    def own_directory(self, name: str) -> Path:
        """The directory of one server, made private."""
        return make_private_directory(self.directory / name)

    def prepare(self) -> None:
        """Make the directories that everything else stands in."""
        make_private_directory(self.directory)
        make_private_directory(self.directory / "state")
        if self.socket_file().parent != self.directory:
            make_owned_directory(self.socket_file().parent)

    def socket_file(self) -> Path:
        """The supervisor's socket."""
        return self.socket_directory("", name_bytes=len("supervisor.sock")) / "supervisor.sock"

    def socket_directory(self, name: str, *, name_bytes: int) -> Path:
        """Where sockets with names of `name_bytes` have a path that the system accepts; `prepare` makes it.

        Raises:
            ServiceError: the short directory for deep homes belongs to somebody else.
        """
        wanted = self.directory / name
        if len(os.fsencode(wanted)) + 1 + name_bytes <= MAX_SOCKET_PATH_BYTES:
            return wanted
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        short = _SHORT_DIRECTORY / f"agent-memory-{os.geteuid()}-{digest}"
        if os.path.lexists(short):
            _check_owner(short)
        return short / name

    def read_record(self, name: str) -> Record | None:
        """What was written down under this name; None when nothing was."""
        path = self.directory / "state" / f"{name}.json"
        try:
            return cast("Record", json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ServiceError(f"{path} cannot be read. Remove it and start again.", cause=error) from None

    def write_record(self, name: str, record: Record) -> None:
        """Write down, whole or not at all."""
        write_private(self.directory / "state" / f"{name}.json", json.dumps(record, indent=1))

    def remove_record(self, name: str) -> None:
        """Forget; harmless when there is nothing."""
        (self.directory / "state" / f"{name}.json").unlink(missing_ok=True)

    def load_credentials(self) -> Credentials:
        """Read the passwords, and make those that are missing. Only the holder of the lock calls this."""
        path = self.directory / "credentials.json"
        try:
            known = cast("Record", json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
        except (OSError, ValueError) as error:
            raise ServiceError(f"{path} cannot be read. Restore it from a backup of this home.", cause=error) from None
        names = [field.name for field in dataclasses.fields(Credentials)]
        values = {name: str(known.get(name) or secrets.token_urlsafe(_PASSWORD_BYTES)) for name in names}
        if values != known:
            write_private(path, json.dumps(values, indent=1))
        for secret in values.values():
            register_secret(secret)  # what a server says of itself goes into our errors and logs
        return Credentials(**values)


def make_private_directory(path: Path) -> Path:
    """Make a directory and its parents, open to its owner alone; one that exists is closed to others."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    path.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != _PRIVATE_DIRECTORY:
        path.chmod(_PRIVATE_DIRECTORY)
    return path


def make_owned_directory(path: Path) -> Path:
    """Make a private directory in a place where others can write too, and refuse one that somebody else laid there."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=_PRIVATE_DIRECTORY)
    _check_owner(path)
    return path


def _check_owner(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ServiceError(f"{path} belongs to somebody else or is open to others. Remove it, or shorten MEMORY_HOME.")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), _PRIVATE_FILE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def choose_port(home: ServiceHome, name: str) -> int:
    """The port of last time when it is still free, else another free one, which is written down."""
    ports = home.read_record("ports") or {}
    wanted = int(ports.get(name, 0))
    port = (wanted and free_port(wanted)) or free_port(0)
    if not port:
        raise ServiceError("There is no free port on 127.0.0.1. End some programs and try again.")
    if port != wanted:
        home.write_record("ports", ports | {name: port})
    return port


def take_lock(home: ServiceHome) -> int | None:
    """Take the home's lock for the life of this process and its forks; None when another process holds it."""
    handle = os.open(home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextlib.contextmanager
def lock_taken(home: ServiceHome) -> Generator[bool]:
    """Hold the home's lock inside a block; the value says whether it was free."""
    handle = take_lock(home)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def free_port(port: int) -> int | None:
    """The port when nothing listens on it, any free one for 0, None when it is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return None
        return int(probe.getsockname()[1])
