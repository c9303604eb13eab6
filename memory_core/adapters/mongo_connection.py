"""MongoDB's client. In: an address. Out: a connection whose failures are ours; it decides nothing else.

Deciding reads are primary and majority and writes majority and journaled, whatever the address says: these values are
set on the database handle and on every transaction (which does not ask the handle), and both win over the URI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeAlias, TypeVar

import pymongo.errors as vendor
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from memory_core.adapters.mongo_errors import STARTING, call_translated, error_codes
from memory_core.errors import ConfigError, StorageUnavailableError, register_secret

# The table of errors is a module of its own; the adapters find what they need of it here.
__all__ = [
    "MongoConnection",
    "Row",
    "ServerFacts",
    "ask_server",
    "call_translated",
    "connect",
    "error_codes",
    "run_transaction",
]

Row: TypeAlias = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")

# No call waits longer for an answer. (The driver's client-side operation timeout would replace the server selection
# timeout, and an unreachable server would be reported after a minute instead of MONGODB_SERVER_SELECTION_TIMEOUT_MS.)
SOCKET_TIMEOUT_MS = 60_000
CONNECT_TIMEOUT_MS = 10_000
# Whoever waits for a connection waits for one call of somebody else, which ends by then.
WAIT_QUEUE_TIMEOUT_MS = SOCKET_TIMEOUT_MS

_MAJORITY = WriteConcern(w="majority", j=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MongoConnection:
    """One client and one database handle, shared by every adapter of a process."""

    client: MongoClient[Row]
    database: Database[Row]

    def collection(self, name: str) -> Collection[Row]:
        """A collection with the database's concerns."""
        return self.database[name]

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread and raise its failure as one of ours."""
        return await asyncio.to_thread(call_translated, call, *args, **kwargs)

    async def close(self) -> None:
        """Close the client; harmless when repeated."""
        await asyncio.to_thread(self.client.close)


def connect(uri: str, database: str, *, max_pool_size: int, server_selection_timeout_ms: int) -> MongoConnection:
    """Make a client. Nothing is sent yet: an unreachable server shows at the first call.

    Raises:
        ConfigError: the address cannot be understood.
    """
    register_secret(uri)
    try:
        client: MongoClient[Row] = MongoClient(
            uri,
            appname="agent-memory",
            maxPoolSize=max_pool_size,
            serverSelectionTimeoutMS=server_selection_timeout_ms,
            socketTimeoutMS=SOCKET_TIMEOUT_MS,
            connectTimeoutMS=CONNECT_TIMEOUT_MS,
            waitQueueTimeoutMS=WAIT_QUEUE_TIMEOUT_MS,
            tz_aware=True,
            retryReads=True,
            retryWrites=True,
        )
    except (vendor.InvalidURI, vendor.ConfigurationError, ValueError) as error:
        raise ConfigError(
            "MONGODB_URI cannot be understood. Write it as mongodb://user:password@host:port/ or mongodb+srv://...",
            cause=error,
        ) from None
    handle = client.get_database(
        database,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=_MAJORITY,
    )
    return MongoConnection(client=client, database=handle)


def run_transaction(connection: MongoConnection, callback: Callable[[ClientSession], T]) -> T:
    """Run the callback in a transaction, again where the server asks for it: it must be safe to repeat.

    A session takes its concerns from the client, hence from the URI; a transaction must say its own.
    """
    with connection.client.start_session() as session:
        return session.with_transaction(
            callback,
            read_concern=ReadConcern("snapshot"),
            write_concern=_MAJORITY,
            read_preference=ReadPreference.PRIMARY,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself: its clock, and whether it has transactions."""

    now: datetime
    has_transactions: bool


def ask_server(connection: MongoConnection) -> ServerFacts:
    """One question to the primary.

    Raises:
        StorageUnavailableError: it has just started, and does not know yet whether it has transactions.
    """
    hello = connection.client.admin.command("hello")
    if hello.get("isreplicaset"):  # of a set, and without its configuration: not to be taken for stand-alone
        raise StorageUnavailableError(STARTING)
    now: datetime = hello["localTime"]
    return ServerFacts(
        now=now if now.tzinfo else now.replace(tzinfo=UTC),
        has_transactions="setName" in hello or hello.get("msg") == "isdbgrid",
    )
