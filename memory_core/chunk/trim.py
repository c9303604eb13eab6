"""A text and a place in, the next place that is not blank out."""

from __future__ import annotations

import re

_NON_BLANK = re.compile(r"\S")


def first_non_blank(content: str, position: int) -> int:
    """The first place at or behind the position that is not blank, or the end."""
    found = _NON_BLANK.search(content, position)
    return found.start() if found else len(content)
