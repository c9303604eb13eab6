"""The rules of one request. In: a request of any door. Out: its normalised values, or one error with every problem.

Pure: it reads nothing that is stored. The same rules hold on every door; no message echoes the caller's value. The rule
between two feeds stands here too: every store of feeds keeps it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from memory_core.chunk_values import ChunkOptions
from memory_core.errors import ValidationError
from memory_core.identity import SOURCE_ID_PATTERN, fold_content_type, shorten
from memory_core.models import ContentType
from memory_core.settings import Settings
from memory_core.store_request import (
    MAX_CONTENT_CHARS,
    MAX_METADATA_CHARS,
    MAX_METADATA_DEPTH,
    MAX_NAME_CHARS,
    MAX_SOURCE_ID_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    MAX_TITLE_CHARS,
    MAX_URI_CHARS,
    StoreContentRequest,
)
from memory_core.work_ports import Feed

MIN_CHUNK_SIZE_TOKENS = 32
MAX_CHUNK_SIZE_TOKENS = 8_192
MAX_CHUNK_OVERLAP_TOKENS = 4_096

_MAX_PROBLEMS_TOLD = 50
_MAX_ARGUMENT_NAME_CHARS = 64
_LINE_ENDS = re.compile(r"\r\n?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FORBIDDEN_KEYS = frozenset({"__proto__", "constructor", "prototype"})
_INT64_BOUND = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """The normalised values of one request. `given_attributes` holds only what the caller sent, by its JSON name.

    `title` is the caller's in full length, for an id that tells long titles apart; the attribute is shortened.
    """

    content: str
    source_id: str | None
    title: str | None
    uri: str | None
    given_attributes: Mapping[str, Any]
    options: ChunkOptions
    agent: str | None
    session_id: str | None
    notes: tuple[str, ...]


def check_request(
    request: StoreContentRequest, *, defaults: ChunkOptions, max_input_tokens: int | None
) -> CheckedRequest:
    """Check and normalise.

    Raises:
        ValidationError: with every problem, each naming its argument and what is accepted.
    """
    problems: list[str] = []
    content = _check_content(request.content, problems)
    title = " ".join((_check_text("title", request.title, MAX_TITLE_CHARS, problems) or "").split())
    uri = _check_text("uri", request.uri, MAX_URI_CHARS, problems)
    values: dict[str, Any] = {
        "title": shorten(title) or None,
        "uri": uri or None,
        "contentType": _check_content_type(request.content_type, problems),
        "tags": _check_tags(request.tags or [], problems),
        "metadata": _check_metadata(request.metadata or {}, problems),
    }
    options, notes = _check_options(request, defaults, problems)
    if max_input_tokens is not None and options.size > max_input_tokens:
        problems.append(
            f"chunkSizeTokens: {options.size} tokens and their context exceed the embedding model's input of "
            f"{max_input_tokens}"
        )
    checked = CheckedRequest(
        content=content,
        source_id=_check_source_id(request.source_id, problems),
        title=title or None,
        uri=values["uri"],
        given_attributes={name: values[name] for name in _given(request)},
        options=options,
        agent=_check_text("agent", request.agent, MAX_NAME_CHARS, problems) or None,
        session_id=_check_text("sessionId", request.session_id, MAX_NAME_CHARS, problems) or None,
        notes=notes,
    )
    if problems:
        raise ValidationError(f"The content was not stored: {_tell(problems)}.")
    return checked


def _tell(problems: Sequence[str]) -> str:
    more = len(problems) - _MAX_PROBLEMS_TOLD
    return "; ".join([*problems[:_MAX_PROBLEMS_TOLD], *([f"and {more} more"] if more > 0 else [])])


def default_options(settings: Settings) -> ChunkOptions:
    """The configured sizes, for a request that names none."""
    return ChunkOptions(
        size=settings.chunk_size_tokens, overlap=settings.chunk_overlap_tokens, minimum=settings.chunk_min_tokens
    )


def refuse_overlap(feed: Feed, other: Feed) -> None:
    """One file belongs to one feed at most.

    Raises:
        ValidationError: the roots are inside one another, or the name belongs to another root.
    """
    if feed.name == other.name:
        if feed.root != other.root:
            raise ValidationError(f"The feed {feed.name!r} is the directory {other.root}. Choose another name.")
        return
    mine, theirs = PurePath(feed.root), PurePath(other.root)
    if mine.is_relative_to(theirs) or theirs.is_relative_to(mine):
        raise ValidationError(
            f"The feed {feed.name!r} ({feed.root}) and the feed {other.name!r} ({other.root}) overlap: a file would "
            "be stored twice. Sync the outer directory alone, or choose directories apart."
        )


def normalise_text(text: str) -> str:
    """Drop one leading BOM, make CRLF and lone CR a line feed; nothing else."""
    return _LINE_ENDS.sub("\n", text.removeprefix("\ufeff"))


def plain_issue(issue: Mapping[str, Any]) -> str:
    """One pydantic issue as words, without the input."""
    name, *inside = issue["loc"] or ("arguments",)
    shown = shorten(_visible(str(name)), _MAX_ARGUMENT_NAME_CHARS)
    if issue["type"] == "extra_forbidden":
        return f"an argument that is not known ({shown})"
    is_place = all(isinstance(part, int) for part in inside)  # the key of an object is the caller's text
    where = "".join(f"[{part}]" for part in inside) if is_place else ""
    return f"{shown}{where}: {str(issue['msg']).removeprefix('Value error, ')}"


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _given(request: StoreContentRequest) -> Iterator[str]:
    """The attributes that the caller sent. None is not sent: an empty text or list clears."""
    by_field = {"title": "title", "uri": "uri", "content_type": "contentType", "tags": "tags", "metadata": "metadata"}
    for field, name in by_field.items():
        if getattr(request, field) is not None:
            yield name


def _check_content(content: str, problems: list[str]) -> str:
    if not content:
        problems.append("content: is empty")
    elif len(content) > MAX_CONTENT_CHARS:
        problems.append(f"content: has {len(content):,} characters, at most {MAX_CONTENT_CHARS:,} are accepted")
    elif (at := content.find("\x00")) >= 0:
        problems.append(f"content: has a NUL (U+0000) at character {at}; remove it")
    elif surrogate := _SURROGATE.search(content):
        problems.append(f"content: has half a surrogate pair at character {surrogate.start()}; encode it as UTF-8 text")
    elif content.isspace():
        problems.append("content: is blank")
    else:
        normalised = normalise_text(content)
        if normalised and not normalised.isspace():
            return normalised
        problems.append("content: is blank")
    return ""


def _check_text(name: str, value: str | None, limit: int, problems: list[str]) -> str | None:
    if value is None:
        return None
    text = value.strip()
    if len(text) > limit:
        problems.append(f"{name}: has {len(text):,} characters, at most {limit:,} are accepted")
    elif bad := _unstorable(value):
        problems.append(f"{name}: {bad}")
    return text


def _unstorable(text: str) -> str | None:
    """Why a text cannot be stored, or None."""
    if (at := text.find("\x00")) >= 0:
        return f"has a NUL (U+0000) at character {at}"
    surrogate = _SURROGATE.search(text)
    return f"has half a surrogate pair at character {surrogate.start()}" if surrogate else None


def _check_source_id(value: str | None, problems: list[str]) -> str | None:
    if value is None or not (text := value.strip()):
        return None
    if len(text) > MAX_SOURCE_ID_CHARS:
        problems.append(f"sourceId: has {len(text):,} characters, at most {MAX_SOURCE_ID_CHARS} are accepted")
    elif not SOURCE_ID_PATTERN.fullmatch(text):
        problems.append("sourceId: must begin with a letter or digit (A-Z, a-z, 0-9), then those and . _ : @ - /")
    return text


def _check_content_type(value: str | None, problems: list[str]) -> ContentType | None:
    if value is None or not value.strip():
        return None
    folded = fold_content_type(value)
    if folded is None:
        problems.append(f"contentType: is not known; accepted are {', '.join(ContentType)}")
    return folded


def _check_tags(tags: Sequence[str], problems: list[str]) -> tuple[str, ...]:
    folded = tuple(dict.fromkeys(tag.strip().lower() for tag in tags))
    if len(folded) > MAX_TAGS:
        problems.append(f"tags: {len(folded)} were given, at most {MAX_TAGS} are accepted")
    for number, tag in enumerate(tags, start=1):
        if not 1 <= len(tag.strip()) <= MAX_TAG_CHARS:
            problems.append(f"tags: number {number} must have 1 to {MAX_TAG_CHARS} characters")
        elif bad := _unstorable(tag):
            problems.append(f"tags: number {number} {bad}")
    return folded


def _check_metadata(metadata: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    found = list(_metadata_problems(metadata, path=(), depth=1))
    if not found:
        length = len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")))
        if length > MAX_METADATA_CHARS:
            found = [f"has {length:,} characters of JSON, at most {MAX_METADATA_CHARS:,} are accepted"]
    problems.extend(f"metadata: {problem}" for problem in found)
    return metadata


def _metadata_problems(value: object, *, path: tuple[str, ...], depth: int) -> Iterator[str]:
    """Walk the value. A path names positions, counted from 1: the keys are the caller's text and are not echoed."""
    where = ", ".join(path)
    if isinstance(value, (Mapping, list, tuple)) and depth > MAX_METADATA_DEPTH:
        yield f"{where}: is deeper than {MAX_METADATA_DEPTH} levels"
    elif isinstance(value, Mapping):
        for number, (key, item) in enumerate(cast("Mapping[object, object]", value).items(), start=1):
            step = (*path, f"key {number}")
            if problem := _key_problem(key):
                yield f"{', '.join(step)}: the name {problem}"
            else:
                yield from _metadata_problems(item, path=step, depth=depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(cast("Sequence[object]", value), start=1):
            yield from _metadata_problems(item, path=(*path, f"item {number}"), depth=depth + 1)
    elif problem := _scalar_problem(value):
        yield f"{where}: the value {problem}"


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str):
        return "is not text"
    if key.startswith("$"):
        return "begins with $"
    if key in _FORBIDDEN_KEYS:
        return f"is one of {', '.join(sorted(_FORBIDDEN_KEYS))}"
    return _unstorable(key)


def _scalar_problem(value: object) -> str | None:
    if isinstance(value, str):
        return _unstorable(value)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        # Compared, not looked up in a range: for a subclass of int (a driver's Int64) a range counts to the value.
        return None if -_INT64_BOUND <= value < _INT64_BOUND else "is an integer beyond 64 bits; store it as text"
    if isinstance(value, float):
        return None if math.isfinite(value) else "is not a finite number"
    return "is not JSON"


def _check_options(
    request: StoreContentRequest, defaults: ChunkOptions, problems: list[str]
) -> tuple[ChunkOptions, tuple[str, ...]]:
    size, overlap, notes = request.chunk_size_tokens, request.chunk_overlap_tokens, ()
    if size is not None and not MIN_CHUNK_SIZE_TOKENS <= size <= MAX_CHUNK_SIZE_TOKENS:
        problems.append(f"chunkSizeTokens: must be {MIN_CHUNK_SIZE_TOKENS} to {MAX_CHUNK_SIZE_TOKENS:,}")
    if overlap is not None and not 0 <= overlap <= MAX_CHUNK_OVERLAP_TOKENS:
        problems.append(f"chunkOverlapTokens: must be 0 to {MAX_CHUNK_OVERLAP_TOKENS:,}")
    if size is None:
        size = defaults.size
    if overlap is None and defaults.overlap >= size:
        overlap = size - 1
        notes = (f"The configured overlap of {defaults.overlap} tokens was lowered to {overlap} to fit the size.",)
    elif overlap is None:
        overlap = defaults.overlap
    if overlap >= size:
        problems.append(f"chunkOverlapTokens: must be below the chunk size, which is {size}")
    return ChunkOptions(size=size, overlap=overlap, minimum=min(defaults.minimum, size)), notes
