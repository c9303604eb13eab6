"""A prompt in, what a chat model wrote out, through an OpenAI-compatible endpoint. One call; no retry, no pause.

The prompt is one message that begins with the shared part: providers cache the longest beginning that they have seen,
and some local models know no other kind of message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from memory_core.adapters.provider_client import ProviderClient, read_json, read_utc
from memory_core.adapters.provider_endpoint import Endpoint, is_same_server
from memory_core.embedding_ports import ChatAnswer
from memory_core.embedding_settings import OPENAI_HOST
from memory_core.errors import ConfigError, EmbeddingError
from memory_core.ports import Clock
from memory_core.settings import Settings


class OpenAIChatModel:
    """The endpoint `{base}/chat/completions`. `limit_name` is how it calls the bound on what is written."""

    def __init__(self, endpoint: Endpoint, *, limit_name: str, clock: Clock = read_utc) -> None:
        self._endpoint = endpoint
        self._limit_name = limit_name
        self._client = ProviderClient(endpoint, clock=clock)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._endpoint.model

    async def complete(self, shared: str, question: str, *, max_tokens: int, timeout_seconds: float) -> ChatAnswer:
        """Answer `question` behind `shared`; see ChatModel. A model that writes nothing is an EmbeddingError."""
        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": f"{shared}\n\n{question}"}],
            self._limit_name: max_tokens,
        }
        answer = await self._client.post(
            "/chat/completions", body, timeout_seconds=timeout_seconds, texts=(shared, question)
        )
        return self._read(read_json(answer, self._endpoint))

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._client.close()

    def _read(self, answer: Mapping[str, object]) -> ChatAnswer:
        choices = answer.get("choices")
        first = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
        text = _get(first, "message", "content")
        if not isinstance(text, str) or not text.strip():
            raise EmbeddingError(
                f"{self._endpoint.who} wrote nothing. Set CONTEXT_MODEL to a chat model that answers without long "
                "reasoning, or EMBEDDING_CONTEXT=prefix."
            )
        return ChatAnswer(
            text=text.strip(),
            input_tokens=_count(answer, "usage", "prompt_tokens"),
            cached_tokens=_count(answer, "usage", "prompt_tokens_details", "cached_tokens"),
            output_tokens=_count(answer, "usage", "completion_tokens"),
        )


def load_chat_model(settings: Settings, *, clock: Clock = read_utc) -> OpenAIChatModel:
    """The chat model that writes contexts. A key goes only to the server that it was set for.

    Raises:
        ConfigError: CONTEXT_MODEL is missing, or the address or the key cannot be used.
    """
    if settings.context_model is None:
        raise ConfigError("CONTEXT_MODEL: is missing; set the chat model that writes contexts.")
    base_url = settings.context_base_url or settings.openai_base_url
    shares_server = is_same_server(base_url, settings.openai_base_url)
    key = settings.context_api_key or (settings.openai_api_key if shares_server else None)
    version = settings.openai_api_version if shares_server else None
    return OpenAIChatModel(
        Endpoint(
            who="The chat model that writes contexts",
            model=settings.context_model,
            base_url=base_url,
            key=key.get_secret_value() if key else None,
            key_header="api-key" if version else "authorization",
            query={"api-version": version} if version else {},
            key_variable="CONTEXT_API_KEY",
            url_variable="CONTEXT_BASE_URL",
            model_variable="CONTEXT_MODEL",
            size_variables="CONTEXT_DOCUMENT_TOKENS",
        ),
        # OpenAI's newer models refuse the old name, and other servers know only the old one.
        limit_name="max_completion_tokens" if version or is_same_server(base_url, OPENAI_HOST) else "max_tokens",
        clock=clock,
    )


def _get(value: object, *names: str) -> object:
    for name in names:
        value = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
    return value


def _count(answer: Mapping[str, object], *names: str) -> int:
    tokens = _get(answer, *names)
    return tokens if type(tokens) is int and tokens >= 0 else 0
