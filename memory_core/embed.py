"""ChunkedDocuments in, EmbeddedDocuments out: every chunk has a context and a vector, new or stored. Writes nothing.

A stored row whose embedding input is the same keeps its id and its vector; only the texts that are left are embedded,
those of a whole batch in one call. Documents do not share a fate: what is wrong with one is its own Failure, and only
an error that a retry can heal is raised.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np

from memory_core.context import CONTEXT_POLICY, choose_basis, embedding_input, rank_words, write_context
from memory_core.errors import AgentMemoryError, EmbeddingError, InternalError, TooLargeError, ValidationError
from memory_core.models import (
    Chunk,
    ChunkedDocument,
    ContextBasis,
    EmbeddedChunk,
    EmbeddedDocument,
    Failure,
    Fingerprint,
    StoredChunkKey,
    Vector,
    hash_text,
    readable_text,
)
from memory_core.ports import Core, Embedder, EmbeddingKind, TokenCounter
from memory_core.sizes import estimate_row_bytes

_BYTES_PER_MB: Final = 1_000_000
_REMEDY: Final = (
    "Nothing of this document was stored. Store it again; if the error stays, check EMBEDDING_MODEL and "
    "EMBEDDING_DIMENSIONS against what the provider serves."
)


async def embed_documents(documents: Sequence[ChunkedDocument], *, core: Core) -> list[EmbeddedDocument | Failure]:
    """Give every chunk of every document its context and its vector. One result per document, in order.

    Raises:
        EmbeddingUnavailableError: the provider is away or busy; nothing is kept, the caller tries again.
        StorageUnavailableError: the stored rows could not be read.
    """
    if not documents:
        return []
    _check_fingerprint(core)
    stored = await _read_stored_keys(documents, core=core)
    drafts = await asyncio.to_thread(_draft_all, documents, stored, core.fingerprint.key)
    budget = await core.store.transaction_budget_bytes()
    work = _Work()
    for place, draft in enumerate(drafts):
        needed = draft.estimate_bytes(core.fingerprint.dimensions)
        if needed > budget:
            work.errors[place] = _too_large(needed, budget)
    await _embed_missing(drafts, work, core=core)
    return [_finish(place, draft, work, core=core) for place, draft in enumerate(drafts)]


def fingerprint_of(embedder: Embedder) -> Fingerprint:
    """The embedding space of what this stage makes with that embedder."""
    return Fingerprint(
        provider=embedder.provider,
        model=embedder.model,
        dimensions=embedder.dimensions,
        context_policy=CONTEXT_POLICY,
    )


def check_groups(groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> None:
    """Refuse what no model can embed, before anything is spent. Every embedder calls this first.

    Raises:
        ValidationError: a group without texts, or a blank text, by its position.
    """
    name = "documents" if kind == "document" else "queries"
    for place, group in enumerate(groups):
        if not group:
            raise ValidationError(f"{name}[{place}] has no texts; leave it out or give it at least one.")
        for index, text in enumerate(group):
            if not text or text.isspace():
                raise ValidationError(f"{name}[{place}][{index}] is blank; give it a character that is not a blank.")


# --- drafting: contexts, inputs, and the stored rows that stay -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A chunk on its way: its context for the text leg, its embedding input, and the stored row that it keeps."""

    chunk: Chunk
    context: str
    row_hash: str
    input_text: str
    input_hash: str
    kept: StoredChunkKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A document whose missing vectors are known."""

    item: ChunkedDocument
    basis: ContextBasis
    stale: bool
    rows: tuple[_Row, ...]

    @property
    def missing(self) -> dict[str, str]:
        """The texts to embed by the hash of each, in the order of the document, equal ones once."""
        return {row.input_hash: row.input_text for row in self.rows if row.kept is None}

    def estimate_bytes(self, dimensions: int) -> int:
        """Bytes of the whole document, rows that stay included: the answer must not depend on what was stored."""
        attributes = self.item.document.attributes
        parents = (attributes.title, attributes.uri or "", *attributes.tags)
        return estimate_row_bytes(
            body_bytes=_count_bytes(self.item.document.content),
            rows=len(self.rows),
            row_text_bytes=sum(_count_bytes(text) for row in self.rows for text in _texts_of(row.chunk, row.context)),
            row_parent_bytes=sum(map(_count_bytes, parents)),
            dimensions=dimensions,
        )


def _check_fingerprint(core: Core) -> None:
    made = fingerprint_of(core.embedder)
    if core.fingerprint != made:
        raise InternalError(
            f"The vectors would be of {made.key} but stamped {core.fingerprint.key}, and two spaces must never be "
            "ranked together. This is a defect of the composition: build the fingerprint with embed.fingerprint_of."
        )


async def _read_stored_keys(
    documents: Sequence[ChunkedDocument], *, core: Core
) -> Mapping[str, Sequence[StoredChunkKey]]:
    ids = [item.document.base.document_id for item in documents if item.document.base is not None]
    return await core.store.read_chunk_keys(ids) if ids else {}


def _draft_all(
    documents: Sequence[ChunkedDocument], stored: Mapping[str, Sequence[StoredChunkKey]], space: str
) -> list[_Draft]:
    return [_draft(item, stored.get(item.document.document_id, ()), space) for item in documents]


def _draft(item: ChunkedDocument, stored: Sequence[StoredChunkKey], space: str) -> _Draft:
    document, chunks = item.document, item.chunking.chunks
    ranked = rank_words(_text_to_rank(item))
    title = document.attributes.title
    fresh, _ = choose_basis(title, ranked, None)
    basis, stale = choose_basis(title, ranked, document.base.context_basis if document.base else None)
    inputs = _write_inputs(chunks, basis)
    kept = _match_rows(inputs, stored, space)
    if basis != fresh and not any(kept):
        # Every vector is new anyway: the newest words cost nothing.
        basis, stale = fresh, False
        inputs = _write_inputs(chunks, basis)
        kept = _match_rows(inputs, stored, space)
    # The text leg pays nothing for a new context, so it takes one as soon as the recorded one is stale; until then both
    # legs share it, and an edit elsewhere in the document rewrites no row.
    shown = fresh if stale else basis
    rows = (
        _make_row(chunk, write_context(shown, chunk.heading_path, chunk.lead), text, digest, key)
        for chunk, (text, digest), key in zip(chunks, inputs, kept, strict=True)
    )
    return _Draft(item=item, basis=basis, stale=stale, rows=tuple(rows))


def _text_to_rank(item: ChunkedDocument) -> str:
    """The content as a reader sees it: the words of a script or of markup tell nothing about a page."""
    chunks = item.chunking.chunks
    if all(chunk.readable is None for chunk in chunks):
        return item.document.content
    return "\n".join(map(readable_text, chunks))


def _write_inputs(chunks: Sequence[Chunk], basis: ContextBasis) -> list[tuple[str, str]]:
    """The exact input of each chunk, and its hash."""
    texts = (_write_input(chunk, basis) for chunk in chunks)
    return [(text, hash_text(text)) for text in texts]


def _write_input(chunk: Chunk, basis: ContextBasis) -> str:
    context = write_context(basis, chunk.heading_path, chunk.lead)
    # No model takes a blank text: without a context and without anything to read the slice itself is left.
    return embedding_input(context, readable_text(chunk)) or chunk.text


def _match_rows(
    inputs: Sequence[tuple[str, str]], stored: Sequence[StoredChunkKey], space: str
) -> list[StoredChunkKey | None]:
    """The stored row of the same space and input for each chunk. Equal inputs match in order, each row once."""
    free: defaultdict[str, deque[StoredChunkKey]] = defaultdict(deque)
    for key in sorted(stored, key=lambda key: key.index):
        if key.fingerprint == space:
            free[key.embedding_input_hash].append(key)
    return [free[digest].popleft() if free.get(digest) else None for _, digest in inputs]


def _make_row(chunk: Chunk, context: str, text: str, digest: str, kept: StoredChunkKey | None) -> _Row:
    return _Row(
        chunk=chunk,
        context=context,
        row_hash=hash_text("\0".join(_texts_of(chunk, context))),
        input_text=text,
        input_hash=digest,
        kept=kept,
    )


def _texts_of(chunk: Chunk, context: str) -> tuple[str, ...]:
    """The texts of a row. Without a lead and a text to read it is what it was before there were any."""
    readable = () if chunk.readable is None else (chunk.readable,)
    return (chunk.text, context, *([chunk.lead] if chunk.lead or readable else []), *readable)


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def _too_large(needed: int, budget: int) -> TooLargeError:
    return TooLargeError(
        f"The document needs about {needed / _BYTES_PER_MB:,.1f} MB in one transaction, and this MongoDB safely takes "
        f"{budget / _BYTES_PER_MB:,.1f} MB (8 % of its cache). Nothing was embedded. Split the document, or give "
        "MongoDB a larger cache (MEMORY_MONGOD_CACHE_GB for the one that is started here)."
    )


# --- embedding: one call for the batch, one per document where that is refused ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed:
    vector: Vector
    windows: int


_Groups: TypeAlias = Mapping[int, Mapping[str, str]]


@dataclass(slots=True)
class _Work:
    """What is known so far: vectors by input hash; errors and tokens by the document's place in the batch."""

    vectors: dict[str, _Computed] = field(default_factory=dict[str, _Computed])
    errors: dict[int, AgentMemoryError] = field(default_factory=dict[int, AgentMemoryError])
    tokens: Counter[int] = field(default_factory=Counter[int])


async def _embed_missing(drafts: Sequence[_Draft], work: _Work, *, core: Core) -> None:
    """Embed what is missing in one call. Whoever has no vectors and no error after it is asked for alone."""
    await _embed_groups(_share_texts(drafts, work), work, core=core)
    for place, draft in enumerate(drafts):
        rest = {digest: text for digest, text in draft.missing.items() if digest not in work.vectors}
        if rest and place not in work.errors:
            await _embed_groups({place: rest}, work, core=core)


def _share_texts(drafts: Sequence[_Draft], work: _Work) -> _Groups:
    """The missing texts by document. A text that several documents need is sent once, with the first of them."""
    taken: set[str] = set()
    groups: dict[int, dict[str, str]] = {}
    for place, draft in enumerate(drafts):
        if place in work.errors:
            continue
        texts = {digest: text for digest, text in draft.missing.items() if digest not in taken}
        taken.update(texts)
        if texts:
            groups[place] = texts
    return groups


async def _embed_groups(groups: _Groups, work: _Work, *, core: Core) -> None:
    """Ask once and sort the answer into `work`. A refusal is recorded only where it can mean one document alone."""
    if not groups:
        return
    texts = [list(group.values()) for group in groups.values()]
    try:
        result = await core.embedder.embed(texts, kind="document")
        _check_count("groups", len(result.groups), len(texts))
        _check_count("lists of windows", len(result.windows), len(texts))
    except EmbeddingError as error:
        if error.retryable:
            raise
        if len(groups) == 1:
            work.errors.update(dict.fromkeys(groups, error))
        return
    shares = await asyncio.to_thread(_share_tokens, texts, result.usage.tokens, core.counter)
    work.tokens.update(dict(zip(groups, shares, strict=True)))
    for (place, group), vectors, windows in zip(groups.items(), result.groups, result.windows, strict=True):
        try:
            checked = _check_vectors(vectors, expected=len(group), dimensions=core.fingerprint.dimensions)
            _check_count("window counts", len(windows), len(group))
        except EmbeddingError as error:
            work.errors[place] = error
        else:
            computed = map(_compute, checked, windows)
            work.vectors.update(zip(group, computed, strict=True))


def _check_count(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise EmbeddingError(f"The embedding model returned {found} {what} for {expected}. {_REMEDY}")


def _check_vectors(vectors: Sequence[Vector] | Vector, *, expected: int, dimensions: int) -> list[Vector]:
    """The vectors of one document, each a float32 row of the right width with finite components.

    Raises:
        EmbeddingError: naming the counts, or the first vector that is wrong.
    """
    _check_count("vectors", len(vectors), expected)
    rows = [np.asarray(vector) for vector in vectors]
    for index, row in enumerate(rows):
        fault = _fault_of(row, dimensions)
        if fault:
            raise EmbeddingError(f"The embedding model returned vector {index} of {expected} {fault}. {_REMEDY}")
    return rows


def _fault_of(row: Vector, dimensions: int) -> str | None:
    if row.shape != (dimensions,):
        return f"with shape {row.shape} instead of ({dimensions},)"
    if row.dtype != np.float32:
        return f"as {row.dtype} instead of float32"
    if not np.isfinite(row).all():
        return "with a component that is not finite"
    return None


def _compute(vector: Vector, windows: int) -> _Computed:
    return _Computed(vector=vector, windows=windows)


def _share_tokens(groups: Sequence[Sequence[str]], used: int, counter: TokenCounter) -> list[int]:
    """Tokens of each group: the embedder's own number split by our counts, or our counts where it gives none."""
    ends = list(accumulate((sum(map(counter.count, texts)) for texts in groups), initial=0))
    total = used or ends[-1]
    # Differences of rounded sums: the shares add up to the total exactly.
    return [total * end // ends[-1] - total * start // ends[-1] for start, end in pairwise(ends)]


# --- finishing -------------------------------------------------------------------------------------------------------


def _finish(place: int, draft: _Draft, work: _Work, *, core: Core) -> EmbeddedDocument | Failure:
    document = draft.item.document
    if place in work.errors:
        return Failure(error=work.errors[place], source_id=document.source_id)
    return EmbeddedDocument(
        document=document,
        chunking=draft.item.chunking,
        chunks=tuple(_finish_chunk(row, work, core=core) for row in draft.rows),
        fingerprint=core.fingerprint,
        context_basis=draft.basis,
        context_stale=draft.stale,
        tokens_embedded=work.tokens[place],
    )


def _finish_chunk(row: _Row, work: _Work, *, core: Core) -> EmbeddedChunk:
    computed = None if row.kept else work.vectors[row.input_hash]
    return EmbeddedChunk(
        chunk_id=row.kept.chunk_id if row.kept else core.new_id(),
        chunk=row.chunk,
        context=row.context,
        embedding_input_hash=row.input_hash,
        row_hash=row.row_hash,
        vector=computed.vector if computed else None,
        windows=computed.windows if computed else 1,
        kept=row.kept,
    )
