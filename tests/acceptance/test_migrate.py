"""`memory migrate --from` as a user runs it, killed in the middle, on a real database of mongodb-memory-mcp."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pytest
from bson import ObjectId
from pymongo.database import Database

pytestmark = [pytest.mark.services, pytest.mark.slow]

Row: TypeAlias = dict[str, Any]
Look: TypeAlias = Callable[[Any], Database[Row]]

GOOD = 100
BATCH = 10
BEGUN = datetime(2025, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
TYPES = ("markdown", "text", "code", "html", "json")
TEXTS = {
    "markdown": "# Note {n}\n\nThe harbour of {n} has a lantern.\n\n## 記憶\n\nÜber {n} 🚀.\n",
    "text": "Plain note {n}\n\nA quay and a crane, number {n}.\n",
    "code": "def berth_{n}() -> int:\n    return {n}\n",
    "html": "<h1>Page {n}</h1><p>A lighthouse of page {n}.</p>",
    "json": '{{"name": "buoy {n}", "depth": {n}}}',
}


def document(number: int, **changes: Any) -> Row:
    """A row as mongodb-memory-mcp stores it (JavaScript: whole numbers as int32, dates in milliseconds)."""
    kind = TYPES[number % len(TYPES)]
    content = TEXTS[kind].format(n=number)
    row: Row = {
        "_id": ObjectId(),
        "sourceId": f"old/note-{number:03}",
        "title": f"Note {number}",
        "uri": f"https://example.org/{number}" if number % 2 else None,
        "contentType": kind,
        "content": content,
        "contentHash": hashlib.sha256(content.encode()).hexdigest(),
        "contentLength": len(content.encode("utf-16-le")) // 2,
        "tags": ["old", f"tag-{number % 7}"],
        "metadata": {"number": number, "nested": {"list": [1, 2.5, None, True]}},
        "ingest": {"agent": f"agent-{number % 3}", "sessionId": "s", "clientName": "desktop", "channel": "mcp"},
        "chunking": {"strategy": kind, "chunkSizeTokens": 512, "chunkOverlapTokens": 64, "chunkCount": 1},
        "embedding": {"provider": "voyage", "model": "voyage-context-3", "dimensions": 8, "contextual": True},
        "version": number % 5 + 1,
        "createdAt": BEGUN + timedelta(hours=number),
        "updatedAt": BEGUN + timedelta(days=number),
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


BROKEN: list[Row] = [
    document(900, contentHash="0" * 64),
    document(901, contentHash=...),
    document(902, content=42),
    document(903, content=...),
    document(904, version="two"),
    document(905, createdAt="2025-01-01"),
    document(906, contentType="application/x-shockwave-flash"),
    document(907, metadata={"$where": "1"}),
    document(908, tags=["x" * 65]),
    document(909, sourceId="no blanks allowed"),
    document(910, sourceId="twice"),
    document(911, sourceId="twice"),
    document(912, _id="not an ObjectId"),
    document(913, title="t" * 513),
]
ORPHANS = 1


@pytest.fixture
def source(memory: Any, open_database: Look) -> Database[Row]:
    """The other program's database on the same server: good rows, broken ones among them, and chunks."""
    database = open_database(type(memory)(home=memory.home, database=f"{memory.database}_old", extra={}))
    rows = [document(number) for number in range(GOOD)]
    for place, row in enumerate(BROKEN):
        rows.insert(place * 7, row)
    database.documents.insert_many(rows)
    database.chunks.insert_many(
        {"documentId": row["_id"], "sourceId": row["sourceId"], "chunkIndex": 0, "embedding": [0.5] * 8} for row in rows
    )
    database.chunks.insert_one({"documentId": ObjectId(), "sourceId": "lost", "chunkIndex": 0, "text": "left over"})
    database.chunks.delete_one({"documentId": "not an ObjectId"})
    return database


def copy_of(database: Database[Row]) -> Row:
    """Everything in it: collections, rows, indexes."""
    names = sorted(database.list_collection_names())
    rows = {name: list(database[name].find().sort("_id", 1)) for name in names}
    return {**rows, "indexes": {name: database[name].index_information() for name in names}}


def kill_when(run: Any, is_time: Callable[[], bool]) -> None:
    """SIGKILL at that moment; the command must not have ended before it."""
    while not is_time():
        assert run.poll() is None, f"it ended before it could be killed: {run.communicate()}"
        time.sleep(0.001)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert run.returncode == -signal.SIGKILL


def check_problems(report: Row) -> None:
    """Every broken row is named once, and nothing else."""
    assert report["failed"] == len(BROKEN) + ORPHANS
    places = [problem["place"] for problem in report["problems"]]
    named = [row["_id"] for row in BROKEN]
    wanted = [f"documents, _id {one if isinstance(one, ObjectId) else repr(one)}" for one in named]
    assert sorted(place for place in places if place.startswith("documents")) == sorted(wanted)
    assert sum(place.startswith("chunks") for place in places) == ORPHANS


def test_a_memory_comes_over_through_a_kill(memory: Any, source: Database[Row], open_database: Look) -> None:
    """Dry run, run, SIGKILL, run: ids, versions, dates and texts are the source's, which nobody changed."""
    before = copy_of(source)
    command = ("migrate", "--from", "mongodb-memory-mcp", "--database", source.name)
    plan = memory.run(*command, "--dry-run", "--json")
    assert plan.returncode == 1, plan.stderr  # there are problems
    report = json_of(plan)
    assert (report["documents"], report["created"], report["dryRun"]) == (GOOD + len(BROKEN), GOOD, True)
    assert report["estimate"]["documents"] == GOOD
    check_problems(report)
    shown = memory.run(*command)
    assert shown.returncode == 1
    assert f"{GOOD} would be created" in shown.stdout
    assert "Run it again with --yes" in shown.stderr
    target = open_database(memory)
    assert target.list_collection_names() == []

    memory.extra["MEMORY_BATCH_DOCUMENTS"] = str(BATCH)
    kill_when(memory.start(*command, "--yes"), lambda: target.documents.count_documents({}) >= 2 * BATCH)
    assert 2 * BATCH <= target.documents.count_documents({}) < GOOD
    done = memory.run(*command, "--yes", "--json")
    assert done.returncode == 1, done.stderr
    report = json_of(done)
    assert report["created"] + report["unchanged"] == GOOD
    assert report["unchanged"] >= 2 * BATCH
    check_problems(report)
    again = json_of(memory.run(*command, "--yes", "--json"))
    assert (again["created"], again["unchanged"], again["tokensEmbedded"]) == (0, GOOD, 0)

    check_equal(memory, source, target)
    assert copy_of(source) == before


def json_of(done: Any) -> Row:
    """What a command printed, whatever its exit code."""
    return json.loads(done.stdout)


def check_equal(memory: Any, source: Database[Row], target: Database[Row]) -> None:
    """What a user sees is what the other program had, and the memory is sound."""
    broken = {row["_id"] for row in BROKEN}
    kept = ("sourceId", "title", "uri", "contentType", "contentHash", "tags", "metadata", "version")
    wanted = {row["_id"]: row for row in source.documents.find() if row["_id"] not in broken}
    found = {row["_id"]: row for row in target.documents.find()}
    assert found.keys() == wanted.keys()
    texts = {row["bodyId"]: row["text"] for row in target.contents.find()}
    for one, row in wanted.items():
        new = found[one]
        assert {name: new[name] for name in kept} == {name: row[name] for name in kept}
        assert (new["createdAt"], new["updatedAt"]) == (row["createdAt"], row["updatedAt"])
        assert texts[new["bodyId"]] == row["content"]
        assert new["contentLength"] == len(row["content"])
        assert {name: new["ingest"][name] for name in row["ingest"]} == row["ingest"]
    doctor = memory.run("doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout
    hits = memory.run_json("search", "harbour lantern", "--tag", "old", "--limit", "5")["hits"]
    assert {hit["contentType"] for hit in hits} == {"markdown"}
    (hit,) = memory.run_json("search", "berth_42", "--mode", "text", "--limit", "1")["hits"]
    assert hit["sourceId"] == "old/note-042"
    log = memory.run_json("log", "old/note-042")
    assert [version["version"] for version in log["versions"]] == [42 % 5 + 1]
    stored = memory.run_json("store", "-", "--source-id", "old/note-042", stdin="def berth_42(): ...\n")
    assert (stored["outcome"], stored["version"]) == ("updated", 42 % 5 + 2)
    assert memory.run_json("purge", "old/note-042", "--dry-run")["dryRun"]


def test_what_was_migrated_can_be_exported(memory: Any, source: Database[Row], tmp_path: Any) -> None:
    """An export and the import of it give the same memory once more."""
    command = ("migrate", "--from", "mongodb-memory-mcp", "--database", source.name, "--yes", "--json")
    assert json_of(memory.run(*command))["created"] == GOOD
    assert memory.run_json("export", str(tmp_path / "out"))["documents"] == GOOD
    other = type(memory)(home=memory.home, database=f"{memory.database}_new", extra=memory.extra)
    assert other.run_json("import", str(tmp_path / "out"))["created"] == GOOD
    pages = [one.run_json("list", "--limit", "200")["sources"] for one in (memory, other)]
    assert pages[0] == pages[1]


def test_what_cannot_be_done_is_told(memory: Any, source: Database[Row], open_database: Look) -> None:
    """Exit code 2 and a sentence where nothing was begun; the target stays empty, and no secret is told."""
    command = ("migrate", "--from", "mongodb-memory-mcp")
    wrong: list[tuple[tuple[str, ...], str]] = [
        (command, "--from needs --database"),
        (("migrate", "--database", source.name), "belong to --from"),
        (("migrate", "--from", "another", "--database", source.name), "another"),
        ((*command, "--database", memory.database), "source and target at once"),
        ((*command, "--database", f"{memory.database}_none"), "no documents and no chunks"),
        ((*command, "--database", "a.b"), "Correct --database"),
    ]
    for arguments, message in wrong:
        refused = memory.run(*arguments)
        assert refused.returncode == 2, (arguments, refused.stderr)
        assert message in refused.stderr
    memory.extra["MIGRATE_MONGODB_URI"] = "mongodb://me:topsecretpassword@127.0.0.1:9/"
    memory.extra["MONGODB_SERVER_SELECTION_TIMEOUT_MS"] = "300"
    away = memory.run(*command, "--database", source.name)
    assert away.returncode == 1
    assert "Check that MIGRATE_MONGODB_URI is right" in away.stderr
    assert "topsecretpassword" not in away.stdout + away.stderr
    assert open_database(memory).list_collection_names() == []


def test_a_memory_of_ours_and_a_target_of_others_are_refused(
    memory: Any, source: Database[Row], open_database: Look
) -> None:
    """The one is for export and import, the other is never written."""
    stored = memory.run_json("store", "-", "--source-id", "mine", stdin="Mine.")
    assert stored["outcome"] == "created"
    theirs = type(memory)(home=memory.home, database=source.name, extra={})
    before = copy_of(source)
    for arguments in (("--yes",), ("--dry-run",)):
        ours = theirs.run("migrate", "--from", "mongodb-memory-mcp", "--database", memory.database, *arguments)
        assert ours.returncode == 2
        assert "memory of this program" in ours.stderr
    third = open_database(type(memory)(home=memory.home, database=f"{memory.database}_third", extra={}))
    third.documents.insert_one(document(1))
    for arguments in (("--yes",), ("--dry-run",)):
        foreign = theirs.run("migrate", "--from", "mongodb-memory-mcp", "--database", third.name, *arguments)
        assert foreign.returncode == 1
        assert "this program did not make" in foreign.stderr
    assert copy_of(source) == before


def test_a_source_on_another_server_is_named_by_a_setting(memory: Any, source: Database[Row], mongodb_uri: str) -> None:
    """MIGRATE_MONGODB_URI; here it names the same server, which is only another way to get there."""
    memory.extra["MIGRATE_MONGODB_URI"] = mongodb_uri
    command = ("migrate", "--from", "mongodb-memory-mcp", "--database", source.name)
    done = memory.run(*command, "--yes", "--max-cost", "0")
    assert done.returncode == 1  # the broken ones
    assert f"{GOOD} created, 0 unchanged, {len(BROKEN) + ORPHANS} PROBLEMS" in done.stdout
    assert "problem: documents, _id" in done.stderr
    assert "more (--json lists all)" in done.stderr
