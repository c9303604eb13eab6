"""Whether every index is there and as `mongo_indexes` has it. In: a database. Out: findings, or the index made anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pymongo.database import Database

from memory_core.adapters.mongo_connection import Row
from memory_core.adapters.mongo_indexes import INDEXES, IndexSpec, create_indexes, is_expiring, is_sparse
from memory_core.health import FaultKind, Finding


def find_index_faults(database: Database[Row]) -> Iterator[Finding]:
    """Indexes that are missing, and those that have other keys or options."""
    missing, different = _compare(database)
    if missing:
        yield Finding(kind=FaultKind.MISSING_INDEXES, names=tuple(spec.name for spec in missing))
    if different:
        yield Finding(kind=FaultKind.DIFFERENT_INDEXES, names=tuple(spec.name for spec in different))


def mend_indexes(database: Database[Row]) -> dict[FaultKind, int]:
    """Make them as they should be. One that is unique is made only where the rows allow it."""
    missing, different = _compare(database)
    for spec in different:
        database[spec.collection].drop_index(_name_of(database, spec))
    if missing or different:
        create_indexes(database)
    return {FaultKind.MISSING_INDEXES: len(missing), FaultKind.DIFFERENT_INDEXES: len(different)}


def _compare(database: Database[Row]) -> tuple[list[IndexSpec], list[IndexSpec]]:
    missing: list[IndexSpec] = []
    different: list[IndexSpec] = []
    stored = {name: database[name].index_information() for name in {spec.collection for spec in INDEXES}}
    for spec in INDEXES:
        found = stored[spec.collection]
        if spec.name in found:
            if not _is_as(found[spec.name], spec):
                different.append(spec)
        elif any(_keys(one) == spec.keys for one in found.values()):
            different.append(spec)  # under another name: the server refuses a second one of the same keys
        else:
            missing.append(spec)
    return missing, different


def _name_of(database: Database[Row], spec: IndexSpec) -> str:
    found = database[spec.collection].index_information()
    if spec.name in found:
        return spec.name
    return next(name for name, one in found.items() if _keys(one) == spec.keys)


def _keys(found: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple((field, int(order)) for field, order in found["key"])


def _is_as(found: Mapping[str, Any], spec: IndexSpec) -> bool:
    return (
        _keys(found) == spec.keys
        and bool(found.get("unique")) == spec.unique
        and bool(found.get("sparse")) == is_sparse(spec)
        and ("expireAfterSeconds" in found) == is_expiring(spec)
        and "partialFilterExpression" not in found
    )
