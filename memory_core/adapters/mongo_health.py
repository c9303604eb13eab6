"""What `memory doctor` asks MongoDB. In: a database. Out: counts and findings; nothing is changed.

Only ids, revisions, hashes and counts are read, never a text or a vector; of chunks and texts indexes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.command_cursor import CommandCursor
from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server
from memory_core.adapters.mongo_embedding_cache import first_beyond, total_since
from memory_core.adapters.mongo_index_check import find_index_faults
from memory_core.adapters.mongo_indexes import (
    CHUNKS,
    DOCUMENTS,
    EMBEDDING_CACHE,
    FEED_FILES,
    FEEDS,
    META,
    SUBMISSIONS,
    TRASH,
)
from memory_core.adapters.mongo_intents import Underway, read_underway
from memory_core.adapters.mongo_leases import read_holder
from memory_core.adapters.mongo_spaces import count_coverage, read_space
from memory_core.adapters.mongo_sweeps import ORPHAN_AGE, owned_bodies
from memory_core.adapters.mongo_texts import StoredTexts, read_texts
from memory_core.health import FaultKind, Finding, HealthLimits, StoreHealth
from memory_core.models import Holder
from memory_core.spaces import describe_move
from memory_core.work_ports import FileState

OPEN_STATES = ("staged", "running")
# The server forgets by itself what is too old, once a minute: only what it left is a fault.
_FORGETTING = timedelta(days=1)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_STATE_FIELDS = (
    "sourceId",
    "revision",
    "contentHash",
    "bodyId",
    "chunking.chunkCount",
    "embedding.fingerprint",
    "versions.version",
    "versions.bodyId",
    "versions.contentLength",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """How to look: whether the server has transactions, who is alive, and what the settings allow."""

    transactions: bool
    is_alive: Callable[[Holder], bool]
    limits: HealthLimits


def check_health(connection: MongoConnection, watcher: Watcher) -> StoreHealth:
    """Count everything and look for what does not fit together.

    Everything is read at one moment where the server can do that. Where it cannot, a fault must be there twice: what
    a store changes between two reads looks like damage. What a living process has announced is none.
    """
    database = connection.database
    health = StoreHealth(
        server_version=str(connection.client.server_info()["version"]),
        transactions=watcher.transactions,
        documents=0,
        chunks=0,
    )
    if read_space(connection) is None:
        return replace(health, findings=tuple(_foreign_faults(database)))
    now = ask_server(connection).now
    look = _look_at_once(connection, watcher, now)
    findings = [
        *find_index_faults(database),
        *look.findings,
        *_space_faults(connection),
        *_submission_faults(database, watcher, now),
        *_run_faults(database, watcher, now),
        *_cache_faults(database, watcher.limits, now),
    ]
    return replace(health, documents=look.documents, chunks=look.chunks, findings=tuple(findings))


def _foreign_faults(database: Database[Row]) -> Iterator[Finding]:
    names = tuple(name for name in (DOCUMENTS, CHUNKS) if database[name].find_one({}, {"_id": 1}))
    if names:
        yield Finding(kind=FaultKind.FOREIGN_ROWS, names=names)


# --- what must fit together, at one moment ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look at the database found."""

    documents: int
    chunks: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _State:
    """What a document says of itself."""

    source_id: str
    revision: str
    content_hash: str
    fingerprint: str
    chunk_count: int
    body_id: str
    versions: tuple[tuple[int, str, int], ...]


def _look_at_once(connection: MongoConnection, watcher: Watcher, now: datetime) -> _Look:
    if watcher.transactions:
        with connection.client.start_session(snapshot=True) as session:
            return _look(connection.database, session, watcher, now)
    look = _look(connection.database, None, watcher, now)
    if not look.findings:
        return look
    again = _look(connection.database, None, watcher, now)
    return replace(again, findings=tuple(_in_both(look.findings, again.findings)))


def _in_both(first: tuple[Finding, ...], second: tuple[Finding, ...]) -> Iterator[Finding]:
    names = {finding.kind: set(finding.names) for finding in first}
    for finding in second:
        if kept := tuple(name for name in finding.names if name in names.get(finding.kind, ())):
            yield replace(finding, names=kept)


def _look(database: Database[Row], session: ClientSession | None, watcher: Watcher, now: datetime) -> _Look:
    underway = read_underway(database, is_alive=watcher.is_alive, oldest=now - ORPHAN_AGE, session=session)
    states = _read_states(database, session)
    tallies = _Tallies(database, session, states)
    texts = read_texts(database, session)
    trash = list(database[TRASH].find({}, dict.fromkeys(("sourceId", "versions"), 1), session=session))
    found: dict[FaultKind, list[str]] = tallies.name_faults(states, underway)
    orphans = {key: rows for key, rows in tallies.orphans.items() if key not in underway.document_ids}
    _compare_texts(states, texts, found)
    loose = texts.keys() - owned_bodies(database, session) - {state.body_id for state in states.values()}
    found[FaultKind.ORPHAN_TEXTS] = sorted(loose - underway.body_ids)
    _compare_trash(trash, states, texts, underway, found)
    found[FaultKind.DEAD_WRITES] = list(underway.dead)
    found[FaultKind.LOST_FILES] = _lost_files(database, session, states, watcher, now)
    findings = [Finding(kind=kind, names=tuple(found[kind])) for kind in FaultKind if found.get(kind)]
    if orphans:
        names = tuple(str(one) for one in orphans)
        findings.insert(0, Finding(kind=FaultKind.ORPHAN_CHUNKS, names=names, count=sum(orphans.values())))
    return _Look(documents=len(states), chunks=tallies.chunks, findings=tuple(findings))


def _read_states(database: Database[Row], session: ClientSession | None) -> dict[ObjectId, _State]:
    found = database[DOCUMENTS].find({}, dict.fromkeys(_STATE_FIELDS, 1), session=session)
    return {row["_id"]: _read_state(row) for row in found}


def _read_state(row: Mapping[str, Any]) -> _State:
    return _State(
        source_id=row["sourceId"],
        revision=row["revision"],
        content_hash=row["contentHash"],
        fingerprint=row["embedding"]["fingerprint"],
        chunk_count=row["chunking"]["chunkCount"],
        body_id=row["bodyId"],
        versions=_read_versions(row),
    )


def _read_versions(row: Mapping[str, Any]) -> tuple[tuple[int, str, int], ...]:
    return tuple((one["version"], one["bodyId"], one["contentLength"]) for one in row.get("versions", []))


class _Tallies:
    """Chunk rows counted by what they say of their document, from indexes alone; only what does not fit is kept."""

    def __init__(
        self, database: Database[Row], session: ClientSession | None, states: Mapping[ObjectId, _State]
    ) -> None:
        self.chunks = 0
        self.orphans: dict[ObjectId, int] = {}
        self._leftover: set[ObjectId] = set()
        self._mismatched: set[ObjectId] = set()
        counts = dict.fromkeys(states, 0)
        indexes = set(database[CHUNKS].index_information())
        for group in _count_rows(database, session, indexes):
            self.chunks += group["n"]
            said = group["_id"]
            key = said["documentId"]
            state = states.get(key)
            if state is None:
                self.orphans[key] = self.orphans.get(key, 0) + group["n"]
            elif said["revision"] != state.revision:
                self._leftover.add(key)
            else:
                counts[key] += group["n"]
                says = (said["documentContentHash"], said["embeddingFingerprint"])
                if says != (state.content_hash, state.fingerprint):
                    self._mismatched.add(key)
        self._short = {key for key, count in counts.items() if count != states[key].chunk_count}
        self._misnumbered = _find_misnumbered(database, session, indexes)

    def name_faults(self, states: Mapping[ObjectId, _State], underway: Underway) -> dict[FaultKind, list[str]]:
        """The documents by source id, each under its first fault."""
        seen: set[ObjectId] = set(underway.document_ids)
        found: dict[FaultKind, list[str]] = {}
        for kind, keys in (
            (FaultKind.SHORT_DOCUMENTS, self._short),
            (FaultKind.LEFTOVER_CHUNKS, self._leftover),
            (FaultKind.MISMATCHED_CHUNKS, self._mismatched),
            (FaultKind.MISNUMBERED_CHUNKS, self._misnumbered & states.keys()),
        ):
            found[kind] = [states[key].source_id for key in keys - seen]
            seen |= keys
        return found


def _count_rows(database: Database[Row], session: ClientSession | None, indexes: set[str]) -> CommandCursor[Row]:
    fields = ("documentId", "revision", "documentContentHash", "embeddingFingerprint")
    return database[CHUNKS].aggregate(
        [
            {"$project": {"_id": 0, **dict.fromkeys(fields, 1)}},
            {"$group": {"_id": {name: f"${name}" for name in fields}, "n": {"$sum": 1}}},
        ],
        allowDiskUse=True,
        session=session,
        **_hint("chunks_tally", indexes),
    )


def _find_misnumbered(database: Database[Row], session: ClientSession | None, indexes: set[str]) -> set[ObjectId]:
    """Documents whose rows are not numbered 0, 1, 2 and so on."""
    numbers = {"n": {"$sum": 1}, "last": {"$max": "$chunkIndex"}, "all": {"$addToSet": "$chunkIndex"}}
    whole = {"$and": [{"$eq": [{"$size": "$all"}, "$n"]}, {"$eq": ["$last", {"$subtract": ["$n", 1]}]}]}
    pipeline: list[Row] = [
        {"$project": {"_id": 0, "documentId": 1, "chunkIndex": 1}},
        {"$group": {"_id": "$documentId", **numbers}},
        {"$match": {"$expr": {"$not": [whole]}}},
        {"$project": {"_id": 1}},
    ]
    hint = _hint("chunks_documentId_chunkIndex", indexes)
    found = database[CHUNKS].aggregate(pipeline, allowDiskUse=True, session=session, **hint)
    return {row["_id"] for row in found}


def _hint(name: str, indexes: set[str]) -> dict[str, Any]:
    """An index that somebody dropped cannot be asked for."""
    return {"hint": name} if name in indexes else {}


def _compare_texts(states: Mapping[ObjectId, _State], texts: StoredTexts, found: dict[FaultKind, list[str]]) -> None:
    missing, versions = found.setdefault(FaultKind.MISSING_TEXTS, []), found.setdefault(FaultKind.MISSING_VERSIONS, [])
    for state in states.values():
        known = {body_id for _, body_id, _ in state.versions}
        gone = {(number, body_id) for number, body_id, length in state.versions if not texts.has(body_id, length)}
        if state.body_id in {body_id for _, body_id in gone} or (
            state.body_id not in known and not texts.has(state.body_id, None)
        ):
            missing.append(state.source_id)
        versions += [f"{state.source_id} version {one}" for one, body_id in gone if body_id != state.body_id]


def _compare_trash(
    trash: list[Row],
    states: Mapping[ObjectId, _State],
    texts: StoredTexts,
    underway: Underway,
    found: dict[FaultKind, list[str]],
) -> None:
    twice = [row for row in trash if row["_id"] in states and row["_id"] not in underway.document_ids]
    found[FaultKind.TRASHED_DOCUMENTS] = [states[row["_id"]].source_id for row in twice]
    found[FaultKind.MISSING_VERSIONS] += [
        f"{row['sourceId']} version {number} (in the trash)"
        for row in trash
        if row["_id"] not in states
        for number, body_id, length in _read_versions(row)
        if not texts.has(body_id, length)
    ]


def _lost_files(
    database: Database[Row],
    session: ClientSession | None,
    states: Mapping[ObjectId, _State],
    watcher: Watcher,
    now: datetime,
) -> list[str]:
    """Files that a directory believes to be stored; a directory that is synced at this moment is left out."""
    busy = busy_feeds(database, is_alive=watcher.is_alive, now=now, session=session)
    known = {state.source_id for state in states.values()}
    fields = {"_id": 0, "feed": 1, "sourceId": 1}
    found = database[FEED_FILES].find({"state": FileState.STORED.value}, fields, session=session)
    return [row["sourceId"] for row in found if row["feed"] not in busy and row["sourceId"] not in known]


def busy_feeds(
    database: Database[Row],
    *,
    is_alive: Callable[[Holder], bool],
    now: datetime,
    session: ClientSession | None = None,
) -> set[str]:
    """The feeds that somebody may be syncing at this moment."""
    held = database[FEEDS].find({"lease": {"$exists": True}}, {"lease": 1}, session=session)
    return {row["_id"] for row in held if is_held(row, is_alive=is_alive, now=now)}


def is_held(row: Mapping[str, Any], *, is_alive: Callable[[Holder], bool], now: datetime) -> bool:
    """Whether the lease of a row has not lapsed and its holder may be alive."""
    lease = row.get("lease")
    return bool(lease) and lease["until"] >= now and is_alive(read_holder(lease))


# --- what stands for itself -------------------------------------------------------------------------------------------


def _space_faults(connection: MongoConnection) -> Iterator[Finding]:
    space = read_space(connection)
    told = space and describe_move(space, count_coverage(connection, space.pending or space.fingerprint))
    if told:
        yield Finding(kind=FaultKind.UNFINISHED_MOVE, count=1, told=told)


def _submission_faults(database: Database[Row], watcher: Watcher, now: datetime) -> Iterator[Finding]:
    submissions = database[SUBMISSIONS]
    waiting = submissions.find({"state": {"$in": list(OPEN_STATES)}}, {"lease": 1})
    abandoned = [str(row["_id"]) for row in waiting if not is_held(row, is_alive=watcher.is_alive, now=now)]
    parked = [str(row["_id"]) for row in submissions.find({"state": "parked"}, {"_id": 1})]
    for kind, names in ((FaultKind.ABANDONED_SUBMISSIONS, abandoned), (FaultKind.PARKED_SUBMISSIONS, parked)):
        if names:
            yield Finding(kind=kind, names=tuple(names))


def _run_faults(database: Database[Row], watcher: Watcher, now: datetime) -> Iterator[Finding]:
    """Leases that their holders did not give back: of directories, and of a re-embed."""
    held = {"lease": {"$exists": True}}
    feeds = [f"memory ingest of {row['_id']}" for row in _dead(database, FEEDS, held, watcher, now)]
    reembeds = ["memory reembed" for _ in _dead(database, META, held, watcher, now)]
    if feeds or reembeds:
        yield Finding(kind=FaultKind.DEAD_RUNS, names=(*feeds, *reembeds))


def _dead(database: Database[Row], name: str, held: Row, watcher: Watcher, now: datetime) -> list[Row]:
    rows = database[name].find(held, {"lease": 1})
    return [row for row in rows if not is_held(row, is_alive=watcher.is_alive, now=now)]


def _cache_faults(database: Database[Row], limits: HealthLimits, now: datetime) -> Iterator[Finding]:
    cache, beyond = database[EMBEDDING_CACHE], 0
    if limits.cache_days is not None:
        beyond += cache.count_documents({"at": {"$lt": now - timedelta(days=limits.cache_days) - _FORGETTING}})
    if limits.cache_bytes is not None:
        total = next(cache.aggregate(total_since(LONG_AGO)), {"bytes": 0})["bytes"]
        if total > limits.cache_bytes:
            for first in cache.aggregate(first_beyond(limits.cache_bytes)):
                beyond = max(beyond, cache.count_documents({"at": {"$lte": first["at"]}}))
    if beyond:
        yield Finding(kind=FaultKind.LARGE_CACHE, count=beyond)
