"""A paid embedder as one process has it: a scripted provider, virtual time, and a cache that outlives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory_core.adapters.provider_embedder import ProviderEmbedder
from memory_core.adapters.provider_limiter import ProviderLimiter, RequestPolicy
from memory_core.embedding_ports import EmbeddingResult, EmbeddingTransport, ProviderLimits, ProviderRequest
from memory_core.errors import (
    StorageError,
)
from memory_core.fakes.embedding_cache import CacheRow
from memory_core.fakes.transport import ScriptedTransport
from tests.unit.adapters.broken_cache import BrokenCache
from tests.unit.adapters.virtual_time import VirtualTime

Groups = Sequence[Sequence[str]]


class CharCounter:
    """One token a code point, as the scripted provider counts."""

    name = "chars"

    def count(self, text: str) -> int:
        """Code points."""
        return len(text)

    def ends(self, text: str) -> NDArray[np.int64]:
        """The offset behind each."""
        return np.arange(1, len(text) + 1, dtype=np.int64)


class Process:
    """An embedder with its own limiter, over a transport and the rows of a cache that outlive it."""

    def __init__(
        self,
        transport: EmbeddingTransport,
        rows: dict[str, CacheRow] | None = None,
        *,
        concurrency: int = 4,
        attempts: int = 4,
        deadline: float = 300,
        chance: Any = lambda: 0.5,
    ) -> None:
        self.time = VirtualTime()
        self.rows: dict[str, CacheRow] = {} if rows is None else rows
        self.cache = BrokenCache(self.rows, days=7, max_bytes=10_000_000)
        self.faults: list[StorageError] = []
        self.embedder = ProviderEmbedder(
            transport,
            cache=self.cache,
            counter=CharCounter(),
            limiter=ProviderLimiter(concurrency=concurrency, timing=self.time.timing(chance)),
            policy=RequestPolicy(attempts=attempts, timeout_seconds=30, deadline_seconds=deadline),
            clock=self.time.clock,
            on_cache_fault=self.faults.append,
        )

    async def embed(self, groups: Groups, kind: Any = "document") -> EmbeddingResult:
        """One call, while time passes."""
        async with self.time.passing():
            return await self.embedder.embed(groups, kind=kind)


def limits(tokens: int, texts: int = 99, **others: int) -> ProviderLimits:
    """Limits of a request, in characters, above the estimate of as many of ours."""
    return ProviderLimits(request_tokens=int(tokens * 1.1) + 1, request_texts=texts, **others)


def documents(count: int, texts: int = 2, length: int = 10) -> list[list[str]]:
    """Documents whose texts all differ."""
    return [[f"d{place} t{text}".ljust(length, ".") for text in range(texts)] for place in range(count)]


def groups_of(requests: Sequence[ProviderRequest]) -> list[list[list[str]]]:
    """Texts by request and group."""
    return [[list(group) for group in request.groups] for request in requests]


def assert_mirrors(result: EmbeddingResult, groups: Groups, transport: ScriptedTransport) -> None:
    """Every text has the vector that the provider gave for it."""
    assert len(result.groups) == len(groups)
    for rows, group in zip(result.groups, groups, strict=True):
        assert np.array_equal(rows, transport.embed_group(group))
