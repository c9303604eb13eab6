"""A loop in a thread of its own: results and failures come back, and it ends when it is told to."""

from __future__ import annotations

import asyncio
import threading

import pytest

from memory_core.adapters.background_loop import BackgroundLoop

NAME = "loop-under-test"


def is_running() -> bool:
    """Whether the thread is there."""
    return any(thread.name == NAME for thread in threading.enumerate())


async def name_thread() -> str:
    """Where this runs."""
    await asyncio.sleep(0)
    return threading.current_thread().name


async def test_work_is_done_elsewhere_and_its_failure_comes_back() -> None:
    """The caller sees the result or the exception itself."""

    async def divide() -> float:
        return 1 / 0

    loop = BackgroundLoop(NAME)
    assert not is_running()
    assert await loop.run(name_thread()) == NAME
    with pytest.raises(ZeroDivisionError):
        await loop.run(divide())
    await loop.stop()
    assert not is_running()


async def test_what_is_cancelled_here_is_cancelled_there() -> None:
    """Nothing goes on for a caller that left."""
    loop = BackgroundLoop(NAME)
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    call = asyncio.create_task(loop.run(wait()))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(ended.wait, 5)
    await loop.stop()


async def test_stop_ends_what_still_runs() -> None:
    """A caller that waits is not left waiting; a later call starts the loop again."""
    loop = BackgroundLoop(NAME)
    call = asyncio.create_task(loop.run(asyncio.sleep(60)))
    await asyncio.sleep(0.05)
    await loop.stop()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await loop.run(name_thread()) == NAME
    await loop.stop()
    await loop.stop()
