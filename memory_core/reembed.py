"""Embeds and chunks again what is stored. In: which documents. Out: the truth about each, and what the space covers.

Everything goes down the one path with stages that insist on it: the text, its id and its version stay as they are, and
whatever somebody stores meanwhile wins. What is done is no longer stale, so a run that was killed goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from memory_core.chunk.chunk_content import describe_recipe
from memory_core.costs import is_paid
from memory_core.embedding_estimate import EmbeddingEstimator
from memory_core.errors import AgentMemoryError, ConflictError, NotFoundError
from memory_core.languages import choose_language
from memory_core.models import ContextBasis, Document, Failure, Fingerprint, Outcome, Plan, StoreOutcome, StoreRequest
from memory_core.ports import Core, Progress, Stages
from memory_core.provider_limits import limits_of
from memory_core.reembed_values import (
    DocumentReport,
    PlannedDocument,
    ReembedOptions,
    ReembedPlan,
    ReembedReport,
    ReembedResult,
    Why,
)
from memory_core.rules import default_options
from memory_core.spaces import activate, declare, refuse_other_recipe
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_ports import ActiveSpace, MemoryStore, StoredEmbedding
from memory_core.store_request import Provenance, StoreContentRequest

BATCHES_AT_ONCE: Final = 2
MAX_FAILED_BATCHES_IN_A_ROW: Final = 3
MAX_PASSES: Final = 5  # each one takes in what others stored in the old space while the one before it went on
_FOUND_AT_ONCE = 1_000
_MEASURED_AT_ONCE = 200
_CONTEXT_CHARS_A_TOKEN = 4  # of titles, headings and words

_NO_BASIS = ContextBasis(title="", words=())
_FRESH_CONTEXT = "re-embedded: its context was of an earlier title or text"
_STORED_ANEW = "It was stored anew or deleted while it was to be embedded again; that was kept."
_IS_CURRENT = "It was current by the time that it was its turn."


async def plan_reembed(options: ReembedOptions, *, core: Core) -> ReembedPlan:
    """Find what is not of this process's embedding space, has an old context or (`rechunk`) another recipe.

    Writes nothing.

    Raises:
        NotFoundError: nothing is stored, or a named source is not.
        ForeignDatabaseError: a re-embed to another space is not finished, or (without `rechunk`) this process cuts
            texts otherwise than the memory.
    """
    target, space = core.fingerprint.key, await core.store.read_active_space()
    if space is None:
        raise NotFoundError("Nothing is stored yet, so there is nothing to embed again.")
    _next_space(options, space, target)  # refuses before anything is spent
    if not options.rechunk:
        refuse_other_recipe(space, core.recipe)
    await _check_sources(options, core)
    found = [] if options.activate else [one async for one in _find(options, core)]
    chosen = tuple(found[: options.limit])
    return ReembedPlan(
        target=target,
        space=space,
        before=await core.store.count_coverage(target),
        documents=chosen,
        left_out=len(found) - len(chosen),
        tokens=await _estimate_tokens(chosen, core),
    )


def _next_space(options: ReembedOptions, space: ActiveSpace, target: str) -> ActiveSpace:
    if options.now or options.activate:
        return activate(space, target, complete=False)
    return declare(space, target)


async def _check_sources(options: ReembedOptions, core: Core) -> None:
    if not options.source_ids:
        return
    known = await core.store.read_states(options.source_ids)
    if unknown := [one for one in options.source_ids if one not in known]:
        raise NotFoundError(f"No document has the source id {unknown[0]!r}. `memory list` shows those that are stored.")


async def _find(options: ReembedOptions, core: Core) -> AsyncIterator[PlannedDocument]:
    after: str | None = None
    while True:
        page = await core.store.find_embedded(
            stale_in=None if options.rechunk else core.fingerprint.key,
            source_ids=options.source_ids,
            after=after,
            limit=_FOUND_AT_ONCE,
        )
        for stored in page:
            if why := _why_again(stored, options, core):
                yield PlannedDocument(stored=stored, why=why)
        if len(page) < _FOUND_AT_ONCE:
            return
        after = page[-1].document_id


def _why_again(stored: StoredEmbedding, options: ReembedOptions, core: Core) -> Why | None:
    if stored.fingerprint != core.fingerprint.key:
        return Why.MODEL
    if stored.context_stale:
        return Why.CONTEXT
    return Why.RECIPE if options.rechunk and stored.recipe != _recipe_of(stored, core) else None


def _recipe_of(stored: StoredEmbedding, core: Core) -> str:
    """What the settings and the chunker of today would make of it."""
    kind = stored.content_type
    language = choose_language(kind, uri=stored.uri, source_id=stored.source_id, title=stored.title)
    return describe_recipe(kind, replace(default_options(core.settings), language=language), core.counter.name)


async def _estimate_tokens(chosen: Sequence[PlannedDocument], core: Core) -> int:
    """From the rows as they are: slices by our counter, contexts by their length."""
    tokens = 0
    for start in range(0, len(chosen), _MEASURED_AT_ONCE):
        ids = [planned.stored.document_id for planned in chosen[start : start + _MEASURED_AT_ONCE]]
        sizes = await core.store.measure_rows(ids)
        tokens += sizes.tokens + sizes.context_chars // _CONTEXT_CHARS_A_TOKEN
    return tokens


async def reembed_documents(
    plan: ReembedPlan,
    options: ReembedOptions,
    *,
    core: Core,
    stages: Stages = PLAIN_STAGES,
    flow_run_id: str | None = None,
) -> ReembedReport:
    """Do what was planned, then make the space the active one where it covers everything.

    With `rechunk` this process's recipe becomes the memory's first: from then on nobody cuts texts otherwise.

    Never raises for a document: what went wrong is in its report.

    Raises:
        ForeignDatabaseError: a re-embed to another space is not finished.
        StorageError: MongoDB cannot be asked which space is active.
    """
    started = core.clock()
    if options.rechunk:
        await core.store.activate_recipe(core.recipe)
    if options.now:
        await core.store.activate_space(core.fingerprint, complete=False)
    elif not options.activate:
        await core.store.declare_space(core.fingerprint)
    run = _Run(core=core, options=options, stages=stages, flow_run_id=flow_run_id)
    work = plan.documents
    for _ in range(MAX_PASSES):
        await run.do(work)
        if not work or options.is_partial or run.has_failed:
            break
        work = tuple([one async for one in _find(options, core)])
    space = await _settle_space(core)
    return ReembedReport(
        target=plan.target,
        documents=tuple(report for _, report in sorted(run.reports.items())),
        left_out=plan.left_out,
        before=plan.before,
        after=await core.store.count_coverage(plan.target),
        space=space,
        was_active=plan.space.fingerprint == plan.target,
        seconds=round((core.clock() - started).total_seconds(), 3),
    )


async def _settle_space(core: Core) -> ActiveSpace:
    """Activate the space where it covers everything, and count again: until then others may have stored in the old one.

    Raises:
        NotFoundError: the database was emptied meanwhile.
    """
    target = core.fingerprint
    if (await core.store.count_coverage(target.key)).is_complete:
        space = await core.store.activate_space(target, complete=False)
        if (await core.store.count_coverage(target.key)).is_complete:
            space = await core.store.activate_space(target, complete=True)
        return space
    space = await core.store.read_active_space()
    if space is None:
        raise NotFoundError("The database was emptied while it was embedded again.")
    return space


@dataclass(slots=True)
class _Run:
    """The batches of one run, and the last truth about each document."""

    core: Core
    options: ReembedOptions
    stages: Stages
    flow_run_id: str | None
    reports: dict[str, DocumentReport] = field(default_factory=dict[str, DocumentReport])
    done: int = 0
    failures_in_a_row: int = 0
    last_reason: str = ""

    @property
    def has_failed(self) -> bool:
        """True where a document failed: another pass would pay for its failure again."""
        return any(report.result is ReembedResult.FAILED for report in self.reports.values())

    async def do(self, work: Sequence[PlannedDocument]) -> None:
        """Send every batch down the path, a few at a time."""
        settings, total = self.core.settings, self.done + len(work)
        waiting = _batches(work, max_documents=settings.batch_documents, max_chars=settings.batch_chars)
        async with asyncio.TaskGroup() as group:
            for _ in range(BATCHES_AT_ONCE):
                group.create_task(self._work(waiting, total))

    async def _work(self, waiting: Iterator[Sequence[PlannedDocument]], total: int) -> None:
        for batch in waiting:
            if self.failures_in_a_row >= MAX_FAILED_BATCHES_IN_A_ROW:
                self._fail_all(
                    batch, f"not tried: {MAX_FAILED_BATCHES_IN_A_ROW} batches in a row failed. {self.last_reason}"
                )
                continue
            try:
                await self._try_batch(batch)
            except AgentMemoryError as error:
                self._fail_all(batch, error.message)
                self._watch_failures([StoreOutcome(outcome=Outcome.FAILED, source_id=None, error=error)])
            self.done += len(batch)
            self.core.on_progress(Progress(done=self.done, total=total))

    async def _try_batch(self, batch: Sequence[PlannedDocument]) -> None:
        requests = [request for planned in batch if (request := await self._make_request(planned))]
        outcomes = await store_content(requests, core=self.core, stages=insist(self.stages))
        self._watch_failures(outcomes)
        for request, outcome in zip(requests, outcomes, strict=True):
            self._report(_judge(request.request.source_id or "", outcome))

    async def _make_request(self, planned: PlannedDocument) -> StoreRequest | None:
        """The stored text as it is; None where it was replaced or deleted since the plan."""
        stored = planned.stored
        try:
            return await _make_request(planned, self.options, self.core, self.flow_run_id)
        except NotFoundError as error:
            state = (await self.core.store.read_states([stored.source_id])).get(stored.source_id)
            is_lost = state is not None and state.body_id == stored.body_id
            result = ReembedResult.FAILED if is_lost else ReembedResult.SKIPPED
            told = error.message if is_lost else _STORED_ANEW
            self._report(DocumentReport(source_id=stored.source_id, result=result, reason=told))
            return None

    def _watch_failures(self, outcomes: Sequence[StoreOutcome]) -> None:
        """Three batches in a row that fail for the same passing reason: something is away, so stop paying."""
        reasons = {outcome.error.message for outcome in outcomes if outcome.error and outcome.error.retryable}
        if outcomes and len(reasons) == 1 and all(outcome.outcome is Outcome.FAILED for outcome in outcomes):
            reason = reasons.pop()
            self.failures_in_a_row = self.failures_in_a_row + 1 if reason == self.last_reason else 1
            self.last_reason = reason
        elif outcomes:
            self.failures_in_a_row, self.last_reason = 0, ""

    def _fail_all(self, batch: Sequence[PlannedDocument], reason: str) -> None:
        for planned in batch:
            source_id = planned.stored.source_id
            self._report(DocumentReport(source_id=source_id, result=ReembedResult.FAILED, reason=reason))

    def _report(self, report: DocumentReport) -> None:
        self.reports[report.source_id] = report


async def _make_request(
    planned: PlannedDocument, options: ReembedOptions, core: Core, flow_run_id: str | None
) -> StoreRequest:
    stored = planned.stored
    # Its own sizes stay a document's, unless the settings are to be applied to everything.
    own = None if options.rechunk else stored.options
    return StoreRequest(
        request=StoreContentRequest(
            content=await core.store.read_body(stored.body_id),
            source_id=stored.source_id,
            chunk_size_tokens=own.size if own else None,
            chunk_overlap_tokens=own.overlap if own else None,
        ),
        provenance=Provenance(channel="reembed", flow_run_id=flow_run_id),
    )


async def estimate_reembed(plan: ReembedPlan, options: ReembedOptions, *, core: Core) -> ReembedPlan:
    """The plan with what embedding it would take: its texts are read and chunked as a run does it, and forgotten."""
    settings = core.settings
    declared = _next_space(options, plan.space, core.fingerprint.key)
    as_if = replace(core, store=cast("MemoryStore", _DeclaredStore(core.store, declared)))
    limits = limits_of(settings) if is_paid(settings) else None
    estimator = EmbeddingEstimator(core=as_if, stages=insist(PLAIN_STAGES), limits=limits)
    for batch in _batches(plan.documents, max_documents=settings.batch_documents, max_chars=settings.batch_chars):
        requests: list[StoreRequest] = []
        for planned in batch:
            # What was replaced or deleted since the plan costs nothing.
            with contextlib.suppress(NotFoundError):
                requests.append(await _make_request(planned, options, core, None))
        await estimator.add(requests)
    return replace(plan, estimate=estimator.finish())


class _DeclaredStore:
    """The store as it is once the new space is declared. An estimate declares nothing: it only reads."""

    def __init__(self, store: MemoryStore, space: ActiveSpace) -> None:
        self._store = store
        self._space = space

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def prepare(self, fingerprint: Fingerprint, *, recipe: str | None = None) -> ActiveSpace:
        """Nothing is made for an estimate."""
        del fingerprint, recipe
        return self._space

    async def read_active_space(self) -> ActiveSpace:
        """As it would be."""
        return self._space


def insist(stages: Stages) -> Stages:
    """The same stages for texts that are stored already: what somebody stored or deleted meanwhile stays as it is."""

    async def validate(requests: Sequence[StoreRequest], *, core: Core) -> list[Document | Failure]:
        documents = await stages.validate(requests, core=core)
        return [one if isinstance(one, Failure) else _insist(one) for one in documents]

    return replace(stages, validate=validate)


def _insist(document: Document) -> Document:
    base = document.base
    if base is None or base.content_hash != document.content_hash:
        return replace(document, plan=Plan.NOTHING, reason=None, notes=(*document.notes, _STORED_ANEW))
    if not base.context_stale:
        return document
    # Without a recorded basis the contexts, and with them the vectors, are made of what the document is now.
    forgotten = replace(base, context_basis=_NO_BASIS)
    return replace(document, plan=Plan.STORE, reason=document.reason or _FRESH_CONTEXT, base=forgotten)


def _judge(source_id: str, outcome: StoreOutcome) -> DocumentReport:
    if outcome.error and not isinstance(outcome.error, ConflictError):
        return DocumentReport(source_id=source_id, result=ReembedResult.FAILED, reason=outcome.error.message)
    if outcome.error or outcome.outcome is Outcome.UNCHANGED:
        is_anew = outcome.error is not None or _STORED_ANEW in outcome.notes
        told = _STORED_ANEW if is_anew else _IS_CURRENT
        return DocumentReport(source_id=source_id, result=ReembedResult.SKIPPED, reason=told)
    return DocumentReport(
        source_id=source_id,
        result=ReembedResult.DONE,
        reason=outcome.reason,
        chunks=outcome.chunk_count,
        texts=outcome.texts_embedded,
        tokens=outcome.tokens_embedded,
    )


def _batches(
    work: Sequence[PlannedDocument], *, max_documents: int, max_chars: int
) -> Iterator[Sequence[PlannedDocument]]:
    batch: list[PlannedDocument] = []
    chars = 0
    for planned in work:
        length = planned.stored.content_length
        if batch and (len(batch) >= max_documents or chars + length > max_chars):
            yield batch
            batch, chars = [], 0
        batch.append(planned)
        chars += length
    if batch:
        yield batch
