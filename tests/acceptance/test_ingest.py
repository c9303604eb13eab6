"""A directory and a memory that stay equal, as a data engineer sees it."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

pytestmark = pytest.mark.services


def test_first_run_creates_and_second_run_changes_nothing(memory: Any, write_corpus: Callable[[int], Path]) -> None:
    """A second run says that everything is unchanged and embeds nothing."""
    root = write_corpus(40)
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    first = memory.run_json("ingest", str(root))
    assert (first["created"], first["failed"], first["skipped"]) == (40, 0, 1)
    assert first["chunks"] > 40
    assert first["tokensEmbedded"] > 0
    second = memory.run_json("ingest", str(root))
    assert (second["unchanged"], second["created"], second["updated"], second["failed"]) == (40, 0, 0, 0)
    assert (second["chunks"], second["tokensEmbedded"]) == (0, 0)


def test_changes_renames_and_deletions_follow_the_directory(memory: Any, write_corpus: Callable[[int], Path]) -> None:
    """An edit is a version, a moved file keeps its document and pays nothing, a gone file loses its document."""
    root = write_corpus(12)
    memory.run_json("ingest", str(root))
    before = memory.run_json("get", "corpus/part-1/note-0001.md")
    edited, moved, gone = (root / "part-0/note-0000.md", root / "part-1/note-0001.md", root / "part-2/note-0002.md")
    edited.write_text(edited.read_text() + "\nOne more paragraph about leases.\n")
    moved.rename(root / "moved.md")
    gone.unlink()
    report = memory.run_json("ingest", str(root))
    assert (report["updated"], report["attributesUpdated"], report["deleted"], report["unchanged"]) == (1, 1, 1, 9)
    after = memory.run_json("get", "corpus/moved.md")
    assert after["documentId"] == before["documentId"]
    assert after["version"] == before["version"] == 1
    assert memory.run_json("get", "corpus/part-0/note-0000.md")["version"] == 2
    assert memory.run("get", "corpus/part-2/note-0002.md").returncode == 1


def test_replaced_and_swapped_files_are_seen_although_size_and_time_are_equal(memory: Any, tmp_path: Path) -> None:
    """`cp -p`, `rsync -t`, archives and `mv` keep size and time of change; the text is another all the same (S22)."""
    root = tmp_path / "conf"
    root.mkdir()
    for name in ("a.md", "b.md", "c.md"):
        (root / name).write_text(f"version of {name}\n")
        os.utime(root / name, (1_700_000_000, 1_700_000_000))
    memory.run_json("ingest", str(root))
    (root / "a.md").rename(root / "swap")
    (root / "b.md").rename(root / "a.md")
    (root / "swap").rename(root / "b.md")
    other = tmp_path / "c.md"
    other.write_text("version of d.md\n")
    os.utime(other, (1_700_000_000, 1_700_000_000))
    other.replace(root / "c.md")
    assert memory.run_json("ingest", str(root))["updated"] == 3
    assert memory.run("get", "conf/a.md").stdout == "version of b.md\n"
    assert memory.run("get", "conf/c.md").stdout == "version of d.md\n"


def test_mass_deletion_waits_for_a_confirmation(memory: Any, write_corpus: Callable[[int], Path]) -> None:
    """An emptied directory deletes nothing until a person confirms the plan (S4)."""
    root = write_corpus(30)
    memory.run_json("ingest", str(root))
    for folder in root.iterdir():
        shutil.rmtree(folder)
    refused = memory.run("ingest", str(root))
    assert refused.returncode == 1
    assert memory.run_json("list")["total"] == 30
    plan_id = refused.stderr.partition("--confirm ")[2].split()[0].rstrip(".")
    confirmed = memory.run_json("ingest", str(root), "--confirm", plan_id)
    assert confirmed["deleted"] == 30
    assert memory.run_json("list")["total"] == 0


def test_failed_file_is_named_and_the_others_are_stored(memory: Any, write_corpus: Callable[[int], Path]) -> None:
    """One file that cannot be stored makes the run fail, names it, and costs the others nothing (S1)."""
    root = write_corpus(5)
    (root / "huge.txt").write_text("word " * 1_200_000)
    done = memory.run("ingest", str(root))
    assert done.returncode == 1
    assert "1 of 6 failed" in done.stderr
    assert "huge.txt" in done.stderr
    assert memory.run_json("list")["total"] == 5
    (root / "huge.txt").write_text("Short enough now.")
    assert memory.run_json("ingest", str(root))["created"] == 1


def test_damaged_and_binary_files_are_quarantined(memory: Any, tmp_path: Path) -> None:
    """What is not text is never indexed as noise; the report says why (S9)."""
    root = tmp_path / "mixed"
    root.mkdir()
    (root / "good.md").write_text("# Good\n\nPlain text.\n")
    (root / "latin.txt").write_bytes("Größe und Übermut".encode("utf-16"))
    (root / "fake.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4)
    report = memory.run_json("ingest", str(root))
    assert (report["created"], report["skipped"], report["failed"]) == (2, 1, 0)
    told = {file["path"]: file for file in report["files"]}
    assert told["fake.txt"]["outcome"] == "quarantined"
    assert told["fake.txt"]["error"]
    assert "Größe" in memory.run("get", "mixed/latin.txt").stdout


def test_missing_root_deletes_nothing(memory: Any, write_corpus: Callable[[int], Path]) -> None:
    """A directory that is not there is a mistake, not an empty directory (S4)."""
    root = write_corpus(3)
    memory.run_json("ingest", str(root))
    root.rename(root.with_name("elsewhere"))
    done = memory.run("ingest", str(root))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert memory.run_json("list")["total"] == 3


@pytest.mark.corpora
def test_rfc_corpus_is_stored_and_found(
    memory: Any, corpora: Path, tmp_path: Path, open_database: Callable[[Any], Database[dict[str, Any]]]
) -> None:
    """625 RFCs in, none failed; the second run is all unchanged; every chunk is the exact slice of its document."""
    with tarfile.open(corpora / "rfcs-older.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / "rfcs-older" / "text"
    first = memory.run_json("ingest", str(root))
    assert (first["created"], first["failed"], first["skipped"]) == (625, 0, 2)
    second = memory.run_json("ingest", str(root))
    assert (second["unchanged"], second["tokensEmbedded"]) == (625, 0)
    hits = memory.run_json("search", "how are private fields accessed", "--limit", "5")["hits"]
    assert any("0001-private-fields" in hit["sourceId"] for hit in hits)
    database = open_database(memory)
    for document in database.documents.find({}, {"bodyId": 1}).limit(40):
        parts = database.contents.find({"bodyId": document["bodyId"]}).sort("part", 1)
        text = "".join(part["text"] for part in parts)
        for row in database.chunks.find({"documentId": document["_id"]}):
            assert text[row["charStart"] : row["charEnd"]] == row["text"]


@pytest.mark.corpora
def test_local_model_finds_the_rfc_by_meaning(memory: Any, corpora: Path, tmp_path: Path) -> None:
    """With the model that needs no key, RFC 0001 answers a question in other words."""
    with tarfile.open(corpora / "rfcs-older.tar.gz") as archive:
        members = sorted(archive.getmembers(), key=lambda one: Path(one.name).name)
        members = [one for one in members if Path(one.name).name.startswith("00")][:25]
        archive.extractall(tmp_path, members=members, filter="data")
    memory.extra["EMBEDDING_PROVIDER"] = "local"
    report = memory.run_json("ingest", str(tmp_path / "rfcs-older" / "text"))
    assert report["failed"] == 0
    assert report["created"] > 10
    answer = memory.run_json("search", "how are private fields accessed")
    assert answer["effectiveMode"] == "hybrid"
    assert any("0001-private-fields" in hit["sourceId"] for hit in answer["hits"][:5])
