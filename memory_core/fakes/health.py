"""What is wrong with a FakeDatabase, and its mending. In: records. Out: findings; no index, intent or cache is here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from memory_core.fakes.database import DocumentRecord, LeaseRecord, TrashRecord, take_turns
from memory_core.fakes.records import read_state
from memory_core.fakes.trash import FakeTrash
from memory_core.health import NO_LIMITS, FaultKind, Finding, HealthLimits, Mended, StoreHealth
from memory_core.models import DocumentState
from memory_core.spaces import describe_move, refuse_other_schema
from memory_core.work_ports import FileState, SubmissionState

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_OPEN = {SubmissionState.STAGED, SubmissionState.RUNNING}
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)  # whatever was deleted then is past its grace period


class FakeHealth(FakeTrash):
    """The part of FakeStore that looks for damage and mends it."""

    async def check_health(self, limits: HealthLimits = NO_LIMITS) -> StoreHealth:
        """Counts and findings."""
        del limits
        await take_turns()
        database, space = self._database, self._database.meta
        health = StoreHealth(server_version="fake", transactions=True, documents=0, chunks=0)
        if space is None:
            rows = {"documents": database.documents, "chunks": database.rows}
            names = tuple(name for name, found in rows.items() if found)
            return replace(health, findings=(Finding(kind=FaultKind.FOREIGN_ROWS, names=names),) if names else ())
        findings = [Finding(kind=kind, names=names) for kind, names in self._find_faults().items() if names]
        if orphans := self._orphan_rows():
            parents = tuple({database.rows[one].document_id for one in orphans})
            findings.insert(0, Finding(kind=FaultKind.ORPHAN_CHUNKS, names=parents, count=len(orphans)))
        told = describe_move(space, await self.count_coverage(space.pending or space.fingerprint))
        if told:
            findings.append(Finding(kind=FaultKind.UNFINISHED_MOVE, count=1, told=told))
        counts = {"documents": len(database.documents), "chunks": len(database.rows)}
        return replace(health, **counts, findings=tuple(findings))

    def _find_faults(self) -> Mapping[FaultKind, tuple[str, ...]]:
        submissions = {one: record for one, record in self._database.submissions.items() if self._is_free(record.lease)}
        return {
            **self._document_faults(),
            FaultKind.ORPHAN_TEXTS: tuple(self._orphan_texts()),
            FaultKind.MISSING_TEXTS: tuple(
                record.state.source_id
                for record in self._documents()
                if record.state.body_id not in self._database.bodies
            ),
            FaultKind.MISSING_VERSIONS: tuple(name for name, *_ in self._lost_versions()),
            FaultKind.TRASHED_DOCUMENTS: tuple(
                self._database.documents[one].state.source_id for one in self._living_trash()
            ),
            FaultKind.ABANDONED_SUBMISSIONS: tuple(
                one for one, record in submissions.items() if record.submission.state in _OPEN
            ),
            FaultKind.PARKED_SUBMISSIONS: tuple(
                one for one, record in submissions.items() if record.submission.state is SubmissionState.PARKED
            ),
            FaultKind.LOST_FILES: tuple(self._database.manifests[key].source_id for key in self._lost_files()),
            FaultKind.DEAD_RUNS: (
                *(f"memory ingest of {feed}" for feed in self._lapsed_feeds()),
                *(["memory reembed"] if self._has_lapsed(self._database.reembed_lease) else []),
            ),
        }

    def _document_faults(self) -> dict[FaultKind, tuple[str, ...]]:
        """Each document under its first fault."""
        found: dict[FaultKind, list[str]] = {}
        rows = self._rows_by_document(self._database.documents)
        for record in self._documents():
            of_it = rows[record.state.document_id]
            current = [row.chunk.index for row in of_it if row.revision == record.state.revision]
            if kind := _fault_of(read_state(record, of_it), current):
                found.setdefault(kind, []).append(record.state.source_id)
        return {kind: tuple(names) for kind, names in found.items()}

    def _is_free(self, lease: LeaseRecord | None) -> bool:
        return lease is None or lease.until < self._clock()

    def _has_lapsed(self, lease: LeaseRecord | None) -> bool:
        return lease is not None and lease.until < self._clock()

    def _orphan_rows(self) -> list[str]:
        rows = self._database.rows.values()
        return [row.chunk_id for row in rows if row.document_id not in self._database.documents]

    def _orphan_texts(self) -> list[str]:
        owners = [*self._documents(), *(one.document for one in self._database.trash)]
        owned = {version.body_id for record in owners for version in record.versions}
        owned |= {record.state.body_id for record in owners}
        return [
            body_id
            for body_id, body in self._database.bodies.items()
            if body_id not in owned and body.submission_id not in self._database.submissions
        ]

    def _lost_versions(self) -> Iterator[tuple[str, DocumentRecord, int]]:
        owners = [(record, "") for record in self._documents()]
        owners += [(one.document, " (in the trash)") for one in self._database.trash]
        for record, where in owners:
            for version in record.versions:
                is_current = not where and version.body_id == record.state.body_id
                if version.body_id not in self._database.bodies and not is_current:
                    yield f"{record.state.source_id} version {version.version}{where}", record, version.version

    def _living_trash(self) -> list[str]:
        ids = [one.document.state.document_id for one in self._database.trash]
        return [one for one in ids if one in self._database.documents]

    def _lost_files(self) -> list[tuple[str, str]]:
        database = self._database
        return [
            key
            for key, entry in database.manifests.items()
            if entry.state is FileState.STORED
            and entry.source_id not in database.sources
            and self._is_free(database.feed_leases.get(key[0]))
        ]

    def _lapsed_feeds(self) -> list[str]:
        return [feed for feed, lease in self._database.feed_leases.items() if self._has_lapsed(lease)]

    # --- mending

    async def mend(self, kinds: Collection[FaultKind], limits: HealthLimits = NO_LIMITS) -> Sequence[Mended]:
        """Mend these kinds."""
        del limits
        await take_turns()
        work: dict[FaultKind, Callable[[], int]] = {
            FaultKind.DEAD_RUNS: self._give_back_leases,
            FaultKind.TRASHED_DOCUMENTS: self._settle_trash,
            FaultKind.ORPHAN_CHUNKS: lambda: _drop(self._database.rows, self._orphan_rows()),
            FaultKind.MISSING_VERSIONS: self._forget_lost_versions,
            FaultKind.ORPHAN_TEXTS: lambda: _drop(self._database.bodies, self._orphan_texts()),
            FaultKind.LOST_FILES: lambda: _drop(self._database.manifests, self._lost_files()),
        }
        with self._database.transaction():
            if self._database.meta is None:
                self._refuse_foreign_rows()
                return []
            refuse_other_schema(self._database.meta)
            done = [Mended(kind=kind, count=call()) for kind, call in work.items() if kind in kinds]
        return [one for one in done if one.count]

    def _give_back_leases(self) -> int:
        released = _drop(self._database.feed_leases, self._lapsed_feeds())
        if self._has_lapsed(self._database.reembed_lease):
            self._database.reembed_lease = None
            released += 1
        return released

    def _settle_trash(self) -> int:
        alive = self._living_trash()
        self._database.trash = tuple(one for one in self._database.trash if one.document.state.document_id not in alive)
        return len(alive)

    def _forget_lost_versions(self) -> int:
        lost = list(self._lost_versions())
        for _, record, number in lost:
            self._forget(record, {number})
        return len(lost)

    def _forget(self, record: DocumentRecord, numbers: Collection[int]) -> None:
        """Drop versions; what of the trash has lost its newest text cannot be restored."""
        database, document_id = self._database, record.state.document_id
        stored = database.documents.get(document_id)
        for version in record.versions:
            if version.version in numbers:
                database.bodies.pop(version.body_id, None)
        if stored:
            kept = tuple(one for one in stored.versions if one.version not in numbers)
            database.documents[document_id] = replace(stored, versions=kept)
            return
        database.trash = tuple(
            self._forget_trashed(one, numbers) if one.document.state.document_id == document_id else one
            for one in database.trash
        )

    def _forget_trashed(self, trashed: TrashRecord, numbers: Collection[int]) -> TrashRecord:
        if trashed.document.state.version not in numbers:
            return replace(trashed, document=_without(trashed.document, numbers))
        for version in trashed.document.versions:
            self._database.bodies.pop(version.body_id, None)
        return TrashRecord(document=replace(trashed.document, versions=()), deleted_at=_LONG_AGO)

    async def forget_versions(self, document_id: str, versions: Collection[int]) -> int:
        """Drop earlier versions."""
        await take_turns()
        with self._database.transaction():
            record = self._database.documents.get(document_id)
            if record is None:
                return 0
            numbers = {one.version for one in record.versions} & set(versions) - {record.state.version}
            self._forget(record, numbers)
            return len(numbers)


def _without(record: DocumentRecord, numbers: Collection[int]) -> DocumentRecord:
    return replace(record, versions=tuple(one for one in record.versions if one.version not in numbers))


def _drop(entries: dict[_Key, _Value], keys: Collection[_Key]) -> int:
    for key in keys:
        del entries[key]
    return len(keys)


def _fault_of(state: DocumentState, current: Sequence[int]) -> FaultKind | None:
    tally = state.tally
    if len(current) != state.chunk_count:
        return FaultKind.SHORT_DOCUMENTS
    if tally.revisions != frozenset({state.revision}):
        return FaultKind.LEFTOVER_CHUNKS
    if (tally.content_hashes, tally.fingerprints) != ({state.content_hash}, {state.fingerprint}):
        return FaultKind.MISMATCHED_CHUNKS
    return None if sorted(current) == list(range(state.chunk_count)) else FaultKind.MISNUMBERED_CHUNKS
