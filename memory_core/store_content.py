"""THE path. In: requests of any door. Out: one outcome a request, in order. There is no second ingestion path.

validate, chunk, embed, persist, and what surrounds them: unchanged content is skipped, a conflict goes round again, two
requests for one source keep their order, and a failure becomes the outcome of the documents that it concerns.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from memory_core.chunk.chunk_content import chunk_documents
from memory_core.embed import embed_documents
from memory_core.errors import AgentMemoryError, ConflictError, InternalError, TimeLimitError, ValidationError
from memory_core.identity import is_source_id
from memory_core.models import Conflict, Document, Failure, Outcome, Plan, StoreOutcome, StoreRequest
from memory_core.persist import persist_documents
from memory_core.ports import Core, Stages
from memory_core.store_ports import AttributeWrite, DocumentWrite
from memory_core.validate import validate_requests

MAX_ROUNDS = 5
# A document that lost its race waits for a random part of 8, 16, 32, 64, 128 times what a round takes. By simulation,
# of 16 writers that begin at the same moment all get through in 999 of 1,000 cases; without pauses never.
_FIRST_PAUSE_ROUNDS = 8
_MAX_PAUSE_SECONDS = 5.0

PLAIN_STAGES = Stages(
    validate=validate_requests, chunk=chunk_documents, embed=embed_documents, persist=persist_documents
)

_V = TypeVar("_V")
_R = TypeVar("_R")
_log = structlog.get_logger(__name__)


async def store_content(
    requests: Sequence[StoreRequest], *, core: Core, stages: Stages = PLAIN_STAGES
) -> list[StoreOutcome]:
    """Store a batch of 1..n requests. Documents share no fate: each outcome is its own; the list mirrors `requests`.

    Never raises for a document: what went wrong is the error of its `failed` outcome.
    """
    batch = _Batch(requests=requests, source_ids=_requested_ids(requests))
    waiting = list(range(len(requests)))
    while waiting:
        began = core.clock()
        waiting = await _run_round(batch, waiting, core=core, stages=stages)
        if lost := max((batch.conflicts[position] for position in waiting), default=0):
            await asyncio.sleep(_choose_pause(lost, (core.clock() - began).total_seconds(), core.draw()))
    return [batch.outcomes[position] for position in range(len(requests))]


def _choose_pause(lost: int, round_seconds: float, drawn: float) -> float:
    """Seconds until the next round of who lost so many races: writers that go round in step would all lose again."""
    return drawn * min(round_seconds * _FIRST_PAUSE_ROUNDS * 2 ** (lost - 1), _MAX_PAUSE_SECONDS)


def _requested_ids(requests: Sequence[StoreRequest]) -> dict[int, str]:
    """The legal ids that callers gave: what an outcome names before, or without, a validated document."""
    given = {position: (request.request.source_id or "").strip() for position, request in enumerate(requests)}
    return {position: source_id for position, source_id in given.items() if is_source_id(source_id)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The requests and what is known of them so far, by position."""

    requests: Sequence[StoreRequest]
    source_ids: dict[int, str]
    conflicts: Counter[int] = field(default_factory=Counter[int])
    replaced: set[int] = field(default_factory=set[int])
    outcomes: dict[int, StoreOutcome] = field(default_factory=dict[int, StoreOutcome])

    def settle(self, position: int, result: StoreOutcome | Failure) -> None:
        """Keep the outcome of one request."""
        if isinstance(result, Failure):
            self.fail(position, result.error, source_id=result.source_id)
        else:
            self.outcomes[position] = result

    def meet_conflict(self, position: int) -> bool:
        """Count it for this document alone. True where it goes round again."""
        self.conflicts[position] += 1
        if self.conflicts[position] <= MAX_ROUNDS:
            return True
        self.fail(position, _endless_conflict())
        return False

    def is_deleted_meanwhile(self, position: int, document: Document) -> bool:
        """True where an earlier round was about to replace a document that is gone now: the delete came after us."""
        if document.base is not None:
            self.replaced.add(position)
        return document.base is None and position in self.replaced and self.conflicts[position] > 0

    def fail(self, position: int, error: AgentMemoryError, *, source_id: str | None = None) -> None:
        """Turn a failure into an outcome; the one place where it is logged."""
        source_id = source_id or self.source_ids.get(position)
        log = _log.warning if isinstance(error, ValidationError) else _log.error
        log(error.event, source_id=source_id, error=error.message, cause=error.cause)
        self.outcomes[position] = StoreOutcome(outcome=Outcome.FAILED, source_id=source_id, error=error)


async def _run_round(batch: _Batch, waiting: Sequence[int], *, core: Core, stages: Stages) -> list[int]:
    """Take every waiting request as far as it goes. Returns who goes round again."""
    requests = [batch.requests[position] for position in waiting]
    validated = await _run_stage(batch, waiting, requests, stages.validate, core)
    batch.source_ids.update({position: document.source_id for position, document in validated.items()})
    documents, later = _one_per_source(validated)
    writes: dict[int, DocumentWrite] = {}
    for position, document in list(documents.items()):
        if batch.is_deleted_meanwhile(position, document):
            batch.fail(position, _deleted_meanwhile())
            del documents[position]
        elif document.plan is Plan.NOTHING:
            batch.settle(position, _unchanged(document, core))
        elif document.plan is Plan.ATTRIBUTES:
            writes[position] = AttributeWrite(document=document)
        elif document.reason and document.reason.startswith("repaired"):
            _log.info("ingest.repair", source_id=document.source_id)
    to_chunk = {position: document for position, document in documents.items() if document.plan is Plan.STORE}
    chunked = await _run_stage(batch, list(to_chunk), list(to_chunk.values()), stages.chunk, core)
    embedded = await _run_stage(batch, list(chunked), list(chunked.values()), stages.embed, core)
    writes |= embedded
    ordered = sorted(writes)
    persisted = await _run_stage(batch, ordered, [writes[position] for position in ordered], stages.persist, core)
    for position, result in persisted.items():
        if not isinstance(result, Conflict):
            batch.settle(position, result)
        elif batch.meet_conflict(position):
            later.append(position)
    return sorted(later)


async def _run_stage(
    batch: _Batch,
    positions: Sequence[int],
    values: Sequence[_V],
    stage: Callable[..., Awaitable[Sequence[_R | Failure]]],
    core: Core,
) -> dict[int, _R]:
    """Run one stage. What fails leaves the path here; what the whole stage raises concerns everyone in it."""
    if not values:
        return {}
    try:
        results = await _ask(stage, values, core)
    except AgentMemoryError as error:
        results = [Failure(error=error) for _ in values]
    except TimeoutError as error:
        late = TimeLimitError(
            "A stage took longer than its time limit. Store this again; what is stored is skipped.", cause=error
        )
        results = [Failure(error=late) for _ in values]
    except Exception as error:  # noqa: BLE001 - a defect fails its documents, with its cause, and never the whole run
        fault = InternalError(
            "A stage failed in a way that nobody foresaw. Store this again to be sure, and report it.", cause=error
        )
        results = [Failure(error=fault) for _ in values]
    passed: dict[int, _R] = {}
    for position, result in zip(positions, results, strict=True):
        if isinstance(result, Failure):
            batch.settle(position, result)
        else:
            passed[position] = result
    return passed


async def _ask(
    stage: Callable[..., Awaitable[Sequence[_R | Failure]]], values: Sequence[_V], core: Core
) -> Sequence[_R | Failure]:
    results = await stage(values, core=core)
    if len(results) != len(values):
        raise InternalError(f"A stage answered {len(results)} times for {len(values)} documents; report this.")
    return results


def _one_per_source(validated: dict[int, Document]) -> tuple[dict[int, Document], list[int]]:
    """Two requests for one source keep their order: the second waits until the first is stored.

    So do a renamed file and what is stored under its old name: both would write the same document.
    """
    taken: set[str] = set()
    first: dict[int, Document] = {}
    for position, document in sorted(validated.items()):
        names = {document.source_id, document.document_id}
        if taken.isdisjoint(names):
            first[position] = document
        taken |= names
    return first, [position for position in sorted(validated) if position not in first]


def _unchanged(document: Document, core: Core) -> StoreOutcome:
    base = document.base
    return StoreOutcome(
        outcome=Outcome.UNCHANGED,
        source_id=document.source_id,
        document_id=document.document_id,
        title=base.attributes.title if base else None,
        version=base.version if base else None,
        chunk_count=base.chunk_count if base else 0,
        strategy=base.strategy if base else None,
        fingerprint=core.fingerprint,  # the plan compared it with what is stored
        notes=document.notes,
    )


def _deleted_meanwhile() -> ConflictError:
    return ConflictError("The document was deleted while this was being stored. Store it again if it is still wanted.")


def _endless_conflict() -> ConflictError:
    return ConflictError(
        f"Other writers changed this document {MAX_ROUNDS} times while it was being stored. Store it again later."
    )
