"""Texts in, vectors of word counts out: an embedder without a model, for tests. No I/O, no randomness.

Signed feature hashing: each distinct word votes in three places of the vector, with the logarithm of its count, for or
against. Texts with common words are near each other; nothing is known of meaning.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np

from memory_core.embed import check_groups
from memory_core.embedding_ports import EmbeddingKind, EmbeddingResult, EmbeddingUsage
from memory_core.errors import ConfigError
from memory_core.models import Vector

_WORD = re.compile(r"[^\W_]+")
_RESERVED_WORD: Final = "\0"  # stands for a text without letters and digits; no word can be equal to it
_VOTES: Final = 3
_BYTES_PER_VOTE: Final = 8
_WORDS_REMEMBERED: Final = 100_000


class HashEmbedder:
    """Deterministic unit vectors, equal for queries and documents, on every platform."""

    def __init__(self, dimensions: int = 384) -> None:
        if dimensions < 1:
            raise ConfigError("EMBEDDING_DIMENSIONS: the hash embedder needs a width of at least 1.")
        self._dimensions = dimensions

    @property
    def provider(self) -> str:
        """Name for fingerprints."""
        return "hash"

    @property
    def model(self) -> str:
        """The scheme and its version."""
        return "word-votes-1"

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        return self._dimensions

    @property
    def max_input_tokens(self) -> int | None:
        """No limit."""
        return None

    @property
    def is_contextual(self) -> bool:
        """Every text by itself."""
        return False

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Embed every text in a thread. `usage` counts words and no requests."""
        check_groups(groups, kind=kind)
        return await asyncio.to_thread(self._embed_all, groups)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _embed_all(self, groups: Sequence[Sequence[str]]) -> EmbeddingResult:
        counted = [[_count_words(text) for text in group] for group in groups]
        return EmbeddingResult(
            groups=[np.stack([self._vote(words) for words in group]) for group in counted],
            windows=[[1] * len(group) for group in groups],
            usage=EmbeddingUsage(tokens=sum(words.total() for group in counted for words in group), requests=0),
        )

    def _vote(self, words: Counter[str]) -> Vector:
        ballots = np.fromiter(chain.from_iterable(map(_ballots_of, words)), dtype=np.uint64, count=_VOTES * len(words))
        weights = np.fromiter((1 + math.log(count) for count in words.values()), dtype=np.float64, count=len(words))
        signs = np.where(ballots & np.uint64(1), 1.0, -1.0)
        places = (ballots >> np.uint64(1)) % np.uint64(self._dimensions)
        votes = np.bincount(
            places.astype(np.intp), weights=signs * np.repeat(weights, _VOTES), minlength=self._dimensions
        )
        norm = float(np.linalg.norm(votes))
        if norm == 0:  # every vote was cancelled by another
            votes[0] = norm = 1.0
        return (votes / norm).astype(np.float32)


def _count_words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower())) or Counter({_RESERVED_WORD: 1})


@lru_cache(maxsize=_WORDS_REMEMBERED)
def _ballots_of(word: str) -> tuple[int, ...]:
    """Three 64-bit numbers of the word: the lowest bit is the sign, the others choose the place."""
    digest = hashlib.blake2b(word.encode("utf-8"), digest_size=_VOTES * _BYTES_PER_VOTE).digest()
    return tuple(
        int.from_bytes(digest[start : start + _BYTES_PER_VOTE], "little")
        for start in range(0, len(digest), _BYTES_PER_VOTE)
    )
