import signal
from pathlib import Path

import pytest

from deployments import service_logs
from deployments.service_logs import describe_failure, read_tail, rotate

MONGOD_LINES = [
    '{"t":{"$date":"x"},"s":"I","c":"CONTROL","msg":"Build Info"}',
    '{"t":{"$date":"x"},"s":"E","msg":"Failed to set up listener","attr":{"error":"Address already in use"}}',
]


def test_the_telling_lines_are_quoted_in_plain_words() -> None:
    """Of mongod's JSON the error's message is shown, not the noise before it."""
    message = describe_failure("MongoDB", "did not start", lines=MONGOD_LINES, code=48, log=Path("/l")).message
    assert "MongoDB did not start (exit code 48)" in message
    assert "Failed to set up listener Address already in use" in message
    assert "Build Info" not in message
    assert '"t"' not in message


@pytest.mark.parametrize(
    ("line", "code", "remedy"),
    [
        ("mongod: error while loading shared libraries: libcurl.so.4: cannot open", 127, "apt-get install libcurl4"),
        ("initdb: could not look up effective user ID 1: user does not exist", 1, "/etc/passwd"),
        ("", -signal.SIGILL, "AVX"),
        ("No space left on device", 1, "Free space"),
        ("something new", 1, "memory doctor"),
    ],
)
def test_every_failure_says_what_to_do(line: str, code: int, remedy: str) -> None:
    """The error ends with the remedy that fits the log or the signal."""
    assert remedy in describe_failure("MongoDB", "did not start", lines=[line], code=code).message


def test_a_broken_log_line_is_shown_as_it_is() -> None:
    """A line that was cut off is no reason to fail while a failure is described."""
    assert '{"t":{"$da' in describe_failure("MongoDB", "ended", lines=['{"t":{"$da'], code=-9).message


def test_only_the_lines_of_this_start_are_read(tmp_path: Path) -> None:
    """Yesterday's error is not today's."""
    log = tmp_path / "x.log"
    log.write_text("yesterday\n", encoding="utf-8")
    start = rotate(log)
    with log.open("a", encoding="utf-8") as file:
        file.write("today\n")
    assert read_tail(log, start=start) == ["today"]
    assert read_tail(tmp_path / "none") == []


def test_a_long_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that talks for months does not fill the disk."""
    monkeypatch.setattr(service_logs, "_ROTATE_BYTES", 3)
    log = tmp_path / "x.log"
    log.write_text("long", encoding="utf-8")
    assert rotate(log) == 0
    assert (tmp_path / "x.log.1").read_text(encoding="utf-8") == "long"
