import dataclasses
import os
import socket
import stat
from pathlib import Path

import pytest

from deployments import home as home_module
from deployments.home import (
    MAX_SOCKET_PATH_BYTES,
    ServiceHome,
    choose_port,
    lock_taken,
    make_owned_directory,
    make_private_directory,
    take_lock,
    write_private,
)
from memory_core import errors
from memory_core.errors import ServiceError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path) -> ServiceHome:
    made = ServiceHome(tmp_path / "memory home")
    made.prepare()
    return made


def test_directories_are_closed_to_others_even_when_they_were_open(tmp_path: Path) -> None:
    """A directory that was made with ordinary permissions is closed when it becomes a service's."""
    (tmp_path / "services").mkdir(mode=0o755)
    assert mode(make_private_directory(tmp_path / "services")) == 0o700
    assert mode(make_private_directory(tmp_path / "a" / "b")) == mode(tmp_path / "a") == 0o700


def test_a_private_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A failed write leaves the old content and no second file."""
    path = tmp_path / "secret"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert mode(path) == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["secret"]


def test_credentials_are_made_once(home: ServiceHome) -> None:
    """Every start finds the passwords of the first one, and only the missing ones are added."""
    first = home.load_credentials()
    assert home.load_credentials() == first
    assert len({first.mongodb_root, first.mongodb_application, first.prefect_api}) == 3
    (home.directory / "credentials.json").write_text('{"mongodb_root": "kept"}', encoding="utf-8")
    assert home.load_credentials().mongodb_root == "kept"
    assert home.load_credentials().prefect_api


def test_a_password_that_was_read_is_in_no_error(home: ServiceHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a server says with it, the supervisor's words to a client have it taken out."""
    monkeypatch.setattr(errors, "_known_secrets", set[str]())
    found = home.load_credentials()
    for secret in dataclasses.astuple(found):
        assert secret not in ServiceError(f"the server said {secret}").message


@pytest.mark.parametrize("name", ["credentials.json", "state/ports.json"])
def test_a_broken_file_is_named(home: ServiceHome, name: str) -> None:
    """A file that was cut off by a full disk is named with what to do."""
    (home.directory / name).write_text("{", encoding="utf-8")
    with pytest.raises(ServiceError, match="cannot be read"):
        home.load_credentials() if name == "credentials.json" else home.read_record("ports")


def test_the_socket_of_a_deep_home_has_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep a home lies, the system accepts the path of its socket, and two homes never share one."""
    monkeypatch.setattr(home_module, "_SHORT_DIRECTORY", tmp_path)
    deep, other = ServiceHome(tmp_path / ("d" * 200)), ServiceHome(tmp_path / ("e" * 200))
    deep.prepare()
    assert len(os.fsencode(deep.socket_file())) < len(os.fsencode(tmp_path)) + 60
    assert deep.socket_file() != other.socket_file()
    assert mode(deep.socket_file().parent) == 0o700
    assert len(os.fsencode(ServiceHome(Path("/h")).socket_file())) <= MAX_SOCKET_PATH_BYTES
    assert ServiceHome(Path("/h")).socket_file() == Path("/h/services/supervisor.sock")


def test_a_directory_that_somebody_else_laid_there_is_refused(tmp_path: Path) -> None:
    """A link or an open directory at the short place is not trusted."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("open", "link"):
        with pytest.raises(ServiceError, match="shorten MEMORY_HOME"):
            make_owned_directory(tmp_path / name)


def test_one_process_holds_the_lock(home: ServiceHome) -> None:
    """There is one supervisor per home."""
    with lock_taken(home) as free:
        assert free
        assert take_lock(home) is None
    with lock_taken(home) as free:
        assert free


def test_a_port_is_kept_until_somebody_else_has_it(home: ServiceHome) -> None:
    """An address stays the same from start to start where that is possible."""
    port = choose_port(home, "mongodb")
    assert choose_port(home, "mongodb") == port
    with socket.create_server(("127.0.0.1", port)):
        moved = choose_port(home, "mongodb")
    assert moved != port
    assert choose_port(home, "mongodb") == moved
