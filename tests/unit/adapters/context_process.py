"""A context writer as one process has it: a scripted chat model, virtual time, and a cache that outlives it."""

from __future__ import annotations

from memory_core.adapters.context_writer import ChatContextWriter
from memory_core.adapters.provider_limiter import ProviderLimiter, RequestPolicy
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.embedding_ports import Situated, SituateRequest
from memory_core.errors import StorageError
from memory_core.fakes.chat import ChatCall, ScriptedChatModel, tell
from memory_core.fakes.embedding_cache import CacheRow
from tests.unit.adapters.broken_cache import BrokenCache
from tests.unit.adapters.virtual_time import VirtualTime


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
