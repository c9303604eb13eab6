"""The command line around its commands: one sentence for whatever happens, and the honest exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog

from deployments import cli, cli_app, cli_services
from deployments.cli_services import keep_services_up
from deployments.log_lines import configure_log_lines
from deployments.services import Addresses, Lease, StopReport
from memory_core.errors import ConfigError, ValidationError
from memory_core.settings import Settings, load_settings

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def structlog_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["memory", *arguments])
    return cli_app._run()


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException, log: io.StringIO | None = None) -> None:
    """Let every command fail with the error as soon as it has its settings."""

    def start() -> NoReturn:
        if log:
            configure_log_lines(load_settings(), log)
        raise error

    monkeypatch.setattr(cli, "start_command", start)


def test_ctrl_c_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Whoever interrupts learns that nothing is lost."""
    fail_with(monkeypatch, KeyboardInterrupt())
    assert run(monkeypatch, "list") == 130
    said = capsys.readouterr().err.strip()
    assert said.startswith("memory: Interrupted. What was stored stays stored")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("error", "event"),
    [(ValidationError("The query is empty."), "input.validation_failed"), (ConfigError("Set it."), "config.invalid")],
)
def test_a_refused_command_is_logged(monkeypatch: pytest.MonkeyPatch, error: ValidationError, event: str) -> None:
    """As a warning, under the event of its error."""
    log = io.StringIO()
    fail_with(monkeypatch, error, log)
    assert run(monkeypatch, "list") == 2
    assert f'"event": "{event}"' in log.getvalue()
    assert '"level": "warning"' in log.getvalue()


def test_an_error_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A path in it may hold anything."""
    fail_with(monkeypatch, ValidationError("\x1b[2Jno such file \u202egnp.exe"))
    assert run(monkeypatch, "list") == 2
    assert capsys.readouterr().err == "memory: ·[2Jno such file ·gnp.exe\n"


def test_a_home_that_cannot_be_made_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    """For every command, also for one that needs no service."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMORY_HOME", str(tmp_path / "file" / "home"))
    assert run(monkeypatch, "chunk", str(tmp_path / "file")) == 2
    captured = capsys.readouterr()
    assert "Set MEMORY_HOME to a directory" in captured.err
    assert "Traceback" not in captured.err + captured.out
    assert captured.err.count("\n") == 1


class LostLease(Lease):
    """A lease whose supervisor has ended."""

    def __init__(self) -> None:
        super().__init__(Addresses(), None)


def test_up_ends_when_its_services_have(monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path) -> None:
    """It does not go on saying that everything runs."""

    def acquire(*_arguments: Any, **_options: Any) -> Lease:
        return LostLease()

    def stop(_settings: Settings) -> StopReport:
        raise AssertionError("there is nothing left to stop")

    def leave_signals_alone(*_arguments: Any) -> None:
        """The test runner keeps its own."""

    monkeypatch.setattr(cli_services, "acquire", acquire)
    monkeypatch.setattr(cli_services, "stop", stop)
    monkeypatch.setattr(cli_services.signal, "signal", leave_signals_alone)
    monkeypatch.setattr(cli_services, "_LOOK_SECONDS", 0.001)
    assert keep_services_up(load_settings(MEMORY_HOME=str(tmp_path)), as_json=True) == 1
    assert "were stopped from outside" in capsys.readouterr().err
