"""Which documents satisfy a search's filters. In: filters. Out: ids; only indexes and ids are read."""

from __future__ import annotations

from bson import ObjectId

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import DOCUMENTS
from memory_core.answers import SearchFilters


def find_document_ids(connection: MongoConnection, filters: SearchFilters) -> frozenset[str]:
    """The ids of all documents that satisfy every filter. A text that is no id names no document."""
    condition: Row = {}
    if filters.source_ids:
        condition["sourceId"] = {"$in": list(filters.source_ids)}
    if filters.document_ids:
        condition["_id"] = {"$in": [ObjectId(one) for one in filters.document_ids if ObjectId.is_valid(one)]}
    if filters.tags:
        condition["tags"] = {"$all": list(filters.tags)}
    if filters.content_types:
        condition["contentType"] = {"$in": [one.value for one in filters.content_types]}
    found = connection.collection(DOCUMENTS).find(condition, {"_id": 1})
    if not condition:
        found = found.hint("_id_")  # of itself the server would read every row
    return frozenset(str(row["_id"]) for row in found)
