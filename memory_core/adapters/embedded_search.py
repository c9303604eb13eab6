"""Search beside any MongoDB. In: a vector or a query. Out: ranked chunks of everything stored. MongoDB is only read.

Vectors are scored exactly; words by BM25. Both are kept in files under `directory/<lineage>` and brought up to date at
each call (read your writes). Of several processes the one that gets the folder's lock takes the changes in; the others
wait a moment for it and then answer from the last commit (`documents_behind`, and a log line).
"""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from memory_core.adapters.embedded_folder import IndexFolder
from memory_core.adapters.embedded_record import Shape
from memory_core.adapters.embedded_refresh import Refresher, in_thread
from memory_core.adapters.embedded_rows import rank_nearest
from memory_core.adapters.embedded_writer import View
from memory_core.adapters.text_terms import TextTerms
from memory_core.answers import LegAnswer, LegHit, SearchFilters
from memory_core.errors import SearchError
from memory_core.models import Vector
from memory_core.store_ports import MemoryStore

_WAIT_SECONDS = 0.002
_SPARE_TEXT_HITS = 64  # room for rows that were replaced, and for equal scores at the end
_MORE_TEXT_HITS = 4  # times as many, where rows that may not answer took the places
_DOCUMENTS_IN_A_TERM_SET = 2_000  # more are cheaper to sort out from the hits
_UNSAFE_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class EmbeddedSearchIndex:
    """The `embedded` engine. One object serves all threads and event loops of a process; see ports.SearchIndex."""

    def __init__(self, directory: Path, store: MemoryStore, *, dimensions: int, language: str) -> None:
        """Touches no file. Raises ConfigError for a language without a stemmer."""
        self._directory = directory
        self._store = store
        self._dimensions = dimensions
        self._terms = TextTerms(language)
        self._refresher: Refresher | None = None
        self._lineage: str | None = None
        self._mutex = threading.Lock()  # one refresh at a time in this process
        self._started = 0
        self._finished = 0
        self._latest: View | None = None

    @property
    def engine(self) -> str:
        """See SearchIndex."""
        return "embedded"

    @property
    def documents_behind(self) -> int:
        """How many documents the last answer did not see yet, because another process was taking them in."""
        return self._refresher.documents_behind if self._refresher else 0

    async def vector_leg(
        self, vector: Vector, *, fingerprint: str, filters: SearchFilters, limit: int, also: Sequence[LegHit] = ()
    ) -> LegAnswer:
        """See SearchIndex."""
        if vector.shape != (self._dimensions,):
            raise SearchError(
                f"The query's vector has {vector.shape[-1] if vector.ndim else 0} dimensions and the index "
                f"{self._dimensions}: set EMBEDDING_DIMENSIONS as the stored vectors are."
            )
        view = await self._refresh()
        if view is None:
            return LegAnswer()
        allowed = await self._find_allowed(filters)
        return await in_thread(_search_vectors, view, vector, fingerprint, allowed, limit, also)

    async def text_leg(self, query: str, *, filters: SearchFilters, limit: int) -> Sequence[LegHit]:
        """See SearchIndex."""
        view = await self._refresh()
        if view is None:
            return ()
        allowed = await self._find_allowed(filters)
        return await in_thread(_search_text, view, self._terms.query_terms(query), allowed, limit)

    async def discard(self, lineage: str) -> int:
        """See SearchIndex."""
        await self.close()
        return await in_thread(self._remove_folders, lineage)

    def _remove_folders(self, lineage: str) -> int:
        folders = list(self._directory.glob(f"{_name_lineage(lineage)}-*"))
        for folder in folders:
            shutil.rmtree(folder)
        return len(folders)

    async def close(self) -> None:
        """See SearchIndex."""
        # Waiting in the lock itself would stop the loop whose task may hold it.
        while not self._mutex.acquire(blocking=False):  # noqa: ASYNC110 - an asyncio.Event belongs to one loop
            await asyncio.sleep(_WAIT_SECONDS)
        self._refresher = None
        self._latest = None
        self._mutex.release()

    async def _find_allowed(self, filters: SearchFilters) -> frozenset[str] | None:
        return None if filters.is_empty else await self._store.find_document_ids(filters)

    async def _refresh(self) -> View | None:
        """The newest commit after taking in everything that was stored before this call; None: nothing is stored.

        One refresh that began after this call serves it too: the legs of a search, and searches side by side, share it.
        """
        ticket = self._started
        await asyncio.sleep(0)  # whoever calls in the same turn gets its ticket before a refresh begins
        while self._finished <= ticket:
            if not self._mutex.acquire(blocking=False):
                await asyncio.sleep(_WAIT_SECONDS)
                continue
            try:
                if self._finished <= ticket:
                    self._started += 1
                    self._latest = await self._bring_up_to_date()
                    self._finished = self._started
            finally:
                self._mutex.release()
        return self._latest

    async def _bring_up_to_date(self) -> View | None:
        space = await self._store.read_active_space()
        if space is None:
            return None
        if self._refresher is None or self._lineage != space.lineage:
            shape = Shape(lineage=space.lineage, dimensions=self._dimensions, language=self._terms.language)
            # By width too: processes of two embedding spaces must not rebuild each other's files.
            name = f"{_name_lineage(space.lineage)}-{self._dimensions}"
            self._refresher = Refresher(IndexFolder(self._directory / name, shape, self._terms), self._store)
            self._lineage = space.lineage
        return await self._refresher.bring_up_to_date()


def _name_lineage(lineage: str) -> str:
    return _UNSAFE_IN_A_NAME.sub("_", lineage)


def _search_vectors(
    view: View,
    vector: Vector,
    fingerprint: str,
    allowed: frozenset[str] | None,
    limit: int,
    also: Sequence[LegHit],
) -> LegAnswer:
    mask = None if allowed is None else view.rows.mask_documents(allowed)
    return rank_nearest(view.rows, vector, fingerprint=fingerprint, allowed=mask, limit=limit, also=also)


def _search_text(view: View, terms: Sequence[str], allowed: frozenset[str] | None, limit: int) -> list[LegHit]:
    """Ask for more until `limit` living, allowed rows are found or there are no more."""
    within = sorted(allowed) if allowed is not None and len(allowed) <= _DOCUMENTS_IN_A_TERM_SET else None
    mask = None if allowed is None else view.rows.mask_documents(allowed)
    asked = limit + _SPARE_TEXT_HITS
    while True:
        found = view.text.search(view.searcher, terms, document_ids=within, limit=asked)
        rows = view.rows.find_rows([serial for _, serial in found])
        hits = [
            view.rows.hit(int(row), score)
            for (score, _), row in zip(found, rows, strict=True)
            if row >= 0 and (mask is None or mask[view.rows.documents[row]])
        ]
        if len(hits) >= limit or len(found) < asked:
            return sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id))[:limit]
        asked *= _MORE_TEXT_HITS
