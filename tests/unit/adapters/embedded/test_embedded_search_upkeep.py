"""The embedded index beside other processes, and after crashes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import filelock
import pytest

from memory_core.adapters import embedded_record, embedded_refresh
from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.errors import IndexUnavailableError, SearchError
from tests.unit.adapters.embedded import killed_index
from tests.unit.adapters.embedded.mirrored_store import (
    MirroredStore,
    find_near,
    find_words,
    folder_of,
    open_index,
    record_of,
)

ROOT = Path(__file__).parents[4]


class TestSeveralProcesses:
    """One folder, several readers, one writer at a time."""

    async def test_a_second_index_uses_the_files_of_the_first(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """Opening reads no row of what is already in the files."""
        store.put("a", "the cat sleeps")
        await find_words(index, "cat")
        store.rows_read = 0
        second = open_index(tmp_path, store)
        assert await find_words(second, "cat") == ["a-0"]
        assert store.rows_read == 0

    async def test_two_indexes_see_each_others_updates(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """Whoever searches first takes the change in for both."""
        second = open_index(tmp_path, store)
        words = ["ant", "bee", "cat", "dog", "eel", "fox"]
        for number, word in enumerate(words):
            store.wait(1)
            store.put("a", f"one {word}")
            first_reader, other = (index, second) if number % 2 else (second, index)
            assert await find_words(first_reader, word) == ["a-0"]
            read = store.rows_read
            assert await find_words(other, word) == ["a-0"]
            assert await find_words(other, words[number - 1]) == []
            assert store.rows_read == read

    async def test_one_that_cannot_write_answers_from_the_last_commit_and_says_so(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While another process holds the folder the answer is a little old, never an error and never a long wait."""
        monkeypatch.setattr(embedded_refresh, "WAIT_FOR_OTHERS_SECONDS", 0.05)
        store.put("a", "the cat sleeps")
        await find_words(index, "cat")
        store.put("b", "another cat")
        with filelock.FileLock(tmp_path / folder_of("first") / "lock"):
            assert await find_words(index, "cat") == ["a-0"]
            assert index.documents_behind == 1
        assert sorted(await find_words(index, "cat")) == ["a-0", "b-0"]
        assert index.documents_behind == 0

    async def test_an_index_that_is_being_built_elsewhere_is_an_error_and_no_empty_answer(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing looks like 'nothing known' while the first build runs."""
        monkeypatch.setattr(embedded_refresh, "WAIT_FOR_OTHERS_SECONDS", 0.05)
        store.put("a", "the cat sleeps")
        (tmp_path / folder_of("first")).mkdir()
        with (
            filelock.FileLock(tmp_path / folder_of("first") / "lock"),
            pytest.raises(IndexUnavailableError, match="being built by another process"),
        ):
            await find_words(index, "cat")
        assert await find_words(index, "cat") == ["a-0"]

    async def test_searches_side_by_side_with_updates_stay_correct(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """Each search sees at least what was stored before it began, in every thread of the process."""
        second = open_index(tmp_path, store)

        async def write_and_read(name: str, reader: EmbeddedSearchIndex) -> None:
            for word in ("ant", "bee", "cat", "dog"):
                store.put(name, f"{name}{word} shared")
                words, near = await asyncio.gather(
                    find_words(reader, f"{name}{word}"), find_near(reader, f"{name}{word} shared", limit=1)
                )
                assert words == [f"{name}-0"]
                assert [hit.chunk_id for hit in near] == [f"{name}-0"]

        await asyncio.gather(*(write_and_read(name, (index, second)[place % 2]) for place, name in enumerate("pqrstu")))
        assert len(await find_words(index, "shared")) == 6

    def test_one_index_serves_several_event_loops(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """A flow run's loop and a door's loop share the process's index."""
        store.put("a", "the cat sleeps")
        assert asyncio.run(find_words(index, "cat")) == ["a-0"]
        store.put("b", "another cat")
        assert sorted(asyncio.run(find_words(index, "cat"))) == ["a-0", "b-0"]

    async def test_a_cancelled_search_leaves_no_lock_behind(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """A caller that leaves during an update does not block the next one."""
        store.put("a", *[f"text {number}" for number in range(200)])
        for turns in (1, 3, 6, 10):
            search = asyncio.ensure_future(find_words(index, "text"))
            for _ in range(turns):
                await asyncio.sleep(0.001)
            search.cancel()
            await asyncio.gather(search, return_exceptions=True)
        assert len(await find_words(index, "text", limit=300)) == 200


class TestCrashes:
    """Files that a crash or a disk left behind."""

    async def test_a_crash_between_text_commit_and_record_repeats_harmlessly(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows that a crash left in the text index neither stay nor come twice, whatever happened meanwhile."""
        store.put("a", "the cat sleeps")
        store.put("b", "a dog barks")
        await find_words(index, "cat")
        store.wait(1)
        store.put("a", "the cow grazes")
        store.put("c", "a crow calls")
        with monkeypatch.context() as patched:
            patched.setattr(embedded_record, "write_record", _crash)
            with pytest.raises(RuntimeError):
                await find_words(index, "cow")
        store.wait(1)
        store.drop("c")
        store.put("d", "a duck dives")
        after = open_index(tmp_path, store)
        assert sorted(await find_words(after, "cow crow duck cat dog", limit=20)) == ["a-0", "b-0", "d-0"]
        assert await find_words(after, "crow") == []
        assert await find_words(after, "duck") == ["d-0"]
        assert sorted(hit.chunk_id for hit in await find_near(after, "x")) == ["a-0", "b-0", "d-0"]
        assert record_of(tmp_path).generation == 1

    @pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
    async def test_a_killed_process_leaves_files_that_the_next_one_mends(
        self, store: MirroredStore, tmp_path: Path
    ) -> None:
        """SIGKILL after the text index's commit and before the record: nothing lost, nothing twice, no lock left."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", killed_index.__name__, str(tmp_path), cwd=ROOT
        )
        assert await process.wait() == -signal.SIGKILL
        for name in ("k1", "k2"):
            store.put(name, f"killed {name}")
        index = open_index(tmp_path, store)
        assert sorted(await find_words(index, "killed")) == ["k1-0", "k2-0"]
        assert len(await find_near(index, "killed k1")) == 2

    @pytest.mark.parametrize("damage", ["record", "journal", "vectors", "text", "no record"])
    async def test_damaged_files_are_built_again(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path, damage: str
    ) -> None:
        """Whatever is broken, the answer comes from MongoDB's truth."""
        store.put("a", "the cat sleeps")
        await find_words(index, "cat")
        folder = tmp_path / folder_of("first")
        match damage:
            case "record":
                (folder / "record.json").write_bytes(b'{"rows": ')
            case "no record":
                (folder / "record.json").unlink()
            case "journal":
                (folder / "rows-1.jsonl").write_bytes(b"{}\n")
            case "vectors":
                (folder / "vectors-1.f32").write_bytes(b"")
            case _:
                (folder / "text-1" / "meta.json").write_bytes(b"no json")
        after = open_index(tmp_path, store)
        assert await find_words(after, "cat") == ["a-0"]
        assert [hit.chunk_id for hit in await find_near(after, "the cat sleeps")] == ["a-0"]
        assert {path.name for path in folder.glob("*-*")} == {"rows-2.jsonl", "vectors-2.f32", "text-2"}

    async def test_a_failing_disk_is_one_clear_sentence(
        self, index: EmbeddedSearchIndex, store: MirroredStore, tmp_path: Path
    ) -> None:
        """A folder that cannot be made names what to check."""
        (tmp_path / folder_of("first")).write_text("in the way", encoding="utf-8")
        store.put("a", "the cat sleeps")
        with pytest.raises(SearchError, match="check the free space and the permissions"):
            await find_words(index, "cat")


def _crash(*_arguments: object) -> None:
    raise RuntimeError("crashed before the record")
