"""Looks for damage. In: a core. Out: what is wrong; nothing is changed.

A plain look reads indexes and ids alone. A deep one reads every kept text, one at a time, and the words of every row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memory_core.answers import StoredDocument
from memory_core.errors import NotFoundError
from memory_core.health import STORED_AGAIN, FaultKind, Finding, HealthLimits, StoreHealth
from memory_core.models import DocumentState, hash_text
from memory_core.ports import Core, Progress
from memory_core.store_ports import MemoryStore

_BYTES_PER_MB: Final = 1_000_000
_PAGE: Final = 50


async def examine_memory(core: Core, *, deep: bool = False) -> StoreHealth:
    """Look for what is wrong; with `deep` every text and every row's words are read too. Changes nothing."""
    health = await core.store.check_health(limits_of_health(core))
    if not deep or FaultKind.FOREIGN_ROWS in {finding.kind for finding in health.findings}:
        return health
    known = set(health.names_of(*STORED_AGAIN, FaultKind.MISSING_TEXTS))
    found = await _read_everything(core, total=health.documents, known=known)
    wrong = tuple(Finding(kind=kind, names=tuple(names)) for kind, names in found.items() if names)
    return replace(health, findings=(*health.findings, *wrong))


def limits_of_health(core: Core) -> HealthLimits:
    """How much may be there by the settings."""
    settings = core.settings
    return HealthLimits(
        cache_days=settings.embedding_cache_days, cache_bytes=settings.embedding_cache_mb * _BYTES_PER_MB
    )


async def _read_everything(core: Core, *, total: int, known: set[str]) -> dict[FaultKind, list[str]]:
    """Compare every kept text with its hash, and every row with its place in the text."""
    found: dict[FaultKind, list[str]] = {
        kind: [] for kind in (FaultKind.WRONG_TEXTS, FaultKind.WRONG_CHUNKS, FaultKind.WRONG_VERSIONS)
    }
    after, done = None, 0
    while page := await core.store.find_documents(after=after, limit=_PAGE):
        for document in page:
            await _read_document(document, core, known, found)
        after, done = page[-1].state.document_id, done + len(page)
        core.on_progress(Progress(done=done, total=max(done, total)))
    return found


async def _read_document(
    document: StoredDocument, core: Core, known: set[str], found: dict[FaultKind, list[str]]
) -> None:
    wrong = await compare_texts(document, core)
    if wrong.is_anything:  # it may have been stored anew while it was read
        again = await core.store.read_document(document.state.document_id)
        wrong = await compare_texts(again, core) if again else Wrong()
    name = document.state.source_id
    found[FaultKind.WRONG_VERSIONS] += [f"{name} version {one}" for one in wrong.versions]
    if name not in known:
        found[FaultKind.WRONG_TEXTS] += [name] if wrong.text else []
        found[FaultKind.WRONG_CHUNKS] += [name] if wrong.chunks else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What of one document is not as it says. `versions` are earlier ones."""

    text: bool = False
    chunks: bool = False
    versions: tuple[int, ...] = ()

    @property
    def is_anything(self) -> bool:
        """True where something is."""
        return self.text or self.chunks or bool(self.versions)


async def compare_texts(document: StoredDocument, core: Core) -> Wrong:
    """Compare every kept text of a document with its hash, and its rows with the text."""
    state, store = document.state, core.store
    versions = [
        one.version
        for one in document.versions
        if one.body_id != state.body_id and await read_hash(one.body_id, store) not in {None, one.content_hash}
    ]
    try:
        content = await store.read_body(state.body_id)
    except NotFoundError:  # a fault of its own
        return Wrong(versions=tuple(versions))
    if hash_text(content) != state.content_hash:
        return Wrong(text=True, versions=tuple(versions))
    return Wrong(chunks=await _has_other_words(state, content, store), versions=tuple(versions))


async def read_hash(body_id: str, store: MemoryStore) -> str | None:
    """The hash of a text as it is; None where it is gone."""
    try:
        return hash_text(await store.read_body(body_id))
    except NotFoundError:
        return None


async def _has_other_words(state: DocumentState, content: str, store: MemoryStore) -> bool:
    keys = (await store.read_chunk_keys([state.document_id]))[state.document_id]
    for start in range(0, len(keys), _PAGE):
        hits = await store.read_hits([key.chunk_id for key in keys[start : start + _PAGE]])
        if any(row.text != content[row.char_start : row.char_end] for row in hits.values()):
            return True
    return False
