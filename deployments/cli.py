"""The `memory` command: what goes in and what comes out. In: a command line. Out: an answer, an honest exit code.

The exit codes stand in `cli_app`, the commands that keep a memory in order in `cli_upkeep`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deployments.cli_app import app, run_app, start_command, with_core
from deployments.cli_options import CostOption, JsonOption
from deployments.cli_upkeep import upkeep
from deployments.services import Service
from memory_core.answers import SearchMode
from memory_core.models import ContentType

app.add_typer(upkeep)


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

    settings = start_command()
    check_directory(path)
    chosen = (path, feed, tuple(include or ()), tuple(exclude or ()))
    with show_progress() as listen:
        run = with_core(
            settings,
            lambda core: ingest_directory(core, *chosen, confirm=confirm, dry_run=dry_run, max_cost=max_cost),
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

    settings = start_command()
    request = read_request(
        file,
        {"sourceId": source_id, "title": title, "uri": uri, "contentType": content_type, "tags": tag},
        metadata=metadata,
    )
    outcome = with_core(settings, lambda core: store_request(core, request), needs=frozenset(Service))
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
    from memory_core.answers import SearchFilters
    from memory_core.search import search_knowledge
    from memory_core.wire import answer_json

    filters = SearchFilters(
        source_ids=tuple(source_id or ()),
        tags=tuple(one.strip().lower() for one in tag or ()),
        content_types=tuple(content_type or ()),
    )
    answer = with_core(
        start_command(),
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

    settings = start_command()
    cuts, lines = parse_cuts(k, settings), read_questions(questions)
    run = with_core(settings, lambda core: evaluate_file(core, lines, cuts=cuts, modes=tuple(mode or ())))
    run.show(as_json=as_json)


@app.command("list")
def list_command(
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many documents.")] = 50,
    offset: Annotated[int, typer.Option(min=0, max=10_000_000, help="How many to pass over.")] = 0,
    after: Annotated[str | None, typer.Option(help="Start behind this cursor of an earlier page.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only documents with this tag.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List what is stored, the newest first."""
    from deployments.console import print_json, print_listing
    from memory_core.store_ports import ListQuery
    from memory_core.wire import listing_json

    wanted = ListQuery(limit=limit, offset=offset, after=after, tag=tag.strip().lower() if tag else None)
    listing = with_core(start_command(), lambda core: core.store.list_sources(wanted))
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

    document, content = with_core(start_command(), lambda core: read_stored(core, source_id, version))
    if as_json:
        print_json(document_json(document, content))
    else:
        print_text(content)


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

    run = chunk_file(start_command(), file, content_type=content_type, size=size, overlap=overlap, minimum=minimum)
    run.show(as_json=as_json)


def main() -> None:
    """Run the command line and leave with an honest exit code."""
    run_app()


if __name__ == "__main__":
    main()
