"""What counts as structure in reStructuredText: titles by their adornments, and blocks with what is indented below.

The titles and levels are those that docutils 0.23 gives for these texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.chunk.rst import scan_rst
from memory_core.chunk_values import ChunkingResult
from memory_core.models import ContentType

CheckedChunker = Callable[..., ChunkingResult]


def _paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in scan_rst(text).sections[1:]]


def _chunk(chunk_checked: CheckedChunker, text: str, **sizes: int) -> list[str]:
    return [chunk.text for chunk in chunk_checked(text, ContentType.RST, **sizes).chunks]


_GUIDE = """\
=======
 Guide
=======

What it is about.

.. _setup:

Setup
=====

Install it.

Options
-------

One of them.

Details
~~~~~~~

More of it.

Search
======

How it works.
"""


def test_a_style_has_the_level_at_which_it_first_appears() -> None:
    """An adornment above and below is another style than one below, though the sign is the same."""
    assert _paths(_GUIDE) == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Guide", "Setup", "Options"),
        ("Guide", "Setup", "Options", "Details"),
        ("Guide", "Search"),
    ]
    assert _paths("A\n~\n\nB\n=\n\nC\n~\n\nD\n=\n") == [("A",), ("A", "B"), ("C",), ("C", "D")]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Title\n=====\ntext at once", [("Title",)]),
        ("Longer title\n====\n", [("Longer title",)]),
        ("Longer\n===\n", []),
        ("abc\n===\n", [("abc",)]),
        ("a\n=\n", [("a",)]),
        ("Title   \n========  \n", [("Title",)]),
        ("Title\r\n=====\r\n\r\nText", [("Title",)]),
        ("Title\r=====\r", [("Title",)]),
        ("日本\n====\n", [("日本",)]),
        ("日本\n===\n", []),
        ("e\u0301a\n==\n", [("e\u0301a",)]),
        ("====\nOver\n====\n", [("Over",)]),
        ("====\nLonger over\n====\n", [("Longer over",)]),
        ("==\nab\n==\n", [("ab",)]),
        ("====\nOver\n===\n\ntext", []),
        ("====\nOver\ntext\n\nmore", []),
        ("====\n----\n", []),
        ("text\n\n----\n\ntext", []),
        ("----\n\nTitle\n----\n", [("Title",)]),
        ("two\nlines\n-----\n", []),
        ("text\n\nTitle\n-----\n", [("Title",)]),
        ("text\n   indented\nTitle\n=====\n", [("Title",)]),
        ("1. Title\n========\n", [("1. Title",)]),
        ("(a) Title\n=========\n", [("(a) Title",)]),
        ("1. item\n2. item\n", []),
        ("- Title\n-------\n", []),
        (":field: Title\n-------------\n", []),
        (":not a field\n------------\n", [(":not a field",)]),
        ("| verse\n-------\n", []),
        ("- item\nTitle\n-----\n", [("Title",)]),
        (">>> Title\n=========\n", []),
        ("term\n  Title\n  =====\n", []),
        ("   Title\n   =====\n", []),
        ("Code::\n\n   Title\n   =====\n\nReal\n====\n", [("Real",)]),
        ("Code::\n\n> Title\n> =====\n\nReal\n====\n", [("Real",)]),
        ("Code::\n\n=====\n=====\n\nReal\n====\n", [("Real",)]),
        (".. note::\n   Title\n   =====\n\n   More\n   ----\n\nReal\n====\n", [("Real",)]),
        (".. comment\n   Title\n   =====\n", []),
        (".. note::\nTitle\n=====\n", [("Title",)]),
        ("..\n\nTitle\n=====\n", [("Title",)]),
        (".. [1] note\n\n.. |sub| replace:: x\n\n__ http://x\n\nTitle\n=====\n", [("Title",)]),
        ("+---+\n| a |\n+---+\n\nTitle\n=====\n", [("Title",)]),
        ("=== ===\na   b\n=== ===\n1   2\n\n3   4\n=== ===\n\nTitle\n=====\n", [("Title",)]),
        ("=== ===\n1   2\n=== ===\n\nTitle\n=====\n", [("Title",)]),
        ("-a  an option\n--all  another\n\nTitle\n=====\n", [("Title",)]),
        ("--all\n=====\n", [("--all",)]),
        ("Title\n=====\n\nSub\n-----\n\nSub 2\n-----\n", [("Title",), ("Title", "Sub"), ("Title", "Sub 2")]),
    ],
)
def test_titles_are_those_of_docutils(text: str, paths: list[tuple[str, ...]]) -> None:
    """Only a title in the first column, with an adornment as long as it is or of four signs, opens a section."""
    assert _paths(text) == paths


def test_a_style_that_skips_a_level_keeps_its_own() -> None:
    """Docutils drops such a title; here its text keeps a heading."""
    assert _paths("A\n=\n\nB\n-\n\nC\n~\n\nD\n=\n\nE\n~\n")[-1] == ("D", "E")


def test_titles_below_the_sixth_level_are_read(chunk_checked: CheckedChunker) -> None:
    """Eight styles are no more than six levels of sections, and nothing is lost."""
    text = "".join(f"Level {sign}\n{sign * 8}\n\nSome words below.\n\n" for sign in "=-~^\"'+*")
    assert len(_paths(text)[-1]) == 6
    assert "Level *" in "".join(_chunk(chunk_checked, text, size=32, minimum=1))


def test_a_label_goes_with_the_title_that_it_names(chunk_checked: CheckedChunker) -> None:
    """It is no end of the section above."""
    chunks = chunk_checked(_GUIDE, ContentType.RST, size=32, minimum=1).chunks
    assert next(c for c in chunks if c.heading_path == ("Guide", "Setup")).text.startswith(".. _setup:\n\nSetup\n")
    assert "".join(_chunk(chunk_checked, "text\n\n.. _a:\n\n.. _b:\n\nmore")).count(".. _") == 2


@pytest.mark.parametrize(
    "block",
    [
        ".. code-block:: python\n   :linenos:\n\n   def f():\n       return 1\n\n   class A:\n       x = 1",
        ".. note:: Watch out,\n   this is a note.\n\n   It has another paragraph.\n\n   - and\n   - items",
        ".. [CIT2002] A citation\n   that goes on\n\n   and on.",
        "+-----+-----+\n| a   | b   |\n+=====+=====+\n| 1   | 2   |\n+-----+-----+\n| 3   | 4   |\n+-----+-----+",
        "===== =====\na     b\n===== =====\n1     2\n\n3     4\n===== =====",
        ">>> f(1)\n1\n>>> f(2)\n2",
        "| A verse of\n  two lines\n| and another one",
        "::\n\n   some code\n\n   more code",
        "A term\n   what it means\n\n   and more of that",
        "- An item\n\n  with a paragraph::\n\n     and code\n\n     in it",
        ":Field: its body\n   goes on\n\n   and on",
    ],
    ids=lambda block: block.splitlines()[0],
)
def test_a_block_that_fits_is_in_one_chunk(chunk_checked: CheckedChunker, block: str) -> None:
    """A directive with its options and body, a table, a literal: whole between paragraphs of any length."""
    for words in range(4, 60, 8):
        text = f"{'word ' * words}\n\n{block}\n\n{'word ' * words}\n\n{block}\n\n{'word ' * words}"
        chunks = _chunk(chunk_checked, text, size=72, minimum=1)
        assert sum(chunk.count(block) for chunk in chunks) == 2


def test_a_literal_block_is_whole_though_its_paragraph_does_not_fit_beside_it(chunk_checked: CheckedChunker) -> None:
    """It is divided at its blank lines only where it does not fit by itself."""
    code = "\n\n".join(f"   value_{number} = {number}" for number in range(6))
    text = f"{'word ' * 40}::\n\n{code}\n\nAfter."
    assert any(code.strip() in chunk for chunk in _chunk(chunk_checked, text, size=64, minimum=1))


def test_long_code_stays_with_its_directive_and_is_cut_at_blank_lines(chunk_checked: CheckedChunker) -> None:
    """No chunk is the line of a directive alone."""
    body = "\n\n".join(f"   def f{number}():\n       return {number}" for number in range(30))
    chunks = _chunk(chunk_checked, f".. code-block:: python\n   :linenos:\n\n{body}", size=64, minimum=1)
    assert len(chunks) > 3
    assert chunks[0].startswith(".. code-block:: python\n   :linenos:\n\n   def f0():\n       return 0")
    assert all(chunk.startswith("def f") for chunk in chunks[1:])


@pytest.mark.parametrize(
    ("table", "row", "header"),
    [
        (
            "+------+------+\n| aaaa | bbbb |\n+======+======+\n"
            + "".join(f"| {n:04} | word |\n|      | more |\n+------+------+\n" for n in range(40)),
            r"\| (\d{4}) \| word \|\n\|      \| more \|",
            "| aaaa | bbbb |",
        ),
        (
            "====  ====\naaaa  bbbb\n====  ====\n"
            + "".join(f"{n:04}  word\n\n      more\n" for n in range(40))
            + "====  ====\n",
            r"(\d{4})  word\n\n      more",
            "aaaa  bbbb",
        ),
    ],
    ids=["grid", "simple"],
)
def test_a_table_that_does_not_fit_is_cut_between_rows(
    chunk_checked: CheckedChunker, table: str, row: str, header: str
) -> None:
    """Whole rows in each chunk; the header row is the lead of those that do not hold it."""
    for text in (f"Title\n=====\n\n{table}\n", ".. table:: Title\n\n" + re.sub(r"(?m)^(?=.)", "   ", table)):
        chunks = chunk_checked(text, ContentType.RST, size=96, minimum=1).chunks
        pattern = re.sub(r"\\n", r"\\n *", row)
        rows = [found[1] for chunk in chunks for found in re.finditer(pattern, chunk.text)]
        assert len(chunks) > 3
        assert rows == [f"{number:04}" for number in range(40)]
        assert header in chunks[0].text
        assert not chunks[0].lead
        assert {chunk.lead.strip() for chunk in chunks[1:]} == {header}


def test_items_are_whole_where_they_fit(chunk_checked: CheckedChunker) -> None:
    """Long lists of all kinds are cut between their items."""
    for mark, indent in (("- ", 2), ("#. ", 3), (":name: ", 3), (".. [#] ", 4), ("-a  ", 4)):
        items = [f"{mark}item {number}\n{' ' * indent}goes on here" for number in range(30)]
        for gap in ("\n", "\n\n"):
            chunks = _chunk(chunk_checked, "Intro:\n\n" + gap.join(items), size=64, minimum=1)
            assert all(any(item in chunk for chunk in chunks) for item in items)


def test_nested_items_are_cut_between_them(chunk_checked: CheckedChunker) -> None:
    """A list in the body of a directive that does not fit."""
    items = [f"   - item {number}\n     goes on here" for number in range(30)]
    chunks = _chunk(chunk_checked, ".. note::\n\n" + "\n".join(items), size=64, minimum=1)
    assert all(any(item.strip() in chunk for chunk in chunks) for item in items)


_PARTS = [
    *("Title", "=====", "==", "----", "..", "..  note::", ".. _label:", ".. [1] x", "   text", "      deep", "\ttab"),
    *("- item", "1. item", ":f: x", "-a  x", "| v", ">>> x", "::", "text::", "> q", "+---+", "+===+", "| a |"),
    *("== ==", "a  b", "   - x", "   - y", "   .. code::", "日本", "\u2028", "\x0b", "", "", " "),
]


@given(parts=st.lists(st.sampled_from(_PARTS), max_size=30), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_lines_are_read_without_a_loss(chunk_checked: CheckedChunker, parts: list[str], end: str) -> None:
    """Whatever follows whatever, every promise of the chunker holds."""
    text = end.join(parts)
    if text.strip():
        assert chunk_checked(text, ContentType.RST, size=32, minimum=1).strategy == "rst-structural"


_HOSTILE = [
    *(
        "=\n",
        "a\n=\n",
        ".. a::\n",
        " ",
        "..\n",
        "- ",
        "====\n",
        "==== \na\n",
        "= =\n",
        "+-+\n",
        "+--+\n| a\n",
        "::\n\n",
    ),
    *("a::\n\n b\n\n", "a\n\n", " a\n\n", " - a\n", "1. a\n", ":", ":\\", "| a\n", ">>> a\n", ".. _a:\n", "\t", "\n"),
    *("-a, ", "-a <", "== ==\na  b\n", "(", "i", "a\n b\n", "x", "+-", "`", ".. _`", "\u3000", "\n ", "   \n"),
]


@pytest.mark.parametrize("unit", _HOSTILE)
def test_time_is_linear_on_hostile_text(unit: str, assert_linear: Callable[..., None]) -> None:
    """However long a text is, each character costs the same."""

    def repeat(chars: int) -> str:
        return unit * (chars // len(unit))

    assert_linear(scan_rst, repeat, chars=10_000)
