"""Units in, the vectors that were paid for before out; new vectors in, kept. A broken cache costs money, never answers.

A vector is found by what it depends on: provider, model and width, kind, the exact texts of its unit, and its place
among them. For a flat model a unit is the text alone; for a contextual one it is the whole document or window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import numpy as np

from memory_core.embedding_plan import Unit
from memory_core.embedding_ports import CachedVector, EmbeddingCache, EmbeddingKind, EmbeddingTransport
from memory_core.errors import StorageError
from memory_core.models import Vector


class PaidVectors:
    """The cache as one embedding call sees it. What could not be written is tried again with the next answer."""

    def __init__(
        self,
        cache: EmbeddingCache,
        transport: EmbeddingTransport,
        *,
        kind: EmbeddingKind,
        clock: Callable[[], datetime],
        on_fault: Callable[[StorageError], None],
    ) -> None:
        self._cache = cache
        self._space = [transport.provider, transport.model, transport.dimensions, transport.is_contextual, kind]
        self._dimensions = transport.dimensions
        self._clock = clock
        self._on_fault = on_fault
        self._keys: dict[Unit, tuple[str, ...]] = {}
        self._unsaved: dict[str, CachedVector] = {}

    def derive_keys(self, units: Iterable[Unit]) -> None:
        """Hash the texts now, in whatever thread this is: those of a big call take a second."""
        for unit in units:
            self._keys_of(unit)

    async def read(self, units: Iterable[Unit]) -> dict[Unit, Vector]:
        """The units of which every vector is kept; nothing where the cache does not answer."""
        keys = {unit: self._keys_of(unit) for unit in units}
        if not keys:
            return {}
        try:
            kept = await self._cache.read_vectors([key for unit_keys in keys.values() for key in unit_keys])
        except StorageError as error:
            self._on_fault(error)
            return {}
        return {
            unit: np.stack([kept[key].vector for key in unit_keys])
            for unit, unit_keys in keys.items()
            if all(key in kept and kept[key].vector.shape == (self._dimensions,) for key in unit_keys)
        }

    async def write(self, vectors: Mapping[Unit, Vector]) -> None:
        """Keep the vectors of an answer, and those that an earlier write could not."""
        entries = self._unsaved | {
            key: CachedVector(vector=row)
            for unit, rows in vectors.items()
            for key, row in zip(self._keys_of(unit), rows, strict=True)
        }
        self._unsaved = {}
        try:
            await self._cache.write_vectors(entries, now=self._clock())
        except StorageError as error:
            self._unsaved |= entries
            self._on_fault(error)

    def _keys_of(self, unit: Unit) -> tuple[str, ...]:
        keys = self._keys.get(unit)
        if keys is None:
            whole = hashlib.sha256(json.dumps([*self._space, unit.texts]).encode()).hexdigest()
            places = range(len(unit.texts))
            keys = tuple(hashlib.sha256(f"{whole}:{place}".encode()).hexdigest() for place in places)
            self._keys[unit] = keys
        return keys
