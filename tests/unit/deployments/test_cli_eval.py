"""`memory eval`: what it accepts, what it refuses before a search, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from deployments import cli_eval
from deployments.cli_eval import EvalRun, evaluate_file, make_table, parse_cuts, read_questions
from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.answers import SearchFilters, SearchMode
from memory_core.errors import IndexUnavailableError, SearchError, ValidationError
from memory_core.evaluate import Scores
from memory_core.models import Outcome, StoreRequest
from memory_core.ports import Core
from memory_core.settings import load_settings
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest

BEES = "Bees make honey. They dance to tell the others where flowers are.\r\nA hive has one queen."
WASPS = "Wasps build nests of paper. A nest of paper lasts one summer."


@pytest.fixture
async def core(make_core: Callable[..., Core], tmp_path: Path) -> Core:
    """A core with two documents and a real search index."""
    made = make_core()
    core = replace(made, index=EmbeddedSearchIndex(tmp_path / "search", made.store, dimensions=16, language="english"))
    outcomes = await store_content(
        [
            StoreRequest(
                request=StoreContentRequest(content=content, source_id=source_id, content_type="text"),
                provenance=Provenance(channel="cli"),
            )
            for source_id, content in (("bees", BEES), ("wasps", WASPS))
        ],
        core=core,
    )
    assert [one.outcome for one in outcomes] == [Outcome.CREATED] * 2
    return core


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of questions, a line for each value; a text is a line as it is."""

    def write_lines(*lines: object) -> Path:
        path = tmp_path / "questions.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts), encoding="utf-8")
        return path

    return write_lines


def ask(question: str, **relevant: Any) -> dict[str, Any]:
    return {"question": question, "relevant": [relevant]}


async def run(core: Core, path: Path, *modes: SearchMode, cuts: tuple[int, ...] = (1, 2)) -> EvalRun:
    return await evaluate_file(core, read_questions(path), cuts=cuts, modes=modes)


async def test_places_and_documents_are_found(core: Core, write: Callable[..., Path]) -> None:
    """By offsets, by text (with its line ends as the file has them) and by id, in each mode that was asked."""
    path = write(
        ask("who makes honey", sourceId="bees", start=0, end=16),
        "",
        ask("nests of paper", source_id="wasps", text="Wasps build nests of paper."),
        ask("flowers and a hive", sourceId="bees", text="flowers are.\r\nA hive"),
        ask("what lasts a summer", sourceId="wasps"),
    )
    found = await run(core, path, SearchMode.TEXT, SearchMode.VECTOR)
    assert (found.question_count, list(found.scores)) == (4, [SearchMode.TEXT, SearchMode.VECTOR])
    first = found.scores[SearchMode.TEXT][1]
    assert (first.recall, first.passed, first.reciprocal_rank) == (1.0, 1.0, 1.0)
    characters = len(BEES) - 1  # the stored text has line feeds
    assert first.precision == pytest.approx((16 / characters + 27 / len(WASPS) + 19 / characters) / 3)
    assert found.scores[SearchMode.VECTOR][2].recall == 1.0


async def test_a_missed_question_is_zero(core: Core, write: Callable[..., Path]) -> None:
    """What comes second has half a rank at 2 and none at 1; what does not come has none."""
    second = (await run(core, write(ask("nests of paper or honey", sourceId="bees")), SearchMode.TEXT)).scores
    assert second[SearchMode.TEXT][1] == Scores(recall=0.0, passed=0.0, reciprocal_rank=0.0)
    assert second[SearchMode.TEXT][2] == Scores(recall=1.0, passed=1.0, reciprocal_rank=0.5)
    missed = (await run(core, write(ask("wasps", sourceId="bees")), SearchMode.TEXT)).scores
    assert missed[SearchMode.TEXT][2] == Scores(recall=0.0, passed=0.0, reciprocal_rank=0.0)


async def test_the_mode_is_that_of_searches(core: Core, write: Callable[..., Path]) -> None:
    """Without --mode it is hybrid, or vector where the settings say so."""
    path = write(ask("honey", sourceId="bees"))
    assert list((await run(core, path)).scores) == [SearchMode.HYBRID]
    settings = load_settings(EMBEDDING_PROVIDER="hash", SEARCH_HYBRID_ENABLED="no")
    assert list((await run(replace(core, settings=settings), path)).scores) == [SearchMode.VECTOR]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "Invalid JSON"),
        ("[1]", "Input should be an object"),
        ("[" * 100_000, "recursion limit"),
        (r'{"question": "\ud800", "relevant": [{"sourceId": "bees"}]}', "Invalid JSON"),
        ({"question": "honey"}, "relevant: Field required"),
        ({"question": "honey", "relevant": []}, "relevant: List should have at least 1 item"),
        (ask("   ", sourceId="bees"), "question: give 1 to 4,000 characters"),
        (ask("x" * 4_001, sourceId="bees"), "question: give 1 to 4,000 characters"),
        (ask("honey"), "relevant[0].sourceId: Field required"),
        (ask("honey", sourceId="bees", mystery=1), "relevant[0]: has a name that is not known"),
        (ask("honey", sourceId="bees", start=1), "relevant[0]: give start and end, or text"),
        (ask("honey", sourceId="bees", start=1, end=4, text="make"), "relevant[0]: give start and end, or text"),
        (ask("honey", sourceId="bees", start=4, end=4), "relevant[0]: start must be below end"),
        (ask("honey", sourceId="bees", start=-1, end=4), "relevant[0].start: Input should be greater than"),
        (ask("honey", sourceId="bees", text=""), "relevant[0].text: String should have at least 1"),
        (
            {"question": "honey", "relevant": [{"sourceId": "bees"}, {"sourceId": "wasps", "text": "nests"}]},
            "not both in one question",
        ),
        (ask("honey", sourceId="birds"), "relevant[0]: no document of that sourceId is stored"),
        (ask("honey", sourceId="bees", start=80, end=90), "ends at character 87"),
        (ask("honey", sourceId="bees", text="Wasps"), "does not have that text"),
        (ask("honey", sourceId="wasps", text="of paper"), "more than once"),
    ],
)
async def test_a_bad_line_is_named_and_nothing_is_searched(
    core: Core, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, line: object, words: str
) -> None:
    """By its number, blank lines counted, without a word of it."""

    async def search(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a question was asked")

    monkeypatch.setattr(cli_eval, "search_knowledge", search)
    with pytest.raises(ValidationError) as refused:
        await run(core, write(ask("nests", sourceId="wasps"), "", line), SearchMode.TEXT)
    message = refused.value.message
    assert message.startswith("Line 3: ")
    assert words in message
    assert message.endswith("Nothing was searched.")
    assert all(word not in message for word in ("honey", "mystery", "birds", "broken"))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "has no question"), (b"\n \r\n", "has no question"), (b"\xff\xfe", "not UTF-8 (byte 0)")],
)
def test_a_bad_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """An empty file and one that is no text, by name."""
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValidationError, match=r"questions\.jsonl") as refused:
        read_questions(path)
    assert words in refused.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A directory is no file either."""
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ValidationError, match="is no file"):
            read_questions(path)


def test_a_file_may_have_a_byte_order_mark_and_any_line_end(tmp_path: Path) -> None:
    """U+2028 inside a text ends no line."""
    path = tmp_path / "questions.jsonl"
    line = '{"question": "one\u2028two", "relevant": [{"sourceId": "a"}]}'
    path.write_bytes(f"\ufeff{line}\r\n\r\n{line}\r\n".encode())
    assert list(read_questions(path)) == [1, 3]


def test_cuts_are_sorted_numbers() -> None:
    """Twice the same is once; more than a search returns is refused."""
    settings = load_settings(SEARCH_MAX_LIMIT="30")
    assert parse_cuts(" 20, 5,20", settings) == (5, 20)
    for text in ("", "0", "5,", "five", "-1", "31", "9" * 5_000, "٣"):
        with pytest.raises(ValidationError, match="1 to 30 \\(SEARCH_MAX_LIMIT\\)"):
            parse_cuts(text, settings)


async def test_half_a_hybrid_search_is_no_figure(core: Core, write: Callable[..., Path]) -> None:
    """Where one leg fails a search answers with the other; an evaluation stops."""

    class Halved:
        engine = "embedded"

        async def vector_leg(self, *_: object, **__: object) -> NoReturn:
            raise IndexUnavailableError("The vectors are away.")

        async def text_leg(self, query: str, *, filters: SearchFilters, limit: int) -> Any:
            return await core.index.text_leg(query, filters=filters, limit=limit)

        async def close(self) -> None:
            pass

    path = write(ask("honey", sourceId="bees"))
    with pytest.raises(SearchError, match=r"The evaluation of mode hybrid stopped\..*The vectors are away"):
        await run(replace(core, index=Halved()), path)


SCORES = {
    SearchMode.TEXT: {
        5: Scores(recall=0.25, passed=0.5, reciprocal_rank=1 / 3, precision=0.125, iou=0.0625),
        10: Scores(recall=0.75, passed=1.0, reciprocal_rank=1 / 3, precision=0.0, iou=0.0),
    }
}


def test_the_table_has_a_row_for_each_measure() -> None:
    """And a column for each k."""
    table = make_table(SCORES)
    assert list(table.columns) == [5, 10]
    assert list(table.index) == [("text", name) for name in ("recall", "pass", "mrr", "precision", "iou")]
    assert table.to_numpy().tolist()[1] == [0.5, 1.0]


def test_a_measure_that_no_question_has_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Whole documents have neither precision nor IoU, in the table and in JSON."""
    scores = {SearchMode.HYBRID: {5: Scores(recall=1.0, passed=1.0, reciprocal_rank=0.5)}}
    run = EvalRun(question_count=1, engine="embedded", fingerprint="space", scores=scores)
    run.show(as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "questions": 1,
        "engine": "embedded",
        "fingerprint": "space",
        "modes": {"hybrid": {"recall": {"5": 1.0}, "pass": {"5": 1.0}, "mrr": {"5": 0.5}}},
    }
    run.show(as_json=False)
    shown = capsys.readouterr().out
    assert shown.startswith("1 question, embedded search, space\n")
    assert "0.500" in shown
    assert "iou" not in shown
