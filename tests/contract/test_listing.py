"""Pages of stored documents: newest first, from cursor to cursor, and flat however much is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pytest
from bson import ObjectId
from pymongo import monitoring
from pymongo.database import Database

from memory_core.answers import SourceListing
from memory_core.errors import ValidationError
from memory_core.models import DocumentState, Fingerprint
from memory_core.paging import EXACT_TOTAL
from memory_core.store_ports import DeleteSelector, ListQuery, MemoryStore
from memory_core.store_request import Provenance

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

LATER = timedelta(minutes=1)
DOCS = Provenance(channel="sync", feed="docs")
ON_MONGODB = pytest.mark.parametrize("backend", ["mongodb"], indirect=True)


class Reads(monitoring.CommandListener):
    """What a listing sends, while somebody listens."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] | None = None

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep finds and aggregations."""
        if self.commands is not None and event.command_name in {"find", "aggregate", "count", "getMore"}:
            self.commands.append(dict(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to keep."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to keep."""


_reads = Reads()
monitoring.register(_reads)


async def walk(store: MemoryStore, *, limit: int, tag: str | None = None, feed: str | None = None) -> list[str]:
    """Every source id, from page to page by cursor."""
    return [
        found.state.source_id async for page in pages(store, limit=limit, tag=tag, feed=feed) for found in page.sources
    ]


async def pages(
    store: MemoryStore, *, limit: int, tag: str | None = None, feed: str | None = None
) -> AsyncIterator[SourceListing]:
    """Every page, from the newest to the one without a next."""
    cursor: str | None = None
    while True:
        page = await store.list_sources(ListQuery(limit=limit, after=cursor, tag=tag, feed=feed))
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


# --- cursors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_cursors_walk_through_all_without_gaps_or_repeats(
    store: MemoryStore, put: Put, now: datetime, limit: int
) -> None:
    """Also where many were stored at the same moment; and the last page, full or not, has no next."""
    for number in range(5):
        await put(f"same/{number}", "text")
    await put("newest", "text", at=now + LATER)
    await put("oldest", "text", at=now - LATER)
    found = [page async for page in pages(store, limit=limit)]
    seen = [one.state.source_id for page in found for one in page.sources]
    assert seen == ["newest", *(f"same/{number}" for number in (4, 3, 2, 1, 0)), "oldest"]
    assert all(page.sources for page in found)
    assert [page.offset for page in found] == [0, *[None] * (len(found) - 1)]
    assert {(page.total, page.total_is_exact, page.limit) for page in found} == {(7, True, limit)}


async def test_a_page_at_an_offset_goes_on_by_cursor(store: MemoryStore, put: Put, now: datetime) -> None:
    """The cursor names the last document that was shown, however the page was found."""
    for number in range(5):
        await put(f"notes/{number}", "text", at=now + number * LATER)
    page = await store.list_sources(ListQuery(limit=2, offset=1))
    rest = await store.list_sources(ListQuery(limit=5, after=page.next_cursor))
    assert [one.state.source_id for one in rest.sources] == ["notes/1", "notes/0"]
    assert rest.next_cursor is None


async def test_a_cursor_page_shows_what_reading_shows(store: MemoryStore, put: Put, now: datetime) -> None:
    """A document is the same on every page and by its id."""
    await put("notes/a", "alpha", "beta")
    await put("notes/b", "beta", at=now + LATER)
    first = await store.list_sources(ListQuery(limit=1))
    second = await store.list_sources(ListQuery(limit=1, after=first.next_cursor))
    assert second.sources == (await store.read_document("notes/a"),)
    assert second.sources[0].state.tally.count == 2


async def test_cursors_hold_while_others_write(store: MemoryStore, put: Put, now: datetime) -> None:
    """Between two pages one shown and one unshown document are edited, one of each is deleted, and one is new.

    Every document that stays as it is comes once. An edited one moves to the front: it does not come again.
    """
    for number in range(10):
        await put(f"notes/{number}", "text", at=now + number * LATER)
    first = await store.list_sources(ListQuery(limit=4))
    assert [one.state.source_id for one in first.sources] == ["notes/9", "notes/8", "notes/7", "notes/6"]
    for source_id in ("notes/8", "notes/3", "new"):
        await put(source_id, "another text", at=now + 20 * LATER)
    # The one that the cursor was made of is among the deleted.
    await store.delete(DeleteSelector(source_ids=("notes/6", "notes/2")), now=now + 20 * LATER)
    second = await store.list_sources(ListQuery(limit=4, after=first.next_cursor))
    assert [one.state.source_id for one in second.sources] == ["notes/5", "notes/4", "notes/1", "notes/0"]
    assert (second.total, second.next_cursor) == (9, None)


async def test_cursors_keep_to_one_tag_and_one_feed(store: MemoryStore, put: Put) -> None:
    """A page of a filter goes on within it."""
    for number in range(12):
        tags = tuple(tag for tag, step in (("even", 2), ("third", 3)) if number % step == 0)
        provenance = DOCS if number < 8 else Provenance(channel="cli")
        await put(f"notes/{number:02}", "text", attributes={"tags": tags}, provenance=provenance)
    assert await walk(store, limit=2, tag="even") == [f"notes/{number:02}" for number in (10, 8, 6, 4, 2, 0)]
    assert await walk(store, limit=3, feed="docs") == [f"notes/{number:02}" for number in range(7, -1, -1)]
    assert await walk(store, limit=1, tag="third", feed="docs") == ["notes/06", "notes/03", "notes/00"]
    assert await walk(store, limit=1, tag="even", feed="other") == []
    page = await store.list_sources(ListQuery(limit=1, tag="third", feed="docs"))
    assert page.total == 3


async def test_a_bad_cursor_is_the_callers_mistake(store: MemoryStore, put: Put) -> None:
    """It is refused, not taken for the beginning; so is one beside an offset."""
    await put("notes/a", "text")
    await put("notes/b", "text")
    with pytest.raises(ValidationError, match="cursor is not one that a listing gave"):
        await store.list_sources(ListQuery(after="notes/a"))
    cursor = (await store.list_sources(ListQuery(limit=1))).next_cursor
    with pytest.raises(ValidationError, match="not both"):
        await store.list_sources(ListQuery(after=cursor, offset=1))


# --- totals -----------------------------------------------------------------------------------------------------------


async def test_a_total_is_exact_up_to_a_limit(store: MemoryStore, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it the total stays at the limit and says that there is more. The limit is low here."""
    assert EXACT_TOTAL == 10_000
    for module in ("adapters.mongo_listing", "fakes.reads"):
        monkeypatch.setattr(f"memory_core.{module}.EXACT_TOTAL", 3)

    async def total(**chosen: Any) -> tuple[int, bool]:
        page = await store.list_sources(ListQuery(limit=1, **chosen))
        return page.total, page.total_is_exact

    for number in range(3):
        await put(f"docs/{number}", "text", attributes={"tags": ("red",)}, provenance=DOCS)
    assert await total() == await total(tag="red") == await total(feed="docs") == (3, True)
    await put("docs/3", "text", provenance=DOCS)
    assert await total() == await total(feed="docs") == (3, False)
    assert await total(tag="red") == await total(tag="red", feed="docs") == (3, True)
    assert await total(offset=10) == (3, False)
    assert await walk(store, limit=3) == ["docs/3", "docs/2", "docs/1", "docs/0"]
    for number in range(4, 7):
        await put(f"docs/{number}", "text")
    assert await total() == (3, False)
    assert await total(tag="red") == (3, True)


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def many(store: MemoryStore, put: Put, contract_database: Database[dict[str, Any]]) -> MemoryStore:
    """A store of 2,000 documents, a hundred at a moment: half of them of one feed, one in fifty with a tag."""
    state = await put("notes/0", "text", "another", provenance=DOCS)
    documents, chunks = contract_database["documents"], contract_database["chunks"]
    row = documents.find_one({"_id": ObjectId(state.document_id)})
    owned = list(chunks.find({"documentId": ObjectId(state.document_id)}))
    assert row is not None
    copies = [
        {
            **row,
            "_id": ObjectId(f"{number:024x}"),
            "sourceId": f"copies/{number}",
            "tags": ["rare"] if number % 50 == 0 else ["common"],
            "feed": "docs" if number % 2 else "other",
            "updatedAt": row["updatedAt"] - (number // 100) * LATER,
        }
        for number in range(0xA000, 0xA000 + 2_000)
    ]
    documents.insert_many(copies)
    chunks.insert_many([{**one, "_id": ObjectId(), "documentId": copy["_id"]} for copy in copies for one in owned])
    return store


@ON_MONGODB
@pytest.mark.services
@pytest.mark.parametrize(
    ("chosen", "is_flat"),
    [({}, True), ({"tag": "rare"}, True), ({"feed": "docs"}, True), ({"tag": "common", "feed": "docs"}, False)],
    ids=["all", "tag", "feed", "both"],
)
async def test_a_page_reads_what_it_shows(
    many: MemoryStore, contract_database: Database[dict[str, Any]], chosen: dict[str, Any], *, is_flat: bool
) -> None:
    """First page and next page: in an index's order, no row beside those of the page, no body and no vector."""
    cursor = (await many.list_sources(ListQuery(limit=20, **chosen))).next_cursor
    for query in (ListQuery(limit=20, **chosen), ListQuery(limit=20, after=cursor, **chosen)):
        find, count, tally = await record_reads(many, query)
        stats = explain(contract_database, find)
        text = str(stats)
        assert "COLLSCAN" not in text
        assert "'SORT'" not in text
        if is_flat:
            assert stats["executionStats"]["totalDocsExamined"] <= 21
            assert stats["executionStats"]["totalKeysExamined"] <= 24
        counted = str(explain(contract_database, count))
        assert "COLLSCAN" not in counted
        assert not is_flat or "FETCH" not in counted
        tallied = str(explain(contract_database, tally))
        assert "FETCH" not in tallied
        assert "COLLSCAN" not in tallied


async def record_reads(store: MemoryStore, query: ListQuery) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The commands of a listing: the page, the count and the tallies. There are no others that read rows."""
    _reads.commands = []
    try:
        page = await store.list_sources(query)
    finally:
        commands, _reads.commands = _reads.commands, None
    assert len(page.sources) == query.limit
    assert [one.state.tally.count for one in page.sources] == [2] * query.limit
    (find,) = [one for one in commands if "find" in one]
    *estimates, count = [one for one in commands if one.get("count") == "documents"]
    assert all("query" not in one for one in estimates), "the server's own number takes no filter"
    (tally,) = [one for one in commands if one.get("aggregate") == "chunks"]
    assert len(commands) - len(estimates) == 3
    assert find["find"] == "documents"
    return find, count, tally


def explain(database: Database[dict[str, Any]], command: dict[str, Any]) -> dict[str, Any]:
    """The plan of a command that was sent, and what its run examined."""
    names = ("find", "count", "aggregate", "filter", "query", "sort", "limit", "skip", "hint", "pipeline", "cursor")
    return database.command("explain", {name: command[name] for name in names if name in command})


@ON_MONGODB
@pytest.mark.services
async def test_a_database_that_nothing_was_written_to_lists_nothing(
    reopen: Callable[[], MemoryStore], contract_database: Database[dict[str, Any]], space: Fingerprint
) -> None:
    """Not even an index is there: an empty page, and no error."""
    for name in ("documents", "chunks"):
        contract_database.drop_collection(name)
    opened = reopen()
    for query in (ListQuery(), ListQuery(tag="a"), ListQuery(feed="a"), ListQuery(tag="a", feed="a")):
        page = await opened.list_sources(query)
        assert (page.sources, page.total, page.total_is_exact, page.next_cursor) == ((), 0, True, None)
    await reopen().prepare(space)  # the next test finds its indexes
    await opened.close()
