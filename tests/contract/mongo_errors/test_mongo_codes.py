"""Codes of the server, rows that do not fit and missing rights: what is read, and that no content is in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pymongo import InsertOne, UpdateOne

from memory_core.adapters.mongo_connection import MongoConnection, connect, run_transaction
from memory_core.errors import StorageError, StorageUnavailableError, TooLargeError
from tests.contract.mongo_errors.failing_mongo import (
    DATABASE,
    DIARY,
    MEGABYTE,
    FailingMongo,
    Recorder,
    insert_diary,
    read_error,
)

pytestmark = pytest.mark.services


# --- codes of the server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (10334, TooLargeError, "16 MB for a row"),
        (17280, TooLargeError, "16 MB for a row"),
        (17419, TooLargeError, "16 MB for a row"),
        (17420, TooLargeError, "smaller pieces"),
        (388, TooLargeError, "one transaction of this MongoDB"),
        (13, StorageError, "readWrite on its database"),
        (18, StorageError, "user or password is wrong"),
        (14031, StorageUnavailableError, "disk is full"),
        (64, StorageUnavailableError, "a majority of its members did not confirm"),
        (112, StorageUnavailableError, "Other writers"),
        (251, StorageUnavailableError, "transactionLifetimeLimitSeconds"),
        (290, StorageUnavailableError, "transactionLifetimeLimitSeconds"),
        (43, StorageUnavailableError, "before all of its answer was read"),
        (11601, StorageUnavailableError, "killOp"),
        (50, StorageUnavailableError, "longer than its time limit"),
        (262, StorageUnavailableError, "longer than its time limit"),
        (91, StorageUnavailableError, "changing its primary"),
        (189, StorageUnavailableError, "changing its primary"),
        (11600, StorageUnavailableError, "changing its primary"),
        (11602, StorageUnavailableError, "changing its primary"),
        (10107, StorageUnavailableError, "changing its primary"),
        (13435, StorageUnavailableError, "changing its primary"),
        (9, StorageError, "MongoDB refused the operation"),  # FailedToParse: one that the table does not know
    ],
)
async def test_each_code_has_its_sentence(
    mongod: FailingMongo, connection: MongoConnection, code: int, kind: type[StorageError], words: str
) -> None:
    """It says what happened and what to do; its class says whether a retry can help; the cause has the code."""
    with mongod.failing("insert", errorCode=code):
        error = await read_error(connection, lambda: insert_diary(connection))
    assert type(error) is kind
    assert words in error.message
    assert f": {code} " in (error.cause or "")
    assert "failpoint" in (error.cause or "")


async def test_an_error_that_passes_is_healed_by_the_driver(
    mongod: FailingMongo, connection: MongoConnection, sent: Recorder
) -> None:
    """A primary that is none any more is asked twice: the second answer counts, and a second failure is ours."""
    with mongod.failing("insert", mode={"times": 1}, errorCode=10107):
        await connection.run(insert_diary, connection)
    assert sent.count("insert") == 2
    assert connection.collection("rows").count_documents({"text": DIARY}) == 1
    sent.commands.clear()
    with mongod.failing("insert", errorCode=10107):
        error = await read_error(connection, lambda: insert_diary(connection))
    assert sent.count("insert") == 2
    assert error.retryable
    assert (error.cause or "").startswith("NotPrimaryError: 10107 NotWritablePrimary: ")


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", ["insert", "update", "bulk", "aggregation"])
async def test_what_is_above_16_mb_is_too_large(connection: MongoConnection, growth: str) -> None:
    """Seen by the driver or by the server, in one write or in a part of many."""
    rows = connection.collection("rows")
    nine = {"text": DIARY + "x" * 9 * MEGABYTE}
    rows.update_one({"_id": 0}, {"$set": {"first": nine}})
    writes: dict[str, Callable[[], object]] = {
        "insert": lambda: rows.insert_one({"first": nine, "second": nine}),
        "update": lambda: rows.update_one({"_id": 0}, {"$set": {"second": nine}}),
        "bulk": lambda: rows.bulk_write(
            [UpdateOne({"_id": 0}, {"$set": {"second": nine}}), InsertOne({"_id": DIARY})], ordered=False
        ),
        "aggregation": lambda: rows.update_one({"_id": 0}, [{"$set": {"second": "$first"}}]),
    }
    error = await read_error(connection, writes[growth])
    assert isinstance(error, TooLargeError)
    assert not error.retryable
    assert growth == "insert" or "10334" in (error.cause or "")
    # Of many writes those that fit are stored: nothing in the message says otherwise.
    assert rows.count_documents({"_id": DIARY}) == (growth == "bulk")


async def test_a_row_that_does_not_fit_the_schema_is_a_defect(
    mongod: FailingMongo, connection: MongoConnection
) -> None:
    """No retry and no user can heal it; the server's details, which quote the row, stay out."""
    rules = {"$jsonSchema": {"properties": {"text": {"bsonType": "int"}}}}
    mongod.root[DATABASE].command({"create": "strict", "validator": rules})
    strict = connection.collection("strict")
    bulk = [InsertOne({"text": DIARY}), InsertOne({"text": 1}), InsertOne({"text": DIARY})]
    for write in (lambda: strict.insert_one({"text": DIARY}), lambda: strict.bulk_write(bulk, ordered=False)):
        error = await read_error(connection, write)
        assert type(error) is StorageError
        assert "report it" in error.message
        assert (error.cause or "").endswith("Error: 121: Document failed validation")


async def test_a_duplicate_key_names_the_index_and_not_the_key(connection: MongoConnection) -> None:
    """Outside of the races that an adapter knows; a retry meets the other's row and updates it."""
    rows = connection.collection("rows")
    rows.insert_one({"_id": DIARY})

    def write_together() -> object:
        return run_transaction(connection, lambda session: rows.insert_one({"_id": DIARY}, session=session))

    bulk = [InsertOne({"_id": DIARY}), InsertOne({"_id": 1})]
    for write in (
        lambda: rows.insert_one({"_id": DIARY}),
        lambda: rows.bulk_write(bulk, ordered=False),
        write_together,
    ):
        error = await read_error(connection, write)
        assert error.retryable
        assert "same key" in error.message
        assert "11000: E11000 duplicate key error collection: errors.rows index: _id_" in (error.cause or "")


# --- who may do what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("database", "command", "words"),
    [
        (DATABASE, "insert", "insert needs the role readWrite on the database errors"),
        (DATABASE, "findAndModify", "findAndModify needs the role readWrite on the database errors"),
        (DATABASE, "createIndexes", "createIndexes needs the role readWrite on the database errors"),
        (DATABASE, "collMod", "collMod needs the role dbAdmin on the database errors"),
        ("other", "find", "find needs the role read on the database other"),
        ("other", "aggregate", "aggregate needs the role read on the database other"),
        ("admin", "serverStatus", "serverStatus needs the role clusterMonitor on the database admin"),
    ],
)
async def test_a_user_without_a_role_is_told_which(
    mongod: FailingMongo, connection: MongoConnection, database: str, command: str, words: str
) -> None:
    """The command, the role and the database; not the command's arguments."""
    reads = [{"role": "read", "db": DATABASE}]
    if not mongod.root.admin.command({"usersInfo": "reader"})["users"]:
        mongod.root.admin.command({"createUser": "reader", "pwd": "r" * 16, "roles": reads})
    uri = f"mongodb://reader:{'r' * 16}@{mongod.local.member}/?authSource=admin&directConnection=true"
    reader = connect(uri, database, max_pool_size=4, server_selection_timeout_ms=5_000)
    rows = reader.collection("rows")
    calls: dict[str, Callable[[], object]] = {
        "insert": lambda: rows.insert_one({"text": DIARY}),
        "findAndModify": lambda: rows.find_one_and_update({"text": DIARY}, {"$set": {"text": DIARY}}),
        "createIndexes": lambda: rows.create_index("diary"),
        "collMod": lambda: reader.database.command("collMod", "rows", validator={"text": DIARY}),
        "find": lambda: rows.find_one({"text": DIARY}),
        "aggregate": lambda: list(rows.aggregate([{"$match": {"text": DIARY}}])),
        "serverStatus": lambda: reader.client.admin.command("serverStatus"),
    }
    error = await read_error(connection, calls[command])
    await reader.close()
    assert type(error) is StorageError
    assert words in error.message
    assert error.cause == f"OperationFailure: 13 Unauthorized: not authorized on {database}"


@pytest.mark.parametrize(
    ("user", "words"),
    [("", "name a user and a password in MONGODB_URI"), ("memory:wrong-password@", "user or password is wrong")],
)
async def test_who_is_not_known_is_told_so(
    mongod: FailingMongo, connection: MongoConnection, user: str, words: str
) -> None:
    """No user at all, or a wrong password."""
    uri = f"mongodb://{user}{mongod.local.member}/?directConnection=true"
    stranger = connect(uri, "admin", max_pool_size=4, server_selection_timeout_ms=5_000)
    error = await read_error(connection, lambda: stranger.collection("rows").find_one({"text": DIARY}))
    await stranger.close()
    assert type(error) is StorageError
    assert words in error.message
