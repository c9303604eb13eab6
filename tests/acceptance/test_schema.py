"""`memory migrate`, and processes that cut texts otherwise than the memory: read, not written, with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from memory_core.spaces import SCHEMA_VERSION

pytestmark = pytest.mark.services

OpenDatabase = Callable[[Any], Database[dict[str, Any]]]
TEXT = "# Harbour\n\n" + "The lantern is lit at dusk and put out at dawn. " * 30


def test_a_database_of_an_older_schema_is_migrated(memory: Any, open_database: OpenDatabase) -> None:
    """It is read; the refusal names the command; the dry run changes nothing; then it is written again."""
    assert "Nothing is stored yet" in memory.run("migrate").stdout
    memory.run_json("store", "-", "--source-id", "notes/a", stdin=TEXT)
    meta = open_database(memory)["meta"]
    meta.update_one({}, {"$set": {"schemaVersion": 1}})
    refused = memory.run("store", "-", "--source-id", "notes/b", stdin=TEXT)
    assert refused.returncode == 1
    assert "`memory migrate`" in refused.stderr
    assert memory.run("get", "notes/a").stdout == TEXT
    planned = memory.run_json("migrate", "--dry-run")
    assert (planned["schemaBefore"], planned["schemaAfter"], planned["dryRun"]) == (1, SCHEMA_VERSION, True)
    assert (meta.find_one({}) or {})["schemaVersion"] == 1
    done = memory.run("migrate")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        f"The database of schema 1 is now one of schema {SCHEMA_VERSION}.",
    )
    assert planned["steps"][0]["name"] in done.stdout
    assert "nothing to do" in memory.run("migrate").stdout
    assert memory.run_json("store", "-", "--source-id", "notes/b", stdin=TEXT)["outcome"] == "created"
    meta.update_one({}, {"$set": {"schemaVersion": SCHEMA_VERSION + 1}})
    newer = memory.run("migrate")
    assert (newer.returncode, "newer version of this program" in newer.stderr) == (1, True)


def test_other_chunk_settings_are_refused_until_everything_is_cut_anew(memory: Any) -> None:
    """Per-request sizes stay free; `memory reembed --rechunk` makes the new settings those of the memory."""
    memory.run_json("store", "-", "--source-id", "notes/a", stdin=TEXT)
    other = type(memory)(home=memory.home, database=memory.database, extra={"CHUNK_SIZE_TOKENS": "64"})
    for refused in (other.run("store", "-", stdin="Not yet."), other.run("reembed", "--dry-run")):
        assert refused.returncode == 1
        assert all(word in refused.stderr for word in ("/400-0-32/", "/64-0-32/", "`memory reembed --rechunk`"))
    assert other.run("get", "notes/a").stdout == TEXT
    assert other.run_json("search", "lantern at dusk")["hits"]
    assert other.run_json("reembed", "--rechunk")["done"] == 1
    assert other.run_json("store", "-", "--source-id", "notes/a", stdin=TEXT)["outcome"] == "unchanged"
    late = memory.run("store", "-", "--source-id", "notes/a", stdin=TEXT)
    assert (late.returncode, "/64-0-32/" in late.stderr) == (1, True)
