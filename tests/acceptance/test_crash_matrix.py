"""Writers that are killed at any moment, also with their server: nothing acknowledged is lost, nothing is ever mixed.

`benchmarks/crash.py` does the killing and the checking, on a mongod of its own; here it runs for a short time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TIME_LIMIT_SECONDS = 240
NOTHING_WRONG = (
    "0 mixed documents, 0 lost acknowledged stores, 0 duplicates, 0 orphan chunks, 0 orphan bodies, 0 missing bodies"
)


def _kill_writers(mode: str, kills: int) -> str:
    """Run the command to its end and return what it prints."""
    command = [sys.executable, "benchmarks/crash.py", "--mode", mode, "--kills", str(kills)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as run:
        try:
            printed, _ = run.communicate(timeout=TIME_LIMIT_SECONDS)
        finally:
            run.terminate()  # it ends its server then
    assert run.returncode == 0, printed
    return printed


@pytest.mark.parametrize(("mode", "kills"), [("replica-set", 20), ("stand-alone", 6)])
def test_killed_writers_lose_and_mix_nothing(mode: str, kills: int) -> None:
    """SIGKILL of the writer again and again, of mongod and of all connections in between; a reader looks on."""
    *_, counts, wrong = _kill_writers(mode, kills).splitlines()
    assert wrong == NOTHING_WRONG
    assert f" {kills} kills," in counts
    assert "kills of mongod" in counts
    assert "cut connections" in counts
