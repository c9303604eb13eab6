"""Exports that are damaged or made to harm: each is a clear error that names file and line, and harms nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pytest

from memory_core.errors import ValidationError
from memory_core.models import StoreRequest
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.transfer_export import export_memory
from memory_core.transfer_files import MAX_LINE_BYTES
from memory_core.transfer_import import import_memory
from memory_core.transfer_values import ImportOptions, ImportReport

MakeCore: TypeAlias = Callable[..., Core]
Damage: TypeAlias = Callable[[Path], None]

DOCUMENTS, CHUNKS, VECTORS = "documents-00001.jsonl", "chunks-00001.jsonl", "vectors-00001.npy"
COUNT = 4
HURT = 2  # the line that a damage hits, from 1 on


@pytest.fixture
async def out(make_core: MakeCore, tmp_path: Path) -> Path:
    """A sound export of four documents with vectors."""
    core = make_core()
    for number in range(COUNT):
        for text in (f"Earlier words of {number}.", f"# Note {number}\n\nLater words of {number}."):
            request = StoreContentRequest(content=text, source_id=f"notes/{number}", metadata={"number": number})
            stored = StoreRequest(request=request, provenance=Provenance(channel="test"))
            assert (await store_content([stored], core=core))[0].error is None
    await export_memory(tmp_path / "out", core=core, with_vectors=True)
    return tmp_path / "out"


async def bring(core: Core, directory: Path, *, use_vectors: bool = True) -> ImportReport:
    return await import_memory(directory, core=core, options=ImportOptions(use_vectors=use_vectors))


# --- how to damage ----------------------------------------------------------------------------------------------------


def seal(out: Path) -> None:
    """Make `memory.json` agree with the files of the part: whoever means harm would do so too."""
    change_manifest(out, lambda manifest: manifest["parts"][0].update(sha256=hash_files(out)))


def hash_files(out: Path) -> dict[str, str]:
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in (DOCUMENTS, CHUNKS, VECTORS)}


def change_manifest(out: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((out / "memory.json").read_text())
    change(manifest)
    (out / "memory.json").write_text(json.dumps(manifest))


def on_line(change: Callable[[bytes], bytes], name: str = DOCUMENTS) -> Damage:
    """Change one line of a file as bytes."""

    def damage(out: Path) -> None:
        lines = (out / name).read_bytes().split(b"\n")
        lines[HURT - 1] = change(lines[HURT - 1])
        (out / name).write_bytes(b"\n".join(lines))

    return damage


def on_values(change: Callable[[dict[str, Any]], object], name: str = DOCUMENTS) -> Damage:
    """Change the values of one line."""

    def change_line(line: bytes) -> bytes:
        value = json.loads(line)
        change(value)
        return json.dumps(value).encode()

    return on_line(change_line, name)


def on_attributes(**changes: Any) -> Damage:
    return on_values(lambda line: line["attributes"].update(changes))


def on_newest(**changes: Any) -> Damage:
    return on_values(lambda line: line["versions"][-1].update(changes))


def on_text(change: Callable[[Path], object]) -> Damage:
    """Change the file of a text."""

    def damage(out: Path) -> None:
        line = json.loads((out / DOCUMENTS).read_bytes().split(b"\n")[HURT - 1])
        change(out / line["versions"][0]["text"])

    return damage


def link_out(path: Path) -> None:
    """The same content, but somewhere else."""
    elsewhere = path.parents[3] / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def save_array(array: Any, *, allow_pickle: bool = False) -> Damage:
    def damage(out: Path) -> None:
        content = BytesIO()
        np.save(content, array, allow_pickle=allow_pickle)
        (out / VECTORS).write_bytes(content.getvalue())

    return damage


def put_text(content: bytes, length: int) -> Damage:
    """Name another text, with its own hash, as the newest of a document."""

    def damage(out: Path) -> None:
        digest = hashlib.sha256(content).hexdigest()
        path = f"contents/{digest[:2]}/{digest}.txt"
        (out / path).parent.mkdir(exist_ok=True)
        (out / path).write_bytes(content)
        on_newest(contentHash=digest, contentLength=length, text=path)(out)

    return damage


def deepen(line: bytes) -> bytes:
    return line.replace(b'{"number":', b'{"deep":' + b"[" * 100_000 + b"]" * 100_000 + b',"number":')


# --- one document -----------------------------------------------------------------------------------------------------

HURT_DOCUMENTS: dict[str, tuple[Damage, str]] = {
    "cut line": (on_line(lambda line: line[:-20]), "is broken JSON"),
    "no object": (on_line(lambda _: b"[1, 2]"), "is not a JSON object"),
    "empty line": (on_line(lambda _: b""), "is broken JSON"),
    "not UTF-8": (on_line(lambda line: line.replace(b"Note", b"N\xffte")), "is not UTF-8"),
    "lone surrogate": (on_line(lambda line: line.replace(b"Note", b"N\\ud800te")), "half a surrogate pair"),
    "NaN": (on_line(lambda line: line.replace(b'{"number":1}', b'{"number":NaN}')), "no finite number"),
    "too deep": (on_line(deepen), "too deep|deeper than 16 levels"),
    "unknown field": (on_values(lambda line: line.update(extra=1)), "not known"),
    "missing field": (on_values(lambda line: line.pop("createdAt")), "createdAt"),
    "text for a number": (on_values(lambda line: line["versions"][0].update(version="1")), "versions"),
    "no time zone": (on_values(lambda line: line.update(createdAt="2026-01-01T00:00:00")), "createdAt"),
    "document id": (on_values(lambda line: line.update(documentId="../../x")), "documentId"),
    "source id": (on_values(lambda line: line.update(sourceId="../x")), "source id is not one"),
    "NUL in a title": (on_attributes(title="a\x00b"), "NUL"),
    "long title": (on_attributes(title="x" * 600), "at most 512"),
    "tags as typed": (on_attributes(tags=["A "]), "tags are not trimmed"),
    "bad key": (on_attributes(metadata={"$where": 1}), r"begins with \$"),
    "content type": (on_attributes(contentType="exe"), "contentType|attributes"),
    "owner of nothing": (on_attributes(owners={"__proto__": "me"}), "attributes"),
    "chunk size": (on_values(lambda line: line.update(chunkSizeTokens=7)), "chunkSizeTokens"),
    "no versions": (on_values(lambda line: line.update(versions=[])), "versions"),
    "versions that fall": (on_values(lambda line: line["versions"].reverse()), "versions do not rise"),
    "path upwards": (on_newest(text="../../../../etc/passwd"), "does not lie where its hash says"),
    "absolute path": (on_newest(text="/etc/passwd"), "does not lie where its hash says"),
    "hash with a path": (on_newest(contentHash="../" * 20 + "abcd"), "versions"),
    "wrong length": (on_newest(contentLength=5), "characters and not 5"),
    "missing text": (on_text(Path.unlink), "contents/../.{64}.txt is missing"),
    "other text": (on_text(lambda path: path.write_text("Other words.")), "not the text that was exported"),
    "longer text": (on_text(lambda path: path.write_text("x" * 20_000_001)), "larger than"),
    "text elsewhere": (on_text(link_out), "leads out of the export"),
    "pipe": (on_text(become_pipe), "is no plain file"),
    "text not UTF-8": (put_text(b"caf\xe9", 4), "is not UTF-8"),
    "surrogate as bytes": (put_text(b"a\xed\xa0\x80", 2), "is not UTF-8"),
    "carriage return": (put_text(b"one\r\ntwo", 8), "carriage return"),
    "blank text": (put_text(b" \n", 2), "is blank"),
    "rows of none": (on_values(lambda line: line.update(chunkCount=9)), "of its 9 rows"),
    "row of another": (on_values(lambda line: line.update(documentId="0" * 24), CHUNKS), "has 0 of its 1 rows"),
    "broken row": (on_line(lambda line: line[:-9], CHUNKS), "chunks-00001.jsonl, line 2: is broken JSON"),
    "no number": (lambda out: spoil_vector(out, float("nan")), "no finite numbers"),
    "infinite": (lambda out: spoil_vector(out, float("inf")), "no finite numbers"),
}


def spoil_vector(out: Path, number: float) -> None:
    array = np.load(out / VECTORS).copy()
    array[HURT - 1, 3] = number
    save_array(array)(out)


@pytest.mark.parametrize("name", HURT_DOCUMENTS)
async def test_a_damaged_document_fails_alone(make_core: MakeCore, out: Path, name: str) -> None:
    """It is named by file and line, the others are stored, and the database is sound."""
    damage, message = HURT_DOCUMENTS[name]
    damage(out)
    seal(out)
    core = make_core()
    report = await bring(core, out)
    (problem,) = report.problems
    assert f"{DOCUMENTS}, line {HURT}" in f"{problem.place} {problem.reason}"
    assert re.search(message, problem.reason), problem.reason
    assert len(problem.describe()) < 700
    assert (report.created, report.texts, report.is_complete) == (COUNT - 1, 0, False)
    health = await core.store.check_health()
    assert (health.documents, health.faults) == (COUNT - 1, ())


async def test_a_file_that_was_changed_is_told_although_its_lines_can_be_read(make_core: MakeCore, out: Path) -> None:
    """A title with a flipped bit is a title: only the sha256 of the file knows."""
    on_attributes(title="Nope 1")(out)
    report = await bring(make_core(), out)
    (problem,) = report.problems
    assert (problem.place, report.created) == (DOCUMENTS, COUNT)
    assert "sha256 differs" in problem.reason


async def test_a_line_without_end_is_not_read_into_memory(make_core: MakeCore, out: Path) -> None:
    """The file is given up there; what stands before is taken."""
    on_line(lambda line: line + b" " * (MAX_LINE_BYTES + 1))(out)
    seal(out)
    report = await bring(make_core(), out)
    assert report.created == 1
    assert "is longer than" in report.problems[0].reason


async def test_one_document_twice_is_stored_once(make_core: MakeCore, out: Path) -> None:
    """The same line again is unchanged; another document under its id is a conflict of its own."""
    lines = (out / DOCUMENTS).read_bytes().split(b"\n")
    twin = json.loads(lines[HURT - 1])
    twin["documentId"] = "f" * 24
    twin["chunkCount"] = 0
    (out / DOCUMENTS).write_bytes(b"\n".join([lines[0], *lines[:-1], json.dumps(twin).encode(), b""]))
    seal(out)
    core = make_core()
    report = await bring(core, out, use_vectors=False)
    assert (report.created, report.unchanged) == (COUNT, 1)
    (problem,) = report.problems
    assert problem.place == f"{DOCUMENTS}, line {COUNT + 2}"
    assert (await core.store.check_health()).documents == COUNT


# --- the export as a whole --------------------------------------------------------------------------------------------


def without(name: str) -> Damage:
    return lambda out: (out / name).unlink()


def linked(name: str) -> Damage:
    def damage(out: Path) -> None:
        elsewhere = out.parent / f"elsewhere-{name}"
        (out / name).rename(elsewhere)
        (out / name).symlink_to(elsewhere)

    return damage


def manifest(change: Callable[[dict[str, Any]], object]) -> Damage:
    return lambda out: change_manifest(out, change)


def sealed(damage: Damage) -> Damage:
    def both(out: Path) -> None:
        damage(out)
        seal(out)

    return both


def cut(name: str) -> Damage:
    return lambda out: os.truncate(out / name, (out / name).stat().st_size - 4)


HURT_EXPORTS: dict[str, tuple[Damage, str]] = {
    "no manifest": (without("memory.json"), "holds no memory.json"),
    "broken manifest": (lambda out: os.truncate(out / "memory.json", 50), "memory.json: is broken JSON"),
    "no export": (lambda out: cast("Any", (out / "memory.json").write_text("{}")), "not that of an export"),
    "manifest elsewhere": (linked("memory.json"), "memory.json leads out of the export"),
    "newer format": (
        manifest(lambda one: one.update(formatVersion=2, future=True)),
        "format 2, and this program reads",
    ),
    "format of text": (manifest(lambda one: one.update(formatVersion="1")), "names no version"),
    "parts out of order": (manifest(lambda one: one["parts"][0].update(number=2)), "not numbered from 1 on"),
    "a part elsewhere": (manifest(lambda one: one["parts"][0].update(sha256={"../x": "0" * 64})), "its files"),
    "no documents": (without(DOCUMENTS), f"{DOCUMENTS} is missing"),
    "documents elsewhere": (linked(DOCUMENTS), f"{DOCUMENTS} leads out of the export"),
    "no chunks": (without(CHUNKS), f"{CHUNKS} is missing"),
    "no vectors": (without(VECTORS), f"{VECTORS} is missing"),
    "vectors elsewhere": (linked(VECTORS), f"{VECTORS} leads out"),
    "changed vectors": (lambda out: spoil_vector(out, 0.5), f"{VECTORS} is not what was exported"),
    "changed chunks": (on_line(lambda line: line + b" ", CHUNKS), f"{CHUNKS} is not what was exported"),
    "cut vectors": (sealed(cut(VECTORS)), "cut off or too long"),
    "rows missing": (sealed(save_array(np.zeros((3, 16), dtype=np.float32))), r"its head says float32 \(3, 16\)"),
    "other width": (sealed(save_array(np.zeros((4, 8), dtype=np.float32))), r"float32 \(4, 8\)"),
    "doubles": (sealed(save_array(np.zeros((4, 16)))), "float64"),
    "flat": (sealed(save_array(np.zeros(64, dtype=np.float32))), r"float32 \(64,\)"),
    "pickled": (sealed(save_array(np.array([{}] * 4), allow_pickle=True)), "object"),
    "no array": (sealed(lambda out: cast("Any", (out / VECTORS).write_bytes(b"not an array"))), "cannot be read"),
    "empty array": (sealed(lambda out: cast("Any", (out / VECTORS).write_bytes(b""))), "cannot be read"),
}


@pytest.mark.parametrize("name", HURT_EXPORTS)
async def test_an_export_that_is_damaged_as_a_whole_is_refused(make_core: MakeCore, out: Path, name: str) -> None:
    """Before anything is stored: the file is named, and what to do."""
    damage, message = HURT_EXPORTS[name]
    damage(out)
    core = make_core()
    with pytest.raises(ValidationError, match=message):
        await bring(core, out)
    assert await core.store.read_active_space() is None


async def test_damaged_vectors_are_not_needed(make_core: MakeCore, out: Path) -> None:
    """`--no-vectors` embeds everything, whatever became of them."""
    without(VECTORS)(out)
    report = await bring(make_core(), out, use_vectors=False)
    assert (report.created, report.problems) == (COUNT, ())
    assert report.texts > 0


async def test_a_directory_that_is_none(make_core: MakeCore, tmp_path: Path) -> None:
    """A missing one, a file and an empty one are each told."""
    core = make_core()
    with pytest.raises(ValidationError, match="does not exist"):
        await bring(core, tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValidationError, match="holds no memory"):
        await bring(core, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValidationError, match="holds no memory"):
        await bring(core, tmp_path / "empty")


async def test_a_link_to_the_export_is_the_export(make_core: MakeCore, out: Path, tmp_path: Path) -> None:
    """The owner may name it as he likes; only what lies inside must stay inside."""
    (tmp_path / "link").symlink_to(out)
    report = await bring(make_core(), tmp_path / "link")
    assert (report.created, report.problems) == (COUNT, ())


async def test_fewer_versions_are_kept_where_fewer_are_wanted(make_core: MakeCore, out: Path) -> None:
    """The newest of them, with their numbers; older texts need not even be there."""
    on_text(Path.unlink)(out)
    core = make_core(MEMORY_VERSIONS_KEPT=1)
    report = await bring(core, out)
    assert (report.created, report.problems) == (COUNT, ())
    document = await core.store.read_document("notes/0")
    assert document is not None
    assert [version.version for version in document.versions] == [2]
