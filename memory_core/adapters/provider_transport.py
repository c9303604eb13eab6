"""What all transports of paid providers share. In: an endpoint and limits. Out: a client, and what the port asks."""

from __future__ import annotations

from memory_core.adapters.provider_client import ProviderClient
from memory_core.adapters.provider_endpoint import Endpoint
from memory_core.embedding_ports import ProviderLimits
from memory_core.ports import Clock


class ProviderTransport:
    """The part of an EmbeddingTransport that does not know how a request is written."""

    def __init__(
        self, endpoint: Endpoint, *, dimensions: int, is_contextual: bool, limits: ProviderLimits, clock: Clock
    ) -> None:
        self._endpoint = endpoint
        self._client = ProviderClient(endpoint, clock=clock)
        self._dimensions = dimensions
        self._is_contextual = is_contextual
        self._limits = limits

    @property
    def model(self) -> str:
        """The model's name; Azure: the deployment's."""
        return self._endpoint.model

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        return self._dimensions

    @property
    def limits(self) -> ProviderLimits:
        """What a request may hold."""
        return self._limits

    @property
    def is_contextual(self) -> bool:
        """Whether the model sees each group as one document."""
        return self._is_contextual

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._client.close()
