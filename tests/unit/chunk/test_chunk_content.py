"""The chunker from outside: what it refuses, how it names a recipe, and the stage that runs it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import cast

import pytest

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk import chunk_content as chunk_module
from memory_core.chunk.chunk_content import (
    CHUNKER_VERSION,
    chunk_content,
    chunk_documents,
    describe_default_recipe,
    describe_recipe,
)
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.errors import ChunkingError, InternalError
from memory_core.models import Attributes, ChunkedDocument, ContentType, Document, Failure, Plan
from memory_core.ports import Core, TokenCounter
from memory_core.store_request import Provenance

_PROSE = "\n\n".join(
    "\n".join(f"Line {line} of part {part} says a few plain words about nothing at all." for line in range(6))
    for part in range(3)
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


def test_a_size_below_one_character_is_refused() -> None:
    """Size 1 works for words of one token and is refused where a single character has more."""
    tiny = ChunkOptions(size=1, minimum=1)
    assert len(chunk_content("a b c", ContentType.TEXT, tiny, load_tiktoken_counter()).chunks) == 3
    with pytest.raises(ChunkingError, match="single character"):
        chunk_content("👩", ContentType.TEXT, tiny, load_tiktoken_counter())


def test_a_recipe_names_all_that_moves_a_cut() -> None:
    """Version, type, sizes, tokenizer; and for code what parses its language, where something does."""
    assert CHUNKER_VERSION == 2
    assert describe_recipe(ContentType.MARKDOWN, ChunkOptions(), "cl100k_base") == "2/markdown/400-0-32/cl100k_base"
    options = ChunkOptions(size=100, overlap=20, minimum=8, language="python")
    parsed = describe_recipe(ContentType.CODE, options, "cl100k_base")
    assert re.fullmatch(r"2/code\.python-[\d.]+-[\d.]+/100-20-8/cl100k_base", parsed)
    plain = describe_recipe(ContentType.CODE, ChunkOptions(language="unknown"), "cl100k_base")
    assert plain == "2/code/400-0-32/cl100k_base"


def test_a_default_recipe_names_what_a_process_brings() -> None:
    """Version, sizes, tokenizer and the parsers of code: whatever moves a cut of a text without sizes of its own."""
    ours = describe_default_recipe(ChunkOptions(), "cl100k_base")
    assert re.fullmatch(r"2/400-0-32/cl100k_base/code-[0-9a-f]{8}", ours)
    others = [ChunkOptions(size=401), ChunkOptions(overlap=1), ChunkOptions(minimum=31)]
    assert len({ours, describe_default_recipe(ChunkOptions(), "words")}) == 2
    assert ours not in {describe_default_recipe(options, "cl100k_base") for options in others}
    assert describe_default_recipe(ChunkOptions(language="python"), "cl100k_base") == ours


def test_a_small_tail_joins_its_neighbour_where_it_fits(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A text of few words is one chunk, whatever the minimum is."""
    assert len(chunk_checked("Three short words", ContentType.TEXT, size=50, minimum=40).chunks) == 1
    chunks = chunk_checked("word " * 95, ContentType.TEXT, size=50, minimum=10).chunks
    assert all(chunk.token_count >= 10 for chunk in chunks)


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
