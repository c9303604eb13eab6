"""What an export says, line by line. In: stored documents. Out: lines of JSON, and the names of files. Pure.

The format is described in docs/export.md; `FORMAT_VERSION` rises when an older program could not read it rightly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import AwareDatetime, Field, StrictBool, StrictInt, StrictStr
from pydantic import ValidationError as PydanticError

from memory_core.answers import StoredDocument
from memory_core.errors import ValidationError
from memory_core.models import ContentType, PastRow, StoredVersion
from memory_core.rules import plain_issue
from memory_core.store_request import WireModel

FORMAT: Final = "agent-memory-export"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "memory.json"
CONTENTS: Final = "contents"
MAX_MANIFEST_BYTES: Final = 64_000_000

_Id: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")]
_Hash: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Count: TypeAlias = Annotated[StrictInt, Field(ge=0)]
_Attribute: TypeAlias = Literal["title", "uri", "contentType", "tags", "metadata"]


class VersionLine(WireModel):
    """One kept version. `text` is the path of its text in the export; `ingest` and `ingested_at` say who stored it."""

    version: Annotated[StrictInt, Field(ge=1)]
    content_hash: _Hash
    content_length: Annotated[StrictInt, Field(ge=1)]
    stored_at: AwareDatetime
    text: StrictStr
    ingested_at: AwareDatetime
    ingest: dict[str, StrictStr | StrictBool | StrictInt | float | None]


class AttributesLine(WireModel):
    """What describes a document; `owners` says who set what."""

    title: Annotated[StrictStr, Field(min_length=1)]
    uri: StrictStr | None
    content_type: ContentType
    tags: list[StrictStr]
    metadata: dict[str, Any]
    owners: dict[_Attribute, StrictStr]


class BasisLine(WireModel):
    """What the contexts of the rows are made of; only beside vectors."""

    title: StrictStr
    words: list[StrictStr]


class DocumentLine(WireModel):
    """One document, without its texts. `chunk_count` counts its lines in the chunks file; 0 without vectors."""

    document_id: _Id
    source_id: StrictStr
    feed: StrictStr | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    attributes: AttributesLine
    chunk_size_tokens: StrictInt
    chunk_overlap_tokens: StrictInt
    chunk_min_tokens: StrictInt
    versions: Annotated[list[VersionLine], Field(min_length=1)]
    context_basis: BasisLine | None = None
    chunk_count: _Count = 0


class ChunkLine(WireModel):
    """One chunk row, whose vector is the row of the same number in the array beside it."""

    document_id: _Id
    chunk_id: _Id
    index: _Count
    row_hash: _Hash
    embedding_input_hash: _Hash
    fingerprint: StrictStr
    situated: StrictStr
    windows: Annotated[StrictInt, Field(ge=1)]


class PartLine(WireModel):
    """One complete part: how many lines it has, and the sha256 of each of its files by name."""

    number: Annotated[StrictInt, Field(ge=1)]
    documents: _Count
    versions: _Count
    chunks: _Count
    sha256: dict[str, _Hash]


class LeftOut(WireModel):
    """A document that could not be exported, and why."""

    document_id: _Id
    source_id: StrictStr
    reason: StrictStr


class Manifest(WireModel):
    """The file `memory.json`. `after` is the last document id that was looked at; `dimensions` are those of vectors."""

    format: Literal["agent-memory-export"] = FORMAT
    format_version: Literal[1] = FORMAT_VERSION
    created: AwareDatetime
    lineage: StrictStr
    fingerprint: StrictStr
    recipe: StrictStr
    vectors: StrictBool
    dimensions: Annotated[StrictInt, Field(ge=1)] | None
    complete: StrictBool
    after: _Id | None
    parts: list[PartLine]
    left_out: list[LeftOut]

    @property
    def documents(self) -> int:
        """Documents in all complete parts."""
        return sum(part.documents for part in self.parts)


# --- names ------------------------------------------------------------------------------------------------------------


def documents_file(part: int) -> str:
    """The name of a part's documents."""
    return f"documents-{part:05}.jsonl"


def chunks_file(part: int) -> str:
    """The name of a part's chunk rows."""
    return f"chunks-{part:05}.jsonl"


def vectors_file(part: int) -> str:
    """The name of a part's vectors."""
    return f"vectors-{part:05}.npy"


def text_file(content_hash: str) -> str:
    """The path of a text, which follows from its hash: equal texts are one file."""
    return f"{CONTENTS}/{content_hash[:2]}/{content_hash}.txt"


# --- writing ----------------------------------------------------------------------------------------------------------


def write_line(line: WireModel) -> bytes:
    """A line of JSON, the same for the same values."""
    text = json.dumps(line.model_dump(mode="json", by_alias=True), ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n".encode()


def write_manifest(manifest: Manifest) -> bytes:
    """The whole file, for people too."""
    return f"{json.dumps(manifest.model_dump(mode='json', by_alias=True), ensure_ascii=False, indent=1)}\n".encode()


def describe_document(document: StoredDocument, rows: Sequence[PastRow] | None) -> DocumentLine:
    """The line of a document; `rows` are those that go with it, None in an export without vectors.

    Raises:
        ValidationError: what is stored is not what this program stores.
    """
    state, stored = document.state, document.state.attributes
    try:
        return DocumentLine(
            document_id=state.document_id,
            source_id=state.source_id,
            feed=state.feed,
            created_at=state.created_at,
            updated_at=state.updated_at,
            attributes=AttributesLine(
                title=stored.title,
                uri=stored.uri,
                content_type=stored.content_type,
                tags=list(stored.tags),
                metadata=dict(stored.metadata),
                owners=cast("dict[_Attribute, str]", dict(stored.owners)),
            ),
            chunk_size_tokens=document.options.size,
            chunk_overlap_tokens=document.options.overlap,
            chunk_min_tokens=document.options.minimum,
            versions=[_describe_version(version) for version in document.versions],
            context_basis=None
            if rows is None
            else BasisLine(title=state.context_basis.title, words=list(state.context_basis.words)),
            chunk_count=len(rows or ()),
        )
    except PydanticError as error:
        raise ValidationError(f"What is stored cannot be exported: {tell_issues(error)}.") from None


def _describe_version(version: StoredVersion) -> VersionLine:
    at = version.ingest.get("at")
    ingest = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in version.ingest.items()
        if name != "at"
    }
    return VersionLine(
        version=version.version,
        content_hash=version.content_hash,
        content_length=version.content_length,
        stored_at=version.stored_at,
        text=text_file(version.content_hash),
        ingested_at=at if isinstance(at, datetime) else version.stored_at,
        ingest=ingest,
    )


def describe_row(document_id: str, row: PastRow) -> ChunkLine:
    """The line of a chunk row."""
    key = row.key
    return ChunkLine(
        document_id=document_id,
        chunk_id=key.chunk_id,
        index=key.index,
        row_hash=key.row_hash,
        embedding_input_hash=key.embedding_input_hash,
        fingerprint=key.fingerprint,
        situated=key.situated,
        windows=row.windows,
    )


def tell_issues(error: PydanticError) -> str:
    """What pydantic found, in words and without the values."""
    return "; ".join(plain_issue(issue) for issue in error.errors(include_input=False, include_url=False))  # pyright: ignore[reportArgumentType] # a TypedDict
