"""A clock that jumps to the next sleeper as soon as nothing else can go on: hours pass in no time, always alike."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from memory_core.adapters.provider_limiter import Timing

_THREAD_SECONDS = 0.0005  # of real time, between two looks at threads that work
START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class VirtualTime:
    """Sleepers by when they wake; `slept` remembers every sleep that was asked for."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._working = 0

    def now(self) -> float:
        """Seconds that never go back."""
        return self.seconds

    def clock(self) -> datetime:
        """The time of day."""
        return START + timedelta(seconds=self.seconds - 1_000)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock is there."""
        self.slept.append(seconds)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.seconds + seconds, next(self._numbers), future))
        await future

    def timing(self, random: Callable[[], float] = lambda: 0.5) -> Timing:
        """What a limiter takes."""
        return Timing(now=self.now, sleep=self.sleep, random=random, clock=self.clock)

    @asynccontextmanager
    async def passing(self) -> AsyncGenerator[None, None]:
        """Let time pass while the block runs."""
        loop = asyncio.get_running_loop()
        run_in_executor = loop.run_in_executor
        loop.run_in_executor = self._count_work(run_in_executor)
        task = asyncio.create_task(self._pass())
        try:
            yield
        finally:
            loop.run_in_executor = run_in_executor
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _count_work(self, run_in_executor: Any) -> Any:
        """No time passes while a thread works: on a busy machine that would take longer than any sleeper."""

        def run_counted(*args: Any) -> asyncio.Future[Any]:
            future: asyncio.Future[Any] = run_in_executor(*args)
            self._working += 1
            future.add_done_callback(self._end_work)
            return future

        return run_counted

    def _end_work(self, _: asyncio.Future[Any]) -> None:
        self._working -= 1

    async def _pass(self) -> None:
        ready = cast("Any", asyncio.get_running_loop())._ready
        while True:
            await asyncio.sleep(0)
            if self._working:
                await asyncio.sleep(_THREAD_SECONDS)
                continue
            if ready:  # somebody can go on without any time passing
                continue
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if self._sleepers:
                due, _, future = heapq.heappop(self._sleepers)
                self.seconds = max(self.seconds, due)
                future.set_result(None)
