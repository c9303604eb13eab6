"""ChunkedDocuments and stored keys in, drafts out: contexts, embedding inputs, and which stored rows can stay. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memory_core.chunk_values import Chunk, readable_text
from memory_core.context import choose_basis, embedding_input, rank_words, write_context
from memory_core.embedding_settings import ContextPolicy
from memory_core.models import ChunkedDocument, ContextBasis, StoredChunkKey, hash_text


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRules:
    """What decides about contexts and inputs. `space` is the fingerprint's key.

    `is_contextual`: a vector depends on the whole document, so rows stay all together or not at all.
    """

    policy: ContextPolicy
    space: str
    is_contextual: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A chunk on its way: its context for the text leg, its embedding input, and the stored row that it keeps."""

    chunk: Chunk
    context: str
    row_hash: str
    input_text: str
    input_hash: str
    kept: StoredChunkKey | None
    situated: str = ""

    @property
    def vector_key(self) -> str:
        """What the vector depends on: a sentence that a chat model wrote is not part of the stored hash."""
        return hash_text(self.input_text) if self.situated else self.input_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document whose missing vectors are known."""

    item: ChunkedDocument
    basis: ContextBasis
    stale: bool
    rows: tuple[Row, ...]
    policy: ContextPolicy
    note: str | None = None

    @property
    def missing(self) -> dict[str, str]:
        """The texts to embed by the key of each vector, in the order of the document, equal ones once."""
        return {row.vector_key: row.input_text for row in self.rows if row.kept is None}

    @property
    def unsituated(self) -> tuple[str, ...]:
        """The texts that a chat model has to situate: those of the rows whose vectors are missing."""
        return tuple(readable_text(row.chunk) for row in self.rows if row.kept is None)


def draft_document(item: ChunkedDocument, stored: Sequence[StoredChunkKey], rules: DraftRules) -> Draft:
    """Choose the context of every chunk, and match what is stored.

    The text leg always has the context of the policy `prefix`, whatever the embedding uses.
    """
    document, chunks = item.document, item.chunking.chunks
    ranked = rank_words(text_to_rank(item))
    title = document.attributes.title
    fresh, _ = choose_basis(title, ranked, None)
    recorded = document.base.context_basis if document.base else document.past.context_basis if document.past else None
    basis, stale = choose_basis(title, ranked, recorded)
    inputs = _write_inputs(chunks, basis, rules)
    kept = _match_rows(inputs, stored, rules.space)
    if basis != fresh and (not any(kept) or not _uses_basis(rules.policy)):
        # Every vector is new anyway, or none depends on it: the newest words cost nothing.
        basis, stale = fresh, False
        inputs = _write_inputs(chunks, basis, rules)
        kept = _match_rows(inputs, stored, rules.space)
    # The text leg pays nothing for a new context, so it takes one as soon as the recorded one is stale; until then both
    # legs share it, and an edit elsewhere in the document rewrites no row.
    shown = fresh if stale else basis
    rows = (
        _make_row(chunk, write_context(shown, chunk.heading_path, chunk.lead), text, digest, key)
        for chunk, (text, digest), key in zip(chunks, inputs, kept, strict=True)
    )
    return Draft(item=item, basis=basis, stale=stale, rows=tuple(rows), policy=rules.policy)


def brought_keys(documents: Sequence[ChunkedDocument]) -> dict[str, Sequence[StoredChunkKey]]:
    """The rows that documents bring with them from elsewhere, by document id."""
    return {
        item.document.document_id: [row.key for row in item.document.past.rows]
        for item in documents
        if item.document.past
    }


def situate_draft(draft: Draft, sentences: Sequence[str]) -> Draft:
    """Put the sentence of each chunk below its context: of `unsituated` the given ones, of kept rows their own.

    A kept row is known by what the sentence was asked for, so an edit elsewhere in the document asks for no new one.
    """
    written = iter(sentences)
    rows = (_situate(row, row.kept.situated if row.kept else next(written)) for row in draft.rows)
    return replace(draft, rows=tuple(rows))


def _situate(row: Row, sentence: str) -> Row:
    if not sentence:
        return row
    context = f"{row.context}\n{sentence}" if row.context else sentence
    return replace(
        row,
        context=context,
        situated=sentence,
        row_hash=hash_text("\0".join(_texts_of(row.chunk, context))),
        input_text=f"{sentence}\n{row.input_text}",
    )


def text_to_rank(item: ChunkedDocument) -> str:
    """The content as a reader sees it: the words of a script or of markup tell nothing about a page."""
    chunks = item.chunking.chunks
    if all(chunk.readable is None for chunk in chunks):
        return item.document.content
    return "\n".join(map(readable_text, chunks))


def _uses_basis(policy: ContextPolicy) -> bool:
    return policy in {ContextPolicy.PREFIX, ContextPolicy.LLM}


def _write_inputs(chunks: Sequence[Chunk], basis: ContextBasis, rules: DraftRules) -> list[tuple[str, str]]:
    """The exact input of each chunk, and the hash under which its vector is known."""
    texts = [_write_input(chunk, basis, rules.policy) for chunk in chunks]
    if not rules.is_contextual:
        return [(text, hash_text(text)) for text in texts]
    # Equal texts at two places of one document, and in two documents, have different vectors.
    group = hash_text("\0".join(map(hash_text, texts)))
    return [(text, hash_text(f"{group}\0{index}")) for index, text in enumerate(texts)]


def _write_input(chunk: Chunk, basis: ContextBasis, policy: ContextPolicy) -> str:
    context = write_context(basis, chunk.heading_path, chunk.lead) if _uses_basis(policy) else ""
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


def _make_row(chunk: Chunk, context: str, text: str, digest: str, kept: StoredChunkKey | None) -> Row:
    return Row(
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
