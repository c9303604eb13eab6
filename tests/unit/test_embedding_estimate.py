"""An estimate is of what the run then sends: each test estimates, stores, and compares with what a provider saw."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from memory_core.calibration import START_FACTOR
from memory_core.context import name_policy
from memory_core.costs import EmbeddingEstimate
from memory_core.embed import fingerprint_of
from memory_core.embedding_estimate import EmbeddingEstimator
from memory_core.embedding_ports import ProviderLimits
from memory_core.errors import StorageUnavailableError
from memory_core.fakes import FakeDatabase
from memory_core.fakes.transport import ScriptedTransport
from memory_core.models import Outcome, StoreRequest
from memory_core.ports import Core
from memory_core.settings import load_settings
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_request import Provenance, StoreContentRequest
from tests.unit.adapters.provider_process import CharCounter, Process

MakeCore = Callable[..., Core]
WIDE = ProviderLimits(request_tokens=1_000_000, request_texts=10_000)
FLAT = {"EMBEDDING_PROVIDER": "openai", "OPENAI_API_KEY": "sk-test-of-estimates"}
CONTEXTUAL = {"EMBEDDING_PROVIDER": "voyage", "VOYAGE_API_KEY": "pa-test-of-estimates"}
WORDS = "memory agent chunk vector replica lease batch index retry token schema harbour crane".split()


def request(source_id: str, content: str) -> StoreRequest:
    return StoreRequest(
        request=StoreContentRequest(content=content, source_id=source_id, content_type="markdown"),
        provenance=Provenance(channel="directory"),
    )


def make_batch(count: int, seed: int = 7) -> list[StoreRequest]:
    """Documents of one to twelve chunks, the same on every run."""
    draw = random.Random(seed)
    batch: list[StoreRequest] = []
    for number in range(count):
        lines = [f"# Note {seed} {number}", ""]
        for section in range(draw.randint(1, 6)):
            lines += [f"## Section {section}", "", " ".join(draw.choice(WORDS) for _ in range(draw.randint(5, 90))), ""]
        batch.append(request(f"note-{seed}-{number}", "\n".join(lines)))
    return batch


@dataclass
class World:
    """One process with a paid embedder, on a database that outlives it."""

    core: Core
    process: Process
    transport: ScriptedTransport

    async def estimate(self, *batches: Sequence[StoreRequest]) -> EmbeddingEstimate:
        """As a dry run does it."""
        estimator = EmbeddingEstimator(core=self.core, stages=PLAIN_STAGES, limits=self.transport.limits)
        for batch in batches:
            await estimator.add(batch)
        return estimator.finish()

    async def store(self, *batches: Sequence[StoreRequest]) -> int:
        """As the run does it; how many documents were stored."""
        stored = 0
        async with self.process.time.passing():
            for batch in batches:
                outcomes = await store_content(batch, core=self.core)
                stored += sum(one.outcome in {Outcome.CREATED, Outcome.UPDATED} for one in outcomes)
        return stored

    async def compare(self, *batches: Sequence[StoreRequest]) -> EmbeddingEstimate:
        """Estimate, store, and hold the estimate against what the provider saw."""
        sent, paid = len(self.transport.sent), sum(self.transport.paid.values())
        estimate = await self.estimate(*batches)
        assert len(self.transport.sent) == sent
        assert await self.store(*batches) == estimate.documents
        new = self.transport.sent[sent:]
        tokens = sum(len(text) for one in new for group in one.groups for text in group)
        assert estimate.cost.requests == len(new)
        assert estimate.texts == sum(self.transport.paid.values()) - paid
        assert estimate.cost.tokens == math.ceil(tokens * START_FACTOR)
        return estimate


@pytest.fixture
def make_world(make_core: MakeCore) -> Callable[..., World]:
    """Build a process."""

    def make(
        database: FakeDatabase | None = None,
        *,
        limits: ProviderLimits = WIDE,
        is_contextual: bool = False,
        budget_bytes: int = 40_000_000,
        **variables: Any,
    ) -> World:
        plain = make_core(database, budget_bytes=budget_bytes)
        transport = ScriptedTransport(limits=limits, is_contextual=is_contextual)
        process = Process(transport)
        variables = {**(CONTEXTUAL if is_contextual else FLAT), "CHUNK_SIZE_TOKENS": "200", **variables}
        settings = load_settings(MEMORY_HOME=str(plain.settings.memory_home), **variables)
        core = replace(
            plain,
            settings=settings,
            embedder=process.embedder,
            counter=CharCounter(),
            fingerprint=fingerprint_of(process.embedder, name_policy(settings.context_policy, settings.context_model)),
        )
        return World(core=core, process=process, transport=transport)

    return make


@pytest.mark.parametrize("is_contextual", [False, True])
@pytest.mark.parametrize("texts", [3, 10, 10_000])
async def test_a_first_run_costs_what_was_estimated(
    make_world: Callable[..., World], texts: int, is_contextual: bool
) -> None:
    """Texts, requests and tokens, in batches, whatever a request may hold."""
    limits = ProviderLimits(request_tokens=1_000_000, request_texts=texts)
    world = make_world(limits=limits, is_contextual=is_contextual)
    estimate = await world.compare(make_batch(8), make_batch(5, seed=8))
    assert estimate.documents == 13
    assert estimate.texts == estimate.chunks > 13


@pytest.mark.parametrize("is_contextual", [False, True])
async def test_tokens_of_a_request_bind_the_estimate_too(make_world: Callable[..., World], is_contextual: bool) -> None:
    """The planner packs by the same room."""
    limits = ProviderLimits(request_tokens=1_000, request_texts=10_000, group_tokens=900 if is_contextual else None)
    world = make_world(limits=limits, is_contextual=is_contextual)
    estimate = await world.compare(make_batch(8))
    assert estimate.cost.requests > 4


async def test_a_text_over_the_window_is_counted_by_its_windows(make_world: Callable[..., World]) -> None:
    """Its windows are what is sent."""
    world = make_world(limits=ProviderLimits(request_tokens=1_000_000, request_texts=10_000, text_tokens=100))
    estimate = await world.estimate(make_batch(4))
    await world.store(make_batch(4))
    sent = [text for one in world.transport.sent for group in one.groups for text in group]
    assert len(sent) > estimate.texts
    assert estimate.cost.tokens == math.ceil(sum(map(len, sent)) * START_FACTOR)


async def test_an_equal_window_of_two_documents_is_sent_once(make_world: Callable[..., World]) -> None:
    """Their texts differ behind it."""
    limits = ProviderLimits(request_tokens=1_000_000, request_texts=10_000, text_tokens=100)
    world = make_world(limits=limits, EMBEDDING_CONTEXT="none")
    beginning = ("crane " * 14)[:80]
    batch = [request(name, f"{beginning} {(name + ' ') * 12}"[:160]) for name in ("alpha", "bravo")]
    estimate = await world.estimate(batch)
    await world.store(batch)
    sent = [text for one in world.transport.sent for group in one.groups for text in group]
    assert (estimate.texts, len(sent)) == (2, 3)
    assert estimate.cost.tokens == math.ceil(sum(map(len, sent)) * START_FACTOR)


async def test_what_is_stored_costs_nothing_again(make_world: Callable[..., World]) -> None:
    """Nothing is planned for it."""
    world = make_world()
    await world.store(make_batch(5))
    estimate = await world.compare(make_batch(5))
    assert (estimate.documents, estimate.texts, estimate.cost.tokens, estimate.cost.requests) == (0, 0, 0, 0)


async def test_an_edit_costs_the_chunks_that_changed(make_world: Callable[..., World]) -> None:
    """Rows that stay are chunks of the document and no texts to embed."""
    world = make_world()
    batch = make_batch(3)
    await world.store(batch)
    edited = request("note-7-0", f"{batch[0].request.content}\n\n## Another\n\nA harbour with two cranes.\n")
    estimate = await world.compare([edited])
    assert estimate.documents == 1
    assert 0 < estimate.texts < estimate.chunks


async def test_an_edit_of_a_contextual_document_costs_all_of_it(make_world: Callable[..., World]) -> None:
    """Its vectors depend on each other."""
    world = make_world(is_contextual=True)
    batch = make_batch(3)
    await world.store(batch)
    estimate = await world.compare([request("note-7-0", f"{batch[0].request.content}\n\n## More\n\nTwo cranes.\n")])
    assert estimate.texts == estimate.chunks


@pytest.mark.parametrize("is_contextual", [False, True])
async def test_copies_are_paid_once(make_world: Callable[..., World], is_contextual: bool) -> None:
    """In one batch as in a later one: their vectors are in the cache by then."""
    world = make_world(is_contextual=is_contextual)
    first = make_batch(4)
    copies = [request(f"copy-{number}", one.request.content or "") for number, one in enumerate(first)]
    estimate = await world.compare([*first, *copies[:2]], copies[2:])
    assert estimate.documents == 8
    assert estimate.chunks == 2 * estimate.texts


async def test_a_model_of_this_process_finds_no_copies_in_another_batch(make_core: MakeCore) -> None:
    """It has no cache, so it embeds them again; our own counter counts, about as it does, and there are no requests."""
    core = make_core()
    first = make_batch(4)
    copies = [request(f"copy-{number}", one.request.content or "") for number, one in enumerate(first)]
    estimator = EmbeddingEstimator(core=core, stages=PLAIN_STAGES, limits=None)
    for batch in (first, copies):
        await estimator.add(batch)
    estimate = estimator.finish()
    outcomes = [await store_content(batch, core=core) for batch in (first, copies)]
    stored = [outcome for batch in outcomes for outcome in batch]
    assert (estimate.documents, estimate.cost.requests, estimate.cost.usd) == (8, 0, 0.0)
    assert estimate.texts == sum(outcome.texts_embedded for outcome in stored) == estimate.chunks
    assert estimate.cost.tokens == pytest.approx(sum(outcome.tokens_embedded for outcome in stored), rel=0.15)


async def test_what_the_path_refuses_costs_nothing(make_world: Callable[..., World]) -> None:
    """Blank content."""
    world = make_world()
    estimate = await world.compare([request("blank", " \n "), *make_batch(2)])
    assert estimate.documents == 2


async def test_an_estimate_writes_no_document_and_no_vector(make_world: Callable[..., World]) -> None:
    """Neither in the store nor in the cache, and no text is sent."""
    world = make_world()
    await world.estimate(make_batch(5))
    assert (world.transport.sent, world.process.rows) == ([], {})
    assert await world.core.store.read_states([one.request.source_id or "" for one in make_batch(5)]) == {}


async def test_a_stage_that_fails_as_a_whole_ends_the_estimate(make_world: Callable[..., World]) -> None:
    """A number that leaves a batch out would be a lie."""
    world = make_world()

    async def fail(values: object, *, core: Core) -> list[Any]:
        del values, core
        raise StorageUnavailableError("MongoDB does not answer.")

    estimator = EmbeddingEstimator(core=world.core, stages=replace(PLAIN_STAGES, validate=fail), limits=WIDE)
    with pytest.raises(StorageUnavailableError):
        await estimator.add(make_batch(1))


async def test_contexts_that_a_chat_model_writes_are_counted(make_world: Callable[..., World]) -> None:
    """A request for every chunk that is to be embedded, and what is written is embedded with it."""
    prefix = await make_world().estimate(make_batch(6))
    world = make_world(EMBEDDING_CONTEXT="llm", CONTEXT_MODEL="chat-1", EMBEDDING_PRICES="chat-1=1,chat-1:output=2")
    estimate = await world.estimate(make_batch(6))
    contexts = estimate.cost.contexts
    assert contexts is not None
    assert contexts.usage.requests == estimate.texts == prefix.texts
    assert contexts.usage.input_tokens > prefix.cost.tokens
    assert contexts.usage.cached_tokens < contexts.usage.input_tokens
    assert estimate.cost.tokens == pytest.approx(
        prefix.cost.tokens + contexts.usage.output_tokens * START_FACTOR, abs=1
    )
    assert (estimate.cost.usd or 0.0) > (prefix.cost.usd or 0.0)
