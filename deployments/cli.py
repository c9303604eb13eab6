"""The `memory` command. In: a command line. Out: an answer on standard output and an honest exit code.

0: done. 1: something failed. 2: the command, a setting or an argument is wrong, and nothing was changed. Errors are one
sentence on standard error; a traceback goes to the log file below MEMORY_HOME only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import structlog
import typer

from deployments.cli_options import CostOption, JsonOption
from deployments.log_lines import configure_log_lines, drop_log_lines, open_log_file
from deployments.services import Lease, Service, acquire
from deployments.visible_text import visible
from memory_core.errors import AgentMemoryError, ConfigError, ValidationError, scrub
from memory_core.models import ContentType, SearchMode
from memory_core.ports import Core, Progress, ignore_progress
from memory_core.settings import Settings, load_settings

app = typer.Typer(
    name="memory",
    help="A durable memory for AI agents: store, keep directories in sync, search with the exact place.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_LAST_MESSAGES_SECONDS = 5.0
_WATCH_SECONDS = 0.5

_T = TypeVar("_T")


def main() -> None:
    """Run the command line and leave with an honest exit code."""
    code = _run()
    if "prefect" in sys.modules:
        _bound_the_end(code)
        sys.exit(code)  # Prefect sends its last log lines and events when the interpreter ends
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = EXIT_FAILED
    # Everything is closed. Waiting for the driver's sleeping threads would add up to 0.5 s to every command.
    os._exit(code)


def _bound_the_end(code: int) -> None:
    """Give Prefect's last messages a few seconds: where its server is gone, each would be tried for as long."""
    logging.disable(logging.CRITICAL)  # the command has said what happened; what Prefect's threads say now helps nobody
    end = threading.Timer(_LAST_MESSAGES_SECONDS, os._exit, args=(code,))
    end.daemon = True
    end.start()


def _run() -> int:
    """Run the command and turn what was raised into one sentence and an exit code."""
    drop_log_lines()
    try:
        app()
    except SystemExit as done:
        # Typer makes this code of a KeyboardInterrupt, and says nothing.
        return _say_interrupted() if done.code == EXIT_INTERRUPTED else _read_code(done)
    except KeyboardInterrupt:
        return _say_interrupted()
    except (ConfigError, ValidationError) as error:
        _complain(error.message)
        structlog.get_logger(__name__).warning(error.event, error=error.message)
        return EXIT_USAGE
    except AgentMemoryError as error:
        _complain(error.message)
        structlog.get_logger(__name__).error(error.event, error=error.message, cause=error.cause)
    except BrokenPipeError:
        pass  # whoever read the answer has left; there is nobody to tell
    except Exception as error:  # noqa: BLE001 - the last resort of a program that people use: one sentence, no traceback
        trace = scrub("".join(traceback.format_exception(error)))
        structlog.get_logger(__name__).error("internal.error", traceback=trace)
        _complain(f"{type(error).__name__}: this is a defect. The log below MEMORY_HOME/logs has what to report.")
    return EXIT_FAILED


def _read_code(done: SystemExit) -> int:
    return done.code if isinstance(done.code, int) else EXIT_FAILED if done.code else 0


def _say_interrupted() -> int:
    _complain("Interrupted. What was stored stays stored; run the same command again to go on.")
    return EXIT_INTERRUPTED


def _complain(message: str) -> None:
    sys.stderr.write(f"memory: {visible(message)}\n")


def _start() -> Settings:
    settings = load_settings(env_file=Path(".env"))
    configure_log_lines(settings, open_log_file(settings))
    return settings


def _with_core(
    settings: Settings,
    work: Callable[[Core], Awaitable[_T]],
    *,
    needs: frozenset[Service] = frozenset({Service.MONGODB}),
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> _T:
    """Hold what the work needs, wire a core, do the work. Another command at the same time shares the services."""
    from deployments.console import tell
    from memory_core.bootstrap import build_core, share_core

    with acquire(settings, needs, on_progress=tell) as lease:
        if Service.PREFECT in needs:
            from deployments.submit import prepare_prefect

            prepare_prefect(settings, lease.addresses)
        uri = lease.addresses.mongodb_uri
        if uri is None:
            raise ConfigError("No MongoDB is known. Set MONGODB_URI, or unset it to have one started here.")
        core = build_core(settings, mongodb_uri=uri.get_secret_value(), on_progress=on_progress)
        share_core(core)

        async def run() -> _T:
            watch = asyncio.create_task(_watch(lease)) if lease.is_held else None
            try:
                return await work(core)
            finally:
                if watch:
                    watch.cancel()
                await core.close()

        return asyncio.run(run())


async def _watch(lease: Lease) -> None:
    """End the command when its services are gone: Prefect's client would go on asking for minutes.

    As safe as a kill at that moment, which loses nothing that was stored.
    """
    while lease.is_held:  # noqa: ASYNC110 - the end of another process is no event of this loop
        await asyncio.sleep(_WATCH_SECONDS)
    _complain("The local services ended. Run the same command again: what was stored stays stored.")
    os._exit(EXIT_FAILED)


@app.command()
def up(*, as_json: JsonOption = False) -> None:
    """Start everything on this machine and keep it running until Ctrl-C, which loses nothing."""
    from deployments.cli_services import keep_services_up

    raise typer.Exit(keep_services_up(_start(), as_json=as_json))


@app.command()
def down(
    *,
    force: Annotated[bool, typer.Option(help="Stop although other commands use the services.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the local services now instead of when they have been idle."""
    from deployments.cli_services import stop_services

    raise typer.Exit(stop_services(_start(), force=force, as_json=as_json))


@app.command()
def doctor(*, as_json: JsonOption = False) -> None:
    """Show versions, services and counts, and what is wrong and how to mend it."""
    from deployments.cli_services import examine

    raise typer.Exit(examine(_start(), _with_core, as_json=as_json))


@app.command()
def ingest(
    path: Annotated[Path, typer.Argument(help="The directory to keep in sync.")],
    feed: Annotated[str | None, typer.Option(help="A name for the directory; else its own.")] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only files that match this glob (kept for later runs); repeat for more.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No files that match this glob (kept for later runs); repeat for more.")
    ] = None,
    confirm: Annotated[str | None, typer.Option(help="The id of a plan whose many deletions you agree to.")] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and its cost.")] = False,
    max_cost: CostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the memory equal to a directory: store new files, update changed ones, delete what is gone."""
    from deployments.cli_ingest import check_directory, ingest_directory
    from deployments.console import show_progress

    settings = _start()
    check_directory(path)
    chosen = (path, feed, tuple(include or ()), tuple(exclude or ()))
    with show_progress() as listen:
        run = _with_core(
            settings,
            lambda core: ingest_directory(core, *chosen, confirm=confirm, dry_run=dry_run, max_cost=max_cost),
            needs=frozenset(Service),
            on_progress=listen,
        )
    raise typer.Exit(run.show(as_json=as_json))


@app.command()
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

    settings = _start()
    options = read_options(tuple(source or ()), limit, rechunk=rechunk, now=now, activate=activate)
    with show_progress() as listen:
        run = _with_core(
            settings,
            lambda core: reembed_stored(core, options, dry_run=dry_run, max_cost=max_cost),
            needs=frozenset(Service),
            on_progress=listen,
        )
    raise typer.Exit(run.show(as_json=as_json))


@app.command()
def store(
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.")],
    source_id: Annotated[str | None, typer.Option(help="A stable id of your own; else it is derived.")] = None,
    title: Annotated[str | None, typer.Option(help="A title; else it is taken from the text.")] = None,
    uri: Annotated[str | None, typer.Option(help="Where the content comes from.")] = None,
    content_type: Annotated[str | None, typer.Option(help="markdown, text, code, html, json, rst or csv.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; repeat for more.")] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Store one text. The same text again changes nothing."""
    from deployments.cli_content import read_request, store_request

    settings = _start()
    request = read_request(
        file,
        {"sourceId": source_id, "title": title, "uri": uri, "contentType": content_type, "tags": tag},
        metadata=metadata,
    )
    outcome = _with_core(settings, lambda core: store_request(core, request), needs=frozenset(Service))
    raise typer.Exit(outcome.show(as_json=as_json))


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know.")],
    limit: Annotated[int | None, typer.Option(help="How many hits.")] = None,
    mode: Annotated[SearchMode | None, typer.Option(help="Which legs rank the chunks.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only documents with all of these tags.")] = None,
    source_id: Annotated[list[str] | None, typer.Option(help="Only these sources.")] = None,
    content_type: Annotated[list[ContentType] | None, typer.Option(help="Only these types.")] = None,
    min_score: Annotated[float | None, typer.Option(help="Drop hits below this score.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Find what answers a question, with the exact place that it came from."""
    from deployments.console import print_answer, print_json
    from memory_core.models import SearchFilters
    from memory_core.search import search_knowledge
    from memory_core.wire import answer_json

    filters = SearchFilters(
        source_ids=tuple(source_id or ()),
        tags=tuple(one.strip().lower() for one in tag or ()),
        content_types=tuple(content_type or ()),
    )
    answer = _with_core(
        _start(),
        lambda core: search_knowledge(query, core=core, mode=mode, filters=filters, limit=limit, min_score=min_score),
    )
    if as_json:
        print_json(answer_json(answer))
    else:
        print_answer(answer)


@app.command("eval")
def eval_command(
    questions: Annotated[Path, typer.Argument(metavar="QUESTIONS_FILE", help="JSON Lines: docs/evaluation.md.")],
    k: Annotated[str, typer.Option(help="Judge the first so many hits; numbers with commas.")] = "5,10,20",
    mode: Annotated[list[SearchMode] | None, typer.Option(help="Which legs rank; repeat to compare.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Measure how well questions find what is known to answer them."""
    from deployments.cli_eval import evaluate_file, parse_cuts, read_questions

    settings = _start()
    cuts, lines = parse_cuts(k, settings), read_questions(questions)
    run = _with_core(settings, lambda core: evaluate_file(core, lines, cuts=cuts, modes=tuple(mode or ())))
    run.show(as_json=as_json)


@app.command("list")
def list_command(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many documents.")] = 50,
    offset: Annotated[int, typer.Option(min=0, max=10_000_000, help="How many to pass over.")] = 0,
    tag: Annotated[str | None, typer.Option(help="Only documents with this tag.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List what is stored, the newest first."""
    from deployments.console import print_json, print_listing
    from memory_core.ports import ListQuery
    from memory_core.wire import listing_json

    wanted = ListQuery(limit=limit, offset=offset, tag=tag.strip().lower() if tag else None)
    listing = _with_core(_start(), lambda core: core.store.list_sources(wanted))
    if as_json:
        print_json(listing_json(listing))
    else:
        print_listing(listing)


@app.command()
def get(
    source_id: Annotated[str, typer.Argument(help="A source id or a document id.")],
    version: Annotated[int | None, typer.Option(min=1, help="An earlier version.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Print a stored document's text."""
    from deployments.cli_content import read_stored
    from deployments.console import print_json, print_text
    from memory_core.wire import document_json

    document, content = _with_core(_start(), lambda core: read_stored(core, source_id, version))
    if as_json:
        print_json(document_json(document, content))
    else:
        print_text(content)


@app.command()
def delete(
    source_id: Annotated[str, typer.Argument(help="The source to delete.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a document. Its text stays in the trash for MEMORY_TRASH_DAYS."""
    from deployments.cli_content import delete_source

    settings = _start()
    result = _with_core(settings, lambda core: delete_source(core, source_id, dry_run=dry_run))
    raise typer.Exit(result.show(settings, as_json=as_json))


@app.command()
def chunk(
    file: Annotated[Path, typer.Argument(help="The file to cut.")],
    content_type: Annotated[str | None, typer.Option(help="Else it follows from the file's name.")] = None,
    size: Annotated[int | None, typer.Option(help="Ceiling of a chunk in tokens.")] = None,
    overlap: Annotated[int | None, typer.Option(help="Tokens that neighbouring chunks share.")] = None,
    minimum: Annotated[int | None, typer.Option("--min", help="Smaller chunks are merged where possible.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show how a file is cut into chunks. Touches no service."""
    from deployments.cli_content import chunk_file

    run = chunk_file(_start(), file, content_type=content_type, size=size, overlap=overlap, minimum=minimum)
    run.show(as_json=as_json)


if __name__ == "__main__":
    main()
