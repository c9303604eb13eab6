"""Our log lines. In: settings and where to write. Out: JSON lines, scrubbed; never content, vectors or tokens.

The command line writes them to a file below MEMORY_HOME: its standard error belongs to the person who reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from memory_core.errors import ConfigError, scrub
from memory_core.settings import LogLevel, Settings

LOG_FILE_LIMIT_BYTES = 10_000_000

_LEVELS = {
    LogLevel.FATAL: logging.CRITICAL,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARN: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: logging.DEBUG,
}


def drop_log_lines() -> None:
    """Write nowhere, until the settings say where: structlog's own default is standard output."""
    structlog.configure(processors=[_drop], logger_factory=structlog.ReturnLoggerFactory())


def configure_log_lines(settings: Settings, stream: TextIO) -> None:
    """Send every line of this process to the stream."""
    renderer = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty())
        if settings.log_pretty
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            *([_drop] if settings.log_level is LogLevel.SILENT else []),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _scrub_values,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(settings.log_level, logging.CRITICAL)),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )


def _drop(_logger: object, _method: str, _event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Silent: structlog knows no level above critical."""
    raise structlog.DropEvent


def open_log_file(settings: Settings) -> TextIO:
    """Append to `MEMORY_HOME/logs/memory.log`; a file above 10 MB is set aside first.

    Raises:
        ConfigError: MEMORY_HOME is a place where nothing can be written.
    """
    path: Path = settings.memory_home / "logs" / "memory.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and path.stat().st_size > LOG_FILE_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        # A path of the system may hold bytes that are no text; a line about it must not end the run.
        return path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(
            f"MEMORY_HOME ({settings.memory_home}) cannot be written: {reason}. Set MEMORY_HOME to a directory that "
            "you can write to, or make room there.",
            cause=error,
        ) from None


def _scrub_values(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        event[key] = _scrubbed(value)
    return event


def _scrubbed(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _scrubbed(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_scrubbed(item) for item in cast("Iterable[object]", value)]
    return scrub(str(value))
