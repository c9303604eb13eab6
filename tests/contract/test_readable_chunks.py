"""Chunks with a header row or a readable text of their own: kept as they are, and found by what a reader sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from bson import ObjectId
from pymongo.database import Database

from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.answers import HitRow, SearchFilters
from memory_core.chunk_values import readable_text
from memory_core.highlight import mark_fragments
from memory_core.models import EmbeddedDocument, Fingerprint, hash_text
from memory_core.store_ports import ListQuery, MemoryStore, WriteVerdict

Build: TypeAlias = Callable[..., EmbeddedDocument]

PAGE = "<p>fish &amp; chips <i>today</i></p>"
SCRIPT = "<script>let gadget = 1</script>"


def with_parts(write: EmbeddedDocument, *parts: Mapping[str, Any]) -> EmbeddedDocument:
    """The write with a lead or a readable text on each of its chunks in turn, and with the hash of such a row."""
    chunks = tuple(
        replace(embedded, chunk=replace(embedded.chunk, **changes), row_hash=hash_text(f"{embedded.row_hash}{changes}"))
        for embedded, changes in zip(write.chunks, parts, strict=True)
    )
    return replace(write, chunks=chunks)


async def hits_of(store: MemoryStore, document_id: str) -> list[HitRow]:
    """The document's chunks in order, as an answer shows them."""
    keys = (await store.read_chunk_keys([document_id]))[document_id]
    hits = await store.read_hits([key.chunk_id for key in keys])
    return [hits[key.chunk_id] for key in keys]


async def put(store: MemoryStore, write: EmbeddedDocument, now: datetime) -> None:
    """Write it; it must not meet another."""
    (result,) = await store.write_together([write], now=now)
    assert result.verdict is WriteVerdict.WRITTEN


async def test_a_lead_and_a_readable_text_read_back_as_they_were_written(
    store: MemoryStore, build: Build, now: datetime
) -> None:
    """The text stays the exact slice; a search index gets what a reader sees; other chunks have neither."""
    write = build("pages/a", "plain", "1,2", PAGE, SCRIPT)
    parts: tuple[dict[str, str], ...] = (
        {},
        {"lead": "count,price"},
        {"readable": "fish & chips today"},
        {"readable": ""},
    )
    await put(store, with_parts(write, *parts), now)
    hits = await hits_of(store, write.document.document_id)

    assert [(hit.text, hit.lead, hit.readable) for hit in hits] == [
        ("plain", "", None),
        ("1,2", "count,price", None),
        (PAGE, "", "fish & chips today"),
        (SCRIPT, "", ""),
    ]
    rows = await store.read_chunk_rows([write.document.document_id])
    assert {row.text for row in rows} == {"plain", "1,2", "fish & chips today", ""}


async def test_a_row_that_stays_takes_new_texts_and_loses_what_it_no_longer_has(
    store: MemoryStore, build: Build, now: datetime
) -> None:
    """A lead or a readable text of an earlier write never stands beside the new text."""
    first = build("pages/a", "one", "two", "three")
    await put(store, with_parts(first, {"lead": "a,b"}, {"readable": ""}, {"lead": "c", "readable": "3"}), now)
    document_id = first.document.document_id
    base = (await store.read_states(["pages/a"]))["pages/a"]
    keep = (await store.read_chunk_keys([document_id]))[document_id]
    second = build("pages/a", "one", "two", "three", base=base, keep=keep)
    assert all(chunk.kept for chunk in second.chunks)
    unchanged = replace(second.chunks[2], row_hash=keep[2].row_hash)  # its texts are not sent
    await put(store, replace(second, chunks=(*with_parts(second, {}, {"lead": "d"}, {}).chunks[:2], unchanged)), now)

    hits = await hits_of(store, document_id)
    assert [(hit.lead, hit.readable) for hit in hits] == [("", None), ("d", None), ("c", "3")]


async def test_what_shows_nothing_to_a_reader_is_counted_and_never_found(
    store: MemoryStore,
    reopen: Callable[[], MemoryStore],
    build: Build,
    now: datetime,
    space: Fingerprint,
    tmp_path: Path,
) -> None:
    """A script is a chunk of its document in every count, and neither its words nor its vector find it."""
    page = with_parts(build("pages/a", PAGE, SCRIPT), {"readable": "fish & chips today"}, {"readable": "\n"})
    bare = with_parts(build("pages/b", SCRIPT), {"readable": ""})
    assert (await store.write_together([page, bare], now=now))[1].verdict is WriteVerdict.WRITTEN
    index = EmbeddedSearchIndex(tmp_path, store, dimensions=space.dimensions, language="english")

    assert list(await index.text_leg("gadget", filters=SearchFilters(), limit=9)) == []
    vector = page.chunks[1].vector
    assert vector is not None
    nearest = await index.vector_leg(vector, fingerprint=space.key, filters=SearchFilters(), limit=9)
    assert [hit.chunk_id for hit in nearest.hits] == [page.chunks[0].chunk_id]

    states = await reopen().read_states(["pages/a", "pages/b"])
    assert {source: (state.chunk_count, state.tally.count) for source, state in states.items()} == {
        "pages/a": (2, 2),
        "pages/b": (1, 1),
    }
    assert {one.state.tally.count for one in (await store.list_sources(ListQuery())).sources} == {1, 2}
    health = await store.check_health()
    assert (health.documents, health.chunks, health.faults) == (2, 3, ())


async def test_a_page_is_found_by_what_its_reader_sees_and_shown_without_its_markup(
    store: MemoryStore, build: Build, now: datetime, space: Fingerprint, tmp_path: Path
) -> None:
    """Names of tags find nothing; a snippet has the readable text, safe to put into a page of ours."""
    write = with_parts(build("pages/a", "<em>A&eacute;ro</em> &lt;b&gt; club"), {"readable": "Aéro <b> club"})
    await put(store, write, now)
    index = EmbeddedSearchIndex(tmp_path, store, dimensions=space.dimensions, language="english")

    assert list(await index.text_leg("eacute em", filters=SearchFilters(), limit=9)) == []
    (found,) = await index.text_leg("aéro", filters=SearchFilters(), limit=9)
    row = (await store.read_hits([found.chunk_id]))[found.chunk_id]
    assert row.text == "<em>A&eacute;ro</em> &lt;b&gt; club"
    assert mark_fragments(readable_text(row), "aéro") == ("<mark>Aéro</mark> &lt;b&gt; club",)


@pytest.mark.services
@pytest.mark.parametrize("backend", ["mongodb"], indirect=True)
async def test_a_row_has_the_fields_only_where_they_say_something(
    store: MemoryStore, build: Build, now: datetime, contract_database: Database[dict[str, Any]]
) -> None:
    """A row that was written before there were such fields is no other than one that has nothing to say in them."""
    write = with_parts(build("pages/a", "plain", "1,2", SCRIPT), {}, {"lead": "a,b"}, {"readable": ""})
    await put(store, write, now)
    stored = contract_database["chunks"].find({"documentId": ObjectId(write.document.document_id)})
    named = [{"lead", "readable"} & set(row) for row in stored.sort("chunkIndex", 1)]
    assert named == [set(), {"lead"}, {"readable"}]
