"""What can be wrong with a memory. In: what was found. Out: findings as sentences with their remedy. Pure.

A finding has a kind, a count and examples; the words and the remedy of each kind stand here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_EXAMPLES = 3
_AGAIN = "`memory doctor --repair` heals them, and so does storing them again."
_REPAIR = "`memory doctor --repair` settles it."
_SWEPT = "A later `memory store` removes them, once they are an hour old; `memory doctor --repair` removes them now."
_NO_TEXT = (
    "No text can be made up: store another one under the same id (`memory log SOURCE_ID` shows earlier versions that "
    "are kept, `memory get SOURCE_ID --version N` prints one), or delete it and store it from its source."
)


class FaultKind(StrEnum):
    """What is wrong. The words for each are in `_WORDS`."""

    FOREIGN_ROWS = "foreign_rows"
    ORPHAN_CHUNKS = "orphan_chunks"
    SHORT_DOCUMENTS = "short_documents"
    LEFTOVER_CHUNKS = "leftover_chunks"
    MISMATCHED_CHUNKS = "mismatched_chunks"
    MISNUMBERED_CHUNKS = "misnumbered_chunks"
    WRONG_CHUNKS = "wrong_chunks"
    ORPHAN_TEXTS = "orphan_texts"
    MISSING_TEXTS = "missing_texts"
    WRONG_TEXTS = "wrong_texts"
    MISSING_VERSIONS = "missing_versions"
    WRONG_VERSIONS = "wrong_versions"
    TRASHED_DOCUMENTS = "trashed_documents"
    DEAD_WRITES = "dead_writes"
    ABANDONED_SUBMISSIONS = "abandoned_submissions"
    PARKED_SUBMISSIONS = "parked_submissions"
    LOST_FILES = "lost_files"
    DEAD_RUNS = "dead_runs"
    MISSING_INDEXES = "missing_indexes"
    DIFFERENT_INDEXES = "different_indexes"
    LARGE_CACHE = "large_cache"
    UNFINISHED_MOVE = "unfinished_move"


_WORDS: Mapping[FaultKind, tuple[str, str]] = {
    FaultKind.FOREIGN_ROWS: (
        "collections hold rows that this program did not make",
        "Nothing is written here: set MONGODB_DB_NAME to an empty database.",
    ),
    FaultKind.ORPHAN_CHUNKS: ("chunks belong to no document", f"They are never searched. {_SWEPT}"),
    FaultKind.SHORT_DOCUMENTS: ("documents lack chunks", _AGAIN),
    FaultKind.LEFTOVER_CHUNKS: ("documents have leftover chunks", _AGAIN),
    FaultKind.MISMATCHED_CHUNKS: ("documents have chunks of another text or embedding space", _AGAIN),
    FaultKind.MISNUMBERED_CHUNKS: (
        "documents have two chunks of one number, or a gap",
        "`memory doctor --repair` heals them.",
    ),
    FaultKind.WRONG_CHUNKS: (
        "documents have chunks whose words are not those of the text",
        "`memory doctor --deep --repair` heals them.",
    ),
    FaultKind.ORPHAN_TEXTS: ("texts belong to no version and no submission", _SWEPT),
    FaultKind.MISSING_TEXTS: ("documents lack their text, or a part of it", _NO_TEXT),
    FaultKind.WRONG_TEXTS: ("documents have a text that is not what was stored", _NO_TEXT),
    FaultKind.MISSING_VERSIONS: (
        "earlier versions lack their text",
        "They cannot be read any more; `memory doctor --repair` forgets them.",
    ),
    FaultKind.WRONG_VERSIONS: (
        "earlier versions have a text that is not what was stored",
        "Copy what you need (`memory get SOURCE_ID --version N`); `memory doctor --deep --repair` forgets them.",
    ),
    FaultKind.TRASHED_DOCUMENTS: ("documents stand in the trash too", _REPAIR),
    FaultKind.DEAD_WRITES: (
        "writes were cut off by the end of their process",
        "The next `memory store` undoes what they began, and so does `memory doctor --repair`.",
    ),
    FaultKind.ABANDONED_SUBMISSIONS: (
        "submissions are not finished and their process is gone",
        "The next `memory store` picks them up, and so does `memory doctor --repair`.",
    ),
    FaultKind.PARKED_SUBMISSIONS: (
        "submissions crashed their run three times and are parked",
        "Read the log, then store them again. They are removed after MEMORY_FAILED_SUBMISSION_DAYS.",
    ),
    FaultKind.LOST_FILES: (
        "files of directories count as stored and have no document",
        "`memory doctor --repair` forgets that they were stored; the next `memory ingest` stores them.",
    ),
    FaultKind.DEAD_RUNS: (
        "runs were cut off by the end of their process",
        "Run them again: they go on where they were. `memory doctor --repair` gives back what they held.",
    ),
    FaultKind.MISSING_INDEXES: ("indexes of MongoDB are missing", "The next `memory store` makes them."),
    FaultKind.DIFFERENT_INDEXES: (
        "indexes of MongoDB are not as this program makes them",
        "`memory doctor --repair` makes them anew.",
    ),
    FaultKind.LARGE_CACHE: (
        "rows of the embedding cache are beyond EMBEDDING_CACHE_DAYS or EMBEDDING_CACHE_MB",
        "`memory doctor --repair` removes the oldest.",
    ),
    FaultKind.UNFINISHED_MOVE: ("moves to another embedding space are not finished", "Run `memory reembed`."),
}

# What is stored again from its own text, through the one path.
STORED_AGAIN = (
    FaultKind.SHORT_DOCUMENTS,
    FaultKind.LEFTOVER_CHUNKS,
    FaultKind.MISMATCHED_CHUNKS,
    FaultKind.MISNUMBERED_CHUNKS,
    FaultKind.WRONG_CHUNKS,
)
# What no program can mend.
BEYOND_REPAIR = frozenset(
    {
        FaultKind.FOREIGN_ROWS,
        FaultKind.MISSING_TEXTS,
        FaultKind.WRONG_TEXTS,
        FaultKind.PARKED_SUBMISSIONS,
        FaultKind.UNFINISHED_MOVE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of fault. `names` are all that have it: source ids where they have one. `told` replaces the words."""

    kind: FaultKind
    names: tuple[str, ...] = ()
    count: int = 0
    told: str | None = None

    @property
    def size(self) -> int:
        """How many have it."""
        return self.count or len(self.names)

    @property
    def is_mendable(self) -> bool:
        """Whether a repair can mend it."""
        return self.kind not in BEYOND_REPAIR

    @property
    def remedy(self) -> str:
        """What to do."""
        return _WORDS[self.kind][1]

    @property
    def examples(self) -> tuple[str, ...]:
        """A few of the names, in order."""
        return tuple(sorted(self.names)[:_EXAMPLES])

    def describe(self) -> str:
        """One line: how many, what, which, and what to do."""
        return self.told or f"{self.say()}. {self.remedy}"

    def say(self) -> str:
        """How many, what and which, without the remedy."""
        shown = ", ".join(self.examples) + (", …" if len(self.names) > _EXAMPLES else "")
        return f"{self.size:,} {_WORDS[self.kind][0]}{f' ({shown})' if shown else ''}"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "kind": self.kind.value,
            "count": self.size,
            "examples": list(self.examples),
            "remedy": self.remedy,
            "mendable": self.is_mendable,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """Counts and findings for `memory doctor`."""

    server_version: str
    transactions: bool
    documents: int
    chunks: int
    findings: tuple[Finding, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Every finding as a sentence with its remedy."""
        return tuple(finding.describe() for finding in self.findings)

    def names_of(self, *kinds: FaultKind) -> tuple[str, ...]:
        """Everything that has one of these faults, each once, in order."""
        found = {name: None for finding in self.findings if finding.kind in kinds for name in finding.names}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """How much may be there by the settings; None: any amount. `cache_bytes` counts vectors and texts."""

    cache_days: int | None = None
    cache_bytes: int | None = None


NO_LIMITS = HealthLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What a repair removed or settled of one kind."""

    kind: FaultKind
    count: int

    def describe(self) -> str:
        """One line."""
        return f"{_DONE[self.kind]}: {self.count:,}"


_DONE: Mapping[FaultKind, str] = {
    FaultKind.ORPHAN_CHUNKS: "chunks without a document, removed",
    FaultKind.ORPHAN_TEXTS: "texts without an owner, removed",
    FaultKind.MISSING_VERSIONS: "earlier versions without a text, forgotten",
    FaultKind.WRONG_VERSIONS: "earlier versions with a wrong text, forgotten",
    FaultKind.TRASHED_DOCUMENTS: "rows of the trash whose document lives, removed",
    FaultKind.DEAD_WRITES: "writes that were cut off, undone or finished",
    FaultKind.ABANDONED_SUBMISSIONS: "submissions, finished",
    FaultKind.LOST_FILES: "files without a document, forgotten",
    FaultKind.DEAD_RUNS: "leases of runs that are gone, given back",
    FaultKind.MISSING_INDEXES: "indexes, made",
    FaultKind.DIFFERENT_INDEXES: "indexes, made anew",
    FaultKind.LARGE_CACHE: "rows of the embedding cache, removed",
}
