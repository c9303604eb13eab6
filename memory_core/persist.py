"""Stage 4. In: embedded documents (or attributes alone). Out: the truth about each; the only stage that writes.

It checks what embed guarantees, packs whole documents into transactions bounded in bytes, and tries alone what was
undone because of a neighbour. A lost compare-and-swap is answered as a Conflict: the path goes round again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from memory_core.errors import InternalError, StorageError
from memory_core.models import Conflict, EmbeddedDocument, Failure, Outcome, StoreOutcome
from memory_core.ports import Core, DocumentWrite, WriteResult, WriteVerdict
from memory_core.sizes import estimate_row_bytes

# Small documents share a transaction up to this many bytes of rows: large enough to spread the cost of a commit,
# small enough that a lost race undoes little.
GROUP_BYTES = 8_000_000


async def persist_documents(writes: Sequence[DocumentWrite], *, core: Core) -> list[StoreOutcome | Conflict | Failure]:
    """Write each document atomically and say what happened, only after the commit.

    Raises:
        StorageUnavailableError: MongoDB is away. What was written before is recognised by its revision when the call
            is repeated, so a retry is harmless.
    """
    broken = {position: failure for position, write in enumerate(writes) if (failure := _check(write))}
    results: dict[int, StoreOutcome | Conflict | Failure] = {**broken}
    sound = [position for position in range(len(writes)) if position not in broken]
    budget = min(GROUP_BYTES, await core.store.transaction_budget_bytes())
    sizes = {position: _row_bytes(writes[position], core.fingerprint.dimensions) for position in sound}
    for group in _groups(sizes, limit_bytes=budget):
        results.update(await _write_group(group, writes, core))
    return [results[position] for position in range(len(writes))]


def _check(write: DocumentWrite) -> Failure | None:
    """What embed promises: chunks in order, each with a finite vector of the right width or a stored one."""
    if not isinstance(write, EmbeddedDocument):
        return None
    width = write.fingerprint.dimensions
    for position, chunk in enumerate(write.chunks):
        sound = chunk.chunk.index == position and (chunk.vector is not None or chunk.kept is not None)
        if chunk.vector is not None:
            sound = sound and chunk.vector.shape == (width,) and bool(np.isfinite(chunk.vector).all())
        if not sound:
            return _broken(write, f"chunk {position} has no sound vector of {width} numbers")
    return None if write.chunks else _broken(write, "it has no chunks")


def _broken(write: EmbeddedDocument, what: str) -> Failure:
    error = InternalError(f"A document reached persist unfinished: {what}. Nothing of it was written; report this.")
    return Failure(error=error, source_id=write.document.source_id)


def _groups(sizes: Mapping[int, int], *, limit_bytes: int) -> Iterator[list[int]]:
    group: list[int] = []
    filled = 0
    for position, size in sizes.items():
        if group and filled + size > limit_bytes:
            yield group
            group, filled = [], 0
        group.append(position)
        filled += size
    if group:
        yield group


def _row_bytes(write: DocumentWrite, dimensions: int) -> int:
    """Bytes in the server's cache. New attributes alone touch every row too, and a touched row counts in full."""
    document, base = write.document, write.document.base
    body_bytes = len(document.content.encode())
    if isinstance(write, EmbeddedDocument):
        rows = len(write.chunks)
        texts = ((row.chunk.text, row.context, row.chunk.lead, row.chunk.readable or "") for row in write.chunks)
        text_bytes = sum(len(text.encode()) for row in texts for text in row)
    else:
        rows, text_bytes, body_bytes = base.chunk_count if base else 0, body_bytes, 0
    attributes = document.attributes
    parents = (attributes.title, attributes.uri or "", *attributes.tags)
    return estimate_row_bytes(
        body_bytes=body_bytes,
        rows=rows,
        row_text_bytes=text_bytes,
        row_parent_bytes=sum(len(parent.encode()) for parent in parents),
        dimensions=dimensions,
    )


async def _write_group(
    group: Sequence[int], writes: Sequence[DocumentWrite], core: Core
) -> list[tuple[int, StoreOutcome | Conflict | Failure]]:
    try:
        results = await core.store.write_together([writes[position] for position in group], now=core.clock())
    except StorageError as error:
        if error.retryable:
            raise
        if len(group) == 1:
            return [(group[0], Failure(error=error, source_id=writes[group[0]].document.source_id))]
        results = [WriteResult(verdict=WriteVerdict.ABORTED)] * len(group)  # one of them is guilty: find out which
    settled: list[tuple[int, StoreOutcome | Conflict | Failure]] = []
    for position, result in zip(group, results, strict=True):
        if result.verdict is WriteVerdict.ABORTED and len(group) > 1:
            settled += await _write_group([position], writes, core)
        else:
            settled.append((position, _settle(writes[position], result, core)))
    return settled


def _settle(write: DocumentWrite, result: WriteResult, core: Core) -> StoreOutcome | Conflict:
    if result.verdict is WriteVerdict.WRITTEN and result.version is not None:
        return _written(write, result.version, core)
    return Conflict(source_id=write.document.source_id)


def _written(write: DocumentWrite, version: int, core: Core) -> StoreOutcome:
    document, base = write.document, write.document.base
    notes = document.notes
    if isinstance(write, EmbeddedDocument):
        chunk_count, strategy = len(write.chunks), write.chunking.strategy
        tokens, texts = write.tokens_embedded, write.texts_embedded
        if write.context_stale:
            notes = (
                *notes,
                "Its vectors still use the context of an earlier title or text; a re-embed refreshes them.",
            )
    else:
        chunk_count, strategy = (base.chunk_count, base.strategy) if base else (0, None)
        tokens = texts = 0
    return StoreOutcome(
        outcome=_outcome(write),
        source_id=document.source_id,
        document_id=document.document_id,
        title=document.attributes.title,
        version=version,
        chunk_count=chunk_count,
        strategy=strategy,
        # Of every row of what is current, kept or new.
        fingerprint=write.fingerprint if isinstance(write, EmbeddedDocument) else core.fingerprint,
        tokens_embedded=tokens,
        texts_embedded=texts,
        reason=document.reason,
        notes=notes,
    )


def _outcome(write: DocumentWrite) -> Outcome:
    """A change of content is an update; equal content with other attributes is not, and counts no version."""
    document, base = write.document, write.document.base
    if base is None:
        return Outcome.CREATED
    if base.content_hash == document.content_hash and document.reason is None:
        return Outcome.ATTRIBUTES_UPDATED
    return Outcome.UPDATED
