"""What a memory loses when its writers are killed. Usage: `make bench-crash ARGS="--kills 200"`.

A process stores texts in batches through the path (new ones, grown, shrunk and edited ones, new attributes, deletions,
1 to 60 chunks each) and is killed with SIGKILL at a random moment, `--kills` times. Now and then mongod is killed
before and started again, or all connections are cut. Another process reads all the time. All on a mongod of this
command's own; that one gives up a transaction whose client was killed after 1 s instead of 20.

Every process first looks at what the one before it left. On a replica set nothing may ever be wrong. A stand-alone
server never shows a mix, and what is short or left over is healed by the next store of the same source.

Prints a line every ten kills, what was wrong, and the counts last. Exits 1 where anything was.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crash_checks import Fault, Finding, Ledger, Row, Seen
from crash_place import Place
from crash_reader import run_reader
from crash_server import FORK, Mongod, Wire, open_wire
from crash_writer import run_last, run_writer
from evaluate import forget_settings

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter

SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 1.0
# Of all kills: so many come after another fault.
MONGOD_KILLS, CUTS = 0.1, 0.2
# Of the rest: so many moments count from the start of the process, the others from its first operation.
EARLY_KILLS = 0.2
READY_SECONDS = 120.0
_PROGRESS_EVERY = 10
# From so many on a run without an update or a deletion says that something is wrong with it.
_ENOUGH_KILLS = 15
_READER_SECONDS = 60.0
# Faults of which each count is printed, also when it is 0.
_COUNTED = (Fault.MIXED, Fault.LOST, Fault.DUPLICATE, Fault.ORPHAN, Fault.ORPHAN_BODY, Fault.MISSING_BODY)


@dataclass(slots=True)
class Report:
    """What was done, and everything that was wrong."""

    counts: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])


def main() -> int:
    """Kill, check and print. Returns 1 where something was wrong."""
    options = read_options()
    forget_settings()
    signal.signal(signal.SIGTERM, end_early)
    load_tiktoken_counter().count("The vocabulary is loaded once, ahead of every fork.")
    with tempfile.TemporaryDirectory(prefix="memory-crash-") as folder:
        mongod = Mongod(Path(folder), atomic=options.mode == "replica-set")
        try:
            report = run(mongod, kills=options.kills, seed=options.seed)
        finally:
            mongod.kill()
    return tell(report, mode=options.mode, seed=options.seed)


def end_early(*_: object) -> None:
    """Leave by way of every `finally`, so that no server stays behind."""
    sys.exit(1)


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how often the writing process is killed")
    parser.add_argument("--mode", choices=("replica-set", "stand-alone"), default="replica-set")
    parser.add_argument("--seed", type=int, default=5, help="of the texts, the faults and their moments")
    return parser.parse_args()


def run(mongod: Mongod, *, kills: int, seed: int) -> Report:
    """All kills, a last run that nobody kills, and what the log and the reader say."""
    mongod.start()
    report = Report()
    with open_wire(mongod.port) as wire:
        place = Place(mongod.folder, wire.uri, mongod.uri, mongod.atomic)
        ended = FORK.Event()
        reader = FORK.Process(target=run_reader, args=(place, ended))
        reader.start()
        try:
            report.counts += kill_all(place, mongod, wire, kills=kills, seed=seed)
        finally:
            ended.set()
            reader.join(_READER_SECONDS)
            reader.kill()
        assert reader.exitcode == 0, "the reader ended before its time"
        last = FORK.Process(target=run_last, args=(place, kills + 1))
        last.start()
        last.join()
        assert last.exitcode == 0, "the last run failed"
    read_log(place, report)
    readings = json.loads(place.readings.read_text(encoding="utf-8"))
    report.counts.update(readings["counts"])
    report.findings += read_findings(readings["findings"])
    return report


def kill_all(place: Place, mongod: Mongod, wire: Wire, *, kills: int, seed: int) -> Counter[str]:
    """One writer after the other; each is killed, some of them after another fault."""
    generator = random.Random(seed)  # noqa: S311 - a run can be repeated
    others = choose_faults(generator, kills)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number, other in enumerate(others, start=1):
        is_ready = FORK.Event()
        writer = FORK.Process(target=run_writer, args=(place, number, generator.getrandbits(32), is_ready))
        writer.start()
        if other or generator.random() > EARLY_KILLS:
            assert is_ready.wait(READY_SECONDS), f"writer {number} did not begin"
        writer.join(generator.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))
        if other == "kills of mongod":
            mongod.kill()
            mongod.start()
        elif other == "cut connections":
            wire.cut()
        if other:
            writer.join(generator.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))
        assert writer.is_alive(), f"writer {number} ended by itself with {writer.exitcode}"
        writer.kill()
        writer.join()
        counts["kills"] += 1
        counts[other] += bool(other)
        if number % _PROGRESS_EVERY == 0:
            print(f"{number} of {kills} kills, {time.monotonic() - began:.0f} s", flush=True)
    return +counts


def choose_faults(generator: random.Random, kills: int) -> list[str]:
    """The fault ahead of each kill, "" for none, in random order; of each kind at least one where there are three."""
    servers, wires = (max(1, round(kills * share)) for share in (MONGOD_KILLS, CUTS))
    faults = ["kills of mongod"] * servers + ["cut connections"] * wires
    faults = [*faults[: max(0, kills - 1)], *[""] * kills][:kills]
    generator.shuffle(faults)
    return faults


# --- what was found ---------------------------------------------------------------------------------------------------


def read_log(place: Place, report: Report) -> None:
    """Follow the writers, from the first to the last."""
    ledger = Ledger()
    open_operations: set[str] = set()
    is_whole = False
    for line in read_lines(place.log):
        report.findings += read_findings(line.get("findings", []))
        if "writer" in line:
            report.counts["kills in the middle of an operation"] += bool(open_operations)
            open_operations.clear()
        elif "look" in line:
            ledger.look({name: Seen(**seen) for name, seen in line["look"].items()})
        elif "begin" in line:
            for operation in line["begin"]:
                ledger.begin(operation)
            open_operations |= {one["id"] for one in line["begin"]}
        elif "end" in line:
            report.findings += end(ledger, line, report.counts)
            open_operations -= {one["id"] for one in line["end"]}
        elif "health" in line:
            report.findings += [Finding(Fault.UNHEALTHY, fault) for fault in line["health"]]
            is_whole = True
    assert is_whole, "the last run did not come to its end"
    report.findings += ledger.findings
    report.counts += ledger.counts


def read_lines(log: Path) -> Iterator[Row]:
    """The whole lines; a process that was killed inside one had not said it."""
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def end(ledger: Ledger, line: Row, counts: Counter[str]) -> list[Finding]:
    """What was acknowledged goes into the ledger. A refusal is wrong where a retry does not help."""
    findings: list[Finding] = []
    for operation, result in zip(line["end"], line["results"], strict=True):
        error = result["error"]
        if error is None:
            ledger.acknowledge(operation, result["outcome"], result["version"])
        elif error["retryable"]:
            counts["not answered in time"] += 1
        else:
            findings.append(Finding(Fault.REFUSED, f"{operation['source']}: {error['message']} ({error['cause']})"))
    return findings


def read_findings(told: Sequence[Row]) -> list[Finding]:
    """Findings out of a log."""
    return [Finding(Fault(one["fault"]), one["words"]) for one in told]


def tell(report: Report, *, mode: str, seed: int) -> int:
    """Print what was wrong, and the counts last. Returns 1 where something was, or where nothing was tried."""
    for finding in report.findings[:40]:
        print(f"{finding.fault}: {finding.words}")
    wrong = Counter(finding.fault for finding in report.findings)
    tried = ["kills", "kills in the middle of an operation", "created", "reads of a document that stayed"]
    if report.counts["kills"] >= _ENOUGH_KILLS:
        tried += ["updated", "deleted"]
    untried = [name for name in tried if not report.counts[name]]
    if untried:
        print(f"This run shows nothing, as there were no {', '.join(untried)}.")
    print(f"{mode}, seed {seed}: " + ", ".join(f"{count:,} {name}" for name, count in sorted(report.counts.items())))
    print(", ".join(f"{wrong[fault]} {fault}" for fault in (*_COUNTED, *sorted(wrong.keys() - set(_COUNTED)))))
    return 1 if wrong or untried else 0


if __name__ == "__main__":
    sys.exit(main())
