"""One chat completion over a real socket: the prompt's order, the tokens, and where the key goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory_core.adapters.openai_chat import OpenAIChatModel, load_chat_model
from memory_core.embedding_ports import ChatAnswer
from memory_core.errors import (
    ConfigError,
    EmbeddingError,
    EmbeddingUnavailableError,
    ProviderRefusedError,
    ThrottledError,
    TooManyTokensError,
)
from memory_core.settings import Settings, load_settings
from tests.providers.fake_provider import FakeProvider
from tests.providers.faults import Fault, delay, refuse, show_page, throttle
from tests.providers.vendors import AZURE

KEY = "sk-0123456789abcdefghijklmnop"
SHARED = "the whole document that every question is about"


def load(provider: FakeProvider, **variables: Any) -> OpenAIChatModel:
    """The chat model of an OpenAI-compatible server."""
    settings: dict[str, Any] = {"CONTEXT_MODEL": "small-chat", "OPENAI_BASE_URL": provider.base_url, **variables}
    return load_chat_model(load_settings(**settings))


def ask(provider: FakeProvider, *questions: str, timeout_seconds: float = 10.0, **variables: Any) -> list[ChatAnswer]:
    """Ask about the shared document, one question after the other."""

    async def run() -> list[ChatAnswer]:
        model = load(provider, **variables)
        try:
            return [
                await model.complete(SHARED, question, max_tokens=90, timeout_seconds=timeout_seconds)
                for question in questions or ("which chunk",)
            ]
        finally:
            await model.close()

    return asyncio.run(run())


def test_the_shared_part_begins_every_prompt() -> None:
    """So a provider's cache knows all of a document's prompts but the first by their beginning."""
    with FakeProvider() as provider:
        answers = ask(provider, "where is chunk one", "where is chunk two")
    prompts = [seen.body["messages"] for seen in provider.requests]
    assert prompts[0] == [{"role": "user", "content": f"{SHARED}\n\nwhere is chunk one"}]
    assert prompts[1] == [{"role": "user", "content": f"{SHARED}\n\nwhere is chunk two"}]
    assert [answer.cached_tokens for answer in answers] == [0, 11]


def test_the_answer_has_text_and_tokens() -> None:
    """Blanks around the text are dropped; tokens are what the provider says."""
    with FakeProvider() as provider:
        provider.chat_reply = lambda _: "  This chunk is of the second part. \n"
        answer = ask(provider)[0]
    assert answer == ChatAnswer(
        text="This chunk is of the second part.", input_tokens=10, cached_tokens=0, output_tokens=7
    )
    assert provider.requests[0].body == {
        "model": "small-chat",
        "messages": [{"role": "user", "content": f"{SHARED}\n\nwhich chunk"}],
        "max_tokens": 90,
    }


def test_a_server_that_counts_no_tokens_is_understood() -> None:
    """Some local servers leave usage out."""
    with FakeProvider() as provider:
        provider.script(refuse(200, {"choices": [{"message": {"content": "A context."}}], "usage": None}))
        assert ask(provider) == [ChatAnswer(text="A context.", input_tokens=0, cached_tokens=0, output_tokens=0)]


def test_openai_and_azure_know_the_limit_by_its_new_name() -> None:
    """Their newer models refuse max_tokens, and other servers do not know the new word."""
    with FakeProvider(vendor=AZURE, key=KEY) as provider:
        ask(provider, OPENAI_API_KEY=KEY, OPENAI_API_VERSION="2024-10-21")
    assert provider.requests[0].body["max_completion_tokens"] == 90
    assert "max_tokens" not in provider.requests[0].body
    assert provider.requests[0].headers["api-key"] == KEY
    assert load_chat_model(load_settings(CONTEXT_MODEL="x"))._limit_name == "max_completion_tokens"


def test_the_key_of_the_embedding_server_goes_to_no_other() -> None:
    """Another server gets its own key or none; another path of the same server gets the same key."""
    with FakeProvider() as provider:
        elsewhere: dict[str, Any] = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "CONTEXT_BASE_URL": provider.base_url}
        ask(provider, OPENAI_API_KEY=KEY, **elsewhere)
        ask(provider, OPENAI_API_KEY=KEY, CONTEXT_API_KEY="sk-another-key-0123", **elsewhere)
        ask(provider, OPENAI_API_KEY=KEY, CONTEXT_BASE_URL=f"{provider.base_url}/chat-deployment")
    assert [seen.headers.get("authorization") for seen in provider.requests] == [
        None,
        "Bearer sk-another-key-0123",
        f"Bearer {KEY}",
    ]


@pytest.mark.parametrize(
    ("fault", "expected", "said"),
    [
        (throttle(retry_after="4"), ThrottledError, "429"),
        (show_page(), EmbeddingUnavailableError, "CONTEXT_BASE_URL"),
        (show_page(503), EmbeddingUnavailableError, "503"),
        (delay(20), EmbeddingUnavailableError, "did not answer"),
        (refuse(401, {"error": {"message": "no"}}), ProviderRefusedError, "CONTEXT_API_KEY"),
        (refuse(404, {"error": {"message": "no"}}), ProviderRefusedError, "CONTEXT_MODEL"),
        (
            refuse(400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
            TooManyTokensError,
            "CONTEXT_DOCUMENT_TOKENS",
        ),
        (refuse(200, {"choices": []}), EmbeddingError, "wrote nothing"),
        (refuse(200, {"choices": [{"message": {"content": None}}]}), EmbeddingError, "wrote nothing"),
        (refuse(200, {"choices": [{"message": {"content": " "}}]}), EmbeddingError, "CONTEXT_MODEL"),
        (refuse(200, {"choices": ["text"]}), EmbeddingError, "wrote nothing"),
    ],
)
def test_failures_are_those_of_an_embedding_transport(fault: Fault, expected: type[EmbeddingError], said: str) -> None:
    """With the names of the variables of the chat model."""
    with FakeProvider() as provider:
        provider.script(fault)
        with pytest.raises(EmbeddingError) as caught:
            ask(provider, timeout_seconds=0.5)
    assert type(caught.value) is expected
    assert said in caught.value.message
    assert len(provider.requests) == 1


def test_no_message_repeats_the_document() -> None:
    """The prompt has the whole of it."""
    with FakeProvider() as provider:
        provider.script(refuse(400, {"error": {"message": f"content policy: {SHARED}"}}))
        with pytest.raises(EmbeddingError) as caught:
            ask(provider)
    assert SHARED not in caught.value.message


def test_a_chat_model_has_a_name() -> None:
    """It is part of the context policy, and there is no default."""
    assert load_chat_model(load_settings(CONTEXT_MODEL="small-chat")).model == "small-chat"
    with pytest.raises(ConfigError, match="CONTEXT_MODEL"):
        load_chat_model(Settings())
