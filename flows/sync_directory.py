"""The flow `sync-directory`. In: a feed. Out: a memory that is equal to it, and a state that tells the truth.

Plan, batches down the one path, prune, report. A crash loses at most the batches in flight; the next run goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.leases import hold_feed
from flows.reports import publish_report
from memory_core.bootstrap import current_core
from memory_core.costs import EmbeddingEstimate, check_max_cost, is_paid, refuse_cost
from memory_core.embedding_estimate import EmbeddingEstimator
from memory_core.errors import AgentMemoryError, NotFoundError, ValidationError
from memory_core.models import Outcome, StoreOutcome
from memory_core.ports import Core, Progress
from memory_core.provider_limits import limits_of
from memory_core.store_content import store_content
from memory_core.sync.plan import batches, deletions_need_confirmation
from memory_core.sync.values import Action, FileOutcome, FileReport, PlannedFile, SyncReport
from memory_core.sync_feed import FeedPlan, feed_of_path, report_untouched
from memory_core.work_ports import Feed
from tasks.directory import plan_task, prune_task, read_task, record_task
from tasks.stages import TASK_STAGES
from tasks.task_options import unwalked

BATCHES_AT_ONCE = 2
MAX_FAILED_BATCHES_IN_A_ROW = 3
_NAMED_FAILURES = 5


@flow(name="sync-directory", persist_result=False, log_prints=False, validate_parameters=True)
async def sync_directory_flow(
    feed: str | None = None,
    path: str | None = None,
    confirm: str | None = None,
    dry_run: bool = False,  # noqa: FBT001, FBT002 - Prefect's form sends by name
    max_cost: float | None = None,
) -> State[Any]:
    """Make the memory equal to a directory: new files are stored, changed ones updated, gone ones deleted.

    Args:
        feed: The name of a configured directory.
        path: A directory below MEMORY_ROOTS, instead of a feed; it becomes a feed.
        confirm: The id of a plan whose many deletions you agree to. A run that needs it says so.
        dry_run: Only plan, and report what would be done and what it would cost.
        max_cost: US dollars. A run that would cost more, by an estimate, ends before anything is spent or stored.
    """
    check_max_cost(max_cost)
    core = current_core()
    started = time.monotonic()
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    chosen = await _choose_feed(feed, path, core)
    async with hold_feed(chosen.name, core=core):
        feed_plan = await plan_task(unwalked(chosen))
        if dry_run or max_cost is not None:
            estimate = await _estimate(feed_plan, core)
            feed_plan = replace(feed_plan, estimate=estimate)
            if max_cost is not None and (refusal := refuse_cost(estimate.cost, max_cost)):
                return Failed(message=refusal, data=feed_plan)
        if dry_run:
            return Completed(message=feed_plan.describe(), data=feed_plan)
        run = _Run(core=core, feed_plan=feed_plan)
        await run.store_all()
        held_back = await run.prune(confirm)
    report = SyncReport(
        files=tuple(sorted([*run.reports, *report_untouched(feed_plan)], key=lambda file: file.path)),
        chunks=run.chunks,
        tokens_embedded=run.tokens_embedded,
        texts_embedded=run.texts_embedded,
        seconds=round(time.monotonic() - started, 3),
    )
    await publish_report(chosen, report)
    return _conclude(report, held_back)


async def _estimate(feed_plan: FeedPlan, core: Core) -> EmbeddingEstimate:
    """What embedding the plan takes: its files are read and chunked in the batches of the run, and forgotten."""
    limits = limits_of(core.settings) if is_paid(core.settings) else None
    estimator = EmbeddingEstimator(core=core, stages=TASK_STAGES, limits=limits)
    core.on_progress(Progress(message="Reading and chunking what is new, to say what embedding it takes ..."))
    for batch in _cut_batches(feed_plan, core):
        reading = await read_task(unwalked(batch), unwalked(feed_plan), flow_run.id)
        await estimator.add([file.request for file in reading.read])
    return estimator.finish()


def _cut_batches(feed_plan: FeedPlan, core: Core) -> Iterator[Sequence[PlannedFile]]:
    settings = core.settings
    planned = feed_plan.plan.select(Action.READ)
    return batches(planned, max_documents=settings.batch_documents, max_chars=settings.batch_chars)


async def _choose_feed(name: str | None, path: str | None, core: Core) -> Feed:
    feeds = await core.feeds.list_feeds()
    if (name is None) == (path is None):
        raise ValidationError("Say either a feed or a path.")
    if name is not None:
        known = next((feed for feed in feeds if feed.name == name), None)
        if known is None:
            names = ", ".join(feed.name for feed in feeds) or "none yet"
            raise NotFoundError(f"There is no feed of that name. Known feeds: {names}.")
        return known
    root = _resolve_below(path or "", core.settings.memory_roots)
    return await core.feeds.register_feed(feed_of_path(root, feeds))


def _resolve_below(path: str, roots: Sequence[Path]) -> Path:
    """Every way in but the owner's command line takes only what the owner opened. Links are followed first."""
    root = Path(path).resolve()
    if not any(root.is_relative_to(allowed.resolve()) for allowed in roots):
        raise ValidationError("That path is not below MEMORY_ROOTS. Ask the owner of this memory to add it there.")
    return root


@dataclass(slots=True)
class _Run:
    """The batches of one run and what is known of them so far."""

    core: Core
    feed_plan: FeedPlan
    reports: list[FileReport] = field(default_factory=list[FileReport])
    chunks: int = 0
    tokens_embedded: int = 0
    texts_embedded: int = 0
    done: int = 0
    failures_in_a_row: int = 0
    last_reason: str = ""

    async def store_all(self) -> None:
        """Send every batch down the path, a few at a time."""
        total = len(self.feed_plan.plan.select(Action.READ))
        waiting = _cut_batches(self.feed_plan, self.core)
        self.core.on_progress(Progress(done=0, total=total))
        async with asyncio.TaskGroup() as group:
            for _ in range(BATCHES_AT_ONCE):
                group.create_task(self._work(waiting, total))

    async def _work(self, waiting: Iterator[Sequence[PlannedFile]], total: int) -> None:
        for batch in waiting:
            if self.failures_in_a_row >= MAX_FAILED_BATCHES_IN_A_ROW:
                self.reports += [_not_tried(planned, self.last_reason) for planned in batch]
                continue
            await self._store_batch(batch)
            self.done += len(batch)
            self.core.on_progress(Progress(done=self.done, total=total))

    async def _store_batch(self, batch: Sequence[PlannedFile]) -> None:
        """A batch that cannot even be read or recorded fails its files; the run goes on with the next one."""
        try:
            await self._try_batch(batch)
        except AgentMemoryError as error:
            self.reports += [_fail(planned, error.message) for planned in batch]
            self._watch_failures([StoreOutcome(outcome=Outcome.FAILED, source_id=None, error=error)])

    async def _try_batch(self, batch: Sequence[PlannedFile]) -> None:
        reading = await read_task(unwalked(batch), unwalked(self.feed_plan), flow_run.id)
        outcomes = await store_content([file.request for file in reading.read], core=self.core, stages=TASK_STAGES)
        self._watch_failures(outcomes)
        self.chunks += sum(one.chunk_count for one in outcomes if one.outcome in {Outcome.CREATED, Outcome.UPDATED})
        self.tokens_embedded += sum(outcome.tokens_embedded for outcome in outcomes)
        self.texts_embedded += sum(outcome.texts_embedded for outcome in outcomes)
        self.reports += await record_task(unwalked(reading), unwalked(outcomes), unwalked(self.feed_plan.feed))

    def _watch_failures(self, outcomes: Sequence[StoreOutcome]) -> None:
        """Three batches in a row that fail for the same passing reason: something is away, so stop paying."""
        reasons = {outcome.error.message for outcome in outcomes if outcome.error and outcome.error.retryable}
        if outcomes and len(reasons) == 1 and all(outcome.outcome is Outcome.FAILED for outcome in outcomes):
            reason = reasons.pop()
            self.failures_in_a_row = self.failures_in_a_row + 1 if reason == self.last_reason else 1
            self.last_reason = reason
        elif outcomes:
            self.failures_in_a_row, self.last_reason = 0, ""

    async def prune(self, confirm: str | None) -> str | None:
        """Delete what is gone. Returns the id of the plan whose deletions a person must confirm first, if any."""
        plan = self.feed_plan.plan
        if deletions_need_confirmation(plan) and confirm != plan.plan_id:
            return plan.plan_id
        self.reports += await prune_task(unwalked(self.feed_plan))
        return None


def _fail(planned: PlannedFile, error: str) -> FileReport:
    return FileReport(path=planned.path, source_id=planned.source_id, outcome=FileOutcome.FAILED, error=error)


def _not_tried(planned: PlannedFile, reason: str) -> FileReport:
    return _fail(planned, f"not tried: {MAX_FAILED_BATCHES_IN_A_ROW} batches in a row failed. {reason}")


def _conclude(report: SyncReport, held_back: str | None) -> State[Any]:
    """Completed only if every file is stored, unchanged, or skipped by policy, and nothing waits for a confirmation."""
    failed = [file for file in report.files if file.outcome is FileOutcome.FAILED]
    problems: list[str] = []
    if failed:
        named = "; ".join(f"{file.path}: {file.error}" for file in failed[:_NAMED_FAILURES])
        problems.append(f"{len(failed)} of {len(report.files)} failed: {named}")
    if held_back:
        problems.append(
            f"Many files are gone, so nothing was deleted. Check that the directory is complete; to delete their "
            f"documents, run again with --confirm {held_back} (in Prefect's form: confirm)"
        )
    if problems:
        return Failed(message=". ".join(problems), data=report)
    stored = report.count(FileOutcome.CREATED, FileOutcome.UPDATED, FileOutcome.ATTRIBUTES_UPDATED)
    return Completed(message=f"{stored} stored, {report.count(FileOutcome.UNCHANGED)} unchanged.", data=report)
