"""The table from the driver's errors to ours, and how long a call waits. Needs no server: see the contract suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bson
import pymongo.errors as vendor
import pytest
from bson.errors import InvalidDocument
from pymongo.pool_shared import _PoolClosedError

from memory_core.adapters.mongo_connection import WAIT_QUEUE_TIMEOUT_MS, connect
from memory_core.adapters.mongo_errors import REFUSED, RULES, Rule, call_translated, error_codes, translate
from memory_core.errors import ConfigError, StorageError, StorageUnavailableError, TooLargeError
from memory_core.store_request import StoreContentRequest

DIARY = "Dear diary, nobody may read this."


async def test_nobody_waits_for_a_connection_for_ever() -> None:
    """A pool that somebody keeps occupied is an error after a minute."""
    connection = connect("mongodb://127.0.0.1:9/", "any", max_pool_size=1, server_selection_timeout_ms=1)
    assert connection.client.options.pool_options.wait_queue_timeout == WAIT_QUEUE_TIMEOUT_MS / 1000
    await connection.close()


@pytest.mark.parametrize(
    ("code", "remedy"), [(112, "Other writers"), (251, "transactionLifetime"), (290, "transactionLifetime")]
)
def test_a_transaction_that_was_given_up_is_not_called_an_absent_server(code: int, remedy: str) -> None:
    """It has its own sentence, and a retry can help."""
    error = translate(vendor.OperationFailure("given up", code))
    assert isinstance(error, StorageUnavailableError)
    assert remedy in error.message


def test_a_bulk_error_tells_codes_and_no_content() -> None:
    """The driver's text is the whole failing operation, with everything that was to be written."""
    failed: dict[str, Any] = {"q": {"_id": 1}, "u": {"$set": {"text": DIARY}}}
    entries = [
        {
            "index": 0,
            "code": 11000,
            "errmsg": f'E11000 duplicate key index: a_b dup key: {{ a: "{DIARY}" }}',
            "op": failed,
        },
        {"index": 1, "code": 10334, "errmsg": f"too large\n{DIARY}", "op": failed},
        {"index": 2, "code": 10334, "errmsg": f"too large\n{DIARY}", "op": failed},
    ]
    error = translate(vendor.BulkWriteError({"writeErrors": entries, "writeConcernErrors": []}))
    assert isinstance(error, TooLargeError)
    assert error.cause == "BulkWriteError: 11000: E11000 duplicate key index: a_b; 10334: too large"


def test_an_error_of_a_command_tells_its_code_and_first_line() -> None:
    """Not the server's whole answer."""
    answer = {"ok": 0.0, "code": 13, "codeName": "Unauthorized", "errmsg": f"not authorized\n{DIARY}", "extra": DIARY}
    error = translate(vendor.OperationFailure(f"not authorized {DIARY}", 13, answer))
    assert error.cause == "OperationFailure: 13 Unauthorized: not authorized"
    away = translate(vendor.AutoReconnect(f"not primary, full error: {DIARY}"))
    assert away.cause == "AutoReconnect: not primary"


@pytest.mark.parametrize(
    "message",
    [
        f'BSONObj size: 17825822 is invalid. First element: _id: "{DIARY}"',
        f'not authorized on memory to execute command {{ find: "x", filter: {{ sourceId: "{DIARY}" }} }}',
        f'Cannot apply $inc to a value of non-numeric type. {{_id: "{DIARY}"}} has a field of type string',
        f'E11000 duplicate key error collection: memory.feeds index: root dup key: {{ root: "{DIARY}" }}',
    ],
)
def test_the_servers_words_end_where_it_quotes(message: str) -> None:
    """A row's first field, a command's filter, a row, a key."""
    error = translate(vendor.OperationFailure(message, 9, {"code": 9, "errmsg": message}))
    assert "diary" not in f"{error.message} {error.cause}"
    assert message[:20] in (error.cause or "")


def make_bulk_error(*codes: int) -> vendor.BulkWriteError:
    """A bulk write whose parts failed with these codes."""
    entries = [{"index": place, "code": code, "errmsg": f"words {place}"} for place, code in enumerate(codes)]
    return vendor.BulkWriteError({"writeErrors": entries, "writeConcernErrors": []})


def test_a_bulk_error_has_the_codes_of_its_parts_only() -> None:
    """Its own code says that there are several: who asks for "nothing but duplicates" must not find it."""
    assert error_codes(make_bulk_error(11000, 11000)) == {11000}


def test_a_bulk_error_with_a_part_that_no_retry_heals_is_not_retried() -> None:
    """Whatever the order of its parts."""
    for codes in ((112, 121), (121, 112)):
        error = translate(make_bulk_error(*codes))
        assert type(error) is StorageError
        assert "report it" in error.message
    assert translate(make_bulk_error(112, 11000)).retryable


def test_a_bulk_error_of_thousands_of_parts_has_a_short_cause() -> None:
    """A few of them, and how many more there are."""
    cause = translate(make_bulk_error(*[9] * 2_000)).cause or ""
    assert cause.endswith("; 9: words 4; and 1995 others")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (vendor.AutoReconnect("127.0.0.1:1: connection pool paused"), "was cut"),
        (vendor.WaitQueueTimeoutError("Timed out while checking out a connection"), "MONGODB_MAX_POOL_SIZE"),
        (vendor.NetworkTimeout("127.0.0.1:1: timed out"), "did not answer in time"),
        (vendor.ServerSelectionTimeoutError("127.0.0.1:1: Connection refused"), "does not answer"),
        (vendor.ServerSelectionTimeoutError("No primary available for writes"), "has no primary"),
    ],
)
def test_each_failure_of_the_connection_has_its_sentence(error: vendor.PyMongoError, words: str) -> None:
    """Another attempt can succeed, and the driver's class is in the cause."""
    ours = translate(error)
    assert type(ours) is StorageUnavailableError
    assert words in ours.message
    assert (ours.cause or "").startswith(type(error).__name__)


def test_a_pool_that_was_closed_under_a_thread_is_told() -> None:
    """The driver has an error of its own for it, below none of the others."""
    error = translate(_PoolClosedError("Attempted to check out a connection from closed connection pool"))
    assert "was closed while it was in use" in error.message


def test_a_transaction_that_was_tried_for_too_long_says_what_failed() -> None:
    """The driver dresses it as a time-out of the network, and the operation is in its text."""
    inner = vendor.OperationFailure(
        f"conflict {DIARY}", 112, {"code": 112, "codeName": "WriteConflict", "errmsg": "no"}
    )
    dressed = vendor.NetworkTimeout(str(inner))
    dressed.__cause__ = inner
    error = translate(dressed)
    assert "Other writers" in error.message
    assert error.cause == "OperationFailure: 112 WriteConflict: no"


@pytest.mark.parametrize("label", ["TransientTransactionError", "RetryableWriteError"])
def test_what_the_server_calls_passing_is_tried_again_whatever_its_code(label: str) -> None:
    """A newer server has codes that the table does not know, and says so by a label."""
    answer = {"code": 462, "codeName": "IngressRequestRateLimitExceeded", "errmsg": "busy", "errorLabels": [label]}
    assert translate(vendor.OperationFailure("busy", 462, answer)).retryable
    assert not translate(vendor.OperationFailure("busy", 462, answer | {"errorLabels": []})).retryable


def test_a_wrong_name_or_address_is_a_matter_of_the_settings() -> None:
    """Nothing is wrong with the content."""
    for error in (vendor.InvalidName("a space"), vendor.ConfigurationError("wire version 6, but 8 is needed")):
        assert isinstance(translate(error), ConfigError)


def test_what_the_driver_finds_too_large_is_not_called_a_wrong_value() -> None:
    """It is one of the driver's errors of encoding, and those are told otherwise."""

    def fail() -> None:
        raise vendor.DocumentTooLarge("BSON document too large (17826076 bytes)")

    with pytest.raises(TooLargeError) as refusal:
        call_translated(fail)
    assert refusal.value.cause == "DocumentTooLarge: BSON document too large (17826076 bytes)"


def test_half_a_character_is_refused_and_not_quoted() -> None:
    """Python's own error, which comes out of the driver as it is."""
    with pytest.raises(StorageError) as refusal:
        call_translated(bson.encode, {"text": f"{DIARY}\ud800"})
    assert refusal.value.cause == "UnicodeEncodeError"


@pytest.mark.parametrize("rule", [*RULES, REFUSED], ids=lambda rule: rule.sentence[:40])
def test_the_handbook_has_every_sentence(rule: Rule) -> None:
    """Who looks for a message finds it, with its class and its codes."""
    handbook = (Path(__file__).parents[3] / "docs" / "errors.md").read_text()
    (line,) = [
        line for line in handbook.splitlines() if line.startswith(f"| {rule.sentence.split('. ')[0].rstrip('.')}")
    ]
    assert all(f" {code} " in line.replace(",", " ").replace("(", " ") for code in rule.codes)
    assert f"| {'yes' if rule.error.retryable else 'no'} |" in line


def test_an_error_of_validation_does_not_quote_its_input() -> None:
    """A door's arguments that are wrong are somebody's content too."""
    with pytest.raises(ValueError, match="content") as refusal:
        StoreContentRequest.model_validate({"content": [DIARY]})
    assert DIARY not in str(refusal.value)


def test_what_the_driver_cannot_encode_is_not_quoted() -> None:
    """A value of no BSON type is named by its error alone."""

    def fail() -> None:
        raise InvalidDocument(f"cannot encode object: {{{DIARY!r}}}")

    with pytest.raises(StorageError) as refusal:
        call_translated(fail)
    assert refusal.value.cause == "InvalidDocument"
