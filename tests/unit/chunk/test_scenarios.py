"""What breaks other splitters: the scenarios and the known weaknesses of the original, a test for each.

The comment ahead of a test names its row: S of scenarios.md, W and P of behaviour.md 10.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk.markdown import scan_markdown
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkOptions
from memory_core.errors import ChunkingError
from memory_core.models import ContentType

CheckedChunker = Callable[..., ChunkingResult]

_FAMILY = "👩\u200d👩\u200d👧\u200d👦"
_PROSE = "The agent keeps what it is told and finds it again. It asks in plain words, and the answer has a place. "
_CHINESE = "今天天气很好\uff0c我们去公园散步。孩子们在那里玩\uff0c大人坐着聊天。"


def _is_whole_lines(text: str, chunk: Chunk) -> bool:
    before, behind = text[: chunk.char_start], text[chunk.char_end :]
    return (not before or before.endswith("\n")) and (not behind or behind.startswith("\n"))


def _paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in scan_markdown(text).sections[1:]]


# --- repeats --------------------------------------------------------------------------------------------------------


# S6
def test_equal_paragraphs_have_places_of_their_own(chunk_checked: CheckedChunker) -> None:
    """The same paragraph twenty times is twenty chunks at twenty offsets, where each fills one."""
    paragraph = ("The same words again and again in this one. " * 3).strip()
    chunks = chunk_checked("\n\n".join([paragraph] * 20), ContentType.TEXT, size=40, minimum=1).chunks
    assert [chunk.char_start for chunk in chunks] == [(len(paragraph) + 2) * number for number in range(20)]
    assert {chunk.text for chunk in chunks} == {paragraph}


# S7
@pytest.mark.parametrize("overlap", [0, 12])
@pytest.mark.parametrize(
    "text",
    ["chunk chunk chunk " * 40, "| a | b |\n|---|---|\n" + "| same | same |\n" * 50, "a,b\n" + "same,same\n" * 50],
    ids=["words", "table", "csv"],
)
@pytest.mark.parametrize("content_type", [ContentType.MARKDOWN, ContentType.TEXT, ContentType.CSV])
def test_repeats_keep_exact_offsets(
    chunk_checked: CheckedChunker, content_type: ContentType, text: str, overlap: int
) -> None:
    """Where all words or rows are equal there is one right place for each slice, and all of them make up the text."""
    chunks = chunk_checked(text, content_type, size=40, overlap=overlap, minimum=8).chunks
    covered = {place for chunk in chunks for place in range(chunk.char_start, chunk.char_end)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)
    assert overlap or sum(len(chunk.text.split()) for chunk in chunks) == len(text.split())


# --- Markdown -------------------------------------------------------------------------------------------------------


# S8
@pytest.mark.parametrize(
    "text",
    [
        "# A\n\n```sh\n# no heading\nand no end",
        "# A\n\n```\n~~~\n# no heading\n~~~\n```\n\ntext",
        "# A\n\n- item\n\n  ```sh\n  # no heading\n  ```\n\n- item",
        "# A\n\n> ```sh\n> # no heading\n> ```\n\ntext",
        "# A\n\n```bash\n# no heading\necho $HOME\n```\n\ntext",
        "---\ntitle: |\n  ---\n  # no heading\n---\n\n# A\n\ntext",
        "A\n===\n\ntext",
    ],
    ids=["unclosed", "tildes inside", "in an item", "in a quote", "bash", "front matter", "setext"],
)
def test_no_comment_becomes_a_heading_and_nothing_is_lost(chunk_checked: CheckedChunker, text: str) -> None:
    """Whatever the fence is made of and stands in, the only section is the heading's."""
    assert _paths(text) == [("A",)]
    for size in (32, 400):
        chunks = chunk_checked(text, size=size, minimum=1).chunks
        assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())
        # A text that fits one chunk has the path of its start.
        assert {chunk.heading_path for chunk in chunks} <= {(), ("A",)}


# S8
def test_an_oversized_table_is_cut_between_rows_and_keeps_its_header_beside_it(chunk_checked: CheckedChunker) -> None:
    """Sixty rows: whole lines in each chunk, the header row as its lead and not in its text."""
    header = "| name | value |\n|---|---|"
    rows = "\n".join(f"| row {number} | value {number} |" for number in range(60))
    text = f"# T\n\n{header}\n{rows}\n"
    first, *others = chunk_checked(text, size=100, minimum=1).chunks
    assert first.text.startswith(f"# T\n\n{header}\n| row 0 ")
    assert (first.lead, first.heading_path) == ("", ("T",))
    assert len(others) > 3
    for chunk in others:
        assert chunk.lead.startswith("| name | value |")
        assert "name" not in chunk.text
        assert _is_whole_lines(text, chunk)
        assert chunk.heading_path == ("T",)


# --- characters -----------------------------------------------------------------------------------------------------


# S10
@pytest.mark.parametrize("content_type", list(ContentType))
@pytest.mark.parametrize("char", ["\u2028", "\x85", "\x0c", "\r", "\x00", "\x1b", "\ufeff", "\u202e"])
def test_a_control_character_is_kept_where_it_is(
    chunk_checked: CheckedChunker, content_type: ContentType, char: str
) -> None:
    """Line separators, form feeds, lone carriage returns and marks of direction move no offset."""
    text = char.join(["Some plain words of a line that goes on."] * 30)
    chunks = chunk_checked(text, content_type, size=40, minimum=1).chunks
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())


# S10
@pytest.mark.parametrize("content_type", list(ContentType))
def test_a_family_at_a_chunks_edge_is_whole(chunk_checked: CheckedChunker, content_type: ContentType) -> None:
    """Wherever the edges fall, each chunk is whole families."""
    for ahead in range(0, 40, 3):
        result = chunk_checked("x" * ahead + _FAMILY * 40, content_type, size=64, overlap=20, minimum=1)
        assert result.stats.cluster_cuts == 0
        assert all(chunk.text.lstrip("x").replace(_FAMILY, "") == "" for chunk in result.chunks)


# S10
@pytest.mark.parametrize("content_type", list(ContentType))
def test_half_a_character_is_refused_with_its_place(content_type: ContentType) -> None:
    """A lone surrogate is no text: it is an error that names its index in every type."""
    with pytest.raises(ChunkingError, match="character 2"):
        chunk_content("ab\ud800", content_type, ChunkOptions(), load_tiktoken_counter())


# --- sizes ----------------------------------------------------------------------------------------------------------


# S24
@pytest.mark.parametrize(
    ("size", "overlap", "minimum"), [(40, 40, 1), (40, 50, 1), (40, 0, 41), (40, -1, 1), (0, 0, 0), (-5, 0, 0)]
)
def test_sizes_that_cannot_work_are_refused_in_words(size: int, overlap: int, minimum: int) -> None:
    """An overlap of the size or above, a minimum above it, no size: a sentence that says what works."""
    options = ChunkOptions(size=size, overlap=overlap, minimum=minimum)
    with pytest.raises(ChunkingError, match=r"\d.*Use (at least )?\d"):
        chunk_content("text", ContentType.TEXT, options, load_tiktoken_counter())


# S24
def test_the_smallest_size_makes_progress(chunk_checked: CheckedChunker) -> None:
    """One token a chunk: three words are three chunks."""
    assert len(chunk_checked("a b c", ContentType.TEXT, size=1, minimum=1).chunks) == 3


# S24, P1
@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, _PROSE * 10_000, "漢" * 200_000, "a" + "\n" * 100_000 + "b", "a" + " \n" * 100_000],
    ids=["one line", "one line of words", "chinese", "blank lines", "lines of blanks"],
)
def test_a_huge_line_and_a_hundred_thousand_blank_ones_keep_their_bounds(text: str) -> None:
    """Each in a second or two; no chunk above the size, and nothing lost."""
    result = chunk_content(text, ContentType.TEXT, ChunkOptions(overlap=100), load_tiktoken_counter())
    assert all(chunk.token_count <= 400 for chunk in result.chunks)
    ends = [0, *(chunk.char_end for chunk in result.chunks)]
    assert not "".join(text[end : c.char_start] for c, end in zip(result.chunks, ends, strict=False)).strip()
    assert not text[ends[-1] :].strip()


# W1
@pytest.mark.parametrize(
    ("size", "overlap", "minimum"), [(32, 31, 32), (48, 47, 32), (64, 63, 32), (84, 64, 32), (80, 64, 32), (64, 0, 32)]
)
@pytest.mark.parametrize(
    "text",
    [
        _PROSE * 200,
        "\n\n".join(f"## Part {number}\n\n{_PROSE * 6}" for number in range(35)),
        _CHINESE * 120,
        base64.b64encode(random.Random(1).randbytes(6_000)).decode(),
    ],
    ids=["prose", "sections", "chinese", "base64"],
)
def test_a_small_size_with_a_large_overlap_bounds_every_chunk(
    chunk_checked: CheckedChunker, text: str, size: int, overlap: int, minimum: int
) -> None:
    """Nothing folds into one huge chunk because each piece is below the minimum."""
    chunks = chunk_checked(text, size=size, overlap=overlap, minimum=minimum).chunks
    assert len(chunks) >= load_tiktoken_counter().count(text) // size


# --- clusters -------------------------------------------------------------------------------------------------------


# W12
@pytest.mark.parametrize("content_type", [ContentType.MARKDOWN, ContentType.TEXT])
def test_nine_thousand_characters_of_joined_emoji_survive_storage(
    chunk_checked: CheckedChunker, content_type: ContentType
) -> None:
    """No chunk has half a character, so what a database gives back is the slice."""
    text = _FAMILY * 818
    result = chunk_checked(text, content_type, overlap=40)
    assert result.stats.cluster_cuts == 0
    for chunk in result.chunks:
        assert chunk.text.encode("utf-16", "strict").decode("utf-16") == chunk.text
        assert chunk.text.replace(_FAMILY, "") == ""


# W12
def test_long_combining_runs_are_cut_only_where_one_alone_is_too_large(chunk_checked: CheckedChunker) -> None:
    """Letters with marks, flags and Thai stay whole; one letter with ten thousand cannot, and the stats say so."""
    for text in (("e" + "\u0301" * 40) * 100, "e\u0301" * 5_000, "🇩🇪" * 2_000, "กำ" * 3_000):
        assert chunk_checked(text, ContentType.TEXT, overlap=40).stats.cluster_cuts == 0
    assert chunk_checked("words " * 50 + "e" + "\u0301" * 10_000, ContentType.TEXT).stats.cluster_cuts > 0


# --- headings -------------------------------------------------------------------------------------------------------


# W13
def test_no_chunk_ends_with_the_heading_of_the_next_section(chunk_checked: CheckedChunker) -> None:
    """Twenty-one sections: each chunk is of one section and has its name."""
    text = "\n\n".join(f"## Part {number}\n\n{_PROSE * 4}" for number in range(21))
    chunks = chunk_checked(text, size=120, overlap=24, minimum=16).chunks
    for chunk in chunks:
        assert not chunk.text.splitlines()[-1].startswith("#")
        assert len(re.findall("^##", chunk.text, re.MULTILINE)) <= 1
        assert text.rindex("## ", 0, chunk.char_end) == text.index(f"## {chunk.heading_path[0]}\n")


# W13
def test_a_heading_ahead_of_a_nearly_full_fence_takes_nothing_of_the_section_before(
    chunk_checked: CheckedChunker,
) -> None:
    """It may stand alone, but never with the code of another section under its name."""
    fence = "```py\n" + "".join(f"value_{number} = {number}\n" for number in range(18)) + "```"
    text = "\n\n".join(f"## Part {number} of the whole manual\n\n{fence}" for number in range(4))
    size = load_tiktoken_counter().count(fence) + 2
    chunks = chunk_checked(text, size=size, overlap=size // 2, minimum=1).chunks
    for chunk in chunks:
        assert text.rindex("## ", 0, chunk.char_end) == text.index(f"## {chunk.heading_path[0]}\n")
        assert chunk.char_start >= text.index(f"## {chunk.heading_path[0]}\n")
    assert sum(fence in chunk.text for chunk in chunks) == 4


# W14
@pytest.mark.parametrize(
    "sentence", [_CHINESE, "今日は良い天気です。散歩に行きましょう\uff01"], ids=["chinese", "japanese"]
)
def test_chinese_and_japanese_end_with_sentences_and_overlap(chunk_checked: CheckedChunker, sentence: str) -> None:
    """A sentence needs no blank behind it, and an overlap none ahead of it."""
    chunks = chunk_checked(sentence * 40, ContentType.TEXT, size=64, overlap=24, minimum=8).chunks
    assert all(chunk.text[-1] in "。\uff01" for chunk in chunks)
    assert all(after.char_start < before.char_end for before, after in pairwise(chunks))


# --- what is structure ----------------------------------------------------------------------------------------------


# W15
def test_a_thematic_break_at_the_top_swallows_no_heading() -> None:
    """Only what reads as front matter is front matter."""
    assert _paths("---\n\n# First\n\ntext\n\n---\n\n# Second\n\ntext") == [("First",), ("Second",)]
    assert _paths("***\n# First\n\n***\n") == [("First",)]


# W15
def test_a_reader_of_a_page_sees_no_script_style_or_tag(chunk_checked: CheckedChunker) -> None:
    """They stay in the slice, which is exact, and are not in what a model reads."""
    page = "<style>p { color: red }</style><script>let a = '<h1>no</h1>';</script><h1>Yes</h1><p>Some <b>words</b>.</p>"
    (chunk,) = chunk_checked(page, ContentType.HTML).chunks
    assert chunk.text == page
    assert chunk.readable is not None
    assert chunk.readable.split() == ["Yes", "Some", "words."]


# W15
def test_a_wrapper_of_one_key_is_in_the_path(chunk_checked: CheckedChunker) -> None:
    """Whatever is below the only key of a JSON text is below it in the path."""
    text = '{"results": [' + ", ".join(f'{{"id": {n}, "about": "{_PROSE}"}}' for n in range(8)) + "]}"
    chunks = chunk_checked(text, ContentType.JSON, size=64, minimum=1).chunks
    assert len(chunks) > 4
    assert all(chunk.heading_path[0].startswith("results") for chunk in chunks)


# W15
def test_a_fence_in_a_quote_is_whole_where_it_fits(chunk_checked: CheckedChunker) -> None:
    """Blank lines in it are no paragraphs' ends."""
    fence = "> ```sh\n" + "".join(f"> # step {number}\n>\n> run {number}\n" for number in range(6)) + "> ```"
    text = f"# A\n\n{_PROSE}\n\n{fence}\n\n{_PROSE}"
    chunks = chunk_checked(text, size=load_tiktoken_counter().count(fence) + 4, minimum=1).chunks
    assert any(fence in chunk.text for chunk in chunks)


# --- time -----------------------------------------------------------------------------------------------------------


# P1, P2, P3, P4, and what a text of each type can do besides
_HOSTILE: dict[str, tuple[ContentType, Callable[[int], str]]] = {
    "words on one line": (ContentType.MARKDOWN, lambda chars: "the quick brown fox " * (chars // 20)),
    "chinese": (
        ContentType.MARKDOWN,
        lambda chars: "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x9FA5), k=chars))),
    ),
    "base64": (
        ContentType.MARKDOWN,
        lambda chars: base64.b64encode(random.Random(1).randbytes(chars * 3 // 4)).decode(),
    ),
    "minified json": (
        ContentType.JSON,
        lambda chars: "[" + '{"id":17,"name":"abc","tags":["x","y"]},' * (chars // 40) + "1]",
    ),
    "brackets": (ContentType.JSON, lambda chars: "[" * chars),
    "blanks": (ContentType.MARKDOWN, lambda chars: "a" + " " * chars + "b"),
    "blank lines": (ContentType.MARKDOWN, lambda chars: "a" + "\n" * chars + "b"),
    "heading and blanks": (ContentType.MARKDOWN, lambda chars: "# a" + " " * chars + "b"),
    "heading and separators": (
        ContentType.MARKDOWN,
        lambda chars: "# a" + " " * (chars // 2) + "\u2028" * (chars // 2) + "b",
    ),
    "headings": (ContentType.MARKDOWN, lambda chars: "# a\n" * (chars // 4)),
    "setext": (ContentType.MARKDOWN, lambda chars: "a\n=\n" * (chars // 4)),
    "h1": (ContentType.HTML, lambda chars: "<h1 " * (chars // 4)),
    "h1 closed": (ContentType.HTML, lambda chars: "<h1>a</h1>" * (chars // 10)),
    "h1 in markdown": (ContentType.MARKDOWN, lambda chars: "<h1 " * (chars // 4)),
    "open comments": (ContentType.HTML, lambda chars: "<!-- " * (chars // 5)),
    "quotes in quotes": (ContentType.MARKDOWN, lambda chars: (">" * 200 + " a\n") * (chars // 203)),
    "fences in items": (ContentType.MARKDOWN, lambda chars: "- ```\n" * (chars // 6)),
    "fences in an item": (ContentType.MARKDOWN, lambda chars: "- a\n" + "  ```\n  x\n  ```\n" * (chars // 17)),
    "flags": (ContentType.MARKDOWN, lambda chars: "🇩🇪" * (chars // 2)),
    "joined": (ContentType.MARKDOWN, lambda chars: "👩\u200d" * (chars // 2)),
    "full stops": (ContentType.MARKDOWN, lambda chars: ". " * (chars // 2)),
    "quotes": (ContentType.CSV, lambda chars: '"a,' * (chars // 3)),
    "adornments": (ContentType.RST, lambda chars: "==\na\n" * (chars // 5)),
    "directives": (ContentType.RST, lambda chars: ".. a::\n\n   b\n\n" * (chars // 14)),
    "definitions": (ContentType.CODE, lambda chars: "def f():\n    pass\n" * (chars // 18)),
}


@pytest.mark.parametrize("kind", list(_HOSTILE))
def test_time_is_linear_on_hostile_text(kind: str, assert_linear: Callable[..., None]) -> None:
    """However long a text is, each character costs the same."""
    counter, (content_type, make_text) = load_tiktoken_counter(), _HOSTILE[kind]
    options = ChunkOptions(overlap=40, language="python" if content_type is ContentType.CODE else "")

    def work(text: str) -> None:
        chunk_content(text, content_type, options, counter)

    assert_linear(work, make_text, chars=20_000)


# P5
def test_time_is_linear_with_the_largest_overlap(assert_linear: Callable[..., None]) -> None:
    """Chinese at 64 tokens of which 63 may be shared, 1,800 and 18,000 characters of it."""
    counter, options = load_tiktoken_counter(), ChunkOptions(size=64, overlap=63)

    def work(text: str) -> None:
        chunk_content(text, ContentType.TEXT, options, counter)

    def make_text(chars: int) -> str:
        return _CHINESE * (chars // len(_CHINESE))

    assert_linear(work, make_text, chars=1_800)
