"""A text, its Structure and sizes in, its chunks out. The one packer of all content types; it knows no format.

Order where rules collide (design.md 4): exact slices and cover, size, no cut inside a grapheme cluster, heading with
its body, whole blocks, minimum, overlap. A chunk stays inside the section in force at its start, and where sections
do not bind it takes the path of what holds all of it; so its heading path is true of all of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from memory_core.chunk.clusters import Clusters
from memory_core.chunk.inside import Inside, Room
from memory_core.chunk.ruler import Ruler
from memory_core.chunk.structure import SECTION_LEVELS, Structure
from memory_core.chunk.trim import first_non_blank
from memory_core.chunk.units import MARGIN_TOKENS, build_units
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkingStats, ChunkOptions
from memory_core.errors import ChunkingError
from memory_core.ports import TokenCounter

# A chunk that can end in several places ends near this share of the size. On chunking-eval at 400 tokens it finds as
# much as full chunks and returns a fifth less around it (docs/chunking.md).
_AIM_NUMERATOR, _AIM_DENOMINATOR = 3, 4
# A header row is stored with every chunk below it.
_MAX_LEAD_CHARS = 1_000


def pack(content: str, structure: Structure, options: ChunkOptions, counter: TokenCounter) -> ChunkingResult:
    """Cut the text into chunks of at most `options.size` tokens.

    Raises:
        ChunkingError: one single character has more tokens than the size.
    """
    return _Packer(content, structure, options, counter).pack()


@dataclass(slots=True)
class _Draft:
    """A chunk before its overlap is final: `own` is where its text begins that no other chunk has."""

    start: int
    own: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Step:
    """The end of a chunk, and where the next one begins: a position in a unit."""

    end: int
    next_unit: int
    next_start: int


class _Packer:
    """Walks over the units once, from chunk to chunk."""

    def __init__(self, content: str, structure: Structure, options: ChunkOptions, counter: TokenCounter) -> None:
        self._content = content
        self._structure = structure
        self._options = options
        self._ruler = Ruler(content, counter)
        self._clusters = Clusters(content)
        self._inside = Inside(content, structure, self._ruler, self._clusters, options)
        self._units = build_units(content, structure, self._ruler, size=options.size)
        # What a chunk may have of its own where the one before it can lend an overlap. Half of the size at least:
        # progress; the minimum at least: it ranks above overlap.
        self._own_budget = max(options.size - options.overlap, options.size // 2, options.minimum)
        self._aim = max(options.size * _AIM_NUMERATOR // _AIM_DENOMINATOR, options.minimum, 1)
        self._spans = structure.spans
        self._drafts: list[_Draft] = []
        self._merged = 0

    def pack(self) -> ChunkingResult:
        unit, start = 0, self._units.starts[0]
        while unit < len(self._units):
            step = self._fit(unit, start)
            self._add(start, step.end)
            unit, start = step.next_unit, step.next_start
        return self._finish()

    # --- where a chunk ends -------------------------------------------------------------------------------------------

    def _fit(self, unit: int, start: int) -> _Step:
        """The next step whose fresh count is within the size."""
        size = limit = self._options.size
        while True:
            step = self._plan(unit, start, limit)
            excess = self._ruler.count(start, step.end) - size
            if excess <= 0:
                return step
            if limit == 1:
                raise ChunkingError(
                    f"The chunk size of {size} tokens is smaller than the single character at {start}. Use at least 32."
                )
            limit = max(1, min(limit, self._ruler.estimate(start, step.end)) - excess)

    def _plan(self, unit: int, start: int, limit: int) -> _Step:
        """Choose the end of the chunk that begins at `start` in the unit, by estimates, within `limit` tokens."""
        stop = max(bisect_right(self._units.ends, self._spans.end_at(start), unit), unit + 1)
        before = self._before(unit, start)
        last = self._last_fitting(unit, stop, start, before, limit)
        if last == stop - 1:
            return self._step_behind(last)
        budget = limit if self._starts_section(start) else min(limit, self._own_budget)
        if budget < limit:
            last = max(self._last_fitting(unit, stop, start, before, budget), min(last, unit))
        if last < unit:
            room = Room(min(budget, self._aim), limit)
            return self._step_inside(unit, start, room, remaining=self._units.through[stop - 1] - before)
        return self._choose(unit, last, stop, start, Room(budget, limit))

    def _last_fitting(self, unit: int, stop: int, start: int, before: int, limit: int) -> int:
        """The last unit before `stop` up to whose end the chunk fits; `unit` - 1 where none does."""
        through, size = self._units.through, self._options.size
        slack = MARGIN_TOKENS if limit == size else 0
        last = bisect_right(through, before + limit + slack, unit, stop) - 1
        while last >= unit and through[last] - before > size - MARGIN_TOKENS:
            excess = self._ruler.count(start, self._units.ends[last]) - limit
            if excess <= 0:
                break
            last = min(last - 1, bisect_right(through, through[last] - excess + MARGIN_TOKENS, unit, last) - 1)
        return last

    def _choose(self, unit: int, last: int, stop: int, start: int, room: Room) -> _Step:
        """Choose among the cuts behind the units from `unit` to `last`: all are allowed, none is the section's end.

        The first edge of a section; else, of those that fill the chunk by half of what it aims at, the strongest and
        then the nearest to the aim; else the last one, and on into the next unit where that has to be cut anyway.
        """
        levels, glued, through = self._units.levels, self._units.glued, self._units.through
        minimum, aim = self._options.minimum, min(room.aim, self._aim)
        before = self._before(unit, start)
        for row in range(bisect_left(through, before + minimum, unit, last + 1), last + 1):
            if levels[row + 1] <= SECTION_LEVELS:
                return self._step_behind(row)
        half = bisect_left(through, before + max(aim // 2, minimum), unit, last + 1)
        filled = [row for row in range(half, last + 1) if not glued[row + 1]]
        # Else the section's last chunk would be below the minimum.
        tail = through[stop - 1] - minimum
        if filled := [row for row in filled if through[row] <= tail] or filled:
            return self._step_behind(min(filled, key=lambda row: (levels[row + 1], abs(through[row] - before - aim))))
        free = [row for row in range(unit, last + 1) if not glued[row + 1]]
        row = last if self._units.divisible[last + 1] or not free else free[-1]
        if self._units.divisible[row + 1]:
            step = self._step_into(row + 1, start, room._replace(aim=aim))
            if step is not None:
                return step
        return self._step_behind(free[-1] if free else last)

    def _step_behind(self, unit: int) -> _Step:
        following = unit + 1
        next_start = self._units.starts[following] if following < len(self._units) else len(self._content)
        return _Step(self._units.ends[unit], following, next_start)

    def _step_into(self, unit: int, start: int, room: Room) -> _Step | None:
        """End the chunk in a unit behind the one it begins in; None where nothing of its body fits."""
        floor = self._units.bodies[unit]
        if self._ruler.reach(start, room.aim) <= floor:
            return None
        cut = self._inside.find_cut(start, floor, self._units.ends[unit], room)
        return self._step_at(unit, start, cut) if cut > floor else None

    def _step_inside(self, unit: int, start: int, room: Room, *, remaining: int) -> _Step:
        """End the chunk in the unit that it begins in, and leave the section's last chunk its minimum."""
        if room.aim < remaining < room.aim + self._options.minimum:
            room = room._replace(aim=max(remaining - self._options.minimum, (room.aim + 1) // 2))
        floor = max(start, self._units.bodies[unit])
        return self._step_at(unit, start, self._inside.find_cut(start, floor, self._units.ends[unit], room))

    def _step_at(self, unit: int, start: int, cut: int) -> _Step:
        if cut >= self._units.ends[unit]:
            return self._step_behind(unit)
        end = start + len(self._content[start:cut].rstrip())
        return _Step(end, unit, first_non_blank(self._content, cut))

    def _before(self, unit: int, start: int) -> int:
        return self._units.before[unit] if start == self._units.starts[unit] else self._ruler.before(start)

    def _starts_section(self, start: int) -> bool:
        """True where the chunk before is of another section: it lends no overlap."""
        return not self._drafts or self._spans.start_at(start) >= self._drafts[-1].end

    # --- what becomes of it -------------------------------------------------------------------------------------------

    def _add(self, own: int, end: int) -> None:
        draft = _Draft(own, own, end, self._ruler.count(own, end))
        if self._drafts and self._merge(self._drafts[-1], draft):
            self._merged += 1
            return
        if self._options.overlap and not self._starts_section(own):
            self._borrow(self._drafts[-1], draft, lowest=self._spans.start_at(own))
        self._drafts.append(draft)

    def _merge(self, previous: _Draft, draft: _Draft) -> bool:
        """Put a chunk that is too small together with its neighbour, where size and section allow; overlap yields."""
        if min(previous.tokens, draft.tokens) >= self._options.minimum:
            return False
        if draft.end > self._spans.end_at(previous.own):
            return False
        for start in dict.fromkeys((previous.start, previous.own)):
            if self._ruler.estimate(start, draft.end) > self._options.size + MARGIN_TOKENS:
                continue
            tokens = self._ruler.count(start, draft.end)
            if tokens <= self._options.size:
                previous.start, previous.end, previous.tokens = start, draft.end, tokens
                return True
        return False

    def _borrow(self, previous: _Draft, draft: _Draft, *, lowest: int) -> None:
        """Let the chunk begin in the previous one, by as many tokens as both limits leave."""
        size, overlap = self._options.size, self._options.overlap
        room = min(overlap, size - draft.tokens)
        while room > 0:
            earliest = max(self._ruler.reach_back(previous.end, room), previous.start + 1, lowest)
            if earliest >= previous.end:
                return
            start = self._inside.find_start(earliest, previous.end, tokens=room)
            if start >= previous.end:
                return
            tokens = self._ruler.count(start, draft.end)
            excess = max(tokens - size, self._ruler.count(start, previous.end) - overlap)
            if excess <= 0:
                draft.start, draft.tokens = start, tokens
                return
            room -= excess

    def _finish(self) -> ChunkingResult:
        chunks = tuple(self._make_chunk(index, draft) for index, draft in enumerate(self._drafts))
        stats = ChunkingStats(
            input_chars=len(self._content),
            chunk_count=len(chunks),
            total_tokens=sum(chunk.token_count for chunk in chunks),
            merged_count=self._merged,
            cluster_cuts=sum(
                not self._clusters.is_edge(edge) for chunk in chunks for edge in (chunk.char_start, chunk.char_end)
            ),
        )
        return ChunkingResult(chunks=chunks, strategy=self._structure.strategy, stats=stats)

    def _make_chunk(self, index: int, draft: _Draft) -> Chunk:
        hidden = self._structure.hidden
        return Chunk(
            index=index,
            text=self._content[draft.start : draft.end],
            char_start=draft.start,
            char_end=draft.end,
            token_count=draft.tokens,
            heading_path=self._spans.path_of(draft.own, draft.end),
            lead=self._find_lead(draft),
            readable=hidden.read(self._content, draft.start, draft.end) if hidden.starts else None,
        )

    def _find_lead(self, draft: _Draft) -> str:
        """The header row that the chunk's own text is below, where the chunk does not hold it."""
        leads, hidden = self._structure.leads, self._structure.hidden
        row = leads.row_at(draft.own)
        if row is None or draft.start <= leads.lead_starts[row]:
            return ""
        start, end = leads.lead_starts[row], min(leads.lead_ends[row], leads.lead_starts[row] + _MAX_LEAD_CHARS)
        return hidden.read(self._content, start, end) if hidden.starts else self._content[start:end].strip()
