"""Stage 1: untrusted requests become Documents that know what is stored, or a failure that names every fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_core.chunk_values import ChunkOptions
from memory_core.errors import ValidationError
from memory_core.models import (
    Attributes,
    ChunkTally,
    ContentType,
    ContextBasis,
    Document,
    DocumentState,
    Failure,
    Plan,
    StoreRequest,
    hash_text,
)
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.validate import decide_plan, is_complete, parse_request, validate_requests

MakeCore = Callable[..., Core]

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SPACE = "hash/words/16/prefix-1"
CALLER = Provenance(channel="cli")


def ask(content: str = "words", *, feed: str | None = None, previous: str | None = None, **fields: Any) -> StoreRequest:
    provenance = Provenance(channel="directory", feed=feed) if feed else CALLER
    return StoreRequest(
        request=StoreContentRequest(content=content, **fields), provenance=provenance, previous_source_id=previous
    )


async def validate_one(request: StoreRequest, core: Core) -> Document:
    (result,) = await validate_requests([request], core=core)
    assert isinstance(result, Document), result
    return result


# --- a door's arguments -----------------------------------------------------------------------------------------------


def test_names_are_taken_in_both_spellings() -> None:
    """As on the wire, snake_case as in Python."""
    arguments = {"content": "a", "sourceId": "x", "chunkSizeTokens": 64}
    assert parse_request(arguments) == StoreContentRequest(content="a", source_id="x", chunk_size_tokens=64)
    assert parse_request({"content": "a", "source_id": "x", "chunk_size_tokens": "64"}).chunk_size_tokens == 64


@pytest.mark.parametrize("name", ["sourceID", "SourceId", "tag", "x" * 5_000, "a\x1b[31m"])
def test_an_unknown_argument_is_refused_with_the_accepted_names(name: str) -> None:
    """A wrong case would lose the caller's id and make a second document."""
    with pytest.raises(ValidationError) as refusal:
        parse_request({"content": "a", name: "Zq7xMARKERx"})
    message = refusal.value.message
    assert f"an argument that is not known ({name[:10].replace(chr(27), '?')}" in message
    for accepted in ("agent", "chunkOverlapTokens", "chunkSizeTokens", "content", "contentType", "metadata"):
        assert accepted in message
    for accepted in ("sessionId", "sourceId", "tags", "title", "uri"):
        assert accepted in message
    assert "MARKER" not in message
    assert "\x1b" not in message
    assert len(message) < 500


def test_a_wrong_type_is_named_and_not_repeated() -> None:
    """All at once, and a list's bad member by its number."""
    marker = "Zq7xMARKERx"
    with pytest.raises(ValidationError) as refusal:
        parse_request(
            {"title": [marker], "tags": ["a", {"b": marker}], "metadata": {7: marker}, "chunkSizeTokens": marker}
        )
    message = refusal.value.message
    for part in ("content: ", "title: ", "tags[1]: ", "metadata: ", "chunkSizeTokens: "):
        assert part in message
    assert marker not in message
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize("content", ['{"a":1}', "[1]", "null", '"x"', "true", " 5 "])
async def test_a_text_that_looks_like_json_is_stored_as_that_text(make_core: MakeCore, content: str) -> None:
    """Byte for byte."""
    request = StoreRequest(request=parse_request({"content": content}), provenance=CALLER)
    assert (await validate_one(request, make_core())).content == content


# --- a batch ----------------------------------------------------------------------------------------------------------


async def test_a_bad_request_does_not_fail_its_neighbours(make_core: MakeCore) -> None:
    """Each has its own result, in order; a legal id is named, an illegal one is not repeated."""
    requests = [ask("a\x00", source_id="bad"), ask("good", source_id="good"), ask("x", source_id="-Zq7xMARKERx")]
    bad, good, nameless = await validate_requests(requests, core=make_core())
    assert isinstance(bad, Failure)
    assert isinstance(good, Document)
    assert isinstance(nameless, Failure)
    assert (bad.source_id, good.source_id, nameless.source_id) == ("bad", "good", None)
    assert "MARKER" not in nameless.error.message


async def test_a_document_carries_everything_the_next_stages_need(make_core: MakeCore) -> None:
    """Normalised content and its hash, identity, options, recipe, who brought it, what to say."""
    core = make_core(CHUNK_OVERLAP_TOKENS="100")
    request = replace(
        ask("\ufeff# Title\r\nText", uri="https://example.org/a", agent="ann", session_id="s", chunk_size_tokens=64),
        notes=("A NUL was removed.",),
        provenance=replace(CALLER, submission_id="sub"),
    )
    document = await validate_one(request, core)
    assert document.content == "# Title\nText"
    assert document.content_hash == hash_text("# Title\nText")
    assert (document.source_id, document.attributes.title) == ("https://example.org/a", "Title")
    assert (document.agent, document.session_id) == ("ann", "s")
    assert document.options.overlap < document.options.size == 64
    assert f"64-{document.options.overlap}-32" in document.recipe
    assert document.provenance.submission_id == "sub"
    assert document.notes[0] == "A NUL was removed."
    assert "lowered" in document.notes[1]
    assert (document.base, document.plan, document.reason) == (None, Plan.STORE, None)
    assert document.document_id != document.revision


async def test_code_keeps_its_language_while_its_names_are_omitted(make_core: MakeCore) -> None:
    """A later text under the same id is cut like the first one; other types have no language."""
    core = make_core()
    named = {"source_id": "tool", "content_type": "code"}
    (first,) = await store_content([ask("x = 1", uri="https://example.org/tool.py", **named)], core=core)
    assert first.error is None
    again = await validate_one(ask("x = 2", source_id="tool"), core)
    assert again.options.language == "python"
    assert "/code.python-" in again.recipe
    other = await validate_one(ask("x = 3", uri="https://example.org/tool.py", content_type="text"), core)
    assert (other.options.language, "python" in other.recipe) == ("", False)


async def test_a_staged_text_that_was_normalised_is_not_adopted(make_core: MakeCore) -> None:
    """The stored body must be the text that the offsets count in."""
    core = make_core()
    assert (await validate_one(replace(ask("a\nb"), body_id="b1"), core)).body_id == "b1"
    assert (await validate_one(replace(ask("a\r\nb"), body_id="b1"), core)).body_id is None


# --- omitted keeps, empty clears, and whose an attribute is -----------------------------------------------------------


async def test_what_is_omitted_is_kept_and_what_is_empty_is_cleared(make_core: MakeCore) -> None:
    """For every attribute."""
    core = make_core()
    full = ask(
        "# Heading\n\nText",
        source_id="a",
        title="My title",
        uri="https://example.org",
        content_type="text",
        tags=["x"],
        metadata={"k": 1},
    )
    await store_content([full], core=core)
    kept = (await validate_one(ask("# Heading\n\nText", source_id="a"), core)).attributes
    assert (kept.title, kept.uri, kept.content_type) == ("My title", "https://example.org", ContentType.TEXT)
    assert (kept.tags, kept.metadata) == (("x",), {"k": 1})
    empty = ask("# Heading\n\nText", source_id="a", title="", uri="", content_type="", tags=[], metadata={})
    cleared = (await validate_one(empty, core)).attributes
    assert (cleared.title, cleared.uri, cleared.content_type) == ("Heading", None, ContentType.MARKDOWN)
    assert (cleared.tags, cleared.metadata) == ((), {})


async def test_a_derived_title_follows_the_text_and_a_given_one_stays(make_core: MakeCore) -> None:
    """Who set a title decides what an edit does to it."""
    core = make_core()
    await store_content([ask("# One\n\nText", source_id="a"), ask("# One", source_id="b", title="Mine")], core=core)
    assert (await validate_one(ask("# Two\n\nText", source_id="a"), core)).attributes.title == "Two"
    assert (await validate_one(ask("# Two", source_id="b"), core)).attributes.title == "Mine"


async def test_a_title_taken_from_the_uri_stays_when_the_uri_is_omitted(make_core: MakeCore) -> None:
    """Storing the same data again must not rename the document; the name is written as people write it."""
    core = make_core()
    uri = "file:///data/M%C3%BCller%20Kunden.json"
    first = await validate_one(ask("{}", source_id="a", uri=uri, content_type="json"), core)
    assert first.attributes.title == "Müller Kunden.json"
    await store_content([ask("{}", source_id="a", uri=uri, content_type="json")], core=core)
    again = await validate_one(ask("{}", source_id="a"), core)
    assert (again.attributes.title, again.plan) == ("Müller Kunden.json", Plan.NOTHING)
    odd = await validate_one(ask("{}", source_id="b", uri="x:/%00%1B/", content_type="json"), core)
    assert odd.attributes.title == "b"


async def test_a_directory_changes_only_what_it_set_itself(make_core: MakeCore) -> None:
    """A person's tags, title or type survive the next sync; the directory's own values follow the file."""
    core = make_core()
    first = ask("Text", source_id="docs/a", feed="docs", content_type="markdown", metadata={"path": "a"}, uri="file:/a")
    await store_content([first], core=core)
    await store_content([ask("Text", source_id="docs/a", content_type="text", tags=["mine"])], core=core)
    second = ask("New", source_id="docs/a", feed="docs", content_type="markdown", metadata={"path": "b"}, uri="file:/b")
    attributes = (await validate_one(second, core)).attributes
    assert (attributes.content_type, attributes.tags) == (ContentType.TEXT, ("mine",))
    assert (attributes.metadata, attributes.uri) == ({"path": "b"}, "file:/b")
    assert attributes.owners == {
        "contentType": "caller",
        "tags": "caller",
        "metadata": "feed:docs",
        "uri": "feed:docs",
        "title": "derived",
    }


async def test_a_caller_changes_what_a_directory_set(make_core: MakeCore) -> None:
    """The owner of the memory has the last word, and the directory learns of it."""
    core = make_core()
    await store_content([ask("Text", source_id="docs/a", feed="docs", uri="file:/a")], core=core)
    attributes = (await validate_one(ask("Text", source_id="docs/a", uri="https://x"), core)).attributes
    assert (attributes.uri, attributes.owners["uri"]) == ("https://x", "caller")


# --- derived ids ------------------------------------------------------------------------------------------------------


async def test_a_derived_id_never_replaces_what_another_agent_stored(make_core: MakeCore) -> None:
    """The second README gets an id of its own, and the answer names both."""
    core = make_core()
    await store_content([ask("Ann's", title="README", agent="ann")], core=core)
    ben = await validate_one(ask("Ben's", title="README", agent="ben"), core)
    taken = await validate_one(ask("Ann's next", title="README", agent="ann"), core)
    assert taken.base is not None
    assert taken.plan is Plan.STORE
    assert ben.base is None
    assert ben.source_id.startswith(f"{taken.source_id}-")
    assert taken.source_id in ben.notes[0]
    assert ben.source_id in ben.notes[0]
    other_session = await validate_one(ask("Third", title="README", agent="ann", session_id="2"), core)
    assert other_session.base is None


async def test_an_explicit_id_always_replaces(make_core: MakeCore) -> None:
    """Whoever names a document means it."""
    core = make_core()
    await store_content([ask("Ann's", source_id="readme", agent="ann")], core=core)
    assert (await validate_one(ask("Ben's", source_id="readme", agent="ben"), core)).base is not None


async def test_a_uri_names_one_place_whoever_stores_it(make_core: MakeCore) -> None:
    """The page of today replaces the page of yesterday; a title that gives the same id is another place."""
    core = make_core()
    uri = "https://example.org/page"
    await store_content([ask("Yesterday", uri=uri, agent="ann")], core=core)
    assert (await validate_one(ask("Today", uri=uri, agent="ben"), core)).base is not None
    assert (await validate_one(ask("Else", title=uri, agent="ben"), core)).base is None
    await store_content([ask("Titled", title="https://example.org/2", agent="ann")], core=core)
    assert (await validate_one(ask("Page", uri="https://example.org/2", agent="ben"), core)).base is None
    assert (await validate_one(ask("Signs", uri="日本", title="https://example.org/2", agent="b"), core)).base is None


async def test_equal_content_under_a_derived_id_is_the_same_document(make_core: MakeCore) -> None:
    """Two agents that find the same page have not found two."""
    core = make_core()
    await store_content([ask("Same", title="README", agent="ann")], core=core)
    again = await validate_one(ask("Same", title="README", agent="ben"), core)
    assert (again.base is not None, again.plan, again.notes) == (True, Plan.NOTHING, ())


async def test_titles_that_differ_late_get_two_ids(make_core: MakeCore) -> None:
    """Behind the 200 characters that are shown."""
    core = make_core()
    first = await validate_one(ask("a", title="x" * 300 + "1"), core)
    second = await validate_one(ask("b", title="x" * 300 + "2"), core)
    assert first.attributes.title == second.attributes.title
    assert first.source_id != second.source_id


TITLES = st.text(min_size=1, max_size=120).filter(
    lambda text: text.strip() != "" and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)
)


@given(title=TITLES, other=TITLES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each call makes a database of its own
async def test_two_titles_of_two_agents_never_share_a_document(make_core: MakeCore, title: str, other: str) -> None:
    """For every pair of titles: no second store finds the first one's document as its base."""
    core = make_core()
    first = await validate_one(ask("Ann's", title=title, agent="ann"), core)
    await store_content([ask("Ann's", title=title, agent="ann")], core=core)
    second = await validate_one(ask("Ben's", title=other, agent="ben"), core)
    assert second.source_id != first.source_id
    assert second.base is None


# --- renames ----------------------------------------------------------------------------------------------------------


async def test_a_renamed_file_continues_its_document(make_core: MakeCore) -> None:
    """Same document id, no embedding: only the attributes move."""
    core = make_core()
    (old,) = await store_content([ask("Text", source_id="docs/a", feed="docs")], core=core)
    moved = await validate_one(ask("Text", source_id="docs/b", feed="docs", previous="docs/a"), core)
    assert (moved.document_id, moved.plan) == (old.document_id, Plan.ATTRIBUTES)
    unknown = await validate_one(ask("Text", source_id="docs/b", feed="docs", previous="docs/zzz"), core)
    assert unknown.base is None


async def test_a_document_that_got_another_text_meanwhile_is_not_renamed(make_core: MakeCore) -> None:
    """Somebody stored under the old name after the directory was listed: that is theirs."""
    core = make_core()
    await store_content([ask("Text", source_id="a"), ask("Theirs", source_id="a")], core=core)
    assert (await validate_one(ask("Text", source_id="b", previous="a"), core)).base is None


async def test_a_rename_onto_a_stored_document_updates_that_one(make_core: MakeCore) -> None:
    """What is stored under the new name wins: ids are unique."""
    core = make_core()
    _, target = await store_content([ask("A", source_id="a"), ask("B", source_id="b")], core=core)
    moved = await validate_one(ask("A", source_id="b", previous="a"), core)
    assert moved.document_id == target.document_id


# --- what is still to be done -----------------------------------------------------------------------------------------

_NUMBERS = itertools.count()


def attributes(**changes: Any) -> Attributes:
    base = Attributes(title="T", uri=None, content_type=ContentType.TEXT, tags=(), metadata={"n": 1}, owners={})
    return replace(base, **changes)


def state(**changes: Any) -> DocumentState:
    tally = ChunkTally(
        count=2, revisions=frozenset({"r1"}), content_hashes=frozenset({"h1"}), fingerprints=frozenset({SPACE})
    )
    stored = DocumentState(
        document_id="d",
        source_id="a",
        revision="r1",
        version=1,
        content_hash="h1",
        recipe="recipe-1",
        strategy="paragraph",
        fingerprint=SPACE,
        chunk_count=2,
        tally=tally,
        attributes=attributes(),
        context_basis=ContextBasis(title="T", words=()),
        context_stale=False,
        feed=None,
        body_id="b",
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(stored, **changes)


def document(base: DocumentState | None, **changes: Any) -> Document:
    made = Document(
        document_id="d",
        source_id="a",
        revision=f"new-{next(_NUMBERS)}",
        content="words",
        content_hash="h1",
        attributes=attributes(),
        options=ChunkOptions(),
        recipe="recipe-1",
        provenance=CALLER,
        agent=None,
        session_id=None,
        base=base,
        plan=Plan.STORE,
    )
    return replace(made, **changes)


def tallied(**changes: Any) -> DocumentState:
    return state(tally=replace(state().tally, **changes))


@pytest.mark.parametrize(
    ("base", "changes", "plan", "reason"),
    [
        (None, {}, Plan.STORE, None),
        (state(), {}, Plan.NOTHING, None),
        (state(), {"content_hash": "h2"}, Plan.STORE, None),
        (state(), {"content_hash": "h2", "recipe": "recipe-2"}, Plan.STORE, None),
        (tallied(count=1), {}, Plan.STORE, "repaired"),
        (tallied(count=3), {}, Plan.STORE, "repaired"),
        (tallied(count=0, revisions=frozenset(), content_hashes=frozenset()), {}, Plan.STORE, "repaired"),
        (tallied(revisions=frozenset({"r0"})), {}, Plan.STORE, "repaired"),
        (tallied(revisions=frozenset({"r0", "r1"})), {}, Plan.STORE, "repaired"),
        (tallied(content_hashes=frozenset({"h0"})), {}, Plan.STORE, "repaired"),
        (tallied(fingerprints=frozenset({"other"})), {}, Plan.STORE, "repaired"),
        (
            state(fingerprint="other", tally=replace(state().tally, fingerprints=frozenset({"other"}))),
            {},
            Plan.STORE,
            "re-embedded",
        ),
        (state(), {"recipe": "recipe-2"}, Plan.STORE, "re-chunked"),
        (state(), {"attributes": attributes(title="Other")}, Plan.STORE, None),
        (state(), {"attributes": attributes(tags=("x",))}, Plan.ATTRIBUTES, None),
        (state(), {"attributes": attributes(uri="https://x")}, Plan.ATTRIBUTES, None),
        (state(), {"attributes": attributes(metadata={"n": 2})}, Plan.ATTRIBUTES, None),
        (state(), {"attributes": attributes(metadata={"n": True})}, Plan.ATTRIBUTES, None),
        (state(), {"attributes": attributes(metadata={"n": 1.0})}, Plan.ATTRIBUTES, None),
        (state(), {"attributes": attributes(owners={"tags": "caller"})}, Plan.ATTRIBUTES, None),
        (state(), {"source_id": "b"}, Plan.ATTRIBUTES, None),
        (state(), {"provenance": Provenance(channel="directory", feed="docs")}, Plan.ATTRIBUTES, None),
        (state(feed="docs"), {"provenance": Provenance(channel="directory", feed="docs")}, Plan.NOTHING, None),
        (state(feed="docs"), {}, Plan.NOTHING, None),
        (state(context_stale=True), {}, Plan.NOTHING, None),
        (state(), {"agent": "ann", "session_id": "s"}, Plan.NOTHING, None),
    ],
)
def test_what_is_still_to_be_done(
    base: DocumentState | None, changes: dict[str, Any], plan: Plan, reason: str | None
) -> None:
    """Content, recipe, space, number of chunks and what every chunk says of itself decide."""
    decided, why = decide_plan(document(base, **changes), fingerprint=SPACE)
    assert decided is plan
    assert (why or "").startswith(reason or "")
    assert (why is None) == (reason is None)


def test_a_document_without_chunks_is_not_complete() -> None:
    """Not even where none are recorded: nothing would ever be found."""
    empty = ChunkTally(count=0, revisions=frozenset(), content_hashes=frozenset(), fingerprints=frozenset())
    assert is_complete(state())
    assert not is_complete(state(chunk_count=0, tally=empty))
