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
from memory_core.answers import Hit, SearchAnswer, SourceListing
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkOptions, readable_text
from memory_core.identity import shorten
from memory_core.ports import Progress
from memory_core.sync.values import FileOutcome, SyncReport
from memory_core.work_ports import Feed

_PASSAGE_CHARS = 480
_NAMED_FILES = 10
_PREVIEW_LINES = 4
_PREVIEW_LINE_CHARS = 100
_CHUNK_INDENT = " " * 6
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
def show_progress(verb: str = "Storing") -> Generator[Callable[[Progress], None]]:
    """A bar over documents, with the sentences of the run above it."""
    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
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
        reused = f"; {report.vectors_reused:,} vectors found again" if report.vectors_reused else ""
        out.print(f"{report.chunks:,} chunks written, {report.tokens_embedded:,} tokens embedded{reused}.")
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
    if row.lead:
        out.print(Text(f"   lead: {_clip(row.lead)}", style="yellow"))
    passage = " … ".join(hit.highlights) or row.text
    out.print(Text("   " + visible(shorten(" ".join(passage.split()), _PASSAGE_CHARS))))


def print_listing(listing: SourceListing) -> None:
    """One page of stored documents as a table."""
    total = f"{listing.total}{'' if listing.total_is_exact else '+'}"
    if not listing.sources:
        where = "behind this cursor" if listing.offset is None else f"at offset {listing.offset}"
        past = listing.offset != 0 and listing.total > 0
        out.print(f"Nothing {where}; there are {total} in all." if past else "Nothing is stored that fits.")
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
    shown = len(listing.sources)
    place = str(shown) if listing.offset is None else f"{listing.offset + 1} to {listing.offset + shown}"
    more = f"; --after {listing.next_cursor} shows the next" if listing.next_cursor else ""
    out.print(f"{place} of {total}{more}.")


def print_chunks(result: ChunkingResult, content: str, *, name: str, options: ChunkOptions) -> None:
    """How a file was cut, and each chunk with its place, its path and its first lines."""
    _print_cut(result, content, name=name, options=options)
    line, counted = 1, 0
    for chunk in result.chunks:
        line += content.count("\n", counted, chunk.char_start)
        counted = chunk.char_start
        out.print()
        _print_chunk(chunk, first_line=line)


def _print_cut(result: ChunkingResult, content: str, *, name: str, options: ChunkOptions) -> None:
    stats, sizes = result.stats, [chunk.token_count for chunk in result.chunks]
    mean = sum(sizes) / len(sizes)
    chunks = f"{len(sizes):,} chunk{'' if len(sizes) == 1 else 's'}"
    out.print(Text(f"{visible_line(name)}: {result.strategy}, {chunks}, {stats.total_tokens:,} tokens", style="bold"))
    out.print(
        f"{_CHUNK_INDENT}tokens a chunk: {min(sizes):,} least, {mean:,.0f} mean, {max(sizes):,} most "
        f"(size {options.size:,}, overlap {options.overlap:,}, minimum {options.minimum:,})"
    )
    line_count = content.removesuffix("\n").count("\n") + 1
    text = f"{stats.input_chars:,} characters in {line_count:,} lines"
    merged = f"; small pieces merged: {stats.merged_count:,}" if stats.merged_count else ""
    cut = f"; cuts inside a character of several signs: {stats.cluster_cuts:,}" if stats.cluster_cuts else ""
    out.print(f"{_CHUNK_INDENT}{text}{merged}{cut}")


def _print_chunk(chunk: Chunk, *, first_line: int) -> None:
    last_line = first_line + chunk.text.count("\n")
    lines = f"line {first_line:,}" if last_line == first_line else f"lines {first_line:,} to {last_line:,}"
    place = f"characters {chunk.char_start:,} to {chunk.char_end:,}"
    out.print(Text(f"{f'[{chunk.index}]':<5} {chunk.token_count:,} tokens  {lines}  {place}", style="cyan"))
    if chunk.heading_path:
        out.print(Text(f"{_CHUNK_INDENT}path: {visible_line(' > '.join(chunk.heading_path))}", style="green"))
    if chunk.lead:
        out.print(Text(f"{_CHUNK_INDENT}lead: {_clip(chunk.lead)}", style="yellow"))
    if chunk.readable not in {None, chunk.text}:
        reads = _clip(readable_text(chunk)) or "nothing, so it is never a hit"
        out.print(Text(f"{_CHUNK_INDENT}reads: {reads}", style="yellow"))
    _print_first_lines(chunk.text)


def _print_first_lines(text: str) -> None:
    shown = text.split("\n", _PREVIEW_LINES)[:_PREVIEW_LINES]
    for line in shown:
        out.print(Text(f"{_CHUNK_INDENT}| {_clip_line(line)}".rstrip()))
    if more := text.count("\n") + 1 - len(shown):
        out.print(Text(f"{_CHUNK_INDENT}| … {more:,} more line{'' if more == 1 else 's'}", style="dim"))


def _clip(text: str) -> str:
    """The beginning of a text, on one line."""
    return _clip_line(" ".join(text.split()))


def _clip_line(line: str) -> str:
    return visible(line if len(line) <= _PREVIEW_LINE_CHARS else line[:_PREVIEW_LINE_CHARS] + "…")
