"""A Markdown text in, its Structure out: CommonMark blocks as an offset-preserving scan; inline marks are not read.

Only lines that begin with a mark are looked at one by one; what is between them is paragraphs that blank lines part.
A quote is scanned as a text of its own in which its `>` are blanks, so every offset stays an offset into the source.
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

from memory_core.chunk.front_matter import measure_front_matter
from memory_core.chunk.markdown_html import measure_html
from memory_core.chunk.markdown_lines import (
    CODE_INDENT_COLUMNS,
    atx_lines,
    atx_name,
    closing_fence,
    count_columns,
    item_lines,
    left_of,
)
from memory_core.chunk.markdown_tables import measure_table
from memory_core.chunk.outline import Outline
from memory_core.chunk.structure import ITEM_STEP, Structure, block_level

MARKDOWN_STRATEGY = "markdown-structural"

_MAX_ITEM_GAP_COLUMNS = 4
# Deeper containers are read as plain text: each level of quotes copies its text once.
_MAX_DEPTH = 12
# Of headings that follow each other: so many characters are split into lines at a time.
_HEADING_CHARS_AT_ONCE = 100_000

# Positions in these point at the line end AHEAD of a line, so that the engine can leap from line end to line end.
_EVENT = re.compile(
    r"\n([ \t]*+)(#(?=[# \t\n])|`(?=``)|~(?=~~)|[*](?=[* \t\n])|[+](?=[ \t\n])|-(?=[-:| \t\n])|_(?=[_ \t])|[<>=]"
    r"|[0-9](?=[0-9]{0,8}+[.)][ \t\n])|[|:](?=[ \t:|]*+-))"
)
# Any blanks: a form feed alone is no text either.
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
_INDENTED = re.compile(r"\n[ \t]")
_LINE_END = re.compile(r"\n")
_INDENT = re.compile(r"[ \t]*+")
_ATX = re.compile(r"(#{1,6})(?=[ \t\n])([^\n]*)")
_SETEXT = re.compile(r"(=++|-++)[ \t]*+\n")
_BREAK = re.compile(r"([-*_])(?:[ \t]*+\1){2,}+[ \t]*+\n")
_ITEM = re.compile(r"([-+*]|\d{1,9}[.)])([ \t]++|(?=\n))")
# What begins with a letter at the left edge is text.
_UNDERLINED = {mark: re.compile(rf"(?:\n[A-Za-z][^\n]*+\n{mark}++[ \t]*+(?=\n))++") for mark in "=-"}
# An item, and neither a thematic break nor the second line of a table or of a heading.
_IS_ITEM = re.compile(r"(?:[-+*]|\d{1,9}[.)])[ \t][A-Za-z`\[(]")
_NO_PARAGRAPH = re.compile(r"#{1,6}[ \t\n]|>|([-*_])(?:[ \t]*\1){2,}+[ \t]*+\n")
_REFERENCES = re.compile(r"(?: {0,3}\[[^\]\n]++\]:[^\n]*+\n)++")
_FENCE = re.compile(r"(`{3,}+)[^`\n]*+\n|(~{3,}+)")
_QUOTE_LINES = re.compile(r"(?:\n[ \t]*+>[^\n]*+)++")
_QUOTE_MARK = re.compile(r"\n[ \t]*+> ?")
_CODE_LINES = re.compile(r"(?:\n(?: {4}| {0,3}\t)[^\n]*+)++")


def scan_markdown(content: str) -> Structure:
    """Read the blocks, sections and headings of a Markdown text."""
    # A CRLF becomes a blank and a line end: all offsets stay.
    lines = content.replace("\r\n", " \n").replace("\r", "\n")
    outline = Outline()
    _Blocks(f"\n{lines}\n", outline).scan(front_matter_chars=measure_front_matter(lines))
    return outline.build(content, lines=lines, strategy=MARKDOWN_STRATEGY)


class _Blocks:
    """Scans one run of lines. `base` is the column at which its content begins, `depth` how many containers are around.

    An index into `source` is the content's offset plus one: `source` begins with a line end that is not the content's.
    So the index of the line end ahead of a line is the offset of that line, once `offset` is added.
    """

    def __init__(self, source: str, outline: Outline, *, offset: int = 0, base: int = 0, depth: int = 0) -> None:
        self._source = source
        self._outline = outline
        self._offset = offset
        self._base = base
        self._depth = depth
        self._items: list[int] = []  # the content columns of the open list items
        self._item_ends: dict[int, int] = {}
        self._paragraph_open = False
        self._setext_start: int | None = None
        self._in_code = False

    def scan(self, *, front_matter_chars: int = 0) -> None:
        """Add all blocks to the outline."""
        at, last = 0, len(self._source) - 1
        if front_matter_chars:
            self._open_block(0)
            at = front_matter_chars + 1
        while event := _EVENT.search(self._source, at):
            if event.start() > at:
                self._read_paragraphs(at, event.start())
            at = self._read_event(event)
        if at < last:
            self._read_paragraphs(at, last)

    @property
    def ends_in_paragraph(self) -> bool:
        """True where a plain line below would go on with the last paragraph."""
        return self._paragraph_open

    def _read_event(self, event: re.Match[str]) -> int:
        """Read a line that begins with a mark; return the line end ahead of what is next."""
        line, start, mark = event.start(), event.start(2), event[2]
        indent = count_columns(event[1])
        if indent - self._column(self._depth_at(indent)) < CODE_INDENT_COLUMNS:
            after = self._read_mark(mark, line, start, indent)
            if after is not None:
                return after
        end = self._source.find("\n", start)
        self._read_plain(line, end)
        return end

    def _read_mark(self, mark: str, line: int, start: int, indent: int) -> int | None:
        """Read the block that begins at the mark; None where the line is plain text after all."""
        match mark:
            case "#":
                after = self._read_atx(line, start, indent)
            case "`" | "~":
                after = self._read_fence(line, start, indent)
            case ">":
                after = self._read_quote(line, indent)
            case "<":
                after = self._read_html(line, start, indent)
            case "=":
                after = self._read_setext(start, indent)
            case "|" | ":":
                after = self._read_table(line, start)
            case _ if _IS_ITEM.match(self._source, start):
                after = self._read_item(line, start, indent)
            case _:
                after = self._read_table(line, start) if mark == "-" else None
                after = self._read_setext(start, indent) if mark == "-" and after is None else after
                after = self._read_break(line, start, indent) if after is None else after
                after = self._read_item(line, start, indent) if after is None else after
        return after

    # --- leaf blocks --------------------------------------------------------------------------------------------------

    def _read_paragraphs(self, line: int, end: int) -> None:
        """Lines without a mark, up to `end`, and the blank lines among them."""
        if not (self._items or self._base or _INDENTED.search(self._source, line, end)):
            self._read_unindented(line, end)
            return
        for gap in _BLANK_LINES.finditer(self._source, line, end + 1):
            if gap.start() > line:
                self._read_plain(line, gap.start())
            self._close_paragraph()
            line = gap.end() - 1
        if line < end:
            self._read_plain(line, end)

    def _read_unindented(self, line: int, end: int) -> None:
        """The same at the left edge, outside of all containers: every paragraph is a block."""
        behind_gaps = array("i", (gap.end() - 1 for gap in _BLANK_LINES.finditer(self._source, line, end + 1)))
        if not _BLANK_LINES.match(self._source, line):
            self._read_plain(line, end)
        if not behind_gaps:
            return
        self._end_leaf()
        is_open = behind_gaps[-1] < end
        if paragraphs := behind_gaps if is_open else behind_gaps[:-1]:
            self._outline.add_blocks(paragraphs, block_level(self._depth), offset=self._offset)
            self._paragraph_open = is_open
            self._setext_start = paragraphs[-1] if is_open and not self._depth else None

    def _read_plain(self, line: int, end: int) -> None:
        """Lines without a mark, up to `end`: they go on with a paragraph, or begin a paragraph or indented code."""
        if self._paragraph_open:
            return
        if not self._items and not self._base and self._source[line + 1] not in " \t":
            self._open_paragraph(line)
            return
        indent = count_columns(self._indent_of(line))
        depth = self._enter(indent)
        if indent - self._column(depth) >= CODE_INDENT_COLUMNS:
            if not self._in_code:
                self._open_block(line, whole=True)
            self._in_code = True
            code = _CODE_LINES.match(self._source, line, end)
            if not self._column(depth) and code and code.end() < end:
                self._read_plain(code.end(), end)
            return
        self._open_paragraph(line)

    def _open_paragraph(self, line: int) -> None:
        self._open_block(line)
        self._paragraph_open = True
        self._setext_start = line if not (self._items or self._depth) else None

    def _read_atx(self, line: int, start: int, indent: int) -> int | None:
        heading = _ATX.match(self._source, start)
        if heading is None:
            return None
        self._enter(indent)
        if self._items or self._depth:
            self._open_block(line)
        else:
            alike = None if indent else atx_lines(len(heading[1])).match(self._source, heading.end())
            if alike:
                self._end_leaf()
                return self._add_headings(line, alike.end(), len(heading[1]), lines_each=1)
            self._outline.add_heading(line, heading.end() - 1, len(heading[1]), atx_name(heading[2]))
        self._end_leaf()
        return heading.end()

    def _add_headings(self, line: int, end: int, depth: int, *, lines_each: int) -> int:
        """Add headings of one depth that follow each other, of one line or two (underlined); return `end`."""
        while line < end:
            stop = self._source.find("\n", min(line + _HEADING_CHARS_AT_ONCE, end))
            if self._source.count("\n", line, stop) % lines_each:  # between a title and the line below it
                stop = self._source.find("\n", stop + 1)
            lines = self._source[line + 1 : stop].split("\n")
            edges = array("i", accumulate(map(len, lines), lambda edge, length: edge + length + 1, initial=line))
            starts, ends = edges[:-1:lines_each], array("i", (edge - 1 for edge in edges[lines_each::lines_each]))
            names = [one.strip() for one in lines[::2]] if lines_each > 1 else [atx_name(one[depth:]) for one in lines]
            self._outline.add_headings(starts, ends, depth, names)
            line = stop
        return end

    def _read_setext(self, start: int, indent: int) -> int | None:
        underline = _SETEXT.match(self._source, start)
        if underline is None or self._setext_start is None or self._depth_at(indent) != len(self._items):
            return None
        references = _REFERENCES.match(self._source, self._setext_start + 1)
        position = references.end() - 1 if references else self._setext_start
        if position + 1 >= start - indent:
            return None
        mark, was_block = underline[1][0], position == self._setext_start
        depth, end = 1 if mark == "=" else 2, underline.end() - 1
        name = self._source[position:start]
        self._outline.add_heading(position, end - 1, depth, name, was_block=was_block)
        self._end_leaf()
        alike = _UNDERLINED[mark].match(self._source, end)
        return self._add_headings(end, alike.end(), depth, lines_each=2) if alike else end

    def _read_break(self, line: int, start: int, indent: int) -> int | None:
        thematic = _BREAK.match(self._source, start)
        if thematic is None:
            return None
        self._enter(indent)
        self._open_block(line)
        self._end_leaf()
        return thematic.end() - 1

    def _read_table(self, line: int, start: int) -> int | None:
        """Read a table by its second line: the line ahead of it is its header row."""
        header = self._source.rfind("\n", 0, line)
        end = measure_table(self._source, header, line, start) if self._paragraph_open else None
        if end is None:
            return None
        at, level = header + self._offset, block_level(self._depth + len(self._items))
        self._outline.add_block(at, level, whole=True, was_block=True)
        self._outline.add_lead(at, end + self._offset, at, line + self._offset)
        self._end_leaf()
        return end

    def _read_fence(self, line: int, start: int, indent: int) -> int | None:
        fence = _FENCE.match(self._source, start)
        if fence is None:
            return None
        self._enter(indent)
        self._open_block(line, whole=True)
        return self._skip_fence(fence)

    def _skip_fence(self, fence: re.Match[str]) -> int:
        """Go to the end of the closing line, of the item around it, or of the text."""
        self._end_leaf()
        run = fence[1] or fence[2]
        opening_end = self._source.find("\n", fence.end(1) if fence[1] else fence.end())
        limit = self._item_end(opening_end) if self._items else len(self._source) - 1
        closing = closing_fence(run[0], len(run), self._column(len(self._items))).search(
            self._source, opening_end, limit + 1
        )
        return closing.end() - 1 if closing else limit

    def _read_html(self, line: int, start: int, indent: int) -> int | None:
        end = measure_html(self._source, start, in_paragraph=self._paragraph_open)
        if end is None:
            return None
        self._enter(indent)
        self._open_block(line)
        self._end_leaf()
        return end

    # --- containers ---------------------------------------------------------------------------------------------------

    def _read_item(self, line: int, start: int, indent: int) -> int | None:
        item = _ITEM.match(self._source, start)
        depth = self._depth_at(indent)
        is_sibling = depth < len(self._items)
        if item is None or depth + self._depth >= _MAX_DEPTH:
            return None
        content = item.end()
        is_empty = self._source[content] == "\n"
        if self._paragraph_open and not is_sibling and (is_empty or item[1].rstrip(".)") not in {"-", "+", "*", "1"}):
            return None
        self._enter(indent)
        level = block_level(self._depth + depth)
        self._end_leaf()
        self._outline.add_block(line + self._offset, level + ITEM_STEP * is_sibling, whole=not is_sibling)
        gap = count_columns(item[2])
        self._items.append(indent + len(item[1]) + (gap if 0 < gap <= _MAX_ITEM_GAP_COLUMNS and not is_empty else 1))
        if fence := _FENCE.match(self._source, content):
            return self._skip_fence(fence)
        self._paragraph_open = not (is_empty or _NO_PARAGRAPH.match(self._source, content))
        end = self._source.find("\n", content)
        if not self._paragraph_open or "\t" in item[2]:
            return end
        alike = item_lines(self._source[line + 1 : start], item[1][-1], item[2]).match(self._source, end)
        if alike is None:
            return end
        # The lines below are items like this one, without anything between: one level, and nothing to look at.
        items = array("i", (found.start() for found in _LINE_END.finditer(self._source, end, alike.end())))
        self._outline.add_blocks(items, level + ITEM_STEP, offset=self._offset)
        return alike.end()

    def _read_quote(self, line: int, indent: int) -> int | None:
        depth = self._depth + self._depth_at(indent) + 1
        # Asked first: the lines of a quote that is too deep would be matched again at each of them.
        lines = _QUOTE_LINES.match(self._source, line) if depth < _MAX_DEPTH else None
        if lines is None:
            return None
        self._enter(indent)
        self._open_block(line)
        self._end_leaf()
        mark = _QUOTE_MARK.match(self._source, line)
        base = len(mark[0]) - 1 if mark else 0
        # One copy of the lines is kept, not two: quotes of quotes of a whole text are scanned inside each other.
        blanked = _QUOTE_MARK.sub(lambda mark: "\n" + " " * (len(mark[0]) - 1), lines[0] + "\n")
        quoted = _Blocks(blanked, self._outline, offset=self._offset + line, base=base, depth=depth)
        quoted.scan()
        # A plain line below may go on with the quote's last paragraph.
        self._paragraph_open = quoted.ends_in_paragraph
        return lines.end()

    def _enter(self, indent: int) -> int:
        """Leave the items that a line at this column is not part of; return how many are left."""
        if not self._items:
            return 0
        del self._items[self._depth_at(indent) :]
        return len(self._items)

    def _depth_at(self, indent: int) -> int:
        depth = len(self._items)
        while depth and indent < self._items[depth - 1]:
            depth -= 1
        return depth

    def _column(self, depth: int) -> int:
        return self._items[depth - 1] if depth else self._base

    def _item_end(self, at: int) -> int:
        """The line end ahead of the first line at or behind `at` that is left of the open item's content."""
        column = self._items[-1]
        # Kept until it is passed: an item of many fences is searched once.
        end = self._item_ends.get(column, -1)
        if end <= at:
            outside = left_of(column).search(self._source, at)
            end = outside.start() if outside else len(self._source) - 1
            self._item_ends[column] = end
        return end

    def _open_block(self, line: int, *, whole: bool = False) -> None:
        self._in_code = False
        self._outline.add_block(line + self._offset, block_level(self._depth + len(self._items)), whole=whole)

    def _end_leaf(self) -> None:
        self._close_paragraph()
        self._in_code = False

    def _close_paragraph(self) -> None:
        self._paragraph_open = False
        self._setext_start = None

    def _indent_of(self, line: int) -> str:
        indent = _INDENT.match(self._source, line + 1)
        return indent[0] if indent else ""
