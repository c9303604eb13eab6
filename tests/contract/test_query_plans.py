"""Every query that the adapters of MongoDB send goes by an index: each is caught on the wire and explained.

A method that is not called here fails the test, and so does an exception that is no longer needed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

import numpy as np
import pytest
from bson import ObjectId, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import monitoring
from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection
from memory_core.adapters.mongo_embedding_cache import MongoEmbeddingCache
from memory_core.adapters.mongo_feeds import MongoFeedStore
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MAX_ATTEMPTS, MongoSubmissionStore
from memory_core.answers import SearchFilters
from memory_core.embedding_ports import CachedVector
from memory_core.health import FaultKind, HealthLimits
from memory_core.models import ContentType, EmbeddedDocument, Fingerprint, Holder, Outcome, StoreRequest
from memory_core.store_ports import AttributeWrite, DeleteSelector, ListQuery
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.work_ports import Feed, FileState, ManifestEntry, Submission

pytestmark = [pytest.mark.services, pytest.mark.parametrize("backend", ["mongodb"], indirect=True)]

Build: TypeAlias = Callable[..., EmbeddedDocument]
Json: TypeAlias = dict[str, Any]

ANN = Holder(host="laptop", pid=1, started=1.0, token="a" * 32)
BEN = Holder(host="server", pid=2, started=2.0, token="b" * 32)
DOCUMENTS = 150
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LIMITS = HealthLimits(cache_days=7, cache_bytes=10)

# Reading everything is what these are for. By method and collection, each with its reason.
WHOLE_READS: Mapping[tuple[str, str], str] = {
    ("MongoStore.check_health", "documents"): "doctor counts every document",
    ("MongoStore.check_health", "trash"): "doctor looks for every text's owner",
    ("MongoStore.check_health", "feed_files"): "doctor compares every file of a directory with its document",
    ("MongoStore.check_health", "feeds"): "one row for each directory",
    ("MongoStore.check_health", "intents"): "one row for each bare write that runs at this moment",
    ("MongoStore.check_health", "meta"): "it has one row",
    ("MongoStore.mend", "documents"): "a repair compares everything with its document",
    ("MongoStore.mend", "trash"): "a repair compares everything with its document",
    ("MongoStore.mend", "feed_files"): "a repair compares everything with its document",
    ("MongoStore.mend", "feeds"): "one row for each directory",
    ("MongoStore.mend", "intents"): "one row for each bare write that runs at this moment",
    ("MongoStore.mend", "meta"): "it has one row",
    ("MongoStore.prepare", "documents"): "the sweep of orphans asks all owners, once in 15 minutes",
    ("MongoStore.prepare", "trash"): "the sweep of orphans asks all owners, once in 15 minutes",
    ("MongoStore.prepare", "intents"): "one row for each bare write that runs at this moment",
    ("MongoStore.prepare", "meta"): "it has one row",
    ("MongoStore.purge", "meta"): "it has one row",
    ("MongoStore.purge", "embedding_cache"): "its keys do not say whose texts they are of: all of it goes",
    ("MongoStore.read_changes", "documents"): "a search index that begins takes in everything",
}
SENDS_NOTHING = {"close"}

# The bounds of a plan may be times that Python has not.
_ANY_TIME: CodecOptions[Json] = CodecOptions(document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_READS = {
    "find": ("filter", "sort", "limit", "skip", "hint", "projection"),
    "aggregate": ("pipeline", "hint", "cursor"),
    "findAndModify": ("query", "update", "remove", "sort", "fields"),
    "distinct": ("key", "query"),
    "count": ("query", "limit", "hint"),
}
_WRITES = {"update": "updates", "delete": "deletes"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A command as it was sent, ready to be explained, and the public method that sent it."""

    method: str
    collection: str
    command: Json

    @property
    def shape(self) -> str:
        """Equal for commands that differ in their values alone."""
        return f"{self.method} {self.collection} {json.dumps(_shape(self.command), sort_keys=True)}"


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(one) for name, one in cast("Json", value).items()}
    if isinstance(value, list):
        return sorted({json.dumps(_shape(one), sort_keys=True) for one in cast("list[Any]", value)})
    return type(value).__name__


class Watch(monitoring.CommandListener):
    """What is sent while a method runs, in parts that can be explained."""

    def __init__(self) -> None:
        self.method: str | None = None
        self.asked: dict[str, Asked] = {}
        self.all: list[Json] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep it."""
        if self.method is None:
            return
        command = dict(event.command)
        self.all.append(command)
        for part in _split(event.command_name, command):
            asked = Asked(self.method, str(command[event.command_name]), part)
            self.asked.setdefault(asked.shape, asked)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


def _split(name: str, command: Json) -> Iterator[Json]:
    """What of a command the server explains: one statement at a time, without session and concerns."""
    if name in _READS:
        yield {name: command[name], **{part: command[part] for part in _READS[name] if part in command}}
    elif name in _WRITES:
        for statement in command[_WRITES[name]]:
            yield {name: command[name], _WRITES[name]: [statement]}


_watch = Watch()
monitoring.register(_watch)


class Called:
    """An adapter whose calls are watched; it knows which of its public methods were called."""

    def __init__(self, adapter: object) -> None:
        self._adapter = adapter
        self._called: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._adapter, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._called.add(name)
            _watch.method = f"{type(self._adapter).__name__}.{name}"
            try:
                return await method(*args, **kwargs)
            finally:
                _watch.method = None

        return call

    def left_out(self) -> set[str]:
        """The public methods that nobody called."""
        names = {name for name in dir(type(self._adapter)) if not name.startswith("_")}
        return names - self._called - SENDS_NOTHING


@dataclass(frozen=True, slots=True)
class Place:
    """A filled database and its adapters, which are watched."""

    database: Database[Json]
    connection: MongoConnection
    store: Any
    space: Fingerprint
    build: Build
    now: datetime


@pytest.fixture
async def place(
    contract_database: Database[Json], store: MongoStore, space: Fingerprint, build: Build, now: datetime
) -> AsyncGenerator[Place]:
    """150 documents of two chunks, of three feeds and four tags; every fifth one is in the trash."""
    _watch.asked.clear()
    connection = store._connection  # pyright: ignore[reportPrivateUsage] - it is closed with the store
    writes = [
        build(
            f"notes/{number}",
            f"alpha {number}",
            f"beta {number}",
            attributes={"tags": (f"tag-{number % 4}", "all")},
            provenance=Provenance(channel="cli", feed=f"feed-{number % 3}"),
        )
        for number in range(DOCUMENTS)
    ]
    await store.write_together(writes, now=now)
    gone = DeleteSelector(source_ids=tuple(f"notes/{number}" for number in range(0, DOCUMENTS, 5)))
    await store.delete(gone, now=datetime.now(UTC))
    yield Place(contract_database, connection, Called(store), space, build, now)
    contract_database["embedding_cache"].delete_many({})


async def test_every_query_goes_by_an_index(place: Place, reopen: Callable[[], MongoStore]) -> None:
    """All methods of all adapters, with representative arguments; exceptions are named with their reasons."""
    feeds = Called(MongoFeedStore(place.connection))
    submissions = Called(MongoSubmissionStore(place.connection))
    cache = Called(MongoEmbeddingCache(place.connection, days=7, max_bytes=2_000))
    starting = Called(reopen())
    await use_feeds(feeds)
    await use_submissions(submissions, place)
    await use_cache(cache, place.now)
    await read_store(place)
    await write_store(place)
    await use_spaces(place)
    await leave_a_mess(place)
    await starting.prepare(place.space, recipe="2/400")
    await starting.migrate()
    await leave_a_mess(place)
    await place.store.mend(frozenset(FaultKind), LIMITS)
    left_out = [one.left_out() for one in (place.store, feeds, submissions, cache)]
    assert left_out == [{"prepare", "migrate"}, set(), set(), set()], "methods that this test must call too"

    names = set(place.database.list_collection_names())
    assert {asked.collection for asked in _watch.asked.values()} <= names
    scans = {
        (asked.method, asked.collection): asked.command
        for asked in _watch.asked.values()
        if "COLLSCAN" in set(stages_of(place.database, asked.command))
    }
    unknown = [json_util.dumps({f"{key}": scans[key]}) for key in scans.keys() - WHOLE_READS.keys()]
    assert unknown == [], "these read a whole collection: give them an index, or a reason"
    assert WHOLE_READS.keys() - scans.keys() == set(), "these need no exception any more"


@pytest.mark.parametrize(
    "query",
    [
        ListQuery(limit=10),
        ListQuery(limit=10, offset=20),
        ListQuery(limit=10, tag="all"),
        ListQuery(limit=10, feed="feed-1"),
        ListQuery(limit=10, tag="all", feed="feed-1"),
    ],
)
async def test_a_listing_is_not_sorted_and_reads_no_text_and_no_vector(place: Place, query: ListQuery) -> None:
    """An index has the page in its order, the first one as the next one; tallies come from an index alone."""
    for after in (None, (await place.store.list_sources(replace(query, offset=0))).next_cursor):
        if after and query.offset:
            continue
        _watch.asked.clear()
        page = await place.store.list_sources(replace(query, after=after))
        assert len(page.sources) == query.limit
        asked = list(_watch.asked.values())
        assert {one.collection for one in asked} == {"documents", "chunks"}
        plans = [set(stages_of(place.database, one.command)) for one in asked]
        assert all("SORT" not in plan and "COLLSCAN" not in plan for plan in plans), plans
        assert all(is_covered(place.database, one.command) for one in asked if one.collection == "chunks")


async def test_states_read_no_text_and_no_vector(place: Place) -> None:
    """Neither a body nor a chunk row is fetched, for named sources and for a whole feed."""
    for ask in (
        lambda: place.store.read_states([f"notes/{number}" for number in range(40)]),
        lambda: place.store.read_feed_states("feed-1"),
    ):
        _watch.asked.clear()
        assert len(await ask()) > 10
        documents, chunks = sorted(_watch.asked.values(), key=lambda one: one.collection, reverse=True)
        assert (documents.collection, chunks.collection) == ("documents", "chunks")
        assert "versions" not in documents.command["projection"]
        assert is_covered(place.database, chunks.command)


# --- what the server says ---------------------------------------------------------------------------------------------


def stages_of(database: Database[Json], command: Json) -> Iterator[str]:
    """The stages of the plan that the server would follow."""
    return _walk(database.command("explain", command, verbosity="queryPlanner", codec_options=_ANY_TIME))


def _walk(plan: Any, *, key: str = "stage") -> Iterator[Any]:
    """Every value of that name in an answer, but for plans that were rejected."""
    if isinstance(plan, dict):
        for name, part in cast("Json", plan).items():
            if name == key:
                yield part
            elif name not in {"rejectedPlans", "command"}:
                yield from _walk(part, key=key)
    elif isinstance(plan, list):
        for part in cast("list[Any]", plan):
            yield from _walk(part, key=key)


def is_covered(database: Database[Json], command: Json) -> bool:
    """Whether the query was answered from an index alone, when it is run."""
    found = database.command("explain", command, verbosity="executionStats")
    examined: list[int] = list(_walk(found, key="totalDocsExamined"))
    return bool(examined) and sum(examined) == 0 and sum(_walk(found, key="totalKeysExamined")) > 0


# --- every method, with representative arguments ----------------------------------------------------------------------


async def use_feeds(feeds: Any) -> None:
    """Directories, their leases, their manifests."""
    for number in range(3):
        await feeds.register_feed(Feed(name=f"feed-{number}", root=f"/data/{number}"))
    await feeds.list_feeds()
    await feeds.acquire_lease("feed-1", ANN, seconds=60)
    await feeds.acquire_lease("feed-1", BEN, seconds=60)
    await feeds.steal_lease("feed-1", BEN, ANN, seconds=60)
    await feeds.release_lease("feed-1", BEN)
    entries = [
        ManifestEntry(path=f"{n}.md", source_id=f"feed-1/{n}", size=1, mtime_ns=1, state=FileState.STORED)
        for n in range(200)
    ]
    await feeds.write_manifest("feed-1", entries)
    await feeds.write_manifest("feed-1", entries[:1], removed_paths=["1.md"])
    await feeds.read_manifest("feed-1")


async def use_submissions(submissions: Any, place: Place) -> None:
    """Staged, joined, claimed, parked, settled, released and finished."""
    staged: list[Submission] = []
    for number in (*range(40), 39):
        content = StoreContentRequest(content=f"staged {number}", source_id=f"notes/s{number}")
        request = StoreRequest(request=content, provenance=Provenance(channel="cli"))
        staged.append(await submissions.stage(request, key=f"k{number}", holder=ANN, seconds=60, now=place.now))
    ids = [one.submission_id for one in staged]
    rows = place.database["submissions"]
    rows.update_one({"_id": ObjectId(ids[0])}, {"$set": {"adopted": True}})
    rows.update_one({"_id": ObjectId(ids[1])}, {"$set": {"attempts": MAX_ATTEMPTS}})
    await submissions.find_open(limit=10)
    await submissions.claim(ids[:20], holder=ANN, seconds=60, dead_tokens=["c" * 32])
    await submissions.renew(ids[:20], holder=ANN, seconds=60)
    await submissions.release(ids[18:20], holder=ANN)
    failed, done = {"outcome": Outcome.FAILED.value}, {"outcome": Outcome.CREATED.value, "sourceId": "notes/s3"}
    await submissions.finish({ids[2]: failed, ids[3]: done}, holder=ANN, now=place.now)
    await submissions.read(ids[2])


async def use_cache(cache: Any, now: datetime) -> None:
    """Vectors and texts, by key, and what goes by age and size."""
    later = now.replace(year=2100)
    keys = [f"{number:064x}" for number in range(100)]
    await cache.write_vectors({key: CachedVector(vector=np.ones(8, np.float32)) for key in keys}, now=later)
    await cache.write_texts({"f" * 64: "a context"}, now=later)
    await cache.read_vectors(keys)
    await cache.read_texts(["f" * 64])
    await cache.evict(now=later + timedelta(days=1))


async def read_store(place: Place) -> None:
    """What decides, what people and what search read."""
    store = place.store
    states = await store.read_states(["notes/1", "notes/2"])
    ids = [state.document_id for state in states.values()]
    await store.read_states(["notes/1"], ids)
    await store.read_feed_states("feed-1")
    keys = await store.read_chunk_keys(ids)
    await store.read_hits([key.chunk_id for found in keys.values() for key in found])
    await store.read_chunk_rows(ids)
    await store.read_past_rows(ids)
    await store.measure_rows(ids)
    await store.transaction_budget_bytes()
    for identifier in (*ids[:1], "notes/1"):
        await store.read_document(identifier)
    await store.read_body(states["notes/1"].body_id)
    for query in (ListQuery(), ListQuery(tag="all"), ListQuery(feed="feed-1"), ListQuery(tag="all", feed="feed-1")):
        first = await store.list_sources(replace(query, limit=5))
        await store.list_sources(replace(query, limit=5, after=first.next_cursor))
    for filters in (
        SearchFilters(source_ids=("notes/1",)),
        SearchFilters(document_ids=tuple(ids)),
        SearchFilters(tags=("all", "tag-1")),
        SearchFilters(content_types=(ContentType.TEXT,)),
        SearchFilters(source_ids=("notes/1",), tags=("all",), content_types=(ContentType.TEXT,)),
        SearchFilters(),
    ):
        await store.find_document_ids(filters)
    _, now = await store.read_changes(None)
    await store.read_changes(now - timedelta(hours=1))
    for after in (None, ids[0]):
        await store.find_documents(after=after, limit=10)
        for stale_in in (None, "another"):
            await store.find_embedded(stale_in=stale_in, after=after, limit=10)
    await store.find_embedded(stale_in="another", source_ids=["notes/1"], limit=10)
    await store.count_coverage(place.space.key)
    for identifier in (None, "notes/0", "f" * 24):
        await store.read_trash(identifier)
    await store.check_health(LIMITS)


async def write_store(place: Place) -> None:
    """Stores, edits, attributes, deletions by every selector, purges; with transactions and without."""
    store, build, now = place.store, place.build, place.now
    await store.write_together([build("notes/new", "one", "two")], now=now)
    state = (await store.read_states(["notes/new"]))["notes/new"]
    keys = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    await store.write_together([build("notes/new", "one", "three", base=state, keep=keys)], now=now)
    adopting = build("notes/s5", "staged 5", body_id=f"submission-{ObjectId()}")
    await store.write_together([adopting], now=now)
    await store.write_in_parts(build("notes/large", *(f"part {number}" for number in range(20))), now=now)
    await change_attributes(place, "notes/new")
    await write_bare(place)
    document_id = (await store.read_states(["notes/6"]))["notes/6"].document_id
    revisions = {"notes/7": (await store.read_states(["notes/7"]))["notes/7"].revision}
    for selector in (
        DeleteSelector(source_ids=("notes/3", "notes/4")),
        DeleteSelector(document_id=document_id),
        DeleteSelector(revisions=revisions),
        DeleteSelector(tags=("all", "tag-1")),
    ):
        for feed in (None, "feed-1"):
            await store.delete(selector, now=now, feed=feed, dry_run=True)
        await store.delete(selector, now=now)
    await store.forget_versions((await store.read_states(["notes/new"]))["notes/new"].document_id, {1})
    for dry_run in (True, False):
        await store.purge("notes/new", dry_run=dry_run)


async def change_attributes(place: Place, source_id: str) -> None:
    """New tags alone."""
    state = (await place.store.read_states([source_id]))[source_id]
    document = place.build(source_id, "one", "three", base=state, attributes={"tags": ("other",)}).document
    await place.store.write_together([AttributeWrite(document=document)], now=place.now)


async def write_bare(place: Place) -> None:
    """As on a stand-alone server: a store, an edit, new attributes, a deletion."""
    inner: MongoStore = place.store._adapter
    inner._has_transactions = False  # pyright: ignore[reportPrivateUsage] - as on a stand-alone server
    await place.store.write_together([place.build("notes/bare", "one", "three")], now=place.now)
    state = (await place.store.read_states(["notes/bare"]))["notes/bare"]
    keys = (await place.store.read_chunk_keys([state.document_id]))[state.document_id]
    edit = place.build("notes/bare", "one", "three", "four", base=state, keep=keys)
    await place.store.write_together([edit], now=place.now)
    await place.store.delete(DeleteSelector(source_ids=("notes/bare",)), now=place.now)
    inner._has_transactions = True  # pyright: ignore[reportPrivateUsage] - as it is


async def use_spaces(place: Place) -> None:
    """`meta`: spaces, recipe, the lease of a re-embed."""
    store, other = place.store, replace(place.space, model="other")
    await store.read_active_space()
    await store.declare_space(other)
    await store.activate_space(place.space, complete=True)
    await store.activate_recipe("2/400")
    await store.acquire_reembed_lease(ANN, seconds=60)
    await store.acquire_reembed_lease(BEN, seconds=60)
    await store.steal_reembed_lease(BEN, ANN, seconds=60)
    await store.release_reembed_lease(BEN)


async def leave_a_mess(place: Place) -> None:
    """What the next process finds to clean up: an expired trash, intents, rows without an owner."""
    database, old = place.database, ObjectId.from_datetime(LONG_AGO)
    database["trash"].update_many({}, {"$set": {"expiresAt": LONG_AGO, "committedAt": LONG_AGO}})
    database["meta"].update_many({}, {"$unset": {"orphansSweptAt": ""}})
    database["contents"].insert_one({"_id": old, "bodyId": "loose", "part": 0, "text": "x"})
    row = database["chunks"].find_one({}) or {}
    database["chunks"].insert_one({**row, "_id": old, "documentId": ObjectId()})
    living = database["documents"].find_one({}) or {}
    for key, document_id in (("gone", ObjectId()), ("living", living["_id"])):
        database["intents"].insert_one(
            {
                "_id": key,
                "documentIds": [document_id],
                "revision": "e" * 24,
                "bodyIds": ["e" * 24],
                "movesRows": False,
                "replaced": [],
                "holder": {"token": "t", "host": "h", "pid": 1, "started": 1.0},
                "at": LONG_AGO,
            }
        )
