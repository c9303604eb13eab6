"""Another embedding model: everything stored moves to it, in slices, beside searches and stores, killed or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo.database import Database

from deployments.services import Addresses

pytestmark = pytest.mark.services

OLD, NEW = "hash/hash/64/prefix-1", "hash/hash/32/prefix-1"
OpenDatabase = Callable[[Any], Database[dict[str, Any]]]


def with_dimensions(memory: Any, dimensions: int) -> Any:
    """The same memory, as a process with other embedding settings finds it."""
    extra = {**memory.extra, "EMBEDDING_DIMENSIONS": str(dimensions)}
    return type(memory)(home=memory.home, database=memory.database, extra=extra)


def search(memory: Any, mode: str) -> dict[str, Any]:
    return memory.run_json("search", "replica lease batch", "--mode", mode)


def test_everything_moves_to_another_model(
    memory: Any, write_corpus: Callable[[int], Path], service_addresses: Addresses
) -> None:
    """Planned, in slices, then active; each process may do what it should, and is told the command (S13)."""
    root = write_corpus(12)
    old, new = with_dimensions(memory, 64), with_dimensions(memory, 32)
    assert old.run_json("ingest", str(root))["created"] == 12
    refused = new.run("store", "-", stdin="Not yet.")
    assert refused.returncode == 1
    assert all(name in refused.stderr for name in ("/64/", "/32/", "`memory reembed`"))

    plan = new.run_json("reembed", "--dry-run")
    assert (plan["documents"], plan["why"]["model"], plan["coverage"]["before"]["coveredDocuments"]) == (12, 12, 0)
    assert plan["chunks"] > 12
    assert plan["tokens"] > 500
    assert old.run_json("store", "-", "--source-id", "mine", stdin="Alpha.")["outcome"] == "created"

    first = new.run_json("reembed", "--limit", "5")
    assert (first["done"], first["failed"], first["leftOut"], first["activated"]) == (5, 0, 8, False)
    assert (first["coverage"]["after"]["coveredDocuments"], first["coverage"]["after"]["documents"]) == (5, 13)
    # The old settings go on storing and searching, and do not take back what is done; words are found by both.
    assert old.run_json("ingest", str(root))["unchanged"] == 12
    assert len(search(old, "vector")["hits"]) > 0
    assert len(search(new, "text")["hits"]) > 0

    second = new.run("reembed")
    assert second.returncode == 0, second.stderr
    assert "8 documents embedded again" in second.stdout
    assert "covers 13 of 13 documents" in second.stdout
    assert "It is the active space now" in second.stdout
    assert len(search(new, "vector")["hits"]) > 0
    late = old.run("store", "-", stdin="Too late.")
    assert late.returncode == 1
    assert "`memory reembed`" in late.stderr

    [run, *_] = find_runs(service_addresses, "space:")
    assert run["name"].startswith("reembed hash/")
    assert {"memory", f"space:{run['name'].split()[1]}"} <= set(run["tags"])


def find_runs(addresses: Addresses, tag: str) -> list[dict[str, Any]]:
    """The flow runs of re-embeds that Prefect knows, the newest first."""
    assert addresses.prefect_auth is not None
    user, _, password = addresses.prefect_auth.get_secret_value().partition(":")
    with httpx.Client(auth=(user, password), timeout=30, trust_env=False) as client:
        answer = client.post(f"{addresses.prefect_api_url}/flow_runs/filter", json={"sort": "START_TIME_DESC"})
    answer.raise_for_status()
    return [run for run in answer.json() if any(one.startswith(tag) for one in run["tags"])]


def test_now_and_rechunk(memory: Any, write_corpus: Callable[[int], Path]) -> None:
    """`--now` uses what is done at once; smaller chunks are cut with `--rechunk`, and no old one is left (S14)."""
    root = write_corpus(6)
    old, new = with_dimensions(memory, 64), with_dimensions(memory, 32)
    old.run_json("ingest", str(root))
    missing = new.run("reembed", "--activate")
    assert missing.returncode == 1
    assert "covers 0 of 6 documents" in missing.stderr
    first = new.run_json("reembed", "--now", "--limit", "2")
    assert (first["activated"], first["coverage"]["after"]["coveredDocuments"]) == (True, 2)
    assert {hit["sourceId"] for hit in search(new, "vector")["hits"]} <= {one["sourceId"] for one in first["documents"]}
    new.extra["CHUNK_SIZE_TOKENS"] = "80"
    report = new.run_json("reembed", "--rechunk")
    assert (report["done"], report["coverage"]["after"]["coveredDocuments"]) == (6, 6)
    assert report["coverage"]["after"]["chunks"] > report["coverage"]["before"]["chunks"]
    assert new.run_json("ingest", str(root))["unchanged"] == 6
