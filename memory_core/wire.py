"""Our values as the JSON that every door shows (camelCase). In: values. Out: plain JSON. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from memory_core.answers import (
    Coverage,
    Deletion,
    Hit,
    HitRow,
    Purge,
    SearchAnswer,
    SourceListing,
    StoredDocument,
    TrashedDocument,
)
from memory_core.chunk_values import Chunk, ChunkingResult
from memory_core.models import Document, Outcome, StoreOutcome

Json: TypeAlias = dict[str, Any]


def outcome_json(outcome: StoreOutcome) -> Json:
    """The answer to a store."""
    fingerprint = outcome.fingerprint
    return {
        "outcome": outcome.outcome.value,
        "sourceId": outcome.source_id,
        "documentId": outcome.document_id,
        "title": outcome.title,
        "version": outcome.version,
        "chunkCount": outcome.chunk_count,
        "chunkingStrategy": outcome.strategy,
        "embedding": {
            "provider": fingerprint.provider,
            "model": fingerprint.model,
            "dimensions": fingerprint.dimensions,
        }
        if fingerprint
        else None,
        "totalTokensEmbedded": outcome.tokens_embedded,
        "textsEmbedded": outcome.texts_embedded,
        "reason": outcome.reason,
        "notes": list(outcome.notes),
        "error": {"kind": outcome.error.kind, "message": outcome.error.message, "retryable": outcome.error.retryable}
        if outcome.error
        else None,
    }


def late_outcome_json(
    source_id: str | None,
    *,
    document_id: str | None = None,
    title: str | None = None,
    version: int | None = None,
    chunk_count: int = 0,
) -> Json:
    """The answer to a store whose run was killed between storing and saying so, from what is stored."""
    return outcome_json(
        StoreOutcome(
            outcome=Outcome.CREATED if version == 1 else Outcome.UPDATED,
            source_id=source_id,
            document_id=document_id,
            title=title,
            version=version,
            chunk_count=chunk_count,
            reason="stored by a run that was killed before it could say so",
        )
    )


def ingest_block(document: Document, *, now: datetime) -> Json:
    """Who stored a version, how and when: what every store keeps beside it; None where it is not known."""
    provenance = document.provenance
    return {
        "agent": document.agent,
        "sessionId": document.session_id,
        "channel": provenance.channel,
        "feed": provenance.feed,
        "clientName": provenance.client_name,
        "clientVersion": provenance.client_version,
        "tokenName": provenance.token_name,
        "submissionId": provenance.submission_id,
        "flowRunId": provenance.flow_run_id,
        "at": now,
    }


def chunking_json(result: ChunkingResult) -> Json:
    """What `memory chunk --json` prints. Offsets count Unicode code points.

    `lead` (the header row of the table that a chunk goes on with) and `readable` (what a reader sees of HTML) are there
    only where a chunk has them.
    """
    return {
        "strategy": result.strategy,
        "stats": {
            "inputChars": result.stats.input_chars,
            "chunkCount": result.stats.chunk_count,
            "totalTokens": result.stats.total_tokens,
            "mergedCount": result.stats.merged_count,
            "clusterCuts": result.stats.cluster_cuts,
        },
        "chunks": [
            {
                "index": chunk.index,
                "charStart": chunk.char_start,
                "charEnd": chunk.char_end,
                "tokenCount": chunk.token_count,
                "headingPath": list(chunk.heading_path),
                "text": chunk.text,
                **_extra_texts(chunk),
            }
            for chunk in result.chunks
        ],
    }


def answer_json(answer: SearchAnswer) -> Json:
    """What a search answers."""
    return {
        "query": answer.query,
        "mode": answer.mode.value,
        "effectiveMode": answer.effective_mode.value,
        "engine": answer.engine,
        "totalHits": len(answer.hits),
        "hits": [hit_json(hit) for hit in answer.hits],
        "embedding": {"model": answer.fingerprint.model, "dimensions": answer.fingerprint.dimensions},
        "explanation": answer.explanation,
        "coverage": coverage_json(answer.coverage) if answer.coverage else None,
    }


def coverage_json(coverage: Coverage) -> Json:
    """How much of what is stored an embedding space covers."""
    return {
        "documents": coverage.documents,
        "chunks": coverage.chunks,
        "coveredDocuments": coverage.covered_documents,
        "coveredChunks": coverage.covered_chunks,
    }


def hit_json(hit: Hit) -> Json:
    """One hit with the exact place that it came from."""
    row = hit.row
    return {
        "chunkId": row.chunk_id,
        "documentId": row.document_id,
        "sourceId": row.source_id,
        "title": row.title,
        "uri": row.uri,
        "contentType": row.content_type.value,
        "chunkIndex": row.chunk_index,
        "headingPath": list(row.heading_path),
        "charStart": row.char_start,
        "charEnd": row.char_end,
        "tags": list(row.tags),
        "text": row.text,
        **_extra_texts(row),
        "score": hit.score,
        "vectorScore": hit.vector_score,
        "textScore": hit.text_score,
        "vectorRank": hit.vector_rank,
        "textRank": hit.text_rank,
        "highlights": list(hit.highlights),
    }


def _extra_texts(chunk: Chunk | HitRow) -> Json:
    """What a chunk is read with beside its text; most chunks have neither."""
    lead = {"lead": chunk.lead} if chunk.lead else {}
    return lead if chunk.readable is None else {**lead, "readable": chunk.readable}


def source_json(document: StoredDocument) -> Json:
    """One row of a listing: no body, no vector."""
    state = document.state
    return {
        "sourceId": state.source_id,
        "documentId": state.document_id,
        "title": state.attributes.title,
        "uri": state.attributes.uri,
        "contentType": state.attributes.content_type.value,
        "tags": list(state.attributes.tags),
        "chunkCount": state.tally.count,
        "contentLength": document.content_length,
        "version": state.version,
        "embeddingModels": [document.fingerprint.model],
        "createdAt": state.created_at.isoformat(),
        "updatedAt": state.updated_at.isoformat(),
    }


def listing_json(listing: SourceListing) -> Json:
    """One page of stored documents. `total` is a lower bound where it is not exact; `nextCursor` is null at the end."""
    return {
        "sources": [source_json(document) for document in listing.sources],
        "total": listing.total,
        "totalIsExact": listing.total_is_exact,
        "limit": listing.limit,
        "offset": listing.offset,
        "nextCursor": listing.next_cursor,
    }


def document_json(document: StoredDocument, content: str) -> Json:
    """A stored document with its text."""
    state = document.state
    return {
        **source_json(document),
        "content": content,
        "contentHash": state.content_hash,
        "metadata": dict(state.attributes.metadata),
        "chunking": {
            "strategy": state.strategy,
            "recipe": state.recipe,
            "chunkSizeTokens": document.options.size,
            "chunkOverlapTokens": document.options.overlap,
        },
        "embedding": {
            "provider": document.fingerprint.provider,
            "model": document.fingerprint.model,
            "dimensions": document.fingerprint.dimensions,
            "fingerprint": document.fingerprint.key,
        },
        "versions": [
            {"version": kept.version, "contentLength": kept.content_length, "storedAt": kept.stored_at.isoformat()}
            for kept in document.versions
        ],
    }


def deletion_json(deletion: Deletion) -> Json:
    """What a delete removed."""
    return {
        "sourceIds": list(deletion.source_ids),
        "deletedDocuments": deletion.deleted_documents,
        "deletedChunks": deletion.deleted_chunks,
        "dryRun": deletion.dry_run,
        "restorableUntil": deletion.restorable_until.isoformat() if deletion.restorable_until else None,
    }


def log_json(document: StoredDocument) -> Json:
    """The kept versions of a document, the newest first, and who stored each."""
    return {
        "sourceId": document.state.source_id,
        "documentId": document.state.document_id,
        "versions": [
            {
                "version": kept.version,
                "contentHash": kept.content_hash,
                "contentLength": kept.content_length,
                "storedAt": kept.stored_at.isoformat(),
                "ingest": {name: value for name, value in kept.ingest.items() if name != "at"},
            }
            for kept in reversed(document.versions)
        ],
    }


def trash_json(trashed: TrashedDocument) -> Json:
    """A deleted document that can be restored."""
    state = trashed.document.state
    return {
        "sourceId": state.source_id,
        "documentId": state.document_id,
        "title": state.attributes.title,
        "version": state.version,
        "deletedAt": trashed.deleted_at.isoformat(),
        "expiresAt": trashed.expires_at.isoformat(),
    }


def purge_json(purge: Purge) -> Json:
    """What a purge removed, by collection."""
    return {"sourceIds": list(purge.source_ids), "removed": dict(purge.removed), "dryRun": purge.dry_run}
