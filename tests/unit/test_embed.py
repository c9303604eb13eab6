"""The embed stage: what is reused, what is asked for, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.context import choose_basis, rank_words
from memory_core.models import (
    ContextBasis,
    EmbeddedDocument,
    hash_text,
)
from tests.unit.embed_world import (
    RecordingEmbedder,
    World,
    make_document,
    with_parts,
)

# --- a first store ----------------------------------------------------------------------------------------------------


async def test_a_batch_is_one_request_grouped_by_document_in_order() -> None:
    """A contextual model sees each document's chunks together and in order."""
    world = World()
    results = await world.embed(make_document("a", "red fox", "blue whale"), make_document("b", "green frog"))

    assert [[text.split("\n\n")[1] for text in group] for group in world.embedder.requests[0]] == [
        ["red fox", "blue whale"],
        ["green frog"],
    ]
    assert len(world.embedder.requests) == 1
    assert world.store.reads == []
    assert [len(result.chunks) for result in results if isinstance(result, EmbeddedDocument)] == [2, 1]


async def test_a_chunk_carries_its_context_and_the_hashes_of_what_was_made() -> None:
    """The input is title, path and words ahead of the text; the stored text is untouched."""
    world = World()
    result = await world.embed_one(make_document("a", "## red fox", title="Animals", path=("Mammals",)))
    (chunk,) = result.chunks
    (sent,) = world.embedder.requests[0][0]

    assert chunk.context == "Animals\nMammals\nfox red"
    assert sent == "Animals\nMammals\nfox red\n\n# red fox"
    assert chunk.embedding_input_hash == hash_text(sent)
    assert chunk.row_hash == hash_text("## red fox\0Animals\nMammals\nfox red")
    assert (chunk.chunk_id, chunk.kept, chunk.windows) == ("new-1", None, 1)
    assert chunk.vector is not None
    assert chunk.vector[0] == len(sent)
    assert result.context_basis == ContextBasis(title="Animals", words=("fox", "red"))
    assert not result.context_stale


async def test_the_rows_of_a_table_are_embedded_with_its_header() -> None:
    """The header row is context of the chunks that go on with the table; their text stays what it is."""
    world = World()
    result = await world.embed_one(with_parts(make_document("a", "1,2", title="Prices"), lead="count,price"))
    (chunk,) = result.chunks

    assert world.embedder.requests[0][0] == ["Prices\ncount,price\n\n1,2"]
    assert chunk.context == "Prices\ncount,price"
    assert chunk.chunk.text == "1,2"


async def test_of_a_page_is_embedded_what_its_reader_sees() -> None:
    """Markup and scripts reach neither the model nor the words of the document; the text stays the slice."""
    world = World()
    markup = "<p class=wrapper>Fish &amp; chips</p><script>wrapper</script>"
    result = await world.embed_one(with_parts(make_document("a", markup, title="Menu"), readable="Fish & chips"))

    assert world.embedder.requests[0][0] == ["Menu\nchips fish\n\nFish & chips"]
    assert result.chunks[0].context == "Menu\nchips fish"
    assert result.chunks[0].chunk.text == markup


@pytest.mark.parametrize(("title", "sent"), [("Menu", "Menu"), ("", "<script>let wrapper</script>")])
async def test_what_no_reader_sees_is_embedded_by_its_context_alone(title: str, sent: str) -> None:
    """A script keeps its place among the chunks; no model is asked for a blank text."""
    world = World()
    script = "<script>let wrapper</script>"
    result = await world.embed_one(with_parts(make_document("a", script, title=title), readable=" "))

    assert world.embedder.requests[0][0] == [sent]
    assert result.chunks[0].vector is not None


async def test_equal_texts_are_sent_once_and_every_chunk_gets_its_row() -> None:
    """The same paragraph twenty times, and a twin of the file, cost one text; rows are not shared."""
    world = World()
    results = await world.embed(make_document("a", *["same text"] * 20), make_document("b", *["same text"] * 20))
    chunks = [chunk for result in results if isinstance(result, EmbeddedDocument) for chunk in result.chunks]

    assert sum(map(len, world.embedder.requests[0])) == 1
    assert len({chunk.chunk_id for chunk in chunks}) == 40
    assert all(chunk.vector is not None for chunk in chunks)


async def test_tokens_are_the_embedders_own_split_by_document() -> None:
    """The shares of a batch add up to what was consumed; without a number of its own, ours are used."""
    world = World(embedder=RecordingEmbedder(usage_tokens=101))
    documents = [make_document(name, f"text of {name}", f"more {name}") for name in "abc"]
    results = await world.embed(*documents)
    world.embedder.usage_tokens = 0
    counted = await world.embed_one(make_document("d", "one two"))

    assert sum(result.tokens_embedded for result in results if isinstance(result, EmbeddedDocument)) == 101
    assert counted.tokens_embedded == len(world.embedder.requests[1][0][0].split())


async def test_no_documents_ask_for_nothing() -> None:
    """An empty batch touches neither store nor model."""
    world = World()

    assert await world.embed() == []
    assert world.embedder.requests == []


# --- a second store ---------------------------------------------------------------------------------------------------


async def test_only_changed_chunks_are_embedded_again() -> None:
    """Rows with the same input keep their id and their vector, wherever they moved to."""
    world = World()
    texts = ["lease lease queue queue", "first paragraph", "second paragraph"]
    base = world.keep(await world.embed_one(make_document("a", *texts)))
    result = await world.embed_one(make_document("a", "brand", *texts, base=base))

    assert [chunk.chunk_id for chunk in result.chunks] == ["new-1", "row-0", "row-1", "row-2"]
    assert [chunk.vector is None for chunk in result.chunks] == [False, True, True, True]
    assert [key.index if (key := chunk.kept) else None for chunk in result.chunks] == [None, 0, 1, 2]
    assert sum(map(len, world.embedder.requests[1])) == 1
    assert world.store.reads == [["id-a"]]
    assert result.context_basis == base.context_basis
    assert 0 < result.tokens_embedded < 20


async def test_unchanged_chunks_cost_no_request() -> None:
    """Where every row stays, the model is not asked."""
    world = World()
    base = world.keep(await world.embed_one(make_document("a", "red fox", "blue whale")))
    result = await world.embed_one(make_document("a", "red fox", "blue whale", base=base))

    assert len(world.embedder.requests) == 1
    assert result.tokens_embedded == 0
    assert all(chunk.kept for chunk in result.chunks)


async def test_the_stored_rows_of_a_batch_are_read_in_one_call() -> None:
    """One read for the batch, and only for documents that are stored."""
    world = World()
    bases = [world.keep(await world.embed_one(make_document(name, f"text {name}"))) for name in "ab"]
    documents = [make_document(name, f"text {name}", base=base) for name, base in zip("ab", bases, strict=True)]
    await world.embed(*documents, make_document("c", "text c"))

    assert world.store.reads == [["id-a", "id-b"]]


async def test_equal_chunks_take_stored_rows_in_order_and_each_once() -> None:
    """A paragraph that stood twice and now stands three times keeps two rows and makes one."""
    world = World()
    base = world.keep(await world.embed_one(make_document("a", "same", "same", "other")))
    result = await world.embed_one(make_document("a", "same", "same", "same", "other", base=base))

    assert [chunk.chunk_id for chunk in result.chunks] == ["row-0", "row-1", "new-1", "row-2"]


async def test_rows_of_another_space_are_never_kept() -> None:
    """A change of the model embeds everything again, with the newest words."""
    world = World()
    base = world.keep(await world.embed_one(make_document("a", "red fox")))
    world.embedder.model = "another"
    result = await world.embed_one(make_document("a", "red fox", base=base))

    assert result.chunks[0].kept is None
    assert result.chunks[0].vector is not None


async def test_a_new_title_moves_the_text_leg_but_no_vector() -> None:
    """The words for the text index are new at once, the vectors stay, and the document says that they are stale."""
    world = World()
    base = world.keep(await world.embed_one(make_document("a", "red fox", title="Old")))
    result = await world.embed_one(make_document("a", "red fox", title="New", base=base))

    assert result.context_stale
    assert result.context_basis.title == "Old"
    assert result.chunks[0].context.startswith("New\n")
    assert result.chunks[0].kept is not None
    assert result.chunks[0].row_hash != result.chunks[0].kept.row_hash
    assert len(world.embedder.requests) == 1


async def test_new_markup_around_the_same_words_pays_no_vector() -> None:
    """The model would read the same; the row takes the new slice."""
    world = World()
    first = await world.embed_one(with_parts(make_document("a", "<p>red fox</p>"), readable="red fox"))
    base = world.keep(first)
    (chunk,) = (
        await world.embed_one(with_parts(make_document("a", "<b>red fox</b>", base=base), readable="red fox"))
    ).chunks

    assert chunk.kept is not None
    assert chunk.row_hash != chunk.kept.row_hash
    assert len(world.embedder.requests) == 1


@pytest.mark.parametrize(
    "changes",
    [{"lead": "count,size"}, {"lead": ""}, {"readable": "2"}, {"readable": ""}, {"lead": "", "readable": "1"}],
)
async def test_another_header_or_readable_text_is_another_vector(changes: dict[str, str]) -> None:
    """The model would read something else, although the slice is the same."""
    world = World()
    base = world.keep(await world.embed_one(with_parts(make_document("a", "1"), lead="count,price")))
    result = await world.embed_one(with_parts(make_document("a", "1", base=base), **{"lead": "count,price", **changes}))

    assert result.chunks[0].kept is None
    assert result.chunks[0].vector is not None


async def test_a_header_that_differs_behind_its_bound_changes_the_row_alone() -> None:
    """What the context cuts off no model reads; the row has it whole."""
    world = World()
    long = "column " * 100
    base = world.keep(await world.embed_one(with_parts(make_document("a", "1"), lead=f"{long}old")))
    (chunk,) = (await world.embed_one(with_parts(make_document("a", "1", base=base), lead=f"{long}new"))).chunks

    assert chunk.kept is not None
    assert chunk.row_hash != chunk.kept.row_hash


async def test_the_hash_of_a_row_covers_each_of_its_texts() -> None:
    """A lead is not taken for a readable text, nor a missing one for an empty one."""
    world = World()
    kinds: list[dict[str, Any]] = [
        {},
        {"lead": "x"},
        {"readable": "x"},
        {"readable": ""},
        {"lead": "x", "readable": ""},
    ]
    hashes = {
        (await world.embed_one(with_parts(make_document(str(number), "1"), **kind))).chunks[0].row_hash
        for number, kind in enumerate(kinds)
    }

    assert len(hashes) == len(kinds)


async def test_a_rewritten_document_takes_the_newest_words() -> None:
    """Where no row can stay, old words would only be worse."""
    world = World()
    base = world.keep(await world.embed_one(make_document("a", "red fox", title="Old")))
    result = await world.embed_one(make_document("a", "entirely different prose", title="New", base=base))

    fresh, _ = choose_basis("New", rank_words("entirely different prose"), None)
    assert (result.context_basis, result.context_stale) == (fresh, False)
