"""The sockets of what is to be stored: directories, manifests and submissions. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from memory_core.models import Holder, StoreRequest


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
