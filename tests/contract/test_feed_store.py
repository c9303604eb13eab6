"""FeedStore: directories that never overlap, leases that keep two runs apart, manifests. Both backends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from memory_core.errors import NotFoundError, ValidationError
from memory_core.models import Holder
from memory_core.work_ports import Feed, FeedStore, FileState, ManifestEntry

# A lease that ended before it began: what a lapsed one looks like, without waiting for it.
LAPSED_SECONDS = -1.0
LONG_SECONDS = 600.0

DOCS = Feed(name="docs", root="/data/docs", include=("*.md",), exclude=("drafts/",))
ANN = Holder(host="laptop", pid=4_194_304, started=1_796_068_207.123456, token="a" * 32)
BEN = Holder(host="laptop", pid=17, started=1_796_068_300.5, token="b" * 32)


# --- feeds ------------------------------------------------------------------------------------------------------------


async def test_feeds_are_listed_by_name(feeds: FeedStore) -> None:
    """As they were registered."""
    others = [Feed(name="zoo", root="/data/zoo"), Feed(name="abc", root="/srv/abc")]
    for feed in (DOCS, *others):
        assert await feeds.register_feed(feed) == feed
    assert list(await feeds.list_feeds()) == [others[1], DOCS, others[0]]


async def test_registering_again_updates_the_globs(feeds: FeedStore) -> None:
    """The same name and root: no second feed."""
    await feeds.register_feed(DOCS)
    changed = replace(DOCS, include=("*.txt", "*.rst"), exclude=())
    assert await feeds.register_feed(changed) == changed
    assert list(await feeds.list_feeds()) == [changed]


@pytest.mark.parametrize("root", ["/data/docs/guides", "/data", "/", "/data/docs"])
async def test_a_root_inside_or_above_another_feeds_is_refused(feeds: FeedStore, root: str) -> None:
    """With both names; nothing changes."""
    await feeds.register_feed(DOCS)
    with pytest.raises(ValidationError) as refusal:
        await feeds.register_feed(Feed(name="guides", root=root))
    assert "docs" in refusal.value.message
    assert "guides" in refusal.value.message
    assert list(await feeds.list_feeds()) == [DOCS]


async def test_a_root_that_only_begins_alike_is_apart(feeds: FeedStore) -> None:
    """Directories are compared by their parts, not by their letters."""
    await feeds.register_feed(DOCS)
    await feeds.register_feed(Feed(name="docs2", root="/data/docs2"))
    assert len(await feeds.list_feeds()) == 2


async def test_a_name_belongs_to_one_root(feeds: FeedStore) -> None:
    """Or a feed would delete what it stored from another directory."""
    await feeds.register_feed(DOCS)
    with pytest.raises(ValidationError):
        await feeds.register_feed(replace(DOCS, root="/data/other"))
    assert list(await feeds.list_feeds()) == [DOCS]


async def test_registering_keeps_lease_and_manifest(feeds: FeedStore) -> None:
    """New globs do not let a second run in and do not forget the files."""
    await feeds.register_feed(DOCS)
    await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS)
    await feeds.write_manifest("docs", [entry("a.md")])
    await feeds.register_feed(replace(DOCS, include=()))
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) == ANN
    assert list(await feeds.read_manifest("docs")) == [entry("a.md")]


# --- leases -----------------------------------------------------------------------------------------------------------


async def test_a_lease_keeps_another_run_out_and_says_who_holds_it(feeds: FeedStore) -> None:
    """Its holder comes back exactly, so that the next run on this machine can tell whether it lives."""
    await feeds.register_feed(DOCS)
    assert await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS) is None
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) == ANN


async def test_a_holder_renews_its_own_lease(feeds: FeedStore) -> None:
    """The renewed lease holds as long as the last renewal says."""
    await feeds.register_feed(DOCS)
    await feeds.acquire_lease("docs", ANN, seconds=LAPSED_SECONDS)
    assert await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS) is None
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) == ANN
    assert await feeds.acquire_lease("docs", ANN, seconds=LAPSED_SECONDS) is None
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) is None


async def test_a_lapsed_lease_is_free(feeds: FeedStore) -> None:
    """Whoever comes next has it; the one who slept finds it taken."""
    await feeds.register_feed(DOCS)
    await feeds.acquire_lease("docs", ANN, seconds=LAPSED_SECONDS)
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) is None
    assert await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS) == BEN


async def test_a_released_lease_is_free(feeds: FeedStore) -> None:
    """Giving back what is not ours, or twice, does nothing."""
    await feeds.register_feed(DOCS)
    await feeds.release_lease("docs", ANN)
    await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS)
    await feeds.release_lease("docs", BEN)
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) == ANN
    await feeds.release_lease("docs", ANN)
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) is None
    await feeds.release_lease("docs", ANN)
    assert await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS) == BEN


async def test_of_runs_that_start_together_one_has_the_lease(feeds: FeedStore) -> None:
    """All others are told who."""
    await feeds.register_feed(DOCS)
    holders = [replace(ANN, pid=number, token=f"{number:032x}") for number in range(6)]
    answers = await asyncio.gather(*(feeds.acquire_lease("docs", one, seconds=LONG_SECONDS) for one in holders))
    winner = holders[answers.index(None)]
    assert [answer for answer in answers if answer is not None] == [winner] * 5


async def test_the_lease_of_a_dead_holder_can_be_stolen_once(feeds: FeedStore) -> None:
    """Only from the one that is known to be dead, never from its successor."""
    await feeds.register_feed(DOCS)
    assert not await feeds.steal_lease("docs", BEN, ANN, seconds=LONG_SECONDS)
    await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS)
    carl, dora = replace(BEN, pid=18, token="c" * 32), replace(BEN, pid=19, token="d" * 32)
    stolen = await asyncio.gather(*(feeds.steal_lease("docs", one, ANN, seconds=LONG_SECONDS) for one in (carl, dora)))
    assert sorted(stolen) == [False, True]
    winner = (carl, dora)[stolen.index(True)]
    assert await feeds.acquire_lease("docs", BEN, seconds=LONG_SECONDS) == winner
    assert not await feeds.steal_lease("docs", BEN, ANN, seconds=LONG_SECONDS)


async def test_leases_of_two_feeds_are_apart(feeds: FeedStore) -> None:
    """Two directories sync at the same time."""
    await feeds.register_feed(DOCS)
    await feeds.register_feed(Feed(name="zoo", root="/data/zoo"))
    assert await feeds.acquire_lease("docs", ANN, seconds=LONG_SECONDS) is None
    assert await feeds.acquire_lease("zoo", BEN, seconds=LONG_SECONDS) is None


async def test_a_feed_that_does_not_exist_has_no_lease(feeds: FeedStore) -> None:
    """A run that misspells its feed is told so."""
    with pytest.raises(NotFoundError):
        await feeds.acquire_lease("dcos", ANN, seconds=LONG_SECONDS)


# --- manifests --------------------------------------------------------------------------------------------------------


def entry(path: str, *, state: FileState = FileState.STORED, content_hash: str | None = "0" * 64) -> ManifestEntry:
    """What a feed knows of one file."""
    return ManifestEntry(
        path=path,
        source_id=f"docs/{path}",
        size=5_000_000_000,
        mtime_ns=1_796_068_207_123_456_789,
        state=state,
        content_hash=content_hash,
        reason=None if state is FileState.STORED else "It is a picture.",
        encoding="utf-8" if state is FileState.STORED else None,
    )


async def by_path(feeds: FeedStore, feed: str = "docs") -> dict[str, ManifestEntry]:
    """The manifest by path."""
    return {known.path: known for known in await feeds.read_manifest(feed)}


async def test_a_manifest_reads_back_exactly(feeds: FeedStore) -> None:
    """Nanoseconds, sizes above 4 GB, odd names and every state."""
    await feeds.register_feed(DOCS)
    entries = [
        entry("a.md"),
        entry("sub/.dotted/$name with spaces #1 é \U0001f600.md"),
        entry("picture.png", state=FileState.QUARANTINED, content_hash=None),
        entry("broken.md", state=FileState.FAILED),
    ]
    await feeds.write_manifest("docs", entries)
    assert await by_path(feeds) == {known.path: known for known in entries}


async def test_entries_are_replaced_by_path_and_removed_ones_forgotten(feeds: FeedStore) -> None:
    """What is not named stays."""
    await feeds.register_feed(DOCS)
    await feeds.write_manifest("docs", [entry("a.md"), entry("b.md"), entry("c.md")])
    changed = entry("a.md", state=FileState.FAILED)
    await feeds.write_manifest("docs", [changed, entry("d.md")], removed_paths=["b.md", "never-there.md"])
    assert await by_path(feeds) == {"a.md": changed, "c.md": entry("c.md"), "d.md": entry("d.md")}
    await feeds.write_manifest("docs", [], removed_paths=["c.md"])
    assert set(await by_path(feeds)) == {"a.md", "d.md"}


async def test_a_path_that_is_written_and_removed_is_there(feeds: FeedStore) -> None:
    """A file that went away and came back under its name in one run: the last truth is the entry."""
    await feeds.register_feed(DOCS)
    await feeds.write_manifest("docs", [entry("a.md")])
    changed = entry("a.md", content_hash="1" * 64)
    await feeds.write_manifest("docs", [changed], removed_paths=["a.md"])
    assert await by_path(feeds) == {"a.md": changed}


async def test_a_manifest_of_nothing_is_harmless(feeds: FeedStore) -> None:
    """A run without a change writes nothing."""
    await feeds.register_feed(DOCS)
    await feeds.write_manifest("docs", [])
    assert await by_path(feeds) == {}


async def test_manifests_of_two_feeds_are_apart(feeds: FeedStore) -> None:
    """The same path in two feeds is two files."""
    await feeds.register_feed(DOCS)
    await feeds.register_feed(Feed(name="zoo", root="/data/zoo"))
    await feeds.write_manifest("docs", [entry("a.md")])
    await feeds.write_manifest("zoo", [entry("a.md", state=FileState.FAILED), entry("b.md")])
    await feeds.write_manifest("zoo", [], removed_paths=["a.md"])
    assert set(await by_path(feeds)) == {"a.md"}
    assert set(await by_path(feeds, "zoo")) == {"b.md"}
