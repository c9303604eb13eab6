"""What must be true of a memory whose writers are killed. In: rows, hits and a log. Out: what is wrong. Pure.

`judge_rows` is of what is stored at one moment, `judge_hits` of what a search would show, `Ledger` of what was
acknowledged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from crash_texts import read_uri

from memory_core.answers import HitRow
from memory_core.models import Outcome, hash_text

Row: TypeAlias = dict[str, Any]


class Fault(StrEnum):
    """A kind of damage; its value is what the report calls it."""

    MIXED = "mixed documents"
    SHORT = "short documents"
    LEFTOVER = "leftover chunks"
    DUPLICATE = "duplicates"
    ORPHAN = "orphan chunks"
    ORPHAN_BODY = "orphan bodies"
    MISSING_BODY = "missing bodies"
    LOST = "lost acknowledged stores"
    REFUSED = "refused stores"
    UNHEALTHY = "faults that doctor names"


# What a server without transactions may show until the next store of the same source.
HEALED_BY_THE_NEXT_STORE = frozenset({Fault.SHORT, Fault.LEFTOVER})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    fault: Fault
    words: str


# --- what is stored ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Rows of one moment: documents, chunks without vectors, texts by body id, and which bodies have an owner."""

    documents: Sequence[Row]
    chunks: Sequence[Row]
    bodies: Mapping[str, str]
    owned: frozenset[str]


def judge_rows(view: View) -> list[Finding]:
    """Everything that is wrong with what is stored."""
    rows: defaultdict[object, list[Row]] = defaultdict(list)
    for row in view.chunks:
        rows[row["documentId"]].append(row)
    findings: list[Finding] = []
    for document in view.documents:
        findings += _judge_document(document, rows.pop(document["_id"], []), view.bodies)
    findings += [
        Finding(Fault.ORPHAN, f"{len(orphans)} rows of {orphans[0]['sourceId']}, which is not stored")
        for orphans in rows.values()
    ]
    loose = sorted(set(view.bodies) - view.owned)
    findings += [Finding(Fault.ORPHAN_BODY, f"the text {body} has no owner") for body in loose]
    lost = sorted(view.owned - set(view.bodies))
    findings += [Finding(Fault.MISSING_BODY, f"the text {body} of a version is not there") for body in lost]
    return findings


def _judge_document(document: Row, rows: Sequence[Row], bodies: Mapping[str, str]) -> Iterable[Finding]:
    name, draft = document["sourceId"], read_uri(document["uri"])
    content, body = draft.content, bodies.get(document["bodyId"])
    current = [row for row in rows if row["revision"] == document["revision"]]
    if body != content or document["contentHash"] != hash_text(content):
        yield Finding(Fault.MIXED, f"{name} has a text that is not the one of {draft.uri}")
    for row in current:
        is_own = all(row[key] == document[key] for key in ("sourceId", "uri", "tags", "title"))
        is_own = is_own and row["documentContentHash"] == document["contentHash"]
        is_own = is_own and row["documentVersion"] == document["version"]
        if not is_own or row["text"] != content[row["charStart"] : row["charEnd"]]:
            yield Finding(Fault.MIXED, f"chunk {row['chunkIndex']} of {name} is not of {draft.uri}")
    yield from _judge_texts(name, [(row["chunkIndex"], row["text"]) for row in current], draft.paragraphs)
    if document["chunking"]["chunkCount"] != draft.count:
        yield Finding(Fault.MIXED, f"{name} counts {document['chunking']['chunkCount']} chunks of {draft.count}")
    if len(rows) > len(current):
        yield Finding(Fault.LEFTOVER, f"{name} has {len(rows) - len(current)} rows of another revision")


def _judge_texts(name: str, found: Sequence[tuple[int, str]], wanted: Sequence[str]) -> Iterable[Finding]:
    """Chunks by index and text against all that there must be."""
    counts = Counter(index for index, _ in found)
    if twice := [index for index, count in counts.items() if count > 1]:
        yield Finding(Fault.DUPLICATE, f"{name} has the chunks {twice} twice")
    if any(index >= len(wanted) or wanted[index] != text for index, text in found):
        yield Finding(Fault.MIXED, f"{name} has chunks of another text")
    if len(counts) < len(wanted):
        yield Finding(Fault.SHORT, f"{name} has {len(counts)} of {len(wanted)} chunks")


def judge_hits(hits: Sequence[HitRow], *, current: str | None) -> list[Finding]:
    """What is wrong with the rows of one source that a search shows, read at one go.

    `current` is the address of the document where it was the same one before the read and after it, so that all of it
    must be there; None where it changed meanwhile, so that rows may have been dropped.
    """
    findings: list[Finding] = []
    if not hits and current is None:
        return findings
    uris = {(hit.uri, hit.tags, hit.document_id) for hit in hits}
    name = hits[0].source_id if hits else read_uri(current or "").source
    if len(uris) > 1:
        return [Finding(Fault.MIXED, f"a read of {name} shows {sorted(str(uri) for uri, _, _ in uris)} at once")]
    draft = read_uri(str(hits[0].uri) if hits else current or "")
    if current is not None and draft.uri != current:
        findings.append(Finding(Fault.MIXED, f"a read of {current} shows {draft.uri}"))
    judged = _judge_texts(name, [(hit.chunk_index, hit.text) for hit in hits], draft.paragraphs)
    return findings + [one for one in judged if current is not None or one.fault is not Fault.SHORT]


# --- what was acknowledged --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What is stored of a source: the address of its text and its tag, None for nothing, and the versions counted."""

    uri: str | None
    tag: str | None
    version: int


@dataclass(slots=True)
class _Source:
    """What is known of one source: its last certain state, and what was begun since without an answer."""

    uri: str | None = None
    tag: str | None = None
    low: int = 0
    high: int = 0
    pending: dict[str, Row] = field(default_factory=dict[str, Row])

    def counted(self) -> int:
        """How many texts may have been stored since."""
        return sum(one["uri"] is not None for one in self.pending.values())

    def states(self) -> set[tuple[str | None, str | None]]:
        """What may be stored now."""
        return {(self.uri, self.tag), *((one["uri"], one["tag"]) for one in self.pending.values())}


class Ledger:
    """Follows the log of all writers, one after the other, and finds what was acknowledged and is not there.

    What was begun without an answer may be done or not. It cannot be done any more once something that came later is
    acknowledged: its base is gone.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self._sources: defaultdict[str, _Source] = defaultdict(_Source)

    def begin(self, operation: Row) -> None:
        """An operation is about to be done: its `id`, `source`, `uri` and `tag`; no uri for a deletion."""
        self._sources[operation["source"]].pending[operation["id"]] = operation

    def acknowledge(self, operation: Row, outcome: str, version: int | None) -> None:
        """It was said to be done. `version` is None for a deletion."""
        name, uri = operation["source"], operation["uri"]
        source = self._sources[name]
        before = {uri for uri, _ in source.states()}
        source.pending.pop(operation["id"])
        others = source.counted()
        self.counts[outcome] += 1
        if version is None:
            source.high += others
            source.uri = source.tag = None
            source.pending.clear()
            return
        is_new = uri != source.uri
        low, high = source.low + is_new, source.high + others + (is_new or others > 0)
        if not low <= version <= high:
            self._lose(f"{name}: {uri} was acknowledged as version {version}, not {low} to {high}")
        if outcome == Outcome.CREATED and None not in before:
            self._lose(f"{name}: {uri} was created although {source.uri} was stored")
        self._sources[name] = _Source(uri, operation["tag"], version, version)

    def look(self, seen: Mapping[str, Seen]) -> None:
        """What is stored at a moment when nobody writes; a source that is not named is not stored."""
        for name, source in self._sources.items():
            self._compare(name, source, seen.get(name))
        for name in seen.keys() - self._sources.keys():
            self._lose(f"{name} is stored although nobody stored it")

    def _compare(self, name: str, source: _Source, seen: Seen | None) -> None:
        found = (seen.uri, seen.tag) if seen else (None, None)
        if found not in source.states():
            self._lose(f"{name}: {found} is stored instead of {source.uri} {source.tag} or {list(source.pending)}")
        elif seen:
            low, high = source.low + (seen.uri != source.uri), source.high + source.counted()
            if not low <= seen.version <= high:
                self._lose(f"{name}: {seen.uri} has version {seen.version}, not {low} to {high}")
            source.low = source.high = seen.version
            source.pending = {key: one for key, one in source.pending.items() if (one["uri"], one["tag"]) != found}
        source.uri, source.tag = found

    def _lose(self, words: str) -> None:
        self.findings.append(Finding(Fault.LOST, words))
