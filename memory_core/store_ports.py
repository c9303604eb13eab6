"""The socket of the store: documents, bodies and chunk rows, questions and answers. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from memory_core.answers import (
    ChunkRow,
    Coverage,
    Deletion,
    DocumentChange,
    HitRow,
    Purge,
    SearchFilters,
    SourceListing,
    StoredDocument,
    TrashedDocument,
)
from memory_core.chunk_values import ChunkOptions
from memory_core.health import NO_LIMITS, FaultKind, HealthLimits, Mended, StoreHealth
from memory_core.models import (
    ContentType,
    Document,
    DocumentState,
    EmbeddedDocument,
    Fingerprint,
    Holder,
    PastRow,
    StoredChunkKey,
)


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
