"""What a run shows in Prefect's UI. In: a report. Out: a table for a person; paths and reasons, never content."""

from __future__ import annotations

import re

import httpx
import structlog
from prefect.artifacts import acreate_table_artifact

from memory_core.reembed_values import ReembedReport, ReembedResult
from memory_core.sync.values import FileOutcome, SyncReport
from memory_core.work_ports import Feed

MAX_NAMED_FILES = 200

_log = structlog.get_logger(__name__)

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
    try:
        await acreate_table_artifact(
            key=_artifact_key(feed.name), table=rows, description=f"What the run of the feed `{feed.name}` did."
        )
    except httpx.HTTPError as error:  # the run is done and says so itself; a table that is missing must not undo that
        _log.warning("report.not_published", feed=feed.name, error=str(error))


async def publish_reembed(report: ReembedReport) -> None:
    """Write the table of one re-embed: the counts, then each document that was not simply done."""
    counts = {name: value for name, value in report.to_json().items() if isinstance(value, (int, float, str))}
    rows = [{"what": name, "value": str(value), "reason": ""} for name, value in counts.items()]
    told = [one for one in report.documents if one.result is not ReembedResult.DONE]
    rows += [
        {"what": one.result.value, "value": one.source_id, "reason": one.reason or ""} for one in told[:MAX_NAMED_FILES]
    ]
    if len(told) > MAX_NAMED_FILES:
        rows.append({"what": "and", "value": f"{len(told) - MAX_NAMED_FILES} more", "reason": ""})
    try:
        await acreate_table_artifact(key="reembed", table=rows, description=report.describe())
    except httpx.HTTPError as error:  # as above
        _log.warning("report.not_published", error=str(error))


def _artifact_key(feed: str) -> str:
    """Prefect takes lowercase letters, digits and dashes only."""
    return f"sync-{re.sub(r'[^a-z0-9]+', '-', feed.lower()).strip('-') or 'feed'}"
