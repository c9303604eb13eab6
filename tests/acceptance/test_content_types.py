"""Files that are not prose, as whoever searches them sees it: pages without their markup, tables with their header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.services

HEADER = "sku,warehouse,unitprice"
PAGE = """<!DOCTYPE html>
<html><head><title>Menu</title><script>const quokkascript = "quokkascript";</script></head>
<body>
<h1>Caf&eacute; menu</h1>
<!-- wombatcomment wombatcomment -->
<p class="numbatclass">Fish &amp; chips with jalape&ntilde;os.</p>
<script>quokkascript()</script>
</body></html>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page with a script, a comment and entities, and a table of 200 rows."""
    root = tmp_path / "mixed"
    root.mkdir()
    (root / "page.html").write_text(PAGE, encoding="utf-8")
    rows = [f"part{number:03},hall {number % 7},{number}.50" for number in range(200)]
    (root / "prices.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return root


def find(memory: Any, query: str) -> list[dict[str, Any]]:
    """The hits of the text leg."""
    return memory.run_json("search", query, "--mode", "text")["hits"]


def test_a_page_is_found_by_what_its_reader_sees(memory: Any, folder: Path) -> None:
    """Script, comment and markup find nothing; a word that an entity is part of does; the text is the exact slice."""
    report = memory.run_json("ingest", str(folder))
    assert (report["created"], report["failed"]) == (2, 0)
    for unseen in ("quokkascript", "wombatcomment", "numbatclass", "ntilde"):
        assert find(memory, unseen) == []
    (hit,) = find(memory, "jalapeños")
    assert hit["sourceId"] == "mixed/page.html"
    assert "jalape&ntilde;os" in hit["text"]
    assert hit["text"] == PAGE[hit["charStart"] : hit["charEnd"]]
    assert any("Fish & chips with jalapeños" in snippet for snippet in hit["highlights"])
    assert memory.run("doctor").returncode == 0


def test_rows_far_below_the_header_are_found_with_their_columns(memory: Any, folder: Path) -> None:
    """The header row is context of every later chunk, in search and in `memory chunk`, and never in the text."""
    memory.run_json("ingest", str(folder))
    hit = find(memory, "part187")[0]
    assert "part187," in hit["text"]
    assert hit["lead"] == HEADER
    assert HEADER not in hit["text"]
    cut = memory.run_json("chunk", str(folder / "prices.csv"))
    assert cut["strategy"] == "csv-rows"
    first, *later = cut["chunks"]
    assert first["text"].startswith(HEADER)
    assert "lead" not in first
    assert later
    assert {chunk["lead"] for chunk in later} == {HEADER}
    assert f"lead: {HEADER}" in memory.run("chunk", str(folder / "prices.csv")).stdout
    assert {one["chunkIndex"] for one in find(memory, "unitprice")} >= {later[0]["index"], later[-1]["index"]}
