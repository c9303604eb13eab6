"""The chunker from outside: what it refuses, names, keeps apart and how long it takes."""

from __future__ import annotations

import base64
import dataclasses
import random
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk import chunk_content as chunk_module
from memory_core.chunk.chunk_content import CHUNKER_VERSION, chunk_content, chunk_documents, describe_recipe
from memory_core.errors import ChunkingError, InternalError
from memory_core.models import (
    Attributes,
    ChunkedDocument,
    ChunkingResult,
    ChunkOptions,
    ContentType,
    Document,
    Failure,
    Plan,
    Provenance,
)
from memory_core.ports import Core, TokenCounter

_PROSE = "\n\n".join(
    "\n".join(f"Line {line} of part {part} says a few plain words about nothing at all." for line in range(6))
    for part in range(3)
)
_UNICODE = (
    "# \u6982\u8981 🚀\n\n日本語の文章です。家族は👩\u200d👩\u200d👧\u200d👦です。\n\n"
    "cafe\u0301 na\u0308ive e\u0301te\u0301 " + "words " * 20
)


@dataclasses.dataclass(frozen=True)
class _OnlyCounter:
    """As much of a core as the stage uses."""

    counter: TokenCounter


@pytest.mark.parametrize("text", ["", " ", " \t\r\n \n", "\u3000\u2028\xa0"])
def test_blank_content_is_refused(text: str) -> None:
    """Zero chunks is a failure, never a result."""
    with pytest.raises(ChunkingError, match="blank"):
        chunk_content(text, ContentType.TEXT, ChunkOptions(), load_tiktoken_counter())


@pytest.mark.parametrize(
    "options",
    [
        ChunkOptions(size=0),
        ChunkOptions(size=40, overlap=40),
        ChunkOptions(size=40, overlap=41),
        ChunkOptions(size=40, overlap=-1),
        ChunkOptions(size=40, minimum=41),
        ChunkOptions(size=40, minimum=-1),
    ],
)
def test_sizes_that_cannot_work_are_refused(options: ChunkOptions) -> None:
    """No loop, no silent repair: a sentence that names the numbers."""
    with pytest.raises(ChunkingError, match=r"\d"):
        chunk_content("text", ContentType.TEXT, options, load_tiktoken_counter())


def test_a_size_below_one_character_is_refused() -> None:
    """Size 1 works for words of one token and is refused where a single character has more."""
    tiny = ChunkOptions(size=1, minimum=1)
    assert len(chunk_content("a b c", ContentType.TEXT, tiny, load_tiktoken_counter()).chunks) == 3
    with pytest.raises(ChunkingError, match="single character"):
        chunk_content("👩", ContentType.TEXT, tiny, load_tiktoken_counter())


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    """It is no text, and a database would replace it in silence."""
    with pytest.raises(ChunkingError, match="character 2"):
        chunk_content("ab\ud800", ContentType.TEXT, ChunkOptions(), load_tiktoken_counter())


@pytest.mark.parametrize(("content_type", "strategy"), [("markdown", "markdown-structural"), ("text", "paragraph")])
def test_the_strategy_names_the_code_path(content_type: str, strategy: str) -> None:
    """It is stored with the document."""
    result = chunk_content("text", ContentType(content_type), ChunkOptions(), load_tiktoken_counter())
    assert result.strategy == strategy


def test_a_recipe_names_all_that_moves_a_cut() -> None:
    """Version, type, sizes, tokenizer."""
    assert CHUNKER_VERSION == 1
    assert describe_recipe(ContentType.MARKDOWN, ChunkOptions(), "cl100k_base") == "1/markdown/400-0-32/cl100k_base"


def test_a_run_without_a_blank_is_cut_without_a_loss(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Fifty thousand equal letters, and three thousand rockets: every chunk joined gives the text."""
    for text, size in (("a" * 50_000, 120), ("🚀" * 3_000, 100)):
        chunks = chunk_checked(text, ContentType.TEXT, size=size, overlap=0, minimum=1).chunks
        assert len(chunks) > 10
        assert "".join(chunk.text for chunk in chunks) == text


def test_equal_paragraphs_have_places_of_their_own(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """The same paragraph twenty times is twenty chunks at twenty offsets, where each fills one."""
    paragraph = "The same words again and again in this one. " * 3
    chunks = chunk_checked("\n\n".join([paragraph] * 20), ContentType.TEXT, size=40, minimum=1).chunks
    assert len({chunk.char_start for chunk in chunks}) == len(chunks) == 20
    assert len({chunk.text for chunk in chunks}) == 1


@pytest.mark.parametrize("overlap", [0, 12])
def test_repeats_keep_exact_offsets(chunk_checked: Callable[..., ChunkingResult], overlap: int) -> None:
    """`chunk chunk chunk` has one right place for each slice."""
    chunk_checked("chunk chunk chunk " * 40, ContentType.TEXT, size=32, overlap=overlap, minimum=1)


def test_an_overlap_begins_at_a_word_and_keeps_to_its_limit(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """What two chunks share is the end of the first and the start of the second."""
    chunks = chunk_checked(_PROSE, ContentType.TEXT, size=40, overlap=12, minimum=1).chunks
    shared = [(before, after) for before, after in pairwise(chunks) if after.char_start < before.char_end]
    assert len(chunks) > 2
    assert shared
    for before, after in shared:
        text = _PROSE[after.char_start : before.char_end]
        assert before.text.endswith(text)
        assert after.text.startswith(text)
        assert _PROSE[after.char_start - 1].isspace()


def test_chinese_and_japanese_overlap_and_end_with_sentences(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Sentences without blanks are sentences."""
    chunks = chunk_checked(
        "今日は良い天気です。散歩に行きましょう。" * 30, ContentType.TEXT, size=48, overlap=16, minimum=1
    ).chunks
    assert all(chunk.text.endswith("。") for chunk in chunks)
    assert all(after.char_start < before.char_end for before, after in pairwise(chunks))


def test_an_overlap_of_nearly_the_size_makes_progress(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Size 10 and overlap 9: an end, and fewer chunks than characters."""
    assert len(chunk_checked(_PROSE, ContentType.TEXT, size=10, overlap=9, minimum=1).chunks) < len(_PROSE)


@pytest.mark.parametrize("size", [32, 64, 84, 128])
def test_a_small_size_with_a_large_overlap_still_bounds_every_chunk(
    chunk_checked: Callable[..., ChunkingResult], size: int
) -> None:
    """Nothing folds into one huge chunk because each piece is under the minimum."""
    text = _PROSE * 10
    tokens = load_tiktoken_counter().count(text)
    chunks = chunk_checked(text, ContentType.TEXT, size=size, overlap=size - 1, minimum=32).chunks
    assert len(chunks) >= tokens // size


def test_a_small_tail_joins_its_neighbour_where_it_fits(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A text of few words is one chunk, whatever the minimum is."""
    assert len(chunk_checked("Three short words", ContentType.TEXT, size=50, minimum=40).chunks) == 1
    chunks = chunk_checked("word " * 95, ContentType.TEXT, size=50, minimum=10).chunks
    assert all(chunk.token_count >= 10 for chunk in chunks)


def test_code_is_cut_at_line_edges(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Twelve lines in groups: all edges are edges of lines."""
    text = "\n\n".join(f"const a{n} = {n};\nconst b{n} = a{n};\nconsole.log(a{n}, b{n});" for n in range(4))
    chunks = chunk_checked(text, ContentType.CODE, size=20, minimum=1).chunks
    assert len(chunks) > 1
    for chunk in chunks:
        assert chunk.char_start == 0 or text[chunk.char_start - 1] == "\n"
        assert chunk.char_end == len(text) or text[chunk.char_end] == "\n"


def test_line_ends_of_windows_change_no_promise(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """No chunk begins or ends with a carriage return, and headings are found."""
    text = f"# A\n\n{_PROSE}\n\n## B\n\n{_PROSE}".replace("\n", "\r\n")
    chunks = chunk_checked(text, size=60, overlap=12, minimum=8).chunks
    assert ("A", "B") in {chunk.heading_path for chunk in chunks}


def test_joined_emoji_and_marks_stay_joined(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A family, and 9,000 characters of them, and letters with marks."""
    family = "👩\u200d👩\u200d👧\u200d👦"
    assert any(family in chunk.text for chunk in chunk_checked(_UNICODE, size=32, overlap=5, minimum=1).chunks)
    for text in (family * 1_300, "e\u0301" * 5_000, "🇩🇪" * 2_000, "กำ" * 3_000):
        assert chunk_checked(text, ContentType.TEXT, overlap=40).stats.cluster_cuts == 0


def test_a_cluster_that_exceeds_the_size_is_cut_and_counted(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Ten thousand marks are one cluster: size ranks above it, and the stats say so."""
    assert chunk_checked("e" + "\u0301" * 10_000, ContentType.TEXT).stats.cluster_cuts > 0


def test_another_counter_gives_other_chunks(
    chunk_checked: Callable[..., ChunkingResult], char_counter: TokenCounter
) -> None:
    """With one token a character there are more chunks, each as long as its count."""
    chars = chunk_checked(_PROSE, counter=char_counter, size=40, minimum=1)
    assert len(chars.chunks) > len(chunk_checked(_PROSE, size=40, minimum=1).chunks)
    assert all(chunk.token_count == len(chunk.text) for chunk in chars.chunks)


_HOSTILE: dict[str, Callable[[int], str]] = {
    "one line": lambda chars: "the quick brown fox " * (chars // 20),
    "chinese": lambda chars: "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x9FA5), k=chars))),
    "base64": lambda chars: base64.b64encode(random.Random(1).randbytes(chars * 3 // 4)).decode(),
    "json": lambda chars: '{"id":17,"name":"abc","tags":["x","y"]},' * (chars // 40),
    "blanks": lambda chars: "a" + " " * chars + "b",
    "blank lines": lambda chars: "a" + "\n" * chars + "b",
    "h1": lambda chars: "<h1 " * (chars // 4),
    "heading and blanks": lambda chars: "# a" + " " * chars + "b",
    "heading and separators": lambda chars: "# a" + " " * (chars // 2) + "\u2028" * (chars // 2) + "b",
    "quotes in quotes": lambda chars: (">" * 200 + " a\n") * (chars // 203),
    "fences in items": lambda chars: "- ```\n" * (chars // 6),
    "fences in an item": lambda chars: "- a\n" + "  ```\n  x\n  ```\n" * (chars // 17),
    "flags": lambda chars: "🇩🇪" * (chars // 2),
    "joined": lambda chars: "👩\u200d" * (chars // 2),
    "full stops": lambda chars: ". " * (chars // 2),
}


@pytest.mark.parametrize("kind", list(_HOSTILE))
def test_time_is_linear_on_hostile_text(kind: str, assert_linear: Callable[..., None]) -> None:
    """However long a text is, each character costs the same."""
    counter, options = load_tiktoken_counter(), ChunkOptions(overlap=40)

    def work(text: str) -> None:
        chunk_content(text, ContentType.MARKDOWN, options, counter)

    assert_linear(work, _HOSTILE[kind], chars=20_000)


def _document(content: str, *, size: int = 400) -> Document:
    attributes = Attributes(
        title="t", uri=None, content_type=ContentType.TEXT, tags=(), metadata={}, owners={"title": "caller"}
    )
    return Document(
        document_id="d",
        source_id=f"s{size}",
        revision="r",
        content=content,
        content_hash="h",
        attributes=attributes,
        options=ChunkOptions(size=size),
        recipe="x",
        provenance=Provenance(channel="test"),
        agent=None,
        session_id=None,
        base=None,
        plan=Plan.STORE,
    )


async def test_the_stage_answers_each_document_in_order() -> None:
    """A document that cannot be chunked is a failure of its own; the others are chunked."""
    core = cast("Core", _OnlyCounter(load_tiktoken_counter()))
    good, bad = await chunk_documents([_document(_PROSE), _document("text", size=16)], core=core)

    assert isinstance(good, ChunkedDocument)
    assert good.chunking.chunks[0].text.startswith("Line 0")
    assert isinstance(bad, Failure)
    assert isinstance(bad.error, ChunkingError)
    assert bad.source_id == "s16"


@pytest.mark.parametrize("field", ["index", "text", "token_count", "char_start", "char_end"])
async def test_the_stage_refuses_a_result_that_breaks_a_promise(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """A defect of the chunker stops the document instead of making search worse."""
    broken: dict[str, object] = {"index": 7, "text": "other", "token_count": 401, "char_start": 3, "char_end": 5}

    def chunk_badly(*arguments: object) -> ChunkingResult:
        result = chunk_content(*arguments)  # type: ignore[arg-type] - passed on as they came
        first = dataclasses.replace(result.chunks[0], **{field: broken[field]})
        return dataclasses.replace(result, chunks=(first, *result.chunks[1:]))

    monkeypatch.setattr(chunk_module, "chunk_content", chunk_badly)
    core = cast("Core", _OnlyCounter(load_tiktoken_counter()))
    (outcome,) = await chunk_documents([_document(_PROSE)], core=core)

    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, InternalError)


async def test_the_stage_refuses_a_result_that_leaves_text_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losing the last chunk is noticed too."""

    def lose(*arguments: object) -> ChunkingResult:
        return dataclasses.replace(chunk_content(*arguments), chunks=())  # type: ignore[arg-type] - passed on

    monkeypatch.setattr(chunk_module, "chunk_content", lose)
    (outcome,) = await chunk_documents([_document(_PROSE)], core=cast("Core", _OnlyCounter(load_tiktoken_counter())))
    assert isinstance(outcome, Failure)
    assert "uncovered" in outcome.error.message
