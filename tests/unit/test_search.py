from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from memory_core.answers import Coverage, HitRow, LegAnswer, LegHit, SearchFilters, SearchMode, SourceListing
from memory_core.embedding_ports import EmbeddingKind, EmbeddingResult, EmbeddingUsage
from memory_core.errors import (
    AgentMemoryError,
    EmbeddingUnavailableError,
    IndexUnavailableError,
    SearchError,
    StorageUnavailableError,
    ValidationError,
)
from memory_core.models import ContentType, Fingerprint, Vector
from memory_core.ports import Core
from memory_core.search import search_knowledge
from memory_core.settings import Settings, load_settings
from memory_core.store_ports import ActiveSpace, ListQuery

OURS = Fingerprint(provider="hash", model="test", dimensions=2, context_policy="prefix-1")
RARE = SearchFilters(tags=("rare",))


@dataclass
class StandInStore:
    """Rows by chunk id; `gone` are those that the database no longer has."""

    texts: dict[str, str]
    space: str | None = OURS.key
    pending: str | None = None
    readable: dict[str, str] = field(default_factory=dict[str, str])
    gone: set[str] = field(default_factory=set[str])
    filtered: frozenset[str] = frozenset({"doc"})
    hits_read: list[list[str]] = field(default_factory=list[list[str]])

    async def read_active_space(self) -> ActiveSpace | None:
        """See MemoryStore."""
        if self.space is None:
            return None
        return ActiveSpace(schema_version=1, fingerprint=self.space, lineage="l", pending=self.pending)

    async def count_coverage(self, fingerprint: str) -> Coverage:
        """See MemoryStore."""
        return Coverage(fingerprint=fingerprint, documents=4, chunks=9, covered_documents=3, covered_chunks=7)

    async def read_hits(self, chunk_ids: Sequence[str]) -> Mapping[str, HitRow]:
        """See MemoryStore."""
        self.hits_read.append(list(chunk_ids))
        return {
            one: replace(row_of(one, self.texts[one]), readable=self.readable.get(one))
            for one in chunk_ids
            if one in self.texts and one not in self.gone
        }

    async def find_document_ids(self, filters: SearchFilters) -> frozenset[str]:
        """See MemoryStore."""
        assert not filters.is_empty
        return self.filtered

    async def list_sources(self, query: ListQuery) -> SourceListing:
        """See MemoryStore."""
        return SourceListing(sources=(), total=len(self.texts), offset=query.offset, limit=query.limit)


@dataclass
class StandInIndex:
    """Legs that answer what a test says, or fail."""

    vector: Sequence[tuple[str, float]] = ()
    text: Sequence[tuple[str, float]] = ()
    vector_error: AgentMemoryError | None = None
    text_error: AgentMemoryError | None = None
    pools: list[int] = field(default_factory=list[int])
    fingerprints: list[str] = field(default_factory=list[str])
    also: list[list[str]] = field(default_factory=list[list[str]])
    filters: list[SearchFilters] = field(default_factory=list[SearchFilters])
    engine: str = "embedded"

    async def vector_leg(
        self, vector: Vector, *, fingerprint: str, filters: SearchFilters, limit: int, also: Sequence[LegHit] = ()
    ) -> LegAnswer:
        """See SearchIndex."""
        assert vector.shape == (2,)
        self.fingerprints.append(fingerprint)
        self.also.append([hit.chunk_id for hit in also])
        return LegAnswer(hits=await self._answer(self.vector, self.vector_error, filters, limit))

    async def text_leg(self, query: str, *, filters: SearchFilters, limit: int) -> Sequence[LegHit]:
        """See SearchIndex."""
        assert query == query.strip()
        return await self._answer(self.text, self.text_error, filters, limit)

    async def _answer(
        self, hits: Sequence[tuple[str, float]], error: AgentMemoryError | None, filters: SearchFilters, limit: int
    ) -> Sequence[LegHit]:
        self.pools.append(limit)
        self.filters.append(filters)
        if error is not None:
            raise error
        return [LegHit(chunk_id=name, document_id="doc", score=score) for name, score in hits[:limit]]


@dataclass
class StandInEmbedder:
    """One vector for every query."""

    error: AgentMemoryError | None = None
    queries: list[str] = field(default_factory=list[str])

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """See Embedder."""
        assert kind == "query"
        self.queries += groups[0]
        if self.error is not None:
            raise self.error
        return EmbeddingResult(
            groups=[np.ones((1, 2), dtype=np.float32)], windows=[[1]], usage=EmbeddingUsage(tokens=3, requests=1)
        )


@dataclass
class Bench:
    """The parts of a core that a search uses."""

    settings: Settings
    store: StandInStore
    index: StandInIndex
    embedder: StandInEmbedder
    fingerprint: Fingerprint = OURS

    @property
    def core(self) -> Core:
        """As what a search takes it."""
        return cast("Core", self)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    names = [f"c{number:03}" for number in range(300)]
    return Bench(
        settings=load_settings(
            MEMORY_HOME=tmp_path, EMBEDDING_PROVIDER="hash", SEARCH_DEFAULT_LIMIT=4, SEARCH_MAX_LIMIT=6
        ),
        store=StandInStore({name: f"{name} says that the cat sleeps" for name in names}),
        index=StandInIndex(
            vector=[(name, 0.9 - place / 1_000) for place, name in enumerate(names[:200])],
            text=[(name, 9.0 - place / 100) for place, name in enumerate(reversed(names))],
        ),
        embedder=StandInEmbedder(),
    )


def row_of(chunk_id: str, text: str) -> HitRow:
    return HitRow(
        chunk_id=chunk_id,
        document_id="doc",
        source_id="notes/cat",
        title="Cats",
        uri=None,
        content_type=ContentType.TEXT,
        tags=(),
        chunk_index=0,
        heading_path=(),
        char_start=0,
        char_end=len(text),
        token_count=9,
        text=text,
    )


class TestQuestions:
    """What may be asked."""

    @pytest.mark.parametrize("query", ["", "  \n ", "x" * 4_001])
    async def test_a_blank_or_endless_query_is_refused(self, bench: Bench, query: str) -> None:
        """The message says how long it may be and never repeats it."""
        with pytest.raises(ValidationError, match=r"query: .* give 1 to 4,000") as caught:
            await search_knowledge(query, core=bench.core)
        assert "xx" not in caught.value.message

    async def test_a_lone_surrogate_is_refused_with_its_place(self, bench: Bench) -> None:
        """Text that cannot be encoded reaches neither the model nor the index."""
        with pytest.raises(ValidationError, match="at character 2"):
            await search_knowledge("ab\ud800", core=bench.core)

    @pytest.mark.parametrize("bound", [float("nan"), float("inf"), -0.1])
    async def test_a_senseless_minimum_score_is_refused(self, bench: Bench, bound: float) -> None:
        """Only numbers of at least 0 can be compared with a score."""
        with pytest.raises(ValidationError, match="minScore"):
            await search_knowledge("cat", core=bench.core, min_score=bound)

    async def test_the_query_is_trimmed(self, bench: Bench) -> None:
        """Blanks around the question are no part of it."""
        answer = await search_knowledge("  cat \n", core=bench.core)
        assert answer.query == "cat"
        assert bench.embedder.queries == ["cat"]

    @pytest.mark.parametrize(("limit", "count"), [(None, 4), (2, 2), (0, 1), (-5, 1), (100, 6)])
    async def test_the_limit_is_moved_into_its_bounds(self, bench: Bench, limit: int | None, count: int) -> None:
        """Left out it is the default; else at least one hit and at most SEARCH_MAX_LIMIT."""
        answer = await search_knowledge("cat", core=bench.core, limit=limit)
        assert len(answer.hits) == count

    async def test_the_default_mode_is_a_setting(self, bench: Bench) -> None:
        """Hybrid, or vector alone where hybrid is switched off."""
        assert (await search_knowledge("cat", core=bench.core)).mode is SearchMode.HYBRID
        bench.settings = load_settings(EMBEDDING_PROVIDER="hash", SEARCH_HYBRID_ENABLED="false")
        assert (await search_knowledge("cat", core=bench.core)).effective_mode is SearchMode.VECTOR


class TestHits:
    """What comes back."""

    async def test_text_mode_embeds_nothing(self, bench: Bench) -> None:
        """Ranks and BM25 scores of the text leg; the other leg's fields are empty."""
        answer = await search_knowledge("cat", core=bench.core, mode=SearchMode.TEXT)
        assert bench.embedder.queries == []
        assert [(hit.row.chunk_id, hit.score, hit.text_rank, hit.vector_rank) for hit in answer.hits[:2]] == [
            ("c299", 9.0, 1, None),
            ("c298", 8.99, 2, None),
        ]

    async def test_vector_mode_scores_are_cosines(self, bench: Bench) -> None:
        """The pinned space is the database's, and the text leg is not asked."""
        answer = await search_knowledge("cat", core=bench.core, mode=SearchMode.VECTOR)
        assert [(hit.score, hit.vector_score, hit.text_score) for hit in answer.hits[:1]] == [(0.9, 0.9, None)]
        assert bench.index.fingerprints == [OURS.key]
        assert bench.index.pools == [20]

    async def test_hybrid_fuses_both_legs(self, bench: Bench) -> None:
        """Over pools of at least 100, with the same filters; the vector leg is asked for the text leg's hits too."""
        bench.index.vector = [("c001", 0.9), ("c002", 0.5)]
        bench.index.text = [("c002", 8.0), ("c003", 4.0)]
        answer = await search_knowledge("cat", core=bench.core, filters=RARE)
        assert [(hit.row.chunk_id, hit.score) for hit in answer.hits] == [("c001", 0.5), ("c002", 0.5), ("c003", 0.25)]
        assert bench.index.also == [["c002", "c003"]]
        assert (answer.engine, answer.effective_mode, answer.explanation) == ("embedded", SearchMode.HYBRID, None)
        assert bench.index.pools == [100, 100]
        assert bench.index.filters == [RARE, RARE]

    async def test_an_answer_during_a_move_says_what_the_space_covers(self, bench: Bench) -> None:
        """Counted only then, and only where vectors are asked for."""
        assert (await search_knowledge("cat", core=bench.core)).coverage is None
        bench.store.pending = "other/space/2/prefix-1"
        moving = await search_knowledge("cat", core=bench.core)
        assert moving.coverage is not None
        assert moving.coverage.covered_chunks == 7
        assert "covers 3 of 4 documents" in (moving.explanation or "")
        assert (await search_knowledge("cat", core=bench.core, mode=SearchMode.TEXT)).coverage is None

    async def test_highlights_show_the_match_and_not_the_head(self, bench: Bench) -> None:
        """The answer at the end of a long chunk is in the snippet."""
        bench.store.texts["c299"] = "nothing here. " * 100 + "The secret word is swordfish."
        answer = await search_knowledge("swordfish", core=bench.core, mode=SearchMode.TEXT, limit=1)
        assert "swordfish" in answer.hits[0].highlights[0]

    async def test_highlights_of_a_page_are_of_what_its_reader_sees(self, bench: Bench) -> None:
        """Markup and entities are in the exact text of the hit and not in its snippet."""
        bench.store.texts["c299"] = "<p class='swordfish'>fish &amp; <b>sword</b>fish</p>"
        bench.store.readable["c299"] = "fish & swordfish"
        answer = await search_knowledge("swordfish", core=bench.core, mode=SearchMode.TEXT, limit=1)
        assert answer.hits[0].highlights == ("fish & swordfish",)
        assert answer.hits[0].row.text.startswith("<p class=")

    async def test_rows_that_vanished_are_replaced_by_the_next(self, bench: Bench) -> None:
        """A page stays full when hits were deleted between ranking and reading; the query is embedded once."""
        bench.store.gone = {"c299", "c297"}
        answer = await search_knowledge("cat", core=bench.core, mode=SearchMode.TEXT)
        assert [hit.row.chunk_id for hit in answer.hits] == ["c298", "c296", "c295", "c294"]

    async def test_more_is_asked_for_when_too_few_are_left(self, bench: Bench) -> None:
        """Even when a whole pool vanished the answer is found behind it."""
        bench.store.gone = {name for name in bench.store.texts if name > "c250"}
        answer = await search_knowledge("cat", core=bench.core, mode=SearchMode.TEXT)
        assert [hit.row.chunk_id for hit in answer.hits] == ["c250", "c249", "c248", "c247"]
        assert bench.index.pools == [20, 20, 80]

    async def test_min_score_compares_with_the_score_of_the_mode(self, bench: Bench) -> None:
        """Cosine in vector mode, BM25 in text mode, the fused score in hybrid mode."""
        by_vector = await search_knowledge("cat", core=bench.core, mode=SearchMode.VECTOR, min_score=0.899)
        assert [hit.score for hit in by_vector.hits] == [0.9, 0.899]
        by_text = await search_knowledge("cat", core=bench.core, mode=SearchMode.TEXT, min_score=8.985)
        assert [hit.score for hit in by_text.hits] == [9.0, 8.99]
        fused = await search_knowledge("cat", core=bench.core, min_score=0.4)
        assert fused.hits
        assert all(hit.score >= 0.4 for hit in fused.hits)


class TestDegradedAnswers:
    """When a leg is down."""

    @pytest.mark.parametrize("where", ["embedder", "index"])
    async def test_hybrid_goes_on_without_the_vector_leg(self, bench: Bench, where: str) -> None:
        """The text leg answers, and the answer says so; its scores stay in 0..1."""
        if where == "embedder":
            bench.embedder.error = EmbeddingUnavailableError("The model is away.")
        else:
            bench.index.vector_error = IndexUnavailableError("The model is away.")
        answer = await search_knowledge("cat", core=bench.core)
        assert (answer.mode, answer.effective_mode) == (SearchMode.HYBRID, SearchMode.TEXT)
        assert answer.explanation is not None
        assert "text leg alone" in answer.explanation
        assert "The model is away." in answer.explanation
        assert answer.hits[0].score == 1.0

    async def test_hybrid_goes_on_without_the_text_leg(self, bench: Bench) -> None:
        """The vector leg answers, and the answer says so; minScore keeps its meaning."""
        bench.index.text_error = SearchError("The words are away.")
        answer = await search_knowledge("cat", core=bench.core, min_score=0.95)
        assert answer.effective_mode is SearchMode.VECTOR
        assert answer.explanation is not None
        assert "vector leg alone" in answer.explanation
        assert answer.hits[0].score == 1.0
        assert answer.hits[0].vector_score == 0.9

    async def test_a_single_leg_that_fails_is_an_error(self, bench: Bench) -> None:
        """Nothing else was asked for, so nothing else answers."""
        bench.index.text_error = SearchError("The words are away.")
        with pytest.raises(SearchError, match="words are away"):
            await search_knowledge("cat", core=bench.core, mode=SearchMode.TEXT)
        bench.embedder.error = EmbeddingUnavailableError("The model is away.")
        with pytest.raises(EmbeddingUnavailableError):
            await search_knowledge("cat", core=bench.core, mode=SearchMode.VECTOR)

    async def test_two_legs_that_fail_are_an_error(self, bench: Bench) -> None:
        """The error says whether trying again can help."""
        bench.index.text_error = StorageUnavailableError("MongoDB is away.")
        bench.index.vector_error = StorageUnavailableError("MongoDB is away.")
        with pytest.raises(StorageUnavailableError):
            await search_knowledge("cat", core=bench.core)

    async def test_vectors_of_another_space_are_not_ranked(self, bench: Bench) -> None:
        """A process with other settings answers by words and names both spaces; vector mode is refused."""
        bench.store.space = "voyage/other/1024/native-1"
        answer = await search_knowledge("cat", core=bench.core)
        assert answer.effective_mode is SearchMode.TEXT
        assert answer.explanation is not None
        assert "voyage/other/1024/native-1" in answer.explanation
        assert OURS.key in answer.explanation
        assert bench.embedder.queries == []
        with pytest.raises(SearchError, match="search with mode text"):
            await search_knowledge("cat", core=bench.core, mode=SearchMode.VECTOR)

    async def test_a_defect_is_not_hidden(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only failures that somebody raised on purpose degrade an answer."""

        async def break_down(*_: object, **__: object) -> Sequence[LegHit]:
            raise ZeroDivisionError

        monkeypatch.setattr(bench.index, "text_leg", break_down)
        with pytest.raises(ZeroDivisionError):
            await search_knowledge("cat", core=bench.core)


class TestEmptyAnswers:
    """Why there are none."""

    @pytest.mark.parametrize("how", ["never", "all deleted"])
    async def test_nothing_is_stored(self, bench: Bench, how: str) -> None:
        """An empty memory says that it is empty."""
        if how == "never":
            bench.store.space = None
        bench.store.texts = {}
        bench.index.vector = bench.index.text = ()
        answer = await search_knowledge("cat", core=bench.core)
        assert answer.hits == ()
        assert answer.explanation is not None
        assert answer.explanation.startswith("Nothing is stored yet")

    async def test_the_filters_exclude_everything(self, bench: Bench) -> None:
        """It is the filters, not the question."""
        bench.index.vector = bench.index.text = ()
        bench.store.filtered = frozenset()
        answer = await search_knowledge("cat", core=bench.core, filters=RARE)
        assert answer.explanation is not None
        assert "satisfies all the filters" in answer.explanation

    @pytest.mark.parametrize("filters", [SearchFilters(), RARE])
    @pytest.mark.parametrize("mode", list(SearchMode))
    async def test_nothing_matched(self, bench: Bench, mode: SearchMode, filters: SearchFilters) -> None:
        """The question found nothing, within the filters where there are any."""
        bench.index.vector = bench.index.text = ()
        answer = await search_knowledge("cat", core=bench.core, mode=mode, filters=filters)
        assert answer.explanation is not None
        assert answer.explanation.startswith("Nothing matched")
        assert ("satisfy the filters" in answer.explanation) is not filters.is_empty

    async def test_no_hit_reaches_the_minimum(self, bench: Bench) -> None:
        """The best score is named."""
        answer = await search_knowledge("cat", core=bench.core, mode=SearchMode.VECTOR, min_score=0.95)
        assert answer.hits == ()
        assert answer.explanation == "No hit reaches minScore; the best one has 0.9000."

    async def test_an_empty_degraded_answer_says_both(self, bench: Bench) -> None:
        """The leg that was down and that the other found nothing."""
        bench.embedder.error = EmbeddingUnavailableError("The model is away.")
        bench.index.text = ()
        answer = await search_knowledge("cat", core=bench.core)
        assert answer.explanation is not None
        assert "The model is away." in answer.explanation
        assert "Nothing matched" in answer.explanation
