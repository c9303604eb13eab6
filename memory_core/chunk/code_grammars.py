"""A language's name in, its grammar out, where one is installed; a text and a grammar in, its syntax tree out.

The one place that loads the parser packages of the extra `code`. A grammar is chosen by what is installed and by
nothing else: `describe_code_parser` says which, and stands in every recipe of code, so that equal recipes give equal
chunks. The work on a text is bounded by counts, never by a clock, so a bound is reached at the same place everywhere.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import threading
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_core.chunk.code_kinds import KINDS, Kinds, Role
from memory_core.chunk.code_limits import count_unfinished

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Point, Tree

# A tree takes 10 to 40 bytes a byte of text, and its recursive parts have to fit a thread's stack.
MAX_PARSED_BYTES: Final = 500_000
# Longer lines on average are what a program wrote for a program: nothing in it can be cut between lines.
MAX_MEAN_LINE_BYTES: Final = 200

# By `count_unfinished`; a parser then takes up to 100 MB. Of 3,500 real files 99 in 100 are below 250.
MAX_UNFINISHED: Final = 400

# So much of a text shows whether the grammar makes any sense of it. Errors take up to a hundred times as long to read.
_SAMPLE_BYTES: Final = 16_384
_MIN_UNDERSTOOD: Final = 0.5
# The most that any of 2,500 real files took is 1.9 steps a byte; garbage takes any number.
_STEPS_PER_BYTE: Final = 2
_FREE_STEPS: Final = 20_000
_STEPS_PER_REPORT: Final = 100  # of the parser: it reports its progress so often
# Real files are read 1 to 6 times: a token is looked at again in another state. A quote that is never closed is read
# to the end of the text for each of its readings.
_READS_PER_BYTE: Final = 8
_FREE_READ_BYTES: Final = 100_000
_READ_BYTES: Final = 256

# A byte under the mask that is not the first of its character.
UTF8_MASK: Final = 0b1100_0000
UTF8_CONTINUES: Final = 0b1000_0000

_CORE: Final = "tree-sitter"
_DISTRIBUTIONS: Final[Mapping[str, str]] = {"csharp": "tree-sitter-c-sharp", "tsx": "tree-sitter-typescript"}
_FUNCTIONS: Final[Mapping[str, str]] = {
    "php": "language_php",
    "tsx": "language_tsx",
    "typescript": "language_typescript",
}


class Grammar(NamedTuple):
    """A grammar that is loaded: its parser's language, what each kind of node is to us, and its packages' versions."""

    language: Language
    kinds: Kinds
    roles: Mapping[int, Role]
    versions: str


def describe_code_parser(language: str) -> str:
    """Name what reads code of the language, as in `python-0.25.0-0.26.1` (grammar, parser); "" where lines do."""
    grammar = load_grammar(language)
    return f"{language}-{grammar.versions}" if grammar else ""


@cache
def describe_code_parsers() -> str:
    """The versions of all that may read code here, as 8 hexadecimal digits; "" where nothing can. Loads nothing."""
    versions = {name: _find_version(name) for name in {_CORE, *(_distribution_of(language) for language in KINDS)}}
    if versions[_CORE] is None:
        return ""
    found = sorted(f"{name}-{version}" for name, version in versions.items() if version)
    return hashlib.sha256("/".join(found).encode()).hexdigest()[:8]


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _distribution_of(language: str) -> str:
    return _DISTRIBUTIONS.get(language, f"{_CORE}-{language}")


@cache
def load_grammar(language: str) -> Grammar | None:
    """The grammar of a language, None where its package or the parser's is not installed."""
    if language not in KINDS:
        return None
    distribution = _distribution_of(language)
    names = [name.replace("-", "_") for name in (_CORE, distribution)]
    if any(importlib.util.find_spec(name) is None for name in names):
        return None
    core, package = (importlib.import_module(name) for name in names)
    loaded: Language = core.Language(getattr(package, _FUNCTIONS.get(language, "language"))())
    kinds = KINDS[language]
    roles = {loaded.id_for_node_kind(kind, True): role for kind, role in kinds.roles().items()}
    versions = f"{metadata.version(distribution)}-{metadata.version(_CORE)}"
    found = {number: role for number, role in roles.items() if number is not None}
    return Grammar(loaded, kinds, MappingProxyType(found), versions)


def parse_code(source: bytes, grammar: Grammar) -> Tree | None:
    """The tree of a text in valid UTF-8; None where it is too long, has no lines, or makes no sense to the grammar."""
    if not source or len(source) > min(MAX_PARSED_BYTES, MAX_MEAN_LINE_BYTES * (source.count(b"\n") + 1)):
        return None
    kinds = grammar.kinds
    unfinished = count_unfinished(
        source, is_ended_by_lines=kinds.is_ended_by_lines, has_directives=kinds.has_directives
    )
    if unfinished > MAX_UNFINISHED:
        return None
    sample = source[: source.rfind(b"\n", 0, _SAMPLE_BYTES) + 1] if len(source) > _SAMPLE_BYTES else source
    tree = _Parse(sample, grammar).run()
    if tree is None or _share_understood(tree.root_node) < _MIN_UNDERSTOOD:
        return None
    return tree if sample is source else _Parse(source, grammar).run()


class _Reused(threading.local):
    """The one piece of text that a thread hands to its parser.

    The parser keeps a reference to whatever a reading returns, for good (0.26.1), and is done with its content at the
    next reading.
    """

    def __init__(self) -> None:
        self.piece = bytearray()


_REUSED = _Reused()


class _Parse:
    """One parse, ended where it has done more work than any real text of the length it has come to."""

    def __init__(self, source: bytes, grammar: Grammar) -> None:
        self._source = source
        self._grammar = grammar
        self._steps_left = _FREE_STEPS
        self._bytes_left = _FREE_READ_BYTES
        self._reached = 0
        self._is_over = False

    def run(self) -> Tree | None:
        core = importlib.import_module(_CORE.replace("-", "_"))
        parser = core.Parser(self._grammar.language)
        try:
            tree: Tree = parser.parse(self._read, progress_callback=self._report)
        except ValueError:  # what the parser raises for a parse that was ended, and for nothing else
            return None
        return None if self._is_over else tree

    def _read(self, offset: int, _point: Point) -> bytearray:
        """The text from the offset; in pieces, so that what is read again and again can be counted.

        A parse that is over is told that the text ends here. A piece never ends inside of a character: the parser would
        take it for granted that there is more.
        """
        self._advance(offset)
        self._bytes_left -= _READ_BYTES
        end = offset if self._is_over else offset + _READ_BYTES
        while end < len(self._source) and self._source[end] & UTF8_MASK == UTF8_CONTINUES:
            end -= 1
        _REUSED.piece[:] = self._source[offset:end]
        return _REUSED.piece

    def _report(self, offset: int, _has_error: bool) -> bool:  # noqa: FBT001 - the parser's signature
        self._advance(offset)
        self._steps_left -= _STEPS_PER_REPORT
        return self._is_over

    def _advance(self, offset: int) -> None:
        progress = max(0, offset - self._reached)
        self._reached += progress
        self._steps_left += progress * _STEPS_PER_BYTE
        self._bytes_left += progress * _READS_PER_BYTE
        self._is_over = self._is_over or min(self._steps_left, self._bytes_left) < 0


def _share_understood(root: Node) -> float:
    """The share of a tree's text that stands in nodes without an error; a lone token among errors is none."""
    understood, total = 0, 0
    waiting = [(root, False)]
    while waiting:
        node, is_among_errors = waiting.pop()
        if node.has_error and node.child_count:
            waiting += [(child, node.is_error) for child in node.children]
            continue
        size = node.end_byte - node.start_byte
        is_lone = is_among_errors and not node.child_count and not node.is_extra
        total += size
        understood += 0 if node.is_error or is_lone else size
    return understood / max(total, 1)
