"""The process that `crash.py` kills. In: a seed. Out: a log of what it began and of what was acknowledged.

A line is written ahead of each operation, and another one, on the disk, only after its answer. Before the first write
it looks at what the last one left.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from crash_checks import HEALED_BY_THE_NEXT_STORE, Fault, Row, Seen, judge_rows
from crash_place import Place, read_view, seen_in
from crash_texts import SOURCES, Draft, draft_next, read_uri

from memory_core.adapters.mongo_connection import MongoConnection
from memory_core.errors import AgentMemoryError
from memory_core.models import Outcome, StoreRequest
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest

_MAX_BATCH = 6
_DELETIONS = 0.12
_T = TypeVar("_T")


@dataclass(slots=True)
class Log:
    """Lines of JSON that a kill does not take back."""

    handle: int

    def write(self, line: Row, *, durable: bool = False) -> None:
        """One line in one write."""
        os.write(self.handle, (json.dumps(line) + "\n").encode())
        if durable:
            os.fsync(self.handle)


@dataclass(slots=True)
class Writer:
    """A core that stores, and what it knows of each source. `number` is that of this process."""

    core: Core
    connection: MongoConnection
    place: Place
    log: Log
    number: int
    generator: random.Random
    known: dict[str, Seen] = field(default_factory=dict[str, Seen])
    _counted: int = 0

    async def start(self) -> None:
        """Do what every process does before its first write, with a look before it and one behind it."""
        if self.place.atomic:
            await self.look(allowed=frozenset())  # nothing may be left, not even for a moment
        await ask_until_answered(lambda: self.core.store.prepare(self.core.fingerprint, recipe=self.core.recipe))
        await self.look(allowed=frozenset() if self.place.atomic else HEALED_BY_THE_NEXT_STORE)

    async def look(self, *, allowed: frozenset[str]) -> None:
        """Write down what is stored and what is wrong with it."""
        read = self.connection.run
        view = await ask_until_answered(lambda: read(read_view, self.connection, atomic=self.place.atomic))
        self.known = seen_in(view)
        findings = [one for one in judge_rows(view) if one.fault not in allowed]
        seen = {name: asdict(one) for name, one in self.known.items()}
        self.log.write({"look": seen, "findings": [asdict(one) for one in findings]})

    async def work(self) -> None:
        """One operation after the other, until somebody ends it."""
        while True:
            if self.generator.random() < _DELETIONS and self.known:
                is_answered = await self.delete(self.generator.sample(sorted(self.known), 1))
            else:
                count = self.generator.randint(1, _MAX_BATCH)
                names = self.generator.sample(SOURCES, count)
                is_answered = await self.store([self.choose(name) for name in names])
            if not is_answered:
                # What was begun may be done meanwhile; leftovers of it are for the next process.
                await self.look(allowed=frozenset(Fault))

    def choose(self, name: str) -> tuple[Draft, str]:
        """What to store next under this source: another text, other attributes, or the same again."""
        seen = self.known.get(name)
        before = read_uri(seen.uri) if seen and seen.uri else None
        kind = self.generator.choice(("text", "text", "text", "text", "attributes", "same"))
        serial = self._count()
        if seen is None or before is None or kind == "text":
            return draft_next(self.generator, name, serial, before), f"tag-{serial}"
        return before, f"tag-{serial}" if kind == "attributes" else seen.tag or f"tag-{serial}"

    async def store(self, wanted: Sequence[tuple[Draft, str]]) -> bool:
        """Store a batch. False where a part of it was not acknowledged."""
        operations = [self._begin(draft.source, draft.uri, tag) for draft, tag in wanted]
        self.log.write({"begin": operations})
        outcomes = await store_content([ask_for(draft, tag) for draft, tag in wanted], core=self.core)
        results: list[Row] = [
            {"outcome": one.outcome, "version": one.version, "error": describe(one.error)} for one in outcomes
        ]
        self.log.write({"end": operations, "results": results}, durable=True)
        for (draft, tag), outcome in zip(wanted, outcomes, strict=True):
            if outcome.version is not None:
                self.known[draft.source] = Seen(draft.uri, tag, outcome.version)
        return all(one.outcome is not Outcome.FAILED for one in outcomes)

    async def delete(self, names: Sequence[str]) -> bool:
        """Delete sources. False where that was not acknowledged."""
        operations = [self._begin(name, None, None) for name in names]
        self.log.write({"begin": operations})
        result: Row = {"outcome": "deleted", "version": None, "error": None}
        try:
            await self.core.store.delete(DeleteSelector(source_ids=tuple(names)), now=self.core.clock())
        except AgentMemoryError as error:
            result = {"outcome": Outcome.FAILED, "version": None, "error": describe(error)}
        self.log.write({"end": operations, "results": [result] * len(operations)}, durable=True)
        for name in names:
            self.known.pop(name, None)
        return result["outcome"] == "deleted"

    def _begin(self, source: str, uri: str | None, tag: str | None) -> Row:
        return {"id": f"{self.number}-{self._count()}", "source": source, "uri": uri, "tag": tag}

    def _count(self) -> int:
        self._counted += 1
        return self.number * 1_000_000 + self._counted


def ask_for(draft: Draft, tag: str) -> StoreRequest:
    """The request that stores a draft."""
    return StoreRequest(
        request=StoreContentRequest(
            content=draft.content,
            title=draft.source,
            source_id=draft.source,
            uri=draft.uri,
            content_type="text",
            tags=[tag],
        ),
        provenance=Provenance(channel="benchmark"),
    )


def describe(error: AgentMemoryError | None) -> Mapping[str, Any] | None:
    """An error for the log."""
    return error and {"message": error.message, "cause": error.cause, "retryable": error.retryable}


async def ask_until_answered(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask again while the server is away: it is started again, and the driver waits for it."""
    while True:
        try:
            return await ask()
        except AgentMemoryError as error:
            if not error.retryable:
                raise


def run_writer(place: Place, number: int, seed: int, is_ready: Event) -> None:
    """Write until this process is killed. `is_ready` is set when the first operation is about to begin."""
    asyncio.run(_run(place, number, seed, is_ready))


def run_last(place: Place, number: int) -> None:
    """What the next run does when nobody is killed any more: it stores every source again, and nothing is wrong."""
    asyncio.run(_finish(place, number))


def _open(place: Place, number: int, seed: int) -> Writer:
    handle = os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    log = Log(handle)
    os.write(handle, b"\n")  # the last one may have been killed inside a line
    log.write({"writer": number})
    return Writer(place.open_core(), place.connect(), place, log, number, random.Random(seed))  # noqa: S311 - repeatable


async def _run(place: Place, number: int, seed: int, is_ready: Event) -> None:
    writer = _open(place, number, seed)
    await writer.start()
    is_ready.set()
    await writer.work()


async def _finish(place: Place, number: int) -> None:
    writer = _open(place, number, 0)
    await writer.start()
    again = [(read_uri(str(seen.uri)), str(seen.tag)) for seen in writer.known.values()]
    assert await writer.store(again), "the last store was refused"
    await writer.look(allowed=frozenset())
    health = await writer.core.store.check_health()
    writer.log.write({"health": health.faults, "documents": health.documents, "chunks": health.chunks}, durable=True)
    await writer.core.close()
    await writer.connection.close()
