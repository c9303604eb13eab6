"""Fixtures: one failing mongod for a process, and connections to it whose commands are recorded."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Generator

import pytest
from pymongo import MongoClient

from memory_core.adapters import mongo_connection
from memory_core.adapters.mongo_connection import MongoConnection, connect
from memory_core.adapters.mongo_store import MongoStore
from memory_core.models import Fingerprint
from tests.contract.mongo_errors.failing_mongo import (
    DATABASE,
    FailingMongo,
    Recorder,
    start_mongod,
)


@pytest.fixture(scope="session")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Generator[FailingMongo]:
    """One for all tests of a process."""
    with start_mongod(tmp_path_factory.mktemp("mongod")) as started:
        yield started


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What every connection made from now on sends."""
    recorder = Recorder()
    monkeypatch.setattr(mongo_connection, "MongoClient", functools.partial(MongoClient, event_listeners=[recorder]))
    return recorder


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction is not tried again: the driver does so for two minutes."""
    monkeypatch.setattr("pymongo.client_session_shared._WITH_TRANSACTION_RETRY_TIME_LIMIT", 0)


@pytest.fixture
async def connection(mongod: FailingMongo, sent: Recorder) -> AsyncGenerator[MongoConnection]:
    """A connection as the program makes it, to an empty database."""
    for name in mongod.root[DATABASE].list_collection_names():
        mongod.root[DATABASE].drop_collection(name)
    opened = connect(mongod.uri, DATABASE, max_pool_size=4, server_selection_timeout_ms=5_000)
    await opened.run(opened.collection("rows").insert_one, {"_id": 0})
    sent.commands.clear()
    yield opened
    await opened.close()


@pytest.fixture
async def store(connection: MongoConnection, space: Fingerprint) -> MongoStore:
    """A store on it that is ready to write."""
    opened = MongoStore(connection, versions_kept=5)
    await opened.prepare(space)
    return opened
