"""A re-embed's state tells the truth: Completed only where all that was asked for is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from flows import leases
from flows.leases import hold_reembed
from flows.reembed import _conclude
from memory_core.answers import Coverage
from memory_core.errors import NotFoundError
from memory_core.ports import Core, Progress
from memory_core.reembed_values import DocumentReport, ReembedOptions, ReembedReport, ReembedResult
from memory_core.store_ports import ActiveSpace

ALL = ReembedOptions()


def report(covered: int, *results: ReembedResult) -> ReembedReport:
    """One of a run on three documents; the space is active where it covers them all."""
    coverage = Coverage(fingerprint="new", documents=3, chunks=6, covered_documents=covered, covered_chunks=2 * covered)
    return ReembedReport(
        target="new",
        documents=tuple(
            DocumentReport(source_id=f"notes/{place}", result=result, reason="because")
            for place, result in enumerate(results)
        ),
        left_out=0,
        before=coverage,
        after=coverage,
        space=ActiveSpace(schema_version=1, fingerprint="new" if covered == 3 else "old", lineage="l"),
        was_active=False,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("ended", "options", "is_completed", "told"),
    [
        (report(3, ReembedResult.DONE), ALL, True, "It is the active space now"),
        (report(3, ReembedResult.DONE, ReembedResult.SKIPPED), ALL, True, "1 left as somebody else stored them"),
        (report(2, ReembedResult.DONE, ReembedResult.FAILED), ALL, False, "1 of 2 failed: notes/1: because"),
        (report(2, ReembedResult.DONE), ALL, False, "run it again"),
        (report(2, ReembedResult.DONE), ReembedOptions(limit=1), True, "Queries use old until nothing is missing"),
        (report(2), ReembedOptions(activate=True), False, "covers 2 of 3 documents (4 of 6 chunks). It was not made"),
        (report(3), ReembedOptions(activate=True), True, "It is the active space now"),
    ],
)
def test_the_state_of_a_run(ended: ReembedReport, options: ReembedOptions, told: str, *, is_completed: bool) -> None:
    """What failed is named, what is missing is counted, and a part that was asked for is enough."""
    state = _conclude(ended, options)
    assert state.is_completed() is is_completed
    assert told in (state.message or "")


async def test_two_re_embeds_take_turns(make_core: Callable[..., Core], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second says whom it waits for, and begins when the first has ended."""
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.005)
    said: list[Progress] = []
    core = replace(make_core(), on_progress=said.append)
    with pytest.raises(NotFoundError):
        await hold_reembed(core=core).__aenter__()
    await core.store.prepare(core.fingerprint)
    order: list[str] = []

    async def run(name: str) -> None:
        async with hold_reembed(core=core):
            order.append(f"{name} begins")
            await asyncio.sleep(0.02)
            order.append(f"{name} ends")

    await asyncio.gather(run("first"), run("second"))
    assert order == ["first begins", "first ends", "second begins", "second ends"]
    assert [one.message for one in said] == ["Another run of the re-embed is going on (process 1); waiting."]
