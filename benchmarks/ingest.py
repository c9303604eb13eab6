"""How long a directory run takes, against the bare work inside it. Usage: python benchmarks/ingest.py DIRECTORY.

Runs `memory ingest` twice on an empty home whose services already run, and in the same minutes the embedder alone on
the same texts. Prints ratios, and exits 1 where a bar of the project is missed: the second run takes at most 3 s and
reads no content, the client stays below 700 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from deployments.services import Service, acquire, stop
from memory_core.bootstrap import build_core
from memory_core.context import embedding_input
from memory_core.settings import Settings, load_settings

SECOND_RUN_SECONDS = 3.0
CLIENT_PEAK_MB = 700


def main() -> int:
    """Measure and print. Returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--provider", choices=["local", "hash"], default="local")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as home:
        settings = load_settings(MEMORY_HOME=Path(home), EMBEDDING_PROVIDER=options.provider)
        try:
            with acquire(settings, frozenset(Service), on_progress=print) as lease:
                assert lease.addresses.mongodb_uri is not None
                figures = measure(settings, lease.addresses.mongodb_uri.get_secret_value(), options.directory)
        finally:
            stop(settings, force=True)
    missed = [name for name, bar in BARS.items() if figures[name] > bar]
    print(json.dumps(figures, indent=2))
    print(f"missed: {', '.join(missed)}" if missed else "every bar is met")
    return 1 if missed else 0


BARS = {"second_run_seconds": SECOND_RUN_SECONDS, "client_peak_mb": CLIENT_PEAK_MB}


def measure(settings: Settings, uri: str, directory: Path) -> dict[str, float]:
    """All figures of one minute: seconds unless the name says otherwise."""
    environment = {
        **os.environ,
        "MEMORY_HOME": str(settings.memory_home),
        "EMBEDDING_PROVIDER": settings.embedding_provider.value,
    }
    first_seconds, first = ingest(directory, environment)
    second_seconds, second = ingest(directory, environment)
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    assert first["failed"] == 0, "a file failed: the figures would mean nothing"
    assert second["unchanged"] == first["created"], "the second run did something: the figures would mean nothing"
    embed_seconds = asyncio.run(embed_alone(settings, uri))
    return {
        "files": float(first["created"]),
        "chunks": float(first["chunks"]),
        "first_run_seconds": round(first_seconds, 2),
        "embedder_alone_seconds": round(embed_seconds, 2),
        "first_run_over_embedder": round(first_seconds / embed_seconds, 2),
        "second_run_seconds": round(second_seconds, 2),
        "second_run_over_first": round(second_seconds / first_seconds, 4),
        "client_peak_mb": round(peak_mb),
    }


def ingest(directory: Path, environment: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """One `memory ingest`: its wall time and its report."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "deployments.cli", "ingest", str(directory), "--json"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - started, json.loads(done.stdout)


async def embed_alone(settings: Settings, uri: str) -> float:
    """The embedder on the very texts that the run embedded, and nothing else."""
    client: MongoClient[dict[str, Any]] = MongoClient(uri)
    rows = client[settings.mongodb_db_name].chunks.find({}, {"text": 1, "context": 1})
    texts = [embedding_input(row["context"], row["text"]) for row in rows]
    client.close()
    core = build_core(settings, mongodb_uri=uri)
    started = time.perf_counter()
    for begin in range(0, len(texts), 400):
        await core.embedder.embed([texts[begin : begin + 400]], kind="document")
    seconds = time.perf_counter() - started
    await core.close()
    return seconds


if __name__ == "__main__":
    sys.exit(main())
