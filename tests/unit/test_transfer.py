"""Export and import over fakes: an exact round trip, what a kill leaves, and what others do meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_core import transfer_export
from memory_core.embed import fingerprint_of
from memory_core.errors import (
    AgentMemoryError,
    ConflictError,
    NotFoundError,
    StorageUnavailableError,
    ValidationError,
)
from memory_core.fakes import EmbeddingFault, FakeDatabase, ScriptedEmbedder
from memory_core.fakes.database import BodyRecord
from memory_core.models import StoreRequest
from memory_core.ports import Core, Progress
from memory_core.settings import load_settings
from memory_core.store_content import store_content
from memory_core.store_ports import MemoryStore
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.transfer_export import export_memory
from memory_core.transfer_files import hold_directory
from memory_core.transfer_format import text_file
from memory_core.transfer_import import import_memory
from memory_core.transfer_values import ExportReport, ImportOptions, ImportReport

MakeCore: TypeAlias = Callable[..., Core]

DEFAULT = ImportOptions()
EMBEDDED_ANEW = ImportOptions(use_vectors=False)


async def put(core: Core, source_id: str | None, *texts: str, feed: str | None = None, **fields: Any) -> None:
    """Store one text after the other under an id."""
    for text in texts:
        request = StoreContentRequest(content=text, source_id=source_id, **fields)
        provenance = Provenance(channel="test", feed=feed, client_name="tests")
        (outcome,) = await store_content([StoreRequest(request=request, provenance=provenance)], core=core)
        assert outcome.error is None, outcome.error


async def fill(core: Core, count: int = 5) -> None:
    """Some documents, every second one with an earlier version."""
    for number in range(count):
        earlier = [f"# Earlier\n\nThe first words of {number}."] if number % 2 else []
        await put(
            core, f"notes/{number}", *earlier, f"# Note {number}\n\nWords of {number}: lantern, harbour.", tags=["a"]
        )


async def export(core: Core, directory: Path, *, with_vectors: bool = False) -> ExportReport:
    return await export_memory(directory, core=core, with_vectors=with_vectors)


async def bring(core: Core, directory: Path, options: ImportOptions = DEFAULT) -> ImportReport:
    return await import_memory(directory, core=core, options=options)


def read_files(root: Path) -> dict[str, bytes]:
    """Every file of an export by its path. The fakes' clock stands still, so even `memory.json` has to be equal."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def embedded_texts(core: Core) -> int:
    return sum(len(call.texts) for call in cast("ScriptedEmbedder", core.embedder).calls)


class Interfering:
    """A store that does something else first whenever `method` is called."""

    def __init__(self, store: MemoryStore, method: str, before: Callable[[int], Any]) -> None:
        self._store = store
        self._method = method
        self._before = before
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        if name != self._method:
            return found

        async def call(*arguments: Any, **named: Any) -> object:
            self.calls += 1
            await self._before(self.calls)
            return await found(*arguments, **named)

        return call


def interfere(core: Core, method: str, before: Callable[[int], Any]) -> Core:
    return replace(core, store=cast("MemoryStore", Interfering(core.store, method, before)))


# --- the round trip ---------------------------------------------------------------------------------------------------

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r\ufeff"), min_size=1, max_size=80
).filter(lambda text: not text.isspace())
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12).filter(
    str.strip
)
keys = names.filter(lambda key: not key.startswith("$") and key not in {"__proto__", "constructor", "prototype"})
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
documents = st.fixed_dictionaries(
    {"texts": st.lists(texts, min_size=1, max_size=4)},
    optional={
        "title": names,
        "uri": names,
        "content_type": st.sampled_from(["markdown", "text", "html", "json", "csv", "rst"]),
        "tags": st.lists(names, max_size=3),
        "metadata": st.dictionaries(keys, values, max_size=3),
        "agent": names,
        "session_id": names,
        "chunk_size_tokens": st.integers(64, 400),
        "feed": st.sampled_from(["docs", "code"]),
    },
)


@given(written=st.lists(documents, max_size=4), with_vectors=st.booleans())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_stored_comes_back_equal(
    make_core: MakeCore, written: list[Mapping[str, Any]], with_vectors: bool
) -> None:
    """Ids, versions, dates, attributes, owners, feeds, texts; with vectors rows too, and then nothing is embedded."""

    async def go(root: Path) -> None:
        here, there = make_core(), make_core()
        await here.store.prepare(here.fingerprint)
        for number, document in enumerate(written):
            await put(
                here, f"source/{number}", *document["texts"], **{k: v for k, v in document.items() if k != "texts"}
            )
        first = await export(here, root / "first", with_vectors=with_vectors)
        report = await bring(there, root / "first")
        assert (report.created, report.problems) == (len(written), ())
        if with_vectors:
            assert (report.tokens, report.texts, embedded_texts(there)) == (0, 0, 0)
        again = await bring(there, root / "first")
        assert (again.created, again.unchanged, again.problems) == (0, len(written), ())
        assert (await export(there, root / "second", with_vectors=with_vectors)).documents == first.documents
        assert read_files(root / "first") == read_files(root / "second")
        for number in range(len(written)):
            mine, theirs = [await core.store.read_document(f"source/{number}") for core in (here, there)]
            assert mine is not None
            assert theirs is not None
            assert [await here.store.read_body(one.body_id) for one in mine.versions] == [
                await there.store.read_body(one.body_id) for one in theirs.versions
            ]
            moved = {"revision", "body_id", "tally", "context_basis", "context_stale"}
            assert describe(mine.state, moved) == describe(theirs.state, moved)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(go(Path(folder)))


def describe(state: Any, without: set[str]) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state) if field.name not in without}


async def test_equal_texts_are_one_file_and_lines_say_all(make_core: MakeCore, tmp_path: Path) -> None:
    """The text stands in a file of its hash, exactly; the line has the ids, the owners and who stored it."""
    core = make_core()
    text = "One line\u2028and\ttwo\n\nno end"
    await put(core, "a", text, feed="docs", title="A title", agent="me")
    await put(core, "b", text)
    report = await export(core, tmp_path / "out")
    assert (report.documents, report.versions, report.texts_written, report.was_resumed) == (2, 2, 1, False)
    line, other = read_lines(tmp_path / "out" / "documents-00001.jsonl")
    (version,) = line["versions"]
    assert version["text"] == other["versions"][0]["text"] == text_file(version["contentHash"])
    assert (tmp_path / "out" / version["text"]).read_bytes() == text.encode()
    assert (line["sourceId"], line["feed"], line["attributes"]["owners"]["title"]) == ("a", "docs", "feed:docs")
    assert (version["ingest"]["agent"], version["ingest"]["clientName"], "at" in version["ingest"]) == (
        "me",
        "tests",
        False,
    )
    manifest = json.loads((tmp_path / "out" / "memory.json").read_text())
    assert (manifest["formatVersion"], manifest["complete"], manifest["fingerprint"]) == (1, True, core.fingerprint.key)


async def test_an_export_is_for_its_owner_alone(make_core: MakeCore, tmp_path: Path) -> None:
    """Directories have mode 0700, files 0600, whatever the umask."""
    core = make_core()
    await fill(core)
    before = os.umask(0)
    try:
        await export(core, tmp_path / "deep" / "out", with_vectors=True)
    finally:
        os.umask(before)
    out = tmp_path / "deep" / "out"
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (out, *out.rglob("*"))}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert not list(out.rglob("*.tmp"))


async def test_vectors_are_an_array_that_numpy_reads(make_core: MakeCore, tmp_path: Path) -> None:
    """One float32 row a line of the chunks file."""
    core = make_core()
    await fill(core)
    report = await export(core, tmp_path / "out", with_vectors=True)
    array = np.load(tmp_path / "out" / "vectors-00001.npy", allow_pickle=False)
    lines = read_lines(tmp_path / "out" / "chunks-00001.jsonl")
    assert (array.shape, array.dtype) == ((len(lines), core.fingerprint.dimensions), np.float32)
    assert report.chunks == len(lines)
    stored = {row.chunk_id: row.vector for row in await core.store.read_chunk_rows([lines[0]["documentId"]])}
    assert np.array_equal(array[0], stored[lines[0]["chunkId"]])


# --- what a kill leaves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_vectors", [False, True])
async def test_an_export_that_was_killed_goes_on(
    make_core: MakeCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_vectors: bool
) -> None:
    """It ends wherever MongoDB goes away, and the next ones do the rest: equal to an export that nobody disturbed."""
    monkeypatch.setattr(transfer_export, "MIN_PART_DOCUMENTS", 3)
    monkeypatch.setattr(transfer_export, "PAGE_DOCUMENTS", 2)
    core = make_core()
    await fill(core, 23)
    await export(core, tmp_path / "whole", with_vectors=with_vectors)

    kills = 0
    for method, last in (("find_documents", 3), ("read_body", 2), ("read_states", 3), ("read_body", 1)):

        async def die(calls: int, last: int = last) -> None:
            if calls > last:
                raise StorageUnavailableError("MongoDB went away.")

        with pytest.raises(StorageUnavailableError):
            await export(interfere(core, method, die), tmp_path / "out", with_vectors=with_vectors)
        kills += 1
        manifest = json.loads((tmp_path / "out" / "memory.json").read_text())
        assert manifest["complete"] is False
        listed = {name for part in manifest["parts"] for name in part["sha256"]}
        assert listed <= {path.name for path in (tmp_path / "out").iterdir()}
    # What a SIGKILL leaves beside that: temporary files, and a part that nothing lists yet.
    (tmp_path / "out" / "documents-00009.jsonl.tmp").write_text("half")
    (tmp_path / "out" / "documents-00009.jsonl").write_text("unlisted")
    next((tmp_path / "out" / "contents").iterdir()).joinpath("half.txt.tmp").write_text("half")
    report = await export(core, tmp_path / "out", with_vectors=with_vectors)
    assert (report.was_resumed, report.documents, kills) == (True, 23, 4)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "whole")


async def test_an_import_of_an_unfinished_export_says_so(
    make_core: MakeCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is taken; the rest may be missing, so it is no success."""
    monkeypatch.setattr(transfer_export, "MIN_PART_DOCUMENTS", 2)
    core = make_core()
    await fill(core, 5)

    async def die(calls: int) -> None:
        if calls > 3:  # the first call chooses the width, each part is one more
            raise StorageUnavailableError("MongoDB went away.")

    with pytest.raises(StorageUnavailableError):
        await export(interfere(core, "find_documents", die), tmp_path / "out", with_vectors=True)
    report = await bring(make_core(), tmp_path / "out")
    assert (report.created, report.is_complete) == (4, False)
    assert "was not finished" in report.problems[0].reason


async def test_an_import_that_ended_early_is_run_again(make_core: MakeCore, tmp_path: Path) -> None:
    """What is there is unchanged; three batches in a row that fail for one passing reason end a run."""
    here, shared = make_core(), FakeDatabase()
    await fill(here, 9)
    await export(here, tmp_path / "out")
    away = make_core(shared, script=[None, None, *[EmbeddingFault.UNAVAILABLE] * 3], MEMORY_BATCH_DOCUMENTS=1)
    report = await bring(away, tmp_path / "out")
    assert (report.created, len(report.problems)) == (2, 4)
    assert "4 more documents were not tried" in report.problems[-1].reason
    again = await bring(make_core(shared), tmp_path / "out")
    assert (again.created, again.unchanged, again.problems) == (7, 2, ())


# --- directories that are refused -------------------------------------------------------------------------------------


async def test_a_directory_with_other_things_is_refused(make_core: MakeCore, tmp_path: Path) -> None:
    """Nothing is written into it; an empty one is taken."""
    core = make_core()
    await fill(core)
    (tmp_path / "mine").mkdir()
    await export(core, tmp_path / "mine")
    with pytest.raises(ValidationError, match="finished export"):
        await export(core, tmp_path / "mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("Dear")
    with pytest.raises(ValidationError, match=r"not empty: it holds 'letter\.txt'"):
        await export(core, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
    (tmp_path / "file").write_text("a file")
    with pytest.raises(AgentMemoryError, match="cannot be written"):
        await export(core, tmp_path / "file")


async def test_an_unfinished_export_is_gone_on_with_only_in_the_same_way(make_core: MakeCore, tmp_path: Path) -> None:
    """Another memory, another kind of export, other files: each is refused with its reason."""
    core = make_core()
    await fill(core)
    out = tmp_path / "out"

    async def die(calls: int) -> None:
        if calls > 1:
            raise StorageUnavailableError("MongoDB went away.")

    with pytest.raises(StorageUnavailableError):
        await export(interfere(core, "find_documents", die), out, with_vectors=True)
    other = make_core(FakeDatabase(lineage="another"))
    await fill(other)
    with pytest.raises(ValidationError, match="another memory"):
        await export(other, out, with_vectors=True)
    with pytest.raises(ValidationError, match="with vectors"):
        await export(core, out)
    with hold_directory(out), pytest.raises(ConflictError, match="Another export"):
        await export(core, out, with_vectors=True)
    (out / "letter.txt").write_text("Dear")
    with pytest.raises(ValidationError, match=r"letter\.txt"):
        await export(core, out, with_vectors=True)
    (out / "letter.txt").unlink()
    assert (await export(core, out, with_vectors=True)).documents == 5


async def test_nothing_stored(make_core: MakeCore, tmp_path: Path) -> None:
    """A database that nothing was written to has nothing to export; an emptied memory is an empty export."""
    core = make_core()
    with pytest.raises(NotFoundError, match="nothing to export"):
        await export(core, tmp_path / "none")
    await core.store.prepare(core.fingerprint)
    assert (await export(core, tmp_path / "empty", with_vectors=True)).documents == 0
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["contents", "memory.json"]
    report = await bring(make_core(), tmp_path / "empty")
    assert (report.documents, report.created, report.is_complete) == (0, 0, True)


# --- while others write -----------------------------------------------------------------------------------------------


async def test_a_document_that_is_stored_meanwhile_is_consistent(make_core: MakeCore, tmp_path: Path) -> None:
    """It is written between its row and its text, and deleted between text and check: never a mix, never half."""
    core = make_core(MEMORY_VERSIONS_KEPT=5)
    await fill(core, 3)

    async def write(calls: int) -> None:
        if calls == 1:
            await put(core, "notes/1", *(f"# Anew {number}\n\nOther words." for number in range(6)))
            await put(core, "notes/2", "# Anew\n\nOther words of 2.", title="Renamed")

    await export(interfere(core, "read_body", write), tmp_path / "out", with_vectors=True)
    lines = {line["sourceId"]: line for line in read_lines(tmp_path / "out" / "documents-00001.jsonl")}
    assert [version["version"] for version in lines["notes/1"]["versions"]] == [4, 5, 6, 7, 8]
    assert lines["notes/2"]["attributes"]["title"] == "Renamed"
    there = make_core()
    report = await bring(there, tmp_path / "out")
    assert (report.created, report.problems, report.texts) == (3, (), 0)
    await export(there, tmp_path / "again", with_vectors=True)
    assert read_lines(tmp_path / "again" / "documents-00001.jsonl") == list(lines.values())


async def test_a_document_that_is_deleted_meanwhile_is_left(make_core: MakeCore, tmp_path: Path) -> None:
    """It is neither in the export nor a problem."""
    from memory_core.store_ports import DeleteSelector

    core = make_core()
    await fill(core, 3)

    async def delete(calls: int) -> None:
        if calls == 1:
            await core.store.delete(DeleteSelector(source_ids=("notes/1",)), now=core.clock())

    report = await export(interfere(core, "read_states", delete), tmp_path / "out")
    assert (report.documents, report.left_out) == (2, ())


async def test_a_document_without_its_text_is_left_out_and_named(make_core: MakeCore, tmp_path: Path) -> None:
    """The others are exported, and whoever imports them is told too."""
    database = FakeDatabase()
    core = make_core(database)
    await fill(core, 3)
    document = await core.store.read_document("notes/0")
    assert document is not None
    database.bodies[document.state.body_id] = BodyRecord(text="something else")
    report = await export(core, tmp_path / "out")
    (problem,) = report.left_out
    assert (report.documents, problem.source_id) == (2, "notes/0")
    assert "not what its hash says" in problem.reason
    imported = await bring(make_core(), tmp_path / "out")
    assert (imported.created, [one.source_id for one in imported.problems]) == (2, ["notes/0"])


# --- vectors ----------------------------------------------------------------------------------------------------------


async def test_vectors_of_another_space_are_ignored_and_it_says_so(make_core: MakeCore, tmp_path: Path) -> None:
    """Of another width, or of another model of the same width; also when that is asked for."""
    here = make_core()
    await fill(here, 4)
    await export(here, tmp_path / "out", with_vectors=True)
    for dimensions in (here.fingerprint.dimensions, 8):
        there, told = make_core(), list[Progress]()
        embedder = Renamed(there.embedder, dimensions)
        there = replace(
            there,
            embedder=cast("Any", embedder),
            fingerprint=fingerprint_of(cast("Any", embedder)),
            on_progress=told.append,
        )
        report = await bring(there, tmp_path / "out")
        assert (report.created, report.problems) == (4, ())
        assert report.texts > 0
        assert report.tokens > 0
        assert here.fingerprint.key in report.notes[0]
        assert report.notes[0] in [progress.message for progress in told]
    anew = await bring(make_core(), tmp_path / "out", EMBEDDED_ANEW)
    assert (anew.created, anew.notes) == (4, ())
    assert anew.texts > 0


class Renamed:
    """An embedder under another name, whose vectors are cut to a width."""

    def __init__(self, wrapped: Any, dimensions: int) -> None:
        self._wrapped = wrapped
        self.model = "renamed"
        self.dimensions = dimensions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    async def embed(self, groups: Any, *, kind: Any) -> Any:
        """The wrapped one's vectors, cut."""
        result = await self._wrapped.embed(groups, kind=kind)
        return replace(result, groups=[np.ascontiguousarray(group[:, : self.dimensions]) for group in result.groups])


# --- before it is paid ------------------------------------------------------------------------------------------------


async def test_a_dry_run_counts_and_stores_nothing(make_core: MakeCore, tmp_path: Path) -> None:
    """With vectors nothing is to be embedded, without them everything that is not there yet."""
    here, there = make_core(), make_core()
    await fill(here, 5)
    await put(there, "notes/0", "Something else.")
    await export(here, tmp_path / "out", with_vectors=True)
    for options, texts_to_embed in ((DEFAULT, 0), (EMBEDDED_ANEW, 4)):
        report = await bring(there, tmp_path / "out", replace(options, dry_run=True))
        assert report.estimate is not None
        assert (report.dry_run, report.created, report.estimate.documents) == (True, 4, 4)
        assert report.estimate.texts == texts_to_embed
        assert (report.estimate.cost.tokens > 0) is (texts_to_embed > 0)
        assert [problem.source_id for problem in report.problems] == ["notes/0"]
        assert (await there.store.check_health()).documents == 1


async def test_a_dry_run_makes_nothing(make_core: MakeCore, tmp_path: Path) -> None:
    """The first writer of an empty database decides about its embedding space, not whoever only looked."""
    here, there = make_core(), make_core()
    await fill(here, 2)
    await export(here, tmp_path / "out")
    report = await bring(there, tmp_path / "out", ImportOptions(dry_run=True))
    assert (report.created, report.is_complete) == (2, True)
    assert await there.store.read_active_space() is None


async def test_a_run_that_costs_too_much_does_not_start(make_core: MakeCore, tmp_path: Path) -> None:
    """The refusal names estimate and limit; a limit that is none is refused at once."""
    here, there = make_core(), make_core()
    await fill(here, 3)
    await export(here, tmp_path / "out", with_vectors=True)
    paid = load_settings(MEMORY_HOME=str(tmp_path), EMBEDDING_PROVIDER="openai", OPENAI_API_KEY="k" * 20)
    there = replace(there, settings=paid)
    report = await bring(there, tmp_path / "out", ImportOptions(max_cost=0.0, use_vectors=False))
    assert report.refusal is not None
    assert "the limit of $0" in report.refusal
    assert (report.is_complete, embedded_texts(there), (await there.store.check_health()).documents) == (False, 0, 0)
    taken_over = await bring(there, tmp_path / "out", ImportOptions(max_cost=0.0))
    assert (taken_over.created, taken_over.is_complete, embedded_texts(there)) == (3, True, 0)
    with pytest.raises(ValidationError, match="cost limit"):
        await bring(there, tmp_path / "out", ImportOptions(max_cost=-1))


async def test_what_was_stored_anew_stays(make_core: MakeCore, tmp_path: Path) -> None:
    """An import never replaces: another text under the id is a problem of that document, the others come."""
    here, there = make_core(), make_core()
    await fill(here, 3)
    await export(here, tmp_path / "out")
    await bring(there, tmp_path / "out")
    await put(there, "notes/1", "Edited since.")
    report = await bring(there, tmp_path / "out")
    (problem,) = report.problems
    assert (report.unchanged, problem.source_id) == (2, "notes/1")
    assert "stored anew" in problem.reason
    assert "Delete what is stored" in problem.describe()
