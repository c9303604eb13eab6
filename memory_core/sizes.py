"""How large a document's rows are. In: lengths. Out: an estimate in bytes, for the limits of one transaction. Pure."""

from __future__ import annotations

from typing import Final

ROW_OVERHEAD_BYTES: Final = 600  # ids, hashes, offsets, field names and index entries of a chunk row
VECTOR_COMPONENT_BYTES: Final = 4


def estimate_row_bytes(
    *, body_bytes: int, rows: int, row_text_bytes: int, row_parent_bytes: int, dimensions: int
) -> int:
    """How many bytes a document takes in one transaction: the body, and for each row its vector and its fields.

    body + sum of (text + context) over the rows + rows x (4 x dimensions + parent fields + 600). Text is counted in
    UTF-8. `row_parent_bytes` are the document's title, uri and tags, which every row repeats.
    """
    each = VECTOR_COMPONENT_BYTES * dimensions + row_parent_bytes + ROW_OVERHEAD_BYTES
    return body_bytes + row_text_bytes + rows * each
