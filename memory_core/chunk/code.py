"""Source code in, its definitions and the groups of its lines as a Structure out. Only grammars know languages.

Where a grammar reads the text, cuts stand before and behind definitions, and their names make the path. Everything else
is cut by lines: where blank lines stand, and where an indentation ends. A cut is the stronger, the fewer definitions it
stands in and the less it is indented; and it is always the beginning of a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory_core.chunk.code_definitions import Definition, find_definitions
from memory_core.chunk.code_grammars import UTF8_CONTINUES, UTF8_MASK, Grammar, load_grammar, parse_code
from memory_core.chunk.code_lines import CodeLines, Positions, read_lines
from memory_core.chunk.outline import Outline
from memory_core.chunk.structure import BLOCK_LEVEL, ITEM_STEP, LEVELS_PER_DEPTH, Structure

CODE_STRATEGY: Final = "code-block"

GrammarOf: TypeAlias = Callable[[str], Grammar | None]

# Half the width of the narrowest indentation in use; together with the definitions it stays below 50 depths.
_COLUMNS_PER_DEPTH: Final = 2
_MAX_INDENTATION_DEPTH: Final = 24
# Plain numbers take ten times the room of an array's.
_ROWS_PER_BLOCK: Final = 65_536
# A line that begins like this ends what stands above it, or goes on with it.
_CLOSER = re.compile(r"[)\]}]|(?:done|end|esac|fi)\b")
_CONTINUATION = re.compile(
    r"[(){}\]]|(?:catch|done|elif|else|elseif|elsif|end|ensure|esac|except|fi|finally|rescue|then)\b"
)


class _Element(NamedTuple):
    """A definition in code points, with the lines that close what it stands in.

    `row` is the line that it begins, -1 where something stands ahead of it there; `next_row` is the line behind it.
    """

    enter: int
    leave: int
    names: tuple[str, ...]
    row: int
    next_row: int


def scan_code(content: str, language: str, *, grammar_of: GrammarOf = load_grammar) -> Structure:
    """Read code of a language, "" where it is not known. `grammar_of` gives the grammar of a language, or none."""
    # A CRLF becomes a blank and a line end: all offsets stay.
    text = content.replace("\r\n", " \n").replace("\r", "\n")
    lines = read_lines(text)
    elements = _read_elements(text, lines, grammar_of(language))
    outline = Outline()
    _add(outline, _list_cuts(text, lines, elements), _list_marks(elements))
    return outline.build(content, lines=text, strategy=CODE_STRATEGY)


def _read_elements(text: str, lines: CodeLines, grammar: Grammar | None) -> Sequence[_Element]:
    """The definitions that the grammar finds, in order of their starts and nested."""
    if grammar is None:
        return ()
    # Half a surrogate pair is refused elsewhere, in words.
    source = text.encode(errors="replace")
    tree = parse_code(source, grammar)
    definitions = find_definitions(tree, grammar, source) if tree else ()
    if not definitions:
        return ()
    places = np.array([(one.start, one.end) for one in definitions], dtype=np.int32)
    if not text.isascii():
        places = _count_code_points(source, places)
    return _nest(definitions, places, lines, _find_next_rows(text, lines)[lines.rows_at(places[:, 1] - 1) + 1])


def _count_code_points(source: bytes, places: Positions) -> Positions:
    """Positions in UTF-8 as positions in its code points: each begins with a byte that continues none."""
    begins = np.flatnonzero((np.frombuffer(source, dtype=np.uint8) & UTF8_MASK) != UTF8_CONTINUES)
    return np.searchsorted(begins, places).astype(np.int32)


def _find_next_rows(text: str, lines: CodeLines) -> NDArray[np.intp]:
    """For each line, and the end, the first line from there on that closes nothing."""
    closes = [_CLOSER.match(text, ink) is not None for ink in lines.inks.tolist()]
    rows = np.where([*closes, False], len(closes), np.arange(len(closes) + 1))
    return np.minimum.accumulate(rows[::-1])[::-1]


def _nest(
    definitions: Sequence[Definition], places: Positions, lines: CodeLines, next_rows: NDArray[np.intp]
) -> list[_Element]:
    """Widen each definition to whole lines, as far as what stands beside it on its lines allows."""
    starts, ends = places[:, 0], places[:, 1].tolist()
    rows = lines.rows_at(starts)
    begins_line = (lines.inks[rows] == starts) & ~np.array([one.is_package for one in definitions])
    enters = np.where(begins_line, lines.starts[rows], starts).tolist()
    leaves = lines.starts_from(next_rows).tolist()
    if definitions[0].is_package:
        enters[0] = 0
    open_ones: list[int] = []
    for index, (definition, start) in enumerate(zip(definitions, starts.tolist(), strict=True)):
        while open_ones and (definition.is_package or ends[open_ones[-1]] <= start):
            closed = open_ones.pop()
            leaves[closed] = min(leaves[closed], enters[index])
        open_ones.append(index)
    rows = np.where(begins_line, rows, -1).tolist()
    return [
        _Element(enter, leave, one.names, row, next_row)
        for one, enter, leave, row, next_row in zip(definitions, enters, leaves, rows, next_rows.tolist(), strict=True)
        if enter < leave
    ]


def _list_cuts(text: str, lines: CodeLines, elements: Sequence[_Element]) -> Iterator[tuple[int, int]]:
    """Where the text may be cut, and at which level."""
    starts_definition, follows_definition = _mark_edges(lines, elements)
    is_dedent = np.diff(lines.columns, prepend=0) < 0
    is_edge = starts_definition | follows_definition
    levels = _level(lines, elements, is_edge=is_edge)
    rows = np.flatnonzero(is_edge | lines.after_blank | is_dedent)
    yield 0, BLOCK_LEVEL
    for block in range(0, len(rows), _ROWS_PER_BLOCK):
        some = rows[block : block + _ROWS_PER_BLOCK]
        columns = (starts_definition[some], lines.starts[some], lines.inks[some], levels[some])
        for is_definition, position, ink, level in zip(*(column.tolist() for column in columns), strict=True):
            if position and (is_definition or not _CONTINUATION.match(text, ink)):
                yield position, level


def _mark_edges(lines: CodeLines, elements: Sequence[_Element]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The lines that begin a definition, and those that follow one."""
    count = len(lines.starts)
    starting, following = np.zeros(count, dtype=np.bool_), np.zeros(count + 1, dtype=np.bool_)
    starting[[one.row for one in elements if one.row >= 0]] = True
    following[[one.next_row for one in elements if one.row >= 0]] = True
    return starting, following[:count]


def _level(lines: CodeLines, elements: Sequence[_Element], *, is_edge: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The level of a cut ahead of each line; without blank lines or a definition's edge it is one depth weaker."""
    depths = np.minimum(lines.columns // _COLUMNS_PER_DEPTH, _MAX_INDENTATION_DEPTH)
    if elements:
        enters = np.array([one.enter for one in elements], dtype=np.int32)
        leaves = np.sort(np.array([one.leave for one in elements], dtype=np.int32))
        depths += np.searchsorted(enters, lines.starts, side="left").astype(np.int32)
        depths -= np.searchsorted(leaves, lines.starts, side="right").astype(np.int32)
    steps = np.where(is_edge, 0, np.where(lines.after_blank, ITEM_STEP, LEVELS_PER_DEPTH))
    return (BLOCK_LEVEL + LEVELS_PER_DEPTH * depths + steps).astype(np.int32)


def _list_marks(elements: Sequence[_Element]) -> list[tuple[int, str | None]]:
    """The positions where elements are entered, by their names, and left, by None; at one position left first."""
    marks = [(one.leave, 0, None) for one in elements for _ in one.names]
    marks += [(one.enter, 1, name) for one in elements for name in one.names]
    return [(position, name) for position, _, name in sorted(marks, key=itemgetter(0, 1))]


def _add(outline: Outline, cuts: Iterator[tuple[int, int]], marks: Sequence[tuple[int, str | None]]) -> None:
    """Add cuts and marks in order of their positions: at one position a cut comes between leaving and entering."""
    following = 0
    for position, level in cuts:
        while following < len(marks) and (
            marks[following][0] < position or (marks[following][0] == position and marks[following][1] is None)
        ):
            _add_mark(outline, *marks[following])
            following += 1
        outline.add_block(position, level)
    for mark in marks[following:]:
        _add_mark(outline, *mark)


def _add_mark(outline: Outline, position: int, name: str | None) -> None:
    if name is None:
        outline.leave(position)
    else:
        outline.enter(position, name)
