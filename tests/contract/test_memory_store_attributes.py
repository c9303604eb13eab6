"""MemoryStore, writing attributes: what moves without a new version, and what is kept as it is. Both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pytest

from memory_core.models import ContentType, DocumentState, EmbeddedDocument
from memory_core.store_ports import AttributeWrite, MemoryStore, WriteVerdict

Build: TypeAlias = Callable[..., EmbeddedDocument]
BuildAttributes: TypeAlias = Callable[..., AttributeWrite]
Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

LATER = timedelta(hours=1)


async def texts_of(store: MemoryStore, document_id: str) -> list[str]:
    """The document's chunk texts in order, as a search may show them."""
    keys = (await store.read_chunk_keys([document_id]))[document_id]
    hits = await store.read_hits([key.chunk_id for key in keys])
    return [hits[key.chunk_id].text for key in keys if key.chunk_id in hits]


async def ids_of(store: MemoryStore, document_id: str) -> list[str]:
    """The document's chunk ids in order."""
    return [key.chunk_id for key in (await store.read_chunk_keys([document_id]))[document_id]]


async def vectors_of(store: MemoryStore, document_id: str) -> Mapping[str, bytes]:
    """The bits of the document's vectors by chunk id."""
    return {row.chunk_id: row.vector.tobytes() for row in await store.read_chunk_rows([document_id])}


async def test_an_attribute_write_moves_document_and_rows_and_no_version(
    store: MemoryStore, build_attributes: BuildAttributes, put: Put, now: datetime
) -> None:
    """New title, tags and uri at once wherever they show; the content and its rows stay as they are (W4)."""
    base = await put("notes/a", "alpha", "beta")
    before = await vectors_of(store, base.document_id)
    write = build_attributes(
        base,
        "alpha\n\nbeta",
        title="New",
        tags=("new",),
        uri="file:///new",
        content_type=ContentType.MARKDOWN,
        metadata={"k": [1]},
    )
    (result,) = await store.write_together([write], now=now + LATER)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)

    state = (await store.read_states(["notes/a"]))["notes/a"]
    assert state == replace(
        base,
        revision=write.document.revision,
        attributes=write.document.attributes,
        updated_at=now + LATER,
        tally=replace(base.tally, revisions=frozenset({write.document.revision})),
    )
    assert await vectors_of(store, base.document_id) == before
    for hit in (await store.read_hits(list(before))).values():
        assert (hit.title, hit.tags, hit.uri, hit.content_type) == ("New", ("new",), "file:///new", "markdown")
    assert await texts_of(store, base.document_id) == ["alpha", "beta"]


async def test_an_attribute_write_on_a_stale_base_conflicts(
    store: MemoryStore, build_attributes: BuildAttributes, put: Put, now: datetime
) -> None:
    """Nothing of it shows, on the document or on a row."""
    base = await put("notes/a", "alpha")
    newest = await put("notes/a", "beta")
    (result,) = await store.write_together([build_attributes(base, "alpha", title="Lost")], now=now)
    assert result.verdict is WriteVerdict.CONFLICT
    assert await store.read_states(["notes/a"]) == {"notes/a": newest}
    (hit,) = (await store.read_hits(await ids_of(store, base.document_id))).values()
    assert hit.title != "Lost"


async def test_a_repeated_attribute_write_is_harmless(
    store: MemoryStore, build_attributes: BuildAttributes, put: Put, now: datetime
) -> None:
    """Told twice, done once."""
    base = await put("notes/a", "alpha")
    write = build_attributes(base, "alpha", title="New")
    for time in (now + LATER, now + 2 * LATER):
        (result,) = await store.write_together([write], now=time)
        assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1)
    assert (await store.read_states(["notes/a"]))["notes/a"].updated_at == now + LATER


@pytest.mark.parametrize("is_attribute_write", [False, True])
async def test_a_rename_keeps_the_document_and_moves_its_source_id(
    store: MemoryStore,
    build: Build,
    build_attributes: BuildAttributes,
    put: Put,
    now: datetime,
    *,
    is_attribute_write: bool,
) -> None:
    """With the same content or with another; the old source id is free again and starts at version 1."""
    base = await put("notes/old", "alpha")
    write = (
        build_attributes(base, "alpha", source_id="notes/new")
        if is_attribute_write
        else build("notes/new", "beta", base=base)
    )
    (result,) = await store.write_together([write], now=now)
    assert (result.verdict, result.version) == (WriteVerdict.WRITTEN, 1 if is_attribute_write else 2)
    states = await store.read_states(["notes/old", "notes/new"])
    assert list(states) == ["notes/new"]
    assert states["notes/new"].document_id == base.document_id
    (hit,) = (await store.read_hits(await ids_of(store, base.document_id))).values()
    assert hit.source_id == "notes/new"
    assert (await put("notes/old", "something new")).version == 1


@pytest.mark.parametrize("is_attribute_write", [False, True])
async def test_a_rename_to_a_taken_source_id_conflicts(
    store: MemoryStore,
    build: Build,
    build_attributes: BuildAttributes,
    put: Put,
    now: datetime,
    *,
    is_attribute_write: bool,
) -> None:
    """Two documents never share a source id; both stay as they were."""
    moved, taken = await put("notes/a", "alpha"), await put("notes/b", "beta")
    write = (
        build_attributes(moved, "alpha", source_id="notes/b")
        if is_attribute_write
        else build("notes/b", "gamma", base=moved)
    )
    (result,) = await store.write_together([write], now=now)
    assert result.verdict is WriteVerdict.CONFLICT
    assert await store.read_states(["notes/a", "notes/b"]) == {"notes/a": moved, "notes/b": taken}


METADATA: dict[str, Any] = {
    "a.b": 1,
    "nested": {"x.y": ["$set", {"z": None}], "": "an empty key"},
    "text": "$where",
    "variable": "$$NOW",
    "big": 2**63 - 1,
    "float": 1.0,
    "flag": True,
    "words": "é\u2028\u0085 \U0001f600",
    "_id": "mine",
}


async def test_metadata_is_kept_as_it_is(
    store: MemoryStore, build_attributes: BuildAttributes, put: Put, now: datetime
) -> None:
    """Keys with dots, words that begin with a dollar, kinds of numbers, the order of keys: by every way of writing."""

    async def check() -> None:
        metadata = (await store.read_states(["notes/a"]))["notes/a"].attributes.metadata
        assert repr(dict(metadata)) == repr(METADATA)

    await put("notes/a", "alpha", attributes={"metadata": METADATA})
    await check()
    base = await put("notes/a", "beta", attributes={"metadata": {}})
    assert base.attributes.metadata == {}
    await store.write_together([build_attributes(base, "beta", metadata=METADATA)], now=now)
    await check()
    await put("notes/a", "gamma", attributes={"metadata": {"k": 1}})
    await put("notes/a", "delta", attributes={"metadata": METADATA})
    await check()


async def test_what_was_stored_does_not_change_in_the_callers_hands(store: MemoryStore, put: Put) -> None:
    """Neither what was handed in nor what was read is a way into the database."""
    metadata = {"list": [1], "inner": {"k": 1}}
    state = await put("notes/a", "alpha", attributes={"metadata": metadata})
    metadata["list"] = []
    read: dict[str, Any] = dict(state.attributes.metadata)
    read["inner"]["k"] = 2
    again = (await store.read_states(["notes/a"]))["notes/a"].attributes.metadata
    assert again == {"list": [1], "inner": {"k": 1}}


async def test_a_dollar_is_only_a_dollar(
    store: MemoryStore, build_attributes: BuildAttributes, put: Put, now: datetime
) -> None:
    """No text is taken for an expression of the database, when it is new, replaced, kept or retitled."""
    texts = ("$text", "$$NOW", "$set")
    odd = {"title": "$title", "tags": ("$tag", "$$ROOT"), "uri": "$uri"}
    await put("notes/a", *texts, attributes=odd)
    base = await put("notes/a", "$first", *texts, context="$context")
    retitled = {"title": "$$REMOVE", "tags": ("$x",), "uri": "$$ROOT"}
    await store.write_together([build_attributes(base, "\n\n".join(("$first", *texts)), **retitled)], now=now)
    assert await texts_of(store, base.document_id) == ["$first", *texts]
    hits = await store.read_hits(await ids_of(store, base.document_id))
    assert {(hit.title, hit.tags, hit.uri) for hit in hits.values()} == {("$$REMOVE", ("$x",), "$$ROOT")}
    assert {row.context for row in await store.read_chunk_rows([base.document_id])} == {"$context"}
    assert await store.read_body(base.body_id) == "\n\n".join(("$first", *texts))
