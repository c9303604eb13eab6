"""A provider in memory, that fails to a script. In: requests. Out: vectors that tell what they were made of, or errors.

It keeps its limits: what is too big by its own count of tokens is refused, as a provider would.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from memory_core.embedding_ports import ProviderAnswer, ProviderLimits, ProviderRequest
from memory_core.errors import EmbeddingError, TooManyTokensError
from memory_core.models import Vector

GENEROUS_LIMITS = ProviderLimits(request_tokens=100_000, request_texts=1_000)


class ScriptedTransport:
    """An EmbeddingTransport; `script` has one entry a request, an error or None, and ends in honest answers.

    `sent` remembers every request, `paid` counts the texts of those that were answered. `before` is awaited inside each
    request. `tells_limits` decides whether a refusal names its numbers, `tells_tokens` whether an answer does.
    """

    def __init__(
        self,
        *,
        limits: ProviderLimits = GENEROUS_LIMITS,
        is_contextual: bool = False,
        dimensions: int = 8,
        script: Sequence[EmbeddingError | None] = (),
        count: Callable[[str], int] = len,
        before: Callable[[ProviderRequest], Awaitable[None]] | None = None,
    ) -> None:
        self._limits = limits
        self._is_contextual = is_contextual
        self._dimensions = dimensions
        self._script = list(script)
        self._count = count
        self._before = before
        # The limits that it keeps; a test makes them smaller than those that it says.
        self.kept_limits = limits
        self.tells_limits = True
        self.tells_tokens = True
        self.sent: list[ProviderRequest] = []
        self.timeouts: list[float] = []
        self.paid: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight = 0
        self.is_closed = False

    @property
    def provider(self) -> str:
        """Name for fingerprints."""
        return "scripted"

    @property
    def model(self) -> str:
        """The model's name."""
        return "digests-1"

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        return self._dimensions

    @property
    def limits(self) -> ProviderLimits:
        """The limits that it says."""
        return self._limits

    @property
    def is_contextual(self) -> bool:
        """Whether a vector depends on its group."""
        return self._is_contextual

    async def send(self, request: ProviderRequest, *, timeout_seconds: float) -> ProviderAnswer:
        """Remember the request, then answer as the script and the limits say."""
        self.sent.append(request)
        self.timeouts.append(timeout_seconds)
        fault = self._script.pop(0) if self._script else None
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self._before(request) if self._before else asyncio.sleep(0))
        finally:
            self.in_flight -= 1
        if fault is not None:
            raise fault
        tokens = self._check_limits(request)
        self.paid.update(text for group in request.groups for text in group)
        return ProviderAnswer(
            groups=tuple(self.embed_group(group) for group in request.groups),
            tokens=tokens if self.tells_tokens else None,
        )

    async def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True

    def embed_group(self, group: Sequence[str]) -> Vector:
        """Unit vectors of the texts; those of a contextual transport depend on the whole group."""
        context = "\0".join(group) if self._is_contextual else ""
        return np.stack([_digest_vector(f"{context}\1{text}", self._dimensions) for text in group])

    def _check_limits(self, request: ProviderRequest) -> int:
        limits = self.kept_limits
        sizes = [[self._count(text) for text in group] for group in request.groups]
        total = sum(map(sum, sizes))
        units = [sum(group) for group in sizes] if self._is_contextual else [size for group in sizes for size in group]
        self._refuse(max(units), limits.group_tokens if self._is_contextual else limits.text_tokens)
        self._refuse(total, limits.request_tokens)
        if sum(map(len, sizes)) > limits.request_texts or len(sizes) > (limits.request_groups or len(sizes)):
            raise EmbeddingError("The scripted provider was sent more texts or groups than it says that it takes.")
        return total

    def _refuse(self, tokens: int, limit: int | None) -> None:
        if limit is None or tokens <= limit:
            return
        told = (limit, tokens) if self.tells_limits else (None, None)
        raise TooManyTokensError("The scripted provider refused so many tokens.", limit=told[0], sent=told[1])


def _digest_vector(text: str, dimensions: int) -> Vector:
    generator = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
    vector = generator.standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype(np.float32)
