"""Headings stay with what is below them and blocks stay whole, on generated documents whose blocks are known."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk_values import Chunk, ChunkingResult
from memory_core.models import ContentType

_examples = settings.get_profile(os.environ.get("HYPOTHESIS_CHUNK_PROFILE", "chunk-suite"))


@dataclass(frozen=True)
class _Block:
    kind: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@st.composite
def _blocks(draw: st.DrawFn) -> _Block:
    words = st.lists(st.sampled_from("memory search agent chunk token of the and".split()), min_size=1, max_size=40)
    kind = draw(st.sampled_from(["heading", "paragraph", "fence", "items", "rows"]))
    lines = [" ".join(draw(words)) for _ in range(draw(st.integers(1, 6)))]
    match kind:
        case "heading":
            return _Block(kind, (f"{'#' * draw(st.integers(1, 4))} {lines[0].split()[0]}",))
        case "fence":
            return _Block(kind, ("```sh", *(f"# {line}" for line in lines), "```"))
        case "items":
            return _Block(kind, tuple(f"- {line}" for line in lines))
        case "rows":
            return _Block(kind, ("| a |", "|---|", *(f"| {line} |" for line in lines)))
        case _:
            return _Block(kind, tuple(lines))


@_examples
@given(blocks=st.lists(_blocks(), min_size=1, max_size=14), size=st.integers(32, 200), overlap=st.integers(0, 31))
def test_what_fits_is_whole_and_headings_keep_their_text(
    chunk_checked: Callable[..., ChunkingResult], blocks: list[_Block], size: int, overlap: int
) -> None:
    """A fence, an item and a row that fit are in one chunk, and no heading is torn from the text below it."""
    text = "\n\n".join(block.text for block in blocks)
    chunks = chunk_checked(text, size=size, overlap=overlap, minimum=1).chunks
    count = load_tiktoken_counter().count
    start, chain = 0, None
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        end = start + len(block.text)
        units = {"fence": [block.text], "items": block.lines, "rows": block.lines}.get(block.kind, [])
        at = start
        for unit in units:
            assert count(unit) > size or _is_in_one(chunks, at, at + len(unit))
            at += len(unit) + 1
        chain = (start if chain is None else chain) if block.kind == "heading" else None
        if chain is not None and following is not None and following.kind != "heading":
            body_end = end + 2 + len(_first_unit(following, count, size))
            # Headings that follow each other are kept together, too, as far as all of them fit.
            assert count(text[chain:body_end]) > size or _is_in_one(chunks, start, body_end)
        start = end + 2


def _first_unit(block: _Block, count: Callable[[str], int], size: int) -> str:
    """What must stay with the heading above the block: the block itself where it is whole, else its first piece."""
    if block.kind in {"fence", "rows"} and count(block.text) <= size:
        return block.text
    return block.lines[0] if block.kind in {"fence", "items"} else block.lines[0].split()[0]


def _is_in_one(chunks: tuple[Chunk, ...], start: int, end: int) -> bool:
    return any(chunk.char_start <= start and end <= chunk.char_end for chunk in chunks)


# --- the other types ------------------------------------------------------------------------------------------------

_words = st.lists(st.sampled_from("memory search agent chunk token of the and".split()), min_size=1, max_size=30)
_phrase = _words.map(" ".join)
_lines_of_words = st.lists(_phrase, min_size=1, max_size=5)


@dataclass(frozen=True)
class _Document:
    """A text and the slices of it that are to be whole where they fit."""

    text: str
    blocks: tuple[tuple[int, int], ...]
    language: str = ""


def _join(parts: Sequence[tuple[str, bool]], *, language: str = "") -> _Document:
    """Put parts together; those that are marked are blocks, as far as they are not blank."""
    text, blocks = "", list[tuple[int, int]]()
    for part, is_block in parts:
        if is_block:
            blocks.append((len(text), len(text) + len(part)))
        text += part
    return _Document(text, tuple(blocks), language)


@st.composite
def _json_documents(draw: st.DrawFn) -> _Document:
    """An array of records, below a key or not, each on a line of its own or all in one; or JSON Lines."""
    records = draw(st.lists(st.dictionaries(st.sampled_from("id name about".split()), _phrase, min_size=1), min_size=2))
    start, between, end = draw(
        st.sampled_from([("[", ",", "]"), ("[\n", ",\n", "\n]"), ('{"a": [', ", ", "]}"), ("", "\n", "")])
    )
    parts = [(start, False)]
    for number, record in enumerate(records):
        parts += [(between, False)] if number else []
        parts.append((json.dumps(record), True))
    return _join([*parts, (end, False)])


@st.composite
def _csv_documents(draw: st.DrawFn) -> _Document:
    """Records of two fields, in which there may be line ends, delimiters and quotes."""
    field = st.one_of(_phrase, _lines_of_words.map("\n".join), st.just('a "b", c'))
    parts = [("name,about\n", False)]
    for row in draw(st.lists(st.lists(field, min_size=2, max_size=2), min_size=1, max_size=12)):
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerow(row)
        parts += [(record.getvalue().removesuffix("\n"), True), ("\n", False)]
    return _join(parts)


@st.composite
def _code_documents(draw: st.DrawFn) -> _Document:
    """Functions, with blank lines in them or not, in two languages."""
    language = draw(st.sampled_from(["python", "javascript"]))
    parts: list[tuple[str, bool]] = []
    for number, lines in enumerate(draw(st.lists(_lines_of_words, min_size=2, max_size=8))):
        between = draw(st.sampled_from(["\n", "\n\n"]))
        body = between.join(f"    use('{line}');"[: None if language == "javascript" else -1] for line in lines)
        function = f"def f{number}():\n{body}" if language == "python" else f"function f{number}() {{\n{body}\n}}"
        parts += [(function, True), ("\n\n", False)]
    return _join(parts, language=language)


@st.composite
def _html_documents(draw: st.DrawFn) -> _Document:
    """Paragraphs, code, lists and tables; an item and a row are blocks."""
    parts: list[tuple[str, bool]] = []
    for lines in draw(st.lists(_lines_of_words, min_size=1, max_size=8)):
        match draw(st.sampled_from(["pre", "ul", "table", "div"])):
            case "pre":
                parts.append((f"<pre>{chr(10).join(lines)}</pre>", True))
            case "ul":
                parts += [("<ul>", False), *((f"<li>{line}</li>", True) for line in lines), ("</ul>", False)]
            case "table":
                rows = ((f"<tr><td>{line}<td>x</tr>", True) for line in lines)
                parts += [("<table>", False), *rows, ("</table>", False)]
            case _:
                parts += [("<div>", False), (f"<p>{lines[0]}</p>", True), ("</div>", False)]
    return _join(parts)


@st.composite
def _rst_documents(draw: st.DrawFn) -> _Document:
    """Directives and literal blocks with their bodies, items, and the rows of tables."""
    parts: list[tuple[str, bool]] = []
    for lines in draw(st.lists(_lines_of_words, min_size=1, max_size=8)):
        body = "\n\n".join(f"   {line}" for line in lines)
        match draw(st.sampled_from(["note", "code", "items", "table"])):
            case "note":
                parts.append((f".. note:: Read this\n\n{body}", True))
            case "code":
                parts.append((f".. code-block:: sh\n\n{body}", True))
            case "items":
                parts += [part for line in lines for part in ((f"- {line}", True), ("\n", False))]
            case _:
                rule = f"+{'-' * 190}+\n"
                rows = [part for line in lines for part in ((f"| {line:<188} |", True), (f"\n{rule}", False))]
                parts += [(rule, False), *rows]
        parts.append(("\n\n", False))
    return _join(parts)


_DOCUMENTS = {
    ContentType.JSON: _json_documents(),
    ContentType.CSV: _csv_documents(),
    ContentType.CODE: _code_documents(),
    ContentType.HTML: _html_documents(),
    ContentType.RST: _rst_documents(),
}
# What a scanner may count as a part of a block: a comma, brackets, a tag or a border beside it.
_SLACK_TOKENS = 8
_RULE_TOKENS = 60


@pytest.mark.parametrize("content_type", list(_DOCUMENTS))
@_examples
@given(data=st.data(), size=st.integers(32, 200), overlap=st.integers(0, 31))
def test_what_fits_is_whole_in_every_type(
    chunk_checked: Callable[..., ChunkingResult],
    content_type: ContentType,
    data: st.DataObject,
    size: int,
    overlap: int,
) -> None:
    """An element, a record, a function, an item, a row or a directive with its body that fits is in one chunk."""
    document = data.draw(_DOCUMENTS[content_type])
    chunks = chunk_checked(
        document.text, content_type, size=size, overlap=overlap, minimum=1, language=document.language
    ).chunks
    count = load_tiktoken_counter().count
    for start, end in document.blocks:
        slack = _RULE_TOKENS if document.text[start] == "|" else _SLACK_TOKENS
        assert count(document.text[start:end]) > size - slack or _is_in_one(chunks, start, end)
