"""What storing and listing cost on MongoDB. Usage: `make bench-persist`, about five minutes.

All on a MongoDB of this command's own, with the `hash` embedder and every other setting at its default.

* rows: chunk rows a second of the persist stage, against one bare `insert_many` (majority, journaled) of the same rows
  into a collection without indexes. The stage also writes documents and bodies, keeps the indexes, and compares and
  swaps. On the RFC corpus and on 1,000 documents of 2 chunks.
* unchanged: what is sent when the same text is stored again.
* edit: one paragraph of a document of 2,000 chunks is replaced: what is embedded, what is sent, and the time without
  the embed stage, against that of its first store.
* listing: the first page, the first page with a tag, and a document by its id, where 1,000 and where 100,000 documents
  are stored.
* large: a document of 16,000 chunks with vectors of 1,024 numbers: time, and what it needs of the server's cache.

What is compared runs in turns, and medians count. Prints a table, then one line a bar. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from chunk_texts import Text, find_corpora, read_rfcs
from embed_edits import find_paragraphs
from evaluate import forget_settings
from persist_listing import BY_ID, FIRST_PAGE, TAGGED_PAGE, fill, measure
from persist_measures import (
    StoreRun,
    embed_all,
    make_rows,
    open_place,
    store,
    time_bare,
    time_persist,
    watch_cache,
    watch_store,
)
from persist_wire import listen
from rich.console import Console
from rich.table import Table

from deployments.services import stop
from memory_core.models import Outcome
from memory_core.settings import load_settings

MIN_OVER_BARE = 0.5
MAX_UNCHANGED_TRIPS = 3
MAX_EDIT_EMBEDDED = MAX_EDIT_VECTORS = 5
MAX_EDIT_WRITES = 6
MAX_EDIT_OVER_FIRST = 0.2
MAX_LARGE_OVER_SMALL = 1.5
FEW, MANY = 1_000, 100_000
SMALL_DOCUMENTS = 1_000
EDITED_CHUNKS = 2_000
LARGE_CHUNKS, LARGE_DIMENSIONS, LARGE_CHUNK_TOKENS = 16_000, 1_024, 110
LARGE_CHARS = 4_900_000
PARTS = ("rows", "unchanged", "edit", "listing", "large")

_GAP = "\n\n"
_SEED = 5

Verdict = tuple[bool, str]


@dataclass(frozen=True, slots=True)
class Part:
    """What one part found: lines of the table (what, of, milliseconds, more), and its verdicts."""

    lines: Sequence[tuple[str, str, str, str]]
    verdicts: Sequence[Verdict]


def main() -> int:
    """Measure and print. Returns 1 where a bar is missed."""
    options = read_options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    forget_settings()
    rfcs = read_rfcs(find_corpora())
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        home = Path(folder)
        try:
            parts = asyncio.run(run_parts(options, rfcs, home))
        finally:
            stop(load_settings(MEMORY_HOME=home), force=True)
    report(parts)
    return 0 if all(met for part in parts for met, _ in part.verdicts) else 1


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--turns", type=int, default=5, help="turns of rows and edits, of which the median counts")
    parser.add_argument("--documents", type=int, default=MANY, help="documents of the larger listing")
    return parser.parse_args()


async def run_parts(options: argparse.Namespace, rfcs: Sequence[Text], home: Path) -> list[Part]:
    """Every part that was asked for, in the order of the docstring."""
    contents = [text.content for text in rfcs]
    parts: list[Part] = []
    if "rows" in options.only:
        parts.append(await judge_rows(f"RFC corpus, {len(contents)} documents", contents, home, turns=options.turns))
        small = make_small(contents, SMALL_DOCUMENTS)
        parts.append(await judge_rows(f"{len(small):,} documents of 2 chunks", small, home, turns=options.turns))
    if "unchanged" in options.only:
        parts.append(await judge_unchanged(contents, home))
    if "edit" in options.only:
        parts.append(await judge_edit(contents, home, turns=options.turns))
    if "listing" in options.only:
        parts.append(await judge_listing(home, many=options.documents))
    if "large" in options.only:
        parts.append(await judge_large(contents, home))
    return parts


def make_small(contents: Sequence[str], count: int) -> list[str]:
    """Documents of two sections, each with as many words of prose as fill most of a chunk."""
    generator = random.Random(_SEED)  # noqa: S311 - a seeded generator makes the same texts on every run
    words = [word for content in contents[:50] for word in content.split() if word.isalpha()]

    def section(name: str) -> str:
        start = generator.randrange(len(words) - 200)
        return f"## {name}\n\n{' '.join(words[start : start + 200])}."

    return [f"# Note {number}\n\n{section('What')}\n\n{section('Why')}\n" for number in range(count)]


async def judge_rows(name: str, contents: Sequence[str], home: Path, *, turns: int) -> Part:
    """The persist stage against the bare insert, each turn in a database of its own."""
    ours: list[float] = []
    bare: list[float] = []
    async with open_place(home, "rows") as place:
        embedded = await embed_all(contents, place.core)
        documents = make_rows(embedded, place.core)
    for turn in range(turns):
        async with open_place(home, f"rows_{turn}") as place:
            ours.append(await time_persist(embedded, place.core))
            bare.append(time_bare(documents, place.connection))
    mine, theirs = statistics.median(ours), statistics.median(bare)
    count, ratio = len(documents), theirs / mine
    return Part(
        lines=[
            (f"{name}: persist", f"{count:,} rows", to_ms(mine), f"{count / mine:,.0f} rows a second"),
            (f"{name}: bare insert_many", f"{count:,} rows", to_ms(theirs), f"{count / theirs:,.0f} rows a second"),
        ],
        verdicts=[(ratio >= MIN_OVER_BARE, f"rows, {name}: {ratio:.3f} times bare, at least {MIN_OVER_BARE}")],
    )


async def judge_unchanged(contents: Sequence[str], home: Path) -> Part:
    """What is sent for a document that is stored already, alone and in a batch."""
    lines: list[tuple[str, str, str, str]] = []
    verdicts: list[Verdict] = []
    async with open_place(home, "unchanged") as place:
        for count in (1, 32):
            await store(contents[:count], place.core, prefix=f"batch-{count}")
            with listen() as traffic:
                outcomes = await store(contents[:count], place.core, prefix=f"batch-{count}")
            assert {outcome.outcome for outcome in outcomes} == {Outcome.UNCHANGED}
            name = f"unchanged, {count} document{'s' * (count > 1)}"
            lines.append((name, f"{traffic.round_trips} round trips", "", ", ".join(traffic.names)))
            verdicts += [
                at_most(f"{name}: {traffic.round_trips} round trips", traffic.round_trips, MAX_UNCHANGED_TRIPS),
                at_most(f"{name}: {traffic.vectors_read} vectors read", traffic.vectors_read, 0),
            ]
    return Part(lines, verdicts)


async def judge_edit(contents: Sequence[str], home: Path, *, turns: int) -> Part:
    """First store and edit of one long document, each turn under another source id."""
    text, edited = make_edit(contents, EDITED_CHUNKS)
    runs: list[tuple[StoreRun, StoreRun]] = []
    async with open_place(home, "edit") as place:
        for turn in range(turns):
            first, edit = [await watch_store(one, place.core, prefix=f"long-{turn}") for one in (text, edited)]
            assert first.outcome.chunk_count >= EDITED_CHUNKS
            assert edit.outcome.outcome is Outcome.UPDATED
            runs.append((first, edit))
    first, edit = runs[-1]
    before = statistics.median(first.without_embedding for first, _ in runs)
    after = statistics.median(edit.without_embedding for _, edit in runs)
    persist_before = statistics.median(first.stages["persist"] for first, _ in runs)
    persist_after = statistics.median(edit.stages["persist"] for _, edit in runs)
    embedded, vectors, writes = edit.outcome.texts_embedded, edit.traffic.vectors_sent, edit.traffic.writes
    return Part(
        lines=[describe_run("first store", first), describe_run("edit", edit)],
        verdicts=[
            at_most(f"edit: {embedded} texts embedded", embedded, MAX_EDIT_EMBEDDED),
            at_most(f"edit: {vectors} vectors sent", vectors, MAX_EDIT_VECTORS),
            at_most(f"edit: {writes} write commands", writes, MAX_EDIT_WRITES),
            at_most(
                f"edit: {after / before:.3f} times the first store's time (its persist stage alone: "
                f"{persist_after / persist_before:.3f}), both without embedding",
                after / before,
                MAX_EDIT_OVER_FIRST,
            ),
        ],
    )


def make_edit(contents: Sequence[str], chunks: int) -> tuple[str, str]:
    """RFCs joined to about so many chunks at the default size, and the same with a paragraph in the middle replaced."""
    needed_chars = chunks * 1_150
    blocks = _GAP.join(contents)[:needed_chars].split(_GAP)
    prose = find_paragraphs(_GAP.join(blocks))
    strange = contents[-1].split(_GAP)
    replaced = list(blocks)
    replaced[prose[len(prose) // 2]] = strange[find_paragraphs(contents[-1])[0]]
    return _GAP.join(blocks), _GAP.join(replaced)


async def judge_listing(home: Path, *, many: int) -> Part:
    """The same calls on a small and on a large memory."""
    small = {"CHUNK_SIZE_TOKENS": 48, "CHUNK_MIN_TOKENS": 1, "EMBEDDING_DIMENSIONS": 16}
    async with open_place(home, "few", **small) as few_place, open_place(home, "many", **small) as many_place:
        found = await measure([await fill(few_place, FEW), await fill(many_place, many)])
    lines = [
        (name, f"{count:,} documents", f"{seconds * 1_000:.2f}", f"{slower / faster:.2f} times" * (count == many))
        for name, (faster, slower) in found.items()
        for count, seconds in ((FEW, faster), (many, slower))
    ]
    ratios = {name: slower / faster for name, (faster, slower) in found.items()}
    return Part(
        lines=lines,
        verdicts=[
            at_most(
                f"listing: {name} takes {ratios[name]:.2f} times as long with {many:,} documents as with {FEW:,}",
                ratios[name],
                MAX_LARGE_OVER_SMALL,
            )
            for name in (FIRST_PAGE, TAGGED_PAGE, BY_ID)
        ],
    )


async def judge_large(contents: Sequence[str], home: Path) -> Part:
    """One very long document, and an edit of it. The bar is that both are stored."""
    text = _GAP.join(contents)[:LARGE_CHARS]
    middle = text.index(_GAP, LARGE_CHARS // 2)
    edited = f"{text[:middle]}{_GAP}One paragraph more, in the middle of it all.{text[middle:]}"
    lines: list[tuple[str, str, str, str]] = []
    verdicts: list[Verdict] = []
    async with open_place(home, "large", EMBEDDING_DIMENSIONS=LARGE_DIMENSIONS) as place:
        for name, content in (("first store", text), ("edit", edited)):
            with watch_cache(place.connection) as cache:
                run = await watch_store(content, place.core, prefix="large", chunk_size_tokens=LARGE_CHUNK_TOKENS)
            outcome, transactions = run.outcome, run.traffic.transactions
            lines += [
                describe_run(f"large, {name}", run),
                (
                    f"large, {name}: the longest of {len(transactions)} transactions",
                    "",
                    to_ms(max(transactions, default=0.0)),
                    f"dirty in the cache: {to_mb(cache.peak)} of {to_mb(cache.size)}, before: {to_mb(cache.before)}",
                ),
            ]
            is_stored = outcome.outcome in {Outcome.CREATED, Outcome.UPDATED} and outcome.chunk_count >= LARGE_CHUNKS
            error = f": {outcome.error.message} ({outcome.error.cause})" if outcome.error else ""
            verdicts.append((is_stored, f"large, {name}: {outcome.outcome}, {outcome.chunk_count:,} chunks{error}"))
    return Part(lines, verdicts)


def at_most(sentence: str, found: float, bar: float) -> Verdict:
    """The verdict on a figure that may not be larger."""
    return found <= bar, f"{sentence}, at most {bar:g}"


def describe_run(name: str, run: StoreRun) -> tuple[str, str, str, str]:
    """A store as a line of the table."""
    return (
        f"{name}, {run.outcome.chunk_count:,} chunks",
        f"{run.traffic.writes} write commands",
        to_ms(run.seconds),
        ", ".join(f"{stage} {to_ms(some)}" for stage, some in run.stages.items()),
    )


def to_ms(seconds: float) -> str:
    """Milliseconds, for the table."""
    return f"{seconds * 1_000:,.0f}"


def to_mb(size: int) -> str:
    """Megabytes, for the table."""
    return f"{size / 1_000_000:,.0f} MB"


def report(parts: Sequence[Part]) -> None:
    """The table, and a line a bar."""
    console = Console() if sys.stdout.isatty() else Console(width=190)
    table = Table("", "of", "milliseconds", "")
    table.columns[2].justify = "right"
    for part in parts:
        for line in part.lines:
            table.add_row(*line)
    console.print(table, highlight=False)
    for met, sentence in (verdict for part in parts for verdict in part.verdicts):
        console.print(f"{'met    ' if met else 'not met'}  {sentence}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
