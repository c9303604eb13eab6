"""The process of `crash.py` that reads all the time. In: a place. Out: counts, and every document that was not whole.

It reads as search does (rows by id, which are dropped where their revision is not their document's) and, where the
server can, at one moment.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict
from multiprocessing.synchronize import Event

from crash_checks import HEALED_BY_THE_NEXT_STORE, Finding, judge_hits, judge_rows
from crash_place import Place, read_view
from crash_texts import SOURCES

from memory_core.adapters.mongo_connection import MongoConnection
from memory_core.adapters.mongo_indexes import CHUNKS
from memory_core.adapters.mongo_store import MongoStore
from memory_core.errors import AgentMemoryError

_MOST_FINDINGS = 20


def run_reader(place: Place, ended: Event) -> None:
    """Read until it is ended, then write down what was found."""
    asyncio.run(_run(place, ended))


async def _run(place: Place, ended: Event) -> None:
    connection = place.connect()
    store = MongoStore(connection, versions_kept=1)
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    while not ended.is_set():
        for name in SOURCES:
            try:
                found = await _read_as_search(name, store, connection, counts)
                if place.atomic:
                    found += await _read_at_once(name, connection, counts)
            except AgentMemoryError as error:
                if not error.retryable:
                    raise
                counts["not answered"] += 1
                continue
            for one in found:
                if place.atomic or one.fault not in HEALED_BY_THE_NEXT_STORE:
                    findings.append(one)
                else:
                    counts[f"{one.fault}, to be healed"] += 1
    await store.close()
    told = [asdict(one) for one in findings[:_MOST_FINDINGS]]
    place.readings.write_text(json.dumps({"counts": counts, "findings": told}), encoding="utf-8")


async def _read_as_search(
    name: str, store: MongoStore, connection: MongoConnection, counts: Counter[str]
) -> list[Finding]:
    before = await store.read_document(name)
    hits = await store.read_hits(await connection.run(_find_rows, connection, name))
    after = await store.read_document(name)
    is_same = before is not None and after is not None and before.state.revision == after.state.revision
    counts["reads"] += 1
    counts["reads of a document that stayed"] += is_same
    return judge_hits(list(hits.values()), current=after.state.attributes.uri if is_same and after else None)


def _find_rows(connection: MongoConnection, name: str) -> list[str]:
    return [str(row["_id"]) for row in connection.collection(CHUNKS).find({"sourceId": name}, {"_id": 1})]


async def _read_at_once(name: str, connection: MongoConnection, counts: Counter[str]) -> list[Finding]:
    view = await connection.run(read_view, connection, atomic=True, sources=[name])
    counts["reads at one moment"] += 1
    return judge_rows(view)
