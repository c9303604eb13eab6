"""The folder of an embedded search index. In: rows to take in. Out: views to search. Synchronous; knows no database.

Order of a write: vectors and journal, then the text index's commit, then the record. `load` may run beside a writer of
another process; everything else happens under the folder's lock. One thread at a time may call the methods.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import filelock
import numpy as np
import structlog

from memory_core.adapters import embedded_record as files
from memory_core.adapters.embedded_record import CorruptIndexError, Record, Shape
from memory_core.adapters.embedded_rows import JournalEntry, KnownDocument, RowLog
from memory_core.adapters.embedded_text import TextIndex
from memory_core.adapters.embedded_writer import FolderWriter, View, compact, is_wasteful, sync_file
from memory_core.adapters.text_terms import TextTerms

_log = structlog.get_logger(__name__)

_LOCK_NAME = "lock"
_OWNER_ONLY = 0o700
_DATA_FILES = ("rows-*", "vectors-*", "text-*")


class IndexFolder:
    """The files of one index, and the last commit that was read from them."""

    def __init__(self, folder: Path, shape: Shape, terms: TextTerms) -> None:
        self.folder = folder
        self.shape = shape
        self._terms = terms
        self._view: View | None = None
        self._log: RowLog | None = None
        self._seen: tuple[int, int] | None = None
        self.lock = filelock.FileLock(folder / _LOCK_NAME, thread_local=False)

    @property
    def view(self) -> View | None:
        """The last commit that was read; None before the first."""
        return self._view

    @property
    def known(self) -> Mapping[str, KnownDocument]:
        """What that commit knows of each document."""
        return self._log.known if self._log else {}

    @property
    def anchors(self) -> tuple[KnownDocument, ...]:
        """The newest commits that were taken in."""
        return self._log.anchors if self._log else ()

    def is_current(self) -> bool:
        """True where nobody has replaced the record since it was read."""
        return self._view is not None and self._seen == self._read_mark()

    def load(self) -> View | None:
        """The newest commit; None where there is none that can be used (the reason is logged)."""
        if self.is_current():
            return self._view
        mark = self._read_mark()
        try:
            return self._read(mark)
        except CorruptIndexError as error:
            self._forget()
            if mark != self._read_mark():  # a compaction took the files away while they were read: its record is newer
                return self.load()
            _log.warning("search.index_unusable", reason=str(error))
            return None

    def prepare_writing(self) -> View:
        """Under the lock: the newest commit, with what a crash left behind it cut off, or a new empty one."""
        self.make_folder()
        view = self.load()
        if view is not None:
            try:
                return self._recover(view)
            except CorruptIndexError as error:
                _log.warning("search.index_unusable", reason=str(error))
        return self._start_over()

    def make_folder(self) -> None:
        """Make the folder where it is missing; for its owner only: it holds the words of everything stored."""
        self.folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)

    def open_writer(self) -> FolderWriter:
        """Under the lock, after `prepare_writing`: take in documents."""
        return FolderWriter(self.folder, self._need_view(), self._terms, self.publish)

    def finish(self, *, read_at_ms: int, compared_at_ms: int) -> View:
        """Under the lock: everything that was committed up to `read_at_ms` is in."""
        view = self._need_view()
        record = replace(view.rows.record, read_at_ms=read_at_ms, compared_at_ms=compared_at_ms, complete=True)
        if not is_wasteful(view.rows):
            return self.publish(record)
        view = self.publish(compact(self.folder, view.rows, self.known, record))
        self._remove_others(view.rows.record)
        return view

    def publish(self, record: Record) -> View:
        """Replace the record, and read what it says."""
        files.write_record(self.folder, record)
        self._read(self._read_mark())
        return self._need_view()

    def _forget(self) -> None:
        self._view, self._log, self._seen = None, None, None

    def _need_view(self) -> View:
        if self._view is None:
            raise ValueError("the folder has no view yet")
        return self._view

    def _read_mark(self) -> tuple[int, int] | None:
        try:
            found = files.record_path(self.folder).stat()
        except FileNotFoundError:
            return None
        return (found.st_ino, found.st_mtime_ns)

    def _read(self, mark: tuple[int, int] | None) -> View | None:
        record = files.read_record(self.folder)
        if record is None:
            self._forget()
            return None
        if record.shape != self.shape:
            raise CorruptIndexError("it was made for another database, model, language or version")
        old = self._view
        if self._log is None or old is None or old.rows.record.generation != record.generation:
            self._log = RowLog(self.folder, record.generation)
        if old is not None and old.rows.record.text_generation == record.text_generation:
            text = old.text
        else:
            text = TextIndex(files.text_path(self.folder, record.text_generation), create=False)
        # The rows first: a row that the text index already has and the rows have not is dropped by its serial.
        rows = self._log.catch_up(record)
        self._view = View(rows=rows, text=text, searcher=text.open_searcher())
        self._seen = mark
        return self._view

    def _recover(self, view: View) -> View:
        if self._log is None:
            raise CorruptIndexError("there is no journal")
        record = view.rows.record
        unfinished = self._log.read_tail()
        text_commit = view.text.repair(
            expected=record.text_commit, next_serial=record.next_serial, document_ids=unfinished
        )
        self._cut(record)
        if text_commit == record.text_commit:
            return view
        # Their old rows are gone from the text index: they count as gone until everything is compared.
        _log.info("search.index_recovered", documents=len(unfinished))
        return self._drop(unfinished, replace(record, text_commit=text_commit, complete=False))

    def _drop(self, document_ids: Iterable[str], record: Record) -> View:
        entries = [JournalEntry(document_id=one, revision=None, stamp_ms=0) for one in sorted(document_ids)]
        lines = b"".join(entry.to_line() for entry in entries)
        with files.journal_path(self.folder, record.generation).open("ab") as journal:
            journal.write(lines)
            sync_file(journal)
        return self.publish(replace(record, journal_bytes=record.journal_bytes + len(lines)))

    def _cut(self, record: Record) -> None:
        row_bytes = record.shape.dimensions * np.dtype(np.float32).itemsize
        os.truncate(files.vectors_path(self.folder, record.generation), record.rows * row_bytes)
        os.truncate(files.journal_path(self.folder, record.generation), record.journal_bytes)

    def _start_over(self) -> View:
        taken = [int(path.stem.rpartition("-")[2]) for path in self.folder.glob("*-*") if path.stem[-1].isdigit()]
        generation = max(taken, default=0) + 1
        self._forget()
        files.vectors_path(self.folder, generation).touch()
        files.journal_path(self.folder, generation).touch()
        TextIndex(files.text_path(self.folder, generation), create=True)
        _log.info("search.index_started_over", generation=generation)
        view = self.publish(Record(shape=self.shape, generation=generation, text_generation=generation))
        self._remove_others(view.rows.record)
        return view

    def _remove_others(self, record: Record) -> None:
        """Remove files of other generations; a process that still reads them keeps what it has open."""
        kept = {
            files.journal_path(self.folder, record.generation),
            files.vectors_path(self.folder, record.generation),
            files.text_path(self.folder, record.text_generation),
        }
        for path in {found for pattern in _DATA_FILES for found in self.folder.glob(pattern)} - kept:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # another process may hold it on some systems: only space
            else:
                path.unlink(missing_ok=True)
