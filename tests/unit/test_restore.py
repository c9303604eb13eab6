"""Documents that bring their past: restored from the trash, or from elsewhere with their rows. On fakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from memory_core.answers import StoredDocument
from memory_core.errors import ConflictError, NotFoundError
from memory_core.fakes import FakeDatabase
from memory_core.models import Outcome, Past, PastRow, StoreRequest
from memory_core.ports import Core
from memory_core.restore import restore_document
from memory_core.store_content import store_content
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest

MakeCore = Callable[..., Core]
TEXT = "\n\n".join(f"Paragraph {number} about things. " + "word " * 60 for number in range(20))


async def put(core: Core, source_id: str, content: str, **fields: object) -> StoredDocument:
    """Store a text and read what is stored."""
    request = StoreContentRequest.model_validate({"content": content, "sourceId": source_id, **fields})
    await store_content([StoreRequest(request=request, provenance=Provenance(channel="cli"))], core=core)
    return await found(core, source_id)


async def found(core: Core, source_id: str) -> StoredDocument:
    stored = await core.store.read_document(source_id)
    assert stored is not None
    return stored


async def remove(core: Core, source_id: str) -> None:
    await core.store.delete(DeleteSelector(source_ids=(source_id,)), now=core.clock())


async def past_of(core: Core, document: StoredDocument, **changes: object) -> StoreRequest:
    """The request of a document with everything that it was."""
    state = document.state
    texts = {one.version: await core.store.read_body(one.body_id) for one in document.versions}
    vectors = {row.chunk_id: row.vector for row in await core.store.read_chunk_rows([state.document_id])}
    keys = (await core.store.read_chunk_keys([state.document_id]))[state.document_id]
    past = Past(
        document_id=state.document_id,
        created_at=state.created_at - timedelta(days=3),
        updated_at=state.updated_at - timedelta(days=2),
        attributes=state.attributes,
        feed=state.feed,
        versions=document.versions,
        texts=texts,
        context_basis=state.context_basis,
        rows=tuple(PastRow(key=key, vector=vectors[key.chunk_id]) for key in keys),
    )
    request = StoreContentRequest(
        content=texts[state.version], source_id=state.source_id, content_type=state.attributes.content_type.value
    )
    return StoreRequest(request=request, provenance=Provenance(channel="import"), past=replace(past, **changes))


async def test_a_restore_brings_id_versions_and_attributes_back(make_core: MakeCore) -> None:
    """It is created again, counts no version, and says why it was stored."""
    core = make_core()
    await put(core, "notes/a", "one", tags=["red"], title="A title")
    before = await put(core, "notes/a", TEXT)
    await remove(core, "notes/a")
    outcome = await restore_document("notes/a", core=core, channel="cli")
    assert (outcome.outcome, outcome.version, outcome.reason) == (Outcome.CREATED, 2, "restored from the trash")
    after = await found(core, "notes/a")
    assert after.state.document_id == before.state.document_id
    assert after.state.attributes == before.state.attributes
    assert after.versions == before.versions
    assert (after.state.created_at, after.state.updated_at) == (before.state.created_at, before.state.updated_at)
    assert (await core.store.check_health()).faults == ()
    with pytest.raises(NotFoundError):
        await restore_document("notes/a", core=core, channel="cli")


async def test_a_restore_replaces_nothing(make_core: MakeCore) -> None:
    """Something else was stored under its id: it stays, and the trash keeps the other."""
    core = make_core()
    await put(core, "notes/a", "one")
    await remove(core, "notes/a")
    await put(core, "notes/a", "another")
    outcome = await restore_document("notes/a", core=core, channel="cli")
    assert isinstance(outcome.error, ConflictError)
    assert await core.store.read_body((await found(core, "notes/a")).state.body_id) == "another"
    assert len(await core.store.read_trash("notes/a")) == 1


async def test_what_comes_over_with_its_rows_costs_nothing(make_core: MakeCore) -> None:
    """Ids, vectors, dates and versions are those of the other memory; no text is embedded."""
    there, here = make_core(), make_core(FakeDatabase())
    await put(there, "notes/a", "one")
    document = await put(there, "notes/a", TEXT)
    request = await past_of(there, document)
    (outcome,) = await store_content([request], core=here)
    assert (outcome.outcome, outcome.version, outcome.tokens_embedded, outcome.texts_embedded) == (
        Outcome.CREATED,
        2,
        0,
        0,
    )
    after = await found(here, "notes/a")
    assert request.past
    assert (after.state.created_at, after.state.updated_at) == (request.past.created_at, request.past.updated_at)
    assert [await here.store.read_body(one.body_id) for one in after.versions] == ["one", TEXT]
    ours, theirs = [
        sorted(await core.store.read_chunk_rows([after.state.document_id]), key=lambda row: row.chunk_id)
        for core in (here, there)
    ]
    assert [row.chunk_id for row in ours] == [row.chunk_id for row in theirs]
    assert all(np.array_equal(one.vector, other.vector) for one, other in zip(ours, theirs, strict=True))
    (again,) = await store_content([request], core=here)
    assert again.outcome is Outcome.UNCHANGED


async def test_rows_of_another_space_are_not_used(make_core: MakeCore) -> None:
    """Their vectors would never be ranked with ours: the texts are embedded."""
    there, here = make_core(), make_core(FakeDatabase())
    request = await past_of(there, await put(there, "notes/a", TEXT))
    assert request.past
    rows = tuple(replace(row, key=replace(row.key, fingerprint="other/space/16/none")) for row in request.past.rows)
    (outcome,) = await store_content([replace(request, past=replace(request.past, rows=rows))], core=here)
    assert outcome.outcome is Outcome.CREATED
    assert outcome.texts_embedded == outcome.chunk_count > 0


async def test_a_text_that_is_not_its_newest_version_is_refused(make_core: MakeCore) -> None:
    """A damaged export never becomes a document."""
    there, here = make_core(), make_core(FakeDatabase())
    request = await past_of(there, await put(there, "notes/a", "one"))
    other = replace(request, request=request.request.model_copy(update={"content": "another"}))
    (outcome,) = await store_content([other], core=here)
    assert isinstance(outcome.error, ConflictError)
    assert await here.store.read_document("notes/a") is None


async def test_an_id_that_is_another_documents_by_now_is_refused(make_core: MakeCore) -> None:
    """The document was renamed since it was exported: it is not stored a second time."""
    core = make_core()
    request = await past_of(core, await put(core, "notes/a", "one"))
    renamed = StoreRequest(
        request=StoreContentRequest(content="one", source_id="notes/b"),
        provenance=Provenance(channel="directory"),
        previous_source_id="notes/a",
    )
    (moved,) = await store_content([renamed], core=core)
    assert moved.document_id == (await found(core, "notes/b")).state.document_id
    (outcome,) = await store_content([request], core=core)
    assert isinstance(outcome.error, ConflictError)
    assert "notes/b" in outcome.error.message
