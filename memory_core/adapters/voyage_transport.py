"""Requests in, vectors of Voyage's API out: its contextual endpoint for contextual models, the flat one for others.

It sends each request once, whole and in order; it does not retry, pause or cut, and forbids the server to cut: a flat
text that is too long is refused. (The contextual endpoint has no such switch and never cuts.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import chain

from memory_core.adapters.provider_answers import rebuild_flat, rebuild_nested
from memory_core.adapters.provider_client import read_json, read_utc
from memory_core.adapters.provider_endpoint import Endpoint
from memory_core.adapters.provider_transport import ProviderTransport
from memory_core.embedding_ports import ProviderAnswer, ProviderLimits, ProviderRequest
from memory_core.embedding_settings import VOYAGE_HOSTS, VectorEncoding
from memory_core.errors import ConfigError
from memory_core.ports import Clock
from memory_core.provider_limits import limits_of, width_of
from memory_core.settings import Settings


class VoyageTransport(ProviderTransport):
    """The endpoints `{base}/contextualizedembeddings` and `{base}/embeddings`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        dimensions: int,
        sends_dimensions: bool,
        is_contextual: bool,
        encoding: VectorEncoding,
        limits: ProviderLimits,
        clock: Clock = read_utc,
    ) -> None:
        super().__init__(endpoint, dimensions=dimensions, is_contextual=is_contextual, limits=limits, clock=clock)
        self._options: dict[str, object] = {"model": endpoint.model, "output_dtype": "float"}
        if sends_dimensions:
            self._options["output_dimension"] = dimensions
        if encoding is VectorEncoding.BASE64:  # lists of numbers have no name here
            self._options["encoding_format"] = "base64"

    @property
    def provider(self) -> str:
        """Name for fingerprints."""
        return "voyage"

    async def send(self, request: ProviderRequest, *, timeout_seconds: float) -> ProviderAnswer:
        """Embed the texts of one request; see EmbeddingTransport."""
        texts = list(chain.from_iterable(request.groups))
        options = {**self._options, "input_type": request.kind}
        if self._is_contextual:
            path: str = "/contextualizedembeddings"
            body: Mapping[str, object] = {**options, "inputs": [list(group) for group in request.groups]}
        else:
            path, body = "/embeddings", {**options, "input": texts, "truncation": False}
        answer = await self._client.post(path, body, timeout_seconds=timeout_seconds, texts=texts)
        return await asyncio.to_thread(self._read, answer, request)

    def _read(self, answer: bytes, request: ProviderRequest) -> ProviderAnswer:
        rebuild = rebuild_nested if self._is_contextual else rebuild_flat
        return rebuild(
            read_json(answer, self._endpoint),
            [len(group) for group in request.groups],
            dimensions=self._dimensions,
            who=self._endpoint.who,
        )


def load_voyage_transport(settings: Settings, *, clock: Clock = read_utc) -> VoyageTransport:
    """The transport that the settings name. Nothing is sent before the first request.

    Raises:
        ConfigError: there is no key, or it does not say its server, or VOYAGE_API_BASE_URL cannot be used.
    """
    known = settings.known_model
    key = settings.voyage_api_key.get_secret_value() if settings.voyage_api_key else ""
    return VoyageTransport(
        Endpoint(
            who="The embedding provider voyage",
            model=settings.model_name,
            base_url=settings.voyage_api_base_url or _host_of(key),
            key=key or None,
            key_variable="VOYAGE_API_KEY",
            url_variable="VOYAGE_API_BASE_URL",
            model_variable="EMBEDDING_MODEL",
            size_variables="EMBEDDING_REQUEST_TOKENS, EMBEDDING_REQUEST_TEXTS or EMBEDDING_TEXT_TOKENS",
        ),
        dimensions=width_of(settings),
        # A model of one width need not know the word.
        sends_dimensions=settings.embedding_send_dimensions or (known is not None and len(known.widths) > 1),
        is_contextual=known is not None and known.is_contextual,
        encoding=settings.embedding_encoding,
        limits=limits_of(settings),
        clock=clock,
    )


def _host_of(key: str) -> str:
    for prefix, host in VOYAGE_HOSTS.items():
        if key.startswith(prefix):
            return host
    raise ConfigError(
        "VOYAGE_API_KEY: is missing, or begins with neither pa- nor al-; set it, or VOYAGE_API_BASE_URL to its server."
    )
