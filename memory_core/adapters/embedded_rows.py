"""The rows of an embedded search index. In: journal and vectors file. Out: snapshots to search. No lock, no text.

A journal line is one document as it was taken in: its revision, its commit stamp and its rows, or that it is gone. A
later line of the same document replaces the earlier one, whose rows stay behind as dead ones until a compaction.
A snapshot never changes; what it shares with later ones only grows behind its own end.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memory_core.adapters.embedded_record import CorruptIndexError, Record, journal_path, vectors_path
from memory_core.answers import LegAnswer, LegHit
from memory_core.models import Vector

ANCHORS: Final = 8
"""So many of the newest commits must still be known to the database; else it was set back (restored)."""

_SCORE_DIGITS = 6  # below what float32 keeps: equal texts score equal wherever their rows lie
_SCAN_ALL_SHARE = 0.25  # above this share of the rows one pass over all is faster than picking them out


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDocument:
    """A document as the index has it: `revision` is None for a deleted one; its rows are `start` to `start + count`."""

    document_id: str
    revision: str | None
    stamp_ms: int
    start: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """A line to write: the document, its chunk ids in row order, each one's space, the first row's serial."""

    document_id: str
    revision: str | None
    stamp_ms: int
    serial: int = 0
    chunk_ids: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()

    def to_line(self) -> bytes:
        """One line of JSON; one name where all rows are of one embedding space."""
        spaces = set(self.fingerprints)
        space = self.fingerprints[0] if len(spaces) == 1 else self.fingerprints
        values = [self.document_id, self.revision, self.stamp_ms, self.serial, self.chunk_ids, space]
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSnapshot:
    """Everything a leg needs at one commit. Arrays have one element a row; row numbers are places in the vectors file.

    `serials` ascend: they name rows in the text index and outlive a compaction.
    """

    record: Record
    vectors: Vector
    serials: NDArray[np.int64]
    documents: NDArray[np.int32]
    spaces: NDArray[np.int32]
    alive: NDArray[np.bool_]
    chunk_ids: Sequence[str]
    document_ids: Sequence[str]
    document_codes: Mapping[str, int]
    space_codes: Mapping[str, int]

    def mask_documents(self, document_ids: Iterable[str]) -> NDArray[np.bool_]:
        """True for each document code that is among `document_ids`."""
        mask = np.zeros(len(self.document_ids), dtype=np.bool_)
        codes = [code for one in document_ids if (code := self.document_codes.get(one)) is not None]
        mask[[code for code in codes if code < mask.size]] = True
        return mask

    def find_rows(self, serials: Sequence[int]) -> NDArray[np.int64]:
        """The row of each serial, -1 for one that this commit does not know or that is dead."""
        wanted = np.asarray(serials, dtype=np.int64)
        if not self.serials.size or not wanted.size:
            return np.full(wanted.size, -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.serials, wanted), self.serials.size - 1).astype(np.int64)
        return np.where((self.serials[rows] == wanted) & self.alive[rows], rows, -1)

    def hit(self, row: int, score: float) -> LegHit:
        """One row as a leg reports it."""
        return LegHit(
            chunk_id=self.chunk_ids[row], document_id=self.document_ids[int(self.documents[row])], score=float(score)
        )


def rank_nearest(
    rows: RowSnapshot,
    vector: Vector,
    *,
    fingerprint: str,
    allowed: NDArray[np.bool_] | None,
    limit: int,
    also: Sequence[LegHit] = (),
) -> LegAnswer:
    """The rows of one embedding space with the highest cosine, exactly; `allowed` is a mask over document codes."""
    space = rows.space_codes.get(fingerprint)
    if space is None:
        return LegAnswer()
    mask = rows.alive & (rows.spaces == space)
    if allowed is not None:
        mask &= allowed[rows.documents]
    query = normalise(vector[np.newaxis, :])[0]
    places = np.flatnonzero(mask)
    if not places.size:
        return LegAnswer()
    if places.size < mask.size * _SCAN_ALL_SHARE:
        cosines: Vector = rows.vectors[places] @ query
    else:
        cosines = (rows.vectors @ query)[places]
    cosines = np.round(cosines, _SCORE_DIGITS)
    best = _find_best(cosines, min(limit, places.size))
    found = (rows.hit(int(places[one]), score) for one, score in best)
    hits = sorted(found, key=lambda hit: (-hit.score, hit.chunk_id))[:limit]
    wanted = {hit.chunk_id: hit.document_id for hit in also}
    for hit in hits:
        wanted.pop(hit.chunk_id, None)
    near = np.flatnonzero(rows.mask_documents(wanted.values())[rows.documents[places]]) if wanted else ()
    others = [rows.hit(int(places[one]), float(cosines[one])) for one in near if rows.chunk_ids[places[one]] in wanted]
    return LegAnswer(hits=hits, also=others, lowest=float(cosines.min()))


def _find_best(scores: Vector, count: int) -> list[tuple[int, float]]:
    """The places of the `count` best scores, and of all that equal the last of them."""
    if not count:
        return []
    least = np.partition(scores, scores.size - count)[scores.size - count]
    return [(int(place), float(scores[place])) for place in np.flatnonzero(scores >= least)]


def normalise(vectors: Vector) -> Vector:
    """Rows of length 1, so that a product is a cosine; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors, dtype=np.float32), where=lengths > 0)


@dataclass(slots=True)
class _Growth:
    serials: list[int] = field(default_factory=list[int])
    documents: list[int] = field(default_factory=list[int])
    spaces: list[int] = field(default_factory=list[int])

    def add(self, entry: JournalEntry, document_code: int, space_codes: dict[str, int]) -> None:
        count = len(entry.chunk_ids)
        self.serials += range(entry.serial, entry.serial + count)
        self.documents += [document_code] * count
        self.spaces += [space_codes.setdefault(space, len(space_codes)) for space in entry.fingerprints]


@dataclass(frozen=True, slots=True)
class _Arrays:
    serials: NDArray[np.int64]
    documents: NDArray[np.int32]
    spaces: NDArray[np.int32]
    alive: NDArray[np.bool_]

    @classmethod
    def empty(cls) -> _Arrays:
        none = np.empty(0, dtype=np.int32)
        return cls(np.empty(0, dtype=np.int64), none, none, np.empty(0, dtype=np.bool_))

    def grow(self, added: _Growth, dead: Sequence[tuple[int, int]]) -> _Arrays:
        """New arrays: snapshots that searches still hold are left as they are."""
        alive = np.concatenate([self.alive, np.ones(len(added.serials), dtype=np.bool_)])
        for start, end in dead:
            alive[start:end] = False
        return _Arrays(
            np.concatenate([self.serials, np.asarray(added.serials, dtype=np.int64)]),
            np.concatenate([self.documents, np.asarray(added.documents, dtype=np.int32)]),
            np.concatenate([self.spaces, np.asarray(added.spaces, dtype=np.int32)]),
            alive,
        )


@dataclass(slots=True)
class RowLog:
    """One generation of the journal, read as far as a record says. Only one thread at a time may call its methods."""

    folder: Path
    generation: int
    known: dict[str, KnownDocument] = field(default_factory=dict[str, KnownDocument])
    anchors: tuple[KnownDocument, ...] = ()
    _offset: int = 0
    _compared_at_ms: int = 0
    _chunk_ids: list[str] = field(default_factory=list[str])
    _document_ids: list[str] = field(default_factory=list[str])
    _document_codes: dict[str, int] = field(default_factory=dict[str, int])
    _space_codes: dict[str, int] = field(default_factory=dict[str, int])
    _arrays: _Arrays = field(default_factory=_Arrays.empty)

    def catch_up(self, record: Record) -> RowSnapshot:
        """Read on to the record's end.

        Raises:
            CorruptIndexError: the files do not hold what the record says.
        """
        entries = self._read_entries(record.journal_bytes)
        self._apply(entries)
        # After a comparison of everything the newest commits may be others than those that were watched before.
        changed = [entry.document_id for entry in entries]
        self._choose_anchors(changed if record.compared_at_ms == self._compared_at_ms else self.known)
        self._compared_at_ms = record.compared_at_ms
        self._offset = record.journal_bytes
        if len(self._chunk_ids) != record.rows:
            raise CorruptIndexError("the journal has another number of rows than the record")
        return RowSnapshot(
            record=record,
            vectors=_map_vectors(vectors_path(self.folder, self.generation), record),
            serials=self._arrays.serials,
            documents=self._arrays.documents,
            spaces=self._arrays.spaces,
            alive=self._arrays.alive,
            chunk_ids=self._chunk_ids,
            document_ids=self._document_ids,
            document_codes=self._document_codes,
            space_codes=self._space_codes,
        )

    def read_tail(self) -> frozenset[str]:
        """The documents of whole lines beyond what was caught up with: work that was cut off before its record."""
        with journal_path(self.folder, self.generation).open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        return frozenset(entry.document_id for entry in _parse(whole))

    def forget(self, document_ids: Iterable[str]) -> None:
        """Take these documents as unknown until they are taken in again."""
        for one in document_ids:
            self.known.pop(one, None)

    def _read_entries(self, end: int) -> list[JournalEntry]:
        if end == self._offset:
            return []
        try:
            with journal_path(self.folder, self.generation).open("rb") as file:
                file.seek(self._offset)
                data = file.read(end - self._offset)
        except FileNotFoundError as error:
            raise CorruptIndexError("the journal is missing") from error
        if len(data) != end - self._offset:
            raise CorruptIndexError("the journal is shorter than the record says")
        return _parse(data)

    def _apply(self, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        dead: list[tuple[int, int]] = []
        added = _Growth()
        for entry in entries:
            before = self.known.get(entry.document_id)
            if before and before.count:
                dead.append((before.start, before.start + before.count))
            start = len(self._chunk_ids)
            self.known[entry.document_id] = KnownDocument(
                document_id=entry.document_id,
                revision=entry.revision,
                stamp_ms=entry.stamp_ms,
                start=start,
                count=len(entry.chunk_ids),
            )
            if entry.chunk_ids:
                added.add(entry, self._code_document(entry.document_id), self._space_codes)
                self._chunk_ids += entry.chunk_ids
        self._arrays = self._arrays.grow(added, dead)

    def _code_document(self, document_id: str) -> int:
        code = self._document_codes.get(document_id)
        if code is None:
            code = len(self._document_ids)
            self._document_ids.append(document_id)
            self._document_codes[document_id] = code
        return code

    def _choose_anchors(self, changed: Iterable[str]) -> None:
        names = {anchor.document_id for anchor in self.anchors}.union(changed)
        stamped = [known for name in names if (known := self.known.get(name)) and known.stamp_ms > 0]
        self.anchors = tuple(heapq.nlargest(ANCHORS, stamped, key=lambda known: (known.stamp_ms, known.document_id)))


def _parse(data: bytes) -> list[JournalEntry]:
    try:
        return [_parse_line(json.loads(line)) for line in data.splitlines()]
    except (ValueError, TypeError, IndexError) as error:
        raise CorruptIndexError("a line of the journal cannot be read") from error


def _parse_line(values: Any) -> JournalEntry:  # noqa: ANN401 - JSON of unknown shape; every field is converted
    document_id, revision, stamp_ms, serial, chunk_ids, space = values
    return JournalEntry(
        document_id=str(document_id),
        revision=None if revision is None else str(revision),
        stamp_ms=int(stamp_ms),
        serial=int(serial),
        chunk_ids=tuple(chunk_ids),
        fingerprints=(space,) * len(chunk_ids) if isinstance(space, str) else tuple(space),
    )


def _map_vectors(path: Path, record: Record) -> Vector:
    shape = (record.rows, record.shape.dimensions)
    if not record.rows:
        return np.empty(shape, dtype=np.float32)
    try:
        mapped = np.memmap(path, dtype="<f4", mode="r", shape=shape)
    except (FileNotFoundError, ValueError) as error:
        raise CorruptIndexError("the vectors file is missing or shorter than the record says") from error
    return mapped.view(np.ndarray)
