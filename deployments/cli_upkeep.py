"""The commands that keep a memory in order: services, versions, trash, spaces. In: a command line. Out: no rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deployments.cli_app import start_command, with_core
from deployments.cli_options import CostOption, JsonOption
from deployments.services import Service
from memory_core.migrate_ports import ForeignProgram

upkeep = typer.Typer()


@upkeep.command()
def up(*, as_json: JsonOption = False) -> None:
    """Start everything on this machine and keep it running until Ctrl-C, which loses nothing."""
    from deployments.cli_services import keep_services_up

    raise typer.Exit(keep_services_up(start_command(), as_json=as_json))


@upkeep.command()
def down(
    *,
    force: Annotated[bool, typer.Option(help="Stop although other commands use the services.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the local services now instead of when they have been idle."""
    from deployments.cli_services import stop_services

    raise typer.Exit(stop_services(start_command(), force=force, as_json=as_json))


@upkeep.command()
def doctor(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also read every text and compare it with its hash.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --repair: only show what would be mended.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show versions, services and counts, and what is wrong and how to mend it."""
    from deployments.cli_repair import read_doctor
    from deployments.cli_services import examine

    options = read_doctor(deep=deep, repair=repair, dry_run=dry_run)
    raise typer.Exit(examine(start_command(), with_core, options, as_json=as_json))


@upkeep.command()
def reembed(
    source: Annotated[list[str] | None, typer.Option(help="Only this source id; repeat for more.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many documents in this run.")] = None,
    *,
    rechunk: Annotated[bool, typer.Option("--rechunk", help="Also cut anew what is cut otherwise by now.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Use the new space for queries at once.")] = False,
    activate: Annotated[bool, typer.Option("--activate", help="Only use the new space, if all is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    max_cost: CostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Embed again what is of another embedding model than the settings name, or has an old context."""
    from deployments.cli_reembed import read_options, reembed_stored
    from deployments.console import show_progress

    settings = start_command()
    options = read_options(tuple(source or ()), limit, rechunk=rechunk, now=now, activate=activate)
    with show_progress() as listen:
        run = with_core(
            settings,
            lambda core: reembed_stored(core, options, dry_run=dry_run, max_cost=max_cost),
            needs=frozenset(Service),
            on_progress=listen,
        )
    raise typer.Exit(run.show(as_json=as_json))


@upkeep.command()
def migrate(
    program: Annotated[
        ForeignProgram | None, typer.Option("--from", help="Instead: bring over the memory of that program.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="With --from: its database.")] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="With --from: really do it; else it is only shown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed, and its cost.")] = False,
    max_cost: CostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a database that an older version of this program made up to date, or another program's memory over."""
    from deployments.cli_migrate import migrate_from, migrate_schema, open_source, read_migration
    from deployments.console import show_progress

    settings = start_command()
    options = read_migration(program, database, dry_run=dry_run, max_cost=max_cost, yes=yes)
    if options is None:
        with_core(settings, lambda core: migrate_schema(core, dry_run=dry_run)).show(as_json=as_json)
        return
    with show_progress("Migrating") as listen, open_source(settings, options.database) as foreign:
        run = with_core(settings, lambda core: migrate_from(core, foreign, options, yes=yes), on_progress=listen)
    raise typer.Exit(run.show(as_json=as_json))


@upkeep.command()
def log(
    source_id: Annotated[str, typer.Argument(help="A source id or a document id.")], *, as_json: JsonOption = False
) -> None:
    """Show the kept versions of a document: who stored each, when and how."""
    from deployments.cli_history import read_log

    with_core(start_command(), lambda core: read_log(core, source_id)).show(as_json=as_json)


@upkeep.command()
def diff(
    source_id: Annotated[str, typer.Argument(help="A source id or a document id.")],
    old: Annotated[int, typer.Argument(min=1, help="A kept version.")],
    new: Annotated[int, typer.Argument(min=1, help="Another one.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Print a unified diff between two versions of a document."""
    from deployments.cli_history import diff_versions

    with_core(start_command(), lambda core: diff_versions(core, source_id, old, new)).show(as_json=as_json)


@upkeep.command()
def delete(
    source_id: Annotated[list[str] | None, typer.Argument(help="The sources to delete.")] = None,
    document_id: Annotated[str | None, typer.Option("--id", help="Instead: the document with this id.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Instead: all with this tag; repeat for all of them.")] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete documents. Their texts stay in the trash for MEMORY_TRASH_DAYS."""
    from deployments.cli_content import delete_selected

    chosen = tuple(source_id or ()), tuple(one.strip().lower() for one in tag or ())
    result = with_core(
        start_command(),
        lambda core: delete_selected(
            core, source_ids=chosen[0], document_id=document_id, tags=chosen[1], dry_run=dry_run
        ),
    )
    raise typer.Exit(result.show(as_json=as_json))


@upkeep.command()
def trash(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many documents.")] = 50,
    *,
    as_json: JsonOption = False,
) -> None:
    """List what was deleted and can be restored, the last deleted first."""
    from deployments.cli_history import list_trash

    with_core(start_command(), lambda core: list_trash(core, limit)).show(as_json=as_json)


@upkeep.command()
def restore(
    source_id: Annotated[str, typer.Argument(help="A source id or a document id in the trash.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Bring a deleted document back as it was, with its versions."""
    from deployments.cli_history import restore_source

    outcome = with_core(start_command(), lambda core: restore_source(core, source_id))
    raise typer.Exit(outcome.show(as_json=as_json))


@upkeep.command()
def purge(
    source_id: Annotated[str, typer.Argument(help="A source id or a document id, deleted or not.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Really do it: it cannot be undone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove every trace of a document: versions, trash, submissions, search indexes, its runs."""
    from deployments.cli_history import purge_source

    run = with_core(
        start_command(),
        lambda core: purge_source(core, source_id, dry_run=dry_run, confirmed=yes),
        needs=frozenset({Service.MONGODB} if dry_run or not yes else Service),
    )
    raise typer.Exit(run.show(as_json=as_json))


@upkeep.command()
def export(
    directory: Annotated[Path, typer.Argument(help="A new or empty directory, or that of an unfinished export.")],
    *,
    vectors: Annotated[bool, typer.Option("--vectors", help="With vectors: an import then embeds nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy everything stored into a directory. An export that was killed goes on where it was."""
    from deployments.cli_transfer import export_to
    from deployments.console import show_progress

    settings = start_command()
    with show_progress("Exporting") as listen:
        run = with_core(settings, lambda core: export_to(core, directory, with_vectors=vectors), on_progress=listen)
    raise typer.Exit(run.show(as_json=as_json))


@upkeep.command("import")
def import_command(
    directory: Annotated[Path, typer.Argument(help="The directory of an export.")],
    *,
    no_vectors: Annotated[bool, typer.Option("--no-vectors", help="Embed anew although vectors are there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and its cost.")] = False,
    max_cost: CostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store what an export holds, as it was. What is there already is left as it is."""
    from deployments.cli_transfer import import_from
    from deployments.console import show_progress
    from memory_core.transfer_values import ImportOptions

    settings = start_command()
    options = ImportOptions(dry_run=dry_run, max_cost=max_cost, use_vectors=not no_vectors)
    with show_progress("Importing") as listen:
        run = with_core(settings, lambda core: import_from(core, directory, options), on_progress=listen)
    raise typer.Exit(run.show(as_json=as_json))
