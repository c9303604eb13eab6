"""Reads an export. In: an untrusted directory. Out: batches of documents for the path, and what is damaged; no more.

What concerns the export as a whole is raised before anything is stored. A document whose line or text is damaged is a
problem of its own, with file and line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from memory_core.errors import ValidationError
from memory_core.files import MAX_FILE_BYTES
from memory_core.models import Fingerprint, PastRow
from memory_core.rules import normalise_text
from memory_core.transfer_files import ExportFolder, read_vectors
from memory_core.transfer_format import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    ChunkLine,
    DocumentLine,
    Manifest,
    PartLine,
    VersionLine,
    chunks_file,
    documents_file,
    vectors_file,
)
from memory_core.transfer_reading import (
    Arrival,
    make_arrival,
    make_row,
    read_chunk_line,
    read_document_line,
    read_manifest,
)
from memory_core.transfer_values import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An export whose files are there. `space` is the key of the vectors to take over, None where none are."""

    folder: ExportFolder
    manifest: Manifest
    space: str | None
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A document and where it stands."""

    place: str
    arrival: Arrival


@dataclass(slots=True, kw_only=True)
class Batch:
    """Documents to store together, what could not be read among them, and how many lines that is in all.

    `without_vectors` counts documents whose rows are all of another embedding space.
    """

    documents: list[Incoming] = field(default_factory=list[Incoming])
    problems: list[Problem] = field(default_factory=list[Problem])
    lines: int = 0
    chars: int = 0
    without_vectors: int = 0


def open_source(directory: Path, *, fingerprint: Fingerprint, use_vectors: bool) -> Source:
    """Look at the export as a whole; with vectors that is a reading of every array.

    Raises:
        ValidationError: it is no export, is of a newer program, lacks a file, or its vectors are damaged.
    """
    try:
        folder = ExportFolder(directory.resolve(strict=True))
    except OSError:
        raise ValidationError(f"{directory} does not exist. Name the directory of an export.") from None
    if not (folder.root / MANIFEST).exists():
        raise ValidationError(f"{directory} holds no {MANIFEST}, so it is no export. Name the directory of one.")
    manifest = read_manifest(folder.read(MANIFEST, max_bytes=MAX_MANIFEST_BYTES))
    fits = manifest.vectors and manifest.dimensions == fingerprint.dimensions
    space = fingerprint.key if use_vectors and fits else None
    for part in manifest.parts:
        folder.open(documents_file(part.number)).close()
        if space:
            _check_vectors(folder, part, fingerprint.dimensions)
    return Source(
        folder=folder,
        manifest=manifest,
        space=space,
        notes=_describe_vectors(manifest, fingerprint, use_vectors=use_vectors),
        problems=tuple(_find_missing(manifest)),
    )


def _describe_vectors(manifest: Manifest, fingerprint: Fingerprint, *, use_vectors: bool) -> tuple[str, ...]:
    if manifest.vectors and use_vectors and manifest.fingerprint != fingerprint.key:
        note = (
            f"The export's vectors are of {manifest.fingerprint} and the settings ask for {fingerprint.key}: those "
            "vectors are ignored, and what they belong to is embedded anew."
        )
        return (note,)
    return ()


def _find_missing(manifest: Manifest) -> Iterator[Problem]:
    if not manifest.complete:
        yield Problem(
            place=MANIFEST,
            reason=f"the export was not finished: it has the first {manifest.documents:,} documents. Run `memory "
            "export` into it again where it was made, or keep what is here.",
        )
    for left in manifest.left_out:
        yield Problem(place=MANIFEST, source_id=left.source_id, reason=f"it was not exported: {left.reason}")


def _check_vectors(folder: ExportFolder, part: PartLine, dimensions: int) -> None:
    for name in (chunks_file(part.number), vectors_file(part.number)):
        if folder.hash(name) != part.sha256[name]:
            raise ValidationError(
                f"{name} is not what was exported (its sha256 differs). Copy the whole export again, or import it "
                "with --no-vectors, which embeds everything anew."
            )
    folder.open_vectors(vectors_file(part.number), rows=part.chunks, dimensions=dimensions).close()


def read_batches(source: Source, *, max_documents: int, max_chars: int, versions_kept: int) -> Generator[Batch]:
    """All documents in order, in batches; characters count those of every version that is to be kept."""
    batch = Batch()
    for part in source.manifest.parts:
        with _PartReader(source, part, versions_kept=versions_kept) as reader:
            for read in reader.read():
                batch.lines += 1
                if isinstance(read, Problem):
                    batch.problems.append(read)
                    continue
                texts = sum(map(len, read.arrival.past.texts.values()))
                if batch.documents and (len(batch.documents) >= max_documents or batch.chars + texts > max_chars):
                    batch.lines -= 1
                    yield batch
                    batch = Batch(lines=1)
                batch.documents.append(read)
                batch.chars += texts
            if fault := reader.find_fault():
                batch.problems.append(fault)
            batch.without_vectors += reader.without_vectors
    if batch.documents or batch.problems:
        yield batch


class _PartReader:
    """The documents of one part, line by line, with their texts and rows."""

    def __init__(self, source: Source, part: PartLine, *, versions_kept: int) -> None:
        self._source = source
        self._part = part
        self._versions_kept = versions_kept
        self._name = documents_file(part.number)
        self._digest = hashlib.sha256()
        self._stack = ExitStack()
        self._rows: _RowReader | None = None
        self.without_vectors = 0

    def __enter__(self) -> Self:
        if self._source.space:
            self._rows = _RowReader(self._source, self._part, self._stack)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def read(self) -> Iterator[Incoming | Problem]:
        """Each line as a document, or why it is none."""
        lines = self._source.folder.read_lines(self._name)
        try:
            for number, content in lines:
                self._digest.update(content)
                yield self._read_line(content, f"{self._name}, line {number}")
        except ValidationError as error:
            yield Problem(place=self._name, reason=error.message)

    def find_fault(self) -> Problem | None:
        """What is wrong with the file as a whole, once it was read."""
        if self._digest.hexdigest() == self._part.sha256[self._name]:
            return None
        return Problem(
            place=self._name,
            reason=f"{self._name} is not what was exported (its sha256 differs): titles, dates or whole documents may "
            "be wrong or missing. What could be read was taken. Copy the whole export again.",
        )

    def _read_line(self, content: bytes, place: str) -> Incoming | Problem:
        source_id: str | None = None
        try:
            line = read_document_line(content, place)
            source_id = line.source_id
            texts = {
                version.version: self._read_text(version, place) for version in line.versions[-self._versions_kept :]
            }
            return Incoming(place=place, arrival=make_arrival(line, texts, self._take_rows(line, place)))
        except ValidationError as error:
            return Problem(place=place, source_id=source_id, reason=error.message)

    def _take_rows(self, line: DocumentLine, place: str) -> list[PastRow]:
        if self._rows is None:
            return []
        rows = self._rows.take(line, place)
        fitting = [row for row in rows if row.key.fingerprint == self._source.space]
        self.without_vectors += bool(rows) and not fitting
        return fitting

    def _read_text(self, version: VersionLine, place: str) -> str:
        """The text of a version, as it was stored.

        Raises:
            ValidationError: it is missing, or is not that text.
        """
        try:
            content = self._source.folder.read(version.text, max_bytes=MAX_FILE_BYTES)
        except ValidationError as error:
            raise ValidationError(f"{place}: {error.message}", cause=error.cause) from None
        if hashlib.sha256(content).hexdigest() != version.content_hash:
            raise _bad_text(place, version, "is not the text that was exported (its sha256 differs)")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _bad_text(place, version, f"is not UTF-8 at byte {error.start}") from None
        if len(text) != version.content_length:
            raise _bad_text(place, version, f"has {len(text):,} characters and not {version.content_length:,}")
        if not text.strip() or "\x00" in text or normalise_text(text) != text:
            raise _bad_text(place, version, "is blank, or has a NUL, a carriage return or a byte order mark")
        return text


def _bad_text(place: str, version: VersionLine, what: str) -> ValidationError:
    return ValidationError(f"{place}: {version.text} {what}. Copy the whole export again.")


class _RowReader:
    """The chunk rows of a part, in the order of its documents (by ascending id). Line n is row n of the array."""

    def __init__(self, source: Source, part: PartLine, stack: ExitStack) -> None:
        self._name = chunks_file(part.number)
        self._width = source.manifest.dimensions or 0
        self._lines = source.folder.read_lines(self._name)
        vectors = source.folder.open_vectors(vectors_file(part.number), rows=part.chunks, dimensions=self._width)
        self._vectors: BinaryIO = stack.enter_context(vectors)
        self._start = vectors.tell()
        self._next = next(self._lines, None)

    def take(self, document: DocumentLine, place: str) -> list[PastRow]:
        """The rows of a document; those of documents ahead of it, whose lines were broken, are passed over.

        Raises:
            ValidationError: they are not all there, or their vectors are no numbers.
        """
        found: list[tuple[int, ChunkLine]] = []
        while self._next is not None and len(found) < document.chunk_count:
            number, content = self._next
            try:
                line = read_chunk_line(content, f"{self._name}, line {number}")
            except ValidationError:
                self._next = next(self._lines, None)
                raise
            if line.document_id > document.document_id:
                break
            self._next = next(self._lines, None)
            if line.document_id == document.document_id:
                found.append((number, line))
        if len(found) != document.chunk_count or len({line.chunk_id for _, line in found}) != len(found):
            raise ValidationError(
                f"{place}: {self._name} has {len(found):,} of its {document.chunk_count:,} rows, or one twice. Copy "
                "the whole export again."
            )
        return self._add_vectors(found) if found else []

    def _add_vectors(self, found: list[tuple[int, ChunkLine]]) -> list[PastRow]:
        first, last = found[0][0], found[-1][0]
        self._vectors.seek(self._start + (first - 1) * self._width * np.dtype("<f4").itemsize)
        vectors = read_vectors(self._vectors, last - first + 1, dimensions=self._width)
        if not np.isfinite(vectors).all():
            raise ValidationError(f"{self._name}, line {first}: the vectors from here on are no finite numbers.")
        return [make_row(line, vectors[number - first]) for number, line in found]
