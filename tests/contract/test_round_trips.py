"""What goes over the wire to MongoDB, by command monitoring: decisions read no body and no vector."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo import monitoring

from deployments.services import Service, acquire
from memory_core.adapters.mongo_store import MongoStore
from memory_core.bootstrap import build_core
from memory_core.models import Outcome, StoreRequest
from memory_core.ports import Core
from memory_core.settings import load_settings
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.sync.values import Action
from memory_core.sync_feed import plan_feed, prune_feed, read_batch, record_batch
from memory_core.work_ports import Feed

pytestmark = pytest.mark.services

_NOT_WORK = {"hello", "ping", "saslStart", "saslContinue", "endSessions", "isMaster", "buildInfo"}


class Wire(monitoring.CommandListener):
    """Every command that a client sends, while somebody listens."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []
        self.vectors_read = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep the command."""
        if event.command_name not in _NOT_WORK:
            self.commands.append({"name": event.command_name, **dict(event.command)})

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Count the vectors of the rows that came back."""
        cursor: Any = event.reply.get("cursor", {})
        came = [*cursor.get("firstBatch", []), *cursor.get("nextBatch", [])]
        self.vectors_read += sum(isinstance(row.get("embedding"), bytes) for row in came)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


_wire = Wire()
monitoring.register(_wire)


@pytest.fixture
async def core(session_home: Path) -> AsyncIterator[Core]:
    """A core on an empty database of the real server."""
    settings = load_settings(
        MEMORY_HOME=session_home,
        MONGODB_DB_NAME=f"wire_{uuid.uuid4().hex[:10]}",
        EMBEDDING_PROVIDER="hash",
        MEMORY_IDLE_STOP_SECONDS=600,
    )
    with acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None) as lease:
        assert lease.addresses.mongodb_uri is not None
        made = build_core(settings, mongodb_uri=lease.addresses.mongodb_uri.get_secret_value())
        yield made
        await made.close()


def _request(text: str, source_id: str = "notes/one", **fields: Any) -> StoreRequest:
    return StoreRequest(
        request=StoreContentRequest(content=text, source_id=source_id, **fields), provenance=Provenance(channel="test")
    )


def _reads_of(name: str) -> list[dict[str, Any]]:
    return [command for command in _wire.commands if name in (command.get("find"), command.get("aggregate"))]


async def test_unchanged_store_is_two_reads_without_body_or_vector(core: Core) -> None:
    """Storing the same text again asks twice, writes nothing and reads neither a body nor a chunk row."""
    text = "# One\n\n" + "A paragraph about leases and batches.\n\n" * 200
    await store_content([_request(text)], core=core)
    _wire.commands.clear()
    [outcome] = await store_content([_request(text)], core=core)
    assert outcome.outcome is Outcome.UNCHANGED
    assert [command["name"] for command in _wire.commands] == ["find", "aggregate"]
    assert not _reads_of("contents")
    assert _reads_of("chunks")[0]["hint"] == "chunks_tally"


async def test_edit_sends_only_the_changed_chunks(core: Core) -> None:
    """One paragraph of many is edited: only its vector and its text travel; the other rows keep their ids."""
    sections = [f"## Part {number}\n\n" + f"Sentence {number} about stores and leases. " * 40 for number in range(60)]
    await store_content([_request("\n\n".join(sections))], core=core)
    sections[30] = sections[30].replace("leases", "replicas", 3)
    _wire.commands.clear()
    [outcome] = await store_content([_request("\n\n".join(sections))], core=core)
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 2)
    inserted = [
        row for command in _wire.commands if command.get("insert") == "chunks" for row in command.get("documents", [])
    ]
    assert 1 <= len(inserted) <= 5
    assert all("embedding" in row for row in inserted)
    updates = [one for command in _wire.commands if command.get("update") == "chunks" for one in command["updates"]]
    assert len(updates) == 2  # what is ahead of the edit, and what it shifts
    assert not [one for one in updates if "embedding" in one["u"]["$set"]]
    assert len([one for one in updates if "text" in one["u"]["$set"]]) <= 2


async def test_unchanged_batch_costs_what_one_document_costs(core: Core) -> None:
    """Forty unchanged documents are at most three round trips, and no vector comes back."""
    requests = [_request(f"# Note {number}\n\nWords about leases.\n", f"notes/{number}") for number in range(40)]
    await store_content(requests, core=core)
    _wire.commands.clear()
    _wire.vectors_read = 0
    outcomes = await store_content(requests, core=core)
    assert {outcome.outcome for outcome in outcomes} == {Outcome.UNCHANGED}
    assert len(_wire.commands) <= 3
    assert _wire.vectors_read == 0


async def test_edit_of_a_paragraph_in_2000_chunks(core: Core) -> None:
    """At most five texts are embedded, five vectors travel, in either direction, and six commands write."""
    words = "store lease batch index retry token schema cursor page feed tag vector".split()
    sections = [
        f"## Part {number}\n\n" + " ".join(f"{words[(number * step) % 12]}{number}" for step in range(1, 101))
        for number in range(2_000)
    ]
    [first] = await store_content([_request("\n\n".join(sections))], core=core)
    assert first.chunk_count >= 2_000
    sections[1_000] += "\n\nA paragraph that was not there before, about nothing in particular."
    _wire.commands.clear()
    _wire.vectors_read = 0
    [outcome] = await store_content([_request("\n\n".join(sections))], core=core)
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 2)
    assert 1 <= outcome.texts_embedded <= 5
    vectors_sent = [
        row["embedding"]
        for command in _wire.commands
        for row in [*command.get("documents", []), *(one["u"].get("$set", {}) for one in _changes(command))]
        if "embedding" in row and command.get("insert", command.get("update")) == "chunks"
    ]
    assert 1 <= len(vectors_sent) <= 5
    assert _wire.vectors_read == 0
    assert sum(command["name"] in {"insert", "update", "delete", "findAndModify"} for command in _wire.commands) <= 6


def _changes(command: dict[str, Any]) -> list[dict[str, Any]]:
    """The updates of a command that change fields by name."""
    return [one for one in command.get("updates", []) if isinstance(one["u"], dict)]


async def test_second_run_of_a_directory_reads_no_body_and_no_vector(
    core: Core, write_notes: Callable[[int], Path]
) -> None:
    """Planning an unchanged directory is a handful of commands, whatever its size, and none of them reads content."""
    feed = await _sync(core, write_notes(120))
    _wire.commands.clear()
    again = await plan_feed(feed, core=core)
    await prune_feed(again, core=core)
    assert len(again.plan.select(Action.UNCHANGED)) == 120
    assert not _reads_of("contents")
    assert all(command.get("hint") == "chunks_tally" for command in _reads_of("chunks"))
    names = [command["name"] for command in _wire.commands if command["name"] != "getMore"]
    assert names == ["find", "aggregate", "find"]


async def test_tally_is_answered_by_the_index_alone(core: Core) -> None:
    """The check that every chunk is current fetches no chunk row (explain)."""
    await store_content([_request("Words about leases.\n\n" * 300)], core=core)
    _wire.commands.clear()
    await core.store.read_states(["notes/one"])
    [command] = _reads_of("chunks")
    assert isinstance(core.store, MongoStore)
    explained = core.store._connection.database.command(
        "explain", {"aggregate": "chunks", "pipeline": command["pipeline"], "hint": "chunks_tally", "cursor": {}}
    )
    assert "FETCH" not in str(explained)
    assert "COLLSCAN" not in str(explained)
    assert "IXSCAN" in str(explained)


async def _sync(core: Core, root: Path) -> Feed:
    await core.store.prepare(core.fingerprint)
    feed = await core.feeds.register_feed(Feed(name="notes", root=str(root)))
    plan = await plan_feed(feed, core=core)
    reading = await read_batch(plan.plan.select(Action.READ), feed_plan=plan, flow_run_id=None, core=core)
    outcomes = await store_content([file.request for file in reading.read], core=core)
    assert {outcome.outcome for outcome in outcomes} == {Outcome.CREATED}
    await record_batch(reading, outcomes, feed=feed, core=core)
    return feed


@pytest.fixture
def write_notes(tmp_path: Path) -> Callable[[int], Path]:
    """A directory of small notes."""

    def write(count: int) -> Path:
        root = tmp_path / "notes"
        root.mkdir()
        for number in range(count):
            (root / f"{number:04}.md").write_text(f"# Note {number}\n\nWords about lease number {number}.\n")
        return root

    return write
