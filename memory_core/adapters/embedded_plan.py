"""What an index must take in. In: the database's change feed and what the index knows. Out: a plan. Pure.

MongoDB is the only truth. The feed is read with an overlap, because a transaction becomes visible after its own stamp;
documents whose revision is known already cost nothing. A database that lacks what the index saw committed was set back
(a restore): then every document is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from memory_core.adapters.embedded_record import Record
from memory_core.adapters.embedded_rows import KnownDocument
from memory_core.answers import DocumentChange

OVERLAP: Final = timedelta(seconds=90)
"""Longer than the longest transaction: MongoDB ends one after 60 s."""
COMPARE_EVERY: Final = timedelta(hours=24)
"""So often everything is compared, whatever the feed says."""
REPEATS_WORTH_A_RECORD: Final = 200
"""So many known documents read again are worth moving the record's time on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One answer of the change feed. `full`: it lists every live document, and what it does not list is gone."""

    changes: Sequence[DocumentChange]
    now: datetime
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePlan:
    """Documents whose rows are read again, and those that are gone, by id with their commit stamp in milliseconds."""

    refresh: Mapping[str, int]
    remove: Mapping[str, int]

    @property
    def size(self) -> int:
        """How many documents the index is behind."""
        return len(self.refresh) + len(self.remove)


def feed_start(record: Record, anchors: Sequence[KnownDocument]) -> datetime | None:
    """From when on the feed is to be read; None for everything."""
    if not record.complete:
        return None
    overlap_ms = int(OVERLAP.total_seconds() * 1000)
    return from_ms(min([record.read_at_ms - overlap_ms, *(anchor.stamp_ms for anchor in anchors)]))


def needs_comparison(record: Record, anchors: Sequence[KnownDocument], feed: Feed) -> bool:
    """True where the feed alone cannot be trusted: a commit is missing, the clock went back, or it is time again."""
    now_ms = to_ms(feed.now)
    if now_ms < record.read_at_ms or now_ms - record.compared_at_ms > COMPARE_EVERY.total_seconds() * 1000:
        return True
    stamps = _newest(feed.changes)
    return any(
        anchor.document_id not in stamps or to_ms(stamps[anchor.document_id].committed_at) < anchor.stamp_ms
        for anchor in anchors
    )


def plan_update(feed: Feed, known: Mapping[str, KnownDocument]) -> UpdatePlan:
    """Compare the feed with what is known."""
    newest = _newest(feed.changes)
    refresh: dict[str, int] = {}
    remove: dict[str, int] = {}
    for change in newest.values():
        before = known.get(change.document_id)
        stamp_ms = to_ms(change.committed_at)
        if change.revision is None:
            if before is not None and before.revision is not None:
                remove[change.document_id] = stamp_ms
        elif before is None or before.revision != change.revision or (feed.full and stamp_ms < before.stamp_ms):
            refresh[change.document_id] = stamp_ms
    if feed.full:
        remove |= {
            one: 0  # no commit that anybody knows of: it cannot be looked for in the feed later
            for one, before in known.items()
            if one not in newest and (before.revision is not None or before.stamp_ms > 0)
        }
    return UpdatePlan(refresh=refresh, remove=remove)


def is_worth_a_record(record: Record, feed: Feed) -> bool:
    """True where the next process would read the same long feed again only because the record's time stands still."""
    waited = to_ms(feed.now) - record.read_at_ms > OVERLAP.total_seconds() * 1000
    return feed.full or (waited and len(feed.changes) > REPEATS_WORTH_A_RECORD)


def to_ms(moment: datetime) -> int:
    """Whole milliseconds since 1970, as MongoDB keeps time; a time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def from_ms(milliseconds: int) -> datetime:
    """The time of so many milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _newest(changes: Iterable[DocumentChange]) -> dict[str, DocumentChange]:
    """One change a document: the later one, and of two at one moment the live one."""
    newest: dict[str, DocumentChange] = {}
    for change in changes:
        other = newest.get(change.document_id)
        if other is None or _order(change) > _order(other):
            newest[change.document_id] = change
    return newest


def _order(change: DocumentChange) -> tuple[datetime, bool]:
    return (change.committed_at, change.revision is not None)
