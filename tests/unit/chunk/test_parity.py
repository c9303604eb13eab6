"""What the original system's own tests assert of its chunker (behaviour.md 9.1), row by row, in our terms.

Two things are other than there, by design.md 4: offsets count code points, and a token is one of cl100k_base instead of
an estimate; so the rows about the estimator are tested for what the tokenizer says. The size is a hard ceiling.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk.markdown import scan_markdown
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.errors import ChunkingError
from memory_core.models import ContentType
from memory_core.ports import TokenCounter

CheckedChunker = Callable[..., ChunkingResult]

# The sizes of the original's tests.
_SIZE, _OVERLAP, _MINIMUM = 120, 24, 16
_FENCE = """\
```yaml
# the port that the service listens on
port: 8080
# the level of its log
level: info
timeout: 30s
retries: 3
```"""
_README = f"""\
# Guide

A service that remembers what agents tell it and finds it again by what it means.

## Setup

Install the package, then start the service with one command.

### Options

Everything is set in one file:

{_FENCE}

Text after the fence that says what happens next.

#### Details

Values in the environment win over values in the file, whatever their order is, and those of the command win over both.
A value that is not known is an error that names it, so that a wrong letter is not a setting that nobody reads.

## Search

Ask in plain words; the answer names the place that each piece came from.

### Filters

Tags, sources and types narrow what is searched.
"""
_PATHS = [
    ("Guide",),
    ("Guide", "Setup"),
    ("Guide", "Setup", "Options"),
    ("Guide", "Setup", "Options", "Details"),
    ("Guide", "Search"),
    ("Guide", "Search", "Filters"),
]
_PROSE = "\n\n".join(
    "\n".join(f"Line {line} of part {part} says a few plain words about nothing at all." for line in range(6))
    for part in range(3)
)
_FAMILY = "👩\u200d👩\u200d👧\u200d👦"
_UNICODE = (
    f"# 概要 🚀\n\n日本語の文章です。家族は{_FAMILY}です。とても元気です。\n\n"
    "## Cafe\u0301\n\nna\u0308ive e\u0301te\u0301 re\u0301sume\u0301 with some plain words behind it."
)


def _count(text: str) -> int:
    return load_tiktoken_counter().count(text)


def _cover(chunks: ChunkingResult) -> str:
    return "".join(chunk.text for chunk in chunks.chunks)


# --- counting -------------------------------------------------------------------------------------------------------


def test_tokens_are_counted_as_the_model_counts_them() -> None:
    """Nothing has none, a pangram has ten, a technical sentence has what a person would guess."""
    assert _count("") == 0
    assert _count("The quick brown fox jumps over the lazy dog.") == 10
    sentence = "The scheduler restarts failed workers after thirty seconds unless the queue is already paused."
    assert math.isclose(_count(sentence), 16, rel_tol=0.15)
    assert _count(sentence) == _count(sentence)


def test_counts_add_up_at_line_ends_and_grow_with_the_text() -> None:
    """Design, not the original: exact tokens, so only a line's end adds up, and letters cost what they cost."""
    for left, right in (("one line.\n", "and another"), ("a paragraph.\n\n", "and another")):
        assert _count(left + right) == _count(left) + _count(right)
    assert _count("a" * 500) < _count("a" * 1_000) < _count("a" * 1_400)
    assert 2 <= _count("漢字仮名") <= 8


# --- Markdown as it is read -----------------------------------------------------------------------------------------


def test_headings_give_their_breadcrumbs_in_order() -> None:
    """A deeper heading is put on the path, an equal or higher one takes its place; comments in a fence are none."""
    assert [section.path for section in scan_markdown(_README).sections[1:]] == _PATHS


def test_setext_headings_are_of_the_first_two_levels() -> None:
    """Underlined with `===` and `---`, with the paragraphs below them apart."""
    text = "Title\n=====\n\nBody one.\n\nPart\n----\n\nBody two.\n"
    structure = scan_markdown(text)
    assert [section.path for section in structure.sections[1:]] == [("Title",), ("Title", "Part")]
    bodies = structure.cuts.bodies.tolist()
    assert [text[body : text.index("\n", body)] for body in bodies] == ["Body one.", "Body two."]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("---\ntitle: x\n# a comment\ntags: [a]\n---\n\n# Real\n\nBody.", [("Real",)]),
        ("# Real\n\n```sh\n# no heading\n\nand so on to the end", [("Real",)]),
    ],
    ids=["front matter", "unclosed fence"],
)
def test_front_matter_and_an_unclosed_fence_hold_no_heading(text: str, paths: list[tuple[str, ...]]) -> None:
    """Only the real heading is one."""
    assert [section.path for section in scan_markdown(text).sections[1:]] == paths


# --- degenerate input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \t\r\n  \r\n\t"])
def test_nothing_to_chunk_is_an_error(text: str) -> None:
    """An empty text and one of blanks."""
    with pytest.raises(ChunkingError):
        chunk_content(text, ContentType.MARKDOWN, ChunkOptions(), load_tiktoken_counter())


def test_a_size_of_nothing_is_an_error_and_no_loop() -> None:
    """Size 0."""
    with pytest.raises(ChunkingError):
        chunk_content("text", ContentType.TEXT, ChunkOptions(size=0, minimum=0), load_tiktoken_counter())


@pytest.mark.parametrize(("text", "size"), [("x" * 50_000, _SIZE), ("🚀" * 3_000, 100)], ids=["letters", "rockets"])
def test_a_run_without_a_blank_joins_to_the_text(chunk_checked: CheckedChunker, text: str, size: int) -> None:
    """More than ten chunks, none above the size, no half of a character, and all of them joined are the input."""
    result = chunk_checked(text, ContentType.TEXT, size=size, overlap=0, minimum=1)
    assert len(result.chunks) > 10
    assert _cover(result) == text
    assert not re.search("[\ud800-\udfff]", _cover(result))


# --- strategies -----------------------------------------------------------------------------------------------------

_STRATEGIES = [
    ("markdown", "# A\n\ntext", "markdown-structural"),
    ("code", "x = 1\n", "code-block"),
    ("html", "<p>text</p>", "html-blocks"),
    ("json", '[{"id": 1}]', "json-elements"),
    ("json", '{"id": 1}\n{"id": 2}\n', "json-records"),
    ("json", '{"id": 1,\nbroken\n', "json-lines"),
    ("text", "text", "paragraph"),
    ("rst", "A\n=\n\ntext", "rst-structural"),
    ("csv", "a,b\n1,2\n", "csv-rows"),
]


@pytest.mark.parametrize(("content_type", "text", "strategy"), _STRATEGIES)
def test_the_strategy_names_the_code_path(
    chunk_checked: CheckedChunker, content_type: str, text: str, strategy: str
) -> None:
    """It is stored with the document; each of the nine has a name of its own."""
    result = chunk_checked(text, ContentType(content_type), size=_SIZE, overlap=_OVERLAP, minimum=_MINIMUM)
    assert result.strategy == strategy
    assert len({name for *_, name in _STRATEGIES}) == 9


# --- Markdown as it is chunked --------------------------------------------------------------------------------------


def test_small_chunks_carry_the_full_path(chunk_checked: CheckedChunker) -> None:
    """Size 30, below what a caller may ask for: the deepest section and the search section name themselves."""
    paths = {chunk.heading_path for chunk in chunk_checked(_README, size=30, overlap=0, minimum=1).chunks}
    assert {("Guide", "Setup", "Options", "Details"), ("Guide", "Search")} <= paths


def test_a_fence_that_fits_is_in_one_chunk(chunk_checked: CheckedChunker) -> None:
    """With room to spare it has company; with room for five tokens only these stand ahead of it, as its overlap.

    There the original has no overlap at all; here an overlap takes what the ceiling leaves. With no room there is none.
    """
    size = _count(_FENCE)
    roomy = chunk_checked(_README, size=size + 200, overlap=24, minimum=_MINIMUM)
    assert any(_FENCE in chunk.text for chunk in roomy.chunks)
    (near,) = [c for c in chunk_checked(_README, size=size + 5, overlap=20, minimum=1).chunks if _FENCE in c.text]
    assert near.text.endswith(_FENCE)
    tight = chunk_checked(_README, size=size, overlap=20, minimum=1)
    assert [chunk.text for chunk in tight.chunks].count(_FENCE) == 1


def test_a_fence_that_does_not_fit_is_cut_at_line_edges(chunk_checked: CheckedChunker) -> None:
    """A third of its tokens: several chunks in it, each with whole lines."""
    start = _README.index(_FENCE)
    inside = [
        chunk
        for chunk in chunk_checked(_README, size=_count(_FENCE) // 3, overlap=0, minimum=1).chunks
        if start <= chunk.char_start < chunk.char_end <= start + len(_FENCE)
    ]
    assert len(inside) > 1
    for chunk in inside:
        assert _README[chunk.char_start - 1] == "\n" == _README[chunk.char_end]


def test_two_runs_are_deeply_equal(chunk_checked: CheckedChunker) -> None:
    """The same text and sizes, the same chunks."""
    assert chunk_checked(_README, size=_SIZE, overlap=_OVERLAP) == chunk_checked(_README, size=_SIZE, overlap=_OVERLAP)


def test_line_ends_of_windows_change_no_promise(chunk_checked: CheckedChunker) -> None:
    """No chunk begins or ends with a carriage return, and the deepest path is still there."""
    chunks = chunk_checked(_README.replace("\n", "\r\n"), size=60, overlap=12, minimum=8).chunks
    assert not [chunk for chunk in chunks if "\r" in {chunk.text[0], chunk.text[-1]}]
    assert ("Guide", "Setup", "Options", "Details") in {chunk.heading_path for chunk in chunks}


# --- overlap and minimum --------------------------------------------------------------------------------------------


def test_an_overlap_is_whole_words_from_the_end_of_the_chunk_before(chunk_checked: CheckedChunker) -> None:
    """What two chunks share ends the first, begins the second, begins behind a blank and keeps to its limit."""
    chunks = chunk_checked(_PROSE, ContentType.TEXT, size=40, overlap=12, minimum=1).chunks
    shared = [(before, after) for before, after in pairwise(chunks) if after.char_start < before.char_end]
    assert len(chunks) > 2
    assert shared
    for before, after in shared:
        text = _PROSE[after.char_start : before.char_end]
        assert before.text.endswith(text)
        assert after.text.startswith(text)
        assert _PROSE[after.char_start - 1].isspace()
        assert _count(text) <= 12


@pytest.mark.parametrize(("size", "overlap"), [(45, 15), (10, 9)])
def test_the_size_holds_with_the_overlap_in_it(chunk_checked: CheckedChunker, size: int, overlap: int) -> None:
    """An ordinary overlap and one of nearly the size: it ends, with fewer chunks than characters."""
    chunks = chunk_checked(_PROSE, ContentType.TEXT, size=size, overlap=overlap, minimum=1).chunks
    assert all(chunk.token_count <= size for chunk in chunks)
    assert len(chunks) < len(_PROSE)


def test_without_an_overlap_nothing_is_shared(chunk_checked: CheckedChunker) -> None:
    """No chunk begins before the one ahead of it ends."""
    chunks = chunk_checked(_PROSE, ContentType.TEXT, size=40, overlap=0, minimum=1).chunks
    assert all(before.char_end <= after.char_start for before, after in pairwise(chunks))


def test_a_small_tail_is_not_left_alone(chunk_checked: CheckedChunker) -> None:
    """A hundred words and "End." at 50 tokens, at least 10.

    The original makes two chunks, the second above its size. Here the size is a ceiling: three, all of ten or more.
    """
    text = " ".join(["word"] * 100) + "\n\nEnd."
    chunks = chunk_checked(text, ContentType.TEXT, size=50, overlap=0, minimum=10).chunks
    assert len(chunks) == 3
    assert chunks[-1].text.endswith("End.")
    assert all(10 <= chunk.token_count <= 50 for chunk in chunks)


def test_a_text_below_the_minimum_is_one_chunk(chunk_checked: CheckedChunker) -> None:
    """Three words, at least 40: there is nothing to merge with."""
    result = chunk_checked("Just three words", ContentType.TEXT, size=50, minimum=40)
    assert (len(result.chunks), result.stats.merged_count) == (1, 0)


def test_the_minimum_yields_only_to_size_and_section(chunk_checked: CheckedChunker) -> None:
    """40, 8 and 20 on the README.

    The original folds small sections together. Here a chunk never leaves its section, so a section of a few words is a
    chunk of its own, and what is checked of every chunking is that nothing else is below the minimum.
    """
    small = [c for c in chunk_checked(_README, size=40, overlap=8, minimum=20).chunks if c.token_count < 20]
    sections = scan_markdown(_README).sections[1:]
    for chunk in small:
        own = [section for section in sections if section.start <= chunk.char_start < section.end][-1]
        assert _count(_README[own.start : own.end].strip()) < 40 + 20


# --- other types ----------------------------------------------------------------------------------------------------


def test_code_is_cut_at_line_edges(chunk_checked: CheckedChunker) -> None:
    """Twelve lines in groups: more than one chunk, all edges are edges of lines."""
    text = "\n\n".join(f"const a{n} = {n};\nconst b{n} = a{n};\nconsole.log(a{n}, b{n});" for n in range(4))
    chunks = chunk_checked(text, ContentType.CODE, size=20, minimum=1).chunks
    assert len(chunks) > 1
    for chunk in chunks:
        assert chunk.char_start == 0 or text[chunk.char_start - 1] == "\n"
        assert chunk.char_end == len(text) or text[chunk.char_end] == "\n"


def test_html_headings_make_the_path(chunk_checked: CheckedChunker) -> None:
    """On one line, nested; entities decoded and tags taken out."""
    page = "<h1>Guide</h1><p>What it is about.</p><h2>Setup</h2><p>How it is installed.</p>"
    paths = {chunk.heading_path for chunk in chunk_checked(page, ContentType.HTML, size=12, minimum=1).chunks}
    assert {("Guide",), ("Guide", "Setup")} <= paths
    (chunk,) = chunk_checked("<h1>Tips &amp; <em>Tricks</em></h1><p>Text.</p>", ContentType.HTML).chunks
    assert chunk.heading_path == ("Tips & Tricks",)


def test_json_keys_make_the_path(chunk_checked: CheckedChunker) -> None:
    """Two keys that do not fit one chunk."""
    sentence = "some plain words that fill a value of its own "
    text = json.dumps({"alpha": sentence * 3, "beta": sentence * 3}, indent=2)
    result = chunk_checked(text, ContentType.JSON, size=40, minimum=1)
    assert {("alpha",), ("beta",)} <= {chunk.heading_path for chunk in result.chunks}
    assert result.strategy == "json-elements"


def test_json_records_keep_their_id_lines(chunk_checked: CheckedChunker) -> None:
    """An array of two, at 60 tokens."""
    text = json.dumps([{"id": f"record-{n}", "text": "words " * 20} for n in range(2)], indent=2)
    chunks = chunk_checked(text, ContentType.JSON, size=60, minimum=1).chunks
    for number in range(2):
        assert any(f'"id": "record-{number}"' in chunk.text for chunk in chunks)


def test_broken_json_is_read_as_lines(chunk_checked: CheckedChunker) -> None:
    """Three lines, and the strategy says so."""
    result = chunk_checked('{"a": 1,\n"b": oops\n"c": 3', ContentType.JSON, size=_SIZE)
    assert result.strategy == "json-lines"


# --- Unicode, and another counter -----------------------------------------------------------------------------------


def test_joined_emoji_stay_joined(chunk_checked: CheckedChunker) -> None:
    """Size 25: no half of a character anywhere, and the family is whole."""
    text = _cover(chunk_checked(_UNICODE, size=25, overlap=5, minimum=1))
    assert not re.search("[\ud800-\udfff]", text)
    assert _FAMILY in text


def test_another_counter_gives_other_chunks(chunk_checked: CheckedChunker, char_counter: TokenCounter) -> None:
    """One token a character: more chunks, each as long as its count."""
    chars = chunk_checked(_PROSE, ContentType.TEXT, counter=char_counter, size=40, minimum=1).chunks
    assert len(chars) > len(chunk_checked(_PROSE, ContentType.TEXT, size=40, minimum=1).chunks)
    assert all(chunk.token_count == len(chunk.text) for chunk in chars)
