"""Reads the lines of an export. In: untrusted bytes. Out: checked values, and documents for the path. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError as PydanticError

from memory_core.errors import ValidationError
from memory_core.identity import is_source_id
from memory_core.models import Attributes, ContextBasis, Past, PastRow, StoredChunkKey, StoredVersion, Vector
from memory_core.store_request import StoreContentRequest, WireModel
from memory_core.transfer_format import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    ChunkLine,
    DocumentLine,
    Manifest,
    VersionLine,
    chunks_file,
    documents_file,
    tell_issues,
    text_file,
    vectors_file,
)

_Line = TypeVar("_Line", bound=WireModel)


def read_manifest(content: bytes) -> Manifest:
    """The file `memory.json`.

    Raises:
        ValidationError: it is broken, of something else, or of a newer program.
    """
    value = _load(content, MANIFEST)
    if value.get("format") != FORMAT:
        raise ValidationError(f"{MANIFEST} is not that of an export of this program. Name another directory.")
    version = value.get("formatVersion")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValidationError(f"{MANIFEST} names no version of its format. Copy the whole export again.")
    if version > FORMAT_VERSION:
        raise ValidationError(
            f"The export has format {version}, and this program reads formats up to {FORMAT_VERSION}. Import it with "
            "the program's version that made it, or a newer one."
        )
    manifest = _check(Manifest, value, MANIFEST)
    if [part.number for part in manifest.parts] != list(range(1, len(manifest.parts) + 1)):
        raise ValidationError(f"{MANIFEST}: the parts are not numbered from 1 on. Copy the whole export again.")
    for part in manifest.parts:
        names = [documents_file(part.number)]
        if manifest.vectors:
            names += [chunks_file(part.number), vectors_file(part.number)]
        if sorted(part.sha256) != sorted(names):
            raise ValidationError(f"{MANIFEST}: part {part.number} does not name its files. Copy the export again.")
    if manifest.vectors != (manifest.dimensions is not None):
        raise ValidationError(f"{MANIFEST}: vectors and their width do not fit. Copy the whole export again.")
    return manifest


def read_document_line(content: bytes, place: str) -> DocumentLine:
    """One line of a documents file; `place` names file and line.

    Raises:
        ValidationError: it is no document, or no export of this program writes it so.
    """
    line = _check(DocumentLine, _load(content, place), place)
    if not is_source_id(line.source_id):
        _refuse(place, "the source id is not one that this program takes")
    tags = line.attributes.tags
    if tags != list(dict.fromkeys(tag.strip().lower() for tag in tags)):
        _refuse(place, "the tags are not trimmed, lowercase and different from each other")
    if any(later.version <= earlier.version for earlier, later in pairwise(line.versions)):
        _refuse(place, "the versions do not rise")
    for version in line.versions:
        if version.text != text_file(version.content_hash):
            _refuse(place, f"version {version.version} names a text that does not lie where its hash says")
    return line


def read_chunk_line(content: bytes, place: str) -> ChunkLine:
    """One line of a chunks file.

    Raises:
        ValidationError: it is no chunk row.
    """
    return _check(ChunkLine, _load(content, place), place)


def make_row(line: ChunkLine, vector: Vector) -> PastRow:
    """The row as the path takes it."""
    key = StoredChunkKey(
        chunk_id=line.chunk_id,
        index=line.index,
        row_hash=line.row_hash,
        embedding_input_hash=line.embedding_input_hash,
        fingerprint=line.fingerprint,
        situated=line.situated,
    )
    return PastRow(key=key, vector=vector, windows=line.windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A document as the path takes it: the request with the newest text, and what the document was."""

    request: StoreContentRequest
    past: Past


def make_arrival(line: DocumentLine, texts: Mapping[int, str], rows: Sequence[PastRow]) -> Arrival:
    """The document with the texts of the versions that are to be kept, by number; the newest is among them."""
    stored, basis = line.attributes, line.context_basis
    kept = [version for version in line.versions if version.version in texts]
    return Arrival(
        # The attributes go along to be checked by the rules of every door.
        request=StoreContentRequest(
            content=texts[line.versions[-1].version],
            source_id=line.source_id,
            title=stored.title,
            uri=stored.uri,
            content_type=stored.content_type.value,
            tags=stored.tags,
            metadata=stored.metadata,
            chunk_size_tokens=line.chunk_size_tokens,
            chunk_overlap_tokens=line.chunk_overlap_tokens,
        ),
        past=Past(
            document_id=line.document_id,
            created_at=_whole(line.created_at),
            updated_at=_whole(line.updated_at),
            attributes=Attributes(
                title=stored.title,
                uri=stored.uri,
                content_type=stored.content_type,
                tags=tuple(stored.tags),
                metadata=stored.metadata,
                owners={str(name): owner for name, owner in stored.owners.items()},
            ),
            feed=line.feed,
            versions=tuple(_make_version(version) for version in kept),
            texts=texts,
            context_basis=ContextBasis(title=basis.title, words=tuple(basis.words)) if basis else None,
            rows=tuple(rows),
        ),
    )


def _make_version(line: VersionLine) -> StoredVersion:
    return StoredVersion(
        version=line.version,
        body_id="",  # the text comes along
        content_hash=line.content_hash,
        content_length=line.content_length,
        stored_at=_whole(line.stored_at),
        ingest={"agent": None, "sessionId": None, **line.ingest, "at": _whole(line.ingested_at)},
    )


def _whole(time: datetime) -> datetime:
    """The time in UTC and whole milliseconds, as MongoDB keeps it."""
    utc = time.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1_000 * 1_000)


def _load(content: bytes, place: str) -> dict[str, Any]:
    try:
        text = content.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(place, f"is not UTF-8 at byte {error.start}")
    except UnicodeEncodeError:
        _refuse(place, "has half a surrogate pair, which is no text")
    except json.JSONDecodeError as error:
        _refuse(place, f"is broken JSON at character {error.pos}")
    except (RecursionError, ValueError):
        _refuse(place, "is JSON that no export writes (too deep, too many digits, or no finite number)")
    if not isinstance(value, dict):
        _refuse(place, "is not a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType] # the keys of a JSON object are text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _check(kind: type[_Line], value: dict[str, Any], place: str) -> _Line:
    try:
        return kind.model_validate(value)
    except PydanticError as error:
        _refuse(place, tell_issues(error))


def _refuse(place: str, why: str) -> NoReturn:
    raise ValidationError(f"{place}: {why}. Copy the whole export again, or take this line out.")
