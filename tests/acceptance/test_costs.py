"""What a run would cost, said before anything is spent, against what a provider then counts (over a real socket)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.providers.fake_provider import FakeProvider

pytestmark = pytest.mark.services

# The fake counts words, and each of these is one token of our counter too, as a provider's own counter would have it.
WORDS = (
    "water light house river stone garden music paper table window summer winter market letter number picture history "
    "science nature travel doctor teacher student family country village mountain island ocean forest"
).split()


@pytest.fixture
def provider(memory: Any) -> Iterator[FakeProvider]:
    """A provider that this memory's settings name."""
    with FakeProvider(dimensions=64) as fake:
        memory.extra.update(
            EMBEDDING_PROVIDER="openai",
            EMBEDDING_DIMENSIONS="64",
            OPENAI_BASE_URL=fake.base_url,
            OPENAI_API_KEY="sk-test-of-the-costs",
        )
        yield fake


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    """A directory of notes with few marks, the same on every run."""
    root = tmp_path / "prose"
    root.mkdir()
    draw = random.Random(11)
    for number in range(40):
        paragraphs = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(60, 180))) for _ in range(6)]
        (root / f"note-{number:02}.txt").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return root


def test_a_dry_run_costs_nothing_and_says_what_the_run_then_costs(
    memory: Any, provider: FakeProvider, prose: Path
) -> None:
    """Texts and requests exactly, tokens and money within 15 %; the second run costs nothing."""
    planned = memory.run_json("ingest", str(prose), "--dry-run")
    assert provider.requests == []
    estimate = planned["estimate"]
    assert planned["plan"]["read"] == estimate["documents"] == 40
    report = memory.run_json("ingest", str(prose))
    counted = report["tokensEmbedded"]
    assert (report["created"], report["chunks"]) == (40, estimate["chunks"])
    assert report["textsEmbedded"] == estimate["textsToEmbed"] == provider.paid.total() > 40
    assert estimate["requests"] == len(provider.requests)
    assert estimate["tokens"] == pytest.approx(counted, rel=0.15)
    assert estimate["usd"] == pytest.approx(counted * 0.02 / 1_000_000, rel=0.15)
    again = memory.run_json("ingest", str(prose), "--dry-run")["estimate"]
    assert (again["documents"], again["tokens"], again["requests"], again["usd"]) == (0, 0, 0, 0.0)


def test_a_run_above_its_limit_stops_before_it_starts(memory: Any, provider: FakeProvider, prose: Path) -> None:
    """It says estimate and limit, and nothing is sent or stored; under a limit that suffices it runs."""
    stopped = memory.run("ingest", str(prose), "--max-cost", "0.0001")
    assert stopped.returncode == 1
    assert "above the limit of $0.0001" in stopped.stderr
    assert "The estimate of about $0.00" in stopped.stderr
    assert provider.requests == []
    assert memory.run_json("ingest", str(prose), "--max-cost", "1")["created"] == 40
