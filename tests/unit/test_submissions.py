"""Staging: accepted content is durable, wrong content never gets there, and equal calls share one submission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.errors import ForeignDatabaseError, ValidationError
from memory_core.fakes import FakeDatabase
from memory_core.models import Outcome, StoreRequest, hash_text
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.submissions import derive_key, stage_request
from memory_core.work_ports import SubmissionState

MakeCore = Callable[..., Core]


def ask(content: str = "words", *, channel: str = "mcp", **fields: Any) -> StoreRequest:
    request = StoreContentRequest(content=content, **fields)
    return StoreRequest(request=request, provenance=Provenance(channel=channel))


async def test_a_staged_request_comes_back_whole(make_core: MakeCore) -> None:
    """With what was omitted still omitted, and what was cleared still empty."""
    core = make_core()
    staged = await stage_request(ask("words", tags=[], metadata={"k": None}, agent="ann"), core=core)
    read = await core.submissions.read(staged.submission_id)
    assert read is not None
    assert read.state is SubmissionState.STAGED
    request = read.request.request
    assert (request.content, request.tags, request.metadata, request.agent) == ("words", [], {"k": None}, "ann")
    assert (request.title, request.source_id) == (None, None)
    assert read.request.provenance.submission_id == staged.submission_id


@pytest.mark.parametrize("content", ["", "  ", "a\x00", "\ud800"])
async def test_what_is_not_acceptable_reaches_no_database(make_core: MakeCore, content: str) -> None:
    """The rules of the path hold at the door."""
    database = FakeDatabase()
    with pytest.raises(ValidationError):
        await stage_request(ask(content, title="T"), core=make_core(database))
    assert (database.submissions, database.bodies, database.meta) == ({}, {}, None)


async def test_a_database_that_is_not_ours_gets_no_submission(make_core: MakeCore) -> None:
    """It is not written at all."""
    database = FakeDatabase()
    core = make_core(database)
    await core.store.prepare(replace(core.fingerprint, model="another"))
    with pytest.raises(ForeignDatabaseError):
        await stage_request(ask(), core=core)
    assert database.submissions == {}


async def test_equal_content_joins_an_open_submission_whoever_asks(make_core: MakeCore) -> None:
    """An agent that gives up and calls again finds its own work; a finished one is not joined."""
    core = make_core()
    first = await stage_request(ask(agent="ann", session_id="1"), core=core)
    again = await stage_request(ask(agent="ben", session_id="2", channel="rest"), core=core)
    assert again.submission_id == first.submission_id
    await core.submissions.finish(
        {first.submission_id: {"outcome": Outcome.CREATED}}, holder=core.holder, now=core.clock()
    )
    assert (await stage_request(ask(), core=core)).submission_id != first.submission_id


async def test_line_ends_make_no_other_content(make_core: MakeCore) -> None:
    """Staged as it will be stored, so that the stored version can keep the staged text."""
    database = FakeDatabase()
    core = make_core(database)
    first = await stage_request(ask("\ufeffa\r\nb"), core=core)
    assert (await stage_request(ask("a\nb"), core=core)).submission_id == first.submission_id
    (claimed,) = await core.submissions.claim([first.submission_id], holder=core.holder, seconds=60)
    (outcome,) = await store_content([claimed.request], core=core)
    await core.submissions.finish(
        {first.submission_id: {"outcome": outcome.outcome}}, holder=core.holder, now=core.clock()
    )
    stored = await core.store.read_document(outcome.source_id or "")
    assert stored is not None
    assert stored.state.body_id == claimed.request.body_id
    assert hash_text(await core.store.read_body(stored.state.body_id)) == stored.state.content_hash
    assert len(database.bodies) == 1


DIFFERENCES: list[dict[str, Any]] = [
    {"content": "other"},
    {"title": "T"},
    {"title": ""},
    {"source_id": "a"},
    {"uri": "https://x"},
    {"content_type": "text"},
    {"tags": []},
    {"tags": ["a"]},
    {"metadata": {}},
    {"metadata": {"k": 1}},
    {"metadata": {"k": True}},
    {"metadata": {"k": 1.0}},
    {"metadata": {"k": None}},
    {"metadata": {"k": "1"}},
    {"chunk_size_tokens": 64},
    {"chunk_overlap_tokens": 0},
]


def test_whatever_changes_what_is_stored_changes_the_key() -> None:
    """Left out, empty and given are three different things; so are 1, 1.0 and true."""
    keys = {derive_key(ask(**{"content": "words", **fields})) for fields in [{}, *DIFFERENCES]}
    assert len(keys) == len(DIFFERENCES) + 1


@given(
    agent=st.text(max_size=5) | st.none(),
    session=st.text(max_size=5) | st.none(),
    channel=st.sampled_from(["mcp", "rest", "cli"]),
)
def test_who_asks_is_not_part_of_the_key(agent: str | None, session: str | None, channel: str) -> None:
    """For every agent, session and door."""
    assert derive_key(ask(agent=agent, session_id=session, channel=channel)) == derive_key(ask())


def test_the_order_of_metadata_is_not_part_of_the_key() -> None:
    """Equal objects are equal."""
    assert derive_key(ask(metadata={"a": 1, "b": 2})) == derive_key(ask(metadata={"b": 2, "a": 1}))
