"""What counts as structure in Markdown: sections, fences, quotes, lists, tables and front matter."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.markdown import scan_markdown
from memory_core.chunk_values import ChunkingResult

_README = """\
# Guide

What this is about, in a few words.

## Setup

Install it with the package manager, then run the command below.

### Options

```yaml
# not a heading
key: value
# nor is this
```

Text after the fence.

#### Details

What is set here holds for all commands, whatever their own options say.

## Search

How a search works and what it returns.
"""


def _paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in scan_markdown(text).sections[1:]]


def test_headings_nest_and_a_comment_in_a_fence_is_none() -> None:
    """A deeper heading adds to the path, an equal or shallower one replaces."""
    assert _paths(_README) == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Guide", "Setup", "Options"),
        ("Guide", "Setup", "Options", "Details"),
        ("Guide", "Search"),
    ]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Over\n====\n\nbody\n\nUnder\n---\nbody", [("Over",), ("Over", "Under")]),
        ("two\nlines\n===", [("two lines",)]),
        ("# a #\n## b ##x", [("a",), ("a", "b ##x")]),
        ("#no\n####### no\n\\# no\n    # code", []),
        ("#\ntext", [()]),
        ("# a\r\n\r\ntext\r\n## b\r\n", [("a",), ("a", "b")]),
        ("# a\rtext\r## b", [("a",), ("a", "b")]),
        ("text\n# interrupts", [("interrupts",)]),
        ("- item\n---\ntext", []),
        ("> quoted\n---", []),
        ("- # in an item\n> # in a quote", []),
        ("[ref]: http://x\n===", []),
        ("| a |\n|---|\n| # b |", []),
        ("<!--\n# no\n-->\n# yes", [("yes",)]),
        ("<div>\n# no\n\n# yes", [("yes",)]),
        ("<pre>\n\n# no\n\n</pre>\n# yes", [("yes",)]),
    ],
)
def test_headings_are_those_of_commonmark(text: str, paths: list[tuple[str, ...]]) -> None:
    """Only what CommonMark calls a heading of the text itself opens a section."""
    assert _paths(text) == paths


@pytest.mark.parametrize(
    "text",
    [
        "```\n# in an unclosed fence\n",
        "```\n~~~\n# no\n~~~\n```",
        "~~~\n```\n# no\n```\n~~~",
        "````\n```\n# no\n```\n````",
        "```sh\n# no\n``\n# no\n```",
        "- item\n\n  ```sh\n  # no\n  ```",
        "- ```sh\n  # no\n  ```",
        "1. ~~~\n\n   # no\n   ~~~",
        "> ```sh\n> # no\n> ```",
        "> - ```\n>   # no\n>   ```",
        "   ```\n# no\n   ```",
    ],
)
def test_a_comment_in_a_fence_is_no_heading(text: str) -> None:
    """Whatever the fence is made of, and wherever it stands, its lines are code; the heading after it is one."""
    assert _paths(text) == []
    if not text.endswith("\n"):
        assert _paths(f"{text}\n\n# Real") == [("Real",)]


def test_a_fence_ends_with_its_item_or_quote() -> None:
    """An unclosed fence in a list item or a quote does not swallow what follows."""
    assert _paths("- ```\n  # no\n\n# yes") == [("yes",)]
    assert _paths("> ```\n> # no\n\n# yes") == [("yes",)]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("---\ntitle: x\ntags:\n  - a\n# comment\n---\n# H", [("H",)]),
        ("---\ntitle: a --- b\ntext: |\n  ---\n  # no\n---\n# H", [("H",)]),
        ("---\ntitle: x\n...\n# H", [("H",)]),
        ('+++\ntitle = "x"\n[a.b]\n# comment\n+++\n# H', [("H",)]),
        ("---\n\n# First\n\ntext\n\n---\n\n# Second", [("First",), ("Second",)]),
        ("---\nSome prose, no key.\n\n# First\n\n---\n# Second", [("First",), ("Second",)]),
        ("---\n# First\n\nprose\n\n---\n# Second", [("First",), ("Second",)]),
        ("text\n\n---\ntitle: x\n---\n", [("title: x",)]),
    ],
)
def test_front_matter_is_front_matter_only_at_the_top_and_where_it_reads_as_such(
    text: str, paths: list[tuple[str, ...]]
) -> None:
    """A text that opens with a thematic break keeps its headings."""
    assert _paths(text) == paths


def test_a_heading_of_a_million_characters_does_not_fill_every_path() -> None:
    """A path is stored with each chunk below it, so its names are short."""
    assert len(_paths("# " + "a" * 1_000_000 + "\n\ntext")[0][0]) == 256


def test_the_deepest_path_reaches_its_chunk(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A small size gives each section its own chunk, with all headings above it."""
    paths = [chunk.heading_path for chunk in chunk_checked(_README, size=32, minimum=1).chunks]

    assert ("Guide", "Setup", "Options", "Details") in paths
    assert ("Guide", "Search") in paths


def test_a_fence_that_fits_is_in_one_chunk(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """It is whole even where nothing else fits beside it; then it stands alone, without an overlap."""
    fence = "```py\n" + "".join(f"x{number} = {number}\n" for number in range(20)) + "```"
    text = f"# A\n\nSome words before.\n\n## B\n\nMore words.\n\n{fence}\n\nAfter."
    size = load_tiktoken_counter().count(fence)

    assert [c.text for c in chunk_checked(text, size=size, overlap=20, minimum=1).chunks].count(fence) == 1
    assert any(fence in c.text for c in chunk_checked(text, size=size + 200, overlap=24, minimum=1).chunks)


def test_a_fence_that_does_not_fit_is_cut_between_lines(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Each of its chunks begins and ends at the edge of a line, and the heading stays with the first of them."""
    fence = "```py\n" + "".join(f"value_{number} = {number}\n" for number in range(40)) + "```"
    text = f"## B\n\n{fence}"
    chunks = chunk_checked(text, size=64, minimum=1).chunks

    assert len(chunks) > 2
    assert chunks[0].text.startswith("## B\n\n```py\nvalue_0 = 0\n")
    for chunk in chunks:
        assert chunk.char_start == 0 or text[chunk.char_start - 1] == "\n"
        assert chunk.char_end == len(text) or text[chunk.char_end] == "\n"


def test_a_table_that_does_not_fit_is_cut_between_rows(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Sixty rows at 100 tokens: whole rows in each chunk, nothing injected."""
    rows = [f"| row {number} | value {number} |" for number in range(60)]
    text = "# T\n\n| a | b |\n|---|---|\n" + "\n".join(rows) + "\n"
    chunks = chunk_checked(text, size=100).chunks

    assert len(chunks) > 3
    assert chunks[0].text.startswith("# T\n\n| a | b |\n|---|---|\n| row 0 ")
    assert [row for chunk in chunks for row in re.findall(r"\| row .*\|", chunk.text)] == rows


def test_equal_rows_keep_their_own_places(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Fifty rows that are all the same, with overlap on and off."""
    text = "| a | b |\n|---|---|\n" + "| same | same |\n" * 50
    for overlap in (0, 16):
        starts = [chunk.char_start for chunk in chunk_checked(text, size=40, overlap=overlap, minimum=8).chunks]
        assert starts == sorted(set(starts))


def test_a_section_never_ends_with_the_next_heading(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Twenty sections: each chunk names its own section, and no chunk ends in a heading."""
    text = "\n\n".join(f"## Part {number}\n\n" + "Some words about it. " * 30 for number in range(20))
    chunks = chunk_checked(text, size=120, overlap=24, minimum=16).chunks

    assert {chunk.heading_path for chunk in chunks} == {(f"Part {number}",) for number in range(20)}
    assert not [chunk for chunk in chunks if chunk.text.splitlines()[-1].startswith("#")]


def test_items_are_whole_where_they_fit(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A long list is cut between its items, nested ones with what they belong to."""
    items = [f"- item {number}\n  goes on here\n  - nested {number}" for number in range(30)]
    text = "Intro:\n\n" + "\n".join(items)
    chunks = chunk_checked(text, size=64).chunks

    assert all(any(item in chunk.text for chunk in chunks) for item in items)


@pytest.mark.parametrize("at_once", [1, 7, 30])
@pytest.mark.parametrize(
    "text",
    ["# a title\n" * 40, "A title\n===\n" * 40, f"Intro\n\n## {'long ' * 20}\n## b\n## c\n\ntext\n\n## d\n## e\n"],
)
def test_headings_in_a_row_are_read_alike_in_parts(
    chunk_checked: Callable[..., ChunkingResult], monkeypatch: pytest.MonkeyPatch, text: str, at_once: int
) -> None:
    """However many are split into lines at a time."""
    whole = chunk_checked(text, size=32, minimum=1)
    monkeypatch.setattr("memory_core.chunk.markdown._HEADING_CHARS_AT_ONCE", at_once)
    assert chunk_checked(text, size=32, minimum=1) == whole
