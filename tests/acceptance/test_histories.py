"""Many writers of few sources, each with a core and a connection of its own: everybody's answers fit one history."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from pymongo import MongoClient

from deployments.services import Service, acquire
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.bootstrap import build_core
from memory_core.errors import ConflictError, NotFoundError
from memory_core.models import Outcome, StoreOutcome, StoreRequest
from memory_core.ports import Core
from memory_core.settings import load_settings
from memory_core.store_content import store_content
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest
from tests.acceptance.history_checker import Kind, Operation, check_history

pytestmark = [pytest.mark.services, pytest.mark.slow]

WRITERS = 16
STORES_EACH = 100
READERS = 2
SOURCES = tuple(f"notes/{number}" for number in range(10))
DELETIONS = 0.08  # of a writer's turns
MOST_FAILURES = 0.05  # of the stores: conflicts with deletions, which change nothing
REPETITIONS = 0.1  # of its stores: a text that it has stored before
DIMENSIONS = "16"

_T = TypeVar("_T")
OpenCore = Callable[[], Core]


@pytest.fixture
def open_core(session_home: Path, mongodb_uri: str) -> Iterator[OpenCore]:
    """Builds a core as a process of its own has it; all of them on one new database."""
    settings = load_settings(
        MEMORY_HOME=session_home,
        MONGODB_DB_NAME=f"histories_{secrets.token_hex(6)}",
        EMBEDDING_PROVIDER="hash",
        EMBEDDING_DIMENSIONS=DIMENSIONS,
        MEMORY_IDLE_STOP_SECONDS="600",
    )
    with (
        acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None),
        closing(MongoClient[dict[str, object]](mongodb_uri)) as client,
    ):
        load_tiktoken_counter().count("The table is loaded once, and not by sixteen threads at the same moment.")
        yield lambda: build_core(settings, mongodb_uri=mongodb_uri)
        client.drop_database(settings.mongodb_db_name)


def _run_together(open_core: OpenCore, works: Sequence[Callable[[Core], Awaitable[_T]]]) -> list[_T]:
    """Run each in a thread with a core of its own; all begin at the same moment."""
    ready = threading.Barrier(len(works))

    async def work_with_core(work: Callable[[Core], Awaitable[_T]]) -> _T:
        core = open_core()
        try:
            await core.store.prepare(core.fingerprint, recipe=core.recipe)
            ready.wait(timeout=60)
            return await work(core)
        finally:
            await core.close()

    with ThreadPoolExecutor(len(works)) as threads:
        started = [threads.submit(asyncio.run, work_with_core(work)) for work in works]
        return [one.result() for one in started]


async def _store(core: Core, source_id: str, text: str) -> StoreOutcome:
    request = StoreContentRequest(content=text, source_id=source_id, title=source_id, content_type="text")
    provenance = Provenance(channel="cli")
    (outcome,) = await store_content([StoreRequest(request=request, provenance=provenance)], core=core)
    return outcome


@dataclass
class Record:
    """What one writer or reader did, by source, and the failures that changed nothing."""

    operations: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list[str])

    def add(
        self, source_id: str, kind: Kind, began: float, *, version: int | None = None, text: str | None = None
    ) -> None:
        """Keep an answer that came just now."""
        one = Operation(kind=kind, start=began, end=time.monotonic(), version=version, content=text)
        self.operations[source_id].append(one)


_KINDS = {Outcome.CREATED: Kind.CREATED, Outcome.UPDATED: Kind.UPDATED, Outcome.UNCHANGED: Kind.SEEN}


async def _write(core: Core, number: int) -> Record:
    generator, record, last = random.Random(number), Record(), dict[str, str]()
    for turn in range(STORES_EACH):
        source_id = generator.choice(SOURCES)
        if generator.random() < DELETIONS:
            await _delete_and_record(core, source_id, record)
        text = f"Text {turn} of writer {number}.\n\n" + "It has some words. " * generator.randint(1, 60)
        if generator.random() < REPETITIONS:
            text = last.get(source_id, text)
        last[source_id] = text
        began = time.monotonic()
        outcome = await _store(core, source_id, text)
        if outcome.outcome is Outcome.FAILED:
            assert isinstance(outcome.error, ConflictError), outcome.error
            record.failures.append(outcome.error.message)
        else:
            record.add(source_id, _KINDS[outcome.outcome], began, version=outcome.version, text=text.strip())
    return record


async def _delete_and_record(core: Core, source_id: str, record: Record) -> None:
    began = time.monotonic()
    try:
        deletion = await core.store.delete(DeleteSelector(source_ids=(source_id,)), now=core.clock())
    except ConflictError as error:
        record.failures.append(error.message)
        return
    record.add(source_id, Kind.DELETED if deletion.deleted_documents else Kind.ABSENT, began)


async def _read_and_record(core: Core, source_id: str, record: Record) -> None:
    began = time.monotonic()
    stored = await core.store.read_document(source_id)
    if stored is None:
        record.add(source_id, Kind.ABSENT, began)
        return
    answered = time.monotonic()
    try:
        text = await core.store.read_body(stored.state.body_id)
    except NotFoundError:
        return  # so many versions came meanwhile that this one is no longer kept
    version = stored.state.version
    record.operations[source_id].append(
        Operation(kind=Kind.SEEN, start=began, end=answered, version=version, content=text.strip())
    )


async def _read_until(core: Core, ended: threading.Event, number: int) -> Record:
    generator, record = random.Random(-number), Record()
    while not ended.is_set():
        await _read_and_record(core, generator.choice(SOURCES), record)
    return record


def test_everybodys_answers_fit_one_history(open_core: OpenCore) -> None:
    """Stores, deletions and reads at once: versions rise by one, nothing is lost, doubled or seen at a wrong time."""
    ended, writing = threading.Event(), threading.Semaphore(0)

    async def write(core: Core, number: int) -> Record:
        try:
            return await _write(core, number)
        finally:
            writing.release()

    async def read(core: Core, number: int) -> Record:
        return await _read_until(core, ended, number)

    async def end(core: Core) -> Record:
        del core
        for _ in range(WRITERS):
            await asyncio.to_thread(writing.acquire)
        ended.set()
        return Record()

    works: list[Callable[[Core], Awaitable[Record]]] = [
        *(lambda core, number=number: write(core, number) for number in range(WRITERS)),
        *(lambda core, number=number: read(core, number) for number in range(READERS)),
        end,
    ]
    records = _run_together(open_core, works)
    last, health = asyncio.run(_read_last(open_core))
    for source_id in SOURCES:
        operations = [one for record in records for one in record.operations[source_id]]
        (final,) = last.operations[source_id]
        assert check_history(operations, final=final) == [], source_id
    assert health == ()
    _assert_much_happened(records)


def _assert_much_happened(records: Sequence[Record]) -> None:
    """A history in which everything failed, or nothing met, would be right too."""
    counts = Counter(one.kind for record in records for some in record.operations.values() for one in some)
    failures = [message for record in records for message in record.failures]
    assert len(failures) <= MOST_FAILURES * WRITERS * STORES_EACH, Counter(failures)
    assert counts[Kind.CREATED] > len(SOURCES)
    assert counts[Kind.UPDATED] > WRITERS * STORES_EACH / 2
    assert counts[Kind.DELETED] > len(SOURCES)
    assert counts[Kind.SEEN] > WRITERS * STORES_EACH / 10


async def _read_last(open_core: OpenCore) -> tuple[Record, Sequence[str]]:
    core, record = open_core(), Record()
    for source_id in SOURCES:
        await _read_and_record(core, source_id, record)
    health = await core.store.check_health()
    await core.close()
    return record, health.faults


@pytest.mark.parametrize("is_same_text", [True, False])
def test_first_stores_of_one_source_all_succeed(open_core: OpenCore, *, is_same_text: bool) -> None:
    """Sixteen at the same moment: one document, one of them says created, and the last version is what is left."""
    texts = ["The text."] * WRITERS if is_same_text else [f"Text {number}." for number in range(WRITERS)]
    works: list[Callable[[Core], Awaitable[StoreOutcome]]] = [
        lambda core, text=text: _store(core, "notes/new", text) for text in texts
    ]
    outcomes = _run_together(open_core, works)
    counts = Counter(one.outcome for one in outcomes)
    later = Outcome.UNCHANGED if is_same_text else Outcome.UPDATED
    assert counts == {Outcome.CREATED: 1, later: WRITERS - 1}, [one.error for one in outcomes if one.error]
    by_version = {outcome.version or 0: text for outcome, text in zip(outcomes, texts, strict=True)}
    assert sorted(by_version) == ([1] if is_same_text else list(range(1, WRITERS + 1)))
    total, text, faults = asyncio.run(_look(open_core))
    assert (total, text, faults) == (1, by_version[max(by_version)], ())


async def _look(open_core: OpenCore) -> tuple[int, str, Sequence[str]]:
    core = open_core()
    stored = await core.store.read_document("notes/new")
    assert stored is not None
    text = await core.store.read_body(stored.state.body_id)
    health = await core.store.check_health()
    await core.close()
    return health.documents, text.strip(), health.faults
