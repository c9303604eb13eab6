"""The embedded index over a real MongoDB and over the fake: what is committed is found by the next search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.answers import SearchFilters
from memory_core.models import ContentType, EmbeddedDocument, Fingerprint
from memory_core.store_ports import DeleteSelector, MemoryStore


async def _find(index: EmbeddedSearchIndex, query: str, filters: SearchFilters | None = None) -> Sequence[str]:
    hits = await index.text_leg(query, filters=filters or SearchFilters(), limit=10)
    return sorted({hit.document_id for hit in hits})


async def test_an_index_follows_a_store_through_every_kind_of_write(
    store: MemoryStore,
    reopen: Callable[[], MemoryStore],
    build: Callable[..., EmbeddedDocument],
    space: Fingerprint,
    now: datetime,
    tmp_path: Path,
) -> None:
    """Create, update, delete and create again are each seen by the next search, in this process and in another."""
    index = EmbeddedSearchIndex(tmp_path, store, dimensions=space.dimensions, language="english")
    other = EmbeddedSearchIndex(tmp_path, reopen(), dimensions=space.dimensions, language="english")
    assert await _find(index, "otter") == []
    cat = build("notes/cat", "the cat sleeps", "and the otter swims")
    dog = build("notes/dog", "a dog barks")
    await store.write_together([cat, dog], now=now)
    assert await _find(index, "otter") == [cat.document.document_id]
    vector = cat.chunks[0].vector
    assert vector is not None
    nearest = await index.vector_leg(vector, fingerprint=space.key, filters=SearchFilters(), limit=1)
    assert nearest.hits[0].chunk_id == cat.chunks[0].chunk_id
    assert np.isclose(nearest.hits[0].score, 1.0, atol=1e-5)
    rows = await store.read_hits([nearest.hits[0].chunk_id])
    assert rows[nearest.hits[0].chunk_id].text == "the cat sleeps"
    base = (await store.read_states(["notes/cat"]))["notes/cat"]
    await store.write_together([build("notes/cat", "the cat purrs", base=base)], now=now)
    assert await _find(other, "otter") == []
    assert await _find(other, "purrs") == [cat.document.document_id]
    assert await _find(index, "purrs") == [cat.document.document_id]
    only_code = SearchFilters(content_types=(ContentType.CODE,))
    assert await _find(index, "dog", only_code) == []
    assert await _find(index, "dog cat", SearchFilters(source_ids=("notes/dog",))) == [dog.document.document_id]
    await store.delete(DeleteSelector(source_ids=("notes/dog",)), now=now)
    assert await _find(other, "dog") == []
    again = build("notes/dog", "the dog is back")
    await store.write_together([again], now=now)
    assert await _find(index, "dog") == [again.document.document_id]
