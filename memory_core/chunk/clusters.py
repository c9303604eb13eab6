"""A text in, the edges of its grapheme clusters near a given place out. It never walks over the whole text.

What may stand inside a cluster depends on what is before it, so a search starts at the last place that is certainly an
edge: a letter that never joins, or an edge that was found before.
"""

from __future__ import annotations

from bisect import bisect_right, insort

import regex

_CLUSTER = regex.compile(r"\X")
_PREPENDED = regex.compile(r"\p{Grapheme_Cluster_Break=Prepend}")
# Letters that begin a cluster whatever is ahead of them, unless that is one of the few prepended signs. The Thai
# consonants are a range: some vowels of that script join.
_SURE_START = regex.compile(
    r"(?rV1)[[\x20-\x7e\u0e01-\u0e2e][[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Latin}"
    r"\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Arabic}\p{Script=Hebrew}]&&\p{L}]]"
)
_WINDOW_CHARS = 256


class Clusters:
    """The grapheme clusters of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._edges = [0]
        self._last = (0, 0)

    def is_edge(self, position: int) -> bool:
        """True where no cluster is cut."""
        if not 0 < position < len(self._text):
            return True
        before, after = self._text[position - 1], self._text[position]
        if before.isascii() and after.isascii():
            return not (before == "\r" and after == "\n")
        return self.around(position)[0] == position

    def around(self, position: int) -> tuple[int, int]:
        """Start and end of the cluster that covers the position."""
        start, end = self._last
        if start <= position < end:
            return self._last
        start, end = self._find(self._sure_edge(position), position)
        self._last = (start, end)
        if start > self._edges[-1]:
            self._edges.append(start)
        elif start < self._edges[-1] and self._edges[bisect_right(self._edges, start) - 1] != start:
            insort(self._edges, start)
        return self._last

    def _sure_edge(self, position: int) -> int:
        known = self._edges[bisect_right(self._edges, position) - 1]
        found = _SURE_START.search(self._text, known, position + 1)
        if found is None or found.start() <= known or _PREPENDED.match(self._text, found.start() - 1):
            return known
        return found.start()

    def _find(self, start: int, position: int) -> tuple[int, int]:
        """Go from cluster to cluster, from an edge to the cluster that covers the position.

        In slices, since the engine counts back through all the flags ahead of each one. The last cluster of a slice
        may go on behind it: the next slice begins with it.
        """
        window = _WINDOW_CHARS
        while True:
            part = self._text[start : start + window]
            last = 0
            for cluster in _CLUSTER.finditer(part):
                last = cluster.start()
                if cluster.end() == len(part) and start + len(part) < len(self._text):
                    break
                if start + cluster.end() > position or start + cluster.end() == len(self._text):
                    return start + last, start + cluster.end()
            window = _WINDOW_CHARS if last else window * 4
            start += last
