"""`memory reembed`. In: options and a core. Out: what the run did or would do, to show, and the exit code; no rules."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.console import out, print_json, tell
from deployments.submit import RunResult, run_reembed
from deployments.visible_text import visible, visible_line
from memory_core.ports import Core
from memory_core.reembed_values import ReembedOptions, ReembedPlan, ReembedReport, ReembedResult, check_options

EXIT_FAILED = 1
_NAMED_DOCUMENTS = 10


def read_options(
    source_ids: tuple[str, ...], limit: int | None, *, rechunk: bool, now: bool, activate: bool
) -> ReembedOptions:
    """What the command line asks for, checked before any service is started.

    Raises:
        ValidationError: options that do not go together.
    """
    return check_options(
        ReembedOptions(source_ids=source_ids, limit=limit, rechunk=rechunk, now=now, activate=activate)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedRun:
    """How a re-embed ended."""

    result: RunResult

    def show(self, *, as_json: bool) -> int:
        """Print the plan or the report. 1 where a document failed or the space lacks what was asked for."""
        value = self.result.value
        if as_json and isinstance(value, (ReembedPlan, ReembedReport)):
            print_json(value.to_json())
        elif isinstance(value, ReembedReport):
            _print_report(value)
        elif isinstance(value, ReembedPlan):
            out.print(visible(self.result.message), markup=False)
        if not self.result.completed:
            tell(self.result.message)
        return 0 if self.result.completed else EXIT_FAILED


def _print_report(report: ReembedReport) -> None:
    out.print(visible(report.describe()), markup=False)
    for result in (ReembedResult.FAILED, ReembedResult.SKIPPED):
        told = [one for one in report.documents if one.result is result]
        for one in told[:_NAMED_DOCUMENTS]:
            line = f"  {result.value}: {visible_line(one.source_id)}: {visible_line(one.reason or '')}"
            out.print(line, markup=False)
        if len(told) > _NAMED_DOCUMENTS:
            out.print(f"  {result.value}: and {len(told) - _NAMED_DOCUMENTS} more (--json lists all)")


async def reembed_stored(
    core: Core, options: ReembedOptions, *, dry_run: bool, max_cost: float | None = None
) -> ReembedRun:
    """Run the flow on what is stored."""
    return ReembedRun(result=await run_reembed(options, core=core, dry_run=dry_run, max_cost=max_cost))
