"""The chunker whose results are checked, and how many examples the generated tests take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.models import ContentType
from memory_core.ports import TokenCounter
from tests.unit.chunk.promises import Chunking, check_all

# `make fuzz` sets HYPOTHESIS_CHUNK_PROFILE=chunk-fuzz: it looks longer, and at other examples in each run.
settings.register_profile("chunk-suite", derandomize=True, max_examples=500, deadline=None)
settings.register_profile("chunk-fuzz", derandomize=False, max_examples=5_000, deadline=None)

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


@pytest.fixture(scope="session")
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
        language: str = "",
        **sizes: int,
    ) -> ChunkingResult:
        tokens = counter or load_tiktoken_counter()
        options = ChunkOptions(language=language, **sizes)
        result = chunk_content(text, content_type, options, tokens)
        check_all(Chunking(text, content_type, options, tokens, result))
        return result

    return chunk
