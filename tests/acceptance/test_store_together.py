"""`memory store` from several terminals at the same moment."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.services


def _store_together(memory: Any, calls: list[tuple[Path, str]]) -> list[dict[str, Any]]:
    """Start every store at once; each must succeed."""
    started = [memory.start("store", str(path), "--source-id", source_id, "--json") for path, source_id in calls]
    answers: list[dict[str, Any]] = []
    for run in started:
        output, errors = run.communicate()
        assert run.returncode == 0, errors
        answers.append(json.loads(output))
    return answers


def test_different_texts_are_all_stored(memory: Any, tmp_path: Path) -> None:
    """Nobody takes over what another living command has just accepted."""
    calls: list[tuple[Path, str]] = []
    for number in range(3):
        path = tmp_path / f"{number}.md"
        path.write_text(f"# Note {number}\n\nBees make honey, part {number}.\n")
        calls.append((path, f"notes/{number}"))
    answers = _store_together(memory, calls)
    assert [answer["outcome"] for answer in answers] == ["created"] * 3
    assert [answer["sourceId"] for answer in answers] == ["notes/0", "notes/1", "notes/2"]
    assert memory.run_json("list")["total"] == 3


def test_the_same_text_twice_is_one_document(memory: Any, tmp_path: Path) -> None:
    """The second call joins the first, or finds its document unchanged: both succeed, there is one version."""
    path = tmp_path / "note.md"
    path.write_text("# Note\n\nBees make honey.\n")
    answers = _store_together(memory, [(path, "notes/one")] * 2)
    assert Counter(answer["version"] for answer in answers) == {1: 2}
    assert {answer["outcome"] for answer in answers} <= {"created", "unchanged"}
    assert memory.run_json("list")["total"] == 1
    assert memory.run("doctor").returncode == 0
