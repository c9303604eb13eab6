"""What every test can ask for: a real MongoDB, a real Prefect server, one home for the whole session."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings as hypothesis_settings

from deployments.home import ServiceHome
from deployments.services import Addresses, Service, acquire, read_status, stop
from memory_core.settings import Settings, load_settings

# Equal inputs on every machine and every run: a red test can be repeated.
hypothesis_settings.register_profile("suite", derandomize=True, deadline=None, print_blob=True)
hypothesis_settings.load_profile("suite")

for name in [*os.environ]:
    if name.startswith(
        (
            *("MONGODB_", "MIGRATE_", "PREFECT_", "MEMORY_", "EMBEDDING_", "CHUNK_", "SEARCH_", "LOG_"),
            *("OPENAI_", "VOYAGE_", "CONTEXT_"),
        )
    ):
        if name == "MEMORY_CORPORA":
            continue
        del os.environ[name]
os.environ["DO_NOT_TRACK"] = "1"


SUPERVISOR_END_SECONDS = 30.0


def _discard_home(home: Path) -> None:
    """Stop everything of a home and remove it, with what lies outside of it: PostgreSQL's files, a short socket."""
    settings = load_settings(MEMORY_HOME=str(home), MONGODB_URI=None, PREFECT_API_URL=None)
    supervisor = read_status(settings).supervisor_pid
    stop(settings, force=True)
    deadline = time.monotonic() + SUPERVISOR_END_SECONDS
    while supervisor and psutil.pid_exists(supervisor) and psutil.Process(supervisor).status() != "zombie":
        assert time.monotonic() < deadline, "the supervisor did not end"
        time.sleep(0.02)
    files = ServiceHome(home)
    if recorded := files.read_record("postgres"):
        shutil.rmtree(str(recorded["directory"]), ignore_errors=True)
        Path(f"{recorded['directory']}.home").unlink(missing_ok=True)
    if files.socket_file().parent != files.directory:
        shutil.rmtree(files.socket_file().parent, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def discard_home() -> Callable[[Path], None]:
    """How a test that starts services on a home of its own cleans up."""
    return _discard_home


@pytest.fixture(scope="session")
def session_home() -> Iterator[Path]:
    """One MEMORY_HOME for the session, outside pytest's own directory: its path must stay short for a socket."""
    home = Path(tempfile.mkdtemp(prefix="memory-test-"))
    yield home
    _discard_home(home)


@pytest.fixture(scope="session")
def session_settings(session_home: Path) -> Settings:
    """The settings of that home, with the embedder that needs no model."""
    return load_settings(MEMORY_HOME=session_home, EMBEDDING_PROVIDER="hash", MEMORY_IDLE_STOP_SECONDS=600)


@pytest.fixture(scope="session")
def mongodb_uri(session_settings: Settings) -> Iterator[str]:
    """The address of a real MongoDB, a replica set of one."""
    with acquire(session_settings, frozenset({Service.MONGODB}), on_progress=lambda _: None) as lease:
        assert lease.addresses.mongodb_uri is not None
        yield lease.addresses.mongodb_uri.get_secret_value()


@pytest.fixture(scope="session")
def service_addresses(session_settings: Settings) -> Iterator[Addresses]:
    """MongoDB and a Prefect server, both real."""
    with acquire(session_settings, frozenset(Service), on_progress=lambda _: None) as lease:
        yield lease.addresses


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The shared corpora; a test that needs them is skipped, loudly, where they are absent."""
    default = Path(__file__).parents[2] / "shared" / "corpora"
    path = Path(os.environ.get("MEMORY_CORPORA", default))
    if not path.is_dir():
        pytest.skip(f"no corpora at {path}: set MEMORY_CORPORA")
    return path


@pytest.fixture
def assert_linear() -> Callable[..., None]:
    """Tell linear from quadratic time on a machine that does other things too."""

    def check(work: Callable[[str], object], make_text: Callable[[int], str], *, chars: int) -> None:
        """Ten times the text takes ten times as long where time is linear, and a hundred times where it is not."""

        def measure(count: int) -> float:
            text = make_text(count)
            began = time.thread_time()
            work(text)
            return time.thread_time() - began

        ratios: list[float] = []
        for _ in range(3):  # one quiet attempt is enough; growth that is quadratic passes none
            small = min(measure(chars) for _ in range(2))
            ratios.append(measure(10 * chars) / max(small, 0.002))
            if ratios[-1] < 40:
                return
        raise AssertionError(f"ten times the text took {ratios} times as long")

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many of the tests that need the shared corpora ran: a skipped one must not look like a passed one."""
    counts = {
        outcome: sum("corpora" in report.keywords for report in terminalreporter.getreports(outcome))
        for outcome in ("passed", "failed", "skipped")
    }
    ran = counts["passed"] + counts["failed"]
    terminalreporter.write_line(f"tests on the shared corpora: {ran} ran, {counts['skipped']} skipped")
