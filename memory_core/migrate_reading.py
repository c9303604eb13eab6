"""A document of mongodb-memory-mcp as the path takes it. In: an untrusted row and its text. Out: a request. Pure.

What can be folded without loss is: aliases of content types, blanks around texts, capitals and repetitions of tags,
line ends. Vectors and chunks are left behind: this memory cuts and embeds by its own rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from memory_core.errors import ValidationError
from memory_core.identity import derive_title, fold_content_type
from memory_core.migrate_ports import ForeignRow
from memory_core.models import Attributes, ContentType, Past, StoredVersion, StoreRequest, hash_text
from memory_core.rules import normalise_text
from memory_core.store_request import Provenance, StoreContentRequest

CHANNEL: Final = "migrate"

_LARGEST_VERSION: Final = 2**31 - 1
_TIMES: Final = ("at", "time", "timestamp", "ingestedAt")
_KIND = TypeVar("_KIND")
_WORDS: Final[Mapping[type, str]] = {str: "text", list: "a list", dict: "an object", datetime: "a date"}


def read_document(row: ForeignRow, content: object) -> StoreRequest:
    """The document with its id, version, dates, attributes and ingest block.

    Raises:
        ValidationError: with everything that is broken. (What the rules of every door refuse is for the path to say.)
    """
    problems: list[str] = []
    fields = row.fields
    text = _read_content(content, fields, problems)
    source_id = (_take(fields, "sourceId", str, problems) or "").strip()
    if not source_id and not problems:
        problems.append("sourceId: is blank")
    attributes = _read_attributes(fields, text, source_id, problems)
    created, updated = (_take(fields, name, datetime, problems) for name in ("createdAt", "updatedAt"))
    version = _read_version(fields, problems)
    if problems or created is None or updated is None:
        raise ValidationError(f"{'; '.join(problems)}.")
    newest = StoredVersion(
        version=version,
        body_id="",  # the text comes along
        content_hash=hash_text(text),
        content_length=len(text),
        stored_at=updated,  # the other program moves it with the text alone
        ingest=_read_ingest(fields.get("ingest"), updated),
    )
    return StoreRequest(
        # The attributes go along to be checked by the rules of every door.
        request=StoreContentRequest(
            content=cast("str", content),
            source_id=source_id,
            title=attributes.title,
            uri=attributes.uri,
            content_type=attributes.content_type.value,
            tags=list(_read_tags(fields, [])),
            metadata=dict(attributes.metadata),
        ),
        provenance=Provenance(channel=CHANNEL),
        past=Past(
            document_id=row.document_id,
            created_at=created,
            updated_at=updated,
            attributes=attributes,
            feed=None,
            versions=(newest,),
            texts={version: text},
        ),
    )


def _read_content(content: object, fields: Mapping[str, object], problems: list[str]) -> str:
    """The normalised text, if it is the one that the row's hash names."""
    if not isinstance(content, str):
        problems.append("content: is missing" if content is None else "content: is not text")
        return ""
    stored = _take(fields, "contentHash", str, problems)
    text = normalise_text(content)
    try:
        hashes = {hash_text(content), hash_text(text)}
    except UnicodeEncodeError as error:
        problems.append(f"content: is not UTF-8 text at character {error.start}")
        return ""
    if stored is not None and stored.strip().lower() not in hashes:
        problems.append("content: is not the text that contentHash names, so one of the two was damaged")
    return text


def _read_attributes(fields: Mapping[str, object], text: str, source_id: str, problems: list[str]) -> Attributes:
    content_type = _read_content_type(fields, problems)
    uri = (_take(fields, "uri", str, problems, is_optional=True) or "").strip() or None
    tags = tuple(dict.fromkeys(tag.strip().lower() for tag in _read_tags(fields, problems)))
    metadata = _take(fields, "metadata", dict[str, Any], problems, is_optional=True) or {}
    derived = derive_title(text, content_type, fallback=source_id)
    title = " ".join((_take(fields, "title", str, problems, is_optional=True) or "").split()) or derived
    given = {"contentType": True, "uri": uri, "tags": tags, "metadata": metadata}
    return Attributes(
        title=title,
        uri=uri,
        content_type=content_type,
        tags=tags,
        metadata=metadata,
        # Who set a title is not recorded there: one that follows from the text is taken to.
        owners={
            "title": "derived" if title == derived else "caller",
            **{name: "caller" for name, value in given.items() if value},
        },
    )


def _read_content_type(fields: Mapping[str, object], problems: list[str]) -> ContentType:
    named = _take(fields, "contentType", str, problems, is_optional=True) or ""
    if not named.strip():
        return ContentType.MARKDOWN  # what the other program takes a text for that says nothing
    folded = fold_content_type(named)
    if folded is None:
        problems.append(f"contentType: is not known; accepted are {', '.join(ContentType)}")
    return folded or ContentType.MARKDOWN


def _read_tags(fields: Mapping[str, object], problems: list[str]) -> Sequence[str]:
    tags = _take(fields, "tags", list[object], problems, is_optional=True) or []
    texts = [tag for tag in tags if isinstance(tag, str)]
    if len(texts) < len(tags):
        problems.append("tags: not all of them are text")
    return texts


def _read_version(fields: Mapping[str, object], problems: list[str]) -> int:
    """A whole number from 1 on; JavaScript may have written it as a double."""
    value = fields.get("version")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    number = cast("float", value) if is_number else 0
    if 1 <= number <= _LARGEST_VERSION and number == int(number):
        return int(number)
    problems.append("version: is missing" if value is None else "version: is not a whole number from 1 on")
    return 1


def _take(
    fields: Mapping[str, object], name: str, kind: type[_KIND], problems: list[str], *, is_optional: bool = False
) -> _KIND | None:
    """The field if it is of that kind; null is no value."""
    value = fields.get(name)
    plain: type = getattr(kind, "__origin__", kind)
    if isinstance(value, plain):
        return cast("_KIND", value)
    if value is not None:
        problems.append(f"{name}: is not {_WORDS[plain]}")
    elif not is_optional:
        problems.append(f"{name}: is missing")
    return None


def _read_ingest(ingest: object, updated: datetime) -> Mapping[str, Any]:
    """Who stored it, by our names. What has no name here, or is not text, is kept as JSON under `more`."""
    rest: dict[str, object] = dict(cast("Mapping[str, object]", ingest)) if isinstance(ingest, Mapping) else {}
    if ingest is not None and not isinstance(ingest, Mapping):
        rest["ingest"] = ingest
    client = rest.get("client")
    if isinstance(client, Mapping):
        named = cast("Mapping[str, object]", rest.pop("client"))
        rest |= {f"client{name[:1].upper()}{name[1:]}": value for name, value in named.items()}
    at = next((rest.pop(name) for name in _TIMES if isinstance(rest.get(name), datetime)), updated)
    block = {name: _pop_text(rest, name) for name in ("agent", "sessionId", "channel", "clientName", "clientVersion")}
    return {
        **block,
        "channel": block["channel"] or CHANNEL,
        "feed": None,
        "tokenName": None,
        "submissionId": None,
        "flowRunId": None,
        "at": at,
        # ASCII: half a surrogate pair in it is spelled out.
        **({"more": json.dumps(rest, default=str, sort_keys=True)} if rest else {}),
    }


def _pop_text(rest: dict[str, object], name: str) -> str | None:
    """The text of that name, taken out; what is there otherwise stays in the rest, and null is nothing."""
    value = rest.get(name)
    if value is None:
        rest.pop(name, None)
    elif isinstance(value, str) and value.isprintable():
        del rest[name]
        return value
    return None
