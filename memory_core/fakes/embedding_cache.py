"""An EmbeddingCache in memory. In: vectors and written contexts by keys. Out: the same, until evicted; no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from memory_core.embedding_ports import CachedVector
from memory_core.fakes.database import take_turns
from memory_core.models import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """What is kept under one key, and since when."""

    kept: CachedVector | str
    size: int
    at: datetime


class FakeEmbeddingCache:
    """One process's view of a server's rows; two over the same `rows` are two processes."""

    def __init__(self, rows: dict[str, CacheRow], *, days: int, max_bytes: int) -> None:
        self._rows = rows
        self._age = timedelta(days=days)
        self._max_bytes = max_bytes

    async def read_vectors(self, keys: Sequence[str]) -> Mapping[str, CachedVector]:
        """The vectors among these keys."""
        found = await self._read(keys)
        return {key: row.kept for key, row in found.items() if isinstance(row.kept, CachedVector)}

    async def write_vectors(self, entries: Mapping[str, CachedVector], *, now: datetime) -> None:
        """Keep what is not there yet, as copies that nobody can write to."""
        copies = {key: replace(entry, vector=_copy(entry.vector)) for key, entry in entries.items()}
        await self._write({key: CacheRow(kept=copy, size=copy.vector.nbytes, at=now) for key, copy in copies.items()})

    async def read_texts(self, keys: Sequence[str]) -> Mapping[str, str]:
        """The texts among these keys."""
        found = await self._read(keys)
        return {key: row.kept for key, row in found.items() if isinstance(row.kept, str)}

    async def write_texts(self, entries: Mapping[str, str], *, now: datetime) -> None:
        """Keep what is not there yet."""
        await self._write({key: CacheRow(kept=text, size=len(text.encode()), at=now) for key, text in entries.items()})

    async def evict(self, *, now: datetime) -> int:
        """Forget what is too old, then from the newest row that does not fit any more on."""
        await take_turns()
        oldest, total, evicted = now - self._age, 0, 0
        for key, row in sorted(self._rows.items(), key=lambda item: (item[1].at, item[0]), reverse=True):
            total += row.size
            if row.at < oldest or total > self._max_bytes:
                del self._rows[key]
                evicted += 1
        return evicted

    async def _read(self, keys: Sequence[str]) -> dict[str, CacheRow]:
        await take_turns()
        return {key: self._rows[key] for key in keys if key in self._rows}

    async def _write(self, rows: Mapping[str, CacheRow]) -> None:
        await take_turns()
        for key, row in rows.items():
            self._rows.setdefault(key, row)


def _copy(vector: Vector) -> Vector:
    copy = np.array(vector, dtype="<f4")
    copy.setflags(write=False)
    return copy
