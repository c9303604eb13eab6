"""Token measures of slices: exact whatever stands around, though only what has to be is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.adapters.tiktoken_counter import TiktokenCounter
from memory_core.chunk.ruler import Ruler

COUNTER = TiktokenCounter()
# Letters that share a token with their neighbours, signs, contractions, numbers and blanks of many kinds.
PIECES = (
    *("\u4e2d\u6587\u5b57", "\u6578", "\u30ab\u30ca", "\ub2e4"),
    *("\uc2a4\ud2b8", "\uc0ad\uc81c", "\uac80\uc0c9", "\u6dfb\u52a0"),
    *("\U0001f680", "\U0001f469\u200d", "\xe9", "e\u0301", "\u0142\xf3d\u017a"),
    *("\u043f\u0440\u0438\u0432\u0435\u0442", "\u0e44\u0e17\u0e22"),
    *("'s", "'ll", "'VE", "don't", "12", "1234567", "a1b", "\u2167", "\xb2", "\u0967\u0968\u0969\u096a"),
    *("(", "((", ")", ".", "...", "!?\n", "#", "``", "|", "\u20ac", "\u2014", "\u201c"),
    *(" ", "  ", "\n", "\n\n", "\r\n", "\t", "\x1c", "\x85", "\xa0", "\u3000", "abc", "Stra\xdfe"),
)  # fmt: skip


@given(parts=st.lists(st.sampled_from(PIECES), min_size=1, max_size=30), data=st.data())
def test_a_slice_has_the_tokens_of_a_fresh_count(parts: list[str], data: st.DataObject) -> None:
    """Between any two places, without the blanks around it."""
    text = "".join(parts)
    ruler = Ruler(text, COUNTER)
    for _ in range(4):
        start = data.draw(st.integers(0, len(text) - 1))
        end = data.draw(st.integers(start + 1, len(text)))
        part = text[start:end]
        if part.strip():
            start, end = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
            assert ruler.count(start, end) == COUNTER.count(text[start:end])


@pytest.mark.parametrize("word", ["\uc0ad\uc81c\ud558\ub2e4", "\uac80\uc0c9\ub418\ub2e4", "\ub370\uc774\ud130"])
def test_no_token_goes_on_over_a_place_where_one_is_said_to_end(word: str) -> None:
    """Of some tokens the first bytes end a letter that another token began: nothing ends there."""
    text = word * 20
    ends = COUNTER.ends(text)
    for end in set(ends.tolist()):
        assert COUNTER.count(text[:end]) == int((ends <= end).sum())
