"""Requests in, vectors of an OpenAI-compatible endpoint out: OpenAI, Azure, Ollama, vLLM, TEI, LM Studio, llama.cpp.

It sends each request once, whole and in order; it does not retry, pause or cut. Groups travel flat, and an answer is
split into them again. Queries and documents are embedded alike.
"""

from __future__ import annotations

import asyncio
from itertools import chain

from memory_core.adapters.provider_answers import rebuild_flat
from memory_core.adapters.provider_client import read_json, read_utc
from memory_core.adapters.provider_endpoint import Endpoint
from memory_core.adapters.provider_transport import ProviderTransport
from memory_core.embedding_ports import ProviderAnswer, ProviderLimits, ProviderRequest
from memory_core.embedding_settings import VectorEncoding
from memory_core.ports import Clock
from memory_core.provider_limits import limits_of, width_of
from memory_core.settings import Settings


class OpenAITransport(ProviderTransport):
    """The endpoint `{base}/embeddings`. `sends_dimensions`: the model is asked for the width."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        dimensions: int,
        sends_dimensions: bool,
        encoding: VectorEncoding,
        limits: ProviderLimits,
        clock: Clock = read_utc,
    ) -> None:
        super().__init__(endpoint, dimensions=dimensions, is_contextual=False, limits=limits, clock=clock)
        self._options: dict[str, object] = {"model": endpoint.model, "encoding_format": encoding.value}
        if sends_dimensions:
            self._options["dimensions"] = dimensions

    @property
    def provider(self) -> str:
        """Name for fingerprints."""
        return "openai"

    async def send(self, request: ProviderRequest, *, timeout_seconds: float) -> ProviderAnswer:
        """Embed the texts of one request; see EmbeddingTransport."""
        texts = list(chain.from_iterable(request.groups))
        answer = await self._client.post(
            "/embeddings", {**self._options, "input": texts}, timeout_seconds=timeout_seconds, texts=texts
        )
        return await asyncio.to_thread(self._read, answer, request)

    def _read(self, answer: bytes, request: ProviderRequest) -> ProviderAnswer:
        return rebuild_flat(
            read_json(answer, self._endpoint),
            [len(group) for group in request.groups],
            dimensions=self._dimensions,
            who=self._endpoint.who,
        )


def load_openai_transport(settings: Settings, *, clock: Clock = read_utc) -> OpenAITransport:
    """The transport that the settings name. Nothing is sent before the first request.

    Raises:
        ConfigError: OPENAI_BASE_URL or OPENAI_API_KEY cannot be used.
    """
    known = settings.known_model
    is_azure = settings.openai_api_version is not None
    return OpenAITransport(
        Endpoint(
            who="The embedding provider openai",
            model=settings.model_name,
            base_url=settings.openai_base_url,
            key=settings.openai_api_key.get_secret_value() if settings.openai_api_key else None,
            key_header="api-key" if is_azure else "authorization",
            query={"api-version": settings.openai_api_version} if settings.openai_api_version else {},
            key_variable="OPENAI_API_KEY",
            url_variable="OPENAI_BASE_URL",
            model_variable="EMBEDDING_MODEL",
            size_variables="EMBEDDING_REQUEST_TOKENS, EMBEDDING_REQUEST_TEXTS or EMBEDDING_TEXT_TOKENS",
        ),
        dimensions=width_of(settings),
        sends_dimensions=settings.embedding_send_dimensions or (known is not None and known.is_range),
        encoding=settings.embedding_encoding,
        limits=limits_of(settings),
        clock=clock,
    )
