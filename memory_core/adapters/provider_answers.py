"""Answers of embedding endpoints in, checked vectors out. Pure: no connection, no setting.

Vectors are put in their places by the explicit `index` of each entry, never by the order in which they came. Nothing is
repaired: an answer with a vector too few, too narrow or not finite is refused whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from memory_core.embedding_ports import ProviderAnswer
from memory_core.errors import EmbeddingError
from memory_core.models import Vector

_FLOAT_BYTES = 4
_NUMBERS = frozenset({int, float})


def rebuild_flat(answer: Mapping[str, object], sizes: Sequence[int], *, dimensions: int, who: str) -> ProviderAnswer:
    """The vectors of a flat answer, split again into groups of these sizes.

    Raises:
        EmbeddingError: a vector is missing, repeated, of another width, or has something that is no finite number.
    """
    try:
        vectors = _read_vectors(answer.get("data"), sum(sizes), dimensions, "data")
        ends = np.cumsum(sizes)[:-1]
        return ProviderAnswer(groups=tuple(np.split(vectors, ends)), tokens=_read_tokens(answer))
    except _WrongAnswerError as error:
        raise _refuse(error, who) from None


def rebuild_nested(answer: Mapping[str, object], sizes: Sequence[int], *, dimensions: int, who: str) -> ProviderAnswer:
    """The vectors of a contextual answer, whose groups and texts both have their index.

    Raises:
        EmbeddingError: as for a flat one.
    """
    try:
        groups = [
            _read_vectors(group.get("data"), size, dimensions, f"data[{place}].data")
            for place, (group, size) in enumerate(
                zip(_order(answer.get("data"), len(sizes), "data"), sizes, strict=True)
            )
        ]
        return ProviderAnswer(groups=tuple(groups), tokens=_read_tokens(answer))
    except _WrongAnswerError as error:
        raise _refuse(error, who) from None


class _WrongAnswerError(Exception):
    """What is wrong with an answer, as the rest of a sentence."""


def _refuse(error: _WrongAnswerError, who: str) -> EmbeddingError:
    return EmbeddingError(
        f"{who} gave a wrong answer: {error}. Nothing of it was used. Check EMBEDDING_MODEL and EMBEDDING_DIMENSIONS."
    )


def _read_vectors(entries: object, count: int, dimensions: int, where: str) -> Vector:
    vectors = np.empty((count, dimensions), dtype=np.float32)
    for place, entry in enumerate(_order(entries, count, where)):
        vectors[place] = _read_vector(entry.get("embedding"), dimensions, f"{where}[{place}].embedding")
    if not np.isfinite(vectors).all():
        place = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise _WrongAnswerError(f"{where}[{place}].embedding has a number that is not finite")
    return vectors


def _order(entries: object, count: int, where: str) -> list[Mapping[str, object]]:
    """The entries by their index, each of 0 to count - 1 once."""
    if not isinstance(entries, list):
        raise _WrongAnswerError(f"{where} is no list")
    given = cast("list[object]", entries)
    if len(given) != count:
        raise _WrongAnswerError(f"{where} has {len(given)} entries for {count} that were sent")
    ordered: dict[int, Mapping[str, object]] = {}
    for entry in given:
        if not isinstance(entry, dict):
            raise _WrongAnswerError(f"{where} has an entry that is no object")
        fields = cast("dict[str, object]", entry)
        index = fields.get("index")
        if type(index) is not int or not 0 <= index < count:
            raise _WrongAnswerError(f"{where} has an entry whose index is missing or not in 0 to {count - 1}")
        if index in ordered:
            raise _WrongAnswerError(f"{where} has the index {index} twice")
        ordered[index] = fields
    return [ordered[index] for index in range(count)]


def _read_vector(value: object, dimensions: int, where: str) -> Vector:
    vector = _decode(value, where) if isinstance(value, str) else _read_numbers(value, where)
    if len(vector) != dimensions:
        raise _WrongAnswerError(f"{where} has {len(vector)} numbers instead of {dimensions}")
    return vector


def _decode(value: str, where: str) -> Vector:
    """Base64 of little-endian float32."""
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _WrongAnswerError(f"{where} is no base64") from None
    if len(data) % _FLOAT_BYTES:
        raise _WrongAnswerError(f"{where} is no list of float32 numbers")
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def _read_numbers(value: object, where: str) -> Vector:
    if not isinstance(value, list):
        raise _WrongAnswerError(f"{where} is missing or no list of numbers")
    numbers = cast("list[object]", value)
    if not set(map(type, numbers)) <= _NUMBERS:
        raise _WrongAnswerError(f"{where} has something that is no number")
    try:
        # What float32 cannot hold becomes infinite, and is refused with the rest that is not finite.
        with np.errstate(over="ignore"):
            return np.array(numbers, dtype=np.float64).astype(np.float32)
    except OverflowError:
        raise _WrongAnswerError(f"{where} has a number that is not finite") from None


def _read_tokens(answer: Mapping[str, object]) -> int | None:
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, object]", usage)
    for name in ("total_tokens", "prompt_tokens"):
        tokens = fields.get(name)
        if type(tokens) is int and tokens >= 0:
            return tokens
    return None
