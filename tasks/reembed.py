"""The plan of a re-embed as a Prefect task. A name, a retry rule, a timeout; no logic."""

from __future__ import annotations

from prefect import task

from memory_core.bootstrap import current_core
from memory_core.reembed import plan_reembed
from memory_core.reembed_values import ReembedOptions, ReembedPlan
from tasks.retry import DIRECTORY_TIMEOUT_SECONDS
from tasks.task_options import task_options


@task(**task_options("plan", timeout_seconds=DIRECTORY_TIMEOUT_SECONDS))
async def plan_reembed_task(options: ReembedOptions) -> ReembedPlan:
    """Find what is to be embedded again (memory_core.reembed)."""
    return await plan_reembed(options, core=current_core())
