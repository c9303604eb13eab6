"""`memory doctor --repair`. In: options and a core. Out: what was found and mended, in lines for people; no rules."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.visible_text import visible_line
from memory_core.errors import ValidationError
from memory_core.examine import examine_memory
from memory_core.ports import Core
from memory_core.repair import DocumentRepair, RepairReport, RepairResult, repair_memory

_NAMED_DOCUMENTS = 10
_HEADS = {
    RepairResult.DONE: "MENDED",
    RepairResult.SKIPPED: "LEFT",
    RepairResult.FAILED: "NOT MENDED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """How to look: at every text too (`deep`); and whether to mend, or only to show what would be mended."""

    deep: bool = False
    repair: bool = False
    dry_run: bool = False


def read_doctor(*, deep: bool, repair: bool, dry_run: bool) -> DoctorOptions:
    """What the command line asks for.

    Raises:
        ValidationError: options that do not go together.
    """
    if dry_run and not repair:
        raise ValidationError("--dry-run belongs to --repair. Without --repair nothing is changed anyway.")
    return DoctorOptions(deep=deep, repair=repair, dry_run=dry_run)


async def look_or_repair(core: Core, options: DoctorOptions) -> RepairReport:
    """Look for damage, and mend it where that is asked for."""
    if options.repair:
        return await repair_memory(core, deep=options.deep, dry_run=options.dry_run)
    return RepairReport(before=await examine_memory(core, deep=options.deep), is_repair=False)


def describe_repair(report: RepairReport) -> list[str]:
    """A line for each thing that was found, then for each that was done; documents are named up to ten."""
    if report.is_dry_run:
        mendable = [f"WOULD MEND: {finding.say()}" for finding in report.before.findings if finding.is_mendable]
        return [*mendable, "Nothing was changed (--dry-run)."]
    lines = [f"FOUND: {finding.say()}" for finding in report.before.findings]
    lines += [f"MENDED: {one.describe()}" for one in report.mended]
    for result, head in _HEADS.items():
        told = [one for one in report.documents if one.result is result]
        lines += [f"{head}: {_describe(one)}" for one in told[:_NAMED_DOCUMENTS]]
        if len(told) > _NAMED_DOCUMENTS:
            lines.append(f"{head}: and {len(told) - _NAMED_DOCUMENTS:,} more documents (--json lists all)")
    return lines or ["There was nothing to mend."]


def _describe(one: DocumentRepair) -> str:
    paid = f" ({one.texts} chunks embedded anew)" if one.texts else ""
    return f"{visible_line(one.source_id)}: {visible_line(one.reason)}{paid}"
