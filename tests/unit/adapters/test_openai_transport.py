"""What the `openai` transport sends, by its settings, and what each kind of server answers it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory_core.adapters.openai_transport import OpenAITransport, load_openai_transport
from memory_core.embedding_ports import ProviderLimits, ProviderRequest
from memory_core.errors import EmbeddingError, TooManyTokensError
from memory_core.provider_limits import UNKNOWN_REQUEST_TEXTS, UNKNOWN_REQUEST_TOKENS
from memory_core.settings import load_settings
from tests.providers.fake_provider import FakeProvider, SeenRequest, vector_of
from tests.providers.vendors import AZURE, COMPATIBLE, LLAMA_CPP, OLLAMA, OPENAI, TEI, VLLM, Vendor

KEY = "sk-0123456789abcdefghijklmnop"
TEXTS = ("one two three", "four five")
REQUEST = ProviderRequest(groups=(TEXTS,), kind="document")


def load(base_url: str, **variables: Any) -> OpenAITransport:
    """The transport for an address, by the variables of the environment."""
    settings: dict[str, Any] = {
        "EMBEDDING_PROVIDER": "openai",
        "OPENAI_BASE_URL": base_url,
        "EMBEDDING_DIMENSIONS": 8,
        **variables,
    }
    return load_openai_transport(load_settings(**settings))


def send_once(provider: FakeProvider, **variables: Any) -> SeenRequest:
    """What is on the wire for one request, whose answer must be right."""

    async def run() -> None:
        transport = load(provider.base_url, **variables)
        try:
            answer = await transport.send(REQUEST, timeout_seconds=10)
        finally:
            await transport.close()
        assert answer.groups[0].tolist() == [vector_of(text, transport.dimensions).tolist() for text in TEXTS]

    asyncio.run(run())
    return provider.requests[-1]


def test_the_fingerprint_has_the_settings() -> None:
    """Provider, model and width are those of the settings, and a flat model is not contextual."""
    transport = load("http://127.0.0.1:1/v1", EMBEDDING_MODEL="nomic-embed-text", EMBEDDING_DIMENSIONS=768)
    assert (transport.provider, transport.model, transport.dimensions) == ("openai", "nomic-embed-text", 768)
    assert not transport.is_contextual


def test_a_known_model_is_asked_for_its_width_in_base64() -> None:
    """Models that can shorten their vectors are told the width; base64 is a quarter of the bytes."""
    with FakeProvider() as provider:
        seen = send_once(provider)
    assert seen.path == "/v1/embeddings"
    assert seen.body == {
        "model": "text-embedding-3-small",
        "input": list(TEXTS),
        "encoding_format": "base64",
        "dimensions": 8,
    }


def test_float_is_said_on_the_wire() -> None:
    """The SDK would ask for base64 where nothing is said; a server that knows no other needs the word."""
    with FakeProvider() as provider:
        seen = send_once(provider, EMBEDDING_ENCODING="float")
    assert seen.body["encoding_format"] == "float"


def test_an_unknown_model_is_asked_for_a_width_only_on_demand() -> None:
    """Most models have one width and refuse the word."""
    with FakeProvider() as provider:
        assert "dimensions" not in send_once(provider, EMBEDDING_MODEL="mine").body
        assert send_once(provider, EMBEDDING_MODEL="mine", EMBEDDING_SEND_DIMENSIONS=True).body["dimensions"] == 8


def test_the_width_of_a_model_that_cannot_shorten_is_not_sent() -> None:
    """text-embedding-ada-002 knows no dimensions."""
    with FakeProvider(dimensions=1_536) as provider:
        seen = send_once(provider, EMBEDDING_MODEL="text-embedding-ada-002", EMBEDDING_DIMENSIONS=1_536)
    assert "dimensions" not in seen.body


def test_a_key_is_a_bearer() -> None:
    """The usual header, and no other."""
    with FakeProvider(key=KEY) as provider:
        seen = send_once(provider, OPENAI_API_KEY=KEY)
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.query == {}


def test_without_a_key_no_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama and its like need none; the SDK's own way of finding one is shut."""
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "leaked")
    monkeypatch.setenv("OPENAI_API_KEY", " ")
    with FakeProvider(vendor=OLLAMA) as provider:
        seen = send_once(provider)
    assert "authorization" not in seen.headers
    assert "api-key" not in seen.headers


def test_azure_takes_the_key_in_its_own_header_and_a_version() -> None:
    """An address with a deployment, the header api-key and the query api-version."""
    with FakeProvider(vendor=AZURE, key=KEY) as provider:
        deployment = provider.base_url.removesuffix("/v1") + "/openai/deployments/embed"
        variables = {"OPENAI_API_KEY": KEY, "OPENAI_API_VERSION": "2024-10-21", "OPENAI_BASE_URL": deployment}
        seen = send_once(provider, **variables)
    assert seen.path == "/openai/deployments/embed/embeddings"
    assert seen.query == {"api-version": "2024-10-21"}
    assert seen.headers["api-key"] == KEY
    assert "authorization" not in seen.headers


def test_azures_newer_address_is_a_plain_one() -> None:
    """`/openai/v1` speaks as OpenAI does: a bearer and no version."""
    with FakeProvider(vendor=OPENAI, key=KEY) as provider:
        address = provider.base_url.removesuffix("/v1") + "/openai/v1/"
        seen = send_once(provider, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=address)
    assert seen.path == "/openai/v1/embeddings"
    assert seen.query == {}


def test_a_server_that_answers_in_floats_anyway_is_understood() -> None:
    """Ollama does not know base64 and says nothing of it."""
    with FakeProvider(vendor=OLLAMA) as provider:
        assert send_once(provider).body["encoding_format"] == "base64"


@pytest.mark.parametrize("vendor", COMPATIBLE, ids=lambda vendor: vendor.name)
@pytest.mark.parametrize("limit", ["request_tokens", "text_tokens"])
def test_too_much_is_recognised_in_every_dialect(vendor: Vendor, limit: str) -> None:
    """A request to be cut, with numbers from those who give them. vLLM and TEI count a text at a time."""
    limits: dict[str, Any] = {limit: 2}
    variables = {"EMBEDDING_MODEL": "mine"} | ({"OPENAI_API_VERSION": "1"} if vendor is AZURE else {})
    sent = 5 if limit == "request_tokens" else 3
    with FakeProvider(vendor=vendor, **limits) as provider, pytest.raises(TooManyTokensError) as caught:
        send_once(provider, **variables)
    assert (caught.value.limit, caught.value.sent) == ((None, None) if vendor is OLLAMA else (2, sent))


@pytest.mark.parametrize("vendor", [TEI, VLLM, AZURE, OPENAI, LLAMA_CPP], ids=lambda vendor: vendor.name)
def test_too_many_texts_are_a_request_to_be_cut(vendor: Vendor) -> None:
    """Their number is no number of tokens."""
    with FakeProvider(vendor=vendor, request_texts=1) as provider, pytest.raises(TooManyTokensError) as caught:
        send_once(provider, EMBEDDING_MODEL="mine", **({"OPENAI_API_VERSION": "1"} if vendor is AZURE else {}))
    assert (caught.value.limit, caught.value.sent) == (None, None)


def test_a_model_that_cannot_shorten_says_so() -> None:
    """The reason of vLLM reaches the reader, and the variable to change."""
    with FakeProvider(vendor=VLLM) as provider, pytest.raises(EmbeddingError) as caught:
        send_once(provider, EMBEDDING_MODEL="mine", EMBEDDING_SEND_DIMENSIONS=True)
    assert type(caught.value) is EmbeddingError
    assert "matryoshka" in caught.value.message
    assert "EMBEDDING_MODEL" in caught.value.message


def test_a_width_that_is_not_the_models_is_found() -> None:
    """The setting says 8 and the server gives 16: nothing is stored under the wrong width."""
    with FakeProvider(dimensions=16) as provider, pytest.raises(EmbeddingError) as caught:
        send_once(provider, EMBEDDING_MODEL="mine")
    assert "16 numbers instead of 8" in caught.value.message
    assert "EMBEDDING_DIMENSIONS" in caught.value.message


def test_an_address_that_is_none_is_said_at_the_first_request() -> None:
    """A mistyped number passes the check at start and no further; it is no passing trouble."""

    async def run() -> None:
        transport = load("http://127.0.0.400/v1")
        try:
            await transport.send(REQUEST, timeout_seconds=1)
        finally:
            await transport.close()

    with pytest.raises(EmbeddingError, match="OPENAI_BASE_URL") as caught:
        asyncio.run(run())
    assert not caught.value.retryable


def test_limits_are_the_published_ones() -> None:
    """Of a known model."""
    assert load("http://127.0.0.1:1/v1").limits == ProviderLimits(
        request_tokens=300_000, request_texts=2_048, text_tokens=8_192
    )


def test_limits_of_an_unknown_model_are_careful() -> None:
    """What a small server takes as it comes; how long a text may be is not known."""
    assert load("http://127.0.0.1:1/v1", EMBEDDING_MODEL="mine").limits == ProviderLimits(
        request_tokens=UNKNOWN_REQUEST_TOKENS, request_texts=UNKNOWN_REQUEST_TEXTS
    )


def test_settings_win_over_published_limits() -> None:
    """Each of the four."""
    transport = load(
        "http://127.0.0.1:1/v1",
        EMBEDDING_REQUEST_TOKENS=4_000,
        EMBEDDING_REQUEST_TEXTS=9,
        EMBEDDING_TEXT_TOKENS=512,
        EMBEDDING_BATCH_SIZE=3,
    )
    assert transport.limits == ProviderLimits(request_tokens=4_000, request_texts=9, request_groups=3, text_tokens=512)
