"""The JSON of every door: field names exactly as clients know them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from memory_core.answers import Deletion, Hit, HitRow, SearchAnswer, SearchMode, SourceListing, StoredDocument
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkingStats, ChunkOptions
from memory_core.errors import EmbeddingUnavailableError
from memory_core.models import (
    Attributes,
    ChunkTally,
    ContentType,
    ContextBasis,
    DocumentState,
    Fingerprint,
    Outcome,
    StoredVersion,
    StoreOutcome,
)
from memory_core.wire import (
    answer_json,
    chunking_json,
    deletion_json,
    document_json,
    hit_json,
    listing_json,
    outcome_json,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SPACE = Fingerprint(provider="local", model="mini", dimensions=384, context_policy="prefix-1")
ROW = HitRow(
    chunk_id="c1",
    document_id="d1",
    source_id="notes/a",
    title="A",
    uri=None,
    content_type=ContentType.MARKDOWN,
    tags=("t",),
    chunk_index=3,
    heading_path=("One", "Two"),
    char_start=10,
    char_end=14,
    token_count=1,
    text="text",
)
STATE = DocumentState(
    document_id="d1",
    source_id="notes/a",
    revision="r1",
    version=2,
    content_hash="h",
    recipe="recipe",
    strategy="markdown-structural",
    fingerprint=SPACE.key,
    chunk_count=4,
    tally=ChunkTally(
        count=4, revisions=frozenset({"r1"}), content_hashes=frozenset({"h"}), fingerprints=frozenset({SPACE.key})
    ),
    attributes=Attributes(
        title="A", uri=None, content_type=ContentType.TEXT, tags=("t",), metadata={"k": [1]}, owners={}
    ),
    context_basis=ContextBasis(title="A", words=()),
    context_stale=False,
    feed=None,
    body_id="b",
    created_at=NOW,
    updated_at=NOW,
)
STORED = StoredDocument(
    state=STATE,
    content_length=99,
    fingerprint=SPACE,
    options=ChunkOptions(),
    versions=(
        StoredVersion(
            version=2, body_id="b", content_hash="h", content_length=99, stored_at=NOW, ingest={"agent": "x"}
        ),
    ),
)
SOURCE_NAMES = (
    "sourceId documentId title uri contentType tags chunkCount contentLength version embeddingModels createdAt "
    "updatedAt"
).split()


def test_an_outcome_on_the_wire() -> None:
    """Of a store that worked."""
    outcome = StoreOutcome(
        outcome=Outcome.CREATED,
        source_id="notes/a",
        document_id="d1",
        title="A",
        version=1,
        chunk_count=2,
        strategy="paragraph",
        fingerprint=SPACE,
        tokens_embedded=7,
        texts_embedded=2,
        notes=("A note.",),
    )
    assert outcome_json(outcome) == {
        "outcome": "created",
        "sourceId": "notes/a",
        "documentId": "d1",
        "title": "A",
        "version": 1,
        "chunkCount": 2,
        "chunkingStrategy": "paragraph",
        "embedding": {"provider": "local", "model": "mini", "dimensions": 384},
        "totalTokensEmbedded": 7,
        "textsEmbedded": 2,
        "reason": None,
        "notes": ["A note."],
        "error": None,
    }


def test_a_failed_outcome_says_what_kind_and_whether_a_retry_helps() -> None:
    """And has every other field, empty."""
    error = EmbeddingUnavailableError("Away. Try again.")
    shown = outcome_json(StoreOutcome(outcome=Outcome.FAILED, source_id=None, error=error))
    assert shown["error"] == {"kind": "embedding", "message": "Away. Try again.", "retryable": True}
    assert (shown["outcome"], shown["sourceId"], shown["version"], shown["embedding"]) == ("failed", None, None, None)


def test_a_search_answer_on_the_wire() -> None:
    """The hit fields of the original, and the exact place."""
    hit = Hit(
        row=ROW, score=0.5, vector_score=0.25, text_score=None, vector_rank=1, text_rank=None, highlights=("a", "b")
    )
    answer = SearchAnswer(
        query="q",
        mode=SearchMode.HYBRID,
        effective_mode=SearchMode.VECTOR,
        engine="embedded",
        hits=(hit,),
        fingerprint=SPACE,
        explanation="The text leg was down.",
    )
    assert answer_json(answer) == {
        "query": "q",
        "mode": "hybrid",
        "effectiveMode": "vector",
        "engine": "embedded",
        "totalHits": 1,
        "hits": [
            {
                "chunkId": "c1",
                "documentId": "d1",
                "sourceId": "notes/a",
                "title": "A",
                "uri": None,
                "contentType": "markdown",
                "chunkIndex": 3,
                "headingPath": ["One", "Two"],
                "charStart": 10,
                "charEnd": 14,
                "tags": ["t"],
                "text": "text",
                "score": 0.5,
                "vectorScore": 0.25,
                "textScore": None,
                "vectorRank": 1,
                "textRank": None,
                "highlights": ["a", "b"],
            }
        ],
        "embedding": {"model": "mini", "dimensions": 384},
        "explanation": "The text leg was down.",
        "coverage": None,
    }


def test_chunks_on_the_wire() -> None:
    """What `memory chunk --json` prints."""
    chunk = Chunk(index=0, text="ab", char_start=1, char_end=3, token_count=1, heading_path=("H",))
    stats = ChunkingStats(input_chars=4, chunk_count=1, total_tokens=1)
    shown = chunking_json(ChunkingResult(chunks=(chunk,), strategy="paragraph", stats=stats))
    assert set(shown) == {"strategy", "stats", "chunks"}
    assert shown["chunks"] == [
        {"index": 0, "charStart": 1, "charEnd": 3, "tokenCount": 1, "headingPath": ["H"], "text": "ab"}
    ]


def test_a_header_row_and_a_readable_text_are_there_where_a_chunk_has_them() -> None:
    """In a hit as in what `memory chunk --json` prints; the text stays the slice."""
    hit = Hit(
        row=replace(ROW, lead="a,b", readable=""),
        score=0.5,
        vector_score=None,
        text_score=None,
        vector_rank=None,
        text_rank=None,
        highlights=(),
    )
    shown = hit_json(hit)
    assert (shown["text"], shown["lead"], shown["readable"]) == ("text", "a,b", "")
    chunk = Chunk(index=0, text="<b>a", char_start=1, char_end=3, token_count=1, readable="a")
    stats = ChunkingStats(input_chars=4, chunk_count=1, total_tokens=1)
    (cut,) = chunking_json(ChunkingResult(chunks=(chunk,), strategy="html-blocks", stats=stats))["chunks"]
    assert (cut["text"], cut["readable"]) == ("<b>a", "a")
    assert "lead" not in cut


def test_a_listing_on_the_wire() -> None:
    """The chunks that are there are counted, not the ones that should be."""
    short = replace(STORED, state=replace(STATE, tally=replace(STATE.tally, count=3)))
    shown = listing_json(SourceListing(sources=(short,), total=9, offset=2, limit=1))
    assert set(shown) == {"sources", "total", "totalIsExact", "limit", "offset", "nextCursor"}
    assert set(shown["sources"][0]) == set(SOURCE_NAMES)
    assert shown["sources"][0]["chunkCount"] == 3
    assert shown["sources"][0]["createdAt"] == "2026-11-30T12:00:00+00:00"


def test_a_document_on_the_wire_has_its_text_and_no_ingest_block() -> None:
    """Plain JSON, metadata as it was stored."""
    shown = document_json(STORED, "body")
    assert set(shown) == {*SOURCE_NAMES, "content", "contentHash", "metadata", "chunking", "embedding", "versions"}
    assert shown["metadata"] == {"k": [1]}
    assert shown["versions"] == [{"version": 2, "contentLength": 99, "storedAt": "2026-11-30T12:00:00+00:00"}]
    assert json.loads(json.dumps(shown)) == shown


def test_a_deletion_on_the_wire() -> None:
    """Counts and ids."""
    until = datetime(2026, 12, 8, 10, 0, tzinfo=UTC)
    deletion = Deletion(source_ids=("a", "b"), deleted_documents=2, deleted_chunks=5, restorable_until=until)
    assert deletion_json(deletion) == {
        "sourceIds": ["a", "b"],
        "deletedDocuments": 2,
        "deletedChunks": 5,
        "dryRun": False,
        "restorableUntil": "2026-12-08T10:00:00+00:00",
    }
    assert deletion_json(replace(deletion, dry_run=True, restorable_until=None))["restorableUntil"] is None
