"""What the `voyage` transport sends, and where: two endpoints, two hosts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory_core.adapters.voyage_transport import VoyageTransport, load_voyage_transport
from memory_core.embedding_ports import EmbeddingKind, ProviderLimits, ProviderRequest
from memory_core.errors import ConfigError, TooManyTokensError
from memory_core.settings import Settings, load_settings
from tests.providers.fake_provider import FakeProvider, SeenRequest
from tests.providers.vendors import VOYAGE

KEY = "pa-0123456789abcdefghijklmnop"
GROUPS = (("one two three", "four five"), ("six",))


def load(base_url: str | None = None, **variables: Any) -> VoyageTransport:
    """The transport for an address, by the variables of the environment."""
    settings: dict[str, Any] = {
        "EMBEDDING_PROVIDER": "voyage",
        "VOYAGE_API_KEY": KEY,
        "VOYAGE_API_BASE_URL": base_url,
        **variables,
    }
    return load_voyage_transport(load_settings(**settings))


def send_once(provider: FakeProvider, *, kind: EmbeddingKind = "document", **variables: Any) -> SeenRequest:
    """What is on the wire for one request."""

    async def run() -> None:
        transport = load(provider.base_url, **variables)
        try:
            await transport.send(ProviderRequest(groups=GROUPS, kind=kind), timeout_seconds=10)
        finally:
            await transport.close()

    asyncio.run(run())
    return provider.requests[-1]


def test_a_contextual_model_gets_nested_documents() -> None:
    """The whole body: no flag lets the server cut or chunk by itself."""
    with FakeProvider(vendor=VOYAGE, key=KEY) as provider:
        seen = send_once(provider)
    assert seen.path == "/v1/contextualizedembeddings"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body == {
        "model": "voyage-context-3",
        "inputs": [["one two three", "four five"], ["six"]],
        "input_type": "document",
        "output_dimension": 1_024,
        "output_dtype": "float",
        "encoding_format": "base64",
    }


def test_a_flat_model_gets_one_list_and_may_not_cut() -> None:
    """Voyage cuts a long text in silence unless it is told not to."""
    with FakeProvider(vendor=VOYAGE) as provider:
        seen = send_once(provider, EMBEDDING_MODEL="voyage-4", EMBEDDING_DIMENSIONS=512)
    assert seen.path == "/v1/embeddings"
    assert seen.body == {
        "model": "voyage-4",
        "input": ["one two three", "four five", "six"],
        "input_type": "document",
        "truncation": False,
        "output_dimension": 512,
        "output_dtype": "float",
        "encoding_format": "base64",
    }


@pytest.mark.parametrize("model", ["voyage-context-4", "voyage-4-lite"])
def test_a_query_is_called_one(model: str) -> None:
    """Voyage puts other words ahead of a query than of a document."""
    with FakeProvider(vendor=VOYAGE) as provider:
        assert send_once(provider, kind="query", EMBEDDING_MODEL=model).body["input_type"] == "query"


def test_float_is_the_lack_of_an_encoding() -> None:
    """The API has one name, base64, and nothing for lists of numbers."""
    with FakeProvider(vendor=VOYAGE) as provider:
        assert "encoding_format" not in send_once(provider, EMBEDDING_ENCODING="float").body


def test_a_model_of_one_width_is_not_asked_for_it() -> None:
    """voyage-finance-2 has 1,024 and no choice."""
    with FakeProvider(vendor=VOYAGE, dimensions=1_024) as provider:
        assert "output_dimension" not in send_once(provider, EMBEDDING_MODEL="voyage-finance-2").body


def test_too_long_a_document_is_refused_with_its_limit() -> None:
    """The planner windows it; nobody cuts it."""
    with FakeProvider(vendor=VOYAGE, text_tokens=4) as provider, pytest.raises(TooManyTokensError) as caught:
        send_once(provider)
    assert caught.value.limit == 4


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("pa-0123456789abcdef", "https://api.voyageai.com/v1"),
        ("al-0123456789abcdef", "https://ai.mongodb.com/v1"),
    ],
)
def test_a_key_goes_to_its_own_host(key: str, host: str) -> None:
    """Each of the two refuses the other's keys."""
    assert load(VOYAGE_API_KEY=key)._endpoint.base_url == host


def test_a_base_url_wins_over_the_key() -> None:
    """A gateway takes any key."""
    transport = load("http://127.0.0.1:1/v1/", VOYAGE_API_KEY="a-key-of-the-gateway")
    assert transport._endpoint.base_url == "http://127.0.0.1:1/v1"


def test_a_key_without_a_host_is_refused_by_name() -> None:
    """`load_settings` says so first; settings that were made by hand are caught here."""
    settings = Settings(embedding_provider="voyage", voyage_api_key="xx-0123456789abcdef")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ConfigError, match="VOYAGE_API_KEY") as caught:
        load_voyage_transport(settings)
    assert "xx-0123456789abcdef" not in caught.value.message


def test_names_and_limits_of_a_contextual_model() -> None:
    """Its window is one document's, and the request's too, for the chunks are ours."""
    transport = load()
    assert (transport.provider, transport.model, transport.dimensions) == ("voyage", "voyage-context-3", 1_024)
    assert transport.is_contextual
    assert transport.limits == ProviderLimits(
        request_tokens=32_000, request_texts=16_000, request_groups=1_000, group_tokens=32_000, text_tokens=32_000
    )


def test_names_and_limits_of_a_flat_model() -> None:
    """A flat model has no limit on groups."""
    transport = load(EMBEDDING_MODEL="voyage-4-large")
    assert not transport.is_contextual
    assert transport.limits == ProviderLimits(request_tokens=120_000, request_texts=1_000, text_tokens=32_000)


def test_settings_win_over_published_limits() -> None:
    """The longest text of a contextual model is its longest document."""
    transport = load(EMBEDDING_TEXT_TOKENS=8_000, EMBEDDING_BATCH_SIZE=8, EMBEDDING_REQUEST_TOKENS=16_000)
    assert transport.limits == ProviderLimits(
        request_tokens=16_000, request_texts=16_000, request_groups=8, group_tokens=8_000, text_tokens=8_000
    )
