"""Documents in, each with one paragraph replaced out. Pure; equal calls make equal edits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chunk_texts import Text

_SEED = 4
_FEWEST_WORDS = 20  # of a paragraph of prose
_GAP = "\n\n"
_MARKS = tuple("#-*+|><`[ \t0123456789")  # with these begin headings, lists, tables, quotes, fences, links and code


@dataclass(frozen=True, slots=True)
class Edit:
    """A document's text before and after."""

    before: str
    after: str


def replace_paragraphs(texts: Sequence[Text], count: int) -> list[Edit]:
    """In each of so many documents one paragraph of prose gives way to one of another document."""
    generator = random.Random(_SEED)  # noqa: S311 - a seeded generator makes the same edits on every run
    contents = [text.content for text in texts if find_paragraphs(text.content)]
    edits: list[Edit] = []
    for content in generator.sample(contents, count):
        other = generator.choice([one for one in contents if one is not content]).split(_GAP)
        blocks = content.split(_GAP)
        strange = other[generator.choice(find_paragraphs(_GAP.join(other)))]
        blocks[generator.choice(find_paragraphs(content))] = strange
        edits.append(Edit(content, _GAP.join(blocks)))
    return edits


def find_paragraphs(content: str) -> list[int]:
    """Which blocks between blank lines are prose, outside of fences."""
    found: list[int] = []
    is_fenced = False
    for place, block in enumerate(content.split(_GAP)):
        if "```" in block:
            is_fenced ^= bool(block.count("```") % 2)
        elif not is_fenced and not block.startswith(_MARKS) and len(block.split()) >= _FEWEST_WORDS:
            found.append(place)
    return found
