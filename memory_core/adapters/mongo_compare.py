"""What a group of writes meets in the database. In: writes. Out: a step for each, or who lost its race; one read.

It decides compare-and-swap, the next version and whose staged body is adopted. Only ids, revisions and versions are
read, never a text or a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from bson import ObjectId
from pymongo.client_session import ClientSession

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import DOCUMENTS, SUBMISSIONS, TRASH
from memory_core.models import Past
from memory_core.store_ports import DocumentWrite
from memory_core.wire import ingest_block


class LostRaceError(Exception):
    """Another writer was first for some writes of the group, named by their positions: undo the group."""

    def __init__(self, positions: frozenset[int]) -> None:
        super().__init__("compare-and-swap lost")
        self.positions = positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write with what the database says of its document at this moment.

    `new_bodies` are the texts that are still to be written, by body id; `leaves_trash`: the document stands in the
    trash and is to be alive again.
    """

    position: int
    write: DocumentWrite
    version: int
    versions: list[Row]
    new_bodies: Mapping[str, str] = field(default_factory=dict[str, str])
    dropped_bodies: tuple[str, ...] = ()
    leaves_trash: bool = False
    is_done: bool = False


def compare(
    connection: MongoConnection,
    writes: Sequence[DocumentWrite],
    *,
    now: datetime,
    versions_kept: int,
    session: ClientSession | None,
) -> list[Step]:
    """Read what the group is about to replace, once, and refuse it where another writer was first."""
    documents = [write.document for write in writes]
    found = list(
        connection.collection(DOCUMENTS).find(
            {
                "$or": [
                    {"_id": {"$in": [ObjectId(one.document_id) for one in documents if one.base or one.past]}},
                    {"sourceId": {"$in": [one.source_id for one in documents]}},
                ]
            },
            {"sourceId": 1, "revision": 1, "version": 1, "versions": 1},
            session=session,
        )
    )
    by_id = {str(row["_id"]): row for row in found}
    holders = {row["sourceId"]: str(row["_id"]) for row in found}
    lost = frozenset(position for position, write in enumerate(writes) if _is_lost(write, by_id, holders))
    if lost:
        raise LostRaceError(lost)
    returning = _read_returning(connection, writes, by_id, session)
    new_ids = [write.document.source_id for write in writes if write.document.document_id not in by_id]
    trashed = _last_trashed_versions(connection, new_ids, session)
    adopted = _adopt_bodies(connection, writes, session)
    steps: list[Step] = []
    for position, write in enumerate(writes):
        row = by_id.get(write.document.document_id)
        last_version = row["version"] if row else trashed.get(write.document.source_id, 0)
        versions: list[Row] = list(row["versions"]) if row else []
        step = Step(position=position, write=write, version=last_version, versions=versions)
        if row and row["revision"] == write.document.revision:
            steps.append(replace(step, is_done=True))
        elif write.document.past:
            trash_row = returning.get(write.document.document_id)
            steps.append(_take_past(step, write.document.past, trash_row, versions_kept=versions_kept))
        elif is_new_content(write):
            adopts_body = position in adopted
            steps.append(_count_version(step, now=now, versions_kept=versions_kept, adopts_body=adopts_body))
        else:
            steps.append(step)
    return steps


def _is_lost(write: DocumentWrite, by_id: dict[str, Row], holders: dict[str, str]) -> bool:
    document = write.document
    row = by_id.get(document.document_id)
    if holders.get(document.source_id, document.document_id) != document.document_id:
        return True  # the source id belongs to another document now
    if row is None:
        return document.base is not None
    if row["revision"] == document.revision:
        return False  # our own earlier attempt was committed
    return document.base is None or row["revision"] != document.base.revision


def _last_trashed_versions(
    connection: MongoConnection, source_ids: Sequence[str], session: ClientSession | None
) -> dict[str, int]:
    """A source that was deleted goes on counting versions where it stopped."""
    if not source_ids:
        return {}
    found = connection.collection(TRASH).find(
        {"sourceId": {"$in": list(source_ids)}}, {"_id": 0, "sourceId": 1, "version": 1}, session=session
    )
    last: dict[str, int] = {}
    for row in found:
        last[row["sourceId"]] = max(row["version"], last.get(row["sourceId"], 0))
    return last


def _adopt_bodies(
    connection: MongoConnection, writes: Sequence[DocumentWrite], session: ClientSession | None
) -> frozenset[int]:
    """The positions of writes that take over the staged body of their submission.

    A body is adopted once, and only where it is the very text that is stored; else two versions would share it, and
    the removal of one would take the text of the other. Without a transaction the text is written anew: a crash between
    adoption and flip would leave it without an owner.
    """
    staged = {
        write.document.body_id: position
        for position, write in enumerate(writes)
        if write.document.body_id and is_new_content(write)
    }
    if not staged or session is None:
        return frozenset()
    submissions = connection.collection(SUBMISSIONS)
    free = submissions.find(
        {"bodyId": {"$in": list(staged)}, "adopted": False}, {"bodyId": 1, "contentHash": 1}, session=session
    )
    adopted = [
        row["bodyId"] for row in free if row["contentHash"] == writes[staged[row["bodyId"]]].document.content_hash
    ]
    if adopted:
        submissions.update_many({"bodyId": {"$in": adopted}}, {"$set": {"adopted": True}}, session=session)
    return frozenset(staged[body] for body in adopted)


def _count_version(step: Step, *, now: datetime, versions_kept: int, adopts_body: bool) -> Step:
    """The step with its new version among the newest kept, and the bodies that drop out.

    The body is the staged one where that is adopted, else one named by this write's revision (which is unique).
    """
    document = step.write.document
    body_id = document.body_id if adopts_body and document.body_id else document.revision
    entry = {
        "version": step.version + 1,
        "bodyId": body_id,
        "contentHash": document.content_hash,
        "contentLength": len(document.content),
        "storedAt": now,
        "ingest": ingest_block(document, now=now),
    }
    kept = [*step.versions, entry][-versions_kept:]
    return replace(
        step,
        version=step.version + 1,
        versions=kept,
        new_bodies={} if adopts_body else {body_id: document.content},
        dropped_bodies=tuple(old["bodyId"] for old in step.versions if old not in kept),
    )


def _read_returning(
    connection: MongoConnection,
    writes: Sequence[DocumentWrite],
    by_id: Mapping[str, Row],
    session: ClientSession | None,
) -> dict[str, Row]:
    """The rows of the trash, by document id, of documents that bring their past.

    Raises:
        LostRaceError: one was to be restored, and its texts are gone or it is a document again.
    """
    coming = {write.document.document_id: write.document.past for write in writes if write.document.past}
    if not coming:
        return {}
    found = connection.collection(TRASH).find(
        {"_id": {"$in": [ObjectId(one) for one in coming]}}, {"versions": 1}, session=session
    )
    rows = {str(row["_id"]): row for row in found}
    lost = frozenset(
        position
        for position, write in enumerate(writes)
        if write.document.past
        and write.document.past.is_restored
        and write.document.document_id not in by_id
        and not rows.get(write.document.document_id, {}).get("versions")
    )
    if lost:
        raise LostRaceError(lost)
    return rows


def _take_past(step: Step, past: Past, trash_row: Row | None, *, versions_kept: int) -> Step:
    """The step with the versions that the document brings, as they were: none is counted."""
    versions: list[Row] = [
        {
            "version": one.version,
            "bodyId": past_body_id(step.write, one.version) if one.version in past.texts else one.body_id,
            "contentHash": one.content_hash,
            "contentLength": one.content_length,
            "storedAt": one.stored_at,
            "ingest": dict(one.ingest),
        }
        for one in past.versions
    ]
    kept = versions[-versions_kept:]
    current = {entry["bodyId"] for entry in kept}
    held = [entry["bodyId"] for entry in (trash_row or {}).get("versions", [])]
    return replace(
        step,
        version=versions[-1]["version"],
        versions=kept,
        new_bodies={entry["bodyId"]: past.texts[entry["version"]] for entry in kept if entry["version"] in past.texts},
        dropped_bodies=tuple(body for body in held if body not in current),
        leaves_trash=trash_row is not None,
    )


def past_body_id(write: DocumentWrite, version: int) -> str:
    """The name of the body of an earlier version that a document brings with it."""
    return f"{write.document.revision}.{version}"


def new_body_ids(write: DocumentWrite) -> list[str]:
    """The names of all bodies that this write may write."""
    past = write.document.past
    return [write.document.revision, *(past_body_id(write, version) for version in (past.texts if past else ()))]


def is_new_content(write: DocumentWrite) -> bool:
    """True where the write brings a text that the document does not have now: only that makes a version."""
    document = write.document
    return not document.past and (document.base is None or document.base.content_hash != document.content_hash)
