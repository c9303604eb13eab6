"""THE path: order, failures that stay with their document, and nothing paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from memory_core.adapters.hash_embedder import HashEmbedder
from memory_core.embed import fingerprint_of
from memory_core.errors import (
    ChunkingError,
    EmbeddingError,
    EmbeddingUnavailableError,
    ForeignDatabaseError,
    InternalError,
    StorageUnavailableError,
    ValidationError,
)
from memory_core.fakes import EmbeddingFault, FakeDatabase, ScriptedEmbedder
from memory_core.models import Failure, Outcome
from memory_core.ports import Core
from memory_core.store_content import PLAIN_STAGES, store_content
from tests.unit.path_helpers import LONG, MakeCore, Reads, ask, calls_of, healthy, store_one, stored_text

# --- what is new, what is not -----------------------------------------------------------------------------------------


async def test_an_empty_batch_has_no_outcomes(make_core: MakeCore) -> None:
    """And touches nothing."""
    assert await store_content([], core=make_core()) == []


async def test_a_new_document_is_created_and_told_in_full(make_core: MakeCore) -> None:
    """Only after it is stored."""
    core = make_core()
    outcome = await store_one(ask("# Title\n\nText", "a"), core)
    assert (outcome.outcome, outcome.source_id, outcome.title, outcome.version) == (Outcome.CREATED, "a", "Title", 1)
    assert outcome.chunk_count == 1
    assert outcome.strategy
    assert outcome.tokens_embedded > 0
    assert outcome.fingerprint == core.fingerprint
    assert await stored_text("a", core) == "# Title\n\nText"
    assert (await healthy(core)).documents == 1


async def test_unchanged_content_costs_two_reads_and_nothing_else(make_core: MakeCore) -> None:
    """No body, no chunk, no embedding, no write."""
    core = make_core()
    request = ask(LONG, "a", tags=["x"], metadata={"k": [1, None]})
    first = await store_one(request, core)
    calls, store = calls_of(core), Reads(core.store)
    again = await store_one(request, replace(core, store=cast("Any", store)))
    assert store.names == ["prepare", "read_states"]
    assert calls_of(core) == calls
    assert (again.outcome, again.version, again.tokens_embedded) == (Outcome.UNCHANGED, 1, 0)
    assert again.document_id == first.document_id
    assert (again.chunk_count, again.strategy, again.title) == (first.chunk_count, first.strategy, first.title)
    assert again.fingerprint == core.fingerprint


async def test_going_back_to_an_earlier_text_is_a_third_version(make_core: MakeCore) -> None:
    """A, B, A."""
    core = make_core()
    outcomes = [await store_one(ask(text, "a"), core) for text in ("A", "B", "A")]
    assert [one.version for one in outcomes] == [1, 2, 3]
    assert await stored_text("a", core) == "A"


async def test_new_attributes_move_no_version_and_embed_nothing(make_core: MakeCore) -> None:
    """Tags, uri, metadata, and the title too."""
    core = make_core()
    await store_one(ask(LONG, "a"), core)
    calls = calls_of(core)
    changes: list[dict[str, Any]] = [
        {"tags": ["x"]},
        {"uri": "https://x"},
        {"metadata": {"k": 1}},
        {"title": "Another"},
        {"tags": []},
    ]
    for fields in changes:
        outcome = await store_one(ask(LONG, "a", **fields), core)
        assert (outcome.outcome, outcome.version) == (Outcome.ATTRIBUTES_UPDATED, 1), fields
        assert (outcome.tokens_embedded, outcome.reason) == (0, None)
        assert outcome.chunk_count > 1
    assert calls_of(core) == calls
    stored = await core.store.read_document("a")
    assert stored is not None
    assert (stored.state.attributes.title, stored.state.attributes.uri) == ("Another", "https://x")
    assert len(stored.versions) == 1
    await healthy(core)


async def test_a_new_title_says_that_the_vectors_are_of_the_old_one(make_core: MakeCore) -> None:
    """And the text leg has it at once."""
    core = make_core()
    await store_one(ask(LONG, "a", title="Old"), core)
    outcome = await store_one(ask(LONG, "a", title="New"), core)
    assert any("re-embed" in note for note in outcome.notes)
    stored = await core.store.read_document("a")
    assert stored is not None
    rows = await core.store.read_chunk_rows([stored.state.document_id])
    assert all(row.context.startswith("New") for row in rows)


async def test_other_chunk_sizes_chunk_again_and_count_no_version(make_core: MakeCore) -> None:
    """The outcome says why equal content was stored again."""
    core = make_core()
    first = await store_one(ask(LONG, "a"), core)
    outcome = await store_one(ask(LONG, "a", chunk_size_tokens=64), core)
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 1)
    assert (outcome.reason or "").startswith("re-chunked")
    assert outcome.chunk_count > first.chunk_count
    await healthy(core)


async def test_an_edit_pays_for_what_changed(make_core: MakeCore) -> None:
    """A changed paragraph of twenty is one text of the next request."""
    core = make_core()
    first = await store_one(ask(LONG, "a", chunk_size_tokens=96), core)
    outcome = await store_one(ask(LONG.replace("Paragraph 7 ", "Chapter 7 "), "a", chunk_size_tokens=96), core)
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 2)
    assert 0 < outcome.tokens_embedded < first.tokens_embedded / 4
    await healthy(core)


@pytest.mark.parametrize("loss", ["one row", "all rows", "a row of another text"])
async def test_a_damaged_document_is_healed_by_the_next_store(make_core: MakeCore, loss: str) -> None:
    """Equal content is not taken for complete content."""
    database = FakeDatabase()
    core = make_core(database)
    first = await store_one(ask(LONG, "a"), core)
    rows = sorted(database.rows)
    match loss:
        case "one row":
            del database.rows[rows[0]]
        case "all rows":
            database.rows.clear()
        case _:
            database.rows[rows[0]] = replace(database.rows[rows[0]], content_hash="other")
    with capture_logs() as lines:
        outcome = await store_one(ask(LONG, "a"), core)
    assert (outcome.outcome, outcome.version) == (Outcome.UPDATED, 1)
    assert (outcome.reason or "").startswith("repaired")
    assert [line["event"] for line in lines] == ["ingest.repair"]
    assert (await healthy(core)).chunks == first.chunk_count
    assert (await store_one(ask(LONG, "a"), core)).outcome is Outcome.UNCHANGED


# --- a batch ----------------------------------------------------------------------------------------------------------


async def test_two_requests_for_one_source_keep_their_order(make_core: MakeCore) -> None:
    """A, then B: version 2 is B, whatever stands between them."""
    core = make_core()
    first, other, second, third = await store_content(
        [ask("A", "s"), ask("else", "t"), ask("B", "s"), ask("B", "s")], core=core
    )
    assert [one.version for one in (first, second, third)] == [1, 2, 2]
    assert [one.outcome for one in (first, other, second, third)] == [
        Outcome.CREATED,
        Outcome.CREATED,
        Outcome.UPDATED,
        Outcome.UNCHANGED,
    ]
    assert await stored_text("s", core) == "B"


async def test_a_renamed_file_and_a_new_one_under_its_old_name_are_both_stored(make_core: MakeCore) -> None:
    """In one batch, in either order, each with its own document."""

    async def persist(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        assert len({value.document.document_id for value in values}) == len(values)
        return await PLAIN_STAGES.persist(values, core=core)

    stages = replace(PLAIN_STAGES, persist=persist)
    for order in (1, -1):
        core = make_core(FakeDatabase())
        old = await store_one(ask("Text", "a"), core)
        requests = [ask("Text", "b", previous="a"), ask("Other", "a")][::order]
        outcomes = await store_content(requests, core=core, stages=stages)
        assert {one.outcome for one in outcomes} <= {Outcome.CREATED, Outcome.UPDATED, Outcome.ATTRIBUTES_UPDATED}
        assert (await stored_text("a", core), await stored_text("b", core)) == ("Other", "Text")
        assert old.document_id in {one.document_id for one in outcomes}
        await healthy(core)


async def test_a_failing_document_does_not_fail_its_neighbours(make_core: MakeCore) -> None:
    """Whatever stage it fails in."""
    core = make_core(script=[EmbeddingFault.REFUSED] * 2, only_with="poison")
    requests = [ask("good one", "a"), ask("bad\x00", "b"), ask("poison", "c"), ask("good two", "d")]
    good, invalid, refused, other = await store_content(requests, core=core)
    assert (good.outcome, other.outcome) == (Outcome.CREATED, Outcome.CREATED)
    assert (invalid.outcome, invalid.source_id) == (Outcome.FAILED, "b")
    assert isinstance(invalid.error, ValidationError)
    assert (refused.outcome, refused.source_id) == (Outcome.FAILED, "c")
    assert isinstance(refused.error, EmbeddingError)
    assert (await healthy(core)).documents == 2


async def test_a_failure_is_logged_once_without_the_content(make_core: MakeCore) -> None:
    """The caller's faults as warnings, ours as errors."""
    core = make_core(script=[EmbeddingFault.REFUSED])
    with capture_logs() as lines:
        await store_content([ask("Zq7xMARKERx\x00", "a"), ask("Zq7xMARKERx", "b")], core=core)
    assert [(line["event"], line["log_level"], line["source_id"]) for line in lines] == [
        ("input.validation_failed", "warning", "a"),
        ("ingest.embedding_failed", "error", "b"),
    ]
    assert "MARKER" not in str(lines)


async def test_a_stage_that_is_away_fails_only_the_documents_that_need_it(make_core: MakeCore) -> None:
    """Unchanged content, and attributes alone, need no embedding."""
    core = make_core(script=[None, EmbeddingFault.UNAVAILABLE])
    await store_content([ask("same", "a"), ask("tagged", "b")], core=core)
    requests = [ask("same", "a"), ask("tagged", "b", tags=["x"]), ask("new", "c"), ask("title only", title="T")]
    unchanged, tagged, new, derived = await store_content(requests, core=core)
    assert (unchanged.outcome, tagged.outcome) == (Outcome.UNCHANGED, Outcome.ATTRIBUTES_UPDATED)
    for failed in (new, derived):
        assert failed.outcome is Outcome.FAILED
        assert isinstance(failed.error, EmbeddingUnavailableError)
        assert failed.source_id is not None
    assert derived.source_id == "t" or (derived.source_id or "").startswith("t-")
    assert await stored_text("c", core) is None


async def test_a_database_that_is_away_fails_every_document_by_name(make_core: MakeCore) -> None:
    """Nothing is raised; an illegal id is not repeated."""
    core = make_core()

    async def away(values: Sequence[object], *, core: Core) -> Sequence[Any]:
        del values, core
        raise StorageUnavailableError("MongoDB is away. Try again.")

    stages = replace(PLAIN_STAGES, validate=away)
    named, illegal = await store_content([ask("x", " a "), ask("x", "-Zq7")], core=core, stages=stages)
    assert (named.source_id, illegal.source_id) == ("a", None)
    assert all(one.error is not None and one.error.retryable for one in (named, illegal))


@pytest.mark.parametrize("stage", ["validate", "chunk", "embed", "persist"])
async def test_a_defect_in_a_stage_fails_its_documents_and_never_the_run(make_core: MakeCore, stage: str) -> None:
    """With the cause; and a stage that loses a document is a defect too."""
    core = make_core()

    async def crash(values: Sequence[object], *, core: Core) -> Sequence[Any]:
        del values, core
        raise KeyError("unforeseen")

    async def lose(values: Sequence[object], *, core: Core) -> Sequence[Any]:
        del core
        return values[1:]

    for spoiled in (crash, lose):
        stages = replace(PLAIN_STAGES, **{stage: spoiled})
        outcomes = await store_content([ask("one", "a"), ask("two", "b")], core=core, stages=stages)
        assert [one.outcome for one in outcomes] == [Outcome.FAILED] * 2
        assert [one.source_id for one in outcomes] == ["a", "b"]
        assert all(isinstance(one.error, InternalError) for one in outcomes)
    assert (await healthy(core)).documents == 0


async def test_a_chunking_failure_is_an_outcome(make_core: MakeCore) -> None:
    """Not the caller's fault, and not the neighbour's."""
    core = make_core()

    async def fail_first(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        chunked = await PLAIN_STAGES.chunk(values[1:], core=core)
        return [Failure(error=ChunkingError("It could not be cut. Report this.")), *chunked]

    outcomes = await store_content(
        [ask("one", "a"), ask("two", "b")], core=core, stages=replace(PLAIN_STAGES, chunk=fail_first)
    )
    assert [(one.outcome, one.source_id) for one in outcomes] == [(Outcome.FAILED, "a"), (Outcome.CREATED, "b")]


# --- embedders that fail ----------------------------------------------------------------------------------------------


async def test_a_failed_store_leaves_no_trace_that_would_stop_the_next_one(make_core: MakeCore) -> None:
    """Failed the first time, stored the second: no hash of what was never stored."""
    core = make_core(script=[EmbeddingFault.UNAVAILABLE])
    failed = await store_one(ask("# Title\n\nText", "a.md"), core)
    assert failed.outcome is Outcome.FAILED
    assert (await healthy(core)).documents == 0
    assert (await store_one(ask("# Title\n\nText", "a.md"), core)).outcome is Outcome.CREATED


async def test_a_write_that_fails_leaves_no_trace_either(make_core: MakeCore) -> None:
    """MongoDB goes away before the commit."""
    database = FakeDatabase()
    core = make_core(database)

    async def away(values: Sequence[object], *, core: Core) -> Sequence[Any]:
        del values, core
        raise StorageUnavailableError("MongoDB is away. Try again.")

    failed = await store_one(ask("Text", "a"), core, stages=replace(PLAIN_STAGES, persist=away))
    assert (failed.outcome, database.rows, database.bodies) == (Outcome.FAILED, {}, {})
    assert (await store_one(ask("Text", "a"), core)).outcome is Outcome.CREATED


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (EmbeddingFault.VECTOR_MISSING, "vectors for"),
        (EmbeddingFault.GROUP_MISSING, "0 groups for 1"),
        (EmbeddingFault.WRONG_WIDTH, "vector 0 of"),
        (EmbeddingFault.NOT_FINITE, "not finite"),
        (EmbeddingFault.REFUSED, "refused"),
    ],
)
async def test_a_spoiled_answer_leaves_the_old_version_searchable(
    make_core: MakeCore, fault: EmbeddingFault, told: str
) -> None:
    """The whole document is rejected, with the number that is wrong; its neighbour is stored."""
    core = make_core(script=[None, *[fault] * 2], only_with="poison")
    await store_one(ask(f"poison of old\n\n{LONG}", "a"), core)
    stored = await core.store.read_document("a")
    assert stored is not None
    before = await core.store.read_chunk_rows([stored.state.document_id])
    good, failed = await store_content([ask("fine", "b"), ask(f"poison of new\n\n{LONG} more", "a")], core=core)
    assert failed.outcome is Outcome.FAILED
    assert failed.error is not None
    assert told in failed.error.message
    assert good.outcome is Outcome.CREATED
    hits = await core.store.read_hits([row.chunk_id for row in before])
    assert len(hits) == len(before)
    assert await stored_text("a", core) == f"poison of old\n\n{LONG}"
    assert (await healthy(core)).documents == 2


async def test_a_process_with_another_embedding_space_does_not_write(make_core: MakeCore) -> None:
    """What is current is the database's decision."""
    database = FakeDatabase()
    core = make_core(database)
    await store_one(ask("Text", "a"), core)
    embedder = ScriptedEmbedder(HashEmbedder(32))
    other = replace(make_core(database), embedder=embedder, fingerprint=fingerprint_of(embedder))
    outcome = await store_one(ask("New", "a"), other)
    assert isinstance(outcome.error, ForeignDatabaseError)
    assert await stored_text("a", core) == "Text"
