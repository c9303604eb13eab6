"""Our values as MongoDB rows and back. In: values. Out: rows (camelCase). Pure; nothing is read or written here.

Vectors are BSON binary float32 (subtype 9, as `Binary.from_vector` writes it): a third of the size of an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from bson import Binary, ObjectId

from memory_core.adapters.mongo_connection import Row
from memory_core.answers import ChunkRow, HitRow, StoredDocument
from memory_core.chunk_values import ChunkOptions
from memory_core.models import (
    Attributes,
    ChunkTally,
    ContentType,
    ContextBasis,
    Document,
    DocumentState,
    EmbeddedChunk,
    EmbeddedDocument,
    Fingerprint,
    StoredChunkKey,
    StoredVersion,
    Vector,
)

# The fields of a chunk row that are absent on most: of rows that were written before there were such fields, on all.
OPTIONAL_TEXT_FIELDS = ("lead", "readable", "situated")
KEY_FIELDS = [
    "documentId",
    "chunkIndex",
    "charStart",
    "charEnd",
    "tokenCount",
    "headingPath",
    "rowHash",
    "embeddingInputHash",
    "embeddingFingerprint",
    "situated",
]

# A part stays far below BSON's 16 MB: four bytes a character at most.
PART_CHARS = 1_000_000

_VECTOR_SUBTYPE = 9
_FLOAT32_HEADER = b"\x27\x00"

# What a state is made of. `versions` stays out: states are read for every document of a batch.
STATE_FIELDS = [
    "sourceId",
    "revision",
    "version",
    "contentHash",
    "title",
    "uri",
    "contentType",
    "tags",
    "metadata",
    "attributeOwners",
    "feed",
    "bodyId",
    "chunking",
    "embedding",
    "createdAt",
    "updatedAt",
    "ingest.agent",
    "ingest.sessionId",
    "ingest.at",
]
HIT_FIELDS = [
    "documentId",
    "revision",
    "sourceId",
    "title",
    "uri",
    "contentType",
    "tags",
    "chunkIndex",
    "headingPath",
    "charStart",
    "charEnd",
    "tokenCount",
    "text",
    "lead",
    "readable",
]
INDEX_FIELDS = ["documentId", "revision", "text", "readable", "context", "embeddingFingerprint", "embedding"]


def encode_vector(vector: Vector) -> Binary:
    """float32 little-endian behind the two header bytes of a packed BSON vector."""
    return Binary(_FLOAT32_HEADER + vector.astype("<f4", copy=False).tobytes(), _VECTOR_SUBTYPE)


def decode_vector(value: bytes) -> Vector:
    """The vector of a packed BSON value, as a view of its bytes."""
    return np.frombuffer(value, dtype="<f4", offset=len(_FLOAT32_HEADER))


def body_rows(body_id: str, text: str) -> list[Row]:
    """The parts of a body, in order."""
    return [
        {"bodyId": body_id, "part": part, "text": text[start : start + PART_CHARS]}
        for part, start in enumerate(range(0, len(text), PART_CHARS))
    ]


def attribute_fields(document: Document) -> Row:
    """The fields that describe a document, as they stand on its row; the parent fields of its chunks are among them."""
    attributes = document.attributes
    return {
        "sourceId": document.source_id,
        "title": attributes.title,
        "uri": attributes.uri,
        "contentType": attributes.content_type.value,
        "tags": list(attributes.tags),
        "metadata": dict(attributes.metadata),
        "attributeOwners": dict(attributes.owners),
        "feed": document.provenance.feed or (document.base.feed if document.base else None),
    }


def parent_fields(document: Document) -> Row:
    """What every chunk repeats of its document, so that filters and attribution need no join."""
    attributes = document.attributes
    return {
        "sourceId": document.source_id,
        "title": attributes.title,
        "uri": attributes.uri,
        "contentType": attributes.content_type.value,
        "tags": list(attributes.tags),
        "revision": document.revision,
    }


def content_fields(embedded: EmbeddedDocument) -> Row:
    """The fields that follow from a document's text: hash, chunking and embedding blocks."""
    document, fingerprint = embedded.document, embedded.fingerprint
    return {
        "contentHash": document.content_hash,
        "contentLength": len(document.content),
        "chunking": {
            "strategy": embedded.chunking.strategy,
            "recipe": document.recipe,
            "chunkSizeTokens": document.options.size,
            "chunkOverlapTokens": document.options.overlap,
            "chunkMinTokens": document.options.minimum,
            "chunkLanguage": document.options.language,
            "chunkCount": len(embedded.chunks),
        },
        "embedding": {
            "provider": fingerprint.provider,
            "model": fingerprint.model,
            "dimensions": fingerprint.dimensions,
            "contextPolicy": fingerprint.context_policy,
            "fingerprint": fingerprint.key,
            "contextBasis": {"title": embedded.context_basis.title, "words": list(embedded.context_basis.words)},
            "contextStale": embedded.context_stale,
            # How many chunks each window of a long document had; absent for one that the model saw as a whole.
            **({"windows": list(embedded.spans)} if embedded.spans else {}),
        },
    }


def new_chunk_rows(embedded: EmbeddedDocument, *, version: int, now: datetime) -> list[Row]:
    """A whole row for each chunk whose vector is new, in order."""
    fingerprint = embedded.fingerprint
    shared: Row = {
        "documentId": ObjectId(embedded.document.document_id),
        **parent_fields(embedded.document),
        "documentVersion": version,
        "documentContentHash": embedded.document.content_hash,
        "embeddingProvider": fingerprint.provider,
        "embeddingModel": fingerprint.model,
        "embeddingDimensions": fingerprint.dimensions,
        "embeddingFingerprint": fingerprint.key,
        "embeddedAt": now,
        "createdAt": now,
        "updatedAt": now,
    }
    return [
        {
            "_id": ObjectId(chunk.chunk_id),
            **shared,
            **place_fields(chunk),
            **text_fields(chunk),
            "embedding": encode_vector(chunk.vector),
            "embeddingInputHash": chunk.embedding_input_hash,
            "embeddingWindows": chunk.windows,
        }
        for chunk in embedded.chunks
        if chunk.vector is not None
    ]


def kept_row_fields(embedded: EmbeddedDocument, *, version: int, now: datetime) -> Row:
    """What every row whose vector stays takes over from the next revision of its document."""
    return {
        **parent_fields(embedded.document),
        "documentVersion": version,
        "documentContentHash": embedded.document.content_hash,
        "updatedAt": now,
    }


def kept_row_update(chunk: EmbeddedChunk, shared: Row) -> Row:
    """The small update of a row whose vector stays; its texts are sent only where one of them changed."""
    changed = chunk.kept is None or chunk.kept.row_hash != chunk.row_hash
    texts = text_fields(chunk) if changed else {}
    gone = [name for name in OPTIONAL_TEXT_FIELDS if name not in texts] if changed else []
    fields = {**place_fields(chunk), **texts, **shared}
    return {"$set": fields, **({"$unset": dict.fromkeys(gone, "")} if gone else {})}


def place_fields(chunk: EmbeddedChunk) -> Row:
    """Where a chunk stands in its document (code points)."""
    return {
        "chunkIndex": chunk.chunk.index,
        "charStart": chunk.chunk.char_start,
        "charEnd": chunk.chunk.char_end,
        "tokenCount": chunk.chunk.token_count,
        "headingPath": list(chunk.chunk.heading_path),
    }


def text_fields(embedded: EmbeddedChunk) -> Row:
    """The texts of a row, of which its hash is made. A lead and a readable text are there only where they say more."""
    chunk = embedded.chunk
    fields: Row = {"text": chunk.text, "context": embedded.context, "rowHash": embedded.row_hash}
    if chunk.lead:
        fields["lead"] = chunk.lead
    if chunk.readable is not None:
        fields["readable"] = chunk.readable
    if embedded.situated:
        fields["situated"] = embedded.situated
    return fields


# --- rows to values ---------------------------------------------------------------------------------------------------


def read_state(row: Mapping[str, Any], tally: ChunkTally | None) -> DocumentState:
    """A document row and the tally of its chunks as a state."""
    chunking, embedding = row["chunking"], row["embedding"]
    basis = embedding["contextBasis"]
    return DocumentState(
        document_id=str(row["_id"]),
        source_id=row["sourceId"],
        revision=row["revision"],
        version=row["version"],
        content_hash=row["contentHash"],
        recipe=chunking["recipe"],
        strategy=chunking["strategy"],
        fingerprint=embedding["fingerprint"],
        chunk_count=chunking["chunkCount"],
        tally=tally or EMPTY_TALLY,
        attributes=Attributes(
            title=row["title"],
            uri=row["uri"],
            content_type=ContentType(row["contentType"]),
            tags=tuple(row["tags"]),
            metadata=row["metadata"],
            owners=row["attributeOwners"],
        ),
        context_basis=ContextBasis(title=basis["title"], words=tuple(basis["words"])),
        context_stale=embedding["contextStale"],
        feed=row["feed"],
        body_id=row["bodyId"],
        created_at=row["createdAt"],
        updated_at=row["updatedAt"],
        agent=row["ingest"]["agent"],
        session_id=row["ingest"]["sessionId"],
        stored_at=row["ingest"]["at"],
    )


EMPTY_TALLY = ChunkTally(count=0, revisions=frozenset(), content_hashes=frozenset(), fingerprints=frozenset())


def read_tally(row: Mapping[str, Any]) -> ChunkTally:
    """One group of the tally query."""
    return ChunkTally(
        count=row["count"],
        revisions=frozenset(row["revisions"]),
        content_hashes=frozenset(row["contentHashes"]),
        fingerprints=frozenset(row["fingerprints"]),
    )


def read_stored_document(row: Mapping[str, Any], tally: ChunkTally | None) -> StoredDocument:
    """A whole document row."""
    chunking, embedding = row["chunking"], row["embedding"]
    return StoredDocument(
        state=read_state(row, tally),
        content_length=row["contentLength"],
        fingerprint=Fingerprint(
            provider=embedding["provider"],
            model=embedding["model"],
            dimensions=embedding["dimensions"],
            context_policy=embedding["contextPolicy"],
        ),
        options=read_options(chunking),
        versions=tuple(
            StoredVersion(
                version=entry["version"],
                body_id=entry["bodyId"],
                content_hash=entry["contentHash"],
                content_length=entry["contentLength"],
                stored_at=entry["storedAt"],
                ingest=entry["ingest"],
            )
            for entry in row["versions"]
        ),
    )


def read_options(chunking: Mapping[str, Any]) -> ChunkOptions:
    """The sizes that a document was chunked with."""
    return ChunkOptions(
        size=chunking["chunkSizeTokens"],
        overlap=chunking["chunkOverlapTokens"],
        minimum=chunking["chunkMinTokens"],
        language=chunking.get("chunkLanguage", ""),  # rows of before there was one
    )


def read_hit_row(row: Mapping[str, Any]) -> HitRow:
    """A chunk row without its vector."""
    return HitRow(
        chunk_id=str(row["_id"]),
        document_id=str(row["documentId"]),
        source_id=row["sourceId"],
        title=row["title"],
        uri=row["uri"],
        content_type=ContentType(row["contentType"]),
        tags=tuple(row["tags"]),
        chunk_index=row["chunkIndex"],
        heading_path=tuple(row["headingPath"]),
        char_start=row["charStart"],
        char_end=row["charEnd"],
        token_count=row["tokenCount"],
        text=row["text"],
        lead=row.get("lead", ""),
        readable=row.get("readable"),
    )


def read_chunk_key(row: Mapping[str, Any]) -> StoredChunkKey:
    """What decides whether a row can stay."""
    return StoredChunkKey(
        chunk_id=str(row["_id"]),
        index=row["chunkIndex"],
        row_hash=row["rowHash"],
        embedding_input_hash=row["embeddingInputHash"],
        fingerprint=row["embeddingFingerprint"],
        situated=row.get("situated", ""),
        char_start=row["charStart"],
        char_end=row["charEnd"],
        token_count=row["tokenCount"],
        heading_path=tuple(row["headingPath"]),
    )


def read_index_row(row: Mapping[str, Any]) -> ChunkRow:
    """A chunk row with its vector, for a search index."""
    return ChunkRow(
        chunk_id=str(row["_id"]),
        document_id=str(row["documentId"]),
        revision=row["revision"],
        text=row.get("readable", row["text"]),
        context=row["context"],
        fingerprint=row["embeddingFingerprint"],
        vector=decode_vector(row["embedding"]),
    )
