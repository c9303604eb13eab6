"""Who lives and who does not: never a guess by the clock."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from memory_core.adapters import local_process
from memory_core.adapters.local_process import is_alive, name_this_process, read_start, still_runs

WAITING = "import sys; sys.stdin.read()"


def test_this_process_lives_and_another_with_its_number_is_not_it() -> None:
    """A number that was given again belongs to somebody else; another machine's processes are not judged."""
    own = name_this_process()
    assert is_alive(own)
    assert not is_alive(replace(own, started=own.started - 60))
    assert is_alive(replace(own, started=own.started - 60, host="elsewhere"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts ticks since the boot")
def test_a_clock_that_is_set_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time service moves the time of day; a process that lives is still the same."""
    own = name_this_process()
    hour_later = psutil.Process().create_time() + 3_600

    def read_moved_clock(_process: psutil.Process) -> float:
        return hour_later

    monkeypatch.setattr(psutil.Process, "create_time", read_moved_clock)
    assert is_alive(own)


def test_a_dead_process_that_nobody_collected_is_dead() -> None:
    """Its number is still taken, and it holds nothing any more."""
    child = subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE)
    started = read_start(child.pid)
    assert started is not None
    assert still_runs(child.pid, started=started)
    child.kill()
    deadline = time.monotonic() + 10
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
    assert read_start(child.pid) is None
    assert not is_alive(replace(name_this_process(), pid=child.pid, started=started))
    child.communicate()
    assert not still_runs(child.pid, started=started)


def test_a_process_that_cannot_be_looked_at_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease decides."""

    def refuse(_pid: int) -> float:
        raise psutil.AccessDenied

    own = name_this_process()
    monkeypatch.setattr(local_process, "read_start", refuse)
    assert is_alive(own)
