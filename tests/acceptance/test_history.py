"""Versions, the trash and the purge as a person uses them: what was stored is found again, or nowhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from bson import BSON
from pymongo.database import Database

from deployments.services import Addresses

pytestmark = pytest.mark.services


@pytest.fixture
def prefect(service_addresses: Addresses) -> Iterator[httpx.Client]:
    """The session's Prefect server, as its own UI asks it."""
    assert service_addresses.prefect_auth is not None
    user, _, password = service_addresses.prefect_auth.get_secret_value().partition(":")
    url = f"{service_addresses.prefect_api_url}/"
    with httpx.Client(base_url=url, auth=(user, password), timeout=30, trust_env=False) as client:
        yield client


def test_versions_are_told_and_compared(memory: Any) -> None:
    """Who stored each, the text of each, and a diff that is exact to the last line end."""
    memory.run_json("store", "-", "--source-id", "notes/a", stdin="one\ntwo\nthree\n")
    memory.run_json("store", "-", "--source-id", "notes/a", stdin="one\n2\nthree")
    told = memory.run_json("log", "notes/a")
    assert [one["version"] for one in told["versions"]] == [2, 1]
    assert {one["ingest"]["channel"] for one in told["versions"]} == {"cli"}
    assert all(one["ingest"]["flowRunId"] for one in told["versions"])
    done = memory.run("diff", "notes/a", "1", "2")
    assert done.returncode == 0
    assert done.stdout.splitlines()[2:] == [
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "-three",
        "+2",
        "+three",
        "\\ No newline at end of file",
    ]
    same = memory.run_json("diff", "notes/a", "2", "2")
    assert same == {"sourceId": "notes/a", "oldVersion": 2, "newVersion": 2, "diff": ""}
    unknown = memory.run("diff", "notes/a", "1", "9")
    assert (unknown.returncode, "Kept are: 1, 2" in unknown.stderr) == (1, True)


def test_what_was_deleted_comes_back(memory: Any) -> None:
    """By tags, with a dry run first; restored as it was; stored anew meanwhile it does not come back over that."""
    first = memory.run_json("store", "-", "--source-id", "notes/a", "--tag", "red", "--tag", "old", stdin="alpha")
    memory.run_json("store", "-", "--source-id", "notes/b", "--tag", "red", stdin="beta")
    memory.run_json("store", "-", "--source-id", "notes/a", stdin="alpha and more")
    planned = memory.run_json("delete", "--tag", "red", "--tag", "old", "--dry-run")
    assert (planned["sourceIds"], planned["restorableUntil"]) == (["notes/a"], None)
    deleted = memory.run_json("delete", "--tag", "red", "--tag", "old")
    assert deleted["sourceIds"] == ["notes/a"]
    assert not memory.run_json("search", "alpha", "--mode", "text")["hits"]
    (waiting,) = memory.run_json("trash")["documents"]
    assert (waiting["sourceId"], waiting["expiresAt"]) == ("notes/a", deleted["restorableUntil"])
    restored = memory.run_json("restore", "notes/a")
    assert (restored["documentId"], restored["version"]) == (first["documentId"], 2)
    assert memory.run_json("get", "notes/a")["tags"] == ["red", "old"]
    assert memory.run("get", "notes/a", "--version", "1").stdout == "alpha"
    assert memory.run_json("search", "alpha", "--mode", "text")["hits"]
    assert memory.run_json("trash")["documents"] == []
    memory.run_json("delete", "notes/a")
    memory.run_json("store", "-", "--source-id", "notes/a", stdin="something else")
    refused = memory.run("restore", "notes/a")
    assert (refused.returncode, "stored anew" in refused.stderr) == (1, True)
    assert memory.run("get", "notes/a").stdout == "something else"
    assert memory.run("restore", "unknown").returncode == 1
    assert memory.run("delete", "notes/a", "--tag", "red").returncode == 2


def test_a_purge_leaves_no_trace(
    memory: Any,
    open_database: Callable[[Any], Database[dict[str, Any]]],
    prefect: httpx.Client,
) -> None:
    """Not in a collection, not in a file of ours, not at Prefect: of content, title, tags and metadata."""
    marker = f"marker{uuid.uuid4().hex[:10]}"
    memory.run_json("store", "-", "--source-id", "notes/kept", stdin="this one stays")
    named = ("--source-id", "notes/gone", "--title", f"About {marker}", "--tag", marker)
    stored = memory.run_json("store", "-", *named, "--metadata", f'{{"key": "{marker}"}}', stdin=f"first {marker}")
    memory.run_json("store", "-", "--source-id", "notes/gone", stdin=f"second {marker}")
    assert memory.run_json("search", marker, "--mode", "text")["hits"]
    memory.run_json("delete", "notes/gone")
    memory.run_json("restore", "notes/gone")
    memory.run_json("delete", "notes/gone")
    shown = memory.run("purge", "notes/gone")
    assert (shown.returncode, "--yes" in shown.stderr) == (1, True)
    assert memory.run_json("trash")["documents"]
    purged = memory.run_json("purge", stored["documentId"], "--yes")
    assert purged["sourceIds"] == ["notes/gone"]
    assert (purged["removedFlowRuns"], purged["removedSearchIndexes"], purged["left"]) == (2, 1, [])
    assert memory.run("purge", "notes/gone", "--yes").returncode == 1
    database = open_database(memory)
    for name in database.list_collection_names():
        for row in database[name].find({}):
            encoded = BSON.encode(row)
            assert marker.encode() not in encoded, name
            assert b"notes/gone" not in encoded, name
    assert not [str(path) for path in _our_files(memory.home) if marker.encode() in path.read_bytes()]
    runs = _everything_at(prefect)
    assert marker not in runs
    assert memory.run_json("search", "stays", "--mode", "text")["hits"]
    assert not memory.run_json("search", marker, "--mode", "text")["hits"]


def _our_files(home: Path) -> list[Path]:
    """Everything below the home but the databases' own files."""
    owned = [home / "logs", home / "search", home / "services" / "prefect", home / "services" / "prefect-client"]
    return [path for folder in owned for path in folder.rglob("*") if path.is_file()]


def _everything_at(prefect: httpx.Client) -> str:
    answers: list[str] = []
    for path in ("flow_runs", "task_runs", "logs", "artifacts", "flows"):
        answer = prefect.post(f"{path}/filter", json={"limit": 200})
        answer.raise_for_status()
        answers.append(answer.text)
    answer = prefect.post("events/filter", json={"limit": 50})
    answer.raise_for_status()
    return "".join([*answers, answer.text])
