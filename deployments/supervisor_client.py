"""The supervisor as seen by a client. In: a home and a request. Out: an answer, from a supervisor started if need be.

A supervisor that is just starting or ending looks like none: the client tries again until its deadline.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from io import BufferedReader
from pathlib import Path

from deployments.home import ServiceHome
from deployments.service_logs import read_tail, rotate
from deployments.service_messages import Event, Message, decode, encode
from memory_core.errors import ServiceError

EXIT_LOCKED = 3  # what a new supervisor says when the home has one
_SPAWN_SECONDS = 30.0
_RETRY_SECONDS = 0.1
_LOG_LINES = 8


def connect_or_start(home: ServiceHome, *, deadline: float) -> socket.socket:
    """Connect to the supervisor, after starting one where none listens."""
    while True:
        if (connection := _connect(home)) is not None:
            return connection
        if not _start_supervisor(home):
            pause(home, deadline=deadline)


def _connect(home: ServiceHome) -> socket.socket | None:
    path = str(home.socket_file())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise ServiceError(f"The services of {home.root} belong to another user.", cause=error) from None
    return connection


def _start_supervisor(home: ServiceHome) -> bool:
    """True when a new supervisor listens, False when another one holds the lock: it is starting or ending."""
    start = rotate(home.supervisor_log)
    code = _run_starter(home)
    if code not in {0, EXIT_LOCKED}:
        lines = "\n  ".join(read_tail(home.supervisor_log, start=start)[-_LOG_LINES:])
        raise ServiceError(f"The supervisor of the local services did not start. Its log ends with:\n  {lines}")
    return code == 0


def _run_starter(home: ServiceHome) -> int | None:
    """The exit code of the process that leaves the daemon behind; None when it took too long."""
    log_file = os.open(home.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(log_file, "ab") as log, contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(  # noqa: S603 - our own program, no shell
            [sys.executable, "-m", "deployments.supervisor", "--home", str(home.root)],
            # Beside the package, so that it is found even where it is not installed.
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C at the client's terminal is not meant for the services.
            start_new_session=True,
            timeout=_SPAWN_SECONDS,
            check=False,
        ).returncode
    return None


def pause(home: ServiceHome, *, deadline: float) -> None:
    """Wait a moment before the next attempt. Raises ServiceError when the deadline is over."""
    if time.monotonic() > deadline:
        raise ServiceError(
            f"The supervisor of the local services did not answer in time. Read {home.supervisor_log}; `memory doctor` "
            "names its process, which can be stopped with `kill`."
        )
    time.sleep(_RETRY_SECONDS)


def converse(
    connection: socket.socket, request: bytes, *, on_progress: Callable[[str], None], deadline: float
) -> Message | None:
    """Send, pass progress on, and return the answer; None when the other side ended without one."""
    try:
        connection.sendall(request)
        with _lines(connection) as lines:
            while True:
                connection.settimeout(max(deadline - time.monotonic(), _RETRY_SECONDS))
                line = lines.readline()
                if not line:
                    return None
                message = decode(line)
                if message["event"] != Event.PROGRESS:
                    connection.settimeout(None)
                    return message
                on_progress(str(message["text"]))
    except TimeoutError:
        connection.close()
        raise ServiceError("The local services did not answer in time. Run `memory doctor` to see which.") from None
    except ConnectionError:
        return None
    except BaseException:
        connection.close()
        raise


@contextlib.contextmanager
def _lines(connection: socket.socket) -> Generator[BufferedReader]:
    """Read lines; the connection stays open after it, for it is the lease."""
    file = connection.makefile("rb")
    try:
        yield file
    finally:
        file.close()


def ask(home: ServiceHome, request: Message, *, seconds: float, until_closed: bool = False) -> Message | None:
    """One question to a supervisor that runs; None when none does."""
    connection = _connect(home)
    if connection is None:
        return None
    deadline = time.monotonic() + seconds
    with connection:
        answer = converse(connection, encode(request), on_progress=lambda _: None, deadline=deadline)
        if until_closed and answer and answer["event"] == Event.STOPPED:
            connection.settimeout(seconds)
            while connection.recv(1024):  # closed when the process has ended
                pass
    return answer
