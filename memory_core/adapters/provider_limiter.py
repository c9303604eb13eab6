"""How fast a provider may be asked. In: the wish to send so many tokens. Out: a permit, in turn, or an error. No I/O.

One limiter serves a whole process: its embedding calls come from several threads with an event loop each, so its state
is behind a lock and belongs to no loop. Whoever waits is served in turn, queries first. After a 429 everybody waits
once, then one request goes first, and each answer lets one more go at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from memory_core.embedding_ports import EmbeddingKind
from memory_core.errors import EmbeddingUnavailableError, ThrottledError

_BURST_SECONDS: Final = 6.0  # of a budget may be spent at once after a rest: a minute has at most a tenth more
_SECONDS_PER_MINUTE: Final = 60.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_LONGEST_ASKED_PAUSE_SECONDS: Final = 3_600.0  # a server that asks for a day may be asked again within the hour
_PAUSE_SPREAD: Final = 0.1  # other processes heard the same number
_FIRST_BACK_OFF_SECONDS: Final = 0.25
_LONGEST_BACK_OFF_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time and chance: `now` in seconds that never go back, `random` in 0 up to 1, `clock` for messages."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    clock: Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """How long and how often one request is tried.

    `attempts` counts faults of the provider (5xx, time-outs, broken connections). A 429 is no fault of the request: it
    pauses everybody, and only the deadline ends that. `deadline_seconds` is the time of one call in which requests are
    begun; a request that was begun has its own time-out, because it is paid for. Somebody waits for a query, so its
    deadline is shorter.
    """

    attempts: int
    timeout_seconds: float
    deadline_seconds: float
    query_deadline_seconds: float = 15.0

    def deadline_of(self, kind: EmbeddingKind) -> float:
        """Seconds in which requests of one call are begun."""
        if kind == "document":
            return self.deadline_seconds
        return min(self.deadline_seconds, self.query_deadline_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The right to send one request. `storm` is how many pauses there had been when it was given."""

    tokens: int
    storm: int


@dataclass(slots=True, eq=False)
class _Ticket:
    """Somebody's place in the queue. `woken` is set by whoever makes it the first."""

    tokens: int
    loop: asyncio.AbstractEventLoop
    woken: asyncio.Future[None] | None = None


@dataclass(slots=True)
class _Bucket:
    """A budget that fills with time. Its level may be below zero: then what was overdrawn is waited for."""

    per_second: float
    level: float
    filled_at: float

    @property
    def capacity(self) -> float:
        """What a rest can save up; at least one request."""
        return max(self.per_second * _BURST_SECONDS, 1.0)

    def seconds_until(self, amount: float, now: float) -> float:
        """How long until so much, or all that the bucket holds, can be taken."""
        self.level = min(self.capacity, self.level + (now - self.filled_at) * self.per_second)
        self.filled_at = now
        missing = min(amount, self.capacity) - self.level
        return missing / self.per_second if missing > _DUST else 0.0


_DUST: Final = 1e-6  # what sums of fractions of a second are wrong by


@dataclass(slots=True)
class _Queue:
    """Those who wait: queries, then documents, each in the order they came."""

    urgent: deque[_Ticket] = field(default_factory=deque[_Ticket])
    others: deque[_Ticket] = field(default_factory=deque[_Ticket])

    def first(self) -> _Ticket | None:
        return self.urgent[0] if self.urgent else self.others[0] if self.others else None

    def remove(self, ticket: _Ticket) -> None:
        for line in (self.urgent, self.others):
            if ticket in line:
                line.remove(ticket)


class ProviderLimiter:
    """Budgets per minute, requests at a time and one pause for all, shared by all calls of a process to a provider."""

    def __init__(
        self,
        *,
        concurrency: int,
        timing: Timing,
        tokens_per_minute: int | None = None,
        requests_per_minute: int | None = None,
    ) -> None:
        self._timing = timing
        self._concurrency = concurrency
        self._tokens = self._make_bucket(tokens_per_minute)
        self._requests = self._make_bucket(requests_per_minute)
        self._lock = threading.Lock()
        self._queue = _Queue()
        self._in_flight = 0
        self._open = concurrency  # how many may be in flight now: 1 after a pause, one more with each answer
        self._storm = 0
        self._pauses_in_a_row = 0
        self._paused_until = timing.now()

    @property
    def concurrency(self) -> int:
        """How many requests may be under way at a time."""
        return self._concurrency

    def deadline_in(self, seconds: float) -> float:
        """The moment, on the limiter's clock, so many seconds from now."""
        return self._timing.now() + seconds

    @asynccontextmanager
    async def admit(self, tokens: int, *, deadline: float, is_urgent: bool = False) -> AsyncGenerator[Permit, None]:
        """Wait for one's turn, the budgets, a free place and the end of a pause; hold the place until the end.

        Raises:
            ThrottledError: the provider's pause is longer than the time left; says until when.
            EmbeddingUnavailableError: the time left is over, or the budget will not be there in time.
        """
        permit = await self._wait_for_permit(tokens, deadline=deadline, is_urgent=is_urgent)
        try:
            yield permit
        finally:
            with self._lock:
                self._in_flight -= 1
                self._wake_first()

    def note_answer(self, permit: Permit, *, tokens: int | None) -> None:
        """The provider answered: more may go at a time, and the budget is set right by its own count of tokens."""
        with self._lock:
            if permit.storm == self._storm:
                self._pauses_in_a_row = 0
                self._open = min(self._open + 1, self._concurrency)
            if self._tokens is not None and tokens is not None:
                self._tokens.level += permit.tokens - tokens
            self._wake_first()

    def note_throttle(self, permit: Permit, *, retry_after_seconds: float | None) -> None:
        """The provider answered 429: everybody pauses. Those that were under way together are one storm."""
        timing = self._timing
        with self._lock:
            is_new = permit.storm == self._storm
            if is_new:
                self._storm += 1
                self._pauses_in_a_row += 1
                self._open = 1
            doublings = max(self._pauses_in_a_row - 1, 0)
            if retry_after_seconds is not None:
                # A server that says 0 again and again is not asked again and again.
                least = _ceiling(_FIRST_BACK_OFF_SECONDS, doublings, _LONGEST_PAUSE_SECONDS)
                asked = min(max(retry_after_seconds, least), _LONGEST_ASKED_PAUSE_SECONDS)
                pause = asked + min(asked * _PAUSE_SPREAD, 1.0) * timing.random()
            elif is_new:
                ceiling = _ceiling(_FIRST_PAUSE_SECONDS, doublings, _LONGEST_PAUSE_SECONDS)
                pause = ceiling * (1.0 - timing.random())  # full jitter without its zero
            else:
                return
            self._paused_until = max(self._paused_until, timing.now() + pause)

    async def back_off(self, faults: int, *, deadline: float, cause: Exception) -> None:
        """Sleep before the attempt that follows so many faults, the last of which is the cause, with full jitter.

        Raises:
            EmbeddingUnavailableError: the time left is over.
        """
        ceiling = _ceiling(_FIRST_BACK_OFF_SECONDS, faults - 1, _LONGEST_BACK_OFF_SECONDS)
        seconds = ceiling * (1.0 - self._timing.random())
        self._check_deadline(self._timing.now() + seconds, deadline, cause=cause)
        await self._timing.sleep(seconds)

    def _make_bucket(self, per_minute: int | None) -> _Bucket | None:
        if per_minute is None:
            return None
        bucket = _Bucket(per_second=per_minute / _SECONDS_PER_MINUTE, level=0.0, filled_at=self._timing.now())
        bucket.level = bucket.capacity
        return bucket

    # --- waiting

    async def _wait_for_permit(self, tokens: int, *, deadline: float, is_urgent: bool) -> Permit:
        ticket = _Ticket(tokens=tokens, loop=asyncio.get_running_loop())
        with self._lock:
            (self._queue.urgent if is_urgent else self._queue.others).append(ticket)
        try:
            while True:
                found = self._try_take(ticket, deadline)
                if isinstance(found, Permit):
                    return found
                if isinstance(found, asyncio.Future):
                    await self._wait_until_woken(found, deadline)
                else:
                    await self._timing.sleep(found)
        finally:
            with self._lock:
                self._queue.remove(ticket)
                self._wake_first()

    def _try_take(self, ticket: _Ticket, deadline: float) -> Permit | float | asyncio.Future[None]:
        """A permit, or the seconds until the budgets and the pause allow one, or what to wait for."""
        with self._lock:
            now = self._timing.now()
            self._check_pause(deadline)
            self._check_deadline(now, deadline)
            if self._queue.first() is not ticket or self._in_flight >= self._open:
                ticket.woken = ticket.loop.create_future()
                return ticket.woken
            ticket.woken = None
            wait = max(
                self._paused_until - now,
                self._tokens.seconds_until(ticket.tokens, now) if self._tokens else 0.0,
                self._requests.seconds_until(1, now) if self._requests else 0.0,
            )
            if wait > 0:
                self._check_deadline(now + wait, deadline)
                return wait
            for bucket, amount in ((self._tokens, ticket.tokens), (self._requests, 1)):
                if bucket is not None:
                    bucket.level -= amount
            self._in_flight += 1
            return Permit(tokens=ticket.tokens, storm=self._storm)

    async def _wait_until_woken(self, woken: asyncio.Future[None], deadline: float) -> None:
        timer = asyncio.ensure_future(self._timing.sleep(max(deadline - self._timing.now(), 0.0)))
        try:
            await asyncio.wait({woken, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)  # nothing of this call is left running

    def _wake_first(self) -> None:
        """Let the first look again, in its own loop. Called with the lock held."""
        while (ticket := self._queue.first()) is not None:
            if ticket.woken is None:
                return  # it sleeps and will look by itself
            try:
                ticket.loop.call_soon_threadsafe(_set_done, ticket.woken)
            except RuntimeError:  # its loop was closed under it: nobody waits there any more
                self._queue.remove(ticket)
            else:
                return

    # --- giving up

    def _check_pause(self, deadline: float) -> None:
        if self._paused_until <= deadline:
            return
        seconds = self._paused_until - self._timing.now()
        until = self._timing.clock() + timedelta(seconds=seconds)
        raise ThrottledError(
            f"The embedding provider answered 429, and the pause of {seconds:,.0f} s, until "
            f"{until:%Y-%m-%d %H:%M:%S %Z}, is longer than the time that this batch has left "
            "(EMBEDDING_DEADLINE_SECONDS). Vectors that were paid for are kept; try again after the pause.",
            retry_after_seconds=seconds,
        )

    def _check_deadline(self, moment: float, deadline: float, *, cause: Exception | None = None) -> None:
        if moment >= deadline:
            raise EmbeddingUnavailableError(
                "The time of this batch of embeddings is over (EMBEDDING_DEADLINE_SECONDS), or the budgets "
                "(EMBEDDING_TOKENS_PER_MINUTE, EMBEDDING_REQUESTS_PER_MINUTE) leave no room before it is. Vectors "
                "that were paid for are kept; try again, or allow more.",
                cause=cause,
            )


def _ceiling(first: float, doublings: int, longest: float) -> float:
    return min(first * 2.0 ** min(doublings, 16), longest)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
