"""What counts as structure in HTML: headings, blocks, tables, lists; and what is no text for a reader."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.chunk.html import scan_html
from memory_core.chunk_values import ChunkingResult
from memory_core.models import ContentType
from memory_core.ports import TokenCounter

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
  <title>Manual &middot; Tea</title>
  <style>h1 > a { color: red }</style>
  <script>document.write("<h1>Not a heading</h1>")</script>
</head>
<body>
  <!-- <h2>Nor is this</h2> -->
  <div class="page"><header><h1 id="a>b">Tea</h1></header>
    <p>How it is made.</p>
    <section><h2>Black <em>tea</em></h2><p>Boil the water.<p>Pour it.</section>
  </div>
  <template><h2>Nor this</h2></template>
</body>
</html>
"""


def _paths(page: str) -> list[tuple[str, ...]]:
    return [section.path for section in scan_html(page).sections[1:]]


def _blocks(page: str) -> list[str]:
    """The text between neighbouring cuts."""
    edges = [*scan_html(page).cuts.positions.tolist(), len(page)]
    return [page[start:end] for start, end in pairwise(edges)]


def _levels(page: str) -> list[int]:
    return scan_html(page).cuts.levels.tolist()


# --- headings -------------------------------------------------------------------------------------------------------


def test_headings_nest_and_markup_that_is_no_content_has_none() -> None:
    """Scripts, styles, comments and templates give no headings; those of the page make the path."""
    assert _paths(_PAGE) == [("Tea",), ("Tea", "Black tea")]


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("<h2>A &amp; <em>B</em></h2>", "A & B"),
        ("<h2>Fish&nbsp;&#x26;&#32;chips&hellip;</h2>", "Fish & chips…"),
        ("<h2>One<br>two</h2>", "One two"),
        ("<h2><div>One</div><div>two</div></h2>", "One two"),
        ("<h2>un<b>believ</b>able</h2>", "unbelievable"),
        ("<h2>a < b && c > d</h2>", "a < b && c > d"),
        ("<h2>a<script>b()</script><!-- c --></h2>", "a"),
        ("<H2\n CLASS='x>y'>Loud</H2 >", "Loud"),
        ("<h2>&lt;h3&gt;</h2>", "<h3>"),
        ("<h2>Wide\r\n  apart</h2>", "Wide apart"),
        ("<h2>&#" + "9" * 5_000 + ";!</h2>", "\N{REPLACEMENT CHARACTER}!"),
    ],
)
def test_a_heading_is_named_by_what_a_reader_sees(page: str, name: str) -> None:
    """Entities are decoded, tags are left out, blanks are one blank."""
    assert _paths(page) == [(name,)]


@pytest.mark.parametrize(
    ("page", "paths"),
    [
        ("<h1>Title<p>text<p>more", [("Title",)]),
        ("<h1>Title<h2>Part<div>text", [("Title",), ("Title", "Part")]),
        ("<div><h1>Title</div>text", [("Title",)]),
        ("<ul><li><h3>One<li><h3>Two</ul>", [("One",), ("Two",)]),
        ("<h1><p></h1><h2>Part</h2>", [("Part",)]),
        ("<h2>Wrong end</h4>text", [("Wrong end",)]),
        ("<h1></h1><h2><img src=a></h2><h3> </h3>text", []),
        ("</h1><h7>none</h7><h1x>none</h1x>", []),
        ("<pre><h1>code</h1></pre><textarea><h1>form</h1></textarea>", []),
        ("<iframe><h1>x</h1></iframe><title><h1>x</h1></title>", []),
        ("<template><template></template><h1>x</h1></template><h1>y</h1>", [("y",)]),
        ("<noscript><h1>Without scripts</h1></noscript>", [("Without scripts",)]),
        ("<svg><style><h1></style><title>t</title></svg><h1>y</h1>", [("y",)]),
        ("<script><h1>never closed</h1>", []),
        ("<!-- <h1>never closed</h1>", []),
        ("<a title='<h1>never closed</h1>", []),
    ],
)
def test_a_broken_or_empty_heading_degrades(page: str, paths: list[tuple[str, ...]]) -> None:
    """A block or the end of what is around ends a heading; one without words is none; a raw text has none."""
    assert _paths(page) == paths


def test_an_unclosed_heading_does_not_swallow_its_section() -> None:
    """The text below goes on in blocks of its own."""
    assert scan_html("<h1>Title<p>text<p>more").cuts.bodies[0] == len("<h1>Title")


def test_short_sections_on_one_line_have_their_own_paths(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A page without a single line end still falls into its sections."""
    page = "<h1>Guide</h1><p>Welcome to it.</p><h2>Setup</h2><p>Do this.</p>"
    result = chunk_checked(page, ContentType.HTML, size=12, minimum=0)
    assert result.strategy == "html-blocks"
    paths = [chunk.heading_path for chunk in result.chunks]
    assert ("Guide",) in paths
    assert ("Guide", "Setup") in paths


# --- blocks ---------------------------------------------------------------------------------------------------------


def test_a_block_begins_with_its_own_tags_and_ends_with_them() -> None:
    """End tags stay with what they end, start tags with what they begin."""
    page = "<div><p><a>One</a></p></div>\n<div class=b><p><i>Two</i></p><p>Three</p></div>tail"
    assert _blocks(page) == [
        "<div><p><a>One</a></p></div>\n",
        "<div class=b><p><i>Two</i></p>",
        "<p>Three</p></div>",
        "tail",
    ]


def test_what_is_nested_deeper_is_cut_later() -> None:
    """The edge of an outer item is stronger than that of an item in it, with or without end tags."""
    closed = "<ul><li>a</li><li>b<ul><li>c</li><li>d</li></ul></li><li>e</li></ul>"
    unclosed = re.sub("</li>", "", closed)
    for page in (closed, unclosed):
        levels = dict(zip(re.findall("[a-e]", "".join(_blocks(page))), _levels(page), strict=False))
        assert levels["a"] < levels["b"] == levels["e"] < levels["c"] < levels["d"]


def test_scripts_styles_and_comments_between_blocks_are_blocks() -> None:
    """So that they share no chunk with text where there is none to spare."""
    page = "<p>a</p><script>b</script><!-- c --><p>d<!-- e -->f</p>"
    assert _blocks(page) == ["<p>a</p>", "<script>b</script>", "<!-- c -->", "<p>d<!-- e -->f</p>"]


def test_one_break_is_a_line_and_two_are_a_paragraph() -> None:
    """Old pages know no other paragraphs."""
    page = "<div>a<br>b<br><br>c<p>d</p></div>"
    assert _blocks(page) == ["<div>a<br>", "b<br><br>", "c", "<p>d</p></div>"]
    first, line, paragraph, block = _levels(page)
    assert first < paragraph == block < line


def test_a_page_without_markup_is_one_block() -> None:
    """Text is text."""
    assert _blocks("just words, 1 < 2 & 3 > 2") == ["just words, 1 < 2 & 3 > 2"]


def test_elements_nested_without_end_are_cut_alike() -> None:
    """Levels end somewhere; the page does not fail."""
    levels = _levels("".join(f"<div>block number {number}" for number in range(200)))
    assert len(levels) == 200
    assert len(set(levels)) == 50


def test_a_large_table_is_cut_only_between_rows(
    chunk_checked: Callable[..., ChunkingResult], char_counter: TokenCounter
) -> None:
    """No row is torn while it fits, and the row of names is told to all."""
    row = "<tr><td>{0}</td><td>value {0}</td></tr>"
    header = "<tr><th>No</th><th>What</th></tr>"
    page = f"<h2>Rows</h2><table>{header}{''.join(map(row.format, range(60)))}</table><p>Below.</p>"
    result = chunk_checked(page, ContentType.HTML, counter=char_counter, size=300, minimum=0)
    texts = [chunk.text for chunk in result.chunks]
    assert len(texts) > 5
    assert all(text.startswith(("<h2>", "<tr>", "<p>")) for text in texts)
    assert all(text.endswith(("</tr>", "</table>", "</p>")) for text in texts)
    assert all(chunk.heading_path == ("Rows",) for chunk in result.chunks)


def test_preformatted_text_that_fits_is_one_chunk(
    chunk_checked: Callable[..., ChunkingResult], char_counter: TokenCounter
) -> None:
    """Blank lines and markup in it are no reason to cut."""
    code = "<pre><code>" + "let <b>x</b> = 1\n\n" * 8 + "</code></pre>"
    page = f"<p>{'words ' * 30}</p>{code}<p>{'words ' * 30}</p>"
    result = chunk_checked(page, ContentType.HTML, counter=char_counter, size=len(code) + 10, minimum=0)
    assert any(code in chunk.text for chunk in result.chunks)


# --- what a reader sees -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "seen"),
    [
        ("<p>fish &amp; chips <i>to</i>day</p>", "fish & chips today"),
        ("<p>one</p>\n  <p>two<br>three</p>", "one\ntwo\nthree"),
        ("<b>one</b> <i>two</i>", "one two"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c<td>d</table>", "a b\nc d"),
        ("<head><meta a=b><title>T</title><style>x</style></head>y<script>z</script>", "T\ny"),
        ("a<!-- b -->c<!DOCTYPE d><?php e ?>f<![CDATA[ g ]]>", "acf"),
        ("a<template>b<template>c</template>d</template>e", "a e"),
        ("<!--[if IE]>a<![endif]-->b", "b"),
        ("<textarea><b>a</b></textarea>", "<b>a</b>"),
        ("<pre>a\n  <b>b</b>\n  <i>c</i></pre>", "a\n  b\n  c"),
        ("<a title='>'>b</a> < c", "b < c"),
        ("text <b", "text"),
        ("text &amp;<b class='", "text &"),
        ("</p></div>stray", "stray"),
        ("<noscript>a</noscript>", "a"),
        ("<script>only", ""),
        ("<h1 <h1 <h1 ", ""),
    ],
)
def test_what_a_reader_sees_has_no_markup(
    page: str, seen: str, chunk_checked: Callable[..., ChunkingResult], char_counter: TokenCounter
) -> None:
    """Tags, scripts and comments are left out, entities are decoded, blocks are lines; the text stays the slice."""
    (chunk,) = chunk_checked(page, ContentType.HTML, counter=char_counter, size=500, minimum=0).chunks
    assert chunk.text == page.strip()
    assert (chunk.text if chunk.readable is None else chunk.readable).strip() == seen


def test_the_row_of_names_goes_with_every_part_of_a_table(
    chunk_checked: Callable[..., ChunkingResult], char_counter: TokenCounter
) -> None:
    """A `thead`, or a first row of `th` alone; a first row of values is none."""
    rows = "<tr><th>1</th><td>one</td></tr>" * 20
    for header in ("<thead><tr><td>No</td></tr></thead>", "<tr><th>No</th></tr>"):
        page = f"<table>{header}{rows}</table>"
        first, *others = chunk_checked(page, ContentType.HTML, counter=char_counter, size=200, minimum=0).chunks
        assert first.lead == ""
        assert all("No" in chunk.lead for chunk in others)
    plain = chunk_checked(f"<table>{rows}</table>", ContentType.HTML, counter=char_counter, size=200, minimum=0)
    assert all(chunk.lead == "" for chunk in plain.chunks)


# --- any page ---------------------------------------------------------------------------------------------------------

_PARTS = st.sampled_from(
    [
        *"< </ <! <!-- --> ]]> > /> \" ' & &amp; &nbsp; &amp é 日 😀 word - <b> </b> <h1> </h1> <h2> </h3>".split(),
        *"<script> </script> <title> </title> <p> </p> <div> </div> <li> <ul> </ul> </li> <table> </table>".split(),
        *"<tr> <td> <th> </td> </tr> <thead> <tbody> <pre> </pre> <template> </template> <noscript> <br> <hr>".split(),
        *"<svg> </svg> <body> </body> <meta> <textarea> </textarea> <select> <option> <dl> <dt> <dd> <xmp>".split(),
        *(" ", "\n", "\r\n", "\r", "\t", "\f", "\x1f", "\u2028"),
    ]
)


@settings(max_examples=300)
@given(st.lists(_PARTS, min_size=1, max_size=30).map("".join))
def test_no_page_fails(page: str) -> None:
    """Whatever is open, stray or torn: cuts and sections ascend inside the text, and all offsets stay."""
    structure = scan_html(page)
    assert len(structure.lines) == len(page)
    assert _ascend(structure.cuts.positions.tolist(), len(page))
    assert _ascend([section.start for section in structure.sections[1:]], len(page))
    assert (structure.cuts.bodies <= len(page)).all()


def _ascend(positions: list[int], length: int) -> bool:
    return all(a < b for a, b in zip([-1, *positions], [*positions, length], strict=True))


@pytest.mark.parametrize(
    "piece",
    [
        "<h1 ",
        "<h1>",
        "<h1>a</h1>",
        "<h1><div> ",
        '<a "',
        "<a b='",
        "<!--",
        "<!-->",
        "<div>",
        "</div>",
        "<div><p></div>",
        "<ul><div><li>a",
        "<table><td>a",
        "<b>a",
        "<template>",
        "<script></scrip",
        "<title>",
        "<noscript",
        "&amp",
        "&#",
        "<![CDATA[",
        "</>",
        "<br>a",
        "\n",
    ],
)
def test_a_hostile_page_takes_linear_time(piece: str, assert_linear: Callable[..., None]) -> None:
    """Repeats of what begins and never ends, of what ends and never began, and of the shortest of everything."""

    def repeat(chars: int) -> str:
        return piece * (chars // len(piece))

    assert_linear(scan_html, repeat, chars=16_000)


def test_a_million_open_tags_are_read() -> None:
    """The page is one block in seconds at most."""
    assert len(scan_html("<h1 " * 1_000_000).sections) == 1
    assert len(scan_html("<div>" * 1_000_000 + "x").cuts.positions) == 1
