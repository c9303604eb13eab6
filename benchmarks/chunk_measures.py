"""Texts in, seconds and bytes out: how each splitter is timed, side by side, and how memory is measured.

Seconds are wall time, the best of several; what is compared runs in turns, so a busy moment meets all of it.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chunk_peers import BARE, OURS, Splitter, bare_pass, our_splitter, peer_splitters
from chunk_texts import Text

_CHILD = Path(__file__).with_name("chunk_child.py")
# Others are quadratic on some of these: they get a slice, and so long for it.
_PEER_CHARS = 100_000
_PEER_SECONDS = 5.0
_CHILD_SECONDS = 600.0
_BYTES_PER_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `over_normal` is our time per character over that on normal text."""

    name: str
    chars: int
    text_bytes: int
    seconds_per_mb: Mapping[str, float]
    remarks: Mapping[str, str] = field(default_factory=dict[str, str])
    over_normal: float | None = None
    peak_bytes: int | None = None


def measure_normal(name: str, texts: Sequence[Text], size: int, *, repeats: int) -> Figure:
    """Everybody on the same texts, in this process."""
    splitters = (bare_pass(), our_splitter(size), *peer_splitters(size))
    seconds = time_in_turns({one.name: cut_all(one, texts) for one in splitters}, repeats)
    text_bytes = count_bytes(texts)
    return Figure(
        name=name,
        chars=sum(len(text.content) for text in texts),
        text_bytes=text_bytes,
        seconds_per_mb={key: value / text_bytes * _BYTES_PER_MB for key, value in seconds.items()},
    )


def measure_hostile(
    name: str, text: Text, yardstick: Sequence[Text], size: int, *, folder: Path, repeats: int
) -> Figure:
    """Ours and the pass on all of it, ours on normal text in turns with them; the others on a slice; our memory."""
    ours = our_splitter(size)
    work = {OURS: cut_all(ours, [text]), "normal": cut_all(ours, yardstick)}
    remarks: dict[str, str] = {}
    if passes := can_tokenize(text):
        work[BARE] = cut_all(bare_pass(), [text])
    else:
        remarks[BARE] = "fails"
    seconds = time_in_turns(work, repeats)
    normal_chars = sum(len(one.content) for one in yardstick)
    over_normal = (seconds[OURS] / len(text.content)) / (seconds["normal"] / normal_chars)
    text_bytes = count_bytes([text])
    per_mb = {key: seconds[key] / text_bytes * _BYTES_PER_MB for key in ((BARE, OURS) if passes else (OURS,))}
    part = Text(text.content[:_PEER_CHARS], text.content_type, text.language)
    for peer in peer_splitters(size):
        taken = time_peer(peer.name, part, size, folder)
        if taken is None:
            remarks[peer.name] = f"over {_PEER_SECONDS / count_bytes([part]) * _BYTES_PER_MB:.0f}"
        else:
            per_mb[peer.name] = taken / count_bytes([part]) * _BYTES_PER_MB
    return Figure(
        name=name,
        chars=len(text.content),
        text_bytes=text_bytes,
        seconds_per_mb=per_mb,
        remarks=remarks,
        over_normal=over_normal,
        peak_bytes=measure_peak(size, text, folder),
    )


def time_in_turns(work: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best seconds of each, all of them run once a turn."""
    best = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for name, run in work.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def cut_all(splitter: Splitter, texts: Sequence[Text]) -> Callable[[], object]:
    """One cut of each text, nothing kept."""

    def run() -> None:
        for text in texts:
            splitter.cut(text)

    return run


def can_tokenize(text: Text) -> bool:
    """Whether tiktoken alone gets through: it gives up on a million blanks in a row that something follows."""
    try:
        bare_pass().cut(text)
    except ValueError:
        return False
    return True


def time_peer(name: str, text: Text, size: int, folder: Path) -> float | None:
    """Seconds of one cut in a process of its own; None where the time limit ended it."""
    file = write(text, folder)
    command = [sys.executable, str(_CHILD), "peer", str(size), str(file), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n", "a child that cannot load its splitter says why above"
        child.stdin.write("\n")
        child.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(child.stdout, selectors.EVENT_READ)
            answered = waiting.select(_PEER_SECONDS)
        if not answered:
            child.kill()
            return None
        return float(json.loads(child.stdout.readline()))


def measure_peak(size: int, text: Text | None = None, folder: Path | None = None) -> int:
    """Bytes that a fresh process held at most while it cut the text; without one, after it loaded the tokenizer."""
    command = [sys.executable, str(_CHILD), "peak", str(size)]
    if text is not None:
        assert folder is not None
        command += [str(write(text, folder)), text.content_type.value, text.language]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_CHILD_SECONDS)
    return int(json.loads(done.stdout))


def write(text: Text, folder: Path) -> Path:
    """The text in a file, for a child to read."""
    file = folder / "text"
    file.write_bytes(text.content.encode())
    return file


def count_bytes(texts: Sequence[Text]) -> int:
    """The bytes of the texts in UTF-8."""
    return sum(len(text.content.encode()) for text in texts)
