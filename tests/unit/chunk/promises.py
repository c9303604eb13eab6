"""A text, its chunks and what they were made of in; an AssertionError where a promise of design.md 4 is broken.

The promises are checked from the text and the scanner's structure alone: nothing here asks the packer. Each function
is one group of promises, in the order of precedence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

import regex

from memory_core.chunk.chunk_content import _scan
from memory_core.chunk.html import HTML_STRATEGY
from memory_core.chunk.structure import Structure
from memory_core.chunk.trim import first_non_blank
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkOptions
from memory_core.models import ContentType
from memory_core.ports import TokenCounter

STRATEGIES = frozenset(
    "markdown-structural code-block html-blocks json-elements json-records json-lines paragraph rst-structural "
    "csv-rows".split()
)
MAX_LEAD_CHARS = 1_000
MAX_NAME_CHARS = 256
# A line, or so much of it that it is worth to be kept with its heading.
_FIRST_PIECE = regex.compile(r"(?:(?![\n\r])\X){1,32}\S{0,40}")


@dataclass(frozen=True)
class Chunking:
    """One chunking and all that it was made of."""

    text: str
    content_type: ContentType
    options: ChunkOptions
    counter: TokenCounter
    result: ChunkingResult

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks in order."""
        return self.result.chunks

    @cached_property
    def structure(self) -> Structure:
        """What the type's own scanner says of the text."""
        return _scan(self.text, self.content_type, self.options.language)

    @cached_property
    def own_starts(self) -> tuple[int, ...]:
        """Where the text of each chunk begins that the one before does not have."""
        covered = [0, *(chunk.char_end for chunk in self.chunks)]
        return tuple(
            first_non_blank(self.text, max(chunk.char_start, end))
            for chunk, end in zip(self.chunks, covered, strict=False)
        )

    def count(self, start: int, end: int) -> int:
        """Tokens of the slice alone."""
        return self.counter.count(self.text[start:end])

    def is_in_one(self, start: int, end: int) -> bool:
        """True where one chunk holds the whole slice: the last one that begins at its start or ahead of it."""
        row = bisect_right(self.chunks, start, key=attrgetter("char_start")) - 1
        return row >= 0 and end <= self.chunks[row].char_end


def check_all(chunking: Chunking) -> None:
    """Hold one chunking to every promise that can be seen from outside."""
    check_slices(chunking)
    check_tokens(chunking)
    check_clusters(chunking)
    check_paths(chunking)
    check_headings(chunking)
    check_whole_blocks(chunking)
    check_minimum(chunking)
    check_overlap(chunking)
    check_extras(chunking)
    check_structure(chunking.text, chunking.structure)


def check_slices(chunking: Chunking) -> None:
    """Exact slices in order, which leave nothing out but blanks."""
    text, covered, start = chunking.text, 0, -1
    assert chunking.chunks
    for index, chunk in enumerate(chunking.chunks):
        assert chunk.index == index
        assert chunk.text == text[chunk.char_start : chunk.char_end]
        assert chunk.text == chunk.text.strip() != ""
        assert chunk.char_start > start
        assert chunk.char_end > covered
        assert not text[covered : chunk.char_start].strip()
        covered, start = chunk.char_end, chunk.char_start
    assert not text[covered:].strip()


def check_tokens(chunking: Chunking) -> None:
    """The count of a chunk is that of its text alone, and within the size."""
    result = chunking.result
    for chunk in chunking.chunks:
        assert chunk.token_count == chunking.counter.count(chunk.text) <= chunking.options.size
    assert result.stats.input_chars == len(chunking.text)
    assert result.stats.chunk_count == len(chunking.chunks)
    assert result.stats.total_tokens == sum(chunk.token_count for chunk in chunking.chunks)
    assert result.stats.merged_count >= 0


def check_clusters(chunking: Chunking) -> None:
    """A grapheme cluster is cut only where it exceeds the size, or beside a blank in it, and the stats count that."""
    text, cuts = chunking.text, 0
    edges = [0, *(found.end() for found in regex.finditer(r"\X", text))]
    too_large: dict[int, bool] = {}
    for position in (place for chunk in chunking.chunks for place in (chunk.char_start, chunk.char_end)):
        behind = bisect_left(edges, position)
        if edges[behind] != position:
            # A chunk neither begins nor ends with a blank, so a cluster with a blank in it can be cut there.
            if not (text[position - 1].isspace() or text[position].isspace()):
                if behind not in too_large:
                    too_large[behind] = chunking.count(edges[behind - 1], edges[behind]) > chunking.options.size
                assert too_large[behind], f"the cluster at {edges[behind - 1]} is cut"
            cuts += 1
    assert chunking.result.stats.cluster_cuts == cuts


def check_paths(chunking: Chunking) -> None:
    """A path is that of the section in force where the chunk's own text begins, and true of all of the chunk."""
    spans = chunking.structure.spans
    for chunk, own in zip(chunking.chunks, chunking.own_starts, strict=True):
        row = spans.row_at(own)
        if spans.binding:
            assert chunk.char_end <= spans.ends[row], f"chunk {chunk.index} leaves its section"
            assert chunk.char_start >= spans.starts[bisect_right(spans.starts, own) - 1], "an overlap of elsewhere"
        while row and spans.ends[row] < chunk.char_end:
            row = spans.parents[row]
        names: list[str] = []
        while row:
            names.insert(0, spans.names[row])
            row = spans.parents[row]
        if chunking.content_type is ContentType.JSON:
            # Indexes stand behind the key that they are below.
            joined = "".join(name.removeprefix("\x00") for name in names)
            assert len(joined) > MAX_NAME_CHARS or "".join(chunk.heading_path) == joined
        else:
            assert chunk.heading_path == tuple(name for name in names if name)


def check_headings(chunking: Chunking) -> None:
    """A chunk ends with a heading only where not even the first piece of what is below it fits beside it."""
    text, structure = chunking.text, chunking.structure
    if not structure.spans.binding:
        return
    for heading, body in _find_bodies(structure):
        start, body_start = first_non_blank(text, heading), first_non_blank(text, body)
        # What is blank to a reader is no text below a heading: then another heading follows this one.
        has_text = body_start < len(text) and structure.spans.row_at(body_start) == structure.spans.row_at(body)
        if has_text and body_start in chunking.own_starts:
            piece_end = _first_piece_end(chunking, body, body_start)
            assert chunking.count(start, piece_end) > chunking.options.size, (
                f"the heading at {start} is torn from its text at {body_start}"
            )


def _find_bodies(structure: Structure) -> list[tuple[int, int]]:
    """Each heading, or chain of headings, and where the text below it begins."""
    cuts = structure.cuts
    positions, glued = [*cuts.positions.tolist(), len(structure.lines)], [*cuts.glued.tolist(), False]
    found: list[tuple[int, int]] = []
    for row, body in enumerate(cuts.bodies.tolist()):
        if body != positions[row]:
            found.append((positions[row], positions[row + 1] if glued[row + 1] else body))
    return found


def _first_piece_end(chunking: Chunking, body: int, body_start: int) -> int:
    """The end of the first block of a body that is kept whole and fits by itself, else of its first words."""
    text, cuts = chunking.text, chunking.structure.cuts
    row = bisect_left(cuts.positions, body)
    if row < len(cuts.positions) and cuts.positions[row] == body and cuts.glued[row]:
        # Deeper cuts are those of blocks in this one.
        behind = (i for i in range(row + 1, len(cuts.positions)) if cuts.levels[i] <= cuts.levels[row])
        following = int(cuts.positions[i]) if (i := next(behind, None)) is not None else len(text)
        end = body_start + len(text[body_start:following].rstrip())
        if chunking.count(body_start, end) <= chunking.options.size:
            return end
    piece = _FIRST_PIECE.match(text, body_start)
    end = body_start + len(piece[0].rstrip()) if piece else len(text)
    return end if end > body_start else len(text)


def check_whole_blocks(chunking: Chunking) -> None:
    """What the structure calls one block, at any level, is in one chunk where it fits one."""
    structure, checked = chunking.structure, set[tuple[int, int]]()
    positions, levels = structure.cuts.positions.tolist(), structure.cuts.levels.tolist()
    for own in chunking.own_starts[1:]:
        for block in _blocks_around(chunking.text, positions, levels, own):
            if block in checked or chunking.is_in_one(*block):
                continue
            checked.add(block)
            start, end = block
            is_apart = structure.spans.binding and end > structure.spans.ends[structure.spans.row_at(start)]
            if not is_apart:
                assert chunking.count(start, end) > chunking.options.size, f"the block {start}-{end} is cut"
                break  # what is around it does not fit either


def _blocks_around(text: str, positions: list[int], levels: list[int], place: int) -> Iterator[tuple[int, int]]:
    """The blocks that a place is inside of, the innermost first: up to the nearest cuts of at least each level."""
    first = bisect_right(positions, place) - 1
    following = first + 1
    for level in range(max(levels, default=-1), -1, -1):
        before = first, following
        while first >= 0 and levels[first] > level:
            first -= 1
        while following < len(levels) and levels[following] > level:
            following += 1
        if before == (first, following) and level < max(levels):
            continue
        start = first_non_blank(text, positions[first] if first >= 0 else 0)
        end = start + len(text[start : positions[following] if following < len(levels) else len(text)].rstrip())
        if start < place:
            yield start, end


def check_minimum(chunking: Chunking) -> None:
    """A small chunk and its neighbour do not fit together, or the neighbour is of another section."""
    spans, minimum = chunking.structure.spans, chunking.options.minimum
    for (before, own), (after, _) in pairwise(zip(chunking.chunks, chunking.own_starts, strict=True)):
        if min(before.token_count, after.token_count) < minimum:
            is_apart = spans.binding and after.char_end > spans.ends[spans.row_at(own)]
            assert is_apart or chunking.count(own, after.char_end) > chunking.options.size, (
                f"chunks {before.index} and {after.index} fit together"
            )


def check_overlap(chunking: Chunking) -> None:
    """What two neighbours share is the end of the first, and no more than was asked for."""
    for before, after in pairwise(chunking.chunks):
        if after.char_start < before.char_end:
            shared = chunking.text[after.char_start : before.char_end]
            assert before.text.endswith(shared)
            assert after.text.startswith(shared)
            assert chunking.counter.count(shared) <= chunking.options.overlap


def check_extras(chunking: Chunking) -> None:
    """The strategy has a known name; a header row comes from ahead of the chunk; only pages are read otherwise."""
    result, structure = chunking.result, chunking.structure
    assert result.strategy in STRATEGIES
    for chunk, own in zip(chunking.chunks, chunking.own_starts, strict=True):
        assert chunk.readable is None or result.strategy == HTML_STRATEGY
        if not chunk.lead:
            continue
        row = structure.leads.row_at(own)
        assert row is not None
        start, end = structure.leads.lead_starts[row], structure.leads.lead_ends[row]
        assert start < chunk.char_start, "the chunk holds its header row itself"
        assert end <= own < structure.leads.ends[row]
        clipped = min(end, start + MAX_LEAD_CHARS)
        if result.strategy == HTML_STRATEGY and structure.hidden.starts:
            assert chunk.lead == structure.hidden.read(chunking.text, start, clipped)
        else:
            assert chunk.lead == chunking.text[start:clipped].strip()


def check_structure(text: str, structure: Structure) -> None:
    """Cuts ascend, sections and elements are nested, header rows stand ahead of their rows, hidden parts are apart."""
    spans, leads, hidden = structure.spans, structure.leads, structure.hidden
    positions = structure.cuts.positions.tolist()
    assert positions == sorted(set(positions))
    assert all(0 <= position <= len(text) for position in positions)
    assert all(body >= position for body, position in zip(structure.cuts.bodies.tolist(), positions, strict=True))
    starts = list(spans.starts)
    assert starts[1:] == sorted(set(starts[1:]))
    assert all(0 <= end <= len(text) for end in spans.ends)
    assert all(len(name) <= MAX_NAME_CHARS and len(name.splitlines()) <= 1 for name in spans.names)
    assert spans.binding or all(spans.ends[row] <= spans.ends[parent] for row, parent in enumerate(spans.parents))
    assert len(structure.lines) == len(text)
    header_ends = [-1, *leads.ends]
    for row, (start, end, stop) in enumerate(zip(leads.lead_starts, leads.lead_ends, leads.ends, strict=True)):
        assert header_ends[row] <= start < end <= stop
    places = [place for pair in zip(hidden.starts, hidden.ends, strict=True) for place in pair]
    assert places == sorted(places)
    assert not places or (places[0] >= 0 and places[-1] <= len(text))
