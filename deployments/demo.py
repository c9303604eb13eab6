"""`make demo`. In: this repository's own documents. Out: what a first user sees: a run, three answers, what is next.

It runs the same commands that a person would type, under its own MEMORY_HOME, and stops what it started.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_COMMANDS = ".venv/bin"
_QUESTIONS = (
    "what happens to a document when the process is killed while it is stored",
    "which tokenizer counts the tokens of a chunk",
    "how does a search find what was stored a moment ago",
)
_NEXT = (
    "memory ingest ~/notes",
    'memory search "what did we decide about retries" --limit 3',
    "memory doctor",
)


def main() -> int:
    """Run the demonstration. Returns the exit code of the first command that failed, else 0."""
    home = os.environ.get("MEMORY_HOME", str(_ROOT / ".memory"))
    environment = {**os.environ, "MEMORY_HOME": home}
    commands = [
        ["ingest", ".", "--feed", "demo", "--include", "/docs/**", "--include", "/README.md"],
        *(["search", question, "--limit", "2"] for question in _QUESTIONS),
    ]
    try:
        for arguments in commands:
            code = _run(arguments, environment)
            if code:
                return code
    finally:
        _run(["down"], environment)
    _say("\nThis memory is in " + home + ". To go on with one of your own (in your user's data directory):")
    for line in _NEXT:
        _say(f"  {_COMMANDS}/{line}")
    return 0


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    _say(f"\n$ memory {shlex.join(arguments)}")
    command = [sys.executable, "-m", "deployments.cli", *arguments]
    return subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode  # noqa: S603 - our own program


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
