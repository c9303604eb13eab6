"""What `memory doctor` finds and what its repair removes: damage is done behind the store's back, on both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import pytest
from bson import ObjectId
from pymongo.database import Database

from memory_core.adapters.mongo_embedding_cache import MongoEmbeddingCache
from memory_core.adapters.mongo_indexes import INDEXES
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MongoSubmissionStore
from memory_core.adapters.mongo_sweeps import Retention
from memory_core.embedding_ports import CachedVector
from memory_core.errors import ForeignDatabaseError, NotFoundError
from memory_core.fakes import FakeDatabase
from memory_core.fakes.database import BodyRecord, TrashRecord
from memory_core.health import FaultKind, HealthLimits
from memory_core.models import DocumentState, EmbeddedDocument, Fingerprint, Holder, Outcome, StoreRequest
from memory_core.store_ports import DeleteSelector, MemoryStore
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.work_ports import Feed, FeedStore, FileState, ManifestEntry, SubmissionStore

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]
Build: TypeAlias = Callable[..., EmbeddedDocument]
Json: TypeAlias = dict[str, Any]

ANN = Holder(host="laptop", pid=1, started=1.0, token="a" * 32)
EVERYTHING = frozenset(FaultKind)
LAPSED_SECONDS = -5.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
mongodb_only = pytest.mark.parametrize("backend", [pytest.param("mongodb", marks=pytest.mark.services)], indirect=True)


class FakeDamage:
    """Damage to a FakeDatabase."""

    def __init__(self, database: FakeDatabase) -> None:
        self._database = database

    def change_row(self, chunk_id: str, *, index: int | None = None, **fields: Any) -> None:
        """Fields of a ChunkRecord, and the chunk's number."""
        row = self._database.rows[chunk_id]
        chunk = row.chunk if index is None else replace(row.chunk, index=index)
        self._database.rows[chunk_id] = replace(row, chunk=chunk, **fields)

    def lose_text(self, body_id: str) -> None:
        """Take a text away."""
        del self._database.bodies[body_id]

    def add_text(self, body_id: str) -> None:
        """A text that nobody owns."""
        self._database.bodies[body_id] = BodyRecord(text="x")

    def trash_too(self, source_id: str) -> None:
        """Let a living document stand in the trash."""
        record = self._database.documents[self._database.sources[source_id]]
        self._database.trash += (TrashRecord(document=record, deleted_at=datetime.now(UTC)),)


class MongoDamage:
    """Damage to a real database."""

    def __init__(self, database: Database[Json]) -> None:
        self._database = database

    def change_row(self, chunk_id: str, **fields: Any) -> None:
        """By the names of a ChunkRecord."""
        names = {"content_hash": "documentContentHash", "fingerprint": "embeddingFingerprint", "index": "chunkIndex"}
        changes = {names.get(name, name): value for name, value in fields.items()}
        self._database["chunks"].update_one({"_id": ObjectId(chunk_id)}, {"$set": changes})

    def lose_text(self, body_id: str) -> None:
        """Take a text away."""
        self._database["contents"].delete_many({"bodyId": body_id})

    def add_text(self, body_id: str) -> None:
        """A text that nobody owns."""
        self._database["contents"].insert_one({"bodyId": body_id, "part": 0, "text": "x"})

    def trash_too(self, source_id: str) -> None:
        """Let a living document stand in the trash."""
        row = self._database["documents"].find_one({"sourceId": source_id})
        assert row is not None
        later = datetime.now(UTC) + timedelta(days=1)
        self._database["trash"].insert_one({**row, "deletedAt": later, "expiresAt": later})


@pytest.fixture
def damage(backend: Any) -> FakeDamage | MongoDamage:
    """What no port can do."""
    database = backend._database
    return FakeDamage(database) if isinstance(database, FakeDatabase) else MongoDamage(database)


@pytest.fixture
def database(contract_database: Database[Json]) -> Database[Json]:
    """The real one."""
    return contract_database


async def find(store: MemoryStore) -> dict[FaultKind, tuple[str, ...]]:
    """What is wrong, by kind."""
    return {finding.kind: tuple(sorted(finding.names)) for finding in (await store.check_health()).findings}


async def mend(store: MemoryStore) -> dict[FaultKind, int]:
    """What a repair of everything did."""
    return {one.kind: one.count for one in await store.mend(EVERYTHING)}


async def ids_of(store: MemoryStore, state: DocumentState) -> list[str]:
    """The chunk ids of a document."""
    return [key.chunk_id for key in (await store.read_chunk_keys([state.document_id]))[state.document_id]]


# --- on the fake and on MongoDB ---------------------------------------------------------------------------------------


async def test_each_fault_of_a_document_has_its_kind(
    store: MemoryStore, put: Put, damage: Any, lose_row: Callable[[str], None], break_row: Callable[[str], None]
) -> None:
    """Short, mixed, of another text, of another space, numbered twice: each document is named under one kind."""
    states = {name: await put(f"notes/{name}", "alpha", "beta", "gamma") for name in "abcdefg"}
    rows = {name: await ids_of(store, state) for name, state in states.items()}
    lose_row(rows["a"][1])
    damage.change_row(rows["b"][2], content_hash="0" * 64)
    damage.change_row(rows["c"][0], fingerprint="hash/other/8/prefix-1")
    damage.change_row(rows["d"][2], index=1)
    damage.change_row(rows["e"][2], index=7)
    break_row(rows["f"][0])
    assert await find(store) == {
        FaultKind.SHORT_DOCUMENTS: ("notes/a", "notes/f"),
        FaultKind.MISMATCHED_CHUNKS: ("notes/b", "notes/c"),
        FaultKind.MISNUMBERED_CHUNKS: ("notes/d", "notes/e"),
    }
    assert await mend(store) == {}  # these need their text: the path mends them
    for name in "abcdef":
        await put(f"notes/{name}", "something else")
    assert await find(store) == {}


async def test_what_has_no_owner_goes_at_once(
    store: MemoryStore, put: Put, damage: Any, lose_document: Callable[[str], None]
) -> None:
    """Chunks and texts without a document; nothing of what lives, and a second repair finds nothing."""
    kept, lost = await put("notes/kept", "alpha"), await put("notes/lost", "beta", "gamma")
    lose_document("notes/lost")
    damage.add_text("loose")
    health = await store.check_health()
    assert [(one.kind, one.size) for one in health.findings] == [
        (FaultKind.ORPHAN_CHUNKS, 2),
        (FaultKind.ORPHAN_TEXTS, 2),
    ]
    assert health.findings[0].names == (lost.document_id,)
    assert all("removes them now" in fault for fault in health.faults)
    assert await mend(store) == {FaultKind.ORPHAN_CHUNKS: 2, FaultKind.ORPHAN_TEXTS: 2}
    assert (await find(store), await mend(store)) == ({}, {})
    assert await store.read_body(kept.body_id) == "alpha"
    assert await ids_of(store, kept)


async def test_a_text_that_is_gone_is_reported_and_an_earlier_one_is_forgotten(
    store: MemoryStore, put: Put, damage: Any
) -> None:
    """Of the current version, of an earlier one, of what is in the trash."""
    first = await put("notes/a", "alpha")
    second = await put("notes/a", "beta")
    third = await put("notes/a", "gamma")
    gone = await put("notes/b", "delta")
    await store.delete(DeleteSelector(source_ids=("notes/b",)), now=datetime.now(UTC))
    for state in (first, third, gone):
        damage.lose_text(state.body_id)
    assert await find(store) == {
        FaultKind.MISSING_TEXTS: ("notes/a",),
        FaultKind.MISSING_VERSIONS: ("notes/a version 1", "notes/b version 1 (in the trash)"),
    }
    assert await mend(store) == {FaultKind.MISSING_VERSIONS: 2}
    assert await find(store) == {FaultKind.MISSING_TEXTS: ("notes/a",)}
    document = await store.read_document("notes/a")
    assert document is not None
    assert [one.version for one in document.versions] == [2, 3]
    assert await store.read_body(second.body_id) == "beta"
    assert await store.read_trash() == []
    await put("notes/a", "epsilon")
    assert await mend(store) == {FaultKind.MISSING_VERSIONS: 1}
    assert await find(store) == {}


async def test_versions_are_forgotten_but_never_the_current_one(store: MemoryStore, put: Put) -> None:
    """With their texts; what is not there counts for nothing."""
    first = await put("notes/a", "alpha")
    second = await put("notes/a", "beta")
    assert await store.forget_versions(first.document_id, {1, 2, 9}) == 1
    assert await store.forget_versions(first.document_id, {1}) == 0
    assert await store.forget_versions("f" * 24, {1}) == 0
    with pytest.raises(NotFoundError):
        await store.read_body(first.body_id)
    assert await store.read_body(second.body_id) == "beta"
    assert await find(store) == {}


async def test_a_living_document_does_not_stay_in_the_trash(store: MemoryStore, put: Put, damage: Any) -> None:
    """Its row of the trash goes, its text stays."""
    state = await put("notes/a", "alpha")
    damage.trash_too("notes/a")
    assert await find(store) == {FaultKind.TRASHED_DOCUMENTS: ("notes/a",)}
    assert await mend(store) == {FaultKind.TRASHED_DOCUMENTS: 1}
    assert await find(store) == {}
    assert await store.read_body(state.body_id) == "alpha"


async def test_a_directory_forgets_what_is_not_stored(store: MemoryStore, feeds: FeedStore, put: Put) -> None:
    """Files that failed have no document either and stay; so does everything of a directory that is being synced."""
    await put("docs/a", "alpha")
    for name in ("docs", "busy"):
        await feeds.register_feed(Feed(name=name, root=f"/data/{name}"))
    files = [("a", FileState.STORED), ("b", FileState.STORED), ("c", FileState.FAILED)]
    for feed in ("docs", "busy"):
        entries = [
            ManifestEntry(path=f"{one}.md", source_id=f"{feed}/{one}", size=1, mtime_ns=1, state=state)
            for one, state in files
        ]
        await feeds.write_manifest(feed, entries)
    await feeds.acquire_lease("busy", ANN, seconds=60)
    assert await find(store) == {FaultKind.LOST_FILES: ("docs/b",)}
    assert await mend(store) == {FaultKind.LOST_FILES: 1}
    assert await find(store) == {}
    assert sorted(one.path for one in await feeds.read_manifest("docs")) == ["a.md", "c.md"]
    assert len(await feeds.read_manifest("busy")) == 3


async def test_runs_that_ended_without_a_word(store: MemoryStore, feeds: FeedStore) -> None:
    """Their leases have lapsed: a directory's and a re-embed's. Those that hold are left alone."""
    for name in ("docs", "busy"):
        await feeds.register_feed(Feed(name=name, root=f"/data/{name}"))
    await feeds.acquire_lease("docs", ANN, seconds=LAPSED_SECONDS)
    await feeds.acquire_lease("busy", ANN, seconds=60)
    await store.acquire_reembed_lease(ANN, seconds=LAPSED_SECONDS)
    assert await find(store) == {FaultKind.DEAD_RUNS: ("memory ingest of docs", "memory reembed")}
    assert await mend(store) == {FaultKind.DEAD_RUNS: 2}
    assert await find(store) == {}
    other = replace(ANN, token="b" * 32)
    assert await feeds.acquire_lease("busy", other, seconds=60) == ANN


async def test_submissions_without_a_process(store: MemoryStore, submissions: SubmissionStore, now: datetime) -> None:
    """One that its stager still holds is no fault; one that crashed its run three times is parked."""
    ids: list[str] = []
    for key, seconds in (("held", 60.0), ("left", LAPSED_SECONDS), ("parked", LAPSED_SECONDS)):
        request = StoreRequest(request=StoreContentRequest(content=f"text {key}"), provenance=Provenance(channel="cli"))
        staged = await submissions.stage(request, key=key, holder=ANN, seconds=seconds, now=now)
        ids.append(staged.submission_id)
    for _ in range(4):
        await submissions.claim([ids[2]], holder=ANN, seconds=LAPSED_SECONDS)
    assert await find(store) == {FaultKind.ABANDONED_SUBMISSIONS: (ids[1],), FaultKind.PARKED_SUBMISSIONS: (ids[2],)}
    assert await mend(store) == {}  # the first is to be stored, through the path; the second is for a person


async def test_a_database_without_our_meta_is_only_named(
    store: MemoryStore, put: Put, lose_meta: Callable[[], None], damage: Any
) -> None:
    """It is not looked into, and nothing of it is mended."""
    state = await put("notes/a", "alpha")
    damage.add_text("loose")
    lose_meta()
    assert await find(store) == {FaultKind.FOREIGN_ROWS: ("chunks", "documents")}
    with pytest.raises(ForeignDatabaseError):
        await store.mend(EVERYTHING)
    assert await store.read_body("loose") == "x"
    assert await ids_of(store, state)


async def test_a_database_of_another_schema_is_not_mended(
    store: MemoryStore, damage: Any, age_schema: Callable[[], None]
) -> None:
    """`memory migrate` comes first."""
    damage.add_text("loose")
    age_schema()
    with pytest.raises(ForeignDatabaseError, match="schema"):
        await store.mend(EVERYTHING)
    assert await store.read_body("loose") == "x"


# --- on MongoDB alone -------------------------------------------------------------------------------------------------


@pytest.fixture
async def knowing(backend: Any, space: Fingerprint, store: MemoryStore) -> Any:  # noqa: ARG001 - prepared, and closed by the backend
    """Opens a store that believes of a process what it is told."""

    def open_store(*, alive: bool, transactions: bool = True) -> MongoStore:
        opened = MongoStore(backend._connect(), versions_kept=5, is_alive=lambda _: alive)
        opened._has_transactions = transactions  # pyright: ignore[reportPrivateUsage] - as on a stand-alone server
        return opened

    return open_store


def announce(database: Database[Json], document_id: str, *, revision: str | None, bodies: tuple[str, ...] = ()) -> None:
    """What a bare write leaves while it runs."""
    database["intents"].insert_one(
        {
            "_id": revision or "deletion",
            "documentIds": [ObjectId(document_id)],
            "revision": revision,
            "bodyIds": list(bodies),
            "movesRows": False,
            "replaced": [],
            "holder": {"token": "t", "host": "h", "pid": 1, "started": 1.0},
            "at": datetime.now(UTC) - timedelta(seconds=1),
        }
    )


@mongodb_only
@pytest.mark.parametrize("transactions", [True, False])
async def test_nothing_goes_that_a_living_process_is_writing(
    database: Database[Json],
    put: Put,
    knowing: Callable[..., MongoStore],
    lose_document: Callable[[str], None],
    store: MemoryStore,
    *,
    transactions: bool,
) -> None:
    """Rows and texts that were announced are no fault while their process lives, and go once it is dead."""
    new, old = await put("notes/new", "alpha"), await put("notes/old", "beta", "gamma")
    lose_document("notes/new")
    database["contents"].delete_many({"bodyId": new.body_id})
    row = database["chunks"].find_one({"documentId": ObjectId(old.document_id)}) or {}
    extra = ObjectId()
    database["chunks"].insert_one({**row, "_id": extra, "revision": "e" * 24, "chunkIndex": 0})
    announce(database, new.document_id, revision=new.revision, bodies=("coming",))
    announce(database, old.document_id, revision="e" * 24)
    MongoDamage(database).add_text("coming")
    alive = knowing(alive=True, transactions=transactions)
    assert await find(alive) == {}
    assert await mend(alive) == {}
    assert database["chunks"].count_documents({}) == 4

    dead = knowing(alive=False, transactions=transactions)
    found = await find(dead)
    assert set(found[FaultKind.DEAD_WRITES]) == {new.revision, "e" * 24}
    assert found[FaultKind.LEFTOVER_CHUNKS] == ("notes/old",)
    assert found[FaultKind.ORPHAN_CHUNKS] == (new.document_id,)
    done = await mend(dead)
    assert done[FaultKind.DEAD_WRITES] == 2
    assert await find(dead) == {}
    assert {row["documentId"] for row in database["chunks"].find()} == {ObjectId(old.document_id)}
    assert await ids_of(store, old)


@mongodb_only
async def test_without_transactions_a_young_text_may_be_a_submission_on_its_way(
    database: Database[Json], store: MemoryStore, knowing: Callable[..., MongoStore]
) -> None:
    """There it is staged before its row is: it must be old, too."""
    damage = MongoDamage(database)
    damage.add_text("young")
    database["contents"].insert_one({"_id": ObjectId.from_datetime(LONG_AGO), "bodyId": "old", "part": 0, "text": "x"})
    bare = knowing(alive=True, transactions=False)
    assert await mend(bare) == {FaultKind.ORPHAN_TEXTS: 1}
    assert [row["bodyId"] for row in database["contents"].find()] == ["young"]
    assert await mend(store) == {FaultKind.ORPHAN_TEXTS: 1}


@mongodb_only
async def test_a_text_lacks_a_part(database: Database[Json], store: MemoryStore, put: Put) -> None:
    """Of a long text one part is gone, at its end or in its middle."""
    for name in "abc":
        state = await put(f"notes/{name}", "long " * 500_000)
        if name != "c":
            part = {"a": 1, "b": 2}[name]
            database["contents"].delete_one({"bodyId": state.body_id, "part": part})
    assert await find(store) == {FaultKind.MISSING_TEXTS: ("notes/a", "notes/b")}


@mongodb_only
async def test_indexes_are_made_as_they_should_be(database: Database[Json], store: MemoryStore, put: Put) -> None:
    """Missing, with other keys, of another name; also those that the look itself goes by."""
    await put("notes/a", "alpha")
    before = {spec.collection: database[spec.collection].index_information() for spec in INDEXES}
    database["chunks"].drop_index("chunks_tally")
    database["contents"].drop_index("contents_bodyId_part")
    database["trash"].drop_index("trash_expiresAt")
    database["trash"].create_index([("expiresAt", -1)], name="trash_expiresAt")
    database["documents"].drop_index("documents_sourceId_unique")
    database["documents"].create_index([("sourceId", 1)], name="sourceId_1")
    found = await find(store)
    assert found.pop(FaultKind.MISSING_INDEXES) == ("chunks_tally", "contents_bodyId_part")
    assert found.pop(FaultKind.DIFFERENT_INDEXES) == ("documents_sourceId_unique", "trash_expiresAt")
    assert found == {}
    assert await mend(store) == {FaultKind.MISSING_INDEXES: 2, FaultKind.DIFFERENT_INDEXES: 2}
    assert await find(store) == {}
    assert {spec.collection: database[spec.collection].index_information() for spec in INDEXES} == before


@mongodb_only
async def test_a_cache_beyond_its_limits_is_cut(database: Database[Json], store: MemoryStore, backend: Any) -> None:
    """By age and by size; without limits it is never too large."""
    today = datetime.now(UTC)
    cache = MongoEmbeddingCache(backend._connect(), days=3_000, max_bytes=10**9)
    vectors = {f"{number:064x}": CachedVector(vector=np.ones(8, np.float32)) for number in range(10)}
    await cache.write_vectors(dict(list(vectors.items())[:4]), now=today - timedelta(days=30))
    await cache.write_vectors(dict(list(vectors.items())[4:]), now=today)
    limits = HealthLimits(cache_days=7, cache_bytes=4 * 32)
    assert await find(store) == {}
    (finding,) = (await store.check_health(limits)).findings
    assert finding.kind is FaultKind.LARGE_CACHE
    (mended,) = await store.mend(EVERYTHING, limits)
    assert (mended.kind, mended.count) == (FaultKind.LARGE_CACHE, 6)
    assert (await store.check_health(limits)).findings == ()
    database["embedding_cache"].delete_many({})


# --- retention --------------------------------------------------------------------------------------------------------


@mongodb_only
async def test_submissions_go_by_their_age(
    database: Database[Json], store: MemoryStore, backend: Any, space: Fingerprint
) -> None:
    """Finished ones after a week, failed and parked ones after a month, with their own texts; open ones stay."""
    submissions = MongoSubmissionStore(backend._connect())
    today = datetime.now(UTC)
    made: dict[str, str] = {}
    for name, state, days in (
        ("new", "done", 6),
        ("old", "done", 8),
        ("failed", "failed", 8),
        ("long failed", "failed", 31),
        ("parked", "parked", 29),
        ("long parked", "parked", 31),
        ("open", "staged", 99),
    ):
        request = StoreRequest(request=StoreContentRequest(content=name), provenance=Provenance(channel="cli"))
        at = today - timedelta(days=days)
        staged = await submissions.stage(request, key=name, holder=ANN, seconds=60, now=at)
        made[staged.submission_id] = name
        if state == "parked":
            database["submissions"].update_one(
                {"_id": ObjectId(staged.submission_id)},
                {"$set": {"state": state}, "$unset": {"openKey": "", "lease": ""}},
            )
        elif state != "staged":
            outcome = Outcome.FAILED if state == "failed" else Outcome.CREATED
            await submissions.finish({staged.submission_id: {"outcome": outcome.value}}, holder=ANN, now=at)
    keeping = MongoStore(backend._connect(), versions_kept=5, retention=Retention())
    await keeping.prepare(space)
    left = {made[str(row["_id"])] for row in database["submissions"].find()}
    assert left == {"new", "failed", "parked", "open"}
    assert {row["text"] for row in database["contents"].find()} == {"failed", "parked", "open"}
    assert FaultKind.ORPHAN_TEXTS not in await find(store)


@mongodb_only
async def test_an_adopted_text_outlives_its_failed_submission(
    database: Database[Json], store: MemoryStore, put: Put, backend: Any, space: Fingerprint
) -> None:
    """It is its version's."""
    submissions = MongoSubmissionStore(backend._connect())
    long_ago = datetime.now(UTC) - timedelta(days=99)
    request = StoreRequest(request=StoreContentRequest(content="alpha"), provenance=Provenance(channel="cli"))
    staged = await submissions.stage(request, key="k", holder=ANN, seconds=60, now=long_ago)
    state = await put("notes/a", "alpha", body_id=staged.request.body_id)
    await submissions.finish({staged.submission_id: {"outcome": "failed"}}, holder=ANN, now=long_ago)
    await MongoStore(backend._connect(), versions_kept=5).prepare(space)
    assert database["submissions"].count_documents({}) == 0
    assert await store.read_body(state.body_id) == "alpha"
    assert await find(store) == {}


@mongodb_only
async def test_a_deletion_is_forgotten_after_its_time(
    database: Database[Json], store: MemoryStore, put: Put, backend: Any, space: Fingerprint
) -> None:
    """Tombstones alone, by when they were committed; then the source counts versions from one again."""
    for name in ("old", "young"):
        await put(f"notes/{name}", "alpha")
        await put(f"notes/{name}", "beta")
    await put("notes/waiting", "gamma")
    await store.delete(DeleteSelector(source_ids=("notes/old", "notes/young", "notes/waiting")), now=datetime.now(UTC))
    trash = database["trash"]
    trash.update_many({"sourceId": {"$ne": "notes/waiting"}}, {"$set": {"expiresAt": LONG_AGO}})
    await MongoStore(backend._connect(), versions_kept=5).prepare(space)
    old = datetime.now(UTC) - timedelta(days=400)
    trash.update_many({"sourceId": {"$ne": "notes/young"}}, {"$set": {"committedAt": old}})
    keeping = MongoStore(backend._connect(), versions_kept=5, retention=Retention(tombstone_days=500))
    await keeping.prepare(space)
    assert trash.count_documents({}) == 3
    await MongoStore(backend._connect(), versions_kept=5).prepare(space)
    assert {row["sourceId"] for row in trash.find()} == {"notes/young", "notes/waiting"}
    assert ((await put("notes/old", "delta")).version, (await put("notes/young", "delta")).version) == (1, 3)
    assert await find(store) == {}
