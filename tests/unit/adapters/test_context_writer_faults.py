"""Contexts from a chat model that fails: whose fault it is, the document's, the call's or the settings'."""

from __future__ import annotations

import pytest

from memory_core.errors import EmbeddingError, EmbeddingUnavailableError, ThrottledError, TooManyTokensError
from memory_core.fakes.chat import ChatCall, ScriptedChatModel, tell
from memory_core.fakes.embedding_cache import CacheRow
from memory_core.situate import sample_prompt
from tests.unit.adapters.context_process import Process, about, document, honest_sentences

REFUSED = EmbeddingError("The model answered 400: a filter refused it.")
AWAY = EmbeddingUnavailableError("The model answered 503.")
SAMPLE, _ = sample_prompt()

# --- the document's


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


async def test_who_waits_when_a_document_fails_sends_nothing() -> None:
    """Two chunks are put off by a 429; then one of them goes alone and is refused, and the other is not sent."""
    script = [None, ThrottledError("429"), ThrottledError("429"), REFUSED]
    chat, request = ScriptedChatModel(script=script), document("a")
    (result,) = await Process(chat, concurrency=2).write(request)
    assert result.sentences is None
    assert [about(call, request) for call in chat.calls] == [0, 1, 2, 1, None]


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
async def test_a_prompt_that_is_too_long_is_cut(tells_limits: bool) -> None:
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


async def test_a_provider_that_is_away_is_tried_once_by_each_document() -> None:
    """Behind the first whose attempts were used up, until somebody is answered. What is cached needs no provider."""
    known, rows = document("known"), dict[str, CacheRow]()
    await Process(ScriptedChatModel(), rows).write(known)

    chat = ScriptedChatModel(reply=lambda _: AWAY)
    results = await Process(chat, rows, concurrency=2).write(*(document(f"d{number}") for number in range(20)), known)
    assert [result.sentences is None for result in results] == [True] * 20 + [False]
    reasons = [result.reason or "" for result in results[:20]]
    assert all(reason.startswith("The model answered 503. (attempt ") for reason in reasons)
    # Which of the two that go first uses up its attempts first is for the threads to decide.
    assert any("attempt 3 of 3" in reason for reason in reasons)
    assert 20 < len(chat.calls) <= 2 * 3 + 18


async def test_a_document_that_is_always_failed_takes_no_other_along() -> None:
    """The next one is tried, and answered."""
    bad, good, other = document("bad"), document("good"), document("other")
    script = [*[None] * 5, AWAY]  # the bad one aside: one of the other's
    chat = ScriptedChatModel(reply=lambda call: AWAY if about(call, bad) == 0 else None, script=script)
    results = await Process(chat, concurrency=1).write(bad, good, other)
    assert [result.sentences is None for result in results] == [True, False, False]
    assert results[2].requests == 6


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


# --- the call's, or the settings'


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
    """There is no room for the third request before its deadline."""
    request = document("a", chunks=3, words=800)
    chat = ScriptedChatModel()
    with pytest.raises(EmbeddingUnavailableError, match="EMBEDDING_TOKENS_PER_MINUTE"):
        await Process(chat, tokens_per_minute=1_000, concurrency=2).write(request)
    assert len(chat.answered) == 2


async def test_a_budget_may_take_longer_than_the_deadline() -> None:
    """The deadline is that of a request in its turn, not of a batch of documents with a request for each chunk."""
    chat = ScriptedChatModel()
    process = Process(chat, tokens_per_minute=1_000)
    results = await process.write(*(document(f"d{number}", words=60) for number in range(8)))
    assert all(result.sentences for result in results)
    assert process.time.seconds > 1_000 + 300


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
