"""Log lines: one JSON object each, scrubbed to the last leaf, silent where that is asked for."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from deployments.log_lines import LOG_FILE_LIMIT_BYTES, configure_log_lines, drop_log_lines, open_log_file
from memory_core import errors
from memory_core.errors import ConfigError, StorageError, register_secret
from memory_core.settings import LogLevel, Settings, load_settings

URI = "mongodb://ann:hunter2@db.example.org/"


@pytest.fixture(autouse=True)
def structlog_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(errors, "_known_secrets", set[str]())
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def settings_of(home: Path, **more: Any) -> Settings:
    return load_settings(MEMORY_HOME=str(home), **more)


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_object_with_level_time_and_fields(tmp_path: Path) -> None:
    """In UTC."""
    stream = io.StringIO()
    configure_log_lines(settings_of(tmp_path), stream)
    structlog.get_logger("x").warning("lease.lost", feed="docs", pid=7, ok=True, none=None)
    (line,) = lines_of(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "lease.lost", "level": "warning", "feed": "docs", "pid": 7, "ok": True, "none": None}


def test_no_secret_reaches_a_line_however_deep_it_lies(tmp_path: Path) -> None:
    """In texts, lists, objects, errors and tracebacks."""
    register_secret("correct-horse")
    stream = io.StringIO()
    configure_log_lines(settings_of(tmp_path), stream)
    log = structlog.get_logger("x")
    path = Path("/data/correct-horse")
    log.error(URI, text=URI, items=[{"deep": (URI, {"correct-horse"})}], error=ValueError(URI), path=path)
    error = StorageError("refused")
    error.__cause__ = ValueError(f"{URI} correct-horse")
    log.error("storage.failed", exc_info=error)
    assert len(lines_of(stream)) == 2
    assert "direct cause" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()
    assert "correct-horse" not in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (LogLevel.TRACE, ["debug", "info", "warning", "error", "critical"]),
        (LogLevel.DEBUG, ["debug", "info", "warning", "error", "critical"]),
        (LogLevel.INFO, ["info", "warning", "error", "critical"]),
        (LogLevel.WARN, ["warning", "error", "critical"]),
        (LogLevel.ERROR, ["error", "critical"]),
        (LogLevel.FATAL, ["critical"]),
        (LogLevel.SILENT, []),
    ],
)
def test_a_level_lets_through_what_is_as_grave(tmp_path: Path, level: LogLevel, expected: list[str]) -> None:
    """And silent is silent."""
    stream = io.StringIO()
    configure_log_lines(settings_of(tmp_path, LOG_LEVEL=level.value), stream)
    log = structlog.get_logger("x")
    for name in ("debug", "info", "warning", "error", "critical"):
        getattr(log, name)("event")
    assert [line["level"] for line in lines_of(stream)] == expected


def test_pretty_lines_are_for_people(tmp_path: Path) -> None:
    """Without colours where nobody sees them, and scrubbed as well."""
    stream = io.StringIO()
    configure_log_lines(settings_of(tmp_path, LOG_PRETTY="yes"), stream)
    structlog.get_logger("x").info("mongo.connected", uri=URI)
    assert "mongo.connected" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_log_file_lies_in_the_home_and_is_appended(tmp_path: Path) -> None:
    """In a directory that only its owner enters."""
    settings = settings_of(tmp_path / "home")
    for text in ("one\n", "two \udc80\n"):
        with open_log_file(settings) as stream:
            stream.write(text)
    path = tmp_path / "home" / "logs" / "memory.log"
    assert path.read_text(encoding="utf-8") == "one\ntwo \\udc80\n"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_large_log_file_is_set_aside(tmp_path: Path) -> None:
    """One older file is kept."""
    logs = tmp_path / "logs"
    logs.mkdir()
    with (logs / "memory.log").open("wb") as file:
        file.truncate(LOG_FILE_LIMIT_BYTES + 1)
    open_log_file(settings_of(tmp_path)).close()
    assert (logs / "memory.log").stat().st_size == 0
    assert (logs / "memory.log.1").stat().st_size == LOG_FILE_LIMIT_BYTES + 1


def test_a_home_that_cannot_be_written_is_a_setting_to_correct(tmp_path: Path) -> None:
    """Not a defect: the sentence names the variable and what the system said."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"MEMORY_HOME .* cannot be written: .*\. Set MEMORY_HOME to"):
        open_log_file(settings_of(tmp_path / "file" / "home"))


def test_nothing_is_written_before_the_settings_say_where(capsys: pytest.CaptureFixture[str]) -> None:
    """A line must not get between a command's answer and the program that reads it."""
    drop_log_lines()
    structlog.get_logger("x").error("internal.error", traceback="long")
    assert capsys.readouterr() == ("", "")
