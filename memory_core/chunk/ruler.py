"""A text and a counter in, token measures of any slice out. One tokenizer pass for estimates; slices on demand.

An estimate takes the tokens of the whole text that a slice touches. It is exact at most edges of paragraphs and a few
tokens off elsewhere, because a slice alone may be tokenized differently: what is promised is counted afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from memory_core.ports import TokenCounter


class Ruler:
    """Token measures of one text. Positions count code points."""

    def __init__(self, text: str, counter: TokenCounter) -> None:
        self._text = text
        self._counter = counter
        self._ends = counter.ends(text)

    def count(self, start: int, end: int) -> int:
        """Tokens of the slice, counted afresh."""
        return self._counter.count(self._text[start:end])

    def estimate(self, start: int, end: int) -> int:
        """About how many tokens the slice has."""
        return self.through(end) - self.before(start)

    def before(self, position: int) -> int:
        """Tokens that end at the position or before it."""
        return int(self._ends.searchsorted(position, "right"))

    def through(self, position: int) -> int:
        """Tokens that begin before the position."""
        ended = int(self._ends.searchsorted(position, "right"))
        return ended if ended and self._ends[ended - 1] == position else min(ended + 1, len(self._ends))

    def before_all(self, positions: Sequence[int]) -> list[int]:
        """`before` of many positions at once."""
        return cast("list[int]", self._ends.searchsorted(_array(positions), "right").tolist())

    def through_all(self, positions: Sequence[int]) -> list[int]:
        """`through` of many positions at once."""
        wanted = _array(positions)
        ended = self._ends.searchsorted(wanted, "right")
        on_edge = (ended > 0) & (self._ends[np.maximum(ended - 1, 0)] == wanted)
        return cast("list[int]", np.where(on_edge, ended, np.minimum(ended + 1, len(self._ends))).tolist())

    def reach(self, start: int, tokens: int) -> int:
        """The furthest position that so many tokens reach from `start`; at least one code point on."""
        last = self.before(start) + tokens - 1
        if last >= len(self._ends) - 1:
            return len(self._text)
        # A code point of several tokens is reached by its last one only.
        while last > 0 and self._ends[last + 1] == self._ends[last]:
            last -= 1
        return max(start + 1, int(self._ends[last]))

    def reach_back(self, end: int, tokens: int) -> int:
        """The earliest position from which so many tokens reach `end`."""
        first = self.through(end) - tokens
        return int(self._ends[first - 1]) if first > 0 else 0


def _array(positions: Sequence[int]) -> NDArray[np.int64]:
    return np.fromiter(positions, dtype=np.int64, count=len(positions))
