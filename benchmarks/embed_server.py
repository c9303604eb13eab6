"""A fake provider in a process of its own: its work is not done by the client. In: how slow it is. Out: its address.

It speaks over a real socket (tests/providers/fake_provider.py) and says what it was asked for.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.providers.fake_provider import FakeProvider

_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the server counted: good requests, texts that were paid for, of these different ones, most at a time."""

    requests: int
    paid: int
    different: int
    peak_concurrency: int


class SlowProvider:
    """The other process, as its parent sees it."""

    def __init__(self, pipe: Any) -> None:  # noqa: ANN401 - a pipe's end has another type on each system
        self._pipe = pipe
        self.base_url: str = self._receive()

    def count(self) -> Tally:
        """What was asked for until now."""
        self._pipe.send("count")
        return self._receive()

    def _receive(self) -> Any:  # noqa: ANN401 - whatever the other process sends
        if not self._pipe.poll(_ANSWER_SECONDS):
            raise SystemExit("The fake provider's process does not answer.")
        return self._pipe.recv()


@contextmanager
def run_slow_provider(*, latency_seconds: float) -> Generator[SlowProvider]:
    """Start the process, and end it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, latency_seconds))
    process.start()
    try:
        yield SlowProvider(ours)
    finally:
        ours.send("end")
        process.join(_ANSWER_SECONDS)


def _serve(pipe: Any, latency_seconds: float) -> None:  # noqa: ANN401 - as above
    with FakeProvider(latency_seconds=latency_seconds) as provider:
        pipe.send(provider.base_url)
        while pipe.recv() == "count":
            pipe.send(
                Tally(
                    requests=sum(seen.status == 200 for seen in provider.requests),
                    paid=provider.paid.total(),
                    different=len(provider.paid),
                    peak_concurrency=provider.peak_concurrency,
                )
            )
