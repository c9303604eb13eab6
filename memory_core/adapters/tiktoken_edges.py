"""A text and a place in, the nearest place where a cl100k_base token begins whatever stands around out.

The pattern looks at nothing behind it, and no piece of it goes on from an ASCII letter or digit to another kind of
character, or from a line feed to a non-blank. So a text that is cut there has the tokens of its two parts.
"""

from __future__ import annotations

import re

import regex

# Behind an ASCII letter or digit, where ASCII of another kind follows; ahead of a line that begins with a non-blank.
# Other alphabets are left out: the tokenizer's tables need not be those of `regex`.
_AHEAD_OF_EDGE = r"[A-Za-z](?=[\n -@\[-`{-~])|[0-9](?=[\n -/:-~])|\n(?=\S)"
_FIRST_EDGE = re.compile(_AHEAD_OF_EDGE)
_LAST_EDGE = regex.compile(f"(?r){_AHEAD_OF_EDGE}")
# A slice is counted by a few tokens at its two ends: a search that goes on for longer costs more than it saves.
_SEARCH_CHARS = 64


def first_edge(text: str, start: int, end: int) -> int:
    """The first edge from `start` on, within a few words; `end` where there is none."""
    found = _FIRST_EDGE.search(text, max(start - 1, 0), min(end, start + _SEARCH_CHARS))
    return found.end() if found else end


def last_edge(text: str, start: int, end: int) -> int:
    """The last edge up to `end`, within a few words; `start` where there is none."""
    # What follows the last place has to be seen.
    found = _LAST_EDGE.search(text, max(start, end - _SEARCH_CHARS), min(end + 1, len(text)))
    return found.end() if found else start
