"""SubmissionStore: accepted content is never lost, is run by one holder at a time, is parked when it crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

import pytest

from memory_core.errors import NotFoundError
from memory_core.models import DocumentState, Holder, StoreRequest
from memory_core.store_ports import DeleteSelector, MemoryStore
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.work_ports import OpenSubmission, Submission, SubmissionState, SubmissionStore

Put: TypeAlias = Callable[..., Awaitable[DocumentState]]

# A lease that ended before it began: what a lapsed one looks like, without waiting for it.
LAPSED_SECONDS = -1.0
LONG_SECONDS = 600.0

ANN = Holder(host="laptop", pid=4_194_304, started=1_796_068_207.25, token="a" * 32)
BEN = Holder(host="laptop", pid=17, started=1_796_068_300.5, token="b" * 32)
DOOR = Holder(host="laptop", pid=23, started=1_796_068_400.5, token="0" * 32)

REQUEST = StoreRequest(
    request=StoreContentRequest(
        content="alpha \U0001f600\n\nbeta",
        title="Notes",
        source_id="notes/a",
        tags=[],
        metadata={"a.b": {"x.y": ["$set", None, 2**63 - 1, 1.5]}, "": "$$NOW"},
        content_type="markdown",
    ),
    provenance=Provenance(channel="mcp", client_name="a client", client_version="1.0", token_name="laptop"),  # noqa: S106 - a name
    notes=("A NUL was removed.",),
    previous_source_id="notes/old",
)


async def claim_one(
    submissions: SubmissionStore, submission: Submission, holder: Holder = ANN, *, seconds: float = LONG_SECONDS
) -> Submission | None:
    """The submission as claimed, or None where it was not to be had."""
    claimed = await submissions.claim([submission.submission_id], holder=holder, seconds=seconds)
    assert len(claimed) <= 1
    return claimed[0] if claimed else None


async def stage_free(submissions: SubmissionStore, request: StoreRequest, *, key: str, now: datetime) -> Submission:
    """The request, staged and given back: nobody has a lease on it, unless it was joined and somebody works on it."""
    staged = await submissions.stage(request, key=key, holder=DOOR, seconds=LONG_SECONDS, now=now)
    await submissions.release([staged.submission_id], holder=DOOR)
    return staged


async def finish_one(
    submissions: SubmissionStore, submission: Submission, outcome: Mapping[str, object], *, now: datetime
) -> None:
    """Record an outcome, as the holder that has it or else takes it."""
    await claim_one(submissions, submission)
    await submissions.finish({submission.submission_id: outcome}, holder=ANN, now=now)


async def state_of(submissions: SubmissionStore, submission: Submission) -> SubmissionState:
    """Where the submission is now."""
    found = await submissions.read(submission.submission_id)
    assert found is not None
    return found.state


# --- staging ----------------------------------------------------------------------------------------------------------


async def test_a_staged_request_reads_back_exactly(submissions: SubmissionStore, now: datetime) -> None:
    """The content, what was given and what was left out (omitted keeps, empty clears), and where its body is."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    assert (staged.state, staged.attempts, staged.outcome, staged.staged_at) == (SubmissionState.STAGED, 0, None, now)
    found = await submissions.read(staged.submission_id)
    assert found is not None
    assert found.request.body_id
    assert found.request == replace(
        REQUEST,
        provenance=replace(REQUEST.provenance, submission_id=staged.submission_id),
        body_id=found.request.body_id,
        staged_at=now,
    )
    assert (found.request.request.tags, found.request.request.uri) == ([], None)
    assert staged == found


async def test_the_largest_content_is_staged(submissions: SubmissionStore, now: datetime) -> None:
    """5,000,000 characters of four bytes: above MongoDB's limit for one document."""
    content = "\U0001f600" * 5_000_000
    request = replace(REQUEST, request=StoreContentRequest(content=content))
    staged = await stage_free(submissions, request, key="k1", now=now)
    claimed = await claim_one(submissions, staged)
    assert claimed is not None
    assert claimed.request.request.content == content


async def test_an_open_submission_is_joined(submissions: SubmissionStore, now: datetime) -> None:
    """The same key, staged or running: the same submission, as it was first handed in (S18)."""
    first = await stage_free(submissions, REQUEST, key="k1", now=now)
    assert await stage_free(submissions, REQUEST, key="k1", now=now + timedelta(seconds=60)) == first
    claimed = await claim_one(submissions, first)
    joined = await stage_free(submissions, REQUEST, key="k1", now=now)
    assert joined == claimed
    other = await stage_free(submissions, REQUEST, key="k2", now=now)
    assert other.submission_id != first.submission_id


async def test_calls_at_the_same_moment_join_one_another(submissions: SubmissionStore, now: datetime) -> None:
    """One submission, whoever was first."""
    staged = await asyncio.gather(*(stage_free(submissions, REQUEST, key="k1", now=now) for _ in range(5)))
    assert len({submission.submission_id for submission in staged}) == 1
    assert len(await submissions.find_open(limit=10)) == 1


@pytest.mark.parametrize("outcome", ["created", "failed"])
async def test_a_finished_submission_is_not_joined(submissions: SubmissionStore, now: datetime, outcome: str) -> None:
    """The same content again goes down the path again: store A, B, A ends with A."""
    first = await stage_free(submissions, REQUEST, key="k1", now=now)
    await finish_one(submissions, first, {"outcome": outcome}, now=now)
    again = await stage_free(submissions, REQUEST, key="k1", now=now)
    assert again.submission_id != first.submission_id
    assert again.state is SubmissionState.STAGED


async def test_an_unknown_submission_is_none(submissions: SubmissionStore) -> None:
    """Whatever the id looks like."""
    for unknown in ("e" * 24, "no id at all", ""):
        assert await submissions.read(unknown) is None
    assert list(await submissions.claim(["e" * 24, "no id at all"], holder=ANN, seconds=LONG_SECONDS)) == []
    assert list(await submissions.claim([], holder=ANN, seconds=LONG_SECONDS)) == []
    await submissions.finish({}, holder=ANN, now=datetime.fromisoformat("2026-11-01T00:00:00+00:00"))
    await submissions.release(["e" * 24, "no id at all"], holder=ANN)


async def test_nobody_takes_what_a_living_stager_has_just_accepted(submissions: SubmissionStore, now: datetime) -> None:
    """The stager itself may; others when it is dead, when its lease has lapsed or when it was given back."""
    for key, seconds, dead in (("k1", LONG_SECONDS, [DOOR.token]), ("k2", LAPSED_SECONDS, [])):
        staged = await submissions.stage(REQUEST, key=key, holder=DOOR, seconds=seconds, now=now)
        if seconds > 0:
            assert await claim_one(submissions, staged) is None
        claimed = await submissions.claim([staged.submission_id], holder=ANN, seconds=LONG_SECONDS, dead_tokens=dead)
        assert [one.submission_id for one in claimed] == [staged.submission_id]
    own = await submissions.stage(REQUEST, key="k3", holder=DOOR, seconds=LONG_SECONDS, now=now)
    assert OpenSubmission(submission_id=own.submission_id, holder=DOOR) in await submissions.find_open(limit=10)
    assert await claim_one(submissions, own, DOOR) is not None


async def test_who_joins_does_not_take_the_lease(submissions: SubmissionStore, now: datetime) -> None:
    """It stays its holder's, and giving it back is its holder's alone."""
    staged = await submissions.stage(REQUEST, key="k1", holder=ANN, seconds=LONG_SECONDS, now=now)
    assert await submissions.stage(REQUEST, key="k1", holder=BEN, seconds=LONG_SECONDS, now=now) == staged
    await submissions.release([staged.submission_id], holder=BEN)
    assert await claim_one(submissions, staged, BEN) is None
    await submissions.release([staged.submission_id], holder=ANN)
    assert await claim_one(submissions, staged, BEN) is not None


# --- claiming ---------------------------------------------------------------------------------------------------------


async def test_a_claim_takes_what_is_free_and_counts_an_attempt(submissions: SubmissionStore, now: datetime) -> None:
    """With its content; nobody else gets it while the lease lives."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    claimed = await claim_one(submissions, staged)
    assert claimed == replace(staged, state=SubmissionState.RUNNING, attempts=1)
    assert await claim_one(submissions, staged, BEN) is None
    assert await submissions.read(staged.submission_id) == claimed


async def test_of_a_group_only_the_free_ones_are_claimed(submissions: SubmissionStore, now: datetime) -> None:
    """What another holds, what is finished and what was not asked for stay out."""
    free, held, finished, other = [await stage_free(submissions, REQUEST, key=f"k{n}", now=now) for n in range(4)]
    await claim_one(submissions, held, BEN)
    await finish_one(submissions, finished, {"outcome": "created"}, now=now)
    ids = [submission.submission_id for submission in (free, held, finished)]
    claimed = await submissions.claim(ids, holder=ANN, seconds=LONG_SECONDS)
    assert [submission.submission_id for submission in claimed] == [free.submission_id]
    assert await state_of(submissions, other) is SubmissionState.STAGED


async def test_of_holders_that_claim_together_one_has_it(submissions: SubmissionStore, now: datetime) -> None:
    """No submission is run twice at once."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    holders = [replace(ANN, pid=number, token=f"{number:032x}") for number in range(6)]
    claims = await asyncio.gather(*(claim_one(submissions, staged, holder) for holder in holders))
    assert sum(claim is not None for claim in claims) == 1
    found = await submissions.read(staged.submission_id)
    assert found is not None
    assert found.attempts == 1


async def test_a_lapsed_claim_is_free_again(submissions: SubmissionStore, now: datetime) -> None:
    """The next holder goes on, and the attempt is counted."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    await claim_one(submissions, staged, ANN, seconds=LAPSED_SECONDS)
    claimed = await claim_one(submissions, staged, BEN)
    assert claimed is not None
    assert (claimed.attempts, claimed.request.request.content) == (2, REQUEST.request.content)
    assert await claim_one(submissions, staged, ANN) is None


async def test_a_submission_that_crashed_three_times_is_parked(submissions: SubmissionStore, now: datetime) -> None:
    """It waits for a person: nobody gets it, it is no longer open, and the same content may try anew."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    for attempt in (1, 2, 3):
        claimed = await claim_one(submissions, staged, seconds=LAPSED_SECONDS)
        assert claimed is not None
        assert claimed.attempts == attempt
    assert await claim_one(submissions, staged, BEN) is None
    parked = await submissions.read(staged.submission_id)
    assert parked is not None
    assert (parked.state, parked.attempts) == (SubmissionState.PARKED, 3)
    assert parked.request.request.content == REQUEST.request.content
    assert list(await submissions.find_open(limit=10)) == []
    assert await claim_one(submissions, staged, BEN) is None
    assert (await stage_free(submissions, REQUEST, key="k1", now=now)).submission_id != staged.submission_id


async def test_a_third_attempt_that_lives_is_left_alone(submissions: SubmissionStore, now: datetime) -> None:
    """Only a lapsed third attempt is a third crash."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    for seconds in (LAPSED_SECONDS, LAPSED_SECONDS, LONG_SECONDS):
        await claim_one(submissions, staged, ANN, seconds=seconds)
    assert await claim_one(submissions, staged, BEN) is None
    assert await state_of(submissions, staged) is SubmissionState.RUNNING
    await submissions.finish({staged.submission_id: {"outcome": "created"}}, holder=ANN, now=now)
    assert await state_of(submissions, staged) is SubmissionState.DONE


async def test_the_submission_of_a_dead_holder_is_taken_over(submissions: SubmissionStore, now: datetime) -> None:
    """At once, by its token; a living one keeps its own."""
    mine, theirs = [await stage_free(submissions, REQUEST, key=f"k{n}", now=now) for n in range(2)]
    carl = replace(BEN, pid=18, token="c" * 32)
    await claim_one(submissions, mine, ANN)
    await claim_one(submissions, theirs, BEN)
    ids = [mine.submission_id, theirs.submission_id]
    claimed = await submissions.claim(ids, holder=carl, seconds=LONG_SECONDS, dead_tokens=[ANN.token, "d" * 32])
    assert [(submission.submission_id, submission.attempts) for submission in claimed] == [(mine.submission_id, 2)]
    assert {one.submission_id: one.holder for one in await submissions.find_open(limit=10)} == {
        mine.submission_id: carl,
        theirs.submission_id: BEN,
    }


async def test_a_third_crash_of_a_dead_holder_parks_too(submissions: SubmissionStore, now: datetime) -> None:
    """Whether the lease lapsed or its holder died."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    holders = [replace(ANN, pid=number, token=f"{number:032x}") for number in range(4)]
    tokens = [holder.token for holder in holders]
    for attempt, holder in enumerate(holders[:3], start=1):
        claimed = await submissions.claim(
            [staged.submission_id], holder=holder, seconds=LONG_SECONDS, dead_tokens=tokens[: attempt - 1]
        )
        assert [submission.attempts for submission in claimed] == [attempt]
    assert not await submissions.claim(
        [staged.submission_id], holder=holders[3], seconds=LONG_SECONDS, dead_tokens=tokens[:3]
    )
    assert await state_of(submissions, staged) is SubmissionState.PARKED


async def test_a_holder_may_claim_its_own_again(submissions: SubmissionStore, now: datetime) -> None:
    """A run that is tried again in the same process goes on, and the attempt is counted."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    await claim_one(submissions, staged)
    claimed = await claim_one(submissions, staged)
    assert claimed is not None
    assert claimed.attempts == 2


async def test_a_renewed_claim_holds(submissions: SubmissionStore, now: datetime) -> None:
    """A long run keeps what it works on, and no attempt is counted."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    await claim_one(submissions, staged, seconds=LAPSED_SECONDS)
    await submissions.renew([staged.submission_id, "e" * 24], holder=ANN, seconds=LONG_SECONDS)
    assert await claim_one(submissions, staged, BEN) is None
    found = await submissions.read(staged.submission_id)
    assert found is not None
    assert (found.state, found.attempts) == (SubmissionState.RUNNING, 1)


async def test_only_the_holder_renews(submissions: SubmissionStore, now: datetime) -> None:
    """What another has, what is free and what is finished stay as they are."""
    held, free, finished = [await stage_free(submissions, REQUEST, key=f"k{n}", now=now) for n in range(3)]
    await claim_one(submissions, held, ANN, seconds=LAPSED_SECONDS)
    await finish_one(submissions, finished, {"outcome": "created"}, now=now)
    ids = [submission.submission_id for submission in (held, free, finished)]
    await submissions.renew(ids, holder=BEN, seconds=LONG_SECONDS)
    assert {one.submission_id: one.holder for one in await submissions.find_open(limit=10)} == {
        held.submission_id: ANN,
        free.submission_id: None,
    }
    assert await state_of(submissions, finished) is SubmissionState.DONE
    carl = replace(BEN, pid=18, token="c" * 32)
    assert await claim_one(submissions, held, carl) is not None
    assert await claim_one(submissions, free, carl) is not None


async def test_open_ones_are_found_oldest_first(submissions: SubmissionStore, now: datetime) -> None:
    """Staged or running, with whoever works on them, or did; not what is finished or beyond the limit."""
    staged = [
        await stage_free(submissions, REQUEST, key=f"k{n}", now=now + timedelta(seconds=60 - n)) for n in range(5)
    ]
    never, lapsed, held, finished, oldest = staged
    await claim_one(submissions, lapsed, ANN, seconds=LAPSED_SECONDS)
    await claim_one(submissions, held, BEN)
    await finish_one(submissions, finished, {"outcome": "failed"}, now=now)
    expected = [
        OpenSubmission(submission_id=oldest.submission_id, holder=None),
        OpenSubmission(submission_id=held.submission_id, holder=BEN),
        OpenSubmission(submission_id=lapsed.submission_id, holder=ANN),
        OpenSubmission(submission_id=never.submission_id, holder=None),
    ]
    assert list(await submissions.find_open(limit=10)) == expected
    assert list(await submissions.find_open(limit=2)) == expected[:2]


async def test_a_claim_hands_out_the_oldest_first(submissions: SubmissionStore, now: datetime) -> None:
    """Whatever the order of the ids: two texts of one source are stored in the order in which they were accepted."""
    times = [now + timedelta(seconds=seconds) for seconds in (30, 10, 20)]
    staged = [await stage_free(submissions, REQUEST, key=f"k{n}", now=at) for n, at in enumerate(times)]
    claimed = await submissions.claim([one.submission_id for one in staged], holder=ANN, seconds=LONG_SECONDS)
    assert [one.staged_at for one in claimed] == sorted(times)
    assert [one.request.staged_at for one in claimed] == sorted(times)


async def test_what_a_killed_run_had_stored_is_not_stored_again(
    submissions: SubmissionStore, put: Put, now: datetime
) -> None:
    """It is settled with the outcome that the run could not tell: run again, it would undo what came later."""
    first, second = [await stage_free(submissions, REQUEST, key=f"k{n}", now=now) for n in range(2)]
    await claim_one(submissions, first, seconds=LAPSED_SECONDS)
    state = await put("notes/a", "alpha \U0001f600", "beta", body_id=first.request.body_id)
    await put("notes/a", "newer", attributes={"title": "$NOW"})
    await put("notes/a", "alpha \U0001f600", "beta", body_id=second.request.body_id)
    assert list(await submissions.claim([one.submission_id for one in (first, second)], holder=BEN, seconds=1)) == []
    for one, outcome, version in ((first, "created", 1), (second, "updated", 3)):
        found = await submissions.read(one.submission_id)
        assert found is not None
        assert found.state is SubmissionState.DONE
        assert found.outcome is not None
        names = ("outcome", "sourceId", "documentId", "title", "version", "chunkCount", "reason")
        assert [found.outcome[name] for name in names] == [
            outcome,
            "notes/a",
            state.document_id,
            "$NOW",
            version,
            2,
            "stored by a run that was killed before it could say so",
        ]
    assert list(await submissions.find_open(limit=10)) == []


@pytest.mark.parametrize("is_kept", [True, False])
async def test_what_was_stored_and_deleted_since_is_settled_too(
    submissions: SubmissionStore, store: MemoryStore, put: Put, now: datetime, *, is_kept: bool
) -> None:
    """A deleted document does not come back; a version that is no longer kept is no reason to store it again."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    await put("notes/a", "alpha \U0001f600", "beta", body_id=staged.request.body_id)
    if is_kept:
        await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    else:
        for number in range(5):
            await put("notes/a", f"edit {number}")
    assert await claim_one(submissions, staged) is None
    found = await submissions.read(staged.submission_id)
    assert found is not None
    assert found.outcome is not None
    assert (found.state, found.outcome["sourceId"]) == (SubmissionState.DONE, "notes/a")
    assert found.outcome["version"] == (1 if is_kept else None)


# --- finishing --------------------------------------------------------------------------------------------------------


async def test_outcomes_are_recorded_each_for_its_own(submissions: SubmissionStore, now: datetime) -> None:
    """Done, or failed where the outcome says so; the outcome is kept as it is."""
    good, bad = [await stage_free(submissions, REQUEST, key=f"k{n}", now=now) for n in range(2)]
    outcomes = {
        good.submission_id: {
            "outcome": "updated",
            "sourceId": "notes/a",
            "version": 3,
            "notes": ["$a.b"],
            "error": None,
        },
        bad.submission_id: {"outcome": "failed", "error": {"kind": "embedding", "message": "It refused."}},
    }
    await submissions.claim(list(outcomes), holder=ANN, seconds=LONG_SECONDS)
    await submissions.finish(outcomes, holder=ANN, now=now)
    for submission, state in ((good, SubmissionState.DONE), (bad, SubmissionState.FAILED)):
        found = await submissions.read(submission.submission_id)
        assert found is not None
        assert (found.state, found.outcome) == (state, outcomes[submission.submission_id])
        assert await claim_one(submissions, submission) is None


@pytest.mark.parametrize("outcome", ["unchanged", "failed"])
async def test_who_lost_its_lease_has_no_say(submissions: SubmissionStore, now: datetime, outcome: str) -> None:
    """A run that slept too long neither ends the one that took over nor takes its text away."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    await claim_one(submissions, staged, ANN, seconds=LAPSED_SECONDS)
    taken = await claim_one(submissions, staged, BEN)
    assert taken is not None
    await submissions.finish({staged.submission_id: {"outcome": outcome}}, holder=ANN, now=now)
    assert await submissions.read(staged.submission_id) == taken
    await submissions.finish({staged.submission_id: {"outcome": "created"}}, holder=BEN, now=now)
    await submissions.finish({staged.submission_id: {"outcome": outcome}}, holder=BEN, now=now)
    found = await submissions.read(staged.submission_id)
    assert found is not None
    assert (found.state, found.outcome) == (SubmissionState.DONE, {"outcome": "created"})


async def test_what_is_given_back_is_taken_at_once(submissions: SubmissionStore, now: datetime) -> None:
    """A run that failed or was cancelled leaves its work to the next one; what is finished stays finished."""
    mine, done = [await stage_free(submissions, REQUEST, key=f"k{n}", now=now) for n in range(2)]
    await claim_one(submissions, mine)
    await finish_one(submissions, done, {"outcome": "created"}, now=now)
    await submissions.release([mine.submission_id, done.submission_id], holder=ANN)
    claimed = await claim_one(submissions, mine, BEN)
    assert claimed is not None
    assert claimed.attempts == 2
    assert await state_of(submissions, done) is SubmissionState.DONE


async def test_a_failed_submission_keeps_its_content(submissions: SubmissionStore, now: datetime) -> None:
    """Accepted content is never lost: a person can look at it and store it again."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    await finish_one(submissions, staged, {"outcome": "failed"}, now=now)
    found = await submissions.read(staged.submission_id)
    assert found is not None
    assert found.request == staged.request


async def test_a_done_submission_lets_go_of_a_body_that_nobody_adopted(
    submissions: SubmissionStore, store: MemoryStore, now: datetime
) -> None:
    """Unchanged content leaves no text without an owner."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    assert await store.read_body(staged.request.body_id or "") == REQUEST.request.content
    await finish_one(submissions, staged, {"outcome": "unchanged"}, now=now)
    with pytest.raises(NotFoundError):
        await store.read_body(staged.request.body_id or "")
    assert (await store.check_health()).faults == ()


async def test_a_stored_version_adopts_the_staged_body(
    submissions: SubmissionStore, store: MemoryStore, put: Put, now: datetime
) -> None:
    """The text is not written again, and outlives its submission."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    body_id = staged.request.body_id
    state = await put("notes/a", "alpha \U0001f600", "beta", body_id=body_id)
    assert state.body_id == body_id
    await finish_one(submissions, staged, {"outcome": "created"}, now=now)
    assert await store.read_body(state.body_id) == REQUEST.request.content
    assert (await store.check_health()).faults == ()


async def test_a_body_is_adopted_once(
    submissions: SubmissionStore, store: MemoryStore, put: Put, now: datetime
) -> None:
    """A second attempt that stores the text again after an edit has a body of its own.

    If two versions shared one body, the older one's end would take the text of the newer one away.
    """
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    first = await put("notes/a", "alpha \U0001f600", "beta", body_id=staged.request.body_id)
    await put("notes/a", "an edit")
    third = await put("notes/a", "alpha \U0001f600", "beta", body_id=staged.request.body_id)
    assert (third.version, third.body_id != first.body_id) == (3, True)
    for number in range(4):
        await put("notes/a", f"edit {number}")
    with pytest.raises(NotFoundError):
        await store.read_body(first.body_id)
    assert await store.read_body(third.body_id) == REQUEST.request.content


async def test_a_body_in_the_trash_is_not_adopted_again(
    submissions: SubmissionStore, store: MemoryStore, put: Put, now: datetime
) -> None:
    """The end of the grace period must not take the text of a live document."""
    staged = await stage_free(submissions, REQUEST, key="k1", now=now)
    first = await put("notes/a", "alpha \U0001f600", "beta", body_id=staged.request.body_id)
    await store.delete(DeleteSelector(source_ids=("notes/a",)), now=now)
    again = await put("notes/a", "alpha \U0001f600", "beta", body_id=staged.request.body_id)
    assert again.body_id != first.body_id
    assert await store.read_body(again.body_id) == REQUEST.request.content


async def test_a_staged_body_that_is_another_text_is_not_adopted(
    submissions: SubmissionStore, store: MemoryStore, put: Put, now: datetime
) -> None:
    """What is read back is what was stored, also where the door's text was normalised on the way."""
    request = replace(REQUEST, request=StoreContentRequest(content="alpha\r\n\r\nbeta"))
    staged = await stage_free(submissions, request, key="k1", now=now)
    state = await put("notes/a", "alpha", "beta", body_id=staged.request.body_id)
    assert await store.read_body(state.body_id) == "alpha\n\nbeta"
