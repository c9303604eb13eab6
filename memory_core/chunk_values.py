"""What the chunker is asked for and what it makes. Frozen; offsets count Unicode code points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """Sizes in tokens: `size` is the ceiling of every chunk, overlap included. `language` is that of code, "" else."""

    size: int = 400
    overlap: int = 0
    minimum: int = 32
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A slice `content[char_start:char_end]` of a document, in code points, with the headings in force at its start.

    `lead` is the header row of the table that the chunk goes on with, from elsewhere in the document; "" where it has
    none or holds it itself. `readable` is what a reader sees of the slice, where that is not the slice (HTML): a model
    and the text index read it instead.
    """

    index: int
    text: str
    char_start: int
    char_end: int
    token_count: int
    heading_path: tuple[str, ...] = ()
    lead: str = ""
    readable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingStats:
    """Counts of one chunking. `cluster_cuts` is 0 on every real file (design: section 4)."""

    input_chars: int
    chunk_count: int
    total_tokens: int
    merged_count: int = 0
    cluster_cuts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingResult:
    """The chunks of one document, and the name of the code path that cut them."""

    chunks: tuple[Chunk, ...]
    strategy: str
    stats: ChunkingStats


class Readable(Protocol):
    """A slice of a text, and what a reader sees of it where that is not the slice."""

    @property
    def text(self) -> str:
        """The slice."""
        ...

    @property
    def readable(self) -> str | None:
        """What a reader sees; None where that is the slice."""
        ...


def readable_text(chunk: Readable) -> str:
    """What a reader, a model and the text index see of a chunk; blank for nothing but scripts and markup."""
    return chunk.text if chunk.readable is None else chunk.readable
