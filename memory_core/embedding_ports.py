"""The sockets behind a paid embedder: one request to a provider, vectors kept between attempts, one chat completion.

Below the port `Embedder`: the planner packs documents into `ProviderRequest`s, a transport sends one of them once, and
the cache keeps what was paid for until it is persisted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from memory_core.models import Vector

EmbeddingKind: TypeAlias = Literal["document", "query"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingUsage:
    """What an embedding call consumed."""

    tokens: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingResult:
    """Vectors that mirror the groups given: `groups[d]` is a float32 array of shape (texts of d, dimensions).

    `windows[d][t]` says in how many windows text t of group d was embedded and averaged; 1 for almost every text.
    `spans[d]` is how many texts each window of a long document has, where a contextual model saw it in several; and
    `cached[d]` how many texts of the group had been paid for before.
    """

    groups: Sequence[Vector]
    windows: Sequence[Sequence[int]]
    usage: EmbeddingUsage
    spans: Sequence[tuple[int, ...]] = ()
    cached: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLimits:
    """What one request may hold, by the provider's own measure of tokens; None: no such limit.

    `group_tokens` is a contextual model's window over one document, `text_tokens` the longest single text.
    """

    request_tokens: int
    request_texts: int
    request_groups: int | None = None
    group_tokens: int | None = None
    text_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """Whole documents, or consecutive windows of long ones, each an ordered run of texts."""

    groups: tuple[tuple[str, ...], ...]
    kind: EmbeddingKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """Checked vectors that mirror the request: per group a float32 array of shape (texts, dimensions), all finite.

    `tokens` is what the provider says it used, None where it says nothing.
    """

    groups: tuple[Vector, ...]
    tokens: int | None


class EmbeddingTransport(Protocol):
    """Sends one request once: no retry, no pause, no cutting. A contextual one sees each group as one document."""

    @property
    def provider(self) -> str:
        """Name for fingerprints: openai or voyage."""
        ...

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        ...

    @property
    def limits(self) -> ProviderLimits:
        """What a request may hold."""
        ...

    @property
    def is_contextual(self) -> bool:
        """True where the vector of a text depends on the texts around it in its group."""
        ...

    async def send(self, request: ProviderRequest, *, timeout_seconds: float) -> ProviderAnswer:
        """Embed the texts of one request.

        Raises:
            TooManyTokensError: the request is too big as it is; `limit` and `sent` where the provider says them.
            ThrottledError: 429; `retry_after_seconds` where the provider says it.
            EmbeddingUnavailableError: 5xx, time-out, broken connection, an answer that is no JSON: try again.
            EmbeddingError: 4xx, or an answer with missing, wrong or non-finite vectors: it would fail again.
        """
        ...

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedVector:
    """A vector that was paid for, and in how many windows its text was embedded."""

    vector: Vector
    windows: int = 1


class EmbeddingCache(Protocol):
    """Vectors and contexts that were paid for and are not persisted yet, by opaque keys (hex SHA-256)."""

    async def read_vectors(self, keys: Sequence[str]) -> Mapping[str, CachedVector]:
        """Those that are kept; unknown keys are left out. One query for any number of keys."""
        ...

    async def write_vectors(self, entries: Mapping[str, CachedVector], *, now: datetime) -> None:
        """Keep vectors; a key that is kept already stays as it is."""
        ...

    async def read_texts(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Contexts that a model wrote; unknown keys are left out."""
        ...

    async def write_texts(self, entries: Mapping[str, str], *, now: datetime) -> None:
        """Keep contexts; a key that is kept already stays as it is."""
        ...

    async def evict(self, *, now: datetime) -> int:
        """Forget what is older than the cache's age or beyond its size, the oldest first; return how many."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What a chat model wrote, and the tokens of the call (`cached_tokens` of the input were read from its cache)."""

    text: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class ChatModel(Protocol):
    """One chat completion, once: no retry, no pause."""

    @property
    def model(self) -> str:
        """The model's name; part of the context policy."""
        ...

    async def complete(self, shared: str, question: str, *, max_tokens: int, timeout_seconds: float) -> ChatAnswer:
        """Answer `question` behind `shared`, the prefix that is equal for all chunks of a document.

        Raises:
            TooManyTokensError: the prompt is longer than the model's window.
            ThrottledError, EmbeddingUnavailableError, EmbeddingError: as an EmbeddingTransport does.
        """
        ...

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SituateRequest:
    """A document as a reader sees it, and the texts of its chunks that want a context, in their order."""

    content: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situated:
    """One line a chunk, which says where it stands in its document; empty for a blank chunk, for no other.

    `sentences` is None where the model failed on one of them: then the whole document goes without, and `reason` says
    why. What was paid for is counted either way.
    """

    sentences: tuple[str, ...] | None
    reason: str | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0


class ContextWriter(Protocol):
    """Has a chat model write the contexts of chunks."""

    @property
    def model(self) -> str:
        """The chat model's name; part of the context policy."""
        ...

    async def write(self, requests: Sequence[SituateRequest]) -> Sequence[Situated]:
        """One result a document, in order. Documents do not share a fate, save for these two.

        Raises:
            EmbeddingUnavailableError: the provider's pauses, or the budgets, outlast the deadline. What was written is
                in the cache: the caller tries the batch again.
            EmbeddingError: the provider refuses whatever it is asked: its key, its model or its quota is wrong.
        """
        ...

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        ...
