"""The `memory` command: what it prints, how it exits, and that a mistake changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.services


def test_store_search_get_list_delete(memory: Any, tmp_path: Path) -> None:
    """The life of one document, from the command line."""
    note = tmp_path / "note.md"
    note.write_text(
        "# Retries\n\nA run is tried three times with growing pauses.\n\n## Leases\n\nA lease ends by itself.\n"
    )
    first = memory.run_json(
        "store", str(note), "--source-id", "notes/retries", "--tag", "Ops", "--metadata", '{"a": 1}'
    )
    assert (first["outcome"], first["version"], first["sourceId"]) == ("created", 1, "notes/retries")
    assert memory.run_json("store", str(note), "--source-id", "notes/retries")["outcome"] == "unchanged"
    renamed = memory.run_json("store", str(note), "--source-id", "notes/retries", "--title", "How often we try")
    assert (renamed["outcome"], renamed["version"], renamed["totalTokensEmbedded"]) == ("attributes_updated", 1, 0)
    hits = memory.run_json("search", "when does a lease end", "--tag", "ops")["hits"]
    assert hits[0]["sourceId"] == "notes/retries"
    assert hits[0]["title"] == "How often we try"
    stored = memory.run_json("get", "notes/retries")
    assert stored["content"][hits[0]["charStart"] : hits[0]["charEnd"]] == hits[0]["text"]
    assert (stored["tags"], stored["metadata"]) == (["ops"], {"a": 1})
    assert memory.run_json("list", "--tag", "ops")["total"] == 1
    assert memory.run_json("delete", "notes/retries", "--dry-run")["deletedDocuments"] == 1
    assert memory.run_json("delete", "notes/retries")["deletedDocuments"] == 1
    assert memory.run_json("search", "when does a lease end")["hits"] == []
    assert memory.run("delete", "notes/retries").returncode == 1


def test_store_from_standard_input_and_earlier_versions(memory: Any) -> None:
    """Text comes through a pipe; an earlier version can be read; A, B, A ends with A at version 3."""
    for text in ("First text.", "Second text.", "First text."):
        last = memory.run_json("store", "-", "--source-id", "piped", stdin=text)
    assert (last["outcome"], last["version"]) == ("updated", 3)
    assert memory.run("get", "piped", "--version", "2").stdout == "Second text."
    assert memory.run("get", "piped", "--version", "9").returncode == 1


def test_empty_answers_say_why(memory: Any) -> None:
    """Nothing stored and nothing matched are different answers."""
    nothing = memory.run_json("search", "anything")
    assert nothing["hits"] == []
    assert nothing["explanation"]
    memory.run_json("store", "-", "--source-id", "one", stdin="Bees make honey.")
    missed = memory.run_json("search", "zebra crossing", "--mode", "text")
    assert missed["hits"] == []
    assert missed["explanation"] not in (None, nothing["explanation"])


def test_hostile_text_cannot_steer_the_terminal(memory: Any) -> None:
    """Escape sequences and direction marks in stored text are shown, not obeyed (S23)."""
    memory.run_json("store", "-", "--source-id", "evil", stdin="Invoice \x1b[31mred\x1b[0m and \u202eesrever lease.")
    shown = memory.run("search", "invoice lease").stdout
    assert "Invoice" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_chunk_touches_no_service(memory: Any, tmp_path: Path) -> None:
    """`memory chunk` works without a server, and its offsets are exact."""
    apart = type(memory)(home=tmp_path / "nothing here", database="memory")
    note = tmp_path / "note.md"
    note.write_text("# One\n\n" + "Words about chunks. " * 200 + "\n\n## Two\n\nThe end.\n")
    cut = apart.run_json("chunk", str(note), "--size", "64", "--overlap", "8", "--min", "16")
    assert set(cut) == {"strategy", "stats", "chunks"}
    assert set(cut["chunks"][0]) == {"index", "charStart", "charEnd", "tokenCount", "headingPath", "text"}
    text = note.read_text()
    assert all(text[one["charStart"] : one["charEnd"]] == one["text"] for one in cut["chunks"])
    assert max(one["tokenCount"] for one in cut["chunks"]) <= 64
    assert all(one["headingPath"][0] == "One" for one in cut["chunks"])
    assert not (tmp_path / "nothing here" / "services").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ingest", "/no/such/directory"], 2),
        (["ingest", "/etc/hostname"], 2),
        (["store", "/no/such/file.md"], 2),
        (["store", "-", "--metadata", "{broken"], 2),
        (["store", "-", "--content-type", "application/x-unheard-of"], 2),
        (["store", "-", "--source-id", "-starts-badly"], 2),
        (["search", "   "], 2),
        (["get", "no/such/source"], 1),
        (["delete", "no/such/source"], 1),
        (["chunk", "/no/such/file.md"], 2),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(memory: Any, arguments: list[str], code: int) -> None:
    """Wrong arguments, missing files: an honest exit code, one line, no traceback, nothing stored."""
    done = memory.run(*arguments, stdin="Some text that is fine.")
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("memory: ")
    assert "Traceback" not in done.stderr + done.stdout
    assert memory.run_json("list")["total"] == 0


def test_unknown_options_are_usage_errors(memory: Any) -> None:
    """A wrong option is exit code 2, from the command line itself."""
    assert memory.run("search", "x", "--sourceID", "y").returncode == 2
    assert memory.run("no-such-command").returncode == 2


def test_wrong_and_unreachable_mongodb_are_one_sentence(memory: Any, tmp_path: Path) -> None:
    """A wrong address is a usage error and named; an unreachable server says what to check; no password is shown."""
    memory.extra["MONGODB_URI"] = "http://user:topsecretpassword@nowhere"
    wrong = memory.run("list")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "MONGODB_URI" in wrong.stderr
    memory.extra["MONGODB_URI"] = "mongodb://user:topsecretpassword@127.0.0.1:9/"
    memory.extra["MONGODB_SERVER_SELECTION_TIMEOUT_MS"] = "300"
    for arguments in (["list"], ["search", "x"], ["ingest", str(tmp_path)]):
        away = memory.run(*arguments)
        assert away.returncode == 1
        assert "MongoDB does not answer" in away.stderr
        assert "Traceback" not in away.stderr
        assert "topsecretpassword" not in away.stderr + away.stdout
    log = (memory.home / "logs" / "memory.log").read_text()
    assert "topsecretpassword" not in log


def test_all_settings_problems_are_listed_at_once(memory: Any) -> None:
    """One start names every bad variable and echoes no value."""
    memory.extra.update(CHUNK_SIZE_TOKENS="7", SEARCH_MAX_LIMIT="many-secret-words", MONGODB_DB_NAME="a/b")
    done = memory.run("list")
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("CHUNK_SIZE_TOKENS", "SEARCH_MAX_LIMIT", "MONGODB_DB_NAME"))
    assert "many-secret-words" not in done.stderr


def test_foreign_database_is_never_written(memory: Any, open_database: Any) -> None:
    """A database that holds documents of somebody else is refused before anything is written."""
    database = open_database(memory)
    database.documents.insert_one({"theirs": True})
    done = memory.run("store", "-", stdin="Some text.")
    assert done.returncode == 1
    assert "did not make" in done.stderr
    assert database.list_collection_names() == ["documents"]
    assert database.documents.count_documents({}) == 1


def test_other_embedder_reads_but_does_not_write(memory: Any) -> None:
    """A process with another embedding space may search by words, and refuses to store."""
    memory.run_json("store", "-", "--source-id", "one", stdin="Bees make honey.")
    memory.extra["EMBEDDING_DIMENSIONS"] = "64"
    refused = memory.run("store", "-", stdin="Wasps make paper.")
    assert refused.returncode == 1
    assert "Nothing was written" in refused.stderr
    found = memory.run_json("search", "honey")
    assert found["effectiveMode"] == "text"
    assert [hit["sourceId"] for hit in found["hits"]] == ["one"]
    assert memory.run("doctor").returncode == 1


def test_doctor_reports_what_is_wrong(memory: Any, open_database: Any) -> None:
    """Rows without an owner and short documents are found and named with their remedy."""
    memory.run_json("store", "-", "--source-id", "one", stdin="Bees make honey.\n\n" * 400)
    assert memory.run("doctor").returncode == 0
    database = open_database(memory)
    row = database.chunks.find_one({})
    assert row is not None
    database.chunks.delete_one({"_id": row["_id"]})
    database.contents.insert_one({"bodyId": "nobody", "part": 0, "text": "loose"})
    told = memory.run("doctor", "--json")
    assert told.returncode == 1
    problems = " ".join(json.loads(told.stdout)["problems"])
    assert "lack chunks (one)" in problems
    assert "belong to no version" in problems
    healed = memory.run_json("store", "-", "--source-id", "one", stdin="Bees make honey.\n\n" * 400)
    assert healed["reason"].startswith("repaired")


def test_help_names_every_command(memory: Any) -> None:
    """The first thing a stranger types."""
    shown = memory.run("--help").stdout
    for name in ("up", "down", "doctor", "ingest", "store", "search", "list", "get", "delete", "chunk"):
        assert name in shown
