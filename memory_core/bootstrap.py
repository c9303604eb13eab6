"""The composition root. In: settings and an address. Out: a wired Core, and the one that this process shares."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import assert_never

import structlog

from memory_core.adapters.embedded_search import EmbeddedSearchIndex
from memory_core.adapters.hash_embedder import HashEmbedder
from memory_core.adapters.local_embedder import load_local_embedder
from memory_core.adapters.local_files import LocalFiles
from memory_core.adapters.local_process import is_alive, name_this_process
from memory_core.adapters.mongo_connection import connect
from memory_core.adapters.mongo_embedding_cache import MongoEmbeddingCache
from memory_core.adapters.mongo_feeds import MongoFeedStore
from memory_core.adapters.mongo_foreign import open_foreign
from memory_core.adapters.mongo_store import MongoStore
from memory_core.adapters.mongo_submissions import MongoSubmissionStore
from memory_core.adapters.mongo_sweeps import Retention
from memory_core.adapters.provider_embedder import ProviderEmbedder
from memory_core.adapters.provider_limiter import ProviderLimiter, RequestPolicy, Timing
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import describe_default_recipe
from memory_core.context import name_policy
from memory_core.embed import fingerprint_of
from memory_core.embedding_ports import ContextWriter, EmbeddingCache, EmbeddingTransport
from memory_core.embedding_settings import ContextPolicy, EmbeddingProvider
from memory_core.errors import ConfigError, StorageError
from memory_core.migrate_ports import ForeignMemory
from memory_core.ports import Core, Embedder, Progress, ignore_progress
from memory_core.rules import default_options
from memory_core.settings import Settings, load_settings

_DEFAULT_HASH_DIMENSIONS = 384
_ID_BYTES = 12  # as MongoDB's own ids

_BYTES_PER_MB = 1_000_000

_log = structlog.get_logger(__name__)
_shared: list[Core] = []


def build_core(
    settings: Settings, *, mongodb_uri: str, on_progress: Callable[[Progress], None] = ignore_progress
) -> Core:
    """Wire every part. Nothing is sent and no model is loaded before its first use."""
    connection = connect(
        mongodb_uri,
        settings.mongodb_db_name,
        max_pool_size=settings.mongodb_max_pool_size,
        server_selection_timeout_ms=settings.mongodb_server_selection_timeout_ms,
    )
    holder = name_this_process()
    store = MongoStore(
        connection,
        versions_kept=settings.versions_kept,
        trash_days=settings.trash_days,
        holder=holder,
        is_alive=is_alive,
        retention=Retention(
            submission_days=settings.submission_days,
            failed_submission_days=settings.failed_submission_days,
            tombstone_days=settings.tombstone_days,
        ),
    )
    cache = MongoEmbeddingCache(
        connection, days=settings.embedding_cache_days, max_bytes=settings.embedding_cache_mb * _BYTES_PER_MB
    )
    embedder = _choose_embedder(settings, cache)
    writer = _build_context_writer(settings, cache)
    counter = load_tiktoken_counter()
    index = EmbeddedSearchIndex(
        settings.memory_home / "search",
        store,
        dimensions=embedder.dimensions,
        language=settings.search_language,
    )

    async def close() -> None:
        await index.close()
        await embedder.close()
        if writer is not None:
            await writer.close()
        await store.close()

    return Core(
        settings=settings,
        store=store,
        feeds=MongoFeedStore(connection),
        submissions=MongoSubmissionStore(connection),
        index=index,
        embedder=embedder,
        counter=counter,
        files=LocalFiles(memory_home=settings.memory_home),
        fingerprint=fingerprint_of(embedder, name_policy(settings.context_policy, settings.context_model)),
        recipe=describe_default_recipe(default_options(settings), counter.name),
        holder=holder,
        clock=read_clock,
        new_id=make_id,
        is_alive=is_alive,
        close=close,
        context_writer=writer,
        on_progress=on_progress,
    )


def _choose_embedder(settings: Settings, cache: EmbeddingCache) -> Embedder:
    match settings.embedding_provider:
        case EmbeddingProvider.LOCAL:
            return load_local_embedder()
        case EmbeddingProvider.HASH:
            return HashEmbedder(settings.embedding_dimensions or _DEFAULT_HASH_DIMENSIONS)
        # The SDK of the paid providers takes half a second to import, which no other command should pay.
        case EmbeddingProvider.OPENAI:
            from memory_core.adapters.openai_transport import load_openai_transport  # noqa: PLC0415 - as said above

            return _build_paid_embedder(load_openai_transport(settings, clock=read_clock), settings, cache)
        case EmbeddingProvider.VOYAGE:
            from memory_core.adapters.voyage_transport import load_voyage_transport  # noqa: PLC0415 - as said above

            return _build_paid_embedder(load_voyage_transport(settings, clock=read_clock), settings, cache)
        case _:
            assert_never(settings.embedding_provider)


def _build_paid_embedder(transport: EmbeddingTransport, settings: Settings, cache: EmbeddingCache) -> ProviderEmbedder:
    return ProviderEmbedder(
        transport,
        cache=cache,
        counter=load_tiktoken_counter(),
        limiter=_build_limiter(settings),
        policy=RequestPolicy(
            attempts=settings.embedding_max_retries + 1,
            timeout_seconds=settings.embedding_timeout_ms / 1_000,
            deadline_seconds=settings.embedding_deadline_seconds,
        ),
        clock=read_clock,
        on_cache_fault=_tell_cache_fault,
    )


def _build_context_writer(settings: Settings, cache: EmbeddingCache) -> ContextWriter | None:
    """Its limiter is its own: the chat model may be another account, with other budgets."""
    if settings.context_policy is not ContextPolicy.LLM:
        return None
    from memory_core.adapters.context_writer import load_context_writer  # noqa: PLC0415 - the SDK, as for paid providers

    return load_context_writer(
        settings,
        cache=cache,
        counter=load_tiktoken_counter(),
        limiter=_build_limiter(settings),
        clock=read_clock,
        on_cache_fault=_tell_cache_fault,
    )


def _build_limiter(settings: Settings) -> ProviderLimiter:
    return ProviderLimiter(
        concurrency=settings.embedding_concurrency,
        timing=Timing(now=time.monotonic, sleep=asyncio.sleep, random=random.random, clock=read_clock),
        tokens_per_minute=settings.embedding_tokens_per_minute,
        requests_per_minute=settings.embedding_requests_per_minute,
    )


def _tell_cache_fault(error: StorageError) -> None:
    """A run goes on without the cache; what it then pays for twice must have a reason in the log."""
    _log.warning("embedding_cache.failed", error=error.message)


def open_foreign_memory(settings: Settings, *, database: str, mongodb_uri: str) -> ForeignMemory:
    """The source of a migration: on the server of MIGRATE_MONGODB_URI, else in `mongodb_uri`, the memory's own.

    Raises:
        ConfigError: the address cannot be understood.
    """
    other = settings.migrate_mongodb_uri
    return open_foreign(
        other.get_secret_value() if other else mongodb_uri,
        database,
        variable="MIGRATE_MONGODB_URI" if other else "MONGODB_URI",
        server_selection_timeout_ms=settings.mongodb_server_selection_timeout_ms,
    )


def share_core(core: Core) -> None:
    """Make this the core that tasks of this process find; it replaces an earlier one, which its owner closes."""
    _shared[:] = [core]


def current_core() -> Core:
    """The process's core. A worker that nobody prepared builds one from its environment.

    Raises:
        ConfigError: there is none and MONGODB_URI is not set.
    """
    if not _shared:
        settings = load_settings()
        if settings.mongodb_uri is None:
            raise ConfigError("This process does not know a MongoDB. Set MONGODB_URI in the worker's environment.")
        share_core(build_core(settings, mongodb_uri=settings.mongodb_uri.get_secret_value()))
    return _shared[0]


def read_clock() -> datetime:
    """Now in UTC, in whole milliseconds as MongoDB keeps it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def make_id() -> str:
    """A new id of 24 hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)
