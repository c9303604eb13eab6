"""Documents and their chunks in, a sentence for each chunk out, written by a chat model. What was paid for is kept.

The first request about what is shown of a document goes alone, so that the provider's prompt cache knows it when the
others follow, several at a time as the limiter allows. It logs nothing, and it never asks twice for what was refused.

Which failure is whose:

- of the document (it goes without, with a reason): a refusal for good while the provider serves a harmless prompt, a
  prompt that is too long however little is shown, an answer of no use twice, faults (5xx, time-outs, broken
  connections) that outlast the attempts. Some of these pass; the caller records which documents went without.
- of the call (an error that can be retried): a pause or a budget that outlasts the deadline. It is no fault of any
  request, and all that was written by then is found in the cache by the next attempt.
- of the settings (an error for good): the harmless prompt is refused too. A status code could not say that: a filter
  answers 403 as a wrong key does, and a parameter that the model does not know is a 400 as a filtered document is.
  Nothing is stored with poorer contexts because of a wrong key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from memory_core.adapters.openai_chat import load_chat_model
from memory_core.adapters.provider_limiter import ProviderLimiter, RequestPolicy
from memory_core.embedding_ports import ChatAnswer, ChatModel, EmbeddingCache, Situated, SituateRequest
from memory_core.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    StorageError,
    ThrottledError,
    TooManyTokensError,
)
from memory_core.ports import Clock, TokenCounter
from memory_core.settings import Settings
from memory_core.situate import (
    ANSWER_TOKENS,
    LEAST_SHOWN_TOKENS,
    View,
    clean_answer,
    count_prompt,
    derive_key,
    plan_views,
    sample_prompt,
    shrink,
    write_question,
)

_TRIES_OF_AN_ANSWER = 2


class _GivenUpError(Exception):
    """One document goes without: the provider's faults outlasted the attempts, or its answers are of no use."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    """One request; `tokens` by our own count."""

    shared: str
    question: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The prompts of a document, of each view by the key of its sentence; the keys by place, none for a blank chunk."""

    views: Sequence[View]
    families: Sequence[Mapping[str, _Prompt]]
    keys: Sequence[str]


@dataclass(slots=True, kw_only=True)
class _Call:
    """What one call of `write` knows so far. `fault` ends it; `unsaved` is what the cache did not take yet.

    `places` are for requests that are tried: whoever waits for one has no deadline yet. `is_away`: the attempts of one
    request are used up, and nobody has been answered since.
    """

    places: asyncio.Semaphore
    fault: EmbeddingError | None = None
    is_away: bool = False
    unsaved: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A document on its way. `failure` ends it; what was paid for is counted either way."""

    call: _Call
    sentences: dict[str, str] = field(default_factory=dict[str, str])
    failure: EmbeddingError | _GivenUpError | None = None
    paid: Situated = field(default_factory=lambda: Situated(sentences=None))

    @property
    def is_over(self) -> bool:
        return self.failure is not None or self.call.fault is not None

    def count(self, answer: ChatAnswer) -> None:
        self.call.is_away = False
        self.paid = replace(
            self.paid,
            input_tokens=self.paid.input_tokens + answer.input_tokens,
            cached_tokens=self.paid.cached_tokens + answer.cached_tokens,
            output_tokens=self.paid.output_tokens + answer.output_tokens,
        )


class ChatContextWriter:
    """The port `ContextWriter` over a chat model. One serves all threads of a process, as its limiter does.

    The policy's deadline is that of one request: a document of a thousand chunks may take longer. `on_cache_fault`
    hears of every read or write that the cache failed; the call goes on without it.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        cache: EmbeddingCache,
        counter: TokenCounter,
        limiter: ProviderLimiter,
        policy: RequestPolicy,
        document_tokens: int,
        clock: Callable[[], datetime],
        on_cache_fault: Callable[[StorageError], None],
    ) -> None:
        self._chat = chat
        self._cache = cache
        self._counter = counter
        self._limiter = limiter
        self._policy = policy
        self._document_tokens = document_tokens
        self._clock = clock
        self._on_cache_fault = on_cache_fault

    @property
    def model(self) -> str:
        """The chat model's name."""
        return self._chat.model

    async def write(self, requests: Sequence[SituateRequest]) -> list[Situated]:
        """Write the contexts of some documents; see ContextWriter. Of equal documents only the first is paid for.

        After an error of the call nothing more is sent; what is under way by then is awaited and kept.
        """
        call = _Call(places=asyncio.Semaphore(self._limiter.concurrency))
        written: dict[SituateRequest, Situated] = {}
        queue = iter(dict.fromkeys(requests))

        async def work() -> None:
            for request in queue:
                written[request] = await self._write_document(request, call)
                if call.fault is not None:
                    return

        await self._run_together(work)
        if call.fault is not None:
            raise call.fault
        results: list[Situated] = []
        for request in requests:
            result = written[request]
            results.append(result)
            written[request] = Situated(sentences=result.sentences, reason=result.reason)
        return results

    async def close(self) -> None:
        """Close the chat model."""
        await self._chat.close()

    # --- one document

    async def _write_document(self, request: SituateRequest, call: _Call) -> Situated:
        """Show as much of the document as the model takes, and write all of its sentences or none."""
        draft = _Draft(call=call)
        shown_tokens = self._document_tokens
        while True:
            layout = await asyncio.to_thread(self._lay_out, request, shown_tokens)
            await self._write_layout(layout, draft)
            if not isinstance(draft.failure, TooManyTokensError):
                break
            shown_tokens = shrink(shown_tokens, layout.views, limit=draft.failure.limit)
            if shown_tokens < LEAST_SHOWN_TOKENS:
                break
            draft.failure = None
        reason = await self._explain(draft)
        if reason is not None or call.fault is not None:
            return replace(draft.paid, reason=reason)
        return replace(draft.paid, sentences=tuple(draft.sentences[key] if key else "" for key in layout.keys))

    def _lay_out(self, request: SituateRequest, shown_tokens: int) -> _Layout:
        """Count, cut and hash: the part that keeps a processor busy."""
        views = plan_views(request, document_tokens=shown_tokens, counter=self._counter)
        keys = [""] * len(request.texts)
        families: list[dict[str, _Prompt]] = []
        for view in views:
            family: dict[str, _Prompt] = {}
            for place in view.places:
                text = request.texts[place]
                keys[place] = key = derive_key(self.model, view, text)
                if key not in family:
                    tokens = count_prompt(view, text, counter=self._counter)
                    family[key] = _Prompt(shared=view.shared, question=write_question(view, text), tokens=tokens)
            families.append(family)
        return _Layout(views=views, families=families, keys=keys)

    async def _write_layout(self, layout: _Layout, draft: _Draft) -> None:
        """Take what the cache has, then ask for the rest: of each view one sentence first, then several at a time."""
        draft.sentences = dict(await self._read([key for family in layout.families for key in family]))
        for family in layout.families:
            missing = [item for item in family.items() if item[0] not in draft.sentences]
            await self._write_sentences(iter(missing[:1]), draft)
            await self._run_together(partial(self._write_sentences, iter(missing[1:]), draft))

    async def _write_sentences(self, prompts: Iterator[tuple[str, _Prompt]], draft: _Draft) -> None:
        """One worker of those that share these prompts. Its failure ends the document; the others finish theirs."""
        while not draft.is_over and (item := next(prompts, None)):
            try:
                draft.sentences[item[0]] = await self._write_sentence(*item, draft)
            except (EmbeddingError, _GivenUpError) as error:
                draft.failure = draft.failure or error

    async def _write_sentence(self, key: str, prompt: _Prompt, draft: _Draft) -> str:
        for _ in range(_TRIES_OF_AN_ANSWER):
            answer = await self._ask(prompt, draft)
            if sentence := clean_answer(answer.text, counter=self._counter):
                await self._keep(key, sentence, draft.call)
                return sentence
        raise _GivenUpError(
            f"The chat model {self.model} wrote nothing of use about a chunk, {_TRIES_OF_AN_ANSWER} times. If this "
            "goes on, set CONTEXT_MODEL to another one."
        )

    async def _explain(self, draft: _Draft) -> str | None:
        """Why the document goes without, or None; an error that is not the document's is noted on the call."""
        failure, draft.failure = draft.failure, None
        call = draft.call
        match failure:
            case None:
                return None
            case _GivenUpError():
                return failure.reason
            case EmbeddingUnavailableError():
                call.fault = call.fault or failure
            case EmbeddingError():
                await self._check_service(draft)
        return failure.message

    async def _check_service(self, draft: _Draft) -> None:
        """Ask something harmless: who refuses that as well is wrongly set, and no document is at fault."""
        shared, question = sample_prompt()
        tokens = self._counter.count(shared) + self._counter.count(question) + ANSWER_TOKENS
        try:
            await self._ask(_Prompt(shared=shared, question=question, tokens=tokens), draft)
        except _GivenUpError as error:
            draft.call.fault = draft.call.fault or EmbeddingUnavailableError(error.reason)
        except EmbeddingError as error:
            draft.call.fault = draft.call.fault or error

    # --- one request

    async def _ask(self, prompt: _Prompt, draft: _Draft) -> ChatAnswer:
        """Try a request until it is answered or given up.

        Raises:
            _GivenUpError: the provider's faults outlasted the attempts, or somebody else's failure ended this.
            EmbeddingError: a refusal, or pauses that outlast the deadline.
        """
        async with draft.call.places:
            deadline = self._limiter.deadline_in(self._policy.deadline_seconds)
            faults = 0
            while True:
                answer = await self._attempt(prompt, draft, deadline)
                if isinstance(answer, ChatAnswer):
                    return answer
                if answer is not None:
                    faults += 1
                    await self._back_off(faults, answer, draft.call, deadline)

    async def _back_off(self, faults: int, fault: EmbeddingUnavailableError, call: _Call, deadline: float) -> None:
        """Sleep before the next attempt, if there is one: a provider that is away is tried once by each document."""
        attempts = 1 if call.is_away else self._policy.attempts
        if faults >= attempts:
            call.is_away = True
            raise _GivenUpError(f"{fault.message} (attempt {faults} of {attempts}, EMBEDDING_MAX_RETRIES)")
        try:
            await self._limiter.back_off(faults, deadline=deadline, cause=fault)
        except EmbeddingUnavailableError as error:
            raise _GivenUpError(error.message) from error

    async def _attempt(
        self, prompt: _Prompt, draft: _Draft, deadline: float
    ) -> ChatAnswer | EmbeddingUnavailableError | None:
        """Send a request once, when it is its turn: its answer, a fault that may heal, or None after a 429."""
        async with self._limiter.admit(prompt.tokens, deadline=deadline) as permit:
            if draft.is_over:
                raise _GivenUpError("The document was given up.")
            draft.paid = replace(draft.paid, requests=draft.paid.requests + 1)
            try:
                answer = await self._chat.complete(
                    prompt.shared,
                    prompt.question,
                    max_tokens=ANSWER_TOKENS,
                    timeout_seconds=self._policy.timeout_seconds,
                )
            except ThrottledError as error:
                self._limiter.note_throttle(permit, retry_after_seconds=error.retry_after_seconds)
                return None
            except EmbeddingUnavailableError as error:
                return error
            except EmbeddingError:
                self._limiter.note_answer(permit, tokens=None)
                raise
            self._limiter.note_answer(permit, tokens=answer.input_tokens + answer.output_tokens or None)
        draft.count(answer)
        return answer

    async def _run_together(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """As many workers as requests may be under way. None of them raises, but for a defect."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._limiter.concurrency):
                group.create_task(work())

    # --- the cache

    async def _read(self, keys: Sequence[str]) -> Mapping[str, str]:
        try:
            return await self._cache.read_texts(keys) if keys else {}
        except StorageError as error:
            self._on_cache_fault(error)
            return {}

    async def _keep(self, key: str, sentence: str, call: _Call) -> None:
        """Keep a sentence, and those that an earlier write could not."""
        entries = call.unsaved | {key: sentence}
        call.unsaved = {}
        try:
            await self._cache.write_texts(entries, now=self._clock())
        except StorageError as error:
            call.unsaved |= entries
            self._on_cache_fault(error)


def load_context_writer(
    settings: Settings,
    *,
    cache: EmbeddingCache,
    counter: TokenCounter,
    limiter: ProviderLimiter,
    clock: Clock,
    on_cache_fault: Callable[[StorageError], None],
) -> ChatContextWriter:
    """The writer over the chat model of the settings.

    Raises:
        ConfigError: CONTEXT_MODEL is missing, or its address or key cannot be used.
    """
    return ChatContextWriter(
        load_chat_model(settings, clock=clock),
        cache=cache,
        counter=counter,
        limiter=limiter,
        policy=RequestPolicy(
            attempts=settings.embedding_max_retries + 1,
            timeout_seconds=settings.embedding_timeout_ms / 1_000,
            deadline_seconds=settings.embedding_deadline_seconds,
        ),
        document_tokens=settings.context_document_tokens,
        clock=clock,
        on_cache_fault=on_cache_fault,
    )
