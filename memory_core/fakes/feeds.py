"""A FeedStore in memory. In: feeds, leases, manifest entries. Out: the same; reads no file and no clock but its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from memory_core.errors import NotFoundError
from memory_core.fakes.database import FakeDatabase, LeaseRecord, take_turns
from memory_core.models import Holder
from memory_core.ports import Clock
from memory_core.rules import refuse_overlap
from memory_core.work_ports import Feed, ManifestEntry


class FakeFeedStore:
    """One process's view of a FakeDatabase. `clock` is the server's: leases lapse by it."""

    def __init__(self, database: FakeDatabase, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def register_feed(self, feed: Feed) -> Feed:
        """Create the feed or update its globs; refuse a directory that another feed covers."""
        await take_turns()
        with self._database.lock:
            for other in self._database.feeds.values():
                refuse_overlap(feed, other)
            self._database.feeds[feed.name] = feed
        return feed

    async def list_feeds(self) -> Sequence[Feed]:
        """All feeds by name."""
        await take_turns()
        return sorted(self._database.feeds.values(), key=lambda feed: feed.name)

    async def acquire_lease(self, feed: str, holder: Holder, *, seconds: float) -> Holder | None:
        """Take or renew the lease; a lapsed one is free."""
        await take_turns()
        with self._database.lock:
            if feed not in self._database.feeds:
                raise NotFoundError("That feed does not exist. `memory ingest PATH` creates one.")
            lease = self._database.feed_leases.get(feed)
            if lease and lease.holder.token != holder.token and lease.until >= self._clock():
                return lease.holder
            self._take_lease(feed, holder, seconds=seconds)
            return None

    async def steal_lease(self, feed: str, holder: Holder, dead: Holder, *, seconds: float) -> bool:
        """Take the lease only from the holder that is known to be dead."""
        await take_turns()
        with self._database.lock:
            lease = self._database.feed_leases.get(feed)
            if lease is None or lease.holder.token != dead.token:
                return False
            self._take_lease(feed, holder, seconds=seconds)
            return True

    def _take_lease(self, feed: str, holder: Holder, *, seconds: float) -> None:
        until = self._clock() + timedelta(seconds=seconds)
        self._database.feed_leases[feed] = LeaseRecord(holder=holder, until=until)

    async def release_lease(self, feed: str, holder: Holder) -> None:
        """Give the lease back where it is still ours."""
        await take_turns()
        with self._database.lock:
            lease = self._database.feed_leases.get(feed)
            if lease and lease.holder.token == holder.token:
                del self._database.feed_leases[feed]

    async def read_manifest(self, feed: str) -> Sequence[ManifestEntry]:
        """Every known file of the feed, by path."""
        await take_turns()
        manifest = tuple(self._database.manifests.items())
        return sorted((entry for (owner, _), entry in manifest if owner == feed), key=lambda entry: entry.path)

    async def write_manifest(
        self, feed: str, entries: Sequence[ManifestEntry], *, removed_paths: Sequence[str] = ()
    ) -> None:
        """Forget the removed paths, then insert or replace: a path in both is kept as it is written."""
        await take_turns()
        with self._database.lock:
            for path in removed_paths:
                self._database.manifests.pop((feed, path), None)
            for entry in entries:
                self._database.manifests[feed, entry.path] = entry
