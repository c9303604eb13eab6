"""Repair: documents are stored again from their own text, lost texts are told of, a second run does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from memory_core.adapters.embedded_plan import COMPARE_EVERY, OVERLAP
from memory_core.errors import ConfigError, ForeignDatabaseError
from memory_core.examine import examine_memory
from memory_core.fakes import EmbeddingFault, FakeDatabase, ScriptedEmbedder
from memory_core.fakes.database import BodyRecord, TrashRecord
from memory_core.health import FaultKind, Finding, StoreHealth
from memory_core.models import DocumentState, StoreRequest
from memory_core.ports import Core, Progress
from memory_core.repair import RepairReport, RepairResult, repair_memory
from memory_core.settings import load_settings
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest

MakeCore = Callable[..., Core]
TEXT = "\n\n".join(f"Paragraph {number} about things. " + "word " * 60 for number in range(20))


@pytest.fixture
def database() -> FakeDatabase:
    """What is damaged behind the store's back."""
    return FakeDatabase()


@pytest.fixture
def core(make_core: MakeCore, database: FakeDatabase) -> Core:
    """A process with small batches, so that a repair has several."""
    return make_core(database, MEMORY_BATCH_DOCUMENTS=2)


async def put(core: Core, source_id: str, content: str = TEXT, **fields: Any) -> DocumentState:
    """Store a text and read its state."""
    request = StoreContentRequest(content=content, source_id=source_id, **fields)
    (outcome,) = await store_content(
        [StoreRequest(request=request, provenance=Provenance(channel="cli", feed=None))], core=core
    )
    assert outcome.error is None
    return await state_of(core, source_id)


async def state_of(core: Core, source_id: str) -> DocumentState:
    return (await core.store.read_states([source_id]))[source_id]


async def rows_of(core: Core, state: DocumentState) -> list[str]:
    """Chunk ids by index."""
    return [key.chunk_id for key in (await core.store.read_chunk_keys([state.document_id]))[state.document_id]]


def paid(core: Core) -> int:
    """How many texts were embedded so far."""
    return sum(len(call.texts) for call in cast("ScriptedEmbedder", core.embedder).calls)


def kinds(health: StoreHealth) -> set[FaultKind]:
    return {finding.kind for finding in health.findings}


def results(report: RepairReport) -> dict[str, tuple[RepairResult, int]]:
    return {one.source_id: (one.result, one.texts) for one in report.documents}


def change_row(database: FakeDatabase, chunk_id: str, **fields: Any) -> None:
    row = database.rows[chunk_id]
    of_chunk = {name: fields.pop(name) for name in ("text", "index", "char_start") if name in fields}
    database.rows[chunk_id] = replace(row, chunk=replace(row.chunk, **of_chunk), **fields)


async def assert_whole(core: Core, source_id: str) -> None:
    """Every row says the words at its place, in order."""
    state = await state_of(core, source_id)
    content = await core.store.read_body(state.body_id)
    ids = await rows_of(core, state)
    hits = await core.store.read_hits(ids)
    assert [hits[one].chunk_index for one in ids] == list(range(state.chunk_count))
    assert all(hit.text == content[hit.char_start : hit.char_end] for hit in hits.values())


# --- documents --------------------------------------------------------------------------------------------------------


async def test_damaged_documents_are_stored_again_and_sound_vectors_stay(core: Core, database: FakeDatabase) -> None:
    """Id, version, dates, attributes and owners stay; only rows that are gone or of another space are embedded."""
    names = ["short", "mixed", "hash", "space", "twice", "gap", "whole"]
    before = {
        name: await put(
            core, f"notes/{name}", f"About {name}.\n\n{TEXT}", title=f"The {name}", tags=["t"], metadata={"k": 1}
        )
        for name in names
    }
    rows = {name: await rows_of(core, state) for name, state in before.items()}
    del database.rows[rows["short"][3]]
    change_row(database, rows["mixed"][2], revision="f" * 24)
    change_row(database, rows["hash"][2], content_hash="0" * 64)
    change_row(database, rows["space"][2], fingerprint="hash/other/16/prefix-1")
    change_row(database, rows["twice"][2], index=1)
    change_row(database, rows["gap"][2], index=99)
    paid_before = paid(core)
    report = await repair_memory(core)
    assert results(report) == {
        "notes/short": (RepairResult.DONE, 1),
        "notes/mixed": (RepairResult.DONE, 0),
        "notes/hash": (RepairResult.DONE, 0),
        "notes/space": (RepairResult.DONE, 1),
        "notes/twice": (RepairResult.DONE, 0),
        "notes/gap": (RepairResult.DONE, 0),
    }
    assert paid(core) - paid_before == 2
    assert all(one.reason.startswith("repaired: ") for one in report.documents)
    assert (report.left.faults, report.failures) == ((), ())
    for name in names:
        await assert_whole(core, f"notes/{name}")
        was, now = before[name], await state_of(core, f"notes/{name}")
        assert (now.document_id, now.version, now.attributes, now.created_at, now.updated_at, now.body_id) == (
            was.document_id,
            was.version,
            was.attributes,
            was.created_at,
            was.updated_at,
            was.body_id,
        )
        assert (now.revision == was.revision) == (name == "whole")
        kept = set(rows[name]) & set(await rows_of(core, now))
        assert len(kept) == was.chunk_count - (name in {"short", "space"})
    again = await repair_memory(core)
    assert (again.before.findings, again.mended, again.documents) == ((), (), ())


async def test_wrong_words_are_found_by_a_deep_look_alone(core: Core, database: FakeDatabase) -> None:
    """A row whose text or place is not the document's is written again, with the vector that it has."""
    states = [await put(core, f"notes/{name}") for name in "abc"]
    rows = [await rows_of(core, state) for state in states]
    change_row(database, rows[0][1], text="somebody else's words")
    change_row(database, rows[1][1], char_start=5)
    assert (await examine_memory(core)).findings == ()
    seen: list[Progress] = []
    health = await examine_memory(replace(core, on_progress=seen.append), deep=True)
    assert health.findings == (Finding(kind=FaultKind.WRONG_CHUNKS, names=("notes/a", "notes/b")),)
    assert (seen[-1].done, seen[-1].total) == (3, 3)
    report = await repair_memory(core, deep=True)
    assert results(report) == {"notes/a": (RepairResult.DONE, 0), "notes/b": (RepairResult.DONE, 0)}
    for name in "abc":
        await assert_whole(core, f"notes/{name}")
    assert (await examine_memory(core, deep=True)).findings == ()


async def test_a_document_that_is_stored_anew_meanwhile_is_kept(
    core: Core, database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stores or deletes while a repair goes on wins."""
    for name in "ab":
        state = await put(core, f"notes/{name}")
        del database.rows[(await rows_of(core, state))[0]]
    find = core.store.read_states

    async def store_meanwhile(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        await put(core, "notes/a", "something else")
        database.rows.pop(next(iter(database.rows)), None)
        record = database.documents.pop(database.sources.pop("notes/b"))
        assert record
        return await find(*args, **kwargs)

    monkeypatch.setattr(core.store, "read_states", store_meanwhile)
    report = await repair_memory(core)
    assert {name: result for name, (result, _) in results(report).items()} == {
        "notes/a": RepairResult.SKIPPED,
        "notes/b": RepairResult.SKIPPED,
    }
    state = await state_of(core, "notes/a")
    assert (state.version, await core.store.read_body(state.body_id)) == (2, "something else")


async def test_one_document_that_cannot_be_stored_does_not_hold_up_the_others(
    make_core: MakeCore, database: FakeDatabase
) -> None:
    """Its error is told, and it is still named at the end."""
    core = make_core(database, MEMORY_BATCH_DOCUMENTS=1)
    for name in "ab":
        state = await put(core, f"notes/{name}", f"About {name}.\n\n{TEXT}")
        del database.rows[(await rows_of(core, state))[0]]
    failing = make_core(database, script=[EmbeddingFault.REFUSED] * 9, only_with="About a", MEMORY_BATCH_DOCUMENTS=1)
    report = await repair_memory(failing)
    assert [one.source_id for one in report.failures] == ["notes/a"]
    assert report.left.names_of(FaultKind.SHORT_DOCUMENTS) == ("notes/a",)


# --- texts ------------------------------------------------------------------------------------------------------------


async def test_a_lost_text_is_not_made_up(core: Core, database: FakeDatabase) -> None:
    """It is told which earlier version is whole; the rows of the document stay as they are."""
    await put(core, "notes/a", "the first text")
    state = await put(core, "notes/a")
    only = await put(core, "notes/b")
    for one in (state, only):
        del database.bodies[one.body_id]
        del database.rows[(await rows_of(core, one))[0]]
    rows = dict(database.rows)
    report = await repair_memory(core)
    told = {one.source_id: one.reason for one in report.failures}
    assert "`memory get notes/a --version 1`" in told["notes/a"]
    assert "no earlier version is kept" in told["notes/b"]
    assert kinds(report.left) == {FaultKind.SHORT_DOCUMENTS, FaultKind.MISSING_TEXTS}
    assert database.rows == rows
    await put(core, "notes/a", "the first text")  # as it was told
    assert (await repair_memory(core)).left.names_of(*FaultKind) == ("notes/b",)


async def test_a_text_that_is_another_is_never_stored_as_if_it_were_the_documents(
    core: Core, database: FakeDatabase
) -> None:
    """Its hash does not fit: it makes no version, and a deep look names it."""
    state = await put(core, "notes/a")
    database.bodies[state.body_id] = BodyRecord(text=TEXT.replace("things", "thongs"))
    assert (await examine_memory(core)).findings == ()
    assert (await examine_memory(core, deep=True)).findings == (
        Finding(kind=FaultKind.WRONG_TEXTS, names=("notes/a",)),
    )
    del database.rows[(await rows_of(core, state))[0]]
    report = await repair_memory(core, deep=True)
    assert [one.source_id for one in report.failures] == ["notes/a"]
    assert (await state_of(core, "notes/a")).version == 1
    assert kinds(report.left) == {FaultKind.SHORT_DOCUMENTS}  # the first thing that is wrong with it


async def test_earlier_versions_with_a_wrong_text_are_forgotten(core: Core, database: FakeDatabase) -> None:
    """Only those, by a deep repair alone."""
    first = await put(core, "notes/a", "one")
    await put(core, "notes/a", "two")
    await put(core, "notes/a", "three")
    database.bodies[first.body_id] = BodyRecord(text="another")
    health = await examine_memory(core, deep=True)
    assert health.findings == (Finding(kind=FaultKind.WRONG_VERSIONS, names=("notes/a version 1",)),)
    assert (await repair_memory(core)).mended == ()
    report = await repair_memory(core, deep=True)
    assert [(one.kind, one.count) for one in report.mended] == [(FaultKind.WRONG_VERSIONS, 1)]
    assert report.left.findings == ()
    document = await core.store.read_document("notes/a")
    assert document
    assert [one.version for one in document.versions] == [2, 3]


# --- what was accepted, and what is not to be touched -----------------------------------------------------------------


async def test_abandoned_submissions_are_stored(core: Core) -> None:
    """What was accepted and whose process is gone; one that cannot be stored is told of."""
    for key, text in (("good", "a text"), ("bad", " ")):
        request = StoreRequest(
            request=StoreContentRequest(content=text, source_id=f"notes/{key}"), provenance=Provenance(channel="cli")
        )
        await core.store.prepare(core.fingerprint, recipe=core.recipe)
        await core.submissions.stage(
            request, key=key, holder=replace(core.holder, token="d" * 32), seconds=-1, now=core.clock()
        )
    report = await repair_memory(core)
    assert [(one.kind, one.count) for one in report.mended] == [(FaultKind.ABANDONED_SUBMISSIONS, 2)]
    assert [one.source_id for one in report.failures] == ["notes/bad"]
    assert (await state_of(core, "notes/good")).version == 1
    assert (await repair_memory(core)).before.findings == ()


async def test_a_dry_run_changes_nothing(core: Core, database: FakeDatabase) -> None:
    """It says what a repair would do."""
    state = await put(core, "notes/a")
    del database.rows[(await rows_of(core, state))[0]]
    database.bodies["loose"] = BodyRecord(text="x")
    rows, bodies = dict(database.rows), dict(database.bodies)
    report = await repair_memory(core, dry_run=True)
    assert (report.is_dry_run, kinds(report.left)) == (True, {FaultKind.SHORT_DOCUMENTS, FaultKind.ORPHAN_TEXTS})
    assert (database.rows, database.bodies, report.to_json()["dryRun"]) == (rows, bodies, True)


async def test_nothing_is_made_where_nothing_is_stored(core: Core, database: FakeDatabase) -> None:
    """An empty database stays empty."""
    report = await repair_memory(core)
    assert (report.before.findings, database.meta, report.is_dry_run) == ((), None, False)


async def test_a_database_of_others_or_of_another_space_is_not_touched(
    core: Core, database: FakeDatabase, make_core: MakeCore
) -> None:
    """Not ours, or of settings that may not write: an error, and everything as it was."""
    state = await put(core, "notes/a")
    del database.rows[(await rows_of(core, state))[0]]
    database.bodies["loose"] = BodyRecord(text="x")
    other = make_core(database)
    other = replace(other, fingerprint=replace(other.fingerprint, dimensions=32))
    bodies = dict(database.bodies)
    with pytest.raises(ForeignDatabaseError, match="holds vectors"):
        await repair_memory(other)
    assert (await examine_memory(other, deep=True)).names_of(FaultKind.SHORT_DOCUMENTS) == ("notes/a",)
    database.meta = None
    with pytest.raises(ForeignDatabaseError):
        await repair_memory(core)
    assert database.bodies == bodies
    assert kinds(await examine_memory(core, deep=True)) == {FaultKind.FOREIGN_ROWS}


async def test_what_one_round_uncovers_is_mended_in_the_next(core: Core, database: FakeDatabase) -> None:
    """The trash row of a living document held a text that nobody else has."""
    old = await put(core, "notes/a", "the first text")
    record = database.documents[old.document_id]
    database.trash += (TrashRecord(document=record, deleted_at=core.clock()),)
    await put(core, "notes/a")
    database.documents[old.document_id] = replace(
        database.documents[old.document_id], versions=database.documents[old.document_id].versions[1:]
    )
    report = await repair_memory(core)
    assert kinds(report.before) == {FaultKind.TRASHED_DOCUMENTS}
    assert {one.kind: one.count for one in report.mended} == {FaultKind.TRASHED_DOCUMENTS: 1, FaultKind.ORPHAN_TEXTS: 1}
    assert report.left.findings == ()


def test_a_deletion_is_remembered_for_longer_than_search_files_go_without_a_comparison() -> None:
    """Files that were last read before a tombstone went compare every document, and so miss no deletion."""
    assert timedelta(days=7) > COMPARE_EVERY + OVERLAP
    with pytest.raises(ConfigError, match="MEMORY_TOMBSTONE_DAYS"):
        load_settings(MEMORY_TOMBSTONE_DAYS=6)


def test_a_finding_is_one_line() -> None:
    """How many, what, three of them, and the remedy."""
    finding = Finding(kind=FaultKind.SHORT_DOCUMENTS, names=tuple(f"notes/{n}" for n in range(1_200)))
    assert finding.describe().startswith("1,200 documents lack chunks (notes/0, notes/1, notes/10, …). `memory doctor")
    assert finding.to_json() == {
        "kind": "short_documents",
        "count": 1_200,
        "examples": ["notes/0", "notes/1", "notes/10"],
        "remedy": finding.remedy,
        "mendable": True,
    }
    for kind in FaultKind:
        assert Finding(kind=kind, names=("x",)).describe().endswith((".", "!"))
