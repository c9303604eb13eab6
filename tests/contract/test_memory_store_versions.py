"""MemoryStore, writing texts: versions that count, the newest that are kept, bodies of any size. Both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import pytest

from memory_core.errors import NotFoundError
from memory_core.models import DocumentState, hash_text
from memory_core.store_ports import MemoryStore

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

LATER = timedelta(hours=1)


async def test_a_rechunk_is_no_new_version(store: MemoryStore, put: Put, now: datetime) -> None:
    """The same text cut in another way moves the recipe, neither the version nor the time."""
    first = await put("notes/a", "alpha", "beta")
    state = await put("notes/a", "alpha", "beta", recipe="paragraph/2", at=now + LATER)
    assert (state.version, state.updated_at, state.body_id) == (1, now, first.body_id)
    assert (state.recipe, state.revision != first.revision) == ("paragraph/2", True)
    found = await store.read_document("notes/a")
    assert found is not None
    assert len(found.versions) == 1


async def test_the_newest_versions_are_kept_and_older_bodies_go(store: MemoryStore, put: Put) -> None:
    """Of seven versions five stay readable; the text of the first two is gone."""
    states = [await put("notes/a", f"version {number}") for number in range(1, 8)]
    found = await store.read_document("notes/a")
    assert found is not None
    assert [version.version for version in found.versions] == [3, 4, 5, 6, 7]
    assert [await store.read_body(state.body_id) for state in states[2:]] == [f"version {n}" for n in range(3, 8)]
    for state in states[:2]:
        with pytest.raises(NotFoundError):
            await store.read_body(state.body_id)


async def test_a_text_that_comes_back_is_a_version_of_its_own(store: MemoryStore, put: Put) -> None:
    """A, B, A ends with A at version 3."""
    *_, state = [await put("notes/a", text) for text in ("A", "B", "A")]
    assert (state.version, state.content_hash) == (3, hash_text("A"))
    assert await store.read_body(state.body_id) == "A"


async def test_five_million_characters_of_four_bytes_come_back(store: MemoryStore, put: Put) -> None:
    """The largest content, 20 MB of UTF-8: above MongoDB's limit for one document."""
    text = "\U0001f600\U0001f3fd" * 2_500_000
    state = await put("notes/emoji", "short", content=text, content_hash=hash_text(text))
    assert await store.read_body(state.body_id) == text


async def test_a_body_that_never_was_is_not_found(store: MemoryStore) -> None:
    """Whatever the id looks like."""
    for body_id in ("0" * 24, "no such body", ""):
        with pytest.raises(NotFoundError):
            await store.read_body(body_id)
