"""What a re-embed passes on, frozen: what was asked, the plan and the report, as sentences and as plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from memory_core.answers import Coverage
from memory_core.costs import EmbeddingEstimate
from memory_core.errors import ValidationError
from memory_core.spaces import describe_coverage
from memory_core.store_ports import ActiveSpace, StoredEmbedding
from memory_core.wire import coverage_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedOptions:
    """What was asked for.

    `source_ids` and `limit` (documents) choose a part. `rechunk` also takes documents that the settings and the chunker
    of today would cut otherwise. `now` makes the space the active one first; `activate` does only that, where nothing
    is missing.
    """

    source_ids: tuple[str, ...] = ()
    limit: int | None = None
    rechunk: bool = False
    now: bool = False
    activate: bool = False

    @property
    def is_partial(self) -> bool:
        """True where something may be left on purpose."""
        return bool(self.source_ids) or self.limit is not None


def check_options(options: ReembedOptions) -> ReembedOptions:
    """The same options, where they go together.

    Raises:
        ValidationError: a limit below 1, or `activate` with an option that would embed something.
    """
    if options.limit is not None and options.limit < 1:
        raise ValidationError("limit: must be at least 1.")
    if options.activate and options != ReembedOptions(activate=True):
        raise ValidationError("activate: embeds nothing, so it goes with no other option but a dry run.")
    return options


class Why(StrEnum):
    """Why a document is to go down the path again."""

    MODEL = "model"  # its vectors are of another embedding space
    CONTEXT = "context"  # its vectors have the context of an earlier title or text
    RECIPE = "recipe"  # the settings and the chunker of today would cut it otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDocument:
    """One document and why it is taken."""

    stored: StoredEmbedding
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedPlan:
    """What a run would do. `tokens` is an estimate from the stored rows; `left_out` counts what the limit leaves.

    `estimate` is what it costs, where that was asked for.
    """

    target: str
    space: ActiveSpace
    before: Coverage
    documents: tuple[PlannedDocument, ...]
    left_out: int
    tokens: int
    estimate: EmbeddingEstimate | None = None

    @property
    def chunks(self) -> int:
        """Stored chunks of the planned documents."""
        return sum(planned.stored.chunk_count for planned in self.documents)

    def describe(self) -> str:
        """One sentence for a person, before anything is spent."""
        counts = Counter(planned.why for planned in self.documents)
        reasons = "; ".join(f"{counts[why]:,} {words}" for why, words in _WHY_WORDS.items() if counts[why])
        more = f" {self.left_out:,} more are left for later." if self.left_out else ""
        # An estimate says the tokens better: by the provider's measure, and without what is found again.
        tokens = "" if self.estimate else f", about {self.tokens:,} tokens"
        return (
            f"{_count(len(self.documents), 'document')}, {_count(self.chunks, 'chunk')}{tokens} "
            f"for {self.target}{f' ({reasons})' if reasons else ''}.{more}"
            f"{f' {self.estimate.describe()}' if self.estimate else ''}"
        )

    def to_json(self) -> dict[str, object]:
        """The plan as plain values, ready for `json.dumps`."""
        counts = Counter(planned.why for planned in self.documents)
        return {
            "target": self.target,
            "activeSpace": self.space.fingerprint,
            "documents": len(self.documents),
            "chunks": self.chunks,
            "tokens": self.tokens,
            "why": {why.value: counts[why] for why in Why},
            "leftOut": self.left_out,
            "coverage": {"before": coverage_json(self.before)},
            "estimate": self.estimate.to_json() if self.estimate else None,
        }


_WHY_WORDS = {
    Why.MODEL: "of another embedding space",
    Why.CONTEXT: "with an old context",
    Why.RECIPE: "that would be cut otherwise now",
}


class ReembedResult(StrEnum):
    """What became of one document. Skipped: somebody stored or deleted it meanwhile, and that was kept."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentReport:
    """One line of a report. `reason` says why it was embedded again, was skipped or failed.

    `texts` and `tokens` were really embedded: the vectors of the other chunks were found again.
    """

    source_id: str
    result: ReembedResult
    reason: str | None = None
    chunks: int = 0
    texts: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedReport:
    """What a run did. The counts are taken from the documents, so that they cannot disagree."""

    target: str
    documents: tuple[DocumentReport, ...]
    left_out: int
    before: Coverage
    after: Coverage
    space: ActiveSpace
    was_active: bool
    seconds: float

    def count(self, result: ReembedResult) -> int:
        """How many documents came to this."""
        return sum(report.result is result for report in self.documents)

    @property
    def is_active(self) -> bool:
        """True where the space is the active one now."""
        return self.space.fingerprint == self.target

    def describe(self) -> str:
        """What was done, and what queries use from now on."""
        done = f"{_count(self.count(ReembedResult.DONE), 'document')} embedded again"
        skipped = self.count(ReembedResult.SKIPPED)
        told = f", {skipped:,} left as somebody else stored them" if skipped else ""
        return f"{done}{told}. {describe_coverage(self.after)} {self._describe_space()}"

    def _describe_space(self) -> str:
        if self.is_active:
            return "It is the active space." if self.was_active else "It is the active space now: queries use it."
        return (
            f"Queries use {self.space.fingerprint} until nothing is missing: run `memory reembed` again, or with --now "
            "to use what is done at once."
        )

    def to_json(self) -> dict[str, object]:
        """The report as plain values, ready for `json.dumps`."""
        return {
            "target": self.target,
            "activeSpace": self.space.fingerprint,
            "activated": self.is_active and not self.was_active,
            "done": self.count(ReembedResult.DONE),
            "skipped": self.count(ReembedResult.SKIPPED),
            "failed": self.count(ReembedResult.FAILED),
            "leftOut": self.left_out,
            "chunks": sum(report.chunks for report in self.documents),
            "textsEmbedded": sum(report.texts for report in self.documents),
            "tokensEmbedded": sum(report.tokens for report in self.documents),
            "coverage": {"before": coverage_json(self.before), "after": coverage_json(self.after)},
            "seconds": self.seconds,
            "documents": [
                {"sourceId": report.source_id, "result": report.result.value, "reason": report.reason}
                for report in self.documents
            ],
        }


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
