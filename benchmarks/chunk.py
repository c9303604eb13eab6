"""How fast and how light the chunker is, against a bare tokenizer pass and other splitters. Usage: `make bench-chunk`.

Cuts the RFC corpus, 10 MB of Python code and hostile inputs of 5,000,000 characters at 400 tokens. All of one line of
the table is measured in the same seconds, in turns, best of several: the ratios hold on a busy machine. Other splitters
get a slice of a hostile input, in a process of their own that ends with a time limit. Peak memory is that of a fresh
process, the interpreter and the vocabulary included. Exits 1 where a bar of the project is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from chunk_measures import Figure, measure_hostile, measure_normal, measure_peak
from chunk_peers import BARE, NO_TOKENS, OURS, peer_splitters
from chunk_texts import HOSTILE, Text, find_corpora, read_code, read_rfcs
from rich.console import Console
from rich.progress import track
from rich.table import Table

SIZE = 400
CODE_BYTES = 10_000_000
HOSTILE_CHARS = 5_000_000
MAX_OVER_PASS = 2.5
MAX_OVER_NORMAL = 3.0
PARSED = "Python code, parsed"
MAX_PEAK_OVER_BYTES = 12
PEAK_ALWAYS_ALLOWED_BYTES = 200_000_000

Verdict = tuple[bool, str]


def main() -> int:
    """Measure and print. Returns 1 where a bar is missed."""
    options = read_options()
    console = Console() if sys.stdout.isatty() else Console(width=190)
    rfcs = read_rfcs(find_corpora())
    normal: list[Figure] = []
    hostile: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        if not options.only:
            code = read_code(CODE_BYTES)
            # As the others cut it, by lines; and with its grammar, which none of them has.
            texts = {"RFC corpus": rfcs, "Python code": [replace(one, language="") for one in code], PARSED: code}
            normal = [measure_normal(name, those, SIZE, repeats=options.repeats) for name, those in texts.items()]
        yardstick = take(rfcs, options.chars)
        base_bytes = measure_peak(SIZE)
        for name in track(options.only or HOSTILE, "hostile inputs", console=Console(stderr=True)):
            text = HOSTILE[name].text(options.chars)
            hostile.append(measure_hostile(name, text, yardstick, SIZE, folder=Path(folder), repeats=options.repeats))
    report(console, normal, hostile, base_bytes)
    verdicts = [*judge_normal(normal), *judge_hostile(hostile)]
    for met, sentence in verdicts:
        console.print(f"{'met    ' if met else 'not met'}  {sentence}", highlight=False)
    return 0 if all(met for met, _ in verdicts) else 1


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, of which the best counts")
    parser.add_argument("--chars", type=int, default=HOSTILE_CHARS, help="length of a hostile input")
    parser.add_argument("--only", nargs="+", choices=HOSTILE, metavar="INPUT", help="only these hostile inputs")
    return parser.parse_args()


def take(texts: Sequence[Text], chars: int) -> list[Text]:
    """The first texts that together have so many characters."""
    taken: list[Text] = []
    for text in texts:
        if sum(len(one.content) for one in taken) >= chars:
            break
        taken.append(text)
    return taken


def report(console: Console, normal: Sequence[Figure], hostile: Sequence[Figure], base_bytes: int) -> None:
    """A line a text. Memory of a hostile input is given beside that of a process which only loaded the tokenizer."""
    peers = [peer.name for peer in peer_splitters(SIZE)]
    table = Table(title=f"{SIZE} tokens; seconds per MB (UTF-8), in brackets over the bare tiktoken pass")
    table.add_column("text")
    for heading in ("Mchar", "MB", BARE, OURS, *peers, "per char over RFC", "peak MB", "over bytes"):
        table.add_column(heading, justify="right")
    for figure in (*normal, *hostile):
        peak = figure.peak_bytes
        table.add_row(
            figure.name,
            f"{figure.chars / 1e6:.2f}",
            f"{figure.text_bytes / 1e6:.2f}",
            *(show_seconds(figure, name) for name in (BARE, OURS, *peers)),
            f"{figure.over_normal:.2f}" if figure.over_normal else "",
            f"{peak / 1e6:.0f}" if peak else "",
            f"{peak / figure.text_bytes:.1f}" if peak else "",
        )
    console.print(table, highlight=False)
    console.print(f"A process that only loaded the tokenizer has a peak of {base_bytes / 1e6:.0f} MB.", highlight=False)


def show_seconds(figure: Figure, name: str) -> str:
    """Seconds per MB and the ratio, or why there are none."""
    seconds = figure.seconds_per_mb.get(name)
    if seconds is None:
        return figure.remarks.get(name, "")
    bare = figure.seconds_per_mb.get(BARE)
    return f"{seconds:.3f}" if bare is None or name == BARE else f"{seconds:.3f} ({seconds / bare:.1f})"


def judge_normal(figures: Sequence[Figure]) -> list[Verdict]:
    """Within a multiple of the bare pass, and ahead of every splitter that counts tokens."""
    verdicts: list[Verdict] = []
    # A parse costs more than a tokenizer pass: shown, and not judged by it.
    for figure in (figure for figure in figures if figure.name != PARSED):
        ours, bare = figure.seconds_per_mb[OURS], figure.seconds_per_mb[BARE]
        others = {name: value for name, value in figure.seconds_per_mb.items() if name not in {OURS, BARE, NO_TOKENS}}
        fastest = min(others, key=lambda name: others[name])
        measured = f"{figure.name}: {ours / bare:.2f} times the pass"
        verdicts += [
            (ours <= MAX_OVER_PASS * bare, f"{measured}, at most {MAX_OVER_PASS}"),
            (ours < others[fastest], f"{measured}, ahead of {fastest} with {others[fastest] / bare:.2f}"),
        ]
    return verdicts


def judge_hostile(figures: Sequence[Figure]) -> list[Verdict]:
    """Within a multiple of normal text per character, and of memory per byte: what is beyond, or else the worst."""
    times = {figure.name: figure.over_normal or 0.0 for figure in figures}
    peaks = {figure.name: (figure.peak_bytes or 0) / allowed_peak_bytes(figure) for figure in figures}
    return [
        judge_all(times, MAX_OVER_NORMAL, "hostile inputs: time per character over that on the RFC corpus"),
        judge_all(peaks, 1.0, f"hostile inputs: peak memory over {MAX_PEAK_OVER_BYTES} times the bytes, or 200 MB"),
    ]


def judge_all(ratios: Mapping[str, float], bar: float, what: str) -> Verdict:
    """One verdict over all inputs."""
    worst_first = sorted(ratios, key=lambda name: -ratios[name])
    beyond = [name for name in worst_first if ratios[name] > bar]
    named = ", ".join(f"{name} {ratios[name]:.2f}" for name in (beyond or worst_first[:1]))
    return not beyond, f"{what}, at most {bar}: {named}"


def allowed_peak_bytes(figure: Figure) -> int:
    """What the bar allows for a text of its length."""
    return max(MAX_PEAK_OVER_BYTES * figure.text_bytes, PEAK_ALWAYS_ALLOWED_BYTES)


if __name__ == "__main__":
    sys.exit(main())
