from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import filelock
import numpy as np
import pytest

from memory_core.adapters import embedded_record, embedded_refresh, embedded_search, embedded_writer
from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.errors import ConfigError, IndexUnavailableError, SearchError
from memory_core.models import ChunkRow, DocumentChange, LegHit, SearchFilters, Vector
from memory_core.ports import ActiveSpace, MemoryStore

DIMENSIONS = 8
SPACE = "hash/test/8/prefix-1"
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stored:
    """A document of the stand-in store."""

    revision: str
    stamp: datetime
    rows: tuple[ChunkRow, ...]
    tags: frozenset[str] = frozenset()


@dataclass
class MirroredStore:
    """The few methods of a store that an index calls, in memory; `invisible` holds commits that nobody sees yet."""

    documents: dict[str, Stored] = field(default_factory=dict[str, Stored])
    trash: dict[str, datetime] = field(default_factory=dict[str, datetime])
    invisible: set[str] = field(default_factory=set[str])
    now: datetime = START
    lineage: str | None = "first"
    rows_read: int = 0
    feeds: list[datetime | None] = field(default_factory=list["datetime | None"])
    _writes: int = 0

    def put(
        self,
        document_id: str,
        *texts: str,
        tags: Sequence[str] = (),
        stamp: datetime | None = None,
        vector: Vector | None = None,
        space: str = SPACE,
        context: str = "",
    ) -> None:
        """Store a document whose chunks are `texts`, at the store's time or at `stamp`."""
        self._writes += 1
        revision = f"r{self._writes}"
        rows = tuple(
            ChunkRow(
                chunk_id=f"{document_id}-{number}",
                document_id=document_id,
                revision=revision,
                text=text,
                context=context,
                fingerprint=space,
                vector=vector_of(text) if vector is None else vector,
            )
            for number, text in enumerate(texts)
        )
        self.documents[document_id] = Stored(revision, stamp or self.now, rows, frozenset(tags))
        self.trash.pop(document_id, None)

    def drop(self, document_id: str) -> None:
        """Delete a document."""
        del self.documents[document_id]
        self.trash[document_id] = self.now

    def wait(self, seconds: float) -> None:
        """Let the server's time go on."""
        self.now += timedelta(seconds=seconds)

    def dump(self) -> tuple[dict[str, Stored], dict[str, datetime]]:
        """What a restore brings back."""
        return dict(self.documents), dict(self.trash)

    def restore(self, dump: tuple[dict[str, Stored], dict[str, datetime]]) -> None:
        """Set the database back; its clock goes on."""
        self.documents, self.trash = dict(dump[0]), dict(dump[1])

    async def read_active_space(self) -> ActiveSpace | None:
        """See MemoryStore."""
        return ActiveSpace(schema_version=1, fingerprint=SPACE, lineage=self.lineage) if self.lineage else None

    async def read_changes(self, since: datetime | None) -> tuple[Sequence[DocumentChange], datetime]:
        """See MemoryStore."""
        self.feeds.append(since)
        changes = [
            DocumentChange(document_id=one, revision=stored.revision, committed_at=stored.stamp)
            for one, stored in self.documents.items()
            if one not in self.invisible and (since is None or stored.stamp >= since)
        ]
        if since is not None:
            changes += [
                DocumentChange(document_id=one, revision=None, committed_at=stamp)
                for one, stamp in self.trash.items()
                if stamp >= since
            ]
        return changes, self.now

    async def read_chunk_rows(self, document_ids: Sequence[str]) -> Sequence[ChunkRow]:
        """See MemoryStore."""
        await asyncio.sleep(0)
        rows = [row for one in document_ids if one in self.documents for row in self.documents[one].rows]
        self.rows_read += len(rows)
        return rows

    async def find_document_ids(self, filters: SearchFilters) -> frozenset[str]:
        """See MemoryStore; tags only."""
        return frozenset(one for one, stored in self.documents.items() if stored.tags >= set(filters.tags))


def vector_of(text: str) -> Vector:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)


def open_index(directory: Path, store: MirroredStore, *, language: str = "english") -> EmbeddedSearchIndex:
    return EmbeddedSearchIndex(directory, cast("MemoryStore", store), dimensions=DIMENSIONS, language=language)


async def find_words(
    index: EmbeddedSearchIndex, query: str, *, filters: SearchFilters | None = None, limit: int = 10
) -> list[str]:
    hits = await index.text_leg(query, filters=filters or SearchFilters(), limit=limit)
    return [hit.chunk_id for hit in hits]


async def find_near(
    index: EmbeddedSearchIndex, text: str, *, filters: SearchFilters | None = None, limit: int = 10
) -> list[LegHit]:
    answer = await index.vector_leg(vector_of(text), fingerprint=SPACE, filters=filters or SearchFilters(), limit=limit)
    return list(answer.hits)


def folder_of(lineage: str) -> str:
    return f"{lineage}-{DIMENSIONS}"


def record_of(directory: Path, lineage: str = "first") -> embedded_record.Record:
    record = embedded_record.read_record(directory / folder_of(lineage))
    assert record is not None
    return record


@pytest.fixture
def store() -> MirroredStore:
    return MirroredStore()


@pytest.fixture
def index(tmp_path: Path, store: MirroredStore) -> EmbeddedSearchIndex:
    return open_index(tmp_path, store)


class TestReadingYourWrites:
    """What is stored is found, what is gone is not."""

    async def test_an_empty_database_answers_with_nothing(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """Searching before the first store is no error, and leaves no files behind."""
        store.lineage = None
        assert await find_words(index, "anything") == []
        assert await find_near(index, "anything") == []

    async def test_what_was_stored_before_a_search_is_found_by_both_legs(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """A document is searchable as soon as its store returned."""
        store.put("a", "the cat sleeps")
        assert await find_words(index, "cat") == ["a-0"]
        store.put("b", "a dog barks")
        assert await find_words(index, "dogs") == ["b-0"]
        nearest = (await find_near(index, "a dog barks"))[0]
        assert (nearest.chunk_id, nearest.document_id, nearest.score) == ("b-0", "b", pytest.approx(1.0, abs=1e-5))

    async def test_hits_of_the_other_leg_get_their_cosines(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """However far down they are, and only living rows; the lowest cosine of all is told."""
        store.put("a", "the cat sleeps", "a cat on the mat")
        store.put("b", "a dog barks")
        everything = await find_near(index, "the cat sleeps")
        gone = LegHit(chunk_id="gone-0", document_id="gone", score=1.0)
        answer = await index.vector_leg(
            vector_of("the cat sleeps"), fingerprint=SPACE, filters=SearchFilters(), limit=1, also=[*everything, gone]
        )
        assert list(answer.hits) == everything[:1]
        assert sorted(answer.also, key=lambda hit: -hit.score) == everything[1:]
        assert answer.lowest == min(hit.score for hit in everything)

    async def test_update_delete_and_storing_again_are_seen(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """The index follows a document through its life."""
        store.put("a", "the cat sleeps", "on the mat")
        assert await find_words(index, "cat mat") == ["a-0", "a-1"]
        store.wait(1)
        store.put("a", "the cow grazes")
        assert await find_words(index, "cat") == []
        assert await find_words(index, "cow") == ["a-0"]
        store.wait(1)
        store.drop("a")
        assert await find_words(index, "cow") == []
        assert await find_near(index, "the cow grazes") == []
        store.wait(1)
        store.put("a", "the cat is back")
        assert await find_words(index, "cat") == ["a-0"]

    async def test_a_transaction_that_becomes_visible_late_is_found(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """A commit stamp that is older than the last one read is still taken in within the overlap."""
        store.put("slow", "a late otter", stamp=store.now)
        store.invisible.add("slow")
        store.wait(50)
        store.put("quick", "an early bird")
        assert await find_words(index, "otter bird") == ["quick-0"]
        store.wait(9)
        store.invisible.clear()
        assert await find_words(index, "otter") == ["slow-0"]

    async def test_what_did_not_change_is_not_read_again(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """A second search reads no rows, and after a while not even the feed's old entries."""
        for number in range(300):
            store.put(f"d{number}", f"text number {number}")
        await find_words(index, "text")
        read = store.rows_read
        store.wait(100)
        await find_words(index, "text")
        await find_words(index, "text")
        assert store.rows_read == read
        assert store.feeds[-1] is not None

    async def test_the_context_is_searched_too(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """A word of the context finds the chunk that lacks it."""
        store.put("a", "press the green button", context="Dishwasher manual")
        assert await find_words(index, "dishwashers") == ["a-0"]

    async def test_what_shows_nothing_to_a_reader_is_never_found(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """A blank row is in neither leg, whatever its context says, and is not read again at each search."""
        store.put("a", "press the button", " \n", context="Dishwasher manual")
        store.put("b", "", context="Dishwasher manual")
        assert await find_words(index, "dishwasher") == ["a-0"]
        assert [hit.chunk_id for hit in await find_near(index, " \n")] == ["a-0"]
        read = store.rows_read
        assert await find_words(index, "dishwasher") == ["a-0"]
        assert store.rows_read == read
        store.wait(1)
        store.put("b", "now with words", context="Dishwasher manual")
        store.put("a", "", context="Dishwasher manual")
        assert await find_words(index, "dishwasher") == ["b-0"]

    async def test_user_text_is_never_a_query_language(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """Operators, quotes and brackets are only characters."""
        store.put("a", "the cat sleeps")
        assert await find_words(index, 'body:(cat AND "nothing') == ["a-0"]
        assert await find_words(index, "*:* -[") == []


class TestRanking:
    """Both legs rank exactly what they may."""

    async def test_equal_scores_are_ordered_by_chunk_id(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """Equal texts come in the same order every time, also at the cut."""
        for name in ("c", "a", "d", "b"):
            store.put(name, "the same words")
        assert await find_words(index, "same words", limit=3) == ["a-0", "b-0", "c-0"]
        assert [hit.chunk_id for hit in await find_near(index, "the same words", limit=3)] == ["a-0", "b-0", "c-0"]

    async def test_cosines_are_exact(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """The vector leg agrees with a scan in plain numpy, whatever the vectors' lengths."""
        texts = {f"d{number}": f"text {number}" for number in range(40)}
        for name, text in texts.items():
            store.put(name, text, vector=vector_of(text) * 3)
        query = vector_of("question")
        cosines = {
            f"{name}-0": float(vector_of(text) @ query / np.linalg.norm(vector_of(text)) / np.linalg.norm(query))
            for name, text in texts.items()
        }
        best = sorted(cosines, key=lambda name: -cosines[name])[:10]
        hits = await find_near(index, "question", limit=10)
        assert [hit.chunk_id for hit in hits] == best
        assert [hit.score for hit in hits] == pytest.approx([cosines[name] for name in best], abs=1e-5)

    async def test_two_embedding_spaces_are_never_ranked_together(
        self, index: EmbeddedSearchIndex, store: MirroredStore
    ) -> None:
        """Rows of another space, of the same width or not, are found by words alone."""
        store.put("a", "old cat", space="other/8")
        store.put("b", "wide cat", space="other/16", vector=np.ones(16, dtype=np.float32))
        store.put("c", "new cat")
        assert [hit.chunk_id for hit in await find_near(index, "old cat")] == ["c-0"]
        assert sorted(await find_words(index, "cat")) == ["a-0", "b-0", "c-0"]

    async def test_a_query_vector_of_another_width_is_refused(self, index: EmbeddedSearchIndex) -> None:
        """The error names both widths and the setting."""
        with pytest.raises(SearchError, match="3 dimensions and the index 8: set EMBEDDING_DIMENSIONS"):
            await index.vector_leg(np.ones(3, dtype=np.float32), fingerprint=SPACE, filters=SearchFilters(), limit=5)

    async def test_a_zero_vector_scores_zero(self, index: EmbeddedSearchIndex, store: MirroredStore) -> None:
        """Nothing divides by zero."""
        store.put("a", "nothing", vector=np.zeros(DIMENSIONS, dtype=np.float32))
        assert [hit.score for hit in await find_near(index, "x")] == [0.0]

    @pytest.mark.parametrize("term_set_limit", [2_000, 1])
    async def test_filters_are_exact(
        self, index: EmbeddedSearchIndex, store: MirroredStore, monkeypatch: pytest.MonkeyPatch, term_set_limit: int
    ) -> None:
        """A rare tag finds all its documents and only those, however many others rank higher."""
        monkeypatch.setattr(embedded_search, "_DOCUMENTS_IN_A_TERM_SET", term_set_limit)
        monkeypatch.setattr(embedded_search, "_SPARE_TEXT_HITS", 1)
        for number in range(200):
            tags = ("rare",) if number % 50 == 0 else ()
            store.put(f"d{number:03}", "cat " * (1 if tags else 5) + f"filler words {number}", tags=tags)
        rare = SearchFilters(tags=("rare",))
        expected = ["d000-0", "d050-0", "d100-0", "d150-0"]
        assert sorted(await find_words(index, "cat", filters=rare)) == expected
        assert sorted(hit.chunk_id for hit in await find_near(index, "cat", filters=rare)) == expected
        assert len(await find_words(index, "cat", filters=rare, limit=2)) == 2
        assert await find_words(index, "cat", filters=SearchFilters(tags=("absent",))) == []
        assert await find_near(index, "cat", filters=SearchFilters(tags=("absent",))) == []

    def test_an_unknown_language_is_a_configuration_error(self, tmp_path: Path, store: MirroredStore) -> None:
        """The message names the setting and the languages."""
        with pytest.raises(ConfigError, match=r"SEARCH_LANGUAGE.*english"):
            open_index(tmp_path, store, language="klingon")


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
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, str(tmp_path))
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


def _crash(*_arguments: object) -> None:
    raise RuntimeError("crashed before the record")


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


def _kill_this_process(*_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _be_killed(directory: str) -> None:
    """Run in a process of its own: build an index, then die by SIGKILL where the next record would be written."""
    store = MirroredStore()
    store.put("k1", "killed k1")
    index = open_index(Path(directory), store)
    asyncio.run(find_words(index, "killed"))
    embedded_record.write_record = _kill_this_process
    store.put("k2", "killed k2")
    asyncio.run(find_words(index, "killed"))


if __name__ == "__main__":
    _be_killed(sys.argv[1])
