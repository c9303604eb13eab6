"""How long listings take where little and where much is stored. In: a place. Out: filled databases, seconds a call.

The rows are real: a few documents go down the path, and their rows are copied under ids of their own, with their chunks
and their bodies.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bson import ObjectId
from persist_measures import Place, store

from memory_core.adapters.mongo_connection import Row
from memory_core.adapters.mongo_indexes import CHUNKS, CONTENTS, DOCUMENTS
from memory_core.paging import EXACT_TOTAL
from memory_core.store_ports import ListQuery

TAGS = FEEDS = 10
FIRST_PAGE, TAGGED_PAGE, BY_ID = "first page", "first page with a tag", "get by id"
FEED_PAGE, NEXT_PAGE = "first page of a feed", "next page by cursor"

_TEMPLATES = 50
_ROWS_AT_ONCE = 2_000
_MEASURED_TURNS = 300
_WARM_TURNS = 30
_SEED = 5
_SECTION = "## {name}\n\n{words}\n\n"


@dataclass(frozen=True, slots=True)
class Filled:
    """A place with so many documents, and some of their ids."""

    place: Place
    count: int
    ids: Sequence[str]


async def fill(place: Place, count: int) -> Filled:
    """Make the place hold so many documents of two chunks, each with one of ten tags and in one of ten feeds."""
    database = place.connection.database
    for name in (DOCUMENTS, CHUNKS, CONTENTS):  # what warmed the place up
        database[name].delete_many({})
    outcomes = await store(make_texts(_TEMPLATES), place.core, prefix="template")
    assert {outcome.chunk_count for outcome in outcomes} == {2}, "the documents are to have two chunks each"
    templates = [read_template(place, ObjectId(outcome.document_id)) for outcome in outcomes]
    for name in (DOCUMENTS, CHUNKS, CONTENTS):
        database[name].delete_many({})
    ids: list[str] = []
    waiting: dict[str, list[Row]] = defaultdict(list)
    for number in range(count):
        copied = copy_rows(templates[number % len(templates)], number)
        ids.append(str(copied[DOCUMENTS][0]["_id"]))
        for name, some in copied.items():
            waiting[name] += some
            if len(waiting[name]) >= _ROWS_AT_ONCE or number == count - 1:
                database[name].insert_many(waiting.pop(name), ordered=False)
    await check_copies(place, ids)
    return Filled(place, count, ids)


def make_texts(count: int) -> list[str]:
    """Short Markdown documents of two sections, seeded."""
    generator = random.Random(_SEED)  # noqa: S311 - seeded: equal texts on every run
    words = "memory agent chunk vector replica lease batch index retry token schema cursor page feed tag".split()
    return [
        f"# Note {number}\n\n"
        + "".join(
            _SECTION.format(name=name, words=" ".join(generator.choices(words, k=24))) for name in ("What", "Why")
        )
        for number in range(count)
    ]


def read_template(place: Place, document_id: ObjectId) -> dict[str, list[Row]]:
    """All rows of one stored document, by collection."""
    database = place.connection.database
    (document,) = database[DOCUMENTS].find({"_id": document_id})
    return {
        DOCUMENTS: [document],
        CHUNKS: list(database[CHUNKS].find({"documentId": document_id})),
        CONTENTS: list(database[CONTENTS].find({"bodyId": document["bodyId"]})),
    }


def copy_rows(template: Mapping[str, Sequence[Row]], number: int) -> dict[str, list[Row]]:
    """The rows of a document like the template: new ids, a source id, a tag and a feed, an age in seconds."""
    (document,) = template[DOCUMENTS]
    document_id, revision = ObjectId(), str(ObjectId())
    own: Row = {"sourceId": f"copies/{number}", "tags": [f"tag-{number % TAGS}"], "revision": revision}
    copy: Row = {
        **document,
        **own,
        "_id": document_id,
        "bodyId": revision,
        "feed": f"feed-{number // TAGS % FEEDS}",
        "updatedAt": document["updatedAt"] - timedelta(seconds=number),
        "versions": [{**version, "bodyId": revision} for version in document["versions"]],
    }
    return {
        DOCUMENTS: [copy],
        CHUNKS: [{**row, **own, "_id": ObjectId(), "documentId": document_id} for row in template[CHUNKS]],
        CONTENTS: [{**row, "_id": ObjectId(), "bodyId": revision} for row in template[CONTENTS]],
    }


async def check_copies(place: Place, ids: Sequence[str]) -> None:
    """A copy is a whole document to the product."""
    for document_id in (ids[0], ids[-1]):
        document = await place.core.store.read_document(document_id)
        assert document is not None
        state = document.state
        assert (state.tally.count, state.tally.revisions) == (state.chunk_count, {state.revision})
        assert await place.core.store.read_body(state.body_id)


async def measure(places: Sequence[Filled]) -> dict[str, list[float]]:
    """The median seconds of each call in each place. All places take turns, call by call."""
    seconds: dict[str, list[list[float]]] = {name: [[] for _ in places] for name in CALLS}
    generator = random.Random(_SEED)  # noqa: S311 - seeded: the same ids on every run
    cursors = [(await filled.place.core.store.list_sources(ListQuery())).next_cursor for filled in places]
    for turn in range(_WARM_TURNS + _MEASURED_TURNS):
        for name, call in CALLS.items():
            for index, filled in enumerate(places):
                key = {BY_ID: generator.choice(filled.ids), NEXT_PAGE: cursors[index] or ""}.get(name, "")
                began = time.perf_counter()
                await call(filled, key)
                if turn >= _WARM_TURNS:
                    seconds[name][index].append(time.perf_counter() - began)
    return {name: [statistics.median(some) for some in found] for name, found in seconds.items()}


async def _first_page(filled: Filled, _: str) -> None:
    await _list(filled, ListQuery(), filled.count)


async def _tagged_page(filled: Filled, _: str) -> None:
    await _list(filled, ListQuery(tag="tag-3"), filled.count // TAGS)


async def _feed_page(filled: Filled, _: str) -> None:
    await _list(filled, ListQuery(feed="feed-3"), filled.count // FEEDS)


async def _next_page(filled: Filled, cursor: str) -> None:
    await _list(filled, ListQuery(after=cursor), filled.count)


async def _list(filled: Filled, query: ListQuery, fitting: int) -> None:
    page = await filled.place.core.store.list_sources(query)
    assert len(page.sources) == query.limit
    assert (page.total, page.total_is_exact) == (min(fitting, EXACT_TOTAL), fitting <= EXACT_TOTAL)


async def _get(filled: Filled, document_id: str) -> None:
    document = await filled.place.core.store.read_document(document_id)
    assert document is not None
    assert await filled.place.core.store.read_body(document.state.body_id)


CALLS: Mapping[str, Callable[[Filled, str], Awaitable[None]]] = {
    FIRST_PAGE: _first_page,
    TAGGED_PAGE: _tagged_page,
    BY_ID: _get,
    FEED_PAGE: _feed_page,
    NEXT_PAGE: _next_page,
}
