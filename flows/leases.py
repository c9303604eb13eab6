"""Leases that a flow holds while it works. In: what to hold. Out: a context; when it ends, the lease is given back.

A lease outlives a killed process, and a holder that is known to be dead does not make the next one wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import structlog

from memory_core.errors import AgentMemoryError, SyncError
from memory_core.models import Holder
from memory_core.ports import Core, Progress

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
POLL_SECONDS = 0.5
MAX_WAIT_SECONDS = 6 * 3_600.0

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def hold_feed(feed: str, *, core: Core) -> AsyncGenerator[None]:
    """Keep other runs of this feed away; wait for the one that is going on.

    Raises:
        SyncError: another run still goes on after six hours.
    """
    lease = _Lease(
        name=f"the feed {feed!r}",
        acquire=partial(core.feeds.acquire_lease, feed, seconds=LEASE_SECONDS),
        steal=partial(core.feeds.steal_lease, feed, seconds=LEASE_SECONDS),
        release=partial(core.feeds.release_lease, feed),
    )
    async with _hold(lease, core):
        yield


@asynccontextmanager
async def hold_reembed(*, core: Core) -> AsyncGenerator[None]:
    """Keep other re-embeds of this database away; wait for the one that is going on.

    Raises:
        SyncError: another one still goes on after six hours.
        NotFoundError: nothing was ever stored.
    """
    lease = _Lease(
        name="the re-embed",
        acquire=partial(core.store.acquire_reembed_lease, seconds=LEASE_SECONDS),
        steal=partial(core.store.steal_reembed_lease, seconds=LEASE_SECONDS),
        release=core.store.release_reembed_lease,
    )
    async with _hold(lease, core):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """What only one run may hold: `acquire` returns who else has it, `steal` takes it from a dead holder."""

    name: str
    acquire: Callable[[Holder], Awaitable[Holder | None]]
    steal: Callable[[Holder, Holder], Awaitable[bool]]
    release: Callable[[Holder], Awaitable[None]]


@asynccontextmanager
async def _hold(lease: _Lease, core: Core) -> AsyncGenerator[None]:
    holder = replace(core.holder, token=core.new_id())
    await _acquire(lease, holder, core)

    async def renew() -> None:
        other = await lease.acquire(holder)
        if other:
            # Compare-and-swap keeps the documents right; two runs at once only do some work twice.
            _log.warning("lease.lost", lease=lease.name, pid=other.pid)

    try:
        async with _renewing(renew):
            yield
    finally:
        await _release(lease, holder)


async def _release(lease: _Lease, holder: Holder) -> None:
    try:
        await lease.release(holder)
    except AgentMemoryError as error:
        # It lapses by itself; what the run came to must not be hidden by this.
        _log.warning("lease.release_failed", lease=lease.name, error=error.message)


async def _acquire(lease: _Lease, holder: Holder, core: Core) -> None:
    waited = 0.0
    while other := await lease.acquire(holder):
        if not core.is_alive(other) and await lease.steal(holder, other):
            return
        if waited >= MAX_WAIT_SECONDS:
            raise SyncError(f"Another run of {lease.name} (process {other.pid}) did not end. End it and try again.")
        if waited == 0:
            core.on_progress(
                Progress(message=f"Another run of {lease.name} is going on (process {other.pid}); waiting.")
            )
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


@asynccontextmanager
async def hold_submissions(ids: Sequence[str], holder: Holder, *, core: Core) -> AsyncGenerator[None]:
    """Keep the leases of claimed submissions alive while their run works."""

    async def renew() -> None:
        await core.submissions.renew(ids, holder=holder, seconds=LEASE_SECONDS)

    async with _renewing(renew):
        yield


@asynccontextmanager
async def _renewing(renew: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    ended = asyncio.Event()
    renewal = asyncio.create_task(_renew_until(ended, renew))
    try:
        yield
    finally:
        # Not cancelled: a renewal under way goes on in its thread and would take the lease again after its release.
        ended.set()
        await renewal


async def _renew_until(ended: asyncio.Event, renew: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), RENEW_SECONDS)
        if ended.is_set():
            return
        try:
            await renew()
        except AgentMemoryError as error:
            # Compare-and-swap keeps the documents right even when the lease lapses; the next renewal tries again.
            _log.warning("lease.renewal_failed", error=error.message)
