"""Collections and b-tree indexes as data. In: a database. Out: the same with every index, before the first write.

Each index stands with the query that it serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.database import Database

from memory_core.adapters.mongo_connection import Row

DOCUMENTS = "documents"
CONTENTS = "contents"
CHUNKS = "chunks"
SUBMISSIONS = "submissions"
FEEDS = "feeds"
FEED_FILES = "feed_files"
TRASH = "trash"
INTENTS = "intents"
META = "meta"
EMBEDDING_CACHE = "embedding_cache"
EMBEDDING_CACHE_AGE = "embedding_cache_at_id_bytes"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """One b-tree index: its collection, name, keys (1 ascending, -1 descending) and the query that it serves."""

    collection: str
    name: str
    keys: tuple[tuple[str, int], ...]
    serves: str
    unique: bool = False


INDEXES: tuple[IndexSpec, ...] = (
    IndexSpec(DOCUMENTS, "documents_sourceId_unique", (("sourceId", 1),), "state and get by source id", unique=True),
    IndexSpec(DOCUMENTS, "documents_updatedAt", (("updatedAt", -1), ("_id", -1)), "the newest page of sources"),
    IndexSpec(DOCUMENTS, "documents_tags_updatedAt", (("tags", 1), ("updatedAt", -1), ("_id", -1)), "a page by tag"),
    IndexSpec(DOCUMENTS, "documents_feed_updatedAt", (("feed", 1), ("updatedAt", -1), ("_id", -1)), "a feed's states"),
    IndexSpec(DOCUMENTS, "documents_contentType", (("contentType", 1),), "filter by content type"),
    IndexSpec(
        DOCUMENTS, "documents_committedAt", (("committedAt", 1), ("revision", 1)), "what changed since (search index)"
    ),
    IndexSpec(
        DOCUMENTS,
        "documents_fingerprint_chunkCount",
        (("embedding.fingerprint", 1), ("chunking.chunkCount", 1)),
        "how much is of an embedding space (covered: reads no row)",
    ),
    IndexSpec(DOCUMENTS, "documents_versions_bodyId", (("versions.bodyId", 1),), "who owns a body"),
    IndexSpec(
        CHUNKS,
        "chunks_tally",
        (("documentId", 1), ("revision", 1), ("documentContentHash", 1), ("embeddingFingerprint", 1)),
        "is a document complete and current (covered: reads no row)",
    ),
    IndexSpec(CHUNKS, "chunks_documentId_chunkIndex", (("documentId", 1), ("chunkIndex", 1)), "rows in order"),
    IndexSpec(CONTENTS, "contents_bodyId_part", (("bodyId", 1), ("part", 1)), "a body's parts in order", unique=True),
    IndexSpec(SUBMISSIONS, "submissions_openKey_unique", (("openKey", 1),), "join an open submission", unique=True),
    IndexSpec(SUBMISSIONS, "submissions_state_stagedAt", (("state", 1), ("stagedAt", 1)), "what nobody finished"),
    IndexSpec(
        SUBMISSIONS, "submissions_state_finishedAt", (("state", 1), ("finishedAt", 1)), "what was kept long enough"
    ),
    IndexSpec(SUBMISSIONS, "submissions_bodyId", (("bodyId", 1),), "who owns a body"),
    IndexSpec(SUBMISSIONS, "submissions_request_sourceId", (("request.fields.sourceId", 1),), "the traces of a source"),
    IndexSpec(SUBMISSIONS, "submissions_outcome_sourceId", (("outcome.sourceId", 1),), "the traces of a source"),
    IndexSpec(FEEDS, "feeds_root_unique", (("root", 1),), "one feed a root", unique=True),
    IndexSpec(FEED_FILES, "feed_files_feed_path_unique", (("feed", 1), ("path", 1)), "a feed's manifest", unique=True),
    IndexSpec(FEED_FILES, "feed_files_sourceId", (("sourceId", 1),), "the traces of a source"),
    IndexSpec(TRASH, "trash_sourceId", (("sourceId", 1), ("version", -1)), "where the version count goes on"),
    IndexSpec(TRASH, "trash_committedAt", (("committedAt", 1),), "what was deleted since (search index), or long ago"),
    IndexSpec(TRASH, "trash_expiresAt", (("expiresAt", 1),), "what the grace period has ended for"),
    IndexSpec(TRASH, "trash_versions_bodyId", (("versions.bodyId", 1),), "who owns a body"),
    IndexSpec(
        EMBEDDING_CACHE,
        EMBEDDING_CACHE_AGE,
        (("at", 1), ("_id", 1), ("bytes", 1)),
        "what is too old, and what is beyond the size (covered: reads no vector)",
    ),
    IndexSpec(EMBEDDING_CACHE, "embedding_cache_expiresAt", (("expiresAt", 1),), "the server forgets by itself"),
)

# `openKey` exists only while a submission is open, so only those are unique.
_SPARSE = frozenset({"submissions_openKey_unique"})
# The server deletes a row of these once the time in the field has come: the safety net where nobody evicts.
_EXPIRING = frozenset({"embedding_cache_expiresAt"})


def is_sparse(spec: IndexSpec) -> bool:
    """Whether rows without the field are left out."""
    return spec.name in _SPARSE


def is_expiring(spec: IndexSpec) -> bool:
    """Whether the server deletes rows by it."""
    return spec.name in _EXPIRING


def create_indexes(database: Database[Row]) -> None:
    """Create what is missing; one command a collection. An index that exists with the same keys costs nothing."""
    for collection in dict.fromkeys(spec.collection for spec in INDEXES):
        database[collection].create_indexes(
            [
                IndexModel(
                    [(field, ASCENDING if order == 1 else DESCENDING) for field, order in spec.keys],
                    name=spec.name,
                    unique=spec.unique,
                    sparse=is_sparse(spec),
                    **({"expireAfterSeconds": 0} if is_expiring(spec) else {}),
                )
                for spec in INDEXES
                if spec.collection == collection
            ]
        )
