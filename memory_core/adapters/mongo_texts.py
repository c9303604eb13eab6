"""Which texts there are. In: a database. Out: body ids with their number of parts, from an index; no text is read."""

from __future__ import annotations

from collections.abc import KeysView
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from memory_core.adapters.mongo_connection import Row
from memory_core.adapters.mongo_indexes import CONTENTS
from memory_core.adapters.mongo_rows import PART_CHARS

_INDEX = "contents_bodyId_part"


class StoredTexts:
    """The parts of every text, counted."""

    def __init__(self, parts: dict[str, tuple[int, int]]) -> None:
        self._parts = parts

    def keys(self) -> KeysView[str]:
        """The ids of all texts."""
        return self._parts.keys()

    def has(self, body_id: str, length: int | None) -> bool:
        """Whether a text of so many characters is there with all its parts; None: of any length."""
        count, last = self._parts.get(body_id, (0, -1))
        expected = count if length is None else -(-length // PART_CHARS)
        return count > 0 and count == expected and last == count - 1


def read_texts(
    database: Database[Row], session: ClientSession | None = None, *, body_ids: list[str] | None = None
) -> StoredTexts:
    """All texts, or those of these ids."""
    contents = database[CONTENTS]
    chosen: list[Row] = [{"$match": {"bodyId": {"$in": body_ids}}}] if body_ids is not None else []
    has_index = _INDEX in contents.index_information()
    hint: dict[str, Any] = {"hint": _INDEX} if has_index else {}
    groups = contents.aggregate(
        [
            *chosen,
            {"$project": {"_id": 0, "bodyId": 1, "part": 1}},
            {"$group": {"_id": "$bodyId", "n": {"$sum": 1}, "last": {"$max": "$part"}}},
        ],
        allowDiskUse=True,
        session=session,
        **hint,
    )
    return StoredTexts({row["_id"]: (row["n"], row["last"]) for row in groups})
