"""Scenarios S3, S6 and S20 and the weaknesses W4 to W10, through the one path and on a real server.

What a killed process leaves is made by one: a child stores with its own core and kills itself at a named command.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pytest
from pymongo import MongoClient, monitoring
from pymongo.database import Database

from memory_core.adapters import mongo_connection
from memory_core.adapters.mongo_store import MongoStore
from memory_core.answers import SearchMode
from memory_core.bootstrap import build_core
from memory_core.errors import ConflictError, ValidationError
from memory_core.models import EmbeddedDocument, Outcome, StoreOutcome, StoreRequest
from memory_core.ports import Core, Stages
from memory_core.search import search_knowledge
from memory_core.settings import load_settings
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_ports import DeleteSelector, WriteVerdict
from memory_core.store_request import Provenance, StoreContentRequest

pytestmark = pytest.mark.services

Row: TypeAlias = dict[str, Any]
OpenCore: TypeAlias = Callable[[], Core]
StartChild: TypeAlias = Callable[..., BaseProcess]

SOURCE = "notes/a"
CHUNK_TOKENS = 32
CHILD_SECONDS = 60
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a core works: as much as another process needs to open it. `atomic`: it uses transactions."""

    home: Path
    uri: str
    database: str
    atomic: bool = True

    def open_core(self) -> Core:
        """A core with a connection of its own."""
        settings = load_settings(
            MEMORY_HOME=self.home,
            MONGODB_DB_NAME=self.database,
            EMBEDDING_PROVIDER="hash",
            EMBEDDING_DIMENSIONS="16",
        )
        core = build_core(settings, mongodb_uri=self.uri)
        assert isinstance(core.store, MongoStore)
        if not self.atomic:
            core.store._has_transactions = False  # pyright: ignore[reportPrivateUsage] - as on a stand-alone server
        return core


@pytest.fixture
def place(session_home: Path, mongodb_uri: str, contract_database: Database[Row]) -> Place:
    """An empty database."""
    for name in contract_database.list_collection_names():
        contract_database[name].delete_many({})
    return Place(session_home, mongodb_uri, contract_database.name)


@pytest.fixture
async def open_core(place: Place) -> AsyncGenerator[OpenCore]:
    """Opens cores on it, each as another process has it."""
    cores: list[Core] = []

    def open_one() -> Core:
        cores.append(place.open_core())
        return cores[-1]

    yield open_one
    for core in cores:
        await core.close()


@pytest.fixture
def core(open_core: OpenCore) -> Core:
    """One of them."""
    return open_core()


def ask(content: str, source_id: str | None = SOURCE, **fields: Any) -> StoreRequest:
    """A request; a chunk is a paragraph of `write`."""
    fields = {"content_type": "text", "chunk_size_tokens": CHUNK_TOKENS, "chunk_overlap_tokens": 0} | fields
    return StoreRequest(
        request=StoreContentRequest(content=content, source_id=source_id, **fields),
        provenance=Provenance(channel="cli"),
    )


async def store_one(core: Core, request: StoreRequest, stages: Stages = PLAIN_STAGES) -> StoreOutcome:
    """Store one and return what is said of it."""
    (outcome,) = await store_content([request], core=core, stages=stages)
    return outcome


def write(epoch: str, count: int) -> str:
    """A text of so many paragraphs, each of a chunk; the first one is the same in every epoch."""
    words = "lantern harbour violin orchard granite meadow thimble saffron walnut glacier pepper anchor"
    paragraphs = [f"epoch {epoch} place {number} {words}" for number in range(1, count)]
    return "\n\n".join([f"every epoch begins alike {words}", *paragraphs])


async def read_text(core: Core, source_id: str = SOURCE) -> str | None:
    """The stored text, None where there is none."""
    stored = await core.store.read_document(source_id)
    return None if stored is None else await core.store.read_body(stored.state.body_id)


async def search_texts(core: Core, query: str = "epoch") -> list[str]:
    """The texts of all hits for a word, by their places."""
    answer = await search_knowledge(query, core=core, mode=SearchMode.TEXT, limit=50)
    return [hit.row.text for hit in sorted(answer.hits, key=lambda hit: hit.row.char_start)]


async def find_faults(core: Core) -> Sequence[object]:
    """What does not fit together."""
    return (await core.store.check_health()).faults


def meet(other: Callable[[], Awaitable[object]]) -> Stages:
    """Stages in which another acts once between the reading and the writing."""
    waiting = [other]

    async def persist(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        while waiting:
            await waiting.pop()()
        return await PLAIN_STAGES.persist(values, core=core)

    return replace(PLAIN_STAGES, persist=persist)


# --- S3 ---------------------------------------------------------------------------------------------------------------


@dataclass
class Killer(monitoring.CommandListener):
    """Kills its own process at the first such command: just before it is sent, or once it is answered."""

    name: str
    collection: str | None
    before: bool = False
    _awaited: set[int] = field(default_factory=set[int])

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """See CommandListener."""
        if event.command_name == self.name and self.collection in {None, event.command.get(self.name)}:
            self._awaited.add(event.request_id)
            if self.before:
                os.kill(os.getpid(), signal.SIGKILL)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """See CommandListener."""
        if event.request_id in self._awaited:
            os.kill(os.getpid(), signal.SIGKILL)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to do."""


def _store_and_die(place: Place, killer: Killer, content: str) -> None:
    """What the child does."""
    mongo_connection.MongoClient = functools.partial(  # pyright: ignore[reportAttributeAccessIssue] - of this child alone
        MongoClient, event_listeners=[killer]
    )
    asyncio.run(store_one(place.open_core(), ask(content)))


@pytest.fixture
def start_child(monkeypatch: pytest.MonkeyPatch) -> StartChild:
    """Starts a process that stores until it kills itself; what all of them import is imported once."""
    monkeypatch.syspath_prepend(ROOT)  # a child looks for this module where its parent would
    children = multiprocessing.get_context("forkserver")
    children.set_forkserver_preload(["memory_core.bootstrap", "pytest"])

    def start(place: Place, killer: Killer, content: str) -> BaseProcess:
        child = children.Process(target=_store_and_die, args=(place, killer, content))
        child.start()
        return child

    return start


async def _search_until_dead(core: Core, child: BaseProcess) -> list[list[str]]:
    """Every answer while the child lives, and one after it."""
    answers: list[list[str]] = []
    while child.is_alive():
        answers.append(await search_texts(core))
    child.join(CHILD_SECONDS)
    return [*answers, await search_texts(core)]


OLD, NEW = write("old", 40), write("new", 3)
COMMIT = "commitTransaction"


@pytest.mark.parametrize(
    ("killer", "is_new"),
    [
        pytest.param(Killer("insert", "contents"), False, id="text written"),
        pytest.param(Killer("update", "chunks"), False, id="kept row moved, half of the rows"),
        pytest.param(Killer("insert", "chunks"), False, id="new rows written"),
        pytest.param(Killer("update", "documents"), False, id="document replaced"),
        pytest.param(Killer("delete", "chunks"), False, id="old rows deleted"),
        pytest.param(Killer(COMMIT, None, before=True), False, id="before the commit"),
        pytest.param(Killer(COMMIT, None), True, id="committed and not acknowledged"),
    ],
)
async def test_a_shrink_that_is_killed_is_all_old_or_all_new(
    place: Place,
    open_core: OpenCore,
    start_child: StartChild,
    contract_database: Database[Row],
    killer: Killer,
    *,
    is_new: bool,
) -> None:
    """Forty chunks to three (S3): searches never see a mixture or nothing; the next run leaves exactly three."""
    core = open_core()
    assert (await store_one(core, ask(OLD))).chunk_count == 40
    child = start_child(place, killer, NEW)
    answers = await _search_until_dead(core, child)
    assert child.exitcode == -signal.SIGKILL
    old, new = OLD.split("\n\n"), NEW.split("\n\n")
    assert [answer for answer in answers if answer not in (old, new)] == []
    assert answers[0] == old
    assert answers[-1] == (new if is_new else old)
    assert await find_faults(core) == ()
    # The server gives a dead client's transaction up after transactionLifetimeLimitSeconds; here at once.
    contract_database.client.admin.command({"killSessions": []})
    outcome = await store_one(open_core(), ask(NEW))
    assert (outcome.outcome, outcome.version) == (Outcome.UNCHANGED if is_new else Outcome.UPDATED, 2)
    assert contract_database["chunks"].count_documents({}) == 3
    assert await search_texts(core) == new
    assert await find_faults(core) == ()


@pytest.mark.parametrize(
    "killer",
    [
        pytest.param(Killer("update", "intents"), id="announced"),
        pytest.param(Killer("insert", "contents"), id="text written"),
        pytest.param(Killer("update", "chunks"), id="new rows written"),
        pytest.param(Killer("update", "documents"), id="document replaced"),
        pytest.param(Killer("delete", "chunks"), id="old rows deleted"),
    ],
)
async def test_without_transactions_a_killed_shrink_is_never_mixed_and_healed(
    place: Place,
    open_core: OpenCore,
    start_child: StartChild,
    contract_database: Database[Row],
    killer: Killer,
) -> None:
    """A document may be short until its next store (S3), but no answer has rows of two texts; leftovers go."""
    core = open_core()
    await store_one(core, ask(OLD))
    child = start_child(replace(place, atomic=False), killer, NEW)
    answers = await _search_until_dead(core, child)
    assert child.exitcode == -signal.SIGKILL
    old, new = OLD.split("\n\n"), NEW.split("\n\n")
    assert answers[0] == old
    assert [answer for answer in answers if not (set(answer) <= set(old) or set(answer) <= set(new))] == []
    next_core = replace(place, atomic=False).open_core()
    outcome = await store_one(next_core, ask(NEW))
    await next_core.close()
    assert outcome.version == 2
    assert contract_database["chunks"].count_documents({}) == 3
    assert contract_database["intents"].count_documents({}) == 0
    assert contract_database["contents"].count_documents({}) == 2
    assert await search_texts(core) == new
    assert await find_faults(core) == ()


# --- S6 ---------------------------------------------------------------------------------------------------------------


async def test_equal_paragraphs_and_equal_files_have_rows_of_their_own(core: Core) -> None:
    """Twenty equal paragraphs are twenty chunks at twenty places, and two equal files are two documents (S6)."""
    paragraph = write("same", 2).split("\n\n")[1]
    content = "\n\n".join([paragraph] * 20)
    outcomes = [await store_one(core, ask(content, source_id)) for source_id in ("files/a", "files/b")]
    assert [one.chunk_count for one in outcomes] == [20, 20]
    assert len({one.document_id for one in outcomes}) == 2
    keys = await core.store.read_chunk_keys([one.document_id or "" for one in outcomes])
    ids = {key.chunk_id for some in keys.values() for key in some}
    hits = await core.store.read_hits(sorted(ids))
    assert len({(hit.document_id, hit.char_start) for hit in hits.values()}) == len(ids) == 40
    assert all(content[hit.char_start : hit.char_end] == hit.text == paragraph for hit in hits.values())
    await core.store.delete(DeleteSelector(source_ids=("files/a",)), now=core.clock())
    assert await read_text(core, "files/b") == content
    assert await find_faults(core) == ()


# --- S20 --------------------------------------------------------------------------------------------------------------


async def test_twenty_megabytes_come_back_equal(
    core: Core, build: Callable[..., EmbeddedDocument], now: datetime
) -> None:
    """Five million characters of four bytes (S20): MongoDB's limit of 16 MB is of a row, and not of a text."""
    content = "\U0001f600" * 4_999_999 + "\U00020000"
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    draft = build(SOURCE, "a chunk", content=content)
    (row,) = draft.chunks
    vector = (await core.embedder.embed([["a chunk"]], kind="document")).groups[0][0]
    whole = replace(draft, chunks=(replace(row, vector=vector),), fingerprint=core.fingerprint)
    (result,) = await core.store.write_together([whole], now=now)
    assert result.verdict is WriteVerdict.WRITTEN
    assert await read_text(core) == content


async def test_three_thousand_chunks_are_stored(core: Core) -> None:
    """And an edit in the middle is too (S20)."""
    content = write("long", 3_000)
    outcome = await store_one(core, ask(content))
    assert (outcome.outcome, outcome.chunk_count) == (Outcome.CREATED, 3_000)
    edited = content.replace("place 1500 ", "place edited ")
    again = await store_one(core, ask(edited))
    assert (again.version, again.chunk_count, again.texts_embedded) == (2, 3_000, 1)
    assert await search_texts(core, "edited") == [edited.split("\n\n")[1_500]]
    assert await read_text(core) == edited
    assert await find_faults(core) == ()


class Unused:
    """A part that must not be asked."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


async def test_a_text_above_the_limit_is_refused_before_any_work(core: Core, contract_database: Database[Row]) -> None:
    """With both numbers (S20): nothing is chunked, embedded or written, and a neighbour is stored."""
    stages = replace(PLAIN_STAGES, chunk=Unused(), embed=Unused(), persist=Unused())
    too_long = ask("x" * 15_900_000)
    outcome = await store_one(core, too_long, stages)
    assert isinstance(outcome.error, ValidationError)
    assert "15,900,000" in outcome.error.message
    assert "5,000,000" in outcome.error.message
    assert [contract_database[name].count_documents({}) for name in ("documents", "chunks", "contents")] == [0, 0, 0]
    outcomes = await store_content([too_long, ask("Short.", "notes/b")], core=core)
    assert [one.outcome for one in outcomes] == [Outcome.FAILED, Outcome.CREATED]


# --- W4 to W10 --------------------------------------------------------------------------------------------------------


async def test_equal_content_with_other_attributes_or_sizes_is_not_dropped(core: Core) -> None:
    """Title, tags, uri, metadata and type are stored, other sizes chunk anew, and none is a version (W4)."""
    content = write("one", 8)
    await store_one(core, ask(content))
    fields: dict[str, Any] = {
        "title": "Harbours",
        "tags": ["red"],
        "uri": "https://example.org/a",
        "metadata": {"k": 1},
        "content_type": "markdown",
    }
    for name, value in fields.items():
        kept = {key: fields[key] for key in list(fields)[: list(fields).index(name) + 1]}
        outcome = await store_one(core, ask(content, **kept))
        assert outcome.outcome in {Outcome.ATTRIBUTES_UPDATED, Outcome.UPDATED}, (name, value)
    larger = await store_one(core, ask(content, **fields, chunk_size_tokens=400))
    assert (larger.outcome, larger.version, larger.chunk_count) == (Outcome.UPDATED, 1, 1)
    stored = await core.store.read_document(SOURCE)
    assert stored is not None
    now = stored.state.attributes
    assert [now.title, [*now.tags], now.uri, now.metadata, now.content_type] == list(fields.values())
    assert await find_faults(core) == ()


async def test_a_slower_writer_overwrites_nothing_unseen(open_core: OpenCore) -> None:
    """Two edits of one source at once are two versions, in the order of their writes (W5)."""
    slow, fast = open_core(), open_core()
    await store_one(fast, ask(write("one", 4)))
    stages = meet(lambda: store_one(fast, ask(write("two", 4))))
    outcome = await store_one(slow, ask(write("three", 4)), stages)
    assert outcome.version == 3
    stored = await fast.store.read_document(SOURCE)
    assert stored is not None
    texts = [await fast.store.read_body(version.body_id) for version in stored.versions]
    assert texts == [write(epoch, 4) for epoch in ("one", "two", "three")]


async def test_two_first_stores_of_one_text_converge(open_core: OpenCore) -> None:
    """Both succeed; the one that came second says unchanged (W6)."""
    slow, fast = open_core(), open_core()
    outcome = await store_one(slow, ask(write("one", 4)), meet(lambda: store_one(fast, ask(write("one", 4)))))
    assert (outcome.outcome, outcome.version) == (Outcome.UNCHANGED, 1)
    assert await find_faults(slow) == ()


async def test_a_deletion_during_a_store_has_the_last_word(
    open_core: OpenCore, contract_database: Database[Row]
) -> None:
    """The store fails as a conflict and leaves no row (W7)."""
    slow, fast = open_core(), open_core()
    await store_one(fast, ask(write("one", 4)))
    delete = meet(lambda: fast.store.delete(DeleteSelector(source_ids=(SOURCE,)), now=fast.clock()))
    outcome = await store_one(slow, ask(write("two", 4)), delete)
    assert isinstance(outcome.error, ConflictError)
    assert await read_text(fast) is None
    assert contract_database["chunks"].count_documents({}) == 0
    assert await search_texts(fast) == []


async def test_rows_of_an_earlier_text_are_not_taken_for_current(core: Core, contract_database: Database[Row]) -> None:
    """As many rows as the document needs, but of another text: the same store again heals it (W8)."""
    await store_one(core, ask(write("one", 4)))
    earlier = list(contract_database["chunks"].find())
    await store_one(core, ask(write("two", 4)))
    contract_database["chunks"].delete_many({})
    contract_database["chunks"].insert_many(earlier)
    assert await search_texts(core) == []
    outcome = await store_one(core, ask(write("two", 4)))
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 2)
    assert (outcome.reason or "").startswith("repaired")
    assert await search_texts(core) == write("two", 4).split("\n\n")
    assert contract_database["chunks"].count_documents({}) == 4
    assert (await store_one(core, ask(write("two", 4)))).outcome is Outcome.UNCHANGED


async def test_derived_ids_do_not_collide(core: Core) -> None:
    """Long addresses, other cases, queries, equal titles and other scripts: each has a document of its own (W9)."""
    prefix = "https://example.org/" + "path/" * 30
    requests = [
        *(ask(f"Text of {tail}.", None, uri=prefix + tail) for tail in ("one", "two", "One", "one?page=2", "one#2")),
        *(ask(f"Text of {agent}.", None, title="README", agent=agent) for agent in ("ann", "ben")),
        *(ask(f"Text in {title}.", None, title=title, agent=title) for title in ("Guide", "Guide 指南", "Guide 手册")),
    ]
    outcomes = await store_content(requests, core=core)
    assert [one.outcome for one in outcomes] == [Outcome.CREATED] * len(requests)
    assert len({one.source_id for one in outcomes}) == len(requests)
    texts = [await read_text(core, one.source_id or "") for one in outcomes]
    assert texts == [request.request.content for request in requests]


async def test_an_edited_document_does_not_vanish_from_search(core: Core) -> None:
    """Rows that stay keep their ids, and each search right behind a store is complete (W10)."""
    content = write("one", 12)
    outcome = await store_one(core, ask(content))
    document_id = outcome.document_id or ""
    for turn in range(5):
        before = {key.chunk_id for key in (await core.store.read_chunk_keys([document_id]))[document_id]}
        content = content.replace(f"place {turn + 1} ", f"place {turn + 1} edited ")
        await store_one(core, ask(content))
        after = {key.chunk_id for key in (await core.store.read_chunk_keys([document_id]))[document_id]}
        assert (len(after), len(after - before)) == (12, 1)
        assert await search_texts(core) == content.split("\n\n")
