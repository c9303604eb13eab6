"""The sockets: what the core asks of the world. One contract suite (tests/contract) holds each adapter and its fake.

All methods that leave the process are async; an adapter with a synchronous client runs it in a thread. Every failure is
one of `memory_core.errors`. Nothing here does anything.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from memory_core.embedding_ports import ContextWriter
from memory_core.files import DirectoryScan, FileReading
from memory_core.health import NO_LIMITS, FaultKind, HealthLimits, Mended, StoreHealth
from memory_core.models import (
    ChunkedDocument,
    ChunkOptions,
    ChunkRow,
    Conflict,
    ContentType,
    Coverage,
    Deletion,
    Document,
    DocumentChange,
    DocumentState,
    EmbeddedDocument,
    EmbeddingKind,
    EmbeddingResult,
    Failure,
    Fingerprint,
    HitRow,
    Holder,
    LegAnswer,
    LegHit,
    PastRow,
    Purge,
    SearchFilters,
    SourceListing,
    StoredChunkKey,
    StoredDocument,
    StoreOutcome,
    StoreRequest,
    TrashedDocument,
    Vector,
)
from memory_core.settings import Settings


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeWrite:
    """New attributes for stored content that stays as it is, on the document and all its rows."""

    document: Document


DocumentWrite: TypeAlias = EmbeddedDocument | AttributeWrite


class WriteVerdict(StrEnum):
    """What became of one write of a group."""

    WRITTEN = "written"
    CONFLICT = "conflict"  # its base revision is gone
    ABORTED = "aborted"  # undone because of another of its group; try it alone


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """A verdict, and the version that the document has now (None where nothing was written)."""

    verdict: WriteVerdict
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSpace:
    """What `meta` says is current for a database: a process that differs reads but does not write.

    `pending` is the embedding space that a re-embed fills; its processes may write too. `previous` is the one that some
    documents still have although another was made active (`memory reembed --now`). Where either is there, the vector
    leg does not cover everything. `recipe` is how texts are cut that name no sizes of their own; None where nobody has
    said so yet.
    """

    schema_version: int
    fingerprint: str
    lineage: str
    pending: str | None = None
    previous: str | None = None
    recipe: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStep:
    """One change of the database's schema; they are made in the order of their numbers."""

    number: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """The steps that a migration made (or, with `dry_run`, would make), and the schema ahead of them and after them.

    `before` is None where nothing is stored: such a database starts with the newest schema.
    """

    before: int | None
    after: int
    steps: tuple[SchemaStep, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEmbedding:
    """What one stored document says of its chunking and embedding. No body, no vector, no look at its rows."""

    document_id: str
    source_id: str
    title: str
    uri: str | None
    content_type: ContentType
    body_id: str
    content_length: int
    recipe: str
    options: ChunkOptions
    chunk_count: int
    fingerprint: str
    context_stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSizes:
    """Sums over chunk rows: tokens of the slices by our counter, and characters (code points) of their contexts."""

    tokens: int = 0
    context_chars: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which page of the stored documents, newest first. `tag` is exact, `feed` a feed's name.

    It starts behind `offset` documents, or behind the `next_cursor` of another page (`after`); then `offset` is 0.
    """

    limit: int = 50
    offset: int = 0
    after: str | None = None
    tag: str | None = None
    feed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSelector:
    """Which documents to delete: exactly one of the four; `tags` selects documents that carry all of them.

    `revisions` maps source ids to the revisions that were planned to go: a document that was written since stays.
    """

    source_ids: tuple[str, ...] = ()
    document_id: str | None = None
    tags: tuple[str, ...] = ()
    revisions: Mapping[str, str] = field(default_factory=dict[str, str])


class MemoryStore(Protocol):
    """Documents, bodies and chunk rows. Deciding reads are primary and majority; writes are majority and journaled."""

    async def prepare(self, fingerprint: Fingerprint, *, recipe: str | None = None) -> ActiveSpace:
        """Create collections with their rules, b-tree indexes and `meta` before the first write; idempotent.

        It also ends grace periods and removes what killed processes left without an owner. `recipe` is how this process
        cuts texts (`Core.recipe`), which becomes the memory's where it has none; None for one that cuts nothing.

        Raises:
            ForeignDatabaseError: rows without our `meta`, or a `meta` that names another schema, another recipe, or
                this fingerprint neither as active nor as pending.
        """
        ...

    async def migrate(self, *, dry_run: bool = False) -> SchemaChange:
        """Bring a database of an older schema to this program's, step by step; each step is recorded in `meta`.

        A migration that was killed is finished by the next one; two at once do no harm.

        Raises:
            ForeignDatabaseError: rows without our `meta`, or a schema that is newer than this program.
        """
        ...

    async def read_active_space(self) -> ActiveSpace | None:
        """What `meta` says, or None for a database that nothing was written to."""
        ...

    async def declare_space(self, fingerprint: Fingerprint) -> ActiveSpace:
        """Make an embedding space the pending one, which may be written from then on; the active one stays as it is.

        Raises:
            ForeignDatabaseError: another space is pending.
            NotFoundError: nothing was ever stored.
        """
        ...

    async def activate_space(self, fingerprint: Fingerprint, *, complete: bool) -> ActiveSpace:
        """Make an embedding space the active one; processes of the one before are refused from then on.

        `complete` says that every document is of it: then no previous space is kept in mind.

        Raises:
            ForeignDatabaseError: a third space is pending.
            NotFoundError: nothing was ever stored.
        """
        ...

    async def activate_recipe(self, recipe: str) -> ActiveSpace:
        """Make a recipe the memory's: processes that cut texts otherwise are refused from then on.

        Raises:
            ForeignDatabaseError: the database has another schema.
            NotFoundError: nothing was ever stored.
        """
        ...

    async def count_coverage(self, fingerprint: str) -> Coverage:
        """How much is of that embedding space. Reads an index of the documents alone."""
        ...

    async def find_embedded(
        self, *, stale_in: str | None, source_ids: Sequence[str] = (), after: str | None = None, limit: int
    ) -> Sequence[StoredEmbedding]:
        """Documents by ascending document id, from behind `after`; with `source_ids` only these.

        With `stale_in` only those that are not of that embedding space or are marked contextStale.
        """
        ...

    async def measure_rows(self, document_ids: Sequence[str]) -> RowSizes:
        """Sums over the rows of at most a few hundred documents, made by the server: no text travels."""
        ...

    async def acquire_reembed_lease(self, holder: Holder, *, seconds: float) -> Holder | None:
        """Take or renew the one lease of re-embeds for so long. Returns None when it is ours, else who holds it.

        Raises:
            NotFoundError: nothing was ever stored.
        """
        ...

    async def steal_reembed_lease(self, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """Take the lease from a holder that is known to be dead; False when somebody else was first."""
        ...

    async def release_reembed_lease(self, holder: Holder) -> None:
        """Give the lease back; nothing happens where it is no longer ours."""
        ...

    async def read_states(
        self, source_ids: Sequence[str], document_ids: Sequence[str] = ()
    ) -> Mapping[str, DocumentState]:
        """The current state of each of these documents, by source id. Reads no body, no text and no vector."""
        ...

    async def read_feed_states(self, feed: str) -> Mapping[str, DocumentState]:
        """The current state of every source of a feed, by source id, in two queries."""
        ...

    async def read_chunk_keys(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[StoredChunkKey]]:
        """What decides which rows of a document can stay. Reads no text and no vector."""
        ...

    async def transaction_budget_bytes(self) -> int:
        """How many bytes of rows one transaction may safely hold on this server (8 % of its cache)."""
        ...

    async def write_together(self, writes: Sequence[DocumentWrite], *, now: datetime) -> Sequence[WriteResult]:
        """Write whole documents, all or none where the server has transactions. The results mirror `writes`.

        A document whose stored revision is already the write's own counts as written: a repeated call is harmless.

        Raises:
            ForeignDatabaseError: vectors of an embedding space that was neither active nor pending when they came, or
                chunks of a process whose recipe or schema was no longer the memory's.
        """
        ...

    async def write_in_parts(self, write: EmbeddedDocument, *, now: datetime) -> WriteResult:
        """Write one document whose rows are beyond `transaction_budget_bytes`: all or nothing for every reader.

        Its new rows are written first and are read by nobody before the document is flipped to their revision.

        Raises:
            ForeignDatabaseError: as `write_together`.
        """
        ...

    async def delete(
        self, selector: DeleteSelector, *, now: datetime, dry_run: bool = False, feed: str | None = None
    ) -> Deletion:
        """Move documents to the trash and their rows out, in one transaction; with `feed`, only what that feed owns."""
        ...

    async def read_trash(self, identifier: str | None = None, *, limit: int = 50) -> Sequence[TrashedDocument]:
        """What can be restored, the last deleted first; with a source id or a document id only that."""
        ...

    async def purge(self, identifier: str, *, dry_run: bool = False) -> Purge:
        """Remove every trace of a document, by source id or document id, deleted or not, from every collection.

        What search indexes took in is to be built anew: the database gets a new lineage.

        Raises:
            NotFoundError: there is no trace of it.
        """
        ...

    async def read_document(self, identifier: str) -> StoredDocument | None:
        """A stored document by source id or 24-hex document id, without its body."""
        ...

    async def read_body(self, body_id: str) -> str:
        """The text of one version.

        Raises:
            NotFoundError: the version is no longer kept.
        """
        ...

    async def list_sources(self, query: ListQuery) -> SourceListing:
        """One page of stored documents. Reads no body and no vector, and takes no longer where more is stored.

        From cursor to cursor no document that does not change comes twice or is left out, whoever writes meanwhile.

        Raises:
            ValidationError: the cursor is none of ours, or stands beside an offset.
        """
        ...

    async def read_hits(self, chunk_ids: Sequence[str]) -> Mapping[str, HitRow]:
        """The rows that still exist and whose revision is their document's, by chunk id. Reads no vector."""
        ...

    async def find_document_ids(self, filters: SearchFilters) -> frozenset[str]:
        """The ids of all documents that satisfy the filters."""
        ...

    async def read_changes(self, since: datetime | None) -> tuple[Sequence[DocumentChange], datetime]:
        """Documents committed or deleted at or after `since` (all live ones for None), and the server's time now.

        A transaction becomes visible after its own stamp: the caller asks again with an overlap longer than the
        longest transaction.
        """
        ...

    async def read_chunk_rows(self, document_ids: Sequence[str]) -> Sequence[ChunkRow]:
        """All rows, with text, context and vector, of at most a few hundred documents: only for a search index."""
        ...

    async def find_documents(self, *, after: str | None, limit: int) -> Sequence[StoredDocument]:
        """Whole documents without their bodies, by ascending document id, from behind `after`."""
        ...

    async def read_past_rows(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[PastRow]]:
        """The rows of each document's current revision with their vectors, by index; as `Past` takes them."""
        ...

    async def check_health(self, limits: HealthLimits = NO_LIMITS) -> StoreHealth:
        """Count everything and look for what does not fit together. Reads no text and no vector; changes nothing.

        What a living process is writing at this moment is no fault.
        """
        ...

    async def mend(self, kinds: Collection[FaultKind], limits: HealthLimits = NO_LIMITS) -> Sequence[Mended]:
        """Remove or settle what has these faults and needs no text for it; other kinds are passed over.

        Nothing that a living process may be writing is touched.

        Raises:
            ForeignDatabaseError: the database is not ours, or of another schema.
        """
        ...

    async def forget_versions(self, document_id: str, versions: Collection[int]) -> int:
        """Remove earlier versions with their texts, never the current one. Returns how many went."""
        ...

    async def close(self) -> None:
        """Close the connections; may be called twice."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A configured directory. `include` and `exclude` are gitignore-style globs below `root`; no include means all."""

    name: str
    root: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class FileState(StrEnum):
    """The last truth about one file of a feed."""

    STORED = "stored"
    FAILED = "failed"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """What a feed knows of one file. `path` is POSIX, NFC, relative to the root; `mtime_ns` in nanoseconds.

    `content_hash` is the hash of the normalised text that was handed down the path, None where it was never read.
    """

    path: str
    source_id: str
    size: int
    mtime_ns: int
    state: FileState
    content_hash: str | None = None
    reason: str | None = None
    encoding: str | None = None
    ctime_ns: int = 0


class FeedStore(Protocol):
    """Feeds, their leases and their manifests."""

    async def register_feed(self, feed: Feed) -> Feed:
        """Create the feed or update its globs.

        Raises:
            ValidationError: the root is inside or above another feed's, or the name belongs to another root.
        """
        ...

    async def list_feeds(self) -> Sequence[Feed]:
        """All feeds by name."""
        ...

    async def acquire_lease(self, feed: str, holder: Holder, *, seconds: float) -> Holder | None:
        """Take or renew the feed's lease for so long. Returns None when it is ours, else who holds it."""
        ...

    async def steal_lease(self, feed: str, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """Take the lease from a holder that is known to be dead; False when somebody else was first."""
        ...

    async def release_lease(self, feed: str, holder: Holder) -> None:
        """Give the lease back; nothing happens where it is no longer ours."""
        ...

    async def read_manifest(self, feed: str) -> Sequence[ManifestEntry]:
        """Every known file of the feed."""
        ...

    async def write_manifest(
        self, feed: str, entries: Sequence[ManifestEntry], *, removed_paths: Sequence[str] = ()
    ) -> None:
        """Insert or replace entries by path and forget the removed ones, in one command each."""
        ...


class SubmissionState(StrEnum):
    """Where a submission is. `parked`: it crashed its run three times and waits for a person."""

    STAGED = "staged"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A piece of content that a door accepted durably. The outcome's fields are plain JSON."""

    submission_id: str
    state: SubmissionState
    request: StoreRequest
    attempts: int
    outcome: Mapping[str, object] | None
    staged_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSubmission:
    """A submission that is staged or running, without its content, and who works on it."""

    submission_id: str
    holder: Holder | None


class SubmissionStore(Protocol):
    """The durable queue between the doors and the flow runs."""

    async def stage(
        self, request: StoreRequest, *, key: str, holder: Holder, seconds: float, now: datetime
    ) -> Submission:
        """Keep the request durably, under the stager's own lease: nobody else runs it while the stager lives.

        An open submission with the same derived key is joined instead, and its lease stays its holder's.
        """
        ...

    async def claim(
        self, ids: Sequence[str], *, holder: Holder, seconds: float, dead_tokens: Sequence[str] = ()
    ) -> Sequence[Submission]:
        """Take the open ones among `ids` whose lease is free, lapsed or that of a dead holder, the oldest first.

        Each claim counts as an attempt; one that was claimed three times already is parked instead. One whose text a
        version has adopted already (its run was killed before it said so) is settled as done instead.
        """
        ...

    async def renew(self, ids: Sequence[str], *, holder: Holder, seconds: float) -> None:
        """Prolong the leases that this holder has; no attempt is counted."""
        ...

    async def find_open(self, *, limit: int) -> Sequence[OpenSubmission]:
        """Submissions that are staged or running, the oldest first. Reads no body."""
        ...

    async def release(self, ids: Sequence[str], *, holder: Holder) -> None:
        """Give the leases of open submissions back, so that the next run takes them at once."""
        ...

    async def finish(self, outcomes: Mapping[str, Mapping[str, object]], *, holder: Holder, now: datetime) -> None:
        """Record the outcome of each submission by id: done, or failed where the outcome says so.

        Only open ones whose lease is this holder's: who lost its lease has no say any more.
        """
        ...

    async def read(self, submission_id: str) -> Submission | None:
        """One submission by id."""
        ...


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
