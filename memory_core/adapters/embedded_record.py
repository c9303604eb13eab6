"""What the files of an embedded search index hold. In: a folder. Out: its record, or why there is none. No search.

The record is one small file, replaced atomically after everything else is on disk: it says how much of the other files
counts. A crash leaves it behind them, never ahead; what lies beyond it is cut off by the next writer.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from memory_core.adapters.text_terms import TERMS_VERSION

FORMAT_VERSION: Final = 1
_RECORD_NAME = "record.json"
_COUNTS = (
    "generation",
    "text_generation",
    "rows",
    "journal_bytes",
    "next_serial",
    "text_commit",
    "read_at_ms",
    "compared_at_ms",
)


class CorruptIndexError(Exception):
    """The files do not fit together: the index is built again. Never leaves the adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an index is made for: with another shape it is another index."""

    lineage: str
    dimensions: int
    language: str
    format_version: int = FORMAT_VERSION
    terms_version: int = TERMS_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How much of each file counts. `*_ms` are the server's time in milliseconds since 1970.

    `rows` counts vectors, dead ones included; `text_commit` is the text index's own stamp of its last commit;
    `complete` is False until everything that was stored at the build's beginning is in.
    """

    shape: Shape
    generation: int
    text_generation: int
    rows: int = 0
    journal_bytes: int = 0
    next_serial: int = 0
    text_commit: int = 0
    read_at_ms: int = 0
    compared_at_ms: int = 0
    complete: bool = False


def record_path(folder: Path) -> Path:
    """Where the record is."""
    return folder / _RECORD_NAME


def journal_path(folder: Path, generation: int) -> Path:
    """The append-only list of documents and their rows."""
    return folder / f"rows-{generation}.jsonl"


def vectors_path(folder: Path, generation: int) -> Path:
    """The append-only float32 vectors, one per row of the journal, in its order."""
    return folder / f"vectors-{generation}.f32"


def text_path(folder: Path, text_generation: int) -> Path:
    """The directory of the text index."""
    return folder / f"text-{text_generation}"


def read_record(folder: Path) -> Record | None:
    """The last record, or None where there is none.

    Raises:
        CorruptIndexError: the file is no record.
    """
    try:
        values: object = json.loads(record_path(folder).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptIndexError("the record is no JSON") from error
    try:
        return _read_values(values)
    except (AttributeError, KeyError, TypeError) as error:
        raise CorruptIndexError("the record lacks a field, or one has the wrong type") from error


def write_record(folder: Path, record: Record) -> None:
    """Replace the record atomically; it is on disk when this returns."""
    new = record_path(folder).with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(record_path(folder))


def _read_values(values: Any) -> Record:  # noqa: ANN401 - JSON of unknown shape; every field is converted
    shape = values["shape"]
    return Record(
        shape=Shape(
            lineage=str(shape["lineage"]),
            dimensions=int(shape["dimensions"]),
            language=str(shape["language"]),
            format_version=int(shape["format_version"]),
            terms_version=int(shape["terms_version"]),
        ),
        complete=bool(values["complete"]),
        **{name: int(values[name]) for name in _COUNTS},
    )
