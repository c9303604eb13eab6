"""What a caller asks to have stored, as it crosses a door, and the bounds of its parts. Frozen.

JSON names are camelCase, Python names snake_case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_CONTENT_CHARS = 5_000_000
MAX_METADATA_CHARS = 32_768
MAX_METADATA_DEPTH = 16
MAX_TAGS = 50
MAX_TAG_CHARS = 64
MAX_TITLE_CHARS = 512
MAX_URI_CHARS = 2_048
MAX_SOURCE_ID_CHARS = 256
MAX_NAME_CHARS = 128


class WireModel(BaseModel):
    """Base of what crosses a door: frozen, camelCase or snake_case in, camelCase out, unknown names refused.

    Its errors never quote what came in: they reach the log.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class StoreContentRequest(WireModel):
    """One piece of content to remember. An argument that is left out keeps the stored value; an empty one clears it."""

    content: Annotated[
        str, Field(description="The text to remember, 1 to 5,000,000 characters with at least one that is not blank.")
    ]
    title: Annotated[
        str | None, Field(description="A title of 1 to 512 characters; else it is taken from the text.")
    ] = None
    source_id: Annotated[
        str | None,
        Field(
            description="A stable id of your own, such as notes/deploy. Storing under the same id again replaces "
            "the document. At most 256 letters, digits and . _ : @ - /, the first a letter or digit."
        ),
    ] = None
    uri: Annotated[str | None, Field(description="Where the content comes from, at most 2,048 characters.")] = None
    content_type: Annotated[
        str | None,
        Field(
            description="markdown (default), text, code, html, json, rst or csv, or a MIME type that means one of them."
        ),
    ] = None
    tags: Annotated[
        list[str] | None, Field(description="At most 50 tags of 1 to 64 characters; trimmed, lowercased, deduplicated.")
    ] = None
    metadata: Annotated[
        dict[str, Any] | None,
        Field(description="A JSON object of at most 32,768 characters and depth 16, stored as it is."),
    ] = None
    agent: Annotated[str | None, Field(description="The agent that stores this, at most 128 characters.")] = None
    session_id: Annotated[str | None, Field(description="The session that stores this, at most 128 characters.")] = None
    chunk_size_tokens: Annotated[int | None, Field(description="Chunk size in tokens, 32 to 8,192.")] = None
    chunk_overlap_tokens: Annotated[
        int | None, Field(description="Overlap of neighbouring chunks in tokens, 0 to 4,096 and below the size.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who brought a piece of content and how. `attribute_owner` is what is written beside the attributes it sets."""

    channel: str
    feed: str | None = None
    client_name: str | None = None
    client_version: str | None = None
    token_name: str | None = None
    submission_id: str | None = None
    flow_run_id: str | None = None

    @property
    def attribute_owner(self) -> str:
        """`feed:NAME` for a directory, `caller` for everyone else."""
        return f"feed:{self.feed}" if self.feed else "caller"
