"""A plain text in, its paragraphs as a Structure out: blank lines are its only structure."""

from __future__ import annotations

import re

from memory_core.chunk.structure import Cut, Section, Structure, block_level

PARAGRAPH_STRATEGY = "paragraph"

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
# Everything that Unicode calls a line end, each one character long.
_LINE_ENDS = str.maketrans(dict.fromkeys("\r\v\f\x85\u2028\u2029", "\n"))


def scan_text(content: str) -> Structure:
    """Read a text as paragraphs that blank lines part; one section, no headings."""
    # A CRLF is one line end, not a blank line: its first half becomes a blank.
    lines = content.replace("\r\n", " \n").translate(_LINE_ENDS)
    level = block_level(0)
    cuts = [Cut(0, level), *(Cut(gap.end(), level) for gap in _BLANK_LINES.finditer(lines))]
    return Structure(strategy=PARAGRAPH_STRATEGY, lines=lines, cuts=cuts, sections=[Section(0, len(content), ())])
