"""Rows whose vectors stay, moved to the next revision. In: a document to write. Out: update operations; nothing is run.

An edit shifts everything behind it by the same numbers. Rows that follow each other and move alike are one operation,
whatever their number; only a row that changes otherwise has one of its own. No vector is read or sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bson import ObjectId
from pymongo import UpdateMany, UpdateOne

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import Row
from memory_core.models import DocumentState, EmbeddedChunk, EmbeddedDocument, StoredChunkKey


@dataclass(slots=True)
class _Run:
    """Stored rows by index, `first` to `last`, that move by the same numbers of chunks and characters."""

    first: int
    last: int
    chunks: int
    chars: int


def move_kept_rows(write: EmbeddedDocument, *, version: int, now: datetime) -> tuple[list[UpdateOne | UpdateMany], int]:
    """The operations for all rows of the document that stay, and how many rows they match together."""
    kept = [chunk for chunk in write.chunks if chunk.vector is None]
    if not kept:
        return [], 0
    shared = rows.kept_row_fields(write, version=version, now=now)
    base = write.document.base
    runs: list[_Run] = []
    moves_in_runs = base is not None and _is_whole(base)
    single = [chunk for chunk in kept if not (moves_in_runs and _extend(runs, chunk))]
    return [
        *(UpdateOne({"_id": ObjectId(chunk.chunk_id)}, rows.kept_row_update(chunk, shared)) for chunk in single),
        *(_move_run(run, base, shared) for run in runs if base is not None),
    ], len(kept)


def _is_whole(base: DocumentState) -> bool:
    """Whether every row of the document is of the revision that it was read with: what a run goes by."""
    return base.tally.revisions == frozenset({base.revision}) and base.tally.count == base.chunk_count


def _extend(runs: list[_Run], chunk: EmbeddedChunk) -> bool:
    """Take the row into the last run, or begin one with it. False where it does not merely move."""
    key = chunk.kept
    if key is None or not _merely_moves(chunk, key):
        return False
    chunks, chars = chunk.chunk.index - key.index, chunk.chunk.char_start - key.char_start
    last = runs[-1] if runs else None
    if last and (last.last + 1, last.chunks, last.chars) == (key.index, chunks, chars):
        last.last = key.index
    else:
        runs.append(_Run(first=key.index, last=key.index, chunks=chunks, chars=chars))
    return True


def _merely_moves(chunk: EmbeddedChunk, key: StoredChunkKey) -> bool:
    cut = chunk.chunk
    return (
        key.row_hash == chunk.row_hash
        and key.char_end - key.char_start == cut.char_end - cut.char_start
        and key.token_count == cut.token_count
        and key.heading_path == cut.heading_path
    )


def _move_run(run: _Run, base: DocumentState, shared: Row) -> UpdateMany:
    """A row that was moved is of another revision: however the server walks, it meets none twice."""
    condition = {
        "documentId": ObjectId(base.document_id),
        "chunkIndex": {"$gte": run.first, "$lte": run.last},
        "revision": base.revision,
    }
    steps = {"chunkIndex": run.chunks, "charStart": run.chars, "charEnd": run.chars}
    moves = {name: step for name, step in steps.items() if step}
    return UpdateMany(
        condition, {"$set": shared, **({"$inc": moves} if moves else {})}, hint="chunks_documentId_chunkIndex"
    )
