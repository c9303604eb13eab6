"""THE path beside other writers: conflicts, deletions, and random steps of everything together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_core.errors import (
    ConflictError,
)
from memory_core.fakes import EmbeddingFault, FakeDatabase
from memory_core.models import Conflict, Outcome
from memory_core.ports import Core
from memory_core.store_content import MAX_ROUNDS, PLAIN_STAGES, store_content
from memory_core.store_ports import DeleteSelector
from tests.unit.path_helpers import MakeCore, ask, healthy, store_one, stored_text

# --- other writers ----------------------------------------------------------------------------------------------------


def meet(core: Core, *others: Callable[[], Awaitable[object]]) -> Any:
    """Stages in which others act between the reading and the writing, one a round."""
    waiting = list(others)

    async def persist(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        if waiting:
            await waiting.pop(0)()
        return await PLAIN_STAGES.persist(values, core=core)

    del core
    return replace(PLAIN_STAGES, persist=persist)


async def test_a_lost_race_is_decided_again(make_core: MakeCore) -> None:
    """No update is lost: the later one is version 3, and the earlier one is kept."""
    core = make_core()
    await store_one(ask("old", "a"), core)
    mine = await store_one(ask("mine", "a"), core, stages=meet(core, lambda: store_one(ask("theirs", "a"), core)))
    assert (mine.outcome, mine.version) == (Outcome.UPDATED, 3)
    stored = await core.store.read_document("a")
    assert stored is not None
    assert [await core.store.read_body(kept.body_id) for kept in stored.versions] == ["old", "theirs", "mine"]


async def test_two_first_stores_of_the_same_text_both_succeed(make_core: MakeCore) -> None:
    """One creates, the other finds it unchanged."""
    core = make_core()
    mine = await store_one(ask("same", "a"), core, stages=meet(core, lambda: store_one(ask("same", "a"), core)))
    assert (mine.outcome, mine.version) == (Outcome.UNCHANGED, 1)
    assert (await healthy(core)).documents == 1


async def test_writers_at_the_same_moment_are_all_heard(make_core: MakeCore) -> None:
    """Four processes, one source: four versions, no error."""
    database = FakeDatabase()
    cores = [make_core(database) for _ in range(4)]
    outcomes = await asyncio.gather(*(store_one(ask(f"text {n}", "a"), core) for n, core in enumerate(cores)))
    assert sorted(one.version or 0 for one in outcomes) == [1, 2, 3, 4]
    assert Counter(one.outcome for one in outcomes) == {Outcome.CREATED: 1, Outcome.UPDATED: 3}
    assert (await healthy(cores[0])).documents == 1


async def test_a_store_that_began_before_a_delete_fails_and_brings_nothing_back(make_core: MakeCore) -> None:
    """The delete came later, so it has the last word; a store that begins after it goes on counting versions."""
    core = make_core()
    await store_one(ask("old", "a"), core)

    async def delete() -> None:
        await core.store.delete(DeleteSelector(source_ids=("a",)), now=core.clock())

    outcome = await store_one(ask("new", "a"), core, stages=meet(core, delete))
    assert outcome.outcome is Outcome.FAILED
    assert isinstance(outcome.error, ConflictError)
    assert (await healthy(core)).documents == 0
    after = await store_one(ask("new", "a"), core)
    assert (after.outcome, after.version) == (Outcome.CREATED, 2)
    changes: list[dict[str, Any]] = [{"tags": ["x"]}, {"title": "T"}]
    for fields in changes:
        again = await store_one(ask("new", "a", **fields), core, stages=meet(core, delete))
        assert again.outcome is Outcome.FAILED
        await store_one(ask("new", "a"), core)
    await healthy(core)


async def test_a_submission_that_waited_never_replaces_a_newer_text(make_core: MakeCore) -> None:
    """A was accepted, its process was killed, B was stored: A must not come back over B."""
    core = make_core()
    await store_one(ask("B", "a"), core)
    state = (await core.store.read_states(["a"]))["a"]
    assert state.stored_at is not None
    early = replace(ask("A", "a"), staged_at=state.stored_at - timedelta(seconds=1))
    kept = await store_one(early, core)
    assert (kept.outcome, kept.version) == (Outcome.UNCHANGED, 1)
    assert "newer" in " ".join(kept.notes)
    late = replace(ask("A", "a"), staged_at=state.stored_at + timedelta(seconds=1))
    assert (await store_one(late, core)).outcome is Outcome.UPDATED


async def test_a_conflict_goes_round_five_times_and_then_says_so(make_core: MakeCore) -> None:
    """For the document alone; nothing of it is stored."""
    core = make_core()
    rounds: list[list[str]] = []

    async def always_late(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        results = list(await PLAIN_STAGES.persist(values[1:], core=core))
        rounds.append([value.document.source_id for value in values])
        return [Conflict(source_id=values[0].document.source_id), *results]

    outcomes = await store_content(
        [ask("one", "a"), ask("two", "b")], core=core, stages=replace(PLAIN_STAGES, persist=always_late)
    )
    assert rounds == [["a", "b"], *[["a"]] * MAX_ROUNDS]
    assert [one.outcome for one in outcomes] == [Outcome.FAILED, Outcome.CREATED]
    assert isinstance(outcomes[0].error, ConflictError)
    assert outcomes[0].source_id == "a"
    assert not outcomes[0].error.retryable
    assert MAX_ROUNDS == 5


async def test_each_document_has_rounds_of_its_own(make_core: MakeCore) -> None:
    """A late first conflict is not the fifth of somebody else."""
    core = make_core()
    met: Counter[str] = Counter()

    async def persist(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        results: list[Any] = []
        for value in values:
            name, text = value.document.source_id, value.document.content
            # `a` loses every race; `s` is stored three times in a row and loses its last race once.
            is_lost = name == "a" or (text == "third" and met["third"] == 0)
            met[text] += 1
            results += [Conflict(source_id=name)] if is_lost else await PLAIN_STAGES.persist([value], core=core)
        return results

    requests = [ask("first", "s"), ask("second", "s"), ask("never", "a"), ask("third", "s")]
    first, second, never, third = await store_content(
        requests, core=core, stages=replace(PLAIN_STAGES, persist=persist)
    )
    assert [one.version for one in (first, second, third)] == [1, 2, 3]
    assert never.outcome is Outcome.FAILED
    assert met["never"] == MAX_ROUNDS + 1


async def test_a_later_request_is_heard_when_the_one_before_it_fails(make_core: MakeCore) -> None:
    """It does not wait for ever."""
    core = make_core(script=[EmbeddingFault.REFUSED], only_with="poison")
    failed, stored = await store_content([ask("poison", "a"), ask("fine", "a")], core=core)
    assert (failed.outcome, stored.outcome) == (Outcome.FAILED, Outcome.CREATED)


async def test_a_persist_that_is_repeated_recognises_its_own_work(make_core: MakeCore) -> None:
    """The commit happened and its answer was lost: the retry of the same stage says what is true."""
    core = make_core()
    await store_one(ask("old", "a"), core)

    async def twice(values: Sequence[Any], *, core: Core) -> Sequence[Any]:
        await PLAIN_STAGES.persist(values, core=core)
        return await PLAIN_STAGES.persist(values, core=core)

    stages = replace(PLAIN_STAGES, persist=twice)
    requests = [ask("new", "a"), ask("first", "b")]
    updated, created = await store_content(requests, core=core, stages=stages)
    assert (updated.outcome, updated.version) == (Outcome.UPDATED, 2)
    assert (created.outcome, created.version) == (Outcome.CREATED, 1)
    tagged = await store_one(ask("new", "a", tags=["x"]), core, stages=stages)
    assert (tagged.outcome, tagged.version) == (Outcome.ATTRIBUTES_UPDATED, 2)
    await healthy(core)


# --- everything together ----------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from(["one", "two words", "three\n\nwords"])),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


@given(steps=STEPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_sequence_of_batches_ends_as_if_each_were_stored_alone(
    make_core: MakeCore, steps: list[list[tuple[str, str]]]
) -> None:
    """Texts, versions and outcomes are those of a plain dictionary."""
    core = make_core()
    texts: dict[str, str] = {}
    versions: Counter[str] = Counter()
    for batch in steps:
        outcomes = await store_content([ask(text, name) for name, text in batch], core=core)
        for (name, text), outcome in zip(batch, outcomes, strict=True):
            is_new = texts.get(name) != text
            expected = Outcome.UPDATED if name in texts else Outcome.CREATED
            versions[name] += is_new
            texts[name] = text
            assert outcome.outcome is (expected if is_new else Outcome.UNCHANGED)
            assert outcome.version == versions[name]
    assert {name: await stored_text(name, core) for name in texts} == texts
    assert (await healthy(core)).documents == len(texts)
