"""Another program's memory, in memory. In: rows as that program keeps them. Out: what ForeignMemory promises.

A text `_id` of 24 hex digits is a proper one; every other value is a strange one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from memory_core.migrate_ports import ForeignFacts, ForeignRow, OrphanedChunks, StrangeDocument

ForeignJson: TypeAlias = Mapping[str, object]

_PROPER_ID: Final = re.compile(r"[0-9a-f]{24}")


class FakeForeignMemory:
    """A ForeignMemory over two lists of rows. `documents` may change while it is read."""

    def __init__(
        self, documents: Sequence[ForeignJson] = (), chunks: Sequence[ForeignJson] = (), *, is_ours: bool = False
    ) -> None:
        self.documents = list(documents)
        self.chunks = list(chunks)
        self.is_ours = is_ours
        self.texts_read = 0

    async def inspect(self) -> ForeignFacts:
        """See ForeignMemory."""
        return ForeignFacts(
            documents=len(self.documents), is_ours=self.is_ours, is_empty=not (self.documents or self.chunks)
        )

    async def read_page(self, *, after: str | None, limit: int) -> Sequence[ForeignRow]:
        """See ForeignMemory."""
        found = {named: row for row in self.documents if (named := _proper_id(row.get("_id")))}
        return [
            ForeignRow(
                document_id=one,
                fields={name: value for name, value in found[one].items() if name not in {"_id", "content"}},
            )
            for one in sorted(found)
            if after is None or one > after
        ][:limit]

    async def read_content(self, document_id: str) -> object:
        """See ForeignMemory."""
        self.texts_read += 1
        return next((row.get("content") for row in self.documents if row["_id"] == document_id), None)

    async def find_strange_documents(self) -> Sequence[StrangeDocument]:
        """See ForeignMemory."""
        return [
            StrangeDocument(shown_id=repr(row["_id"]), source_id=_text_or_none(row.get("sourceId")))
            for row in self.documents
            if _proper_id(row["_id"]) is None
        ]

    async def find_shared_sources(self) -> Mapping[str, Sequence[str]]:
        """See ForeignMemory."""
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for row in self.documents:
            if isinstance(source_id := row.get("sourceId"), str):
                ids[source_id].append(str(row["_id"]))
        return {source_id: sorted(found) for source_id, found in ids.items() if len(found) > 1}

    async def find_orphaned_chunks(self) -> Sequence[OrphanedChunks]:
        """See ForeignMemory."""
        there = {_proper_id(row["_id"]) for row in self.documents} - {None}
        owners = [chunk.get("documentId") for chunk in self.chunks]
        proper = {owner: _proper_id(owner) for owner in owners}
        sources = {chunk.get("documentId"): _text_or_none(chunk.get("sourceId")) for chunk in reversed(self.chunks)}
        return [
            OrphanedChunks(
                shown_id=proper[owner] or (None if owner is None else repr(owner)),
                source_id=sources[owner] if proper[owner] else None,
                chunks=chunks,
            )
            for owner, chunks in Counter(owners).items()
            if proper[owner] not in there
        ]

    async def close(self) -> None:
        """See ForeignMemory."""


def _proper_id(value: object) -> str | None:
    return value if isinstance(value, str) and _PROPER_ID.fullmatch(value) else None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
