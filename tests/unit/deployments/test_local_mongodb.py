import os
from pathlib import Path

import pytest

from deployments import local_mongodb
from deployments.home import ServiceHome
from deployments.local_mongodb import choose_mongod, find_mongod
from memory_core.errors import ServiceError


@pytest.fixture
def home(tmp_path: Path) -> ServiceHome:
    made = ServiceHome(tmp_path / "home")
    made.prepare()
    return made


def make_mongod(directory: Path, version: str) -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / "mongod"
    program.write_text(f"#!/bin/sh\necho 'db version v{version}'\n", encoding="utf-8")
    program.chmod(0o700)
    return program


def test_the_configured_mongod_wins_then_the_home_s_then_path_s_then_the_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home keeps the server that wrote its files; a new one takes the machine's own before the packaged one."""
    configured, recorded, on_path = (make_mongod(tmp_path / name, "7.0.1") for name in ("a", "b", "c"))
    record = {"program": str(recorded)}
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_mongod(record, configured=str(configured)) == configured
    assert find_mongod(record, configured=None) == recorded
    assert find_mongod({"program": "/gone"}, configured=None) == on_path
    monkeypatch.setenv("PATH", "")
    assert find_mongod({}, configured=None).is_file()


def test_a_machine_without_mongod_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear sentence where there is no server."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local_mongodb, "_find_packaged", lambda: None)
    with pytest.raises(ServiceError, match="set MONGODB_URI"):
        find_mongod({}, configured=None)
    with pytest.raises(ServiceError, match="MEMORY_MONGOD names /nowhere"):
        find_mongod({}, configured="/nowhere")


async def test_files_are_not_opened_by_another_major_version(home: ServiceHome, tmp_path: Path) -> None:
    """A new mongod on the machine does not touch a home of the old one."""
    old, patched, new = (make_mongod(tmp_path / v, v) for v in ("6.0.5", "6.0.20", "8.0.1"))
    assert await choose_mongod(home, configured=str(old)) == (old, "6.0.5")
    with pytest.raises(ServiceError, match=r"written by version 6\.0\.5 .* MEMORY_MONGOD to a mongod 6\.x"):
        await choose_mongod(home, configured=str(new))
    assert await choose_mongod(home, configured=str(patched)) == (patched, "6.0.20")


async def test_the_version_is_asked_once(home: ServiceHome, tmp_path: Path) -> None:
    """A start does not pay for a question whose answer is known."""
    program = make_mongod(tmp_path / "a", "6.0.5")
    await choose_mongod(home, configured=str(program))
    before = program.stat()
    program.write_text("x" * before.st_size, encoding="utf-8")
    os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (await choose_mongod(home, configured=str(program)))[1] == "6.0.5"


async def test_a_program_that_is_no_mongod_is_refused(home: ServiceHome, tmp_path: Path) -> None:
    """A wrong MEMORY_MONGOD is noticed before anything is written."""
    program = make_mongod(tmp_path / "a", "none")
    with pytest.raises(ServiceError, match="does not say which version"):
        await choose_mongod(home, configured=str(program))
    assert home.read_record("mongod") is None
