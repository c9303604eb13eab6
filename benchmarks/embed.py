"""How fast texts are embedded, and how few of them after an edit. Usage: `make bench-embed`, about two minutes.

* local: chunks a second of the local embedder, against the bare ONNX session on the same texts.
* openai: the product's embedder with its default settings but for the texts of a request, against a fake server in a
  process of its own that takes 150 ms for an answer. C requests at a time of T texts each can bring C / 0.150 x T texts
  a second, and no more.
* edits: one paragraph replaced in each of 200 RFCs, stored down the path into a MongoDB of this command's own with the
  `hash` embedder: texts that were embedded, against chunks whose text changed.

Prints a table, then one line a bar. Exits 1 where a bar of the project is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog
from chunk_texts import Text, find_corpora, read_rfcs
from embed_edits import replace_paragraphs
from embed_measures import BARE_ALONE, BARE_POOL, OURS, measure_edits, measure_local, measure_paid, take_inputs
from embed_server import run_slow_provider
from evaluate import forget_settings
from rich.console import Console
from rich.table import Table

from deployments.services import Service, acquire, stop
from memory_core.bootstrap import build_core
from memory_core.ports import Core
from memory_core.settings import Settings, load_settings

MIN_OVER_SESSION = 0.9
MIN_OVER_LIMIT = 0.9
MAX_OVER_CHANGED = 1.15
LATENCY_SECONDS = 0.150
EDITED_DOCUMENTS = 200

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Part:
    """What one part found: lines of the table (what, count, seconds, a second), and its verdict."""

    lines: Sequence[tuple[str, str, str, str]]
    met: bool
    sentence: str


def main() -> int:
    """Measure and print. Returns 1 where a bar is missed."""
    options = read_options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    forget_settings()
    rfcs = read_rfcs(find_corpora())
    parts: list[Part] = []
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        home = Path(folder)
        try:
            if "local" in options.only:
                parts.append(judge_local(rfcs, texts=options.local_texts, turns=options.turns))
            if "openai" in options.only:
                parts.append(judge_paid(rfcs, home, texts=options.request_texts, requests=options.requests))
            if "edits" in options.only:
                parts.append(judge_edits(rfcs, home))
        finally:
            stop(make_settings(home, "any"), force=True)
    report(parts)
    return 0 if all(part.met for part in parts) else 1


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["local", "openai", "edits"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="only these parts")
    parser.add_argument("--local-texts", type=int, default=48, help="chunks for the local model")
    parser.add_argument("--turns", type=int, default=3, help="turns of the local model, of which the best count")
    parser.add_argument("--requests", type=int, default=240, help="requests to the fake server")
    parser.add_argument("--request-texts", type=int, default=16, help="texts in each of them")
    return parser.parse_args()


def judge_local(rfcs: Sequence[Text], *, texts: int, turns: int) -> Part:
    """Our embedder against the faster of the two ways to run the session."""
    inputs = [text for group in take_inputs(rfcs, texts) for text in group]
    seconds = measure_local(inputs, turns=turns)
    bare = min((BARE_POOL, BARE_ALONE), key=lambda name: seconds[name])
    ratio = seconds[bare] / seconds[OURS]
    return Part(
        lines=[
            (name, f"{len(inputs)} chunks", f"{best:.2f}", f"{len(inputs) / best:.1f}")
            for name, best in seconds.items()
        ],
        met=ratio >= MIN_OVER_SESSION,
        sentence=f"local: {ratio:.3f} times the {bare}, at least {MIN_OVER_SESSION}",
    )


def judge_paid(rfcs: Sequence[Text], home: Path, *, texts: int, requests: int) -> Part:
    """The embedder behind OPENAI_BASE_URL, against what its places allow."""
    groups = take_inputs(rfcs, texts * requests)
    with run_slow_provider(latency_seconds=LATENCY_SECONDS) as server:
        settings = make_settings(
            home,
            "paid",
            EMBEDDING_PROVIDER="openai",
            OPENAI_API_KEY="benchmark",
            OPENAI_BASE_URL=server.base_url,
            EMBEDDING_REQUEST_TEXTS=texts,
        )
        run = run_on_core(settings, lambda core: measure_paid(groups, server, core))
    places = settings.embedding_concurrency
    least_seconds = math.ceil(run.requests / places) * LATENCY_SECONDS
    ratio = least_seconds / run.seconds
    name = f"openai, {run.requests} requests of {texts} texts"
    return Part(
        lines=[
            (name, f"{run.texts} chunks", f"{run.seconds:.2f}", f"{run.texts / run.seconds:.1f}"),
            (
                "what the places allow",
                f"{run.texts} chunks",
                f"{least_seconds:.2f}",
                f"{run.texts / least_seconds:.1f}",
            ),
        ],
        met=ratio >= MIN_OVER_LIMIT,
        sentence=f"openai: {ratio:.3f} times what {places} requests of {LATENCY_SECONDS:.3f} s at a time allow "
        f"({run.requests} / {places} x {LATENCY_SECONDS:.3f} = {least_seconds:.2f} s), at least {MIN_OVER_LIMIT}",
    )


def judge_edits(rfcs: Sequence[Text], home: Path) -> Part:
    """Texts embedded after an edit."""
    edits = replace_paragraphs(rfcs, EDITED_DOCUMENTS)
    settings = make_settings(home, "edits", EMBEDDING_PROVIDER="hash")
    run = run_on_core(settings, lambda core: measure_edits(edits, core))
    ratio = run.embedded / run.changed
    return Part(
        lines=[
            (f"{run.documents} RFCs, a paragraph replaced in each", f"{run.chunks} chunks", "", ""),
            ("chunks whose text changed", f"{run.changed} chunks", "", ""),
            ("texts embedded", f"{run.embedded} texts", "", ""),
        ],
        met=ratio <= MAX_OVER_CHANGED,
        sentence=f"edits: {ratio:.3f} texts embedded for each chunk whose text changed, at most {MAX_OVER_CHANGED}",
    )


def make_settings(home: Path, database: str, **chosen: Any) -> Settings:  # noqa: ANN401 - one per variable
    """The defaults with a home and a database of their own, and what a part chooses."""
    return load_settings(MEMORY_HOME=home, MONGODB_DB_NAME=database, **chosen)


def run_on_core(settings: Settings, measure: Callable[[Core], Awaitable[_R]]) -> _R:
    """Measure on a core as the product wires it, with a real MongoDB below the home."""

    async def run(uri: str) -> _R:
        core = build_core(settings, mongodb_uri=uri)
        try:
            return await measure(core)
        finally:
            await core.close()

    with acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None) as lease:
        assert lease.addresses.mongodb_uri is not None
        return asyncio.run(run(lease.addresses.mongodb_uri.get_secret_value()))


def report(parts: Sequence[Part]) -> None:
    """The table, and a line a bar."""
    console = Console() if sys.stdout.isatty() else Console(width=150)
    table = Table("", "of", "seconds", "a second")
    for column in table.columns[1:]:
        column.justify = "right"
    for part in parts:
        for line in part.lines:
            table.add_row(*line)
    console.print(table, highlight=False)
    for part in parts:
        console.print(f"{'met    ' if part.met else 'not met'}  {part.sentence}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
