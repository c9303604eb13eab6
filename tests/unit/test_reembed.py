"""Embedding again what is stored: only the rest is paid, whoever stores meanwhile wins, queries follow at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest

from memory_core import reembed
from memory_core.adapters.hash_embedder import HashEmbedder
from memory_core.chunk import chunk_content
from memory_core.errors import ForeignDatabaseError, NotFoundError, ValidationError
from memory_core.fakes import EmbeddingFault, FakeDatabase, ScriptedEmbedder
from memory_core.models import Outcome, StoreOutcome, StoreRequest
from memory_core.ports import Core, Progress, Stages
from memory_core.reembed import estimate_reembed, plan_reembed, reembed_documents
from memory_core.reembed_values import ReembedOptions, ReembedReport, ReembedResult, Why, check_options
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_ports import DeleteSelector, DocumentWrite, WriteResult
from memory_core.store_request import Provenance, StoreContentRequest

MakeCore = Callable[..., Core]
ALL = ReembedOptions()
WIDE = 32


class KilledError(BaseException):
    """The end of a process: no handler of errors sees it."""


@pytest.fixture
def database() -> FakeDatabase:
    """What the cores of a test share."""
    return FakeDatabase()


@pytest.fixture
def old(make_core: MakeCore, database: FakeDatabase) -> Core:
    """A process with the settings that everything was stored with."""
    return make_core(database, MEMORY_BATCH_DOCUMENTS=2)


@pytest.fixture
def new(make_core: MakeCore, database: FakeDatabase) -> Core:
    """A process whose settings name wider vectors."""
    return widen(make_core(database, MEMORY_BATCH_DOCUMENTS=2), WIDE)


def widen(core: Core, dimensions: int, script: Sequence[EmbeddingFault | None] = ()) -> Core:
    return replace(
        core,
        embedder=ScriptedEmbedder(HashEmbedder(dimensions), script=script),
        fingerprint=replace(core.fingerprint, dimensions=dimensions),
    )


def request(name: str, text: str | None = None, **fields: Any) -> StoreRequest:
    content = f"# Note {name}\n\nSomething that note {name} says." if text is None else text
    return StoreRequest(
        request=StoreContentRequest(content=content, source_id=f"notes/{name}", **fields),
        provenance=Provenance(channel="test"),
    )


async def store(core: Core, *names: str) -> None:
    outcomes = await store_content([request(name) for name in names], core=core)
    assert {outcome.outcome for outcome in outcomes} == {Outcome.CREATED}


async def run(core: Core, options: ReembedOptions = ALL, stages: Stages = PLAIN_STAGES) -> ReembedReport:
    return await reembed_documents(await plan_reembed(options, core=core), options, core=core, stages=stages)


def texts_embedded(core: Core) -> list[str]:
    return sorted(text for call in cast("ScriptedEmbedder", core.embedder).calls for text in call.texts)


def results_of(report: ReembedReport) -> dict[str, str]:
    return {one.source_id: one.result.value for one in report.documents}


# --- a new space ------------------------------------------------------------------------------------------------------


async def test_everything_is_embedded_again_and_the_space_becomes_the_active_one(old: Core, new: Core) -> None:
    """Text, id, version and time of change stay; each document has a new revision that says why."""
    await store(old, "a", "b", "c")
    before = await old.store.read_states(["notes/a", "notes/b", "notes/c"])
    seen: list[Progress] = []
    report = await run(replace(new, on_progress=seen.append))
    after = await new.store.read_states(list(before))
    assert results_of(report) == dict.fromkeys(before, "done")
    assert (report.before.covered_documents, report.after.covered_documents, report.after.documents) == (0, 3, 3)
    assert (report.is_active, report.was_active, report.space.pending, report.space.previous) == (
        True,
        False,
        None,
        None,
    )
    assert "active space now" in report.describe()
    assert report.to_json()["activated"] is True
    for source_id, state in after.items():
        was = before[source_id]
        assert state.revision != was.revision
        assert (state.version, state.document_id, state.content_hash) == (1, was.document_id, was.content_hash)
        assert (state.attributes, state.updated_at, state.body_id) == (was.attributes, was.updated_at, was.body_id)
        assert (state.fingerprint, state.tally.fingerprints) == (new.fingerprint.key, {new.fingerprint.key})
    assert {one.reason for one in report.documents} == {"re-embedded: the embedding model changed"}
    assert (seen[-1].done, seen[-1].total) == (3, 3)


async def test_a_second_run_finds_nothing(old: Core, new: Core) -> None:
    """And pays nothing."""
    await store(old, "a", "b")
    await run(new)
    paid = texts_embedded(new)
    report = await run(new)
    assert (report.documents, texts_embedded(new)) == ((), paid)
    assert report.is_active


async def test_a_process_of_the_old_settings_is_refused_with_the_command(old: Core, new: Core) -> None:
    """Until the switch it may store; from then on nothing is paid and nothing is written."""
    await store(old, "a")
    await run(new)
    paid = texts_embedded(old)
    [outcome] = await store_content([request("b")], core=old)
    assert outcome.error is not None
    assert isinstance(outcome.error, ForeignDatabaseError)
    assert "`memory reembed`" in outcome.error.message
    assert texts_embedded(old) == paid


async def test_before_anything_is_declared_the_new_settings_may_not_write(old: Core, new: Core) -> None:
    """A wrong setting must not start a second space by itself."""
    await store(old, "a")
    [outcome] = await store_content([request("b")], core=new)
    assert isinstance(outcome.error, ForeignDatabaseError)


async def test_a_run_with_a_limit_does_so_many_and_leaves_the_active_space(old: Core, new: Core) -> None:
    """The next run does the rest; each text is paid for once."""
    await store(old, "a", "b", "c")
    first = await run(new, ReembedOptions(limit=2))
    assert (len(first.documents), first.left_out, first.after.covered_documents) == (2, 1, 2)
    assert (first.is_active, first.space.pending) == (False, new.fingerprint.key)
    assert "run `memory reembed` again" in first.describe()
    second = await run(new)
    assert (len(second.documents), second.is_active) == (1, True)
    assert len(set(texts_embedded(new))) == len(texts_embedded(new)) == 3


async def test_named_sources_are_done_alone(old: Core, new: Core) -> None:
    """A name that is not stored is an error, before anything is done."""
    await store(old, "a", "b")
    report = await run(new, ReembedOptions(source_ids=("notes/b",)))
    assert results_of(report) == {"notes/b": "done"}
    with pytest.raises(NotFoundError):
        await run(new, ReembedOptions(source_ids=("notes/b", "notes/missing")))


async def test_the_plan_writes_nothing_and_says_what_it_takes(old: Core, new: Core, database: FakeDatabase) -> None:
    """Documents, chunks, an estimate of the tokens, and why."""
    await store(old, "a", "b", "c")
    before = (database.meta, dict(database.documents), dict(database.rows))
    plan = await plan_reembed(ReembedOptions(limit=2), core=new)
    assert (database.meta, database.documents, database.rows) == before
    assert texts_embedded(new) == []
    assert (len(plan.documents), plan.chunks, plan.left_out) == (2, 2, 1)
    rows = [
        row for row in database.rows.values() if row.document_id in {one.stored.document_id for one in plan.documents}
    ]
    assert plan.tokens == sum(row.chunk.token_count for row in rows) + sum(len(row.context) for row in rows) // 4 > 0
    assert plan.to_json()["why"] == {"model": 2, "context": 0, "recipe": 0}
    assert plan.describe().startswith("2 documents, 2 chunks, about ")
    assert "1 more are left" in plan.describe()


async def test_an_empty_database_says_so(new: Core) -> None:
    """There is no space to change."""
    with pytest.raises(NotFoundError):
        await plan_reembed(ALL, core=new)


# --- crash, race, failure ---------------------------------------------------------------------------------------------


async def test_a_killed_run_goes_on_where_it_was(old: Core, new: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays, and only the rest is embedded (S13)."""
    monkeypatch.setattr(reembed, "BATCHES_AT_ONCE", 1)
    names = [f"{number:02}" for number in range(9)]
    await store(old, *names)
    write, left = new.store.write_together, [2]

    async def killed(writes: Sequence[DocumentWrite], *, now: datetime) -> Sequence[WriteResult]:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return await write(writes, now=now)

    with monkeypatch.context() as patch:
        patch.setattr(new.store, "write_together", killed)
        with pytest.raises(BaseExceptionGroup) as ended:
            await run(new)
    assert ended.group_contains(KilledError)
    done = await new.store.count_coverage(new.fingerprint.key)
    assert (done.covered_documents, done.documents) == (4, 9)
    space = await new.store.read_active_space()
    assert space is not None
    assert (space.fingerprint, space.pending) == (old.fingerprint.key, new.fingerprint.key)

    again = widen(new, WIDE)
    report = await run(again)
    assert (len(report.documents), report.after.is_complete, report.is_active) == (5, True, True)
    assert len(texts_embedded(again)) == 5


async def test_what_is_stored_meanwhile_wins(old: Core, new: Core) -> None:
    """A text that replaces another between plan and write is never undone, and is embedded in the next pass."""
    await store(old, "a", "b")
    newer = request("a", "# Note a\n\nAnother text.")
    pending: list[StoreRequest] = [newer]

    async def overtaken(requests: Sequence[StoreRequest], *, core: Core) -> Any:
        while pending:
            await store_content([pending.pop()], core=old)
        return await PLAIN_STAGES.validate(requests, core=core)

    report = await run(new, stages=replace(PLAIN_STAGES, validate=overtaken))
    state = (await new.store.read_states(["notes/a"]))["notes/a"]
    assert await new.store.read_body(state.body_id) == newer.request.content
    assert (state.version, state.fingerprint) == (2, new.fingerprint.key)
    assert (results_of(report), report.is_active) == ({"notes/a": "done", "notes/b": "done"}, True)


async def test_a_race_at_the_write_is_won_by_the_other(old: Core, new: Core) -> None:
    """The conflict goes round and finds other content: skipped, then done in the next pass."""
    await store(old, "a")
    pending = [request("a", "# Note a\n\nAnother text.")]

    async def overtaken(values: Any, *, core: Core) -> Any:
        while pending:
            await store_content([pending.pop()], core=old)
        return await PLAIN_STAGES.persist(values, core=core)

    report = await run(new, ReembedOptions(limit=1), replace(PLAIN_STAGES, persist=overtaken))
    assert results_of(report) == {"notes/a": "skipped"}
    assert "kept" in (report.documents[0].reason or "")
    assert (await new.store.read_states(["notes/a"]))["notes/a"].version == 2


@pytest.mark.parametrize("stage", ["validate", "persist"])
async def test_what_is_deleted_meanwhile_stays_deleted(old: Core, new: Core, stage: str) -> None:
    """Whether the delete comes before validation or between it and the write."""
    await store(old, "a", "b")
    honest = getattr(PLAIN_STAGES, stage)

    async def overtaken(values: Any, *, core: Core) -> Any:
        await old.store.delete(DeleteSelector(source_ids=("notes/a",)), now=old.clock())
        return await honest(values, core=core)

    report = await run(new, stages=replace(PLAIN_STAGES, **{stage: overtaken}))
    assert results_of(report) == {"notes/a": "skipped", "notes/b": "done"}
    assert set(await new.store.read_states(["notes/a", "notes/b"])) == {"notes/b"}
    assert report.is_active


async def test_new_documents_of_the_old_space_are_taken_in_before_the_switch(old: Core, new: Core) -> None:
    """Processes of the active space go on storing; the switch waits for what they stored."""
    await store(old, "a")
    more = ["b", "c"]

    async def persist(values: Any, *, core: Core) -> Any:
        if more:
            await store(old, more.pop())
        return await PLAIN_STAGES.persist(values, core=core)

    report = await run(new, stages=replace(PLAIN_STAGES, persist=persist))
    assert set(results_of(report)) == {"notes/a", "notes/b", "notes/c"}
    assert (report.after.is_complete, report.is_active) == (True, True)


async def test_a_vector_that_comes_too_late_is_not_written(old: Core, new: Core) -> None:
    """A store of the old space that was embedding while the space was switched fails, and says the command."""
    await store(old, "a")

    async def persist(values: Any, *, core: Core) -> Any:
        await run(new)
        return await PLAIN_STAGES.persist(values, core=core)

    [outcome] = await store_content([request("b")], core=old, stages=replace(PLAIN_STAGES, persist=persist))
    assert isinstance(outcome.error, ForeignDatabaseError)
    assert (await new.store.count_coverage(new.fingerprint.key)).documents == 1


async def test_a_process_of_the_active_space_does_not_take_back_what_is_done(old: Core, new: Core) -> None:
    """Storing the same text again during a migration is unchanged, and pays nothing; another text is stored as ever."""
    await store(old, "a", "b")
    await run(new, ReembedOptions(source_ids=("notes/a",)))
    paid = texts_embedded(old)
    [same] = await store_content([request("a")], core=old)
    assert (same.outcome, texts_embedded(old)) == (Outcome.UNCHANGED, paid)
    [tagged] = await store_content([request("a", tags=["blue"])], core=old)
    assert (tagged.outcome, texts_embedded(old)) == (Outcome.ATTRIBUTES_UPDATED, paid)
    state = (await old.store.read_states(["notes/a"]))["notes/a"]
    assert (state.fingerprint, state.attributes.tags) == (new.fingerprint.key, ("blue",))
    [other] = await store_content([request("a", "Another text.")], core=old)
    assert other.outcome is Outcome.UPDATED
    assert (await old.store.read_states(["notes/a"]))["notes/a"].fingerprint == old.fingerprint.key


async def test_a_document_that_fails_is_named_and_the_others_are_done(old: Core, new: Core) -> None:
    """The space is not switched, nothing is tried twice in one run, and the next run does it."""
    await store(old, "a", "b", "c")
    faulty = replace(
        new,
        embedder=ScriptedEmbedder(HashEmbedder(WIDE), script=[EmbeddingFault.REFUSED] * 2, only_with="note b"),
    )
    report = await run(faulty)
    assert results_of(report) == {"notes/a": "done", "notes/b": "failed", "notes/c": "done"}
    assert (report.count(ReembedResult.FAILED), report.is_active) == (1, False)
    assert "refused" in next(one.reason or "" for one in report.documents if one.result is ReembedResult.FAILED)
    assert (await run(new)).is_active


async def test_three_batches_in_a_row_that_fail_alike_end_the_run(old: Core, new: Core) -> None:
    """What is away is not asked for every document."""
    await store(old, *[f"{number:02}" for number in range(20)])
    away = widen(new, WIDE, [EmbeddingFault.UNAVAILABLE] * 1_000)
    report = await run(away)
    assert report.count(ReembedResult.FAILED) == 20
    reasons = [one.reason or "" for one in report.documents]
    assert sum(reason.startswith("not tried: 3 batches") for reason in reasons) >= 12


async def test_a_lost_text_is_a_failure_of_its_document(old: Core, new: Core, database: FakeDatabase) -> None:
    """Nothing is made up."""
    await store(old, "a", "b")
    state = (await old.store.read_states(["notes/a"]))["notes/a"]
    del database.bodies[state.body_id]
    report = await run(new)
    assert results_of(report) == {"notes/a": "failed", "notes/b": "done"}


@pytest.mark.parametrize(
    "options",
    [
        ReembedOptions(limit=0),
        ReembedOptions(activate=True, now=True),
        ReembedOptions(activate=True, rechunk=True),
        ReembedOptions(activate=True, limit=1),
        ReembedOptions(activate=True, source_ids=("notes/a",)),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: ReembedOptions) -> None:
    """Before anything is started."""
    with pytest.raises(ValidationError):
        check_options(options)
    assert check_options(ReembedOptions(activate=True)) == ReembedOptions(activate=True)


# --- which space queries use ------------------------------------------------------------------------------------------


async def test_now_switches_first(old: Core, new: Core) -> None:
    """Even with a limit: from the first moment on the old settings are refused, and the old space is kept in mind."""
    await store(old, "a", "b")
    report = await run(new, ReembedOptions(now=True, limit=1))
    assert (report.is_active, report.space.previous) == (True, old.fingerprint.key)
    assert (report.after.covered_documents, report.after.documents) == (1, 2)
    [refused] = await store_content([request("c")], core=old)
    assert isinstance(refused.error, ForeignDatabaseError)
    rest = await run(new)
    assert (rest.after.is_complete, rest.space.previous) == (True, None)


async def test_activate_alone_says_what_is_missing(old: Core, new: Core) -> None:
    """It embeds nothing, and switches only where everything is covered."""
    await store(old, "a", "b")
    activate = ReembedOptions(activate=True)
    report = await run(new, activate)
    assert (report.documents, report.is_active, report.space.pending) == ((), False, None)
    assert "covers 0 of 2 documents" in report.describe()
    for name in ("a", "b"):
        await old.store.delete(DeleteSelector(source_ids=(f"notes/{name}",)), now=old.clock())
    assert (await run(new, activate)).is_active
    assert texts_embedded(new) == []


async def test_two_new_spaces_at_once_are_refused(old: Core, new: Core) -> None:
    """The sentence names all three and both ways out."""
    await store(old, "a", "b")
    await run(new, ReembedOptions(limit=1))
    third = widen(new, 8)
    for options in (ALL, ReembedOptions(now=True), ReembedOptions(activate=True)):
        with pytest.raises(ForeignDatabaseError) as refusal:
            await plan_reembed(options, core=third)
        for name in (old.fingerprint.key, new.fingerprint.key, third.fingerprint.key, "--now"):
            assert name in refusal.value.message
    with pytest.raises(ForeignDatabaseError):
        await plan_reembed(ALL, core=old)  # it would take back what is done


async def test_a_migration_can_be_given_up(old: Core, new: Core) -> None:
    """`--now` with the old settings takes back what was done, and the new settings are refused again."""
    await store(old, "a", "b")
    await run(new, ReembedOptions(limit=1))
    report = await run(old, ReembedOptions(now=True))
    assert (len(report.documents), report.after.is_complete) == (1, True)
    assert (report.space.pending, report.space.previous) == (None, None)
    [outcome] = await store_content([request("c")], core=new)
    assert isinstance(outcome.error, ForeignDatabaseError)


# --- the same space: contexts and recipes -----------------------------------------------------------------------------


async def test_an_old_context_is_made_anew(old: Core, database: FakeDatabase) -> None:
    """A new title leaves the vectors and marks the document; a re-embed refreshes them and takes the mark away."""
    await store(old, "a", "b")
    await store_content([request("a", title="Quite another title")], core=old)
    assert (await old.store.read_states(["notes/a"]))["notes/a"].context_stale
    plan = await plan_reembed(ALL, core=old)
    assert [(one.stored.source_id, one.why) for one in plan.documents] == [("notes/a", Why.CONTEXT)]
    paid = len(texts_embedded(old))
    report = await run(old)
    assert (results_of(report), len(texts_embedded(old))) == ({"notes/a": "done"}, paid + 1)
    state = (await old.store.read_states(["notes/a"]))["notes/a"]
    assert (state.context_stale, state.context_basis.title, state.version) == (False, "Quite another title", 1)
    assert report.documents[0].reason == "re-embedded: its context was of an earlier title or text"
    assert (await run(old)).documents == ()
    assert len(database.rows) == 2


async def test_rechunking_takes_what_the_settings_would_cut_otherwise(
    old: Core, make_core: MakeCore, database: FakeDatabase
) -> None:
    """Planned first; no old id of a chunk that changed is left; without --rechunk nothing is done (S14)."""
    text = "\n\n".join(f"Paragraph {number} of a text about harbours and lanterns." * 4 for number in range(12))
    await store_content([request("long", text), request("short", "Few words.")], core=old)
    smaller = make_core(database, CHUNK_SIZE_TOKENS=64)
    before = set(database.rows)
    with pytest.raises(ForeignDatabaseError, match=r"2/64-0-32.*`memory reembed --rechunk`"):
        await plan_reembed(ALL, core=smaller)
    options = ReembedOptions(rechunk=True)
    plan = await plan_reembed(options, core=smaller)
    assert {one.why for one in plan.documents} == {Why.RECIPE}
    assert (len(plan.documents), plan.tokens > 0) == (2, True)
    report = await run(smaller, options)
    assert results_of(report) == {"notes/long": "done", "notes/short": "done"}
    [refused] = await store_content([request("late", text)], core=old)
    assert (refused.outcome, type(refused.error)) == (Outcome.FAILED, ForeignDatabaseError)
    states = await smaller.store.read_states(["notes/long", "notes/short"])
    assert all("/64-0-32/" in state.recipe and state.version == 1 for state in states.values())
    owners = {row.document_id for row in database.rows.values()}
    assert owners == {state.document_id for state in states.values()}
    long = states["notes/long"]
    kept = {chunk_id for chunk_id, row in database.rows.items() if row.document_id == long.document_id} & before
    assert (long.tally.count, long.tally.revisions, kept) == (long.chunk_count, {long.revision}, set())
    short = next(one for one in report.documents if one.source_id == "notes/short")
    assert (short.texts, short.tokens) == (0, 0)  # the same chunk has its vector still
    assert (await run(smaller, options)).documents == ()


async def test_a_newer_chunker_is_a_reason_to_chunk_again(old: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """S14: the plan shows it without any change of a text; without --rechunk it is left."""
    await store(old, "a", "b")
    monkeypatch.setattr(chunk_content, "CHUNKER_VERSION", 99)
    assert (await plan_reembed(ALL, core=old)).documents == ()
    report = await run(old, ReembedOptions(rechunk=True))
    assert results_of(report) == {"notes/a": "done", "notes/b": "done"}
    assert {one.reason for one in report.documents} == {"re-chunked: the chunk options or the chunker changed"}
    assert (await old.store.read_states(["notes/a"]))["notes/a"].recipe.startswith("99/")


async def test_a_document_keeps_its_own_sizes_where_only_the_model_changed(old: Core, new: Core) -> None:
    """A caller chose them."""
    outcomes: list[StoreOutcome] = await store_content([request("a", chunk_size_tokens=100)], core=old)
    assert outcomes[0].outcome is Outcome.CREATED
    await run(new)
    state = (await new.store.read_states(["notes/a"]))["notes/a"]
    assert "/100-0-32/" in state.recipe
    await run(new, ReembedOptions(rechunk=True))
    assert "/400-0-32/" in (await new.store.read_states(["notes/a"]))["notes/a"].recipe


async def test_an_estimate_is_what_the_run_then_embeds_and_writes_nothing(old: Core, new: Core) -> None:
    """Before the new space is declared, by the same stages; the texts are those of the run."""
    await store(old, "a", "b", "c")
    plan = await estimate_reembed(await plan_reembed(ALL, core=new), ALL, core=new)
    assert plan.estimate is not None
    assert texts_embedded(new) == []
    assert (await old.store.read_active_space()) == plan.space
    await run(new)
    assert (plan.estimate.documents, plan.estimate.texts) == (3, len(texts_embedded(new)))
    assert "no cost" in plan.describe()
    assert plan.to_json()["estimate"] == plan.estimate.to_json()
