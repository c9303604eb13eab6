"""How documents get into the files of an embedded index. In: their rows. Out: files, then a record. Under the lock.

Until `commit` nothing of it counts: the record says how much of each file does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import tantivy

from memory_core.adapters.embedded_record import Record, journal_path, vectors_path
from memory_core.adapters.embedded_rows import JournalEntry, KnownDocument, RowSnapshot, normalise
from memory_core.adapters.embedded_text import TextIndex, TextRow
from memory_core.adapters.text_terms import TextTerms
from memory_core.answers import ChunkRow
from memory_core.models import Vector

_DEAD_ROWS_WORTH_COMPACTION: Final = 4_096
_COPIED_ROWS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One commit, to be searched for as long as it is held."""

    rows: RowSnapshot
    text: TextIndex
    searcher: tantivy.Searcher


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRows:
    """A document as the database has it now: its commit stamp and its rows."""

    document_id: str
    stamp_ms: int
    rows: Sequence[ChunkRow]

    @property
    def revision(self) -> str:
        """The revision that all rows have; empty, which equals none, where a write was under way between them."""
        revisions = {row.revision for row in self.rows}
        return revisions.pop() if len(revisions) == 1 else ""


class FolderWriter:
    """Takes documents in; `publish` replaces the record and returns the new view."""

    def __init__(self, folder: Path, view: View, terms: TextTerms, publish: Callable[[Record], View]) -> None:
        self._terms = terms
        self._publish = publish
        self._record = view.rows.record
        self._writer = view.text.open_writer()
        self._vectors = vectors_path(folder, self._record.generation).open("ab")
        self._journal = journal_path(folder, self._record.generation).open("ab")
        self.pending_rows = 0

    def take_in(self, document: DocumentRows) -> None:
        """Put a document's rows in the place of those that the index has of it; rows with nothing to read stay out.

        A document without a row is known all the same: at each search it would be read again otherwise.
        """
        if not document.rows:  # deleted or replaced since the feed was read: the next feed says which
            self.remove(document.document_id, stamp_ms=0)
            return
        rows = [row for row in document.rows if row.text and not row.text.isspace()]
        self._write_entry(
            JournalEntry(
                document_id=document.document_id,
                revision=document.revision,
                stamp_ms=document.stamp_ms,
                serial=self._record.next_serial,
                chunk_ids=tuple(row.chunk_id for row in rows),
                fingerprints=tuple(row.fingerprint for row in rows),
            )
        )
        self._vectors.write(_stack(rows, self._record.shape.dimensions).astype("<f4").tobytes())
        self._writer.remove_documents([document.document_id])
        for serial, row in enumerate(rows, start=self._record.next_serial):
            terms = self._terms.index_terms(row.context) + self._terms.index_terms(row.text)
            self._writer.add(TextRow(serial=serial, document_id=row.document_id, terms=terms))
        self.pending_rows += len(rows)
        self._record = replace(
            self._record, rows=self._record.rows + len(rows), next_serial=self._record.next_serial + len(rows)
        )

    def remove(self, document_id: str, *, stamp_ms: int) -> None:
        """Take a document out."""
        self._write_entry(JournalEntry(document_id=document_id, revision=None, stamp_ms=stamp_ms))
        self._writer.remove_documents([document_id])

    def commit(self) -> View:
        """Make everything so far count."""
        sync_file(self._vectors)
        sync_file(self._journal)
        self._record = replace(self._record, journal_bytes=self._journal.tell(), text_commit=self._writer.commit())
        self.pending_rows = 0
        return self._publish(self._record)

    def _write_entry(self, entry: JournalEntry) -> None:
        self._journal.write(entry.to_line())

    def close(self, *, undo: bool) -> None:
        """Let go of the files; with `undo` the text index drops what was not committed."""
        self._vectors.close()
        self._journal.close()
        self._writer.close(undo=undo)


def is_wasteful(rows: RowSnapshot) -> bool:
    """True where more rows are dead than alive, and enough of them to be worth a copy."""
    alive = int(rows.alive.sum())
    return rows.record.rows - alive > max(alive, _DEAD_ROWS_WORTH_COMPACTION)


def compact(folder: Path, rows: RowSnapshot, known: Mapping[str, KnownDocument], record: Record) -> Record:
    """Copy the living rows into a new generation of files; returns the record that makes it count.

    Serials stay, so the text index is not touched.
    """
    generation = record.generation + 1
    living = sorted((one for one in known.values() if one.revision is not None), key=lambda one: one.start)
    names = {code: name for name, code in rows.space_codes.items()}
    with journal_path(folder, generation).open("wb") as journal:
        for one in living:
            span = slice(one.start, one.start + one.count)
            entry = JournalEntry(
                document_id=one.document_id,
                revision=one.revision,
                stamp_ms=one.stamp_ms,
                serial=int(rows.serials[one.start]) if one.count else 0,
                chunk_ids=tuple(rows.chunk_ids[span]),
                fingerprints=tuple(names[int(code)] for code in rows.spaces[span]),
            )
            journal.write(entry.to_line())
        sync_file(journal)
        journal_bytes = journal.tell()
    places = np.flatnonzero(rows.alive)
    with vectors_path(folder, generation).open("wb") as vectors:
        for start in range(0, places.size, _COPIED_ROWS):
            vectors.write(rows.vectors[places[start : start + _COPIED_ROWS]].tobytes())
        sync_file(vectors)
    return replace(record, generation=generation, rows=int(places.size), journal_bytes=journal_bytes)


def sync_file(file: BinaryIO) -> None:
    """Everything written is on disk when this returns: the record must never be ahead of what it counts."""
    file.flush()
    os.fsync(file.fileno())


def _stack(rows: Sequence[ChunkRow], dimensions: int) -> Vector:
    """Unit vectors; a row of another width belongs to another embedding space, which no query here can ask for."""
    stacked = np.zeros((len(rows), dimensions), dtype=np.float32)
    for place, row in enumerate(rows):
        if row.vector.shape == (dimensions,):
            stacked[place] = row.vector
    return normalise(stacked)
