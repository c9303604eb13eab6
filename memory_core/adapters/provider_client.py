"""One HTTP request to a provider. In: a path and a JSON body. Out: the answer's bytes, or one of our errors.

The `openai` SDK is the client. It does not retry here, and nothing of its environment is used: no OPENAI_ORG_ID, no
OPENAI_CUSTOM_HEADERS. What goes out is our body and the headers below. It does not cut, pause or look into the answer.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import cache
from typing import cast

import httpx2
import openai

from memory_core.adapters.background_loop import BackgroundLoop
from memory_core.adapters.provider_endpoint import Endpoint
from memory_core.adapters.provider_errors import Refusal, explain_refusal
from memory_core.errors import EmbeddingError, EmbeddingUnavailableError
from memory_core.ports import Clock

CONNECT_TIMEOUT_SECONDS = 10.0
# The beginning of an error's body says all that we use of it.
ERROR_BODY_LIMIT_BYTES = 65_536
_HEADERS_SENT = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
)
# The SDK does not start without a key; the header that it makes of this one is not sent.
_NO_KEY = "none"
_WRONG_REQUEST = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)


class _RefusedError(Exception):
    """Carries a refusal out of the SDK, which would read the whole body of it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


class ProviderClient:
    """A pool of connections to one endpoint, usable from any event loop."""

    def __init__(self, endpoint: Endpoint, *, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._loop = BackgroundLoop("provider-connections")
        self._sdk: openai.AsyncOpenAI | None = None

    async def post(
        self, path: str, body: Mapping[str, object], *, timeout_seconds: float, texts: Sequence[str]
    ) -> bytes:
        """Send the body once and return the answer's body. No message of an error repeats any of `texts`.

        Raises:
            TooManyTokensError, ThrottledError, EmbeddingUnavailableError, EmbeddingError: see EmbeddingTransport.
        """
        try:
            return await self._loop.run(self._post(path, body, timeout_seconds))
        except _RefusedError as refused:
            raise explain_refusal(refused.refusal, self._endpoint, texts=texts, now=self._clock()) from None

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._sdk is not None:
            sdk, self._sdk = self._sdk, None
            await self._loop.run(sdk.close())
        await self._loop.stop()

    async def _post(self, path: str, body: Mapping[str, object], timeout_seconds: float) -> bytes:
        who = self._endpoint.who
        # The client's own timeouts bound each read, and a server that sends a byte now and then would pass them all.
        timeout = httpx2.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds))
        try:
            if self._sdk is None:
                self._sdk = _open_sdk(self._endpoint)
            async with asyncio.timeout(timeout_seconds):
                response = await self._sdk.post(path, cast_to=httpx2.Response, body=body, options={"timeout": timeout})
        except httpx2.InvalidURL as error:
            raise EmbeddingError(f"{who} cannot be asked. Check {self._endpoint.url_variable}.", cause=error) from None
        except (TimeoutError, openai.APITimeoutError):
            raise EmbeddingUnavailableError(f"{who} did not answer within {timeout_seconds:g} s.") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            if isinstance(cause, _WRONG_REQUEST):
                raise EmbeddingError(
                    f"{who} cannot be asked. Check {self._endpoint.url_variable} and {self._endpoint.key_variable}.",
                    cause=cause,
                ) from None
            raise EmbeddingUnavailableError(
                f"{who} cannot be reached, or broke the connection. If this goes on, check "
                f"{self._endpoint.url_variable} and that the server runs.",
                cause=cause,
            ) from None
        return response.content


def read_utc() -> datetime:
    """Now, for `Retry-After` as a date."""
    return datetime.now(UTC)


def read_json(answer: bytes, endpoint: Endpoint) -> Mapping[str, object]:
    """The JSON object of an answer.

    Raises:
        EmbeddingUnavailableError: it is no JSON; the page of a proxy is most often a matter of minutes.
        EmbeddingError: it is JSON but no object.
    """
    try:
        value: object = json.loads(answer)
    except (ValueError, RecursionError):
        is_page = answer[:1_000].lstrip()[:1] == b"<"
        raise EmbeddingUnavailableError(
            f"{endpoint.who} answered with {'an HTML page' if is_page else 'something that is no JSON'}. If this goes "
            f"on, {endpoint.url_variable} names a proxy or a page instead of the API."
        ) from None
    if not isinstance(value, dict):
        raise EmbeddingError(
            f"{endpoint.who} answered with JSON that is no object. Check {endpoint.url_variable}: it must name an API "
            "of this kind."
        )
    return cast("dict[str, object]", value)


def _open_sdk(endpoint: Endpoint) -> openai.AsyncOpenAI:
    headers_sent = _HEADERS_SENT | endpoint.key_headers.keys()

    async def keep_our_headers(request: httpx2.Request) -> None:
        for name in {*request.headers} - headers_sent:
            del request.headers[name]

    return openai.AsyncOpenAI(
        api_key=endpoint.key or _NO_KEY,
        base_url=endpoint.base_url,
        max_retries=0,
        # Whatever stands in OPENAI_CUSTOM_HEADERS, these win.
        default_headers={"user-agent": "agent-memory", **endpoint.key_headers},
        default_query=endpoint.query,
        http_client=httpx2.AsyncClient(
            verify=_read_certificates(),
            limits=openai.DEFAULT_CONNECTION_LIMITS,
            # A redirect would carry texts and key to an address that nobody has set.
            follow_redirects=False,
            # HTTPS_PROXY and SSL_CERT_FILE are the machine's way out. A server near by is not asked for through them.
            trust_env=endpoint.base_url.startswith("https://"),
            event_hooks={"request": [keep_our_headers], "response": [_stop_at_refusal]},
        ),
    )


@cache
def _read_certificates() -> ssl.SSLContext:
    """Once for all clients: it takes 30 ms."""
    return httpx2.create_ssl_context()


async def _stop_at_refusal(response: httpx2.Response) -> None:
    if response.is_success:
        return
    head = bytearray()
    async with aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            head += part
            if len(head) >= ERROR_BODY_LIMIT_BYTES:
                break
    raise _RefusedError(
        Refusal(status=response.status_code, headers=dict(response.headers), body=bytes(head[:ERROR_BODY_LIMIT_BYTES]))
    )
