"""The beginning of what may be a Markdown HTML block in, where it ends out; None where it is none (CommonMark 4.6)."""

from __future__ import annotations

import re

_ENDS = (
    (
        re.compile(r"<(?:script|pre|style|textarea)(?=[\s>])", re.IGNORECASE),
        re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE),
    ),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
)
_BLOCK = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div"
    r"|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link"
    r"|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th"
    r"|thead|title|tr|track|ul)(?=[\s>]|/>)",
    re.IGNORECASE,
)
_TAG_LINE = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*+(?:[ \t][^<>\n]*+)?/?>[ \t]*+\n")
_NEXT_BLANK_LINE = re.compile(r"\n(?=[ \t]*+\n)")


def measure_html(source: str, start: int, *, in_paragraph: bool) -> int | None:
    """The line end behind the block. `source` ends with a line end; a tag alone is no block inside a paragraph."""
    last = len(source) - 1
    for opening, closing in _ENDS:
        if opening.match(source, start):
            closed = closing.search(source, start + 2)
            return source.find("\n", closed.end()) if closed else last
    if not _BLOCK.match(source, start) and (in_paragraph or not _TAG_LINE.match(source, start)):
        return None
    blank = _NEXT_BLANK_LINE.search(source, start)
    return blank.start() if blank else last
