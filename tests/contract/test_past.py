"""Whole documents and their rows, as an export reads them: by id, page after page, and nothing that is not current."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from memory_core.answers import StoredDocument
from memory_core.models import DocumentState, EmbeddedDocument
from memory_core.store_ports import MemoryStore

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]


async def read_all(store: MemoryStore, *, limit: int) -> list[StoredDocument]:
    """Page after page, until one is short."""
    found: list[StoredDocument] = []
    while True:
        after = found[-1].state.document_id if found else None
        page = await store.find_documents(after=after, limit=limit)
        found += page
        if len(page) < limit:
            return found


async def test_pages_go_by_document_id_and_have_every_document_once(store: MemoryStore, put: Put) -> None:
    """Whatever the order of storing, and although one of them is stored again."""
    ids = {(await put(f"notes/{name}", f"text of {name}")).document_id for name in "cabed"}
    await put("notes/a", "text of a", "and more")
    for limit in (1, 2, 5, 100):
        found = await read_all(store, limit=limit)
        assert [one.state.document_id for one in found] == sorted(ids)
    assert [one for one in found if one.state.source_id == "notes/a"] == [await store.read_document("notes/a")]


async def test_nothing_stored_is_an_empty_page(store: MemoryStore) -> None:
    """An empty memory can be exported too."""
    assert await store.find_documents(after=None, limit=10) == []
    assert await store.find_documents(after="f" * 24, limit=10) == []


async def test_rows_come_with_their_keys_and_vectors_in_order(
    store: MemoryStore, put: Put, build: Callable[..., EmbeddedDocument]
) -> None:
    """Keys are those that decide which rows can stay; vectors are exactly what was stored; windows are counted."""
    state = await put("notes/a", "one", "two", "three")
    other = await put("notes/b", "four")
    rows = await store.read_past_rows([state.document_id, other.document_id])
    keys = await store.read_chunk_keys([state.document_id, other.document_id])
    assert {name: [row.key for row in found] for name, found in rows.items()} == keys
    stored = {row.chunk_id: row.vector for row in await store.read_chunk_rows([state.document_id])}
    for row in rows[state.document_id]:
        assert row.vector.dtype == np.float32
        assert np.array_equal(row.vector, stored[row.key.chunk_id])
        assert row.windows == 1

    write = build("notes/long", "five")
    (chunk,) = write.chunks
    windowed = replace(write, chunks=(replace(chunk, windows=3),))
    await store.write_together([windowed], now=state.created_at)
    again = await put("notes/long", "five", "six")
    assert [row.windows for row in (await store.read_past_rows([again.document_id]))[again.document_id]] == [3, 1]


async def test_rows_of_another_revision_are_not_among_them(
    store: MemoryStore, put: Put, break_row: Callable[[str], None]
) -> None:
    """No reader sees them, so they are no part of the document; a document that is gone has none."""
    state = await put("notes/a", "one", "two")
    first, second = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    break_row(first.chunk_id)
    rows = await store.read_past_rows([state.document_id, "e" * 24])
    assert [row.key for row in rows[state.document_id]] == [second]
    assert rows["e" * 24] == []
