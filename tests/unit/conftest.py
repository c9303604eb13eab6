"""A whole core without a server: fakes, the hash embedder, a clock that stands still, ids that count."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from memory_core.adapters.hash_embedder import HashEmbedder
from memory_core.chunk.chunk_content import describe_default_recipe
from memory_core.embed import fingerprint_of
from memory_core.fakes import (
    EmbeddingFault,
    FakeDatabase,
    FakeFeedStore,
    FakeStore,
    FakeSubmissionStore,
    ScriptedEmbedder,
)
from memory_core.models import Holder
from memory_core.ports import Core
from memory_core.rules import default_options
from memory_core.settings import load_settings

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DIMENSIONS = 16


class WordCounter:
    """Counts words and marks, each with the blanks before it: a tokenizer that needs no table."""

    name = "words"
    _token = re.compile(r"\s*\w{1,8}|\s*[^\w\s]|\s+$")

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return sum(1 for _ in self._token.finditer(text))

    def ends(self, text: str) -> NDArray[np.int64]:
        """The offset behind each."""
        return np.array([match.end() for match in self._token.finditer(text)], dtype=np.int64)


class Missing:
    """A part that the test does not need: whoever uses it is found out."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"this test has no such part: {name}")


@pytest.fixture
def make_core(tmp_path: Path) -> Callable[..., Core]:
    """Build a core over a FakeDatabase; cores over one database are processes that share a server."""
    numbers = itertools.count(1)

    def new_id() -> str:
        return f"{next(numbers):024x}"

    def make(
        database: FakeDatabase | None = None,
        *,
        script: Sequence[EmbeddingFault | None] = (),
        only_with: str | None = None,
        budget_bytes: int = 40_000_000,
        files: object = None,
        **settings: Any,
    ) -> Core:
        shared = database or FakeDatabase()
        embedder = ScriptedEmbedder(HashEmbedder(DIMENSIONS), script=script, only_with=only_with)
        chosen = load_settings(MEMORY_HOME=str(tmp_path), EMBEDDING_PROVIDER="hash", **settings)
        return Core(
            settings=chosen,
            store=FakeStore(shared, clock=lambda: NOW, transaction_budget_bytes=budget_bytes),
            feeds=FakeFeedStore(shared, clock=lambda: NOW),
            submissions=FakeSubmissionStore(shared, clock=lambda: NOW, new_id=new_id),
            index=cast("Any", Missing()),
            embedder=embedder,
            counter=WordCounter(),
            files=cast("Any", files or Missing()),
            fingerprint=fingerprint_of(embedder),
            recipe=describe_default_recipe(default_options(chosen), WordCounter.name),
            holder=Holder(host="here", pid=1, started=1.0, token="t" * 32),
            clock=lambda: NOW,
            new_id=new_id,
            is_alive=lambda _: True,
            close=embedder.close,
        )

    return make
