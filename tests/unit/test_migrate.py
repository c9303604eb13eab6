"""Another program's memory brought over, on fakes: as it was, every damage named, and resumable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from memory_core.answers import StoredDocument
from memory_core.errors import ForeignDatabaseError, ValidationError
from memory_core.fakes import EmbeddingFault, FakeDatabase, ScriptedEmbedder
from memory_core.fakes.foreign import FakeForeignMemory
from memory_core.migrate import MigrationOptions, MigrationReport, check_source, migrate_memory
from memory_core.migrate_ports import ForeignRow
from memory_core.migrate_reading import read_document
from memory_core.models import ContentType, StoreRequest, hash_text
from memory_core.ports import Core
from memory_core.settings import Settings, load_settings
from memory_core.store_content import store_content
from memory_core.store_ports import MemoryStore
from memory_core.store_request import Provenance, StoreContentRequest

MakeCore: TypeAlias = Callable[..., Core]
Row: TypeAlias = dict[str, Any]

CREATED = datetime(2025, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
UPDATED = datetime(2025, 6, 7, 8, 9, 10, tzinfo=UTC)
GO = MigrationOptions(database="old")
LOOK = MigrationOptions(database="old", dry_run=True)


def make_row(number: int = 1, content: Any = None, **changes: Any) -> Row:
    """A document as the other program keeps it; a change to `...` takes the field away."""
    text = f"# Note {number}\n\nA lantern in harbour {number}." if content is None else content
    is_good = isinstance(text, str) and "\udcff" not in text
    row = {
        "_id": f"{number:024x}",
        "sourceId": f"notes/{number}",
        "title": f"Note {number}",
        "uri": None,
        "contentType": "markdown",
        "content": text,
        "contentHash": hash_text(text) if is_good else "0" * 64,
        "contentLength": len(str(text)),
        "tags": ["old"],
        "metadata": {"n": number, "deep": [{"a": None}]},
        "ingest": {
            "agent": "writer",
            "sessionId": "s-1",
            "clientName": "desktop",
            "clientVersion": "1.2",
            "channel": "mcp",
            "at": UPDATED - timedelta(seconds=1),
        },
        "chunking": {"strategy": "markdown-structural", "chunkSizeTokens": 512, "chunkCount": 1},
        "embedding": {"provider": "voyage", "model": "voyage-context-3", "dimensions": 1024},
        "version": number,
        "createdAt": CREATED,
        "updatedAt": UPDATED,
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


async def migrate(core: Core, rows: list[Row], options: MigrationOptions = GO, **more: Any) -> MigrationReport:
    return await migrate_memory(FakeForeignMemory(rows, **more), core=core, options=options)


async def read(core: Core, source_id: str) -> StoredDocument:
    found = await core.store.read_document(source_id)
    assert found, source_id
    return found


async def put(core: Core, source_id: str, content: str) -> None:
    request = StoreContentRequest(content=content, source_id=source_id)
    (outcome,) = await store_content([StoreRequest(request=request, provenance=Provenance(channel="t"))], core=core)
    assert outcome.error is None, outcome.error


def reasons(report: MigrationReport) -> str:
    return "\n".join(problem.describe() for problem in report.problems)


# --- as it was --------------------------------------------------------------------------------------------------------


async def test_a_document_keeps_everything_but_chunks_and_vectors(make_core: MakeCore) -> None:
    """Id, version number, dates, attributes, text and who stored it."""
    core = make_core()
    row = make_row(7, uri="https://example.org/7", title="A title of its own")
    report = await migrate(core, [row])
    assert (report.documents, report.created, report.unchanged, report.problems) == (1, 1, 0, ())
    assert report.tokens > 0
    document = await read(core, "notes/7")
    state, (version,) = document.state, document.versions
    assert (state.document_id, state.version, state.created_at, state.updated_at) == (row["_id"], 7, CREATED, UPDATED)
    attributes = state.attributes
    assert (attributes.title, attributes.uri) == ("A title of its own", "https://example.org/7")
    assert (attributes.content_type, attributes.tags) == (ContentType.MARKDOWN, ("old",))
    assert attributes.metadata == {"n": 7, "deep": [{"a": None}]}
    assert set(attributes.owners.values()) == {"caller"}
    assert state.feed is None
    assert await core.store.read_body(version.body_id) == row["content"]
    assert (version.version, version.content_hash, version.stored_at) == (7, row["contentHash"], UPDATED)
    assert version.ingest == {
        "agent": "writer",
        "sessionId": "s-1",
        "channel": "mcp",
        "feed": None,
        "clientName": "desktop",
        "clientVersion": "1.2",
        "tokenName": None,
        "submissionId": None,
        "flowRunId": None,
        "at": UPDATED - timedelta(seconds=1),
    }
    assert state.recipe == core.recipe or state.chunk_count == 1


async def test_a_new_text_goes_on_counting_versions(make_core: MakeCore) -> None:
    """A title that followed from the text follows it further; one that somebody gave stays."""
    core = make_core()
    await migrate(core, [make_row(3), make_row(4, title="Given")])
    for number in (3, 4):
        await put(core, f"notes/{number}", f"# Other {number}\n\nOther words.")
    states = [(await read(core, f"notes/{number}")).state for number in (3, 4)]
    assert [(state.version, state.attributes.title) for state in states] == [(4, "Other 3"), (5, "Given")]
    assert states[0].attributes.tags == ("old",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"contentType": "text/x-python; charset=utf-8"}, {"content_type": ContentType.CODE}),
        ({"contentType": " MD "}, {"content_type": ContentType.MARKDOWN}),
        ({"contentType": ...}, {"content_type": ContentType.MARKDOWN}),
        ({"tags": [" A", "a", "B "]}, {"tags": ("a", "b")}),
        ({"tags": None}, {"tags": ()}),
        ({"tags": ...}, {"tags": ()}),
        ({"title": "  A \n title "}, {"title": "A title"}),
        ({"title": ...}, {"title": "Note 1"}),
        ({"title": " "}, {"title": "Note 1"}),
        ({"uri": " https://a "}, {"uri": "https://a"}),
        ({"uri": ...}, {"uri": None}),
        ({"metadata": ...}, {"metadata": {}}),
    ],
)
async def test_what_loses_nothing_is_folded(make_core: MakeCore, changes: Row, expected: Row) -> None:
    """Aliases, blanks, capitals, repetitions, and what is not there."""
    core = make_core()
    report = await migrate(core, [make_row(1, **changes)])
    assert report.problems == ()
    attributes = (await read(core, "notes/1")).state.attributes
    assert {name: getattr(attributes, name) for name in expected} == expected


@pytest.mark.parametrize("content", ["\ufeffone\r\ntwo\rthree", "one\ntwo\r\nthree"])
async def test_line_ends_are_folded_with_their_hash(make_core: MakeCore, content: str) -> None:
    """Whether the other program hashed the text before or after it made them equal."""
    core = make_core()
    folded = "one\ntwo\nthree"
    report = await migrate(core, [make_row(1, content), make_row(2, content, contentHash=hash_text(folded).upper())])
    assert (report.created, report.problems) == (2, ())
    for number in (1, 2):
        document = await read(core, f"notes/{number}")
        assert await core.store.read_body(document.state.body_id) == folded


@pytest.mark.parametrize("version", [2, 2.0])
async def test_a_version_may_be_a_javascript_number(make_core: MakeCore, version: float) -> None:
    """A double that is whole is a whole number, and is kept as one."""
    core = make_core()
    await migrate(core, [make_row(1, version=version)])
    found = (await read(core, "notes/1")).state.version
    assert (found, type(found)) == (2, int)


@pytest.mark.parametrize(
    ("ingest", "expected"),
    [
        (None, {"agent": None, "channel": "migrate", "at": UPDATED}),
        (..., {"agent": None, "channel": "migrate", "at": UPDATED}),
        ({"client": {"name": "n", "version": "2"}, "time": CREATED}, {"clientName": "n", "clientVersion": "2"}),
        ({"ingestedAt": CREATED}, {"at": CREATED}),
        ({"agent": 5, "channel": "rest"}, {"agent": None, "channel": "rest", "more": '{"agent": 5}'}),
        ({"agent": "\udcff"}, {"agent": None, "more": '{"agent": "\\udcff"}'}),
        ({"$odd.name": {"a": [1]}}, {"more": '{"$odd.name": {"a": [1]}}'}),
        (["a"], {"more": '{"ingest": ["a"]}'}),
    ],
)
async def test_who_stored_it_is_kept_whatever_it_looks_like(make_core: MakeCore, ingest: Any, expected: Row) -> None:
    """It refuses no document: what has no name here, or is no text, stands as JSON under `more`."""
    core = make_core()
    report = await migrate(core, [make_row(1, ingest=ingest)])
    assert report.problems == ()
    found = (await read(core, "notes/1")).versions[0].ingest
    assert {name: found[name] for name in expected} == expected
    assert ("more" in found) == ("more" in expected)
    assert {"feed", "tokenName", "submissionId", "flowRunId", "sessionId"} <= set(found)


# --- damage -----------------------------------------------------------------------------------------------------------

BROKEN: list[tuple[Row, str]] = [
    ({"content": ...}, "content: is missing"),
    ({"content": 5}, "content: is not text"),
    ({"content": ""}, "content: is empty"),
    ({"content": " \n"}, "content: is blank"),
    ({"content": "a\x00b"}, "NUL"),
    ({"content": "bad \udcff"}, "content: is not UTF-8 text at character 4"),
    ({"contentHash": "1" * 64}, "content: is not the text that contentHash names"),
    ({"contentHash": ...}, "contentHash: is missing"),
    ({"contentHash": 5}, "contentHash: is not text"),
    ({"sourceId": ...}, "sourceId: is missing"),
    ({"sourceId": 5}, "sourceId: is not text"),
    ({"sourceId": "  "}, "sourceId: is blank"),
    ({"sourceId": "über/uns"}, "sourceId: must begin with a letter or digit"),
    ({"sourceId": "a" * 257}, "sourceId: has 257 characters"),
    ({"title": ["a"]}, "title: is not text"),
    ({"title": "t" * 513}, "title: has 513 characters"),
    ({"title": "bad \udcff"}, "title: has half a surrogate pair"),
    ({"uri": 5}, "uri: is not text"),
    ({"uri": "u" * 2049}, "uri: has 2,049 characters"),
    ({"contentType": "application/pdf"}, "contentType: is not known"),
    ({"contentType": 5}, "contentType: is not text"),
    ({"tags": "a,b"}, "tags: is not a list"),
    ({"tags": ["a", 5]}, "tags: not all of them are text"),
    ({"tags": ["a", " "]}, "tags: number 2 must have 1 to 64 characters"),
    ({"tags": ["t" * 65]}, "tags: number 1 must have 1 to 64 characters"),
    ({"tags": [str(number) for number in range(51)]}, "tags: 51 were given"),
    ({"metadata": "a"}, "metadata: is not an object"),
    ({"metadata": {"$a": 1}}, "metadata: "),
    ({"metadata": {"when": CREATED}}, "metadata: "),
    ({"metadata": {"text": "\udcff"}}, "metadata: "),
    ({"metadata": {"long": "x" * 32_768}}, "metadata: "),
    ({"version": ...}, "version: is missing"),
    ({"version": 0}, "version: is not a whole number from 1 on"),
    ({"version": 1.5}, "version: is not a whole number from 1 on"),
    ({"version": float("nan")}, "version: is not a whole number from 1 on"),
    ({"version": True}, "version: is not a whole number from 1 on"),
    ({"version": "1"}, "version: is not a whole number from 1 on"),
    ({"version": 2**40}, "version: is not a whole number from 1 on"),
    ({"createdAt": ...}, "createdAt: is missing"),
    ({"updatedAt": "yesterday"}, "updatedAt: is not a date"),
]


@pytest.mark.parametrize(("changes", "reason"), BROKEN)
async def test_a_broken_document_is_named_and_the_others_go_on(make_core: MakeCore, changes: Row, reason: str) -> None:
    """The dry run says the same as the run."""
    core = make_core()
    rows = [make_row(1), make_row(2, **changes), make_row(3)]
    for options in (LOOK, GO):
        report = await migrate(core, rows, options)
        assert (report.documents, report.created, report.is_complete) == (3, 2, False)
        (problem,) = report.problems
        assert problem.place == f"documents, _id {rows[1]['_id']}"
        assert reason in problem.reason
        json = report.to_json()
        assert (json["failed"], json["created"]) == (1, 2)
    assert [(await read(core, f"notes/{number}")).state.version for number in (1, 3)] == [1, 3]


async def test_depth_of_metadata_is_bounded(make_core: MakeCore) -> None:
    """16 levels pass, 17 do not."""
    deep: Row = {}
    for _ in range(15):
        deep = {"a": deep}
    report = await migrate(make_core(), [make_row(1, metadata=deep), make_row(2, metadata={"a": deep})])
    assert report.created == 1
    assert "is deeper than 16 levels" in reasons(report)


async def test_what_can_be_no_document_is_named(make_core: MakeCore) -> None:
    """Source ids that are shared, ids that are none, chunks that were left: nobody guesses which of them is meant."""
    rows = [
        make_row(1),
        make_row(2, sourceId="same"),
        make_row(3, sourceId="same"),
        make_row(4, _id=4),
        make_row(5, sourceId=" notes/1 "),
    ]
    chunks = [{"documentId": "f" * 24, "sourceId": "gone"}, {"documentId": "f" * 24}, {}]
    core = make_core()
    for options in (LOOK, GO):
        report = await migrate(core, rows, options, chunks=chunks)
        assert report.documents == 5
        found = {problem.place: problem for problem in report.problems}
        assert f"has the same sourceId as {3:024x}" in found[f"documents, _id {2:024x}"].reason
        assert f"has the same sourceId as {2:024x}" in found[f"documents, _id {3:024x}"].reason
        assert "no ObjectId" in found["documents, _id 4"].reason
        assert found["documents, _id 4"].source_id == "notes/4"
        assert "2 chunks of no document" in found[f"chunks, documentId {'f' * 24}"].reason
        assert found[f"chunks, documentId {'f' * 24}"].source_id == "gone"
        assert "1 chunk of no document" in found["chunks, documentId missing"].reason
    assert report.created == 1  # two texts of one id: the second one is refused when the first is there
    assert "notes/1" in found[f"documents, _id {5:024x}"].reason


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes(timezones=st.just(UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(changes=st.dictionaries(st.sampled_from(sorted(make_row())), json_values, max_size=5))
def test_no_row_is_more_than_a_problem(changes: Row) -> None:
    """Whatever stands in its fields: a request, or what is wrong with it."""
    row = make_row(1, **changes)
    content = row.pop("content")
    row.pop("_id")
    try:
        request = read_document(ForeignRow(document_id="a" * 24, fields=row), content)
    except ValidationError:
        return
    assert request.past
    assert request.past.versions[-1].ingest["channel"]


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_dry_run_writes_nothing_and_says_what_it_costs(make_core: MakeCore) -> None:
    """Not even `meta`: who writes first decides about the embedding space."""
    database = FakeDatabase()
    core = make_core(database)
    rows = [make_row(number) for number in range(1, 41)]
    plan = await migrate(core, rows, LOOK)
    assert (plan.created, plan.unchanged, plan.dry_run) == (40, 0, True)
    assert plan.estimate
    assert (plan.estimate.documents, plan.estimate.texts) == (40, 40)
    assert database.meta is None
    assert database.documents == {}
    assert cast("ScriptedEmbedder", core.embedder).calls == []
    assert "40 documents in the database old of mongodb-memory-mcp: 40 would be created" in plan.describe()
    done = await migrate(core, rows)
    assert (done.created, done.texts) == (40, 40)
    assert "40 created, 0 unchanged; 40 documents in the database old" in done.describe()
    again = await migrate(core, rows, LOOK)
    assert (again.created, again.unchanged) == (0, 40)
    assert again.estimate
    assert again.estimate.texts == 0


async def test_a_second_run_changes_nothing(make_core: MakeCore) -> None:
    """Also where attributes were edited since; a text that was stored since is left, and named."""
    core = make_core()
    rows = [make_row(1), make_row(2), make_row(3)]
    await migrate(core, rows)
    request = StoreContentRequest(content=rows[0]["content"], source_id="notes/1", tags=["edited"])
    await store_content([StoreRequest(request=request, provenance=Provenance(channel="t"))], core=core)
    await put(core, "notes/2", "Another text.")
    before = [await read(core, f"notes/{number}") for number in (1, 2, 3)]
    again = await migrate(core, rows)
    assert (again.created, again.unchanged, again.tokens) == (0, 2, 0)
    assert "notes/2 was stored anew in the meantime" in reasons(again)
    assert [await read(core, f"notes/{number}") for number in (1, 2, 3)] == before


async def test_a_cost_limit_is_kept(make_core: MakeCore) -> None:
    """A run that may cost nothing runs with a model that costs nothing; a limit that is none is refused."""
    core = make_core()
    rows = [make_row(1)]
    with pytest.raises(ValidationError, match="cost limit"):
        await migrate(core, rows, replace(GO, max_cost=-1))
    assert (await migrate(core, rows, replace(GO, max_cost=0))).created == 1
    paid = replace(make_core(), settings=load_settings(EMBEDDING_PROVIDER="openai", OPENAI_API_KEY="k" * 20))
    refused = await migrate(paid, rows, replace(GO, max_cost=0))
    assert refused.refusal
    assert (refused.is_complete, await paid.store.read_document("notes/1")) == (False, None)


async def test_a_run_that_failed_in_the_middle_is_gone_on_with(make_core: MakeCore) -> None:
    """Three batches in a row that fail for one passing reason end it; what is stored is recognised by the next."""
    database = FakeDatabase()
    rows = [make_row(number) for number in range(1, 10)]
    away = make_core(database, script=[None, None, *[EmbeddingFault.UNAVAILABLE] * 3], MEMORY_BATCH_DOCUMENTS=1)
    report = await migrate(away, rows)
    assert (report.created, len(report.problems)) == (2, 4)
    assert "The rest was not tried" in report.problems[-1].reason
    again = await migrate(make_core(database), rows)
    assert (again.created, again.unchanged, again.problems) == (7, 2, ())


class Watched:
    """A store that notes how many texts of the source were read before each write."""

    def __init__(self, store: MemoryStore, foreign: FakeForeignMemory) -> None:
        self._store = store
        self._foreign = foreign
        self.texts_read: list[int] = []

    def __getattr__(self, name: str) -> object:
        if name == "write_together":
            self.texts_read.append(self._foreign.texts_read)
        return getattr(self._store, name)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"MEMORY_BATCH_DOCUMENTS": 2}, [3, 5, 5]), ({"MEMORY_BATCH_CHARS": 1_000}, [2, 3, 4, 5, 5])],
)
async def test_texts_are_read_as_they_are_stored(make_core: MakeCore, limits: Row, expected: list[int]) -> None:
    """Never more than those of a batch and one."""
    foreign = FakeForeignMemory([make_row(number, f"# {number}\n\n{'word ' * 150}") for number in range(1, 6)])
    core = make_core(**limits)
    store = Watched(core.store, foreign)
    await migrate_memory(foreign, core=replace(core, store=cast("MemoryStore", store)), options=GO)
    assert store.texts_read == expected


# --- sources and targets that are refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [GO, LOOK])
async def test_a_wrong_source_or_target_is_refused(make_core: MakeCore, options: MigrationOptions) -> None:
    """Our own memory, an empty database, and a target with rows that are not ours."""
    core = make_core()
    with pytest.raises(ValidationError, match="memory of this program"):
        await migrate(core, [make_row(1)], options, is_ours=True)
    with pytest.raises(ValidationError, match="no documents and no chunks"):
        await migrate(core, [], options)
    database = FakeDatabase()
    theirs = make_core(database)
    await put(theirs, "theirs", "Words.")
    database.meta = None
    with pytest.raises(ForeignDatabaseError):
        await migrate(theirs, [make_row(1)], options)
    assert database.meta is None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "$a", "x" * 64])
def test_a_database_has_a_name(name: str) -> None:
    """What the server would refuse is refused before it is asked."""
    with pytest.raises(ValidationError, match="Correct --database"):
        check_source(name, load_settings())


def test_source_and_target_are_two() -> None:
    """The same name is another database on another server, and only there."""
    settings: Settings = load_settings(MONGODB_DB_NAME="old", MONGODB_URI="mongodb://here/")
    there = settings.model_copy(update={"migrate_mongodb_uri": SecretStr("mongodb://there/")})
    check_source("old", there)
    check_source("older", settings)
    for same in (settings, settings.model_copy(update={"migrate_mongodb_uri": settings.mongodb_uri})):
        with pytest.raises(ValidationError, match="source and target at once"):
            check_source("old", same)
