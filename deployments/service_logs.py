"""What servers write. In: a log and an exit code. Out: its last lines, and one error that says what failed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, cast

from memory_core.errors import ServiceError

_TAIL_LINES = 8
_TAIL_BYTES = 65_536
_LINE_CHARS = 300
_ROTATE_BYTES = 8_388_608

# What a log says when a server cannot start, and what helps.
_REMEDIES = (
    ("libcurl.so.4", "Install the system library: `apt-get install libcurl4` on Debian and Ubuntu."),
    ("libssl.so.3", "Install the system library: `apt-get install libssl3` on Debian and Ubuntu."),
    ("libcrypto.so.3", "Install the system library: `apt-get install libssl3` on Debian and Ubuntu."),
    ("error while loading shared libraries", "Install the library that the log names."),
    ("GLIBC_", "This system is older than the packaged server: set MONGODB_URI to a MongoDB that runs elsewhere."),
    ("No space left on device", "Free space on the disk of MEMORY_HOME and try again."),
    ("UPGRADE PROBLEM", "These files were written by another MongoDB: use its version (MEMORY_MONGOD)."),
    ("user does not exist", "PostgreSQL needs this user in /etc/passwd: add it there, or set PREFECT_API_URL."),
    ("Permission denied", "Give the user who runs this the files under MEMORY_HOME."),
)
_REMEDY_OF_SIGNAL = {
    signal.SIGILL: "This processor lacks instructions (AVX) that MongoDB needs: set MONGODB_URI to one elsewhere.",
    signal.SIGKILL: "The system killed it, mostly for want of memory: lower MEMORY_MONGOD_CACHE_GB or free memory.",
}
_DEFAULT_REMEDY = "Read the log for the cause; `memory doctor` shows what else is wrong."


def rotate(log: Path) -> int:
    """Begin a new log when the old one is long; returns where the next lines begin, in bytes."""
    size = log.stat().st_size if log.exists() else 0
    if size > _ROTATE_BYTES:
        log.replace(log.with_suffix(".log.1"))
        return 0
    return size


def read_tail(log: Path, *, start: int = 0) -> list[str]:
    """The last lines that were written since `start` (bytes)."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def describe_failure(
    title: str, what: str, *, lines: list[str], code: int | None = None, log: Path | None = None
) -> ServiceError:
    """An error that says what happened, quotes the most telling of the last lines and names what helps."""
    said = [plain for plain in map(_plain_line, lines) if plain]
    serious = [plain for line, plain in zip(lines, map(_plain_line, lines), strict=True) if plain and _is_serious(line)]
    shown = (serious or said)[-_TAIL_LINES:]
    ended = "" if code is None else f" ({_say_code(code)})"
    where = f" Its log {log} ends with:" if log else " It said:"
    quoted = f"{where}\n  " + "\n  ".join(shown) + "\n" if shown else " It said nothing. "
    remedy = _find_remedy("\n".join(lines), code)
    return ServiceError(f"{title} {what}{ended}.{quoted}{remedy}")


def _say_code(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _find_remedy(text: str, code: int | None) -> str:
    found = next((remedy for pattern, remedy in _REMEDIES if pattern in text), None)
    by_signal = _REMEDY_OF_SIGNAL.get(signal.Signals(-code)) if code is not None and code < 0 else None
    return found or by_signal or _DEFAULT_REMEDY


def _plain_line(line: str) -> str:
    """A log line for people: of mongod's JSON the message and its error, of others the line itself."""
    text = line.strip()
    if text.startswith('{"t":'):
        try:
            entry = cast("dict[str, Any]", json.loads(text))
        except ValueError:
            return text[:_LINE_CHARS]
        attributes = cast("dict[str, Any]", entry.get("attr") or {})
        detail: Any = attributes.get("error") or attributes.get("reason") or ""
        text = f"{entry.get('msg', '')} {detail if isinstance(detail, str) else json.dumps(detail)}".strip()
    return text[:_LINE_CHARS]


def _is_serious(line: str) -> bool:
    return any(mark in line for mark in ('"s":"E"', '"s":"F"', "FATAL", "PANIC", " error: "))
