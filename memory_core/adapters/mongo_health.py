"""What `memory doctor` asks MongoDB. In: a database. Out: counts and faults as sentences; nothing is changed.

Only ids, revisions, hashes and counts are read, never a text or a vector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pymongo.client_session import ClientSession
from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS, SUBMISSIONS
from memory_core.adapters.mongo_spaces import count_coverage, read_space
from memory_core.adapters.mongo_sweeps import owned_bodies
from memory_core.ports import StoreHealth
from memory_core.spaces import describe_move

_OPEN_STATES = ("staged", "running")
_EXAMPLES = 3
_SWEPT = "A later `memory store` removes them, once they are an hour old."


def check_health(connection: MongoConnection, *, transactions: bool) -> StoreHealth:
    """Count everything and look for rows without an owner, short documents and mixed revisions.

    Everything is read at one moment where the server can do that. Where it cannot, a fault must be there twice: what
    a store changes between two reads looks like damage.
    """
    if transactions:
        with connection.client.start_session(snapshot=True) as session:
            look = _look(connection.database, session)
    else:
        look = _look(connection.database, None)
        if look.damage:
            again = _look(connection.database, None)
            look = replace(again, damage=[fault for fault in again.damage if fault in look.damage])
    return StoreHealth(
        server_version=str(connection.client.server_info()["version"]),
        transactions=transactions,
        documents=look.documents,
        chunks=look.chunks,
        faults=(*look.damage, *_space_faults(connection), *_submission_faults(connection.database)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look at the database found."""

    documents: int
    chunks: int
    damage: list[str]


def _look(database: Database[Row], session: ClientSession | None) -> _Look:
    tallies = _tallies(database, session)
    states = {
        row["_id"]: row
        for row in database[DOCUMENTS].find(
            {}, {"sourceId": 1, "revision": 1, "chunking.chunkCount": 1}, session=session
        )
    }
    return _Look(
        documents=len(states),
        chunks=sum(sum(by_revision.values()) for by_revision in tallies.values()),
        damage=[*_chunk_faults(tallies, states), *_body_faults(database, session)],
    )


def _tallies(database: Database[Row], session: ClientSession | None) -> dict[object, dict[str, int]]:
    """Chunks by document and revision, from the index alone."""
    tallies: dict[object, dict[str, int]] = {}
    groups = database[CHUNKS].aggregate(
        [
            {"$project": {"_id": 0, "documentId": 1, "revision": 1}},
            {"$group": {"_id": {"d": "$documentId", "r": "$revision"}, "n": {"$sum": 1}}},
        ],
        hint="chunks_tally",
        allowDiskUse=True,
        session=session,
    )
    for row in groups:
        tallies.setdefault(row["_id"]["d"], {})[row["_id"]["r"]] = row["n"]
    return tallies


def _chunk_faults(tallies: dict[object, dict[str, int]], states: dict[object, Row]) -> Iterable[str]:
    orphans = sum(sum(by_revision.values()) for key, by_revision in tallies.items() if key not in states)
    if orphans:
        yield f"{orphans} chunks belong to no document. They are never searched. {_SWEPT}"
    short: list[str] = []
    mixed: list[str] = []
    for key, row in states.items():
        by_revision = tallies.get(key, {})
        if by_revision.get(row["revision"], 0) != row["chunking"]["chunkCount"]:
            short.append(row["sourceId"])
        elif len(by_revision) > 1:
            mixed.append(row["sourceId"])
    if short:
        yield f"{len(short)} documents lack chunks ({_some(short)}). Store them again: that heals them."
    if mixed:
        yield f"{len(mixed)} documents have leftover chunks ({_some(mixed)}). Store them again: that heals them."


def _body_faults(database: Database[Row], session: ClientSession | None) -> Iterable[str]:
    contents = database[CONTENTS]
    stored = {
        row["_id"] for row in contents.aggregate([{"$group": {"_id": "$bodyId"}}], allowDiskUse=True, session=session)
    }
    owned = owned_bodies(database, session)
    documents = database[DOCUMENTS].find({}, {"bodyId": 1, "sourceId": 1}, session=session)
    current = {row["bodyId"]: row["sourceId"] for row in documents}
    if loose := stored - owned:
        yield f"{len(loose)} texts belong to no version and no submission. {_SWEPT}"
    if missing := sorted(source for body, source in current.items() if body not in stored):
        yield f"{len(missing)} documents lack their text ({_some(missing)}). Store them again from their source."


def _space_faults(connection: MongoConnection) -> Iterable[str]:
    space = read_space(connection)
    if space and (told := describe_move(space, count_coverage(connection, space.pending or space.fingerprint))):
        yield told


def _submission_faults(database: Database[Row]) -> Iterable[str]:
    waiting = database[SUBMISSIONS].count_documents({"state": {"$in": list(_OPEN_STATES)}})
    if waiting:
        yield f"{waiting} submissions are not finished. The next `memory store` picks up those whose process is gone."
    parked = database[SUBMISSIONS].count_documents({"state": "parked"})
    if parked:
        yield f"{parked} submissions crashed their run three times and are parked. Read the log, then store them again."


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_EXAMPLES])
    return shown if len(names) <= _EXAMPLES else f"{shown}, …"
