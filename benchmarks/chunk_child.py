"""What `chunk.py` measures in a fresh process of its own. In: a job's words. Out: one line of JSON.

`peak SIZE [FILE TYPE LANGUAGE]` cuts the file's text and prints the peak memory of this process; without a file it only
loads the tokenizer. `peer SIZE FILE SPLITTER` prints `ready`, waits for a line, and prints the seconds of one cut.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkOptions
from memory_core.models import ContentType

_STATUS = Path("/proc/self/status")
_BYTES_PER_KB = 1024


def main() -> None:
    """Run the one job that the command line names."""
    match sys.argv[1:]:
        case ["peak", size]:
            load_tiktoken_counter().count("The vocabulary is loaded by the first count.")
        case ["peak", size, file, content_type, language]:
            options = ChunkOptions(size=int(size), language=language)
            chunk_content(Path(file).read_bytes().decode(), ContentType(content_type), options, load_tiktoken_counter())
        case ["peer", size, file, splitter]:
            time_peer(int(size), Path(file), splitter)
            return
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(read_peak_bytes()))


def read_peak_bytes() -> int:
    """The most that this process ever held. On Linux `ru_maxrss` will not do: it begins with the parent's memory."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * _BYTES_PER_KB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS says bytes


def time_peer(size: int, file: Path, name: str) -> None:
    """One cut by another project's splitter; the parent ends this process where it takes too long."""
    from chunk_peers import peer_splitters  # noqa: PLC0415 - a process that measures our memory loads no others
    from chunk_texts import Text  # noqa: PLC0415 - only this job has a text

    splitter = next(peer for peer in peer_splitters(size) if peer.name == name)
    text = Text(file.read_bytes().decode())
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    splitter.cut(text)
    print(json.dumps(time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
