"""A SubmissionStore in memory. In: accepted requests. Out: submissions with their state; runs nothing itself.

The request's text is kept in the database's bodies, where a stored version adopts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta

from memory_core.fakes.database import BodyRecord, FakeDatabase, LeaseRecord, SubmissionRecord, take_turns
from memory_core.models import Holder, Outcome, StoreRequest
from memory_core.ports import Clock
from memory_core.wire import late_outcome_json
from memory_core.work_ports import OpenSubmission, Submission, SubmissionState

MAX_CRASHED_ATTEMPTS = 3

_OPEN = {SubmissionState.STAGED, SubmissionState.RUNNING}


class FakeSubmissionStore:
    """One process's view of a FakeDatabase. `clock` is the server's: leases lapse by it."""

    def __init__(self, database: FakeDatabase, *, clock: Clock, new_id: Callable[[], str]) -> None:
        self._database = database
        self._clock = clock
        self._new_id = new_id

    async def stage(
        self, request: StoreRequest, *, key: str, holder: Holder, seconds: float, now: datetime
    ) -> Submission:
        """Keep the request under the stager's lease, or join an open submission of the same key."""
        await take_turns()
        with self._database.lock:
            for record in self._database.submissions.values():
                if record.key == key and record.submission.state in _OPEN:
                    return self._show(record)
            lease = self._new_lease(holder, seconds=seconds)
            return self._show(self._stage_new(request, key=key, lease=lease, now=now))

    def _stage_new(self, request: StoreRequest, *, key: str, lease: LeaseRecord, now: datetime) -> SubmissionRecord:
        submission_id, body_id = self._new_id(), self._new_id()
        body = BodyRecord(text=request.request.content, submission_id=submission_id)
        bare = replace(
            request,
            request=request.request.model_copy(update={"content": ""}),
            provenance=replace(request.provenance, submission_id=submission_id),
            body_id=body_id,
            staged_at=now,
        )
        submission = Submission(
            submission_id=submission_id,
            state=SubmissionState.STAGED,
            request=deepcopy(bare),
            attempts=0,
            outcome=None,
            staged_at=now,
        )
        record = SubmissionRecord(submission=submission, key=key, lease=lease)
        self._database.bodies[body_id] = body
        self._database.submissions[submission_id] = record
        return record

    def _show(self, record: SubmissionRecord) -> Submission:
        """The submission with its text, as long as that is kept."""
        bare = deepcopy(record.submission)
        body = self._database.bodies.get(bare.request.body_id or "")
        request = bare.request.request.model_copy(update={"content": body.text if body else ""})
        return replace(bare, request=replace(bare.request, request=request))

    async def claim(
        self, ids: Sequence[str], *, holder: Holder, seconds: float, dead_tokens: Sequence[str] = ()
    ) -> Sequence[Submission]:
        """Take what is free, lapsed, a dead holder's or already ours; what crashed its run three times is parked.

        What a killed run had stored is settled instead.
        """
        await take_turns()
        takeable = {holder.token, *dead_tokens}
        with self._database.lock:
            found = [record for record in map(self._database.submissions.get, dict.fromkeys(ids)) if record]
            free = [record for record in found if record.submission.state in _OPEN and self._is_free(record, takeable)]
            free.sort(key=lambda record: (record.submission.staged_at, record.submission.submission_id))
            claimed = [self._attempt(record, holder, seconds=seconds) for record in free if not self._settle(record)]
            return [self._show(record) for record in claimed if record.submission.state is SubmissionState.RUNNING]

    def _settle(self, record: SubmissionRecord) -> bool:
        """Finish what is stored already: a version has adopted its body. Run again, it would undo what came later."""
        body_id = record.submission.request.body_id or ""
        body = self._database.bodies.get(body_id)
        if body and body.submission_id:
            return False
        self._finish(record, self._describe_stored(record, body_id))
        return True

    def _describe_stored(self, record: SubmissionRecord, body_id: str) -> Mapping[str, object]:
        documents = [*self._database.documents.values(), *(trashed.document for trashed in self._database.trash)]
        for document in documents:
            for version in document.versions:
                if version.body_id == body_id:
                    state = document.state
                    return late_outcome_json(
                        state.source_id,
                        document_id=state.document_id,
                        title=state.attributes.title,
                        version=version.version,
                        chunk_count=state.chunk_count,
                    )
        return late_outcome_json(record.submission.request.request.source_id)  # the version is no longer kept

    def _is_free(self, record: SubmissionRecord, takeable: set[str]) -> bool:
        lease = record.lease
        return lease is None or lease.holder.token in takeable or lease.until < self._clock()

    def _attempt(self, record: SubmissionRecord, holder: Holder, *, seconds: float) -> SubmissionRecord:
        submission, lease = record.submission, None
        if submission.attempts >= MAX_CRASHED_ATTEMPTS:
            submission = replace(submission, state=SubmissionState.PARKED)
        else:
            submission = replace(submission, state=SubmissionState.RUNNING, attempts=submission.attempts + 1)
            lease = self._new_lease(holder, seconds=seconds)
        return self._put(replace(record, submission=submission, lease=lease))

    def _put(self, record: SubmissionRecord) -> SubmissionRecord:
        self._database.submissions[record.submission.submission_id] = record
        return record

    def _new_lease(self, holder: Holder, *, seconds: float) -> LeaseRecord:
        return LeaseRecord(holder=holder, until=self._clock() + timedelta(seconds=seconds))

    async def renew(self, ids: Sequence[str], *, holder: Holder, seconds: float) -> None:
        """Prolong what is ours; anything else stays as it is."""
        await take_turns()
        with self._database.lock:
            for record in self._held(ids, holder):
                self._put(replace(record, lease=self._new_lease(holder, seconds=seconds)))

    async def find_open(self, *, limit: int) -> Sequence[OpenSubmission]:
        """Staged and running ones, oldest first, with whoever had them last."""
        await take_turns()
        records = [one for one in tuple(self._database.submissions.values()) if one.submission.state in _OPEN]
        records.sort(key=lambda record: (record.submission.staged_at, record.submission.submission_id))
        return [
            OpenSubmission(
                submission_id=record.submission.submission_id, holder=record.lease.holder if record.lease else None
            )
            for record in records[:limit]
        ]

    async def release(self, ids: Sequence[str], *, holder: Holder) -> None:
        """Give back what is ours and open."""
        await take_turns()
        with self._database.lock:
            for record in self._held(ids, holder):
                self._put(replace(record, lease=None))

    def _held(self, ids: Iterable[str], holder: Holder) -> list[SubmissionRecord]:
        found = [record for record in map(self._database.submissions.get, ids) if record]
        return [record for record in found if record.lease and record.lease.holder.token == holder.token]

    async def finish(self, outcomes: Mapping[str, Mapping[str, object]], *, holder: Holder, now: datetime) -> None:  # noqa: ARG002 - the port's: retention counts from it
        """Record the outcomes of what is ours; a done one lets go of its text where no version adopted it."""
        await take_turns()
        with self._database.lock:
            for record in self._held(outcomes, holder):
                self._finish(record, outcomes[record.submission.submission_id])

    def _finish(self, record: SubmissionRecord, outcome: Mapping[str, object]) -> None:
        has_failed = outcome.get("outcome") == Outcome.FAILED
        state = SubmissionState.FAILED if has_failed else SubmissionState.DONE
        submission = replace(record.submission, state=state, outcome=deepcopy(dict(outcome)))
        if state is SubmissionState.DONE:
            self._let_go_of_body(submission.request.body_id or "")
            submission = replace(submission, request=replace(submission.request, body_id=None))
        self._put(replace(record, submission=submission, lease=None))

    def _let_go_of_body(self, body_id: str) -> None:
        """Drop a text that no version adopted; an adopted one is its version's now."""
        body = self._database.bodies.get(body_id)
        if body and body.submission_id:
            del self._database.bodies[body_id]

    async def read(self, submission_id: str) -> Submission | None:
        """The submission, or None."""
        await take_turns()
        record = self._database.submissions.get(submission_id)
        return self._show(record) if record else None
