"""Mends what `examine` finds. In: a core. Out: what is wrong, what was mended, what is wrong after that.

What needs no text is the store's work (`mend`). Documents whose rows are not theirs are stored again through the one
path from their own text: id, version, dates and attributes stay, and every row that is sound keeps its vector. A text
that is gone or is not what was stored is reported: nobody makes one up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, cast

from memory_core.answers import StoredDocument
from memory_core.errors import NotFoundError
from memory_core.examine import compare_texts, examine_memory, limits_of_health, read_hash
from memory_core.health import STORED_AGAIN, FaultKind, Mended, StoreHealth
from memory_core.models import Document, Failure, Outcome, Plan, StoredChunkKey, StoreOutcome, StoreRequest, hash_text
from memory_core.ports import Core, Progress, Stages
from memory_core.spaces import refuse_other
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_ports import MemoryStore
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.wire import outcome_json

_BYTES_PER_MB: Final = 1_000_000
_PAGE: Final = 50
_MAX_ROUNDS: Final = 3
_SUBMISSIONS_AT_ONCE: Final = 8
_OPEN_AT_MOST: Final = 1_000
_CLAIM_SECONDS: Final = 900.0
_REASONS: Final[Mapping[FaultKind, str]] = {
    FaultKind.SHORT_DOCUMENTS: "repaired: chunks were missing",
    FaultKind.LEFTOVER_CHUNKS: "repaired: chunks of another revision were left over",
    FaultKind.MISMATCHED_CHUNKS: "repaired: chunks were of another text or embedding space",
    FaultKind.MISNUMBERED_CHUNKS: "repaired: its chunks were not numbered one after another",
    FaultKind.WRONG_CHUNKS: "repaired: chunks did not have the words of the text",
}
_STORED_ANEW: Final = "It was stored anew or deleted meanwhile; that was kept."


class RepairResult(StrEnum):
    """What became of one document."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRepair:
    """One document that was stored again, or why it was not. `texts` counts the vectors that were computed anew."""

    source_id: str
    result: RepairResult
    reason: str
    texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What was wrong, what was done, and what is wrong still. `after` is None where nothing was to be changed.

    `is_repair`: mending was asked for, be it as a dry run.
    """

    before: StoreHealth
    mended: tuple[Mended, ...] = ()
    documents: tuple[DocumentRepair, ...] = ()
    after: StoreHealth | None = None
    is_repair: bool = True

    @property
    def is_dry_run(self) -> bool:
        """True where nothing was to be changed."""
        return self.after is None

    @property
    def failures(self) -> tuple[DocumentRepair, ...]:
        """The documents that could not be stored again."""
        return tuple(one for one in self.documents if one.result is RepairResult.FAILED)

    @property
    def left(self) -> StoreHealth:
        """How the memory is now."""
        return self.after or self.before

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "dryRun": self.is_dry_run,
            "found": [finding.to_json() for finding in self.before.findings],
            "mended": [{"kind": one.kind.value, "count": one.count} for one in self.mended],
            "documents": [
                {
                    "sourceId": one.source_id,
                    "result": one.result.value,
                    "reason": one.reason,
                    "textsEmbedded": one.texts,
                }
                for one in self.documents
            ],
        }


async def repair_memory(core: Core, *, deep: bool = False, dry_run: bool = False) -> RepairReport:
    """Mend what can be mended. A second run finds nothing to do; `dry_run` changes nothing.

    Raises:
        ForeignDatabaseError: the database is not ours, or this process must not write to it.
        StorageError: MongoDB refused or is away. What was mended stays mended.
    """
    before = await examine_memory(core, deep=deep)
    space = await core.store.read_active_space()
    if dry_run:
        return RepairReport(before=before)
    if space is None and not before.findings:
        return RepairReport(before=before, after=before)
    if space is not None:
        refuse_other(space, fingerprint=core.fingerprint.key, recipe=core.recipe)
    mended: Counter[FaultKind] = Counter()
    documents: dict[str, DocumentRepair] = {}
    found = before
    for _ in range(_MAX_ROUNDS):  # what one round settles can show what was hidden behind it
        done, stored = await _mend_once(found, core)
        mended.update({one.kind: one.count for one in done})
        documents.update({one.source_id: one for one in stored})
        found = await examine_memory(core, deep=deep)
        has_done = done or any(one.result is RepairResult.DONE for one in stored)
        if not has_done or not any(finding.is_mendable for finding in found.findings):
            break
    return RepairReport(
        before=before,
        mended=tuple(Mended(kind=kind, count=count) for kind, count in mended.items()),
        documents=tuple(documents.values()),
        after=found,
    )


async def _mend_once(found: StoreHealth, core: Core) -> tuple[list[Mended], list[DocumentRepair]]:
    """What needs no text comes first, the indexes among it: nothing can be stored without them."""
    mended = list(await core.store.mend({finding.kind for finding in found.findings}, limits_of_health(core)))
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    documents = [one async for one in _store_again(found, core)]
    mended += await _forget_wrong_versions(found, core)
    finished, failed = await _finish_submissions(found, core)
    return [*mended, *finished], [*documents, *failed]


# --- storing again ----------------------------------------------------------------------------------------------------


async def _store_again(before: StoreHealth, core: Core) -> AsyncIterator[DocumentRepair]:
    """Send every damaged document down the path, in batches."""
    why = {name: kind for kind in reversed(STORED_AGAIN) for name in before.names_of(kind)}
    batch: list[StoreRequest] = []
    chars = 0
    for done, name in enumerate(sorted(why)):
        request = await _make_request(name, core)
        if isinstance(request, DocumentRepair):
            yield request
            continue
        batch.append(request)
        chars += len(request.request.content)
        if len(batch) >= core.settings.batch_documents or chars >= core.settings.batch_chars:
            for one in await _store_batch(batch, why, core):
                yield one
            core.on_progress(Progress(done=done + 1, total=len(why)))
            batch, chars = [], 0
    if batch:
        for one in await _store_batch(batch, why, core):
            yield one


async def _make_request(source_id: str, core: Core) -> StoreRequest | DocumentRepair:
    document = await core.store.read_document(source_id)
    if document is None or document.state.source_id != source_id:
        return DocumentRepair(source_id=source_id, result=RepairResult.SKIPPED, reason=_STORED_ANEW)
    try:
        content = await core.store.read_body(document.state.body_id)
    except NotFoundError:
        content = None
    if content is None or hash_text(content) != document.state.content_hash:
        return DocumentRepair(
            source_id=source_id, result=RepairResult.FAILED, reason=await _explain_lost_text(document, core)
        )
    return StoreRequest(
        request=StoreContentRequest(
            content=content,
            source_id=source_id,
            chunk_size_tokens=document.options.size,
            chunk_overlap_tokens=document.options.overlap,
        ),
        provenance=Provenance(channel="repair"),
    )


async def _explain_lost_text(document: StoredDocument, core: Core) -> str:
    """What can be done where a text is gone or is another: the newest earlier version that is whole, or the source."""
    name = document.state.source_id
    for version in reversed(document.versions):
        is_current = version.body_id == document.state.body_id
        if not is_current and await read_hash(version.body_id, core.store) == version.content_hash:
            return (
                f"its text is lost. `memory get {name} --version {version.version}` prints an earlier one; store that "
                "under the same id, or delete the document and store it from its source"
            )
    return "its text is lost and no earlier version is kept: delete the document and store it from its source"


async def _store_batch(batch: Sequence[StoreRequest], why: Mapping[str, FaultKind], core: Core) -> list[DocumentRepair]:
    doubting = replace(core, store=cast("MemoryStore", _DoubtingStore(core.store)))
    outcomes = await store_content(batch, core=doubting, stages=_insist(PLAIN_STAGES, why))
    results: list[DocumentRepair] = []
    for request, outcome in zip(batch, outcomes, strict=True):
        name = request.request.source_id or ""
        if outcome.error:
            result, reason = RepairResult.FAILED, outcome.error.message
        elif outcome.outcome is Outcome.UNCHANGED:
            result, reason = RepairResult.SKIPPED, _STORED_ANEW
        else:
            result, reason = RepairResult.DONE, outcome.reason or ""
        results.append(DocumentRepair(source_id=name, result=result, reason=reason, texts=outcome.texts_embedded))
    return results


class _DoubtingStore:
    """The store as it is, but for the rows' own words: each is written again, wherever it says that it stands.

    A row stays, with its id and vector, where its embedding input and space are those that the document needs.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def read_chunk_keys(self, document_ids: Sequence[str]) -> Mapping[str, Sequence[StoredChunkKey]]:
        """The rows, none of which is taken at its word."""
        found = await self._store.read_chunk_keys(document_ids)
        return {one: [_doubt(key) for key in keys] for one, keys in found.items()}


def _doubt(key: StoredChunkKey) -> StoredChunkKey:
    return replace(key, row_hash="", char_start=-1, char_end=-1, token_count=-1)


def _insist(stages: Stages, why: Mapping[str, FaultKind]) -> Stages:
    """The same stages for texts that are stored already: what somebody stored or deleted meanwhile stays as it is."""

    async def validate(requests: Sequence[StoreRequest], *, core: Core) -> list[Document | Failure]:
        documents = await stages.validate(requests, core=core)
        return [one if isinstance(one, Failure) else _repair(one, why[one.source_id]) for one in documents]

    return replace(stages, validate=validate)


def _repair(document: Document, kind: FaultKind) -> Document:
    base = document.base
    if base is None or base.content_hash != document.content_hash:
        return replace(document, plan=Plan.NOTHING, reason=None)
    return replace(document, plan=Plan.STORE, reason=_REASONS[kind], attributes=base.attributes)


# --- versions and submissions -----------------------------------------------------------------------------------------


async def _forget_wrong_versions(before: StoreHealth, core: Core) -> list[Mended]:
    """What was found is looked at again, one document after the other: a text is removed only while it is wrong."""
    count = 0
    named = before.names_of(FaultKind.WRONG_VERSIONS)
    for source_id in sorted({name.rpartition(" version ")[0] for name in named}):
        document = await core.store.read_document(source_id)
        wrong = (await compare_texts(document, core)).versions if document else ()
        if document and wrong:
            count += await core.store.forget_versions(document.state.document_id, wrong)
    return [Mended(kind=FaultKind.WRONG_VERSIONS, count=count)] if count else []


async def _finish_submissions(before: StoreHealth, core: Core) -> tuple[list[Mended], list[DocumentRepair]]:
    """Store what was accepted and whose process is gone; what another process has by now is left to it.

    Returns how many were finished, and those of them that could not be stored.
    """
    ids = before.names_of(FaultKind.ABANDONED_SUBMISSIONS)
    holder = replace(core.holder, token=core.new_id())
    found = await core.submissions.find_open(limit=_OPEN_AT_MOST) if ids else ()
    dead = [one.holder.token for one in found if one.holder and not core.is_alive(one.holder)]
    done: list[StoreOutcome] = []
    for start in range(0, len(ids), _SUBMISSIONS_AT_ONCE):
        claimed = await core.submissions.claim(
            ids[start : start + _SUBMISSIONS_AT_ONCE], holder=holder, seconds=_CLAIM_SECONDS, dead_tokens=dead
        )
        names = [one.submission_id for one in claimed]
        try:
            outcomes = await store_content([one.request for one in claimed], core=core)
            plain = {name: outcome_json(outcome) for name, outcome in zip(names, outcomes, strict=True)}
            await core.submissions.finish(plain, holder=holder, now=core.clock())
        except BaseException:
            await core.submissions.release(names, holder=holder)
            raise
        done += outcomes
    failed = [
        DocumentRepair(source_id=one.source_id or "a submission", result=RepairResult.FAILED, reason=one.error.message)
        for one in done
        if one.error
    ]
    return [Mended(kind=FaultKind.ABANDONED_SUBMISSIONS, count=len(done))] if done else [], failed
