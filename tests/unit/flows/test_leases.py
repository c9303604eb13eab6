"""Leases of a run: given back whatever happens, waited for, taken from the dead, kept alive while the run works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from flows import leases
from flows.leases import hold_feed, hold_submissions
from memory_core.errors import StorageUnavailableError, SyncError
from memory_core.fakes import FakeDatabase
from memory_core.models import Holder
from memory_core.ports import Core, Progress
from memory_core.work_ports import Feed, FeedStore

MakeCore = Callable[..., Core]
OTHER = Holder(host="here", pid=77, started=1.0, token="o" * 32)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.005)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.005)


class WatchedFeeds:
    """A feed store whose calls a test can hold back or fail."""

    def __init__(self, inner: FeedStore) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.fails: set[str] = set()
        self.may_renew = asyncio.Event()
        self.may_renew.set()
        self.renewals: list[asyncio.Task[Holder | None]] = []
        self.renewing = asyncio.Event()

    async def acquire_lease(self, feed: str, holder: Holder, *, seconds: float) -> Holder | None:
        """Not before the test says so."""
        is_renewal = "acquire" in self.calls
        self.calls.append("acquire")
        if not is_renewal:
            return await self.inner.acquire_lease(feed, holder, seconds=seconds)
        self.renewing.set()
        # Like a command that runs in a thread: it goes on when nobody waits for it any more.
        self.renewals.append(asyncio.create_task(self._renew(feed, holder, seconds=seconds)))
        return await asyncio.shield(self.renewals[-1])

    async def _renew(self, feed: str, holder: Holder, *, seconds: float) -> Holder | None:
        await self.may_renew.wait()
        self._fail("renew")
        return await self.inner.acquire_lease(feed, holder, seconds=seconds)

    async def steal_lease(self, feed: str, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """As the store does."""
        self.calls.append("steal")
        return await self.inner.steal_lease(feed, holder, dead, seconds=seconds)

    async def release_lease(self, feed: str, holder: Holder) -> None:
        """Not at all, where the test says so."""
        self.calls.append("release")
        self._fail("release")
        await self.inner.release_lease(feed, holder)

    def _fail(self, name: str) -> None:
        if name in self.fails:
            raise StorageUnavailableError("MongoDB is away. Try again.")


async def watched(core: Core) -> tuple[Core, WatchedFeeds]:
    await core.feeds.register_feed(Feed(name="docs", root="/docs"))
    feeds = WatchedFeeds(core.feeds)
    return replace(core, feeds=cast("Any", feeds)), feeds


async def holder_of(core: Core) -> Holder | None:
    """Who holds the feed, asked by somebody who takes it only for a moment."""
    probe = replace(OTHER, token="p" * 32)
    other = await core.feeds.acquire_lease("docs", probe, seconds=60)
    await core.feeds.release_lease("docs", probe)
    return other


async def test_a_lease_is_given_back_when_the_run_ends_or_fails(make_core: MakeCore) -> None:
    """The next run of the same process must not wait for it to lapse."""
    plain = make_core()
    core, _ = await watched(plain)
    async with hold_feed("docs", core=core):
        assert await holder_of(plain) is not None
    assert await holder_of(plain) is None

    async def fail() -> None:
        async with hold_feed("docs", core=core):
            raise SyncError("The root is missing.")

    with pytest.raises(SyncError):
        await fail()
    assert await holder_of(plain) is None


async def test_a_cancelled_run_gives_its_lease_back(make_core: MakeCore) -> None:
    """Ctrl-C leaves nothing behind that somebody waits for."""
    plain = make_core()
    core, _ = await watched(plain)
    started = asyncio.Event()

    async def work() -> None:
        async with hold_feed("docs", core=core):
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await holder_of(plain) is None


async def test_a_failed_release_does_not_hide_what_happened(make_core: MakeCore) -> None:
    """The lease lapses by itself; the run's own error is what counts."""
    core, feeds = await watched(make_core())
    feeds.fails.add("release")

    async def fail() -> None:
        async with hold_feed("docs", core=core):
            raise SyncError("The root is missing.")

    with capture_logs() as lines, pytest.raises(SyncError):
        await fail()
    assert [line["event"] for line in lines] == ["lease.release_failed"]


async def test_a_lease_stays_alive_while_the_run_works(make_core: MakeCore) -> None:
    """A renewal that fails is told, and the next one tries again."""
    core, feeds = await watched(make_core())
    feeds.fails.add("renew")
    with capture_logs() as lines:
        async with hold_feed("docs", core=core):
            for _ in range(3):
                await feeds.renewing.wait()
                feeds.renewing.clear()
    assert {line["event"] for line in lines} == {"lease.renewal_failed"}
    assert feeds.calls[-1] == "release"


async def test_a_renewal_under_way_does_not_take_the_lease_again(make_core: MakeCore) -> None:
    """Release is the last word, however slow the renewal is."""
    plain = make_core()
    core, feeds = await watched(plain)
    feeds.may_renew.clear()
    leaving = asyncio.Event()

    async def work() -> None:
        async with hold_feed("docs", core=core):
            await feeds.renewing.wait()
            leaving.set()

    run = asyncio.create_task(work())
    await leaving.wait()
    for _ in range(50):  # rounds of the loop: time enough for a release that does not wait for the renewal
        await asyncio.sleep(0)
    feeds.may_renew.set()
    await run
    await asyncio.gather(*feeds.renewals)
    assert feeds.calls[-1] == "release"
    assert await holder_of(plain) is None


async def test_a_second_run_waits_for_the_first_and_says_so_once(make_core: MakeCore) -> None:
    """Two runs of one feed never work at the same time."""
    told: list[Progress] = []
    waits = asyncio.Event()
    plain = make_core()
    core, feeds = await watched(plain)
    await plain.feeds.acquire_lease("docs", OTHER, seconds=60)

    def listen(progress: Progress) -> None:
        told.append(progress)
        waits.set()

    async def end_first() -> None:
        await waits.wait()
        await feeds.renewing.wait()  # it has asked once more
        await plain.feeds.release_lease("docs", OTHER)

    ending = asyncio.create_task(end_first())
    async with hold_feed("docs", core=replace(core, on_progress=listen)):
        assert ending.done()
    await ending
    assert len(told) == 1
    assert "process 77" in (told[0].message or "")


async def test_a_dead_run_is_not_waited_for(make_core: MakeCore) -> None:
    """It was on this machine and is gone."""
    told: list[Progress] = []
    plain = make_core()
    core, feeds = await watched(plain)
    await plain.feeds.acquire_lease("docs", OTHER, seconds=60)

    def is_alive(holder: Holder) -> bool:
        return holder.pid != OTHER.pid

    core = replace(core, is_alive=is_alive, on_progress=told.append)
    async with hold_feed("docs", core=core):
        assert "steal" in feeds.calls
    assert told == []


async def test_a_run_that_never_ends_is_an_error_with_a_remedy(
    make_core: MakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever."""
    monkeypatch.setattr(leases, "MAX_WAIT_SECONDS", 0.01)
    plain = make_core()
    core, _ = await watched(plain)
    await plain.feeds.acquire_lease("docs", OTHER, seconds=60)
    with pytest.raises(SyncError, match="process 77"):
        async with hold_feed("docs", core=core):
            raise AssertionError("the lease is another's")


async def test_submissions_are_renewed_while_their_run_works(make_core: MakeCore) -> None:
    """By the holder that claimed them."""
    core = make_core(FakeDatabase())
    renewed: asyncio.Queue[tuple[tuple[str, ...], str]] = asyncio.Queue()

    class Submissions:
        async def renew(self, ids: Sequence[str], *, holder: Holder, seconds: float) -> None:
            """Remember."""
            assert seconds > leases.RENEW_SECONDS
            await renewed.put((tuple(ids), holder.token))

    core = replace(core, submissions=cast("Any", Submissions()))
    async with hold_submissions(["1", "2"], OTHER, core=core):
        assert await renewed.get() == (("1", "2"), OTHER.token)
