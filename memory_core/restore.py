"""Brings a deleted document back. In: its source id or document id. Out: the document as it was, through the one path.

Its id, dates, attributes and kept versions come back; its chunks are cut and embedded again. A directory no longer owns
it: the next sync would delete it once more, as its file is gone.
"""

from __future__ import annotations

from memory_core.answers import StoredDocument
from memory_core.errors import NotFoundError
from memory_core.models import Past, StoreOutcome, StoreRequest
from memory_core.ports import Core, Stages
from memory_core.store_content import PLAIN_STAGES, store_content
from memory_core.store_request import Provenance, StoreContentRequest


async def restore_document(identifier: str, *, core: Core, channel: str, stages: Stages = PLAIN_STAGES) -> StoreOutcome:
    """Take the document that was deleted last under this id out of the trash.

    The outcome is `failed` with a ConflictError where something else was stored under its source id meanwhile.

    Raises:
        NotFoundError: nothing of that name waits in the trash.
    """
    found = await core.store.read_trash(identifier, limit=1)
    if not found:
        raise NotFoundError("There is no such document in the trash. `memory trash` shows what can be restored.")
    document = found[0].document
    content = await core.store.read_body(document.state.body_id)
    (outcome,) = await store_content([_as_request(document, content, channel)], core=core, stages=stages)
    return outcome


def _as_request(document: StoredDocument, content: str, channel: str) -> StoreRequest:
    state = document.state
    left = (f"It no longer belongs to the directory {state.feed}.",) if state.feed else ()
    return StoreRequest(
        request=StoreContentRequest(
            content=content,
            source_id=state.source_id,
            content_type=state.attributes.content_type.value,
            chunk_size_tokens=document.options.size,
            chunk_overlap_tokens=document.options.overlap,
        ),
        provenance=Provenance(channel=channel),
        notes=left,
        past=Past(
            document_id=state.document_id,
            created_at=state.created_at,
            updated_at=state.updated_at,
            attributes=state.attributes,
            feed=None,
            versions=document.versions,
            is_restored=True,
            context_basis=state.context_basis,
        ),
    )
