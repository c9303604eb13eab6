"""A text and a counter in, token measures of any slice out. One tokenizer pass for estimates; slices on demand.

An estimate takes the tokens of the whole text that a slice touches. It is exact at most edges of paragraphs and a few
tokens off elsewhere, because a slice alone may be tokenized differently: what is promised is counted exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from memory_core.ports import LineCounter, TokenCounter


class Ruler:
    """Token measures of one text. Positions count code points."""

    def __init__(self, text: str, counter: TokenCounter) -> None:
        self._text = text
        self._counter = counter
        self._ends = counter.ends(text)
        self._adds_up_at_lines = isinstance(counter, LineCounter)
        self._last_count = (0, 0, 0)

    def count(self, start: int, end: int) -> int:
        """Tokens of the slice alone, exactly."""
        if self._last_count[:2] != (start, end):
            self._last_count = (start, end, self._count_lines(start, end))
        return self._last_count[2]

    def _count_lines(self, start: int, end: int) -> int:
        """Count the first and the last line alone where the tokenizer allows it, and else the whole slice."""
        if self._adds_up_at_lines and (last := self._line_before(end, start)):
            first = start if self._is_line(start) else self._line_behind(start, last)
            head = self._counter.count(self._text[start:first]) if first > start else 0
            return head + self.before(last) - self.before(first) + self._counter.count(self._text[last:end])
        return self._counter.count(self._text[start:end])

    def _line_before(self, end: int, start: int) -> int:
        """The start of the last line that begins between the two with a non-blank; 0 where there is none."""
        line = end - 1
        while (line := self._text.rfind("\n", start, line)) >= 0:
            if self._is_line(line + 1):
                return line + 1
        return 0

    def _line_behind(self, start: int, last: int) -> int:
        line = start - 1
        while (line := self._text.find("\n", line + 1, last)) >= 0:
            if self._is_line(line + 1):
                return line + 1
        return last

    def _is_line(self, position: int) -> bool:
        return position > 0 and self._text[position - 1] == "\n" and not self._text[position].isspace()

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
        # Token ends are whole numbers: those before a position, and one more where the position itself is none.
        wanted = _array(positions)
        ended = self._ends.searchsorted(wanted, "right")
        begun = self._ends.searchsorted(wanted, "left") + 1
        return cast("list[int]", np.minimum(np.maximum(ended, begun), len(self._ends)).tolist())

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
