"""MongoDB's client and its errors. In: an address. Out: a connection whose failures are ours; it decides nothing else.

Deciding reads are primary and majority and writes majority and journaled, whatever the address says: these values are
set on the database handle, which wins over the URI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

import pymongo.errors as vendor
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from memory_core.errors import (
    AgentMemoryError,
    ConfigError,
    StorageError,
    StorageUnavailableError,
    TooLargeError,
    register_secret,
)

Row: TypeAlias = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")

# No call waits longer for an answer. (The driver's client-side operation timeout would replace the server selection
# timeout, and an unreachable server would be reported after a minute instead of MONGODB_SERVER_SELECTION_TIMEOUT_MS.)
SOCKET_TIMEOUT_MS = 60_000
CONNECT_TIMEOUT_MS = 10_000

_UNAVAILABLE = (
    vendor.ServerSelectionTimeoutError,
    vendor.AutoReconnect,
    vendor.ExecutionTimeout,
    vendor.WTimeoutError,
    vendor.NetworkTimeout,
    vendor.WaitQueueTimeoutError,
)
_CODES_TOO_LARGE = {388, 10334}  # TransactionTooLargeForCache, BSONObjectTooLarge
_CODES_REFUSED = {13: "this user lacks a role for it", 18: "user or password is wrong"}
_CODES_TRANSIENT = {
    112,
    91,
    189,
    251,
    11600,
    11602,
    10107,
    13435,
}  # WriteConflict, shutdown, step-down, NoSuchTransaction
_CODE_DISK_FULL = 14031


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
        write_concern=WriteConcern(w="majority", j=True),
    )
    return MongoConnection(client=client, database=handle)


def call_translated(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call, and raise what the driver raises as one of our errors, with the cause kept as text."""
    try:
        return call(*args, **kwargs)
    except vendor.PyMongoError as error:
        raise translate(error) from None
    except OverflowError as error:
        raise StorageError("A number is too large for MongoDB (64 bits). Store it as text.", cause=error) from None


def translate(error: vendor.PyMongoError) -> AgentMemoryError:
    """The one table from the driver's error to ours."""
    codes = error_codes(error)
    if isinstance(error, vendor.DocumentTooLarge) or codes & _CODES_TOO_LARGE:
        return TooLargeError(
            "The write does not fit MongoDB's limits. Store the content in smaller pieces.", cause=error
        )
    if refused := next((reason for code, reason in _CODES_REFUSED.items() if code in codes), None):
        return StorageError(f"MongoDB refused: {refused}. Check MONGODB_URI and the user's roles.", cause=error)
    if _CODE_DISK_FULL in codes:
        return StorageError("MongoDB's disk is full. Free space on it, then run the same command again.", cause=error)
    if isinstance(error, _UNAVAILABLE) or error.timeout or codes & _CODES_TRANSIENT:
        return StorageUnavailableError(
            "MongoDB does not answer. Check that it runs and that MONGODB_URI is right, then try again.", cause=error
        )
    if isinstance(error, vendor.ConfigurationError):
        return ConfigError("MONGODB_URI names a server that cannot be used.", cause=error)
    return StorageError("MongoDB refused the operation. The cause says why; nothing was changed.", cause=error)


def error_codes(error: vendor.PyMongoError) -> set[int]:
    """Every server code inside an error; a bulk error hides them in its details."""
    codes: set[int] = set()
    if isinstance(error, vendor.OperationFailure):
        codes.add(error.code or 0)
        details: Any = error.details or {}
        for entry in [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]:
            codes.add(int(entry.get("code", 0)))
    return codes - {0}
