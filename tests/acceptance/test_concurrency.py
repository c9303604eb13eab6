"""Several commands at once on an empty home: everybody is served, nothing is stored twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.services, pytest.mark.slow]


def test_two_ingests_and_a_loop_of_searches_start_together(
    empty_home: Path, write_corpus: Callable[[int], Path], memory: Any
) -> None:
    """Started in the same moment on a home that has nothing: all exit 0, and there is one document a file."""
    root = write_corpus(60)
    fresh = type(memory)(home=empty_home, database="memory")
    ingests = [fresh.start("ingest", str(root), "--json") for _ in range(2)]
    searches = 0
    while any(run.poll() is None for run in ingests) or searches < 3:
        found = fresh.run("search", "lease batch index", "--json")
        assert found.returncode == 0, found.stderr
        searches += 1
    for run in ingests:
        _, errors = run.communicate()
        assert run.returncode == 0, errors
    assert fresh.run_json("list", "--limit", "1")["total"] == 60
    assert fresh.run("doctor").returncode == 0
    assert fresh.run_json("search", "lease batch index")["hits"]
    assert fresh.run("down").returncode == 0
