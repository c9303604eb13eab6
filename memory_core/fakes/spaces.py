"""The embedding spaces of the fake MemoryStore. In: `meta` and the documents. Out: coverage, or the next `meta`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from memory_core.answers import Coverage
from memory_core.errors import ForeignDatabaseError, NotFoundError
from memory_core.fakes.database import DocumentRecord, LeaseRecord, take_turns
from memory_core.fakes.reads import FakeStoreReads
from memory_core.models import Fingerprint, Holder
from memory_core.spaces import SCHEMA_VERSION, activate, declare, refuse_other_schema
from memory_core.store_ports import ActiveSpace, RowSizes, SchemaChange, SchemaStep, StoredEmbedding


class FakeSpaces(FakeStoreReads):
    """What FakeStore knows of spaces, and the lease of a re-embed."""

    async def declare_space(self, fingerprint: Fingerprint) -> ActiveSpace:
        """Make it the pending one."""
        await take_turns()
        return self._change_space(lambda space: declare(space, fingerprint.key))

    async def activate_space(self, fingerprint: Fingerprint, *, complete: bool) -> ActiveSpace:
        """Make it the active one."""
        await take_turns()
        return self._change_space(lambda space: activate(space, fingerprint.key, complete=complete))

    async def activate_recipe(self, recipe: str) -> ActiveSpace:
        """Make it the memory's."""
        await take_turns()
        return self._change_space(lambda space: replace(space, recipe=recipe))

    def _change_space(self, change: Callable[[ActiveSpace], ActiveSpace]) -> ActiveSpace:
        with self._database.lock:
            before = self._need_meta()
            refuse_other_schema(before)
            self._database.meta = change(before)
            return self._database.meta

    async def migrate(self, *, dry_run: bool = False) -> SchemaChange:
        """Raise the number: what is in memory has no older shape."""
        await take_turns()
        with self._database.lock:
            space = self._database.meta
            if space is None:
                self._refuse_foreign_rows()
                return SchemaChange(before=None, after=SCHEMA_VERSION, dry_run=dry_run)
            if space.schema_version > SCHEMA_VERSION:
                refuse_other_schema(space)
            numbers = range(space.schema_version + 1, SCHEMA_VERSION + 1)
            if not dry_run:
                self._database.meta = replace(space, schema_version=SCHEMA_VERSION)
            return SchemaChange(
                before=space.schema_version,
                after=SCHEMA_VERSION,
                steps=tuple(SchemaStep(number=number, name=f"step {number}") for number in numbers),
                dry_run=dry_run,
            )

    def _refuse_foreign_rows(self) -> None:
        if self._database.documents or self._database.rows:
            raise ForeignDatabaseError(
                "The database holds documents or chunks that this memory did not write. "
                "Set MONGODB_DB_NAME to another name, or move the data over with `memory migrate`."
            )

    def _need_meta(self) -> ActiveSpace:
        if self._database.meta is None:
            raise NotFoundError("Nothing is stored yet, so there is nothing to embed again.")
        return self._database.meta

    async def count_coverage(self, fingerprint: str) -> Coverage:
        """Count the documents, and the chunks that they say they have."""
        await take_turns()
        states = [record.state for record in self._documents()]
        covered = [state for state in states if state.fingerprint == fingerprint]
        return Coverage(
            fingerprint=fingerprint,
            documents=len(states),
            chunks=sum(state.chunk_count for state in states),
            covered_documents=len(covered),
            covered_chunks=sum(state.chunk_count for state in covered),
        )

    async def find_embedded(
        self, *, stale_in: str | None, source_ids: Sequence[str] = (), after: str | None = None, limit: int
    ) -> Sequence[StoredEmbedding]:
        """By document id; the stale ones, or all."""
        await take_turns()
        found = [
            record
            for _, record in sorted(self._database.documents.items())
            if (stale_in is None or record.state.fingerprint != stale_in or record.state.context_stale)
            and (not source_ids or record.state.source_id in source_ids)
            and (after is None or record.state.document_id > after)
        ]
        return [_read_embedding(record) for record in found[:limit]]

    async def measure_rows(self, document_ids: Sequence[str]) -> RowSizes:
        """Sum up the rows."""
        await take_turns()
        rows = [row for found in self._rows_by_document(document_ids).values() for row in found]
        return RowSizes(
            tokens=sum(row.chunk.token_count for row in rows), context_chars=sum(len(row.context) for row in rows)
        )

    async def acquire_reembed_lease(self, holder: Holder, *, seconds: float) -> Holder | None:
        """Take or renew the lease; a lapsed one is free."""
        await take_turns()
        with self._database.lock:
            self._need_meta()
            lease = self._database.reembed_lease
            if lease and lease.holder.token != holder.token and lease.until >= self._clock():
                return lease.holder
            self._take_lease(holder, seconds)
            return None

    async def steal_reembed_lease(self, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """Take the lease only from the holder that is known to be dead."""
        await take_turns()
        with self._database.lock:
            lease = self._database.reembed_lease
            if lease is None or lease.holder.token != dead.token:
                return False
            self._take_lease(holder, seconds)
            return True

    def _take_lease(self, holder: Holder, seconds: float) -> None:
        until = self._clock() + timedelta(seconds=seconds)
        self._database.reembed_lease = LeaseRecord(holder=holder, until=until)

    async def release_reembed_lease(self, holder: Holder) -> None:
        """Give the lease back where it is still ours."""
        await take_turns()
        with self._database.lock:
            lease = self._database.reembed_lease
            if lease and lease.holder.token == holder.token:
                self._database.reembed_lease = None


def _read_embedding(record: DocumentRecord) -> StoredEmbedding:
    state = record.state
    return StoredEmbedding(
        document_id=state.document_id,
        source_id=state.source_id,
        title=state.attributes.title,
        uri=state.attributes.uri,
        content_type=state.attributes.content_type,
        body_id=state.body_id,
        content_length=record.content_length,
        recipe=state.recipe,
        options=record.options,
        chunk_count=state.chunk_count,
        fingerprint=state.fingerprint,
        context_stale=state.context_stale,
    )
