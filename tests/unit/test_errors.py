"""Errors: scrubbed when they are made, whole after a journey, in a tree that says whether a retry helps."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest

from memory_core import errors
from memory_core.errors import AgentMemoryError, EmbeddingUnavailableError, StorageError, register_secret, scrub


def all_classes(root: type[AgentMemoryError] = AgentMemoryError) -> Iterator[type[AgentMemoryError]]:
    yield root
    for child in root.__subclasses__():
        yield from all_classes(child)


@pytest.fixture
def no_known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_known_secrets", set[str]())


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach mongodb://ann:hunter2@db.example.org:27017/memory",
        "cannot reach mongodb+srv://ann:hunter2@db.example.org/?retryWrites=true",
        "two: http://a:hunter2@x/ and https://b:hunter2@y/",
        "an @ in it: mongodb://ann:p@hunter2@db.example.org/memory",
        "token only: https://hunter2hunter2@example.org",
        "Authorization: Bearer hunter2hunter2",
        "authorization=basic aHVudGVyMmh1bnRlcjI=  hunter2".replace("  hunter2", ""),
        "key sk-hunter2hunter2hunter2",
        "key pa-hunter2_hunter2_hunter2",
    ],
)
@pytest.mark.usefixtures("no_known_secrets")
def test_a_secret_is_taken_out_of_a_message(text: str) -> None:
    """Credentials in addresses, tokens in headers, words that look like keys."""
    scrubbed = scrub(text)
    assert "hunter2" not in scrubbed
    assert "aHVudGVy" not in scrubbed
    assert "[secret]" in scrubbed
    assert scrub(scrubbed) == scrubbed


@pytest.mark.usefixtures("no_known_secrets")
def test_a_registered_secret_is_taken_out_wherever_it_stands() -> None:
    """The longest first, so that no tail of one is left; short values are too common to replace."""
    for value in ("correct-horse", "correct-horse-battery", "abc", "", None):
        register_secret(value)
    error = StorageError("refused correct-horse-battery abc", cause=ValueError("with correct-horse"))
    assert error.message == "refused [secret] abc"
    assert error.cause == "ValueError: with [secret]"
    assert str(error) == error.message


@pytest.mark.usefixtures("no_known_secrets")
def test_an_ordinary_sentence_stays_as_it_is() -> None:
    """Host names, mail addresses, ids and paths are no secrets."""
    text = "ann@example.org stored notes/deploy at https://example.org/a?b=c (sha256:0123456789abcdef), 8 % of 3 MB"
    assert scrub(text) == text


@pytest.mark.parametrize("part", ["x", "a://", "bearer ", "sk-", "@"])
def test_a_message_has_a_limit_and_takes_linear_time(part: str, assert_linear: Callable[..., None]) -> None:
    """A vendor's five megabytes of HTML end in an ellipsis."""

    def make_text(chars: int) -> str:
        return "http://" + part * (chars // len(part))

    assert len(scrub(make_text(5_000_000))) <= 4_001
    assert_linear(scrub, make_text, chars=400_000)


@pytest.mark.usefixtures("no_known_secrets")
def test_no_half_of_a_secret_is_left_where_a_long_message_is_cut() -> None:
    """Wherever the cut falls."""
    address = "mongodb://" + "hunter2" * 50 + "@x "
    for offset in range(0, len(address), 7):
        assert "hunter" not in scrub("." * offset + address * 400)


@pytest.mark.parametrize("error_class", list(all_classes()))
@pytest.mark.parametrize("cause", [None, "as text", ValueError("two\nlines")])
def test_an_error_survives_a_journey(error_class: type[AgentMemoryError], cause: BaseException | str | None) -> None:
    """Prefect and process pools pickle errors: class, message, cause and what they say of a retry stay."""
    error = error_class("Something failed. Do this.", cause=cause)
    for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(travelled) is error_class
        assert (travelled.message, travelled.cause, str(travelled)) == (error.message, error.cause, error.message)
        assert (travelled.kind, travelled.event, travelled.retryable) == (error.kind, error.event, error.retryable)
    assert error.cause in {None, "as text", "ValueError: two lines"}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class is drawn, and every retryable one says so."""
    drawn = errors.__doc__ or ""
    for error_class in all_classes():
        line = next(line for line in drawn.splitlines() if error_class.__name__ in line.split())
        assert ("(retryable)" in line) == error_class.retryable, error_class
        if error_class.event != error_class.__mro__[1].__dict__.get("event") and error_class is not AgentMemoryError:
            assert error_class.event in drawn


def test_only_what_can_pass_is_retryable() -> None:
    """A retry of a refusal would only cost."""
    retryable = {error_class.__name__ for error_class in all_classes() if error_class.retryable}
    assert retryable == {
        "EmbeddingUnavailableError",
        "IndexUnavailableError",
        "StorageUnavailableError",
        "ThrottledError",
        "TimeLimitError",
    }
    assert issubclass(EmbeddingUnavailableError, errors.EmbeddingError)
