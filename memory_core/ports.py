"""The sockets: what the core asks of the world. One contract suite (tests/contract) holds each adapter and its fake.

All methods that leave the process are async; an adapter with a synchronous client runs it in a thread. Every failure is
one of `memory_core.errors`. Nothing here does anything.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from memory_core.answers import LegAnswer, LegHit, SearchFilters
from memory_core.embedding_ports import ContextWriter, EmbeddingKind, EmbeddingResult
from memory_core.files import DirectoryScan, FileReading
from memory_core.models import (
    ChunkedDocument,
    Conflict,
    Document,
    EmbeddedDocument,
    Failure,
    Fingerprint,
    Holder,
    StoreOutcome,
    Vector,
)
from memory_core.settings import Settings
from memory_core.store_ports import MemoryStore
from memory_core.work_ports import Feed, FeedStore, SubmissionStore


class TokenCounter(Protocol):
    """A tokenizer that only counts. Pure: equal text, equal numbers, on every platform."""

    @property
    def name(self) -> str:
        """The encoding's name; part of every recipe."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text."""
        ...

    def ends(self, text: str) -> NDArray[np.int64]:
        """The code-point offset behind each token, ascending.

        A token that ends inside a code point ends behind it; where the next one goes on over that, behind the next one.
        So a token ends where one is said to end, and none goes on over that place.
        """
        ...


@runtime_checkable
class EdgeCounter(TokenCounter, Protocol):
    """A TokenCounter that knows places where a token begins whatever stands around: there, counts add up.

    So a slice is counted by what is ahead of its first edge, what is behind its last one, and the ends between them. A
    slice that ends in a non-blank where a token of the whole ends has nothing behind its last edge to count.
    """

    def end_parts(self, text: str) -> Iterator[NDArray[np.int64]]:
        """The `ends` of the text in parts of bounded size, ascending; joined they are `ends(text)`."""
        ...

    def first_edge(self, text: str, start: int, end: int) -> int:
        """The first edge from `start` on, near to it; `end` where none is found."""
        ...

    def last_edge(self, text: str, start: int, end: int) -> int:
        """The last edge up to `end`, near to it; `start` where none is found."""
        ...

    def begins_alike(self, text: str, position: int) -> bool:
        """Whether a text that begins here has the tokens of the whole from here on, if one of those begins here."""
        ...


class Embedder(Protocol):
    """Texts in, vectors out. `groups` is a sequence of documents, each an ordered sequence of texts."""

    @property
    def provider(self) -> str:
        """Name for fingerprints: local, hash, openai, voyage."""
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
    def max_input_tokens(self) -> int | None:
        """The longest text, in our tokenizer's tokens, that may be sent; None where longer texts are windowed."""
        ...

    @property
    def is_contextual(self) -> bool:
        """True where a text's vector depends on its whole group: a document is embedded as a whole or not at all."""
        ...

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Embed every text. The result mirrors `groups`.

        Raises:
            ValidationError: an empty group or a blank text, naming its position.
            EmbeddingError: the model refused or answered wrongly; EmbeddingUnavailableError when a retry can help.
        """
        ...

    async def close(self) -> None:
        """Let go of the model or the connections; may be called twice."""
        ...


# --- search -----------------------------------------------------------------------------------------------------------


class SearchIndex(Protocol):
    """Two legs over everything stored. Each call first takes in what was committed before it (read your writes)."""

    @property
    def engine(self) -> str:
        """Name for answers: embedded or atlas."""
        ...

    async def vector_leg(
        self, vector: Vector, *, fingerprint: str, filters: SearchFilters, limit: int, also: Sequence[LegHit] = ()
    ) -> LegAnswer:
        """The nearest rows of that embedding space by cosine, best first, ties by chunk id.

        `also` are hits of the other leg: their cosines are wanted too, however far they are.
        """
        ...

    async def text_leg(self, query: str, *, filters: SearchFilters, limit: int) -> Sequence[LegHit]:
        """The best rows by BM25 over text and context, best first, ties by chunk id."""
        ...

    async def discard(self, lineage: str) -> int:
        """Remove what this machine has taken in of that lineage of a database. Returns how many indexes went."""
        ...

    async def close(self) -> None:
        """Let go of files and locks; may be called twice."""
        ...


class FileReader(Protocol):
    """The files of feeds. Reads only."""

    async def scan(self, feed: Feed) -> DirectoryScan:
        """Every file below the feed's root, and what could not be listed.

        Raises:
            SyncError: the root is missing or cannot be read.
        """
        ...

    async def read(self, path: Path, *, max_bytes: int) -> FileReading:
        """One file's text, or why there is none.

        Raises:
            SyncError: the system does not let us read it.
        """
        ...


# --- directories and submissions --------------------------------------------------------------------------------------


# --- the path ---------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """The time, as an argument."""

    def __call__(self) -> datetime:
        """Now, with the time zone UTC, in whole milliseconds (as MongoDB keeps it)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a long piece of work is: `done` of `total` documents, and a sentence where there is something to say."""

    done: int = 0
    total: int = 0
    message: str | None = None


def ignore_progress(progress: Progress) -> None:
    """The listener of a core that nobody watches."""
    del progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The wired parts that a process shares. Built only by `bootstrap` (or by a test).

    `recipe` is how this process cuts texts that name no sizes of their own. `draw` gives random numbers of [0, 1).
    """

    settings: Settings
    store: MemoryStore
    feeds: FeedStore
    submissions: SubmissionStore
    index: SearchIndex
    embedder: Embedder
    counter: TokenCounter
    files: FileReader
    fingerprint: Fingerprint
    recipe: str
    holder: Holder
    clock: Clock
    new_id: Callable[[], str]
    is_alive: Callable[[Holder], bool]
    close: Callable[[], Awaitable[None]]
    context_writer: ContextWriter | None = None
    on_progress: Callable[[Progress], None] = ignore_progress
    draw: Callable[[], float] = random.random


ValidateStage: TypeAlias = Callable[..., Awaitable[Sequence[Document | Failure]]]
ChunkStage: TypeAlias = Callable[..., Awaitable[Sequence[ChunkedDocument | Failure]]]
EmbedStage: TypeAlias = Callable[..., Awaitable[Sequence[EmbeddedDocument | Failure]]]
PersistStage: TypeAlias = Callable[..., Awaitable[Sequence[StoreOutcome | Conflict | Failure]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The four stages as callables `(values, *, core)`. The path keeps their order; a flow brings them as tasks.

    Each returns one result per value, in order; `persist` answers a `Conflict` where the base revision was gone.
    """

    validate: ValidateStage
    chunk: ChunkStage
    embed: EmbedStage
    persist: PersistStage
