"""Brings the memory of another program over, through the one path. In: a ForeignMemory and a core. Out: a report.

The source is only read. Ids, version numbers, dates, attributes and ingest blocks stay as they were; chunks and vectors
are made anew. What is there already is unchanged, so a migration that was killed is run again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from memory_core.costs import EmbeddingEstimate, check_max_cost, is_paid, refuse_cost
from memory_core.embedding_estimate import EmbeddingEstimator, core_of_estimate
from memory_core.errors import ProviderRefusedError, ValidationError
from memory_core.migrate_ports import ForeignMemory, ForeignProgram, ForeignRow
from memory_core.migrate_reading import read_document
from memory_core.models import Document, Failure, Outcome, Plan, StoreOutcome, StoreRequest
from memory_core.ports import Core, Progress
from memory_core.provider_limits import limits_of
from memory_core.settings import Settings, is_database_name
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.transfer_values import Problem

MAX_FAILED_BATCHES_IN_A_ROW: Final = 3
PAGE_DOCUMENTS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """What to migrate: the source's database. `dry_run` only counts; `max_cost` is in US dollars."""

    database: str
    program: ForeignProgram = ForeignProgram.MONGODB_MEMORY_MCP
    dry_run: bool = False
    max_cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What a migration did, or (`dry_run`) would do. `refusal` is why it did not start.

    `documents` are all of the source; `unchanged` ones were here. `tokens` and `texts` were embedded.
    """

    program: str
    database: str
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
        """True where everything that the source holds is here."""
        return not self.problems and self.refusal is None

    def describe(self) -> str:
        """One or two sentences for a person."""
        of = f"{_count(self.documents, 'document')} in the database {self.database} of {self.program}"
        if self.estimate:
            wrong = f", {_count(len(self.problems), 'problem')}" if self.problems else ""
            return (
                f"{of}: {self.created:,} would be created, {self.unchanged:,} unchanged{wrong}. "
                f"{self.estimate.describe()}"
            )
        wrong = f", {_count(len(self.problems), 'PROBLEM')}" if self.problems else ""
        return (
            f"{self.created:,} created, {self.unchanged:,} unchanged{wrong}; {of}. "
            f"{_count(self.chunks, 'chunk')} written, {_count(self.tokens, 'token')} embedded."
        )

    def to_json(self) -> dict[str, object]:
        """The report as plain values, ready for `json.dumps`."""
        return {
            "from": self.program,
            "database": self.database,
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


def check_source(database: str, settings: Settings) -> None:
    """Refuse a name that cannot be a source; asks nobody.

    Raises:
        ValidationError: it is no name of a database, or that of the memory itself.
    """
    if not is_database_name(database):
        raise ValidationError(
            'A database has a name of 1 to 63 characters with none of / \\ . space " $ * < > : ? |. Correct --database.'
        )
    if database == settings.mongodb_db_name and settings.migrate_mongodb_uri in {None, settings.mongodb_uri}:
        raise ValidationError(
            f"The database {database} would be source and target at once. A source is only read: set MONGODB_DB_NAME "
            "to another database, which becomes the memory."
        )


async def migrate_memory(foreign: ForeignMemory, *, core: Core, options: MigrationOptions) -> MigrationReport:
    """Store what the source holds. Never raises for a document: what is wrong with it is a problem of the report.

    Raises:
        ValidationError: the source is empty or a memory of this program, or `max_cost` is no limit.
        ForeignDatabaseError: the target holds rows of another program, or is not to be written by this process.
        StorageError: the source could not be read.
    """
    check_max_cost(options.max_cost)
    facts = await foreign.inspect()
    _refuse_source(options.database, is_ours=facts.is_ours, is_empty=facts.is_empty)
    await core.store.migrate(dry_run=True)  # writes nothing, and refuses a target that is not ours
    if options.dry_run or options.max_cost is not None:
        trial = _Migration(core=await core_of_estimate(core), foreign=foreign, options=options, total=facts.documents)
        estimate = await trial.estimate()
        refusal = refuse_cost(estimate.cost, options.max_cost) if options.max_cost is not None else None
        if options.dry_run or refusal:
            return trial.report(estimate=estimate, refusal=refusal)
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    run = _Migration(core=core, foreign=foreign, options=options, total=facts.documents)
    await run.store()
    return run.report()


def _refuse_source(database: str, *, is_ours: bool, is_empty: bool) -> None:
    if is_ours:
        raise ValidationError(
            f"The database {database} is a memory of this program. Move it with `memory export` and `memory import`."
        )
    if is_empty:
        raise ValidationError(
            f"The database {database} has no documents and no chunks. Correct --database, or set MIGRATE_MONGODB_URI "
            "where it is on another server than the memory."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Incoming:
    """A document to store and where it stands in the source."""

    place: str
    request: StoreRequest


@dataclass(slots=True, kw_only=True)
class _Migration:
    """One pass over a source and what is known of it so far."""

    core: Core
    foreign: ForeignMemory
    options: MigrationOptions
    total: int
    seen: int = 0
    created: int = 0
    unchanged: int = 0
    chunks: int = 0
    tokens: int = 0
    texts: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])
    failures_in_a_row: int = 0
    last_reason: str = ""

    async def store(self) -> None:
        """Take every batch down the path. Three in a row that fail for one reason of the outside world end it."""
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                outcomes = await store_content([one.request for one in batch], core=self.core)
                for incoming, outcome in zip(batch, outcomes, strict=True):
                    self._count(incoming, outcome)
                self._watch_failures(outcomes)
                if self.failures_in_a_row >= MAX_FAILED_BATCHES_IN_A_ROW:
                    left = "The rest was not tried. Run the migration again when it is mended."
                    self.problems.append(Problem(reason=f"{self.last_reason} {left}"))
                    return

    async def estimate(self) -> EmbeddingEstimate:
        """What embedding it would take; nothing is embedded and no document written."""
        settings = self.core.settings
        pending: list[_Incoming] = []

        async def validate(requests: Sequence[StoreRequest], *, core: Core) -> list[Document | Failure]:
            documents = await PLAIN_STAGES.validate(requests, core=core)
            for incoming, document in zip(pending, documents, strict=True):
                self._foresee(incoming, document)
            return list(documents)

        estimator = EmbeddingEstimator(
            core=self.core,
            stages=replace(PLAIN_STAGES, validate=validate),
            limits=limits_of(settings) if is_paid(settings) else None,
        )
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                pending[:] = batch
                await estimator.add([one.request for one in batch])
        return estimator.finish()

    async def _batches(self) -> AsyncGenerator[list[_Incoming]]:
        """Everything that can be read, in batches; what cannot is a problem. Holds the texts of one batch."""
        settings = self.core.settings
        batch: list[_Incoming] = []
        chars = 0
        async with aclosing(self._documents()) as documents:
            async for incoming in documents:
                length = len(incoming.request.request.content)
                if batch and (len(batch) >= settings.batch_documents or chars + length > settings.batch_chars):
                    yield batch
                    self.core.on_progress(Progress(done=min(self.seen, self.total), total=self.total))
                    batch, chars = [], 0
                batch.append(incoming)
                chars += length
        if batch:
            yield batch
        self.core.on_progress(Progress(done=self.total, total=self.total))

    async def _documents(self) -> AsyncGenerator[_Incoming]:
        shared = await self.foreign.find_shared_sources()
        await self._find_damage()
        after: str | None = None
        while page := await self.foreign.read_page(after=after, limit=PAGE_DOCUMENTS):
            for row in page:
                self.seen += 1
                if incoming := await self._read(row, shared):
                    yield incoming
            after = page[-1].document_id

    async def _find_damage(self) -> None:
        """What can be no document, however it is read."""
        for strange in await self.foreign.find_strange_documents():
            self.seen += 1
            reason = "its _id is no ObjectId, which this memory's ids are. Store its text anew."
            self._add_problem(f"documents, _id {strange.shown_id}", strange.source_id, reason)
        for orphan in await self.foreign.find_orphaned_chunks():
            reason = f"{_count(orphan.chunks, 'chunk')} of no document that can be read. Store the whole text anew."
            self._add_problem(f"chunks, documentId {orphan.shown_id or 'missing'}", orphan.source_id, reason)

    async def _read(self, row: ForeignRow, shared: Mapping[str, Sequence[str]]) -> _Incoming | None:
        place = f"documents, _id {row.document_id}"
        named = row.fields.get("sourceId")
        source_id = named if isinstance(named, str) else None
        if source_id is not None and len(same := shared.get(source_id, ())) > 1:
            others = ", ".join(one for one in same if one != row.document_id)
            reason = f"has the same sourceId as {others}. Delete there all but one, then run the migration again."
            self._add_problem(place, source_id, reason)
            return None
        try:
            return _Incoming(place=place, request=read_document(row, await self.foreign.read_content(row.document_id)))
        except ValidationError as error:
            self._add_problem(place, source_id, error.message)
            return None

    def _count(self, incoming: _Incoming, outcome: StoreOutcome) -> None:
        if outcome.error:
            self._add_problem(incoming.place, incoming.request.request.source_id, outcome.error.message)
        elif outcome.outcome is Outcome.UNCHANGED:
            self.unchanged += 1
        else:
            self.created += 1
            self.chunks += outcome.chunk_count
            self.tokens += outcome.tokens_embedded
            self.texts += outcome.texts_embedded

    def _foresee(self, incoming: _Incoming, document: Document | Failure) -> None:
        if isinstance(document, Failure):
            self._add_problem(incoming.place, incoming.request.request.source_id, document.error.message)
        elif document.plan is Plan.NOTHING:
            self.unchanged += 1
        else:
            self.created += 1

    def _add_problem(self, place: str, source_id: str | None, reason: str) -> None:
        self.problems.append(Problem(place=place, source_id=source_id, reason=reason))

    def _watch_failures(self, outcomes: Sequence[StoreOutcome]) -> None:
        errors = [outcome.error for outcome in outcomes if outcome.error]
        outside = {one.message for one in errors if one.retryable or isinstance(one, ProviderRefusedError)}
        if len(errors) < len(outcomes) or len(outside) != 1:
            self.failures_in_a_row, self.last_reason = 0, ""
            return
        reason = outside.pop()
        self.failures_in_a_row = self.failures_in_a_row + 1 if reason == self.last_reason else 1
        self.last_reason = reason

    def report(self, *, estimate: EmbeddingEstimate | None = None, refusal: str | None = None) -> MigrationReport:
        """What is known at the end; with an estimate nothing was done."""
        return MigrationReport(
            program=self.options.program,
            database=self.options.database,
            documents=self.seen,
            created=self.created,
            unchanged=self.unchanged,
            chunks=self.chunks,
            tokens=self.tokens,
            texts=self.texts,
            problems=tuple(self.problems),
            dry_run=estimate is not None,
            estimate=estimate,
            refusal=refusal,
        )


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 'S' if word.isupper() else 's'}"
