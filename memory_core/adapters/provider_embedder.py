"""Groups of texts in, their vectors out, from a provider that is paid by the token. What was paid for is never lost.

The order of things: what the cache has is taken from it, the rest is planned into requests, several are under way at a
time as the limiter allows, and each answer is in the cache before anything else is done with it. Attempts are counted
here and nowhere else. It logs nothing, and it sends nothing but through its transport.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast

from memory_core.adapters.provider_cache import PaidVectors
from memory_core.adapters.provider_limiter import ProviderLimiter, RequestPolicy
from memory_core.adapters.provider_results import is_retryable, match_vectors, result_of, say_attempts
from memory_core.calibration import Calibration
from memory_core.embed import check_groups
from memory_core.embedding_plan import (
    PlacedUnit,
    PlannedRequest,
    Unit,
    assemble,
    find_leaves,
    fit,
    halve,
    lay_out,
    pack,
)
from memory_core.embedding_ports import (
    EmbeddingCache,
    EmbeddingKind,
    EmbeddingResult,
    EmbeddingTransport,
    EmbeddingUsage,
    ProviderAnswer,
    ProviderLimits,
)
from memory_core.errors import (
    EmbeddingUnavailableError,
    StorageError,
    ThrottledError,
    TooManyTokensError,
)
from memory_core.models import Vector
from memory_core.ports import TokenCounter

_REFUSALS_REMEMBERED: Final = 4_096
_WRITTEN_BETWEEN_EVICTIONS: Final = 5_000
_WAVE_GROWTH: Final = 8
_TASKS_PER_PLACE: Final = 2  # one waits for its turn while another writes to the cache; more would only grow stale


@dataclass(slots=True, kw_only=True)
class _Call:
    """What one call of `embed` knows so far. `under_way` are the tasks whose request is paid for and not kept yet."""

    kind: EmbeddingKind
    deadline: float
    paid: PaidVectors
    vectors: dict[Unit, Vector] = field(default_factory=dict[Unit, Vector])
    found: set[Unit] = field(default_factory=set[Unit])
    planned: set[Unit] = field(default_factory=set[Unit])
    halves: dict[Unit, tuple[Unit, Unit]] = field(default_factory=dict[Unit, tuple[Unit, Unit]])
    under_way: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])
    is_over: bool = False
    tokens: int = 0
    requests: int = 0


class _Attempt(StrEnum):
    """How one attempt ended that did not fail."""

    ANSWERED = "answered"
    REFUSED = "refused"  # too many tokens: to be cut
    POSTPONED = "postponed"  # by a 429, or not sent because another request failed


class ProviderEmbedder:
    """The port `Embedder` over a transport. One serves all threads of a process, as its limiter does.

    `on_cache_fault` hears of every read or write that the cache failed; the call goes on without it.
    """

    def __init__(
        self,
        transport: EmbeddingTransport,
        *,
        cache: EmbeddingCache,
        counter: TokenCounter,
        limiter: ProviderLimiter,
        policy: RequestPolicy,
        clock: Callable[[], datetime],
        on_cache_fault: Callable[[StorageError], None],
    ) -> None:
        self._transport = transport
        self._cache = cache
        self._counter = counter
        self._limiter = limiter
        self._policy = policy
        self._clock = clock
        self._on_cache_fault = on_cache_fault
        # Shared by threads without a lock: each is replaced as a whole, and a lost update is learned again.
        self._learned = Calibration()
        self._refused: tuple[str, ...] = ()
        self._written = _WRITTEN_BETWEEN_EVICTIONS

    @property
    def provider(self) -> str:
        """Name for fingerprints."""
        return self._transport.provider

    @property
    def model(self) -> str:
        """The model's name."""
        return self._transport.model

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        return self._transport.dimensions

    @property
    def max_input_tokens(self) -> int | None:
        """No limit: longer texts are windowed."""
        return None

    @property
    def is_contextual(self) -> bool:
        """As the transport says."""
        return self._transport.is_contextual

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Embed every text. `usage` counts the provider's tokens (ours where it tells none) and what was really sent.

        Raises:
            ValidationError: an empty group or a blank text.
            EmbeddingError: the provider refused for good, or its answer was wrong; nothing more was sent after it.
            EmbeddingUnavailableError: its faults outlasted the attempts, or its pauses the deadline. As above, what had
                been answered is in the cache.
        """
        check_groups(groups, kind=kind)
        call = _Call(
            kind=kind,
            deadline=self._limiter.deadline_in(self._policy.deadline_of(kind)),
            paid=PaidVectors(self._cache, self._transport, kind=kind, clock=self._clock, on_fault=self._on_cache_fault),
        )
        layouts: list[tuple[PlacedUnit, ...]] = []
        await self._send_all(self._lay_out_waves(groups, layouts, call), call)
        await self._evict(len(call.vectors) - len(call.found))
        return _assemble_all(layouts, call, is_contextual=self.is_contextual)

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()

    async def _evict(self, written: int) -> None:
        """Keep the cache within its bounds: with the first vectors of this process, and now and then."""
        if not written:
            return
        self._written += written
        if self._written >= _WRITTEN_BETWEEN_EVICTIONS:
            self._written = 0
            try:
                await self._cache.evict(now=self._clock())
            except StorageError as error:
                self._on_cache_fault(error)

    # --- planning

    async def _lay_out_waves(
        self, groups: Sequence[Sequence[str]], layouts: list[tuple[PlacedUnit, ...]], call: _Call
    ) -> AsyncGenerator[list[PlannedRequest], None]:
        """Yield requests, a wave of documents at a time; `layouts` grows. The first are sent while more are counted.

        Each wave leaves a request that is not full, so there are few: the next one is always so many times as large.
        """
        texts = self._limiter.concurrency * self._transport.limits.request_texts
        start = 0
        while start < len(groups):
            stop, room = start, texts
            while stop < len(groups) and room > 0:
                room -= len(groups[stop])
                stop += 1
            wave = await asyncio.to_thread(self._lay_out, groups[start:stop], call.paid)
            layouts += wave
            await self._take_cached((placed.unit for layout in wave for placed in layout), call)
            yield self._plan(wave, call)
            start, texts = stop, texts * _WAVE_GROWTH

    def _lay_out(self, groups: Sequence[Sequence[str]], paid: PaidVectors) -> list[tuple[PlacedUnit, ...]]:
        """Count, cut and hash: the part that keeps a processor busy."""
        limits = self._unit_limits()
        layouts = [
            lay_out(group, counter=self._counter, limits=limits, is_contextual=self.is_contextual) for group in groups
        ]
        paid.derive_keys(placed.unit for layout in layouts for placed in layout)
        return layouts

    def _unit_limits(self) -> ProviderLimits:
        """By what units are cut. A contextual model's are cut by the published limits, then by refusals alone.

        So a document has the same windows whatever this process has learned from others before it.
        """
        limits = self._transport.limits
        return limits if self.is_contextual else self._learned.narrow(limits)

    def _plan(self, layouts: Sequence[Sequence[PlacedUnit]], call: _Call) -> list[PlannedRequest]:
        """Requests for what is not there yet; equal units are sent once, with the first document that has them."""
        documents: list[list[Unit]] = []
        for layout in layouts:
            units = (placed.unit for placed in layout)
            # A dict, because a document may hold a text twice.
            missing = dict.fromkeys(unit for unit in units if unit not in call.vectors and unit not in call.planned)
            call.planned.update(missing)
            documents.append(list(missing))
        limits = self._transport.limits
        return pack(documents, room=self._learned.room(limits), limits=limits, is_contextual=self.is_contextual)

    async def _take_cached(self, units: Iterable[Unit], call: _Call) -> None:
        wanted = (unit for unit in dict.fromkeys(units) if unit not in call.vectors and unit not in call.planned)
        found = await call.paid.read(wanted)
        call.vectors |= found
        call.found |= set(found)

    # --- sending

    async def _send_all(self, waves: AsyncGenerator[list[PlannedRequest], None], call: _Call) -> None:
        """Settle all requests and those that come of them. After a failure nothing more is sent.

        What is under way by then is paid for: it is awaited and kept. A caller that is cancelled waits for nothing.
        """
        failures: list[Exception] = []
        queue: deque[PlannedRequest] = deque()
        running: set[asyncio.Task[Sequence[PlannedRequest]]] = set()
        wave: asyncio.Task[list[PlannedRequest] | None] | None = asyncio.create_task(_next_wave(waves))
        try:
            while running or ((queue or wave) and not call.is_over):
                while queue and not call.is_over and len(running) < self._limiter.concurrency * _TASKS_PER_PLACE:
                    running.add(asyncio.create_task(self._settle(queue.popleft(), call)))
                await asyncio.wait({*running, wave} if wave else running, return_when=asyncio.FIRST_COMPLETED)
                done = {task for task in running if task.done()}
                running -= done
                further = [planned for task in done for planned in result_of(task, failures)]
                queue.extendleft(reversed(further))
                if wave and wave.done():
                    planned = wave.result()
                    queue.extend(planned or ())
                    wave = None if planned is None else asyncio.create_task(_next_wave(waves))
                for task in running - call.under_way if call.is_over else ():
                    task.cancel()
        finally:
            unfinished: list[asyncio.Task[Any]] = [*running, *([wave] if wave else [])]
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
            await waves.aclose()
        if failures:
            raise min(failures, key=is_retryable)  # the one that no retry can heal, if there is one

    async def _settle(self, planned: PlannedRequest, call: _Call) -> Sequence[PlannedRequest]:
        """Try a request until it is answered or given up; return the smaller ones that take its place if it is cut."""
        try:
            smaller = await self._cut_beforehand(planned, call)
            return await self._try_until_settled(planned, call) if smaller is None else smaller
        except Exception:
            call.is_over = True
            raise

    async def _try_until_settled(self, planned: PlannedRequest, call: _Call) -> Sequence[PlannedRequest]:
        faults = 0
        while not call.is_over:
            match await self._attempt(planned, call):
                case _Attempt.ANSWERED:
                    return ()
                case _Attempt.REFUSED:
                    return await self._cut(planned, call)
                case _Attempt.POSTPONED:
                    continue
                case fault:
                    faults += 1
                    if faults >= self._policy.attempts:
                        raise say_attempts(fault, faults)
                    if not call.is_over:
                        await self._limiter.back_off(faults, deadline=call.deadline, cause=fault)
        return ()

    async def _attempt(self, planned: PlannedRequest, call: _Call) -> _Attempt | EmbeddingUnavailableError:
        """Send a request once, when it is its turn, and keep the answer before anything else can go wrong.

        A fault that a further attempt may heal is returned; what is raised ends the call.
        """
        estimate = self._learned.estimate(planned.tokens)
        task = cast("asyncio.Task[object]", asyncio.current_task())
        try:
            async with self._limiter.admit(estimate, deadline=call.deadline, is_urgent=call.kind == "query") as permit:
                if call.is_over:
                    return _Attempt.POSTPONED
                call.under_way.add(task)
                call.requests += 1
                try:
                    answer = await self._transport.send(
                        planned.write(call.kind), timeout_seconds=self._policy.timeout_seconds
                    )
                except ThrottledError as error:
                    self._limiter.note_throttle(permit, retry_after_seconds=error.retry_after_seconds)
                    return _Attempt.POSTPONED
                except EmbeddingUnavailableError as error:
                    return error
                except TooManyTokensError as error:
                    self._limiter.note_answer(permit, tokens=None)
                    self._note_refusal(planned, error)
                    return _Attempt.REFUSED
                self._limiter.note_answer(permit, tokens=answer.tokens)
            await self._keep(planned, answer, call)
            return _Attempt.ANSWERED
        finally:
            call.under_way.discard(task)

    async def _keep(self, planned: PlannedRequest, answer: ProviderAnswer, call: _Call) -> None:
        self._learned = self._learned.observed(planned.tokens, answer.tokens)
        call.tokens += planned.tokens if answer.tokens is None else answer.tokens
        vectors = dict(match_vectors(planned, answer))
        call.vectors |= vectors
        await call.paid.write(vectors)

    # --- refusals

    def _note_refusal(self, planned: PlannedRequest, error: TooManyTokensError) -> None:
        self._learned = self._learned.refused_at(
            planned.tokens,
            units=len(planned.units),
            limits=self._transport.limits,
            limit=error.limit,
            sent=error.sent,
        )
        self._refused = (*self._refused[1 - _REFUSALS_REMEMBERED :], planned.digest)

    async def _cut_beforehand(self, planned: PlannedRequest, call: _Call) -> Sequence[PlannedRequest] | None:
        """Smaller requests in place of one of which it is known by now that it is too big; else None."""
        if not self._learned.has_refusals and not self._refused:
            return None
        if planned.digest in self._refused:
            return await self._cut(planned, call)
        fitting = await self._fit([planned], {}, call)
        return None if fitting == [planned] else fitting

    async def _cut(self, planned: PlannedRequest, call: _Call) -> Sequence[PlannedRequest]:
        smaller, halves = halve(planned, counter=self._counter)
        return await self._fit(smaller, halves, call)

    async def _fit(
        self, requests: Iterable[PlannedRequest], halves: dict[Unit, tuple[Unit, Unit]], call: _Call
    ) -> list[PlannedRequest]:
        """The requests under the limits that are known now, without what the cache has of units that were cut."""
        limits = self._unit_limits()
        room = self._learned.room(self._transport.limits)
        fitted: list[PlannedRequest] = []
        for planned in requests:
            smaller, further = fit(
                planned, counter=self._counter, room=room, limits=limits, is_contextual=self.is_contextual
            )
            halves |= further
            fitted += smaller
        call.halves |= halves
        cut = {half for pair in halves.values() for half in pair}
        await self._take_cached((unit for planned in fitted for unit in planned.units if unit in cut), call)
        return [left for planned in fitted if (left := planned.without(call.vectors)) is not None]


async def _next_wave(waves: AsyncGenerator[list[PlannedRequest], None]) -> list[PlannedRequest] | None:
    return await anext(waves, None)


def _assemble_all(layouts: Sequence[Sequence[PlacedUnit]], call: _Call, *, is_contextual: bool) -> EmbeddingResult:
    groups: list[Vector] = []
    windows: list[tuple[int, ...]] = []
    spans: list[tuple[int, ...]] = []
    cached: list[int] = []
    for layout in layouts:
        leaves = [leaf for placed in layout for leaf in find_leaves(placed, call.halves)]
        vectors, counts = assemble(leaves, call.vectors)
        groups.append(vectors)
        windows.append(counts)
        spans.append(tuple(len(leaf.places) for leaf in leaves) if is_contextual and len(leaves) > 1 else ())
        paid_now = {place for leaf in leaves if leaf.unit not in call.found for place in leaf.places}
        cached.append(len(counts) - len(paid_now))
    return EmbeddingResult(
        groups=groups,
        windows=windows,
        usage=EmbeddingUsage(tokens=call.tokens, requests=call.requests),
        spans=spans,
        cached=cached,
    )
