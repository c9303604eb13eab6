"""The embed stage as a Prefect task: give every chunk its vector. A name, a retry rule, a timeout; no logic."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task

from memory_core.bootstrap import current_core
from memory_core.embed import embed_documents
from memory_core.models import ChunkedDocument, EmbeddedDocument, Failure
from tasks.retry import EMBED_TIMEOUT_SECONDS
from tasks.task_options import task_options


@task(**task_options("embed", timeout_seconds=EMBED_TIMEOUT_SECONDS))
async def embed_task(documents: Sequence[ChunkedDocument]) -> Sequence[EmbeddedDocument | Failure]:
    """Give every chunk its vector (memory_core.embed)."""
    return await embed_documents(documents, core=current_core())
