"""What a run shows in Prefect's UI. In: a report. Out: a table for a person; paths and reasons, never content."""

from __future__ import annotations

import re

from prefect.artifacts import acreate_table_artifact

from memory_core.ports import Feed
from memory_core.sync.values import FileOutcome, SyncReport

MAX_NAMED_FILES = 200

_TOLD = frozenset({FileOutcome.FAILED, FileOutcome.SKIPPED, FileOutcome.QUARANTINED, FileOutcome.DELETED})


async def publish_report(feed: Feed, report: SyncReport) -> None:
    """Write the table of one directory run: the counts, then each file that was not simply stored."""
    counts = {name: value for name, value in report.to_json().items() if isinstance(value, (int, float))}
    rows = [{"what": name, "value": str(value), "reason": ""} for name, value in counts.items()]
    told = [file for file in report.files if file.outcome in _TOLD]
    rows += [
        {"what": file.outcome.value, "value": file.path, "reason": file.error or ""} for file in told[:MAX_NAMED_FILES]
    ]
    if len(told) > MAX_NAMED_FILES:
        rows.append({"what": "and", "value": f"{len(told) - MAX_NAMED_FILES} more", "reason": ""})
    await acreate_table_artifact(
        key=_artifact_key(feed.name), table=rows, description=f"What the run of the feed `{feed.name}` did."
    )


def _artifact_key(feed: str) -> str:
    """Prefect takes lowercase letters, digits and dashes only."""
    return f"sync-{re.sub(r'[^a-z0-9]+', '-', feed.lower()).strip('-') or 'feed'}"
