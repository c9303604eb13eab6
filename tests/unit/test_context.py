"""The words, the basis and the text of a chunk's context."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory_core.context import choose_basis, embedding_input, rank_words, write_context
from memory_core.models import ContextBasis

RANKED = tuple(f"word{number:02}" for number in range(30))


def test_the_most_telling_words_come_first() -> None:
    """Frequent words rank first, long ones before short ones, and words that say nothing are left out."""
    text = "The scheduler and the scheduler and the queue; return self.queue. Lease."

    assert rank_words(text) == ("scheduler", "queue", "lease")


def test_a_compound_counts_for_itself_and_its_parts() -> None:
    """Code is told by whole names and by the words inside them, whichever way they are written."""
    ranked = rank_words("readBody read_body HTMLServer 12345 x_1")

    assert set(ranked) == {"readbody", "read_body", "read", "body", "htmlserver", "html", "server", "x_1"}
    assert ranked.index("body") < ranked.index("htmlserver")


def test_ranking_does_not_depend_on_the_order_of_equal_words() -> None:
    """Moving a paragraph changes nothing."""
    first, second = "alpha beta gamma. ", "delta epsilon zeta. "

    assert rank_words(first + second) == rank_words(second + first)


@pytest.mark.parametrize(
    ("head", "part", "tail"),
    [("", "a", ""), ("# a", " ", "b"), ("", "deadbeef,", ""), ("x\n", "=", "x"), ("", "<h1 ", "")],
    ids=["one word", "blanks", "list", "underline", "html"],
)
def test_hostile_text_takes_linear_time(head: str, part: str, tail: str, assert_linear: Callable[..., None]) -> None:
    """However long a text is, each character costs the same."""

    def make_text(chars: int) -> str:
        return head + part * (chars // len(part)) + tail

    def work(text: str) -> None:
        rank_words(text)
        embedding_input("context", text)

    assert_linear(work, make_text, chars=200_000)


def test_a_first_basis_is_the_twelve_best_words_in_alphabetical_order() -> None:
    """The order of a basis does not follow every small change of the counts."""
    basis, stale = choose_basis("Title", tuple(reversed(RANKED)), None)

    assert basis == ContextBasis(title="Title", words=tuple(f"word{number}" for number in range(18, 30)))
    assert not stale


def test_a_recorded_basis_stays_while_its_words_are_still_telling() -> None:
    """An edit that moves the words a little moves no vector."""
    recorded = ContextBasis(title="Title", words=RANKED[12:24])

    assert choose_basis("Title", RANKED, recorded) == (recorded, False)


@pytest.mark.parametrize(
    ("title", "words"),
    [("Title", RANKED[13:25]), ("Old title", RANKED[:12]), ("Title", RANKED[:5])],
    ids=["a word sank", "new title", "the document grew"],
)
def test_a_larger_change_keeps_the_recorded_basis_and_marks_it_stale(title: str, words: tuple[str, ...]) -> None:
    """Old vectors stay in use, and the document says so."""
    recorded = ContextBasis(title=title, words=words)

    assert choose_basis("Title", RANKED, recorded) == (recorded, True)


def test_a_context_has_title_path_and_words() -> None:
    """A chunk says where it stands; a heading that repeats the title is not said twice."""
    basis = ContextBasis(title="Guide", words=("lease", "queue"))

    assert write_context(basis, ("Guide", "Locks", "Fair\nlocks")) == "Guide\nLocks > Fair locks\nlease queue"
    assert write_context(ContextBasis(title="", words=()), ()) == ""


def test_the_header_row_of_a_table_is_a_line_of_the_context() -> None:
    """Rows far below their header still say what their columns are; it stands behind the path, on one line."""
    basis = ContextBasis(title="Prices", words=("lease", "queue"))

    assert write_context(basis, ("EU",), "count,\n price ") == "Prices\nEU\ncount, price\nlease queue"
    assert write_context(basis, (), " \n") == write_context(basis, ())


def test_a_context_is_bounded() -> None:
    """However long title, headings, header row and words are, the chunk keeps the model's attention."""
    basis = ContextBasis(title="t" * 512, words=tuple("w" * 32 for _ in range(12)))
    headings = [f"heading {number} " + "h" * 100 for number in range(40)]
    context = write_context(basis, headings, "first," + "c" * 5_000)

    assert len(write_context(basis, headings)) < 700
    assert len(context) < 1_000
    assert context.splitlines()[1].endswith("h" * 100)
    assert context.splitlines()[2].startswith("first,")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# Locks\nA lock.", "## Locks\nA lock."),
        ("## Locks ##\nA lock.", "### Locks ###\nA lock."),
        ("Locks\n=====\nA lock.", "Locks\n-----\nA lock."),
        ("Locks\n=====\nA lock.", "# Locks\nA lock."),
        ("<h2 id='a'>Locks</h2>", "<h3 id='a'>Locks</h3>"),
    ],
)
def test_a_section_that_moves_one_level_down_keeps_its_input(before: str, after: str) -> None:
    """Changing the level of headings costs no embedding."""
    assert embedding_input("context", before) == embedding_input("context", after)


def test_what_shows_nothing_to_a_reader_is_its_context_alone() -> None:
    """A model takes no blank text, and a script says nothing."""
    assert embedding_input("context", "") == embedding_input("context", " \n\u3000") == "context"
    assert embedding_input("", " ") == ""


@pytest.mark.parametrize("text", ["#tag", "a # b", "- item\n---", "| a |\n|---|", "# C#", "<hr>", "no heading"])
def test_what_is_no_heading_mark_stays(text: str) -> None:
    """Only the marks of headings are normalised."""
    assert embedding_input("", text) == text
