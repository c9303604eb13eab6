"""Rows whose vectors stay, whatever an edit does to their neighbours. Both backends."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from memory_core.models import DocumentState
from memory_core.store_ports import MemoryStore
from tests.contract.conftest import PARAGRAPH_GAP

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]


async def check_rows(store: MemoryStore, state: DocumentState, paragraphs: list[str]) -> dict[str, str]:
    """Every row is the slice of the text at its place, in order; returns text by row id."""
    keys = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    assert [key.index for key in keys] == list(range(len(paragraphs)))
    hits = await store.read_hits([key.chunk_id for key in keys])
    content = PARAGRAPH_GAP.join(paragraphs)
    for key, paragraph in zip(keys, paragraphs, strict=True):
        hit = hits[key.chunk_id]
        assert (hit.chunk_index, hit.text) == (key.index, paragraph)
        assert content[hit.char_start : hit.char_end] == paragraph
    return {key.chunk_id: hits[key.chunk_id].text for key in keys}


@pytest.mark.parametrize("seed", range(12))
async def test_random_edits_leave_every_row_at_its_place(store: MemoryStore, put: Put, seed: int) -> None:
    """Inserted, removed, moved, repeated and edited paragraphs: rows that stay keep their ids and have new places."""
    choose = random.Random(seed)
    texts = [f"{'word ' * choose.randint(1, 9)}{number}" for number in range(40)]
    paragraphs = [choose.choice(texts) for _ in range(30)]
    rows = await check_rows(store, await put("notes/a", *paragraphs), paragraphs)
    for _ in range(4):
        for _ in range(choose.randint(1, 3)):
            start = choose.randrange(len(paragraphs))
            count = choose.randint(0, 4)
            paragraphs[start : start + count] = [choose.choice(texts) for _ in range(choose.randint(0, 4))]
        paragraphs = paragraphs or [texts[0]]
        attributes = {"title": f"Title {choose.random()}"} if choose.random() < 0.3 else {}
        state = await put("notes/a", *paragraphs, attributes=attributes)
        assert state.tally.revisions == {state.revision}
        before, rows = rows, await check_rows(store, state, paragraphs)
        # The vectors are reused by text: as many ids stay as texts do.
        kept = set(before) & set(rows)
        assert all(before[one] == rows[one] for one in kept)
        common = sum(min(list(before.values()).count(text), paragraphs.count(text)) for text in set(paragraphs))
        assert len(kept) == common
    assert (await store.check_health()).faults == ()


async def test_rows_of_a_damaged_document_are_moved_one_by_one(
    store: MemoryStore, put: Put, break_row: Callable[[str], None]
) -> None:
    """A row of another revision stands among them: it is kept by its vector and healed."""
    paragraphs = ["one", "two", "three", "four"]
    state = await put("notes/a", *paragraphs)
    keys = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    break_row(keys[1].chunk_id)
    after = await put("notes/a", "zero", *paragraphs)
    rows = await check_rows(store, after, ["zero", *paragraphs])
    assert {key.chunk_id for key in keys} <= set(rows)
    assert (await store.check_health()).faults == ()
