"""Documents that come over from elsewhere, batch by batch down the one path. In: requests with a past. Out: counts.

What an import and a migration share: who was created or was here already, what could not be stored and why, when to
give up, and what embedding all of it would take. Where the batches come from is theirs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from memory_core.costs import EmbeddingEstimate, is_paid
from memory_core.embedding_estimate import EmbeddingEstimator
from memory_core.errors import ProviderRefusedError
from memory_core.models import Document, Failure, Outcome, Plan, StoreOutcome, StoreRequest
from memory_core.ports import Core
from memory_core.provider_limits import limits_of
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.transfer_values import Problem

MAX_FAILED_BATCHES_IN_A_ROW: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A document to store and where it stands in its source."""

    place: str
    request: StoreRequest


@dataclass(slots=True, kw_only=True)
class Intake:
    """One pass over a source and what is known of it so far. `tokens` and `texts` were embedded."""

    core: Core
    created: int = 0
    unchanged: int = 0
    chunks: int = 0
    tokens: int = 0
    texts: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])
    failures_in_a_row: int = 0
    last_reason: str = ""

    async def store(self, batches: AsyncGenerator[Sequence[Incoming]]) -> str | None:
        """Take every batch down the path.

        Returns why it gave up, None where it did not: three batches in a row failed as a whole, all for one reason that
        lies outside of the documents.
        """
        async with aclosing(batches):
            async for batch in batches:
                outcomes = await store_content([one.request for one in batch], core=self.core)
                for incoming, outcome in zip(batch, outcomes, strict=True):
                    self._count(incoming, outcome)
                self._watch_failures(outcomes)
                if self.failures_in_a_row >= MAX_FAILED_BATCHES_IN_A_ROW:
                    return self.last_reason
        return None

    async def estimate(self, batches: AsyncGenerator[Sequence[Incoming]]) -> EmbeddingEstimate:
        """What embedding it would take; nothing is embedded and no document written."""
        settings = self.core.settings
        pending: list[Incoming] = []

        async def validate(requests: Sequence[StoreRequest], *, core: Core) -> list[Document | Failure]:
            documents = await PLAIN_STAGES.validate(requests, core=core)
            for incoming, document in zip(pending, documents, strict=True):
                self._foresee(incoming, document)
            return list(documents)

        estimator = EmbeddingEstimator(
            core=self.core,
            stages=replace(PLAIN_STAGES, validate=validate),
            limits=limits_of(settings) if is_paid(settings) else None,
        )
        async with aclosing(batches):
            async for batch in batches:
                pending[:] = batch
                await estimator.add([one.request for one in batch])
        return estimator.finish()

    def add_problem(self, place: str | None, source_id: str | None, reason: str) -> None:
        """Note what is not going to be here, and why."""
        self.problems.append(Problem(place=place, source_id=source_id, reason=reason))

    def _count(self, incoming: Incoming, outcome: StoreOutcome) -> None:
        if outcome.error:
            self.add_problem(incoming.place, incoming.request.request.source_id, outcome.error.message)
        elif outcome.outcome is Outcome.UNCHANGED:
            self.unchanged += 1
        else:
            self.created += 1
            self.chunks += outcome.chunk_count
            self.tokens += outcome.tokens_embedded
            self.texts += outcome.texts_embedded

    def _foresee(self, incoming: Incoming, document: Document | Failure) -> None:
        if isinstance(document, Failure):
            self.add_problem(incoming.place, incoming.request.request.source_id, document.error.message)
        elif document.plan is Plan.NOTHING:
            self.unchanged += 1
        else:
            self.created += 1

    def _watch_failures(self, outcomes: Sequence[StoreOutcome]) -> None:
        """A batch of nothing but unreadable documents says nothing of the world outside."""
        if not outcomes:
            return
        errors = [outcome.error for outcome in outcomes if outcome.error]
        outside = {one.message for one in errors if one.retryable or isinstance(one, ProviderRefusedError)}
        if len(errors) < len(outcomes) or len(outside) != 1:
            self.failures_in_a_row, self.last_reason = 0, ""
            return
        reason = outside.pop()
        self.failures_in_a_row = self.failures_in_a_row + 1 if reason == self.last_reason else 1
        self.last_reason = reason
