"""The embed stage: what is reused, what is asked for, what is refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pytest

from memory_core.context import choose_basis, name_policy, rank_words
from memory_core.embed import embed_documents, fingerprint_of
from memory_core.embedding_ports import ContextWriter
from memory_core.embedding_settings import ContextPolicy
from memory_core.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    InternalError,
    ProviderRefusedError,
)
from memory_core.models import (
    Attributes,
    Chunk,
    ChunkedDocument,
    ChunkingResult,
    ChunkingStats,
    ChunkOptions,
    ChunkTally,
    ContentType,
    ContextBasis,
    Document,
    DocumentState,
    EmbeddedDocument,
    EmbeddingResult,
    EmbeddingUsage,
    Failure,
    Plan,
    Provenance,
    StoredChunkKey,
    Vector,
    hash_text,
)
from memory_core.ports import Core, EmbeddingKind
from memory_core.settings import load_settings
from memory_core.sizes import estimate_row_bytes

NOW = datetime(2026, 11, 30, tzinfo=UTC)
DIMENSIONS = 4

Spoil = Callable[[list[Vector]], object]


@dataclass
class RecordingEmbedder:
    """Answers with recognisable vectors, keeps every request, and does what a test asks for some texts."""

    requests: list[list[list[str]]] = field(default_factory=list[list[list[str]]])
    spoil: dict[str, Spoil] = field(default_factory=dict[str, Spoil])
    refuse: dict[str, EmbeddingError] = field(default_factory=dict[str, EmbeddingError])
    usage_tokens: int = 0
    provider: str = "test"
    model: str = "recorder"
    dimensions: int = DIMENSIONS
    max_input_tokens: int | None = None
    is_contextual: bool = False

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Record the request and answer it."""
        assert kind == "document"
        self.requests.append([list(group) for group in groups])
        for word, error in self.refuse.items():
            if any(word in text for group in groups for text in group):
                raise error
        return EmbeddingResult(
            groups=cast("Any", [self._answer(group) for group in groups]),
            windows=[[1] * len(group) for group in groups],
            usage=EmbeddingUsage(tokens=self.usage_tokens, requests=1),
        )

    async def close(self) -> None:
        """Nothing to close."""

    def _answer(self, group: Sequence[str]) -> object:
        vectors = [np.full(DIMENSIONS, len(text), dtype=np.float32) for text in group]
        for word, spoil in self.spoil.items():
            if any(word in text for text in group):
                return spoil(vectors)
        return np.stack(vectors)


@dataclass
class RowStore:
    """The two reads that the stage makes."""

    keys: dict[str, list[StoredChunkKey]] = field(default_factory=dict[str, list[StoredChunkKey]])
    budget: int = 40_000_000
    reads: list[list[str]] = field(default_factory=list[list[str]])

    async def read_chunk_keys(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[StoredChunkKey]]:
        """The rows of the documents that are stored."""
        self.reads.append(list(document_ids))
        return {name: self.keys[name] for name in document_ids if name in self.keys}

    async def transaction_budget_bytes(self) -> int:
        """What the test says."""
        return self.budget


class WordCounter:
    """A token is a word."""

    name = "words"

    def count(self, text: str) -> int:
        """Words of the text."""
        return len(text.split())


@dataclass
class World:
    """A core with only what the stage needs, and handles on its parts."""

    embedder: RecordingEmbedder = field(default_factory=RecordingEmbedder)
    store: RowStore = field(default_factory=RowStore)
    policy: ContextPolicy = ContextPolicy.PREFIX
    writer: ContextWriter | None = None

    @property
    def core(self) -> Core:
        """The wired core."""
        ids = itertools.count(1)
        parts: dict[str, Any] = dict.fromkeys(part.name for part in fields(Core))
        parts |= {
            "store": self.store,
            "embedder": self.embedder,
            "counter": WordCounter(),
            "settings": load_settings().model_copy(update={"embedding_context": self.policy, "context_model": "chat"}),
            "fingerprint": fingerprint_of(self.embedder, name_policy(self.policy, "chat")),
            "context_writer": self.writer,
            "new_id": lambda: f"new-{next(ids)}",
        }
        return Core(**parts)

    async def embed(self, *documents: ChunkedDocument) -> list[EmbeddedDocument | Failure]:
        """Run the stage on a batch."""
        return await embed_documents(documents, core=self.core)

    async def embed_one(self, document: ChunkedDocument) -> EmbeddedDocument:
        """Run the stage on one document that must succeed."""
        (result,) = await self.embed(document)
        assert isinstance(result, EmbeddedDocument), result
        return result

    def keep(self, stored: EmbeddedDocument) -> DocumentState:
        """Store the rows as persist would, and give the state that the next store has as its base."""
        self.store.keys[stored.document.document_id] = [
            StoredChunkKey(
                chunk_id=f"row-{chunk.chunk.index}",
                index=chunk.chunk.index,
                row_hash=chunk.row_hash,
                embedding_input_hash=chunk.embedding_input_hash,
                fingerprint=stored.fingerprint.key,
                situated=chunk.situated,
            )
            for chunk in stored.chunks
        ]
        return make_state(stored)


def make_document(
    name: str, *texts: str, title: str = "Title", base: DocumentState | None = None, path: tuple[str, ...] = ()
) -> ChunkedDocument:
    """A document of the given chunks."""
    content = "\n\n".join(texts)
    starts = itertools.accumulate((len(text) + 2 for text in texts[:-1]), initial=0)
    chunks = tuple(
        Chunk(index=index, text=text, char_start=start, char_end=start + len(text), token_count=1, heading_path=path)
        for index, (text, start) in enumerate(zip(texts, starts, strict=True))
    )
    attributes = Attributes(title=title, uri=None, content_type=ContentType.MARKDOWN, tags=(), metadata={}, owners={})
    document = Document(
        document_id=f"id-{name}",
        source_id=name,
        revision="r2",
        content=content,
        content_hash=hash_text(content),
        attributes=attributes,
        options=ChunkOptions(),
        recipe="test",
        provenance=Provenance(channel="test"),
        agent=None,
        session_id=None,
        base=base,
        plan=Plan.STORE,
    )
    stats = ChunkingStats(input_chars=len(content), chunk_count=len(chunks), total_tokens=len(chunks))
    return ChunkedDocument(document=document, chunking=ChunkingResult(chunks=chunks, strategy="test", stats=stats))


def with_parts(item: ChunkedDocument, **changes: Any) -> ChunkedDocument:
    """The document with a lead or a readable text on each of its chunks."""
    chunks = tuple(replace(chunk, **changes) for chunk in item.chunking.chunks)
    return replace(item, chunking=replace(item.chunking, chunks=chunks))


def make_state(stored: EmbeddedDocument) -> DocumentState:
    document = stored.document
    return DocumentState(
        document_id=document.document_id,
        source_id=document.source_id,
        revision="r1",
        version=1,
        content_hash=document.content_hash,
        recipe="test",
        strategy="test",
        fingerprint=stored.fingerprint.key,
        chunk_count=len(stored.chunks),
        tally=ChunkTally(count=0, revisions=frozenset(), content_hashes=frozenset(), fingerprints=frozenset()),
        attributes=document.attributes,
        context_basis=stored.context_basis,
        context_stale=stored.context_stale,
        feed=None,
        body_id="b",
        created_at=NOW,
        updated_at=NOW,
    )


def failure_of(result: EmbeddedDocument | Failure) -> Failure:
    assert isinstance(result, Failure), result
    return result


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


# --- what goes wrong --------------------------------------------------------------------------------------------------


def drop_last(vectors: list[Vector]) -> object:
    return np.stack(vectors[:-1])


def narrow_fourth(vectors: list[Vector]) -> object:
    return [*vectors[:3], vectors[3][:-1], *vectors[4:]]


def put_nan_in_eighth(vectors: list[Vector]) -> object:
    vectors[7][1] = np.nan
    return np.stack(vectors)


def put_infinity_in_last(vectors: list[Vector]) -> object:
    vectors[-1][-1] = np.inf
    return np.stack(vectors)


def widen_components(vectors: list[Vector]) -> object:
    return np.stack(vectors).astype(np.float64)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (drop_last, "9 vectors for 10"),
        (narrow_fourth, r"vector 3 of 10 with shape \(3,\)"),
        (put_nan_in_eighth, "vector 7 of 10 .*not finite"),
        (put_infinity_in_last, "vector 9 of 10 .*not finite"),
        (widen_components, "vector 0 of 10 as float64"),
    ],
)
async def test_a_wrong_answer_fails_its_document_and_no_other(spoil: Spoil, message: str) -> None:
    """The error names the count or the vector; nothing of the document goes on, and nothing is asked twice."""
    world = World(embedder=RecordingEmbedder(spoil={"poison": spoil}))
    bad = make_document("bad", "poison", *[f"text {number}" for number in range(9)])
    good, failed, also_good = await world.embed(make_document("a", "good"), bad, make_document("b", "fine"))

    failure = failure_of(failed)
    assert failure.source_id == "bad"
    assert isinstance(failure.error, EmbeddingError)
    with pytest.raises(EmbeddingError, match=message):
        raise failure.error
    assert isinstance(good, EmbeddedDocument)
    assert isinstance(also_good, EmbeddedDocument)
    assert len(world.embedder.requests) == 1


async def test_a_refused_batch_is_asked_again_by_document() -> None:
    """Only the guilty document fails, and no request is sent twice."""
    error = EmbeddingError("The model refused the text.")
    world = World(embedder=RecordingEmbedder(refuse={"poison": error}))
    good, failed, fine = await world.embed(
        make_document("a", "good"), make_document("bad", "poison"), make_document("b", "fine")
    )

    assert failure_of(failed).error is error
    assert isinstance(good, EmbeddedDocument)
    assert isinstance(fine, EmbeddedDocument)
    assert [len(request) for request in world.embedder.requests] == [3, 1, 1, 1]


async def test_a_refused_document_alone_is_not_asked_again() -> None:
    """The same request would fail again."""
    world = World(embedder=RecordingEmbedder(refuse={"poison": EmbeddingError("No.")}))
    (failed,) = await world.embed(make_document("bad", "poison"))

    assert isinstance(failed, Failure)
    assert len(world.embedder.requests) == 1


async def test_a_twin_of_a_failed_document_does_not_share_its_fate() -> None:
    """A text that was sent with a document whose answer was wrong is asked for again for the other one."""
    world = World(embedder=RecordingEmbedder(spoil={"\n\npoison": drop_last}))
    shared = "alpha alpha beta beta"
    # One title and equal words give the two first chunks one input.
    first, second = make_document("bad", shared, "poison"), make_document("good", shared, "poison")
    second = replace(second, chunking=replace(second.chunking, chunks=second.chunking.chunks[:1]))
    failed, good = await world.embed(first, second)

    assert isinstance(failed, Failure)
    assert isinstance(good, EmbeddedDocument)
    assert [sum(map(len, request)) for request in world.embedder.requests] == [2, 1]


async def test_an_absent_provider_is_raised_for_the_task_to_retry() -> None:
    """A retry can heal it, so no document is failed; the next attempt embeds."""
    world = World(embedder=RecordingEmbedder(refuse={"good": EmbeddingUnavailableError("Busy.")}))
    with pytest.raises(EmbeddingUnavailableError):
        await world.embed(make_document("a", "good"))
    world.embedder.refuse.clear()

    assert await world.embed_one(make_document("a", "good"))


def test_rows_are_estimated_from_body_text_vector_and_overhead() -> None:
    """The formula of the refusal, in numbers."""
    estimated = estimate_row_bytes(body_bytes=1_000, rows=10, row_text_bytes=1_500, row_parent_bytes=20, dimensions=384)

    assert estimated == 1_000 + 1_500 + 10 * (4 * 384 + 20 + 600)


async def test_a_fingerprint_that_is_not_the_embedders_is_a_defect() -> None:
    """Vectors are never stamped as of a space that they are not of."""
    core = replace(World().core, fingerprint=replace(World().core.fingerprint, model="another"))
    with pytest.raises(InternalError, match="another"):
        await embed_documents([make_document("a", "text")], core=core)


async def test_the_event_loop_stays_free() -> None:
    """Five million characters are read in a thread."""
    longest, last = 0.0, asyncio.get_running_loop().time()
    stage = asyncio.ensure_future(World().embed(make_document("a", "word " * 1_000_000)))
    while not stage.done():
        await asyncio.sleep(0.001)
        now = asyncio.get_running_loop().time()
        longest, last = max(longest, now - last), now

    assert isinstance((await stage)[0], EmbeddedDocument)
    assert longest < 2


async def test_a_provider_that_refuses_everything_is_asked_once() -> None:
    """A wrong key is no document's fault: every document fails with it, and none is asked for alone."""
    world = World()
    refusal = ProviderRefusedError("The key was refused. Check OPENAI_API_KEY.")
    world.embedder.refuse = {"": refusal}
    shared = make_document("a", "Alpha."), make_document("b", "Beta."), make_document("c", "Alpha.")
    results = await world.embed(*shared)
    assert [cast("Failure", result).error for result in results] == [refusal] * 3
    assert len(world.embedder.requests) == 1
