"""From the fake's records to the values of the ports. In: records. Out: values that share nothing mutable with them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from memory_core.answers import ChunkRow, HitRow, SearchFilters, StoredDocument
from memory_core.chunk_values import readable_text
from memory_core.fakes.database import ChunkRecord, DocumentRecord
from memory_core.models import Attributes, ChunkTally, Document, DocumentState, PastRow, StoredChunkKey


def read_state(record: DocumentRecord, rows: Sequence[ChunkRecord]) -> DocumentState:
    """The state as a caller gets it: the tally is counted from the rows as they are now."""
    tally = ChunkTally(
        count=len(rows),
        revisions=frozenset(row.revision for row in rows),
        content_hashes=frozenset(row.content_hash for row in rows),
        fingerprints=frozenset(row.fingerprint for row in rows),
    )
    return replace(record.state, tally=tally, attributes=copy_attributes(record.state.attributes))


def read_document(record: DocumentRecord, rows: Sequence[ChunkRecord]) -> StoredDocument:
    """The document without its body."""
    return StoredDocument(
        state=read_state(record, rows),
        content_length=record.content_length,
        fingerprint=record.fingerprint,
        options=record.options,
        versions=record.versions,
    )


def read_key(row: ChunkRecord) -> StoredChunkKey:
    """What decides whether the row can stay."""
    return StoredChunkKey(
        chunk_id=row.chunk_id,
        index=row.chunk.index,
        row_hash=row.row_hash,
        embedding_input_hash=row.embedding_input_hash,
        fingerprint=row.fingerprint,
        situated=row.situated,
        char_start=row.chunk.char_start,
        char_end=row.chunk.char_end,
        token_count=row.chunk.token_count,
        heading_path=row.chunk.heading_path,
    )


def read_hit(row: ChunkRecord, state: DocumentState) -> HitRow:
    """The row as an answer shows it, with its document's attributes."""
    attributes, chunk = state.attributes, row.chunk
    return HitRow(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        source_id=state.source_id,
        title=attributes.title,
        uri=attributes.uri,
        content_type=attributes.content_type,
        tags=attributes.tags,
        chunk_index=chunk.index,
        heading_path=chunk.heading_path,
        char_start=chunk.char_start,
        char_end=chunk.char_end,
        token_count=chunk.token_count,
        text=chunk.text,
        lead=chunk.lead,
        readable=chunk.readable,
    )


def read_chunk_row(row: ChunkRecord) -> ChunkRow:
    """The row as a search index takes it in."""
    return ChunkRow(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        revision=row.revision,
        text=readable_text(row.chunk),
        context=row.context,
        fingerprint=row.fingerprint,
        vector=row.vector.copy(),
    )


def read_past_row(row: ChunkRecord) -> PastRow:
    """The row as it goes along with its document."""
    return PastRow(key=read_key(row), vector=row.vector.copy(), windows=row.windows)


def copy_attributes(attributes: Attributes) -> Attributes:
    """Attributes whose metadata and owners the caller can no longer change."""
    return replace(attributes, metadata=deepcopy(dict(attributes.metadata)), owners=dict(attributes.owners))


def tells_the_same(state: DocumentState, document: Document) -> bool:
    """True for a pure re-chunk, re-embed or repair: it does not move `updated_at`."""
    return (
        state.content_hash == document.content_hash
        and state.source_id == document.source_id
        and state.attributes == document.attributes
    )


def satisfies(state: DocumentState, filters: SearchFilters) -> bool:
    """True where every given condition holds."""
    return (
        (not filters.source_ids or state.source_id in filters.source_ids)
        and (not filters.document_ids or state.document_id in filters.document_ids)
        and (not filters.content_types or state.attributes.content_type in filters.content_types)
        and set(filters.tags) <= set(state.attributes.tags)
    )
