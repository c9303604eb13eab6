import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from deployments.child_process import (
    Launch,
    basic_environment,
    find_recorded,
    read_child_record,
    run_to_end,
    spawn,
    stop_recorded,
)
from deployments.home import ServiceHome
from memory_core.errors import ServiceError

WAITING = "import signal, sys; print('up', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"


@pytest.fixture
def home(tmp_path: Path) -> ServiceHome:
    made = ServiceHome(tmp_path)
    made.prepare()
    return made


def launch(home: ServiceHome, *command: str, stop_seconds: float = 10.0) -> Launch:
    return Launch(
        name="server",
        title="Server 1.0",
        command=command,
        directory=home.directory,
        log=home.directory / "server.log",
        stop_signal=signal.SIGTERM,
        stop_seconds=stop_seconds,
    )


def wait_for_word(home: ServiceHome) -> None:
    deadline = time.monotonic() + 10
    while "up" not in (home.directory / "server.log").read_text(encoding="utf-8"):
        assert time.monotonic() < deadline


async def test_a_child_is_written_down_until_it_has_ended(home: ServiceHome) -> None:
    """Whoever comes later can tell which process is ours."""
    child = await spawn(launch(home, sys.executable, "-c", WAITING), home=home)
    found = find_recorded(read_child_record(home, "server"))
    assert found
    assert found.pid == child.pid
    await child.stop()
    assert not child.is_running
    assert read_child_record(home, "server") is None


async def test_a_deaf_child_is_killed(home: ServiceHome) -> None:
    """A server that does not stop when asked does not keep the supervisor waiting for ever."""
    child = await spawn(launch(home, sys.executable, "-c", DEAF, stop_seconds=0.1), home=home)
    wait_for_word(home)
    await child.stop()
    assert child.process.returncode == -signal.SIGKILL


async def test_a_child_left_behind_is_stopped(home: ServiceHome) -> None:
    """A new supervisor stops what a killed one could not."""
    child = await spawn(launch(home, sys.executable, "-c", WAITING), home=home)
    assert stop_recorded(home, "server")
    await child.wait()
    assert not psutil.pid_exists(child.pid)
    assert not stop_recorded(home, "server")


async def test_another_process_with_the_same_number_is_left_alone(home: ServiceHome) -> None:
    """A number that the system gave to somebody else's process is not ours to stop."""
    child = await spawn(launch(home, sys.executable, "-c", WAITING), home=home)
    record = read_child_record(home, "server")
    assert record
    home.write_record("child-server", record | {"started": record["started"] - 3600})
    assert not stop_recorded(home, "server")
    home.write_record("child-server", record | {"boot": "another"})
    assert not stop_recorded(home, "server")
    assert psutil.pid_exists(child.pid)
    await child.stop()


async def test_a_failure_quotes_what_the_child_said(home: ServiceHome) -> None:
    """The error has the child's own words and its exit code."""
    child = await spawn(launch(home, sys.executable, "-c", "print('no disk'); raise SystemExit(7)"), home=home)
    await child.wait()
    error = child.failure("did not start")
    assert "Server 1.0 did not start (exit code 7)" in error.message
    assert "no disk" in error.message


async def test_a_program_that_cannot_run_is_named(home: ServiceHome) -> None:
    """A file that is no program gives a sentence, not a traceback."""
    with pytest.raises(ServiceError, match="not a program that this user can run"):
        await spawn(launch(home, str(home.directory)), home=home)


async def test_a_helper_program_has_its_output_and_its_limit(home: ServiceHome) -> None:
    """A helper's answer is returned, its failure quoted, and its silence ended."""
    assert (
        await run_to_end(launch(home, sys.executable, "-c", "print(input())"), text="hello\n", seconds=10) == "hello\n"
    )
    with pytest.raises(ServiceError, match="broken"):
        await run_to_end(launch(home, sys.executable, "-c", "raise SystemExit('broken')"), seconds=10)
    with pytest.raises(ServiceError, match="more than"):
        await run_to_end(launch(home, sys.executable, "-c", WAITING), seconds=0.1)


def test_a_server_gets_no_key_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client's environment holds for the client does not reach its servers."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("MONGODB_URI", "mongodb://elsewhere")
    assert not {"OPENAI_API_KEY", "MONGODB_URI"} & set(basic_environment())
