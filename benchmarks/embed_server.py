"""A fake provider in a process of its own, so that its work is not done at the client's expense. In: how slow it is.

Out: its address and, at the end, what it was asked for. It speaks over a real socket (tests/providers/fake_provider.py).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

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

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.base_url: str = self._receive()

    def count(self) -> Tally:
        """What was asked for until now."""
        self._pipe.send("count")
        return self._receive()

    def _receive(self) -> object:
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


def _serve(pipe: Connection, latency_seconds: float) -> None:
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
