"""MemoryStore, documents whose rows are beyond one transaction: all or nothing for every reader. Both backends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

import pytest
from pymongo.database import Database

from memory_core.adapters.mongo_connection import connect
from memory_core.adapters.mongo_store import MongoStore
from memory_core.models import DocumentState, EmbeddedDocument, Fingerprint, Holder
from memory_core.store_ports import DeleteSelector, MemoryStore, WriteVerdict
from tests.contract.cut_off import cut_off

Build: TypeAlias = Callable[..., EmbeddedDocument]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]


async def test_in_parts_is_as_in_one(store: MemoryStore, build: Build, now: datetime) -> None:
    """Created, edited with rows that stay, shrunk; each is complete and counts its version; a repeat is harmless."""
    first = build("notes/a", "alpha", "beta", "gamma")
    for _ in range(2):
        result = await store.write_in_parts(first, now=now)
        assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    base = (await store.read_states(["notes/a"]))["notes/a"]
    keys = (await store.read_chunk_keys([base.document_id]))[base.document_id]
    assert [key.index for key in keys] == [0, 1, 2]
    second = build("notes/a", "alpha", "delta", base=base, keep=keys)
    for _ in range(2):
        result = await store.write_in_parts(second, now=now)
        assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 2)
    after = (await store.read_states(["notes/a"]))["notes/a"]
    assert (after.tally.count, after.tally.revisions) == (2, {second.document.revision})
    left = (await store.read_chunk_keys([base.document_id]))[base.document_id]
    assert left[0].chunk_id == keys[0].chunk_id
    assert await store.read_body(after.body_id) == second.document.content
    assert (await store.check_health()).faults == ()


async def test_a_lost_race_leaves_nothing(store: MemoryStore, build: Build, put: Put, now: datetime) -> None:
    """The base is gone: a conflict, and of its rows none is left."""
    base = await put("notes/a", "alpha")
    late = build("notes/a", "beta", "gamma", base=base)
    current = await put("notes/a", "delta")
    assert (await store.write_in_parts(late, now=now)).verdict is WriteVerdict.CONFLICT
    assert (await store.read_states(["notes/a"]))["notes/a"] == current
    assert (await store.check_health()).faults == ()


@pytest.mark.services
class TestCutOff:
    """A process that is gone in the middle, on the real server."""

    @pytest.fixture
    async def open_store(
        self, mongodb_uri: str, contract_database: Database[dict[str, Any]]
    ) -> AsyncGenerator[Callable[[str, Callable[[Holder], bool]], MongoStore]]:
        """A store of the process on this machine, which believes what it is told of others."""
        for name in contract_database.list_collection_names():
            contract_database[name].delete_many({})

        def open_as(host: str, is_alive: Callable[[Holder], bool]) -> MongoStore:
            name = contract_database.name
            connection = connect(mongodb_uri, name, max_pool_size=4, server_selection_timeout_ms=5_000)
            holder = Holder(host=host, pid=1, started=0.0)
            stores.append(MongoStore(connection, versions_kept=5, holder=holder, is_alive=is_alive))
            return stores[-1]

        stores: list[MongoStore] = []
        yield open_as
        for store in stores:
            await store.close()

    async def test_what_it_had_begun_goes_with_the_next_start(
        self,
        open_store: Callable[[str, Callable[[Holder], bool]], MongoStore],
        contract_database: Database[dict[str, Any]],
        build: Build,
        space: Fingerprint,
        now: datetime,
    ) -> None:
        """Its rows are read by nobody; while it may live they stay; once it is known to be gone they go."""
        dying = open_store("dying", lambda _: True)
        await dying.prepare(space)
        write = build("notes/a", "alpha", "beta")

        with cut_off("mongo_writes.run_transaction"):
            await dying.write_in_parts(write, now=now)
        assert contract_database["chunks"].count_documents({}) == 2
        careful = open_store("careful", lambda _: True)
        await careful.prepare(space)
        assert await careful.read_states(["notes/a"]) == {}
        assert contract_database["chunks"].count_documents({}) == 2
        knowing = open_store("knowing", lambda holder: holder.host != "dying")
        await knowing.prepare(space)
        assert contract_database["chunks"].count_documents({}) == 0
        assert contract_database["intents"].count_documents({}) == 0
        result = await knowing.write_in_parts(replace(write), now=now)
        assert result.verdict is WriteVerdict.WRITTEN

    async def test_old_rows_that_were_left_go_too(
        self,
        open_store: Callable[[str, Callable[[Holder], bool]], MongoStore],
        contract_database: Database[dict[str, Any]],
        build: Build,
        space: Fingerprint,
        now: datetime,
    ) -> None:
        """Cut off behind the flip: readers see the new text alone, and the next start removes the old rows."""
        dying = open_store("dying", lambda _: True)
        await dying.prepare(space)
        await dying.write_in_parts(build("notes/a", "alpha", "beta"), now=now)
        base = (await dying.read_states(["notes/a"]))["notes/a"]

        with cut_off("mongo_writes._delete_old_rows"):
            await dying.write_in_parts(build("notes/a", "gamma", base=base), now=now)
        ids = [str(row["_id"]) for row in contract_database["chunks"].find({}, {"_id": 1})]
        assert len(ids) == 3
        assert [hit.text for hit in (await dying.read_hits(ids)).values()] == ["gamma"]
        knowing = open_store("knowing", lambda _: False)
        await knowing.prepare(space)
        assert contract_database["chunks"].count_documents({}) == 1
        assert (await knowing.check_health()).faults == ()

    async def test_many_rows_are_deleted_behind_their_documents(
        self,
        open_store: Callable[[str, Callable[[Holder], bool]], MongoStore],
        monkeypatch: pytest.MonkeyPatch,
        contract_database: Database[dict[str, Any]],
        build: Build,
        space: Fingerprint,
        now: datetime,
    ) -> None:
        """Cut off between the two: the document is gone at once, its rows with the next start."""
        monkeypatch.setattr("memory_core.adapters.mongo_deletes._ROWS_IN_A_TRANSACTION", 1)
        dying = open_store("dying", lambda _: True)
        await dying.prepare(space)
        await dying.write_together([build("notes/a", "alpha", "beta"), build("notes/b", "gamma")], now=now)
        deletion = await dying.delete(DeleteSelector(source_ids=("notes/b",)), now=now)
        assert deletion.deleted_chunks == 1

        with cut_off("mongo_deletes._delete_rows"):
            await dying.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
        assert await dying.read_document("notes/a") is None
        assert contract_database["chunks"].count_documents({}) == 2
        knowing = open_store("knowing", lambda _: False)
        await knowing.prepare(space)
        assert contract_database["chunks"].count_documents({}) == 0
        assert (await knowing.check_health()).faults == ()
