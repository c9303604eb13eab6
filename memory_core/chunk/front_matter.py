"""The lines of a Markdown text in, the length of its front matter out: 0 where it opens with something else.

A text that opens with a thematic break has no front matter: the line below the opening one must not be blank, and all
that is not indented must read as YAML (`key:`, `- item`, `# comment`) or TOML (`key =`, `[table]`, `# comment`).
"""

from __future__ import annotations

import re

_YAML_OPENING = re.compile(r"---[ \t]*\n(?![ \t]*\n)")
_YAML_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_YAML_LINE = re.compile(r"""[\w.$/-]+[ \t]*:(?:[ \t]|$)|"[^"\n]*"[ \t]*:|'[^'\n]*'[ \t]*:|#|-[ \t]|[ \t]|[\]}]|$""")
_TOML_OPENING = re.compile(r"\+\+\+[ \t]*\n(?![ \t]*\n)")
_TOML_CLOSING = re.compile(r"^\+\+\+[ \t]*$", re.MULTILINE)
_TOML_LINE = re.compile(r"""[\w."'-]+[ \t]*=|\[|#|[ \t]|[\]}]|$""")


def measure_front_matter(lines: str) -> int:
    """Characters up to the end of the closing line."""
    for opening, closing, readable in (
        (_YAML_OPENING, _YAML_CLOSING, _YAML_LINE),
        (_TOML_OPENING, _TOML_CLOSING, _TOML_LINE),
    ):
        opened = opening.match(lines)
        closed = closing.search(lines, opened.end()) if opened else None
        if opened and closed and opened.end() < closed.start():
            body = lines[opened.end() : closed.start()].splitlines()
            return closed.end() if all(readable.match(line) for line in body) else 0
    return 0
