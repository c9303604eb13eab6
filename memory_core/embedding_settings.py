"""The settings of embedding: provider, model, context, limits, prices. A part of `Settings`; read with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, cast

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode

from memory_core.known_models import OPENAI_MODELS, VOYAGE_MODELS, KnownModel

OPENAI_HOST = "https://api.openai.com/v1"
# A key of the one is refused by the other.
VOYAGE_HOSTS: Mapping[str, str] = MappingProxyType(
    {"pa-": "https://api.voyageai.com/v1", "al-": "https://ai.mongodb.com/v1"}
)
_PRICE = re.compile(r"(?P<model>[^=,\s]+)=(?P<usd>\d+(?:\.\d+)?)")


class EmbeddingProvider(StrEnum):
    """Who computes vectors. `fake` is accepted as another name of `hash`."""

    LOCAL = "local"
    HASH = "hash"
    OPENAI = "openai"
    VOYAGE = "voyage"


class ContextPolicy(StrEnum):
    """What goes with a chunk into its embedding input (glossary: context policy)."""

    NATIVE = "native"
    PREFIX = "prefix"
    LLM = "llm"
    NONE = "none"


class VectorEncoding(StrEnum):
    """How vectors travel in an answer of an OpenAI-compatible endpoint."""

    BASE64 = "base64"
    FLOAT = "float"


class EmbeddingSettings(BaseSettings):
    """The fields; `Settings` inherits them and checks them against each other by `embedding_problems`."""

    embedding_provider: Annotated[
        EmbeddingProvider,
        Field(
            alias="EMBEDDING_PROVIDER",
            description="local (a model inside a package, no key), openai (any OpenAI-compatible endpoint), voyage, or "
            "hash (tests; also: fake).",
        ),
    ] = EmbeddingProvider.LOCAL
    embedding_model: Annotated[
        str | None,
        Field(
            alias="EMBEDDING_MODEL",
            description="Model name; unset: the provider's own (openai: text-embedding-3-small; voyage: "
            "voyage-context-3).",
        ),
    ] = None
    embedding_dimensions: Annotated[
        int | None,
        Field(
            alias="EMBEDDING_DIMENSIONS",
            ge=1,
            le=4_096,
            description="Width of a vector; unset: the model's own. Required for a model that is not known here.",
        ),
    ] = None
    embedding_send_dimensions: Annotated[
        bool,
        Field(
            alias="EMBEDDING_SEND_DIMENSIONS",
            description="Ask a model that is not known here for that width (only some can shorten their vectors).",
        ),
    ] = False
    embedding_context: Annotated[
        ContextPolicy | None,
        Field(
            alias="EMBEDDING_CONTEXT",
            description="native (contextual models), prefix, llm or none; unset: native where the model is contextual, "
            "else prefix.",
        ),
    ] = None
    embedding_encoding: Annotated[
        VectorEncoding,
        Field(
            alias="EMBEDDING_ENCODING",
            description="base64 (a quarter of the bytes) or float, for servers that know no other.",
        ),
    ] = VectorEncoding.BASE64
    openai_api_key: Annotated[
        SecretStr | None, Field(alias="OPENAI_API_KEY", description="Key of the OpenAI-compatible endpoint, if any.")
    ] = None
    openai_base_url: Annotated[
        str, Field(alias="OPENAI_BASE_URL", description="Base URL of the OpenAI-compatible endpoint.")
    ] = OPENAI_HOST
    openai_api_version: Annotated[
        str | None,
        Field(
            alias="OPENAI_API_VERSION",
            description="Azure's api-version; set: the key goes in the header api-key, as Azure wants it.",
        ),
    ] = None
    voyage_api_key: Annotated[
        SecretStr | None,
        Field(alias="VOYAGE_API_KEY", description="Voyage key: pa-... or, from MongoDB Atlas, al-...."),
    ] = None
    voyage_api_base_url: Annotated[
        str | None,
        Field(alias="VOYAGE_API_BASE_URL", description="Voyage's base URL; unset: the host that the key belongs to."),
    ] = None
    context_model: Annotated[
        str | None, Field(alias="CONTEXT_MODEL", description="Chat model that writes contexts (EMBEDDING_CONTEXT=llm).")
    ] = None
    context_base_url: Annotated[
        str | None,
        Field(alias="CONTEXT_BASE_URL", description="Base URL of the chat endpoint; unset: OPENAI_BASE_URL."),
    ] = None
    context_api_key: Annotated[
        SecretStr | None,
        Field(
            alias="CONTEXT_API_KEY",
            description="Key of the chat endpoint; unset: OPENAI_API_KEY, if it is on the server of OPENAI_BASE_URL.",
        ),
    ] = None
    context_document_tokens: Annotated[
        int,
        Field(
            alias="CONTEXT_DOCUMENT_TOKENS",
            ge=1_000,
            le=1_000_000,
            description="A longer document is situated by the part around each chunk.",
        ),
    ] = 100_000
    embedding_batch_size: Annotated[
        int | None,
        Field(
            alias="EMBEDDING_BATCH_SIZE", ge=1, le=2_048, description="Documents in a request; unset: as many as fit."
        ),
    ] = None
    embedding_request_texts: Annotated[
        int | None,
        Field(
            alias="EMBEDDING_REQUEST_TEXTS", ge=1, le=16_000, description="Texts in a request; unset: the provider's."
        ),
    ] = None
    embedding_request_tokens: Annotated[
        int | None,
        Field(
            alias="EMBEDDING_REQUEST_TOKENS",
            ge=256,
            le=10_000_000,
            description="Tokens in a request; unset: the provider's.",
        ),
    ] = None
    embedding_text_tokens: Annotated[
        int | None,
        Field(
            alias="EMBEDDING_TEXT_TOKENS",
            ge=64,
            le=1_000_000,
            description="Longest text (or document of a contextual model) in tokens; unset: the model's window.",
        ),
    ] = None
    embedding_concurrency: Annotated[
        int, Field(alias="EMBEDDING_CONCURRENCY", ge=1, le=64, description="Requests to the provider at a time.")
    ] = 4
    embedding_tokens_per_minute: Annotated[
        int | None,
        Field(alias="EMBEDDING_TOKENS_PER_MINUTE", ge=1_000, description="Token budget; unset: no limit of our own."),
    ] = None
    embedding_requests_per_minute: Annotated[
        int | None,
        Field(alias="EMBEDDING_REQUESTS_PER_MINUTE", ge=1, description="Request budget; unset: no limit of our own."),
    ] = None
    embedding_timeout_ms: Annotated[
        int, Field(alias="EMBEDDING_TIMEOUT_MS", ge=1, le=600_000, description="Time limit of one request, in ms.")
    ] = 30_000
    embedding_max_retries: Annotated[
        int, Field(alias="EMBEDDING_MAX_RETRIES", ge=0, le=10, description="Further attempts after a failed request.")
    ] = 3
    embedding_deadline_seconds: Annotated[
        int,
        Field(
            alias="EMBEDDING_DEADLINE_SECONDS",
            ge=1,
            le=3_600,
            description="Time for all attempts and pauses of one batch.",
        ),
    ] = 300
    embedding_cache_days: Annotated[
        int,
        Field(
            alias="EMBEDDING_CACHE_DAYS",
            ge=1,
            le=365,
            description="Days that paid vectors are kept which were not stored.",
        ),
    ] = 7
    embedding_cache_mb: Annotated[
        int, Field(alias="EMBEDDING_CACHE_MB", ge=1, le=1_000_000, description="Size of that cache at most, in MB.")
    ] = 512
    embedding_prices: Annotated[
        Mapping[str, float],
        NoDecode,
        Field(
            alias="EMBEDDING_PRICES",
            description="US dollars for a million input tokens, over the built-in table: model=0.02,other=0.1. "
            "A chat model: also model:output=0.6 and, for what it reads from its cache, model:cached=0.07.",
        ),
    ] = Field(default_factory=dict[str, float], alias="EMBEDDING_PRICES")

    @field_validator("embedding_provider", mode="before")
    @classmethod
    def _fold_provider(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        folded = value.strip().lower()
        if folded not in {"fake", *EmbeddingProvider}:
            raise ValueError("must be local, openai, voyage or hash")
        return "hash" if folded == "fake" else folded

    @field_validator("embedding_context", "embedding_encoding", mode="before")
    @classmethod
    def _fold_choice(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("openai_base_url", "voyage_api_base_url", "context_base_url", mode="after")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")

    @field_validator("embedding_prices", mode="before")
    @classmethod
    def _read_prices(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        prices: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in value.split(","))):
            price = _PRICE.fullmatch(part)
            if price is None:
                raise ValueError("must be model=dollars for a million tokens, separated by commas")
            prices[price["model"]] = float(price["usd"])
        return prices

    @property
    def known_model(self) -> KnownModel | None:
        """What is published of the chosen model of a paid provider, or None."""
        return {EmbeddingProvider.OPENAI: OPENAI_MODELS, EmbeddingProvider.VOYAGE: VOYAGE_MODELS}.get(
            self.embedding_provider, {}
        ).get(self.model_name)

    @property
    def model_name(self) -> str:
        """The chosen model, or the provider's own."""
        return self.embedding_model or _OWN_MODELS[self.embedding_provider]

    @property
    def context_policy(self) -> ContextPolicy:
        """The chosen context policy, or the one that fits the model."""
        known = self.known_model
        return self.embedding_context or (
            ContextPolicy.NATIVE if known is not None and known.is_contextual else ContextPolicy.PREFIX
        )


_OWN_MODELS = {
    EmbeddingProvider.LOCAL: "all-MiniLM-L6-v2-int8",
    EmbeddingProvider.HASH: "word-votes-1",
    EmbeddingProvider.OPENAI: "text-embedding-3-small",
    EmbeddingProvider.VOYAGE: "voyage-context-3",
}
_LOCAL_WIDTH = 384

Rule = tuple[tuple[str, ...], bool, str]


def embedding_rules(settings: EmbeddingSettings) -> list[Rule]:
    """What must hold between these settings: the variables of a rule, whether it is broken, and what to set."""
    return [*_own_model_rules(settings), *_paid_rules(settings), *_context_rules(settings)]


def _own_model_rules(settings: EmbeddingSettings) -> list[Rule]:
    provider = settings.embedding_provider
    own = _OWN_MODELS[provider]
    has_one = provider in {EmbeddingProvider.LOCAL, EmbeddingProvider.HASH}
    return [
        (
            ("EMBEDDING_DIMENSIONS", "EMBEDDING_PROVIDER"),
            provider is EmbeddingProvider.LOCAL and settings.embedding_dimensions not in {None, _LOCAL_WIDTH},
            "EMBEDDING_DIMENSIONS: the local model has 384; unset it or use another EMBEDDING_PROVIDER",
        ),
        (
            ("EMBEDDING_MODEL", "EMBEDDING_PROVIDER"),
            has_one and settings.embedding_model not in {None, own},
            f"EMBEDDING_MODEL: the provider {provider} has one model, {own}; unset it",
        ),
    ]


def _paid_rules(settings: EmbeddingSettings) -> list[Rule]:
    provider, known = settings.embedding_provider, settings.known_model
    is_paid = provider in {EmbeddingProvider.OPENAI, EmbeddingProvider.VOYAGE}
    width = settings.embedding_dimensions
    voyage_key = settings.voyage_api_key.get_secret_value() if settings.voyage_api_key else ""
    return [
        (
            ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EMBEDDING_PROVIDER"),
            provider is EmbeddingProvider.OPENAI
            and settings.openai_api_key is None
            and settings.openai_base_url == OPENAI_HOST,
            "OPENAI_API_KEY: is missing; set it, or OPENAI_BASE_URL to a server that needs none",
        ),
        (
            ("VOYAGE_API_KEY", "EMBEDDING_PROVIDER"),
            provider is EmbeddingProvider.VOYAGE and not voyage_key,
            "VOYAGE_API_KEY: is missing; set it (pa-... from Voyage, al-... from MongoDB Atlas)",
        ),
        (
            ("VOYAGE_API_KEY", "VOYAGE_API_BASE_URL", "EMBEDDING_PROVIDER"),
            provider is EmbeddingProvider.VOYAGE
            and bool(voyage_key)
            and settings.voyage_api_base_url is None
            and not voyage_key.startswith(tuple(VOYAGE_HOSTS)),
            "VOYAGE_API_KEY: begins with neither pa- nor al-; check it, or set VOYAGE_API_BASE_URL to its server",
        ),
        (
            ("EMBEDDING_DIMENSIONS", "EMBEDDING_MODEL", "EMBEDDING_PROVIDER"),
            is_paid and known is None and width is None,
            "EMBEDDING_DIMENSIONS: the chosen EMBEDDING_MODEL is not known here; set the width of its vectors",
        ),
        (
            ("EMBEDDING_DIMENSIONS", "EMBEDDING_MODEL", "EMBEDDING_PROVIDER"),
            known is not None and width is not None and not known.allows(width),
            f"EMBEDDING_DIMENSIONS: {settings.model_name} has {known.widths_text if known else ''}; set one of these",
        ),
    ]


def _context_rules(settings: EmbeddingSettings) -> list[Rule]:
    known, policy = settings.known_model, settings.embedding_context
    shares_server = settings.context_base_url in {None, settings.openai_base_url}
    chat_key = settings.context_api_key or (settings.openai_api_key if shares_server else None)
    chat_host = settings.context_base_url or settings.openai_base_url
    return [
        (
            ("EMBEDDING_CONTEXT", "EMBEDDING_MODEL", "EMBEDDING_PROVIDER"),
            policy is ContextPolicy.NATIVE and not (known is not None and known.is_contextual),
            "EMBEDDING_CONTEXT: native needs a contextual model (voyage-context-4, voyage-context-3); use prefix",
        ),
        (
            ("EMBEDDING_CONTEXT", "CONTEXT_MODEL"),
            policy is ContextPolicy.LLM and settings.context_model is None,
            "CONTEXT_MODEL: is missing; set the chat model that writes contexts (EMBEDDING_CONTEXT=llm)",
        ),
        (
            ("EMBEDDING_CONTEXT", "CONTEXT_API_KEY", "OPENAI_API_KEY", "CONTEXT_BASE_URL", "OPENAI_BASE_URL"),
            policy is ContextPolicy.LLM and chat_key is None and chat_host == OPENAI_HOST,
            "CONTEXT_API_KEY: is missing; set it, or CONTEXT_BASE_URL to a server that needs none",
        ),
    ]


def secrets_of(settings: EmbeddingSettings) -> list[str]:
    """The keys among these settings: they are kept out of every message."""
    keys = cast(
        "tuple[SecretStr | None, ...]", (settings.openai_api_key, settings.voyage_api_key, settings.context_api_key)
    )
    return [key.get_secret_value() for key in keys if key is not None]
