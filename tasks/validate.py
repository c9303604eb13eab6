"""The validate stage as a Prefect task: check requests against the rules and the store. No logic."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task

from memory_core.bootstrap import current_core
from memory_core.models import Document, Failure, StoreRequest
from memory_core.validate import validate_requests
from tasks.retry import VALIDATE_TIMEOUT_SECONDS
from tasks.task_options import task_options


@task(**task_options("validate", timeout_seconds=VALIDATE_TIMEOUT_SECONDS))
async def validate_task(requests: Sequence[StoreRequest]) -> Sequence[Document | Failure]:
    """Check requests and compare them with what is stored (memory_core.validate)."""
    return await validate_requests(requests, core=current_core())
