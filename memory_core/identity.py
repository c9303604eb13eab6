"""Who a document is: content type, title and source id. In: what a caller gave. Out: names. Pure, linear, no I/O."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from html import unescape

from memory_core.models import ContentType
from memory_core.store_request import MAX_SOURCE_ID_CHARS

SOURCE_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]*")
SLUG_CHARS = 96
TITLE_CHARS = 200

_TITLE_WINDOW_CHARS = 8_192
_SUFFIX_HEX_DIGITS = 8
_LOOKS_SUFFIXED = re.compile(rf"-[0-9a-f]{{{_SUFFIX_HEX_DIGITS}}}$")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9._:@/-]+")
_HYPHENS = re.compile(r"-{2,}")
_SLUG_EDGES = "._:@/-"
_HTML_TITLE = re.compile(r"<(title|h1)\b[^<>]{0,200}>([^<]{1,400})</", re.IGNORECASE)
_FENCE_MARKS = ("```", "~~~")

_ALIASES: dict[str, ContentType] = {
    **{one.value: one for one in ContentType},
    **dict.fromkeys(("md", "mkd", "text/markdown"), ContentType.MARKDOWN),
    **dict.fromkeys(("txt", "plain", "plaintext", "text/plain"), ContentType.TEXT),
    **dict.fromkeys(("htm", "text/html"), ContentType.HTML),
    **dict.fromkeys(("application/json", "text/json", "jsonl", "ndjson"), ContentType.JSON),
    **dict.fromkeys(
        ("source", "sourcecode", "javascript", "typescript", "python", "shell", "sh", "sql"), ContentType.CODE
    ),
    **dict.fromkeys(("text/x-rst", "restructuredtext", "text/prs.fallenstein.rst"), ContentType.RST),
    **dict.fromkeys(("text/csv", "tsv"), ContentType.CSV),
}


def fold_content_type(text: str) -> ContentType | None:
    """The content type that a name or MIME type means, or None. Parameters (`;charset=...`) and `x-` are dropped."""
    folded = text.strip().lower().partition(";")[0].strip()
    subtype = folded.rpartition("/")[2].removeprefix("x-")
    return _ALIASES.get(folded) or (_ALIASES.get(subtype) if "/" in folded else None)


def derive_source_id(*, uri: str | None, title: str | None, content_hash: str) -> str:
    """An id from the uri, else the title, else the hash; with a hash of its origin where the slug lost something."""
    for origin in (uri, title):
        if origin and (slug := _slug(origin)):
            # A text that itself ends like a suffixed id gets one of its own: else it could be taken for another's.
            return slug if slug == origin and not _LOOKS_SUFFIXED.search(slug) else with_suffix(slug, origin)
    return f"sha256:{content_hash[:16]}"


def is_source_id(text: str) -> bool:
    """True for at most 256 ASCII letters, digits and . _ : @ - /, the first a letter or digit."""
    return len(text) <= MAX_SOURCE_ID_CHARS and SOURCE_ID_PATTERN.fullmatch(text) is not None


def with_suffix(source_id: str, origin: str) -> str:
    """The id with 8 hex digits of the origin's hash, within the limit."""
    digits = hashlib.sha256(origin.encode()).hexdigest()[:_SUFFIX_HEX_DIGITS]
    return f"{source_id[: MAX_SOURCE_ID_CHARS - _SUFFIX_HEX_DIGITS - 1]}-{digits}"


def _slug(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text).lower()
    ascii_only = _NOT_IN_SLUG.sub("-", "".join(c for c in folded if not unicodedata.combining(c)))
    return _HYPHENS.sub("-", ascii_only)[:SLUG_CHARS].strip(_SLUG_EDGES)


def derive_title(content: str, content_type: ContentType, *, fallback: str, file_name: str = "") -> str:
    """A title from the first 8,192 characters, else the fallback; white space collapsed, at most 200 characters.

    A Markdown file whose first heading has siblings ("Summary", "Motivation", ...) has no heading that names it: then
    its file's name does (decision 0011).
    """
    window = content[:_TITLE_WINDOW_CHARS]
    match content_type:
        case ContentType.MARKDOWN:
            found = _markdown_title(window, file_name)
        case ContentType.HTML:
            tagged = _HTML_TITLE.search(window)
            found = unescape(tagged[2]) if tagged else ""
        case ContentType.TEXT | ContentType.RST:
            found = _first_line(window.splitlines())
        case ContentType.CODE | ContentType.JSON | ContentType.CSV:
            found = ""  # a brace, a comment or a header row is no title
    return shorten(" ".join(found.split()) or fallback)


def shorten(text: str, limit: int = TITLE_CHARS) -> str:
    """The text, cut with an ellipsis where it is longer than the limit."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _markdown_title(window: str, file_name: str) -> str:
    """The heading that names the document, else its file, else the first line with a word in it."""
    lines = _without_front_matter(window.splitlines())
    headings = list(_headings(lines))
    stem = file_name.rpartition(".")[0] or file_name
    if not headings:
        return stem or _first_line(lines)
    level, first = headings[0]
    has_siblings = any(other <= level for other, _ in headings[1:])
    return stem if stem and has_siblings else first


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The ATX headings outside fences: level and text."""
    fence = ""
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(_FENCE_MARKS):
            fence = "" if fence and stripped.startswith(fence) else (fence or stripped[:3])
        elif not fence and (text := _heading_text(line)):
            yield len(stripped) - len(stripped.lstrip("#")), text


def _without_front_matter(lines: list[str]) -> list[str]:
    if lines and lines[0].rstrip() == "---" and len(lines) > 1 and ":" in lines[1]:
        for number, line in enumerate(lines[1:], start=1):
            if line.rstrip() in {"---", "..."}:
                return lines[number + 1 :]
    return lines


def _heading_text(line: str) -> str:
    stripped = line.lstrip(" ")
    marks = len(stripped) - len(stripped.lstrip("#"))
    rest = stripped[marks:]
    if not 1 <= marks <= 6 or len(line) - len(stripped) > 3 or rest[:1] not in {" ", "\t"}:  # noqa: PLR2004 - CommonMark
        return ""
    text = rest.strip()
    closing = text.rstrip("#")
    return closing.rstrip() if closing != text and closing.endswith((" ", "\t")) else text


def _first_line(lines: list[str]) -> str:
    return next((line for line in lines if any(c.isalnum() for c in line)), "")
