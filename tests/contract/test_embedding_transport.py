"""One contract for both transports, contextual and flat, over a real socket to a server that speaks their protocols."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from memory_core.adapters.openai_transport import load_openai_transport
from memory_core.adapters.voyage_transport import load_voyage_transport
from memory_core.embedding_ports import EmbeddingTransport, ProviderRequest
from memory_core.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    ProviderRefusedError,
    ThrottledError,
    TooManyTokensError,
)
from memory_core.settings import load_settings
from tests.providers.fake_provider import FakeProvider, vector_of
from tests.providers.faults import (
    Fault,
    delay,
    drip,
    drop_index,
    drop_last_vector,
    echo_key,
    fail,
    refuse,
    repeat_index,
    reset,
    reverse_entries,
    send_megabytes,
    set_in_last,
    show_page,
    stall,
    throttle,
    use_up_quota,
)
from tests.providers.vendors import OPENAI, VOYAGE

KEY = "pa-0123456789abcdefghijklmnop"
WIDTH = 256
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REQUEST = ProviderRequest(
    groups=(("the first chunk of a document", "its second chunk", "its third"), ("another document in one chunk",)),
    kind="document",
)
PLANS = ["openai", "voyage", "voyage-contextual"]


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> str:
    """Which transport, and how it is set."""
    return str(request.param)


@pytest.fixture
def provider(plan: str) -> Generator[FakeProvider]:
    """The server that the transport talks to."""
    vendor = OPENAI if plan == "openai" else VOYAGE
    with FakeProvider(vendor=vendor, key=KEY, dimensions=WIDTH) as server:
        yield server


def load_transport(plan: str, base_url: str) -> EmbeddingTransport:
    """The transport of a plan, from its settings alone."""
    if plan == "openai":
        settings = load_settings(
            EMBEDDING_PROVIDER="openai",
            EMBEDDING_DIMENSIONS=WIDTH,
            OPENAI_BASE_URL=base_url,
            OPENAI_API_KEY=KEY,
        )
        return load_openai_transport(settings, clock=lambda: NOW)
    settings = load_settings(
        EMBEDDING_PROVIDER="voyage",
        EMBEDDING_MODEL="voyage-context-3" if plan == "voyage-contextual" else "voyage-4",
        EMBEDDING_DIMENSIONS=WIDTH,
        VOYAGE_API_BASE_URL=base_url,
        VOYAGE_API_KEY=KEY,
    )
    return load_voyage_transport(settings, clock=lambda: NOW)


@pytest.fixture
async def transport(plan: str, provider: FakeProvider) -> AsyncGenerator[EmbeddingTransport]:
    """The transport under test."""
    opened = load_transport(plan, provider.base_url)
    yield opened
    await opened.close()


async def send(transport: EmbeddingTransport, *, timeout_seconds: float = 10.0) -> list[list[list[float]]]:
    """The vectors of REQUEST as lists."""
    answer = await transport.send(REQUEST, timeout_seconds=timeout_seconds)
    assert all(group.dtype == np.float32 and group.shape[1] == WIDTH for group in answer.groups)
    return [group.tolist() for group in answer.groups]


async def refused(transport: EmbeddingTransport, *, timeout_seconds: float = 10.0) -> EmbeddingError:
    """The error that the request ends in."""
    with pytest.raises(EmbeddingError) as caught:
        await transport.send(REQUEST, timeout_seconds=timeout_seconds)
    return caught.value


def right_vectors(*, is_contextual: bool) -> list[list[list[float]]]:
    """What the server computes for REQUEST, by its own word."""
    return [
        [
            vector_of(text, WIDTH, group=group if is_contextual else None, place=place).tolist()
            for place, text in enumerate(group)
        ]
        for group in REQUEST.groups
    ]


async def test_an_answer_mirrors_its_request(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """Each text gets its own vector, in groups as they were sent, and every text is paid for once."""
    assert await send(transport) == right_vectors(is_contextual=transport.is_contextual)
    assert provider.paid == {text: 1 for group in REQUEST.groups for text in group}


async def test_groups_are_on_the_wire_in_their_order(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """A contextual model sees each document as one list; a flat one all texts in one list. Neither is shuffled."""
    await send(transport)
    nested = [list(group) for group in REQUEST.groups]
    flat = [[text for group in nested for text in group]]
    assert provider.requests[0].groups == (nested if transport.is_contextual else flat)


async def test_the_tokens_are_those_that_the_provider_says(transport: EmbeddingTransport) -> None:
    """Usage comes from the answer, not from a count of ours."""
    answer = await transport.send(REQUEST, timeout_seconds=10)
    assert answer.tokens == sum(len(text.split()) for group in REQUEST.groups for text in group)


async def test_places_come_from_the_index_not_from_the_order(
    transport: EmbeddingTransport, provider: FakeProvider
) -> None:
    """Entries may come in any order."""
    provider.script(reverse_entries())
    assert await send(transport) == right_vectors(is_contextual=transport.is_contextual)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(drop_last_vector(), id="a vector too few"),
        pytest.param(repeat_index(), id="repeated index"),
        pytest.param(drop_index(), id="no index"),
        pytest.param(set_in_last("index", 10), id="index out of range"),
        pytest.param(set_in_last("embedding", [0.5] * (WIDTH - 1)), id="too narrow"),
        pytest.param(set_in_last("embedding", [0.5] * (WIDTH - 1) + [float("nan")]), id="NaN"),
        pytest.param(set_in_last("embedding", [0.5] * (WIDTH - 1) + ["0.5"]), id="a text among numbers"),
        pytest.param(set_in_last("embedding", "AAAA?"), id="no base64"),
        pytest.param(refuse(200, {"data": None}), id="no data"),
        pytest.param(refuse(200, {"error": {"message": "out of memory"}}), id="an error with 200"),
    ],
)
async def test_a_wrong_answer_is_refused_whole(
    transport: EmbeddingTransport, provider: FakeProvider, fault: Fault
) -> None:
    """An answer with one bad vector gives none, and is not asked for again: it is no passing trouble."""
    provider.script(fault)
    error = await refused(transport)
    assert type(error) is EmbeddingError
    assert not error.retryable
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fail(500), id="500"),
        pytest.param(fail(503), id="503"),
        pytest.param(fail(408), id="408"),
        pytest.param(show_page(502), id="a proxy's 502"),
        pytest.param(show_page(200), id="a proxy's page with 200"),
        pytest.param(Fault(body=b'{"data": [{"index"'), id="half a JSON"),
        pytest.param(reset(), id="reset before the answer"),
        pytest.param(reset(after=40), id="reset in the answer"),
    ],
)
async def test_a_passing_failure_may_be_tried_again(
    transport: EmbeddingTransport, provider: FakeProvider, fault: Fault
) -> None:
    """The transport itself tries once; the next call on the same connections succeeds."""
    provider.script(fault)
    error = await refused(transport)
    assert type(error) is EmbeddingUnavailableError
    assert error.retryable
    assert len(provider.requests) == 1
    assert await send(transport)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(delay(20), id="silent"),
        pytest.param(stall(after=40), id="silent in the answer"),
        pytest.param(drip(), id="a byte at a time"),
    ],
)
async def test_no_answer_takes_longer_than_its_timeout(
    transport: EmbeddingTransport, provider: FakeProvider, fault: Fault
) -> None:
    """The timeout is that of the whole call: a server that goes on sending a little does not hold us."""
    provider.script(fault)
    began = time.monotonic()
    error = await refused(transport, timeout_seconds=0.3)
    assert type(error) is EmbeddingUnavailableError
    assert "did not answer within 0.3 s" in error.message
    assert time.monotonic() - began < 5


async def test_a_server_that_is_not_there_may_be_tried_again(plan: str) -> None:
    """Nobody listens: the message names the variable with the address."""
    with FakeProvider() as gone:
        address = gone.base_url
    transport = load_transport(plan, address)
    error = await refused(transport)
    await transport.close()
    assert type(error) is EmbeddingUnavailableError
    assert "BASE_URL" in error.message


async def test_429_says_how_long_to_wait(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """Retry-After in seconds, as a date and in milliseconds; None where it is absent or absurd."""
    forms: list[tuple[dict[str, str], float | None]] = [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"retry_after_ms": "250", "retry_after": "1"}, 0.25),
        ({}, None),
        ({"retry_after": "99999999999"}, None),
        ({"retry_after": "tomorrow"}, None),
    ]
    provider.script(*(throttle(**headers) for headers, _ in forms))
    errors = [await refused(transport) for _ in forms]
    assert {type(error) for error in errors} == {ThrottledError}
    assert [getattr(error, "retry_after_seconds", "missing") for error in errors] == [seconds for _, seconds in forms]


async def test_a_used_up_quota_is_no_throttling(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """OpenAI says it with a 429 too, and no pause helps."""
    provider.script(use_up_quota())
    error = await refused(transport)
    assert type(error) is ProviderRefusedError
    assert "quota is used up" in error.message


async def test_a_refusal_is_final_and_says_what_to_set(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """The message has the provider's reason and the name of the variable; a redirect is not followed."""
    remedies = {
        401: "_API_KEY",
        403: "_API_KEY",
        402: "quota",
        404: "EMBEDDING_MODEL",
        400: "EMBEDDING_MODEL",
        422: "EMBEDDING_MODEL",
        501: "EMBEDDING_MODEL",
        307: "BASE_URL",
    }
    for status, remedy in remedies.items():
        provider.script(refuse(status, {"error": {"message": "No such thing here."}}, location=provider.base_url))
        error = await refused(transport)
        # Of these no text can be the reason: whatever is asked, they would answer the same.
        assert type(error) is (ProviderRefusedError if status in {401, 402, 404, 307} else EmbeddingError)
        assert str(status) in error.message
        assert "No such thing here" in error.message
        assert remedy in error.message
    assert len(provider.requests) == len(remedies)


async def test_a_wrong_key_is_named_by_its_variable(plan: str) -> None:
    """The server refuses; the message says which variable has the key."""
    with FakeProvider(vendor=OPENAI if plan == "openai" else VOYAGE, key="another-key") as strict:
        transport = load_transport(plan, strict.base_url)
        error = await refused(transport)
        await transport.close()
    assert ("OPENAI_API_KEY" if plan == "openai" else "VOYAGE_API_KEY") in error.message


async def test_too_many_tokens_has_the_numbers(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """The planner learns from the provider's own limit and count."""
    provider.request_tokens = 5
    error = await refused(transport)
    assert isinstance(error, TooManyTokensError)
    assert (error.limit, error.sent) == (5, 16)


async def test_too_many_texts_is_too_big_without_a_number_of_tokens(
    transport: EmbeddingTransport, provider: FakeProvider
) -> None:
    """The request is to be cut, but a number of texts must not be taken for one of tokens."""
    provider.request_texts = 3
    error = await refused(transport)
    assert isinstance(error, TooManyTokensError)
    assert (error.limit, error.sent) == (None, None)


async def test_a_key_in_an_error_is_scrubbed(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """Some servers repeat the key that they refuse."""
    provider.script(echo_key())
    error = await refused(transport)
    assert "Incorrect API key provided: [secret]" in error.message
    assert KEY not in repr(vars(error))


async def test_a_huge_error_body_becomes_a_short_message(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """Five megabytes are no reason for a long message, and the next request works."""
    for status in (400, 401, 429, 500):
        provider.script(send_megabytes(status))
        error = await refused(transport)
        assert str(status) in error.message
        assert len(error.message) < 700
    assert await send(transport)


async def test_an_error_body_is_read_as_far_as_it_is_used(
    transport: EmbeddingTransport, provider: FakeProvider
) -> None:
    """The beginning says it all: nobody waits for megabytes that do not come."""
    provider.script(send_megabytes(400, stall_after=100_000))
    error = await refused(transport)
    assert "400" in error.message


async def test_no_message_repeats_a_text(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """A server that quotes what it was sent is not quoted."""
    quoted = REQUEST.groups[0][0]
    provider.script(
        refuse(400, {"error": {"message": f"cannot embed '{quoted}'"}}),
        refuse(422, {"detail": [{"loc": ["body", "input"], "msg": "too odd", "input": quoted}]}),
        Fault(status=500, body=f'{{"input": ["{quoted}'.encode()),
    )
    for said in ("400", "too odd", "500"):
        error = await refused(transport)
        assert said in error.message
        assert quoted not in error.message


def test_a_transport_outlives_the_loops_of_its_callers(plan: str) -> None:
    """Runs of flows have loops of their own, one after another and at once, and share one transport."""
    with FakeProvider(key=KEY, vendor=OPENAI if plan == "openai" else VOYAGE) as server:
        transport = load_transport(plan, server.base_url)
        right = right_vectors(is_contextual=transport.is_contextual)
        assert [asyncio.run(send(transport)) for _ in range(2)] == [right, right]
        answers: list[object] = []
        threads = [threading.Thread(target=lambda: answers.append(asyncio.run(send(transport)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(transport.close())
    assert answers == [right] * 4


async def test_many_requests_are_under_way_at_once(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """The connections do not wait for each other."""
    provider.latency_seconds = 0.2
    await asyncio.gather(*(send(transport) for _ in range(16)))
    assert provider.peak_concurrency == 16


async def test_a_cancelled_call_leaves_the_rest_alone(transport: EmbeddingTransport, provider: FakeProvider) -> None:
    """One caller gives up; the next one is served."""
    provider.script(delay(20))
    call = asyncio.create_task(send(transport))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await send(transport)


async def test_a_transport_may_be_closed_twice(transport: EmbeddingTransport) -> None:
    """Before its first request, too; its thread ends with it."""
    await transport.close()
    await send(transport)
    assert any(thread.name == "provider-connections" for thread in threading.enumerate())
    await transport.close()
    await transport.close()
    assert not any(thread.name == "provider-connections" for thread in threading.enumerate())


async def test_nothing_of_the_environment_goes_out(
    plan: str, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK reads variables of its own; none of them reaches a server, nor does a proxy come between."""
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "leaked-value")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: leaked-value\nAuthorization: Bearer leaked-value")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    transport = load_transport(plan, provider.base_url)
    await send(transport)
    await transport.close()
    assert "leaked-value" not in repr(provider.requests)
    assert set(provider.requests[0].headers) == {
        *("host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"),
        "authorization",
    }
