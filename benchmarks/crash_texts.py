"""Texts that say who they are, for `crash.py`. In: a source and a few numbers. Out: a text, an address, and back. Pure.

Every chunk is one paragraph. The address (`uri`) stands on the document and on each of its rows, and names the whole
text: whoever reads one row knows what all others must be.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

CHUNK_TOKENS = 64  # room for one paragraph, and not for two
MAX_PARAGRAPHS = 60
SOURCES = tuple(f"crash-{number:02}" for number in range(12))

_GAP = "\n\n"
_SCHEME = "crash://"
_WORDS = "memory agent chunk vector replica lease batch index retry token schema commit journal primary".split()
_WORDS_IN_A_PARAGRAPH = 28


@dataclass(frozen=True, slots=True)
class Draft:
    """A text of `count` paragraphs. Those of one epoch are the same in every draft, but for the edited one."""

    source: str
    serial: int
    epoch: int
    count: int
    edited: int

    @property
    def uri(self) -> str:
        """The address that says all of it."""
        return f"{_SCHEME}{self.source}/{self.serial}/{self.epoch}/{self.count}/{self.edited}"

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The chunks that it is cut into."""
        return _write(self)

    @property
    def content(self) -> str:
        """The whole text."""
        return _GAP.join(self.paragraphs)


def read_uri(uri: str) -> Draft:
    """The draft that an address names."""
    source, *numbers = uri.removeprefix(_SCHEME).split("/")
    return Draft(source, *map(int, numbers))


@functools.lru_cache(maxsize=512)
def _write(draft: Draft) -> tuple[str, ...]:
    marks = [f"epoch {draft.epoch}, paragraph {place}" for place in range(draft.count)]
    marks[draft.edited] += f", edited in {draft.serial}"
    return tuple(f"In {draft.source}, {mark}: {_some_words(f'{draft.source} {mark}')}." for mark in marks)


def _some_words(seed: str) -> str:
    generator = random.Random(seed)  # noqa: S311 - the same words for the same place, in every process
    return " ".join(generator.choice(_WORDS) for _ in range(_WORDS_IN_A_PARAGRAPH))


def draft_next(generator: random.Random, source: str, serial: int, before: Draft | None) -> Draft:
    """Another text for the source: a new one, or one that grew, shrank or was edited in one place."""
    kind = generator.choice(("rewrite", "grow", "shrink", "edit", "edit"))
    if before is None or kind == "rewrite":
        count = generator.choice((1, 2, 3, 8, 20, 40, MAX_PARAGRAPHS))
        return Draft(source, serial, serial, count, generator.randrange(count))
    count = before.count
    if kind == "grow":
        count = generator.randint(count, MAX_PARAGRAPHS)
    elif kind == "shrink":
        count = generator.randint(1, count)
    return Draft(source, serial, before.epoch, count, generator.randrange(count))
