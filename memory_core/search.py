"""Search. In: a question and who may answer. Out: hits with their exact places, and why there are none. Writes nothing.

The legs run side by side on the index; only rows that are still current in the database are shown. A leg that fails in
a hybrid search leaves the answer to the other one, which `effective_mode` and `explanation` say.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from memory_core.answers import Coverage, Hit, HitRow, LegAnswer, LegHit, SearchAnswer, SearchFilters, SearchMode
from memory_core.chunk_values import readable_text
from memory_core.errors import AgentMemoryError, SearchError, ValidationError
from memory_core.fuse import FusedHit, fuse_legs, rank_alone
from memory_core.highlight import cut_fragments
from memory_core.models import Vector
from memory_core.ports import Core
from memory_core.spaces import describe_coverage
from memory_core.store_ports import ActiveSpace, ListQuery

_log = structlog.get_logger(__name__)

MAX_QUERY_CHARS: Final = 4_000
NO_FILTERS: Final = SearchFilters()
_POOL_PER_HIT = 4
_SMALLEST_POOL = 20
_SMALLEST_FUSED_POOL = 100  # the pool that relative scores were measured with
_FIRST_POOL_LIMIT = 500
_DEEPEST_POOL = 8_000
_DEEPER = 4  # times as many candidates, where too few of them are left

_NOTHING_STORED = "Nothing is stored yet: store content first, for example with `memory ingest PATH`."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    query: str
    mode: SearchMode
    filters: SearchFilters
    limit: int
    min_score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leg:
    """What one leg said: its answer, or its error, or neither where it was not asked."""

    answer: LegAnswer = field(default_factory=LegAnswer)
    error: AgentMemoryError | None = None
    asked: bool = True

    @property
    def hits(self) -> Sequence[LegHit]:
        """What it found."""
        return self.answer.hits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranking:
    """Candidates, best first, that reach the minimum score; `best_cut` is the best score of those that do not."""

    candidates: Sequence[FusedHit]
    best_cut: float | None
    effective_mode: SearchMode
    explanation: str | None
    exhausted: bool


@dataclass(slots=True)
class _Asker:
    """One question on its way. The query is embedded once, however often the legs are asked."""

    question: _Question
    core: Core
    space: ActiveSpace
    vector: Vector | None = None

    async def rank(self, pool: int) -> _Ranking:
        """Ask the legs for `pool` candidates each, and fuse."""
        mode = self.question.mode
        text, embedding = await asyncio.gather(
            _try_leg("text", self._ask_text(pool)) if mode is not SearchMode.VECTOR else _not_asked(),
            _try_leg("vector", self._embed_query()) if mode is not SearchMode.TEXT else _not_asked(),
        )
        asks_vectors = embedding.asked and embedding.error is None
        # The text leg's hits get their cosines from the same scan.
        vector = await _try_leg("vector", self._ask_vectors(pool, text.hits)) if asks_vectors else embedding
        effective, explanation = _read_failures(mode, vector, text)
        if mode is SearchMode.HYBRID:
            ranked = fuse_legs(vector.answer, text.hits, vector_weight=self._weight(effective))
        else:
            ranked = rank_alone(vector.hits, text.hits)
        bound = self.question.min_score
        kept = ranked if bound is None else tuple(hit for hit in ranked if hit.score >= bound)
        return _Ranking(
            candidates=kept,
            best_cut=ranked[len(kept)].score if len(kept) < len(ranked) else None,
            effective_mode=effective,
            explanation=explanation,
            exhausted=len(kept) < len(ranked) or max(len(vector.hits), len(text.hits)) < pool,
        )

    def _weight(self, effective: SearchMode) -> float:
        if effective is SearchMode.HYBRID:
            return self.core.settings.search_vector_weight
        return 1.0 if effective is SearchMode.VECTOR else 0.0

    async def _embed_query(self) -> LegAnswer:
        """Once, however often the legs are asked; no hits yet."""
        ours, stored = self.core.fingerprint.key, self.space.fingerprint
        if ours != stored:
            raise SearchError(
                f"The stored vectors are of the embedding space {stored} and this process uses {ours}. Set the "
                "embedding settings as they were, search with mode text, or move everything with `memory reembed`."
            )
        if self.vector is None:
            result = await self.core.embedder.embed([[self.question.query]], kind="query")
            self.vector = result.groups[0][0]
        return LegAnswer()

    async def _ask_vectors(self, pool: int, text_hits: Sequence[LegHit]) -> LegAnswer:
        if self.vector is None:
            return LegAnswer()
        return await self.core.index.vector_leg(
            self.vector,
            fingerprint=self.space.fingerprint,
            filters=self.question.filters,
            limit=pool,
            also=text_hits,
        )

    async def _ask_text(self, pool: int) -> LegAnswer:
        hits = await self.core.index.text_leg(self.question.query, filters=self.question.filters, limit=pool)
        return LegAnswer(hits=hits)


async def search_knowledge(
    query: str,
    *,
    core: Core,
    mode: SearchMode | None = None,
    filters: SearchFilters = NO_FILTERS,
    limit: int | None = None,
    min_score: float | None = None,
) -> SearchAnswer:
    """Find the stored chunks that answer a question, best first.

    `limit` is moved into 1 to SEARCH_MAX_LIMIT. The score is what the asked mode says, and `min_score` is compared with
    it: cosine in vector mode, BM25 in text mode; in hybrid mode the fused score in 0..1, also where one leg alone
    answered.

    Raises:
        ValidationError: the query is blank, longer than 4,000 characters or no valid text, or `min_score` is no number
            of at least 0.
        SearchError, EmbeddingError, StorageError: the only leg that was asked failed, or both did.
    """
    question = _read_question(query, core, mode=mode, filters=filters, limit=limit, min_score=min_score)
    space = await core.store.read_active_space()
    if space is None:
        return _answer(question, core, (), question.mode, _NOTHING_STORED)
    asker = _Asker(question=question, core=core, space=space)
    (ranking, chosen, rows), coverage = await asyncio.gather(_find_current(asker), _count_coverage(asker))
    explanation = ranking.explanation
    if coverage is not None:
        explanation = " ".join(filter(None, (explanation, describe_coverage(coverage))))
    if not chosen:
        why = await _explain_nothing(question, core, ranking)
        explanation = f"{explanation} {why}" if explanation else why
    hits = await asyncio.to_thread(_build_hits, chosen, rows, question.query)
    return replace(_answer(question, core, hits, ranking.effective_mode, explanation), coverage=coverage)


async def _count_coverage(asker: _Asker) -> Coverage | None:
    """Counted only while documents are moved from one space to another: at all other times it is everything."""
    space = asker.space
    is_moving = space.pending is not None or space.previous is not None
    if not is_moving or asker.question.mode is SearchMode.TEXT:
        return None
    return await asker.core.store.count_coverage(space.fingerprint)


def _read_question(
    query: str,
    core: Core,
    *,
    mode: SearchMode | None,
    filters: SearchFilters,
    limit: int | None,
    min_score: float | None,
) -> _Question:
    trimmed = query.strip()
    if not 1 <= len(trimmed) <= MAX_QUERY_CHARS:
        raise ValidationError(
            f"query: has {len(trimmed):,} characters without the blanks around it; give 1 to {MAX_QUERY_CHARS:,}."
        )
    surrogate = next((place for place, char in enumerate(trimmed) if "\ud800" <= char <= "\udfff"), None)
    if surrogate is not None:
        raise ValidationError(f"query: is no valid Unicode text at character {surrogate}; leave that character out.")
    if min_score is not None and not (math.isfinite(min_score) and min_score >= 0):
        raise ValidationError("minScore: must be a number of at least 0.")
    settings = core.settings
    default_mode = SearchMode.HYBRID if settings.search_hybrid_enabled else SearchMode.VECTOR
    wanted = settings.search_default_limit if limit is None else limit
    return _Question(
        query=trimmed,
        mode=mode or default_mode,
        filters=filters,
        limit=max(1, min(wanted, settings.search_max_limit)),
        min_score=min_score,
    )


async def _find_current(asker: _Asker) -> tuple[_Ranking, Sequence[FusedHit], Mapping[str, HitRow]]:
    """The best candidates whose rows are still current. Too few: the legs are asked again, then for more.

    A document that was replaced between ranking and reading is ranked again with its new rows instead of going missing.
    """
    limit = asker.question.limit
    pool = _first_pool(asker.question)
    asked_again = False
    while True:
        ranking = await asker.rank(pool)
        chosen, rows, vanished = await _read_rows(asker.core, ranking.candidates, limit)
        if vanished and not asked_again:
            asked_again = True
        elif len(chosen) >= limit or ranking.exhausted or pool >= _DEEPEST_POOL:
            return ranking, chosen, rows
        else:
            pool = min(pool * _DEEPER, _DEEPEST_POOL)


def _first_pool(question: _Question) -> int:
    pool = min(_FIRST_POOL_LIMIT, max(_POOL_PER_HIT * question.limit, _SMALLEST_POOL))
    return max(pool, _SMALLEST_FUSED_POOL) if question.mode is SearchMode.HYBRID else pool


async def _read_rows(
    core: Core, candidates: Sequence[FusedHit], limit: int
) -> tuple[list[FusedHit], dict[str, HitRow], bool]:
    chosen: list[FusedHit] = []
    rows: dict[str, HitRow] = {}
    read = 0
    while len(chosen) < limit and read < len(candidates):
        slice_ = candidates[read : read + limit]
        found = await core.store.read_hits([hit.chunk_id for hit in slice_])
        rows |= found
        chosen += [hit for hit in slice_ if hit.chunk_id in found]
        read += len(slice_)
    return chosen[:limit], rows, len(rows) < read


async def _try_leg(name: str, call: Awaitable[LegAnswer]) -> _Leg:
    try:
        return _Leg(answer=await call)
    except AgentMemoryError as error:
        _log.warning("search.leg_failed", leg=name, error=type(error).__name__, cause=error.event)
        return _Leg(error=error)


async def _not_asked() -> _Leg:
    return _Leg(asked=False)


def _read_failures(mode: SearchMode, vector: _Leg, text: _Leg) -> tuple[SearchMode, str | None]:
    """The mode that answered and what the caller must know; raises where no leg that was asked answered."""
    if text.error is not None and (vector.error is not None or not vector.asked):
        raise text.error
    if vector.error is not None and not text.asked:
        raise vector.error
    if vector.error is not None:
        return SearchMode.TEXT, f"These hits are from the text leg alone; the vector leg failed: {vector.error.message}"
    if text.error is not None:
        return SearchMode.VECTOR, f"These hits are from the vector leg alone; the text leg failed: {text.error.message}"
    return mode, None


async def _explain_nothing(question: _Question, core: Core, ranking: _Ranking) -> str:
    if ranking.best_cut is not None:
        return f"No hit reaches minScore; the best one has {ranking.best_cut:.4f}."
    if (await core.store.list_sources(ListQuery(limit=1))).total == 0:
        return _NOTHING_STORED
    if not question.filters.is_empty and not await core.store.find_document_ids(question.filters):
        return "No stored document satisfies all the filters: leave one out, or see `memory list` for what is stored."
    among = "" if question.filters.is_empty else " among the documents that satisfy the filters"
    if ranking.effective_mode is SearchMode.TEXT:
        return f"Nothing matched: no stored text has a word of the query{among}. Try other words, or mode hybrid."
    if ranking.effective_mode is SearchMode.VECTOR:
        return f"Nothing matched: no stored vector is of the embedding space {core.fingerprint.key}{among}."
    return f"Nothing matched: neither a vector nor a word of the query was found{among}."


def _build_hits(chosen: Sequence[FusedHit], rows: Mapping[str, HitRow], query: str) -> tuple[Hit, ...]:
    return tuple(
        Hit(
            row=rows[fused.chunk_id],
            score=fused.score,
            vector_score=fused.vector_score,
            text_score=fused.text_score,
            vector_rank=fused.vector_rank,
            text_rank=fused.text_rank,
            highlights=cut_fragments(readable_text(rows[fused.chunk_id]), query),
        )
        for fused in chosen
    )


def _answer(
    question: _Question, core: Core, hits: tuple[Hit, ...], effective_mode: SearchMode, explanation: str | None
) -> SearchAnswer:
    return SearchAnswer(
        query=question.query,
        mode=question.mode,
        effective_mode=effective_mode,
        engine=core.index.engine,
        hits=hits,
        fingerprint=core.fingerprint,
        explanation=explanation,
    )
