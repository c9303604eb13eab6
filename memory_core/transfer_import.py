"""Brings an export into a memory, through the one path. In: a directory and a core. Out: the truth about each document.

Ids, versions, dates, attributes, owners and feeds stay as they were. What is there already is unchanged, so an import
that was killed is run again. Vectors of this process's embedding space are taken over; then nothing is embedded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_core.costs import EmbeddingEstimate, check_max_cost, refuse_cost
from memory_core.embedding_estimate import core_of_estimate
from memory_core.intake import Incoming, Intake
from memory_core.models import StoreRequest
from memory_core.ports import Core, Progress
from memory_core.store_request import Provenance
from memory_core.transfer_reading import Arrival
from memory_core.transfer_source import Source, open_source, read_batches
from memory_core.transfer_values import ImportOptions, ImportReport


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
        trial = _Import(intake=Intake(core=await core_of_estimate(core)), source=source)
        estimate = await trial.estimate()
        refusal = refuse_cost(estimate.cost, options.max_cost) if options.max_cost is not None else None
        if options.dry_run or refusal:
            return trial.report(dry_run=True, estimate=estimate, refusal=refusal)
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    run = _Import(intake=Intake(core=core), source=source)
    await run.store()
    return run.report()


@dataclass(slots=True, kw_only=True)
class _Import:
    """One pass over an export."""

    intake: Intake
    source: Source
    done: int = 0
    without_vectors: int = 0

    async def store(self) -> None:
        """Take everything down the path, as far as it goes."""
        if reason := await self.intake.store(self._batches()):
            left = self.source.manifest.documents - self.done
            self.intake.add_problem(
                None, None, f"{left:,} more documents were not tried: {reason} Then run the import again."
            )

    async def estimate(self) -> EmbeddingEstimate:
        """What embedding it would take."""
        return await self.intake.estimate(self._batches())

    async def _batches(self) -> AsyncGenerator[Sequence[Incoming]]:
        core = self.intake.core
        settings = core.settings
        batches = read_batches(
            self.source,
            max_documents=settings.batch_documents,
            max_chars=settings.batch_chars,
            versions_kept=settings.versions_kept,
        )
        total = self.source.manifest.documents
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                self.intake.problems += batch.problems
                self.without_vectors += batch.without_vectors
                self.done += batch.lines
                yield [Incoming(place=one.place, request=_as_request(one.arrival)) for one in batch.documents]
                core.on_progress(Progress(done=min(self.done, total), total=total))
        finally:
            batches.close()

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
            created=self.intake.created,
            unchanged=self.intake.unchanged,
            chunks=self.intake.chunks,
            tokens=self.intake.tokens,
            texts=self.intake.texts,
            problems=(*self.source.problems, *self.intake.problems),
            notes=notes,
            dry_run=dry_run,
            estimate=estimate,
            refusal=refusal,
        )


def _as_request(arrival: Arrival) -> StoreRequest:
    return StoreRequest(request=arrival.request, provenance=Provenance(channel="import"), past=arrival.past)
