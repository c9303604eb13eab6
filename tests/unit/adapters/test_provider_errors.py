"""Refusals in, our errors out: the wordings of many vendors, without a connection."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.adapters.provider_endpoint import Endpoint
from memory_core.adapters.provider_errors import Refusal, explain_refusal, read_retry_after
from memory_core.errors import (
    ConfigError,
    EmbeddingError,
    EmbeddingUnavailableError,
    ProviderRefusedError,
    ThrottledError,
    TooManyTokensError,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ENDPOINT = Endpoint(
    who="The embedding provider openai",
    model="fake",
    base_url="http://127.0.0.1:1/v1",
    key="short",
    key_variable="OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    model_variable="EMBEDDING_MODEL",
    size_variables="EMBEDDING_REQUEST_TOKENS",
)


def explain(status: int, body: object, *texts: str, **headers: str) -> EmbeddingError:
    """The error for a refusal with this body: JSON, or bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return explain_refusal(Refusal(status=status, headers=headers, body=data), ENDPOINT, texts=texts, now=NOW)


def openai_body(message: str, code: str | None = None) -> object:
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "limit", "sent"),
    [
        pytest.param(
            400,
            openai_body(
                "This model's maximum context length is 8192 tokens, however you requested 10000 tokens (10000 in your "
                "prompt; 0 for the completion). Please reduce your prompt; or completion length."
            ),
            8_192,
            10_000,
            id="openai: a text",
        ),
        pytest.param(
            400,
            openai_body("Invalid 'input[0]': maximum context length is 8192 tokens."),
            8_192,
            None,
            id="openai: a text, newer",
        ),
        pytest.param(
            400,
            openai_body("Requested 416735 tokens, max 300000 tokens per request", "max_tokens_per_request"),
            300_000,
            416_735,
            id="openai: a request",
        ),
        pytest.param(
            400,
            openai_body(
                "This model's maximum context length is 128,000 tokens. However, your messages resulted in 130,012 "
                "tokens. Please reduce the length of the messages.",
                "context_length_exceeded",
            ),
            128_000,
            130_012,
            id="openai: a chat",
        ),
        pytest.param(
            429,
            openai_body(
                "Request too large for text-embedding-3-small in organization org-1 on tokens per min (TPM): Limit "
                "1000000, Requested 1200000. The input or output tokens must be reduced in order to run successfully.",
                "rate_limit_exceeded",
            ),
            1_000_000,
            1_200_000,
            id="openai: more than a minute's budget",
        ),
        pytest.param(
            400,
            {
                "detail": "Request to model 'voyage-3-large' failed. The max allowed tokens per submitted batch is "
                "120000. Your batch has 121234 tokens after truncation. Please lower the number of tokens."
            },
            120_000,
            121_234,
            id="voyage: a request",
        ),
        pytest.param(
            400,
            {
                "detail": "Request to model 'voyage-4' failed. The example at index 3 in your batch has too many "
                "tokens and does not fit into the model's context window of 32000 tokens."
            },
            32_000,
            None,
            id="voyage: a text",
        ),
        pytest.param(
            400,
            openai_body(
                "This model's maximum context length is 512 tokens. However, you requested 1451 tokens in the input "
                "for embedding generation. Please reduce the length of the input."
            ),
            512,
            1_451,
            id="vllm",
        ),
        pytest.param(
            400,
            openai_body("The prompt (length 600) is longer than the maximum model length of 512."),
            512,
            600,
            id="vllm, older",
        ),
        pytest.param(
            413,
            {"message": "`inputs` must have less than 512 tokens. Given: 600", "code": 413, "type": "Validation"},
            512,
            600,
            id="tei: a text",
        ),
        pytest.param(
            422,
            {"error": "batch size 33 > maximum allowed batch size 32", "error_type": "Validation"},
            None,
            None,
            id="tei: texts",
        ),
        pytest.param(413, b"Failed to buffer the request body: length limit exceeded", None, None, id="tei: megabytes"),
        pytest.param(413, b"<html>413 Request Entity Too Large</html>", None, None, id="a proxy in between"),
        pytest.param(400, {"error": "the input length exceeds the context length"}, None, None, id="ollama"),
        pytest.param(
            500,
            openai_body(
                "input (596 tokens) is too large to process. increase the physical batch size (current batch size: 512)"
            ),
            512,
            596,
            id="llama.cpp: a batch",
        ),
        pytest.param(
            400,
            openai_body(
                "the request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"
            ),
            4_096,
            5_000,
            id="llama.cpp: a context",
        ),
        pytest.param(
            400,
            openai_body("Too many inputs. The max number of inputs is 16.  We hope to increase the number of inputs."),
            None,
            None,
            id="azure: texts",
        ),
        pytest.param(
            400,
            openai_body("Invalid 'input': array too long.", "array_above_max_length"),
            None,
            None,
            id="openai: texts",
        ),
        pytest.param(400, {"error": {"code": "context_length_exceeded"}}, None, None, id="a code alone"),
    ],
)
def test_too_much_is_recognised(status: int, body: object, limit: int | None, sent: int | None) -> None:
    """Each vendor says it in words of its own; numbers are taken only where they count tokens."""
    error = explain(status, body)
    assert isinstance(error, TooManyTokensError)
    assert (error.limit, error.sent) == (limit, sent)
    assert "EMBEDDING_REQUEST_TOKENS" in error.message


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (
            429,
            "Rate limit reached for fake on tokens per min (TPM): Limit 1000, Used 999, Requested 8.",
            ThrottledError,
        ),
        (429, "You have not yet added your payment method: 3 RPM and 10K TPM.", ThrottledError),
        (429, "Model is overloaded", ThrottledError),
        (424, "Inference failed", EmbeddingUnavailableError),
        (503, "Loading model", EmbeddingUnavailableError),
        (500, "", EmbeddingUnavailableError),
        (501, "This server does not support embeddings. Start it with `--embeddings`", EmbeddingError),
        (400, 'Model "x" does not support matryoshka representation', EmbeddingError),
        (404, 'model "x" not found, try pulling it first', ProviderRefusedError),
        (401, "the key has too many tokens", ProviderRefusedError),
        (403, "blocked by a filter", EmbeddingError),
        (307, "", ProviderRefusedError),
        (418, "", EmbeddingError),
    ],
)
def test_other_refusals_are_not_about_size(status: int, message: str, expected: type[EmbeddingError]) -> None:
    """What passes, what waits and what stays."""
    error = explain(status, openai_body(message))
    assert type(error) is expected
    assert str(status) in error.message
    assert not message or message.rstrip(".") in error.message


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"[[[[", b'{"error": 5}', b"\xff\xfe", b"[" * 100_000])
def test_any_body_makes_a_message(body: bytes) -> None:
    """A body without sense is no reason for a crash."""
    assert type(explain(400, body)) is EmbeddingError


@given(st.binary(max_size=300), st.integers(min_value=300, max_value=599))
def test_any_refusal_makes_a_short_message(body: bytes, status: int) -> None:
    """Whatever the status and the body are."""
    error = explain(status, body)
    assert str(status) in error.message
    assert len(error.message) < 700


def test_a_short_key_is_scrubbed_too() -> None:
    """A server of one's own may have a key of five letters, too common for the scrubber of all messages."""
    assert "short" not in explain(401, openai_body("wrong key: short")).message


def test_a_message_may_say_what_is_not_in_the_texts() -> None:
    """Only what repeats a text is left out."""
    text = "a paragraph that is long enough to be recognised wherever it is quoted"
    assert "no such model" in explain(404, openai_body("no such model"), text).message
    quoting = explain(400, openai_body(f"odd input: ...{text[10:50]}..."), text)
    assert text[10:50] not in quoting.message
    assert "short query" not in explain(400, openai_body("odd input: short query"), "short query").message


@given(st.integers(min_value=0, max_value=86_400))
def test_a_date_and_its_seconds_are_one(seconds: int) -> None:
    """A pause is the same in both forms."""
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert read_retry_after({"retry-after": date}, now=NOW) == seconds
    assert read_retry_after({"retry-after": str(seconds)}, now=NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "86401"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "\u0663"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 -0000"}, 30.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after-ms": "999999999999", "retry-after": "2"}, 2.0),
    ],
)
def test_what_cannot_be_meant_counts_as_not_said(headers: dict[str, str], seconds: float | None) -> None:
    """Retry-After is read in every form and believed up to a day."""
    assert read_retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize("key", ["two words", "“quoted”", "line\nbreak"])
def test_a_key_that_no_header_can_carry_is_found_at_start(key: str) -> None:
    """The message names the variable and not the value."""
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        Endpoint(
            who=ENDPOINT.who,
            model="fake",
            base_url=ENDPOINT.base_url,
            key=key,
            key_variable="OPENAI_API_KEY",
            url_variable="OPENAI_BASE_URL",
            model_variable="EMBEDDING_MODEL",
            size_variables="EMBEDDING_REQUEST_TOKENS",
        )
    assert key not in caught.value.message


@pytest.mark.parametrize("url", ["http://", "https:///v1", "http://host:port/v1", "http://[::1/v1"])
def test_an_address_without_a_server_is_found_at_start(url: str) -> None:
    """Nothing is sent to find that out."""
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
        Endpoint(
            who=ENDPOINT.who,
            model="fake",
            base_url=url,
            key_variable="OPENAI_API_KEY",
            url_variable="OPENAI_BASE_URL",
            model_variable="EMBEDDING_MODEL",
            size_variables="EMBEDDING_REQUEST_TOKENS",
        )


def test_an_endpoint_does_not_show_its_key() -> None:
    """Not in a traceback's locals either."""
    assert "short" not in repr(ENDPOINT)
