"""The embedded index: reading your writes, and who ranks first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memory_core.adapters import embedded_search
from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.answers import LegHit, SearchFilters
from memory_core.errors import ConfigError, SearchError
from tests.unit.adapters.embedded.mirrored_store import (
    DIMENSIONS,
    SPACE,
    MirroredStore,
    find_near,
    find_words,
    open_index,
    vector_of,
)


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
