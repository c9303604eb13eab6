"""A syntax tree in, the definitions of its text out, in order of their starts: where each begins and ends, its names.

The tree is walked with one cursor, without recursion, and only into what may hold definitions: the rest of a text,
which is most of it, costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_core.chunk.code_grammars import Grammar
from memory_core.chunk.code_kinds import Role

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

# Deeper ones are part of what they stand in.
MAX_DEFINITION_DEPTH: Final = 20

# How far ahead of a comment the beginning of its line is looked for.
_MAX_INDENT_BYTES: Final = 1_000
_NAME_FIELDS: Final = ("name", "property", "key", "left")
# What has no name in its language and is named by people.
_NAMES: Final[Mapping[str, str]] = {
    "class_static_block": "static",
    "companion_object": "companion",
    "conversion_operator_declaration": "operator",
    "export_statement": "default",
    "indexer_declaration": "this",
    "operator_declaration": "operator",
    "secondary_constructor": "constructor",
    "singleton_class": "self",
}
_IMPLEMENTATION: Final = "impl_item"
_TYPEDEF: Final = "type_definition"
# They hold what they declare in no field.
_PLAIN_DECLARATORS: Final = frozenset({"parenthesized_declarator", "reference_declarator"})
_QUOTES: Final = "\"'`"
_GENERIC: Final = re.compile(r"[\[<(].*", re.DOTALL)


class Definition(NamedTuple):
    """A definition, in bytes. `names` has several where one place defines a thing inside another: `Type`, `method`.

    `start` is that of the comments, decorators and attributes directly above. A package ends with the text.
    """

    start: int
    end: int
    names: tuple[str, ...]
    is_package: bool = False


@dataclass(slots=True)
class _Frame:
    """The children of one node.

    From `lead_start` to `lead_end` go the comments just passed; `wrapped` is the start of the wrapper around the next
    definition.
    """

    depth: int
    wrapped: int | None = None
    lead_start: int = -1
    lead_end: int = -1


def find_definitions(tree: Tree, grammar: Grammar, source: bytes) -> list[Definition]:
    """Find the definitions of the text that the tree was made of."""
    return _Search(tree, grammar, source).run()


class _Search:
    """The walk, and what it has found."""

    def __init__(self, tree: Tree, grammar: Grammar, source: bytes) -> None:
        self._cursor = tree.walk()
        self._roles = grammar.roles
        self._functions = frozenset(grammar.kinds.functions.split())
        self._source = source
        self._found: list[Definition] = []

    def run(self) -> list[Definition]:
        cursor = self._cursor
        frames = [_Frame(depth=0)]
        is_inside = cursor.goto_first_child()
        while is_inside:
            node = cursor.node
            assert node is not None  # noqa: S101 - a cursor always stands on a node; narrows the type
            inner = self._visit(node, frames[-1])
            if inner is not None and cursor.goto_first_child():
                frames.append(inner)
                continue
            while not cursor.goto_next_sibling():
                frames.pop()
                if not frames or not cursor.goto_parent():
                    return self._found
        return self._found

    def _visit(self, node: Node, frame: _Frame) -> _Frame | None:
        """Note what the node defines; the frame of its children where definitions may be among them."""
        role = Role.INSIDE if node.is_error else self._roles.get(node.kind_id)
        if role is Role.ATTACHED:
            self._attach(node, frame)
            return None
        start = self._start_of(node, frame) if role else -1
        frame.lead_end = -1
        if role is None:
            return None
        if role is Role.INSIDE:
            return _Frame(frame.depth)
        if self._defines(node, role):
            return self._define(node, role, start, frame)
        return _Frame(frame.depth, wrapped=start)

    def _attach(self, node: Node, frame: _Frame) -> None:
        """Remember a comment, alone or as one more of those directly above it; one behind code is of that code."""
        start, end = node.start_byte, node.end_byte
        if not self._is_joined(frame, start):
            line_start = self._source.rfind(b"\n", max(0, start - _MAX_INDENT_BYTES), start) + 1
            if self._source[line_start:start].strip():
                return
            frame.lead_start = start
        # Some grammars count the line end as part of a comment.
        frame.lead_end = end - self._source.endswith(b"\n", start, end)

    def _start_of(self, node: Node, frame: _Frame) -> int:
        if frame.wrapped is not None:
            start, frame.wrapped = frame.wrapped, None
            return start
        return frame.lead_start if self._is_joined(frame, node.start_byte) else node.start_byte

    def _is_joined(self, frame: _Frame, start: int) -> bool:
        """True where comments stand just ahead of the position, without a blank line between."""
        if frame.lead_end < 0:
            return False
        between = self._source[frame.lead_end : start]
        return not between.strip() and between.count(b"\n") <= 1

    def _defines(self, node: Node, role: Role) -> bool:
        match role:
            case Role.DEFINITION | Role.PACKAGE:
                return True
            case Role.BODIED:
                kind = node.child_by_field_name("type") or node
                return kind.child_by_field_name("body") is not None
            case Role.VALUED:
                value = node.child_by_field_name("value") or node.child_by_field_name("right")
                return value is not None and value.type in self._functions
            case _:
                return False

    def _define(self, node: Node, role: Role, start: int, frame: _Frame) -> _Frame | None:
        names = self._read_names(node)
        if not names or frame.depth + len(names) > MAX_DEFINITION_DEPTH:
            return None
        if role is Role.PACKAGE and node.child_by_field_name("body") is None:
            self._found.append(Definition(start, len(self._source), names, is_package=True))
            return None
        self._found.append(Definition(start, node.end_byte, names))
        # The body in a typedef is what the name stands for, not something else inside of it.
        return None if node.type == _TYPEDEF else _Frame(frame.depth + len(names))

    # --- names --------------------------------------------------------------------------------------------------------

    def _read_names(self, node: Node) -> tuple[str, ...]:
        """The names of a definition from the outside in; none where it has none."""
        if node.type == _IMPLEMENTATION:
            parts = (node.child_by_field_name(field) for field in ("trait", "type"))
            return (" for ".join(self._text(part) for part in parts if part),)
        found = next((child for field in _NAME_FIELDS if (child := node.child_by_field_name(field))), None)
        found = found or _find_declared(node)
        if found is None and self._roles.get(node.kind_id) is Role.PACKAGE:
            found = node.named_child(0)
        name = self._text(found).strip(_QUOTES) if found else _NAMES.get(node.type, "")
        names = _split_name(name)
        receiver = node.child_by_field_name("receiver")
        return (self._read_receiver(receiver), *names) if receiver else names

    def _read_receiver(self, node: Node) -> str:
        """The type in `(r *Type[K])`."""
        kind = node.named_child(0).child_by_field_name("type") if node.named_child_count else None
        return _GENERIC.sub("", self._text(kind or node).lstrip("*"))

    def _text(self, node: Node) -> str:
        return " ".join(self._source[node.start_byte : node.end_byte].decode(errors="replace").split())


def _find_declared(node: Node) -> Node | None:
    """What a C declaration declares, inside of the pointers and parameters around it."""
    found: Node | None = None
    inner = node.child_by_field_name("declarator")
    while inner is not None and not inner.type.startswith("abstract_"):
        found = inner
        inner = found.child_by_field_name("declarator")
        if inner is None and found.type in _PLAIN_DECLARATORS and found.named_child_count:
            inner = found.named_child(0)
    return found


def _split_name(name: str) -> tuple[str, ...]:
    """`a::b` is `b` in `a`; the arguments of a template are no part of its name."""
    if "operator" not in name:
        name = _GENERIC.sub("", name) or name
    return tuple(part for part in name.split("::") if part)
