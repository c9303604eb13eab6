"""MongoDB's client and its errors. In: an address. Out: a connection whose failures are ours; it decides nothing else.

Deciding reads are primary and majority and writes majority and journaled, whatever the address says: these values are
set on the database handle and on every transaction (which does not ask the handle), and both win over the URI.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeAlias, TypeVar

import pymongo.errors as vendor
from bson.errors import BSONError
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.client_session import ClientSession
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
# Whoever waits for a connection waits for one call of somebody else, which ends by then.
WAIT_QUEUE_TIMEOUT_MS = SOCKET_TIMEOUT_MS

_MAJORITY = WriteConcern(w="majority", j=True)

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
_CODES_TRANSIENT = {91, 189, 11600, 11602, 10107, 13435}  # shutdown, step-down
_CODE_WRITE_CONFLICT = 112
_CODES_TRANSACTION_ENDED = {251, 290}  # NoSuchTransaction, TransactionExceededLifetimeLimitSeconds
_CODE_DISK_FULL = 14031
_CAUSE_LIMIT_CHARS = 300
# From here on the server repeats what was to be written.
_QUOTED_VALUES = re.compile(r" dup key:|, full error:")


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
    """One question to the primary."""
    hello = connection.client.admin.command("hello")
    now: datetime = hello["localTime"]
    return ServerFacts(
        now=now if now.tzinfo else now.replace(tzinfo=UTC),
        has_transactions="setName" in hello or hello.get("msg") == "isdbgrid",
    )


def call_translated(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call, and raise what the driver raises as one of our errors, with the cause kept as text."""
    try:
        return call(*args, **kwargs)
    except vendor.PyMongoError as error:
        raise translate(error) from None
    except BSONError as error:  # its message quotes the value
        raise StorageError("A value cannot be kept by MongoDB. Store it as text.", cause=type(error).__name__) from None
    except OverflowError as error:
        raise StorageError("A number is too large for MongoDB (64 bits). Store it as text.", cause=error) from None


def translate(error: vendor.PyMongoError) -> AgentMemoryError:
    """The one table from the driver's error to ours."""
    codes, cause = error_codes(error), _describe(error)
    if isinstance(error, vendor.DocumentTooLarge) or codes & _CODES_TOO_LARGE:
        return TooLargeError(
            "The write does not fit MongoDB's limits. Store the content in smaller pieces.", cause=cause
        )
    if refused := _refusal(codes):
        return StorageError(refused, cause=cause)
    if unfinished := _unfinished_transaction(codes):
        return StorageUnavailableError(unfinished, cause=cause)
    if isinstance(error, _UNAVAILABLE) or error.timeout or codes & _CODES_TRANSIENT:
        return StorageUnavailableError(
            "MongoDB does not answer. Check that it runs and that MONGODB_URI is right, then try again.", cause=cause
        )
    if isinstance(error, vendor.ConfigurationError):
        return ConfigError("MONGODB_URI names a server that cannot be used.", cause=cause)
    return StorageError("MongoDB refused the operation. The cause says why; nothing was changed.", cause=cause)


def _refusal(codes: set[int]) -> str | None:
    if refused := next((reason for code, reason in _CODES_REFUSED.items() if code in codes), None):
        return f"MongoDB refused: {refused}. Check MONGODB_URI and the user's roles."
    if _CODE_DISK_FULL in codes:
        return "MongoDB's disk is full. Free space on it, then run the same command again."
    return None


def _unfinished_transaction(codes: set[int]) -> str | None:
    if _CODE_WRITE_CONFLICT in codes:
        return (
            "Other writers kept changing the same documents, so MongoDB gave this write up; nothing was changed. "
            "Run the same command again when they are done."
        )
    if codes & _CODES_TRANSACTION_ENDED:
        return (
            "MongoDB ended a transaction before it was complete; nothing was changed. Run the same command again; if "
            "that does not help, raise the server's transactionLifetimeLimitSeconds."
        )
    return None


def _describe(error: vendor.PyMongoError) -> str:
    """Class, codes and the server's own words. Never the error as text: that holds the operation, with its content."""
    name = type(error).__name__
    if not isinstance(error, vendor.OperationFailure):
        return f"{name}: {_plain_words(str(error))}"
    details: Any = error.details or {}
    entries: list[Any] = [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]
    words = [_describe_entry(entry) for entry in entries or [{"code": error.code, **details}]]
    return f"{name}: {'; '.join(dict.fromkeys(words))}"


def _describe_entry(entry: Any) -> str:  # noqa: ANN401 - the server's answer
    code = " ".join(str(entry[key]) for key in ("code", "codeName") if entry.get(key) is not None)
    return f"{code}: {_plain_words(str(entry.get('errmsg', '')))}"


def _plain_words(message: str) -> str:
    first = _QUOTED_VALUES.split(message, maxsplit=1)[0].strip().partition("\n")[0]
    return first[:_CAUSE_LIMIT_CHARS]


def error_codes(error: vendor.PyMongoError) -> set[int]:
    """Every server code inside an error; a bulk error hides them in its details."""
    codes: set[int] = set()
    if isinstance(error, vendor.OperationFailure):
        codes.add(error.code or 0)
        details: Any = error.details or {}
        for entry in [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]:
            codes.add(int(entry.get("code", 0)))
    return codes - {0}
