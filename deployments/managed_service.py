"""One service and all who wait for it. In: how its server starts. Out: started once, watched, restarted, stopped.

Knows no client and no lease: the supervisor says whether anybody needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from deployments.child_process import Child
from memory_core.errors import AgentMemoryError, ServiceError, describe_cause

Say: TypeAlias = Callable[[str], None]

# A server that dies this often within this time is given up until somebody asks for it again.
_RESTARTS = 3
_RESTART_WINDOW_SECONDS = 60.0


class Server(Protocol):
    """How one server is started; `local_mongodb`, `local_postgres` and `local_prefect` each have one."""

    @property
    def name(self) -> str:
        """The short name of its files."""
        ...

    async def start(self, say: Say) -> Child:
        """Prepare, start and wait until it answers. Raises ServiceError."""
        ...

    def describe(self) -> dict[str, Any]:
        """Version and place, as far as they are known, for the status."""
        ...


class ManagedService:
    """A server that is started at most once at a time, whoever asks."""

    def __init__(self, server: Server, *, is_needed: Callable[[], bool]) -> None:
        self.server = server
        self._is_needed = is_needed
        self._child: Child | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._listeners: set[Say] = set()
        self._last_word: str | None = None
        self._deaths: list[float] = []
        self.error: str | None = None

    @property
    def is_running(self) -> bool:
        """True when its server is ready."""
        return self._child is not None and self._child.is_running and self._starting is None

    @property
    def is_active(self) -> bool:
        """True when it runs, starts or stops."""
        return self._starting is not None or self.pid is not None

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._child.pid if self._child and self._child.is_running else None

    async def ensure(self, say: Say) -> None:
        """Return when the server is ready; a start under way is joined. Raises ServiceError."""
        if self._stopping:
            await asyncio.shield(self._stopping)
        if self.is_running:
            return
        self._listeners.add(say)
        try:
            if self._starting is None:
                self._begin(self._start())
            elif self._last_word:
                say(self._last_word)
            if self._starting:
                await asyncio.shield(self._starting)
        finally:
            self._listeners.discard(say)

    async def stop(self) -> bool:
        """Stop the server; True when it ran. A start under way is waited for first."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        ran = self._child is not None or self._starting is not None
        await asyncio.shield(self._stopping)
        return ran

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine, whose three type parameters say nothing here
        self._starting = asyncio.create_task(work)
        self._starting.add_done_callback(self._note_start)

    def _note_start(self, task: asyncio.Task[None]) -> None:
        """Keep the outcome of a start for the status; the error also reaches everybody who awaits the task."""
        self._starting = self._last_word = None
        if task.cancelled():
            return
        error = task.exception()
        self.error = None if error is None else getattr(error, "message", describe_cause(error))
        if error is not None:
            _log(f"{self.server.name}: {self.error}")

    async def _start(self) -> None:
        try:
            child = await self.server.start(self._tell)
        except AgentMemoryError:
            raise
        except Exception as error:
            # A defect in a start must reach the waiting clients as a sentence too; the log has the rest.
            traceback.print_exc()
            raise ServiceError(
                f"{self.server.name} could not be started. The supervisor's log has the details.", cause=error
            ) from error
        self._child = child
        self._watching = asyncio.create_task(self._watch(child))

    async def _watch(self, child: Child) -> None:
        await child.wait()
        if self._stopping:
            return
        self._child = None
        self.error = child.failure("ended unexpectedly").message
        _log(self.error)
        if self._is_needed() and self._starting is None:
            self._begin(self._restart(child))

    async def _restart(self, child: Child) -> None:
        while self._may_restart():
            self._tell(f"{child.launch.title} ended unexpectedly, starting it again ...")
            with contextlib.suppress(ServiceError):
                await self._start()
                return
        raise child.failure(f"ended {_RESTARTS + 1} times within {_RESTART_WINDOW_SECONDS:g} s and is left alone")

    def _may_restart(self) -> bool:
        now = time.monotonic()
        self._deaths = [moment for moment in self._deaths if now - moment < _RESTART_WINDOW_SECONDS] + [now]
        return len(self._deaths) <= _RESTARTS

    async def _stop(self) -> None:
        try:
            if self._starting:
                await asyncio.wait({self._starting})
            if self._child:
                began = time.monotonic()
                await self._child.stop()
                _log(f"{self._child.launch.title} stopped in {time.monotonic() - began:.1f} s")
            if self._watching:
                await asyncio.wait({self._watching})
        finally:
            self._child = self._watching = self._stopping = None
            self._deaths.clear()

    def _tell(self, sentence: str) -> None:
        self._last_word = sentence
        _log(sentence)
        for say in tuple(self._listeners):
            say(sentence)


def _log(sentence: str) -> None:
    """The supervisor's standard error is its log file."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    sys.stderr.write(f"{moment} {sentence}\n")
    sys.stderr.flush()
