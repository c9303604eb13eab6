"""What each context policy embeds, and what it embeds again after an edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from memory_core.context import name_policy
from memory_core.embedding_ports import Situated, SituateRequest
from memory_core.embedding_settings import ContextPolicy
from memory_core.models import EmbeddedDocument, hash_text
from tests.unit.embed_world import RecordingEmbedder, World, make_document


async def test_prefix_puts_title_and_words_ahead_of_the_text() -> None:
    """In the input and in the text leg alike."""
    world = World()
    stored = await world.embed_one(make_document("a", "Alpha walks.", title="Walking"))
    assert world.embedder.requests == [[["Walking\nalpha walks\n\nAlpha walks."]]]
    assert stored.chunks[0].context == "Walking\nalpha walks"


@pytest.mark.parametrize("policy", [ContextPolicy.NONE, ContextPolicy.NATIVE])
async def test_without_a_prefix_the_text_is_embedded_alone(policy: ContextPolicy) -> None:
    """The text leg has its context all the same, and headings are marked alike."""
    world = World(policy=policy)
    stored = await world.embed_one(make_document("a", "### Alpha ###\n\nIt walks.", title="Walking"))
    assert world.embedder.requests == [[["# Alpha\n\nIt walks."]]]
    assert stored.chunks[0].context.startswith("Walking\n")
    assert stored.fingerprint.context_policy == name_policy(policy)


async def test_a_new_title_costs_nothing_where_no_vector_depends_on_it() -> None:
    """And nothing is stale then."""
    world = World(policy=ContextPolicy.NONE)
    base = world.keep(await world.embed_one(make_document("a", "Alpha walks.", title="Old")))
    again = await world.embed_one(make_document("a", "Alpha walks.", title="New", base=base))
    assert len(world.embedder.requests) == 1
    assert (again.context_stale, again.texts_embedded, again.chunks[0].context) == (False, 0, "New\nalpha walks")


async def test_a_contextual_document_is_embedded_as_a_whole_or_not_at_all() -> None:
    """One changed chunk moves the vectors of its neighbours."""
    world = World(embedder=RecordingEmbedder(is_contextual=True), policy=ContextPolicy.NATIVE)
    base = world.keep(await world.embed_one(make_document("a", "One.", "Two.", "Three.")))
    same = await world.embed_one(make_document("a", "One.", "Two.", "Three.", base=base))
    changed = await world.embed_one(make_document("a", "One.", "Two!", "Three.", base=base))
    assert world.embedder.requests == [[["One.", "Two.", "Three."]], [["One.", "Two!", "Three."]]]
    assert (same.texts_embedded, changed.texts_embedded) == (0, 3)


async def test_a_contextual_document_keeps_its_equal_texts_apart() -> None:
    """Their neighbours differ, so their vectors do; two equal documents are paid for once."""
    world = World(embedder=RecordingEmbedder(is_contextual=True), policy=ContextPolicy.NATIVE)
    first, second = await world.embed(make_document("a", "So.", "It.", "So."), make_document("b", "So.", "It.", "So."))
    assert world.embedder.requests == [[["So.", "It.", "So."]]]
    assert isinstance(first, EmbeddedDocument)
    assert isinstance(second, EmbeddedDocument)
    hashes = [chunk.embedding_input_hash for chunk in first.chunks]
    assert len(set(hashes)) == 3
    assert hashes == [chunk.embedding_input_hash for chunk in second.chunks]
    assert hash_text("So.") not in hashes


@dataclass
class StandInWriter:
    """Situates each text by its length; `broken` is a word of documents that it fails on."""

    broken: str = "\0"
    asked: list[SituateRequest] = field(default_factory=list[SituateRequest])
    model: str = "chat"

    async def write(self, requests: Sequence[SituateRequest]) -> list[Situated]:
        """Sentences, or a reason."""
        self.asked += requests
        return [
            Situated(sentences=None, reason="a filter")
            if self.broken in request.content
            else Situated(sentences=tuple(f"It has {len(text)} signs." for text in request.texts))
            for request in requests
        ]

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_sentence_of_the_chat_model_is_context_for_both_legs() -> None:
    """Ahead of the text in the input, below the prefix in the text leg."""
    writer = StandInWriter()
    world = World(policy=ContextPolicy.LLM, writer=writer)
    stored = await world.embed_one(make_document("a", "Alpha walks.", title="Walking"))
    assert world.embedder.requests == [[["It has 12 signs.\nWalking\nalpha walks\n\nAlpha walks."]]]
    assert stored.chunks[0].context == "Walking\nalpha walks\nIt has 12 signs."
    assert stored.fingerprint.context_policy == "llm-1:chat"


async def test_only_new_chunks_are_situated() -> None:
    """A stored sentence is a recorded value: an edit elsewhere pays for no other one."""
    writer = StandInWriter()
    world = World(policy=ContextPolicy.LLM, writer=writer)
    base = world.keep(await world.embed_one(make_document("a", "Alpha walks alpha.", "Beta sits beta.")))
    again = await world.embed_one(make_document("a", "Alpha walks alpha.", "Beta sits beta!!", base=base))
    assert [request.texts for request in writer.asked] == [
        ("Alpha walks alpha.", "Beta sits beta."),
        ("Beta sits beta!!",),
    ]
    assert [chunk.situated for chunk in again.chunks] == ["It has 18 signs.", "It has 16 signs."]
    assert [chunk.kept is None for chunk in again.chunks] == [False, True]
    assert again.chunks[0].row_hash == world.store.keys["id-a"][0].row_hash


async def test_a_document_that_the_chat_model_fails_on_falls_back_as_a_whole() -> None:
    """It has one fingerprint, that of `prefix`, and says why; its neighbours in the batch do not share its fate."""
    world = World(policy=ContextPolicy.LLM, writer=StandInWriter(broken="secret"))
    failed, fine = await world.embed(make_document("a", "A secret.", "More."), make_document("b", "A word."))
    assert isinstance(failed, EmbeddedDocument)
    assert isinstance(fine, EmbeddedDocument)
    assert failed.fingerprint.context_policy == name_policy(ContextPolicy.PREFIX)
    assert [chunk.situated for chunk in failed.chunks] == ["", ""]
    assert "a filter" in failed.document.notes[-1]
    assert fine.fingerprint.context_policy == "llm-1:chat"
    assert fine.document.notes == ()


def test_contexts_of_two_chat_models_are_two_policies() -> None:
    """Their vectors must not be ranked together; the other policies know no chat model."""
    assert name_policy(ContextPolicy.LLM, "a") != name_policy(ContextPolicy.LLM, "b")
    assert name_policy(ContextPolicy.NONE, "a") == name_policy(ContextPolicy.NONE)
