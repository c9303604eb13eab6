"""The name of an HTML element in, what it means for the layout of a page out; and which block elements are open.

Follows the HTML standard where it closes elements without an end tag, and is simpler where a page is broken: an end tag
without a start tag changes nothing, and nothing here fails. It knows no text and no positions.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from enum import Enum, auto
from sys import intern
from types import MappingProxyType
from typing import NamedTuple


class Role(Enum):
    """What a start tag does. Every element that has no role is inline: it shapes a few words and nothing else."""

    BLOCK = auto()  # stands on lines of its own and holds other content
    CELL = auto()  # a block that shares its line with its neighbours
    HEADING = auto()
    EDGE = auto()  # ends what is before it, holds nothing that counts as deeper
    TITLE = auto()
    BREAK = auto()
    PIECE = auto()  # of the page's head: a tag without text
    SKIPPED = auto()  # its content is never shown


_NAMES: Mapping[Role, str] = {
    Role.BLOCK: "address article aside blockquote caption center colgroup dd details dialog dir div dl dt fieldset"
    " figcaption figure footer form header hgroup legend li listing main menu nav ol optgroup option p pre search"
    " section select summary table tbody tfoot thead tr ul",
    Role.CELL: "td th",
    Role.HEADING: "h1 h2 h3 h4 h5 h6",
    Role.EDGE: "body frameset head hr html plaintext textarea xmp",
    Role.TITLE: "title",
    Role.BREAK: "br",
    Role.PIECE: "base basefont bgsound link meta",
    Role.SKIPPED: "iframe noembed noframes script style template",
}
ROLES: Mapping[str, Role] = MappingProxyType({name: role for role, names in _NAMES.items() for name in names.split()})

# Rows and items: one that fits is not cut for the sake of a heading above it.
WHOLE = frozenset({"dl", "dt", "li", "menu", "ol", "pre", "table", "tr", "ul"})

# Their text is no markup: a "<" in it begins no tag.
PLAIN_TEXT = frozenset({"plaintext", "textarea", "title", "xmp"})

# The elements that a table's header is made of.
TABLE_PARTS = frozenset({"table", "td", "th", "thead", "tr"})


class _Ended(NamedTuple):
    """What a start tag ends: elements of these names, up to the innermost of those around."""

    names: frozenset[str]
    around: frozenset[str]


def _ended(names: str, around: str) -> _Ended:
    return _Ended(frozenset(names.split()), frozenset(around.split()))


_TABLE_SECTIONS = "caption colgroup tbody tfoot thead"
# Of the names in one rule, none is ever open inside of another.
_ENDED_BY: Mapping[str, _Ended] = MappingProxyType(
    {
        "li": _ended("li", "ol ul menu dir table"),
        **dict.fromkeys(("dt", "dd"), _ended("dt dd", "dl table")),
        "option": _ended("option", "optgroup select table"),
        "optgroup": _ended("optgroup", "select table"),
        **dict.fromkeys(("td", "th"), _ended("td th", "tr table")),
        "tr": _ended("caption colgroup tr", "tbody tfoot thead table"),
        **dict.fromkeys(_TABLE_SECTIONS.split(), _ended(_TABLE_SECTIONS, "table")),
    }
)


class OpenElements:
    """The block elements that are open, outermost first. Every call takes the same time, however many are open."""

    def __init__(self) -> None:
        self._names: list[str] = []
        # Arrays, and one copy of each name: a page may open a million elements.
        self._places: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def holds(self, name: str) -> bool:
        """True inside an element of this name."""
        return bool(self._places.get(name))

    def open(self, name: str) -> None:
        """A start tag was read."""
        places = self._places.get(name)
        if places is None:
            places = self._places[name] = array("q")
        places.append(len(self._names))
        self._names.append(intern(name))

    def find(self, name: str) -> int:
        """Where the element stands that an end tag of this name ends; -1 where it ends none."""
        place = self._last(name)
        return place if place >= self._last("table") else -1

    def find_ended_by(self, name: str) -> int:
        """Where the outermost element stands that a start tag of this name ends; the depth where it ends none."""
        depth = len(self._names)
        if not depth:
            return 0
        innermost = self._names[-1]
        if ended := _ENDED_BY.get(name):
            if innermost in ended.around:
                return depth
            if innermost in ended.names:
                return depth - 1
            floor = max(map(self._last, ended.around))
            outermost = min((place for place in map(self._last, ended.names) if place > floor), default=depth)
            if outermost < depth:
                return outermost
        return depth - 1 if innermost == "p" else depth

    def close(self, place: int) -> list[str]:
        """Close the element at this place and all inside of it; return their names, outermost first."""
        closed = self._names[place:]
        del self._names[place:]
        for name in closed:
            self._places[name].pop()
        return closed

    def _last(self, name: str) -> int:
        places = self._places.get(name)
        return places[-1] if places else -1
