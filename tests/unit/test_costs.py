"""What tokens cost, what is said of it, and which runs a limit stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.costs import Cost, EmbeddingEstimate, check_max_cost, estimate_cost, is_paid, refuse_cost
from memory_core.errors import ValidationError
from memory_core.settings import Settings, load_settings
from memory_core.situate import SituateUsage
from memory_core.sync.plan import make_plan
from memory_core.sync_feed import FeedPlan
from memory_core.work_ports import Feed

ASKED = SituateUsage(requests=10, input_tokens=50_000, cached_tokens=40_000, output_tokens=1_000)


def paid(**variables: Any) -> Settings:
    """Settings of a paid provider."""
    variables = {"EMBEDDING_PROVIDER": "openai", "OPENAI_API_KEY": "sk-test-of-the-costs", **variables}
    return load_settings(**variables)


def situating(**variables: Any) -> Settings:
    """The same with a chat model that writes contexts."""
    return paid(EMBEDDING_CONTEXT="llm", CONTEXT_MODEL="chat-1", **variables)


def test_a_published_price_needs_no_setting() -> None:
    """A million tokens of the default model cost two cents."""
    cost = estimate_cost(1_000_000, 4, paid())
    assert (cost.model, cost.price, cost.usd) == ("text-embedding-3-small", 0.02, pytest.approx(0.02))
    assert cost.describe() == (
        "about 1,000,000 tokens in 4 requests, about $0.0200 with text-embedding-3-small at $0.02 a million tokens"
    )


def test_a_setting_wins_over_the_published_price() -> None:
    """Prices change."""
    cost = estimate_cost(500_000, 1, paid(EMBEDDING_PRICES="text-embedding-3-small=0.5,other=9"))
    assert cost.usd == pytest.approx(0.25)
    free = estimate_cost(500_000, 1, paid(EMBEDDING_PRICES="text-embedding-3-small=0"))
    assert (free.usd, free.describe()) == (
        0.0,
        "about 500,000 tokens in 1 request, no cost with text-embedding-3-small",
    )


@pytest.mark.parametrize(
    ("provider", "model"), [("local", "all-MiniLM-L6-v2-int8"), ("hash", "word-votes-1"), ("fake", "word-votes-1")]
)
def test_a_model_of_this_machine_costs_nothing(provider: str, model: str) -> None:
    """And is sent no requests."""
    settings = load_settings(EMBEDDING_PROVIDER=provider)
    cost = estimate_cost(12_345, 0, settings)
    assert (is_paid(settings), cost.usd) == (False, 0.0)
    assert cost.describe() == f"about 12,345 tokens, no cost with {model}"


def test_an_unknown_price_says_what_to_set() -> None:
    """No number is made up, and no limit can be kept."""
    cost = estimate_cost(10, 1, paid(EMBEDDING_MODEL="house-model", EMBEDDING_DIMENSIONS=8))
    assert cost.usd is None
    assert cost.describe().endswith(
        "price not known with house-model; set EMBEDDING_PRICES=house-model=DOLLARS (US dollars for a million tokens)"
    )
    refusal = refuse_cost(cost, 1_000.0)
    assert refusal is not None
    assert "limit of $1000" in refusal
    assert "EMBEDDING_PRICES=house-model=DOLLARS" in refusal


def test_nothing_costs_nothing_whatever_the_price_is() -> None:
    """A second run is never stopped."""
    cost = estimate_cost(0, 0, paid(EMBEDDING_MODEL="house-model", EMBEDDING_DIMENSIONS=8))
    assert (cost.usd, cost.unknown_prices, refuse_cost(cost, 0.0)) == (0.0, (), None)


def test_contexts_cost_what_is_read_and_what_is_written() -> None:
    """What is in the provider's prompt cache has its own price where one is set."""
    prices = "text-embedding-3-small=0.02,chat-1=1,chat-1:output=10"
    cost = estimate_cost(1_000_000, 2, situating(EMBEDDING_PRICES=prices), ASKED)
    assert cost.usd == pytest.approx(0.02 + 0.05 + 0.01)
    cached = estimate_cost(1_000_000, 2, situating(EMBEDDING_PRICES=f"{prices},chat-1:cached=0.1"), ASKED)
    assert cached.usd == pytest.approx(0.02 + 0.01 + 0.004 + 0.01)
    assert (
        "contexts: about 50,000 tokens in 10 requests (40,000 of them in the provider's prompt cache) and at most "
        "1,000 written, about $0.0600 with chat-1; in all about $0.0800" in cost.describe()
    )
    assert cost.to_json()["contexts"] == {
        "model": "chat-1",
        "requests": 10,
        "inputTokens": 50_000,
        "cachedTokens": 40_000,
        "outputTokens": 1_000,
        "usd": pytest.approx(0.06),
    }


def test_a_chat_model_without_prices_is_named() -> None:
    """Both of its prices; the total is not known."""
    cost = estimate_cost(1_000, 1, situating(), ASKED)
    assert (cost.usd, cost.unknown_prices) == (None, ("chat-1", "chat-1:output"))
    assert "EMBEDDING_PRICES=chat-1=DOLLARS,chat-1:output=DOLLARS" in cost.describe()


def test_other_policies_ask_no_chat_model() -> None:
    """A model that is set and not used costs nothing."""
    assert estimate_cost(1_000, 1, paid(CONTEXT_MODEL="chat-1"), ASKED).contexts is None


def test_a_limit_stops_what_is_above_it() -> None:
    """With the estimate and the limit in the message; what costs just as much may run."""
    cost = estimate_cost(1_000_000, 4, paid())
    assert refuse_cost(cost, 0.02) is None
    refusal = refuse_cost(cost, 0.01)
    assert refusal is not None
    assert refusal.startswith("The estimate of about $0.0200 is above the limit of $0.01 (--max-cost, max_cost)")
    assert "1,000,000 tokens" in refusal


@pytest.mark.parametrize("max_cost", [-0.01, float("nan"), float("inf")])
def test_a_limit_is_a_number_of_dollars(max_cost: float) -> None:
    """Nothing is above nan, so a run would never be stopped."""
    with pytest.raises(ValidationError, match="max_cost"):
        check_max_cost(max_cost)


def test_no_limit_and_no_dollars_are_limits() -> None:
    """0 stops whatever costs anything."""
    check_max_cost(None)
    check_max_cost(0.0)
    assert refuse_cost(estimate_cost(1, 1, paid()), 0.0) is not None


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (1, "less than $0.0001"),
        (615_000, "about $0.0123"),
        (1_000_000_000, "about $20.00"),
        (100_000_000_000, "$2,000.00"),
    ],
)
def test_money_is_said_as_a_person_reads_it(tokens: int, said: str) -> None:
    """Cents of large sums, hundredths of cents of small ones, and never a plain zero for what costs something."""
    assert said in estimate_cost(tokens, 1, paid()).describe()


def test_an_estimate_is_one_sentence_and_plain_values() -> None:
    """The counts, then the cost."""
    estimate = EmbeddingEstimate(documents=1, chunks=5, texts=2, cost=estimate_cost(615_000, 1, paid()))
    assert estimate.describe() == (
        "1 document to store, 2 of 5 chunks to embed: about 615,000 tokens in 1 request, about $0.0123 with "
        "text-embedding-3-small at $0.02 a million tokens."
    )
    assert estimate.to_json() == {
        "documents": 1,
        "chunks": 5,
        "textsToEmbed": 2,
        "model": "text-embedding-3-small",
        "tokens": 615_000,
        "requests": 1,
        "usdPerMillionTokens": 0.02,
        "usd": pytest.approx(0.0123),
        "contexts": None,
    }
    empty = EmbeddingEstimate(documents=0, chunks=0, texts=0, cost=estimate_cost(0, 0, paid()))
    assert empty.describe() == "Nothing is to be embedded."


@given(tokens=st.integers(0, 10**12), price=st.floats(0, 1e4), limit=st.floats(0, 1e6))
def test_a_run_may_start_exactly_if_it_costs_no_more_than_the_limit(tokens: int, price: float, limit: float) -> None:
    """Whatever the numbers are."""
    cost = Cost(model="m", tokens=tokens, requests=1, price=price)
    assert cost.usd is not None
    assert (refuse_cost(cost, limit) is None) == (cost.usd <= limit)
    assert cost.usd == pytest.approx(tokens * price / 1_000_000)


def test_a_plan_says_what_it_takes_where_somebody_asked() -> None:
    """Without an estimate it says what it would do and no more."""
    feed = Feed(name="notes", root="/notes")
    plain = FeedPlan(feed=feed, plan=make_plan("notes", [], known_documents=0), files={})
    estimate = EmbeddingEstimate(documents=1, chunks=5, texts=2, cost=estimate_cost(615_000, 1, paid()))
    full = replace(plain, estimate=estimate)
    assert (plain.describe(), plain.to_json()["estimate"]) == ("Would do: nothing.", None)
    assert full.describe() == f"Would do: nothing. {estimate.describe()}"
    assert full.to_json() == {**plain.to_json(), "estimate": estimate.to_json()}
