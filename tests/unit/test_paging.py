"""Cursors of a listing: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import re
import struct
from base64 import urlsafe_b64encode
from binascii import crc32
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.errors import ValidationError
from memory_core.paging import Position, find_start, read_cursor, write_cursor
from memory_core.store_ports import ListQuery

MOMENT = datetime(2026, 11, 1, 12, 30, 0, 123_000, tzinfo=UTC)
CURSOR = write_cursor(Position(MOMENT, "0123456789abcdef01234567"))

moments = st.integers(-(10**12), 10**14).map(
    lambda milliseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
)
ids = st.binary(min_size=12, max_size=12).map(bytes.hex)


@given(updated_at=moments, document_id=ids)
def test_a_cursor_comes_back_as_its_position(updated_at: datetime, document_id: str) -> None:
    """To the millisecond; and it fits a URL and a command line as it is."""
    cursor = write_cursor(Position(updated_at, document_id))
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{31}", cursor)
    assert read_cursor(cursor) == Position(updated_at, document_id)
    assert read_cursor(f" {cursor}\n") == Position(updated_at, document_id)


@pytest.mark.parametrize("place", range(len(CURSOR)))
def test_a_cursor_with_a_wrong_character_is_refused(place: int) -> None:
    """Instead of a page that starts somewhere else."""
    other = "B" if CURSOR[place] == "A" else "A"
    with pytest.raises(ValidationError, match="cursor is not one that a listing gave"):
        read_cursor(CURSOR[:place] + other + CURSOR[place + 1 :])


@pytest.mark.parametrize("text", ["", "50", "naïve", "=" * 32, CURSOR[:-1], CURSOR[:-4], CURSOR + "AAAA", "A" * 32])
def test_what_is_no_cursor_is_refused_without_being_quoted(text: str) -> None:
    """An error reaches the log, and the text is a caller's."""
    with pytest.raises(ValidationError) as caught:
        read_cursor(text)
    assert len(text) < 3 or text not in caught.value.message


def test_a_cursor_of_a_time_that_no_clock_has_is_refused() -> None:
    """A forged one: its checksum is right."""
    place = struct.pack(">q12s", 2**62, b"\0" * 12)
    with pytest.raises(ValidationError, match="cursor"):
        read_cursor(urlsafe_b64encode(place + struct.pack(">I", crc32(place))).decode())


def test_a_page_starts_at_an_offset_or_behind_a_cursor() -> None:
    """Not both: one of them would be dropped in silence."""
    assert find_start(ListQuery(offset=5)) is None
    assert find_start(ListQuery(after=CURSOR)) == read_cursor(CURSOR)
    with pytest.raises(ValidationError, match="not both"):
        find_start(ListQuery(after=CURSOR, offset=5))
