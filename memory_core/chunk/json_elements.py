"""A JSON text or JSON Lines in, its elements at every depth as a Structure out; no value is ever built.

One pass decides whether the text is JSON: a regular expression reads one step (a member or an element, and what closes
behind it), a stack knows the containers. The verdict is that of the standard library's `json.loads`: `NaN` and
`Infinity` are numbers, a key may come twice. It differs in three places: a byte order mark ahead of the text is passed
over, an integer may have any number of digits, and what is nested deeper than `MAX_JSON_DEPTH` is no JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import cast

from memory_core.chunk.outline import MAX_PATH_NAME_CHARS, Outline
from memory_core.chunk.structure import MAX_DEPTH, Sections, Structure, block_level
from memory_core.chunk.text import scan_text

ELEMENTS_STRATEGY = "json-elements"
RECORDS_STRATEGY = "json-records"
LINES_STRATEGY = "json-lines"
# About where the standard library gives up, too.
MAX_JSON_DEPTH = 1_000

# A shorter scalar is hardly ever a chunk, so its container's path is good enough: 32 tokens is the smallest size, and
# a token has at least one character of most scripts.
_MIN_NAMED_CHARS = 32
# Scalars in a row that are no longer together are one block: they fit the smallest chunk, and a text of millions of
# them has an eighth of the blocks.
_SMALL_BLOCK_CHARS = 16
_MIN_RECORDS = 2
_BYTE_ORDER_MARK = "\ufeff"
# What an escape can bring into a key and no database takes.
_UNSTORABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
# Tells an index from a key that looks like one: no key has it.
_INDEX_MARK = "\x00"

_CLOSERS = {"[": "]", "{": "}"}
_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_LITERAL = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null|NaN|-?Infinity"
# The groups of a step, in the order in which they can match: the last one that did says what kind of step it is.
_KEY, _COLON, _MEMBER_OPENER, _OPENER, _COMMA, _CLOSING, _COMMA_BEHIND, _RECORD_END, _ERROR = range(1, 10)
_OPENERS = frozenset({_MEMBER_OPENER, _OPENER})
# Behind these another element must come, or may come in the next record.
_CONTINUING = _OPENERS | {_COMMA, _COMMA_BEHIND, _RECORD_END}


def _compile_step(blanks: str) -> re.Pattern[str]:
    """One step: a key and its value, or a value; then a comma, or closing brackets and maybe a comma, or neither.

    An empty array or object is read like a scalar. Any other opening bracket ends its step. Whatever is no step is
    matched as an error, one character long: so the steps of a text follow each other without a gap.
    """
    scalar = rf"{_LITERAL}|\[{blanks}\]|{{{blanks}}}"
    member = rf"({_STRING})(?:{blanks}(:){blanks}(?:{_STRING}|{scalar}|([\[{{])))?+"
    closing = rf"((?:[\]}}]{blanks})++)(,)?+"
    behind = rf"{blanks}(?:(,)|{closing})?+{blanks}(\n[ \t\n]*+)?+"
    return re.compile(rf"(?:{member}|{scalar}|([\[{{]))(?:(?<=[\[{{]){blanks}|{behind})|(.)", re.DOTALL)


_ELEMENT_STEP = _compile_step(r"[ \t\n]*+")
_RECORD_STEP = _compile_step(r"[ \t]*+")
_BLANKS = re.compile(r"[ \t\n]*+")
# By open containers: the level of the elements in the innermost one, None where they are not cut at. The only value of
# a text begins where the text does; a record is an element like any other.
_LEVELS = tuple(block_level(depth) if depth < MAX_DEPTH else None for depth in range(MAX_JSON_DEPTH + 1))
_RECORD_LEVELS = _LEVELS
_ELEMENT_LEVELS = (None, *_LEVELS)


def scan_json(content: str) -> Structure:
    """Read the elements of JSON, or of JSON Lines; a text that is neither is read as lines, and its strategy says so.

    A name in a path is a key, with the indexes of the array elements below it: `services`, `app`, `ports[0]`.
    """
    # A CRLF becomes a blank and a line end: all offsets stay.
    lines = content.replace("\r\n", " \n").replace("\r", "\n")
    for strategy in (ELEMENTS_STRATEGY, RECORDS_STRATEGY):
        outline = Outline()
        if _Reader(lines, outline, records=strategy == RECORDS_STRATEGY).read():
            structure = outline.build(content, lines=lines, strategy=strategy)
            return replace(structure, spans=_name_elements(structure.spans))
    return replace(scan_text(content), strategy=LINES_STRATEGY)


@dataclass(slots=True)
class _Container:
    """An open array or object, or (`closer` "") the text as a whole. `start` is where its first element's text begins.

    An opening bracket belongs to the first element and a closing one to the last, so elements leave nothing between.
    """

    closer: str
    start: int
    is_entered: bool = False
    count: int = 0


class _Reader:
    """Reads one text to its end or to the first thing that is not JSON. `records`: each line is a value of its own."""

    def __init__(self, text: str, outline: Outline, *, records: bool) -> None:
        self._text = text
        self._outline = outline
        self._pattern = _RECORD_STEP if records else _ELEMENT_STEP
        self._levels = _RECORD_LEVELS if records else _ELEMENT_LEVELS
        self._min_count = _MIN_RECORDS if records else 1
        self._stack = [_Container("", 0)]

    def read(self) -> bool:
        """Add all elements to the outline; False where the text is something else."""
        add_block, stack, levels = self._outline.add_block, self._stack, self._levels
        add_block(0, block_level(0))
        container, level, is_expected, block_end = stack[0], levels[0], True, 0
        for step in self._pattern.finditer(self._text, _find_start(self._text)):
            kind = step.lastindex
            if not is_expected or kind == _ERROR or (step.start(_COLON) >= 0) != (container.closer == "}"):
                return False
            if level is not None and container.count and (kind in _OPENERS or step.end() > block_end):
                add_block(step.start(), level)
                block_end = step.start() + _SMALL_BLOCK_CHARS
            if kind == _COMMA and container.closer:
                # A scalar and no bracket: most steps are, and everything else stays as it is.
                if level is not None and step.end() - step.start() >= _MIN_NAMED_CHARS:
                    self._name_scalar(step)
                container.count += 1
                continue
            if kind in _OPENERS:
                self._open(step, is_named=level is not None)
            elif not self._end(step, is_named=level is not None):
                return False
            if len(stack) - 1 > MAX_JSON_DEPTH:
                return False
            is_expected = kind in _CONTINUING
            if stack[-1] is not container:
                container, level, block_end = stack[-1], levels[len(stack) - 1], 0
        return len(stack) == 1 and container.count >= self._min_count

    def _open(self, step: re.Match[str], *, is_named: bool) -> None:
        """Open the array or object that begins with the step."""
        container = self._stack[-1]
        start = self._enter(step) if is_named else step.start() if container.count else container.start
        container.count += 1
        self._stack.append(_Container(_CLOSERS[step[_MEMBER_OPENER] or step[_OPENER]], start, is_named))

    def _end(self, step: re.Match[str], *, is_named: bool) -> bool:
        """Read a scalar and close what the step closes behind it; False where it cannot end like that."""
        stack = self._stack
        if is_named and step.end() - step.start() >= _MIN_NAMED_CHARS:
            self._name_scalar(step)
        stack[-1].count += 1
        closing = step[_CLOSING]
        for closer in "".join(closing.split()) if closing else "":
            closed = stack.pop()
            if closed.closer != closer:
                return False
            if closed.is_entered:
                self._outline.leave(step.end())
        if len(stack) == 1:
            # There is no comma between the values of a text.
            return step[_COMMA] is None and step[_COMMA_BEHIND] is None
        return step[_RECORD_END] is None

    def _name_scalar(self, step: re.Match[str]) -> None:
        self._enter(step)
        self._outline.leave(step.end())

    def _enter(self, step: re.Match[str]) -> int:
        """Enter the step's element, by its key or its index; return where it begins."""
        container = self._stack[-1]
        start = step.start() if container.count else container.start
        name = _read_key(step[_KEY]) if container.closer == "}" else f"{_INDEX_MARK}[{container.count}]"
        self._outline.enter(start, name)
        return start


def _find_start(text: str) -> int:
    """The first character that is no blank, behind a byte order mark."""
    blanks = _BLANKS.match(text, 1 if text.startswith(_BYTE_ORDER_MARK) else 0)
    return blanks.end() if blanks else 0


def _read_key(key: str) -> str:
    """The name of a quoted key; one that shows nothing keeps its quotes."""
    name = cast("str", json.loads(key)) if "\\" in key else key[1:-1]
    name = _UNSTORABLE.sub("\ufffd", name)
    return name if name.strip() else '""'


class _Elements(Sections):
    """Sections whose indexes are no names of their own in a path: they follow the name that they are below."""

    __slots__ = ()

    def path_of(self, start: int, end: int) -> tuple[str, ...]:
        """The names around the slice, outermost first: `ports` and then two indexes are `ports[0][1]`."""
        path: list[str] = []
        for name in super().path_of(start, end):
            if not name.startswith(_INDEX_MARK):
                path.append(name)
            elif path:
                path[-1] = _join(path[-1], name[1:])
            else:
                path.append(name[1:])
        return tuple(path)


def _name_elements(spans: Sections) -> _Elements:
    return _Elements(spans.starts, spans.rows, spans.ends, spans.parents, spans.names, spans.binding)


def _join(name: str, index: str) -> str:
    """The index shows, however long the name is."""
    room = MAX_PATH_NAME_CHARS - len(index)
    return (name if len(name) <= room else name[: room - 1] + "…") + index
