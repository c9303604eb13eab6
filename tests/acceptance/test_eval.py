"""`memory eval` as a user runs it, on a small corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.services


def test_questions_are_measured_on_what_is_stored(memory: Any, tmp_path: Path) -> None:
    """A directory, three questions in the three ways to name what is relevant, a table and JSON; then a bad line."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "bees.md").write_text("# Bees\n\nBees make honey.\n", encoding="utf-8")
    (folder / "wasps.md").write_text("# Wasps\n\nWasps build nests of paper.\n", encoding="utf-8")
    memory.run_json("ingest", str(folder))
    lines = [
        {"question": "who makes honey", "relevant": [{"sourceId": "notes/bees.md", "start": 8, "end": 24}]},
        {"question": "nests of paper", "relevant": [{"sourceId": "notes/wasps.md", "text": "nests of paper"}]},
        {"question": "honey", "relevant": [{"sourceId": "notes/wasps.md"}]},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    measured = memory.run_json("eval", str(path), "--k", "1,5", "--mode", "text", "--mode", "hybrid")
    assert (measured["questions"], list(measured["modes"])) == (3, ["text", "hybrid"])
    assert measured["modes"]["text"]["recall"] == {"1": pytest.approx(2 / 3), "5": pytest.approx(2 / 3)}
    assert measured["modes"]["hybrid"]["recall"]["5"] == 1.0
    shown = memory.run("eval", str(path))
    assert shown.returncode == 0, shown.stderr
    assert all(word in shown.stdout for word in ("hybrid", "recall", "pass", "mrr", "precision", "iou"))
    path.write_text("\n".join([json.dumps(lines[0]), '{"question": "honey"}']), encoding="utf-8")
    refused = memory.run("eval", str(path))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("memory: Line 2: relevant: Field required")
