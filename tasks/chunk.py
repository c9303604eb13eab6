"""The chunk stage as a Prefect task: cut documents into chunks. A name, a retry rule, a timeout; no logic."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task

from memory_core.bootstrap import current_core
from memory_core.chunk.chunk_content import chunk_documents
from memory_core.models import ChunkedDocument, Document, Failure
from tasks.retry import CHUNK_TIMEOUT_SECONDS
from tasks.task_options import task_options


@task(**task_options("chunk", timeout_seconds=CHUNK_TIMEOUT_SECONDS))
async def chunk_task(documents: Sequence[Document]) -> Sequence[ChunkedDocument | Failure]:
    """Cut documents into chunks (memory_core.chunk.chunk_content)."""
    return await chunk_documents(documents, core=current_core())
