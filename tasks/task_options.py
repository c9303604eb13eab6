"""What every task has in common. Content never enters Prefect: no result is kept, no print logged, nothing cached."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import quote

from tasks.retry import RETRIES, RETRY_DELAYS_SECONDS, RETRY_JITTER_FACTOR, is_retryable

_T = TypeVar("_T")


def task_options(name: str, *, timeout_seconds: float) -> dict[str, Any]:
    """Keyword arguments of `prefect.task` for a task of this name."""
    return {
        "name": name,
        "retries": RETRIES,
        "retry_delay_seconds": RETRY_DELAYS_SECONDS,
        "retry_jitter_factor": RETRY_JITTER_FACTOR,
        "retry_condition_fn": is_retryable,
        "timeout_seconds": timeout_seconds,
        "cache_policy": NO_CACHE,
        "persist_result": False,
        "log_prints": False,
    }


def unwalked(value: _T) -> _T:
    """Quote an argument: Prefect would walk it element by element, which takes seconds for vectors.

    The task receives the value itself, so that is the type.
    """
    return cast("_T", quote(value))
