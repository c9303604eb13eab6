"""A feed's run in steps. In: a feed. Out: a plan, requests for the path, and the truth about each file.

The flow keeps the order and the batches; each step here is safe to repeat. It reads files and the manifest and stores
nothing itself: content goes down `store_content` like everything else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from memory_core.chunk.chunk_content import describe_recipe
from memory_core.costs import EmbeddingEstimate
from memory_core.errors import SyncError, ValidationError
from memory_core.files import MAX_FILE_BYTES, Blank, Changed, FileReading, FileText, Quarantine, ScannedFile
from memory_core.languages import choose_language
from memory_core.models import DocumentState, Outcome, StoreOutcome, StoreRequest, hash_text
from memory_core.ports import Core
from memory_core.rules import default_options, normalise_text
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import MAX_URI_CHARS, Provenance, StoreContentRequest
from memory_core.sync.plan import plan_sync
from memory_core.sync.renames import detect_renames, files_to_hash
from memory_core.sync.values import Action, FileOutcome, FileReport, PlannedFile, SyncPlan
from memory_core.work_ports import Feed, FileState, ManifestEntry

# One transaction removes so many in a few seconds; a server may end what takes longer than twenty.
MAX_PRUNED_DOCUMENTS = 200
MAX_PRUNED_ROWS = 5_000

_WRITTEN_SINCE = "its file is gone, but its document was written after this run had planned; the next run looks again"
_FEED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_OUTCOMES: dict[Outcome, FileOutcome] = {
    Outcome.CREATED: FileOutcome.CREATED,
    Outcome.UPDATED: FileOutcome.UPDATED,
    Outcome.ATTRIBUTES_UPDATED: FileOutcome.ATTRIBUTES_UPDATED,
    Outcome.UNCHANGED: FileOutcome.UNCHANGED,
    Outcome.FAILED: FileOutcome.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPlan:
    """A plan with the scanned files by path, which say where each lies and what it was like when it was listed.

    `estimate` is what embedding it would take, where somebody asked for that.
    """

    feed: Feed
    plan: SyncPlan
    files: Mapping[str, ScannedFile]
    estimate: EmbeddingEstimate | None = None

    def describe(self) -> str:
        """What a run would do, and what that takes, as sentences."""
        counts = self.plan.summarize()
        done = ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"
        return f"Would do: {done}." + (f" {self.estimate.describe()}" if self.estimate else "")

    def to_json(self) -> dict[str, object]:
        """The same as plain values, ready for `json.dumps`."""
        return {
            "feed": self.feed.name,
            "planId": self.plan.plan_id,
            "plan": self.plan.summarize(),
            "estimate": self.estimate and self.estimate.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that was read: its request for the path, and its line for the manifest once that is stored."""

    planned: PlannedFile
    request: StoreRequest
    entry: ManifestEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReading:
    """A batch of files, read. `settled` are those that have no text to store, with what the manifest will say."""

    read: tuple[ReadFile, ...]
    settled: tuple[tuple[FileReport, ManifestEntry], ...]


async def plan_feed(feed: Feed, *, core: Core) -> FeedPlan:
    """Compare the directory with the manifest and with what is stored.

    What is stored is read before the scan: a document that somebody stores meanwhile is unknown to the plan and cannot
    be deleted by it.

    Raises:
        SyncError: the root is missing or cannot be read; nothing is deleted.
    """
    states = await core.store.read_feed_states(feed.name)
    manifest = await core.feeds.read_manifest(feed.name)
    scan = await core.files.scan(feed)
    options = default_options(core.settings)

    def recipe_of(state: DocumentState) -> str:
        stored = state.attributes
        language = choose_language(stored.content_type, uri=stored.uri, source_id=state.source_id, title=stored.title)
        return describe_recipe(stored.content_type, replace(options, language=language), core.counter.name)

    plan = await asyncio.to_thread(
        plan_sync,
        feed,
        scan.files,
        manifest,
        states,
        recipe_of=recipe_of,
        fingerprint=core.fingerprint.key,
        unreadable=scan.unreadable,
    )
    files = {file.path: file for file in scan.files}
    hashes = await _hash_files([files[planned.path] for planned in files_to_hash(plan)], core)
    return FeedPlan(feed=feed, plan=detect_renames(plan, hashes), files=files)


async def _hash_files(files: Sequence[ScannedFile], core: Core) -> dict[str, str]:
    hashes: dict[str, str] = {}
    for file in files:
        try:
            reading = await core.files.read(file.absolute, max_bytes=MAX_FILE_BYTES)
        except SyncError:
            continue  # it is read again with its batch, which reports the error
        if isinstance(reading, FileText):
            hashes[file.path] = hash_text(normalise_text(reading.text))
    return hashes


async def read_batch(
    planned: Sequence[PlannedFile], *, feed_plan: FeedPlan, flow_run_id: str | None, core: Core
) -> BatchReading:
    """Read the files of a batch. What cannot be read is settled with its reason; nothing is stored yet."""
    read: list[ReadFile] = []
    settled: list[tuple[FileReport, ManifestEntry]] = []
    for one in planned:
        file = feed_plan.files[one.path]
        try:
            reading = await core.files.read(file.absolute, max_bytes=MAX_FILE_BYTES)
        except SyncError as error:
            settled.append(_settle(one, file, FileOutcome.FAILED, FileState.FAILED, error.message))
            continue
        if isinstance(reading, FileText):
            read.append(_make_request(one, file, reading, feed_plan.feed, flow_run_id))
        else:
            settled.append(_settle_unread(one, file, reading))
    return BatchReading(read=tuple(read), settled=tuple(settled))


def _settle_unread(planned: PlannedFile, file: ScannedFile, reading: FileReading) -> tuple[FileReport, ManifestEntry]:
    match reading:
        case Quarantine():
            return _settle(planned, file, FileOutcome.QUARANTINED, FileState.QUARANTINED, reading.reason)
        case Blank():
            return _settle(planned, file, FileOutcome.SKIPPED, FileState.QUARANTINED, reading.reason)
        case Changed():  # put off: the next run reads it, whatever its size and time say by then
            return _settle(planned, file, FileOutcome.SKIPPED, FileState.FAILED, reading.reason)
        case FileText():
            raise AssertionError("a file with text is stored, not settled")
        case _:
            assert_never(reading)


def _settle(
    planned: PlannedFile, file: ScannedFile, outcome: FileOutcome, state: FileState, reason: str
) -> tuple[FileReport, ManifestEntry]:
    report = FileReport(path=planned.path, source_id=planned.source_id, outcome=outcome, error=reason)
    entry = ManifestEntry(
        path=planned.path,
        source_id=planned.source_id,
        size=file.size,
        mtime_ns=file.mtime_ns,
        ctime_ns=file.ctime_ns,
        state=state,
        reason=reason,
    )
    return report, entry


def _make_request(
    planned: PlannedFile, file: ScannedFile, reading: FileText, feed: Feed, flow_run_id: str | None
) -> ReadFile:
    uri = file.absolute.as_uri()
    request = StoreRequest(
        request=StoreContentRequest(
            content=reading.text,
            source_id=planned.source_id,
            # A deep path in percent signs can exceed what a uri may have; `metadata.path` has it in any case.
            uri=uri if len(uri) <= MAX_URI_CHARS else None,
            content_type=file.content_type.value,
            metadata={"path": planned.path},
        ),
        provenance=Provenance(channel="directory", feed=feed.name, flow_run_id=flow_run_id),
        notes=reading.notes,
        previous_source_id=planned.previous_source_id,
    )
    entry = ManifestEntry(
        path=planned.path,
        source_id=planned.source_id,
        size=reading.size,
        mtime_ns=reading.mtime_ns,
        ctime_ns=reading.ctime_ns,
        state=FileState.STORED,
        content_hash=hash_text(normalise_text(reading.text)),
        encoding=reading.encoding,
    )
    return ReadFile(planned=planned, request=request, entry=entry)


async def record_batch(
    reading: BatchReading, outcomes: Sequence[StoreOutcome], *, feed: Feed, core: Core
) -> list[FileReport]:
    """Write what became of each file to the manifest, after it is stored: a crash in between only repeats a check."""
    reports = [report for report, _ in reading.settled]
    entries = [entry for _, entry in reading.settled]
    for file, outcome in zip(reading.read, outcomes, strict=True):
        error = outcome.error.message if outcome.error else None
        reports.append(
            FileReport(
                path=file.planned.path,
                source_id=outcome.source_id or file.planned.source_id,
                outcome=_OUTCOMES[outcome.outcome],
                error=error,
            )
        )
        entries.append(_failed_entry(file.entry, error) if error is not None else file.entry)
    await core.feeds.write_manifest(feed.name, entries)
    return reports


def _failed_entry(entry: ManifestEntry, reason: str) -> ManifestEntry:
    return ManifestEntry(
        path=entry.path,
        source_id=entry.source_id,
        size=entry.size,
        mtime_ns=entry.mtime_ns,
        ctime_ns=entry.ctime_ns,
        state=FileState.FAILED,
        reason=reason,
        encoding=entry.encoding,
    )


async def prune_feed(feed_plan: FeedPlan, *, core: Core) -> list[FileReport]:
    """Delete the documents whose files are gone, group by group, each time forgetting the group's files.

    A document that was written after the plan was made stays, and so does its line: the next run looks again.
    """
    feed, gone = feed_plan.feed, feed_plan.plan.select(Action.DELETE)
    reports: list[FileReport] = []
    for start in range(0, len(gone), MAX_PRUNED_DOCUMENTS):
        page = gone[start : start + MAX_PRUNED_DOCUMENTS]
        states = await core.store.read_states([planned.source_id for planned in page])
        for group in _split_by_rows(page, states):
            reports += await _prune_group(group, states, feed=feed, core=core)
    if forgotten := [planned.path for planned in feed_plan.plan.select(Action.FORGET)]:
        await core.feeds.write_manifest(feed.name, (), removed_paths=forgotten)
    return reports


def _split_by_rows(page: Sequence[PlannedFile], states: Mapping[str, DocumentState]) -> Iterator[Sequence[PlannedFile]]:
    """Groups that one transaction can remove in time; a document with more rows is a group of its own."""
    group: list[PlannedFile] = []
    rows = 0
    for planned in page:
        state = states.get(planned.source_id)
        count = state.tally.count if state else 0
        if group and rows + count > MAX_PRUNED_ROWS:
            yield group
            group, rows = [], 0
        group.append(planned)
        rows += count
    yield group


async def _prune_group(
    group: Sequence[PlannedFile], states: Mapping[str, DocumentState], *, feed: Feed, core: Core
) -> list[FileReport]:
    present = [planned for planned in group if planned.source_id in states]
    revisions = {
        planned.source_id: states[planned.source_id].revision
        for planned in present
        if states[planned.source_id].content_hash == planned.stored_hash
    }
    deleted: set[str] = set()
    if revisions:
        deletion = await core.store.delete(DeleteSelector(revisions=revisions), now=core.clock(), feed=feed.name)
        deleted = set(deletion.source_ids)
    kept = {planned.path for planned in present if planned.source_id not in deleted}
    if forgotten := [planned.path for planned in group if planned.path not in kept]:
        await core.feeds.write_manifest(feed.name, (), removed_paths=forgotten)
    return [
        FileReport(
            path=planned.path,
            source_id=planned.source_id,
            outcome=FileOutcome.SKIPPED if planned.path in kept else FileOutcome.DELETED,
            error=_WRITTEN_SINCE if planned.path in kept else None,
        )
        for planned in group
    ]


def report_untouched(feed_plan: FeedPlan) -> list[FileReport]:
    """The files that the run need not read: unchanged, skipped by policy, known not to be text."""
    outcomes = {
        Action.UNCHANGED: FileOutcome.UNCHANGED,
        Action.SKIP: FileOutcome.SKIPPED,
        Action.QUARANTINED: FileOutcome.QUARANTINED,
    }
    return [
        FileReport(
            path=planned.path,
            source_id=None if planned.action is Action.SKIP else planned.source_id,
            outcome=outcomes[planned.action],
            error=None if planned.action is Action.UNCHANGED else planned.reason,
        )
        for planned in feed_plan.plan.actions
        if planned.action in outcomes
    ]


def feed_of_path(path: Path, feeds: Sequence[Feed], *, name: str | None = None) -> Feed:
    """The feed whose root this path is (absolute, links resolved), else a new one named after its directory."""
    root = str(path.resolve())
    known = next((feed for feed in feeds if feed.root == root), None)
    if name is not None and not _FEED_NAME.fullmatch(name):
        raise ValidationError("A feed's name has 1 to 64 letters, digits and . _ - and begins with a letter or digit.")
    if known:
        if name not in {None, known.name}:
            raise ValidationError(
                f"That directory is the feed {known.name!r} already. Leave --feed out, or use that name."
            )
        return known
    if name is None:
        plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in Path(root).name.lower()).strip("-")
        taken = {feed.name for feed in feeds}
        base = plain or "feed"
        name = base if base not in taken else f"{base}-{hash_text(root)[:8]}"
    return Feed(name=name, root=root)
