"""The settings of embedding are checked at start: each message names its variable, says what to set, shows no value."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.embedding_settings import ContextPolicy, EmbeddingProvider, VectorEncoding
from memory_core.errors import ConfigError, scrub
from memory_core.settings import load_settings

OPENAI: dict[str, Any] = {"EMBEDDING_PROVIDER": "openai", "OPENAI_API_KEY": "sk-0123456789abcdef"}
VOYAGE: dict[str, Any] = {"EMBEDDING_PROVIDER": "voyage", "VOYAGE_API_KEY": "pa-0123456789abcdef"}
LOCAL_SERVER: dict[str, Any] = {"EMBEDDING_PROVIDER": "openai", "OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        pytest.param(
            {"EMBEDDING_PROVIDER": "openai"},
            "OPENAI_API_KEY: is missing; set it, or OPENAI_BASE_URL",
            id="openai, no key",
        ),
        pytest.param({"EMBEDDING_PROVIDER": "voyage"}, "VOYAGE_API_KEY: is missing; set it (pa-", id="voyage, no key"),
        pytest.param(
            VOYAGE | {"VOYAGE_API_KEY": "sk-0123456789abcdef"},
            "VOYAGE_API_KEY: begins with neither pa- nor al-; check it, or set VOYAGE_API_BASE_URL",
            id="voyage, a key of another",
        ),
        pytest.param(
            OPENAI | {"EMBEDDING_DIMENSIONS": 2_000},
            "EMBEDDING_DIMENSIONS: text-embedding-3-small has 1 to 1536; set one of these",
            id="openai, too wide",
        ),
        pytest.param(
            VOYAGE | {"EMBEDDING_DIMENSIONS": 768},
            "EMBEDDING_DIMENSIONS: voyage-context-3 has 256, 512, 1024, 2048; set one of these",
            id="voyage, a width between",
        ),
        pytest.param(
            OPENAI | {"EMBEDDING_MODEL": "text-embedding-ada-002", "EMBEDDING_DIMENSIONS": 512},
            "EMBEDDING_DIMENSIONS: text-embedding-ada-002 has 1536; set one of these",
            id="openai, a model of one width",
        ),
        pytest.param(
            LOCAL_SERVER | {"EMBEDDING_MODEL": "a-model-of-mine"},
            "EMBEDDING_DIMENSIONS: the chosen EMBEDDING_MODEL is not known here; set the width of its vectors",
            id="unknown model",
        ),
        pytest.param(
            {"EMBEDDING_PROVIDER": "local", "EMBEDDING_MODEL": "a-model-of-mine"},
            "EMBEDDING_MODEL: the provider local has one model",
            id="local, another model",
        ),
        pytest.param(
            {"EMBEDDING_PROVIDER": "local", "EMBEDDING_DIMENSIONS": 512},
            "EMBEDDING_DIMENSIONS: the local model has 384; unset it",
            id="local, another width",
        ),
        pytest.param(
            OPENAI | {"EMBEDDING_CONTEXT": "native"},
            "EMBEDDING_CONTEXT: native needs a contextual model (voyage-context-4, voyage-context-3); use prefix",
            id="native, a flat model",
        ),
        pytest.param(
            VOYAGE | {"EMBEDDING_MODEL": "voyage-4", "EMBEDDING_CONTEXT": "native"},
            "EMBEDDING_CONTEXT: native needs a contextual model",
            id="native, a flat model of voyage",
        ),
        pytest.param(
            LOCAL_SERVER | {"EMBEDDING_CONTEXT": "llm"},
            "CONTEXT_MODEL: is missing; set the chat model",
            id="llm, no model",
        ),
        pytest.param(
            {"EMBEDDING_CONTEXT": "llm", "CONTEXT_MODEL": "small-chat"},
            "CONTEXT_API_KEY: is missing; set it, or CONTEXT_BASE_URL",
            id="llm, no key",
        ),
        pytest.param(
            {"EMBEDDING_PROVIDER": "cohere"}, "EMBEDDING_PROVIDER: must be local, openai, voyage", id="provider"
        ),
        pytest.param(OPENAI | {"OPENAI_BASE_URL": "localhost:11434"}, "OPENAI_BASE_URL: must begin with", id="address"),
        pytest.param({"EMBEDDING_PRICES": "cheap"}, "EMBEDDING_PRICES: must be model=dollars", id="no price"),
        pytest.param({"EMBEDDING_PRICES": "m=-1"}, "EMBEDDING_PRICES: must be model=dollars", id="negative price"),
        pytest.param({"EMBEDDING_PRICES": "m=nan"}, "EMBEDDING_PRICES: must be model=dollars", id="price of no number"),
    ],
)
def test_what_cannot_work_is_said_at_start(variables: dict[str, Any], said: str) -> None:
    """One sentence with the variable and the remedy; the key and the odd value are not in it."""
    with pytest.raises(ConfigError) as caught:
        load_settings(**variables)
    assert said in caught.value.message
    assert "0123456789abcdef" not in caught.value.message
    for value in ("a-model-of-mine", "cohere", "localhost:11434", "cheap"):
        assert value not in caught.value.message


def test_all_problems_are_said_at_once() -> None:
    """Nobody starts four times to learn of four mistakes."""
    with pytest.raises(ConfigError) as caught:
        load_settings(
            EMBEDDING_PROVIDER="voyage", EMBEDDING_DIMENSIONS=100, EMBEDDING_CONTEXT="llm", EMBEDDING_PRICES="x"
        )
    for variable in ("VOYAGE_API_KEY: ", "EMBEDDING_DIMENSIONS: ", "CONTEXT_MODEL: ", "EMBEDDING_PRICES: "):
        assert variable in caught.value.message


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="defaults"),
        pytest.param(OPENAI, id="openai"),
        pytest.param(OPENAI | {"EMBEDDING_DIMENSIONS": 700}, id="openai, any width below"),
        pytest.param(LOCAL_SERVER, id="a server without a key"),
        pytest.param(LOCAL_SERVER | {"EMBEDDING_MODEL": "mine", "EMBEDDING_DIMENSIONS": 768}, id="a model of its own"),
        pytest.param(VOYAGE | {"EMBEDDING_DIMENSIONS": 2_048}, id="voyage"),
        pytest.param(VOYAGE | {"VOYAGE_API_KEY": "al-0123456789abcdef"}, id="voyage by Atlas"),
        pytest.param(
            VOYAGE | {"VOYAGE_API_KEY": "any-key", "VOYAGE_API_BASE_URL": "http://127.0.0.1:1/v1"},
            id="voyage by a gateway",
        ),
        pytest.param(VOYAGE | {"EMBEDDING_CONTEXT": "native"}, id="native"),
        pytest.param(OPENAI | {"EMBEDDING_CONTEXT": "llm", "CONTEXT_MODEL": "small-chat"}, id="llm"),
        pytest.param(
            {"EMBEDDING_CONTEXT": "llm", "CONTEXT_MODEL": "m", "CONTEXT_BASE_URL": "http://127.0.0.1:1/v1"},
            id="llm on a server without a key",
        ),
    ],
)
def test_what_can_work_is_accepted(variables: dict[str, Any]) -> None:
    """No rule is broken."""
    assert load_settings(**variables).embedding_provider in EmbeddingProvider


def test_the_context_policy_fits_the_model() -> None:
    """Contextual models do it themselves; a choice wins."""
    assert load_settings().context_policy is ContextPolicy.PREFIX
    assert load_settings(**OPENAI).context_policy is ContextPolicy.PREFIX
    assert load_settings(**VOYAGE).context_policy is ContextPolicy.NATIVE
    assert load_settings(**VOYAGE, EMBEDDING_CONTEXT="prefix").context_policy is ContextPolicy.PREFIX
    assert load_settings(**VOYAGE, EMBEDDING_MODEL="voyage-4").context_policy is ContextPolicy.PREFIX


def test_prices_are_read_and_bad_ones_refused() -> None:
    """A chat model's output has a price of its own; blanks are no matter."""
    settings = load_settings(EMBEDDING_PRICES=" text-embedding-3-small=0.02, mine=0 ,chat:output=0.6,")
    assert settings.embedding_prices == {"text-embedding-3-small": 0.02, "mine": 0.0, "chat:output": 0.6}


def test_choices_are_read_in_any_case() -> None:
    """And `fake` is another name of `hash`."""
    settings = load_settings(EMBEDDING_PROVIDER=" Fake ", EMBEDDING_CONTEXT="NONE", EMBEDDING_ENCODING="Float")
    assert settings.embedding_provider is EmbeddingProvider.HASH
    assert settings.embedding_context is ContextPolicy.NONE
    assert settings.embedding_encoding is VectorEncoding.FLOAT


def test_keys_are_kept_out_of_every_message_from_now_on() -> None:
    """All three are known to the scrubber, and the summary for the log shows none."""
    keys = ["key-of-openai-1234", "key-of-voyage-1234", "key-of-context-1234"]
    settings = load_settings(
        OPENAI_API_KEY=keys[0],
        VOYAGE_API_KEY=keys[1],
        VOYAGE_API_BASE_URL="http://127.0.0.1:1/v1",
        CONTEXT_API_KEY=keys[2],
    )
    assert scrub(" ".join(keys)) == "[secret] [secret] [secret]"
    assert not any(key in str(settings.redacted_summary()) for key in keys)
