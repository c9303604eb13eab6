"""The table from the driver's errors to ours, and how long a call waits. Needs no server."""

from __future__ import annotations

from typing import Any

import pymongo.errors as vendor
import pytest
from bson.errors import InvalidDocument

from memory_core.adapters.mongo_connection import WAIT_QUEUE_TIMEOUT_MS, call_translated, connect, translate
from memory_core.errors import StorageError, StorageUnavailableError, TooLargeError
from memory_core.models import StoreContentRequest

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
