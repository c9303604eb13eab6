"""What travels to MongoDB. In: the driver's events. Out: counts of commands and vectors, and seconds of transactions.

Every client that is made after the import of this module is watched; nothing is kept while nobody listens.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pymongo import monitoring

# What the driver does for itself, and what watches the cache asks.
_NOT_WORK = {"hello", "ping", "saslStart", "saslContinue", "endSessions", "isMaster", "buildInfo", "serverStatus"}
_WRITES = {"insert", "update", "delete", "findAndModify"}


@dataclass(slots=True)
class Traffic:
    """What was sent and answered. `transactions` are seconds, each from its first command to the end of its commit."""

    names: list[str] = field(default_factory=list[str])
    vectors_sent: int = 0
    vectors_read: int = 0
    transactions: list[float] = field(default_factory=list[float])

    @property
    def round_trips(self) -> int:
        """Commands of any kind."""
        return len(self.names)

    @property
    def writes(self) -> int:
        """Commands that write rows."""
        return sum(name in _WRITES for name in self.names)


class _Listener(monitoring.CommandListener):
    def __init__(self) -> None:
        self.traffic: Traffic | None = None
        self._begun: dict[tuple[str, int], float] = {}
        self._committing: dict[int, float] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self.traffic is None or event.command_name in _NOT_WORK:
            return
        self.traffic.names.append(event.command_name)
        self.traffic.vectors_sent += count_sent(event.command)
        if event.command.get("startTransaction"):
            self._begun[_name_transaction(event.command)] = time.perf_counter()
        elif event.command_name == "commitTransaction":
            self._committing[event.request_id] = self._begun.pop(_name_transaction(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        if self.traffic is None:
            return
        self.traffic.vectors_read += count_read(event.reply)
        if event.command_name == "commitTransaction":
            self.traffic.transactions.append(time.perf_counter() - self._committing.pop(event.request_id))

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def _name_transaction(command: Mapping[str, Any]) -> tuple[str, int]:
    return str(command["lsid"]["id"]), command["txnNumber"]


_listener = _Listener()
monitoring.register(_listener)


@contextmanager
def listen() -> Generator[Traffic]:
    """The traffic of the block, in all clients."""
    traffic = Traffic()
    _listener.traffic = traffic
    try:
        yield traffic
    finally:
        _listener.traffic = None


def count_sent(command: Mapping[str, Any]) -> int:
    """Embeddings in the rows and in the changes of a write."""
    changes = [one["u"] for one in command.get("updates", []) if isinstance(one["u"], Mapping)]
    rows = [*command.get("documents", []), *changes, *(change.get("$set", {}) for change in changes)]
    return sum(isinstance(row.get("embedding"), bytes) for row in rows)


def count_read(reply: Mapping[str, Any]) -> int:
    """Embeddings in the rows that came back."""
    cursor = reply.get("cursor", {})
    came = [*cursor.get("firstBatch", []), *cursor.get("nextBatch", [])]
    return sum(isinstance(row.get("embedding"), bytes) for row in came)
