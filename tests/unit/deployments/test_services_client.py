import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deployments.home import ServiceHome
from deployments.local_prefect import server_environment
from deployments.service_messages import (
    Acquire,
    Message,
    Options,
    Service,
    decode,
    decode_acquire,
    encode,
    encode_acquire,
)
from deployments.services import acquire, read_status, stop
from memory_core.errors import ServiceError
from memory_core.settings import Settings, load_settings

BOTH = frozenset({Service.MONGODB, Service.PREFECT})


def settings_of(home: Path, **more: Any) -> Settings:
    values: dict[str, Any] = {"MEMORY_HOME": str(home), "MONGODB_URI": None, "PREFECT_API_URL": None, **more}
    return load_settings(**values)


@contextmanager
def supervisor(home: Path, *answers: Message | None) -> Generator[list[Message]]:
    """Stand in for a supervisor: one answer for each connection, None to hang up."""
    files = ServiceHome(home)
    files.prepare()
    asked: list[Message] = []

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                asked.append(decode(connection.makefile("rb").readline()))
                if answer:
                    connection.sendall(encode({"event": "progress", "text": "Starting ..."}) + encode(answer))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files.socket_file()))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def test_what_the_user_runs_is_not_started(tmp_path: Path) -> None:
    """With both addresses set there is no supervisor and no file, and the addresses are handed through."""
    theirs = settings_of(tmp_path / "m", MONGODB_URI="mongodb://there/", PREFECT_API_URL="http://there/api")
    with acquire(theirs, BOTH, on_progress=print) as lease:
        assert lease.addresses.mongodb_uri
        assert lease.addresses.mongodb_uri.get_secret_value() == "mongodb://there/"
        assert lease.addresses.prefect_api_url == "http://there/api"
    with acquire(settings_of(tmp_path / "m"), frozenset(), on_progress=print) as lease:
        assert lease.addresses.mongodb_uri is None
    assert not (tmp_path / "m").exists()


def test_asking_starts_nothing_and_makes_nothing(tmp_path: Path) -> None:
    """`memory doctor` on a machine without a memory leaves it without one."""
    status = read_status(settings_of(tmp_path / "m"))
    assert status.supervisor_pid is None
    assert not any(state.running for state in status.services)
    assert stop(settings_of(tmp_path / "m")).stopped == ()
    assert not (tmp_path / "m").exists()


def test_a_supervisor_that_ends_meanwhile_is_asked_again(tmp_path: Path) -> None:
    """A client that meets the last moment of a supervisor does not notice."""
    said: list[str] = []
    ready: Message = {"event": "ready", "addresses": {"mongodb_uri": "mongodb://memory:pw@127.0.0.1:1/"}}
    needs = frozenset({Service.MONGODB})
    with (
        supervisor(tmp_path, None, ready) as asked,
        acquire(settings_of(tmp_path), needs, on_progress=said.append) as lease,
    ):
        assert lease.addresses.mongodb_uri
    assert len(asked) == 2
    assert said == ["Starting ..."]
    assert asked[0]["pid"] == os.getpid()


def test_the_supervisor_s_refusal_is_the_client_s_error(tmp_path: Path) -> None:
    """A failed start, or a supervisor of another version, is one sentence at the client."""
    refusal: Message = {"event": "error", "text": "MongoDB did not start.", "cause": None}
    with supervisor(tmp_path, refusal, refusal, refusal):
        with pytest.raises(ServiceError, match="did not start"):
            acquire(settings_of(tmp_path), BOTH, on_progress=print)
        with pytest.raises(ServiceError, match="did not start"):
            stop(settings_of(tmp_path))
        assert read_status(settings_of(tmp_path)).problems == ("MongoDB did not start.",)


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A MEMORY_HOME below a file is a mistake of the settings, said in one sentence."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ServiceError, match="Set MEMORY_HOME"):
        acquire(settings_of(tmp_path / "file" / "home"), BOTH, on_progress=print)


def test_a_request_survives_the_wire() -> None:
    """What the client says is what the supervisor understands."""
    options = Options(mongod=None, mongod_cache_gb=0.5, database="memory", idle_stop_seconds=3)
    request = Acquire(needs=BOTH, options=options, pid=7, command="memory up")
    assert decode_acquire(decode(encode_acquire(request))) == request
    with pytest.raises(ValueError, match="JSON object"):
        decode(b"[]\n")


def test_our_prefect_server_is_silent_and_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No telemetry, no setting of the user's, a password, and only its own page may call it."""
    monkeypatch.setenv("PREFECT_API_KEY", "theirs")
    found = server_environment(directory=tmp_path, ui_url="http://127.0.0.1:1", auth="memory:pw", database_url="x")
    assert "PREFECT_API_KEY" not in found
    assert found["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert found["DO_NOT_TRACK"] == "1"
    assert found["PREFECT_SERVER_API_AUTH_STRING"] == "memory:pw"
    assert found["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "http://127.0.0.1:1,http://localhost:1"
