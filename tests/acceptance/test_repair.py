"""`memory doctor --repair` as a user runs it: a damaged memory of a hundred documents is whole again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo.database import Database

pytestmark = pytest.mark.services

COUNT = 100
PROBE = "An unmistakable sentence about zeppelins over Lübeck."


def damage(database: Database[dict[str, Any]]) -> dict[str, str]:
    """Break ten documents, each in its own way. Returns the source id of each kind."""
    documents = list(database.documents.find({"chunking.chunkCount": {"$gte": 4}}).sort("sourceId", 1).limit(9))
    names = ["short", "leftover", "mismatched", "misnumbered", "words", "gone", "altered", "trashed", "orphaned"]
    hurt = dict(zip(names, documents, strict=True))
    rows = {
        name: list(database.chunks.find({"documentId": row["_id"]}).sort("chunkIndex", 1)) for name, row in hurt.items()
    }
    change = {"documentContentHash": "0" * 64}
    database.chunks.delete_one({"_id": rows["short"][1]["_id"]})
    database.chunks.insert_one({**rows["leftover"][1], "_id": ObjectId(), "revision": "f" * 24})
    database.chunks.update_one({"_id": rows["mismatched"][1]["_id"]}, {"$set": change})
    database.chunks.update_one({"_id": rows["misnumbered"][2]["_id"]}, {"$set": {"chunkIndex": 1}})
    database.chunks.update_one({"_id": rows["words"][0]["_id"]}, {"$set": {"text": "somebody else's words"}})
    database.contents.delete_many({"bodyId": hurt["gone"]["bodyId"]})
    database.contents.update_one({"bodyId": hurt["altered"]["bodyId"]}, {"$set": {"text": "another text"}})
    later = hurt["trashed"]["updatedAt"]
    database.trash.insert_one({**hurt["trashed"], "deletedAt": later, "expiresAt": later.replace(year=2100)})
    database.documents.delete_one({"_id": hurt["orphaned"]["_id"]})
    database.contents.insert_one({"bodyId": "nobody", "part": 0, "text": "loose"})
    database.trash.drop_index("trash_expiresAt")
    return {name: row["sourceId"] for name, row in hurt.items()}


def doctor(memory: Any, *options: str, code: int) -> dict[str, Any]:
    """Run it with --json and expect an exit code."""
    done = memory.run("doctor", *options, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def kinds(found: list[dict[str, Any]]) -> dict[str, int]:
    return {one["kind"]: one["count"] for one in found}


def test_a_damaged_memory_is_mended(
    memory: Any, open_database: Callable[[Any], Database[dict[str, Any]]], write_corpus: Callable[[int], Path]
) -> None:
    """Everything is found and named; what can be mended is; what cannot is told with its remedy, which works."""
    corpus = write_corpus(COUNT)
    assert memory.run("ingest", str(corpus), "--feed", "docs").returncode == 0
    memory.run_json("store", "-", "--source-id", "notes/probe", "--tag", "kept", stdin=PROBE)
    before = memory.run_json("list", "--limit", "200")
    hurt = damage(open_database(memory))

    cheap = kinds(doctor(memory, code=1)["faults"])
    assert cheap == {
        "missing_indexes": 1,
        "orphan_chunks": cheap["orphan_chunks"],
        "short_documents": 1,
        "leftover_chunks": 1,
        "mismatched_chunks": 1,
        "misnumbered_chunks": 1,
        "orphan_texts": 2,
        "missing_texts": 1,
        "trashed_documents": 1,
        "lost_files": 1,
    }
    revisions = sorted(row["revision"] for row in open_database(memory).documents.find())
    told = memory.run("doctor", "--deep", "--repair", "--dry-run")
    assert told.returncode == 1
    assert f"WOULD MEND: 1 documents lack chunks ({hurt['short']})" in told.stdout
    assert f"1 documents have a text that is not what was stored ({hurt['altered']})" in told.stdout
    assert sorted(row["revision"] for row in open_database(memory).documents.find()) == revisions

    mended = doctor(memory, "--deep", "--repair", code=1)
    assert kinds(mended["faults"]) == {"missing_texts": 1, "wrong_texts": 1}
    assert mended["repair"]["found"][0]["kind"] == "missing_indexes"
    assert {one["sourceId"]: one["result"] for one in mended["repair"]["documents"]} == {
        hurt[name]: "done" for name in ("short", "leftover", "mismatched", "misnumbered", "words")
    }
    assert sum(one["textsEmbedded"] for one in mended["repair"]["documents"]) == 1

    for name in ("gone", "altered"):  # as the remedy says: delete it, and store it from its source
        memory.run_json("delete", hurt[name])
    again = memory.run_json("ingest", str(corpus), "--feed", "docs")
    assert again["created"] == 3, again  # and the one whose document was gone
    last = doctor(memory, "--deep", "--repair", code=0)  # what was deleted without its text cannot be restored
    assert kinds(last["repair"]["mended"]) == {"missing_versions": 1}
    nothing = memory.run("doctor", "--deep", "--repair")
    assert (nothing.returncode, "There was nothing to mend." in nothing.stdout) == (0, True)

    found = memory.run_json("search", "zeppelins over Lübeck")
    assert found["hits"][0]["sourceId"] == "notes/probe"
    for source_id in (hurt[name] for name in ("misnumbered", "words", "gone", "altered")):
        path = corpus / source_id.removeprefix("docs/")
        assert memory.run_json("get", source_id)["content"] == path.read_text(encoding="utf-8")
    after = {one["sourceId"]: one for one in memory.run_json("list", "--limit", "200")["sources"]}
    lost = {hurt[name] for name in ("gone", "altered", "orphaned")}
    for one in before["sources"]:
        if one["sourceId"] not in lost:
            same = ("documentId", "version", "updatedAt", "tags", "title")
            assert {key: one[key] for key in same} == {key: after[one["sourceId"]][key] for key in same}


def test_options_that_do_not_go_together_are_refused(memory: Any) -> None:
    """A dry run of nothing is a mistake."""
    refused = memory.run("doctor", "--dry-run")
    assert refused.returncode == 2
    assert "--dry-run belongs to --repair" in refused.stderr
