"""What a killed process leaves behind: nothing that a later run does not put right."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

pytestmark = [pytest.mark.services, pytest.mark.slow]

FILES = 420
BATCH = 10
KILLS = 5


def _content_of(database: Database[dict[str, Any]]) -> dict[str, Any]:
    """Everything a reader can tell apart: sources, versions, chunk texts and places."""
    documents = {
        row["_id"]: (row["sourceId"], row["version"], row["contentHash"], row["title"], row["chunking"]["chunkCount"])
        for row in database.documents.find({})
    }
    chunks = sorted(
        (
            documents[row["documentId"]][0],
            row["chunkIndex"],
            row["charStart"],
            row["charEnd"],
            row["text"],
            row["context"],
            bytes(row["embedding"]),
        )
        for row in database.chunks.find({})
    )
    return {"documents": sorted(documents.values()), "chunks": chunks}


def test_ingest_killed_five_times_equals_an_undisturbed_run(
    memory: Any,
    write_corpus: Callable[[int], Path],
    open_database: Callable[[Any], Database[dict[str, Any]]],
) -> None:
    """SIGKILL in the middle, again and again, then one run to the end: nothing lost, doubled or mixed."""
    root = write_corpus(FILES)
    memory.extra["MEMORY_BATCH_DOCUMENTS"] = str(BATCH)
    database = open_database(memory)
    stored_at_kill: list[int] = []
    for _ in range(KILLS):
        before = database.documents.count_documents({})
        run = memory.start("ingest", str(root))
        while (stored := database.documents.count_documents({})) < before + BATCH:
            assert run.poll() is None, f"the run ended before it could be killed: {run.communicate()}"
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        after = database.documents.count_documents({})
        assert before + BATCH <= stored <= after < FILES
        stored_at_kill.append(after)
    assert stored_at_kill == sorted(set(stored_at_kill))
    last = memory.run_json("ingest", str(root))
    assert last["failed"] == 0
    assert last["unchanged"] + last["created"] == FILES
    doctor = memory.run("doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout

    undisturbed = type(memory)(home=memory.home, database=f"{memory.database}_whole", extra=dict(memory.extra))
    assert undisturbed.run_json("ingest", str(root))["created"] == FILES
    assert _content_of(database) == _content_of(open_database(undisturbed))


def test_killed_store_is_finished_by_the_next_command(
    memory: Any, open_database: Callable[[Any], Database[dict[str, Any]]]
) -> None:
    """A submission whose process was killed is picked up by the next store: the text was accepted, so it is stored."""
    database = open_database(memory)
    text = "\n\n".join(f"# Part {number}\n\n" + f"sentence {number} about leases. " * 60 for number in range(900))
    run = memory.start("store", _write(memory, text), "--source-id", "killed/one")
    while not database.submissions.count_documents({"state": "running"}):
        assert run.poll() is None, run.communicate()
        time.sleep(0.001)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert memory.run_json("store", "-", "--source-id", "other", stdin="Something else.")["outcome"] == "created"
    assert memory.run_json("get", "killed/one")["content"].startswith("# Part 0")
    assert database.submissions.count_documents({"state": {"$in": ["staged", "running"]}}) == 0
    assert memory.run("doctor").returncode == 0


def _write(memory: Any, text: str) -> str:
    path = Path(memory.home) / f"{memory.database}.md"
    path.write_text(text)
    return str(path)
