"""A chat model in memory, that fails to a script. In: prompts. Out: a sentence that tells what it was asked, or errors.

It counts a word as a token, and what an earlier prompt began with as read from its cache.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from memory_core.embedding_ports import ChatAnswer
from memory_core.errors import EmbeddingError, TooManyTokensError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """One call as the model saw it."""

    shared: str
    question: str
    max_tokens: int
    timeout_seconds: float


class ScriptedChatModel:
    """A ChatModel; `script` has one entry a call, an error, an answer or None, and ends in honest answers.

    `reply` is asked with each call before the script is, and decides in the same way. `before` is awaited inside each
    call. `calls` remembers every call, `answered` those that were paid for. A longer prompt than `window_tokens` is
    refused, with its numbers if `tells_limits`.
    """

    def __init__(
        self,
        *,
        script: Sequence[EmbeddingError | str | None] = (),
        reply: Callable[[ChatCall], EmbeddingError | str | None] = lambda _: None,
        before: Callable[[ChatCall], Awaitable[None]] | None = None,
        window_tokens: int | None = None,
    ) -> None:
        self._script = list(script)
        self._reply = reply
        self._before = before
        self._window_tokens = window_tokens
        self.tells_limits = True
        self.calls: list[ChatCall] = []
        self.answered: list[ChatCall] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.is_closed = False

    @property
    def model(self) -> str:
        """The model's name."""
        return "scripted-chat-1"

    async def complete(self, shared: str, question: str, *, max_tokens: int, timeout_seconds: float) -> ChatAnswer:
        """Remember the call, then answer as script, `reply` and window say."""
        call = ChatCall(shared=shared, question=question, max_tokens=max_tokens, timeout_seconds=timeout_seconds)
        self.calls.append(call)
        decided = self._reply(call)
        if decided is None and self._script:
            decided = self._script.pop(0)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self._before(call) if self._before else asyncio.sleep(0))
        finally:
            self.in_flight -= 1
        if isinstance(decided, EmbeddingError):
            raise decided
        tokens = self._check_window(call)
        known = any(earlier.shared == shared for earlier in self.answered)
        self.answered.append(call)
        text = tell(call) if decided is None else decided
        return ChatAnswer(
            text=text,
            input_tokens=tokens,
            cached_tokens=len(shared.split()) if known else 0,
            output_tokens=len(text.split()),
        )

    async def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True

    def _check_window(self, call: ChatCall) -> int:
        tokens = len(call.shared.split()) + len(call.question.split())
        limit = self._window_tokens
        if limit is not None and tokens > limit:
            told = (limit, tokens) if self.tells_limits else (None, None)
            raise TooManyTokensError("The scripted model refused so many tokens.", limit=told[0], sent=told[1])
        return tokens


def tell(call: ChatCall) -> str:
    """The honest answer to a call: equal for equal prompts alone."""
    return f"Situated by {hashlib.sha256(f'{call.shared}{call.question}'.encode()).hexdigest()[:12]}."
