"""Contexts written by a scripted chat model, in virtual time: what is asked, what is kept, and whose fault a failure is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

import pytest

from memory_core.adapters.context_writer import ChatContextWriter, load_context_writer
from memory_core.adapters.provider_embedder import RequestPolicy
from memory_core.adapters.provider_limiter import ProviderLimiter
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.embedding_ports import Situated, SituateRequest
from memory_core.errors import (
    ConfigError,
    EmbeddingError,
    EmbeddingUnavailableError,
    StorageError,
    StorageUnavailableError,
    ThrottledError,
    TooManyTokensError,
)
from memory_core.fakes.chat import ChatCall, ScriptedChatModel, tell
from memory_core.fakes.embedding_cache import CacheRow, FakeEmbeddingCache
from memory_core.settings import load_settings
from memory_core.situate import ANSWER_TOKENS, sample_prompt
from tests.unit.adapters.virtual_time import VirtualTime

REFUSED = EmbeddingError("The model answered 400: a filter refused it.")
AWAY = EmbeddingUnavailableError("The model answered 503.")
SAMPLE, _ = sample_prompt()


class BrokenCache(FakeEmbeddingCache):
    """A cache whose server is away for so many calls."""

    faults = 0

    async def read_texts(self, keys: Sequence[str]) -> Mapping[str, str]:
        """What is kept, or the fault."""
        self._fail()
        return await super().read_texts(keys)

    async def write_texts(self, entries: Mapping[str, str], *, now: datetime) -> None:
        """Keep it, or the fault."""
        self._fail()
        await super().write_texts(entries, now=now)

    def _fail(self) -> None:
        if self.faults:
            self.faults -= 1
            raise StorageUnavailableError("The scripted server is away.")


class Process:
    """A writer with its own limiter, over a chat model and the rows of a cache that outlive it."""

    def __init__(
        self,
        chat: ScriptedChatModel,
        rows: dict[str, CacheRow] | None = None,
        *,
        concurrency: int = 4,
        attempts: int = 3,
        document_tokens: int = 100_000,
        tokens_per_minute: int | None = None,
    ) -> None:
        self.time = VirtualTime()
        self.rows: dict[str, CacheRow] = {} if rows is None else rows
        self.cache = BrokenCache(self.rows, days=7, max_bytes=10_000_000)
        self.faults: list[StorageError] = []
        self.writer = ChatContextWriter(
            chat,
            cache=self.cache,
            counter=load_tiktoken_counter(),
            limiter=ProviderLimiter(
                concurrency=concurrency, timing=self.time.timing(), tokens_per_minute=tokens_per_minute
            ),
            policy=RequestPolicy(attempts=attempts, timeout_seconds=30, deadline_seconds=300),
            document_tokens=document_tokens,
            clock=self.time.clock,
            on_cache_fault=self.faults.append,
        )

    async def write(self, *requests: SituateRequest) -> list[Situated]:
        """One call, while time passes."""
        async with self.time.passing():
            return await self.writer.write(requests)


def document(name: str, chunks: int = 5, words: int = 6) -> SituateRequest:
    """A document whose chunks all differ."""
    texts = tuple(f"{name} says " + " ".join(f"{place}x{word}" for word in range(words)) for place in range(chunks))
    return SituateRequest(content="\n\n".join(texts), texts=texts)


def about(call: ChatCall, request: SituateRequest) -> int | None:
    """Which chunk of the document a call asks about; None: it is about another document."""
    found = [place for place, text in enumerate(request.texts) if f"\n{text}\n" in call.question]
    return found[0] if found else None


def honest_sentences(chat: ScriptedChatModel, request: SituateRequest) -> tuple[str, ...]:
    """What the model told about each chunk, by the calls that it remembers."""
    told = {about(call, request): tell(call) for call in chat.answered}
    return tuple(told[place] for place in range(len(request.texts)))


# --- what is asked


async def test_every_chunk_gets_its_sentence_in_order() -> None:
    """One request a chunk, each behind the same prefix, bounded in tokens and time."""
    chat, request = ScriptedChatModel(), document("a")
    process = Process(chat)
    (result,) = await process.write(request)

    assert result.sentences == honest_sentences(chat, request)
    assert len(set(result.sentences)) == 5
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


# --- whose fault it is: the document's


async def test_a_refused_document_goes_without_and_the_others_do_not() -> None:
    """A filter refuses one chunk: its document has a reason and no sentence; the refusal is not asked for again."""
    good, bad = document("good"), document("bad")
    chat = ScriptedChatModel(reply=lambda call: REFUSED if about(call, bad) == 2 else None)
    process = Process(chat)
    first, second = await process.write(bad, good)

    assert first.sentences is None
    assert first.reason == REFUSED.message
    assert second.sentences == honest_sentences(chat, good)
    assert second.reason is None
    assert [about(call, bad) for call in chat.calls].count(2) == 1
    assert first.requests == len([call for call in chat.calls if about(call, good) is None])
    assert first.output_tokens > 0


async def test_what_is_under_way_when_a_document_fails_is_kept() -> None:
    """It is paid for; nothing more is sent after it."""
    process: Process
    request = document("a", chunks=12)

    async def wait(call: ChatCall) -> None:
        await process.time.sleep(1 if about(call, request) == 1 else 5)

    chat = ScriptedChatModel(reply=lambda call: REFUSED if about(call, request) == 1 else None, before=wait)
    process = Process(chat)
    (result,) = await process.write(request)

    assert result.sentences is None
    assert [about(call, request) for call in chat.calls] == [0, 1, 2, 3, 4, None]
    assert len(process.rows) == 4


async def test_an_answer_of_no_use_is_asked_for_once_more() -> None:
    """The second may be better; if it is not, the document goes without."""
    chat, request = ScriptedChatModel(script=["..."]), document("a", chunks=1)
    (result,) = await Process(chat).write(request)
    assert result.sentences == (tell(chat.calls[-1]),)
    assert result.requests == 2

    chat = ScriptedChatModel(script=["...", "I'm sorry, I cannot help."])
    process = Process(chat)
    (result,) = await process.write(request)
    assert result.sentences is None
    assert "wrote nothing of use" in str(result.reason)
    assert "CONTEXT_MODEL" in str(result.reason)
    assert (len(chat.calls), process.rows) == (2, {})


@pytest.mark.parametrize("tells_limits", [True, False])
async def test_a_prompt_that_is_too_long_is_cut(tells_limits: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """Half of it is shown, and half of that; no prompt is sent twice, and the sentences are those of the last cut."""
    chat = ScriptedChatModel(window_tokens=700)
    chat.tells_limits = tells_limits
    request = document("a", chunks=40, words=30)
    (result,) = await Process(chat).write(request)

    assert result.sentences == honest_sentences(chat, request)
    assert len(chat.calls) == len({(call.shared, call.question) for call in chat.calls})
    refused = len(chat.calls) - len(chat.answered)
    assert refused == result.requests - 40
    assert refused in ({1, 2} if tells_limits else {2, 3})


async def test_a_prompt_that_stays_too_long_leaves_its_document_without() -> None:
    """However little is shown; the provider takes other prompts."""
    chat = ScriptedChatModel(
        reply=lambda call: None if call.shared == SAMPLE else TooManyTokensError("The window is smaller than that.")
    )
    (result,) = await Process(chat).write(document("a", chunks=40, words=30))
    assert result.sentences is None
    assert result.reason == "The window is smaller than that."
    assert [call.shared == SAMPLE for call in chat.calls] == [False] * (len(chat.calls) - 1) + [True]
    assert len(chat.calls) < 8


async def test_faults_that_outlast_the_attempts_leave_a_document_without() -> None:
    """So a chat model that is away for long stops nobody from storing; the reason says how often it was tried."""
    bad, good = document("bad"), document("good")
    chat = ScriptedChatModel(reply=lambda call: AWAY if about(call, bad) == 0 else None)
    process = Process(chat)
    first, second = await process.write(bad, good)
    assert first.sentences is None
    assert first.reason == "The model answered 503. (attempt 3 of 3, EMBEDDING_MAX_RETRIES)"
    assert first.requests == 3
    assert second.sentences == honest_sentences(chat, good)


async def test_a_provider_that_is_away_is_not_tried_for_every_document() -> None:
    """Once the attempts of one are over and nobody was answered, those not begun go without; cached ones do not."""
    known, rows = document("known"), dict[str, CacheRow]()
    await Process(ScriptedChatModel(), rows).write(known)

    chat = ScriptedChatModel(reply=lambda _: AWAY)
    results = await Process(chat, rows, concurrency=2).write(*(document(f"d{number}") for number in range(20)), known)
    assert [result.sentences is None for result in results] == [True] * 20 + [False]
    assert {result.reason for result in results[:20]} == {
        "The model answered 503. (attempt 3 of 3, EMBEDDING_MAX_RETRIES)"
    }
    assert len(chat.calls) <= 3 * 2


async def test_a_fault_that_passes_is_nobodys() -> None:
    """5xx and 429 in any order: every sentence is paid for once."""
    script = [None, AWAY, ThrottledError("429"), AWAY, None, ThrottledError("429", retry_after_seconds=7), None]
    chat = ScriptedChatModel(script=script)
    requests = [document(f"d{number}") for number in range(4)]
    results = await Process(chat).write(*requests)
    for request, result in zip(requests, results, strict=True):
        assert result.sentences == honest_sentences(chat, request)
    assert len(chat.answered) == 20
    assert sum(result.requests for result in results) == len(chat.calls) == 24


# --- whose fault it is: the call's, or the settings'


async def test_a_pause_beyond_the_deadline_ends_the_call() -> None:
    """It is no document's fault. The next attempt finds what was written."""
    rows: dict[str, CacheRow] = {}
    requests = [document(f"d{number}") for number in range(6)]
    chat = ScriptedChatModel(script=[*[None] * 9, ThrottledError("429", retry_after_seconds=1_000)])
    with pytest.raises(ThrottledError, match="longer than the time"):
        await Process(chat, rows).write(*requests)
    assert len(rows) == len(chat.answered) < 15

    later = ScriptedChatModel()
    results = await Process(later, rows).write(*requests)
    assert all(result.sentences for result in results)
    assert len(later.answered) == 30 - len(chat.answered)


async def test_a_budget_that_is_too_small_ends_the_call() -> None:
    """There is no room for the next request before the deadline; documents of many requests have one each."""
    request = document("a", chunks=3, words=800)
    chat = ScriptedChatModel()
    with pytest.raises(EmbeddingUnavailableError, match="EMBEDDING_TOKENS_PER_MINUTE"):
        await Process(chat, tokens_per_minute=1_000, concurrency=2).write(request)
    assert len(chat.answered) == 1


async def test_wrong_settings_end_the_call() -> None:
    """A wrong key is no document's fault: whoever refuses a harmless prompt too refuses everything."""
    denied = EmbeddingError("The model answered 401. Check CONTEXT_API_KEY.")
    chat = ScriptedChatModel(reply=lambda _: denied)
    with pytest.raises(EmbeddingError, match="CONTEXT_API_KEY") as caught:
        await Process(chat).write(*(document(f"d{number}") for number in range(20)))
    assert not caught.value.retryable
    assert len(chat.calls) <= 2 * 4


async def test_a_key_that_is_revoked_midway_ends_the_call() -> None:
    """What had been answered is kept, and no document is taken for a refused one."""
    denied = EmbeddingError("The model answered 402. Add credit.")
    chat = ScriptedChatModel(reply=lambda _: denied if len(chat.calls) > 7 else None)
    process = Process(chat, concurrency=2)
    with pytest.raises(EmbeddingError, match="402"):
        await process.write(*(document(f"d{number}") for number in range(4)))
    assert len(process.rows) == len(chat.answered) == 7


async def test_a_provider_that_goes_away_behind_a_refusal_is_asked_again_later() -> None:
    """Whether the document or the settings were refused is not known."""
    chat = ScriptedChatModel(reply=lambda call: AWAY if call.shared == SAMPLE else REFUSED)
    with pytest.raises(EmbeddingUnavailableError, match="503"):
        await Process(chat).write(document("a"))


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
