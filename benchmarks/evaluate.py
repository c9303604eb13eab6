"""How well questions find what answers them, on two shared sets, by the product as it comes. Usage: `make eval`.

Both sets go down the one path into a MongoDB of this command's own, are embedded by the `local` model and are asked
through the product's search, with every setting at its default.

* contextual-eval: its given chunks, trimmed, are what the chunk stage returns. It is stored twice, with the context
  policies `prefix` and `none`; the text leg always has its context. The bars are about pass@5, @10 and @20.
* chunking-eval: five long documents, cut by the product at 400 tokens. The bar is about recall@5.

Prints a table a set, then one line a set. Exits 1 where a bar of the project is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from chunk_texts import find_corpora

from deployments.cli_eval import make_table, rank_questions
from deployments.services import Service, acquire, stop
from memory_core.answers import SearchMode
from memory_core.bootstrap import build_core
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkingStats
from memory_core.embedding_settings import ContextPolicy
from memory_core.evaluate import Place, Question, Scores, evaluate
from memory_core.models import ChunkedDocument, Document, Outcome, StoreRequest
from memory_core.ports import ChunkStage, Core, Stages
from memory_core.settings import Settings, load_settings
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_request import Provenance, StoreContentRequest

CUTS = (5, 10, 20)
CONTEXTUAL, CHUNKING = "contextual-eval", "chunking-eval"
PASS_BARS = {5: 0.84, 10: 0.90, 20: 0.93}
RECALL_BAR = 0.935
RECALL_AT = 5
SIZE_TOKENS = 400
BATCH_DOCUMENTS = 30

AllScores = Mapping[SearchMode, Mapping[int, Scores]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to store, and the questions on them.

    `chunks` are those of each source where the set gives them, and `twins` maps a chunk to the first one of equal text.
    """

    requests: Sequence[StoreRequest]
    questions: Sequence[Question]
    chunks: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    twins: Mapping[Place, Place] = field(default_factory=dict[Place, Place])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One line about one set."""

    met: bool
    sentence: str


def main() -> int:
    """Measure and print. Returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[CONTEXTUAL, CHUNKING], help="one set")
    only = parser.parse_args().only
    corpora = find_corpora()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    forget_settings()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="memory-eval-") as home:
        settings = make_settings(Path(home), database="memory")
        try:
            with acquire(settings, frozenset({Service.MONGODB}), on_progress=tell):
                if only != CHUNKING:
                    verdicts.append(judge_contextual(Path(home), read_contextual(corpora / CONTEXTUAL)))
                if only != CONTEXTUAL:
                    verdicts.append(judge_chunking(Path(home), read_chunking(corpora / CHUNKING)))
        finally:
            stop(settings, force=True)
    print()
    for verdict in verdicts:
        print(f"{'met    ' if verdict.met else 'not met'}  {verdict.sentence}")
    return 0 if all(verdict.met for verdict in verdicts) else 1


def forget_settings() -> None:
    """Settings of the shell do not count; which MongoDB program there is does."""
    names = {spec.alias or name for name, spec in Settings.model_fields.items()} - {"MEMORY_MONGOD"}
    for name in names & set(os.environ):
        del os.environ[name]


def make_settings(home: Path, *, database: str, **chosen: Any) -> Settings:  # noqa: ANN401 - one per variable
    """The defaults with the local model, a home and a database of their own, and what a set chooses."""
    return load_settings(MEMORY_HOME=home, MONGODB_DB_NAME=database, EMBEDDING_PROVIDER="local", **chosen)


def tell(text: str) -> None:
    """What happens meanwhile, on standard error."""
    print(text, file=sys.stderr)


# --- contextual-eval --------------------------------------------------------------------------------------------------


def read_contextual(folder: Path) -> Corpus:
    """90 source files in 737 given chunks, which are trimmed, and 248 questions with their golden chunks."""
    files = json.loads((folder / "codebase_chunks.json").read_text(encoding="utf-8"))
    chunks = {file["doc_id"]: [chunk["content"].strip() for chunk in file["chunks"]] for file in files}
    places: dict[tuple[str, int], Place] = {}
    first: dict[str, Place] = {}
    twins: dict[Place, Place] = {}
    for file in files:
        texts = chunks[file["doc_id"]]
        standing = place_chunks(file["doc_id"], file["content"], texts)
        for chunk, text, place in zip(file["chunks"], texts, standing, strict=True):
            places[file["original_uuid"], chunk["original_index"]] = place
            twins[place] = first.setdefault(text, place)
    lines = (folder / "evaluation_set.jsonl").read_text(encoding="utf-8").split("\n")
    asked = [json.loads(line) for line in lines if line.strip()]
    return Corpus(
        requests=[ask_to_store(file["content"], source_id=file["doc_id"], content_type="code") for file in files],
        questions=[
            Question(
                text=one["query"],
                places=tuple(twins[places[uuid, index]] for uuid, index in one["golden_chunk_uuids"]),
            )
            for one in asked
        ],
        chunks=chunks,
        twins=twins,
    )


def place_chunks(source_id: str, content: str, texts: Sequence[str]) -> list[Place]:
    """Where each text stands, in order and without overlap."""
    places: list[Place] = []
    behind = 0
    for text in texts:
        start = content.index(text, behind)
        behind = start + len(text)
        places.append(Place(source_id, start, behind))
    return places


def judge_contextual(home: Path, corpus: Corpus) -> Verdict:
    """Store and ask with a context in the embedding input and without; the text leg has it both times."""
    stages = replace(PLAIN_STAGES, chunk=give_chunks(corpus.chunks))
    passed: dict[ContextPolicy, dict[int, float]] = {}
    for policy in (ContextPolicy.PREFIX, ContextPolicy.NONE):
        settings = make_settings(home, database=f"contextual_{policy.value}", EMBEDDING_CONTEXT=policy.value)
        scores = asyncio.run(store_and_ask(settings, corpus, stages))
        show(f"{CONTEXTUAL}, context policy {policy.value}", scores)
        passed[policy] = {k: at.passed for k, at in scores[SearchMode.HYBRID].items()}
    ours, bare = passed[ContextPolicy.PREFIX], passed[ContextPolicy.NONE]
    return Verdict(
        met=all(ours[k] >= bar and ours[k] > bare[k] for k, bar in PASS_BARS.items()),
        sentence=f"{CONTEXTUAL}: hybrid pass@5/10/20 {shares(ours)}, at least {shares(PASS_BARS)} and above those of "
        f"the context policy none, {shares(bare)}",
    )


def give_chunks(given: Mapping[str, Sequence[str]]) -> ChunkStage:
    """A chunk stage that returns what the set gives."""

    async def chunk(documents: Sequence[Document], *, core: Core) -> list[ChunkedDocument]:
        return [cut(document, given[document.source_id], core) for document in documents]

    return chunk


def cut(document: Document, texts: Sequence[str], core: Core) -> ChunkedDocument:
    """A document in its given chunks."""
    chunks = tuple(
        Chunk(
            index=index,
            text=document.content[place.start : place.end],
            char_start=place.start,
            char_end=place.end,
            token_count=core.counter.count(document.content[place.start : place.end]),
        )
        for index, place in enumerate(place_chunks(document.source_id, document.content, texts))
    )
    stats = ChunkingStats(
        input_chars=len(document.content),
        chunk_count=len(chunks),
        total_tokens=sum(chunk.token_count for chunk in chunks),
    )
    return ChunkedDocument(document=document, chunking=ChunkingResult(chunks=chunks, strategy="given", stats=stats))


# --- chunking-eval ----------------------------------------------------------------------------------------------------


def read_chunking(folder: Path) -> Corpus:
    """Five documents, stored as a directory run stores files of these names, and 472 questions with their excerpts."""
    with (folder / "questions_df.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return Corpus(
        requests=[
            ask_to_store(path.read_bytes().decode(), source_id=path.stem, uri=f"file:///{path.name}")
            for path in sorted(folder.glob("*.md"))
        ],
        questions=[
            Question(
                text=row["question"],
                places=tuple(
                    Place(row["corpus_id"], one["start_index"], one["end_index"])
                    for one in json.loads(row["references"])
                ),
            )
            for row in rows
        ],
    )


def judge_chunking(home: Path, corpus: Corpus) -> Verdict:
    """Store and ask; compare the hybrid search with the text leg alone."""
    settings = make_settings(home, database="chunking", CHUNK_SIZE_TOKENS=SIZE_TOKENS)
    scores = asyncio.run(store_and_ask(settings, corpus, PLAIN_STAGES))
    show(f"{CHUNKING}, {SIZE_TOKENS} tokens", scores)
    ours, text = (scores[mode][RECALL_AT].recall for mode in (SearchMode.HYBRID, SearchMode.TEXT))
    return Verdict(
        met=ours >= RECALL_BAR and ours > text,
        sentence=f"{CHUNKING}: hybrid recall@{RECALL_AT} {ours:.1%}, at least {RECALL_BAR:.1%} and above BM25 alone, "
        f"{text:.1%}",
    )


# --- both -------------------------------------------------------------------------------------------------------------


def ask_to_store(
    content: str, *, source_id: str, uri: str | None = None, content_type: str | None = None
) -> StoreRequest:
    """A request as a door makes it."""
    return StoreRequest(
        request=StoreContentRequest(content=content, source_id=source_id, uri=uri, content_type=content_type),
        provenance=Provenance(channel="cli"),
    )


async def store_and_ask(settings: Settings, corpus: Corpus, stages: Stages) -> AllScores:
    """Store all documents in a database of their own and ask all questions in every mode."""
    with acquire(settings, frozenset({Service.MONGODB}), on_progress=tell) as lease:
        assert lease.addresses.mongodb_uri is not None
        core = build_core(settings, mongodb_uri=lease.addresses.mongodb_uri.get_secret_value())
        try:
            began = time.perf_counter()
            count = await store_all(corpus.requests, core, stages)
            stored = time.perf_counter()
            scores = {mode: await ask_all(corpus, core, mode) for mode in SearchMode}
            asked = time.perf_counter()
        finally:
            await core.close()
    tell(
        f"{settings.mongodb_db_name}: {count:,} chunks stored in {stored - began:.0f} s, "
        f"{len(scores) * len(corpus.questions):,} searches in {asked - stored:.0f} s"
    )
    return scores


async def store_all(requests: Sequence[StoreRequest], core: Core, stages: Stages) -> int:
    """Store everything; returns the number of chunks."""
    count = 0
    for first in range(0, len(requests), BATCH_DOCUMENTS):
        outcomes = await store_content(requests[first : first + BATCH_DOCUMENTS], core=core, stages=stages)
        failed = [str(outcome.error) for outcome in outcomes if outcome.outcome is not Outcome.CREATED]
        assert not failed, f"a document was not stored: the figures would mean nothing ({failed[0]})"
        count += sum(outcome.chunk_count for outcome in outcomes)
    return count


async def ask_all(corpus: Corpus, core: Core, mode: SearchMode) -> dict[int, Scores]:
    """The scores at each cut. A chunk that is found counts for all chunks of equal text, as published."""
    rankings = await rank_questions(core, corpus.questions, mode=mode, limit=max(CUTS))
    merged = [[corpus.twins.get(place, place) for place in ranking] for ranking in rankings]
    return {k: evaluate(corpus.questions, merged, k) for k in CUTS}


def show(title: str, scores: AllScores) -> None:
    """All measures of one set."""
    print(f"\n{title}")
    print(make_table(scores).to_string(float_format="{:.3f}".format))


def shares(at: Mapping[int, float]) -> str:
    """Shares at 5, 10 and 20 in percent."""
    return "/".join(f"{at[k]:.1%}"[:-1] for k in CUTS)


if __name__ == "__main__":
    sys.exit(main())
