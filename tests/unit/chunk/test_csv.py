"""What counts as structure in CSV: whole records, and the header row that explains them."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.chunk.csv_rows import MAX_HEADER_CHARS, ROWS_STRATEGY, scan_csv
from memory_core.chunk_values import ChunkingResult
from memory_core.models import ContentType

_examples = settings.get_profile(os.environ.get("HYPOTHESIS_CHUNK_PROFILE", "chunk-suite"))

_ROW = "{0},Some Name,{0}.50,a few words about the row {0}"
_TABLE = "\n".join(["id,name,price,note", *map(_ROW.format, range(40))]) + "\n"


def _chunk(chunk_checked: Callable[..., ChunkingResult], text: str, *, size: int = 60) -> ChunkingResult:
    return chunk_checked(text, ContentType.CSV, size=size, minimum=1)


def _leads(result: ChunkingResult) -> set[str]:
    """What the chunks behind the first one have as their header row."""
    return {chunk.lead for chunk in result.chunks[1:]}


def _starts(text: str) -> list[int]:
    return scan_csv(text).cuts.positions.tolist()


def test_chunks_are_whole_records(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """No record is cut that fits a chunk."""
    result = _chunk(chunk_checked, _TABLE)

    assert result.strategy == ROWS_STRATEGY
    assert "\n".join(chunk.text for chunk in result.chunks) == _TABLE.rstrip()


def test_the_header_row_leads_every_later_chunk_and_is_in_no_text(
    chunk_checked: Callable[..., ChunkingResult],
) -> None:
    """The first chunk holds the header itself; the others know it without a change of their text."""
    result = _chunk(chunk_checked, _TABLE)

    assert result.chunks[0].lead == ""
    assert len(result.chunks) > 3
    assert _leads(result) == {"id,name,price,note"}
    assert all("id,name" not in chunk.text for chunk in result.chunks[1:])


def test_a_quoted_line_end_is_inside_its_record(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A field of several lines stays in one chunk with its record."""
    rows = [f'{row},"one line, and\na ""second"" line\n\nand more",end' for row in range(20)]
    result = _chunk(chunk_checked, "\n".join(["id,note,last", *rows]))

    assert "\n".join(chunk.text for chunk in result.chunks).splitlines()[1:] == "\n".join(rows).splitlines()
    assert all(chunk.text.startswith(f"{chunk.text.split(',')[0]},") for chunk in result.chunks)
    assert all(chunk.text.endswith(",end") for chunk in result.chunks)


def test_a_record_that_exceeds_the_size_is_cut_inside(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Its pieces have the header row, too."""
    result = _chunk(chunk_checked, "id,note\n1,short\n2," + "many words " * 90 + "\n3,short\n")

    assert len(result.chunks) > 3
    assert _leads(result) == {"id,note"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_every_usual_delimiter_and_line_end_is_found(
    chunk_checked: Callable[..., ChunkingResult], delimiter: str, end: str
) -> None:
    """A comma in a number or a text does not make a table one of commas."""
    rows = [["id", "name", "price"], *([str(row), '"A; b, c\td|e"', '"1,50"'] for row in range(40))]
    result = _chunk(chunk_checked, end.join(delimiter.join(row) for row in rows))

    assert _leads(result) == {delimiter.join(rows[0])}


@pytest.mark.parametrize(
    ("head", "header"),
    [
        ("id,name\n", "id,name"),
        ('\ufeff"id","name"\n', '"id","name"'),
        ("sep=,\nid,name\n", "id,name"),
        ("\n \nid,name\n", "id,name"),
        ("A report\n\nid,name\n", "id,name"),
        (",name\n", ",name"),
        ('"first\nid",name\n', '"first\nid",name'),
        ("1,Al\n", ""),
        ("2024-01-31,Al\n", ""),
        ("31/01/2024 10:00,Al\n", ""),
        ("$5.00,Al\n", ""),
        ("1e5,Al\n", ""),
        ("al@example.org,Al\n", ""),
        ("https://example.org,Al\n", ""),
        ("true,Al\n", ""),
        ("Al,Al\n", ""),
        (",\n", ""),
        ("x" * MAX_HEADER_CHARS + ",name\n", ""),
        ("", ""),
    ],
)
def test_the_header_is_a_row_of_distinct_names(
    chunk_checked: Callable[..., ChunkingResult], head: str, header: str
) -> None:
    """A first row that looks like values is a record; a title above the header is no header."""
    rows = "".join(f"{row},a few words to fill the row\n" for row in range(60))
    result = _chunk(chunk_checked, head + rows)

    assert result.chunks[-1].lead == header


def test_a_table_of_one_column_has_a_header(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Without any delimiter the first line is the header."""
    assert _leads(_chunk(chunk_checked, "word\n" + "plain\n" * 200)) == {"word"}


def test_a_header_alone_leads_nothing(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """One row is one chunk."""
    (chunk,) = _chunk(chunk_checked, "id,name").chunks

    assert chunk.lead == ""


# Each letter stands for a word: the shortest records share a block.
_WORDS = str.maketrans({letter: letter * 20 for letter in "abcdexyz"})


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('a,"open\nb,c\nd,e\n', ['a,"open\n', "b,c\n", "d,e\n"]),
        ('a,5" disk\nb,6" disk\n', ['a,5" disk\n', 'b,6" disk\n']),
        ('"a"x,b\n"c"\nd', ['"a"x,b\n', '"c"\n', "d"]),
        ('"a\nb"x\nc', ['"a\n', 'b"x\n', "c"]),
        ('a, "b\nc" ,d\ne', ['a, "b\nc" ,d\n', "e"]),
        ('"a"\t\t"b\nc"\nd\t\te', ['"a"\t\t"b\nc"\n', "d\t\te"]),
        ('"""a"\n"\nb', ['"""a"\n', '"\n', "b"]),
        ("a\n\n \nb", ["a\n\n \n", "b"]),
        ("", [""]),
        ("1\n2\n3\na\n1\n2\n", ["1\n2\n3\n", "a\n", "1\n2\n"]),
    ],
)
def test_a_quote_that_is_no_quote_ends_with_its_line(text: str, records: list[str]) -> None:
    """An unclosed quote does not swallow the rest of the table."""
    words = text.translate(_WORDS)
    starts = _starts(words)

    blocks = [words[start:end] for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]
    assert blocks == [record.translate(_WORDS) for record in records]


_fields = st.text(st.sampled_from('ab1 ,;"\n'), max_size=6)


@_examples
@given(rows=st.lists(st.lists(_fields, min_size=2, max_size=4), min_size=1, max_size=8))
def test_records_are_those_of_the_standard_library(rows: list[list[str]]) -> None:
    """What `csv` writes as a record is a block of its own."""
    written = io.StringIO("sep=,\n")
    written.seek(0, io.SEEK_END)
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    starts: list[int] = []
    for row in rows:
        starts.append(written.tell())
        writer.writerow(["a long first field", *row])

    assert _starts(written.getvalue())[1:] == starts


_HOSTILE: dict[str, Callable[[int], str]] = {
    "rows": lambda chars: "1234,Some Name,12.50,2020-01-01,hello world there\n" * (chars // 49),
    "quoted": lambda chars: '1234,"Some, ""Name""","line one\nline two",x\n' * (chars // 44),
    "quotes": lambda chars: '"' * chars,
    "odd quotes": lambda chars: '"' * (chars // 2 * 2 + 1),
    "delimiters": lambda chars: "," * chars,
    "quoted lines": lambda chars: '"a\n' * (chars // 3),
    "even runs": lambda chars: '"a\n' + '""b\n' * (chars // 4),
    "quoted blanks": lambda chars: ' "' * (chars // 2),
    "blanks": lambda chars: " " * chars + "a",
    "blank lines": lambda chars: "a" + " \n" * (chars // 2) + "b",
    "one line": lambda chars: '{"a":1},' * (chars // 8),
    "short lines": lambda chars: "a\n" * (chars // 2),
}


@pytest.mark.parametrize("kind", list(_HOSTILE))
def test_time_is_linear_on_hostile_tables(kind: str, assert_linear: Callable[..., None]) -> None:
    """However long a text is, each character costs the same."""
    assert_linear(scan_csv, _HOSTILE[kind], chars=50_000)
