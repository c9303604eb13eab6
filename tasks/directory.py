"""The steps of a directory run as Prefect tasks: plan, read a batch, record a batch, prune. No logic."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task

from memory_core.bootstrap import current_core
from memory_core.models import StoreOutcome
from memory_core.sync.values import FileReport, PlannedFile
from memory_core.sync_feed import BatchReading, FeedPlan, plan_feed, prune_feed, read_batch, record_batch
from memory_core.work_ports import Feed
from tasks.retry import DIRECTORY_TIMEOUT_SECONDS
from tasks.task_options import task_options


@task(**task_options("plan", timeout_seconds=DIRECTORY_TIMEOUT_SECONDS))
async def plan_task(feed: Feed) -> FeedPlan:
    """Compare the directory with what is stored (memory_core.sync_feed)."""
    return await plan_feed(feed, core=current_core())


@task(**task_options("read", timeout_seconds=DIRECTORY_TIMEOUT_SECONDS))
async def read_task(planned: Sequence[PlannedFile], feed_plan: FeedPlan, flow_run_id: str | None) -> BatchReading:
    """Read the files of a batch (memory_core.sync_feed)."""
    return await read_batch(planned, feed_plan=feed_plan, flow_run_id=flow_run_id, core=current_core())


@task(**task_options("record", timeout_seconds=DIRECTORY_TIMEOUT_SECONDS))
async def record_task(reading: BatchReading, outcomes: Sequence[StoreOutcome], feed: Feed) -> Sequence[FileReport]:
    """Write what became of a batch to the manifest (memory_core.sync_feed)."""
    return await record_batch(reading, outcomes, feed=feed, core=current_core())


@task(**task_options("prune", timeout_seconds=DIRECTORY_TIMEOUT_SECONDS))
async def prune_task(feed_plan: FeedPlan) -> Sequence[FileReport]:
    """Delete the documents whose files are gone (memory_core.sync_feed)."""
    return await prune_feed(feed_plan, core=current_core())
