"""What can go wrong with one request, as values: a FakeProvider takes them one by one from its script."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Answer: TypeAlias = dict[str, Any]
HTML_PAGE = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a request gets instead of, or done to, its good answer.

    `body` replaces the answer and `change` alters it; with neither, it is the good one. Either comes late
    (`delay_seconds`), a byte at a time (`drips`), or not to its end: behind so many bytes the connection is reset
    (`reset_after`) or goes silent (`stall_after`). `echoes_key` quotes the caller's key.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    change: Callable[[Answer], None] | None = None
    delay_seconds: float = 0.0
    drips: bool = False
    reset_after: int | None = None
    stall_after: int | None = None
    echoes_key: bool = False

    @property
    def is_intact(self) -> bool:
        """Whether the caller gets the good answer in the end."""
        ends = self.reset_after is None and self.stall_after is None
        return self.status == 200 and self.body is None and self.change is None and ends

    def alter(self, answer: Answer) -> Answer:
        """The answer with the change; the given one stays as it is."""
        if self.change is None:
            return answer
        altered = copy.deepcopy(answer)
        self.change(altered)
        return altered


def refuse(status: int, payload: object, **headers: str) -> Fault:
    """An error with this JSON body; `retry_after="1"` becomes the header `retry-after`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fault(status=status, body=json.dumps(payload).encode(), headers=named)


def throttle(**headers: str) -> Fault:
    """A 429, as OpenAI words it."""
    message = "Rate limit reached for fake in organization org-1 on tokens per min (TPM): Limit 1000000, Used 999000."
    return refuse(429, {"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}}, **headers)


def use_up_quota() -> Fault:
    """A 429 that no pause helps against."""
    message = "You exceeded your current quota, please check your plan and billing details."
    error = {"message": message, "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
    return refuse(429, {"error": error})


def fail(status: int = 500) -> Fault:
    """A server's own failure."""
    return refuse(status, {"error": {"message": "The server had an error while processing your request."}})


def show_page(status: int = 200) -> Fault:
    """A proxy's HTML page."""
    return Fault(status=status, body=HTML_PAGE, headers={"content-type": "text/html"})


def delay(seconds: float) -> Fault:
    """The good answer, late."""
    return Fault(delay_seconds=seconds)


def drip() -> Fault:
    """The good answer, so slowly that no single read is late."""
    return Fault(drips=True)


def reset(*, after: int = 0) -> Fault:
    """The connection is reset: before the answer, or behind so many bytes of its body."""
    return Fault(reset_after=after)


def stall(*, after: int) -> Fault:
    """The answer begins and does not go on."""
    return Fault(stall_after=after)


def echo_key(status: int = 401) -> Fault:
    """The refusal repeats the caller's key, as some servers do."""
    return Fault(status=status, body=b'{"error": {"message": "Incorrect API key provided: KEY."}}', echoes_key=True)


def send_megabytes(status: int = 400, *, stall_after: int | None = None) -> Fault:
    """An error body of 5 MB that begins like JSON."""
    body = b'{"error": {"message": "' + b"x" * (5 << 20) + b'"}}'
    return Fault(status=status, body=body, stall_after=stall_after)


def _first_list(answer: Answer) -> list[Answer]:
    """The entries with vectors: of a flat answer all, of a contextual one those of its first group."""
    entries: list[Answer] = answer["data"]
    inner: list[Answer] | None = entries[0].get("data")
    return entries if inner is None else inner


def drop_last_vector() -> Fault:
    """Nine vectors for ten texts."""
    return Fault(change=lambda answer: _first_list(answer).__delitem__(-1))


def reverse_entries() -> Fault:
    """Every vector with its right index, in the wrong order. This is allowed."""

    def change(answer: Answer) -> None:
        answer["data"].reverse()
        for group in answer["data"]:
            if "data" in group:
                group["data"].reverse()

    return Fault(change=change)


def set_in_last(name: str, value: object) -> Fault:
    """The last entry of the first list has another `index` or `embedding`."""
    return Fault(change=lambda answer: _first_list(answer)[-1].__setitem__(name, value))


def repeat_index() -> Fault:
    """Two entries have the same index."""
    return set_in_last("index", 0)


def drop_index() -> Fault:
    """An entry does not say which text it is of."""
    return Fault(change=lambda answer: _first_list(answer)[-1].__delitem__("index"))
