"""ChunkedDocuments in, EmbeddedDocuments out: every chunk has a context and a vector, new or stored. Writes nothing.

A stored row whose embedding input is the same keeps its id and its vector; only the texts that are left are embedded,
those of a whole batch in one call. Documents do not share a fate: what is wrong with one is its own Failure, and only
an error that a retry can heal is raised.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np

from memory_core.context import name_policy
from memory_core.embedding_draft import (
    Draft,
    DraftRules,
    Row,
    brought_keys,
    draft_document,
    situate_draft,
    text_to_rank,
)
from memory_core.embedding_ports import EmbeddingKind, SituateRequest
from memory_core.embedding_settings import ContextPolicy
from memory_core.errors import (
    AgentMemoryError,
    EmbeddingError,
    InternalError,
    ProviderRefusedError,
    ValidationError,
)
from memory_core.models import (
    ChunkedDocument,
    EmbeddedChunk,
    EmbeddedDocument,
    Failure,
    Fingerprint,
    PastRow,
    StoredChunkKey,
    Vector,
)
from memory_core.ports import Core, Embedder, TokenCounter

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
    drafts = await asyncio.to_thread(_draft_all, documents, stored, core)
    if core.settings.context_policy is ContextPolicy.LLM:
        drafts = await _situate_all(drafts, stored, core=core)
    work = _Work()
    await _embed_missing(drafts, work, core=core)
    return [_finish(place, draft, work, core=core) for place, draft in enumerate(drafts)]


def fingerprint_of(embedder: Embedder, policy: str = name_policy(ContextPolicy.PREFIX)) -> Fingerprint:
    """The embedding space of what this stage makes with that embedder and that context policy (`name_policy`)."""
    return Fingerprint(
        provider=embedder.provider,
        model=embedder.model,
        dimensions=embedder.dimensions,
        context_policy=policy,
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


# --- drafting -------------------------------------------------------------------------------------------------------


def _check_fingerprint(core: Core) -> None:
    made = fingerprint_of(core.embedder, name_policy(core.settings.context_policy, core.settings.context_model))
    if core.fingerprint != made:
        raise InternalError(
            f"The vectors would be of {made.key} but stamped {core.fingerprint.key}, and two spaces must never be "
            "ranked together. This is a defect of the composition: build the fingerprint with embed.fingerprint_of."
        )


async def _read_stored_keys(
    documents: Sequence[ChunkedDocument], *, core: Core
) -> Mapping[str, Sequence[StoredChunkKey]]:
    """The rows that are there, and those that a document brings with it from elsewhere."""
    ids = [item.document.base.document_id for item in documents if item.document.base is not None]
    return {**brought_keys(documents), **(await core.store.read_chunk_keys(ids) if ids else {})}


def _draft_all(
    documents: Sequence[ChunkedDocument], stored: Mapping[str, Sequence[StoredChunkKey]], core: Core
) -> list[Draft]:
    rules = DraftRules(
        policy=core.settings.context_policy, space=core.fingerprint.key, is_contextual=core.embedder.is_contextual
    )
    return [draft_document(item, stored.get(item.document.document_id, ()), rules) for item in documents]


async def _situate_all(
    drafts: Sequence[Draft], stored: Mapping[str, Sequence[StoredChunkKey]], *, core: Core
) -> list[Draft]:
    """Have the chat model write what is missing. A document that it fails on falls back to `prefix` as a whole."""
    if core.context_writer is None:
        raise InternalError("The context policy llm has no chat model. This is a defect of the composition.")
    asking = [place for place, draft in enumerate(drafts) if draft.unsituated]
    requests = [
        SituateRequest(content=text_to_rank(drafts[place].item), texts=drafts[place].unsituated) for place in asking
    ]
    answers = dict(zip(asking, await core.context_writer.write(requests), strict=True)) if requests else {}
    situated: list[Draft] = []
    for place, draft in enumerate(drafts):
        answer = answers.get(place)
        if answer is None or answer.sentences is not None:
            situated.append(situate_draft(draft, answer.sentences or () if answer else ()))
        else:
            keys = stored.get(draft.item.document.document_id, ())
            situated.append(_fall_back(draft, keys, answer.reason or "no reason was said", core))
    return situated


def _fall_back(draft: Draft, stored: Sequence[StoredChunkKey], reason: str, core: Core) -> Draft:
    space = fingerprint_of(core.embedder).key
    rules = DraftRules(policy=ContextPolicy.PREFIX, space=space, is_contextual=core.embedder.is_contextual)
    note = f"The chat model wrote no contexts ({reason}); it was embedded with the policy prefix. Re-embed it later."
    return replace(draft_document(draft.item, stored, rules), note=note)


# --- embedding: one call for the batch, one per document where that is refused ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed:
    vector: Vector
    windows: int


_Groups: TypeAlias = Mapping[int, Mapping[str, str]]


@dataclass(slots=True)
class _Work:
    """What is known so far: vectors by input hash; all else by the document's place in the batch.

    `tokens` and `texts` count what was computed for a document now, `spans` is as in EmbeddingResult. After a `refusal`
    nothing more is asked for.
    """

    vectors: dict[str, _Computed] = field(default_factory=dict[str, _Computed])
    errors: dict[int, AgentMemoryError] = field(default_factory=dict[int, AgentMemoryError])
    tokens: Counter[int] = field(default_factory=Counter[int])
    texts: Counter[int] = field(default_factory=Counter[int])
    spans: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    refusal: ProviderRefusedError | None = None


async def _embed_missing(drafts: Sequence[Draft], work: _Work, *, core: Core) -> None:
    """Embed what is missing in one call. Whoever has no vectors and no error after it is asked for alone."""
    await _embed_groups(_share_texts(drafts, work), work, core=core)
    for place, draft in enumerate(drafts):
        rest = {digest: text for digest, text in draft.missing.items() if digest not in work.vectors}
        if rest and work.refusal:
            work.errors.setdefault(place, work.refusal)
        elif rest and place not in work.errors:
            await _embed_groups({place: rest}, work, core=core)


def _share_texts(drafts: Sequence[Draft], work: _Work) -> _Groups:
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
        if isinstance(error, ProviderRefusedError):
            work.refusal = error
        if len(groups) == 1 or work.refusal:
            work.errors.update(dict.fromkeys(groups, error))
        return
    computed = [len(group) - found for group, found in zip(texts, result.cached or [0] * len(texts), strict=True)]
    work.texts.update(dict(zip(groups, computed, strict=True)))
    paid = [group if count else () for group, count in zip(texts, computed, strict=True)]
    shares = await asyncio.to_thread(_share_tokens, paid, result.usage.tokens, core.counter)
    work.tokens.update(dict(zip(groups, shares, strict=True)))
    work.spans.update({place: span for place, span in zip(groups, result.spans, strict=False) if span})
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
    counted = max(ends[-1], 1)
    total = used or ends[-1]
    # Differences of rounded sums: the shares add up to the total exactly.
    return [total * end // counted - total * start // counted for start, end in pairwise(ends)]


# --- finishing -------------------------------------------------------------------------------------------------------


def _finish(place: int, draft: Draft, work: _Work, *, core: Core) -> EmbeddedDocument | Failure:
    document = draft.item.document
    if place in work.errors:
        return Failure(error=work.errors[place], source_id=document.source_id)
    if draft.note:
        document = replace(document, notes=(*document.notes, draft.note))
    policy = name_policy(draft.policy, core.settings.context_model)
    brought = {row.key.chunk_id: row for row in document.past.rows} if document.past else {}
    return EmbeddedDocument(
        document=document,
        chunking=draft.item.chunking,
        chunks=tuple(_finish_chunk(row, work, brought, core=core) for row in draft.rows),
        fingerprint=replace(core.fingerprint, context_policy=policy),
        context_basis=draft.basis,
        context_stale=draft.stale,
        tokens_embedded=work.tokens[place],
        texts_embedded=work.texts[place],
        spans=work.spans.get(place, ()),
    )


def _finish_chunk(row: Row, work: _Work, brought: Mapping[str, PastRow], *, core: Core) -> EmbeddedChunk:
    past = brought.get(row.kept.chunk_id) if row.kept else None
    computed = _Computed(vector=past.vector, windows=past.windows) if past else None
    if row.kept is None:
        computed = work.vectors[row.vector_key]
    return EmbeddedChunk(
        chunk_id=row.kept.chunk_id if row.kept else core.new_id(),
        chunk=row.chunk,
        context=row.context,
        embedding_input_hash=row.input_hash,
        row_hash=row.row_hash,
        vector=computed.vector if computed else None,
        windows=computed.windows if computed else 1,
        kept=None if past else row.kept,
        situated=row.situated,
    )
