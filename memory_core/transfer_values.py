"""What exports and imports say of themselves, frozen: as sentences and as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from memory_core.costs import EmbeddingEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One document that was left out, and why. `place` names file and line where there is one."""

    reason: str
    source_id: str | None = None
    place: str | None = None

    def describe(self) -> str:
        """One line for a person."""
        named = [one for one in (self.place, self.source_id) if one]
        # A reason that begins with the place says it already.
        if self.place and self.reason.startswith(self.place):
            named = [self.source_id] if self.source_id else []
        return ": ".join([*named, self.reason])

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {"sourceId": self.source_id, "place": self.place, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export holds. `texts_written` counts the text files of this run: equal texts are one file.

    `was_resumed`: an export that was begun before was gone on with.
    """

    directory: str
    documents: int
    versions: int
    chunks: int
    parts: int
    texts_written: int
    was_resumed: bool
    left_out: tuple[Problem, ...]

    def describe(self) -> str:
        """One sentence for a person."""
        rows = f", {_count(self.chunks, 'chunk')} with vectors" if self.chunks else ""
        resumed = " It went on with what was there." if self.was_resumed else ""
        return (
            f"{_count(self.documents, 'document')} with {_count(self.versions, 'version')}{rows} in {self.directory}."
            f"{resumed}"
        )

    def to_json(self) -> dict[str, object]:
        """The report as plain values, ready for `json.dumps`."""
        return {
            "directory": self.directory,
            "documents": self.documents,
            "versions": self.versions,
            "chunks": self.chunks,
            "parts": self.parts,
            "textsWritten": self.texts_written,
            "resumed": self.was_resumed,
            "leftOut": [problem.to_json() for problem in self.left_out],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How an export is to be read. `dry_run` only counts; `max_cost` is in US dollars; `use_vectors` where they fit."""

    dry_run: bool = False
    max_cost: float | None = None
    use_vectors: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeReport:
    """What was brought over, or (`dry_run`) would be. `refusal` is why it did not start.

    `documents` are all of the source; `unchanged` ones were here. `tokens` and `texts` were embedded.
    """

    documents: int
    created: int
    unchanged: int
    chunks: int
    tokens: int
    texts: int
    problems: tuple[Problem, ...]
    dry_run: bool = False
    estimate: EmbeddingEstimate | None = None
    refusal: str | None = None

    @property
    def is_complete(self) -> bool:
        """True where everything that the source should hold is here."""
        return not self.problems and self.refusal is None

    def counts_json(self) -> dict[str, object]:
        """The counts, the estimate and the problems as plain values."""
        return {
            "documents": self.documents,
            "created": self.created,
            "unchanged": self.unchanged,
            "failed": len(self.problems),
            "chunks": self.chunks,
            "tokensEmbedded": self.tokens,
            "textsEmbedded": self.texts,
            "dryRun": self.dry_run,
            "estimate": self.estimate.to_json() if self.estimate else None,
            "refusal": self.refusal,
            "problems": [problem.to_json() for problem in self.problems],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(IntakeReport):
    """What an import did, or would do. `notes` are sentences. With vectors that fit, nothing was embedded."""

    directory: str
    notes: tuple[str, ...]

    def describe(self) -> str:
        """One sentence for a person."""
        if self.estimate:
            fails = f", {len(self.problems):,} would fail" if self.problems else ""
            return (
                f"{_count(self.documents, 'document')} in {self.directory}: {self.created:,} would be created, "
                f"{self.unchanged:,} unchanged{fails}. {self.estimate.describe()}"
            )
        failed = f", {len(self.problems):,} FAILED" if self.problems else ""
        embedded = f"{_count(self.tokens, 'token')} embedded" if self.tokens or self.texts else "nothing was embedded"
        return (
            f"{self.created:,} created, {self.unchanged:,} unchanged{failed} of {_count(self.documents, 'document')} "
            f"in {self.directory}: {_count(self.chunks, 'chunk')} written, {embedded}."
        )

    def to_json(self) -> dict[str, object]:
        """The report as plain values, ready for `json.dumps`."""
        return {"directory": self.directory, **self.counts_json(), "notes": list(self.notes)}


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
