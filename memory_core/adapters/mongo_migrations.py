"""From an older schema to this program's. In: a database of ours. Out: the same, step by step, each recorded in `meta`.

A step may run twice: it is recorded after it is done, so one that was killed in the middle runs again, and so do both
where two processes migrate at once. Whoever is first records it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pymongo.database import Database

from memory_core.adapters.mongo_connection import MongoConnection, Row
from memory_core.adapters.mongo_indexes import META, create_indexes
from memory_core.adapters.mongo_schema import apply_validators
from memory_core.adapters.mongo_spaces import META_ID, read_space, refuse_foreign_rows
from memory_core.spaces import SCHEMA_VERSION, refuse_other_schema
from memory_core.store_ports import ActiveSpace, SchemaChange, SchemaStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step. `apply` may be repeated, and may meet a database that is written meanwhile by an older program."""

    number: int
    name: str
    apply: Callable[[Database[Row]], None]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(number=1, name="documents, contents and chunks, with their indexes", apply=create_indexes),
    Migration(number=2, name="the server checks what a row may be", apply=apply_validators),
)


def migrate(
    connection: MongoConnection, *, dry_run: bool, migrations: Sequence[Migration] = MIGRATIONS
) -> SchemaChange:
    """Apply what the database lacks, in order.

    Raises:
        ForeignDatabaseError: rows without our `meta`, or a schema that is newer than this program.
    """
    space = read_space(connection)
    if space is None:
        refuse_foreign_rows(connection)
        return SchemaChange(before=None, after=SCHEMA_VERSION, dry_run=dry_run)
    _refuse_newer(space, newest=migrations[-1].number)
    missing = [one for one in migrations if one.number > space.schema_version]
    made = missing if dry_run else [one for one in missing if _make(connection, one)]
    return SchemaChange(
        before=space.schema_version,
        after=missing[-1].number if missing else space.schema_version,
        steps=tuple(SchemaStep(number=one.number, name=one.name) for one in made),
        dry_run=dry_run,
    )


def _refuse_newer(space: ActiveSpace, *, newest: int) -> None:
    if space.schema_version > newest:
        refuse_other_schema(space)


def _make(connection: MongoConnection, step: Migration) -> bool:
    """Apply and record one step. Returns False where another process recorded it first."""
    space = read_space(connection)
    if space is None or space.schema_version >= step.number:
        return False
    step.apply(connection.database)
    entry: Row = {"number": step.number, "name": {"$literal": step.name}, "at": "$$NOW"}
    recorded: Row = {"$concatArrays": [{"$ifNull": ["$migrations", []]}, [entry]]}
    result = connection.collection(META).update_one(
        {"_id": META_ID, "schemaVersion": space.schema_version},
        [{"$set": {"schemaVersion": step.number, "migrations": recorded}}],
    )
    return result.matched_count == 1
