"""A text in, the edges of its grapheme clusters near a given place out. It never walks over the whole text.

Whether a cluster ends between two characters can depend on all that is before them, so a search goes back to the last
place where it does whatever that is, and from there on from cluster to cluster.
"""

from __future__ import annotations

from bisect import bisect_right

import regex

_CLUSTER = regex.compile(r"\X")
# Rules GB3 to GB13 of Unicode's Annex 29, as far as two neighbours decide alone. They do not between two flags, behind
# a mark that an emoji or the consonant of an Indic conjunct follows, and behind a prepended sign.
_EXTENDS = r"\p{GCB=Extend}\p{GCB=ZWJ}"
_GOES_ON = rf"{_EXTENDS}\p{{GCB=SpacingMark}}\p{{GCB=V}}\p{{GCB=T}}"
_SYLLABLE = r"\p{GCB=L}\p{GCB=LV}\p{GCB=LVT}"
_SIGN = r"\p{GCB=Prepend}"
_JOINED = r"\p{InCB=Consonant}\p{Extended_Pictographic}"
_SURE_EDGE = (
    rf"(?:(?<=[^{_SIGN}\r])(?=[^{_GOES_ON}{_SYLLABLE}\p{{GCB=RI}}{_JOINED}])"
    rf"|(?<=[^{_SIGN}{_EXTENDS}])(?=[{_JOINED}])"
    rf"|(?<=[^{_SIGN}\p{{GCB=L}}])(?=[{_SYLLABLE}])"
    rf"|(?<=[^{_SIGN}\p{{GCB=RI}}])(?=\p{{GCB=RI}})"
    r"|(?<=[\p{GCB=Control}\n]|\r(?!\n))(?s:(?=.))|(?=[\p{GCB=Control}\r])|(?<!\r)(?=\n))"
)
_IS_SURE_EDGE = regex.compile(_SURE_EDGE)
_LAST_SURE_EDGE = regex.compile(f"(?r){_SURE_EDGE}")
_FLAG = regex.compile(r"\p{GCB=RI}")
_LAST_FLAGS = regex.compile(r"(?r)\p{GCB=RI}*+")
_FLAG_CHARS = 2
_WINDOW_CHARS = 32


class Clusters:
    """The grapheme clusters of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Clusters that took a long way to find, in order: the next search does not go back behind them.
        self._starts = [-1]
        self._ends = [0]
        self._last = (0, 0)

    def is_edge(self, position: int) -> bool:
        """True where no cluster is cut."""
        if not 0 < position < len(self._text):
            return True
        before, after = self._text[position - 1], self._text[position]
        if before.isascii() and after.isascii():
            return not (before == "\r" and after == "\n")
        return _IS_SURE_EDGE.match(self._text, position) is not None or self.around(position)[0] == position

    def around(self, position: int) -> tuple[int, int]:
        """Start and end of the cluster that covers the position."""
        start, end = self._last
        if not start <= position < end:
            self._last = self._look_up(position)
        return self._last

    def _look_up(self, position: int) -> tuple[int, int]:
        row = bisect_right(self._starts, position) - 1
        known = self._starts[row], self._ends[row]
        if position < known[1]:
            return known
        is_flag = _FLAG.match(self._text, position) is not None
        start = (self._start_of_flag if is_flag else self._sure_edge)(position, known[1])
        found = self._walk(start, position)
        if is_flag or found[1] - found[0] > _WINDOW_CHARS:
            self._starts.insert(row + 1, found[0])
            self._ends.insert(row + 1, found[1])
        return found

    def _sure_edge(self, position: int, lowest: int) -> int:
        """The last certain edge at the position or ahead of it; `lowest` is one, too."""
        window = _WINDOW_CHARS
        while True:
            earliest = max(lowest, position - window)
            edge = _LAST_SURE_EDGE.search(self._text, earliest, position + 1)
            if edge and edge.start() > earliest:
                return edge.start()
            if earliest == lowest:
                return lowest
            window *= 4

    def _start_of_flag(self, position: int, lowest: int) -> int:
        """Flags are pairs of letters, so their edges are counted from the start of the run."""
        run = _LAST_FLAGS.match(self._text, lowest, position)
        start = run.start() if run else position
        if start > lowest and not _IS_SURE_EDGE.match(self._text, start):
            return self._sure_edge(start, lowest)  # a prepended sign takes the first of them
        return start + (position - start) // _FLAG_CHARS * _FLAG_CHARS

    def _walk(self, start: int, position: int) -> tuple[int, int]:
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
            window = max(_WINDOW_CHARS, position - start - last) if last else window * 4
            start += last
