"""The judge of histories: it lets the right ones pass and finds a fault in every broken one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.acceptance.history_checker import Kind, Operation, check_history


def at(start: float, end: float, kind: Kind, version: int | None = None, content: str | None = None) -> Operation:
    """An operation; the text of version 2 is text-2 unless another one is said."""
    text = None if version is None else content or f"text-{version}"
    return Operation(kind=kind, start=start, end=end, version=version, content=text)


CREATED_1 = at(0, 1, Kind.CREATED, 1)
UPDATED_2 = at(2, 3, Kind.UPDATED, 2)
LEFT_1, LEFT_2, LEFT_3 = (at(100, 101, Kind.SEEN, number) for number in (1, 2, 3))
NOTHING_LEFT = at(100, 101, Kind.ABSENT)


@pytest.mark.parametrize(
    ("operations", "final"),
    [
        pytest.param([], NOTHING_LEFT, id="nothing happened"),
        pytest.param([at(0, 1, Kind.ABSENT), at(0, 1, Kind.ABSENT)], NOTHING_LEFT, id="it was never there"),
        pytest.param([CREATED_1, UPDATED_2], LEFT_2, id="one after the other"),
        pytest.param([at(0, 9, Kind.UPDATED, 2), at(0, 5, Kind.CREATED, 1)], LEFT_2, id="side by side"),
        pytest.param([CREATED_1, UPDATED_2, at(2.5, 2.6, Kind.SEEN, 1)], LEFT_2, id="read while it is replaced"),
        pytest.param([CREATED_1, UPDATED_2, at(2.5, 2.6, Kind.SEEN, 2)], LEFT_2, id="read ahead of the answer"),
        pytest.param([CREATED_1, at(0.5, 0.6, Kind.ABSENT)], LEFT_1, id="not there yet"),
        pytest.param([CREATED_1, at(2, 3, Kind.DELETED)], NOTHING_LEFT, id="deleted last"),
        pytest.param([CREATED_1, at(2, 3, Kind.DELETED), at(2, 9, Kind.ABSENT)], NOTHING_LEFT, id="deleted twice"),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED), at(4, 5, Kind.CREATED, 2), at(3, 4, Kind.ABSENT)],
            LEFT_2,
            id="deleted and stored again",
        ),
        pytest.param(
            [
                CREATED_1,
                at(2, 20, Kind.DELETED),
                at(2, 5, Kind.DELETED),
                at(3, 6, Kind.CREATED, 2),
                at(15, 30, Kind.CREATED, 3),
            ],
            LEFT_3,
            id="two deletions that began together",
        ),
        pytest.param(
            [CREATED_1, UPDATED_2, at(4, 5, Kind.UPDATED, 3, "text-1"), at(6, 7, Kind.SEEN, 3, "text-1")],
            at(100, 101, Kind.SEEN, 3, "text-1"),
            id="an earlier text again",
        ),
    ],
)
def test_a_right_history_has_no_faults(operations: Sequence[Operation], final: Operation) -> None:
    """Whatever can have happened at some moments is right."""
    assert check_history(operations, final=final) == []


@pytest.mark.parametrize(
    ("operations", "final", "fault"),
    [
        pytest.param([CREATED_1, at(4, 5, Kind.UPDATED, 3)], LEFT_3, "version 2 was acknowledged to nobody", id="gap"),
        pytest.param(
            [CREATED_1, UPDATED_2, at(2, 3, Kind.UPDATED, 2, "other")],
            LEFT_2,
            "version 2 was acknowledged twice",
            id="double",
        ),
        pytest.param(
            [CREATED_1, at(0, 1, Kind.CREATED, 1)], LEFT_1, "version 1 was acknowledged twice", id="created twice"
        ),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED), at(4, 5, Kind.CREATED, 1)],
            LEFT_1,
            "version 1 was acknowledged twice",
            id="a deletion counts back",
        ),
        pytest.param([at(0, 1, Kind.UPDATED, 1)], LEFT_1, "updated something", id="updated from nothing"),
        pytest.param([CREATED_1], at(9, 10, Kind.SEEN, 2), "nobody stored it", id="a version of nobody"),
        pytest.param([CREATED_1], at(9, 10, Kind.SEEN, 1, "x"), "not its own", id="a text of nobody is left"),
        pytest.param(
            [CREATED_1, UPDATED_2, at(4, 5, Kind.SEEN, 2, "text-1")], LEFT_2, "not its own", id="new version, old text"
        ),
        pytest.param([CREATED_1, UPDATED_2], LEFT_1, "version 1 is left and version 2", id="an update is lost"),
        pytest.param([CREATED_1, UPDATED_2], NOTHING_LEFT, "nobody deleted it", id="a document is lost"),
        pytest.param([CREATED_1, UPDATED_2, at(4, 5, Kind.SEEN, 1)], LEFT_2, "too late", id="a stale read"),
        pytest.param([CREATED_1, UPDATED_2, at(1, 1.5, Kind.SEEN, 2)], LEFT_2, "too late", id="a read of the future"),
        pytest.param(
            [CREATED_1, at(2, 9, Kind.UPDATED, 2), at(3, 4, Kind.SEEN, 2), at(5, 6, Kind.SEEN, 1)],
            LEFT_2,
            "too late",
            id="reads go back",
        ),
        pytest.param([at(4, 5, Kind.CREATED, 1), UPDATED_2], LEFT_2, "too late", id="versions against time"),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.CREATED, 2)], LEFT_2, "nobody had deleted version 1", id="created over another"
        ),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED), at(4, 5, Kind.UPDATED, 2)],
            LEFT_2,
            "removed a source that was not there",
            id="brought back by an update",
        ),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED)], LEFT_1, "removed a source that was not there", id="not deleted at all"
        ),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED), at(2, 3, Kind.DELETED)],
            NOTHING_LEFT,
            "1 deletions removed",
            id="deleted twice with effect",
        ),
        pytest.param(
            [CREATED_1, at(4, 5, Kind.CREATED, 2), at(6, 7, Kind.DELETED)],
            LEFT_2,
            "nobody had deleted version 1",
            id="deleted too late for it",
        ),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED), at(4, 5, Kind.SEEN, 1)], NOTHING_LEFT, "nobody deleted", id="a ghost"
        ),
        pytest.param([CREATED_1, at(2, 3, Kind.ABSENT)], LEFT_1, "when there was something", id="gone for a moment"),
        pytest.param(
            [CREATED_1, at(2, 3, Kind.DELETED), at(4, 5, Kind.CREATED, 2), at(6, 7, Kind.ABSENT)],
            LEFT_2,
            "when there was something",
            id="absent after it is there again",
        ),
        pytest.param(
            [CREATED_1, at(1.2, 1.4, Kind.ABSENT), at(2, 3, Kind.DELETED)],
            NOTHING_LEFT,
            "when there was something",
            id="absent ahead of the deletion",
        ),
    ],
)
def test_a_broken_history_is_found(operations: Sequence[Operation], final: Operation, fault: str) -> None:
    """And said in words that name it."""
    faults = check_history(operations, final=final)
    assert any(fault in one for one in faults), faults


# --- against a model --------------------------------------------------------------------------------------------------


def simulate(generator: random.Random, count: int) -> list[Operation]:
    """What a right memory answers: each operation happens at one moment, and its answer is about that moment."""
    operations: list[Operation] = []
    version, is_there = 0, False
    for moment in sorted(generator.uniform(0, 100) for _ in range(count)):
        start, end = moment - generator.expovariate(0.3), moment + generator.expovariate(0.3)
        kind = generator.choice(["store", "store", "read", "read", "delete"])
        if kind == "store":
            operations.append(at(start, end, Kind.UPDATED if is_there else Kind.CREATED, version + 1))
            version, is_there = version + 1, True
        elif not is_there:
            operations.append(at(start, end, Kind.ABSENT))
        elif kind == "read":
            operations.append(at(start, end, Kind.SEEN, version))
        else:
            operations.append(at(start, end, Kind.DELETED))
            is_there = False
    operations.append(at(500, 501, Kind.SEEN, version) if is_there else at(500, 501, Kind.ABSENT))
    return operations


@pytest.mark.parametrize("seed", range(100))
def test_whatever_a_right_memory_answers_is_right(seed: int) -> None:
    """No false alarm: operations overlap in every way."""
    generator = random.Random(seed)
    *operations, final = simulate(generator, generator.randint(1, 60))
    generator.shuffle(operations)
    assert check_history(operations, final=final) == []


@pytest.mark.parametrize("seed", range(100))
def test_an_acknowledged_write_that_is_lost_is_found(seed: int) -> None:
    """Whichever it is, but the last version, which nobody needs to have seen before it was deleted."""
    generator = random.Random(seed)
    *operations, final = simulate(generator, generator.randint(8, 60))
    last = max(one.version or 0 for one in operations)
    changes = [
        one
        for one in operations
        if one.kind is Kind.DELETED or (one.kind in {Kind.CREATED, Kind.UPDATED} and one.version != last)
    ]
    lost = generator.choice(changes)
    assert check_history([one for one in operations if one is not lost], final=final) != []
