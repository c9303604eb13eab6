"""Search beside any MongoDB. In: a vector or a query. Out: ranked chunks of everything stored. MongoDB is only read.

Vectors are scored exactly; words by BM25. Both are kept in files under `directory/<lineage>` and brought up to date at
each call (read your writes). Of several processes the one that gets the folder's lock takes the changes in; the others
wait a moment for it and then answer from the last commit (`documents_behind`, and a log line).
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import filelock
import numpy as np
import structlog
from numpy.typing import NDArray

from memory_core.adapters.embedded_folder import IndexFolder
from memory_core.adapters.embedded_plan import (
    Feed,
    UpdatePlan,
    feed_start,
    is_worth_a_record,
    needs_comparison,
    plan_update,
    to_ms,
)
from memory_core.adapters.embedded_record import Shape
from memory_core.adapters.embedded_rows import rank_nearest
from memory_core.adapters.embedded_writer import DocumentRows, FolderWriter, View
from memory_core.adapters.text_terms import TextTerms
from memory_core.errors import IndexUnavailableError, SearchError
from memory_core.models import ChunkRow, LegHit, SearchFilters, Vector
from memory_core.ports import MemoryStore

_log = structlog.get_logger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

WAIT_FOR_OTHERS_SECONDS: Final = 2.0
_POLL_SECONDS = 0.01
_DOCUMENTS_A_READ = 50
_ROWS_A_COMMIT = 8_192
_SPARE_TEXT_HITS = 64  # room for rows that were replaced, and for equal scores at the end
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
        self._folder: IndexFolder | None = None
        self._mutex = threading.Lock()  # one refresh at a time in this process
        self._started = 0
        self._finished = 0
        self._latest: View | None = None
        self._behind = 0

    @property
    def engine(self) -> str:
        """See SearchIndex."""
        return "embedded"

    @property
    def documents_behind(self) -> int:
        """How many documents the last answer did not see yet, because another process was taking them in."""
        return self._behind

    async def vector_leg(
        self, vector: Vector, *, fingerprint: str, filters: SearchFilters, limit: int
    ) -> Sequence[LegHit]:
        """See SearchIndex."""
        if vector.shape != (self._dimensions,):
            raise SearchError(
                f"The query's vector has {vector.shape[-1] if vector.ndim else 0} dimensions and the index "
                f"{self._dimensions}: set EMBEDDING_DIMENSIONS as the stored vectors are."
            )
        view = await self._refresh()
        if view is None:
            return ()
        allowed = await self._find_allowed(filters)
        return await _in_thread(_search_vectors, view, vector, fingerprint, allowed, limit)

    async def text_leg(self, query: str, *, filters: SearchFilters, limit: int) -> Sequence[LegHit]:
        """See SearchIndex."""
        view = await self._refresh()
        if view is None:
            return ()
        allowed = await self._find_allowed(filters)
        return await _in_thread(_search_text, view, self._terms.query_terms(query), allowed, limit)

    async def close(self) -> None:
        """See SearchIndex."""
        with self._mutex:
            self._folder = None
            self._latest = None

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
                await asyncio.sleep(_POLL_SECONDS / 5)
                continue
            try:
                if self._finished <= ticket:
                    self._started += 1
                    self._latest = await self._bring_up_to_date()
                    self._finished = self._started
            finally:
                self._mutex.release()
        return self._latest
