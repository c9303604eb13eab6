"""MongoDB's errors as ours. In: what the driver raises. Out: one of our errors, its cause kept; nothing is tried again.

One table, read from the top: the first rule that fits decides. What no retry can heal stands before what one can, so
that a bulk write that failed in both ways is not repeated in vain. docs/errors.md has the same sentences.

A cause keeps the error's class, its codes and the server's words up to where these may quote what was to be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

import pymongo.errors as vendor
from bson.errors import BSONError

from memory_core.errors import AgentMemoryError, ConfigError, StorageError, StorageUnavailableError, TooLargeError

P = ParamSpec("P")
T = TypeVar("T")
# The driver's "too large" is an error of encoding, not one of its own tree.
DriverError: TypeAlias = vendor.PyMongoError | vendor.DocumentTooLarge

UNAUTHORIZED = 13
_CAUSE_LIMIT_CHARS = 300
_CAUSE_ENTRIES = 5
# From the first of these on, the server may quote a row, a key or a command.
_QUOTED_VALUES = re.compile(r" dup key:|, full error:| First element:| to execute command|[{\"\n]")
_REFUSED_COMMAND = re.compile(r"not authorized on (\S+) to execute command \{ (\w+):")
_NEEDED_ROLES = {
    **dict.fromkeys(("find", "aggregate", "count", "distinct", "getMore", "listIndexes", "listCollections"), "read"),
    **dict.fromkeys(("collMod", "validate"), "dbAdmin"),
    "serverStatus": "clusterMonitor",
}
_ROLE_OF_THE_REST = "readWrite"

_REPEAT = "Run the same command again"
_RECOGNISED = f"{_REPEAT}: what is stored is recognised."
STARTING = (
    "MongoDB is starting and does not know its replica set yet, which takes a second as a rule. "
    f"{_REPEAT}; if that does not help, initiate the set (rs.initiate())."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table. It fits an error of these codes, of these classes (with these words), or of this label."""

    sentence: str
    error: type[AgentMemoryError] = StorageUnavailableError
    codes: frozenset[int] = frozenset()
    kinds: tuple[type[Exception], ...] = ()
    words: tuple[str, ...] = ()
    label: str | None = None

    def fits(self, error: DriverError, codes: set[int]) -> bool:
        """Whether this line is about that error, whose codes are these."""
        if codes & self.codes:
            return True
        if self.kinds and isinstance(error, self.kinds):
            return not self.words or any(word in _plain_words(str(error)) for word in self.words)
        return self.label is not None and isinstance(error, vendor.PyMongoError) and error.has_error_label(self.label)


RULES: tuple[Rule, ...] = (
    Rule(
        # TransactionTooLarge, TransactionTooLargeForCache
        codes=frozenset({257, 388}),
        error=TooLargeError,
        sentence="The write does not fit one transaction of this MongoDB. Store the content in smaller pieces, or give "
        "the server a larger cache (MEMORY_MONGOD_CACHE_GB for the one that is started here).",
    ),
    Rule(
        # BSONObjectTooLarge, a string above 16 MB, an index key, the result of an update, of an upsert
        codes=frozenset({10334, 16493, 17280, 17419, 17420}),
        kinds=(vendor.DocumentTooLarge,),
        error=TooLargeError,
        sentence="The write does not fit MongoDB's limits (16 MB for a row). Store the content in smaller pieces.",
    ),
    Rule(
        codes=frozenset({UNAUTHORIZED}),
        error=StorageError,
        sentence="MongoDB refused: this user lacks a role for it.",
    ),
    Rule(
        # AuthenticationFailed, and Atlas' own
        codes=frozenset({18, 8000}),
        error=StorageError,
        sentence="MongoDB refused: user or password is wrong. Correct MONGODB_URI; its authSource names the database "
        "that the user belongs to.",
    ),
    Rule(
        # DocumentValidationFailure
        codes=frozenset({121}),
        error=StorageError,
        sentence="A row does not fit the schema of its collection, so it was not stored. This is a defect of the "
        "program: report it with the cause from the log.",
    ),
    Rule(
        # OutOfDiskSpace
        codes=frozenset({14031}),
        sentence=f"MongoDB's disk is full. Free space on it. {_RECOGNISED}",
    ),
    Rule(
        label="UnknownTransactionCommitResult",
        sentence=f"MongoDB did not confirm a transaction: it is stored whole or not at all. {_RECOGNISED}",
    ),
    Rule(
        # WriteConcernFailed, UnsatisfiableWriteConcern, UnknownReplWriteConcern
        codes=frozenset({64, 79, 100}),
        kinds=(vendor.WriteConcernError,),
        sentence="MongoDB's primary wrote, but a majority of its members did not confirm it, so a failover could still "
        f"lose it. Check that all members run. {_RECOGNISED}",
    ),
    Rule(
        # LockTimeout, WriteConflict
        codes=frozenset({24, 112}),
        sentence="Other writers kept changing the same documents, so MongoDB gave this write up. "
        f"{_REPEAT} when they are done.",
    ),
    Rule(
        # NoSuchTransaction, TransactionTooOld, TransactionAborted, TransactionExceededLifetimeLimitSeconds
        codes=frozenset({225, 244, 251, 290}),
        sentence="MongoDB ended a transaction before it was complete; nothing of it was stored. "
        f"{_REPEAT}; if that does not help, raise the server's transactionLifetimeLimitSeconds.",
    ),
    Rule(
        # CursorNotFound, QueryPlanKilled, CursorKilled, SnapshotTooOld, SnapshotUnavailable
        codes=frozenset({43, 175, 237, 239, 246}),
        sentence=f"MongoDB ended a query before all of its answer was read. {_REPEAT}.",
    ),
    Rule(
        # Interrupted
        codes=frozenset({11601}),
        sentence=f"Somebody stopped the operation on the MongoDB server (killOp). {_REPEAT}.",
    ),
    Rule(
        # MaxTimeMSExpired, NetworkInterfaceExceededTimeLimit, ExceededTimeLimit
        codes=frozenset({50, 202, 262}),
        sentence="MongoDB gave the operation up because it took longer than its time limit. "
        f"{_REPEAT} when the server has less to do.",
    ),
    Rule(
        # ShutdownInProgress, PrimarySteppedDown, NotWritablePrimary, InterruptedAtShutdown,
        # InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary
        codes=frozenset({91, 189, 10107, 11600, 11602, 13435, 13436}),
        kinds=(vendor.NotPrimaryError,),
        sentence="MongoDB is stopping or changing its primary, which takes a few seconds as a rule. "
        f"{_REPEAT} when it has one.",
    ),
    Rule(
        # DuplicateKey. Where it is a known race its adapter looks again; an insert has ids of its own.
        codes=frozenset({11000}),
        sentence="Another process wrote a row with the same key at the same moment. "
        f"{_REPEAT}; if that does not help, it is a defect of the program: report it with the cause from the log.",
    ),
    Rule(
        kinds=(vendor.WaitQueueTimeoutError,),
        sentence="All connections of this process to MongoDB stayed in use until the wait for one ended. "
        "Raise MONGODB_MAX_POOL_SIZE or let the process do less at once, then try again.",
    ),
    Rule(
        kinds=(vendor.ServerSelectionTimeoutError,),
        words=("No primary available", "No replica set members match"),
        sentence="MongoDB runs but has no primary at the moment. Check that a majority of its members run, then try "
        "again; an election takes a few seconds as a rule.",
    ),
    Rule(
        kinds=(vendor.NetworkTimeout,),
        sentence=f"MongoDB did not answer in time. Check its load and the network. {_RECOGNISED}",
    ),
    Rule(
        kinds=(vendor.ServerSelectionTimeoutError,),
        sentence="MongoDB does not answer. Check that MONGODB_URI is right and that it runs (its log says why it "
        "stopped, a full disk for example), then try again.",
    ),
    Rule(
        # HostUnreachable, HostNotFound, NetworkTimeout, FailedToSatisfyReadPreference,
        # ReadConcernMajorityNotAvailableYet, SocketException; and the pool that the driver empties after such an error
        codes=frozenset({6, 7, 89, 133, 134, 9001}),
        kinds=(vendor.ConnectionFailure,),
        sentence="The connection to MongoDB was cut. Check that it still runs: a full disk stops it, and its log says "
        f"so. {_RECOGNISED}",
    ),
    Rule(
        kinds=(vendor.PyMongoError,),
        words=("after close", "closed connection pool"),
        sentence=f"The connection to MongoDB was closed while it was in use, as this process ends. {_REPEAT}.",
    ),
    Rule(
        label="TransientTransactionError",
        sentence=f"MongoDB could not finish a transaction at the moment; nothing of it was stored. {_REPEAT}.",
    ),
    Rule(
        label="RetryableWriteError",
        sentence=f"MongoDB could not finish a write at the moment. {_RECOGNISED}",
    ),
    Rule(
        # What the driver concludes from a member that has not read its set's configuration yet
        kinds=(vendor.ConfigurationError,),
        words=("Sessions are not supported",),
        sentence=STARTING,
    ),
    Rule(
        kinds=(vendor.ConfigurationError, vendor.InvalidName),
        error=ConfigError,
        sentence="MONGODB_URI or MONGODB_DB_NAME names a server or database that cannot be used. The cause says why.",
    ),
)

REFUSED = Rule(
    kinds=(Exception,),
    error=StorageError,
    sentence="MongoDB refused the operation. The cause in the log says why; if nothing in it is yours to change, this "
    "is a defect of the program: report it.",
)


def call_translated(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call, and raise what the driver raises as one of our errors, with the cause kept as text."""
    try:
        return call(*args, **kwargs)
    except (vendor.PyMongoError, vendor.DocumentTooLarge) as error:
        raise translate(error) from None
    except (BSONError, UnicodeEncodeError) as error:  # its message quotes the value
        raise StorageError("A value cannot be kept by MongoDB. Store it as text.", cause=type(error).__name__) from None
    except OverflowError as error:
        raise StorageError("A number is too large for MongoDB (64 bits). Store it as text.", cause=error) from None


def translate(error: DriverError) -> AgentMemoryError:
    """Our error for one of the driver's: the first line of the table that fits it."""
    error = _undress(error)
    codes = error_codes(error)
    rule = next((rule for rule in RULES if rule.fits(error, codes)), REFUSED)
    sentence = rule.sentence
    if UNAUTHORIZED in rule.codes:
        sentence = f"{sentence} {_name_role(error)}"
    return rule.error(sentence, cause=_describe(error))


def error_codes(error: DriverError) -> set[int]:
    """Every server code inside an error; a bulk error's own code only says that there are others."""
    return {int(answer["code"]) for answer in _answers(error) if answer.get("code")}


def _undress(error: DriverError) -> DriverError:
    """A transaction that was tried for too long ends as a time-out of the network, with what failed as its cause."""
    inner = error.__cause__
    is_dressed = isinstance(error, vendor.NetworkTimeout) and isinstance(inner, vendor.PyMongoError)
    return inner if is_dressed and isinstance(inner, vendor.PyMongoError) and str(inner) == str(error) else error


def _answers(error: DriverError) -> Sequence[Mapping[str, Any]]:
    """What the server said: of a bulk write one answer for each part that failed."""
    if not isinstance(error, vendor.OperationFailure | vendor.AutoReconnect):
        return []
    details: Any = error.details  # of a connection that was cut an empty list
    if isinstance(error, vendor.OperationFailure):
        details = details or {"code": error.code, "errmsg": str(error)}
    if not details:
        return []
    parts: list[Mapping[str, Any]] = [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]
    return parts or [details]


def _name_role(error: DriverError) -> str:
    for answer in _answers(error):
        if found := _REFUSED_COMMAND.search(str(answer.get("errmsg", ""))):
            database, command = found.groups()
            role = _NEEDED_ROLES.get(command, _ROLE_OF_THE_REST)
            return (
                f"The command {command} needs the role {role} on the database {database}: grant it, or name another "
                "user in MONGODB_URI."
            )
    return (
        "The memory needs the role readWrite on its database: grant it, or name a user and a password in MONGODB_URI "
        "that have it."
    )


def _describe(error: DriverError) -> str:
    """Class, codes and the server's own words. Never the error as text: that holds the operation, with its content."""
    said = [_describe_answer(answer) for answer in _answers(error)]
    words = [*dict.fromkeys(said)] or [_plain_words(str(error))]
    more = [f"and {len(words) - _CAUSE_ENTRIES} others"] if len(words) > _CAUSE_ENTRIES else []
    return f"{type(error).__name__}: {'; '.join([*words[:_CAUSE_ENTRIES], *more])}"


def _describe_answer(answer: Mapping[str, Any]) -> str:
    code = " ".join(str(answer[key]) for key in ("code", "codeName") if answer.get(key) is not None)
    return f"{code}: {_plain_words(str(answer.get('errmsg', '')))}"


def _plain_words(message: str) -> str:
    return _QUOTED_VALUES.split(message, maxsplit=1)[0].strip()[:_CAUSE_LIMIT_CHARS]
