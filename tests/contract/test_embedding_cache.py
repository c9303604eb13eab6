"""EmbeddingCache: what was paid for comes back bit by bit, is never overwritten, and goes by age and size.

The suite runs on the fake and on a real MongoDB; below it stands what only MongoDB can show. Times lie in the future:
the server deletes by its own clock what has expired.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import pytest
from pymongo import monitoring
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from memory_core.adapters import mongo_embedding_cache
from memory_core.adapters.mongo_connection import MongoConnection, connect
from memory_core.adapters.mongo_embedding_cache import MongoEmbeddingCache, first_beyond, total_since
from memory_core.adapters.mongo_indexes import EMBEDDING_CACHE, EMBEDDING_CACHE_AGE, create_indexes
from memory_core.embedding_ports import CachedVector, EmbeddingCache
from memory_core.errors import StorageError, StorageUnavailableError
from memory_core.fakes.embedding_cache import CacheRow, FakeEmbeddingCache
from memory_core.models import Vector

DAYS = 7
MAX_BYTES = 40_000
WIDTH = 100
VECTOR_BYTES = 4 * WIDTH
NOW = datetime(2100, 1, 1, 12, 30, 0, 123_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MANY = 5_000
ROOMY_BYTES = MANY * VECTOR_BYTES

# Opens the cache as another process would; the same place for all of a test.
OpenCache: TypeAlias = Callable[..., EmbeddingCache]


def make_key(name: object) -> str:
    """A key as the embedder makes them."""
    return hashlib.sha256(str(name).encode()).hexdigest()


def make_vector(seed: int) -> Vector:
    """Numbers that depend on the seed alone."""
    return np.random.default_rng(seed).standard_normal(WIDTH, dtype=np.float32)


def make_entries(*seeds: int) -> dict[str, CachedVector]:
    """One vector a seed, under the seed's key."""
    return {make_key(seed): CachedVector(vector=make_vector(seed)) for seed in seeds}


async def read_seeds(cache: EmbeddingCache, *seeds: int) -> set[int]:
    """Which of these vectors are kept."""
    found = await cache.read_vectors([make_key(seed) for seed in seeds])
    return {seed for seed in seeds if make_key(seed) in found}


@pytest.fixture
def cache_database(contract_database: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    """The real database, with indexes and without rows."""
    create_indexes(contract_database)
    contract_database[EMBEDDING_CACHE].delete_many({})
    return contract_database


@pytest.fixture
async def connection(mongodb_uri: str, cache_database: Database[dict[str, Any]]) -> AsyncGenerator[MongoConnection]:
    """A connection to the real database."""
    opened = connect(mongodb_uri, cache_database.name, max_pool_size=10, server_selection_timeout_ms=5_000)
    yield opened
    await opened.close()


@pytest.fixture(params=["fake", pytest.param("mongodb", marks=pytest.mark.services)])
def open_cache(request: pytest.FixtureRequest) -> OpenCache:
    """Opens caches over one place, on both backends."""
    rows: dict[str, CacheRow] = {}
    opened: MongoConnection | None = None if request.param == "fake" else request.getfixturevalue("connection")

    def open_one(max_bytes: int = MAX_BYTES) -> EmbeddingCache:
        if opened is None:
            return FakeEmbeddingCache(rows, days=DAYS, max_bytes=max_bytes)
        return MongoEmbeddingCache(opened, days=DAYS, max_bytes=max_bytes)

    return open_one


@pytest.fixture
def cache(open_cache: OpenCache) -> EmbeddingCache:
    """An empty cache."""
    return open_cache()


# --- what is kept -----------------------------------------------------------------------------------------------------


async def test_a_vector_comes_back_bit_by_bit(cache: EmbeddingCache) -> None:
    """Also the numbers that a detour over text or float64 would change."""
    odd = np.array([-0.0, 1e-45, np.finfo(np.float32).max, 1 / 3, np.nextafter(np.float32(1), np.float32(2))], "<f4")
    await cache.write_vectors({make_key("odd"): CachedVector(vector=odd, windows=3)}, now=NOW)
    (found,) = (await cache.read_vectors([make_key("odd")])).values()
    assert found.vector.tobytes() == odd.tobytes()
    assert (found.vector.dtype, found.vector.shape, found.windows) == (np.float32, odd.shape, 3)


async def test_a_text_comes_back_as_it_was(cache: EmbeddingCache) -> None:
    """Every character of it; an empty one too."""
    texts = {make_key("a"): "Überblick\r\n\u2028 \U0001f6a2\t", make_key("b"): ""}
    await cache.write_texts(texts, now=NOW)
    assert await cache.read_texts(list(texts)) == texts


async def test_what_is_kept_is_a_copy(cache: EmbeddingCache) -> None:
    """A caller that goes on computing in its array changes nothing, and nobody can write into what was read."""
    mine = make_vector(1)
    await cache.write_vectors({make_key(1): CachedVector(vector=mine)}, now=NOW)
    mine[:] = 0
    found = (await cache.read_vectors([make_key(1)]))[make_key(1)].vector
    assert found.tobytes() == make_vector(1).tobytes()
    assert not found.flags.writeable


async def test_unknown_keys_are_left_out(cache: EmbeddingCache) -> None:
    """They are no error; nor is asking for nothing or keeping nothing."""
    await cache.write_vectors(make_entries(1), now=NOW)
    assert list(await cache.read_vectors([make_key(2), make_key(1)])) == [make_key(1)]
    assert await cache.read_texts([make_key(2)]) == {}
    assert (await cache.read_vectors([]), await cache.read_texts([])) == ({}, {})
    await cache.write_vectors({}, now=NOW)
    await cache.write_texts({}, now=NOW)


async def test_vectors_and_texts_are_apart(cache: EmbeddingCache) -> None:
    """Who asks for the one never gets the other."""
    await cache.write_vectors(make_entries(1), now=NOW)
    await cache.write_texts({make_key(2): "a context"}, now=NOW)
    keys = [make_key(1), make_key(2)]
    assert list(await cache.read_vectors(keys)) == [make_key(1)]
    assert list(await cache.read_texts(keys)) == [make_key(2)]


async def test_a_key_that_is_kept_stays_as_it_is(cache: EmbeddingCache) -> None:
    """The first value and its age; the new keys of the same write are kept."""
    await cache.write_vectors(make_entries(1), now=NOW)
    await cache.write_texts({make_key("t"): "first"}, now=NOW)
    later = NOW + timedelta(days=DAYS)
    other = {make_key(1): CachedVector(vector=make_vector(9), windows=2)}
    await cache.write_vectors({**other, **make_entries(2)}, now=later)
    await cache.write_texts({make_key("t"): "second"}, now=later)
    found = await cache.read_vectors([make_key(1), make_key(2)])
    assert found[make_key(1)].vector.tobytes() == make_vector(1).tobytes()
    assert (found[make_key(1)].windows, len(found)) == (1, 2)
    assert await cache.read_texts([make_key("t")]) == {make_key("t"): "first"}
    assert await cache.evict(now=later + SECOND) == 2
    assert await read_seeds(cache, 1, 2) == {2}


async def test_another_process_sees_what_was_written(open_cache: OpenCache) -> None:
    """At once: that is what saves paying after a crash."""
    await open_cache().write_vectors(make_entries(1), now=NOW)
    assert await read_seeds(open_cache(), 1) == {1}


async def test_many_keys_go_in_one_call(open_cache: OpenCache) -> None:
    """5,000 vectors in and out, each under its own key."""
    cache = open_cache(ROOMY_BYTES)
    entries = make_entries(*range(MANY))
    await cache.write_vectors(entries, now=NOW)
    found = await cache.read_vectors([*entries, make_key("unknown")])
    assert found.keys() == entries.keys()
    assert all(found[key].vector.tobytes() == entry.vector.tobytes() for key, entry in entries.items())
    assert await cache.evict(now=NOW) == 0


async def test_concurrent_writers_keep_one_value(open_cache: OpenCache) -> None:
    """Eight processes write overlapping keys at once: no error, and each key has a value of one of them, whole."""
    keys = [make_key(number) for number in range(200)]

    async def write(writer: int) -> None:
        vector = make_vector(writer)
        mine = {key: CachedVector(vector=vector, windows=writer + 1) for key in keys[10 * writer :]}
        await open_cache().write_vectors(mine, now=NOW)

    await asyncio.gather(*map(write, range(8)))
    found = await open_cache().read_vectors(keys)
    assert len(found) == len(keys)
    assert all(entry.vector.tobytes() == make_vector(entry.windows - 1).tobytes() for entry in found.values())


# --- eviction ---------------------------------------------------------------------------------------------------------


async def test_what_is_too_old_goes(cache: EmbeddingCache) -> None:
    """Exactly DAYS old is kept, a second more is not; vectors and texts alike."""
    await cache.write_vectors(make_entries(1), now=NOW - SECOND)
    await cache.write_texts({make_key("old"): "x"}, now=NOW - SECOND)
    await cache.write_vectors(make_entries(2), now=NOW)
    assert await cache.evict(now=NOW + timedelta(days=DAYS)) == 2
    assert await read_seeds(cache, 1, 2) == {2}
    assert await cache.read_texts([make_key("old")]) == {}


async def test_what_does_not_fit_goes_oldest_first(open_cache: OpenCache) -> None:
    """Written in another order than their times; exactly the limit fits."""
    cache = open_cache(3 * VECTOR_BYTES)
    for seed in (3, 1, 5, 2, 4):
        await cache.write_vectors(make_entries(seed), now=NOW + seed * SECOND)
    assert await cache.evict(now=NOW + 9 * SECOND) == 2
    assert await read_seeds(cache, 1, 2, 3, 4, 5) == {3, 4, 5}
    assert await cache.evict(now=NOW + 9 * SECOND) == 0


async def test_texts_count_by_their_bytes(open_cache: OpenCache) -> None:
    """In UTF-8, together with the vectors."""
    cache = open_cache(VECTOR_BYTES + 20)
    await cache.write_texts({make_key("old"): "a"}, now=NOW)
    await cache.write_texts({make_key("new"): "ü" * 10}, now=NOW + SECOND)
    await cache.write_vectors(make_entries(1), now=NOW + 2 * SECOND)
    assert await cache.evict(now=NOW + 3 * SECOND) == 1
    assert list(await cache.read_texts([make_key("old"), make_key("new")])) == [make_key("new")]


async def test_one_write_beyond_the_size_is_not_lost_as_a_whole(open_cache: OpenCache) -> None:
    """Its rows have one time: as many stay as fit."""
    cache = open_cache(30 * VECTOR_BYTES)
    await cache.write_vectors(make_entries(*range(100)), now=NOW)
    assert await cache.evict(now=NOW) == 70
    assert len(await read_seeds(cache, *range(100))) == 30


async def test_two_that_evict_at_once_do_not_evict_twice(open_cache: OpenCache) -> None:
    """What fits is still there after eight processes did it together."""
    for seed in range(60):
        await open_cache().write_vectors(make_entries(seed), now=NOW + seed * SECOND)
    limit = 25 * VECTOR_BYTES
    evicted = await asyncio.gather(*(open_cache(limit).evict(now=NOW + 60 * SECOND) for _ in range(8)))
    assert sum(evicted) == 35
    assert await read_seeds(open_cache(), *range(60)) == set(range(35, 60))


# --- only on a real MongoDB -------------------------------------------------------------------------------------------


class CacheCommands(monitoring.CommandListener):
    """Every command on the cache's collection."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep the command."""
        command: dict[str, Any] = dict(event.command)
        if EMBEDDING_CACHE in (command.get(event.command_name), command.get("collection")):
            self.seen.append(command | {"name": event.command_name})

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


_commands = CacheCommands()
monitoring.register(_commands)


@pytest.fixture
def mongo_cache(connection: MongoConnection) -> MongoEmbeddingCache:
    """The adapter itself."""
    return MongoEmbeddingCache(connection, days=DAYS, max_bytes=MAX_BYTES)


@pytest.fixture
def seen() -> list[dict[str, Any]]:
    """The commands from here on."""
    _commands.seen.clear()
    return _commands.seen


@pytest.mark.services
async def test_calls_are_few(mongo_cache: MongoEmbeddingCache, seen: list[dict[str, Any]]) -> None:
    """5,000 vectors are one command in and one query out, whose answer comes in two batches."""
    entries = make_entries(*range(MANY))
    await mongo_cache.write_vectors(entries, now=NOW)
    await mongo_cache.read_vectors(list(entries))
    assert [command["name"] for command in seen] == ["update", "find", "getMore"]


@pytest.mark.services
async def test_more_keys_than_a_command_holds(mongo_cache: MongoEmbeddingCache, seen: list[dict[str, Any]]) -> None:
    """250,000 keys are 19 MB: three queries."""
    await mongo_cache.write_vectors(make_entries(249_999), now=NOW)
    found = await mongo_cache.read_vectors([make_key(number) for number in range(250_000)])
    assert list(found) == [make_key(249_999)]
    assert [command["name"] for command in seen] == ["update", "find", "find", "find"]


@pytest.mark.services
@pytest.mark.parametrize("options", ["", "&w=0", "&w=majority&readConcernLevel=majority"])
async def test_writes_are_majority_and_journaled(
    mongodb_uri: str, cache_database: Database[dict[str, Any]], seen: list[dict[str, Any]], options: str
) -> None:
    """Whatever the address says; reads see them at once."""
    opened = connect(f"{mongodb_uri}{options}", cache_database.name, max_pool_size=2, server_selection_timeout_ms=5_000)
    cache = MongoEmbeddingCache(opened, days=DAYS, max_bytes=VECTOR_BYTES)
    await cache.write_vectors(make_entries(1, 2), now=NOW)
    assert await read_seeds(cache, 1, 2) == {1, 2}
    await cache.evict(now=NOW)
    await opened.close()
    concerns = {command["name"]: command.get("writeConcern", command.get("readConcern")) for command in seen}
    written, read = {"w": "majority", "j": True}, {"level": "majority"}
    assert concerns == {"update": written, "delete": written, "find": read, "aggregate": read}


@pytest.mark.services
async def test_a_duplicate_key_is_no_error_and_another_one_is(
    mongo_cache: MongoEmbeddingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upsert that lost a race is fine; one among them that was refused for another reason is told."""
    codes: list[int] = []

    def refuse(*_: object, **__: object) -> None:
        refusals = [{"index": 0, "code": code, "errmsg": "refused"} for code in codes]
        raise BulkWriteError({"writeErrors": refusals, "writeConcernErrors": []})

    monkeypatch.setattr("pymongo.collection.Collection.bulk_write", refuse)
    codes[:] = [11000, 11000]
    await mongo_cache.write_vectors(make_entries(1), now=NOW)
    codes[:] = [11000, 14031]
    with pytest.raises(StorageError, match="disk is full"):
        await mongo_cache.write_vectors(make_entries(1), now=NOW)


@pytest.mark.services
async def test_the_server_forgets_by_itself(
    mongo_cache: MongoEmbeddingCache, cache_database: Database[dict[str, Any]]
) -> None:
    """A row says when it expires, and the index that makes the server act on it exists."""
    await mongo_cache.write_vectors(make_entries(1), now=NOW)
    rows = cache_database[EMBEDDING_CACHE].find({}, {"vector": 0})
    (row,) = rows
    assert (row["_id"], row["bytes"], row["windows"]) == (make_key(1), VECTOR_BYTES, 1)
    assert row["expiresAt"] - row["at"] == timedelta(days=DAYS)
    index = cache_database[EMBEDDING_CACHE].index_information()["embedding_cache_expiresAt"]
    assert (index["key"], index["expireAfterSeconds"]) == ([("expiresAt", 1)], 0)


@pytest.fixture
async def explain(
    mongo_cache: MongoEmbeddingCache, cache_database: Database[dict[str, Any]]
) -> Callable[[dict[str, Any]], str]:
    """The winning plan of a command as text, over rows enough to choose among."""
    await mongo_cache.write_vectors(make_entries(*range(300)), now=NOW)

    def find_plans(node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            yield from (value for name, value in node.items() if name == "winningPlan")  # pyright: ignore[reportUnknownVariableType]
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():  # pyright: ignore[reportUnknownVariableType]
            yield from find_plans(child)

    def show(command: dict[str, Any]) -> str:
        explained = cache_database.command("explain", command, verbosity="queryPlanner")
        plans = list(find_plans(explained))
        assert plans
        return str(plans)

    return show


@pytest.mark.services
def test_queries_read_an_index(explain: Callable[[dict[str, Any]], str]) -> None:
    """None scans the collection or sorts, and the size is added up without fetching a row."""
    keys = {"_id": {"$in": [make_key(1), make_key(2)]}}
    by_key = explain({"find": EMBEDDING_CACHE, "filter": keys, "projection": {"vector": 1, "windows": 1}})
    upsert = explain({"update": EMBEDDING_CACHE, "updates": [{"q": {"_id": make_key(1)}, "u": {"$set": {"bytes": 1}}}]})
    total = explain({"aggregate": EMBEDDING_CACHE, "pipeline": total_since(NOW), "cursor": {}})
    running = explain({"aggregate": EMBEDDING_CACHE, "pipeline": first_beyond(MAX_BYTES), "cursor": {}})
    assert "'indexName': '_id_'" in by_key
    assert "IDHACK" in upsert or "EXPRESS" in upsert
    for plan in (total, running):
        assert f"'indexName': '{EMBEDDING_CACHE_AGE}'" in plan
        assert "FETCH" not in plan
    for plan in (by_key, upsert, total, running):
        assert "COLLSCAN" not in plan
        assert "'stage': 'SORT'" not in plan


@pytest.mark.services
async def test_a_range_is_deleted_along_the_index_in_slices(
    mongo_cache: MongoEmbeddingCache,
    seen: list[dict[str, Any]],
    explain: Callable[[dict[str, Any]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By time and key, not through half of all keys (each command explained as it was sent); no command is long."""
    monkeypatch.setattr(mongo_embedding_cache, "_ROWS_A_DELETE", 60)
    seen.clear()
    assert await mongo_cache.evict(now=NOW) == 300 - MAX_BYTES // VECTOR_BYTES
    finds = [command for command in seen if command["name"] == "find"]
    deletes = [command["deletes"] for command in seen if command["name"] == "delete"]
    assert (len(finds), len(deletes)) == (1 + 4, 1 + 4)
    places = {"filter", "sort", "skip", "hint", "projection", "limit"}
    plans = [explain({"find": EMBEDDING_CACHE, **{k: v for k, v in sent.items() if k in places}}) for sent in finds]
    plans += [explain({"delete": EMBEDDING_CACHE, "deletes": sent}) for sent in deletes]
    for plan in plans:
        assert f"'indexName': '{EMBEDDING_CACHE_AGE}'" in plan
        assert not any(other in plan for other in ("'indexName': '_id_'", "COLLSCAN", "'stage': 'SORT'"))


async def test_a_server_that_is_away_is_told() -> None:
    """Each call says that MongoDB does not answer, and that it may be tried again."""
    nowhere = connect("mongodb://127.0.0.1:1/", "memory", max_pool_size=5, server_selection_timeout_ms=20)
    cache = MongoEmbeddingCache(nowhere, days=DAYS, max_bytes=MAX_BYTES)
    answers = await asyncio.gather(
        cache.read_vectors([make_key(1)]),
        cache.write_vectors(make_entries(1), now=NOW),
        cache.read_texts([make_key(1)]),
        cache.write_texts({make_key(1): "x"}, now=NOW),
        cache.evict(now=NOW),
        return_exceptions=True,
    )
    await nowhere.close()
    assert [type(answer) for answer in answers] == [StorageUnavailableError] * 5
