"""A table in CSV in, its records as a Structure out, with the header row as the lead of the records below it.

The delimiter is found by a fixed rule. Anything can be read as CSV, so nothing is refused: a quote that is never
closed, or is closed in the middle of a field, is a character like any other, and its record ends with the line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from memory_core.chunk.outline import Outline
from memory_core.chunk.structure import Structure, block_level

ROWS_STRATEGY = "csv-rows"
# In the order in which they win where all else is equal.
DELIMITERS = (",", ";", "\t", "|")
# A longer header row goes with no chunk: it would outweigh the records that it explains.
MAX_HEADER_CHARS = 2_000

# Records that are no longer together are one block: they fit the smallest chunk, and a text of millions of them has
# an eighth of the blocks.
_SMALL_BLOCK_CHARS = 16
# So much of a table tells its delimiter and its width.
_SAMPLE_CHARS = 65_536
_SAMPLE_RECORDS = 100
_BYTE_ORDER_MARK = "\ufeff"
# Some spreadsheets write the delimiter into the first line.
_DECLARATION = re.compile(r"(?i:sep)=([,;\t|]) *+(?:\n|\Z)")
_BLANK_LINES = re.compile(r"(?: *+\n)*+")
# Digits and signs without a letter, a number with an exponent, a time stamp, a truth, "nothing", an address.
_VALUE = re.compile(
    r"(?=\D*\d)[\W\d_]++|[-+]?\d[\d.,]*+e[-+]?\d++|\d{4}-\d\d-\d\dt[^\n]*+|true|false|null|none|nan|n/a"
    r"|[^\s@]++@[^\s@]++|[a-z]++://[^\n]*+",
    re.IGNORECASE,
)


class _Table(NamedTuple):
    """How a table is written: what parts its fields, and how many of them most records have."""

    delimiter: str
    width: int


def scan_csv(content: str) -> Structure:
    """Read a table's records, with line ends in quoted fields understood, and its header row.

    The header is the first record that has as many fields as most, if they are distinct, at most one is empty (an index
    often has no name), none looks like a value (a number, a date, an address, a truth, "nothing"), and records follow.
    """
    # A CRLF becomes a blank and a line end: all offsets stay.
    lines = content.replace("\r\n", " \n").replace("\r", "\n")
    start = 1 if lines.startswith(_BYTE_ORDER_MARK) else 0
    declaration = _DECLARATION.match(lines, start)
    start = declaration.end() if declaration else start
    start += len(blank[0]) if (blank := _BLANK_LINES.match(lines, start)) else 0
    table = _recognise(lines[start : start + _SAMPLE_CHARS], (declaration[1],) if declaration else DELIMITERS)
    outline = Outline()
    outline.add_block(0, block_level(0))
    _add_header(lines, start, table, outline)
    level, block_end = block_level(0), 0
    for record in _record_pattern(table.delimiter).finditer(lines, start):
        if record.end() > block_end:
            outline.add_block(record.start(), level)
            block_end = record.start() + _SMALL_BLOCK_CHARS
    return outline.build(content, lines=lines, strategy=ROWS_STRATEGY)


def _recognise(sample: str, delimiters: tuple[str, ...]) -> _Table:
    """The delimiter that gives most records one and the same number of fields, above one; then the most fields."""
    best, best_score = _Table(delimiters[0], 1), (0, 0)
    for delimiter in delimiters:
        records = _first_records(sample, 0, delimiter)
        widths = Counter(len(_read_fields(record[0], delimiter)) for record in records)
        score = max(((count, width) for width, count in widths.items() if width > 1), default=(0, 0))
        if score > best_score:
            best, best_score = _Table(delimiter, score[1]), score
    return best


def _add_header(lines: str, start: int, table: _Table, outline: Outline) -> None:
    for record in _first_records(lines, start, table.delimiter):
        header_end = record.start() + len(record[0].rstrip())
        if header_end - record.start() > MAX_HEADER_CHARS:
            return
        fields = _read_fields(record[0], table.delimiter)
        if len(fields) == table.width:
            if record.end() < len(lines) and _are_names(fields):
                outline.add_lead(record.end(), len(lines), record.start(), header_end)
            return


def _are_names(fields: list[str]) -> bool:
    return (
        len(set(fields)) == len(fields)
        and any(fields)
        and not any(_VALUE.fullmatch(field) for field in fields if field)
    )


def _first_records(text: str, start: int, delimiter: str) -> Iterator[re.Match[str]]:
    return islice(_record_pattern(delimiter).finditer(text, start), _SAMPLE_RECORDS)


def _read_fields(record: str, delimiter: str) -> list[str]:
    """The fields of one record, without the blanks and quotes around them."""
    fields = [found[1].strip() for found in _field_pattern(delimiter).finditer(delimiter + record.rstrip("\n "))]
    return [field[1:-1].replace('""', '"').strip() if field[:1] == '"' == field[-1:] else field for field in fields]


@lru_cache(maxsize=len(DELIMITERS))
def _record_pattern(delimiter: str) -> re.Pattern[str]:
    """One record with the blank lines behind it; its first line is not blank, where the text's first is not.

    Linear: a quoted field ends at the first odd run of quotes, so that no other one is looked for across it, and where
    there is none, all the quotes behind it are even runs: fields that are closed where they are opened.
    """
    field = _field(delimiter)
    mark = re.escape(delimiter)
    return re.compile(rf'(?!\Z)(?:[^"\n]*+|{field}(?:{mark}{field})*+)(?:\n(?: *+\n)*+|\Z)')


@lru_cache(maxsize=len(DELIMITERS))
def _field_pattern(delimiter: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(delimiter)}({_field(delimiter)})")


def _field(delimiter: str) -> str:
    mark = re.escape(delimiter)
    return rf'(?: *+"(?:[^"]++|"")*+" *+(?={mark}|\n|\Z)|[^{mark}\n]*+)'
