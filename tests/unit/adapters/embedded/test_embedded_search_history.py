"""The embedded index when its database was set back, restored or changed in ways that stamps do not tell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from memory_core.adapters import embedded_refresh, embedded_writer
from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.answers import ChunkRow
from memory_core.store_ports import MemoryStore
from tests.unit.adapters.embedded.mirrored_store import (
    DIMENSIONS,
    MirroredStore,
    Stored,
    find_near,
    find_words,
    folder_of,
    open_index,
    record_of,
)


class TestHistory:
    """Databases that go back, change or are torn."""

    async def test_another_lineage_is_another_index(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """A database that was made anew never answers with the old one's rows."""
        store.put("a", "the cat sleeps")
        await find_words(index, "cat")
        store.restore(({}, {}))
        store.lineage = "second"
        store.put("b", "a second cat")
        assert await find_words(index, "cat") == ["b-0"]
        third = tmp_path / folder_of("third")
        third.mkdir()
        for path in (tmp_path / folder_of("first")).iterdir():
            path.rename(third / path.name)
        store.lineage = "third"
        assert await find_words(open_index(tmp_path, store), "cat") == ["b-0"]
        assert record_of(tmp_path, "third").generation == 2

    async def test_each_width_has_files_of_its_own(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """While documents are moved to another space, processes of both search without rebuilding for each other."""
        store.put("a", "the cat sleeps")
        await find_words(index, "cat")
        wider = EmbeddedSearchIndex(tmp_path, cast("MemoryStore", store), dimensions=DIMENSIONS * 2, language="english")
        assert await find_words(wider, "cat") == ["a-0"]
        assert await find_words(index, "cat") == ["a-0"]
        assert record_of(tmp_path).generation == 1

    async def test_another_language_builds_again(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """Terms of two stemmers are never mixed."""
        store.put("a", "die schönen Häuser")
        await find_words(index, "Häuser")
        german = open_index(tmp_path, store, language="german")
        assert await find_words(german, "haus") == ["a-0"]

    async def test_a_restored_database_is_noticed(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """Dump, write, restore, write, search: what was undone is undone in the index, what came back is back."""
        store.put("kept", "kept words")
        store.put("changed", "first words")
        store.put("deleted", "deleted words")
        dump = store.dump()
        store.wait(1_000)
        store.put("changed", "second words")
        store.wait(1_000)
        store.put("new", "new words")
        store.drop("deleted")
        assert sorted(await find_words(index, "words")) == ["changed-0", "kept-0", "new-0"]
        store.wait(1_000)
        store.restore(dump)
        store.put("new", "newer words")
        assert sorted(await find_words(index, "words")) == ["changed-0", "deleted-0", "kept-0", "new-0"]
        assert await find_words(index, "second") == []
        assert await find_words(index, "first") == ["changed-0"]
        assert await find_words(index, "newer") == ["new-0"]
        await find_words(index, "words")
        assert store.feeds[-1] is not None  # compared once, not at every search

    async def test_a_purged_tombstone_costs_one_comparison(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """A trash that was emptied looks like a restore once, and never again."""
        store.put("a", "the cat sleeps")
        store.put("b", "another cat")
        await find_words(index, "cat")
        store.wait(1)
        store.drop("b")
        await find_words(index, "cat")
        store.wait(1_000)
        store.trash.clear()
        assert await find_words(index, "cat") == ["a-0"]
        assert store.feeds[-1] is None
        assert await find_words(index, "cat") == ["a-0"]
        assert store.feeds[-1] is not None

    async def test_everything_is_compared_once_a_day(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """A deletion that left no trace in the feed is noticed within a day."""
        store.put("a", "the cat sleeps")
        await find_words(index, "cat")
        del store.documents["a"]
        store.put("b", "another cat", stamp=store.now)
        store.wait(25 * 3_600)
        assert await find_words(open_index(tmp_path, store), "cat") == ["b-0"]

    async def test_a_read_between_two_revisions_is_mended_by_the_next(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """Rows of two revisions, seen on a server without transactions, do not count as known."""
        store.put("a", "one cat", "two cats")
        whole = store.documents["a"]
        torn = (whole.rows[0], _with_revision(whole.rows[1], "r-next"))
        store.documents["a"] = Stored(whole.revision, whole.stamp, torn)
        await find_words(index, "cat")
        store.documents["a"] = whole
        store.rows_read = 0
        assert sorted(await find_words(index, "cat")) == ["a-0", "a-1"]
        assert store.rows_read == 2

    async def test_dead_rows_are_cleared_away(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A document that is stored again and again does not grow the files for ever, and stays found."""
        monkeypatch.setattr(embedded_writer, "_DEAD_ROWS_WORTH_COMPACTION", 5)
        second = open_index(tmp_path, store)
        store.put("z", "a steady zebra")
        for number in range(12):
            store.wait(1)
            store.put("a", f"version{number} one", f"version{number} two")
            assert sorted(await find_words(index, f"version{number}")) == ["a-0", "a-1"]
        record = record_of(tmp_path)
        assert record.generation > 1
        assert record.rows <= 3 + 2 * 5
        assert sorted(await find_words(second, "version11 zebra")) == ["a-0", "a-1", "z-0"]
        assert [hit.chunk_id for hit in await find_near(second, "a steady zebra", limit=1)] == ["z-0"]
        assert len(list((tmp_path / folder_of("first")).glob("vectors-*"))) == 1

    async def test_a_document_without_a_row_is_still_known_after_dead_rows_were_cleared_away(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has nothing to read, and is not read again for that."""
        monkeypatch.setattr(embedded_writer, "_DEAD_ROWS_WORTH_COMPACTION", 5)
        store.put("bare", "")
        for number in range(12):
            store.put("a", f"version{number} one", f"version{number} two")
            if number == 11:
                store.put("last", " ")
            await find_words(index, "version")
            store.wait(1)
        assert record_of(tmp_path).generation > 1
        store.rows_read = 0
        assert sorted(await find_words(open_index(tmp_path, store), "version11")) == ["a-0", "a-1"]
        assert store.rows_read == 0

    async def test_a_build_is_committed_in_steps_and_goes_on_after_a_crash(
        self, store: MirroredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A build that was stopped does not begin at zero."""
        monkeypatch.setattr(embedded_refresh, "_ROWS_A_COMMIT", 1)
        monkeypatch.setattr(embedded_refresh, "_DOCUMENTS_A_READ", 2)
        for number in range(10):
            store.put(f"d{number}", f"text {number}")
        reads = 0
        whole = store.read_chunk_rows

        async def stop_at_the_third(document_ids: Sequence[str]) -> Sequence[ChunkRow]:
            nonlocal reads
            reads += 1
            if reads == 3:
                raise RuntimeError("stopped")
            return await whole(document_ids)

        monkeypatch.setattr(store, "read_chunk_rows", stop_at_the_third)
        with pytest.raises(RuntimeError):
            await find_words(open_index(tmp_path, store), "text")
        assert not record_of(tmp_path).complete
        store.rows_read = 0
        assert len(await find_words(open_index(tmp_path, store), "text", limit=20)) == 10
        assert store.rows_read == 6


async def test_closing_twice_is_harmless_and_opens_again(index: EmbeddedSearchIndex, store: MirroredStore) -> None:
    """A closed index lets go of its files; a later search opens them again."""
    store.put("a", "the cat sleeps")
    await find_words(index, "cat")
    await index.close()
    await index.close()
    assert index.engine == "embedded"
    assert await find_words(index, "cat") == ["a-0"]


async def test_closing_waits_for_a_search_that_is_under_way(index: EmbeddedSearchIndex, store: MirroredStore) -> None:
    """Closing in the same loop as a running search neither blocks the loop nor breaks the search."""
    store.put("a", "the cat sleeps")
    search = asyncio.ensure_future(find_words(index, "cat"))
    await asyncio.sleep(0.001)
    async with asyncio.timeout(10):
        await index.close()
        assert await search == ["a-0"]


def _with_revision(row: ChunkRow, revision: str) -> ChunkRow:
    return ChunkRow(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        revision=revision,
        text=row.text,
        context=row.context,
        fingerprint=row.fingerprint,
        vector=row.vector,
    )
