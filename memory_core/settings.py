"""Every setting in one frozen class. In: the environment and `.env`. Out: Settings, or ConfigError with all problems.

The only reader of the environment. A blank variable means its default, and blanks around a value are dropped. Defaults
that differ from the original system have their reason in docs/decisions/0005-defaults.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import platformdirs
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import DotEnvSettingsSource, NoDecode, SettingsConfigDict

from memory_core.embedding_settings import EmbeddingSettings, embedding_rules, secrets_of
from memory_core.errors import ConfigError, register_secret, scrub

APP_NAME = "agent-memory"
_DATABASE_NAME = re.compile(r"[^/\\.\s\"$*<>:?|\x00]{1,63}")


class LogLevel(StrEnum):
    """Severity threshold of our own log lines."""

    FATAL = "fatal"
    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"
    TRACE = "trace"
    SILENT = "silent"


def _default_home() -> Path:
    return Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))


class Settings(EmbeddingSettings):
    """What can be set from outside; the field's alias is the variable's name."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        env_file_encoding="utf-8",
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    memory_home: Annotated[
        Path,
        Field(alias="MEMORY_HOME", description="Where this memory keeps its files: databases, indexes, credentials."),
    ] = Field(default_factory=_default_home, alias="MEMORY_HOME")
    memory_roots: Annotated[
        tuple[Path, ...],
        NoDecode,
        Field(
            alias="MEMORY_ROOTS", description="Directories below which Prefect's form may sync; separated like PATH."
        ),
    ] = ()
    memory_mongod: Annotated[
        Path | None,
        Field(
            alias="MEMORY_MONGOD",
            description="The mongod program to start; else PATH, else the packaged one. Not read from .env.",
        ),
    ] = None
    mongod_cache_gb: Annotated[
        float,
        Field(alias="MEMORY_MONGOD_CACHE_GB", ge=0.25, le=64, description="Cache of the MongoDB that we start, in GB."),
    ] = 0.5
    idle_stop_seconds: Annotated[
        int,
        Field(
            alias="MEMORY_IDLE_STOP_SECONDS", ge=1, le=86_400, description="Local services stop after this long unused."
        ),
    ] = 300
    batch_documents: Annotated[
        int, Field(alias="MEMORY_BATCH_DOCUMENTS", ge=1, le=500, description="Documents in a batch of a directory run.")
    ] = 32
    batch_chars: Annotated[
        int,
        Field(
            alias="MEMORY_BATCH_CHARS", ge=1_000, le=5_000_000, description="Characters in a batch of a directory run."
        ),
    ] = 500_000
    versions_kept: Annotated[
        int, Field(alias="MEMORY_VERSIONS_KEPT", ge=1, le=100, description="Newest versions kept of a document's text.")
    ] = 5
    trash_days: Annotated[
        int, Field(alias="MEMORY_TRASH_DAYS", ge=0, le=365, description="Days that deleted content can be restored.")
    ] = 7
    tombstone_days: Annotated[
        int,
        Field(alias="MEMORY_TOMBSTONE_DAYS", ge=7, le=36_500, description="Days that a deletion is remembered."),
    ] = 365
    submission_days: Annotated[
        int,
        Field(alias="MEMORY_SUBMISSION_DAYS", ge=1, le=3_650, description="Days that finished submissions are kept."),
    ] = 7
    failed_submission_days: Annotated[
        int,
        Field(
            alias="MEMORY_FAILED_SUBMISSION_DAYS",
            ge=1,
            le=3_650,
            description="Days that failed and parked submissions are kept.",
        ),
    ] = 30

    mongodb_uri: Annotated[
        SecretStr | None,
        Field(
            alias="MONGODB_URI", description="mongodb:// or mongodb+srv:// address; unset: a local MongoDB is started."
        ),
    ] = None
    mongodb_db_name: Annotated[
        str, Field(alias="MONGODB_DB_NAME", description="Database name, 1 to 63 characters.")
    ] = "memory"
    mongodb_max_pool_size: Annotated[
        int, Field(alias="MONGODB_MAX_POOL_SIZE", ge=1, le=500, description="Connections to MongoDB.")
    ] = 10
    mongodb_server_selection_timeout_ms: Annotated[
        int,
        Field(alias="MONGODB_SERVER_SELECTION_TIMEOUT_MS", ge=1, description="How long to look for MongoDB, in ms."),
    ] = 10_000
    migrate_mongodb_uri: Annotated[
        SecretStr | None,
        Field(
            alias="MIGRATE_MONGODB_URI",
            description="Where the source of `memory migrate --from` is; unset: on the memory's own server.",
        ),
    ] = None

    prefect_api_url: Annotated[
        str | None, Field(alias="PREFECT_API_URL", description="A Prefect server's API; unset: a local one is started.")
    ] = None

    chunk_size_tokens: Annotated[
        int,
        Field(
            alias="CHUNK_SIZE_TOKENS", ge=32, le=8_192, description="Ceiling of a chunk in tokens, overlap included."
        ),
    ] = 400
    chunk_overlap_tokens: Annotated[
        int, Field(alias="CHUNK_OVERLAP_TOKENS", ge=0, le=4_096, description="Tokens that neighbouring chunks share.")
    ] = 0
    chunk_min_tokens: Annotated[
        int,
        Field(
            alias="CHUNK_MIN_TOKENS", ge=1, le=4_096, description="Smaller chunks are merged where that is possible."
        ),
    ] = 32

    search_default_limit: Annotated[
        int,
        Field(alias="SEARCH_DEFAULT_LIMIT", ge=1, le=200, description="Hits of a search that does not say how many."),
    ] = 10
    search_max_limit: Annotated[
        int, Field(alias="SEARCH_MAX_LIMIT", ge=1, le=500, description="Hits of a search at most.")
    ] = 50
    search_hybrid_enabled: Annotated[
        bool, Field(alias="SEARCH_HYBRID_ENABLED", description="The default mode: hybrid, or vector alone.")
    ] = True
    search_vector_weight: Annotated[
        float, Field(alias="SEARCH_VECTOR_WEIGHT", ge=0, le=1, description="Share of the vector leg in a hybrid score.")
    ] = 0.5
    search_language: Annotated[
        str, Field(alias="SEARCH_LANGUAGE", description="Language of stemming and stop words in the text leg.")
    ] = "english"

    log_level: Annotated[
        LogLevel, Field(alias="LOG_LEVEL", description="fatal, error, warn, info, debug, trace, silent.")
    ] = LogLevel.INFO
    log_pretty: Annotated[bool, Field(alias="LOG_PRETTY", description="Log lines for people instead of JSON.")] = False

    @model_validator(mode="before")
    @classmethod
    def _drop_blanks(cls, values: Any) -> Any:  # noqa: ANN401 - whatever the sources gave
        if not isinstance(values, Mapping):
            return values
        given = cast("Mapping[str, object]", values)
        trimmed = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        return {name: value for name, value in trimmed.items() if value != ""}

    @field_validator("memory_home", mode="after")
    @classmethod
    def _resolve_home(cls, value: Path) -> Path:
        # abspath, because resolve() would follow links the user chose
        return Path(os.path.abspath(_expand(value)))  # noqa: PTH100

    @field_validator("memory_mongod", mode="after")
    @classmethod
    def _expand_mongod(cls, value: Path | None) -> Path | None:
        return _expand(value) if value else None

    @field_validator("memory_roots", mode="after")
    @classmethod
    def _expand_roots(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(map(_expand, value))

    @field_validator("memory_roots", mode="before")
    @classmethod
    def _split_roots(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(os.pathsep) if part.strip())

    @field_validator("mongodb_uri", "migrate_mongodb_uri", mode="after")
    @classmethod
    def _check_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value and not value.get_secret_value().startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError("must begin with mongodb:// or mongodb+srv://")
        return value

    @field_validator("mongodb_db_name", mode="after")
    @classmethod
    def _check_database_name(cls, value: str) -> str:
        if not is_database_name(value):
            raise ValueError('must have 1 to 63 characters and none of / \\ . space " $ * < > : ? |')
        return value

    @field_validator("prefect_api_url", mode="after")
    @classmethod
    def _check_api_url(cls, value: str | None) -> str | None:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _fold_level(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @property
    def starts_mongodb(self) -> bool:
        """True when no address is set and this machine runs its own MongoDB."""
        return self.mongodb_uri is None

    @property
    def starts_prefect(self) -> bool:
        """True when no address is set and this machine runs its own Prefect server."""
        return self.prefect_api_url is None

    def redacted_summary(self) -> dict[str, Any]:
        """Every setting by its variable name as plain JSON, secrets as `[secret]`: safe for a log line."""
        return {spec.alias or name: _show(getattr(self, name)) for name, spec in type(self).model_fields.items()}


def is_database_name(name: str) -> bool:
    """True for 1 to 63 characters that every MongoDB takes in the name of a database."""
    return _DATABASE_NAME.fullmatch(name) is not None


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("names the home of a user that this machine does not know; write the path in full") from None


def _show(value: object) -> object:
    if isinstance(value, SecretStr):
        return "[secret]"
    if isinstance(value, tuple):
        return [_show(item) for item in cast("tuple[object, ...]", value)]
    return scrub(str(value)) if isinstance(value, (str, Path)) else value


# A `.env` comes along with any directory that somebody unpacks; it must not choose which program runs.
_NOT_FROM_FILES = ("MEMORY_MONGOD",)

# pydantic-settings takes `_env_file` in its constructor, which its type does not show.
_read: Callable[..., Settings] = Settings


def load_settings(*, env_file: Path | None = None, **overrides: Any) -> Settings:  # noqa: ANN401 - one per variable
    """Read the environment, `env_file` (below it) and overrides by variable name (above it).

    Raises:
        ConfigError: with every problem, each naming its variable; no value is echoed. Or the file cannot be used.
    """
    if env_file:
        _check_file(env_file)
    try:
        settings = _read(_env_file=env_file, **overrides)
        problems = _cross_field_problems(settings, bad=frozenset())
    except ValidationError as error:
        problems = [f"{issue['loc'][0]}: {_plain(issue['msg'])}" for issue in error.errors(include_input=False)]
        bad = frozenset(str(issue["loc"][0]) for issue in error.errors(include_input=False))
        # The rest is checked with the bad ones at their defaults, so that one start lists everything.
        blanked = {name: _default_of(name) for name in bad}
        settings = _read(_env_file=env_file, **{**overrides, **blanked})
        problems += _cross_field_problems(settings, bad=bad)
    if problems:
        listed = "; ".join(problems)
        raise ConfigError(f"The settings cannot work: {listed}. See .env.example for every variable.")
    for secret in secrets_of(settings):
        register_secret(secret)
    for uri in (settings.mongodb_uri, settings.migrate_mongodb_uri):
        if uri:
            register_secret(uri.get_secret_value())
    return settings


def _check_file(env_file: Path) -> None:
    try:
        written = DotEnvSettingsSource(Settings, env_file=env_file).env_vars
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{env_file.absolute()} is not UTF-8 (byte {error.start}). Save it as UTF-8 text.", cause=error
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{env_file.absolute()} cannot be read. Give the user that runs this the right to read it.", cause=error
        ) from None
    for name in _NOT_FROM_FILES:
        if (written.get(name.lower()) or "").strip():
            raise ConfigError(
                f"{name} names a program to run and is not taken from {env_file.absolute()}, which may be somebody "
                f"else's. Take the line out and set it in the environment: export {name}=..."
            )


def _cross_field_problems(settings: Settings, *, bad: frozenset[str]) -> list[str]:
    rules = [
        (
            ("CHUNK_OVERLAP_TOKENS", "CHUNK_SIZE_TOKENS"),
            settings.chunk_overlap_tokens >= settings.chunk_size_tokens,
            f"CHUNK_OVERLAP_TOKENS: must be below CHUNK_SIZE_TOKENS ({settings.chunk_size_tokens})",
        ),
        (
            ("CHUNK_MIN_TOKENS", "CHUNK_SIZE_TOKENS"),
            settings.chunk_min_tokens > settings.chunk_size_tokens,
            f"CHUNK_MIN_TOKENS: must not exceed CHUNK_SIZE_TOKENS ({settings.chunk_size_tokens})",
        ),
        (
            ("SEARCH_DEFAULT_LIMIT", "SEARCH_MAX_LIMIT"),
            settings.search_default_limit > settings.search_max_limit,
            f"SEARCH_DEFAULT_LIMIT: must not exceed SEARCH_MAX_LIMIT ({settings.search_max_limit})",
        ),
        *embedding_rules(settings),
    ]
    return [text for names, broken, text in rules if broken and not bad & set(names)]


def _default_of(variable: str) -> object:
    for spec in Settings.model_fields.values():
        if spec.alias == variable:
            return spec.get_default(call_default_factory=True)
    return None


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").rstrip(".")
