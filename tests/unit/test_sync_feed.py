"""A feed's run, step by step, on real files and fakes: plan, read, store, record, prune."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from memory_core import sync_feed
from memory_core.adapters.local_files import LocalFiles
from memory_core.errors import StorageUnavailableError, SyncError
from memory_core.fakes import EmbeddingFault, FakeDatabase, ScriptedEmbedder
from memory_core.files import DirectoryScan, FileReading
from memory_core.models import StoreRequest
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.sync.values import Action, FileOutcome, FileReport
from memory_core.sync_feed import feed_of_path, plan_feed, prune_feed, read_batch, record_batch, report_untouched
from memory_core.work_ports import Feed, FileState

MakeCore = Callable[..., Core]


@dataclass
class WatchedFiles:
    """The files of this machine; some of them fail, and something may happen while they are listed or read."""

    failing: set[str] = field(default_factory=set[str])
    read_paths: list[str] = field(default_factory=list[str])
    before_scan: Callable[[], Any] | None = None
    before_read: Callable[[Path], None] = lambda _: None
    inner: LocalFiles = field(default_factory=LocalFiles)

    async def scan(self, feed: Feed) -> DirectoryScan:
        """See FileReader."""
        if self.before_scan:
            await self.before_scan()
        return await self.inner.scan(feed)

    async def read(self, path: Path, *, max_bytes: int) -> FileReading:
        """See FileReader."""
        self.read_paths.append(path.name)
        self.before_read(path)
        if path.name in self.failing:
            raise SyncError("The system does not let us read this file. Check its permissions.")
        return await self.inner.read(path, max_bytes=max_bytes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of three notes."""
    directory = tmp_path / "notes"
    directory.mkdir()
    for name in ("a", "b", "c"):
        (directory / f"{name}.md").write_text(f"# Note {name}\n\nText of {name}.\n", encoding="utf-8")
    return directory


async def run(root: Path, core: Core) -> dict[str, FileReport]:
    """One whole run without the flow; the reports by path."""
    feed = await core.feeds.register_feed(Feed(name="notes", root=str(root)))
    await core.store.prepare(core.fingerprint)
    feed_plan = await plan_feed(feed, core=core)
    reading = await read_batch(feed_plan.plan.select(Action.READ), feed_plan=feed_plan, flow_run_id="run", core=core)
    outcomes = await store_content([file.request for file in reading.read], core=core)
    reports = await record_batch(reading, outcomes, feed=feed, core=core)
    reports += await prune_feed(feed_plan, core=core)
    reports += report_untouched(feed_plan)
    return {report.path: report for report in reports}


def outcomes_of(reports: dict[str, FileReport]) -> dict[str, str]:
    return {path: report.outcome.value for path, report in sorted(reports.items())}


def calls_of(core: Core) -> int:
    return len(cast("ScriptedEmbedder", core.embedder).calls)


async def test_a_second_run_reads_nothing_and_embeds_nothing(make_core: MakeCore, root: Path) -> None:
    """Everything is unchanged."""
    files = WatchedFiles()
    core = make_core(files=files)
    assert set(outcomes_of(await run(root, core)).values()) == {"created"}
    stored = await core.store.read_document("notes/a.md")
    assert stored is not None
    assert stored.state.feed == "notes"
    assert stored.state.attributes.metadata == {"path": "a.md"}
    assert stored.state.attributes.uri == (root / "a.md").as_uri()
    assert stored.versions[0].ingest["flowRunId"] == "run"
    files.read_paths.clear()
    calls = calls_of(core)
    assert set(outcomes_of(await run(root, core)).values()) == {"unchanged"}
    assert (files.read_paths, calls_of(core)) == ([], calls)


async def test_code_is_current_by_the_names_that_its_document_was_stored_under(make_core: MakeCore, root: Path) -> None:
    """The plan and the path take the language from the same names, so a second run finds nothing to chunk again."""
    core = make_core(files=WatchedFiles())
    deep = root / ("d" * 200) / ("é" * 120) / ("é" * 120) / ("é" * 120)  # its uri is too long: its id says the language
    deep.mkdir(parents=True)
    for path in (root / "a.py", root / "notes.yaml", root / "Makefile", deep / "b.go"):
        path.write_text("x = 1\n", encoding="utf-8")
    await run(root, core)
    stored = await core.store.read_document("notes/a.py")
    assert stored is not None
    assert stored.options.language == "python"
    assert "/code.python-" in stored.state.recipe
    assert set(outcomes_of(await run(root, core)).values()) == {"unchanged"}


async def test_each_change_has_its_outcome(make_core: MakeCore, root: Path) -> None:
    """Edited, touched, added, gone."""
    core = make_core(files=WatchedFiles())
    await run(root, core)
    (root / "a.md").write_text("# Note a\n\nAnother text.\n", encoding="utf-8")
    os.utime(root / "b.md", ns=(1, 1))
    (root / "c.md").unlink()
    (root / "d.md").write_text("# D\n\nNew.\n", encoding="utf-8")
    reports = await run(root, core)
    assert outcomes_of(reports) == {"a.md": "updated", "b.md": "unchanged", "c.md": "deleted", "d.md": "created"}
    assert set(await core.store.read_feed_states("notes")) == {"notes/a.md", "notes/b.md", "notes/d.md"}
    assert {entry.path for entry in await core.feeds.read_manifest("notes")} == {"a.md", "b.md", "d.md"}


async def test_a_renamed_file_keeps_its_document_and_pays_nothing(make_core: MakeCore, root: Path) -> None:
    """The old line of the manifest is forgotten."""
    core = make_core(files=WatchedFiles())
    await run(root, core)
    before, calls = await core.store.read_document("notes/a.md"), calls_of(core)
    (root / "a.md").rename(root / "z.md")
    reports = await run(root, core)
    after = await core.store.read_document("notes/z.md")
    assert before is not None
    assert after is not None
    assert (after.state.document_id, calls_of(core)) == (before.state.document_id, calls)
    assert reports["z.md"].outcome is FileOutcome.ATTRIBUTES_UPDATED
    assert after.state.attributes.metadata == {"path": "z.md"}
    assert {entry.path for entry in await core.feeds.read_manifest("notes")} == {"b.md", "c.md", "z.md"}


async def test_a_failed_file_has_its_reason_and_is_tried_again(make_core: MakeCore, root: Path) -> None:
    """Whether it could not be read or not be stored; the others do not notice."""
    files = WatchedFiles(failing={"a.md"})
    core = make_core(files=files, script=[EmbeddingFault.REFUSED] * 2, only_with="Note b")
    reports = await run(root, core)
    assert outcomes_of(reports) == {"a.md": "failed", "b.md": "failed", "c.md": "created"}
    assert "permissions" in (reports["a.md"].error or "")
    assert "refused" in (reports["b.md"].error or "")
    manifest = {entry.path: entry for entry in await core.feeds.read_manifest("notes")}
    for path in ("a.md", "b.md"):
        assert manifest[path].state is FileState.FAILED
        assert manifest[path].reason == reports[path].error
        assert manifest[path].content_hash is None
    files.failing.clear()
    assert outcomes_of(await run(root, core)) == {"a.md": "created", "b.md": "created", "c.md": "unchanged"}


async def test_a_file_that_cannot_be_read_any_more_keeps_its_document(make_core: MakeCore, root: Path) -> None:
    """What was stored stays until the file is gone."""
    files = WatchedFiles()
    core = make_core(files=files)
    await run(root, core)
    (root / "a.md").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
    reports = await run(root, core)
    assert reports["a.md"].outcome in {FileOutcome.QUARANTINED, FileOutcome.SKIPPED}
    assert await core.store.read_document("notes/a.md") is not None
    files.read_paths.clear()
    assert (await run(root, core))["a.md"].outcome is FileOutcome.QUARANTINED
    assert files.read_paths == []


async def test_a_blank_file_is_skipped_until_it_says_something(make_core: MakeCore, root: Path) -> None:
    """And is not read again in between."""
    core = make_core(files=WatchedFiles())
    (root / "empty.md").write_text(" \n", encoding="utf-8")
    assert (await run(root, core))["empty.md"].outcome is FileOutcome.SKIPPED
    (root / "empty.md").write_text("Now it does.\n", encoding="utf-8")
    assert (await run(root, core))["empty.md"].outcome is FileOutcome.CREATED


async def test_a_file_that_goes_while_it_is_read_is_put_off(make_core: MakeCore, root: Path) -> None:
    """Nothing of half a file is stored, and the next run looks again."""
    files = WatchedFiles(before_read=lambda path: path.unlink() if path.name == "a.md" else None)
    core = make_core(files=files)
    assert (await run(root, core))["a.md"].outcome in {FileOutcome.SKIPPED, FileOutcome.FAILED}
    assert await core.store.read_document("notes/a.md") is None
    files.before_read = lambda _: None
    (root / "a.md").write_text("back\n", encoding="utf-8")
    assert (await run(root, core))["a.md"].outcome is FileOutcome.CREATED


async def test_what_is_stored_while_the_directory_is_listed_is_not_deleted(make_core: MakeCore, root: Path) -> None:
    """Under the feed's own prefix, by somebody else."""
    files = WatchedFiles()
    core = make_core(files=files)
    await run(root, core)

    async def store_meanwhile() -> None:
        request = StoreContentRequest(content="Theirs", source_id="notes/theirs.md")
        await store_content([StoreRequest(request=request, provenance=Provenance(channel="mcp"))], core=core)

    files.before_scan = store_meanwhile
    await run(root, core)
    await run(root, core)
    assert await core.store.read_document("notes/theirs.md") is not None


async def test_a_missing_directory_deletes_nothing(make_core: MakeCore, root: Path, tmp_path: Path) -> None:
    """An unmounted disk is an error, not a thousand deletions."""
    core = make_core(files=WatchedFiles())
    await run(root, core)
    shutil.move(root, tmp_path / "elsewhere")
    with pytest.raises(SyncError):
        await run(root, core)
    assert len(await core.store.read_feed_states("notes")) == 3


async def test_a_run_that_ended_before_it_recorded_is_only_checked_again(make_core: MakeCore, root: Path) -> None:
    """Stored, then killed: the next run finds it unchanged and records it."""
    core = make_core(files=WatchedFiles())
    feed = await core.feeds.register_feed(Feed(name="notes", root=str(root)))
    feed_plan = await plan_feed(feed, core=core)
    reading = await read_batch(feed_plan.plan.select(Action.READ), feed_plan=feed_plan, flow_run_id=None, core=core)
    await store_content([file.request for file in reading.read], core=core)
    calls = calls_of(core)
    assert set(outcomes_of(await run(root, core)).values()) == {"unchanged"}
    assert calls_of(core) == calls
    assert len(await core.feeds.read_manifest("notes")) == 3


async def test_a_very_deep_path_is_stored_without_a_uri(make_core: MakeCore, root: Path) -> None:
    """In percent signs it is three times as long as the file system allows; the path itself is kept."""
    core = make_core(files=WatchedFiles())
    deep = root.joinpath(*["日本語の長い名前" * 4] * 8)
    deep.mkdir(parents=True)
    (deep / "x.md").write_text("deep\n", encoding="utf-8")
    reports = await run(root, core)
    (report,) = [report for path, report in reports.items() if path.endswith("x.md")]
    assert report.outcome is FileOutcome.CREATED
    stored = await core.store.read_document(report.source_id or "")
    assert stored is not None
    assert stored.state.attributes.uri is None
    assert stored.state.attributes.metadata["path"].endswith("/x.md")


async def test_two_feeds_of_one_database_do_not_see_each_other(make_core: MakeCore, root: Path, tmp_path: Path) -> None:
    """An empty second directory takes nothing from the first."""
    database = FakeDatabase()
    core = make_core(database, files=WatchedFiles())
    await run(root, core)
    other = tmp_path / "other"
    other.mkdir()
    feed = await core.feeds.register_feed(Feed(name="other", root=str(other)))
    feed_plan = await plan_feed(feed, core=core)
    assert await prune_feed(feed_plan, core=core) == []
    assert len(database.documents) == 3


async def test_what_was_written_after_the_plan_is_not_pruned(make_core: MakeCore, root: Path) -> None:
    """Its file is gone, yet somebody stored a new text under its id: that stays until a plan has seen it."""
    core = make_core(files=WatchedFiles())
    await run(root, core)
    for name in ("a.md", "b.md"):
        (root / name).unlink()
    (feed,) = await core.feeds.list_feeds()
    feed_plan = await plan_feed(feed, core=core)
    request = StoreContentRequest(content="Theirs", source_id="notes/a.md")
    await store_content([StoreRequest(request=request, provenance=Provenance(channel="mcp"))], core=core)
    reports = {report.path: report for report in await prune_feed(feed_plan, core=core)}
    assert outcomes_of(reports) == {"a.md": "skipped", "b.md": "deleted"}
    assert "written after" in (reports["a.md"].error or "")
    assert set(await core.store.read_feed_states("notes")) == {"notes/a.md", "notes/c.md"}
    assert {entry.path for entry in await core.feeds.read_manifest("notes")} == {"a.md", "c.md"}


async def test_what_is_written_while_it_is_pruned_stays(
    make_core: MakeCore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete names the revision that was looked at, so nothing slips in between."""
    core = make_core(files=WatchedFiles())
    await run(root, core)
    (root / "a.md").unlink()
    (feed,) = await core.feeds.list_feeds()
    feed_plan = await plan_feed(feed, core=core)
    delete = core.store.delete

    async def store_first(*arguments: Any, **options: Any) -> Any:
        request = StoreContentRequest(content="Theirs", source_id="notes/a.md")
        await store_content([StoreRequest(request=request, provenance=Provenance(channel="mcp"))], core=core)
        return await delete(*arguments, **options)

    monkeypatch.setattr(core.store, "delete", store_first)
    (report,) = await prune_feed(feed_plan, core=core)
    assert report.outcome is FileOutcome.SKIPPED
    assert "notes/a.md" in await core.store.read_feed_states("notes")
    assert "a.md" in {entry.path for entry in await core.feeds.read_manifest("notes")}


@pytest.mark.parametrize(
    ("limit", "value", "sizes"),
    [("MAX_PRUNED_DOCUMENTS", 2, [2, 1]), ("MAX_PRUNED_ROWS", 2, [2, 1]), ("MAX_PRUNED_ROWS", 0, [1, 1, 1])],
)
async def test_a_large_deletion_goes_in_groups(
    make_core: MakeCore, root: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, sizes: list[int]
) -> None:
    """No more than a transaction holds; when one fails, what is gone is forgotten and the next run does the rest."""
    core = make_core(files=WatchedFiles())
    await run(root, core)
    for name in ("a.md", "b.md", "c.md"):
        (root / name).unlink()
    (feed,) = await core.feeds.list_feeds()
    feed_plan = await plan_feed(feed, core=core)
    monkeypatch.setattr(sync_feed, limit, value)
    delete, groups = core.store.delete, list[int]()

    async def fail_second(selector: DeleteSelector, **options: Any) -> Any:
        groups.append(len(selector.revisions))
        if len(groups) == 2:
            raise StorageUnavailableError("MongoDB is away. Try again.")
        return await delete(selector, **options)

    monkeypatch.setattr(core.store, "delete", fail_second)
    with pytest.raises(StorageUnavailableError):
        await prune_feed(feed_plan, core=core)
    assert len(await core.feeds.read_manifest("notes")) == 3 - sizes[0]
    assert len(await core.store.read_feed_states("notes")) == 3 - sizes[0]
    reports = {report.path: report for report in await prune_feed(feed_plan, core=core)}
    assert outcomes_of(reports) == dict.fromkeys(("a.md", "b.md", "c.md"), "deleted")
    assert groups == [*sizes[:2], *sizes[1:]]
    assert await core.feeds.read_manifest("notes") == []


def test_a_directory_gets_a_feed_named_after_it(tmp_path: Path) -> None:
    """The same directory the same one, another of that name another."""
    for name in ("One Two", "x/One Two", "日本"):
        (tmp_path / name).mkdir(parents=True)
    first = feed_of_path(tmp_path / "One Two", [])
    assert (first.name, first.root) == ("one-two", str(tmp_path / "One Two"))
    assert feed_of_path(tmp_path / "One Two" / ".." / "One Two", [first]) == first
    second = feed_of_path(tmp_path / "x" / "One Two", [first])
    assert second.name.startswith("one-two-")
    assert feed_of_path(tmp_path / "日本", []).name == "feed"
    assert feed_of_path(tmp_path / "日本", [first], name="mine").name == "mine"
    (tmp_path / "link").symlink_to(tmp_path / "One Two")
    assert feed_of_path(tmp_path / "link", [first]) == first
