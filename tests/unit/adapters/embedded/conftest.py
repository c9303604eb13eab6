"""Fixtures: a mirrored store and its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from tests.unit.adapters.embedded.mirrored_store import (
    MirroredStore,
    open_index,
)


@pytest.fixture
def store() -> MirroredStore:
    return MirroredStore()


@pytest.fixture
def index(tmp_path: Path, store: MirroredStore) -> EmbeddedSearchIndex:
    return open_index(tmp_path, store)
