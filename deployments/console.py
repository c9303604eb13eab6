"""What the command line shows a person. In: our values. Out: text on a terminal; stored text is hostile until escaped.

Answers go to standard output, everything else (progress, errors) to standard error, so that `--json` can be piped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from deployments.visible_text import visible, visible_json, visible_line
from memory_core.identity import shorten
from memory_core.models import ChunkingResult, Hit, SearchAnswer, SourceListing
from memory_core.ports import Feed, Progress
from memory_core.sync.values import FileOutcome, SyncReport

_PASSAGE_CHARS = 480
_NAMED_FILES = 10
_CHUNK_PREVIEW_CHARS = 200
# Through a pipe a row of a table is one line, however long: a program reads it.
_PIPE_WIDTH_CHARS = 2_000

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH_CHARS)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:  # a narrow terminal, or a file name that is no text: JSON has escapes for both
        text = json.dumps(value, indent=2, default=str)
    sys.stdout.write((visible_json(text) if sys.stdout.isatty() else text) + "\n")


def print_text(text: str) -> None:
    """A stored text: harmless on a terminal, and exactly as it was stored through a pipe or into a file."""
    if sys.stdout.isatty():
        out.print(Text(visible(text)), end="" if text.endswith("\n") else "\n")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8"))


def tell(text: str) -> None:
    """A sentence for the person who waits, on standard error."""
    err.print(Text(visible(text)))


@contextmanager
def show_progress() -> Generator[Callable[[Progress], None]]:
    """A bar over documents, with the sentences of the run above it."""
    columns = (TextColumn("Storing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=err, transient=False) as bar:
        task = bar.add_task("store", total=None, visible=False)

        def listen(progress: Progress) -> None:
            if progress.message:
                bar.console.print(Text(visible(progress.message)))
            elif progress.total:
                bar.update(task, completed=progress.done, total=progress.total, visible=True)

        yield listen


def print_report(feed: Feed, report: SyncReport, *, completed: bool) -> None:
    """The summary of a directory run."""
    counts = report.to_json()
    words = [f"{counts[name]} {word}" for name, word in _REPORT_WORDS.items() if counts[name]]
    out.print(
        Text(f"Feed {visible_line(feed.name)}: {', '.join(words) or 'nothing to do'}, in {report.seconds:.1f} s.")
    )
    for kind, globs in (("only files that match", feed.include), ("no files that match", feed.exclude)):
        if globs:
            out.print(Text(f"  {kind}: {visible_line(', '.join(globs))} (kept for the next runs of this directory)"))
    if completed and counts["unchanged"] and len(words) == 1:
        out.print("Everything is unchanged; nothing was embedded.")
    elif report.chunks:
        out.print(f"{report.chunks:,} chunks written, {report.tokens_embedded:,} tokens embedded.")
    for outcome in (FileOutcome.FAILED, FileOutcome.QUARANTINED, FileOutcome.SKIPPED):
        told = [file for file in report.files if file.outcome is outcome]
        for file in told[:_NAMED_FILES]:
            out.print(Text(f"  {outcome.value}: {visible_line(file.path)}: {visible_line(file.error or '')}"))
        if len(told) > _NAMED_FILES:
            out.print(f"  {outcome.value}: and {len(told) - _NAMED_FILES} more (--json lists all)")


_REPORT_WORDS = {
    "created": "created",
    "updated": "updated",
    "attributesUpdated": "with new attributes",
    "unchanged": "unchanged",
    "deleted": "deleted",
    "skipped": "skipped",
    "failed": "FAILED",
}


def print_answer(answer: SearchAnswer) -> None:
    """Numbered hits with the place that each came from."""
    if answer.explanation:
        out.print(Text(visible(answer.explanation)))
    for number, hit in enumerate(answer.hits, start=1):
        out.print()
        _print_hit(number, hit)


def _print_hit(number: int, hit: Hit) -> None:
    row = hit.row
    legs = ", ".join(f"{name} #{rank}" for name, rank in (("vector", hit.vector_rank), ("text", hit.text_rank)) if rank)
    out.print(
        Text(f"{number}. {visible_line(row.title)}  ", style="bold").append(f"score {hit.score:.4f} ({legs})", "dim")
    )
    place = f"   {visible_line(row.source_id)}  characters {row.char_start:,} to {row.char_end:,}"
    out.print(Text(place, style="cyan"))
    if row.heading_path:
        out.print(Text("   " + visible_line(" > ".join(row.heading_path)), style="green"))
    passage = " … ".join(hit.highlights) or row.text
    out.print(Text("   " + visible(shorten(" ".join(passage.split()), _PASSAGE_CHARS))))


def print_listing(listing: SourceListing) -> None:
    """One page of stored documents as a table."""
    if not listing.sources:
        past = listing.offset > 0 and listing.total > 0
        out.print(
            f"Nothing at offset {listing.offset}; there are {listing.total} in all."
            if past
            else "Nothing is stored that fits."
        )
        return
    table = Table(box=None, pad_edge=False)
    for name in ("SOURCE ID", "TITLE", "TYPE", "CHUNKS", "VER", "TAGS", "UPDATED"):
        table.add_column(name, overflow="fold")
    for document in listing.sources:
        state = document.state
        cells = (
            state.source_id,
            state.attributes.title,
            state.attributes.content_type.value,
            str(state.tally.count),
            str(state.version),
            ", ".join(state.attributes.tags),
            state.updated_at.strftime("%Y-%m-%d %H:%M"),
        )
        table.add_row(*(Text(visible_line(cell)) for cell in cells))
    out.print(table)
    last = listing.offset + len(listing.sources)
    more = f"; --offset {last} shows the next" if last < listing.total else ""
    out.print(f"{listing.offset + 1} to {last} of {listing.total}{more}.")


def print_chunks(result: ChunkingResult) -> None:
    """The chunks of a file, each with its place."""
    stats = result.stats
    out.print(
        f"{result.strategy}: {stats.chunk_count} chunks, {stats.total_tokens:,} tokens, {stats.input_chars:,} chars"
    )
    for chunk in result.chunks:
        out.print()
        head = f"[{chunk.index}] {chunk.char_start:,} to {chunk.char_end:,}  {chunk.token_count} tokens"
        out.print(Text(head, style="cyan"))
        if chunk.heading_path:
            out.print(Text("    " + visible_line(" > ".join(chunk.heading_path)), style="green"))
        preview = chunk.text if len(chunk.text) <= _CHUNK_PREVIEW_CHARS else chunk.text[:_CHUNK_PREVIEW_CHARS] + "…"
        out.print(Text("    " + visible(preview).replace("\n", "\n    ")))
