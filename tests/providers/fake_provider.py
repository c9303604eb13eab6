"""A server that speaks the protocols of OpenAI and Voyage over a real socket. In: requests. Out: vectors, or faults.

    with FakeProvider(vendor=TEI, text_tokens=512) as provider:
        provider.script(throttle(retry_after="1"), reset())
        ...                        # the client under test talks to provider.base_url
        assert provider.paid["a text"] == 1

Endpoints: `/embeddings`, `/contextualizedembeddings`, `/chat/completions` below any path. A vector depends on its text
alone, or on its group and place where the request is contextual: `vector_of` says which is right. A token is a word.
Used by tests and by benchmarks; nothing here knows the code under test.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from typing import Any, Self, cast
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

from tests.providers.faults import Answer, Fault
from tests.providers.vendors import OPENAI, Vendor

_DRIP_SECONDS = 0.02
_PROMPTS_REMEMBERED = 50


def vector_of(text: str, dimensions: int, *, group: Sequence[str] | None = None, place: int = 0) -> NDArray[np.float32]:
    """The unit vector of a text; with `group`, of the text at that place of a document."""
    seed = json.dumps([text] if group is None else [place, *group]).encode()
    numbers = np.frombuffer(hashlib.shake_256(seed).digest(4 * dimensions), dtype="<u4")
    vector = numbers.astype(np.float64) / 2**31 - 1.0
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def count_words(text: str) -> int:
    """The measure of the fake: one word is one token."""
    return len(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """A request as it was on the wire (header names in lower case), and the status of its answer."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    status: int

    @property
    def groups(self) -> list[list[str]]:
        """The texts by document; a flat request is one group."""
        inputs = self.body.get("inputs")
        return inputs if inputs is not None else [self.body.get("input", [])]


class FakeProvider:
    """Starts with `with`, on a free port of 127.0.0.1. `key`: the only one it accepts; None: any or none.

    `request_tokens`, `text_tokens` (of a text; of a group where it is contextual) and `request_texts` are its limits,
    refused in the vendor's words. `latency_seconds` is how long a good answer takes.
    """

    def __init__(
        self,
        *,
        vendor: Vendor = OPENAI,
        dimensions: int = 8,
        key: str | None = None,
        request_tokens: int | None = None,
        text_tokens: int | None = None,
        request_texts: int | None = None,
        latency_seconds: float = 0.0,
    ) -> None:
        self.vendor = vendor
        self.dimensions = dimensions
        self.key = key
        self.request_tokens = request_tokens
        self.text_tokens = text_tokens
        self.request_texts = request_texts
        self.latency_seconds = latency_seconds
        self.chat_reply: Callable[[str], str] = lambda prompt: f"Situated {hashlib.sha256(prompt.encode()).hexdigest()}"
        self.requests: list[SeenRequest] = []
        self.paid: Counter[str] = Counter()
        self.peak_concurrency = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._script: deque[Fault | None] = deque()
        self._prompts: deque[str] = deque(maxlen=_PROMPTS_REMEMBERED)
        self._under_way = 0
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="fake-provider", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        """What a client is told: http://127.0.0.1:port/v1."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def script(self, *faults: Fault | None) -> None:
        """What the next requests get, one each, behind what is scripted already; None: the good answer."""
        self._script.extend(faults)

    def enter(self) -> Fault | None:
        """A request begins: count it, and take its fault from the script."""
        with self._lock:
            self._under_way += 1
            self.peak_concurrency = max(self.peak_concurrency, self._under_way)
            return self._script.popleft() if self._script else None

    def leave(self, seen: SeenRequest, *, is_paid: bool) -> None:
        """A request is answered, or about to be: what it paid for is counted before the caller can know."""
        with self._lock:
            self._under_way -= 1
            self.requests.append(seen)
            if is_paid:
                self.paid.update(text for group in seen.groups for text in group)

    def answer(self, request: SeenRequest) -> tuple[int, Answer]:
        """The good answer, or the vendor's refusal."""
        if refusal := self._refuse(request):
            status, message, code = refusal
            return status, dict(self.vendor.error_body(status, message, code))
        if request.path.endswith("/chat/completions"):
            return 200, self._chat(request)
        if request.path.endswith("/contextualizedembeddings"):
            return 200, self._embed_nested(request)
        return 200, self._embed_flat(request)

    def _refuse(self, request: SeenRequest) -> tuple[int, str, str | None] | None:
        vendor = self.vendor
        if self.key is not None and request.headers.get(vendor.key_header) not in {self.key, f"Bearer {self.key}"}:
            return 401, "Incorrect API key provided.", "invalid_api_key"
        if not request.path.endswith(("/embeddings", "/contextualizedembeddings", "/chat/completions")):
            return 404, "Not Found", None
        if vendor.key_header == "api-key" and not request.query.get("api-version"):
            return 404, "Resource not found", "404"
        if "dimensions" in request.body and vendor.refuses_dimensions:
            return 400, vendor.refuses_dimensions, None
        groups = request.groups
        texts = [text for group in groups for text in group]
        wholes = [" ".join(group) for group in groups] if "inputs" in request.body else texts
        for limit, count, wording in (
            (self.request_texts, lambda: len(texts), vendor.too_many_texts),
            (self.text_tokens, lambda: max(map(count_words, wholes), default=0), vendor.too_long),
            (self.request_tokens, lambda: sum(map(count_words, texts)), vendor.too_many_tokens),
        ):
            if limit is not None and (sent := count()) > limit:
                return vendor.status_of_size, wording.format(limit=limit, sent=sent), None
        return None

    def _embed_flat(self, request: SeenRequest) -> Answer:
        width = self._width(request)
        entries = [
            self._entry(request, place, vector_of(text, width)) for place, text in enumerate(request.body["input"])
        ]
        return {"object": "list", "model": request.body["model"], "data": entries, "usage": _usage(request)}

    def _embed_nested(self, request: SeenRequest) -> Answer:
        width = self._width(request)
        groups = [
            {
                "object": "list",
                "index": number,
                "data": [
                    self._entry(request, place, vector_of(text, width, group=group, place=place))
                    for place, text in enumerate(group)
                ],
            }
            for number, group in enumerate(request.groups)
        ]
        return {"object": "list", "model": request.body["model"], "data": groups, "usage": _usage(request)}

    def _width(self, request: SeenRequest) -> int:
        return request.body.get("dimensions") or request.body.get("output_dimension") or self.dimensions

    def _entry(self, request: SeenRequest, place: int, vector: NDArray[np.float32]) -> Answer:
        as_base64 = request.body.get("encoding_format") == "base64" and self.vendor.knows_base64
        plain = base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector.tolist()
        return {"object": "embedding", "index": place, "embedding": plain}

    def _chat(self, request: SeenRequest) -> Answer:
        prompt = "".join(message["content"] for message in request.body["messages"])
        with self._lock:
            cached = max((_shared_words(prompt, earlier) for earlier in self._prompts), default=0)
            self._prompts.append(prompt)
        text = self.chat_reply(prompt)
        return {
            "object": "chat.completion",
            "model": request.body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {
                "prompt_tokens": count_words(prompt),
                "completion_tokens": count_words(text),
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        }


def _shared_words(prompt: str, earlier: str) -> int:
    pairs = zip(prompt.split(), earlier.split(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _usage(request: SeenRequest) -> Mapping[str, int]:
    return {"total_tokens": sum(count_words(text) for group in request.groups for text in group)}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, provider: FakeProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection: kept-alive ones are ended with the server."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget it."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Wake the threads that wait for another request."""
        for connection in [*self._connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left before its answer is no failure of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer one request."""
        provider = cast("_Server", self.server).provider
        began = time.monotonic()
        seen = self._read()
        effect = provider.enter() or Fault(delay_seconds=provider.latency_seconds)
        status, answer = provider.answer(seen) if effect.status == 200 else (effect.status, {})
        body = effect.body if effect.body is not None else json.dumps(effect.alter(answer)).encode()
        if effect.echoes_key:
            key = seen.headers.get(provider.vendor.key_header, "").removeprefix("Bearer ")
            body = body.replace(b"KEY", key.encode())
        provider.stopping.wait(max(0.0, began + effect.delay_seconds - time.monotonic()))
        provider.leave(replace(seen, status=status), is_paid=status == 200 and effect.is_intact)
        self._write(status, body, effect)

    def _read(self) -> SeenRequest:
        parts = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        return SeenRequest(
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            status=0,
        )

    def _write(self, status: int, body: bytes, effect: Fault) -> None:
        if effect.reset_after == 0:
            self._reset()
            return
        self.send_response(status)
        for name, value in {"content-type": "application/json", **effect.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if effect.reset_after:
            self.wfile.write(body[: effect.reset_after])
            self._reset()
        elif effect.stall_after is not None:
            self.wfile.write(body[: effect.stall_after])
            self.close_connection = True
            cast("_Server", self.server).provider.stopping.wait()
        elif effect.drips:
            for place in range(len(body)):
                if cast("_Server", self.server).provider.stopping.wait(_DRIP_SECONDS):
                    return
                self.wfile.write(body[place : place + 1])
        else:
            self.wfile.write(body)

    def _reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
