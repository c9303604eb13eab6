"""What clients and the supervisor say to each other. In and out: lines of JSON on a local socket. Does nothing else.

A client sends one request. `acquire` is answered by any number of `progress` lines, then `ready` or `error`; after
`ready` the open connection is the lease. `status` is answered once. `stop` is answered by `refused`, or by `stopped`
when everything has ended.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeAlias, cast

Message: TypeAlias = dict[str, Any]

# Raised when a message changes its meaning: a supervisor of another version is told from a broken one.
PROTOCOL = 1
MAX_MESSAGE_BYTES = 1_048_576


class Service(StrEnum):
    """What a client can ask for; Prefect brings its database with it."""

    MONGODB = "mongodb"
    PREFECT = "prefect"


class Event(StrEnum):
    """What the supervisor answers."""

    PROGRESS = "progress"
    READY = "ready"
    ERROR = "error"
    STATUS = "status"
    REFUSED = "refused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings that a client brings along; each counts from the next start of what it concerns."""

    mongod: str | None
    mongod_cache_gb: float
    database: str
    idle_stop_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """A request for services, and who makes it."""

    needs: frozenset[Service]
    options: Options
    pid: int
    command: str


def encode(message: Message) -> bytes:
    """One message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """One line as a message.

    Raises:
        ValueError: not a JSON object.
    """
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")  # noqa: TRY004 - one kind of failure for a bad line
    return cast("Message", message)


def encode_acquire(request: Acquire) -> bytes:
    """The line that asks for a lease."""
    return encode(
        {
            "protocol": PROTOCOL,
            "operation": "acquire",
            "needs": sorted(request.needs),
            "options": asdict(request.options),
            "pid": request.pid,
            "command": request.command,
        }
    )


def decode_acquire(message: Message) -> Acquire:
    """The request inside a message.

    Raises:
        ValueError, KeyError, TypeError: the message is not an acquire request of this protocol.
    """
    return Acquire(
        needs=frozenset(Service(name) for name in message["needs"]),
        options=Options(**message["options"]),
        pid=int(message["pid"]),
        command=str(message["command"]),
    )
