"""The steps from an older schema to this program's."""

from __future__ import annotations

from memory_core.adapters.mongo_migrations import MIGRATIONS
from memory_core.spaces import SCHEMA_VERSION


def test_migrations_are_numbered_without_a_gap() -> None:
    """The last one is the schema of this program; no two have one name."""
    assert [one.number for one in MIGRATIONS] == list(range(1, SCHEMA_VERSION + 1))
    assert len({one.name for one in MIGRATIONS}) == SCHEMA_VERSION
