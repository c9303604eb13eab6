"""The only Prefect client. In: work that is staged or a feed's name. Out: what the flow run says, as our values.

Prefect reads its settings when it is imported, so nothing here imports it before `prepare_prefect` was called.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

import httpx
import structlog

from deployments.prefect_environment import prefect_environment
from deployments.services import Addresses
from memory_core.errors import AgentMemoryError, InternalError, ServiceError
from memory_core.models import Holder
from memory_core.ports import Core
from memory_core.reembed_values import ReembedOptions
from memory_core.settings import Settings

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    # What calling a flow with `return_state=True` really gives; Prefect's overloads do not know it for async flows.
    _FlowCall: TypeAlias = Callable[..., Awaitable[State[Any]]]

_AWAY_STATUS = 500
_UNTRACKED = "Prefect did not answer, so no flow run shows this."
_log = structlog.get_logger(__name__)

_RUN_TAG = "memory"
_PROCESS_TAG = "process:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a flow run ended: whether it is Completed, its message, and what it returned."""

    completed: bool
    message: str
    value: Any


def prepare_prefect(settings: Settings, addresses: Addresses) -> None:
    """Set what Prefect's client reads when it is imported."""
    os.environ.update(prefect_environment(settings, addresses, present=os.environ))


async def run_directory(
    feed: str, *, core: Core, confirm: str | None = None, dry_run: bool = False, max_cost: float | None = None
) -> RunResult:
    """Run the flow `sync-directory` in this process, tracked by the Prefect server.

    Raises:
        AgentMemoryError: what the flow failed with before it could report about files.
        ServiceError: Prefect does not answer.
    """
    from flows.sync_directory import sync_directory_flow  # noqa: PLC0415 - after prepare_prefect

    run = cast("_FlowCall", sync_directory_flow)
    with _prefect_answers(core.settings):
        await _close_dead_runs(core)
        with _tags(core, f"feed:{feed}"):
            state = await run(feed=feed, confirm=confirm, dry_run=dry_run, max_cost=max_cost, return_state=True)
    return await _read_state(state, core.settings)


async def run_reembed(
    options: ReembedOptions, *, core: Core, dry_run: bool = False, max_cost: float | None = None
) -> RunResult:
    """Run the flow `reembed` in this process, tracked by the Prefect server.

    Raises:
        AgentMemoryError: what the flow failed with before it could report about documents.
        ServiceError: Prefect does not answer.
    """
    from flows.reembed import reembed_flow  # noqa: PLC0415 - after prepare_prefect

    run = cast("_FlowCall", reembed_flow)
    parameters: dict[str, Any] = {
        **asdict(options),
        "source_ids": list(options.source_ids),
        "dry_run": dry_run,
        "max_cost": max_cost,
    }
    with _prefect_answers(core.settings):
        await _close_dead_runs(core)
        with _tags(core, f"space:{core.fingerprint.key}"):
            state = await run(**parameters, return_state=True)
    return await _read_state(state, core.settings)


async def run_submissions(ids: Sequence[str], *, core: Core) -> Mapping[str, Mapping[str, Any]]:
    """Run the flow `store-content` on staged submissions. Where Prefect is away, the same path runs without it."""
    from flows.store_content import run_submissions as run_plainly  # noqa: PLC0415 - after prepare_prefect
    from flows.store_content import store_content_flow  # noqa: PLC0415 - after prepare_prefect

    run = cast("_FlowCall", store_content_flow)
    try:
        with _prefect_answers(core.settings):
            await _close_dead_runs(core)
            with _tags(core, "channel:cli"):
                state = await run(submission_ids=list(ids), return_state=True)
    except ServiceError as error:
        _log.warning("prefect.away", cause=error.cause)
        outcomes = await run_plainly(ids, core=core)
        return {name: {**outcome, "notes": [*outcome["notes"], _UNTRACKED]} for name, outcome in outcomes.items()}
    result = await _read_state(state, core.settings)
    return cast("Mapping[str, Mapping[str, Any]]", result.value or {})


async def delete_runs(ids: Sequence[str], *, core: Core) -> tuple[int, tuple[str, ...]]:
    """Delete flow runs, with their logs. Returns how many went, and a sentence for what could not."""
    from prefect import get_client  # noqa: PLC0415 - after prepare_prefect
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415 - after prepare_prefect

    gone = 0
    try:
        with _prefect_answers(core.settings):
            async with get_client() as client:
                for one in ids:
                    try:
                        await client.delete_flow_run(UUID(one))
                    except ObjectNotFound:
                        continue
                    gone += 1
    except ServiceError as error:
        return gone, (f"{len(ids) - gone} flow runs, as Prefect does not answer. {error.message}",)
    return gone, ()


def _tags(core: Core, *more: str) -> AbstractContextManager[set[str]]:
    """Tags by which a person finds the runs of a feed, and the next command those whose process is gone."""
    from prefect import tags  # noqa: PLC0415 - after prepare_prefect

    holder = core.holder
    return tags(_RUN_TAG, f"{_PROCESS_TAG}{holder.pid}/{holder.started}/{holder.host}", *more)


async def _close_dead_runs(core: Core) -> None:
    """A run whose process was killed cannot say so itself: the next command on this machine marks it Crashed."""
    from prefect import get_client  # noqa: PLC0415 - after prepare_prefect
    from prefect.client.schemas.filters import FlowRunFilter  # noqa: PLC0415 - after prepare_prefect
    from prefect.states import Crashed  # noqa: PLC0415 - after prepare_prefect

    running = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}, "tags": {"all_": [_RUN_TAG]}})
    async with get_client() as client:
        for run in await client.read_flow_runs(flow_run_filter=running):
            holder = _read_holder(run.tags)
            if holder and not core.is_alive(holder):
                gone = Crashed(
                    message="Its process was killed. What it had stored stays; the next run goes on from there."
                )
                await client.set_flow_run_state(run.id, gone, force=True)


def _read_holder(tags: Sequence[str]) -> Holder | None:
    for tag in tags:
        if tag.startswith(_PROCESS_TAG):
            pid, started, host = tag.removeprefix(_PROCESS_TAG).split("/", 2)
            return Holder(host=host, pid=int(pid), started=float(started))
    return None


@contextmanager
def _prefect_answers(settings: Settings) -> Generator[None]:
    """Turn "Prefect is away" (refused, timed out, 5xx) into a ServiceError; everything else passes."""
    try:
        yield
    except Exception as error:
        if _means_away(error):
            raise _prefect_away(settings, error) from None
        raise


def _means_away(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= _AWAY_STATUS
    unreachable = isinstance(error, RuntimeError) and "Failed to reach API" in str(error)
    return unreachable or isinstance(error, httpx.TransportError)


def _prefect_away(settings: Settings, error: BaseException) -> ServiceError:
    remedy = (
        "The Prefect server of this machine ended. Run the same command again: what was stored stays stored."
        if settings.starts_prefect
        else "Prefect does not answer. Check PREFECT_API_URL, or unset it to use the server that `memory` starts."
    )
    return ServiceError(remedy, cause=error)


async def _read_state(state: State[Any], settings: Settings) -> RunResult:
    value = await state.aresult(raise_on_failure=False)
    if isinstance(value, AgentMemoryError):
        raise value
    if isinstance(value, BaseException) and _means_away(value):
        raise _prefect_away(settings, value)
    if isinstance(value, BaseException):
        raise InternalError("The flow run failed in a way that nobody foresaw; report this.", cause=value)
    return RunResult(completed=state.is_completed(), message=state.message or "", value=value)
