"""Judges what writers and readers of one source saw. In: operations with their times and answers. Out: faults. Pure.

A history is right where each operation can be given one moment between its start and its end, so that everybody saw
what was there at that moment: each text that is stored counts one version, a deletion does not count back, and a read
shows what is current. It looks for such moments and says why there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import inf


class Kind(Enum):
    """What an operation did, by its answer."""

    CREATED = "created"  # a text of a source that was not there
    UPDATED = "updated"  # another text of a source that was
    SEEN = "seen"  # a read, or a store that found its text there: the version and the text are current
    ABSENT = "absent"  # a read, or a deletion, that found nothing
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One answer. Times are of one clock, in seconds; a failed operation changes nothing and is none of these."""

    kind: Kind
    start: float
    end: float
    version: int | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True)
class _Version:
    """A version, and between which moments it became current."""

    write: Operation
    earliest: float
    latest: float

    @property
    def number(self) -> int:
        """Its number."""
        return self.write.version or 0


def check_history(operations: Sequence[Operation], *, final: Operation) -> list[str]:
    """The faults of one source's history, as sentences; none where it is right.

    `final` is a read after everything else: what is left in the end.
    """
    everything = [*operations, final]
    writes = sorted((one for one in operations if one.kind in {Kind.CREATED, Kind.UPDATED}), key=_number)
    faults = _check_numbers(writes)
    faults += [fault for one in everything if one.kind is Kind.SEEN and (fault := _check_text(one, writes))]
    faults += _check_final(writes, final)
    if faults:
        return faults  # without an order of versions there is no order in time
    is_gone = final.kind is Kind.ABSENT
    return _check_times(_place_versions(writes, everything), everything, is_gone=is_gone)


def _number(operation: Operation) -> int:
    return operation.version or 0


def _check_numbers(writes: Sequence[Operation]) -> list[str]:
    """1, 2, 3 and so on, each acknowledged once; the first one creates the source."""
    numbers = [_number(write) for write in writes]
    faults = [f"version {old} was acknowledged twice" for old, new in pairwise(numbers) if old == new]
    missing = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
    faults += [f"version {number} was acknowledged to nobody" for number in missing]
    if writes and writes[0].kind is not Kind.CREATED:
        faults.append("the first version says that it updated something")
    return faults


def _check_text(seen: Operation, writes: Sequence[Operation]) -> str | None:
    texts = {write.content for write in writes if write.version == seen.version}
    if not texts:
        return f"version {seen.version} was seen and nobody stored it"
    return None if seen.content in texts else f"version {seen.version} was seen with a text that is not its own"


def _check_final(writes: Sequence[Operation], final: Operation) -> list[str]:
    highest = max(map(_number, writes), default=0)
    if final.kind is Kind.ABSENT or final.version == highest:
        return []
    return [f"version {final.version} is left and version {highest} was acknowledged"]


def _place_versions(writes: Sequence[Operation], everything: Sequence[Operation]) -> list[_Version]:
    """A version is current before whoever saw it ended, and after whoever saw an earlier one began."""
    seen = [one for one in everything if one.kind is Kind.SEEN]
    versions: list[_Version] = []
    latest = inf
    for write in reversed(writes):
        latest = min([latest, write.end, *(one.end for one in seen if one.version == write.version)])
        earlier = [one.start for one in seen if _number(one) < _number(write)]
        versions.append(_Version(write, earliest=max([write.start, *earlier]), latest=latest))
    return versions[::-1]


def _check_times(versions: Sequence[_Version], everything: Sequence[Operation], *, is_gone: bool) -> list[str]:
    """Give each version and each deletion the earliest moment that it can have; fail where that is too late.

    Of the deletions that can stand at a place the one that ends first is taken: the others can wait.
    """
    waiting = sorted((one for one in everything if one.kind is Kind.DELETED), key=_end)
    now = -inf
    for before, version in pairwise([None, *versions]):
        if version is None:
            continue
        if before and version.write.kind is Kind.CREATED:
            deletion = _take_deletion(waiting, earliest=max([now, *_sights(before, everything)]), latest=version.latest)
            if deletion is None:
                return [f"version {version.number} was created and nobody had deleted version {before.number}"]
            now = max(now, deletion.start)
        now = max(now, version.earliest)
        if now > version.latest:
            return [f"version {version.number} was current too late, or one before it was still seen after it"]
    if is_gone and versions:
        earliest = max([now, *_sights(versions[-1], everything)])
        if _take_deletion(waiting, earliest=earliest, latest=inf) is None:
            return ["nothing is left and nobody deleted it"]
    if waiting:
        return [f"{len(waiting)} deletions removed a source that was not there"]
    return _check_absences(versions, everything, is_gone=is_gone)


def _end(operation: Operation) -> float:
    return operation.end


def _sights(version: _Version, everything: Sequence[Operation]) -> list[float]:
    """When those began who saw the version: whatever ended it came later."""
    return [one.start for one in everything if one.kind is Kind.SEEN and one.version == version.number]


def _take_deletion(waiting: list[Operation], *, earliest: float, latest: float) -> Operation | None:
    """Take away the deletion that can have happened between the two moments; None where there is none."""
    for position, one in enumerate(waiting):
        if one.end >= earliest and one.start <= latest:
            return waiting.pop(position)
    return None


def _check_absences(versions: Sequence[_Version], everything: Sequence[Operation], *, is_gone: bool) -> list[str]:
    """Whoever saw nothing looked ahead of the first version, or when some deletion can have left nothing."""
    deletions = [one for one in everything if one.kind is Kind.DELETED]
    first = versions[0].latest if versions else inf
    gaps = [(old, new.latest) for old, new in pairwise(versions) if new.write.kind is Kind.CREATED]
    gaps += [(versions[-1], inf)] if is_gone and versions else []
    empty = [
        (max(old.earliest, one.start), until)
        for old, until in gaps
        for one in deletions
        if one.end >= old.earliest and one.start <= until
    ]
    return [
        f"nothing was seen from {one.start:.6f} to {one.end:.6f}, when there was something"
        for one in everything
        if one.kind is Kind.ABSENT
        and one.start > first
        and not any(start <= one.end and one.start <= until for start, until in empty)
    ]
