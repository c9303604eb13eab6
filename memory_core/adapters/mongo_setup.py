"""A MongoDB of our own, made ready. In: a fresh or restarted mongod on loopback. Out: a primary with its two users.

Every step asks before it acts, so that a start that was cut off anywhere is finished by the next one. Uses its own
short-lived clients: one that was made before the replica set exists does not learn that it can use sessions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, TypeAlias

import pymongo.errors as vendor
from pymongo import MongoClient

from memory_core.errors import ServiceError

Row: TypeAlias = dict[str, Any]

REPLICA_SET = "memory"
ROOT_USER = "memory_root"
APPLICATION_USER = "memory"
# A reconfiguration waits until the server has stopped looking for itself at its old port: up to 30 s.
_CALL_TIMEOUT_MS = 45_000
_POLL_SECONDS = 0.01
_UNAUTHORIZED, _AUTHENTICATION_FAILED, _NOT_YET_INITIALIZED = 13, 18, 94


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMongo:
    """Where the server listens, and the passwords that it has or shall have."""

    port: int
    root_password: str
    application_password: str

    @property
    def member(self) -> str:
        """The address that the one-node replica set knows itself by."""
        return f"127.0.0.1:{self.port}"

    @property
    def application_uri(self) -> str:
        """The address for clients; passwords are URL-safe by the way they are made."""
        return (
            f"mongodb://{APPLICATION_USER}:{self.application_password}@{self.member}"
            "/?authSource=admin&directConnection=true"
        )


def make_ready(local: LocalMongo, *, databases: frozenset[str], timeout_seconds: float) -> None:
    """Initiate the set or move it to its present port, wait for the primary, and give the users what they need.

    Raises:
        ServiceError: the server does not become primary in time, or has other passwords.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        with _client(local) as guest:
            if not guest.admin.command("hello").get("setName"):
                _configure_set(local, guest, deadline=deadline)
            while not guest.admin.command("hello").get("isWritablePrimary"):
                if time.monotonic() > deadline:
                    raise ServiceError(
                        f"MongoDB did not become primary in {timeout_seconds:g} s. Read its log, then try again."
                    )
                time.sleep(_POLL_SECONDS)
            if not _knows_root(local):
                _create_root(local, guest)
        with _client(local, password=local.root_password) as root:
            _grant(root, password=local.application_password, databases=databases)
    except vendor.PyMongoError as error:
        raise ServiceError("MongoDB started but could not be made ready. Read its log.", cause=error) from None


def grant_databases(local: LocalMongo, *, databases: frozenset[str]) -> None:
    """Give the application user these databases, and no others.

    Raises:
        ServiceError: the server refused.
    """
    try:
        with _client(local, password=local.root_password) as root:
            _grant(root, password=local.application_password, databases=databases)
    except vendor.PyMongoError as error:
        raise ServiceError("MongoDB refused to open another database to its user.", cause=error) from None


def _client(local: LocalMongo, *, password: str | None = None) -> MongoClient[Row]:
    login: dict[str, Any] = {"username": ROOT_USER, "password": password, "authSource": "admin"} if password else {}
    return MongoClient(
        host="127.0.0.1",
        port=local.port,
        directConnection=True,
        serverSelectionTimeoutMS=_CALL_TIMEOUT_MS,
        socketTimeoutMS=_CALL_TIMEOUT_MS,
        appname="agent-memory-supervisor",
        **login,
    )


def _knows_root(local: LocalMongo) -> bool:
    try:
        with _client(local, password=local.root_password) as root:
            root.admin.command("ping")
    except vendor.OperationFailure as error:
        if error.code == _AUTHENTICATION_FAILED:
            return False
        raise
    return True


def _configure_set(local: LocalMongo, guest: MongoClient[Row], *, deadline: float) -> None:
    """Initiate a new set; one that exists (its root user does) has another port written down and is moved to this."""
    members = [{"_id": 0, "host": local.member}]
    if not _knows_root(local):
        guest.admin.command({"replSetInitiate": {"_id": REPLICA_SET, "members": members}})
        return
    with _client(local, password=local.root_password) as root:
        present = _read_config(root, deadline=deadline)
        moved = present | {"version": int(present["version"]) + 1, "members": members}
        root.admin.command({"replSetReconfig": moved, "force": True})


def _read_config(root: MongoClient[Row], *, deadline: float) -> Row:
    """The set's configuration. It is not there while the server looks for itself at the old port, up to 30 s."""
    while True:
        try:
            return root.admin.command("replSetGetConfig")["config"]
        except vendor.OperationFailure as error:
            if error.code != _NOT_YET_INITIALIZED or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


def _create_root(local: LocalMongo, guest: MongoClient[Row]) -> None:
    """Make the first user, which an empty server allows from loopback only."""
    try:
        guest.admin.command({"createUser": ROOT_USER, "pwd": local.root_password, "roles": ["root"]})
    except vendor.OperationFailure as error:
        if error.code != _UNAUTHORIZED:
            raise
        raise ServiceError(
            "The MongoDB of this home has other passwords than its credentials.json. Restore that file from a "
            "backup, or set MEMORY_HOME to an empty directory.",
            cause=error,
        ) from None


def _grant(root: MongoClient[Row], *, password: str, databases: frozenset[str]) -> None:
    """Read, write and index the named databases; read the server's figures; nothing else."""
    wanted = [{"role": role, "db": name} for name in sorted(databases) for role in ("dbAdmin", "readWrite")]
    wanted.append({"role": "clusterMonitor", "db": "admin"})
    found: list[Row] = root.admin.command({"usersInfo": APPLICATION_USER})["users"]
    if not found:
        root.admin.command({"createUser": APPLICATION_USER, "pwd": password, "roles": wanted})
    elif _as_set(found[0]["roles"]) != _as_set(wanted):
        root.admin.command({"updateUser": APPLICATION_USER, "pwd": password, "roles": wanted})


def _as_set(roles: list[Row]) -> set[tuple[str, str]]:
    return {(str(role["role"]), str(role["db"])) for role in roles}
