"""The service commands of the command line: up, down, doctor. In: settings. Out: what to show and the exit code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from types import FrameType
from typing import Any, Protocol, TypeAlias

from deployments.cli_repair import DoctorOptions, describe_repair, look_or_repair
from deployments.console import out, print_json, show_progress, tell
from deployments.services import Service, ServiceStatus, acquire, read_status, stop
from deployments.visible_text import visible, visible_line
from memory_core.errors import AgentMemoryError
from memory_core.health import StoreHealth
from memory_core.ports import Core, Progress
from memory_core.repair import RepairReport
from memory_core.settings import Settings
from memory_core.store_ports import ActiveSpace

EXIT_FAILED = 1
_Found: TypeAlias = tuple[RepairReport, ActiveSpace | None, str]


class _WithCore(Protocol):
    """Wires a core, does the work, and lets everything go."""

    def __call__(
        self,
        settings: Settings,
        work: Callable[[Core], Awaitable[_Found]],
        *,
        on_progress: Callable[[Progress], None],
    ) -> _Found: ...


_OLDEST_SUPPORTED_MONGODB = 7  # in 2026-11; the series 6.0 ended in 2025-07
_LOOK_SECONDS = 1.0  # how soon `memory up` notices that its services are gone
_PACKAGES = ("agent-memory", "prefect", "pymongo", "tiktoken", "tantivy", "numpy")


def keep_services_up(settings: Settings, *, as_json: bool) -> int:
    """Hold every service until Ctrl-C or SIGTERM, then stop those that nobody else uses. 1 where they end before."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    with acquire(settings, frozenset(Service), on_progress=tell) as lease:
        shown = {
            "home": str(settings.memory_home),
            "mongodb": "started here" if settings.starts_mongodb else "yours (MONGODB_URI)",
            "prefectApiUrl": lease.addresses.prefect_api_url,
            "prefectUiUrl": lease.addresses.prefect_ui_url,
        }
        if as_json:
            print_json(shown)
        else:
            out.print(
                "\n".join(f"{name}: {visible_line(value)}" for name, value in shown.items() if value), markup=False
            )
            out.print("Running. Ctrl-C ends it; nothing is lost.")
        sys.stdout.flush()
        # Where both addresses are the user's own there is nothing here that could end.
        started_here = settings.starts_mongodb or settings.starts_prefect
        while not ended.wait(_LOOK_SECONDS):
            if started_here and not lease.is_held:
                tell("The services were stopped from outside; what was stored stays. Run `memory up` to start them.")
                return EXIT_FAILED
    report = stop(settings)
    tell(report.refused or f"Stopped {', '.join(report.stopped) or 'nothing'}.")
    return 0


def stop_services(settings: Settings, *, force: bool, as_json: bool) -> int:
    """Stop what this home runs. 1 where other commands still use it."""
    report = stop(settings, force=force)
    if as_json:
        print_json({"stopped": list(report.stopped), "refused": report.refused})
    else:
        tell(report.refused or f"Stopped {', '.join(report.stopped) or 'nothing: nothing was running'}.")
    return EXIT_FAILED if report.refused else 0


def examine(settings: Settings, with_core: _WithCore, options: DoctorOptions, *, as_json: bool) -> int:
    """Look at everything, and mend it where that is asked for. 1 where something is wrong at the end."""
    status = read_status(settings)
    problems = list(status.problems)
    report: RepairReport | None = None
    space: ActiveSpace | None = None

    async def look(core: Core) -> _Found:
        report = await look_or_repair(core, options)
        return report, await core.store.read_active_space(), core.fingerprint.key

    try:
        with show_progress("Reading" if options.deep else "Repairing") as listen:
            report, space, asked = with_core(settings, look, on_progress=listen)
        problems += report.left.faults
        problems += [f"{one.source_id} was not repaired: {one.reason}" for one in report.failures]
        if space and asked not in {space.fingerprint, space.pending}:
            problems.append(
                f"The database holds vectors of {space.fingerprint} and the settings ask for {asked}: nothing can be "
                "stored. Set the embedding settings back, or move everything with `memory reembed`."
            )
    except AgentMemoryError as error:
        problems.append(error.message)
    if as_json:
        print_json(_as_json(settings, status, report, space, problems))
    else:
        _print_examination(settings, status, report, space, problems)
    return EXIT_FAILED if problems else 0


def _as_json(
    settings: Settings,
    status: ServiceStatus,
    report: RepairReport | None,
    space: ActiveSpace | None,
    problems: list[str],
) -> dict[str, Any]:
    health = report.left if report else None
    return {
        "versions": {name: version(name) for name in _PACKAGES} | {"python": sys.version.split()[0]},
        "home": str(settings.memory_home),
        "services": [
            {"name": one.name, "running": one.running, "pid": one.pid, "version": one.version, "log": str(one.log)}
            for one in status.services
        ],
        "mongodb": {"version": health.server_version, "transactions": health.transactions} if health else None,
        "counts": {"documents": health.documents, "chunks": health.chunks} if health else None,
        "fingerprint": space.fingerprint if space else None,
        "notes": _notes(health),
        "faults": [finding.to_json() for finding in health.findings] if health else [],
        "repair": report.to_json() if report and report.is_repair else None,
        "problems": problems,
    }


def _notes(health: StoreHealth | None) -> list[str]:
    """What is worth knowing and not wrong."""
    if health is None or int(health.server_version.partition(".")[0]) >= _OLDEST_SUPPORTED_MONGODB:
        return []
    note = (
        f"MongoDB {health.server_version} no longer gets fixes from its makers. On this machine alone (loopback, "
        "password) that will do for one user; for more, set MONGODB_URI to a supported server."
    )
    return [note]


def _print_examination(
    settings: Settings,
    status: ServiceStatus,
    report: RepairReport | None,
    space: ActiveSpace | None,
    problems: list[str],
) -> None:
    health = report.left if report else None
    lines = [", ".join(f"{name} {version(name)}" for name in _PACKAGES), f"Home: {visible_line(settings.memory_home)}"]
    for one in status.services:
        where = f"running, pid {one.pid}" if one.running else "not running"
        lines.append(f"{one.name}: {where}; version {one.version or 'not known yet'}; log {one.log}")
    if health:
        kind = "with transactions" if health.transactions else "stand-alone, without transactions"
        lines.append(
            f"MongoDB {health.server_version}, {kind}: {health.documents:,} documents, {health.chunks:,} chunks."
        )
    lines.append(f"Embedding space: {space.fingerprint}" if space else "Nothing is stored yet.")
    lines += [f"Note: {note}" for note in _notes(health)]
    if report and report.is_repair:
        lines += ["", *describe_repair(report)]
    lines += ["", *(f"WRONG: {problem}" for problem in problems)] if problems else ["", "Nothing is wrong."]
    out.print(visible("\n".join(lines)), markup=False)
