"""A stretch of text without structural cuts in, one good place to cut it out: line, sentence, word, grapheme cluster.

Only the window that a chunk could fill is looked at, so the time is linear whatever the text is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from memory_core.chunk.clusters import Clusters
from memory_core.chunk.ruler import Ruler
from memory_core.chunk.sentences import (
    first_sentence_end,
    has_sentence_marks,
    last_sentence_ends,
    last_sentence_line_end,
)
from memory_core.chunk.structure import Structure
from memory_core.chunk.trim import first_non_blank
from memory_core.chunk.words import first_word_edge, has_word_edges, last_run_edge, last_word_edge
from memory_core.chunk_values import ChunkOptions

_Finder: TypeAlias = Callable[[int, int], int | None]


class Room(NamedTuple):
    """How many tokens a chunk aims at, and how many it has at most."""

    aim: int
    most: int


class Inside:
    """Finds cuts inside one text."""

    def __init__(
        self, content: str, structure: Structure, ruler: Ruler, clusters: Clusters, options: ChunkOptions
    ) -> None:
        self._content = content
        self._lines = structure.lines
        self._ruler = ruler
        self._clusters = clusters
        self._options = options
        # What a text has nowhere is not looked for at every cut.
        kinds: tuple[tuple[bool, _Finder, _Finder, bool], ...] = (
            ("\n" in structure.lines, self._last_line, self._line_stop, True),
            (has_sentence_marks(content), self._last_sentence, self._sentence_stop, False),
            (has_word_edges(content), self._last_word, self._word_stop, True),
        )
        self._tiers = [(last, stop, stays_whole) for is_there, last, stop, stays_whole in kinds if is_there]

    def find_cut(self, start: int, floor: int, end: int, room: Room) -> int:
        """Where to end a chunk that begins at `start`, behind `floor` and before `end`. `floor` is not blank.

        A chunk is filled at least by half and to the minimum, unless the next line, sentence or word would fit a chunk
        of its own and be cut otherwise; a line or word that fits the chunk, but not what it aims at, is kept whole.
        """
        limit = min(self._ruler.reach(start, room.aim), end)
        most = limit if room.most == room.aim else min(self._ruler.reach(start, room.most), end)
        if limit <= floor:
            # The heading alone fills what is aimed at: what the size leaves goes to the text below it.
            limit = most
        if limit <= floor:
            floor = start
        if limit == len(self._content):
            return limit
        for last, stop, stays_whole in self._tiers:
            cut = last(floor, limit)
            if cut is None:
                whole = stop(floor, most) if stays_whole and most > limit else None
                if whole is not None:
                    return whole
                continue
            filled = self._ruler.estimate(start, cut)
            if filled >= max(room.aim // 2, self._options.minimum):
                return cut
            if (stays_whole or filled >= self._options.minimum) and self._next_fits(cut, end, stop):
                return cut
        return self._last_in_run(start, floor, limit) or self._last_cluster(start, floor, limit)

    def find_start(self, earliest: int, end: int, *, tokens: int) -> int:
        """Where an overlap that ends at `end` begins, at `earliest` or behind: a line, sentence, word or cluster.

        Lines and sentences only where they leave half of the tokens. Returns `end` where there is no such place.
        """
        line = self._lines.find("\n", max(earliest - 1, 0), end)
        sentence = first_sentence_end(self._content, earliest, end)
        word = first_word_edge(self._content, earliest, end)
        wishes = (line if line >= 0 else end, end if sentence is None else sentence, end if word is None else word)
        for wish in wishes:
            start = first_non_blank(self._content, wish)
            if start < end and (wish is word or self._ruler.estimate(start, end) >= tokens // 2):
                return start
        cluster_start, cluster_end = self._clusters.around(earliest)
        edge = earliest if cluster_start == earliest else cluster_end
        return min(first_non_blank(self._content, edge), end)

    # --- the last cut of a kind before the limit ----------------------------------------------------------------------

    def _last_line(self, floor: int, limit: int) -> int | None:
        """Behind the last line end; rather behind one that ends a sentence too, in the second half of the window."""
        line = self._lines.rfind("\n", floor, limit + 1)
        if line <= floor:
            return None
        return last_sentence_line_end(self._lines, (floor + limit) // 2, limit + 1) or line + 1

    def _last_sentence(self, floor: int, limit: int) -> int | None:
        ends = last_sentence_ends(self._content, floor, limit)
        return next((end for end in ends if self._clusters.is_edge(end)), None)

    def _last_word(self, floor: int, limit: int) -> int | None:
        if limit == len(self._content):
            return limit
        edge = last_word_edge(self._content, floor, limit)
        if edge is None:
            return None
        # Some signs take the blank behind them into their cluster.
        text_end = floor + len(self._content[floor:edge].rstrip())
        return edge if self._clusters.is_edge(text_end) else None

    def _last_in_run(self, start: int, floor: int, limit: int) -> int | None:
        """The best place in a run without words, where that fills the chunk."""
        edge = last_run_edge(self._content, floor, limit) if limit < len(self._content) else None
        if edge is None or not self._clusters.is_edge(edge):
            return None
        return edge if self._ruler.estimate(start, edge) >= self._options.minimum else None

    def _last_cluster(self, start: int, floor: int, limit: int) -> int:
        """The last edge of a cluster; a cluster that does not fit by itself is cut between code points.

        Where the limit is inside the first cluster behind the floor, that one is kept whole: it ranks above a heading
        that it then parts from, and above an overlap.
        """
        if limit == len(self._content):
            return limit
        cluster_start, cluster_end = self._clusters.around(limit)
        if cluster_start > floor:
            return cluster_start
        alone = max(cluster_start, start)
        size = self._options.size
        # The estimate keeps clusters of millions from being counted at each cut.
        if self._ruler.estimate(alone, cluster_end) > size * 2 or self._ruler.count(alone, cluster_end) > size:
            return limit
        return cluster_end if alone == start else cluster_start

    # --- whether what follows a cut would be cut by going on ----------------------------------------------------------

    def _next_fits(self, cut: int, end: int, stop: _Finder) -> bool:
        start = first_non_blank(self._content, cut)
        bound = self._ruler.reach(start, self._options.size)
        return end <= bound or stop(start, bound) is not None

    def _line_stop(self, start: int, bound: int) -> int | None:
        line = self._lines.find("\n", start, bound + 1)
        return line if line >= 0 else None

    def _sentence_stop(self, start: int, bound: int) -> int | None:
        return first_sentence_end(self._content, start, bound)

    def _word_stop(self, start: int, bound: int) -> int | None:
        return first_word_edge(self._content, start + 1, bound)
