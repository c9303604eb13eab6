"""One server as our child. In: what to run. Out: a process that is watched, recorded and stopped. Knows no server.

A child ends with its supervisor, however that ends: Linux sends the stop signal when the parent dies, and elsewhere
(or if that fails) the next supervisor finds the child by its recorded pid, boot and start and stops it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from deployments.home import Record, ServiceHome
from deployments.service_logs import describe_failure, read_tail, rotate
from memory_core.adapters.local_process import read_boot, read_start, still_runs
from memory_core.errors import ServiceError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PRIVATE_UMASK = 0o077


def basic_environment() -> dict[str, str]:
    """The few variables that a server needs; nothing of ours, no key and no address, reaches it."""
    kept = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "SSL_CERT_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user that a child runs as when it must not be root."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to run, where it writes, and how it is asked to stop."""

    name: str
    title: str
    command: tuple[str, ...]
    directory: Path
    log: Path
    stop_signal: signal.Signals
    stop_seconds: float
    environment: Mapping[str, str] = field(default_factory=basic_environment)
    account: Account | None = None


@dataclass(slots=True, kw_only=True)
class Child:
    """A server that runs."""

    launch: Launch
    process: asyncio.subprocess.Process
    home: ServiceHome
    log_start: int

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """False as soon as its end was seen."""
        return self.process.returncode is None

    async def wait(self) -> int:
        """Wait for its end; the code is negative for a signal."""
        code = await self.process.wait()
        self.home.remove_record(_record_name(self.launch.name))
        return code

    async def stop(self) -> None:
        """Ask it to end, wait, and kill it when it does not."""
        if self.is_running:
            self.process.send_signal(self.launch.stop_signal)
        try:
            await asyncio.wait_for(self.wait(), self.launch.stop_seconds)
        except TimeoutError:
            self.process.kill()
            await self.wait()

    def failure(self, what: str) -> ServiceError:
        """The error that says what went wrong, with the log's last lines and what helps."""
        log, code = self.launch.log, self.process.returncode
        return describe_failure(self.launch.title, what, lines=read_tail(log, start=self.log_start), code=code, log=log)


async def spawn(launch: Launch, *, home: ServiceHome) -> Child:
    """Start a child and write it down. Must run on the main thread: the child would end with any other thread.

    Raises:
        ServiceError: the program cannot be started at all.
    """
    log_start = rotate(launch.log)
    log = os.open(launch.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = await _start(launch, stdin=asyncio.subprocess.DEVNULL, output=log, parent_signal=launch.stop_signal)
    finally:
        os.close(log)
    child = Child(launch=launch, process=process, home=home, log_start=log_start)
    _write_down(child, home=home)
    return child


async def run_to_end(launch: Launch, *, text: str = "", seconds: float) -> str:
    """Run a helper program to its end and return what it printed.

    Raises:
        ServiceError: it failed or took too long; the message has what it said.
    """
    pipe = asyncio.subprocess.PIPE
    process = await _start(launch, stdin=pipe, output=pipe, parent_signal=signal.SIGKILL)
    try:
        output, _ = await asyncio.wait_for(process.communicate(text.encode()), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ServiceError(f"{launch.title}: {launch.command[0]} took more than {seconds:g} s.") from None
    said = output.decode(errors="replace")
    if process.returncode:
        raise describe_failure(launch.title, "failed", lines=said.splitlines(), code=process.returncode)
    return said


def stop_recorded(home: ServiceHome, name: str) -> bool:
    """Stop a child that an earlier supervisor left behind; True when there was one. Call with the lock held."""
    recorded = home.read_record(_record_name(name))
    process = find_recorded(recorded)
    if recorded and process:
        _stop_process(process, recorded)
    home.remove_record(_record_name(name))
    return process is not None


def find_recorded(recorded: Record | None) -> psutil.Process | None:
    """The living process that a record means; None when it has ended or its number was given to another."""
    if not recorded or recorded.get("boot") != read_boot():
        return None
    pid = int(recorded["pid"])
    try:
        return psutil.Process(pid) if still_runs(pid, started=float(recorded["started"])) else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # we may look at what is ours
        return None


def read_child_record(home: ServiceHome, name: str) -> Record | None:
    """What is written down about a child."""
    return home.read_record(_record_name(name))


async def _start(
    launch: Launch, *, stdin: int, output: int, parent_signal: signal.Signals
) -> asyncio.subprocess.Process:
    account = launch.account
    identity: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    try:
        return await asyncio.create_subprocess_exec(
            *launch.command,
            stdin=stdin,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=launch.directory,
            env=dict(launch.environment),
            umask=_PRIVATE_UMASK,
            preexec_fn=_end_with_parent(parent_signal),  # one system call, prepared beforehand: safe beside threads
            **identity,
        )
    except OSError as error:
        raise ServiceError(
            f"{launch.title} cannot be started: {launch.command[0]} is not a program that this user can run here.",
            cause=error,
        ) from None


def _end_with_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, int(stop_signal))
        if os.getppid() != parent:  # it died between the fork and the line above
            os._exit(1)

    return arrange


def _write_down(child: Child, *, home: ServiceHome) -> None:
    started = read_start(child.pid)
    if started is None:
        return
    record = {
        "pid": child.pid,
        "boot": read_boot(),
        "started": started,
        "stop_signal": int(child.launch.stop_signal),
        "stop_seconds": child.launch.stop_seconds,
        "title": child.launch.title,
    }
    home.write_record(_record_name(child.launch.name), record)


def _record_name(name: str) -> str:
    return f"child-{name}"


def _stop_process(process: psutil.Process, recorded: Record) -> None:
    try:
        process.send_signal(int(recorded["stop_signal"]))
        process.wait(float(recorded["stop_seconds"]))
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()
