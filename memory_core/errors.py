"""Every failure that is raised on purpose. In: a sentence with its remedy. Out: a scrubbed error.

    AgentMemoryError
    ├── ConfigError            the settings cannot work             config.invalid
    ├── ValidationError        the caller's input is not acceptable input.validation_failed
    ├── NotFoundError          the named thing does not exist       resource.not_found
    ├── ChunkingError          a document could not be chunked      ingest.chunking_failed
    ├── EmbeddingError         the model refused or failed          ingest.embedding_failed
    │   ├── EmbeddingUnavailableError   (retryable)
    │   │   └── ThrottledError          (retryable)
    │   ├── TooManyTokensError          a request is to be cut
    │   └── ProviderRefusedError        whatever is asked: key, quota, model or address is wrong
    ├── StorageError           MongoDB refused or failed            storage.failed
    │   ├── StorageUnavailableError     (retryable)
    │   ├── ConflictError      another writer was first             storage.conflict
    │   ├── TooLargeError      does not fit the server              storage.too_large
    │   └── ForeignDatabaseError        not ours, or of another version
    ├── SearchError            a query could not be answered        search.failed
    │   └── IndexUnavailableError       (retryable)                 index.unavailable
    ├── SyncError              a directory could not be synced      sync.failed
    ├── TimeLimitError         a stage took too long (retryable)    ingest.timed_out
    ├── ServiceError           a local service did not start        service.failed
    └── InternalError          a defect in this program             internal.error

Prefect records messages before any door sees them, so a message is scrubbed when the error is made, and the cause
is kept as scrubbed text instead of as an exception.
"""

from __future__ import annotations

import re
from typing import ClassVar

_CREDENTIALS_IN_URI = re.compile(r"([a-z][a-z0-9+.-]{1,30}://)[^/\s\"']{1,400}@", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(?:sk|pa|al|pk|rk)-[\w-]{12,}")
_MESSAGE_LIMIT_CHARS = 4_000
_WINDOW_CHARS = 64_000
_LONGEST_CREDENTIALS_CHARS = 450  # what the first pattern can match, and a little
_MINIMUM_SECRET_CHARS = 8

_known_secrets: set[str] = set()


def register_secret(value: str | None) -> None:
    """Make `scrub` replace this exact value from now on; values under 8 characters are too common to replace."""
    if value and len(value) >= _MINIMUM_SECRET_CHARS:
        _known_secrets.add(value)


def scrub(text: str) -> str:
    """Return the text without known secrets, credentials in URIs, bearer tokens and key-like words."""
    for secret in sorted(_known_secrets, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    if len(text) > _WINDOW_CHARS:
        # A vendor's megabytes are cut before the slow part, with a seam beyond the limit that may hold half a secret.
        return _scrub_patterns(text[:_WINDOW_CHARS])[:-_LONGEST_CREDENTIALS_CHARS][:_MESSAGE_LIMIT_CHARS] + "…"
    text = _scrub_patterns(text)
    return text if len(text) <= _MESSAGE_LIMIT_CHARS else text[:_MESSAGE_LIMIT_CHARS] + "…"


def _scrub_patterns(text: str) -> str:
    text = _CREDENTIALS_IN_URI.sub(r"\1[secret]@", text)
    text = _BEARER.sub(r"\1 [secret]", text)
    return _KEY_LIKE.sub("[secret]", text)


class AgentMemoryError(Exception):
    """Base of the tree. `retryable` says whether the same call can succeed later without a change by its caller."""

    kind: ClassVar[str] = "internal"
    event: ClassVar[str] = "internal.error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, cause: BaseException | str | None = None) -> None:
        self.message = scrub(message)
        self.cause = None if cause is None else scrub(describe_cause(cause))
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type[AgentMemoryError], tuple[str], dict[str, object]]:
        """Survive pickling: Prefect and process pools rebuild exceptions from their arguments."""
        return (type(self), (self.message,), dict(vars(self)))


def describe_cause(cause: BaseException | str) -> str:
    """Say an exception as one line of text: its class and its message."""
    if isinstance(cause, str):
        return cause
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


class ConfigError(AgentMemoryError):
    """The settings cannot work; the message lists every problem."""

    kind = "config"
    event = "config.invalid"


class ValidationError(AgentMemoryError):
    """The caller's input is not acceptable; nothing was changed. Messages never echo the caller's value."""

    kind = "validation"
    event = "input.validation_failed"


class NotFoundError(AgentMemoryError):
    """The named document, feed or submission does not exist."""

    kind = "not_found"
    event = "resource.not_found"


class ChunkingError(AgentMemoryError):
    """A validated document could not be chunked: an ingestion fault, not the caller's."""

    kind = "chunking"
    event = "ingest.chunking_failed"


class EmbeddingError(AgentMemoryError):
    """The embedding model refused or answered wrongly; the same request would fail again."""

    kind = "embedding"
    event = "ingest.embedding_failed"


class EmbeddingUnavailableError(EmbeddingError):
    """The embedding provider is away or busy; a later attempt can succeed."""

    retryable = True


class ThrottledError(EmbeddingUnavailableError):
    """The provider answered 429; `retry_after_seconds` is how long it asks to wait, None where it does not say."""

    def __init__(
        self, message: str, *, cause: BaseException | str | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, cause=cause)
        self.retry_after_seconds = retry_after_seconds


class TooManyTokensError(EmbeddingError):
    """A request is too big for the provider; `limit` and `sent` are its own numbers, None where it does not say."""

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException | str | None = None,
        limit: int | None = None,
        sent: int | None = None,
    ) -> None:
        super().__init__(message, cause=cause)
        self.limit = limit
        self.sent = sent


class ProviderRefusedError(EmbeddingError):
    """The provider refuses whatever it is asked: its key, quota, model or address is wrong. No text is to blame."""


class StorageError(AgentMemoryError):
    """MongoDB refused the operation."""

    kind = "storage"
    event = "storage.failed"


class StorageUnavailableError(StorageError):
    """MongoDB is away, changing its primary or out of time; a later attempt can succeed."""

    retryable = True


class ConflictError(StorageError):
    """Another writer changed the document first, again and again, or deleted it while it was being stored."""

    event = "storage.conflict"


class TooLargeError(StorageError):
    """The document's rows do not fit what one safe transaction of this server holds."""

    event = "storage.too_large"


class ForeignDatabaseError(StorageError):
    """The database is not ours, or its schema, recipe or fingerprint is another: it is read but not written."""


class SearchError(AgentMemoryError):
    """A query could not be answered."""

    kind = "search"
    event = "search.failed"


class IndexUnavailableError(SearchError):
    """A search index is missing, being built or locked."""

    kind = "index"
    event = "index.unavailable"
    retryable = True


class SyncError(AgentMemoryError):
    """A directory could not be synced; nothing was deleted."""

    kind = "sync"
    event = "sync.failed"


class TimeLimitError(AgentMemoryError):
    """A stage took longer than its time limit; what it had stored is recognised by the next attempt."""

    kind = "timeout"
    event = "ingest.timed_out"
    retryable = True


class ServiceError(AgentMemoryError):
    """A local service (MongoDB, PostgreSQL, Prefect) could not be started or reached."""

    kind = "service"
    event = "service.failed"


class InternalError(AgentMemoryError):
    """A broken promise between two of our own parts: a defect, reported with what was promised."""
