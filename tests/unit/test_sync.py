"""What a directory run decides: read, leave, delete, ask first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.files import ScannedFile
from memory_core.models import Attributes, ChunkTally, ContentType, ContextBasis, DocumentState
from memory_core.sync.plan import batches, deletions_need_confirmation, plan_sync
from memory_core.sync.renames import detect_renames, files_to_hash
from memory_core.sync.values import (
    Action,
    Cause,
    FileOutcome,
    FileReport,
    PlannedFile,
    SyncPlan,
    SyncReport,
    source_id_of,
)
from memory_core.work_ports import Feed, FileState, ManifestEntry

FEED = Feed(name="notes", root="/notes")
RECIPE, FINGERPRINT = "recipe-1", "local/mini/384/prefix-1"
NOW = datetime(2026, 11, 30, tzinfo=UTC)
MTIME_NS = 1_764_500_000_123_456_789  # needs more bits than a float has


def scanned(path: str, *, size: int = 10, mtime_ns: int = MTIME_NS, skip_reason: str | None = None) -> ScannedFile:
    return ScannedFile(
        path=path,
        absolute=Path("/notes") / path,
        size=size,
        mtime_ns=mtime_ns,
        content_type=ContentType.MARKDOWN,
        skip_reason=skip_reason,
    )


def recorded(file: ScannedFile, *, state: FileState = FileState.STORED, text: str = "text") -> ManifestEntry:
    return ManifestEntry(
        path=file.path,
        source_id=source_id_of(FEED.name, file.path),
        size=file.size,
        mtime_ns=file.mtime_ns,
        state=state,
        content_hash=text,
        reason=None if state is FileState.STORED else "it is binary",
    )


def stored(
    source_id: str, *, text: str = "text", feed: str | None = FEED.name, path: str | None = None
) -> DocumentState:
    return DocumentState(
        document_id="0" * 24,
        source_id=source_id,
        revision="r1",
        version=1,
        content_hash=text,
        recipe=RECIPE,
        strategy="markdown",
        fingerprint=FINGERPRINT,
        chunk_count=2,
        tally=ChunkTally(
            count=2,
            revisions=frozenset({"r1"}),
            content_hashes=frozenset({text}),
            fingerprints=frozenset({FINGERPRINT}),
        ),
        attributes=Attributes(
            title="t",
            uri=None,
            content_type=ContentType.MARKDOWN,
            tags=(),
            metadata={"path": path} if path else {},
            owners={},
        ),
        context_basis=ContextBasis(title="t", words=()),
        context_stale=False,
        feed=feed,
        body_id="b",
        created_at=NOW,
        updated_at=NOW,
    )


def plan(
    files: Sequence[ScannedFile],
    manifest: Sequence[ManifestEntry] = (),
    states: Mapping[str, DocumentState] | None = None,
    unreadable: Sequence[str] = (),
) -> SyncPlan:
    return plan_sync(
        FEED,
        files,
        manifest,
        states or {},
        recipe_of=lambda _: RECIPE,
        fingerprint=FINGERPRINT,
        unreadable=unreadable,
    )


def synced(paths: Sequence[str]) -> tuple[list[ScannedFile], list[ManifestEntry], dict[str, DocumentState]]:
    """A directory that was stored completely: each file's text is its path."""
    files = [scanned(path) for path in paths]
    manifest = [recorded(file, text=file.path) for file in files]
    return files, manifest, {entry.source_id: stored(entry.source_id, text=entry.path) for entry in manifest}


def only(planned: SyncPlan) -> PlannedFile:
    assert len(planned.actions) == 1
    return planned.actions[0]


# --- one file ---------------------------------------------------------------------------------------------------------


def test_a_new_file_is_read() -> None:
    """A file that no run has seen goes down the path."""
    file = only(plan([scanned("a.md")]))
    assert (file.action, file.cause, file.source_id, file.stored_hash) == (Action.READ, Cause.NEW, "notes/a.md", None)


def test_an_untouched_file_is_left_alone() -> None:
    """Size, time, text, recipe, embedding space and every chunk are as they were."""
    assert only(plan(*synced(["a.md"]))).action is Action.UNCHANGED


@pytest.mark.parametrize(("size", "mtime_ns"), [(11, MTIME_NS), (10, MTIME_NS + 1), (10, MTIME_NS - 1)])
def test_a_changed_file_is_read(size: int, mtime_ns: int) -> None:
    """One byte or one nanosecond is enough, in either direction."""
    _, manifest, states = synced(["a.md"])
    assert only(plan([scanned("a.md", size=size, mtime_ns=mtime_ns)], manifest, states)).cause is Cause.CHANGED


def test_a_failed_file_is_tried_again() -> None:
    """A file whose last run failed is read even when nothing about it changed."""
    file = scanned("a.md")
    assert only(plan([file], [recorded(file, state=FileState.FAILED)])).cause is Cause.FAILED_BEFORE


def test_a_known_quarantine_is_not_read_again_until_it_changes() -> None:
    """A binary file costs one reading, and its reason stays visible."""
    file = scanned("a.txt")
    entry = recorded(file, state=FileState.QUARANTINED)
    known = only(plan([file], [entry]))
    assert (known.action, known.reason) == (Action.QUARANTINED, "it is binary")
    assert only(plan([replace(file, size=11)], [entry])).cause is Cause.CHANGED


def test_a_picture_is_skipped_with_its_reason() -> None:
    """What the scan would not read is in the plan with the scan's words."""
    file = only(plan([scanned("a.svg", skip_reason="an .svg picture is not text")]))
    assert (file.action, file.reason) == (Action.SKIP, "an .svg picture is not text")


def test_a_file_whose_document_was_deleted_is_read() -> None:
    """The directory is the truth: what somebody deleted by hand comes back while its file is there."""
    files, manifest, _ = synced(["a.md"])
    assert only(plan(files, manifest)).cause is Cause.MISSING


def test_a_document_that_holds_other_text_is_read() -> None:
    """A store through another door under the same id does not hide behind an untouched file."""
    files, manifest, states = synced(["a.md"])
    states["notes/a.md"] = stored("notes/a.md", text="other")
    assert only(plan(files, manifest, states)).cause is Cause.DIFFERENT


def test_a_stored_document_without_a_manifest_line_is_read_and_not_called_new() -> None:
    """After a crash between the write and the manifest the path says unchanged, and no rename takes its document."""
    files, _, states = synced(["a.md"])
    file = only(plan(files, [], states))
    assert (file.cause, file.stored_hash) == (Cause.UNRECORDED, "a.md")


@pytest.mark.parametrize(
    "tally",
    [
        {"count": 1},
        {"count": 3},
        {"revisions": frozenset({"r1", "r0"})},
        {"revisions": frozenset({"r0"})},
        {"content_hashes": frozenset({"a.md", "old"})},
        {"content_hashes": frozenset({"old"})},
    ],
)
def test_incomplete_or_mixed_chunks_are_repaired(tally: dict[str, object]) -> None:
    """A document is current only if every chunk of it says so."""
    files, manifest, states = synced(["a.md"])
    state = states["notes/a.md"]
    states["notes/a.md"] = replace(state, tally=replace(state.tally, **tally))
    assert only(plan(files, manifest, states)).cause is Cause.REPAIR


def test_pending_upgrades_are_counted() -> None:
    """Another recipe and another embedding space show in the summary, each document once."""
    files, manifest, states = synced(["a.md", "b.md", "c.md", "d.md"])
    states["notes/a.md"] = replace(states["notes/a.md"], recipe="old")
    states["notes/b.md"] = replace(states["notes/b.md"], fingerprint="old")
    tally = replace(states["notes/c.md"].tally, fingerprints=frozenset({FINGERPRINT, "old"}))
    states["notes/c.md"] = replace(states["notes/c.md"], tally=tally)
    summary = plan(files, manifest, states).summarize()
    assert (summary["read"], summary["unchanged"], summary["rechunk"], summary["reembed"]) == (3, 1, 1, 2)


def test_two_paths_never_share_a_source_id() -> None:
    """Where slug and hash collide, the known file keeps the id and the other is skipped with the remedy."""
    first, second = scanned("a b.md"), scanned(source_id_of("notes", "a b.md").removeprefix("notes/"))
    fresh = plan([first, second])
    assert [file.action for file in fresh.actions] == [Action.READ, Action.SKIP]
    assert "rename one of the two" in fresh.actions[1].reason
    known = plan([first, second], [recorded(second)], {})
    assert {file.path: file.action for file in known.actions} == {first.path: Action.SKIP, second.path: Action.READ}


# --- what is gone -----------------------------------------------------------------------------------------------------


def test_a_vanished_file_loses_its_document() -> None:
    """A file that is gone is deleted, and the others stay."""
    files, manifest, states = synced(["a.md", "b.md"])
    planned = plan(files[:1], manifest, states)
    assert [(file.path, file.action) for file in planned.actions] == [
        ("a.md", Action.UNCHANGED),
        ("b.md", Action.DELETE),
    ]


def test_a_document_without_a_manifest_line_is_deleted_when_its_file_is_gone() -> None:
    """A crash before the manifest was written leaves no document behind for ever."""
    _, _, states = synced(["a.md"])
    assert only(plan([], [], states)).action is Action.DELETE


def test_nothing_below_an_unreadable_folder_is_deleted() -> None:
    """S4: the documents of a folder that could not be listed are kept, whether a manifest knows them or not."""
    _, manifest, states = synced(["sub/a.md", "sub/deep/b.md", "subway.md", "c.md"])
    states["notes/x-12345678"] = stored("notes/x-12345678", path="sub/ü.md")
    planned = plan([], manifest, states, unreadable=["sub"])
    assert {file.path for file in planned.select(Action.DELETE)} == {"subway.md", "c.md"}
    assert not planned.select(Action.FORGET)


def test_another_owners_document_is_never_deleted() -> None:
    """S5: only what this feed owns; a manifest line of somebody else's document is merely forgotten."""
    _, manifest, states = synced(["a.md", "b.md"])
    states["notes/a.md"] = stored("notes/a.md", feed="other")
    states["notes/b.md"] = stored("notes/b.md", feed=None)
    states["notes/by-hand"] = stored("notes/by-hand", feed=None)
    planned = plan([], manifest, states)
    assert not planned.select(Action.DELETE)
    assert {file.path for file in planned.select(Action.FORGET)} == {"a.md", "b.md"}


def test_what_did_not_exist_before_the_scan_is_not_deleted() -> None:
    """S5: a document stored, and a file created, while the scan ran are unknown to the plan."""
    files, manifest, states = synced(["a.md"])
    planned = plan(files, manifest, states)  # notes/new.md was stored after `states` were read
    assert not planned.select(Action.DELETE)


def test_a_skipped_file_keeps_what_was_stored_of_it() -> None:
    """A file that became a link to the outside is not gone."""
    files, manifest, states = synced(["a.md"])
    planned = plan([replace(files[0], skip_reason="the link leads out of the directory")], manifest, states)
    assert [file.action for file in planned.actions] == [Action.SKIP]


@pytest.mark.parametrize(
    ("known", "removed", "asks"),
    [(200, 150, True), (200, 61, True), (200, 60, False), (20, 11, True), (20, 10, False), (3, 3, True), (1, 1, True)],
)
def test_mass_deletions_wait_for_a_person(known: int, removed: int, asks: bool) -> None:
    """S4: more than 30 % and more than 10 files, or an empty directory over a feed that is not."""
    files, manifest, states = synced([f"f{number}.md" for number in range(known)])
    assert deletions_need_confirmation(plan(files[removed:], manifest, states)) is asks


def test_a_mount_point_that_holds_only_a_picture_counts_as_empty() -> None:
    """What is left beside an unmounted directory is no proof that it is there."""
    _, manifest, states = synced(["a.md", "b.md"])
    leftover = scanned("not-mounted.png", skip_reason="a .png picture is not text")
    assert deletions_need_confirmation(plan([leftover], manifest, states))


def test_an_empty_feed_over_an_empty_directory_asks_nothing() -> None:
    """No deletion, no question."""
    assert not deletions_need_confirmation(plan([]))


def test_the_plan_id_names_the_deletions_and_nothing_else() -> None:
    """After everything but the deletions was applied, the same id is there to be confirmed."""
    files, manifest, states = synced([f"f{number}.md" for number in range(20)])
    first = plan([*files[15:], scanned("new.md")], manifest, states)
    new = recorded(scanned("new.md"), text="new.md")
    applied = {**states, new.source_id: stored(new.source_id, text="new.md")}
    second = plan([*files[15:], scanned("new.md")], [*manifest, new], applied)
    assert second.actions != first.actions
    assert second.plan_id == first.plan_id
    assert plan(files[16:], manifest, states).plan_id != first.plan_id


# --- renames ----------------------------------------------------------------------------------------------------------


def test_a_renamed_file_continues_its_document() -> None:
    """S22: same text under a new name keeps the document, and nothing is deleted."""
    _, manifest, states = synced(["old.md"])
    planned = plan([scanned("new.md")], manifest, states)
    assert [file.path for file in files_to_hash(planned)] == ["new.md"]
    renamed = detect_renames(planned, {"new.md": "old.md"})
    new, old = renamed.actions
    assert (new.path, new.action, new.cause, new.previous_source_id) == (
        "new.md",
        Action.READ,
        Cause.RENAMED,
        "notes/old.md",
    )
    assert (old.path, old.action, old.reason) == ("old.md", Action.FORGET, "renamed to new.md")
    assert renamed.plan_id != planned.plan_id


def test_a_moved_folder_keeps_every_document_even_twins() -> None:
    """S22: files with the same text are told apart by their names, and no guard asks about a move."""
    files, manifest, _ = synced([f"old/f{number}.md" for number in range(30)])
    states = {entry.source_id: stored(entry.source_id, text="same") for entry in manifest}
    moved = [scanned(file.path.replace("old/", "new/")) for file in files]
    renamed = detect_renames(plan(moved, manifest, states), {file.path: "same" for file in moved})
    assert not renamed.select(Action.DELETE)
    assert not deletions_need_confirmation(renamed)
    assert {(file.path, file.previous_source_id) for file in renamed.select(Action.READ)} == {
        (f"new/f{number}.md", f"notes/old/f{number}.md") for number in range(30)
    }


def test_twins_that_cannot_be_told_apart_are_left_alone() -> None:
    """Two deleted documents with one text and two new files with it: no document is given to the wrong file."""
    _, manifest, _ = synced(["a.md", "b.md"])
    states = {entry.source_id: stored(entry.source_id, text="same") for entry in manifest}
    renamed = detect_renames(
        plan([scanned("c.md"), scanned("d.md")], manifest, states), {"c.md": "same", "d.md": "same"}
    )
    assert len(renamed.select(Action.DELETE)) == 2


def test_swapped_files_are_two_changed_files() -> None:
    """S22: two names that exchanged their contents are both read and neither is renamed."""
    files, manifest, states = synced(["a.md", "b.md"])
    swapped = plan([replace(file, mtime_ns=MTIME_NS + 1) for file in files], manifest, states)
    assert [file.cause for file in swapped.actions] == [Cause.CHANGED, Cause.CHANGED]
    assert not files_to_hash(swapped)


def test_only_files_of_a_fitting_size_are_hashed() -> None:
    """Ten new files and one deletion must not cost ten readings."""
    _, manifest, states = synced(["old.md"])
    new = [scanned(f"n{size}.md", size=size) for size in range(5, 15)]
    assert [file.path for file in files_to_hash(plan(new, manifest, states))] == ["n10.md"]


def test_names_that_differ_in_case_are_two_documents() -> None:
    """S22: `A.md` and `a.md` are two files, and renaming one to the other is a rename."""
    both = plan([scanned("A.md"), scanned("a.md")])
    assert {file.source_id for file in both.actions} == {"notes/A.md", "notes/a.md"}
    _, manifest, states = synced(["A.md"])
    renamed = detect_renames(plan([scanned("a.md")], manifest, states), {"a.md": "A.md"})
    assert renamed.actions[0].previous_source_id == "notes/A.md"


# --- properties -------------------------------------------------------------------------------------------------------

PATHS = st.lists(st.text(alphabet="ab/. é#", min_size=1, max_size=6), unique=True, max_size=12).map(
    lambda names: [f"p{name}" for name in names]
)


@given(before=PATHS, now=PATHS, lost=st.integers(min_value=0, max_value=12))
def test_a_plan_names_every_path_once_and_deletes_only_what_it_knew(
    before: list[str], now: list[str], lost: int
) -> None:
    """Whatever was there and is there now, and whatever part of the manifest a crash lost."""
    _, manifest, states = synced(before)
    planned = plan([scanned(path) for path in now], manifest[lost:], states)
    here = [file.path for file in planned.actions if file.action not in {Action.DELETE, Action.FORGET}]
    assert sorted(here) == sorted(now)
    deleted = [file.source_id for file in planned.select(Action.DELETE)]
    assert len(deleted) == len(set(deleted))
    assert set(deleted) == states.keys() - {source_id_of(FEED.name, path) for path in now}


@given(before=PATHS, now=PATHS)
def test_an_applied_plan_leaves_nothing_to_do(before: list[str], now: list[str]) -> None:
    """A second run over the same directory is all unchanged."""
    _, manifest, states = synced(before)
    files = {path: scanned(path) for path in now}
    planned = plan(list(files.values()), manifest, states)
    entries = {entry.path: entry for entry in manifest}
    for file in planned.actions:
        match file.action:
            case Action.READ:
                entries[file.path] = recorded(files[file.path], text=file.path)
                states[file.source_id] = stored(file.source_id, text=file.path)
            case Action.DELETE:
                del states[file.source_id], entries[file.path]
            case Action.FORGET:
                del entries[file.path]
            case _:
                pass
    again = plan(list(files.values()), list(entries.values()), states)
    assert {file.action for file in again.actions} <= {Action.UNCHANGED}


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=50), max_size=30),
    most=st.integers(min_value=1, max_value=5),
    chars=st.integers(min_value=1, max_value=60),
)
def test_batches_keep_order_and_bounds(sizes: list[int], most: int, chars: int) -> None:
    """Every file is in one batch, in order; a batch above the size holds one file."""
    planned = plan([scanned(f"f{number:02}.md", size=size) for number, size in enumerate(sizes)]).actions
    cut = list(batches(planned, max_documents=most, max_chars=chars))
    assert [file for batch in cut for file in batch] == list(planned)
    for batch in cut:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(file.size or 0 for file in batch) <= chars


# --- source ids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a.md", "docs/Deep_Dir/a-b@2:x.md", "A.md", "0001.txt"])
def test_a_legal_path_is_its_own_source_id(path: str) -> None:
    """The id of an ordinary file can be guessed from its place."""
    assert source_id_of("notes", path) == f"notes/{path}"


@pytest.mark.parametrize(
    ("path", "starts"),
    [
        ("my notes.md", "notes/my-notes.md-"),
        ("a#b?c%d.md", "notes/a-b-c-d.md-"),
        ("über/Straße.md", "notes/uber/Stra-e.md-"),
        ("设计.md", "notes/.md-"),
        ("🎉.md", "notes/.md-"),
        ("long/" * 80 + "a.md", "notes/long/long/"),
    ],
)
def test_an_illegal_path_gets_its_slug_and_a_hash(path: str, starts: str) -> None:
    """Blanks, signs and letters beyond ASCII are folded, and the hash keeps two such paths apart."""
    source_id = source_id_of("notes", path)
    assert source_id.startswith(starts)
    assert len(source_id) <= 256
    assert source_id[-9] == "-"


def test_composed_and_decomposed_names_are_one_source() -> None:
    """S22: NFC and NFD of a name are the same file to a person."""
    assert source_id_of("notes", "caf\u00e9.md") == source_id_of("notes", "cafe\u0301.md")


@given(one=st.text(min_size=1, max_size=300), feed=st.sampled_from(["notes", "ü", "a.b"]))
def test_every_source_id_is_legal(one: str, feed: str) -> None:
    """Whatever a file is called, its id passes the rule of every door."""
    path = one.encode("utf-8", "replace").decode()
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,255}", source_id_of(feed, path))


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_report_is_the_json_that_was_promised() -> None:
    """Counts come from the files, under their names on the wire."""
    outcomes = [FileOutcome.CREATED, FileOutcome.CREATED, *FileOutcome]
    files = tuple(FileReport(path=f"{n}.md", source_id=None, outcome=outcome) for n, outcome in enumerate(outcomes))
    report = SyncReport(files=files, chunks=7, tokens_embedded=99, texts_embedded=2, seconds=1.5).to_json()
    listed = report.pop("files")
    assert report == {
        "created": 3,
        "updated": 1,
        "attributesUpdated": 1,
        "unchanged": 1,
        "failed": 1,
        "deleted": 1,
        "skipped": 2,
        "chunks": 7,
        "tokensEmbedded": 99,
        "textsEmbedded": 2,
        "vectorsReused": 5,
        "seconds": 1.5,
    }
    assert json.loads(json.dumps(listed))[0] == {"path": "0.md", "sourceId": None, "outcome": "created", "error": None}
