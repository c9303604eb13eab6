"""Contexts written by a scripted chat model, in virtual time: what is asked, and what is kept."""

from __future__ import annotations

import asyncio

import pytest

from memory_core.adapters.context_writer import load_context_writer
from memory_core.adapters.provider_limiter import ProviderLimiter
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.embedding_ports import Situated, SituateRequest
from memory_core.errors import ConfigError
from memory_core.fakes.chat import ChatCall, ScriptedChatModel, tell
from memory_core.fakes.embedding_cache import CacheRow
from memory_core.settings import load_settings
from memory_core.situate import ANSWER_TOKENS
from tests.unit.adapters.context_process import Process, document, honest_sentences

# --- what is asked


async def test_every_chunk_gets_its_sentence_in_order() -> None:
    """One request a chunk, each behind the same prefix, bounded in tokens and time."""
    chat, request = ScriptedChatModel(), document("a")
    process = Process(chat)
    (result,) = await process.write(request)

    assert result.sentences == honest_sentences(chat, request)
    assert len(set(honest_sentences(chat, request))) == 5
    assert len({call.shared for call in chat.calls}) == 1
    assert {(call.max_tokens, call.timeout_seconds) for call in chat.calls} == {(ANSWER_TOKENS, 30)}
    assert process.writer.model == "scripted-chat-1"


async def test_what_was_paid_for_is_counted() -> None:
    """The provider's own numbers."""
    chat, request = ScriptedChatModel(), document("a")
    (result,) = await Process(chat).write(request)

    prefix = len(chat.calls[0].shared.split())
    assert result.requests == 5
    assert result.input_tokens == sum(len(f"{call.shared} {call.question}".split()) for call in chat.calls)
    assert result.cached_tokens == 4 * prefix
    assert result.output_tokens == 5 * 3


async def test_the_first_request_of_a_document_goes_alone() -> None:
    """The others find the provider's cache warm, and go together."""
    process: Process
    under_way: list[int] = []

    async def wait(call: ChatCall) -> None:
        del call
        under_way.append(chat.in_flight)
        await process.time.sleep(1)

    chat = ScriptedChatModel(before=wait)
    process = Process(chat)
    (result,) = await process.write(document("a", chunks=9))

    assert under_way[0] == 1
    assert under_way[1:5] == [1, 2, 3, 4]
    assert chat.most_in_flight == 4
    assert process.time.seconds == 1_003
    assert result.cached_tokens == 8 * len(chat.calls[0].shared.split())


async def test_each_part_of_a_long_document_is_warmed_up_first() -> None:
    """A part is a prefix of its own."""
    process: Process
    alone: list[str] = []

    async def wait(call: ChatCall) -> None:
        if chat.in_flight == 1:
            alone.append(call.shared)
        await process.time.sleep(1)

    chat = ScriptedChatModel(before=wait)
    process = Process(chat, document_tokens=1_000)
    (result,) = await process.write(document("a", chunks=40, words=30))

    prefixes = list(dict.fromkeys(call.shared for call in chat.calls))
    assert 3 < len(prefixes) < 20
    assert alone[0] == prefixes[0]
    assert set(alone) == set(prefixes)
    assert result.cached_tokens == sum(
        len(call.shared.split())
        for call in chat.calls
        if call.shared in [c.shared for c in chat.calls[: chat.calls.index(call)]]
    )


async def test_equal_chunks_and_equal_documents_are_asked_about_once() -> None:
    """The sentence is the same; it is counted with the first of them."""
    chat = ScriptedChatModel()
    request = SituateRequest(content="one\n\ntwo\n\none", texts=("one", "two", "one"))
    first, second = await Process(chat).write(request, request)

    assert len(chat.calls) == 2
    assert first.sentences is not None
    assert first.sentences[0] == first.sentences[2] != first.sentences[1]
    assert second == Situated(sentences=first.sentences)


async def test_a_blank_chunk_has_an_empty_sentence() -> None:
    """Nothing is asked about it; a document of such chunks asks nobody."""
    chat = ScriptedChatModel()
    some, none = await Process(chat).write(
        SituateRequest(content="one\n\n\n", texts=("one", "\n")), SituateRequest(content="\n", texts=("\n", ""))
    )
    assert some.sentences == (tell(chat.calls[0]), "")
    assert none == Situated(sentences=("", ""))
    assert len(chat.calls) == 1
    assert await Process(chat).write() == []


async def test_answers_are_cleaned_before_they_are_kept() -> None:
    """One line, bounded."""
    chat = ScriptedChatModel(script=["Here is the context:\n\n" + "Of part\none. " * 500])
    process = Process(chat)
    (result,) = await process.write(document("a", chunks=1))
    assert result.sentences is not None
    assert result.sentences[0].startswith("Of part one. Of part one.")
    assert len(result.sentences[0]) < 1_000
    assert [row.kept for row in process.rows.values()] == [*result.sentences]


# --- the cache


async def test_a_sentence_is_paid_for_once() -> None:
    """Another process finds it, also when the batch holds other documents too."""
    chat, rows, old, new = ScriptedChatModel(), dict[str, CacheRow](), document("old"), document("new")
    (first,) = await Process(chat, rows).write(old)
    again, other = await Process(chat, rows).write(old, new)

    assert again == Situated(sentences=first.sentences)
    assert other.requests == 5
    assert len(chat.calls) == 10


async def test_a_cache_that_is_away_costs_money_only() -> None:
    """Each fault is told; what could not be kept is kept with the next sentence."""
    chat, request = ScriptedChatModel(), document("a")
    process = Process(chat)
    process.cache.faults = 3
    (result,) = await process.write(request)

    assert result.sentences == honest_sentences(chat, request)
    assert len(process.faults) == 3
    assert len(process.rows) == 5


# --- the writer


async def test_a_caller_that_gives_up_leaves_the_writer_whole() -> None:
    """The next call is served."""
    process: Process
    begun = asyncio.Event()

    async def wait(call: ChatCall) -> None:
        del call
        begun.set()
        await process.time.sleep(5)

    chat = ScriptedChatModel(before=wait)
    process = Process(chat, concurrency=1)
    call = asyncio.create_task(process.writer.write([document("a")]))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert chat.in_flight == 0
    (result,) = await process.write(document("b", chunks=2))
    assert result.sentences


def test_one_writer_serves_one_event_loop_after_another() -> None:
    """Tasks of a flow may have a loop each."""
    process = Process(ScriptedChatModel())
    for number in range(3):
        (result,) = asyncio.run(process.write(document(f"d{number}")))
        assert result.sentences


async def test_closing_the_writer_closes_its_model() -> None:
    """It may be closed twice."""
    chat = ScriptedChatModel()
    writer = Process(chat).writer
    await writer.close()
    await writer.close()
    assert chat.is_closed


def test_a_writer_needs_a_chat_model() -> None:
    """There is no default."""
    process = Process(ScriptedChatModel())
    with pytest.raises(ConfigError, match="CONTEXT_MODEL"):
        load_context_writer(
            load_settings(),
            cache=process.cache,
            counter=load_tiktoken_counter(),
            limiter=ProviderLimiter(concurrency=1, timing=process.time.timing()),
            clock=process.time.clock,
            on_cache_fault=process.faults.append,
        )
