"""Directory runs that pay a provider, through the command line: failures, what is on the wire, and a kill."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from deployments.home import ServiceHome
from memory_core.context import embedding_input
from tests.acceptance.paid_memory import KEY, TimedProvider, environment_of, files_with, tell_database, write_page
from tests.providers import faults

pytestmark = pytest.mark.services

FILES = ("a", "b", "c", "d")
Look = Callable[[Any], Database[dict[str, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of four pages of ten chunks each."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in FILES:
        (folder / f"{name}.md").write_text(write_page(f"page{name}"))
    return folder


@pytest.fixture
def provider(memory: Any) -> Iterator[TimedProvider]:
    """A contextual provider, which the memory pays; one request at a time, of one document."""
    with TimedProvider("voyage") as provider:
        memory.extra.update(environment_of("voyage", provider.base_url, EMBEDDING_CONCURRENCY="1"))
        yield provider


def test_a_file_that_failed_once_is_stored_by_the_next_run(
    memory: Any, provider: TimedProvider, root: Path, open_database: Look
) -> None:
    """One failed with its reason, nothing of it is stored and no hash remembered; then it is stored and found (S1)."""
    provider.script(*[faults.drop_last_vector()] * 2)  # the answer for all of them, then the one for a.md alone
    first = memory.run("ingest", str(root))
    database = open_database(memory)
    assert first.returncode == 1
    assert "has 9 entries for 10" in first.stderr + first.stdout
    assert sorted(row["sourceId"] for row in database.documents.find({})) == ["pages/b.md", "pages/c.md", "pages/d.md"]

    second = memory.run_json("ingest", str(root))
    assert (second["created"], second["unchanged"], second["failed"]) == (1, 3, 0)
    hits = memory.run_json("search", "The pagea of part 3")["hits"]
    assert "pages/a.md" in {hit["sourceId"] for hit in hits}
    assert set(provider.paid.values()) == {1}
    _check_groups(provider, database)


def _check_groups(provider: TimedProvider, database: Database[dict[str, Any]]) -> None:
    """On the wire: each document's chunks are one group, whole and in order, whenever it was sent."""
    expected = {
        tuple(
            embedding_input("", row["text"])
            for row in database.chunks.find({"documentId": document["_id"]}).sort("chunkIndex")
        )
        for document in database.documents.find({})
    }
    sent = {tuple(group) for seen in provider.documents for group in seen.groups}
    assert sent == expected
    assert len(expected) == len(FILES)


def test_a_key_in_an_error_is_nowhere(memory: Any, provider: TimedProvider, root: Path, open_database: Look) -> None:
    """Refusals that quote the key: not in what is printed, logged, stored, or kept by Prefect."""
    provider.script(*[faults.echo_key()] * (1 + len(FILES)))
    refused = memory.run("ingest", str(root))
    assert refused.returncode == 1
    assert "VOYAGE_API_KEY" in refused.stderr + refused.stdout

    postgres = ServiceHome(memory.home).read_record("postgres")
    assert postgres is not None
    folders = [memory.home, Path(str(postgres["directory"]))]
    assert KEY not in refused.stderr + refused.stdout + tell_database(open_database(memory))
    assert not [*files_with(KEY, folders)]
    assert [*files_with("[secret]", folders)], "nothing was looked at"


@pytest.mark.slow
def test_a_run_killed_behind_an_answer_pays_for_nothing_twice(
    memory: Any, provider: TimedProvider, root: Path, open_database: Look
) -> None:
    """SIGKILL when two documents are paid for and none is stored: the next run pays for the other two alone."""
    memory.extra["EMBEDDING_BATCH_SIZE"] = "1"
    database = open_database(memory)
    provider.script(None, None, faults.stall(after=0))
    run = memory.start("ingest", str(root))
    deadline = time.monotonic() + 60
    while database.embedding_cache.count_documents({}) < 20:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert database.documents.count_documents({}) == 0
    assert provider.paid.total() == 20

    assert memory.run_json("ingest", str(root))["created"] == len(FILES)
    assert provider.paid.total() == len(provider.paid) == 10 * len(FILES)
    _check_groups(provider, database)
