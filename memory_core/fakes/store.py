"""A MemoryStore in memory. In: whole documents. Out: verdicts, states, rows; breaks no promise that MongoDB keeps.

Compare-and-swap on the revision, unique source ids, groups that are written whole or not at all, and a change feed that
is stamped by the server's clock, which is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import assert_never

import numpy as np

from memory_core.errors import InternalError
from memory_core.fakes.database import BodyRecord, ChunkRecord, DocumentRecord, FakeDatabase, take_turns
from memory_core.fakes.health import FakeHealth
from memory_core.fakes.records import copy_attributes, tells_the_same
from memory_core.models import (
    ChunkTally,
    Document,
    DocumentState,
    EmbeddedChunk,
    EmbeddedDocument,
    Fingerprint,
    Past,
    StoredVersion,
)
from memory_core.ports import Clock
from memory_core.spaces import SCHEMA_VERSION, adopt_recipe, refuse_other
from memory_core.store_ports import ActiveSpace, AttributeWrite, DocumentWrite, WriteResult, WriteVerdict
from memory_core.wire import ingest_block

_NO_TALLY = ChunkTally(count=0, revisions=frozenset(), content_hashes=frozenset(), fingerprints=frozenset())


class FakeStore(FakeHealth):
    """One process's view of a FakeDatabase. `clock` is the server's, for the change feed."""

    def __init__(
        self,
        database: FakeDatabase,
        *,
        clock: Clock,
        versions_kept: int = 5,
        transaction_budget_bytes: int = 40_000_000,
    ) -> None:
        super().__init__(database, clock=clock)
        self._versions_kept = versions_kept
        self._budget_bytes = transaction_budget_bytes
        self._recipe: str | None = None

    # --- before the first write

    async def prepare(self, fingerprint: Fingerprint, *, recipe: str | None = None) -> ActiveSpace:
        """Make `meta` where the database is empty; refuse a database that is not ours or not current."""
        await take_turns()
        with self._database.lock:
            if self._database.meta is None:
                self._refuse_foreign_rows()
                self._database.meta = ActiveSpace(
                    schema_version=SCHEMA_VERSION, fingerprint=fingerprint.key, lineage=self._database.lineage
                )
            refuse_other(self._database.meta, fingerprint=fingerprint.key, recipe=recipe)
            if recipe is not None:
                self._database.meta = adopt_recipe(self._database.meta, recipe)
            self._recipe = recipe
            return self._database.meta

    # --- writes

    async def transaction_budget_bytes(self) -> int:
        """The number that the store was made with."""
        return self._budget_bytes

    async def write_together(self, writes: Sequence[DocumentWrite], *, now: datetime) -> Sequence[WriteResult]:
        """Write all or none; on a conflict say which write it was, and that the others were undone."""
        await take_turns()
        if self._database.meta is None:
            raise InternalError("write_together was called before prepare: there is no unique index yet to rely on.")
        try:
            with self._database.transaction():
                self._refuse_retired_space(self._database.meta, writes)
                for position, write in enumerate(writes):
                    self._write(write, position=position, now=now)
        except _StaleBaseError as stale:
            verdicts = [WriteVerdict.ABORTED] * len(writes)
            verdicts[stale.position] = WriteVerdict.CONFLICT
            return [WriteResult(verdict=verdict) for verdict in verdicts]
        states = [self._database.documents[write.document.document_id].state for write in writes]
        return [WriteResult(verdict=WriteVerdict.WRITTEN, version=state.version) for state in states]

    async def write_in_parts(self, write: EmbeddedDocument, *, now: datetime) -> WriteResult:
        """As any other: memory has no limit for a transaction."""
        return (await self.write_together([write], now=now))[0]

    def _refuse_retired_space(self, active: ActiveSpace, writes: Sequence[DocumentWrite]) -> None:
        for write in writes:
            if isinstance(write, EmbeddedDocument):
                refuse_other(active, fingerprint=write.fingerprint.key, recipe=self._recipe)

    def _is_written(self, document: Document) -> bool:
        stored = self._database.documents.get(document.document_id)
        return stored is not None and stored.state.revision == document.revision

    def _write(self, write: DocumentWrite, *, position: int, now: datetime) -> None:
        if self._is_written(write.document):
            return
        if not (self._has_its_base(write.document) and self._has_its_rows(write) and self._has_its_past(write)):
            raise _StaleBaseError(position)
        match write:
            case EmbeddedDocument():
                self._put_document(self._next_record(write, now=now))
                self._put_rows(write)
            case AttributeWrite():
                self._write_attributes(write.document, now=now)
            case _:
                assert_never(write)

    def _has_its_base(self, document: Document) -> bool:
        stored = self._database.documents.get(document.document_id)
        expected = document.base.revision if document.base else None
        actual = stored.state.revision if stored else None
        owner = self._database.sources.get(document.source_id)
        return expected == actual and owner in {None, document.document_id}

    def _has_its_past(self, write: DocumentWrite) -> bool:
        """Return False where a document is to come back whose texts are gone."""
        past = write.document.past
        return past is None or not past.is_restored or self._find_trashed(write.document.document_id) is not None

    def _has_its_rows(self, write: DocumentWrite) -> bool:
        """Return False where a row that is to stay is gone: the document is not what the write was planned on."""
        rows, document = self._database.rows, write.document
        if isinstance(write, EmbeddedDocument):
            kept = [rows.get(chunk.chunk_id) for chunk in write.chunks if chunk.vector is None]
            return all(row is not None and row.document_id == document.document_id for row in kept)
        return document.base is not None and len(self._current_rows(document.base)) == document.base.chunk_count

    def _current_rows(self, state: DocumentState) -> list[ChunkRecord]:
        rows = self._rows_by_document([state.document_id])[state.document_id]
        return [row for row in rows if row.revision == state.revision]

    def _next_record(self, write: EmbeddedDocument, *, now: datetime) -> DocumentRecord:
        document, base = write.document, write.document.base
        previous = self._database.documents.get(document.document_id)
        versions = previous.versions if previous and previous.state.content_hash == document.content_hash else None
        if document.past:
            versions = self._take_past(document, document.past)
        elif versions is None:
            versions = self._add_version(document, previous.versions if previous else (), now=now)
        first = previous.state if previous else document.past
        unmoved = document.past is not None or (previous is not None and tells_the_same(previous.state, document))
        state = DocumentState(
            document_id=document.document_id,
            source_id=document.source_id,
            revision=document.revision,
            version=versions[-1].version,
            content_hash=document.content_hash,
            recipe=document.recipe,
            strategy=write.chunking.strategy,
            fingerprint=write.fingerprint.key,
            chunk_count=len(write.chunks),
            tally=_NO_TALLY,
            attributes=copy_attributes(document.attributes),
            context_basis=write.context_basis,
            context_stale=write.context_stale,
            feed=document.provenance.feed or (base.feed if base else None),
            body_id=versions[-1].body_id,
            agent=versions[-1].ingest["agent"],
            session_id=versions[-1].ingest["sessionId"],
            stored_at=versions[-1].stored_at,
            created_at=first.created_at if first else now,
            updated_at=first.updated_at if first and unmoved else now,
        )
        return DocumentRecord(
            state=state,
            content_length=len(document.content),
            fingerprint=write.fingerprint,
            options=document.options,
            versions=versions,
            committed_at=self._clock(),
        )

    def _add_version(
        self, document: Document, earlier: tuple[StoredVersion, ...], *, now: datetime
    ) -> tuple[StoredVersion, ...]:
        last = earlier[-1].version if earlier else self._last_version_in_trash(document.source_id)
        version = StoredVersion(
            version=last + 1,
            body_id=self._keep_body(document),
            content_hash=document.content_hash,
            content_length=len(document.content),
            stored_at=now,
            ingest=ingest_block(document, now=now),
        )
        versions = (*earlier, version)
        for dropped in versions[: -self._versions_kept]:
            del self._database.bodies[dropped.body_id]
        return versions[-self._versions_kept :]

    def _take_past(self, document: Document, past: Past) -> tuple[StoredVersion, ...]:
        """The versions that the document brings, and what stood of it in the trash is gone from there."""
        kept = past.versions[-self._versions_kept :]
        versions = tuple(
            replace(one, body_id=f"{document.revision}.{one.version}") if one.version in past.texts else one
            for one in kept
        )
        trashed = self._find_trashed(document.document_id)
        bodies = self._database.bodies
        for gone in trashed.document.versions if trashed else ():
            if gone.body_id not in {one.body_id for one in versions}:
                bodies.pop(gone.body_id, None)
        bodies.update(
            {one.body_id: BodyRecord(text=past.texts[one.version]) for one in versions if one.version in past.texts}
        )
        self._database.trash = tuple(
            record for record in self._database.trash if record.document.state.document_id != document.document_id
        )
        return versions

    def _last_version_in_trash(self, source_id: str) -> int:
        trashed = [record.document.state for record in self._database.trash]
        return max((state.version for state in trashed if state.source_id == source_id), default=0)

    def _keep_body(self, document: Document) -> str:
        """Adopt the staged body where it is this text; else write the text, under the revision as its id."""
        staged = self._database.bodies.get(document.body_id) if document.body_id else None
        is_ours = staged is not None and staged.submission_id is not None and staged.text == document.content
        body_id = document.body_id if document.body_id and is_ours else document.revision
        self._database.bodies[body_id] = BodyRecord(text=document.content)
        return body_id

    def _put_document(self, record: DocumentRecord) -> None:
        database, document_id = self._database, record.state.document_id
        previous = database.documents.get(document_id)
        if previous:
            del database.sources[previous.state.source_id]
        database.sources[record.state.source_id] = document_id
        database.documents[document_id] = record
        database.tombstones.pop(document_id, None)

    def _put_rows(self, write: EmbeddedDocument) -> None:
        rows = {chunk.chunk_id: self._next_row(write, chunk) for chunk in write.chunks}
        self._drop_rows({write.document.document_id})
        self._database.rows.update(rows)

    def _next_row(self, write: EmbeddedDocument, chunk: EmbeddedChunk) -> ChunkRecord:
        vector, fingerprint, windows = chunk.vector, write.fingerprint.key, chunk.windows
        cut, context = chunk.chunk, chunk.context
        if vector is None:
            stored = self._database.rows[chunk.chunk_id]
            vector, fingerprint, windows = stored.vector, stored.fingerprint, stored.windows
            if chunk.kept and chunk.kept.row_hash == chunk.row_hash:
                kept = stored.chunk
                cut = replace(cut, text=kept.text, lead=kept.lead, readable=kept.readable)
                context = stored.context
        return ChunkRecord(
            chunk_id=chunk.chunk_id,
            document_id=write.document.document_id,
            revision=write.document.revision,
            content_hash=write.document.content_hash,
            chunk=cut,
            context=context,
            row_hash=chunk.row_hash,
            embedding_input_hash=chunk.embedding_input_hash,
            fingerprint=fingerprint,
            vector=np.array(vector, dtype=np.float32),
            situated=chunk.situated,
            windows=windows,
        )

    def _write_attributes(self, document: Document, *, now: datetime) -> None:
        previous = self._database.documents.get(document.document_id)
        if previous is None or previous.state.content_hash != document.content_hash:
            raise InternalError("An attribute write must keep the stored content; this one brings another text.")
        state = replace(
            previous.state,
            source_id=document.source_id,
            revision=document.revision,
            attributes=copy_attributes(document.attributes),
            feed=document.provenance.feed or previous.state.feed,
            updated_at=now,
        )
        self._put_document(replace(previous, state=state, committed_at=self._clock()))
        for row in self._current_rows(previous.state):  # a row of another revision must not come back to life
            self._database.rows[row.chunk_id] = replace(row, revision=document.revision)

    async def close(self) -> None:
        """Nothing is open."""


class _StaleBaseError(Exception):
    """The write at this position was planned on a state that is no longer stored."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position
