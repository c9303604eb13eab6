"""The flow `reembed`. In: which documents. Out: vectors of this process's embedding space, and a state that is true.

Plan, batches down the one path, the active space, report. A crash loses at most the batches in flight; the next run
goes on from there.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.leases import hold_reembed
from flows.reports import publish_reembed
from memory_core.bootstrap import current_core
from memory_core.costs import check_max_cost, refuse_cost
from memory_core.ports import Progress
from memory_core.reembed import estimate_reembed, reembed_documents
from memory_core.reembed_values import (
    ReembedOptions,
    ReembedPlan,
    ReembedReport,
    ReembedResult,
    check_options,
)
from memory_core.spaces import describe_coverage
from tasks.reembed import plan_reembed_task
from tasks.stages import TASK_STAGES
from tasks.task_options import unwalked

_NAMED_FAILURES = 5


def _name_run() -> str:
    """What a person reads in the list of runs: the space, and what is special about this run."""
    given: dict[str, Any] = flow_run.parameters
    special = [name for name in ("rechunk", "now", "activate", "dry_run") if given.get(name)]
    return " ".join(["reembed", current_core().fingerprint.key, *special])


@flow(name="reembed", flow_run_name=_name_run, persist_result=False, log_prints=False, validate_parameters=True)
async def reembed_flow(
    source_ids: list[str] | None = None,
    limit: int | None = None,
    *,
    rechunk: bool = False,
    now: bool = False,
    activate: bool = False,
    dry_run: bool = False,
    max_cost: float | None = None,
) -> State[Any]:
    """Embed again what is not of the embedding space that this worker's settings name.

    Args:
        source_ids: Only these documents.
        limit: At most so many documents in this run.
        rechunk: Also chunk again what the settings and the chunker of today would cut otherwise.
        now: Make the space the active one first: queries use what is done at once.
        activate: Only make the space the active one, where nothing is missing.
        dry_run: Only plan, and report what would be done and what it would cost.
        max_cost: US dollars. A run that would cost more, by an estimate, ends before anything is spent or stored.
    """
    check_max_cost(max_cost)
    core = current_core()
    options = check_options(
        ReembedOptions(source_ids=tuple(source_ids or ()), limit=limit, rechunk=rechunk, now=now, activate=activate)
    )
    if dry_run:
        plan = await plan_reembed_task(unwalked(options))
        plan = await estimate_reembed(plan, options, core=core)
        if refusal := _refuse(plan, max_cost):
            return Failed(message=refusal, data=plan)
        return Completed(message=f"Would embed {plan.describe()}", data=plan)
    async with hold_reembed(core=core):
        plan = await plan_reembed_task(unwalked(options))
        if max_cost is not None:
            plan = await estimate_reembed(plan, options, core=core)
            if refusal := _refuse(plan, max_cost):
                return Failed(message=refusal, data=plan)
        core.on_progress(Progress(message=plan.describe()))
        report = await reembed_documents(plan, options, core=core, stages=TASK_STAGES, flow_run_id=flow_run.id)
    await publish_reembed(report)
    return _conclude(report, options)


def _refuse(plan: ReembedPlan, max_cost: float | None) -> str | None:
    return refuse_cost(plan.estimate.cost, max_cost) if max_cost is not None and plan.estimate else None


def _conclude(report: ReembedReport, options: ReembedOptions) -> State[Any]:
    """Completed only if every planned document is done, and nothing is missing that was not left on purpose."""
    failed = [one for one in report.documents if one.result is ReembedResult.FAILED]
    if failed:
        named = "; ".join(f"{one.source_id}: {one.reason}" for one in failed[:_NAMED_FAILURES])
        return Failed(message=f"{len(failed)} of {len(report.documents)} failed: {named}", data=report)
    if options.activate and not report.is_active:
        missing = f"{describe_coverage(report.after)} It was not made the active space: `memory reembed` does the rest."
        return Failed(message=missing, data=report)
    if not report.after.is_complete and not options.is_partial:
        return Failed(message=f"{report.describe()} Others stored meanwhile: run it again.", data=report)
    return Completed(message=report.describe(), data=report)
