"""The checks of `benchmarks/crash.py`, fed with what must never be: every damage is seen, and by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

# The benchmarks are commands, not a package: their folder, where they find each other, and its parent are on no path.
sys.path.extend(str(Path(__file__).parents[2] / folder) for folder in (".", "benchmarks"))

from benchmarks.crash_checks import Fault, Ledger, Seen, View, judge_hits, judge_rows
from benchmarks.crash_texts import Draft
from memory_core.models import Outcome, hash_text

DRAFT = Draft("crash-00", serial=2, epoch=1, count=3, edited=1)
OTHER = Draft("crash-00", serial=3, epoch=3, count=2, edited=0)
REVISION, OLD_REVISION = "b" * 24, "a" * 24


def make_view() -> View:
    """One whole document of three chunks."""
    shared = {"sourceId": DRAFT.source, "uri": DRAFT.uri, "tags": ["tag"], "title": DRAFT.source, "revision": REVISION}
    document = {
        **shared,
        "_id": 1,
        "bodyId": REVISION,
        "contentHash": hash_text(DRAFT.content),
        "version": 4,
        "chunking": {"chunkCount": DRAFT.count},
    }
    chunks: list[dict[str, Any]] = []
    for index, text in enumerate(DRAFT.paragraphs):
        start = DRAFT.content.index(text)
        chunks.append(
            {
                **shared,
                "documentId": 1,
                "documentContentHash": document["contentHash"],
                "documentVersion": 4,
                "chunkIndex": index,
                "text": text,
                "charStart": start,
                "charEnd": start + len(text),
            }
        )
    return View(documents=[document], chunks=chunks, bodies={REVISION: DRAFT.content}, owned=frozenset({REVISION}))


def change_chunk(view: View, **fields: Any) -> View:
    """The first chunk with other values."""
    return replace(view, chunks=[{**view.chunks[0], **fields}, *view.chunks[1:]])


def test_a_whole_document_is_whole() -> None:
    """What is right is not called wrong."""
    assert judge_rows(make_view()) == []


DAMAGE: dict[str, tuple[Callable[[View], View], Fault]] = {
    "address": (lambda view: change_chunk(view, uri=OTHER.uri), Fault.MIXED),
    "tags": (lambda view: change_chunk(view, tags=["another"]), Fault.MIXED),
    "version": (lambda view: change_chunk(view, documentVersion=3), Fault.MIXED),
    "text of another": (lambda view: change_chunk(view, text=OTHER.paragraphs[0]), Fault.MIXED),
    "body": (lambda view: replace(view, bodies={REVISION: OTHER.content}), Fault.MIXED),
    "short by one": (lambda view: replace(view, chunks=view.chunks[1:]), Fault.SHORT),
    "without chunks": (lambda view: replace(view, chunks=[]), Fault.SHORT),
    "another revision": (lambda view: change_chunk(view, revision=OLD_REVISION), Fault.LEFTOVER),
    "twice": (lambda view: replace(view, chunks=[*view.chunks, view.chunks[0]]), Fault.DUPLICATE),
    "without document": (lambda view: replace(view, documents=[]), Fault.ORPHAN),
    "loose text": (lambda view: replace(view, bodies={**view.bodies, OLD_REVISION: "old"}), Fault.ORPHAN_BODY),
    "missing text": (lambda view: replace(view, owned=view.owned | {OLD_REVISION}), Fault.MISSING_BODY),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_seen(name: str) -> None:
    """Each is done to a document that is whole."""
    damage, fault = DAMAGE[name]
    assert fault in {one.fault for one in judge_rows(damage(make_view()))}


# --- what was acknowledged --------------------------------------------------------------------------------------------

STORED = Seen(DRAFT.uri, "tag", 1)


def begin(ledger: Ledger, draft: Draft | None, tag: str | None = "tag") -> dict[str, Any]:
    """An operation that is under way; a deletion without a draft."""
    operation = {"id": object(), "source": DRAFT.source, "uri": draft and draft.uri, "tag": draft and tag}
    ledger.begin(operation)
    return operation


@pytest.fixture
def ledger() -> Ledger:
    """One source was stored, and that was acknowledged."""
    ledger = Ledger()
    ledger.acknowledge(begin(ledger, DRAFT), Outcome.CREATED, 1)
    return ledger


def test_what_was_acknowledged_is_there(ledger: Ledger) -> None:
    """The state of the last answer is right."""
    ledger.look({DRAFT.source: STORED})
    assert ledger.findings == []


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param({}, id="gone"),
        pytest.param({DRAFT.source: replace(STORED, uri=OTHER.uri)}, id="text"),
        pytest.param({DRAFT.source: replace(STORED, tag="another")}, id="attributes"),
        pytest.param({DRAFT.source: replace(STORED, version=2)}, id="version"),
        pytest.param({DRAFT.source: STORED, "crash-01": STORED}, id="one more"),
    ],
)
def test_what_was_acknowledged_and_is_not_there_is_lost(ledger: Ledger, seen: dict[str, Seen]) -> None:
    """Gone, another text, other attributes, another version, or a source that nobody stored."""
    ledger.look(seen)
    assert [one.fault for one in ledger.findings] == [Fault.LOST]


@pytest.mark.parametrize("seen", [STORED, Seen(OTHER.uri, "tag", 2)])
def test_what_was_not_answered_may_be_done_or_not(ledger: Ledger, seen: Seen) -> None:
    """Both are right; what was found then is what holds."""
    begin(ledger, OTHER)
    ledger.look({DRAFT.source: seen})
    ledger.look({DRAFT.source: seen})
    assert ledger.findings == []


def test_a_deletion_that_is_undone_is_lost(ledger: Ledger) -> None:
    """It was acknowledged, and the source is there again."""
    ledger.acknowledge(begin(ledger, None), "deleted", None)
    ledger.look({DRAFT.source: STORED})
    assert [one.fault for one in ledger.findings] == [Fault.LOST]


@pytest.mark.parametrize(("outcome", "version"), [(Outcome.UPDATED, 3), (Outcome.UPDATED, 1), (Outcome.CREATED, 2)])
def test_an_answer_that_does_not_follow_the_last_one_is_seen(ledger: Ledger, outcome: str, version: int) -> None:
    """A version too many, none, or a first store of what is stored."""
    ledger.acknowledge(begin(ledger, OTHER), outcome, version)
    assert [one.fault for one in ledger.findings] == [Fault.LOST]


def test_no_hit_of_a_document_that_stays_is_short() -> None:
    """Where it changes meanwhile, rows may have been dropped."""
    assert {one.fault for one in judge_hits([], current=DRAFT.uri)} == {Fault.SHORT}
    assert judge_hits([], current=None) == []
