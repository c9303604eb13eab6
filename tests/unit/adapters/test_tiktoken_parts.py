"""Long texts in parts: the tokens of one pass over the whole, whatever the text is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.adapters.tiktoken_counter import load_encoding
from memory_core.adapters.tiktoken_parts import PART_CHARS, WINDOW_CHARS, PartEncoder
from memory_core.errors import InternalError

_suite = settings(derandomize=True, max_examples=80, deadline=None)
_PIECES = [
    *("a", "don't", "I'LL", "x1", "1", "12", "1234567", "_", "word", " w", "aaaaaaaa", ")'s", "'S", "\u017f", "\u20ac"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "=\n", "\u2028", "\x1c", "\x85", "\u3000", "\xa0"),
    *(".", "...", "(", "((((((", "-", "/", "\u3002", "\U0001f680", "\U0001f469\u200d", "e\u0301", "\u0301"),
    *("\u6f22", "\u6f22\u5b57", "\u0e20\u0e32\u0e29\u0e32", "\u0e01\u0e33", "\u0663", "\u0600", "\ufdfa"),
    *(
        "'",
        "''",
        "'l",
        "\xe9'",
        "\xe9-",
        "-\xe9",
        "\u6f22(",
        "\u6f22\r",
        "(\r",
        "\n ",
        " \n(",
        "\u0915",
        "\u093f",
        "\xbd",
    ),
    # A letter and a digit that are younger than the tokenizer's tables: to it they are signs.
    *("\u0558", "\U00011de1"),
]


@st.composite
def _texts(draw: st.DrawFn) -> str:
    """A few pieces, repeated until several windows are full of them."""
    repeats = st.sampled_from([1, 1, 9, 300, 1_200])
    return "".join(draw(st.sampled_from(_PIECES)) * draw(repeats) for _ in range(draw(st.integers(1, 8))))


@_suite
@given(text=_texts())
def test_parts_have_the_tokens_of_the_whole(text: str) -> None:
    """With small parts and windows, so that they meet in every kind of text."""
    encoding = load_encoding()
    parts = PartEncoder(encoding, part_chars=700, window_chars=260)

    assert [token for part in parts.encode(text) for token in part.tolist()] == encoding.encode_ordinary(text)
    assert parts.count(text) == sum(map(len, parts.ends(text)))


@pytest.mark.parametrize(
    "pattern",
    ["a", "(", "1", " ", "\n", " \n", "\u6f22", "\U0001f680", "\U0001f469\u200d", "\u0301", "<h1 ", "a\n\n", "{}"],
    ids=ascii,
)
def test_long_runs_have_the_tokens_of_the_whole(pattern: str) -> None:
    """With parts and windows as they are used, in runs that the tokenizer itself still gets through."""
    encoding = load_encoding()
    text = f"={pattern * (90_000 // len(pattern))}x"
    counted = [token for part in PartEncoder(encoding).encode(text) for token in part.tolist()]

    assert counted == encoding.encode_ordinary(text)


def test_random_letters_have_the_tokens_of_the_whole() -> None:
    """Chinese without punctuation: a run in which the tokens are as irregular as can be."""
    encoding = load_encoding()
    letters = random.Random(3)
    text = "".join(chr(letters.randint(0x4E00, 0x9FA5)) for _ in range(150_000))

    counted = [token for part in PartEncoder(encoding).encode(text) for token in part.tolist()]
    assert counted == encoding.encode_ordinary(text)


@pytest.mark.parametrize(
    "text",
    ["\u0663" * 600 + "\U00011de1" + "\u0663" * 2 + "1234567" * 200, "\u0558" * 300 + "\n" + " \n" * 400 + "x"],
    ids=ascii,
)
def test_characters_younger_than_the_tokenizer_are_what_it_takes_them_for(text: str) -> None:
    """Whatever other tables of Unicode know about them."""
    encoding = load_encoding()
    parts = PartEncoder(encoding, part_chars=700, window_chars=260)

    assert [token for part in parts.encode(text) for token in part.tolist()] == encoding.encode_ordinary(text)


def test_a_million_blanks_behind_letters_without_a_blank_are_counted() -> None:
    """A window that reached from the letters into the blanks would have to hold them all: the tokenizer gives up."""
    parts = PartEncoder(load_encoding())
    letters, blanks = "\u6f22" * PART_CHARS, " " * 1_100_000

    expected = sum(map(parts.count, (letters, "\n", blanks[1:], " x")))
    assert parts.count(f"{letters}\n{blanks}x") == expected


@pytest.mark.parametrize(
    "pattern", ["'", "\u6f22'", "\xe9'", "''\u6f22", "\u6f22\r", ".\r", "\u0915'\u093f"], ids=ascii
)
def test_parts_are_of_bounded_size(pattern: str) -> None:
    """Memory does not grow with the text, though apostrophes and carriage returns are all that could end a part."""
    text = f"{pattern * (3 * PART_CHARS // len(pattern))}\n{pattern}"
    longest = max(int(ends[-1] - ends[0]) for ends in PartEncoder(load_encoding()).ends(text))

    assert longest <= PART_CHARS + WINDOW_CHARS


def test_windows_too_small_to_be_exact_are_refused() -> None:
    """Rather than a count that is a little wrong."""
    with pytest.raises(InternalError, match="Report this"):
        list(PartEncoder(load_encoding(), part_chars=24, window_chars=9).encode("." * 41))
