"""FeedStore on MongoDB: configured directories, their leases, their manifests. It knows nothing of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import ReplaceOne
from pymongo.errors import DuplicateKeyError

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import FEED_FILES, FEEDS
from memory_core.adapters.mongo_leases import lease_row, read_holder
from memory_core.errors import NotFoundError, ValidationError
from memory_core.models import Holder
from memory_core.rules import refuse_overlap
from memory_core.work_ports import Feed, FileState, ManifestEntry


class MongoFeedStore:
    """Feeds and what is known of their files."""

    def __init__(self, connection: MongoConnection) -> None:
        self._connection = connection

    async def register_feed(self, feed: Feed) -> Feed:
        """See FeedStore."""
        return await self._connection.run(self._register_feed, feed)

    def _register_feed(self, feed: Feed) -> Feed:
        for other in self._list_feeds():
            refuse_overlap(feed, other)
        fields = {"root": feed.root, "include": list(feed.include), "exclude": list(feed.exclude)}
        try:
            self._connection.collection(FEEDS).update_one({"_id": feed.name}, {"$set": fields}, upsert=True)
        except DuplicateKeyError:  # two processes registered the same root at once under two names
            raise ValidationError(f"The directory {feed.root} is already a feed of another name.") from None
        return feed

    async def list_feeds(self) -> Sequence[Feed]:
        """See FeedStore."""
        return await self._connection.run(self._list_feeds)

    def _list_feeds(self) -> list[Feed]:
        return [_read_feed(row) for row in self._connection.collection(FEEDS).find({}).sort("_id", 1)]

    async def acquire_lease(self, feed: str, holder: Holder, *, seconds: float) -> Holder | None:
        """See FeedStore."""
        return await self._connection.run(self._acquire_lease, feed, holder, seconds)

    def _acquire_lease(self, feed: str, holder: Holder, seconds: float) -> Holder | None:
        free = {
            "_id": feed,
            "$or": [
                {"lease": {"$exists": False}},
                {"lease.token": holder.token},
                {"$expr": {"$lt": ["$lease.until", "$$NOW"]}},
            ],
        }
        feeds = self._connection.collection(FEEDS)
        if feeds.update_one(free, [{"$set": {"lease": lease_row(holder, seconds)}}]).matched_count:
            return None
        row = feeds.find_one({"_id": feed}, {"lease": 1})
        if row is None:
            raise NotFoundError("That feed does not exist. `memory ingest PATH` creates one.")
        return read_holder(row["lease"]) if "lease" in row else self._acquire_lease(feed, holder, seconds)

    async def steal_lease(self, feed: str, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """See FeedStore."""
        return await self._connection.run(self._steal_lease, feed, holder, dead, seconds)

    def _steal_lease(self, feed: str, holder: Holder, dead: Holder, seconds: float) -> bool:
        result = self._connection.collection(FEEDS).update_one(
            {"_id": feed, "lease.token": dead.token}, [{"$set": {"lease": lease_row(holder, seconds)}}]
        )
        return result.matched_count == 1

    async def release_lease(self, feed: str, holder: Holder) -> None:
        """See FeedStore."""
        await self._connection.run(self._release_lease, feed, holder)

    def _release_lease(self, feed: str, holder: Holder) -> None:
        self._connection.collection(FEEDS).update_one(
            {"_id": feed, "lease.token": holder.token}, {"$unset": {"lease": ""}}
        )

    async def read_manifest(self, feed: str) -> Sequence[ManifestEntry]:
        """See FeedStore."""
        return await self._connection.run(self._read_manifest, feed)

    def _read_manifest(self, feed: str) -> list[ManifestEntry]:
        found = self._connection.collection(FEED_FILES).find({"feed": feed}, {"_id": 0, "feed": 0})
        return [_read_entry(row) for row in found]

    async def write_manifest(
        self, feed: str, entries: Sequence[ManifestEntry], *, removed_paths: Sequence[str] = ()
    ) -> None:
        """See FeedStore."""
        await self._connection.run(self._write_manifest, feed, entries, removed_paths)

    def _write_manifest(self, feed: str, entries: Sequence[ManifestEntry], removed_paths: Sequence[str]) -> None:
        files = self._connection.collection(FEED_FILES)
        if removed_paths:
            files.delete_many({"feed": feed, "path": {"$in": list(removed_paths)}})
        if entries:
            files.bulk_write(
                [
                    ReplaceOne({"feed": feed, "path": entry.path}, {"feed": feed, **_entry_row(entry)}, upsert=True)
                    for entry in entries
                ],
                ordered=False,
            )


def _read_feed(row: Mapping[str, Any]) -> Feed:
    return Feed(name=row["_id"], root=row["root"], include=tuple(row["include"]), exclude=tuple(row["exclude"]))


def _entry_row(entry: ManifestEntry) -> Row:
    return {
        "path": entry.path,
        "sourceId": entry.source_id,
        "size": entry.size,
        "mtimeNs": entry.mtime_ns,
        "ctimeNs": entry.ctime_ns,
        "state": entry.state.value,
        "contentHash": entry.content_hash,
        "reason": entry.reason,
        "encoding": entry.encoding,
    }


def _read_entry(row: Mapping[str, Any]) -> ManifestEntry:
    return ManifestEntry(
        path=row["path"],
        source_id=row["sourceId"],
        size=row["size"],
        mtime_ns=row["mtimeNs"],
        ctime_ns=row["ctimeNs"],
        state=FileState(row["state"]),
        content_hash=row["contentHash"],
        reason=row["reason"],
        encoding=row["encoding"],
    )
