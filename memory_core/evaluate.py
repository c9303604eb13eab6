"""Questions and their ranked results in, retrieval measures out. Pure: it searches nothing and reads no file.

What is relevant is a place (a slice of a stored document, in code points) or a whole document. All measures are shares
from 0 to 1 of the first k results, averaged over the questions, each question with the same weight:

* recall@k: the share of the relevant characters that the results hold; of documents, the share that has a result.
* pass@k: the share of the relevant places that the results hold completely. Where every chunk is given, as in
  contextual-eval, that is the published measure of the set: golden chunks found (Anthropic, "Introducing Contextual
  Retrieval"). For documents it is the recall.
* MRR@k: 1 / rank of the first result with a relevant character, 0 where there is none (Voorhees, TREC-8 question
  answering track, 1999).
* precision@k, IoU@k: of places only. Recall, precision and IoU of characters are those of chunking-eval (Chroma,
  "Evaluating Chunking Strategies for Retrieval", its `base_evaluation.py`): what is found counts once; a result counts
  with its full length, wherever it lies, and twice where it comes twice, so that overlap costs precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Place:
    """A slice of a stored document, in code points."""

    source_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and what is relevant to it: places, or else whole documents by source id."""

    text: str
    places: tuple[Place, ...] = ()
    source_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The measures at one k; `precision` and `iou` are None where no question names places."""

    recall: float
    passed: float
    reciprocal_rank: float
    precision: float | None = None
    iou: float | None = None


def evaluate(questions: Sequence[Question], rankings: Sequence[Sequence[Place]], k: int) -> Scores:
    """Average the scores of all questions; `rankings` mirrors them, each best first.

    Raises:
        StatisticsError: there are no questions.
    """
    return average([score(question, ranking, k) for question, ranking in zip(questions, rankings, strict=True)])


def score(question: Question, ranking: Sequence[Place], k: int) -> Scores:
    """Score the first k results of one question."""
    first = ranking[:k]
    return _score_places(question.places, first) if question.places else _score_documents(question.source_ids, first)


def average(scores: Sequence[Scores]) -> Scores:
    """The plain average; of precision and IoU over those that have them. Raises StatisticsError for no scores."""
    return Scores(
        recall=fmean(one.recall for one in scores),
        passed=fmean(one.passed for one in scores),
        reciprocal_rank=fmean(one.reciprocal_rank for one in scores),
        precision=_average_known(one.precision for one in scores),
        iou=_average_known(one.iou for one in scores),
    )


def covered_chars(relevant: Sequence[Place], retrieved: Sequence[Place]) -> int:
    """How many relevant characters are in what was retrieved, each counted once."""
    return _measure_union(
        Place(wanted.source_id, max(wanted.start, place.start), min(wanted.end, place.end))
        for wanted in relevant
        for place in retrieved
        if _overlap(wanted, place)
    )


def _score_places(relevant: Sequence[Place], retrieved: Sequence[Place]) -> Scores:
    """Recall = found / relevant; precision = found / retrieved; IoU = found / (retrieved + relevant but not found)."""
    found = covered_chars(relevant, retrieved)
    wanted = sum(place.end - place.start for place in relevant)
    taken = sum(place.end - place.start for place in retrieved)
    missed = _measure_union(relevant) - found
    whole = sum(covered_chars([place], retrieved) == place.end - place.start for place in relevant)
    return Scores(
        recall=_share(found, wanted),
        passed=_share(whole, len(relevant)),
        reciprocal_rank=_rank_first([any(_overlap(wanted, place) for wanted in relevant) for place in retrieved]),
        precision=_share(found, taken),
        iou=_share(found, taken + missed),
    )


def _score_documents(source_ids: Sequence[str], retrieved: Sequence[Place]) -> Scores:
    wanted = frozenset(source_ids)
    recall = _share(len(wanted & {place.source_id for place in retrieved}), len(wanted))
    return Scores(
        recall=recall,
        passed=recall,
        reciprocal_rank=_rank_first([place.source_id in wanted for place in retrieved]),
    )


def _overlap(one: Place, other: Place) -> bool:
    return one.source_id == other.source_id and one.start < other.end and other.start < one.end


def _rank_first(relevant: Sequence[bool]) -> float:
    return next((1 / rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant), 0.0)


def _measure_union(places: Iterable[Place]) -> int:
    chars, source_id, behind = 0, "", 0
    for place in sorted(places, key=lambda place: (place.source_id, place.start)):
        if place.source_id != source_id:
            source_id, behind = place.source_id, 0
        chars += max(0, place.end - max(place.start, behind))
        behind = max(behind, place.end)
    return chars


def _average_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
