"""Copies a memory into a directory. In: a store, an empty or unfinished directory. Out: an export; it stores nothing.

Documents go by ascending id into parts; a part is complete or absent, and `memory.json` says how far the export is, so
that one which was killed goes on where it was. One text is in memory at a time, and the rows of a few documents.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memory_core.answers import StoredDocument
from memory_core.errors import AgentMemoryError, InternalError, NotFoundError, StorageError, ValidationError
from memory_core.models import PastRow, hash_text
from memory_core.ports import Core, Progress
from memory_core.store_ports import ActiveSpace
from memory_core.transfer_files import (
    TEMPORARY_SUFFIX,
    ExportFolder,
    NewFile,
    NewVectors,
    hold_directory,
    make_directory,
    sync_directory,
    write_file,
)
from memory_core.transfer_format import (
    CONTENTS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    LeftOut,
    Manifest,
    PartLine,
    chunks_file,
    describe_document,
    describe_row,
    documents_file,
    text_file,
    vectors_file,
    write_line,
    write_manifest,
)
from memory_core.transfer_reading import read_manifest
from memory_core.transfer_values import ExportReport, Problem

# A part grows with what is exported already: the list of parts stays short, and a kill costs a tenth at most.
MIN_PART_DOCUMENTS: Final = 100
MAX_PART_DOCUMENTS: Final = 5_000
MAX_PART_ROWS: Final = 200_000
PAGE_DOCUMENTS: Final = 100
GROUP_ROWS: Final = 2_000
MAX_LOOKS: Final = 5

_PART_FILE: Final = re.compile(r"(documents|chunks|vectors)-\d{5,}\.(jsonl|npy)(\.tmp)?")


async def export_memory(directory: Path, *, core: Core, with_vectors: bool) -> ExportReport:
    """Write everything stored, or go on with an export into that directory that was not finished.

    A document that is stored while the export runs is in it as it was before or as it is after, or not at all if new.

    Raises:
        ValidationError: the directory holds other things, a finished export, or one of another memory or kind.
        NotFoundError: nothing was ever stored.
        ConflictError: another process exports into the directory.
        StorageError: MongoDB is away, or the disk cannot be written.
    """
    space = await core.store.read_active_space()
    if space is None:
        raise NotFoundError("Nothing is stored yet, so there is nothing to export.")
    try:
        with _held(directory) as root:
            export = _Export(core=core, root=root, manifest=await _begin(root, space, core, with_vectors=with_vectors))
            return await export.run()
    except OSError as error:
        raise StorageError(
            f"The export cannot be written to {directory}. Free space or check permissions, then run it again.",
            cause=error,
        ) from None


@contextmanager
def _held(directory: Path) -> Generator[Path]:
    """The directory without links in its path, made where it is missing and ours alone for the time."""
    make_directory(directory)
    root = directory.resolve()
    with hold_directory(root):
        yield root


async def _begin(root: Path, space: ActiveSpace, core: Core, *, with_vectors: bool) -> Manifest:
    """The state of the export in that directory; a new one's is written before anything else."""
    names = _names_in(root)
    if MANIFEST in names:
        return _go_on(root, names, space, with_vectors=with_vectors)
    if other := sorted(names - {MANIFEST + TEMPORARY_SUFFIX}):
        raise ValidationError(
            f"{root} is not empty: it holds {other[0]!r}. Name an empty or a new directory; nothing was written."
        )
    manifest = Manifest(
        created=core.clock(),
        lineage=space.lineage,
        fingerprint=space.fingerprint,
        recipe=space.recipe or core.recipe,
        vectors=with_vectors,
        dimensions=await _choose_dimensions(space, core) if with_vectors else None,
        complete=False,
        after=None,
        parts=[],
        left_out=[],
    )
    write_file(root / MANIFEST, write_manifest(manifest))
    sync_directory(root)
    return manifest


def _names_in(root: Path) -> set[str]:
    return {entry.name for entry in root.iterdir()}


async def _choose_dimensions(space: ActiveSpace, core: Core) -> int:
    """The width of the vectors that go along: one array has one. It is that of the active embedding space."""
    page = await core.store.find_documents(after=None, limit=PAGE_DOCUMENTS)
    widths = [one.fingerprint.dimensions for one in page if one.state.fingerprint == space.fingerprint]
    return widths[0] if widths else core.fingerprint.dimensions


def _go_on(root: Path, names: set[str], space: ActiveSpace, *, with_vectors: bool) -> Manifest:
    manifest = read_manifest(ExportFolder(root).read(MANIFEST, max_bytes=MAX_MANIFEST_BYTES))
    if manifest.complete:
        raise ValidationError(f"{root} holds a finished export. Name an empty or a new directory; nothing was written.")
    if manifest.lineage != space.lineage:
        raise ValidationError(f"{root} holds an unfinished export of another memory. Name another directory.")
    if (manifest.vectors, manifest.fingerprint) != (with_vectors, space.fingerprint):
        raise ValidationError(
            f"{root} holds an unfinished export {'with' if manifest.vectors else 'without'} vectors, of "
            f"{manifest.fingerprint}. Go on with it in the same way, or name another directory."
        )
    known = {MANIFEST, MANIFEST + TEMPORARY_SUFFIX, CONTENTS}
    if other := sorted(name for name in names - known if not _PART_FILE.fullmatch(name)):
        raise ValidationError(f"{root} holds {other[0]!r}, which is no part of an export. Move it elsewhere.")
    listed = {name for part in manifest.parts for name in part.sha256}
    for name in names - known - listed:
        (root / name).unlink()  # a part that was not finished
    for left in (root / CONTENTS).glob(f"*/*{TEMPORARY_SUFFIX}"):
        left.unlink()
    return manifest


@dataclass(slots=True)
class _Export:
    """The export as far as it is."""

    core: Core
    root: Path
    manifest: Manifest
    texts_written: int = 0
    total: int = 0

    async def run(self) -> ExportReport:
        """Write part after part until nothing is left."""
        was_resumed = bool(self.manifest.parts)
        coverage = await self.core.store.count_coverage(self.manifest.fingerprint)
        self.total = max(coverage.documents, self.manifest.documents)
        make_directory(self.root / CONTENTS)
        while not self.manifest.complete:
            await self._write_part()
        parts, problems = self.manifest.parts, self.manifest.left_out
        return ExportReport(
            directory=str(self.root),
            documents=self.manifest.documents,
            versions=sum(part.versions for part in parts),
            chunks=sum(part.chunks for part in parts),
            parts=len(parts),
            texts_written=self.texts_written,
            was_resumed=was_resumed,
            left_out=tuple(Problem(reason=one.reason, source_id=one.source_id) for one in problems),
        )

    async def _write_part(self) -> None:
        manifest = self.manifest
        limit = min(max(MIN_PART_DOCUMENTS, manifest.documents // 10), MAX_PART_DOCUMENTS)
        with ExitStack() as stack:
            part = _Part.open(stack, self.root, manifest)
            after, is_last = await self._fill(part, limit)
        # The files of the part have their names from here on; the manifest makes them count.
        for touched in (*sorted(part.touched), self.root / CONTENTS, self.root):
            await asyncio.to_thread(sync_directory, touched)
        parts = [*manifest.parts, part.describe()] if part.counts["documents"] else manifest.parts
        if not part.counts["documents"]:
            part.remove()
        self.manifest = manifest.model_copy(
            update={
                "parts": parts,
                "after": after,
                "complete": is_last,
                "left_out": [*manifest.left_out, *part.left_out],
            }
        )
        await asyncio.to_thread(write_file, self.root / MANIFEST, write_manifest(self.manifest))
        await asyncio.to_thread(sync_directory, self.root)

    async def _fill(self, part: _Part, limit: int) -> tuple[str | None, bool]:
        """Fill a part with pages of documents. Returns the last id that was looked at, and whether it was the last."""
        after, looked_at = self.manifest.after, 0
        while looked_at < limit and part.counts["chunks"] < MAX_PART_ROWS:
            wanted = min(PAGE_DOCUMENTS, limit - looked_at)
            page = await self.core.store.find_documents(after=after, limit=wanted)
            for group in _groups(page):
                await self._write_group(part, group)
                done = self.manifest.documents + part.counts["documents"]
                self.core.on_progress(Progress(done=done, total=max(self.total, done)))
            looked_at += len(page)
            after = page[-1].state.document_id if page else after
            if len(page) < wanted:
                return after, True
        return after, False

    async def _write_group(self, part: _Part, group: Sequence[StoredDocument]) -> None:
        """Write each document as it was at one moment: who is written meanwhile is looked at again."""
        settled: dict[str, tuple[StoredDocument, Sequence[PastRow] | None]] = {}
        waiting = {document.state.document_id: document for document in group}
        for _ in range(MAX_LOOKS):
            rows = await self._read_rows(list(waiting))
            faults = {name: await self._write_texts(part, document) for name, document in waiting.items()}
            states = await self.core.store.read_states((), list(waiting))
            revisions = {state.document_id: state.revision for state in states.values()}
            for name, document in list(waiting.items()):
                if revisions.get(name) == document.state.revision:
                    del waiting[name]
                    if fault := faults[name]:
                        part.leave_out(document, fault)
                    else:
                        settled[name] = (document, rows[name] if rows is not None else None)
            waiting = await self._look_again([name for name in waiting if name in revisions])
            if not waiting:
                break
        for document in waiting.values():
            part.leave_out(document, "It was stored again and again while it was to be exported. Export once more.")
        for name in sorted(settled):
            part.add(*settled[name])

    async def _look_again(self, ids: Sequence[str]) -> dict[str, StoredDocument]:
        found = [await self.core.store.read_document(one) for one in ids]
        return {one.state.document_id: one for one in found if one is not None}

    async def _read_rows(self, ids: Sequence[str]) -> dict[str, Sequence[PastRow]] | None:
        width = self.manifest.dimensions
        if width is None:
            return None
        found = await self.core.store.read_past_rows(ids)
        return {name: [row for row in rows if row.vector.shape == (width,)] for name, rows in found.items()}

    async def _write_texts(self, part: _Part, document: StoredDocument) -> str | None:
        """Write the texts that are not there yet. Returns why one cannot be had, None where all are there."""
        for version in document.versions:
            path = self.root / text_file(version.content_hash)
            if path.exists():
                part.touched.add(path.parent)
                continue
            try:
                text = await self.core.store.read_body(version.body_id)
            except NotFoundError:
                return f"The text of version {version.version} is missing. `memory doctor` says what to do."
            if hash_text(text) != version.content_hash:
                return f"The text of version {version.version} is not what its hash says. Run `memory doctor`."
            await asyncio.to_thread(_write_text, path, text)
            part.touched.add(path.parent)
            self.texts_written += 1
        return None


def _write_text(path: Path, text: str) -> None:
    make_directory(path.parent)
    write_file(path, text.encode("utf-8"))


def _groups(page: Sequence[StoredDocument]) -> Iterator[list[StoredDocument]]:
    """Documents whose rows are read together."""
    group: list[StoredDocument] = []
    rows = 0
    for document in page:
        if group and rows + document.state.chunk_count > GROUP_ROWS:
            yield group
            group, rows = [], 0
        group.append(document)
        rows += document.state.chunk_count
    if group:
        yield group


@dataclass(slots=True)
class _Part:
    """One part while it is filled. Its files get their names when the stack that opened them ends well."""

    root: Path
    number: int
    documents: NewFile
    chunks: NewFile | None = None
    vectors: NewVectors | None = None
    counts: Counter[str] = field(default_factory=Counter[str])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    touched: set[Path] = field(default_factory=set[Path])

    @classmethod
    def open(cls, stack: ExitStack, root: Path, manifest: Manifest) -> _Part:
        """The next part of that export."""
        number, width = len(manifest.parts) + 1, manifest.dimensions
        part = cls(root=root, number=number, documents=stack.enter_context(NewFile(root / documents_file(number))))
        if width is not None:
            part.chunks = stack.enter_context(NewFile(root / chunks_file(number)))
            part.vectors = stack.enter_context(NewVectors(root / vectors_file(number), dimensions=width))
        return part

    def add(self, document: StoredDocument, rows: Sequence[PastRow] | None) -> None:
        """Append a document and its rows."""
        try:
            line = write_line(describe_document(document, rows))
        except AgentMemoryError as error:
            self.leave_out(document, error.message)
            return
        self.documents.write(line)
        for row in rows or ():
            if self.chunks is None or self.vectors is None:
                raise InternalError("An export without vectors was given rows.")
            self.chunks.write(write_line(describe_row(document.state.document_id, row)))
            self.vectors.append(row.vector)
        self.counts.update(documents=1, versions=len(document.versions), chunks=len(rows or ()))

    def leave_out(self, document: StoredDocument, reason: str) -> None:
        """Note that a document is not in the export."""
        state = document.state
        self.left_out.append(LeftOut(document_id=state.document_id, source_id=state.source_id, reason=reason))

    def describe(self) -> PartLine:
        """What `memory.json` says of it, once its files are there."""
        files = {documents_file(self.number): self.documents.sha256}
        if self.chunks and self.vectors:
            files |= {chunks_file(self.number): self.chunks.sha256, vectors_file(self.number): self.vectors.sha256}
        return PartLine(
            number=self.number,
            documents=self.counts["documents"],
            versions=self.counts["versions"],
            chunks=self.counts["chunks"],
            sha256=files,
        )

    def remove(self) -> None:
        """Take the files of a part without documents away."""
        for name in self.describe().sha256:
            (self.root / name).unlink()
