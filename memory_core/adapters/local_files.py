"""FileReader on this machine's files. In: feeds and paths. Out: what is there, read in a thread; writes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from memory_core.adapters.file_readers import read_text_file, scan_directory
from memory_core.files import DirectoryScan, FileReading
from memory_core.work_ports import Feed


class LocalFiles:
    """See FileReader. What `memory_home` holds is no part of a feed."""

    def __init__(self, *, memory_home: Path | None = None) -> None:
        self._memory_home = memory_home

    async def scan(self, feed: Feed) -> DirectoryScan:
        """See FileReader."""
        return await asyncio.to_thread(
            scan_directory,
            Path(feed.root),
            include=feed.include,
            exclude=feed.exclude,
            memory_home=self._memory_home,
        )

    async def read(self, path: Path, *, max_bytes: int) -> FileReading:
        """See FileReader."""
        return await asyncio.to_thread(read_text_file, path, max_bytes=max_bytes)
