"""The concerns of every command that the adapters send, whatever the URI says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta

import numpy as np
import pytest

from memory_core.adapters.mongo_connection import MongoConnection, connect
from memory_core.adapters.mongo_embedding_cache import MongoEmbeddingCache
from memory_core.adapters.mongo_feeds import MongoFeedStore
from memory_core.adapters.mongo_indexes import DOCUMENTS, INDEXES, INTENTS, META
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MongoSubmissionStore
from memory_core.embedding_ports import CachedVector
from memory_core.models import Fingerprint, StoreRequest
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.work_ports import Feed, FileState, ManifestEntry
from tests.contract.mongo_errors.failing_mongo import (
    ANN,
    BOB,
    DATABASE,
    DIARY,
    Build,
    FailingMongo,
    Recorder,
    Row,
)

pytestmark = pytest.mark.services


# --- concerns ---------------------------------------------------------------------------------------------------------


WEAK = "w=1&journal=false&readConcernLevel=local&readPreference=secondary"
WRITES = {"insert", "update", "delete", "findAndModify", "create", "createIndexes", "collMod"}
READS = {"find", "aggregate", "count", "distinct"}
MAJORITY = {"w": "majority", "j": True}


def find_weak(commands: Sequence[Row]) -> list[Row]:
    """Commands outside of a transaction that write or read with less than they must."""
    weak: list[Row] = []
    for command in commands:
        name, level = command["name"], command.get("readConcern", {}).get("level")
        is_strong = command.get("writeConcern") == MAJORITY if name in WRITES else level in {"majority", "snapshot"}
        if not is_strong:
            weak.append(command)
    return weak


@pytest.fixture
async def weak(mongod: FailingMongo, connection: MongoConnection) -> AsyncGenerator[MongoConnection]:
    """A connection whose address asks for less than is safe."""
    opened = connect(f"{mongod.set_uri}&{WEAK}", DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    assert opened.database.name == connection.database.name
    yield opened
    await opened.close()


@pytest.mark.parametrize("has_transactions", [True, False])
async def test_a_uri_weakens_no_command_of_any_adapter(
    weak: MongoConnection,
    sent: Recorder,
    build: Build,
    space: Fingerprint,
    now: datetime,
    *,
    has_transactions: bool,
) -> None:
    """Writes are majority and journaled, deciding reads majority and primary, in transactions and outside of them."""
    sent.commands.clear()
    store = MongoStore(weak, versions_kept=1)
    store._has_transactions = has_transactions
    await use_documents(store, build, space, now)
    await use_submissions(MongoSubmissionStore(weak), now)
    await use_feeds(MongoFeedStore(weak))
    await use_cache(MongoEmbeddingCache(weak, days=7, max_bytes=1), now)
    work = [command for command in sent.commands if command["name"] in WRITES | READS]
    bare = [command for command in work if "autocommit" not in command]
    assert find_weak(bare) == []
    assert all(command.get("$readPreference", {}).get("mode") != "secondary" for command in sent.commands)
    starts = [command for command in work if command.get("startTransaction")]
    commits = [command for command in sent.commands if command["name"] == "commitTransaction"]
    assert {start["readConcern"]["level"] for start in starts} == {"snapshot"}
    assert [commit["writeConcern"] for commit in commits] == [MAJORITY] * len(starts)
    # Nothing was overlooked: every way of writing, and every collection that has an index or a single row.
    names = {command["name"] for command in bare}
    assert names >= {"insert", "update", "delete", "findAndModify", "createIndexes", "find", "aggregate"}
    written = {command[command["name"]] for command in work if command["name"] in {"insert", "update", "delete"}}
    assert written >= {index.collection for index in INDEXES} | {META, INTENTS}
    # Documents without transactions are written bare, and still to the majority.
    assert any(command.get("update") == DOCUMENTS for command in bare) != has_transactions


async def use_documents(store: MongoStore, build: Build, space: Fingerprint, now: datetime) -> None:
    """Everything that MemoryStore writes, and the reads that decide."""
    other = Fingerprint(provider="hash", model="other", dimensions=8, context_policy="prefix-1")
    await store.prepare(space)
    await store.write_together([build("notes/a", "alpha", "beta"), build("notes/b", "gamma")], now=now)
    state = (await store.read_states(["notes/a"]))["notes/a"]
    keep = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    await store.write_in_parts(build("notes/a", "alpha", "delta", base=state, keep=keep), now=now)
    await store.delete(DeleteSelector(source_ids=("notes/b",)), now=now)
    await store.check_health()
    await store.purge("notes/a")
    await store.declare_space(other)
    await store.acquire_reembed_lease(ANN, seconds=60)
    await store.steal_reembed_lease(BOB, ANN, seconds=60)
    await store.release_reembed_lease(BOB)
    await store.activate_space(other, complete=True)


async def use_submissions(submissions: MongoSubmissionStore, now: datetime) -> None:
    """A submission from its staging to its end."""
    request = StoreRequest(request=StoreContentRequest(content=DIARY), provenance=Provenance(channel="cli"))
    staged = await submissions.stage(request, key="k", holder=ANN, seconds=60, now=now)
    ids = [staged.submission_id]
    await submissions.claim(ids, holder=ANN, seconds=60)
    await submissions.renew(ids, holder=ANN, seconds=60)
    await submissions.finish({ids[0]: {"outcome": "created"}}, holder=ANN, now=now)
    await submissions.release(ids, holder=ANN)
    assert await submissions.find_open(limit=9) == []


async def use_feeds(feeds: MongoFeedStore) -> None:
    """A feed, its lease and its manifest."""
    await feeds.register_feed(Feed(name="notes", root="/notes"))
    await feeds.acquire_lease("notes", ANN, seconds=60)
    await feeds.steal_lease("notes", BOB, ANN, seconds=60)
    await feeds.release_lease("notes", BOB)
    entry = ManifestEntry(
        path="a.md",
        source_id="notes/a",
        size=1,
        mtime_ns=1,
        ctime_ns=1,
        state=FileState.STORED,
        content_hash="0" * 64,
        reason=None,
        encoding="utf-8",
    )
    await feeds.write_manifest("notes", [entry], removed_paths=["b.md"])
    assert [found.path for found in await feeds.read_manifest("notes")] == ["a.md"]


async def use_cache(cache: MongoEmbeddingCache, now: datetime) -> None:
    """What is paid for, until it is too much."""
    await cache.write_vectors({"v": CachedVector(vector=np.ones(8, dtype=np.float32))}, now=now)
    await cache.write_texts({"t": "a text"}, now=now)
    await cache.read_vectors(["v"])
    await cache.evict(now=now + timedelta(days=1))
