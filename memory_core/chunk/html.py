"""An HTML page in, its blocks, headings and tables as a Structure out; it decides no sizes and fails on no page.

The tokens are those of the HTML standard. What is no text for a reader (tags, comments, scripts, styles, templates) is
told as hidden, with what a reader sees in its place; offsets stay those of the source.
"""

from __future__ import annotations

import re

from turbohtml import TokenType, tokenize

from memory_core.chunk.html_elements import PLAIN_TEXT, ROLES, TABLE_PARTS, WHOLE, OpenElements, Role
from memory_core.chunk.html_tables import Tables
from memory_core.chunk.outline import Outline
from memory_core.chunk.structure import Structure, block_level

HTML_STRATEGY = "html-blocks"

# Elements that are nested deeper are cut like those at this depth.
_MAX_DEPTH = 49
# The depth of a gap in which no block has begun or ended: text goes on there.
_NO_GAP = 1 << 30

# Of a heading that is open, the next one of these says whether it has an end tag.
_HEADING_TAG = re.compile(r"<(/?)[hH][1-6][\s/>]")
_TAG_START = re.compile(r"</?[A-Za-z]")
# The tokenizer reads <noscript> as a browser does that runs scripts: as one text. This reader runs none. A name of
# equal length that no element has makes it an element like others.
_NOSCRIPT = re.compile(r"(</?)noscript(?=[\s/>])", re.IGNORECASE)
_NOSCRIPT_AS_ELEMENT = r"\1x-script"


def scan_html(content: str) -> Structure:
    """Read the blocks, headings and tables of a page."""
    # A CRLF becomes a blank and a line end: all offsets stay.
    lines = content.replace("\r\n", " \n").replace("\r", "\n")
    outline = Outline()
    _Page(lines, outline).read()
    return outline.build(content, lines=lines, strategy=HTML_STRATEGY)


class _Page:
    """Reads the tokens once. All positions are where a token begins: a token ends where the next one begins.

    Between two pieces of text there is a gap of tags. It is cut once, ahead of the first tag of what comes: at the
    depth of the outermost block that begins or ends in it. `_cut` is -1 until that tag is met. All tags of a gap are
    hidden as one, from `_hidden` on (-1 outside of a gap), and `_shown` is what a reader sees there.
    """

    def __init__(self, lines: str, outline: Outline) -> None:
        # Without line ends, which mean the same as a blank in HTML, the column of a token is its offset.
        self._source = _NOSCRIPT.sub(_NOSCRIPT_AS_ELEMENT, lines.replace("\n", " "))
        self._outline = outline
        self._open = OpenElements()
        self._tables = Tables()
        self._gap, self._cut, self._whole, self._breaks = 0, -1, False, 0
        self._hidden, self._shown = -1, ""
        self._reference: tuple[int, str] | None = None  # a character reference that the next token ends
        self._skipped, self._skipped_depth = "", 0  # the script, style or template that is open
        self._heading: _Heading | None = None

    def read(self) -> None:
        """Add everything to the outline."""
        last, plain = 0, False
        for token in tokenize(self._source, resolve_references=False, capture_attributes=False):
            position, kind = token.col, token.type
            last = position
            if self._reference:
                self._hide_reference(position)
            if self._skipped:
                self._skip(kind, token.tag)
            elif kind is TokenType.TEXT:
                self._read_text(position, token.data or "")
            elif kind is TokenType.START_TAG:
                plain = token.tag in PLAIN_TEXT
                self._read_start(position, token.tag or "")
            elif kind is TokenType.END_TAG:
                plain = False
                self._read_end(position, token.tag or "")
            elif kind is TokenType.CHARACTER_REFERENCE:
                self._read_reference(position, token.data or "")
            else:
                self._read_comment(position)
        self._finish(last, plain=plain)

    def _finish(self, last: int, *, plain: bool) -> None:
        """Close what the page leaves open; a tag that never ends has no token and is hidden to the end of the page."""
        end = len(self._source)
        unclosed = None if plain else _TAG_START.search(self._source, last)
        if self._reference:
            self._hide_reference(unclosed.start() if unclosed else end)
        if unclosed and not self._skipped:
            self._mark(unclosed.start(), "")
        if self._hidden >= 0:
            self._outline.hide(self._hidden, end, self._shown)
        if self._heading:
            self._end_heading(self._heading, end)
        self._close(0, end, end)
        for lead in self._tables.leads():
            self._outline.add_lead(*lead)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _read_text(self, position: int, text: str) -> None:
        if self._heading:
            self._heading.add(text)
        if not text.isspace():
            self._show(position)
        elif self._open.holds("pre"):
            self._end_hidden(position)
        elif self._hidden >= 0:
            self._shown = self._shown or " "

    def _read_reference(self, position: int, text: str) -> None:
        if self._heading:
            self._heading.add(text)
        if text.isspace():
            self._mark(position, " ")
        else:
            self._show(position)
            self._reference = (position, text)

    def _hide_reference(self, end: int) -> None:
        if self._reference:
            self._outline.hide(self._reference[0], end, self._reference[1])
            self._reference = None

    def _show(self, position: int) -> None:
        """A reader sees what is at the position: the gap is over."""
        self._end_hidden(position)
        if self._gap != _NO_GAP and not self._heading:
            self._add_block(position)

    # --- tags ---------------------------------------------------------------------------------------------------------

    def _read_start(self, position: int, name: str) -> None:
        role = ROLES.get(name)
        if role is None:
            self._mark(position, "")
            if self._cut < 0:
                self._cut = position
            return
        match role:
            case Role.BLOCK | Role.CELL:
                self._start_block(position, name, " " if role is Role.CELL else "\n")
            case Role.HEADING:
                self._start_heading(position, int(name[1]))
            case Role.EDGE:
                self._start_edge(position)
            case Role.TITLE:
                self._start_title(position)
            case Role.BREAK:
                self._mark(position, "\n")
                self._breaks += 1
                # One break is a line in a block, two of them part two blocks.
                self._end_gap(len(self._open) + (self._breaks == 1))
            case Role.PIECE:
                self._mark(position, "")
                self._add_piece(position)
            case Role.SKIPPED:
                self._mark(position, " ")
                self._add_piece(position)
                self._skipped, self._skipped_depth = name, 1

    def _start_block(self, position: int, name: str, shown: str) -> None:
        self._mark(position, shown)
        self._start_gap(self._end_before(position, name), position)
        if name in WHOLE:
            self._whole = True
        self._open.open(name)
        if name in TABLE_PARTS:
            self._tables.start(name, position)

    def _start_edge(self, position: int) -> None:
        self._mark(position, "\n")
        self._start_gap(self._end_before(position, ""), position)

    def _end_before(self, position: int, name: str) -> int:
        """End what a start tag ends without an end tag; return how many elements are left open."""
        if self._heading:
            self._end_unclosed_heading(self._heading, position)
        place = self._open.find_ended_by(name)
        self._close(place, position, position)
        return place

    def _read_end(self, position: int, name: str) -> None:
        match ROLES.get(name):
            case Role.BLOCK | Role.CELL as role:
                self._mark(position, " " if role is Role.CELL else "\n")
                self._end_block(position, name)
            case Role.HEADING:
                self._mark(position, "\n")
                if self._heading:
                    self._end_heading(self._heading, self._tag_end(position))
            case Role.EDGE:
                self._mark(position, "\n")
                self._end_gap(len(self._open))
            case Role.TITLE:
                self._end_title(position)
            case Role.BREAK | Role.PIECE | Role.SKIPPED | None:
                self._mark(position, "")

    def _end_block(self, position: int, name: str) -> None:
        place = self._open.find(name)
        if place < 0:
            return
        self._close(place, position, self._tag_end(position))
        self._end_gap(place)

    def _close(self, place: int, position: int, end: int) -> None:
        """Close open elements: the outermost ends behind its end tag, and those inside of it before."""
        if place >= len(self._open):
            return
        if self._heading and place < self._heading.depth:
            self._end_heading(self._heading, position)
        closed = self._open.close(place)
        for index in range(len(closed) - 1, -1, -1):
            if closed[index] in TABLE_PARTS:
                self._tables.end(closed[index], position if index else end)

    def _start_title(self, position: int) -> None:
        # The title of a drawing stands in a line of text, the page's does not.
        self._mark(position, " " if len(self._open) else "\n")
        if not len(self._open):
            self._start_gap(0, position)

    def _end_title(self, position: int) -> None:
        self._mark(position, " " if len(self._open) else "\n")
        if not len(self._open):
            self._end_gap(0)

    def _tag_end(self, position: int) -> int:
        return self._source.find(">", position) + 1

    # --- what is not for a reader -------------------------------------------------------------------------------------

    def _read_comment(self, position: int) -> None:
        self._mark(position, "")
        if self._gap != _NO_GAP:
            self._add_piece(position)

    def _skip(self, kind: TokenType, name: str | None) -> None:
        if name == self._skipped:
            self._skipped_depth += 1 if kind is TokenType.START_TAG else -1
            if not self._skipped_depth:
                self._skipped = ""

    def _mark(self, position: int, shown: str) -> None:
        """Hide from the position up to the next text; of all tags in a gap the strongest says what is shown."""
        if shown and self._heading:
            self._heading.add(shown)
        if self._hidden < 0:
            self._hidden, self._shown = position, shown
        elif shown and self._shown != "\n":
            self._shown = shown

    def _end_hidden(self, position: int) -> None:
        if self._hidden >= 0:
            self._outline.hide(self._hidden, position, self._shown)
            self._hidden = -1

    # --- gaps ---------------------------------------------------------------------------------------------------------

    def _start_gap(self, depth: int, position: int) -> None:
        """A block begins at this depth."""
        if depth < self._gap:
            self._gap, self._cut = depth, position
        elif self._cut < 0:
            self._cut = position

    def _end_gap(self, depth: int) -> None:
        """A block ends at this depth: what follows belongs to another one."""
        if depth < self._gap:
            self._gap, self._cut = depth, -1

    def _add_block(self, position: int) -> None:
        cut = self._cut if self._cut >= 0 else position
        self._outline.add_block(cut, block_level(min(self._gap, _MAX_DEPTH)), whole=self._whole)
        self._gap, self._cut, self._whole, self._breaks = _NO_GAP, -1, False, 0

    def _add_piece(self, position: int) -> None:
        """A script, a comment: a block of its own, so that it shares no chunk with text where that is full."""
        if not self._heading:
            depth = min(self._gap, len(self._open))
            self._start_gap(depth, position)
            self._add_block(position)
            self._gap = depth

    # --- headings -----------------------------------------------------------------------------------------------------

    def _start_heading(self, position: int, level: int) -> None:
        self._mark(position, "\n")
        if self._heading:
            self._end_heading(self._heading, position)
        if self._open.holds("pre"):
            return
        self._end_before(position, "")
        following = _HEADING_TAG.search(self._source, position + 1)
        self._heading = _Heading(position, level, len(self._open), is_closed=bool(following and following[1]))

    def _end_unclosed_heading(self, heading: _Heading, position: int) -> None:
        """A block ends a heading that has no end tag."""
        if not heading.is_closed and heading.has_words:
            self._end_heading(heading, position)

    def _end_heading(self, heading: _Heading, end: int) -> None:
        self._heading = None
        self._close(heading.depth, end, end)
        if heading.has_words:
            self._outline.add_heading(heading.position, end, heading.level, "".join(heading.words))
            self._gap, self._cut, self._whole, self._breaks = heading.depth, -1, False, 0
        else:
            self._start_gap(heading.depth, heading.position)


class _Heading:
    """A heading that is being read: `words` is its text without tags."""

    __slots__ = ("depth", "has_words", "is_closed", "level", "position", "words")

    def __init__(self, position: int, level: int, depth: int, *, is_closed: bool) -> None:
        self.position = position
        self.level = level
        self.depth = depth
        self.is_closed = is_closed
        self.has_words = False
        self.words: list[str] = []

    def add(self, text: str) -> None:
        """Text goes on, or a tag parts words."""
        self.words.append(text)
        self.has_words = self.has_words or not text.isspace()
