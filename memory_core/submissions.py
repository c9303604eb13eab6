"""Staging. In: a request that a door accepts. Out: a durable submission, with the key that equal calls share."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from memory_core.models import StoreRequest
from memory_core.ports import Core
from memory_core.rules import check_request, default_options
from memory_core.work_ports import Submission

# How long a stager's word counts without a run of its own: until then nobody else takes what it has just accepted.
STAGE_LEASE_SECONDS = 60.0


async def stage_request(request: StoreRequest, *, core: Core) -> Submission:
    """Check the request by the rules that hold on every door, then keep it durably, under this process's lease.

    Raises:
        ValidationError: the request is not acceptable; nothing was written.
        StorageError: it could not be kept.
    """
    defaults = default_options(core.settings)
    checked = check_request(request.request, defaults=defaults, max_input_tokens=core.embedder.max_input_tokens)
    # Staged as it will be stored, so that the version can adopt the body instead of writing the text again.
    normalised = replace(request, request=request.request.model_copy(update={"content": checked.content}))
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    return await core.submissions.stage(
        normalised, key=derive_key(normalised), holder=core.holder, seconds=STAGE_LEASE_SECONDS, now=core.clock()
    )


def derive_key(request: StoreRequest) -> str:
    """A hash of what is to be stored, without who asked: it joins an open submission of the same content."""
    fields = request.request.model_dump(mode="json", exclude={"agent", "session_id"}, exclude_none=True)
    return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
