"""The four tasks as the `Stages` of the path: a flow brings them, and the path keeps their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from memory_core.ports import Core, Stages
from tasks.chunk import chunk_task
from tasks.embed import embed_task
from tasks.persist import persist_task
from tasks.task_options import unwalked
from tasks.validate import validate_task


def _as_stage(task: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Drop the core (no client is ever a task's argument) and quote the values: Prefect would walk every element."""

    async def stage(values: Sequence[object], *, core: Core) -> Any:  # noqa: ANN401 - the task's own result
        del core
        return await task(unwalked(values))

    return stage


TASK_STAGES = Stages(
    validate=_as_stage(validate_task),
    chunk=_as_stage(chunk_task),
    embed=_as_stage(embed_task),
    persist=_as_stage(persist_task),
)
