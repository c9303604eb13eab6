"""What a scanner knows of a text, as one value the packer reads: where it may be cut and what goes together.

A scanner never decides sizes. It names cut positions by level (a smaller level is a stronger cut), the sections, and
the headings that must keep what is below them. Lines, sentences, words and grapheme clusters are the packer's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

SECTION_LEVELS = 6  # levels 1 to 6 are the edges of sections: HTML and Markdown know six depths of headings
BLOCK_LEVEL = 10
LEVELS_PER_DEPTH = 4  # a block, a list item, a glued cut; one in reserve
ITEM_STEP = 1
GLUE_STEP = 2


class Cut(NamedTuple):
    """A place where the text may be cut. A glued cut parts a heading from its body: only where they do not fit."""

    position: int
    level: int
    glued: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """The text from one heading to the next of its depth or above, and the names of the headings it stands below."""

    start: int
    end: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The structure of one text. Positions count code points and ascend.

    `lines` is the text with a line feed as its only line end, of equal length. `bodies` maps the start of a heading,
    or of a chain of headings, to where what it must stay with begins: nothing finer than a cut parts these two.
    `sections` are in order of their starts; the first is the whole text.
    """

    strategy: str
    lines: str
    cuts: Sequence[Cut]
    sections: Sequence[Section]
    bodies: Mapping[int, int] = field(default_factory=dict[int, int])

    def section_at(self, position: int) -> Section:
        """The section in force at the position: the last one that has started."""
        return self.sections[bisect_right(self.sections, position, key=attrgetter("start")) - 1]


def block_level(depth: int) -> int:
    """The level of a block's edge inside so many containers (list items, quotes)."""
    return BLOCK_LEVEL + LEVELS_PER_DEPTH * depth
