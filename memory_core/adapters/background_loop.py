"""An event loop in a thread of its own. In: coroutines from any loop. Out: their results; it decides nothing.

A pool of connections belongs to the loop that opened it, and the loops of this program come and go: one for each run of
a flow, one for each command, one for each test. Here a pool has a loop that lives as long as the pool does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Starts with the first call and ends with `stop`; a call after that starts it again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: tuple[threading.Thread, asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine there and wait for it here; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._start()))

    async def stop(self) -> None:
        """Cancel what still runs and end the thread; may be called twice."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            thread, loop, ending = running
            loop.call_soon_threadsafe(ending.set)
            await asyncio.to_thread(thread.join)

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._running is None:
                started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
                thread = threading.Thread(target=_run_loop, args=(started,), name=self._name, daemon=True)
                thread.start()
                self._running = (thread, *started.result())
            return self._running[1]


def _run_loop(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def wait_for_end() -> None:
        ending = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), ending))
        await ending.wait()

    asyncio.run(wait_for_end())
