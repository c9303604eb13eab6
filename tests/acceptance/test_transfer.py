"""`memory export` and `memory import` as a user runs them, killed in the middle, on the real services."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

pytestmark = [pytest.mark.services, pytest.mark.slow]

FILES = 210  # two full parts and a rest
BATCH = 10


def other_memory(memory: Any, name: str, **extra: str) -> Any:
    """Another database on the same services."""
    return type(memory)(home=memory.home, database=f"{memory.database}_{name}", extra={**memory.extra, **extra})


def kill_when(run: Any, is_time: Callable[[], bool]) -> None:
    """SIGKILL at that moment; the command must not have ended before it."""
    while not is_time():
        assert run.poll() is None, f"it ended before it could be killed: {run.communicate()}"
        time.sleep(0.001)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert run.returncode == -signal.SIGKILL


def read_export(root: Path) -> dict[str, bytes | dict[str, Any]]:
    """Every file by its path; of `memory.json` all but when and from which database it was made."""
    manifest = json.loads((root / "memory.json").read_bytes())
    told = {name: value for name, value in manifest.items() if name not in {"created", "lineage"}}
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {**files, "memory.json": told}


def count_texts(root: Path) -> int:
    return sum(1 for _ in (root / "contents").glob("*/*.txt"))


def parts_of(root: Path) -> int:
    path = root / "memory.json"
    return len(json.loads(path.read_text())["parts"]) if path.exists() else 0


@pytest.fixture
def filled(memory: Any, write_corpus: Callable[[int], Path]) -> Any:
    """A memory of a directory, of which a third was changed twice, and of content that a caller stored."""
    root = write_corpus(FILES - 1)
    assert memory.run_json("ingest", str(root), "--feed", "corpus")["created"] == FILES - 1
    for edit in range(2):
        for path in sorted(root.rglob("*.md"))[::3]:
            path.write_text(f"{path.read_text(encoding='utf-8')}\n## Edit {edit}\n\nA lantern {edit} of {path.stem}.\n")
        assert memory.run_json("ingest", str(root), "--feed", "corpus")["updated"] == FILES // 3
    stored = memory.run_json("store", "-", "--source-id", "mine", "--tag", "kept", stdin="A harbour\u2028of\tmine.\n")
    assert stored["outcome"] == "created"
    return memory


def test_a_memory_moves_through_kills(
    filled: Any, tmp_path: Path, open_database: Callable[[Any], Database[dict[str, Any]]]
) -> None:
    """Export and import, each killed twice and gone on with, give an equal memory; nothing is embedded."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    report = filled.run_json("export", str(whole), "--vectors")
    versions = FILES + 2 * (FILES // 3)
    assert (report["documents"], report["versions"], report["parts"], report["resumed"]) == (FILES, versions, 3, False)

    kill_when(filled.start("export", str(out), "--vectors"), lambda: count_texts(out) >= 40)
    assert parts_of(out) == 0
    kill_when(filled.start("export", str(out), "--vectors"), lambda: parts_of(out) >= 1)
    assert parts_of(out) < 3
    resumed = filled.run_json("export", str(out), "--vectors")
    assert (resumed["resumed"], resumed["leftOut"]) == (True, [])
    assert read_export(out) == read_export(whole)

    there = other_memory(filled, "there", MEMORY_BATCH_DOCUMENTS=str(BATCH))
    plan = there.run_json("import", str(out), "--dry-run")
    assert (plan["created"], plan["estimate"]["textsToEmbed"], plan["estimate"]["tokens"]) == (FILES, 0, 0)
    database = open_database(there)
    for kill in (1, 2):
        at_least = database.documents.count_documents({}) + 2 * BATCH
        kill_when(
            there.start("import", str(out)),
            lambda at_least=at_least: database.documents.count_documents({}) >= at_least,
        )
        assert 2 * BATCH * kill <= database.documents.count_documents({}) < FILES
    last = there.run_json("import", str(out))
    assert last["created"] + last["unchanged"] == FILES
    assert last["unchanged"] >= 4 * BATCH
    assert (last["failed"], last["tokensEmbedded"], last["textsEmbedded"], last["problems"]) == (0, 0, 0, [])
    there.run_json("export", str(tmp_path / "again"), "--vectors")
    assert read_export(tmp_path / "again") == read_export(whole)
    assert read_rows(database) == read_rows(open_database(filled))
    check_equal(filled, there)


def read_rows(database: Database[dict[str, Any]]) -> dict[Any, Any]:
    """The chunk rows by id, but for what every write makes anew."""
    anew = ("revision", "createdAt", "updatedAt", "embeddedAt")
    return {row["_id"]: row for row in database.chunks.find({}, dict.fromkeys(anew, 0))}


def check_equal(here: Any, there: Any) -> None:
    """What a user sees of both is the same, and the new one is sound."""
    doctor = there.run("doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout
    pages = [memory.run_json("list", "--limit", "200")["sources"] for memory in (here, there)]
    assert pages[0] == pages[1]
    changed = next(source["sourceId"] for source in pages[0] if source["version"] == 3)
    for command in (("log", changed), ("get", changed, "--version", "1")):
        assert here.run_json(*command) == there.run_json(*command)
    hits = [memory.run_json("search", "harbour lantern", "--mode", "vector")["hits"] for memory in (here, there)]
    assert hits[0] == hits[1]
    assert [hit["sourceId"] for hit in there.run_json("search", "harbour", "--tag", "kept")["hits"]] == ["mine"]


def test_a_memory_moves_to_another_model(memory: Any, write_corpus: Callable[[int], Path], tmp_path: Path) -> None:
    """Vectors of another model are ignored and it says so; texts are the same, and their directory owns them still."""
    plain, vectors = tmp_path / "plain", tmp_path / "vectors"
    root = write_corpus(12)
    assert memory.run_json("ingest", str(root), "--feed", "corpus")["created"] == 12
    memory.run_json("export", str(plain))
    memory.run_json("export", str(vectors), "--vectors")
    other = other_memory(memory, "other", EMBEDDING_DIMENSIONS="32")
    done = other.run("import", str(vectors))
    assert done.returncode == 0, done.stderr
    assert "12 created, 0 unchanged of 12 documents" in done.stdout
    assert "those vectors are ignored" in done.stdout
    assert "tokens embedded" in done.stdout
    other.run_json("export", str(tmp_path / "again"))
    mine, theirs = read_export(plain), read_export(tmp_path / "again")
    for files in (mine, theirs):
        manifest = files["memory.json"]
        assert isinstance(manifest, dict)
        del manifest["fingerprint"]
    assert mine == theirs
    assert other.run_json("ingest", str(root), "--feed", "corpus")["unchanged"] == 12


def test_what_cannot_be_done_is_told(memory: Any, write_corpus: Callable[[int], Path], tmp_path: Path) -> None:
    """Exit code 2 and a sentence where nothing was changed, 1 where one document is damaged."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("Dear")
    nothing = memory.run("export", str(tmp_path / "nothing"))
    assert nothing.returncode == 1
    assert "nothing to export" in nothing.stderr
    assert memory.run_json("ingest", str(write_corpus(2)))["created"] == 2
    for command, message in (("export", "not empty"), ("import", "no export")):
        refused = memory.run(command, str(full))
        assert refused.returncode == 2
        assert message in refused.stderr
    out = tmp_path / "out"
    memory.run_json("export", str(out))
    line = json.loads((out / "documents-00001.jsonl").read_text().splitlines()[1])
    (out / line["versions"][0]["text"]).write_text("Other words.")
    there = other_memory(memory, "there")
    done = there.run("import", str(out), "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["created"], report["failed"]) == (1, 1)
    (problem,) = report["problems"]
    assert problem["place"] == "documents-00001.jsonl, line 2"
    assert "sha256 differs" in problem["reason"]
    told = there.run("import", str(out))
    assert told.returncode == 1
    assert "documents-00001.jsonl, line 2" in told.stderr
