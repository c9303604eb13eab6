"""What a directory run passes on, frozen: scan, plan, report; and the source id that a path gets. Touches nothing."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from memory_core.store_request import MAX_SOURCE_ID_CHARS

# ASCII letters: a Unicode letter has several spellings (NFC, NFD, width), and ids are compared byte by byte.
_LEGAL_SOURCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]*")
_ILLEGAL_RUN = re.compile(r"[^A-Za-z0-9._:@-]+")
_HASH_DIGITS = 8


class Action(StrEnum):
    """What a run does with one path. `read` goes down the path, which itself decides created, updated or unchanged."""

    READ = "read"
    UNCHANGED = "unchanged"
    SKIP = "skip"
    QUARANTINED = "quarantined"  # known not to be text, and not touched since
    DELETE = "delete"  # the document goes, and the manifest's line with it
    FORGET = "forget"  # only the manifest's line goes: no document of this feed hangs on it


class Cause(StrEnum):
    """Why a file is read."""

    NEW = "new"
    UNRECORDED = "unrecorded"
    CHANGED = "changed"
    FAILED_BEFORE = "failed_before"
    MISSING = "missing"
    DIFFERENT = "different"
    REPAIR = "repair"
    RECHUNK = "rechunk"
    REEMBED = "reembed"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One path and what happens to it. `reason` is a phrase for people.

    `stored_hash` is the content hash of the document that is stored under `source_id`, None where there is none; `size`
    is the file's in bytes, None for a document whose file was never recorded. `previous_source_id` names the source
    that a renamed file continues.
    """

    path: str
    source_id: str
    action: Action
    reason: str
    cause: Cause | None = None
    size: int | None = None
    stored_hash: str | None = None
    previous_source_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """What one run will do: every scanned path once, by path, then what is gone.

    `plan_id` covers the feed and the documents to delete and nothing else. That is what a person confirms: the rest is
    applied without a question, so an id over all of it could never be met again. `known_documents` counts what the
    feed owned before the scan.
    """

    feed: str
    plan_id: str
    actions: tuple[PlannedFile, ...]
    known_documents: int

    def select(self, action: Action) -> tuple[PlannedFile, ...]:
        """The planned files with this action, in the plan's order."""
        return tuple(planned for planned in self.actions if planned.action is action)

    def summarize(self) -> dict[str, int]:
        """Counts by action, and how many reads are only renames or pending upgrades (recipe, embedding space)."""
        actions = Counter(planned.action for planned in self.actions)
        causes = Counter(planned.cause for planned in self.actions)
        shown = (Cause.RENAMED, Cause.RECHUNK, Cause.REEMBED, Cause.REPAIR)
        return {**{str(name): actions[name] for name in Action}, **{str(name): causes[name] for name in shown}}


class FileOutcome(StrEnum):
    """What became of one file of a run: the outcomes of a document, and three of a directory's own."""

    CREATED = "created"
    UPDATED = "updated"
    ATTRIBUTES_UPDATED = "attributes_updated"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    DELETED = "deleted"
    SKIPPED = "skipped"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One line of a report. `error` says why a file failed, was skipped or quarantined."""

    path: str
    source_id: str | None
    outcome: FileOutcome
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What a run did. The counts are taken from the files, so that they cannot disagree; quarantined is skipped too.

    `chunks` are those of the documents that were written; the vectors of `texts_embedded` of them were computed, those
    of the others were found again.
    """

    files: tuple[FileReport, ...]
    chunks: int
    tokens_embedded: int
    texts_embedded: int
    seconds: float

    def count(self, *outcomes: FileOutcome) -> int:
        """How many files had one of these outcomes."""
        return sum(file.outcome in outcomes for file in self.files)

    @property
    def vectors_reused(self) -> int:
        """How many chunks were written with a vector that had been computed before."""
        return max(self.chunks - self.texts_embedded, 0)

    def to_json(self) -> dict[str, object]:
        """The report as plain values, ready for `json.dumps`."""
        return {
            "created": self.count(FileOutcome.CREATED),
            "updated": self.count(FileOutcome.UPDATED),
            "attributesUpdated": self.count(FileOutcome.ATTRIBUTES_UPDATED),
            "unchanged": self.count(FileOutcome.UNCHANGED),
            "failed": self.count(FileOutcome.FAILED),
            "deleted": self.count(FileOutcome.DELETED),
            "skipped": self.count(FileOutcome.SKIPPED, FileOutcome.QUARANTINED),
            "chunks": self.chunks,
            "tokensEmbedded": self.tokens_embedded,
            "textsEmbedded": self.texts_embedded,
            "vectorsReused": self.vectors_reused,
            "seconds": self.seconds,
            "files": [
                {"path": file.path, "sourceId": file.source_id, "outcome": str(file.outcome), "error": file.error}
                for file in self.files
            ],
        }


def source_id_of(feed: str, path: str) -> str:
    """`feed/path` where that is a legal source id, else its ASCII slug and 8 hex digits of the path's hash.

    Legal: at most 256 ASCII letters, digits and . _ : @ - /, the first a letter or digit.
    """
    path = unicodedata.normalize("NFC", path)
    plain = f"{feed}/{path}"
    if len(plain) <= MAX_SOURCE_ID_CHARS and _LEGAL_SOURCE_ID.fullmatch(plain):
        return plain
    folded = unicodedata.normalize("NFKD", plain)
    folded = "".join(letter for letter in folded if not unicodedata.combining(letter))
    parts = (_ILLEGAL_RUN.sub("-", part).strip("-") for part in folded.split("/"))
    slug = re.sub(r"^[^A-Za-z0-9]+", "", "/".join(part for part in parts if part))
    digest = hashlib.sha256(path.encode()).hexdigest()[:_HASH_DIGITS]
    slug = slug[: MAX_SOURCE_ID_CHARS - 1 - _HASH_DIGITS].rstrip("-/")
    return f"{slug}-{digest}" if slug else digest
