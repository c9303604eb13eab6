"""The `memory` command as a user runs it: a process, an environment, an exit code."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from deployments.services import Addresses, Lease, Service, acquire
from memory_core.settings import load_settings

COMMAND_TIMEOUT_SECONDS = 240


@dataclass(frozen=True)
class Memory:
    """One memory on this machine: a home, a database name, and the commands run on them."""

    home: Path
    database: str
    extra: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        """What a command of this memory finds in its environment."""
        return {
            **os.environ,
            "MEMORY_HOME": str(self.home),
            "MONGODB_DB_NAME": self.database,
            "EMBEDDING_PROVIDER": "hash",
            "MEMORY_IDLE_STOP_SECONDS": "600",
            **self.extra,
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and return at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "deployments.cli", *arguments],
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "deployments.cli", *arguments],
            env=self.environment,
            text=True,
            input=stdin,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )

    def run_json(self, *arguments: str, stdin: str | None = None) -> dict[str, Any]:
        """Run a command that must succeed and read the JSON that it prints."""
        done = self.run(*arguments, "--json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def memory(session_home: Path, service_addresses: Addresses) -> Memory:
    """A memory with an empty database of its own on the session's services."""
    assert service_addresses.mongodb_uri is not None
    # The database goes with the session's home.
    return Memory(home=session_home, database=f"test_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def open_database() -> Iterator[Callable[[Memory], Database[dict[str, Any]]]]:
    """Look into a memory's database with the rights that its own commands have."""
    clients: list[MongoClient[dict[str, Any]]] = []
    leases: list[Lease] = []

    def look(memory: Memory) -> Database[dict[str, Any]]:
        settings = load_settings(MEMORY_HOME=memory.home, MONGODB_DB_NAME=memory.database, MEMORY_IDLE_STOP_SECONDS=600)
        lease = acquire(settings, frozenset({Service.MONGODB}), on_progress=lambda _: None)
        leases.append(lease)
        assert lease.addresses.mongodb_uri is not None
        client: MongoClient[dict[str, Any]] = MongoClient(lease.addresses.mongodb_uri.get_secret_value())
        clients.append(client)
        return client[memory.database]

    yield look
    for client in clients:
        client.close()
    for lease in leases:
        lease.release()


@pytest.fixture
def empty_home(discard_home: Callable[[Path], None]) -> Iterator[Path]:
    """A home that nothing was ever started in, with a short path: sockets live below it."""
    home = Path(tempfile.mkdtemp(prefix="memory-empty-"))
    yield home
    discard_home(home)


@pytest.fixture
def write_corpus(tmp_path: Path) -> Callable[[int], Path]:
    """Write a directory of Markdown files, the same on every run: sections, lists, fences, non-Latin words."""

    def write(count: int) -> Path:
        root = tmp_path / "corpus"
        draw = random.Random(7)
        words = "memory agent chunk vector replica 記憶 Überblick lease batch index retry token schema".split()
        for number in range(count):
            folder = root / f"part-{number % 7}"
            folder.mkdir(parents=True, exist_ok=True)
            lines = [f"# Note {number}", ""]
            for section in range(draw.randint(1, 4)):
                lines += [f"## Section {section}", ""]
                for _ in range(draw.randint(1, 5)):
                    lines += [" ".join(draw.choice(words) for _ in range(draw.randint(20, 90))) + ".", ""]
                lines += ["```python", f"value = {draw.random()}", "```", ""]
            (folder / f"note-{number:04}.md").write_text("\n".join(lines), encoding="utf-8")
        return root

    return write
