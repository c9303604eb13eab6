"""The collections that the fake stores share. In: frozen records. Out: the same records; decides nothing itself.

Records are replaced, never changed, so that a transaction is undone by putting the old dictionaries back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime

from memory_core.chunk_values import Chunk, ChunkOptions
from memory_core.models import DocumentState, Fingerprint, Holder, StoredVersion, Vector
from memory_core.store_ports import ActiveSpace
from memory_core.work_ports import Feed, ManifestEntry, Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRecord:
    """A row of `documents`. The state's tally is empty here: it is counted from the rows at each reading."""

    state: DocumentState
    content_length: int
    fingerprint: Fingerprint
    options: ChunkOptions
    versions: tuple[StoredVersion, ...]
    committed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord:
    """A row of `chunks`. The texts of `chunk` and the context stay as they were where `row_hash` did not change."""

    chunk_id: str
    document_id: str
    revision: str
    content_hash: str
    chunk: Chunk
    context: str
    row_hash: str
    embedding_input_hash: str
    fingerprint: str
    vector: Vector
    situated: str = ""
    windows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyRecord:
    """A text of `contents`; it is its submission's until a stored version adopts it (then None)."""

    text: str
    submission_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashRecord:
    """A deleted document: attributes and body ids, no rows."""

    document: DocumentRecord
    deleted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """Who holds something, and until when."""

    holder: Holder
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRecord:
    """A row of `submissions`; the request's text is in `contents`."""

    submission: Submission
    key: str
    lease: LeaseRecord | None = None


@dataclass(slots=True)
class FakeDatabase:
    """One database. `sources` is the unique index on source ids; `tombstones` says when a document id was deleted."""

    lineage: str = "fake"
    meta: ActiveSpace | None = None
    documents: dict[str, DocumentRecord] = field(default_factory=dict[str, DocumentRecord])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    rows: dict[str, ChunkRecord] = field(default_factory=dict[str, ChunkRecord])
    bodies: dict[str, BodyRecord] = field(default_factory=dict[str, BodyRecord])
    tombstones: dict[str, datetime] = field(default_factory=dict[str, datetime])
    trash: tuple[TrashRecord, ...] = ()
    reembed_lease: LeaseRecord | None = None
    feeds: dict[str, Feed] = field(default_factory=dict[str, Feed])
    feed_leases: dict[str, LeaseRecord] = field(default_factory=dict[str, LeaseRecord])
    manifests: dict[tuple[str, str], ManifestEntry] = field(default_factory=dict[tuple[str, str], ManifestEntry])
    submissions: dict[str, SubmissionRecord] = field(default_factory=dict[str, SubmissionRecord])
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All or nothing, one at a time: what the block changed is undone when it raises."""
        with self.lock:
            before = {name: self._copy(name) for name in self._collections()}
            try:
                yield
            except BaseException:
                for name, value in before.items():
                    setattr(self, name, value)
                raise

    @staticmethod
    def _collections() -> list[str]:
        return [column.name for column in fields(FakeDatabase) if column.name != "lock"]

    def _copy(self, name: str) -> object:
        value: object = getattr(self, name)
        return dict(value) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] # any of the above


async def take_turns() -> None:
    """Let other callers go first, as a call over the network would: races show in tests with fakes too."""
    await asyncio.sleep(0)
