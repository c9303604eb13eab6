"""An embedder that fails to a script. In: any Embedder and one entry a call. Out: its answer, spoiled or withheld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

import numpy as np

from memory_core.embedding_ports import EmbeddingKind, EmbeddingResult
from memory_core.errors import EmbeddingError, EmbeddingUnavailableError
from memory_core.models import Vector
from memory_core.ports import Embedder


class EmbeddingFault(StrEnum):
    """What goes wrong in one call. The spoiled answers are those that an adapter's own checks should have stopped."""

    UNAVAILABLE = "unavailable"  # raises; a later call can succeed
    REFUSED = "refused"  # raises; the same call would fail again
    GROUP_MISSING = "group_missing"  # the last document has no vectors at all
    VECTOR_MISSING = "vector_missing"  # the last text has none
    WRONG_WIDTH = "wrong_width"  # one number too few in every vector of the last document
    NOT_FINITE = "not_finite"  # one NaN in the last vector


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedCall:
    """One call as it came in."""

    groups: tuple[tuple[str, ...], ...]
    kind: EmbeddingKind

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the call, in order."""
        return tuple(text for group in self.groups for text in group)


class ScriptedEmbedder:
    """Wraps an embedder; `script` has one entry a call, None for an honest answer, and ends in honest answers.

    With `only_with` the script counts only calls that hold that word in one of their texts. `calls` remembers them all.
    """

    def __init__(
        self, wrapped: Embedder, *, script: Sequence[EmbeddingFault | None] = (), only_with: str | None = None
    ) -> None:
        self._wrapped = wrapped
        self._script = list(script)
        self._only_with = only_with
        self.calls: list[EmbedCall] = []
        self.is_closed = False

    @property
    def provider(self) -> str:
        """The wrapped embedder's."""
        return self._wrapped.provider

    @property
    def model(self) -> str:
        """The wrapped embedder's."""
        return self._wrapped.model

    @property
    def dimensions(self) -> int:
        """The wrapped embedder's."""
        return self._wrapped.dimensions

    @property
    def max_input_tokens(self) -> int | None:
        """The wrapped embedder's."""
        return self._wrapped.max_input_tokens

    @property
    def is_contextual(self) -> bool:
        """The wrapped embedder's."""
        return self._wrapped.is_contextual

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Remember the call, then answer as the script says."""
        call = EmbedCall(groups=tuple(tuple(group) for group in groups), kind=kind)
        self.calls.append(call)
        match self._next_fault(call):
            case EmbeddingFault.UNAVAILABLE:
                raise EmbeddingUnavailableError("The scripted embedder is away. Try again.")
            case EmbeddingFault.REFUSED:
                raise EmbeddingError("The scripted embedder refused the texts. Change them.")
            case None:
                return await self._wrapped.embed(groups, kind=kind)
            case fault:
                return _spoil(await self._wrapped.embed(groups, kind=kind), fault)

    def _next_fault(self, call: EmbedCall) -> EmbeddingFault | None:
        is_concerned = self._only_with is None or any(self._only_with in text for text in call.texts)
        return self._script.pop(0) if self._script and is_concerned else None

    async def close(self) -> None:
        """Close the wrapped embedder too."""
        self.is_closed = True
        await self._wrapped.close()


def _spoil(
    result: EmbeddingResult,
    fault: EmbeddingFault,
) -> EmbeddingResult:
    *honest, last = result.groups
    if fault is EmbeddingFault.GROUP_MISSING:
        return replace(result, groups=honest)
    return replace(result, groups=[*honest, _spoil_last(np.array(last, dtype=np.float32), fault)])


def _spoil_last(vectors: Vector, fault: EmbeddingFault) -> Vector:
    match fault:
        case EmbeddingFault.VECTOR_MISSING:
            return vectors[:-1]
        case EmbeddingFault.WRONG_WIDTH:
            return vectors[:, :-1]
        case EmbeddingFault.NOT_FINITE:
            vectors[-1, 0] = np.nan
            return vectors
        case EmbeddingFault.UNAVAILABLE | EmbeddingFault.REFUSED | EmbeddingFault.GROUP_MISSING:
            raise AssertionError(fault)
        case _:
            assert_never(fault)
