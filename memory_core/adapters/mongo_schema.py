"""What a row may be, as data that the server checks. In: a database. Out: the same with its rules, before a write.

A field that no rule names is refused at the top level of a row: a misspelt one cannot be stored in silence. Fields that
came later than the first rows are optional. The code points of texts are what is counted.
"""

from __future__ import annotations

from pymongo.database import Database
from pymongo.errors import OperationFailure

from memory_core.adapters.mongo_connection import Row
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS
from memory_core.adapters.mongo_rows import PART_CHARS
from memory_core.models import ContentType
from memory_core.store_request import MAX_SOURCE_ID_CHARS, MAX_TAG_CHARS, MAX_TAGS, MAX_TITLE_CHARS, MAX_URI_CHARS

# A row that was there before the rules and breaks one can still be mended; every other row is held to them.
_LEVEL = "moderate"
_ACTION = "error"
_NAMESPACE_EXISTS = 48


def _object(required: Row, optional: Row | None = None, *, is_closed: bool = False) -> Row:
    """An object with these properties; a closed one has no others."""
    shape: Row = {"bsonType": "object", "required": sorted(required), "properties": {**required, **(optional or {})}}
    return {**shape, "additionalProperties": False} if is_closed else shape


def _text(most: int) -> Row:
    return {"bsonType": "string", "minLength": 1, "maxLength": most}


def _count(least: int) -> Row:
    return {"bsonType": ["int", "long"], "minimum": least}


_ID: Row = {"bsonType": "objectId"}
_DATE: Row = {"bsonType": "date"}
_NAME: Row = {"bsonType": "string"}
_NAME_OR_NULL: Row = {"bsonType": ["string", "null"]}
_LIST: Row = {"bsonType": "array"}
_SHA256: Row = {"bsonType": "string", "minLength": 64, "maxLength": 64}

_INGEST = _object({"channel": _NAME, "at": _DATE}, {"agent": _NAME_OR_NULL, "sessionId": _NAME_OR_NULL})

_VERSION = _object(
    {
        "version": _count(1),
        "bodyId": _NAME,
        "contentHash": _SHA256,
        "contentLength": _count(1),
        "storedAt": _DATE,
        "ingest": {"bsonType": "object"},
    }
)

_CHUNKING = _object(
    {
        "strategy": _NAME,
        "recipe": _NAME,
        "chunkSizeTokens": _count(1),
        "chunkOverlapTokens": _count(0),
        "chunkMinTokens": _count(0),
        "chunkCount": _count(1),
    },
    {"chunkLanguage": _NAME},
)

_EMBEDDING = _object(
    {
        "provider": _NAME,
        "model": _NAME,
        "dimensions": _count(1),
        "contextPolicy": _NAME,
        "fingerprint": _NAME,
        "contextBasis": _object({"title": _NAME, "words": _LIST}),
        "contextStale": {"bsonType": "bool"},
    },
    {"windows": _LIST},
)

_DOCUMENT = _object(
    {
        "_id": _ID,
        "sourceId": _text(MAX_SOURCE_ID_CHARS),
        "title": {"bsonType": "string", "maxLength": MAX_TITLE_CHARS},
        "uri": {"bsonType": ["string", "null"], "maxLength": MAX_URI_CHARS},
        "contentType": {"enum": [one.value for one in ContentType]},
        # A letter in lower case may be two code points.
        "tags": {"bsonType": "array", "maxItems": MAX_TAGS, "items": _text(2 * MAX_TAG_CHARS)},
        "metadata": {"bsonType": "object"},
        "attributeOwners": {"bsonType": "object"},
        "feed": _NAME_OR_NULL,
        "revision": _NAME,
        "version": _count(1),
        "versions": {"bsonType": "array", "minItems": 1, "items": _VERSION},
        "bodyId": _NAME,
        "contentHash": _SHA256,
        "contentLength": _count(1),
        "chunking": _CHUNKING,
        "embedding": _EMBEDDING,
        "ingest": _INGEST,
        "createdAt": _DATE,
        "updatedAt": _DATE,
        "committedAt": _DATE,
    },
    is_closed=True,
)

_NAME_TYPE = ["string"]
_NUMBER_TYPE = ["int", "long"]
_DATE_TYPE = ["date"]

# What a chunk must have. As operators of a query, which a field that is missing does not satisfy: by `required` and
# `bsonType` the server looks each of them up twice and takes 20 microseconds a row instead of 10. (A list of texts
# passes for a text here; nothing makes one.)
_CHUNK_TYPES: dict[str, list[str]] = {
    "documentId": ["objectId"],
    "chunkIndex": _NUMBER_TYPE,
    "charStart": _NUMBER_TYPE,
    "charEnd": _NUMBER_TYPE,
    "tokenCount": _NUMBER_TYPE,
    "headingPath": ["array"],
    "text": _NAME_TYPE,
    "context": _NAME_TYPE,
    "rowHash": _NAME_TYPE,
    "sourceId": _NAME_TYPE,
    "title": _NAME_TYPE,
    "uri": ["string", "null"],
    "contentType": _NAME_TYPE,
    "tags": ["array"],
    "revision": _NAME_TYPE,
    "documentVersion": _NUMBER_TYPE,
    "documentContentHash": _NAME_TYPE,
    "embedding": ["binData"],
    "embeddingProvider": _NAME_TYPE,
    "embeddingModel": _NAME_TYPE,
    "embeddingDimensions": _NUMBER_TYPE,
    "embeddingFingerprint": _NAME_TYPE,
    "embeddingInputHash": _NAME_TYPE,
    "embeddedAt": _DATE_TYPE,
    "createdAt": _DATE_TYPE,
    "updatedAt": _DATE_TYPE,
}
_CHUNK_BOUNDS: dict[str, int] = {"chunkIndex": 0, "charStart": 0, "charEnd": 1, "embeddingDimensions": 1}
_CHUNK_OPTIONAL: Row = {"lead": _NAME, "readable": _NAME, "situated": _NAME, "embeddingWindows": _count(1)}


def _chunk_rules() -> Row:
    names: Row = {"_id": _ID, **{name: {} for name in _CHUNK_TYPES}, **_CHUNK_OPTIONAL}
    least = {name: {"$gte": bound} for name, bound in _CHUNK_BOUNDS.items()}
    return {
        "$jsonSchema": {"bsonType": "object", "properties": names, "additionalProperties": False},
        **{name: {"$type": types, **least.get(name, {})} for name, types in _CHUNK_TYPES.items()},
    }


_PART = _object(
    {"_id": _ID, "bodyId": _NAME, "part": _count(0), "text": {"bsonType": "string", "maxLength": PART_CHARS}},
    is_closed=True,
)

VALIDATORS: dict[str, Row] = {
    DOCUMENTS: {"$jsonSchema": _DOCUMENT},
    CHUNKS: _chunk_rules(),
    CONTENTS: {"$jsonSchema": _PART},
}


def apply_validators(database: Database[Row]) -> None:
    """Create the collections with their rules, or give those that exist the present ones; one question if all is so.

    Another process may do the same at the same moment.
    """
    stored = _read_rules(database)
    for name in VALIDATORS.keys() - stored.keys():
        _create(database, name)
    for name, rules in stored.items():
        if rules != _rules_of(name):
            _change(database, name)


def _rules_of(name: str) -> Row:
    return {"validator": VALIDATORS[name], "validationLevel": _LEVEL, "validationAction": _ACTION}


def _read_rules(database: Database[Row]) -> dict[str, Row]:
    """The rules of those collections that exist."""
    found = database.list_collections(filter={"name": {"$in": list(VALIDATORS)}})
    names = ("validator", "validationLevel", "validationAction")
    return {one["name"]: {name: one["options"].get(name) for name in names} for one in found}


def _create(database: Database[Row], name: str) -> None:
    try:
        database.create_collection(name, check_exists=False, **_rules_of(name))
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise
        if _read_rules(database).get(name) != _rules_of(name):  # changing them takes another role than creating them
            _change(database, name)


def _change(database: Database[Row], name: str) -> None:
    # A command takes no concern from the handle.
    database.command("collMod", name, **_rules_of(name), writeConcern=database.write_concern.document)
