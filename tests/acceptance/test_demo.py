"""`make demo` as a stranger runs it, with a guard that sees every connection that our processes open."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

# Loaded by every Python process that the demo starts: the supervisor and the Prefect server too.
GUARD = """
import ipaddress, os, sys

def _watch(event, arguments):
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else "unix"
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if host in (None, "", "unix", "localhost") or isinstance(host, bytes) and host == b"localhost":
        return
    try:
        local = ipaddress.ip_address(host).is_loopback or host in ("0.0.0.0", "::")
    except ValueError:
        local = False
    if not local:
        with open(os.environ["MEMORY_TEST_GUARD"], "a") as seen:
            seen.write(f"{event} {host} by {sys.argv}\\n")
        raise PermissionError(f"the guard saw {event} {host}")

sys.addaudithook(_watch)
"""


@pytest.fixture
def guarded(tmp_path: Path, empty_home: Path) -> tuple[dict[str, str], Path]:
    """An environment in which no Python process may reach an address that is not local."""
    site = tmp_path / "guard"
    site.mkdir()
    (site / "sitecustomize.py").write_text(GUARD)
    seen = tmp_path / "seen.txt"
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "MEMORY_TEST_GUARD": str(seen),
        "MEMORY_HOME": str(empty_home),
        # A stranger's own settings: the demo must write into no database but its own.
        "MONGODB_URI": "mongodb://192.0.2.1/",
        "EMBEDDING_PROVIDER": "hash",
    }
    environment.pop("DO_NOT_TRACK", None)  # the program must switch telemetry off itself
    return environment, seen


def _demo(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deployments.demo"],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )


def test_demo_ingests_answers_and_stops_and_phones_nobody(
    guarded: tuple[dict[str, str], Path], empty_home: Path
) -> None:
    """From nothing to three answers with their places; again: unchanged. No process is left, no address was foreign."""
    environment, seen = guarded
    first = _demo(environment)
    assert first.returncode == 0, first.stderr
    assert " created" in first.stdout
    assert sum(line.startswith("$ memory search") for line in first.stdout.splitlines()) == 3
    assert "characters " in first.stdout
    assert "score " in first.stdout
    second = _demo(environment)
    assert second.returncode == 0, second.stderr
    assert "Everything is unchanged" in second.stdout
    assert not seen.exists(), seen.read_text()
    _, left = psutil.wait_procs(_processes_of(empty_home), timeout=20)  # the supervisor is the last to go
    assert not left


def test_guard_sees_a_foreign_connection(guarded: tuple[dict[str, str], Path]) -> None:
    """The guard itself works: a process that reaches out is seen and stopped."""
    environment, seen = guarded
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=30, check=False)
    assert done.returncode != 0
    assert "192.0.2.1" in seen.read_text()


def test_servers_listen_on_loopback_only(service_addresses: object, session_home: Path) -> None:
    """No port of a server that we start can be reached from another machine."""
    del service_addresses
    listening: set[str] = set()
    for process in _processes_of(session_home):
        with contextlib.suppress(psutil.Error):  # a process that has just ended listens nowhere
            connections = process.net_connections(kind="inet")
            listening |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    assert listening
    assert listening <= {"127.0.0.1", "::1"}


def _processes_of(home: Path) -> list[psutil.Process]:
    found: list[psutil.Process] = []

    for process in psutil.process_iter():
        try:
            if str(home) in " ".join(process.cmdline()):
                found += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return found
