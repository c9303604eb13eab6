"""The published figures are of one piece: what a table can contradict, it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memory_core.known_models import OPENAI_MODELS, VOYAGE_MODELS, KnownModel

MODELS = [*OPENAI_MODELS.items(), *VOYAGE_MODELS.items()]


@pytest.mark.parametrize(("name", "known"), MODELS, ids=[name for name, _ in MODELS])
def test_a_model_agrees_with_itself(name: str, known: KnownModel) -> None:
    """Its own width is allowed, a text fits a request, and it costs something that is not absurd."""
    assert known.allows(known.default_width)
    assert list(known.widths) == sorted(known.widths)
    assert known.window_tokens <= known.request_tokens
    assert 0 < known.usd_per_million < 1
    assert known.is_contextual == name.startswith("voyage-context-")
    assert known.is_contextual == (known.request_groups is not None)


def test_the_documents_have_the_same_figures() -> None:
    """Whoever corrects a price corrects it in both places."""
    page = Path(__file__).parents[2] / "docs" / "providers.md"
    rows = [
        [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| (text-embedding|voyage)-", line)
    ]
    assert rows == [
        [
            name,
            known.widths_text.replace(",", ""),
            str(known.window_tokens),
            str(known.request_tokens),
            str(known.request_texts) + (f" in {known.request_groups} documents" if known.request_groups else ""),
            f"{known.usd_per_million:.2f}",
        ]
        for name, known in MODELS
    ]


def test_a_range_allows_every_width_between() -> None:
    """OpenAI's models shorten to any width."""
    known = OPENAI_MODELS["text-embedding-3-large"]
    assert all(known.allows(width) for width in (1, 256, 1_000, 3_072))
    assert not known.allows(0)
    assert not known.allows(3_073)
    assert known.widths_text == "1 to 3072"


def test_a_list_allows_its_widths_alone() -> None:
    """Voyage's have four."""
    known = VOYAGE_MODELS["voyage-4"]
    assert [width for width in range(1, 4_097) if known.allows(width)] == [256, 512, 1_024, 2_048]
    assert known.widths_text == "256, 512, 1024, 2048"


def test_an_older_model_has_one_width() -> None:
    """It cannot shorten."""
    assert OPENAI_MODELS["text-embedding-ada-002"].widths_text == "1536"
    assert not OPENAI_MODELS["text-embedding-ada-002"].allows(1_024)
