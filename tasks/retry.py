"""When a task is tried again, as values. The error's class alone decides: `retryable` says whether it helps."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State, TaskRun

from memory_core.errors import AgentMemoryError

RETRIES = 3
RETRY_DELAYS_SECONDS = [1.0, 5.0, 20.0]
RETRY_JITTER_FACTOR = 0.5

# Generous ceilings against a hang, not promises of speed: the embedding of one large document takes minutes.
VALIDATE_TIMEOUT_SECONDS = 300
CHUNK_TIMEOUT_SECONDS = 600
EMBED_TIMEOUT_SECONDS = 7_200
PERSIST_TIMEOUT_SECONDS = 900
DIRECTORY_TIMEOUT_SECONDS = 1_800


async def is_retryable(task: object, run: TaskRun, state: State[Any]) -> bool:
    """True where the task failed with an error of ours that a later attempt can heal.

    It must be async and await the state's result: Prefect ignores a synchronous one and retries everything.
    """
    del task, run
    result = await state.aresult(raise_on_failure=False)
    return isinstance(result, AgentMemoryError) and result.retryable
