"""How well chunks are found, ours against those of other splitters. Usage: `make bench-chunk-quality`.

Every splitter cuts the five documents of `../shared/corpora/chunking-eval` (MEMORY_CORPORA) at 400 tokens without
overlap; its chunks are indexed by the product's own text leg (BM25 alone, no vectors), and 472 questions are asked.
Exits 1 where a bar of the project is missed: recall@5 of at least 92 %, and an IoU no lower than the best of the others
in the same run. Both bars are about the text alone; a further line adds the context that the product indexes with it.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from chunk_metrics import Place, Scores, average, place_in_order, score
from chunk_peers import OURS, Splitter, peer_splitters
from chunk_texts import Text, find_corpora
from rich.console import Console
from rich.table import Table

from memory_core.adapters.embedded_text import TextIndex, TextRow
from memory_core.adapters.text_terms import TextTerms
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkOptions
from memory_core.context import choose_basis, rank_words, write_context
from memory_core.models import ContentType

SIZE = 400
JUDGED_AT = 5
RECALL_BAR = 0.92
CUTOFFS = (1, 3, 5, 10)
WITH_CONTEXT = f"{OURS}, with context"
LANGUAGE = "english"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and where its answer stands."""

    text: str
    corpus: str
    excerpts: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as it is indexed: `context` is read with the text, and is no part of it."""

    place: Place
    text: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What one splitter's chunks are worth: averages over all questions, and recall by document."""

    name: str
    token_counts: Sequence[int]
    at: Mapping[int, Scores]
    recall_by_corpus: Mapping[str, float]


def main() -> int:
    """Measure and print. Returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--also", type=int, nargs="*", default=[], metavar="TOKENS", help="further sizes, not judged")
    options = parser.parse_args()
    folder = find_corpora() / "chunking-eval"
    documents, questions = read_documents(folder), read_questions(folder / "questions_df.csv")
    console = make_console()
    for size in options.also:
        report(console, measure_all(documents, questions, size), size)
    results = measure_all(documents, questions, SIZE)
    report(console, results, SIZE)
    return judge(console, results)


def make_console() -> Console:
    """A console that keeps a table's lines whole in a file or a pipe."""
    return Console() if sys.stdout.isatty() else Console(width=170)


def read_documents(folder: Path) -> dict[str, str]:
    """The documents by name, with their line ends as they are: offsets count them."""
    return {path.stem: path.read_bytes().decode() for path in sorted(folder.glob("*.md"))}


def read_questions(path: Path) -> list[Question]:
    """Every question with its excerpts."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [_read_question(row) for row in csv.DictReader(lines)]


def _read_question(row: Mapping[str, str]) -> Question:
    corpus = row["corpus_id"]
    excerpts = (Place(corpus, one["start_index"], one["end_index"]) for one in json.loads(row["references"]))
    return Question(row["question"], corpus, tuple(excerpts))


def measure_all(documents: Mapping[str, str], questions: Sequence[Question], size: int) -> list[Result]:
    """Ours on the text alone, ours with its context, then the others."""
    ours = cut_ours(documents, size)
    named = {OURS: [Passage(passage.place, passage.text) for passage in ours], WITH_CONTEXT: ours}
    for splitter in peer_splitters(size):
        named[splitter.name] = cut_theirs(documents, splitter)
    return [measure(name, passages, questions) for name, passages in named.items()]


def cut_ours(documents: Mapping[str, str], size: int) -> list[Passage]:
    """Our chunks with the context that a document of this name would give them."""
    counter = load_tiktoken_counter()
    passages: list[Passage] = []
    for name, content in documents.items():
        basis, _ = choose_basis(name, rank_words(content), None)
        for chunk in chunk_content(content, ContentType.MARKDOWN, ChunkOptions(size=size), counter).chunks:
            place = Place(name, chunk.char_start, chunk.char_end)
            passages.append(Passage(place, chunk.text, write_context(basis, chunk.heading_path)))
    return passages


def cut_theirs(documents: Mapping[str, str], splitter: Splitter) -> list[Passage]:
    """Another splitter's chunks."""
    return [
        Passage(place, content[place.start : place.end])
        for name, content in documents.items()
        for place in place_in_order(content, splitter.cut(Text(content, ContentType.MARKDOWN)), document=name)
    ]


def measure(name: str, passages: Sequence[Passage], questions: Sequence[Question]) -> Result:
    """Index the passages, ask every question, score what comes first."""
    rankings = search(passages, [question.text for question in questions], limit=max(CUTOFFS))
    scored = {
        cutoff: [
            score(question.excerpts, ranking[:cutoff]) for question, ranking in zip(questions, rankings, strict=True)
        ]
        for cutoff in CUTOFFS
    }
    corpora = sorted({question.corpus for question in questions})
    judged = list(zip(questions, scored[JUDGED_AT], strict=True))
    return Result(
        name=name,
        token_counts=[load_tiktoken_counter().count(passage.text) for passage in passages],
        at={cutoff: average(scores) for cutoff, scores in scored.items()},
        recall_by_corpus={
            corpus: fmean(one.recall for question, one in judged if question.corpus == corpus) for corpus in corpora
        },
    )


def search(passages: Sequence[Passage], questions: Sequence[str], *, limit: int) -> list[list[Place]]:
    """The first places for each question, by the product's own text index."""
    terms = TextTerms(LANGUAGE)
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        index = TextIndex(Path(folder), create=True)
        writer = index.open_writer()
        for serial, passage in enumerate(passages):
            indexed = terms.index_terms(passage.context) + terms.index_terms(passage.text)
            writer.add(TextRow(serial=serial, document_id=passage.place.document, terms=indexed))
        writer.commit()
        writer.close(undo=False)
        searcher = index.open_searcher()
        hits = [
            index.search(searcher, terms.query_terms(question), document_ids=None, limit=limit)
            for question in questions
        ]
    return [
        [passages[serial].place for _, serial in sorted(found, key=lambda hit: (-hit[0], hit[1]))] for found in hits
    ]


def report(console: Console, results: Sequence[Result], size: int) -> None:
    """A line a splitter, all shares in percent."""
    corpora = list(results[0].recall_by_corpus)
    table = Table(title=f"{size} tokens, no overlap, BM25 alone; shares in %")
    table.add_column("splitter")
    for heading in ("chunks", "mean tokens", "max", *(f"recall@{cutoff}" for cutoff in CUTOFFS)):
        table.add_column(heading, justify="right")
    for heading in (f"precision@{JUDGED_AT}", f"IoU@{JUDGED_AT}", *corpora):
        table.add_column(heading, justify="right")
    for result in results:
        judged = result.at[JUDGED_AT]
        table.add_row(
            result.name,
            f"{len(result.token_counts):,}",
            f"{fmean(result.token_counts):.0f}",
            f"{max(result.token_counts)}",
            *(f"{result.at[cutoff].recall:.1%}"[:-1] for cutoff in CUTOFFS),
            f"{judged.precision:.2%}"[:-1],
            f"{judged.iou:.2%}"[:-1],
            *(f"{result.recall_by_corpus[corpus]:.1%}"[:-1] for corpus in corpora),
        )
    console.print(table)


def judge(console: Console, results: Sequence[Result]) -> int:
    """Print each bar with its verdict; 1 where one is missed."""
    by_name = {result.name: result.at[JUDGED_AT] for result in results}
    ours = by_name[OURS]
    best_name, best = max(
        ((name, scores) for name, scores in by_name.items() if name not in {OURS, WITH_CONTEXT}),
        key=lambda pair: pair[1].iou,
    )
    verdicts = (
        (ours.recall >= RECALL_BAR, f"recall@{JUDGED_AT} {ours.recall:.1%}, at least {RECALL_BAR:.0%}"),
        (ours.iou >= best.iou, f"IoU@{JUDGED_AT} {ours.iou:.2%}, at least {best.iou:.2%} ({best_name})"),
    )
    for met, sentence in verdicts:
        console.print(f"{'met    ' if met else 'not met'}  {sentence}")
    return 0 if all(met for met, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
