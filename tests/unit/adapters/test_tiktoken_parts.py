"""Long texts in parts: the tokens of one pass over the whole, whatever the text is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.adapters.tiktoken_counter import load_encoding
from memory_core.adapters.tiktoken_parts import PartEncoder
from memory_core.errors import InternalError

_suite = settings(derandomize=True, max_examples=80, deadline=None)
_PIECES = [
    *("a", "don't", "I'LL", "x1", "1", "12", "1234567", "_", "word", " w", "aaaaaaaa", ")'s", "'S", "\u017f", "\u20ac"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "=\n", "\u2028", "\x1c", "\x85", "\u3000", "\xa0"),
    *(".", "...", "(", "((((((", "-", "/", "\u3002", "\U0001f680", "\U0001f469\u200d", "e\u0301", "\u0301"),
    *("\u6f22", "\u6f22\u5b57", "\u0e20\u0e32\u0e29\u0e32", "\u0e01\u0e33", "\u0663", "\u0600", "\ufdfa"),
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


def test_windows_too_small_to_be_exact_are_refused() -> None:
    """Rather than a count that is a little wrong."""
    with pytest.raises(InternalError, match="Report this"):
        list(PartEncoder(load_encoding(), part_chars=24, window_chars=9).encode("." * 41))
