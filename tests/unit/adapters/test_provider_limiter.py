"""How fast a provider is asked, in virtual time."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from memory_core.adapters.provider_limiter import Permit, ProviderLimiter, Timing
from memory_core.errors import EmbeddingUnavailableError, ThrottledError
from tests.unit.adapters.virtual_time import VirtualTime

FAR = 1e9


def make_limiter(
    clock: VirtualTime,
    *,
    concurrency: int = 4,
    tokens: int | None = None,
    requests: int | None = None,
    chance: Callable[[], float] = lambda: 0.5,
) -> ProviderLimiter:
    """A limiter in virtual time."""
    return ProviderLimiter(
        concurrency=concurrency,
        timing=clock.timing(chance),
        tokens_per_minute=tokens,
        requests_per_minute=requests,
    )


async def admit_once(limiter: ProviderLimiter, tokens: int = 1, *, deadline: float = FAR) -> Permit:
    """Take a permit and give the place back at once."""
    async with limiter.admit(tokens, deadline=deadline) as permit:
        return permit


async def test_no_more_than_allowed_at_a_time_and_in_turn() -> None:
    """Who came first goes first, and a free place is taken at once."""
    clock = VirtualTime()
    limiter = make_limiter(clock, concurrency=2)
    order: list[int] = []
    most = now = 0

    async def send(number: int) -> None:
        nonlocal most, now
        async with limiter.admit(1, deadline=FAR):
            now += 1
            most = max(most, now)
            order.append(number)
            await clock.sleep(1)
            now -= 1

    async with clock.passing():
        await asyncio.gather(*map(send, range(9)))

    assert most == 2
    assert order == list(range(9))
    assert clock.seconds == 1_005


async def test_a_budget_of_requests_is_kept() -> None:
    """After a burst of a tenth, one request in each second of a budget of sixty."""
    clock = VirtualTime()
    limiter = make_limiter(clock, requests=60)
    async with clock.passing():
        for _ in range(66):
            await admit_once(limiter)

    assert clock.seconds == pytest.approx(1_060, abs=0.01)


async def test_a_budget_of_tokens_is_kept_by_the_providers_count() -> None:
    """What the estimate was wrong by is given back or waited for."""
    clock = VirtualTime()
    limiter = make_limiter(clock, tokens=6_000)
    async with clock.passing():
        permit = await admit_once(limiter, 600)  # all that a rest saves up
        limiter.note_answer(permit, tokens=1_100)
        await admit_once(limiter, 100)

    assert clock.seconds == pytest.approx(1_006)


async def test_a_request_above_the_budget_is_sent_and_paid_off() -> None:
    """It would never go otherwise; those behind it wait until the budget is whole."""
    clock = VirtualTime()
    limiter = make_limiter(clock, tokens=6_000)
    async with clock.passing():
        await admit_once(limiter, 6_000)
        assert clock.seconds == 1_000
        await admit_once(limiter, 1)

    assert clock.seconds == pytest.approx(1_054.01)


async def test_a_query_does_not_wait_behind_a_big_run() -> None:
    """It goes ahead of all documents that wait, and waits for its own few tokens only."""
    clock = VirtualTime()
    limiter = make_limiter(clock, tokens=6_000)
    order: list[str] = []

    async def send(name: str, tokens: int) -> None:
        async with limiter.admit(tokens, deadline=FAR, is_urgent=name == "query"):
            order.append(f"{name} at {clock.seconds:.1f}")

    async with clock.passing():
        await admit_once(limiter, 600)
        run = [asyncio.create_task(send("document", 600)) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        await send("query", 10)
        await asyncio.gather(*run)

    assert order == ["query at 1000.1", "document at 1006.1", "document at 1012.1", "document at 1018.1"]


async def test_a_429_pauses_everybody_once() -> None:
    """Four requests of one storm are one pause, not four that add up."""
    clock = VirtualTime()
    limiter = make_limiter(clock)
    async with clock.passing():
        permits = [await admit_once(limiter) for _ in range(4)]
        for permit in permits:
            limiter.note_throttle(permit, retry_after_seconds=20)
        await asyncio.gather(*(admit_once(limiter) for _ in range(4)))

    assert clock.seconds == pytest.approx(1_020.5)  # and half of the spread, a second at most


async def test_one_storm_doubles_the_pause_once() -> None:
    """Eight requests that were refused together are one sign that the provider is busy."""
    clock = VirtualTime()
    limiter = make_limiter(clock, concurrency=8, chance=lambda: 0.0)
    async with clock.passing():
        for permit in [await admit_once(limiter) for _ in range(8)]:
            limiter.note_throttle(permit, retry_after_seconds=None)
        limiter.note_throttle(await admit_once(limiter), retry_after_seconds=None)
        await admit_once(limiter)

    assert clock.seconds == 1_003  # a second, then two


async def test_nobody_storms_after_a_pause() -> None:
    """One goes first, then two, then four: each answer lets one more go at a time."""
    clock = VirtualTime()
    limiter = make_limiter(clock, concurrency=8)
    begun: Counter[float] = Counter()

    async def send() -> None:
        async with limiter.admit(1, deadline=FAR) as permit:
            begun[clock.seconds] += 1
            await clock.sleep(1)
            limiter.note_answer(permit, tokens=None)

    async with clock.passing():
        limiter.note_throttle(await admit_once(limiter), retry_after_seconds=5)
        await asyncio.gather(*(send() for _ in range(27)))

    assert list(begun.values()) == [1, 2, 4, 8, 8, 4]
    assert min(begun) >= 1_005


async def test_pauses_without_a_number_grow_with_full_jitter() -> None:
    """Each storm doubles the ceiling up to a minute, and an answer begins anew."""
    clock = VirtualTime()
    chances = random.Random(7)
    limiter = make_limiter(clock, chance=chances.random)
    pauses: list[float] = []
    permit = await admit_once(limiter)
    async with clock.passing():
        for _ in range(9):
            limiter.note_throttle(await admit_once(limiter), retry_after_seconds=None)
            before = clock.seconds
            permit = await admit_once(limiter)
            pauses.append(clock.seconds - before)
        limiter.note_answer(permit, tokens=None)
        limiter.note_throttle(await admit_once(limiter), retry_after_seconds=None)
        before = clock.seconds
        await admit_once(limiter)

    ceilings = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert all(0 < pause <= ceiling for pause, ceiling in zip(pauses, ceilings, strict=True))
    assert max(pauses) > 20
    assert clock.seconds - before <= 1


async def test_a_server_that_always_says_zero_is_not_asked_without_an_end() -> None:
    """Its pauses grow as if it had said nothing."""
    clock = VirtualTime()
    limiter = make_limiter(clock)
    async with clock.passing():
        for _ in range(10):
            limiter.note_throttle(await admit_once(limiter), retry_after_seconds=0)
        await admit_once(limiter)

    assert clock.seconds > 1_150


async def test_an_absurd_pause_stops_at_once_and_says_until_when() -> None:
    """Nobody sleeps an hour to fail then."""
    clock = VirtualTime()
    limiter = make_limiter(clock)
    async with clock.passing():
        limiter.note_throttle(await admit_once(limiter), retry_after_seconds=3_600)
        with pytest.raises(ThrottledError, match=r"until 2026-11-30 13:00:00 UTC.*DEADLINE") as caught:
            await admit_once(limiter, deadline=limiter.deadline_in(300))

    assert clock.seconds == 1_000
    assert caught.value.retryable
    assert caught.value.retry_after_seconds == pytest.approx(3_600, abs=1)


async def test_the_deadline_ends_every_wait() -> None:
    """Behind others it ends the wait for a place; a budget that comes too late ends it at once."""
    clock = VirtualTime()
    limiter = make_limiter(clock, concurrency=1, requests=6)
    async with clock.passing(), limiter.admit(1, deadline=FAR):
        with pytest.raises(EmbeddingUnavailableError, match="EMBEDDING_DEADLINE_SECONDS"):
            await admit_once(limiter, deadline=clock.seconds + 30)
        assert clock.seconds == 1_030
    await admit_once(limiter)
    with pytest.raises(EmbeddingUnavailableError, match="REQUESTS_PER_MINUTE"):
        await admit_once(limiter, deadline=clock.seconds + 5)
    assert clock.seconds == 1_030


async def test_a_backoff_beyond_the_deadline_keeps_the_fault() -> None:
    """The error says what the provider said last."""
    clock = VirtualTime()
    limiter = make_limiter(clock)
    with pytest.raises(EmbeddingUnavailableError) as caught:
        await limiter.back_off(9, deadline=clock.seconds + 1, cause=EmbeddingUnavailableError("502 from the gateway"))

    assert caught.value.cause == "EmbeddingUnavailableError: 502 from the gateway"


async def test_a_cancelled_waiter_gives_its_turn_to_the_next() -> None:
    """Neither its place in the queue nor a task stays behind."""
    clock = VirtualTime()
    limiter = make_limiter(clock, concurrency=1)
    async with limiter.admit(1, deadline=FAR):
        first, second = (asyncio.create_task(admit_once(limiter)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert not second.done()
    await second

    assert len(asyncio.all_tasks()) == 1


def test_event_loops_of_several_threads_share_a_limiter() -> None:
    """As tasks of a flow do: each thread has its loop, together they keep to the limit, and nobody is forgotten."""
    timing = Timing(now=time.monotonic, sleep=asyncio.sleep, random=random.random, clock=VirtualTime().clock)
    limiter = ProviderLimiter(concurrency=2, timing=timing)
    under_way: list[int] = []
    now: set[object] = set()

    async def send() -> None:
        async with limiter.admit(1, deadline=limiter.deadline_in(20)):
            mark = object()
            now.add(mark)
            under_way.append(len(now))
            await asyncio.sleep(0.001)
            now.discard(mark)

    async def send_many() -> None:
        await asyncio.gather(*(send() for _ in range(25)))

    async def run_threads() -> None:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, send_many()) for _ in range(4)))

    asyncio.run(run_threads())

    assert len(under_way) == 100
    assert max(under_way) == 2
