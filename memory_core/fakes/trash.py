"""Deletion, the trash and the purge of the fake MemoryStore. In: selectors. Out: what went, and what can come back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from memory_core.answers import Deletion, Purge, SearchFilters, TrashedDocument
from memory_core.errors import NotFoundError, ValidationError
from memory_core.fakes.database import DocumentRecord, TrashRecord, take_turns
from memory_core.fakes.records import read_document, satisfies
from memory_core.fakes.spaces import FakeSpaces
from memory_core.store_ports import DeleteSelector

_DOCUMENT_ID = re.compile(r"[0-9a-f]{24}", re.IGNORECASE)
_TRASH_DAYS = 7


class FakeTrash(FakeSpaces):
    """The part of FakeStore that takes documents away."""

    async def delete(
        self, selector: DeleteSelector, *, now: datetime, dry_run: bool = False, feed: str | None = None
    ) -> Deletion:
        """Move the chosen documents to the trash and drop their rows."""
        await take_turns()
        with self._database.transaction():
            chosen = [record for record in self._select(selector) if feed is None or record.state.feed == feed]
            document_ids = {record.state.document_id for record in chosen}
            rows = sum(len(found) for found in self._rows_by_document(document_ids).values())
            if not dry_run:
                self._move_to_trash(chosen, now=now)
        return Deletion(
            source_ids=tuple(sorted(record.state.source_id for record in chosen)),
            deleted_documents=len(chosen),
            deleted_chunks=rows,
            dry_run=dry_run,
            restorable_until=now + timedelta(days=_TRASH_DAYS) if chosen and not dry_run else None,
        )

    def _select(self, selector: DeleteSelector) -> list[DocumentRecord]:
        given = [selector.source_ids, selector.document_id is not None, selector.tags, selector.revisions]
        if sum(map(bool, given)) != 1:
            raise ValidationError("Name exactly one of source ids, a document id or tags; nothing was deleted.")
        if selector.document_id is not None:
            if not _DOCUMENT_ID.fullmatch(selector.document_id):
                raise ValidationError("A document id has 24 hexadecimal digits. Use the source id for ids of your own.")
            filters = SearchFilters(document_ids=(selector.document_id,))
        else:
            filters = SearchFilters(source_ids=(*selector.source_ids, *selector.revisions), tags=selector.tags)
        chosen = [record for record in self._documents() if satisfies(record.state, filters)]
        planned = selector.revisions
        return [one for one in chosen if planned.get(one.state.source_id, one.state.revision) == one.state.revision]

    def _move_to_trash(self, chosen: Sequence[DocumentRecord], *, now: datetime) -> None:
        database = self._database
        for record in chosen:
            del database.documents[record.state.document_id]
            del database.sources[record.state.source_id]
            database.tombstones[record.state.document_id] = self._clock()
        self._drop_rows({record.state.document_id for record in chosen})
        database.trash += tuple(TrashRecord(document=record, deleted_at=now) for record in chosen)

    async def read_trash(self, identifier: str | None = None, *, limit: int = 50) -> Sequence[TrashedDocument]:
        """What can be restored, the last deleted first."""
        await take_turns()
        wanted = [
            record
            for record in self._database.trash
            if record.deleted_at + timedelta(days=_TRASH_DAYS) > self._clock()
            and identifier in {None, record.document.state.source_id, record.document.state.document_id}
        ]
        wanted.sort(key=lambda record: (record.deleted_at, record.document.state.document_id), reverse=True)
        return [
            TrashedDocument(
                document=read_document(record.document, ()),
                deleted_at=record.deleted_at,
                expires_at=record.deleted_at + timedelta(days=_TRASH_DAYS),
            )
            for record in wanted[:limit]
        ]

    def _find_trashed(self, document_id: str) -> TrashRecord | None:
        found = [one for one in self._database.trash if one.document.state.document_id == document_id]
        return found[-1] if found else None

    async def purge(self, identifier: str, *, dry_run: bool = False) -> Purge:
        """Remove every trace."""
        await take_turns()
        with self._database.transaction():
            names = {"source_id", "document_id"}
            owners = [
                record
                for record in (*self._documents(), *(one.document for one in self._database.trash))
                if identifier in {getattr(record.state, name) for name in names}
            ]
            if not owners:
                raise NotFoundError("There is no trace of such a document. `memory list` shows what is stored.")
            ids = {record.state.document_id for record in owners}
            bodies = {version.body_id for record in owners for version in record.versions}
            removed = {
                "documents": len(ids & set(self._database.documents)),
                "contents": len(bodies & set(self._database.bodies)),
                "chunks": sum(row.document_id in ids for row in self._database.rows.values()),
                "trash": sum(one.document.state.document_id in ids for one in self._database.trash),
            }
            before = self._database.meta
            if not dry_run:
                self._remove_traces(ids, bodies)
        return Purge(
            source_ids=tuple(sorted({record.state.source_id for record in owners})),
            removed={name: count for name, count in sorted(removed.items()) if count},
            lineage=before.lineage if before and not dry_run else None,
            dry_run=dry_run,
        )

    def _remove_traces(self, document_ids: set[str], body_ids: set[str]) -> None:
        database = self._database
        self._drop_rows(document_ids)
        for document_id in document_ids & set(database.documents):
            del database.sources[database.documents.pop(document_id).state.source_id]
        for body_id in body_ids:
            database.bodies.pop(body_id, None)
        database.trash = tuple(one for one in database.trash if one.document.state.document_id not in document_ids)
        if database.meta:
            database.meta = replace(database.meta, lineage=f"{database.meta.lineage}+")

    def _drop_rows(self, document_ids: set[str]) -> int:
        rows = self._database.rows
        dropped = [row.chunk_id for row in rows.values() if row.document_id in document_ids]
        for chunk_id in dropped:
            del rows[chunk_id]
        return len(dropped)
