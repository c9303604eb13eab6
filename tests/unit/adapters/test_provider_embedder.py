"""A paid embedder over a scripted provider, in virtual time: its requests, storms and faults."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import numpy as np
import pytest

from memory_core.embedding_ports import ProviderRequest
from memory_core.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    ThrottledError,
    ValidationError,
)
from memory_core.fakes.transport import ScriptedTransport
from tests.unit.adapters.provider_process import Process, assert_mirrors, documents, groups_of, limits

# --- requests


async def test_documents_share_requests_in_order_and_whole() -> None:
    """Three documents of twenty tokens go in requests of at most fifty."""
    transport = ScriptedTransport(limits=limits(50))
    groups = documents(5)
    result = await Process(transport).embed(groups)

    assert groups_of(transport.sent) == [groups[:2], groups[2:4], groups[4:]]
    assert {request.kind for request in transport.sent} == {"document"}
    assert transport.timeouts == [30, 30, 30]
    assert_mirrors(result, groups, transport)
    assert result.windows == [(1, 1)] * 5
    assert (result.usage.tokens, result.usage.requests, sum(result.cached)) == (100, 3, 0)


async def test_answers_may_come_in_any_order() -> None:
    """The last request is answered first."""
    process: Process
    groups = documents(6)

    async def wait(request: ProviderRequest) -> None:
        await process.time.sleep(10 - groups.index(list(request.groups[0])))

    transport = ScriptedTransport(limits=limits(20), before=wait)
    process = Process(transport, concurrency=8)

    assert_mirrors(await process.embed(groups), groups, transport)
    assert len(transport.sent) == transport.most_in_flight == 6


async def test_a_contextual_model_sees_each_document_as_one_group() -> None:
    """A text's vector depends on its siblings; equal texts of two documents are two inputs."""
    transport = ScriptedTransport(limits=limits(60), is_contextual=True)
    groups = [["same", "one"], ["same", "two"], ["other"]]
    result = await Process(transport).embed(groups)

    assert groups_of(transport.sent) == [groups]
    assert_mirrors(result, groups, transport)
    assert not np.array_equal(result.groups[0][0], result.groups[1][0])


async def test_equal_texts_of_a_flat_model_are_sent_once() -> None:
    """Within a document and between two."""
    transport = ScriptedTransport()
    groups = [["same", "one", "same"], ["same"], ["two", "one"]]
    result = await Process(transport).embed(groups)

    assert groups_of(transport.sent) == [[["same", "one"], ["two"]]]
    assert_mirrors(result, groups, transport)


async def test_nothing_to_embed_asks_nobody() -> None:
    """No group, no request; a blank text is refused before anything is sent."""
    transport = ScriptedTransport()
    result = await Process(transport).embed([])

    assert (list(result.groups), list(result.windows)) == ([], [])
    with pytest.raises(ValidationError, match=r"queries\[1\]\[0\]"):
        await Process(transport).embed([["a"], [" "]], "query")
    assert transport.sent == []


async def test_the_embedder_is_what_its_transport_is() -> None:
    """Provider, model and width are the transport's, and closing closes it."""
    transport = ScriptedTransport(is_contextual=True, dimensions=5)
    embedder = Process(transport).embedder
    await embedder.close()

    assert (embedder.provider, embedder.model, embedder.dimensions) == ("scripted", "digests-1", 5)
    assert embedder.is_contextual
    assert embedder.max_input_tokens is None
    assert transport.is_closed


def test_one_embedder_serves_one_event_loop_after_another() -> None:
    """Tasks of a flow may have a loop each."""
    transport = ScriptedTransport()
    process = Process(transport)
    for number in range(3):
        asyncio.run(process.embed([[f"text {number}"]]))

    assert len(transport.sent) == 3


# --- storms and faults


async def test_a_storm_of_429_and_500_pays_every_text_once() -> None:
    """Fifty documents at eight requests at a time: each fault costs one request, and no text is paid twice."""
    chances = random.Random(11)
    kinds: list[EmbeddingError | None] = [
        None,
        ThrottledError("429"),
        ThrottledError("429", retry_after_seconds=2),
        EmbeddingUnavailableError("500"),
    ]
    script = [chances.choice(kinds) for _ in range(80)]
    groups = documents(50, texts=3)
    process: Process

    async def wait(_: ProviderRequest) -> None:
        await process.time.sleep(chances.random())

    transport = ScriptedTransport(limits=limits(30), script=script, before=wait)
    process = Process(transport, concurrency=8, attempts=11, deadline=3_600, chance=chances.random)
    result = await process.embed(groups)

    assert_mirrors(result, groups, transport)
    assert transport.paid == Counter(text for group in groups for text in group)
    assert len(transport.sent) == result.usage.requests == 50 + sum(fault is not None for fault in script)
    assert result.usage.tokens == 1_500
    assert transport.most_in_flight <= 8


async def test_faults_are_counted_and_said() -> None:
    """Four attempts, then the provider's own words, and a caller may try again later."""
    transport = ScriptedTransport(script=[EmbeddingUnavailableError("502 from the gateway", cause="html")] * 9)
    with pytest.raises(EmbeddingUnavailableError, match=r"502 from the gateway.*attempt 4 of 4") as caught:
        await Process(transport).embed([["a"]])

    assert len(transport.sent) == 4
    assert caught.value.cause == "html"
    assert caught.value.retryable


async def test_pauses_are_no_faults() -> None:
    """A provider that is busy for minutes is waited for, even where no attempt may fail."""
    transport = ScriptedTransport(script=[ThrottledError("429", retry_after_seconds=20)] * 6)
    process = Process(transport, attempts=1)
    await process.embed([["a"]])

    assert len(transport.sent) == 7
    assert 1_120 <= process.time.seconds <= 1_130


async def test_an_absurd_pause_ends_the_call_at_once() -> None:
    """The error says until when; nothing more is sent, by this call or by the next."""
    transport = ScriptedTransport(limits=limits(20), script=[ThrottledError("429", retry_after_seconds=3_600)])
    process = Process(transport, concurrency=1)
    for _ in range(2):
        with pytest.raises(ThrottledError, match="until 2026-11-30 13:00"):
            await process.embed(documents(5))

    assert len(transport.sent) == 1
    assert process.time.seconds == 1_000


async def test_the_deadline_is_of_the_whole_call() -> None:
    """Requests that are always throttled end with it, not one pause later."""
    transport = ScriptedTransport(script=[ThrottledError("429", retry_after_seconds=7)] * 99)
    process = Process(transport, deadline=60)
    with pytest.raises(EmbeddingUnavailableError):
        await process.embed([["a"]])

    assert 5 <= len(transport.sent) <= 9
    assert process.time.seconds <= 1_060


async def test_a_permanent_error_stops_everything_and_loses_nothing() -> None:
    """Requests under way are awaited and kept, those that wait are never sent, and the error is the provider's."""
    process: Process
    groups = documents(9)

    async def wait(request: ProviderRequest) -> None:
        await process.time.sleep(1 if groups[1][0] in request.groups[0] else 5)

    transport = ScriptedTransport(
        limits=limits(20), script=[None, EmbeddingError("401: the key is not valid"), None], before=wait
    )
    process = Process(transport, concurrency=3)
    with pytest.raises(EmbeddingError, match="401: the key is not valid"):
        await process.embed(groups)

    assert groups_of(transport.sent) == [[group] for group in groups[:3]]
    assert process.time.seconds == 1_005
    await process.embed([groups[0], groups[2]])
    assert len(transport.sent) == 3


async def test_a_permanent_error_is_told_before_one_that_passes() -> None:
    """The caller must not be sent to try again what can never work, whichever was first."""
    process: Process
    groups = documents(2)

    async def wait(request: ProviderRequest) -> None:
        await process.time.sleep(2 if groups[1][0] in request.groups[0] else 1)

    script = [EmbeddingUnavailableError("500"), EmbeddingError("404: no such model")]
    transport = ScriptedTransport(limits=limits(20), script=script, before=wait)
    process = Process(transport, attempts=1)
    with pytest.raises(EmbeddingError, match="404"):
        await process.embed(groups)

    assert len(transport.sent) == 2


async def test_a_fault_after_a_permanent_error_is_not_tried_again() -> None:
    """Nor does the caller wait for a pause before an attempt that will not be made."""
    process: Process
    groups = documents(2)

    async def wait(request: ProviderRequest) -> None:
        await process.time.sleep(2 if groups[1][0] in request.groups[0] else 1)

    script = [EmbeddingError("404: no such model"), EmbeddingUnavailableError("500")]
    transport = ScriptedTransport(limits=limits(20), script=script, before=wait)
    process = Process(transport)
    with pytest.raises(EmbeddingError, match="404"):
        await process.embed(groups)

    assert len(transport.sent) == 2
    assert process.time.seconds == 1_002


async def test_a_wrong_answer_is_not_asked_for_again() -> None:
    """Nine vectors for ten texts: the transport says so, and the same request would fail again."""
    transport = ScriptedTransport(script=[EmbeddingError("The provider returned 9 vectors for 10 texts.")])
    process = Process(transport)
    with pytest.raises(EmbeddingError, match="9 vectors for 10"):
        await process.embed([[f"text {number}" for number in range(10)]])

    assert len(transport.sent) == 1
    assert process.rows == {}


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    """Neither requests under way nor those that wait."""
    process: Process
    both_under_way = asyncio.Event()

    async def wait(_: ProviderRequest) -> None:
        if transport.in_flight == 2:
            both_under_way.set()
        await process.time.sleep(5)

    transport = ScriptedTransport(limits=limits(20), before=wait)
    process = Process(transport, concurrency=2)
    call = asyncio.create_task(process.embedder.embed(documents(9), kind="document"))
    await both_under_way.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert transport.in_flight == 0
    await process.embed([["the limiter's places are free again"] for _ in range(1)])


async def test_a_text_of_an_earlier_wave_is_not_sent_again() -> None:
    """Documents are laid out in waves while others are under way; each text is paid for once, and all are answered."""
    groups = [[f"text {number % 25:02}", f"own {number:03}"] for number in range(90)]
    transport = ScriptedTransport(limits=limits(100, texts=2))
    process = Process(transport, concurrency=1)
    result = await process.embed(groups)
    assert set(transport.paid.values()) == {1}
    assert len(transport.paid) == 90 + 25
    assert_mirrors(result, groups, transport)
