"""A cache of paid answers whose server is away for so many calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from memory_core.embedding_ports import CachedVector
from memory_core.errors import StorageUnavailableError
from memory_core.fakes.embedding_cache import FakeEmbeddingCache


class BrokenCache(FakeEmbeddingCache):
    """Fails the next `faults` reads and writes, then does as it is told."""

    faults = 0

    async def read_vectors(self, keys: Sequence[str]) -> Mapping[str, CachedVector]:
        """What is kept, or the fault."""
        self._fail()
        return await super().read_vectors(keys)

    async def write_vectors(self, entries: Mapping[str, CachedVector], *, now: datetime) -> None:
        """Keep it, or the fault."""
        self._fail()
        await super().write_vectors(entries, now=now)

    async def read_texts(self, keys: Sequence[str]) -> Mapping[str, str]:
        """What is kept, or the fault."""
        self._fail()
        return await super().read_texts(keys)

    async def write_texts(self, entries: Mapping[str, str], *, now: datetime) -> None:
        """Keep it, or the fault."""
        self._fail()
        await super().write_texts(entries, now=now)

    def _fail(self) -> None:
        if self.faults:
            self.faults -= 1
            raise StorageUnavailableError("The scripted server is away.")
