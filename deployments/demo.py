"""`make demo`. In: this repository's own documents. Out: what a first user sees: a run, three answers, what is next.

It runs the same commands that a person would type, under its own MEMORY_HOME, and stops what it started. No setting of
the user's reaches it: with a MONGODB_URI or a `.env` it would write into a database that somebody works with.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from memory_core.settings import Settings

_ROOT = Path(__file__).parents[1]
_COMMANDS = ".venv/bin"
# What is said about the machine stays: where files may lie, and which program is the database.
_KEPT_VARIABLES = frozenset({"MEMORY_HOME", "MEMORY_MONGOD", "MEMORY_MONGOD_CACHE_GB"})
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
    home = str(Path(os.environ.get("MEMORY_HOME") or _ROOT / ".memory").absolute())
    environment = own_environment(os.environ, home=home)
    commands = [
        ["ingest", str(_ROOT), "--feed", "demo", "--include", "/docs/**", "--include", "/README.md"],
        *(["search", question, "--limit", "2"] for question in _QUESTIONS),
    ]
    with tempfile.TemporaryDirectory() as directory:  # without a .env
        try:
            for arguments in commands:
                code = _run(arguments, environment, directory)
                if code:
                    return code
        finally:
            _run(["down"], environment, directory)
    _say("\nThis memory is in " + home + ". To go on with one of your own (in your user's data directory):")
    for line in _NEXT:
        _say(f"  {_COMMANDS}/{line}")
    return 0


def own_environment(present: Mapping[str, str], *, home: str) -> dict[str, str]:
    """The environment of the demonstration's commands: the user's, without any setting of a memory or of Prefect."""
    return {**{name: value for name, value in present.items() if not _is_setting(name)}, "MEMORY_HOME": home}


def _is_setting(variable: str) -> bool:
    name = variable.upper()  # settings are read in any case
    settings = {spec.alias for spec in Settings.model_fields.values()} - _KEPT_VARIABLES
    return name in settings or name.startswith("PREFECT_")


def _run(arguments: list[str], environment: dict[str, str], directory: str) -> int:
    _say(f"\n$ memory {shlex.join(arguments)}")
    command = [sys.executable, "-m", "deployments.cli", *arguments]
    return subprocess.run(  # noqa: S603 - our own program
        command, cwd=directory, env=environment, check=False
    ).returncode


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
