"""`memory export` and `import`. In: a directory, options and a core. Out: what to show and the exit code; no rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from deployments.console import out, print_json, tell
from deployments.visible_text import visible, visible_line
from memory_core.ports import Core
from memory_core.transfer_export import export_memory
from memory_core.transfer_import import import_memory
from memory_core.transfer_values import ExportReport, ImportOptions, ImportReport, Problem

EXIT_FAILED = 1
_NAMED_PROBLEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRun:
    """What an export holds."""

    report: ExportReport

    def show(self, *, as_json: bool) -> int:
        """Print it. 1 where a document could not be exported."""
        if as_json:
            print_json(self.report.to_json())
        else:
            out.print(Text(visible_line(self.report.describe())))
            tell_problems(self.report.left_out)
        return EXIT_FAILED if self.report.left_out else 0


async def export_to(core: Core, directory: Path, *, with_vectors: bool) -> ExportRun:
    """Copy the memory into a directory."""
    return ExportRun(report=await export_memory(directory, core=core, with_vectors=with_vectors))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRun:
    """What an import did or would do."""

    report: ImportReport

    def show(self, *, as_json: bool) -> int:
        """Print it. 1 where something of the export could not be stored, or the run would cost more than it may."""
        report = self.report
        if as_json:
            print_json(report.to_json())
        else:
            out.print(Text(visible_line(report.describe())))
            for note in report.notes:
                out.print(Text(visible_line(note)))
            tell_problems(report.problems)
        if report.refusal:
            tell(f"memory: {report.refusal}")
        return 0 if report.is_complete else EXIT_FAILED


async def import_from(core: Core, directory: Path, options: ImportOptions) -> ImportRun:
    """Store what an export holds."""
    return ImportRun(report=await import_memory(directory, core=core, options=options))


def tell_problems(problems: Sequence[Problem], *, word: str = "failed") -> None:
    """Name the first of them on standard error."""
    for problem in problems[:_NAMED_PROBLEMS]:
        tell(f"  {word}: {visible(problem.describe())}")
    if (more := len(problems) - _NAMED_PROBLEMS) > 0:
        tell(f"  {word}: and {more:,} more (--json lists all)")
