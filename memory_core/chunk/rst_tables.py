"""A table of a reStructuredText in, its rows out as blocks: cut only between rows, its header row kept as their lead.

`source` begins with a line end that is not the content's, so the line end ahead of a line stands at the line's offset.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from memory_core.chunk.outline import Outline
from memory_core.chunk.structure import ITEM_STEP

_GRID_LINES = re.compile(r"(?:\n[ \t]*+[+|][^\n]*+)++")
_GRID_RULE = re.compile(r"\n[ \t]*+\+(?:(?P<header>=[=+]*+)|-[-+]*+)(?<=\+)[^\S\n]*+(?=\n)")
_BLANK_LINE = re.compile(r"\n[^\S\n]*+(?:\n|\Z)")
_MAX_SIMPLE_RULES = 3


def read_grid_table(source: str, line: int, level: int, outline: Outline, *, limit: int, is_joined: bool) -> int:
    """Add the grid table that begins at the line, up to `limit`; return the line end behind it.

    `is_joined`: the table is not parted from what is above it (its directive).
    """
    if not is_joined:
        outline.add_block(line, level, whole=True)
    table = _GRID_LINES.match(source, line, limit)
    if table is None:
        return source.find("\n", line + 1)
    ends: list[int] = []
    header, header_end = 0, 0
    for rule in _GRID_RULE.finditer(source, line, table.end() + 1):
        if rule["header"] and not header:
            header, header_end = len(ends), rule.start() - 1
        ends.append(rule.end())
    # The first row stays with the header, or with the border, above it.
    _add_rows(ends[header + 1 : -1], level, outline)
    if header and ends[0] < header_end:
        outline.add_lead(line, table.end(), ends[0], header_end)
    return table.end()


def read_simple_table(
    source: str, line: int, level: int, outline: Outline, *, limit: int, is_joined: bool
) -> int | None:
    """Add the simple table that begins at the line; return the line end behind it, None where no border closes it."""
    rules = _find_simple_rules(source, line, limit)
    if len(rules) == 1:
        return None
    if not is_joined:
        outline.add_block(line, level, whole=True)
    row_start = _row_start(rules[0].start(1) - line - 1)
    rows = [row.start() for row in row_start.finditer(source, rules[-2].end(), rules[-1].start())]
    _add_rows(rows[1:], level, outline)
    header_start, header_end = rules[0].end(), rules[1].start() - 1
    if len(rules) == _MAX_SIMPLE_RULES and header_start < header_end:
        outline.add_lead(line, rules[-1].end(), header_start, header_end)
    return rules[-1].end()


def _find_simple_rules(source: str, line: int, limit: int) -> list[re.Match[str]]:
    """The borders: the table ends at the third, at one of another width, or at one that a blank line follows."""
    rules: list[re.Match[str]] = []
    pattern = _simple_rule(source.index("=", line) - line - 1)
    for rule in pattern.finditer(source, line, limit + 1):
        rules.append(rule)
        is_last = len(rules) == _MAX_SIMPLE_RULES or _BLANK_LINE.match(source, rule.end())
        if len(rules) > 1 and (is_last or len(rule[1].rstrip()) != len(rules[0][1].rstrip())):
            break
    return rules


@lru_cache(maxsize=64)
def _simple_rule(indent: int) -> re.Pattern[str]:
    return re.compile(rf"\n[ \t]{{{indent}}}(=[= ]*+)[^\S\n]*+(?=\n)")


@lru_cache(maxsize=64)
def _row_start(indent: int) -> re.Pattern[str]:
    """A row with a blank first column goes on with the row above it."""
    return re.compile(rf"\n[ \t]{{{indent}}}(?=[^\s])(?![-= ]++\n)")


def _add_rows(positions: Sequence[int], level: int, outline: Outline) -> None:
    for position in positions:
        outline.add_block(position, level + ITEM_STEP)
