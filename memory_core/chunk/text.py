"""A plain text in, its paragraphs as a Structure out: blank lines and paragraph separators are its only structure."""

from __future__ import annotations

import re

from memory_core.chunk.outline import Outline
from memory_core.chunk.structure import Structure, block_level

PARAGRAPH_STRATEGY = "paragraph"

_PARAGRAPH_SEPARATOR = "\u2029"
_PARAGRAPH_ENDS = re.compile(rf"\n(?:[^\S\n]*+\n)++|{_PARAGRAPH_SEPARATOR}")
# What else Unicode calls a line end, each one character long.
_LINE_ENDS = "\r\v\f\x85\u2028"


def scan_text(content: str) -> Structure:
    """Read a text as paragraphs; one section, no headings."""
    # A CRLF is one line end, not a blank line: its first half becomes a blank.
    lines = content.replace("\r\n", " \n")
    for line_end in _LINE_ENDS:
        lines = lines.replace(line_end, "\n")
    outline, level = Outline(), block_level(0)
    outline.add_block(0, level)
    for gap in _PARAGRAPH_ENDS.finditer(lines):
        outline.add_block(gap.end(), level)
    return outline.build(content, lines=lines.replace(_PARAGRAPH_SEPARATOR, "\n"), strategy=PARAGRAPH_STRATEGY)
