"""`memory eval`. In: a file of questions with what is relevant to each, and a core. Out: how well it is found.

Every line is checked, and everything relevant is looked up, before the first question is asked. It writes nothing.
Apart from the other commands because its table needs pandas, which takes most of a second to import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field
from pydantic import ValidationError as PydanticError

from deployments.console import out, print_json
from memory_core.answers import SearchMode, StoredDocument
from memory_core.errors import NotFoundError, SearchError, ValidationError
from memory_core.evaluate import Place, Question, Scores, evaluate
from memory_core.ports import Core
from memory_core.rules import normalise_text
from memory_core.search import MAX_QUERY_CHARS, search_knowledge
from memory_core.settings import Settings
from memory_core.store_request import WireModel

_NOTHING_SEARCHED = "Nothing was searched."
_NUMBER = re.compile(r"[0-9]{1,6}")


class RelevantLine(WireModel):
    """Something relevant as a file writes it: a slice by its offsets or by its text, or a whole document."""

    source_id: Annotated[str, Field(min_length=1)]
    start: Annotated[int | None, Field(ge=0)] = None
    end: Annotated[int | None, Field(ge=1)] = None
    text: Annotated[str | None, Field(min_length=1)] = None


class QuestionLine(WireModel):
    """One line of a file of questions."""

    question: str
    relevant: Annotated[list[RelevantLine], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """The scores by mode and by k, and what was measured."""

    question_count: int
    engine: str
    fingerprint: str
    scores: Mapping[SearchMode, Mapping[int, Scores]]

    def show(self, *, as_json: bool) -> None:
        """Print a table, a row for each mode and measure and a column for each k; or JSON."""
        if as_json:
            print_json(self.to_json())
        else:
            questions = f"{self.question_count:,} question{'' if self.question_count == 1 else 's'}"
            out.print(f"{questions}, {self.engine} search, {self.fingerprint}", markup=False)
            out.print(make_table(self.scores).to_string(float_format="{:.3f}".format), markup=False)

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON, in full precision."""
        return {
            "questions": self.question_count,
            "engine": self.engine,
            "fingerprint": self.fingerprint,
            "modes": {
                mode.value: _by_measure({str(k): scores for k, scores in at.items()})
                for mode, at in self.scores.items()
            },
        }


def make_table(scores: Mapping[SearchMode, Mapping[int, Scores]]) -> pd.DataFrame:
    """The scores with a row for each mode and measure, and a column for each k."""
    tables = {mode.value: pd.DataFrame(_by_measure(at)).T for mode, at in scores.items()}
    return pd.concat(tables, names=["mode", "measure"]).rename_axis(columns="k")


def _by_measure(at: Mapping[Any, Scores]) -> dict[str, dict[Any, float]]:
    """The measures by name, each by k; one that no question has is left out."""
    named = {
        "recall": {k: one.recall for k, one in at.items()},
        "pass": {k: one.passed for k, one in at.items()},
        "mrr": {k: one.reciprocal_rank for k, one in at.items()},
        "precision": {k: one.precision for k, one in at.items()},
        "iou": {k: one.iou for k, one in at.items()},
    }
    known = {name: {k: value for k, value in by_k.items() if value is not None} for name, by_k in named.items()}
    return {name: by_k for name, by_k in known.items() if by_k}


def parse_cuts(text: str, settings: Settings) -> tuple[int, ...]:
    """The numbers of `--k`, ascending.

    Raises:
        ValidationError: it is no list of whole numbers, or a search does not return so many hits.
    """
    words = [word.strip() for word in text.split(",")]
    most = settings.search_max_limit
    if not all(_NUMBER.fullmatch(word) and 1 <= int(word) <= most for word in words):
        raise ValidationError(
            f"--k: give whole numbers from 1 to {most} (SEARCH_MAX_LIMIT) with commas between them, such as 5,10,20."
        )
    return tuple(sorted({int(word) for word in words}))


def read_questions(path: Path) -> dict[int, QuestionLine]:
    """The questions of a JSON Lines file by line number, which begins with 1. Blank lines are passed over.

    Raises:
        ValidationError: there is no such file, it is not UTF-8, it has no question, or a line is not acceptable.
    """
    if not path.is_file():
        raise ValidationError(f"{path} is no file. Give a file with one question a line. {_NOTHING_SEARCHED}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValidationError(f"{path} is not UTF-8 (byte {error.start}). {_NOTHING_SEARCHED}") from None
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. {_NOTHING_SEARCHED}") from None
    # Not splitlines(): JSON text may hold U+2028 as it is.
    lines = {number: line for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    if not lines:
        raise ValidationError(f"{path} has no question. Give one a line. {_NOTHING_SEARCHED}")
    return {number: _read_line(number, line) for number, line in lines.items()}


def _read_line(number: int, text: str) -> QuestionLine:
    try:
        line = QuestionLine.model_validate_json(text)
    except PydanticError as error:
        issues = "; ".join(_describe(issue) for issue in error.errors(include_input=False, include_url=False))
        raise _refuse(number, issues) from None
    if problem := _find_problem(line):
        raise _refuse(number, problem)
    return line


def _describe(issue: Mapping[str, Any]) -> str:
    """One issue by its place in the line: never by an unknown name, which is the writer's text."""
    is_unknown = issue["type"] == "extra_forbidden"
    parts = issue["loc"][:-1] if is_unknown else issue["loc"]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    what = "has a name that is not known" if is_unknown else str(issue["msg"])
    return f"{where}: {what}" if where else what


def _find_problem(line: QuestionLine) -> str | None:
    if not 1 <= len(line.question.strip()) <= MAX_QUERY_CHARS:
        return f"question: give 1 to {MAX_QUERY_CHARS:,} characters that are not all blank"
    for place, one in enumerate(line.relevant):
        if (one.start is None) != (one.end is None) or (one.start is not None and one.text is not None):
            return f"relevant[{place}]: give start and end, or text, or neither for the whole document"
        if one.start is not None and one.end is not None and one.start >= one.end:
            return f"relevant[{place}]: start must be below end"
    if len({_names_document(one) for one in line.relevant}) > 1:
        return "relevant: give whole documents, or places in documents, not both in one question"
    return None


def _names_document(one: RelevantLine) -> bool:
    return one.start is None and one.text is None


def _refuse(number: int, problem: str) -> ValidationError:
    return ValidationError(f"Line {number}: {problem}. {_NOTHING_SEARCHED}")


async def evaluate_file(
    core: Core, lines: Mapping[int, QuestionLine], *, cuts: Sequence[int], modes: Sequence[SearchMode]
) -> EvalRun:
    """Look up everything relevant, then ask every question in every mode. No modes: the one that searches have.

    Raises:
        ValidationError: something relevant is not stored; nothing was searched.
        SearchError, EmbeddingError, StorageError: a question was not answered, or not by the legs of its mode.
    """
    questions = await _locate_all(core, lines)
    default = SearchMode.HYBRID if core.settings.search_hybrid_enabled else SearchMode.VECTOR
    scores: dict[SearchMode, Mapping[int, Scores]] = {}
    for mode in modes or (default,):
        rankings = await rank_questions(core, questions, mode=mode, limit=max(cuts))
        scores[mode] = {k: evaluate(questions, rankings, k) for k in cuts}
    return EvalRun(
        question_count=len(questions), engine=core.index.engine, fingerprint=core.fingerprint.key, scores=scores
    )


async def rank_questions(
    core: Core, questions: Sequence[Question], *, mode: SearchMode, limit: int
) -> list[list[Place]]:
    """Ask every question once. The places of the hits, best first, mirror the questions.

    Raises:
        SearchError, EmbeddingError, StorageError: a question was not answered, or not by the legs of its mode.
    """
    return [await _rank(core, question.text, mode=mode, limit=limit) for question in questions]


async def _rank(core: Core, question: str, *, mode: SearchMode, limit: int) -> list[Place]:
    answer = await search_knowledge(question, core=core, mode=mode, limit=limit)
    if answer.effective_mode is not mode:
        # Figures of half a search must not pass for those of a whole one.
        raise SearchError(f"The evaluation of mode {mode.value} stopped. {answer.explanation}")
    return [Place(hit.row.source_id, hit.row.char_start, hit.row.char_end) for hit in answer.hits]


@dataclass(slots=True)
class _Library:
    """The stored documents that a file of questions names, each read once."""

    core: Core
    documents: dict[str, StoredDocument | None]
    bodies: dict[str, str]

    async def find(self, identifier: str) -> StoredDocument | None:
        if identifier not in self.documents:
            self.documents[identifier] = await self.core.store.read_document(identifier)
        return self.documents[identifier]

    async def read(self, document: StoredDocument) -> str:
        body_id = document.state.body_id
        if body_id not in self.bodies:
            self.bodies[body_id] = await self.core.store.read_body(body_id)
        return self.bodies[body_id]


async def _locate_all(core: Core, lines: Mapping[int, QuestionLine]) -> list[Question]:
    library = _Library(core, {}, {})
    return [await _locate(library, number, line) for number, line in lines.items()]


async def _locate(library: _Library, number: int, line: QuestionLine) -> Question:
    """The question with the stored places of what is relevant to it."""
    found = [await _locate_one(library, f"relevant[{place}]", one, number) for place, one in enumerate(line.relevant)]
    return Question(
        text=line.question,
        places=tuple(place for place in found if isinstance(place, Place)),
        source_ids=tuple(source_id for source_id in found if isinstance(source_id, str)),
    )


async def _locate_one(library: _Library, name: str, one: RelevantLine, number: int) -> Place | str:
    document = await library.find(one.source_id.strip())
    if document is None:
        raise _refuse(number, f"{name}: no document of that sourceId is stored; `memory list` shows what is")
    source_id = document.state.source_id
    if one.text is not None:
        start = await _find_text(library, document, normalise_text(one.text), name=name, number=number)
        return Place(source_id, start, start + len(normalise_text(one.text)))
    if one.start is None or one.end is None:
        return source_id
    if one.end > document.content_length:
        raise _refuse(number, f"{name}: the stored document ends at character {document.content_length:,}")
    return Place(source_id, one.start, one.end)


async def _find_text(library: _Library, document: StoredDocument, text: str, *, name: str, number: int) -> int:
    try:
        content = await library.read(document)
    except NotFoundError as error:
        raise _refuse(number, f"{name}: the document was changed meanwhile; run this again") from error
    start = content.find(text)
    if start < 0:
        raise _refuse(number, f"{name}: the stored document does not have that text")
    if content.find(text, start + 1) >= 0:
        raise _refuse(number, f"{name}: the stored document has that text more than once; give start and end")
    return start
