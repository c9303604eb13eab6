"""How requests ended. In: an answer, a task, a fault. Out: vectors by unit, what is left to do, what to raise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from memory_core.embedding_plan import PlannedRequest, Unit
from memory_core.embedding_ports import ProviderAnswer
from memory_core.errors import AgentMemoryError, EmbeddingUnavailableError
from memory_core.models import Vector


def match_vectors(planned: PlannedRequest, answer: ProviderAnswer) -> Iterator[tuple[Unit, Vector]]:
    """The vectors of each unit of a request."""
    for run, rows in zip(planned.runs, answer.groups, strict=True):
        start = 0
        for unit in run:
            end = start + len(unit.texts)
            yield unit, rows[start:end]
            start = end


def result_of(task: asyncio.Task[Sequence[PlannedRequest]], failures: list[Exception]) -> Sequence[PlannedRequest]:
    """What a task left to do; its failure goes to the others. It was cancelled only after one of these."""
    if task.cancelled():
        return ()
    match task.exception():
        case None:
            return task.result()
        case Exception() as error:
            failures.append(error)
            return ()
        case error:
            raise error


def is_retryable(error: Exception) -> bool:
    """Whether a later attempt can succeed."""
    return isinstance(error, AgentMemoryError) and error.retryable


def say_attempts(error: EmbeddingUnavailableError, attempts: int) -> EmbeddingUnavailableError:
    """The last fault of a request, with how often it was tried."""
    said = EmbeddingUnavailableError(f"{error.message} (attempt {attempts} of {attempts}, EMBEDDING_MAX_RETRIES)")
    said.cause = error.cause
    return said
