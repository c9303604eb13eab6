"""Files as values. In: nothing. Out: what a directory held and what a file said, frozen; nothing is read here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from memory_core.models import ContentType
from memory_core.store_request import MAX_CONTENT_CHARS

# Four bytes a character at most; a file above this cannot be a document of 5,000,000 characters.
MAX_FILE_BYTES = MAX_CONTENT_CHARS * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A file below a root. `path` is POSIX, NFC and relative; `absolute` is what the system opens; size in bytes.

    `ctime_ns` is when the system last changed anything of the file: a copy that keeps size and time of change (`cp -p`,
    `rsync -t`, an archive) shows there. `skip_reason` says in words why the file is not read, None where it is.
    """

    path: str
    absolute: Path
    size: int
    mtime_ns: int
    content_type: ContentType
    skip_reason: str | None = None
    ctime_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryScan:
    """What a root held, by path. `unreadable` are paths that could not be listed: nothing below them counts as gone."""

    files: tuple[ScannedFile, ...]
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """What a file says: `text` without byte order mark and U+0000, line ends as they were. `notes` are sentences.

    `size` in bytes and `mtime_ns` are those of the moment of reading: they belong in the manifest.
    """

    text: str
    encoding: str
    notes: tuple[str, ...]
    size: int
    mtime_ns: int
    ctime_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A file without a single character that is not blank: nothing to remember."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The content is not taken in. `reason` is a phrase for people, with the remedy where there is one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A file that somebody was writing, or took away, while it was read: the next run reads it."""

    reason: str


FileReading: TypeAlias = FileText | Quarantine | Blank | Changed
