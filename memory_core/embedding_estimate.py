"""Requests for the path in, what embedding them would take out. It embeds nothing, and writes no document.

The same stages validate and chunk, and the same draft says which stored rows can stay, so an estimate is of what the
run then sends, batch by batch, packed by the same planner. Three things it does not know: what the cache still has of
an interrupted run (such a run costs less), how the provider counts (by a factor, see calibration), and its refusals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from memory_core.calibration import Calibration
from memory_core.chunk_values import readable_text
from memory_core.costs import EmbeddingEstimate, estimate_cost
from memory_core.embedding_draft import Draft, DraftRules, brought_keys, draft_document, text_to_rank
from memory_core.embedding_plan import Unit, lay_out, pack
from memory_core.embedding_ports import ProviderLimits, SituateRequest
from memory_core.embedding_settings import ContextPolicy
from memory_core.models import ChunkedDocument, Document, Fingerprint, Plan, StoredChunkKey, StoreRequest
from memory_core.ports import Core, Stages
from memory_core.situate import SituateUsage, estimate_usage
from memory_core.store_ports import MemoryStore

# About 30 MB of hashes; beyond that a text may be counted twice.
_REMEMBERED_TEXTS: Final = 200_000
_HASH_DIGITS: Final = 16


class EmbeddingEstimator:
    """Adds up batches, in the order and of the size in which a run takes them; keeps no text of them.

    `limits` are those of the provider's requests; None for a model of this process, which gets no requests and whose
    tokens are counted by our own counter.
    """

    def __init__(
        self, *, core: Core, stages: Stages, limits: ProviderLimits | None, calibration: Calibration | None = None
    ) -> None:
        self._core = core
        self._stages = stages
        self._limits = limits
        self._calibration = calibration or Calibration()
        self._rules = DraftRules(
            policy=core.settings.context_policy, space=core.fingerprint.key, is_contextual=core.embedder.is_contextual
        )
        self._seen: set[int] = set()
        self._documents = self._chunks = self._texts = self._tokens = self._requests = 0
        self._contexts = SituateUsage(requests=0, input_tokens=0, cached_tokens=0, output_tokens=0)

    async def add(self, requests: Sequence[StoreRequest]) -> None:
        """Count one batch. What the path would refuse costs nothing.

        Raises:
            AgentMemoryError: a stage failed as a whole, or the stored rows could not be read.
        """
        core = self._core
        if not requests:
            return
        validated = await self._stages.validate(requests, core=core)
        changed = [one for one in validated if isinstance(one, Document) and one.plan is Plan.STORE]
        if not changed:
            return
        chunked = await self._stages.chunk(changed, core=core)
        documents = [one for one in chunked if isinstance(one, ChunkedDocument)]
        ids = [item.document.base.document_id for item in documents if item.document.base is not None]
        stored = {**brought_keys(documents), **(await core.store.read_chunk_keys(ids) if ids else {})}
        await asyncio.to_thread(self._count_batch, documents, stored)

    def finish(self) -> EmbeddingEstimate:
        """The sum of all batches so far, with its price."""
        # A sentence that a chat model writes is embedded with its chunk.
        tokens = self._tokens + self._contexts.output_tokens
        return EmbeddingEstimate(
            documents=self._documents,
            chunks=self._chunks,
            texts=self._texts,
            cost=estimate_cost(
                tokens if self._limits is None else self._calibration.estimate(tokens),
                self._requests,
                self._core.settings,
                self._contexts,
            ),
        )

    def _count_batch(
        self, documents: Sequence[ChunkedDocument], stored: Mapping[str, Sequence[StoredChunkKey]]
    ) -> None:
        if self._limits is None or len(self._seen) > _REMEMBERED_TEXTS:
            self._seen.clear()  # only what is paid for is found again in a later batch
        layouts: list[list[Unit]] = []
        taken: set[Unit] = set()
        for item in documents:
            draft = draft_document(item, stored.get(item.document.document_id, ()), self._rules)
            self._documents += 1
            self._chunks += len(draft.rows)
            self._count_contexts(draft)
            if texts := self._take_new(draft):
                # Two windows of long texts may be equal where the texts are not: one of them is sent.
                layouts.append([unit for unit in dict.fromkeys(self._lay_out(texts)) if unit not in taken])
                taken.update(layouts[-1])
        self._tokens += sum(unit.total for layout in layouts for unit in layout)
        if self._limits is not None:
            room = self._calibration.room(self._limits)
            is_contextual = self._rules.is_contextual
            self._requests += len(pack(layouts, room=room, limits=self._limits, is_contextual=is_contextual))

    def _take_new(self, draft: Draft) -> list[str]:
        """The texts that no earlier document has brought. Equal ones are sent once, with the first that has them."""
        missing = {int(digest[:_HASH_DIGITS], 16): text for digest, text in draft.missing.items()}
        texts = [text for digest, text in missing.items() if digest not in self._seen]
        self._seen.update(missing)
        self._texts += len(texts)
        return texts

    def _lay_out(self, texts: Sequence[str]) -> list[Unit]:
        counter = self._core.counter
        if self._limits is None:
            return [Unit(texts=tuple(texts), tokens=tuple(map(counter.count, texts)))]
        placed = lay_out(texts, counter=counter, limits=self._limits, is_contextual=self._rules.is_contextual)
        return [one.unit for one in placed]

    def _count_contexts(self, draft: Draft) -> None:
        if self._rules.policy is not ContextPolicy.LLM:
            return
        texts = tuple(readable_text(row.chunk) for row in draft.rows if row.kept is None)
        usage = estimate_usage(
            SituateRequest(content=text_to_rank(draft.item), texts=texts),
            document_tokens=self._core.settings.context_document_tokens,
            counter=self._core.counter,
        )
        self._contexts = _add_usage(self._contexts, usage)


def _add_usage(one: SituateUsage, other: SituateUsage) -> SituateUsage:
    return SituateUsage(
        requests=one.requests + other.requests,
        input_tokens=one.input_tokens + other.input_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
    )


async def core_of_estimate(core: Core) -> Core:
    """The core of a trial run: an empty database stays one, whose first writer decides about space and recipe.

    Raises:
        ForeignDatabaseError: the database is not ours, or is of another space or recipe.
    """
    if await core.store.read_active_space() is None:
        return replace(core, store=cast("MemoryStore", _UnpreparedStore(core.store)))
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    return core


class _UnpreparedStore:
    """A store that nothing is made in."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def prepare(self, fingerprint: Fingerprint, *, recipe: str | None = None) -> None:
        """See MemoryStore; there is nothing to refuse in an empty database."""
