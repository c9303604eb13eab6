"""One check of every invariant that a test can see, and how many examples the generated tests take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import settings
from numpy.typing import NDArray

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk.markdown import MARKDOWN_STRATEGY, scan_markdown
from memory_core.chunk.text import scan_text
from memory_core.chunk.units import first_non_blank
from memory_core.models import Chunk, ChunkingResult, ChunkOptions, ContentType
from memory_core.ports import TokenCounter

# HYPOTHESIS_CHUNK_PROFILE=chunk-fuzz looks longer.
settings.register_profile("chunk-suite", derandomize=True, max_examples=150, deadline=None)
settings.register_profile("chunk-fuzz", max_examples=5_000, deadline=None)

CheckedChunker = Callable[..., ChunkingResult]


class CharCounter:
    """One token a code point."""

    name = "chars"

    def count(self, text: str) -> int:
        """Code points of the text."""
        return len(text)

    def ends(self, text: str) -> NDArray[np.int64]:
        """Every offset but the first."""
        return np.arange(1, len(text) + 1, dtype=np.int64)


@pytest.fixture
def char_counter() -> TokenCounter:
    """A counter that is not a tokenizer."""
    return CharCounter()


@pytest.fixture(scope="session")
def chunk_checked() -> CheckedChunker:
    """Chunk a text and assert all that must hold of any chunking."""

    def chunk(
        text: str,
        content_type: ContentType = ContentType.MARKDOWN,
        *,
        counter: TokenCounter | None = None,
        **options: int,
    ) -> ChunkingResult:
        tokens = counter or load_tiktoken_counter()
        sizes = ChunkOptions(**options)
        result = chunk_content(text, content_type, sizes, tokens)
        _check_slices(text, result.chunks)
        _check_tokens(text, result, sizes, tokens)
        _check_minimum(text, result, sizes, tokens)
        _check_clusters(text, result, sizes, tokens)
        return result

    return chunk


def _check_slices(text: str, chunks: tuple[Chunk, ...]) -> None:
    covered, start = 0, -1
    for index, chunk in enumerate(chunks):
        assert chunk.index == index
        assert chunk.text == text[chunk.char_start : chunk.char_end]
        assert chunk.text == chunk.text.strip() != ""
        assert chunk.char_start > start
        assert chunk.char_end > covered
        assert not text[covered : chunk.char_start].strip()
        covered, start = chunk.char_end, chunk.char_start
    assert not text[covered:].strip()


def _check_tokens(text: str, result: ChunkingResult, sizes: ChunkOptions, counter: TokenCounter) -> None:
    chunks = result.chunks
    for chunk in chunks:
        assert chunk.token_count == counter.count(chunk.text) <= sizes.size
    for before, after in pairwise(chunks):
        assert counter.count(text[after.char_start : before.char_end]) <= sizes.overlap
    assert result.stats.input_chars == len(text)
    assert result.stats.chunk_count == len(chunks)
    assert result.stats.total_tokens == sum(chunk.token_count for chunk in chunks)


def _check_minimum(text: str, result: ChunkingResult, sizes: ChunkOptions, counter: TokenCounter) -> None:
    """A small chunk and its neighbour do not fit together, or the neighbour is of another section."""
    structure = scan_markdown(text) if result.strategy == MARKDOWN_STRATEGY else scan_text(text)
    covered = 0
    for before, after in pairwise(result.chunks):
        own = first_non_blank(text, max(covered, before.char_start))
        if min(before.token_count, after.token_count) < sizes.minimum:
            assert counter.count(text[own : after.char_end]) > sizes.size or (
                after.char_end > structure.section_at(own).end
            )
        covered = before.char_end


def _check_clusters(text: str, result: ChunkingResult, sizes: ChunkOptions, counter: TokenCounter) -> None:
    if text.isascii():
        return
    edges = [0, *(found.end() for found in regex.finditer(r"\X", text))]
    cuts = 0
    for position in (place for chunk in result.chunks for place in (chunk.char_start, chunk.char_end)):
        behind = bisect_left(edges, position)
        if edges[behind] != position:
            cluster = text[edges[behind - 1] : edges[behind]]
            # Blanks at the ends of a chunk are never kept, so a cluster with a blank in it can be cut there.
            assert any(char.isspace() for char in cluster) or counter.count(cluster) > sizes.size
            cuts += 1
    assert result.stats.cluster_cuts == cuts
