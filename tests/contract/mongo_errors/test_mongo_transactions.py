"""Transactions that end badly and writes that no majority confirms: stored once, or told what is not known."""

from __future__ import annotations

from datetime import datetime

import pytest
from pymongo import InsertOne
from pymongo.client_session import ClientSession

from memory_core.adapters.mongo_connection import MongoConnection, run_transaction
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS
from memory_core.adapters.mongo_store import MongoStore
from memory_core.errors import StorageUnavailableError
from memory_core.store_ports import WriteVerdict
from tests.contract.mongo_errors.failing_mongo import (
    DIARY,
    Build,
    FailingMongo,
    Recorder,
    Row,
    await_true,
    read_error,
)

pytestmark = pytest.mark.services


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_a_transaction_that_took_too_long_is_told_as_such(
    mongod: FailingMongo, connection: MongoConnection
) -> None:
    """The server ends it after its lifetime; nothing of it is stored; the driver's own words would be "time-out"."""
    rows = connection.collection("rows")

    def count_ended() -> int:
        return int(mongod.root.admin.command("serverStatus")["transactions"]["totalAborted"])

    def dawdle(session: ClientSession) -> None:
        before = count_ended()
        rows.insert_one({"text": DIARY}, session=session)
        await_true(lambda: count_ended() > before)
        rows.insert_one({"text": DIARY}, session=session)

    with mongod.parameter("transactionLifetimeLimitSeconds", 1):
        error = await read_error(connection, lambda: run_transaction(connection, dawdle))
    assert error.retryable
    assert "transactionLifetimeLimitSeconds" in error.message
    assert (error.cause or "").startswith("OperationFailure: 251 NoSuchTransaction: ")
    assert rows.count_documents({"text": DIARY}) == 0


@pytest.mark.parametrize("heals", [True, False])
async def test_a_write_conflict_is_healed_or_told(
    connection: MongoConnection, request: pytest.FixtureRequest, *, heals: bool
) -> None:
    """The driver tries again while the other holds the row; where that lasts it is not called an absent server."""
    if not heals:
        request.getfixturevalue("impatient")
    rows = connection.collection("rows")
    with connection.client.start_session() as other:
        other.start_transaction()
        rows.update_one({"_id": 0}, {"$set": {"by": "other"}}, session=other)
        attempts: list[int] = []

        def write(session: ClientSession) -> None:
            attempts.append(len(attempts))
            if heals and len(attempts) == 2:
                other.commit_transaction()
            rows.update_one({"_id": 0}, {"$set": {"text": DIARY}}, session=session)

        if heals:
            await connection.run(run_transaction, connection, write)
        else:
            error = await read_error(connection, lambda: run_transaction(connection, write))
            assert error.retryable
            assert "Other writers" in error.message
            assert "112 WriteConflict" in (error.cause or "")
            other.abort_transaction()
    assert len(attempts) == (2 if heals else 1)
    assert rows.count_documents({"text": DIARY}) == heals


def count_rows(connection: MongoConnection) -> dict[str, int]:
    """How much of documents there is."""
    return {name: connection.collection(name).count_documents({}) for name in (DOCUMENTS, CONTENTS, CHUNKS)}


WRITE_CONCERN_ERROR = {"code": 91, "codeName": "ShutdownInProgress", "errmsg": "replication is being shut down"}


@pytest.mark.parametrize("how", [{"writeConcernError": WRITE_CONCERN_ERROR}, {"closeConnection": True}])
async def test_a_commit_without_an_answer_is_asked_for_again_and_stores_once(
    mongod: FailingMongo, store: MongoStore, sent: Recorder, build: Build, now: datetime, how: Row
) -> None:
    """Whether it was done (an error of the concern) or was not (a connection that was cut)."""
    sent.commands.clear()
    with mongod.failing("commitTransaction", mode={"times": 1}, **how):
        (result,) = await store.write_together([build("notes/a", "alpha", "beta")], now=now)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert sent.count("commitTransaction") == 2
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 2}


async def test_a_primary_that_steps_down_at_the_commit_stores_once(
    mongod: FailingMongo, store: MongoStore, sent: Recorder, build: Build, now: datetime
) -> None:
    """The whole transaction runs again on the next primary."""
    fell: list[str] = []

    def fall(name: str) -> None:
        if name == "commitTransaction" and not fell:
            fell.append(name)
            mongod.step_down()
            mongod.stand_again()

    sent.on_start = fall
    (result,) = await store.write_together([build("notes/a", "alpha", "beta")], now=now)
    assert fell
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 2}


@pytest.mark.usefixtures("impatient")
async def test_a_commit_that_is_never_confirmed_may_be_done_and_is_recognised(
    mongod: FailingMongo, store: MongoStore, build: Build, now: datetime
) -> None:
    """The message does not claim that nothing was stored; the same write again says which version it is."""
    write = build("notes/a", "alpha")
    with (
        mongod.failing("commitTransaction", writeConcernError=WRITE_CONCERN_ERROR),
        pytest.raises(StorageUnavailableError, match="did not confirm a transaction") as unknown,
    ):
        await store.write_together([write], now=now)
    assert "nothing" not in unknown.value.message
    assert "91 ShutdownInProgress" in (unknown.value.cause or "")
    (again,) = await store.write_together([write], now=now)
    assert (again.verdict, again.version) == (WriteVerdict.WRITTEN, 1)
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 1}


async def test_rows_of_an_attempt_that_failed_do_not_stop_the_next(
    mongod: FailingMongo, store: MongoStore, build: Build, now: datetime
) -> None:
    """A large document's rows are written ahead of its transaction: the same write again meets them."""
    write = build("notes/a", "alpha", "beta")
    with (
        mongod.failing("insert", mode={"skip": 2}, errorCode=11601),  # rows and text are written, the document is not
        pytest.raises(StorageUnavailableError, match="killOp"),
    ):
        await store.write_in_parts(write, now=now)
    assert count_rows(store._connection) == {DOCUMENTS: 0, CONTENTS: 0, CHUNKS: 2}
    result = await store.write_in_parts(write, now=now)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert count_rows(store._connection) == {DOCUMENTS: 1, CONTENTS: 1, CHUNKS: 2}


# --- a majority that does not confirm ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_bulk", [True, False])
@pytest.mark.parametrize("info", [{}, {"errInfo": {"wtimeout": True}}])
async def test_a_write_that_no_majority_confirmed_is_told(
    mongod: FailingMongo, connection: MongoConnection, info: Row, *, is_bulk: bool
) -> None:
    """It is on the primary and may be lost: that is not "stored", and not "nothing was changed"."""
    rows = connection.collection("rows")
    refusal = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out", **info}

    def write() -> object:
        return rows.bulk_write([InsertOne({"text": DIARY})]) if is_bulk else rows.insert_one({"text": DIARY})

    with mongod.failing("insert", mode={"times": 1}, writeConcernError=refusal):
        error = await read_error(connection, write)
    assert error.retryable
    assert "a majority of its members did not confirm it" in error.message
    assert (error.cause or "").endswith("64 WriteConcernFailed: waiting for replication timed out")
