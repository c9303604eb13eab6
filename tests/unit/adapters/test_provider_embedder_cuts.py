"""A paid embedder over a scripted provider: what is cut, and what the cache saves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from memory_core.embedding_ports import ProviderLimits
from memory_core.errors import (
    EmbeddingError,
    StorageUnavailableError,
    TooManyTokensError,
)
from memory_core.fakes.transport import ScriptedTransport
from tests.unit.adapters.provider_process import Process, assert_mirrors, documents, groups_of, limits

# --- refusals


async def test_a_refused_request_is_halved_between_documents() -> None:
    """The provider takes thirty tokens and does not say so: eighty, then forty, then twenty."""
    transport = ScriptedTransport(limits=limits(80))
    transport.kept_limits = limits(30)
    transport.tells_limits = False
    groups = documents(4)
    process = Process(transport, concurrency=1)
    result = await process.embed(groups)

    assert groups_of(transport.sent)[:3] == [groups, groups[:2], groups[2:]]
    assert sorted(groups_of(transport.sent)[3:]) == [[group] for group in groups]
    assert_mirrors(result, groups, transport)
    assert result.usage.requests == 7


async def test_what_a_refusal_taught_is_kept_for_later_calls() -> None:
    """The second call packs what the provider takes, without another refusal."""
    transport = ScriptedTransport(limits=replace(limits(1_000), text_tokens=20))
    transport.kept_limits = replace(limits(120), text_tokens=20)
    process = Process(transport)
    await process.embed(documents(40))
    before = len(transport.sent)
    later = [[f"later {text}" for text in group] for group in documents(40, length=5)]
    await process.embed(later)

    assert 2 * sum(len(text) for group in later for text in group) / 120 > len(transport.sent) - before > 5
    assert transport.paid == Counter(text for group in [*documents(40), *later] for text in group)


@pytest.mark.parametrize("is_contextual", [False, True])
@pytest.mark.parametrize("tells", [False, True])
async def test_no_refused_request_is_made_again(*, is_contextual: bool, tells: bool) -> None:
    """Neither in the call, nor in one that begins with the same texts."""
    transport = ScriptedTransport(limits=limits(400, group_tokens=220), is_contextual=is_contextual)
    transport.kept_limits = limits(70, group_tokens=45)
    transport.tells_limits = tells
    process = Process(transport, attempts=1)
    groups = documents(6, texts=5, length=20)
    for cut in (6, 4):
        process.rows.clear()
        await process.embed(groups[:cut])

    refused = Counter(request.groups for request in transport.sent if sum(map(len, sum(request.groups, ()))) > 77)
    assert refused
    assert set(refused.values()) == {1}


async def test_a_refused_text_is_windowed_smaller() -> None:
    """A text of forty tokens for a window of twelve: four windows, recorded, and not a character lost."""
    transport = ScriptedTransport(limits=limits(100))
    transport.kept_limits = ProviderLimits(request_tokens=100, request_texts=9, text_tokens=12)
    text = "abcd efgh ijkl mnop qrst uvwx yz01 2345 "
    result = await Process(transport).embed([["short", text]])

    assert result.windows == [(1, 4)]
    assert sorted(transport.paid) == [" ijkl mnop", " qrst uvwx", " yz01 2345 ", "abcd efgh", "short"]
    assert np.linalg.norm(result.groups[0][1]) == pytest.approx(1, abs=1e-6)
    assert np.array_equal(result.groups[0][0], transport.embed_group(["short"])[0])


async def test_a_long_text_is_cut_before_it_is_sent() -> None:
    """The window is known: no request is refused, and the vector is the windows' mean by tokens."""
    transport = ScriptedTransport(limits=limits(100, text_tokens=22))
    text = "x" * 30
    result = await Process(transport).embed([[text]])
    expected = transport.embed_group(["x" * 15])[0]

    assert groups_of(transport.sent) == [[["x" * 15]]]  # both windows are the same text, which is paid for once
    assert result.windows == [(2,)]
    assert result.groups[0][0] == pytest.approx(expected, abs=1e-6)


async def test_a_long_document_of_a_contextual_model_is_windowed() -> None:
    """Consecutive windows between its texts, a group each; a text keeps the vector of its window."""
    transport = ScriptedTransport(limits=limits(100, group_tokens=44), is_contextual=True)
    (group,) = documents(1, texts=6)
    result = await Process(transport).embed([group])

    assert groups_of(transport.sent) == [[group[:3], group[3:]]]
    assert np.array_equal(
        result.groups[0], np.vstack([transport.embed_group(group[:3]), transport.embed_group(group[3:])])
    )
    assert result.windows == [(1,) * 6]


async def test_a_documents_windows_do_not_depend_on_earlier_documents() -> None:
    """A limit that another document taught does not cut this one by an estimate: the provider takes it whole."""
    transport = ScriptedTransport(limits=limits(400, group_tokens=400), is_contextual=True)
    transport.kept_limits = limits(400, group_tokens=100)
    process = Process(transport)
    await process.embed(documents(1, texts=8, length=25))
    before = len(transport.sent)
    group = [text.ljust(19, "!") for text in documents(1, texts=5)[0]]  # 95 tokens, more than 100 by the estimate
    await process.embed([group])

    assert groups_of(transport.sent[before:]) == [[group]]


async def test_a_provider_that_counts_more_is_sent_less() -> None:
    """It counts two tokens where we count one: after the first answer no request is too big."""
    transport = ScriptedTransport(limits=limits(200), count=lambda text: 2 * len(text))
    process = Process(transport)
    await process.embed(documents(3))
    await process.embed([[f"later {text}" for text in group] for group in documents(20)])

    assert transport.paid.total() == 46
    assert len(transport.sent) == 1 + 7  # three documents of 64 of its tokens in each


async def test_one_shortest_text_that_is_refused_is_an_error() -> None:
    """It is no loop."""
    transport = ScriptedTransport(script=[TooManyTokensError("too long")] * 9)
    with pytest.raises(EmbeddingError, match="one character"):
        await Process(transport).embed([["ab"]])

    assert len(transport.sent) == 3


# --- the cache


async def test_after_a_crash_half_way_only_the_rest_is_paid() -> None:
    """Another process finds what the first was answered, and says how many texts those were."""
    groups = documents(6)
    script = [None, None, None, EmbeddingError("400")]
    transport = ScriptedTransport(limits=limits(20), script=script)
    first = Process(transport, concurrency=1)
    with pytest.raises(EmbeddingError, match="400"):
        await first.embed(groups)
    result = await Process(transport, first.rows).embed(groups)

    assert transport.paid == Counter(text for group in groups for text in group)
    assert_mirrors(result, groups, transport)
    assert (sum(result.cached), result.usage.requests) == (6, 3)


async def test_after_a_crash_the_windows_of_a_document_are_found_again() -> None:
    """The refusals are learned anew, for nothing; no window is paid for twice, and the vectors are the same."""
    transport = ScriptedTransport(limits=limits(100, group_tokens=110), is_contextual=True)
    transport.kept_limits = limits(100, group_tokens=25)
    (group,) = documents(1, texts=8)
    first = Process(transport)
    whole = await first.embed([group])
    second = await Process(transport, first.rows).embed([group])

    assert set(transport.paid.values()) == {1}
    assert sum(second.cached) == 8
    assert np.array_equal(whole.groups[0], second.groups[0])


async def test_queries_and_documents_are_kept_apart() -> None:
    """The same words are embedded another way as a question; asked again, they cost nothing."""
    transport = ScriptedTransport()
    process = Process(transport)
    await process.embed([["lease"]])
    await process.embed([["lease"]], "query")
    again = await process.embed([["lease"]], "query")

    assert [request.kind for request in transport.sent] == ["document", "query"]
    assert (again.usage.tokens, again.usage.requests, sum(again.cached)) == (0, 0, 1)


async def test_a_contextual_vector_is_found_only_within_its_whole_group() -> None:
    """A changed sibling is a changed input."""
    transport = ScriptedTransport(is_contextual=True)
    process = Process(transport)
    await process.embed([["a", "b"]])
    result = await process.embed([["a", "c"], ["a", "b"]])

    assert groups_of(transport.sent) == [[["a", "b"]], [["a", "c"]]]
    assert sum(result.cached) == 2


async def test_a_cache_that_is_away_loses_no_answer() -> None:
    """The vectors come all the same, each fault is said, and what was not written is written with the next answer."""
    transport = ScriptedTransport(limits=limits(20))
    process = Process(transport, concurrency=1)
    process.cache.faults = 2  # the read and the first write
    groups = documents(3)
    result = await process.embed(groups)

    assert_mirrors(result, groups, transport)
    assert [type(fault) for fault in process.faults] == [StorageUnavailableError] * 2
    assert len(process.rows) == 6
    process.cache.faults = 99
    assert_mirrors(await process.embed(groups), groups, transport)
    assert len(transport.sent) == 6


async def test_a_provider_that_tells_no_tokens_is_counted_by_us() -> None:
    """Usage is never silently nothing."""
    transport = ScriptedTransport()
    transport.tells_tokens = False

    assert (await Process(transport).embed([["four", "text"]])).usage.tokens == 8


async def test_the_cache_is_kept_within_its_bounds() -> None:
    """The first answer of a process forgets what is too old; a call that finds everything forgets nothing."""
    transport = ScriptedTransport(limits=limits(100))
    first = Process(transport)
    await first.embed([["an old text"]])
    for key, row in first.rows.items():
        first.rows[key] = replace(row, at=row.at - timedelta(days=400))
    await Process(transport, first.rows).embed([["a new text"]])
    assert len(first.rows) == 1
