"""Refusals of providers in, our errors out: the one table of both transports and of the chat model. Pure.

Vendors say the same in many words, most of all "too many tokens": the wordings below were collected from their issue
trackers and sources, with the name of the vendor on the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

from memory_core.adapters.provider_endpoint import Endpoint
from memory_core.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    ProviderRefusedError,
    ThrottledError,
    TooManyTokensError,
    scrub,
)

_DETAIL_LIMIT_CHARS = 300
_MATCHED_CHARS = 2_000
# A provider that asks for more than this is taken to have said nothing.
_LONGEST_PAUSE_SECONDS = 86_400.0

_N = r"\d[\d,]*"
_TOKEN_WORDINGS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # OpenAI, Azure, vLLM
        rf"maximum context length is (?P<limit>{_N}) tokens(?:\D{{0,80}}(?:requested|resulted in|has) (?P<sent>{_N}))?",
        rf"requested (?P<sent>{_N}) tokens, max (?P<limit>{_N}) tokens per request",  # OpenAI
        rf"max(?:imum)? allowed tokens per submitted batch is (?P<limit>{_N})\D{{1,60}}(?P<sent>{_N})",  # Voyage
        rf"too many tokens\D{{0,80}}context window of (?P<limit>{_N})",  # Voyage, truncation off
        rf"must have less than (?P<limit>{_N}) tokens(?:\D{{0,20}}(?P<sent>{_N}))?",  # TEI
        rf"\((?:length )?(?P<sent>{_N})\) is longer than the maximum model length of (?P<limit>{_N})",  # vLLM
        rf"\((?P<sent>{_N}) tokens\) is too large to process\D{{0,80}}(?P<limit>{_N})",  # llama.cpp
        rf"\((?P<sent>{_N}) tokens\) exceeds the available context size \((?P<limit>{_N})",  # llama.cpp
    )
)
# OpenAI says this with a 429: the request alone is more than a whole minute's budget, and waiting does not help.
_ABOVE_BUDGET = re.compile(
    rf"request too large\b.{{0,200}}?limit:? (?P<limit>{_N}), requested:? (?P<sent>{_N})", re.IGNORECASE | re.DOTALL
)
# Too big without a number of tokens: Ollama, llama.cpp, codes of OpenAI, then too many texts (TEI, Voyage, Azure, ...).
_SIZE_WORDS = re.compile(
    r"input length exceeds|exceeds? the (?:available |maximum )?context|larger than the max context size|"
    r"too large to process|too many tokens|context_length_exceeded|max_tokens_per_request|exceed_context_size|"
    r"prompt is too long|maximum context length|batch size|too many inputs|array too long|array_above_max_length|"
    r"string too long|string_above_max_length|length limit exceeded|entity too large|payload too large",
    re.IGNORECASE,
)
_QUOTA_WORDS = re.compile(
    r"insufficient_quota|billing_hard_limit|billing_not_active|exceeded your current quota", re.IGNORECASE
)

_KEY_REFUSED = frozenset({401, 403})
_TRY_AGAIN = frozenset({408, 409, 424, 425})  # 424: TEI, whose backend failed
_NOT_IMPLEMENTED = 501  # llama.cpp started without --embeddings: it would fail again
_SECONDS = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
# So many equal characters in a row are no coincidence.
_SHARED_RUN_CHARS = 24
_SHARED_STEP_CHARS = 8
_SHORT_TEXT_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is no success: header names in lower case, and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def explain_refusal(refusal: Refusal, endpoint: Endpoint, *, texts: Sequence[str], now: datetime) -> EmbeddingError:
    """The error for a refusal: what was said, and what to set. It repeats neither the key nor any of `texts`."""
    status = refusal.status
    sentence, codes = _read_body(refusal.body)
    words = f"{sentence[:_MATCHED_CHARS]} {codes}"
    said = f"{endpoint.who} answered {status}{_quote(sentence, endpoint.key, texts)}"
    if status in _KEY_REFUSED:
        # A filter in between may answer 403 for what one text says.
        kind = ProviderRefusedError if status == 401 else EmbeddingError  # noqa: PLR2004 - Unauthorized
        return kind(
            f"{said} Check {endpoint.key_variable} and {endpoint.url_variable}: the key must be of that server, and "
            f"may use the model."
        )
    if status == 402 or _QUOTA_WORDS.search(words):  # noqa: PLR2004 - Payment Required
        return ProviderRefusedError(
            f"{said} The account's quota is used up: add credit or raise the limit at the provider."
        )
    if size := _explain_size(status, words, f"{said} If this goes on, set {endpoint.size_variables} lower."):
        return size
    if status == 429:  # noqa: PLR2004 - Too Many Requests
        return ThrottledError(
            f"{said} The provider asks for fewer requests.",
            retry_after_seconds=read_retry_after(refusal.headers, now=now),
        )
    if status in _TRY_AGAIN or (status >= 500 and status != _NOT_IMPLEMENTED):  # noqa: PLR2004 - server errors
        return EmbeddingUnavailableError(f"{said} Try again later.")
    kind = ProviderRefusedError if status == 404 or 300 <= status < 400 else EmbeddingError  # noqa: PLR2004 - Not Found, redirects
    return kind(f"{said} {_remedy(status, endpoint)}")


def read_retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Seconds that the provider asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date.

    None where it says nothing, nothing that can be read, or more than a day. A date in the past is no wait.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        seconds = float(value) * scale if _SECONDS.fullmatch(value) else _seconds_until(value, now)
        if seconds is not None and seconds <= _LONGEST_PAUSE_SECONDS:
            return max(0.0, seconds)
    return None


def _seconds_until(value: str, now: datetime) -> float | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds()


def _explain_size(status: int, words: str, said: str) -> TooManyTokensError | None:
    if status == 429:  # noqa: PLR2004 - here "too many tokens" is about a minute, not about a request
        found = _ABOVE_BUDGET.search(words)
        return None if found is None else _too_many(found, said)
    for wording in _TOKEN_WORDINGS:
        if found := wording.search(words):
            return _too_many(found, said)
    is_size = status == 413 or _SIZE_WORDS.search(words)  # noqa: PLR2004 - Content Too Large
    return TooManyTokensError(said) if is_size else None


def _too_many(found: re.Match[str], said: str) -> TooManyTokensError:
    numbers = {name: int(text.replace(",", "")) for name, text in found.groupdict().items() if text}
    return TooManyTokensError(said, limit=numbers.get("limit"), sent=numbers.get("sent"))


def _remedy(status: int, endpoint: Endpoint) -> str:
    if status == 404:  # noqa: PLR2004 - Not Found
        return f"Check {endpoint.model_variable} and {endpoint.url_variable}: there is no such model or no such API."
    if 300 <= status < 400:  # noqa: PLR2004 - redirects
        return f"It sends the caller elsewhere: set {endpoint.url_variable} to the final address."
    return f"The same request would fail again: check {endpoint.model_variable} and what is asked of that model."


def _read_body(body: bytes) -> tuple[str, str]:
    """What an error body says in words, and its codes. Of FastAPI's list only the messages: it repeats the input."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return ("an HTML page" if text.startswith("<") else text), ""
    return "; ".join(_strings_of(value, ("error", "message", "detail", "msg"))), " ".join(
        _strings_of(value, ("error", "code", "type"))
    )


def _strings_of(value: object, names: Sequence[str], *, depth: int = 3) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in cast("list[object]", value):
            yield from _strings_of(item, names, depth=depth - 1)
    elif isinstance(value, dict) and depth:
        fields = cast("dict[str, object]", value)
        for name in names:
            yield from _strings_of(fields.get(name), names, depth=depth - 1)


def _quote(sentence: str, key: str | None, texts: Sequence[str]) -> str:
    plain = " ".join(sentence.split())
    if key:
        plain = plain.replace(key, "[secret]")
    plain = scrub(plain)[:_DETAIL_LIMIT_CHARS].rstrip(". ")
    if not plain:
        return "."
    return " (its words repeat the text, and are left out)." if _repeats(plain, texts) else f": {plain}."


def _repeats(plain: str, texts: Sequence[str]) -> bool:
    """Whether a message has a part of a text that was sent: a run of characters, or the whole of a short text."""
    sent = [" ".join(text.split()) for text in texts]
    if any(len(text) >= _SHORT_TEXT_CHARS and text in plain for text in sent):
        return True
    runs = [
        plain[start : start + _SHARED_RUN_CHARS]
        for start in range(0, len(plain) - _SHARED_RUN_CHARS + 1, _SHARED_STEP_CHARS)
    ]
    return any(run in text for text in sent for run in runs)
