"""`memory log`, `diff`, `trash`, `restore` and `purge`. In: arguments and a core. Out: what to show, the exit code."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from deployments.cli_content import EXIT_FAILED, StoreRun, find_stored, read_version
from deployments.console import out, print_json, print_text, tell
from deployments.submit import delete_runs
from deployments.visible_text import visible, visible_line
from memory_core.answers import Purge, StoredDocument, TrashedDocument
from memory_core.models import StoredVersion
from memory_core.ports import Core
from memory_core.restore import restore_document
from memory_core.wire import log_json, outcome_json, purge_json, trash_json

# As a purge counts the lines of a feed's manifest.
_MANIFEST_ROWS = "feed_files"
_KEPT_BY_MONGODB = (
    "MongoDB's own files, its oplog and backups hold what was written until they are overwritten; search indexes of "
    "other machines are built anew at their next search."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """The kept versions of a document."""

    document: StoredDocument

    def show(self, *, as_json: bool) -> None:
        """Print who stored each version, when and how; the newest first."""
        if as_json:
            print_json(log_json(self.document))
            return
        state = self.document.state
        out.print(Text(f"{visible_line(state.source_id)}  {visible_line(state.attributes.title)}", style="bold"))
        for version in reversed(self.document.versions):
            out.print()
            _print_version(version)


def _print_version(version: StoredVersion) -> None:
    stored = version.stored_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    out.print(Text(f"version {version.version}  {stored}  {version.content_length:,} characters", style="cyan"))
    out.print(Text(f"  sha256 {version.content_hash}"))
    for name, value in version.ingest.items():
        if value is not None and name != "at":
            out.print(Text(f"  {name} {visible_line(str(value))}"))


async def read_log(core: Core, identifier: str) -> LogRun:
    """Who stored what of a document.

    Raises:
        NotFoundError: there is no such document.
    """
    return LogRun(document=await find_stored(core, identifier))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRun:
    """A unified diff of two versions, "" where their texts are equal."""

    document: StoredDocument
    old: int
    new: int
    diff: str

    def show(self, *, as_json: bool) -> None:
        """Print it, exactly through a pipe."""
        if as_json:
            print_json(
                {
                    "sourceId": self.document.state.source_id,
                    "oldVersion": self.old,
                    "newVersion": self.new,
                    "diff": self.diff,
                }
            )
        else:
            print_text(self.diff)


async def diff_versions(core: Core, identifier: str, old: int, new: int) -> DiffRun:
    """Compare the texts of two kept versions line by line.

    Raises:
        NotFoundError: there is no such document, or one of the versions is no longer kept.
    """
    document = await find_stored(core, identifier)
    before, after = [await read_version(core, document, version) for version in (old, new)]
    name = document.state.source_id
    lines = _unify(before, after, old_name=f"{name} version {old}", new_name=f"{name} version {new}")
    return DiffRun(document=document, old=old, new=new, diff="".join(lines))


def _unify(before: str, after: str, *, old_name: str, new_name: str) -> list[str]:
    """As `diff -u`: a last line without a line end is marked, so that a patch of it is exact."""
    return [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(_split(before), _split(after), old_name, new_name, n=3)
    ]


def _split(text: str) -> list[str]:
    """Lines as they are stored, ended by LF alone: other separators are content."""
    lines = [f"{line}\n" for line in text.split("\n")]
    return lines[:-1] if text.endswith("\n") else [*lines[:-1], text.rpartition("\n")[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashRun:
    """What can be restored."""

    documents: Sequence[TrashedDocument]

    def show(self, *, as_json: bool) -> None:
        """Print a table."""
        if as_json:
            print_json({"documents": [trash_json(one) for one in self.documents]})
            return
        if not self.documents:
            out.print("The trash is empty.")
            return
        table = Table(box=None, pad_edge=False)
        for name in ("SOURCE ID", "TITLE", "VER", "DELETED", "UNTIL"):
            table.add_column(name, overflow="fold")
        for one in self.documents:
            state = one.document.state
            cells = (
                state.source_id,
                state.attributes.title,
                str(state.version),
                one.deleted_at.strftime("%Y-%m-%d %H:%M"),
                one.expires_at.strftime("%Y-%m-%d %H:%M"),
            )
            table.add_row(*(Text(visible_line(cell)) for cell in cells))
        out.print(table)


async def list_trash(core: Core, limit: int) -> TrashRun:
    """What was deleted and can still be restored, the last deleted first."""
    return TrashRun(documents=await core.store.read_trash(limit=limit))


async def restore_source(core: Core, identifier: str) -> StoreRun:
    """Take a document out of the trash."""
    return StoreRun(outcome=outcome_json(await restore_document(identifier.strip(), core=core, channel="cli")))


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRun:
    """What a purge removed or would remove, and what it could not."""

    purge: Purge
    removed_runs: int = 0
    left: tuple[str, ...] = ()
    confirmed: bool = True
    search_folders: int = 0

    def show(self, *, as_json: bool) -> int:
        """Print it. 1 where something is left, or nothing was done for want of --yes."""
        purge = self.purge
        if as_json:
            print_json(
                {
                    **purge_json(purge),
                    "removedFlowRuns": self.removed_runs,
                    "removedSearchIndexes": self.search_folders,
                    "left": list(self.left),
                }
            )
        else:
            self._print()
        if not self.confirmed:
            tell("memory: nothing was removed. Run it again with --yes: a purge cannot be undone.")
        return EXIT_FAILED if self.left or not self.confirmed else 0

    def _print(self) -> None:
        purge = self.purge
        verb = "Would remove" if purge.dry_run else "Removed"
        named = visible_line(", ".join(purge.source_ids)) or "what was staged under that name"
        out.print(Text(f"{verb} every trace of {named}:"))
        for name, count in purge.removed.items():
            out.print(f"  {name}: {count:,}")
        if purge.dry_run:
            out.print(f"  flow runs of Prefect: {len(purge.flow_run_ids):,}, and this database's search indexes")
        else:
            out.print(f"  flow runs of Prefect: {self.removed_runs:,}")
            out.print(f"  search indexes here: {self.search_folders:,} (the next search builds one)")
            out.print(_KEPT_BY_MONGODB)
            if _MANIFEST_ROWS in purge.removed:
                out.print("It came from a directory: remove its file there, or the next ingest stores it again.")
        for one in self.left:
            tell(f"memory: left: {visible(one)}")


async def purge_source(core: Core, identifier: str, *, dry_run: bool, confirmed: bool) -> PurgeRun:
    """Remove every trace of a document; without `confirmed` only show what that would be.

    Raises:
        NotFoundError: there is no trace of it.
    """
    name = identifier.strip()
    if dry_run or not confirmed:
        return PurgeRun(purge=await core.store.purge(name, dry_run=True), confirmed=dry_run)
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    # The runs first: once the rows are gone, nobody knows which they were.
    removed, left = await delete_runs((await core.store.purge(name, dry_run=True)).flow_run_ids, core=core)
    purge = await core.store.purge(name)
    folders = await core.index.discard(purge.lineage) if purge.lineage else 0
    return PurgeRun(purge=purge, removed_runs=removed, left=left, search_folders=folders)
