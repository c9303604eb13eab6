"""This process as a holder of leases, and whether another process of this machine still lives. It writes nothing."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from pathlib import Path

import psutil

from memory_core.models import Holder

# Elsewhere a start is a time of day, which moves when the clock is set.
_START_TOLERANCE = 0.0 if sys.platform == "linux" else 5.0
# Of /proc/PID/stat behind the program's name: the fields 3 and 22 of proc(5).
_STATE_FIELD = 0
_START_FIELD = 19
_DEAD_STATES = frozenset("ZXx")


def name_this_process() -> Holder:
    """A holder that no other process can be taken for: machine, process id, start and a random token."""
    pid = os.getpid()
    return Holder(host=_name_host(), pid=pid, started=read_start(pid) or 0.0, token=uuid.uuid4().hex)


def is_alive(holder: Holder) -> bool:
    """False only where it is certain: the holder was on this machine and is gone. Else its lease decides."""
    if holder.host != _name_host():
        return True
    try:
        return still_runs(holder.pid, started=holder.started)
    except psutil.AccessDenied:
        return True


def still_runs(pid: int, *, started: float) -> bool:
    """Whether the process that began at `started` (of `read_start`, in this boot) lives under this number.

    Raises:
        psutil.AccessDenied: there is such a process, and the system does not tell us more.
    """
    start = read_start(pid)
    return start is not None and abs(start - started) <= _START_TOLERANCE


def read_start(pid: int) -> float | None:
    """When a process began; None where it has ended, also when nobody has collected it yet.

    On Linux in ticks since the boot, which no change of the clock moves; elsewhere in seconds since 1970.

    Raises:
        psutil.AccessDenied: there is such a process, and the system does not tell us more.
    """
    return _read_ticks(pid) if sys.platform == "linux" else _read_creation(pid)


def read_boot() -> str:
    """This boot of this machine, where the system has a name for it: ticks since the boot mean nothing in another."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text(encoding="ascii").strip() if boot.exists() else ""


def _read_ticks(pid: int) -> float | None:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        if psutil.pid_exists(pid):  # hidden from this user, or begun in this very moment
            raise psutil.AccessDenied(pid) from None
        return None
    fields = line.rpartition(b")")[2].decode("ascii").split()  # a program's name may hold blanks and brackets
    return None if fields[_STATE_FIELD] in _DEAD_STATES else float(fields[_START_FIELD])


def _read_creation(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _name_host() -> str:
    """The machine, its boot and its process namespace: a process id means nothing outside of these."""
    parts = [socket.gethostname()]
    if boot := read_boot():
        parts.append(boot)
    namespace = Path("/proc/self/ns/pid")
    if namespace.exists():
        parts.append(str(namespace.stat().st_ino))
    return "/".join(parts)
