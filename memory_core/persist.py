"""Stage 4. In: embedded documents (or attributes alone). Out: the truth about each; the only stage that writes.

It checks what embed guarantees, packs whole documents into transactions bounded in bytes, and tries alone what was
undone because of a neighbour; a document that is too large for one is written in parts. A lost compare-and-swap is
answered as a Conflict: the path goes round again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from memory_core.errors import InternalError, StorageError
from memory_core.models import Conflict, EmbeddedDocument, Failure, Outcome, StoreOutcome, Vector
from memory_core.ports import Core
from memory_core.sizes import estimate_row_bytes
from memory_core.store_ports import DocumentWrite, WriteResult, WriteVerdict

# Small documents share a transaction up to this many bytes of rows: large enough to spread the cost of a commit,
# small enough that a lost race undoes little.
GROUP_BYTES = 8_000_000
# What is to be written is dealt out to transactions side by side, but not to smaller ones than this.
LEAST_GROUP_BYTES = 1_000_000
# Transactions side by side, as far as the server's cache holds them: the one writes while the other is committed.
GROUPS_AT_ONCE = 4


async def persist_documents(writes: Sequence[DocumentWrite], *, core: Core) -> list[StoreOutcome | Conflict | Failure]:
    """Write each document atomically and say what happened, only after the commit.

    Raises:
        StorageUnavailableError: MongoDB is away. What was written before is recognised by its revision when the call
            is repeated, so a retry is harmless.
    """
    broken = {position: failure for position, write in enumerate(writes) if (failure := _check(write))}
    results: dict[int, StoreOutcome | Conflict | Failure] = {**broken}
    sound = [position for position in range(len(writes)) if position not in broken]
    budget = await core.store.transaction_budget_bytes()
    sizes = {position: _row_bytes(writes[position], core.fingerprint.dimensions) for position in sound}
    share = sum(sizes.values()) // GROUPS_AT_ONCE
    groups = list(_groups(sizes, limit_bytes=min(max(share, LEAST_GROUP_BYTES), GROUP_BYTES, budget)))
    turns = asyncio.Semaphore(max(1, min(GROUPS_AT_ONCE, budget // GROUP_BYTES)))

    async def write(group: Sequence[int]) -> list[tuple[int, StoreOutcome | Conflict | Failure]]:
        async with turns:
            return await _write_group(group, writes, core, in_parts=sizes[group[0]] > budget)

    # A group that fails leaves the others to end: what is written is then recognised when all of it is repeated.
    for settled in await asyncio.gather(*(write(group) for group in groups), return_exceptions=True):
        if isinstance(settled, BaseException):
            raise settled
        results.update(settled)
    return [results[position] for position in range(len(writes))]


def _check(write: DocumentWrite) -> Failure | None:
    """What embed promises: chunks in order, each with a finite vector of the right width or a stored one."""
    if not isinstance(write, EmbeddedDocument):
        return None
    width = write.fingerprint.dimensions
    unsound = f"has no sound vector of {width} numbers"
    vectors: list[Vector] = []
    for position, chunk in enumerate(write.chunks):
        is_known = chunk.kept is not None if chunk.vector is None else chunk.vector.shape == (width,)
        if chunk.chunk.index != position or not is_known:
            return _broken(write, f"chunk {position} {unsound}")
        if chunk.vector is not None:
            vectors.append(chunk.vector)
    # All at once: one by one this takes longer than the rest of the check.
    if vectors and not np.isfinite(np.concatenate(vectors)).all():
        first = next(one for one in write.chunks if one.vector is not None and not np.isfinite(one.vector).all())
        return _broken(write, f"chunk {first.chunk.index} {unsound}")
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
    body_bytes = _count_bytes(document.content)
    if isinstance(write, EmbeddedDocument):
        rows = len(write.chunks)
        texts = ((row.chunk.text, row.context, row.chunk.lead, row.chunk.readable or "") for row in write.chunks)
        text_bytes = sum(_count_bytes(text) for row in texts for text in row)
    else:
        rows, text_bytes, body_bytes = base.chunk_count if base else 0, body_bytes, 0
    attributes = document.attributes
    parents = (attributes.title, attributes.uri or "", *attributes.tags)
    return estimate_row_bytes(
        body_bytes=body_bytes,
        rows=rows,
        row_text_bytes=text_bytes,
        row_parent_bytes=sum(map(_count_bytes, parents)),
        dimensions=dimensions,
    )


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


async def _write_group(
    group: Sequence[int], writes: Sequence[DocumentWrite], core: Core, *, in_parts: bool
) -> list[tuple[int, StoreOutcome | Conflict | Failure]]:
    first = writes[group[0]]
    try:
        if in_parts and isinstance(first, EmbeddedDocument):
            results: Sequence[WriteResult] = [await core.store.write_in_parts(first, now=core.clock())]
        else:
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
            settled += await _write_group([position], writes, core, in_parts=False)
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
