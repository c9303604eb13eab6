"""The flow `store-content`. In: ids of staged submissions (or a form). Out: a state that tells the truth about each.

Content never travels in a parameter, except in `manual`, where a person types it into Prefect's own form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.leases import LEASE_SECONDS, hold_submissions
from memory_core.bootstrap import current_core
from memory_core.errors import ValidationError
from memory_core.models import Outcome, StoreRequest
from memory_core.ports import Core, Stages
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.submissions import stage_request
from memory_core.validate import parse_request
from memory_core.wire import outcome_json
from memory_core.work_ports import Submission
from tasks.stages import TASK_STAGES

MAX_OPEN_SUBMISSIONS = 1_000
_NAMED_FAILURES = 5


@flow(name="store-content", persist_result=False, log_prints=False, validate_parameters=True)
async def store_content_flow(submission_ids: list[str]) -> State[Any]:
    """Store what was staged under these ids.

    Args:
        submission_ids: Ids of submissions that a door staged. Those that are finished, or that another run works on,
            are left alone.
    """
    outcomes = await run_submissions(submission_ids, core=current_core(), stages=TASK_STAGES)
    return _conclude(outcomes)


# Prefect's own check of parameters would repeat what a person typed in its error message; parse_request does not.
@flow(name="store-content", persist_result=False, log_prints=False, validate_parameters=False)
async def store_content_manual_flow(form: StoreContentRequest) -> State[Any]:
    """Store one text that you type or paste here. Prefect keeps the text with the run; other doors do not do that.

    Args:
        form: The content and what describes it.
    """
    core = current_core()
    given = cast("Mapping[str, Any]", form)  # a plain mapping, because Prefect was told not to validate
    # A form sends an empty field where a person left it alone.
    arguments = {name: value for name, value in given.items() if value not in (None, "")}
    try:
        request = parse_request(arguments)
        submission = await stage_request(
            StoreRequest(request=request, provenance=Provenance(channel="prefect")), core=core
        )
    except ValidationError as error:
        return Failed(message=error.message)
    outcomes = await run_submissions([submission.submission_id], core=core, stages=TASK_STAGES)
    return _conclude(outcomes)


async def run_submissions(
    ids: Sequence[str], *, core: Core, stages: Stages = PLAIN_STAGES
) -> dict[str, dict[str, Any]]:
    """Claim, store, record. Returns the outcome of every id that this run finished, as plain JSON.

    What this process staged, it may run; what another living process staged or runs is left to it. A run that fails or
    is cancelled gives back what it claimed.
    """
    holder = replace(core.holder, token=core.new_id())
    claimed = await core.submissions.claim(
        ids, holder=holder, seconds=LEASE_SECONDS, dead_tokens=[core.holder.token, *await _dead_tokens(core)]
    )
    if not claimed:
        return {}
    names = [submission.submission_id for submission in claimed]
    try:
        async with hold_submissions(names, holder, core=core):
            outcomes = await store_content([_with_run(one) for one in claimed], core=core, stages=stages)
        plain = {name: outcome_json(outcome) for name, outcome in zip(names, outcomes, strict=True)}
        await core.submissions.finish(plain, holder=holder, now=core.clock())
    except BaseException:
        await core.submissions.release(names, holder=holder)
        raise
    return plain


async def _dead_tokens(core: Core) -> list[str]:
    """The leases of processes on this machine that are gone: nobody needs to wait for them to lapse."""
    open_ones = await core.submissions.find_open(limit=MAX_OPEN_SUBMISSIONS)
    return [one.holder.token for one in open_ones if one.holder and not core.is_alive(one.holder)]


def _with_run(submission: Submission) -> StoreRequest:
    request = submission.request
    return replace(request, provenance=replace(request.provenance, flow_run_id=flow_run.id))


def _conclude(outcomes: Mapping[str, Mapping[str, Any]]) -> State[Any]:
    """Completed only if every document is stored or unchanged."""
    failed = [outcome for outcome in outcomes.values() if outcome["outcome"] == Outcome.FAILED]
    if failed:
        named = "; ".join(
            f"{outcome['sourceId'] or 'no id'}: {outcome['error']['message']}" for outcome in failed[:_NAMED_FAILURES]
        )
        return Failed(message=f"{len(failed)} of {len(outcomes)} failed: {named}", data=outcomes)
    return Completed(message=f"{len(outcomes)} documents stored or unchanged.", data=outcomes)
