"""Where a page of a listing starts. In: a query. Out: the position behind which its page begins, and cursors. Pure.

Documents are listed by descending (updatedAt, id). A cursor is such a pair: it stays true while others write, because a
document that does not change keeps its place, and one that changes moves ahead of every cursor that was given before.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from memory_core.errors import ValidationError
from memory_core.store_ports import ListQuery

# A total is counted up to here. Beyond it a listing says "10000+": counting everything would grow with the memory.
EXACT_TOTAL = 10_000

# Milliseconds since 1970, the 12 bytes of a document id, and a checksum of both: 24 bytes, 32 characters of base64.
_PLACE = struct.Struct(">q12s")
_CHECK = struct.Struct(">I")
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A document's place in a listing: the time of its last change in whole milliseconds, and its id."""

    updated_at: datetime
    document_id: str


def find_start(query: ListQuery) -> Position | None:
    """The position behind which the query's page begins, None for one that is counted from the newest.

    Raises:
        ValidationError: the cursor is none of ours, or stands beside an offset.
    """
    if query.after is None:
        return None
    if query.offset:
        raise ValidationError("A page starts behind a cursor or at an offset, not both. Leave one of them out.")
    return read_cursor(query.after)


def write_cursor(position: Position) -> str:
    """32 characters of the URL-safe base64 alphabet. The first is no hyphen: a command line takes it for a value."""
    place = _PLACE.pack((position.updated_at - _EPOCH) // _MILLISECOND, bytes.fromhex(position.document_id))
    return base64.urlsafe_b64encode(place + _CHECK.pack(binascii.crc32(place))).decode()


def read_cursor(text: str) -> Position:
    """The position that a cursor was made of.

    Raises:
        ValidationError: it was not made by `write_cursor`.
    """
    try:
        packed = base64.b64decode(text.strip().encode("ascii"), altchars=b"-_", validate=True)
        place, check = packed[: _PLACE.size], packed[_PLACE.size :]
        milliseconds, document_id = _PLACE.unpack(place)
        position = Position(_EPOCH + milliseconds * _MILLISECOND, document_id.hex())
    except (ValueError, OverflowError, struct.error):
        raise _bad_cursor() from None
    if check != _CHECK.pack(binascii.crc32(place)):
        raise _bad_cursor()
    return position


def _bad_cursor() -> ValidationError:
    return ValidationError(
        "The cursor is not one that a listing gave, or a part of it is missing. Take it from the page before as it "
        "stands there, or leave it out to start at the newest document."
    )
