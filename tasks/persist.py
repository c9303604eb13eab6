"""The persist stage as a Prefect task: write documents atomically. A name, a retry rule, a timeout; no logic."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task

from memory_core.bootstrap import current_core
from memory_core.models import Conflict, Failure, StoreOutcome
from memory_core.persist import persist_documents
from memory_core.store_ports import DocumentWrite
from tasks.retry import PERSIST_TIMEOUT_SECONDS
from tasks.task_options import task_options


@task(**task_options("persist", timeout_seconds=PERSIST_TIMEOUT_SECONDS))
async def persist_task(writes: Sequence[DocumentWrite]) -> Sequence[StoreOutcome | Conflict | Failure]:
    """Write documents atomically and say what happened (memory_core.persist)."""
    return await persist_documents(writes, core=current_core())
