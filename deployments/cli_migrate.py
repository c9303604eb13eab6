"""`memory migrate`. In: a core, and another program's memory. Out: what was or would be changed, to show; no rules."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.text import Text

from deployments.cli_transfer import EXIT_FAILED, tell_problems
from deployments.console import out, print_json, tell
from deployments.services import Service, acquire
from deployments.visible_text import visible_line
from memory_core.bootstrap import open_foreign_memory
from memory_core.errors import ConfigError, ValidationError
from memory_core.migrate import MigrationOptions, MigrationReport, check_source, migrate_memory
from memory_core.migrate_ports import ForeignMemory, ForeignProgram
from memory_core.ports import Core
from memory_core.settings import Settings
from memory_core.store_ports import SchemaChange


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRun:
    """What became of the database's schema."""

    change: SchemaChange

    def show(self, *, as_json: bool) -> None:
        """Print one line a step."""
        change = self.change
        if as_json:
            print_json(_as_json(change))
            return
        if change.before is None:
            out.print(f"Nothing is stored yet: a new database starts with schema {change.after}.")
            return
        if change.before == change.after:
            out.print(f"The database has schema {change.after}: there is nothing to do.")
            return
        verb = "would become" if change.dry_run else "is now"
        out.print(f"The database of schema {change.before} {verb} one of schema {change.after}.")
        for step in change.steps:
            out.print(f"  {step.number}: {step.name}", markup=False)


def _as_json(change: SchemaChange) -> dict[str, object]:
    return {
        "schemaBefore": change.before,
        "schemaAfter": change.after,
        "steps": [{"number": step.number, "name": step.name} for step in change.steps],
        "dryRun": change.dry_run,
    }


async def migrate_schema(core: Core, *, dry_run: bool) -> SchemaRun:
    """Bring the database to the schema of this program.

    Raises:
        ForeignDatabaseError: it is not ours, or of a newer program.
    """
    return SchemaRun(change=await core.store.migrate(dry_run=dry_run))


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRun:
    """What a migration did or would do. Without `confirmed` nothing was done although no dry run was asked for."""

    report: MigrationReport
    confirmed: bool

    def show(self, *, as_json: bool) -> int:
        """Print it. 1 where something of the source is not here, or nothing was done for want of --yes."""
        report = self.report
        if as_json:
            print_json(report.to_json())
        else:
            out.print(Text(visible_line(report.describe())))
            tell_problems(report.problems, word="problem")
        if report.refusal:
            tell(f"memory: {report.refusal}")
        elif not self.confirmed:
            tell("memory: nothing was stored. Run it again with --yes to do it.")
        return 0 if report.is_complete and self.confirmed else EXIT_FAILED


def read_migration(
    program: ForeignProgram | None, database: str | None, *, dry_run: bool, max_cost: float | None, yes: bool
) -> MigrationOptions | None:
    """The options of `--from`; None where it is not there.

    Raises:
        ValidationError: an option lacks the other that it belongs to.
    """
    if program is None:
        if database is not None or max_cost is not None or yes:
            raise ValidationError("--database, --max-cost and --yes belong to --from. Give it too, or leave them out.")
        return None
    if database is None:
        raise ValidationError("--from needs --database: the name of the database to read.")
    return MigrationOptions(program=program, database=database, dry_run=dry_run, max_cost=max_cost)


@contextmanager
def open_source(settings: Settings, database: str) -> Generator[ForeignMemory]:
    """The source while it is read. In the MongoDB that is started here, this opens that database to its user.

    Raises:
        ValidationError: the name is none, or the memory's own.
        ConfigError: no address is known, or one cannot be understood.
    """
    check_source(database, settings)
    if settings.migrate_mongodb_uri:
        uri = settings.migrate_mongodb_uri.get_secret_value()
        yield open_foreign_memory(settings, database=database, mongodb_uri=uri)
        return
    there = settings.model_copy(update={"mongodb_db_name": database})
    with acquire(there, frozenset({Service.MONGODB}), on_progress=tell) as lease:
        if lease.addresses.mongodb_uri is None:
            raise ConfigError("No MongoDB is known. Set MIGRATE_MONGODB_URI to where the source is.")
        uri = lease.addresses.mongodb_uri.get_secret_value()
        yield open_foreign_memory(settings, database=database, mongodb_uri=uri)


async def migrate_from(core: Core, foreign: ForeignMemory, options: MigrationOptions, *, yes: bool) -> MigrationRun:
    """Bring the memory of another program over; without `yes` only show what that would be, and its cost."""
    only_shown = options.dry_run or not yes
    try:
        report = await migrate_memory(foreign, core=core, options=replace(options, dry_run=only_shown))
    finally:
        await foreign.close()
    return MigrationRun(report=report, confirmed=yes or options.dry_run)
