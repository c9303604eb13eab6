"""`memory ingest`. In: a directory and a core. Out: what the run did, to show, and the exit code; no rules.

Apart from the other commands because planning needs pandas, which takes most of a second to import.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from deployments.console import out, print_json, print_report, tell
from deployments.submit import RunResult, run_directory
from deployments.visible_text import visible, visible_line
from memory_core.costs import check_max_cost
from memory_core.errors import ValidationError
from memory_core.ports import Core
from memory_core.sync.values import SyncReport
from memory_core.sync_feed import FeedPlan, feed_of_path
from memory_core.work_ports import Feed

EXIT_FAILED = 1


def check_directory(path: Path) -> None:
    """Refuse what cannot be a feed before any service is started.

    Raises:
        ValidationError: there is no such directory.
    """
    shown = visible_line(path)
    if not path.exists():
        raise ValidationError(f"The directory {shown} does not exist. Check the path; nothing changed.")
    if not path.is_dir():
        raise ValidationError(f"{shown} is a file. `memory store {shown}` stores one file; ingest takes a directory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRun:
    """How a directory run ended."""

    feed: Feed
    result: RunResult

    def show(self, *, as_json: bool) -> int:
        """Print the report, or the plan where nothing was done.

        1 where any file failed, deletions wait for a confirmation, or the run would have cost more than it may.
        """
        value = self.result.value
        if isinstance(value, SyncReport):
            if as_json:
                print_json(value.to_json())
            else:
                print_report(self.feed, value, completed=self.result.completed)
        elif isinstance(value, FeedPlan):
            if as_json:
                print_json(value.to_json())
            else:
                out.print(visible(value.describe()), markup=False)
        if not self.result.completed:
            tell(self.result.message)
        return 0 if self.result.completed else EXIT_FAILED


async def ingest_directory(
    core: Core,
    path: Path,
    name: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    *,
    confirm: str | None,
    dry_run: bool,
    max_cost: float | None = None,
) -> IngestRun:
    """Make the directory a feed and run the flow on it. The owner's command line may name any directory.

    Raises:
        ValidationError: `max_cost` (US dollars) is no limit.
    """
    check_max_cost(max_cost)
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    feed = feed_of_path(path, await core.feeds.list_feeds(), name=name)
    if include or exclude:
        feed = replace(feed, include=include, exclude=exclude)
    feed = await core.feeds.register_feed(feed)
    result = await run_directory(feed.name, core=core, confirm=confirm, dry_run=dry_run, max_cost=max_cost)
    return IngestRun(feed=feed, result=result)
