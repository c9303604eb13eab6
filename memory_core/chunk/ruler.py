"""A text and a counter in, token measures of any slice out. One tokenizer pass for estimates; slices on demand.

An estimate takes the tokens of the whole text that a slice touches. It is exact at most edges of paragraphs and a few
tokens off elsewhere, because a slice alone may be tokenized differently: what is promised is counted exactly.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray

from memory_core.chunk.structure import Places
from memory_core.ports import EdgeCounter, TokenCounter

_BLOCK_BITS = 7
_BLOCK_CHARS = 1 << _BLOCK_BITS
_PART_BLOCKS = 512
_PART_CHARS = _PART_BLOCKS * _BLOCK_CHARS


class Ruler:
    """Token measures of one text. Positions count code points.

    Kept are the number of tokens that end with each code point (a byte each, whatever the number of tokens is) and
    the sums of whole blocks.
    """

    def __init__(self, text: str, counter: TokenCounter) -> None:
        self._text = text
        self._counter = counter
        self._edges = cast("EdgeCounter", counter) if _knows_edges(type(counter)) else None
        parts = self._edges.end_parts(text) if self._edges else (counter.ends(text),)
        ending = _count_endings(parts, len(text))
        per_block = np.add.reduceat(ending, np.arange(0, len(text), _BLOCK_CHARS), dtype=np.int64)
        # Bytes and an array: a single place is looked up three times as fast as in NumPy's.
        self._ending = ending.tobytes()
        self._sums = array("q", np.concatenate(([0], np.cumsum(per_block))).tobytes())
        self._total = self._sums[-1]
        self._last_count = (0, 0, 0)

    def count(self, start: int, end: int) -> int:
        """Tokens of the slice alone, exactly."""
        if self._last_count[:2] != (start, end):
            self._last_count = (start, end, self._count_fresh(start, end))
        return self._last_count[2]

    def _count_fresh(self, start: int, end: int) -> int:
        """Count only what is ahead of the first edge and behind the last one, where the tokenizer knows edges."""
        text, count, edges = self._text, self._counter.count, self._edges
        if edges is None:
            return count(text[start:end])
        first = (
            start if self._ends_at(start) and edges.begins_alike(text, start) else edges.first_edge(text, start, end)
        )
        last = end if self._ends_at(end) and not text[end - 1].isspace() else edges.last_edge(text, first, end)
        if first >= last:
            return count(text[start:end])
        ahead = count(text[start:first]) if start < first else 0
        behind = count(text[last:end]) if last < end else 0
        return ahead + self.before(last) - self.before(first) + behind

    def _ends_at(self, position: int) -> bool:
        """Whether a token of the whole text ends at the position, and none goes on over it."""
        return position > 0 and self._ending[position - 1] > 0

    def estimate(self, start: int, end: int) -> int:
        """About how many tokens the slice has."""
        return self.through(end) - self.before(start)

    def before(self, position: int) -> int:
        """Tokens that end at the position or before it."""
        block = position >> _BLOCK_BITS
        return self._sums[block] + sum(self._ending[block << _BLOCK_BITS : position])

    def through(self, position: int) -> int:
        """Tokens that begin before the position."""
        ended = self.before(position)
        return ended if position and self._ending[position - 1] else min(ended + 1, self._total)

    def measure_all(self, starts: Places, ends: Places) -> tuple[Places, Places]:
        """`before` of many starts and `through` of many ends at once; both ascend, and no end is 0."""
        ending = np.frombuffer(self._ending, dtype=np.uint8)
        before, ended = np.zeros(len(starts), dtype=np.int32), np.zeros(len(ends), dtype=np.int32)
        parts = np.arange(0, len(ending) + _PART_CHARS + 1, _PART_CHARS)
        columns = ((starts, before), (ends, ended))
        rows = [np.searchsorted(positions, parts, "right").tolist() for positions, _ in columns]
        for part in range(len(parts) - 1):
            offset = part * _PART_CHARS
            sums = np.cumsum(ending[offset : offset + _PART_CHARS], dtype=np.int32)
            for (positions, tokens), bounds in zip(columns, rows, strict=True):
                first, stop = bounds[part], bounds[part + 1]
                if first < stop:
                    tokens[first:stop] = sums[positions[first:stop] - (offset + 1)] + self._sums[part * _PART_BLOCKS]
        return before, np.minimum(ended + (ending[ends - 1] == 0), np.int32(self._total))

    def reach(self, start: int, tokens: int) -> int:
        """The furthest end of a token that so many tokens reach from `start`; at least one code point on."""
        wanted = self.before(start) + tokens
        if wanted >= self._total:
            return len(self._text)
        block = bisect_right(self._sums, wanted) - 1
        while block >= 0:
            offset = block << _BLOCK_BITS
            # A code point of several tokens is reached by its last one only; then back to where a token ends.
            window = self._ending[offset : self._last_within(offset, wanted - self._sums[block])]
            if reached := len(window.rstrip(b"\0")):
                return max(start + 1, offset + reached)
            block -= 1
        return start + 1

    def _last_within(self, offset: int, tokens: int) -> int:
        """The end of the longest window of a block, from its start on, that not more than so many tokens end in."""
        at, step = offset, _BLOCK_CHARS
        while step:
            ended = sum(self._ending[at : at + step])
            if ended <= tokens:
                at, tokens = at + step, tokens - ended
            step >>= 1
        return min(at, offset + _BLOCK_CHARS)

    def reach_back(self, end: int, tokens: int) -> int:
        """The earliest end of a token from which so many tokens reach `end`."""
        first = self.through(end) - tokens
        if first <= 0:
            return 0
        block = bisect_left(self._sums, first) - 1
        offset = block << _BLOCK_BITS
        sums = list(accumulate(self._ending[offset : offset + _BLOCK_CHARS]))
        return offset + bisect_left(sums, first - self._sums[block]) + 1


@lru_cache
def _knows_edges(kind: type[TokenCounter]) -> bool:
    """Asked once a type: to look at a protocol's members takes as long as to chunk a page."""
    return all(hasattr(kind, member) for member in ("end_parts", "first_edge", "last_edge", "begins_alike"))


def _count_endings(parts: Iterable[NDArray[np.int64]], length: int) -> NDArray[np.uint8]:
    """How many tokens end with each code point: at most its four bytes."""
    endings = np.zeros(length, dtype=np.uint8)
    done = 0
    for ends in parts:
        if not len(ends):
            continue
        # A part may go on with the code point that the one before it ended with.
        first, before, done = max(done - 1, 0), done, int(ends[-1])
        if ends[0] > before and (ends[1:] > ends[:-1]).all():
            endings[ends - 1] = 1
        else:
            endings[first:done] += np.bincount(ends - first - 1, minlength=done - first).astype(np.uint8)
    return endings
