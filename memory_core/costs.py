"""Tokens and requests in; what they cost, and whether a run may cost it, out. Pure; asks nobody and writes nothing.

Prices are US dollars for a million tokens: what EMBEDDING_PRICES says, else what is published of a model
(known_models). A chat model has the prices `model` (input), `model:output` and, where it is another, `model:cached`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from memory_core.embedding_settings import ContextPolicy, EmbeddingProvider, EmbeddingSettings
from memory_core.errors import ValidationError
from memory_core.situate import SituateUsage

_TOKENS_A_PRICE: Final = 1_000_000
_LEAST_SHOWN_USD: Final = 0.0001
_WHOLE_CENTS_FROM_USD: Final = 10.0
_OWN_MODELS: Final = frozenset({EmbeddingProvider.LOCAL, EmbeddingProvider.HASH})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCost:
    """What a chat model is asked to write, and its prices for a million tokens; None: not known."""

    model: str
    usage: SituateUsage
    input_price: float | None
    cached_price: float | None
    output_price: float | None

    @property
    def usd(self) -> float | None:
        """US dollars; None where a price that counts is not known."""
        usage = self.usage
        return _add(
            (
                _multiply(usage.input_tokens - usage.cached_tokens, self.input_price),
                _multiply(usage.cached_tokens, self.cached_price),
                _multiply(usage.output_tokens, self.output_price),
            )
        )

    @property
    def unknown_prices(self) -> tuple[str, ...]:
        """What EMBEDDING_PRICES lacks, by its names there."""
        usage = self.usage
        needed = (
            (self.model, usage.input_tokens, self.input_price),
            (f"{self.model}:output", usage.output_tokens, self.output_price),
        )
        return tuple(name for name, tokens, price in needed if tokens and price is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What it takes to embed something. `tokens` are about those that the provider will count.

    `price` is in US dollars for a million tokens: 0 for a model that runs here, None where it is not known.
    """

    model: str
    tokens: int
    requests: int
    price: float | None
    contexts: ContextCost | None = None

    @property
    def usd(self) -> float | None:
        """US dollars, contexts included; None where a price that counts is not known."""
        return _add((_multiply(self.tokens, self.price), self.contexts.usd if self.contexts else 0.0))

    @property
    def unknown_prices(self) -> tuple[str, ...]:
        """What EMBEDDING_PRICES lacks, by its names there."""
        own = (self.model,) if self.tokens and self.price is None else ()
        return (*own, *(self.contexts.unknown_prices if self.contexts else ()))

    def describe(self) -> str:
        """A part of a sentence for a person: tokens, requests and money."""
        lines = [f"{_say_tokens(self.tokens, self.requests)}, {self._say_price()}"]
        if self.contexts:
            lines.append(_say_contexts(self.contexts))
            if self.usd is not None:
                lines.append(f"in all {_say_usd(self.usd)}")
        if unknown := self.unknown_prices:
            lines.append(_say_unknown(unknown))
        return "; ".join(lines)

    def _say_price(self) -> str:
        if not self.price:
            return f"{'price not known' if self.price is None else 'no cost'} with {self.model}"
        money = _say_usd(_multiply(self.tokens, self.price) or 0.0)
        return f"{money} with {self.model} at ${self.price:g} a million tokens"

    def to_json(self) -> dict[str, object]:
        """The same as plain values; `usd` is null where a price is not known."""
        contexts = self.contexts
        return {
            "model": self.model,
            "tokens": self.tokens,
            "requests": self.requests,
            "usdPerMillionTokens": self.price,
            "usd": self.usd,
            "contexts": contexts
            and {
                "model": contexts.model,
                "requests": contexts.usage.requests,
                "inputTokens": contexts.usage.input_tokens,
                "cachedTokens": contexts.usage.cached_tokens,
                "outputTokens": contexts.usage.output_tokens,
                "usd": contexts.usd,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingEstimate:
    """What a run would do. `chunks` are those of the documents to store; the vectors of all but `texts` are there."""

    documents: int
    chunks: int
    texts: int
    cost: Cost

    def describe(self) -> str:
        """One sentence for a person, before anything is spent."""
        if not self.documents:
            return "Nothing is to be embedded."
        stored = "document" if self.documents == 1 else "documents"
        chunks = "chunk" if self.chunks == 1 else "chunks"
        return (
            f"{self.documents:,} {stored} to store, {self.texts:,} of {self.chunks:,} {chunks} to embed: "
            f"{self.cost.describe()}."
        )

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "documents": self.documents,
            "chunks": self.chunks,
            "textsToEmbed": self.texts,
            **self.cost.to_json(),
        }


def estimate_cost(
    tokens: int, requests: int, settings: EmbeddingSettings, contexts: SituateUsage | None = None
) -> Cost:
    """The cost of so many tokens in so many requests with the model of the settings.

    `contexts` is what the chat model of EMBEDDING_CONTEXT=llm is asked for; other policies ask none.
    """
    return Cost(
        model=settings.model_name,
        tokens=tokens,
        requests=requests,
        price=_find_price(settings),
        contexts=_price_contexts(contexts, settings),
    )


def is_paid(settings: EmbeddingSettings) -> bool:
    """Whether a provider outside this process embeds, in requests: it may cost money."""
    return settings.embedding_provider not in _OWN_MODELS


def check_max_cost(max_cost: float | None) -> None:
    """Refuse a limit that is none.

    Raises:
        ValidationError: it is negative or no number.
    """
    if max_cost is not None and not (math.isfinite(max_cost) and max_cost >= 0):
        raise ValidationError("The cost limit (--max-cost, max_cost) must be a number of US dollars, 0 or more.")


def refuse_cost(cost: Cost, max_cost: float) -> str | None:
    """Why a run must not start under this limit, in sentences with the estimate and the limit; None where it may."""
    limit = f"the limit of ${max_cost:g} (--max-cost, max_cost)"
    if cost.usd is None:
        return f"What this would cost is not known, so {limit} cannot be kept: {cost.describe()}. Nothing was spent."
    if cost.usd <= max_cost:
        return None
    return (
        f"The estimate of {_say_usd(cost.usd)} is above {limit}, so nothing was spent or stored: {cost.describe()}. "
        "Raise the limit, or choose less."
    )


def _find_price(settings: EmbeddingSettings) -> float | None:
    if not is_paid(settings):
        return 0.0
    known = settings.known_model
    return settings.embedding_prices.get(settings.model_name, known.usd_per_million if known else None)


def _price_contexts(usage: SituateUsage | None, settings: EmbeddingSettings) -> ContextCost | None:
    model = settings.context_model
    if usage is None or model is None or settings.context_policy is not ContextPolicy.LLM:
        return None
    prices = settings.embedding_prices
    return ContextCost(
        model=model,
        usage=usage,
        input_price=prices.get(model),
        # Without a price of its own, what is in the provider's prompt cache is taken to cost what the rest costs.
        cached_price=prices.get(f"{model}:cached", prices.get(model)),
        output_price=prices.get(f"{model}:output"),
    )


def _multiply(tokens: int, price: float | None) -> float | None:
    if not tokens:
        return 0.0
    return None if price is None else tokens * price / _TOKENS_A_PRICE


def _add(amounts: Iterable[float | None]) -> float | None:
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _say_tokens(tokens: int, requests: int) -> str:
    sent = f" in {requests:,} request{'' if requests == 1 else 's'}" if requests else ""
    return f"about {tokens:,} token{'' if tokens == 1 else 's'}{sent}"


def _say_usd(usd: float) -> str:
    if 0 < usd < _LEAST_SHOWN_USD:
        return f"less than ${_LEAST_SHOWN_USD:.4f}"
    if not usd:
        return "$0"
    return f"about ${usd:,.2f}" if usd >= _WHOLE_CENTS_FROM_USD else f"about ${usd:.4f}"


def _say_contexts(contexts: ContextCost) -> str:
    usage = contexts.usage
    money = "price not known" if contexts.usd is None else _say_usd(contexts.usd)
    asked = _say_tokens(usage.input_tokens, usage.requests)
    return (
        f"contexts: {asked} ({usage.cached_tokens:,} of them in the provider's prompt cache) and at most "
        f"{usage.output_tokens:,} written, {money} with {contexts.model}"
    )


def _say_unknown(names: Iterable[str]) -> str:
    wanted = ",".join(f"{name}=DOLLARS" for name in names)
    return f"set EMBEDDING_PRICES={wanted} (US dollars for a million tokens)"
