"""Paid providers through the product: whatever they answer, the outcome is right and no document is half written.

The provider is a fake that speaks the vendors' protocols over a real socket and counts what was paid for; the database
is a real MongoDB. `test_provider_runs.py` does the same through the command line.
"""

from __future__ import annotations

import base64
import json
import random
import secrets
import string
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymongo.errors import OperationFailure
from structlog.testing import capture_logs

from memory_core.adapters import mongo_writes
from memory_core.adapters.mongo_rows import decode_vector
from memory_core.answers import SearchMode
from memory_core.errors import StorageUnavailableError
from memory_core.models import Outcome
from memory_core.store_content import PLAIN_STAGES
from tests.acceptance.paid_memory import (
    DIMENSIONS,
    KEY,
    VENDORS,
    PaidMemory,
    TimedProvider,
    open_memory,
    tell_database,
    tell_outcome,
    write_page,
)
from tests.providers import fake_provider, faults
from tests.providers.faults import Fault

pytestmark = pytest.mark.services

ATTEMPTS = 3  # EMBEDDING_MAX_RETRIES=2
FAST = {"EMBEDDING_TIMEOUT_MS": "1000"}

Open = Callable[..., AbstractAsyncContextManager[PaidMemory]]


@pytest.fixture(params=[*VENDORS])
def vendor(request: pytest.FixtureRequest) -> str:
    """Flat and contextual."""
    return request.param


@pytest.fixture(scope="module")
def databases() -> dict[str, str]:
    """One database a vendor: indexes take longer than a test, and a database has one embedding space."""
    return {vendor: f"paid_{vendor}_{secrets.token_hex(5)}" for vendor in VENDORS}


@pytest.fixture
def open_paid(session_home: Path, vendor: str, databases: dict[str, str]) -> Open:
    """Opens another core on the vendor's database."""
    return partial(open_memory, session_home, databases[vendor], vendor)


@pytest.fixture
def open_wide(session_home: Path, vendor: str, databases: dict[str, str]) -> Open:
    """Opens a core with the usual chunks, on a database of its own: one memory has one recipe."""
    return partial(open_memory, session_home, f"{databases[vendor]}_wide", vendor, CHUNK_SIZE_TOKENS="400")


@pytest.fixture
async def paid(open_paid: Open, vendor: str) -> AsyncGenerator[PaidMemory]:
    """A core, with nothing learned yet about its provider."""
    with TimedProvider(vendor) as provider:
        async with open_paid(provider, **FAST) as memory:
            yield memory


# --- one request, and what can become of it ---------------------------------------------------------------------------


def ask_for_date() -> Fault:
    """A 429 that asks to wait until a second from now."""
    return faults.throttle(retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True))


HEALED: Mapping[str, Callable[[], list[Fault]]] = {
    "429-seconds": lambda: [faults.throttle(retry_after="1")],
    "429-date": lambda: [ask_for_date()],
    "429-absent": lambda: [faults.throttle()],
    "429-absurd": lambda: [faults.throttle(retry_after="99999999999")],
    "500": lambda: [faults.fail(500)],
    "html-page": lambda: [faults.show_page()],
    "time-out": lambda: [faults.stall(after=0)],
    "resets": lambda: [faults.reset(), faults.reset(after=40)],
    "5-mb-of-500": lambda: [faults.send_megabytes(500)],
}


@pytest.mark.parametrize("case", HEALED)
async def test_a_fault_that_passes_is_not_seen(paid: PaidMemory, case: str) -> None:
    """The document is stored with its own vectors, found, and each of its texts was paid for once."""
    source_id, script = f"healed/{case}", HEALED[case]()
    paid.provider.script(*script)
    outcome = await paid.store(source_id, write_page(case))

    assert (outcome.outcome, outcome.chunk_count, outcome.error) == (Outcome.CREATED, 10, None)
    assert len(paid.provider.documents) == len(script) + 1
    assert set(paid.provider.paid.values()) == {1}
    paid.check_vectors(source_id)
    assert source_id in await paid.find(f"{case} 3")


async def test_answers_are_put_in_order_by_their_indices(paid: PaidMemory) -> None:
    """Entries in the reverse order are no fault, and every chunk has its own vector."""
    paid.provider.script(faults.reverse_entries())
    outcome = await paid.store("healed/reversed", write_page("reversed"))

    assert (outcome.outcome, len(paid.provider.documents)) == (Outcome.CREATED, 1)
    paid.check_vectors("healed/reversed")


async def test_a_batch_that_is_too_big_is_halved(paid: PaidMemory, vendor: str) -> None:
    """It is never sent again unchanged; the halves keep the order, and a contextual document records its windows."""
    message = "The max allowed tokens per submitted batch is 120000. Your batch has 121234 tokens after truncation."
    paid.provider.script(faults.refuse(400, VENDORS[vendor].error_body(400, message, None)))
    outcome = await paid.store("halved", write_page("halved"))

    assert (outcome.outcome, outcome.chunk_count) == (Outcome.CREATED, 10)
    refused, *halves = paid.provider.documents
    [whole] = refused.groups
    assert sorted((half.groups[0] for half in halves), key=lambda half: whole.index(half[0])) == [whole[:5], whole[5:]]
    assert set(paid.provider.paid.values()) == {1}
    paid.check_vectors("halved")
    windows = paid.read_rows("halved")["documents"][0]["embedding"].get("windows")
    assert windows == ([5, 5] if vendor == "voyage" else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Faults that no further attempt heals in time, and what the outcome says of them."""

    script: Sequence[Fault]
    words: str
    retryable: bool = False
    pauses: bool = False


REFUSED = {
    "9-vectors-for-10": Refusal(script=[faults.drop_last_vector()], words="has 9 entries for 10"),
    "wrong-width": Refusal(
        script=[faults.set_in_last("embedding", [0.1] * (DIMENSIONS - 1))], words="has 255 numbers instead of 256"
    ),
    "nan": Refusal(script=[faults.set_in_last("embedding", [float("nan")] * DIMENSIONS)], words="not finite"),
    "an-index-twice": Refusal(script=[faults.repeat_index()], words="has the index 0 twice"),
    "no-index": Refusal(script=[faults.drop_index()], words="index is missing"),
    "html-pages": Refusal(script=[faults.show_page()] * ATTEMPTS, words="an HTML page", retryable=True),
    "429-an-hour": Refusal(
        script=[faults.throttle(retry_after="3600")], words="answered 429", retryable=True, pauses=True
    ),
    "429-no-quota": Refusal(script=[faults.use_up_quota()], words="quota is used up"),
    "500s": Refusal(script=[faults.fail(500)] * ATTEMPTS, words="attempt 3 of 3", retryable=True),
    "time-outs": Refusal(script=[faults.stall(after=0)] * ATTEMPTS, words="within 1 s", retryable=True),
    "resets": Refusal(script=[faults.reset()] * ATTEMPTS, words="broke the connection", retryable=True),
    "5-mb-of-400": Refusal(script=[faults.send_megabytes(400)], words="answered 400"),
    "key-in-401": Refusal(script=[faults.echo_key(401)], words="[secret]"),
    "key-in-500": Refusal(script=[faults.echo_key(500)] * ATTEMPTS, words="[secret]", retryable=True),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_fault_that_stays_leaves_the_old_version(paid: PaidMemory, case: str) -> None:
    """Nothing is written (S2): every row is as it was and is found, the error says why, and the key is nowhere.

    The next store, of a provider that answers again, makes the next version.
    """
    source_id, refusal = f"refused/{case}", REFUSED[case]
    old, new = write_page(f"old {case}"), write_page(f"new {case}")
    assert (await paid.store(source_id, old)).outcome is Outcome.CREATED
    before, asked = paid.read_rows(source_id), len(paid.provider.requests)
    paid.provider.script(*refusal.script)
    with capture_logs() as lines:
        outcome = await paid.store(source_id, new)

    assert len(paid.provider.requests) == asked + len(refusal.script)
    assert outcome.outcome is Outcome.FAILED
    assert outcome.error is not None
    assert refusal.words in outcome.error.message
    assert (outcome.error.event, outcome.error.retryable) == ("ingest.embedding_failed", refusal.retryable)
    assert len(outcome.error.message) < 1_000
    assert [line["source_id"] for line in lines if line["event"] == "ingest.embedding_failed"] == [source_id]
    assert paid.read_rows(source_id) == before
    mode = SearchMode.TEXT if refusal.pauses else SearchMode.HYBRID  # a query waits for the same pause
    assert source_id in await paid.find(f"old {case} 3", mode)
    for told in (tell_outcome(outcome), repr(lines), tell_database(paid.database)):
        assert KEY not in told
    if not refusal.pauses:
        again = await paid.store(source_id, new)
        assert (again.outcome, again.version) == (Outcome.UPDATED, 2)
        paid.check_vectors(source_id)


async def test_the_other_documents_of_a_batch_are_stored(paid: PaidMemory) -> None:
    """What is wrong with one document is its own outcome; what was paid for the others is not paid again."""
    paid.provider.script(faults.drop_last_vector(), faults.drop_last_vector())
    contents = {f"batch/{name}": write_page(f"batch {name}") for name in "abc"}
    outcomes = await paid.store_all(contents)

    assert [outcome.outcome for outcome in outcomes] == [Outcome.FAILED, Outcome.CREATED, Outcome.CREATED]
    assert not paid.read_rows("batch/a")["documents"]
    paid.check_vectors("batch/b")
    paid.check_vectors("batch/c")
    assert (await paid.store("batch/a", contents["batch/a"])).outcome is Outcome.CREATED
    assert set(paid.provider.paid.values()) == {1}


# --- storms -----------------------------------------------------------------------------------------------------------

STORM = {"EMBEDDING_CONCURRENCY": "8", "EMBEDDING_BATCH_SIZE": "1", "EMBEDDING_REQUEST_TEXTS": "10"}


async def test_fifty_documents_outlast_a_storm(open_paid: Open, vendor: str) -> None:
    """A mix of 429 and 500 at concurrency 8: all are stored, and each text is paid for exactly once."""
    storm = [faults.throttle(retry_after_ms="20"), faults.fail(500), None, faults.fail(503), None, None, faults.reset()]
    with TimedProvider(vendor) as provider:
        provider.script(*storm * 4)
        async with open_paid(provider, **STORM, EMBEDDING_MAX_RETRIES="10") as paid:
            contents = {f"storm/{number}": write_page(f"storm{number}") for number in range(50)}
            outcomes = await paid.store_all(contents)

            assert [outcome.outcome for outcome in outcomes] == [Outcome.CREATED] * 50
            assert (provider.paid.total(), set(provider.paid.values())) == (500, {1})
            assert provider.peak_concurrency <= 8
            assert len(provider.requests) >= 50 + 4 * 4
            for source_id in contents:
                paid.check_vectors(source_id)


@pytest.mark.parametrize("vendor", ["openai"], indirect=True)
async def test_a_pause_is_everybodys(open_paid: Open, vendor: str) -> None:
    """429 in three forms, 500 and a time-out (S12): one pause for all workers, no second charge, all stored."""
    with TimedProvider(vendor) as provider:
        provider.script(faults.throttle(), *[faults.throttle(retry_after="1")] * 8, ask_for_date())
        provider.script(faults.fail(500), faults.stall(after=0))
        async with open_paid(provider, **STORM, **FAST) as paid:
            outcomes = await paid.store_all({f"pause/{one}": write_page(f"pause{one}") for one in range(50)})

    assert [outcome.outcome for outcome in outcomes] == [Outcome.CREATED] * 50
    assert (provider.paid.total(), set(provider.paid.values())) == (500, {1})
    assert max(later - earlier for earlier, later in pairwise(provider.came)) >= 1.0
    assert provider.peak_concurrency <= 8


async def test_a_pause_of_an_hour_stops_the_batch_and_says_what_is_left(open_paid: Open, vendor: str) -> None:
    """The outcomes name every document that is not stored; the next run pays only for what is left (S12)."""
    contents = {f"hour/{number}": write_page(f"hour{number}") for number in range(20)}
    with TimedProvider(vendor) as provider:
        provider.script(*[None] * 12, faults.throttle(retry_after="3600"))
        async with open_paid(provider, **STORM) as paid:
            outcomes = await paid.store_all(contents)

            assert [outcome.source_id for outcome in outcomes] == [*contents]
            assert {outcome.outcome for outcome in outcomes} == {Outcome.FAILED}
            assert all(outcome.error and outcome.error.retryable for outcome in outcomes)
            assert "try again after the pause" in repr(outcomes[0].error)
            paid_before = provider.paid.total()
            assert 120 <= paid_before < 200
        async with open_paid(provider, **STORM) as paid:
            again = await paid.store_all(contents)

            assert {outcome.outcome for outcome in again} == {Outcome.CREATED}
            assert sum(outcome.texts_embedded for outcome in again) == 200 - paid_before
            assert (provider.paid.total(), set(provider.paid.values())) == (200, {1})


# --- failures on either side of the provider's answer -----------------------------------------------------------------


async def test_a_failure_between_answer_and_store_pays_for_nothing_twice(paid: PaidMemory) -> None:
    """The vectors of the first try are in the cache: the second asks the provider for nothing."""

    async def fail_to_persist(*_: object, **__: object) -> list[Any]:
        raise StorageUnavailableError("MongoDB is away.")

    broken = replace(PLAIN_STAGES, persist=fail_to_persist)
    first = await paid.store("late/one", write_page("late"), stages=broken)
    asked = len(paid.provider.documents)
    second = await paid.store("late/one", write_page("late"))

    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.CREATED)
    assert (second.chunk_count, second.texts_embedded, second.tokens_embedded) == (10, 0, 0)
    assert len(paid.provider.documents) == asked
    paid.check_vectors("late/one")


async def test_a_failure_in_the_middle_of_a_write_leaves_nothing(
    paid: PaidMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body was written and the chunks were not (S1): no row stays, and the next store is whole and free."""
    before = paid.read_rows("middle/one")
    bodies = paid.database.contents.count_documents({})

    def fail_to_write(*_: object, **__: object) -> None:
        raise OperationFailure("injected")

    with monkeypatch.context() as patch:
        patch.setattr(mongo_writes, "_write_chunks", fail_to_write)
        first = await paid.store("middle/one", write_page("middle"))
    assert first.outcome is Outcome.FAILED
    assert paid.read_rows("middle/one") == before
    assert paid.database.contents.count_documents({}) == bodies

    second = await paid.store("middle/one", write_page("middle"))
    assert (second.outcome, second.texts_embedded) == (Outcome.CREATED, 0)
    assert "middle/one" in await paid.find("middle 3")
    assert set(paid.provider.paid.values()) == {1}


# --- other measures of a token (S11) ----------------------------------------------------------------------------------


def _count_bytes(text: str) -> int:
    return len(text.encode())


def _make_dense() -> dict[str, str]:
    """200 kB each of what has more of a provider's tokens than of ours."""
    draw = random.Random(11)
    names = ["".join(draw.choices(string.ascii_lowercase, k=3)) for _ in range(500)]
    code = ";".join(f"var {draw.choice(names)}{number}={number}*2" for number in range(12_000))
    return {
        "dense/min.js": code[:200_000],
        "dense/base64": base64.b64encode(draw.randbytes(150_000)).decode(),
        "dense/cjk": "".join(map(chr, draw.choices(range(0x4E00, 0x9FA5), k=66_000))),
        "dense/emoji": "".join(map(chr, draw.choices(range(0x1F300, 0x1F5FF), k=50_000))),
    }


@pytest.mark.parametrize("vendor", ["openai"], indirect=True)
async def test_dense_texts_fit_the_providers_own_measure(
    open_wide: Open, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider to which every byte is a token refuses, and gets smaller requests, never the same one again."""
    monkeypatch.setattr(fake_provider, "count_words", _count_bytes)
    limit = 60_000
    with TimedProvider(vendor, request_tokens=limit) as provider:
        async with open_wide(provider, EMBEDDING_REQUEST_TOKENS=str(limit)) as paid:
            contents = _make_dense()
            outcomes = await paid.store_all(contents)

            assert [outcome.outcome for outcome in outcomes] == [Outcome.CREATED] * 4, outcomes
            for outcome in outcomes:
                chunks = paid.read_rows(outcome.source_id or "")["chunks"]
                assert len(chunks) == outcome.chunk_count
                assert all(np.isfinite(decode_vector(row["embedding"])).all() for row in chunks)
    refused = Counter(json.dumps(seen.groups) for seen in provider.requests if seen.status != 200)
    assert set(refused.values()) == {1}
    assert set(provider.paid.values()) == {1}


async def test_a_long_document_has_windows_in_order(open_wide: Open, vendor: str) -> None:
    """40,000 tokens: a contextual model sees consecutive windows below its 32,000, and the document records them."""
    words = "lease batch index retry token schema vector chunk memory agent".split()
    draw = random.Random(5)
    sections = [f"## Part {number}\n\n{' '.join(draw.choices(words, k=330))} end{number}." for number in range(120)]
    with TimedProvider(vendor) as provider:
        async with open_wide(provider) as paid:
            outcome = await paid.store("long/one", "\n\n".join(sections))

            assert outcome.outcome is Outcome.CREATED
            paid.check_vectors("long/one")
            windows = paid.read_rows("long/one")["documents"][0]["embedding"].get("windows")
            groups = [group for seen in provider.documents for group in seen.groups]
            assert sum(map(len, groups)) == outcome.chunk_count == 120
            assert windows == ([len(group) for group in groups] if vendor == "voyage" else None)
            assert len(windows or "12") == 2


@pytest.mark.parametrize("vendor", ["voyage"], indirect=True)
async def test_a_thousand_and_one_tiny_documents_share_requests(open_paid: Open, vendor: str) -> None:
    """Few requests, none above the vendor's numbers, each document a group of its own for a contextual model."""
    contents = {f"tiny/{number}": f"Tiny note number {number}." for number in range(1_001)}
    with TimedProvider(vendor) as provider:
        async with open_paid(provider) as paid:
            outcomes = await paid.store_all(contents)

    assert {outcome.outcome for outcome in outcomes} == {Outcome.CREATED}
    assert provider.paid.total() == len(provider.paid) == 1_001
    sizes = [len(seen.groups) for seen in provider.documents]
    assert (sum(sizes), max(sizes), len(sizes)) == (1_001, 1_000, 2)
