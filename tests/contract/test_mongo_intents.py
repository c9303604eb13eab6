"""What is left of a write that was cut off behind its flip: its text stays as long as anybody owns it, and no longer.

On the real MongoDB alone: a fake is never cut off.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest
from pymongo.database import Database

from memory_core.adapters.mongo_connection import connect
from memory_core.adapters.mongo_store import MongoStore
from memory_core.models import EmbeddedDocument, Fingerprint, Holder
from memory_core.store_ports import AttributeWrite, DeleteSelector, WriteVerdict
from tests.contract.cut_off import cut_off

pytestmark = pytest.mark.services

Build: TypeAlias = Callable[..., EmbeddedDocument]
OpenStore: TypeAlias = Callable[..., MongoStore]
Rows: TypeAlias = Database[dict[str, Any]]

NAME = "notes/a"
# Everything that follows the flip of a write.
BEHIND_THE_FLIP = ("mongo_writes._delete_old_rows", "mongo_writes._delete_replaced")


@pytest.fixture
async def open_store(mongodb_uri: str, contract_database: Rows) -> AsyncGenerator[OpenStore]:
    """`open_store(name, atomic=)`: a process of that name, which takes the one named "dying" for gone."""
    for collection in contract_database.list_collection_names():
        contract_database[collection].delete_many({})
    stores: list[MongoStore] = []

    def open_as(host: str, *, atomic: bool = True) -> MongoStore:
        connection = connect(mongodb_uri, contract_database.name, max_pool_size=4, server_selection_timeout_ms=5_000)
        store = MongoStore(
            connection,
            versions_kept=2,
            holder=Holder(host=host, pid=1, started=0.0),
            is_alive=lambda holder: holder.host != "dying",
        )
        store._has_transactions = atomic  # pyright: ignore[reportPrivateUsage] - False: as on a stand-alone server
        stores.append(store)
        return store

    yield open_as
    for store in stores:
        await store.close()


@pytest.fixture
def write(build: Build) -> EmbeddedDocument:
    """A first write of the document."""
    return build(NAME, "alpha", "beta")


@pytest.fixture(params=["in parts", "bare"])
async def left(
    request: pytest.FixtureRequest,
    open_store: OpenStore,
    write: EmbeddedDocument,
    space: Fingerprint,
    now: datetime,
) -> MongoStore:
    """Another process, of a memory with one document whose writer was cut off behind its flip."""
    atomic = request.param == "in parts"
    dying, other = open_store("dying", atomic=atomic), open_store("other", atomic=atomic)
    await dying.prepare(space)
    # The last step in parts runs outside of the transaction, which is committed by then.
    with cut_off("mongo_writes._delete_old_rows"):
        await dying.write_in_parts(write, now=now)
    return other


async def test_its_text_stays_when_others_wrote_since(
    left: MongoStore,
    contract_database: Rows,
    build_attributes: Callable[..., AttributeWrite],
    space: Fingerprint,
    now: datetime,
) -> None:
    """New attributes make a new revision and keep the text: it is not the dead writer's any more."""
    base = (await left.read_states([NAME]))[NAME]
    (result,) = await left.write_together([build_attributes(base, "alpha\n\nbeta", title="New")], now=now)
    assert result.verdict is WriteVerdict.WRITTEN
    await left.prepare(space)
    assert contract_database["intents"].count_documents({}) == 0
    state = (await left.read_states([NAME]))[NAME]
    assert await left.read_body(state.body_id) == "alpha\n\nbeta"


async def test_its_text_stays_when_the_write_is_repeated_after_another(
    left: MongoStore, write: EmbeddedDocument, contract_database: Rows, build: Build, now: datetime
) -> None:
    """The repetition has lost its race, and must not take back a version that is in the history."""
    base = (await left.read_states([NAME]))[NAME]
    await left.write_together([build(NAME, "gamma", base=base)], now=now)
    assert (await left.write_in_parts(write, now=now)).verdict is WriteVerdict.CONFLICT
    assert {row["text"] for row in contract_database["contents"].find({})} == {"alpha\n\nbeta", "gamma"}
    assert {row["text"] for row in contract_database["chunks"].find({})} == {"gamma"}


async def test_its_text_stays_when_it_waits_in_the_trash(
    left: MongoStore, contract_database: Rows, space: Fingerprint
) -> None:
    """A document that was deleted since can be restored."""
    await left.delete(DeleteSelector(source_ids=(NAME,)), now=datetime.now(UTC))
    await left.prepare(space)
    assert contract_database["intents"].count_documents({}) == 0
    (trashed,) = await left.read_trash(NAME, limit=1)
    assert await left.read_body(trashed.document.state.body_id) == "alpha\n\nbeta"


@pytest.fixture
async def full(open_store: OpenStore, build: Build, space: Fingerprint, now: datetime) -> MongoStore:
    """A process without transactions that stored as many versions of a document as are kept."""
    store = open_store("dying", atomic=False)
    await store.prepare(space)
    for text in ("first", "second"):
        base = (await store.read_states([NAME])).get(NAME)
        await store.write_together([build(NAME, text, base=base)], now=now)
    return store


async def test_a_text_that_is_not_kept_any_more_goes_with_the_next_start(
    full: MongoStore,
    open_store: OpenStore,
    contract_database: Rows,
    build: Build,
    space: Fingerprint,
    now: datetime,
) -> None:
    """Cut off ahead of its removal: nobody owns it, and nobody would look for it for an hour."""
    write = build(NAME, "third", base=(await full.read_states([NAME]))[NAME])
    with cut_off(*BEHIND_THE_FLIP):
        await full.write_together([write], now=now)
    await open_store("next", atomic=False).prepare(space)
    assert {row["text"] for row in contract_database["contents"].find({})} == {"second", "third"}
    assert {row["text"] for row in contract_database["chunks"].find({})} == {"third"}


async def test_a_write_that_is_repeated_ends_what_was_cut_off(
    full: MongoStore,
    contract_database: Rows,
    build: Build,
    now: datetime,
) -> None:
    """The answer was lost and the flip was not: the same write again is done, and nothing of the old one is left."""
    write = build(NAME, "third", base=(await full.read_states([NAME]))[NAME])
    with cut_off(*BEHIND_THE_FLIP):
        await full.write_together([write], now=now)
    (result,) = await full.write_together([write], now=now)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 3)
    assert {row["text"] for row in contract_database["contents"].find({})} == {"second", "third"}
    assert {row["text"] for row in contract_database["chunks"].find({})} == {"third"}
    assert contract_database["intents"].count_documents({}) == 0


async def test_rows_of_a_lost_race_go_at_once(
    open_store: OpenStore,
    write: EmbeddedDocument,
    contract_database: Rows,
    build: Build,
    space: Fingerprint,
    now: datetime,
) -> None:
    """Cut off ahead of the flip of a new document; another one has its name when the write is repeated."""
    store = open_store("living")
    await store.prepare(space)
    with cut_off("mongo_writes.run_transaction"):
        await store.write_in_parts(write, now=now)
    await store.write_together([build(NAME, "gamma")], now=now)
    assert (await store.write_in_parts(write, now=now)).verdict is WriteVerdict.CONFLICT
    assert {row["text"] for row in contract_database["chunks"].find({})} == {"gamma"}
    assert contract_database["intents"].count_documents({}) == 0
