"""What every task has in common. Content never enters Prefect: no result is kept, no print logged, nothing cached."""

from __future__ import annotations

from typing import Any

from prefect.cache_policies import NO_CACHE

from tasks.retry import RETRIES, RETRY_DELAYS_SECONDS, RETRY_JITTER_FACTOR, is_retryable


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
