"""Brings the memory of another program over, through the one path. In: a ForeignMemory and a core. Out: a report.

The source is only read. Ids, version numbers, dates, attributes and ingest blocks stay as they were; chunks and vectors
are made anew. What is there already is unchanged, so a migration that was killed is run again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from memory_core.costs import EmbeddingEstimate, check_max_cost, refuse_cost
from memory_core.embedding_estimate import core_of_estimate
from memory_core.errors import ValidationError
from memory_core.intake import Incoming, Intake
from memory_core.migrate_ports import ForeignMemory, ForeignProgram, ForeignRow
from memory_core.migrate_reading import read_document
from memory_core.ports import Core, Progress
from memory_core.settings import Settings, is_database_name
from memory_core.transfer_values import IntakeReport

PAGE_DOCUMENTS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """What to migrate: the source's database. `dry_run` only counts; `max_cost` is in US dollars."""

    database: str
    program: ForeignProgram = ForeignProgram.MONGODB_MEMORY_MCP
    dry_run: bool = False
    max_cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport(IntakeReport):
    """What a migration did, or would do."""

    program: str
    database: str

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
        return {"from": self.program, "database": self.database, **self.counts_json()}


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
        intake = Intake(core=await core_of_estimate(core))
        trial = _Migration(intake=intake, foreign=foreign, options=options, total=facts.documents)
        estimate = await trial.estimate()
        refusal = refuse_cost(estimate.cost, options.max_cost) if options.max_cost is not None else None
        if options.dry_run or refusal:
            return trial.report(estimate=estimate, refusal=refusal)
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    run = _Migration(intake=Intake(core=core), foreign=foreign, options=options, total=facts.documents)
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


@dataclass(slots=True, kw_only=True)
class _Migration:
    """One pass over a source."""

    intake: Intake
    foreign: ForeignMemory
    options: MigrationOptions
    total: int
    seen: int = 0

    async def store(self) -> None:
        """Take everything down the path, as far as it goes."""
        if reason := await self.intake.store(self._batches()):
            left = "The rest was not tried. Run the migration again when it is mended."
            self.intake.add_problem(None, None, f"{reason} {left}")

    async def estimate(self) -> EmbeddingEstimate:
        """What embedding it would take."""
        return await self.intake.estimate(self._batches())

    async def _batches(self) -> AsyncGenerator[Sequence[Incoming]]:
        """Everything that can be read, in batches; what cannot is a problem. Holds the texts of one batch."""
        core = self.intake.core
        settings = core.settings
        batch: list[Incoming] = []
        chars = 0
        async with aclosing(self._documents()) as documents:
            async for incoming in documents:
                length = len(incoming.request.request.content)
                if batch and (len(batch) >= settings.batch_documents or chars + length > settings.batch_chars):
                    yield batch
                    core.on_progress(Progress(done=min(self.seen, self.total), total=self.total))
                    batch, chars = [], 0
                batch.append(incoming)
                chars += length
        if batch:
            yield batch
        core.on_progress(Progress(done=self.total, total=self.total))

    async def _documents(self) -> AsyncGenerator[Incoming]:
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
            self.intake.add_problem(f"documents, _id {strange.shown_id}", strange.source_id, reason)
        for orphan in await self.foreign.find_orphaned_chunks():
            reason = f"{_count(orphan.chunks, 'chunk')} of no document that can be read. Store the whole text anew."
            self.intake.add_problem(f"chunks, documentId {orphan.shown_id or 'missing'}", orphan.source_id, reason)

    async def _read(self, row: ForeignRow, shared: Mapping[str, Sequence[str]]) -> Incoming | None:
        place = f"documents, _id {row.document_id}"
        named = row.fields.get("sourceId")
        source_id = named if isinstance(named, str) else None
        if source_id is not None and len(same := shared.get(source_id, ())) > 1:
            others = ", ".join(one for one in same if one != row.document_id)
            reason = f"has the same sourceId as {others}. Delete there all but one, then run the migration again."
            self.intake.add_problem(place, source_id, reason)
            return None
        try:
            return Incoming(place=place, request=read_document(row, await self.foreign.read_content(row.document_id)))
        except ValidationError as error:
            self.intake.add_problem(place, source_id, error.message)
            return None

    def report(self, *, estimate: EmbeddingEstimate | None = None, refusal: str | None = None) -> MigrationReport:
        """What is known at the end; with an estimate nothing was done."""
        return MigrationReport(
            program=self.options.program,
            database=self.options.database,
            documents=self.seen,
            created=self.intake.created,
            unchanged=self.intake.unchanged,
            chunks=self.intake.chunks,
            tokens=self.intake.tokens,
            texts=self.intake.texts,
            problems=tuple(self.intake.problems),
            dry_run=estimate is not None,
            estimate=estimate,
            refusal=refusal,
        )


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 'S' if word.isupper() else 's'}"
