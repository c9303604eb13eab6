"""How large a document's rows are. In: lengths. Out: an estimate in bytes, for the limits of one transaction. Pure."""

from __future__ import annotations

# Measured on MongoDB 6.0.5 with the RFC corpus: field names, ids, hashes, parent fields and index entries of one chunk.
CHUNK_OVERHEAD_BYTES = 1_100
_FLOAT32_BYTES = 4


def estimate_row_bytes(*, body_bytes: int, text_bytes: int, chunk_count: int, dimensions: int) -> int:
    """Bytes of a document's body and rows: UTF-8 of the body, of the chunks' texts and contexts, vectors, overhead."""
    return body_bytes + text_bytes + chunk_count * (dimensions * _FLOAT32_BYTES + CHUNK_OVERHEAD_BYTES)
