"""Brings an export into a memory, through the one path. In: a directory and a core. Out: the truth about each document.

Ids, versions, dates, attributes, owners and feeds stay as they were. What is there already is unchanged, so an import
that was killed is run again. Vectors of this process's embedding space are taken over; then nothing is embedded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from memory_core.costs import EmbeddingEstimate, check_max_cost, is_paid, refuse_cost
from memory_core.embedding_estimate import EmbeddingEstimator, core_of_estimate
from memory_core.models import Document, Failure, Outcome, Plan, Provenance, StoreOutcome, StoreRequest
from memory_core.ports import Core, Progress
from memory_core.provider_limits import limits_of
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.transfer_source import Batch, Incoming, Source, open_source, read_batches
from memory_core.transfer_values import ImportOptions, ImportReport, Problem

MAX_FAILED_BATCHES_IN_A_ROW: Final = 3


async def import_memory(directory: Path, *, core: Core, options: ImportOptions) -> ImportReport:
    """Store what an export holds. Never raises for a document: what is wrong with it is a problem of the report.

    Raises:
        ValidationError: the directory is no export, lacks a file, is of a newer program, or its vectors are damaged;
            or `max_cost` is no limit.
        ForeignDatabaseError: this process may not write to the database.
    """
    check_max_cost(options.max_cost)
    source = await asyncio.to_thread(
        open_source, directory, fingerprint=core.fingerprint, use_vectors=options.use_vectors
    )
    for note in source.notes:
        core.on_progress(Progress(message=note))
    if options.dry_run or options.max_cost is not None:
        trial = _Import(core=await core_of_estimate(core), source=source)
        estimate = await trial.estimate()
        refusal = refuse_cost(estimate.cost, options.max_cost) if options.max_cost is not None else None
        if options.dry_run or refusal:
            return trial.report(dry_run=True, estimate=estimate, refusal=refusal)
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    run = _Import(core=core, source=source)
    await run.store()
    return run.report()


@dataclass(slots=True)
class _Import:
    """One pass over an export and what is known of it so far."""

    core: Core
    source: Source
    done: int = 0
    created: int = 0
    unchanged: int = 0
    chunks: int = 0
    tokens: int = 0
    texts: int = 0
    without_vectors: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])
    failures_in_a_row: int = 0
    last_reason: str = ""

    async def store(self) -> None:
        """Take every batch down the path. Three in a row that fail for one passing reason end it: something is away."""
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                requests = [_as_request(one) for one in batch.documents]
                outcomes = await store_content(requests, core=self.core)
                for incoming, outcome in zip(batch.documents, outcomes, strict=True):
                    self._count(incoming, outcome)
                self._watch_failures(outcomes)
                if self.failures_in_a_row >= MAX_FAILED_BATCHES_IN_A_ROW:
                    left = self.source.manifest.documents - self.done
                    reason = f"{left:,} more documents were not tried: {self.last_reason} Then run the import again."
                    self.problems.append(Problem(reason=reason))
                    return

    async def estimate(self) -> EmbeddingEstimate:
        """What embedding it would take; nothing is embedded and no document written."""
        settings = self.core.settings
        limits = limits_of(settings) if is_paid(settings) else None
        pending: list[Incoming] = []

        async def validate(requests: Sequence[StoreRequest], *, core: Core) -> list[Document | Failure]:
            documents = await PLAIN_STAGES.validate(requests, core=core)
            for incoming, document in zip(pending, documents, strict=True):
                self._foresee(incoming, document)
            return list(documents)

        stages = replace(PLAIN_STAGES, validate=validate)
        estimator = EmbeddingEstimator(core=self.core, stages=stages, limits=limits)
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                pending[:] = batch.documents
                await estimator.add([_as_request(one) for one in batch.documents])
        return estimator.finish()

    async def _batches(self) -> AsyncGenerator[Batch]:
        settings = self.core.settings
        batches = read_batches(
            self.source,
            max_documents=settings.batch_documents,
            max_chars=settings.batch_chars,
            versions_kept=settings.versions_kept,
        )
        total = self.source.manifest.documents
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                self.problems += batch.problems
                self.without_vectors += batch.without_vectors
                self.done += batch.lines
                yield batch
                self.core.on_progress(Progress(done=min(self.done, total), total=total))
        finally:
            batches.close()

    def _count(self, incoming: Incoming, outcome: StoreOutcome) -> None:
        if outcome.error:
            self._fail(incoming, outcome.error.message)
        elif outcome.outcome is Outcome.UNCHANGED:
            self.unchanged += 1
        else:
            self.created += 1
            self.chunks += outcome.chunk_count
            self.tokens += outcome.tokens_embedded
            self.texts += outcome.texts_embedded

    def _foresee(self, incoming: Incoming, document: Document | Failure) -> None:
        if isinstance(document, Failure):
            self._fail(incoming, document.error.message)
        elif document.plan is Plan.NOTHING:
            self.unchanged += 1
        else:
            self.created += 1

    def _fail(self, incoming: Incoming, reason: str) -> None:
        source_id = incoming.arrival.request.source_id
        self.problems.append(Problem(place=incoming.place, source_id=source_id, reason=reason))

    def _watch_failures(self, outcomes: Sequence[StoreOutcome]) -> None:
        reasons = {outcome.error.message for outcome in outcomes if outcome.error and outcome.error.retryable}
        if outcomes and len(reasons) == 1 and all(outcome.error for outcome in outcomes):
            reason = reasons.pop()
            self.failures_in_a_row = self.failures_in_a_row + 1 if reason == self.last_reason else 1
            self.last_reason = reason
        elif outcomes:
            self.failures_in_a_row, self.last_reason = 0, ""

    def report(
        self, *, dry_run: bool = False, estimate: EmbeddingEstimate | None = None, refusal: str | None = None
    ) -> ImportReport:
        """What is known at the end."""
        notes = self.source.notes
        if self.without_vectors and not notes:
            notes = (f"{self.without_vectors:,} documents had vectors of another embedding space, which were ignored.",)
        return ImportReport(
            directory=str(self.source.folder.root),
            documents=self.source.manifest.documents,
            created=self.created,
            unchanged=self.unchanged,
            chunks=self.chunks,
            tokens=self.tokens,
            texts=self.texts,
            problems=(*self.source.problems, *self.problems),
            notes=notes,
            dry_run=dry_run,
            estimate=estimate,
            refusal=refusal,
        )


def _as_request(incoming: Incoming) -> StoreRequest:
    arrival = incoming.arrival
    return StoreRequest(request=arrival.request, provenance=Provenance(channel="import"), past=arrival.past)
