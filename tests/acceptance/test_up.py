"""`memory up`: everything runs until Ctrl-C, and then nothing does."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.services, pytest.mark.slow]


def test_up_keeps_services_until_ctrl_c_and_loses_nothing(empty_home: Path, memory: Any) -> None:
    """Its addresses answer, other commands share them, Ctrl-C stops them, and what was stored stays."""
    fresh = type(memory)(home=empty_home, database="memory")
    up = fresh.start("up", "--json")
    assert up.stdout is not None
    shown = json.loads(_read_object(up.stdout))
    assert httpx.get(f"{shown['prefectApiUrl']}/health", trust_env=False, timeout=10).status_code == 200
    assert fresh.run_json("store", "-", "--source-id", "kept", stdin="Bees make honey.")["outcome"] == "created"
    up.send_signal(signal.SIGINT)
    _, errors = up.communicate(timeout=60)
    assert up.returncode == 0, errors
    assert "Stopped" in errors
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{shown['prefectApiUrl']}/health", trust_env=False, timeout=10)
    assert fresh.run_json("search", "honey")["hits"][0]["sourceId"] == "kept"
    assert fresh.run("down").returncode == 0


def test_up_ends_when_its_services_are_stopped(empty_home: Path, memory: Any) -> None:
    """It does not go on as if everything ran, and its exit code says so."""
    fresh = type(memory)(home=empty_home, database="memory")
    up = fresh.start("up", "--json")
    assert up.stdout is not None
    _read_object(up.stdout)
    assert fresh.run("down", "--force").returncode == 0
    _, errors = up.communicate(timeout=60)
    assert up.returncode == 1, errors
    assert "were stopped from outside" in errors


def _read_object(stream: Any) -> str:
    """The lines of one JSON document as `print_json` writes it; the process goes on afterwards."""
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if line.startswith("}"):
            break
    return "".join(lines)
