"""A reStructuredText in, its Structure out: sections and blocks as an offset-preserving scan; it reads no inline marks.

Titles stand in the first column, so the blocks there are told apart as docutils does it; what is indented below one
(the body of a directive, a literal block, the rest of an item) is read by its blank lines and columns.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from functools import lru_cache

from memory_core.chunk.outline import Outline
from memory_core.chunk.rst_tables import read_grid_table, read_simple_table
from memory_core.chunk.structure import ITEM_STEP, SECTION_LEVELS, Structure, block_level

RST_STRATEGY = "rst-structural"

_TAB_COLUMNS = 8
_MAX_DEPTH = 49
# An adornment of so many characters counts even where it is shorter than its title (docutils: parsers/rst/states.py).
_SURE_ADORNMENT_CHARS = 4
_LINE_ENDS = "\r\x1c\x1d\x1e\x85\u2028\u2029"

# Indices point at the line end AHEAD of a line; the source begins with one that is not the content's, so such an index
# is the offset of the line.
_REST = r"[^\S\n]*+\n"
_GAP = r"(?=[ \t\n])"
_ENUMERATOR = r"(?:\d++|[a-zA-Z#]|[ivxlcdm]++|[IVXLCDM]++)"
_ARGUMENT = r"(?:[a-zA-Z][\w-]*+|<[^<>\n]++>)"
_OPTION = rf"(?:[-+][a-zA-Z0-9](?: ?{_ARGUMENT})?|(?:--|/)[a-zA-Z0-9][\w-]*+(?:[ =]{_ARGUMENT})?)"
_MARKS = (
    rf"(?P<bullet>[-+*\u2022\u2023\u2043]{_GAP})"
    rf"|(?P<enumerator>(?:\({_ENUMERATOR}\)|{_ENUMERATOR}[.)]){_GAP})"
    rf"|(?P<field>:(?![: ])(?:[^:\\\n]|\\[^\n]|:(?![ `\n]))*+(?<! ):{_GAP})"
    rf"|(?P<option>{_OPTION}(?:, {_OPTION})*+(?: [ ]++(?=[^\s])|[ ]?\n(?=[ \t])))"
    rf"|(?P<doctest>>>>{_GAP})"
    rf"|(?P<verse>\|{_GAP})"
    rf"|(?P<grid>\+-[-+]*+(?<=-\+){_REST})"
    rf"|(?P<simple>=++(?:[ ]++=++)++{_REST})"
    rf"|(?P<reference>\.\.[ \t]++(?=[\[_|])|__{_GAP})"
    rf"|(?P<explicit>\.\.{_GAP})"
)
_MARK = re.compile(_MARKS)
_RULE = rf"(?P<rule>(?P<rule_char>[!-/:-@\[-`{{-~])(?P=rule_char)*+{_REST})"
_BLOCK = re.compile(rf"(?P<blank>(?:{_REST})++)|(?P<indented>[ \t])|{_MARKS}|{_RULE}|(?P<text>)")
_ADORNMENT = re.compile(_RULE)
_PARAGRAPH = re.compile(rf"(?:(?!{_REST})[^ \t\n][^\n]*+\n)++")
_VERSE = re.compile(r"(?:\|(?=[ \t\n])[^\n]*+\n(?:[ \t]++[^\s][^\n]*+\n)*+)++")
_QUOTED = re.compile(rf"(?:{_REST})++(?P<quoted>(?P<quote>[!-/:-@\[-`{{-~])[^\n]*+\n(?:(?P=quote)[^\n]*+\n)*+)")
_LABEL = re.compile(r"\.\.[ \t]++_(?:`[^`\n]++`|(?:[^:\\\n`]|\\[^\n]|:(?![ \t\n]))++):[^\S\n]*+\n(?![ \t]++[^\s])")
_LITERAL_BODY = re.compile(
    r"\.\.[ \t]++(?:code|code-block|sourcecode|parsed-literal|math|raw|highlight|prompt|csv-table|graphviz|mermaid"
    r"|doctest|testcode|testsetup|testcleanup|testoutput|productionlist|code-cell|ipython|uml|digraph)[ ]?::"
)

_OUTDENT = re.compile(rf"\n(?!{_REST})(?=[^ \t\n])")
# Inside an indented region: a line below a blank one, or one that goes on with a list.
_EVENT = re.compile(
    rf"\n(?:(?P<gap>(?:{_REST})++)(?P<indent>[ \t]++)(?=[^\s])"
    r"|[ \t]++(?=(?:[-+*\u2022\u2023\u2043]|\(?(?:\w|\d++)[.)]|\.\.)[ \t]|:[^\s:]|[-/]))"
)
_LISTS = frozenset({"bullet", "enumerator", "field", "option", "reference", "definition"})


def scan_rst(content: str) -> Structure:
    """Read the blocks, sections and titles of a reStructuredText."""
    # A CRLF becomes a blank and a line end: all offsets stay.
    lines = content.replace("\r\n", " \n")
    for line_end in _LINE_ENDS:
        lines = lines.replace(line_end, "\n")
    outline = Outline()
    _Blocks(f"\n{lines}\n", outline).scan()
    return outline.build(content, lines=lines, strategy=RST_STRATEGY)


class _Blocks:
    """Scans the blocks of one text. The stacks have a row for each column that is open, the first for column 0."""

    def __init__(self, source: str, outline: Outline) -> None:
        self._source = source
        self._outline = outline
        self._last = len(source) - 1
        self._styles: list[str] = []
        self._label: int | None = None
        self._columns = [0]
        self._kinds = [""]
        self._below_blank = True
        # What is right of this column is literal.
        self._literal: int | None = None
        self._literal_begun = False
        # The next deeper block is not parted from what it belongs to.
        self._joins = False

    def scan(self) -> None:
        """Add all blocks to the outline."""
        at = 0
        while at < self._last:
            at = self._read_block(at)
        if self._label is not None:
            self._place_label()

    # --- the first column ---------------------------------------------------------------------------------------------

    def _read_block(self, line: int) -> int:
        """Read the block at the line; return the line end ahead of what is next."""
        found = _BLOCK.match(self._source, line + 1)
        kind = str(found.lastgroup) if found else "text"
        if found and kind == "blank":
            self._below_blank = True
            return found.end() - 1
        match kind:
            case "indented":
                after = self._read_indented(line)
            case "rule":
                after = self._read_rule(line)
            case "grid" | "simple":
                after = self._read_table(line, kind, column=0, limit=self._last) or self._read_text(line)
            case "verse" | "doctest":
                after = self._read_lines(line, _VERSE if kind == "verse" else _PARAGRAPH, whole=kind == "doctest")
            case "reference" | "explicit":
                after = self._read_explicit(line, kind)
            case "bullet" | "field" | "option":
                after = self._read_item(line, kind)
            case "enumerator" if self._is_enumerated(line):
                after = self._read_item(line, kind)
            case _:
                after = self._read_text(line)
        self._below_blank = False
        return after

    def _read_rule(self, line: int) -> int:
        """A line of one sign: a transition, the overline of a title, or text where it is too short for both."""
        overline = self._line(line).rstrip()
        is_sure = len(overline) >= _SURE_ADORNMENT_CHARS
        second = self._end_of(line)
        title = self._line(second)
        third = self._end_of(second)
        if not title or title.isspace():
            return self._read_lines(line, _ADORNMENT) if is_sure else self._read_text(line)
        if _ADORNMENT.match(self._source, second + 1):
            third = second
        elif self._line(third).rstrip() == overline and (is_sure or _width(title.rstrip()) <= len(overline)):
            self._add_title(line, self._end_of(third), overline[0] * 2, title)
            return self._end_of(third)
        if not is_sure:
            return self._read_text(line)
        # An overline without its like below is an error, which takes all these lines.
        self._open(line, "rule")
        return self._end_of(third)

    def _read_text(self, line: int) -> int:
        """A title with its underline, a paragraph, or the term of a definition."""
        source = self._source
        end = source.find("\n", line + 1)
        if underline := _ADORNMENT.match(source, end + 1):
            title, length = source[line + 1 : end].rstrip(), len(underline["rule"].rstrip())
            if length >= _SURE_ADORNMENT_CHARS or _width(title) <= length:
                self._add_title(line, underline.end() - 1, underline["rule_char"], title)
                return self._read_titles(underline.end() - 1, underline["rule_char"])
        paragraph = _PARAGRAPH.match(source, end + 1)
        after = paragraph.end() - 1 if paragraph else end
        is_term = after == end < self._last and source[end + 1] in " \t"
        self._open(line, "definition" if is_term else "text")
        return after if is_term else self._read_literal(after)

    def _read_titles(self, line: int, style: str) -> int:
        """Titles of the same style that follow each other, without anything between."""
        starts, ends, titles = array("i"), array("i"), list[str]()
        source, following = self._source, _underlined(style).match
        while found := following(source, line):
            title, rule = found.groups()
            title = title.rstrip()
            if len(rule) < _SURE_ADORNMENT_CHARS and _width(title) > len(rule):
                break
            starts.append(found.start(1) - 1)
            line = found.end()
            ends.append(line - 1)
            titles.append(title)
        if starts:
            self._outline.add_headings(starts, ends, self._depth_of(style), titles)
        return line

    def _read_literal(self, line: int) -> int:
        """What is below a paragraph that ends with `::`: indented, or quoted by the same sign on each line."""
        if not self._ends_with_colons(line):
            return line
        if quoted := _QUOTED.match(self._source, line + 1):
            self._open(quoted.start("quoted") - 1, "text", whole=True)
            return quoted.end() - 1
        self._literal, self._literal_begun = 0, False
        return line

    def _read_lines(self, line: int, lines: re.Pattern[str], *, whole: bool = False) -> int:
        self._open(line, "lines", whole=whole)
        found = lines.match(self._source, line + 1)
        return found.end() - 1 if found else self._end_of(line)

    def _read_item(self, line: int, kind: str) -> int:
        self._open(line, kind, whole=True)
        return self._end_of(line)

    def _read_explicit(self, line: int, kind: str) -> int:
        """A directive, comment, footnote, citation or target; a bare label goes with the title that it names."""
        if kind == "reference" and (label := _LABEL.match(self._source, line + 1)):
            self._label = line if self._label is None else self._label
            return label.end() - 1
        self._open(line, kind, whole=True)
        self._await_body(line + 1, 0)
        return self._end_of(line)

    def _is_enumerated(self, line: int) -> bool:
        """True where the second line is blank, indented or the next item: else a paragraph or a title begins."""
        following = self._end_of(line) + 1
        if following > self._last or self._source[following].isspace():
            return True
        found = _MARK.match(self._source, following)
        return found is not None and found.lastgroup == "enumerator"

    def _add_title(self, line: int, end: int, style: str, title: str) -> None:
        depth = self._depth_of(style)
        position, self._label = (line if self._label is None else self._label), None
        self._outline.add_heading(position, end - 1, depth, title.strip())
        self._reset("title")

    def _depth_of(self, style: str) -> int:
        """A style's level is its rank among the styles seen so far."""
        if style not in self._styles:
            self._styles.append(style)
        return min(self._styles.index(style) + 1, SECTION_LEVELS)

    def _open(self, line: int, kind: str, *, whole: bool = False) -> None:
        if self._label is not None:
            self._place_label()
        is_sibling = kind in _LISTS and self._kinds[0] == kind
        self._reset(kind)
        self._outline.add_block(line, block_level(0) + ITEM_STEP * is_sibling, whole=whole and not is_sibling)

    def _reset(self, kind: str) -> None:
        if len(self._columns) > 1:
            del self._columns[1:], self._kinds[1:]
        self._kinds[0] = kind
        self._literal, self._joins = None, False

    def _place_label(self) -> None:
        if self._label is not None:
            position, self._label = self._label, None
            self._open(position, "reference")

    # --- what is indented ---------------------------------------------------------------------------------------------

    def _read_indented(self, line: int) -> int:
        """Read all up to the next line in the first column."""
        self._place_label()
        outdent = _OUTDENT.search(self._source, line + 1)
        limit = outdent.start() if outdent else self._last
        start = line + 1 + len(self._line(line)) - len(self._line(line).lstrip())
        at = line + 1
        if self._below_blank:
            at = self._read_inner(line, start, limit=limit)
        elif not self._joins:
            self._joins = True  # the first line of an item's or a definition's body may begin a list
            at = self._read_inner(line, start, limit=limit)
        while at < limit and (event := _EVENT.search(self._source, at, limit)):
            if event["gap"]:
                self._find_literal(event.start(), event["indent"])
                at = self._read_inner(event.end("gap") - 1, event.end(), limit=limit)
            else:
                at = self._read_tight(event.start(), event.end(), limit=limit)
        return limit

    def _find_literal(self, end: int, indent: str) -> None:
        """Below a blank line, what is right of a paragraph that ends with `::` is literal."""
        is_deeper = _columns(indent) > self._columns[-1]
        if self._literal is None and not self._joins and is_deeper and self._ends_with_colons(end):
            self._literal, self._literal_begun = self._columns[-1], False

    def _read_tight(self, line: int, start: int, *, limit: int) -> int:
        """A line with a mark but no blank line above: only the next item of an open list begins there."""
        column = _columns(self._source[line + 1 : start])
        mark = _MARK.match(self._source, start)
        kind = mark.lastgroup if mark else None
        if self._joins or self._is_literal(column) or kind not in _LISTS or column not in self._columns:
            return start
        if self._kinds[self._columns.index(column)] != kind:
            return start
        return self._read_inner(line, start, limit=limit)

    def _read_inner(self, line: int, start: int, *, limit: int) -> int:
        """A block begins at the line; return where to read on."""
        column = _columns(self._source[line + 1 : start])
        if self._is_literal(column):
            self._open_inner(line, column, "literal")
            return start
        self._literal = None
        mark = _MARK.match(self._source, start)
        kind = str(mark.lastgroup) if mark else "text"
        if kind in {"grid", "simple"} and (after := self._read_table(line, kind, column=column, limit=limit)):
            return after
        self._open_inner(line, column, kind)
        if kind in {"explicit", "reference"}:
            self._await_body(start, column)
        return start

    def _read_table(self, line: int, kind: str, *, column: int, limit: int) -> int | None:
        self._place_label()
        is_joined = self._joins and column > self._columns[-1]
        level = block_level(self._descend(column))
        self._kinds[-1], self._joins = kind, False
        read = read_grid_table if kind == "grid" else read_simple_table
        return read(self._source, line, level, self._outline, limit=limit, is_joined=is_joined)

    def _open_inner(self, line: int, column: int, kind: str) -> None:
        is_joined = self._joins and column > self._columns[-1]
        self._joins = False
        depth = self._descend(column)
        is_sibling = kind in _LISTS and self._kinds[-1] == kind
        self._kinds[-1] = kind
        is_first = kind != "literal" or not self._literal_begun
        self._literal_begun = True
        if not is_joined:
            # A literal block is divided at its blank lines only where it does not fit by itself.
            level = block_level(min(depth + (not is_first), _MAX_DEPTH)) + ITEM_STEP * is_sibling
            self._outline.add_block(line, level, whole=kind == "literal" and is_first)

    def _await_body(self, start: int, column: int) -> None:
        """What is below the first line of a directive is not parted from it."""
        self._joins = True
        if _LITERAL_BODY.match(self._source, start):
            self._literal, self._literal_begun = column, False

    def _is_literal(self, column: int) -> bool:
        return self._literal is not None and column > self._literal

    def _descend(self, column: int) -> int:
        """Close the columns right of this one, and open it; return its depth."""
        while self._columns[-1] > column:
            self._columns.pop()
            self._kinds.pop()
        if self._columns[-1] < column:
            self._columns.append(column)
            self._kinds.append("")
        return min(len(self._columns) - 1, _MAX_DEPTH)

    # --- lines --------------------------------------------------------------------------------------------------------

    def _end_of(self, line: int) -> int:
        return self._source.find("\n", line + 1) if line < self._last else self._last

    def _line(self, line: int) -> str:
        return self._source[line + 1 : self._end_of(line)] if line < self._last else ""

    def _ends_with_colons(self, end: int) -> bool:
        return self._source[end - 1] in ": " and self._source[max(end - _TAB_COLUMNS, 0) : end].rstrip().endswith("::")


@lru_cache(maxsize=64)
def _underlined(sign: str) -> re.Pattern[str]:
    """A title that begins with a word, which no list does, and its underline; up to the line end behind it."""
    return re.compile(rf"\n++([A-Za-z]++(?![.)])[^\n]*+)\n({re.escape(sign)}++)[ \t]*+(?=\n)")


def _columns(indent: str) -> int:
    return len(indent.expandtabs(_TAB_COLUMNS)) if "\t" in indent else len(indent)


def _width(text: str) -> int:
    """Columns on a screen: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum((unicodedata.east_asian_width(char) in "WF") + (not unicodedata.combining(char)) for char in text)
