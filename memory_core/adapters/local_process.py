"""This process as a holder of leases, and whether another holder on this machine still lives. It writes nothing."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

import psutil

from memory_core.models import Holder

_START_TOLERANCE_SECONDS = 1.0


def name_this_process() -> Holder:
    """A holder that no other process can be taken for: machine, process id, start time and a random token."""
    return Holder(
        host=_name_host(),
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        token=uuid.uuid4().hex,
    )


def is_alive(holder: Holder) -> bool:
    """False only where it is certain: the holder was on this machine and is gone. Else its lease decides."""
    if holder.host != _name_host():
        return True
    try:
        started = psutil.Process(holder.pid).create_time()
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
    return abs(started - holder.started) < _START_TOLERANCE_SECONDS


def _name_host() -> str:
    """The machine, its boot and its process namespace: a process id means nothing outside of these."""
    parts = [socket.gethostname()]
    boot = Path("/proc/sys/kernel/random/boot_id")
    if boot.exists():
        parts.append(boot.read_text(encoding="ascii").strip())
    namespace = Path("/proc/self/ns/pid")
    if namespace.exists():
        parts.append(str(namespace.stat().st_ino))
    return "/".join(parts)
