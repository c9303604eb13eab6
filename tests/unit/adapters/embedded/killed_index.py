"""Run as a program: builds an index in a directory and is killed where the next record would be written."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from memory_core.adapters import embedded_record
from tests.unit.adapters.embedded.mirrored_store import MirroredStore, find_words, open_index


def _kill_this_process(*_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _be_killed(directory: str) -> None:
    """Run in a process of its own: build an index, then die by SIGKILL where the next record would be written."""
    store = MirroredStore()
    store.put("k1", "killed k1")
    index = open_index(Path(directory), store)
    asyncio.run(find_words(index, "killed"))
    embedded_record.write_record = _kill_this_process
    store.put("k2", "killed k2")
    asyncio.run(find_words(index, "killed"))


if __name__ == "__main__":
    _be_killed(sys.argv[1])
