"""Markdown against a parser of CommonMark: its own specification with all examples, and the RFC corpus.

The scan is not to be a second opinion. `markdown-it-py` is asked for every heading, fence and block, by their lines.
"""

from __future__ import annotations

import re
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from memory_core.chunk.front_matter import measure_front_matter
from memory_core.chunk.markdown import scan_markdown
from memory_core.chunk.structure import Structure
from memory_core.chunk_values import ChunkingResult

CheckedChunker = Callable[..., ChunkingResult]

_SPEC = (Path(__file__).parents[2] / "data" / "commonmark" / "spec.txt").read_text(encoding="utf-8")
_EXAMPLE = re.compile(r"^`{32} example\n(.*?)^\.\n.*?^`{32}$", re.MULTILINE | re.DOTALL)
_EXAMPLES = tuple(example[1].replace("→", "\t") for example in _EXAMPLE.finditer(_SPEC))
# Neighbours of one level that are no longer together may be one block: they fit the smallest chunk.
_SMALL_BLOCK_CHARS = 16

_parser = MarkdownIt("commonmark").enable("table")


class _Lines:
    """What the scan and the parser say of one text, by the numbers of its lines."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", " \n").replace("\r", "\n")
        self._starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        self.structure: Structure = scan_markdown(text)
        # Front matter is no part of CommonMark: the parser is given blank lines instead.
        front = measure_front_matter(self.text)
        self.tokens = _parser.parse("\n" * self.text.count("\n", 0, front) + self.text[front:])

    def at(self, position: int) -> int:
        """The line that the position is in."""
        return bisect_right(self._starts, position) - 1

    @property
    def headings(self) -> list[int]:
        """The lines that the scan says headings begin at."""
        return [self.at(start) for start in list(self.structure.spans.starts)[1:]]

    @property
    def cuts(self) -> set[int]:
        """The lines that the scan says blocks begin at, those that stay with a heading included."""
        cuts = self.structure.cuts
        return {self.at(place) for place in (*cuts.positions.tolist(), *cuts.bodies.tolist())}

    def is_small(self, first: int, behind: int) -> bool:
        """True of lines that are so short that they need no cut ahead of them."""
        ends = [*self._starts, len(self.text)]
        return ends[min(behind, len(ends) - 1)] - ends[first] <= _SMALL_BLOCK_CHARS

    def blocks(self, *types: str) -> Iterator[tuple[Token, int, int]]:
        """The parser's blocks of these types, with their first line and the one behind their last."""
        for token in self.tokens:
            if token.type in types and token.map:
                yield token, token.map[0], token.map[1]


@pytest.mark.parametrize("number", range(1, len(_EXAMPLES) + 1))
def test_headings_and_fences_are_those_of_every_example_of_the_specification(number: int) -> None:
    """Headings that stand in no quote or list, and fences wherever they stand: the same lines, and none is cut in."""
    lines = _Lines(_EXAMPLES[number - 1])

    assert lines.headings == [first for token, first, _ in lines.blocks("heading_open") if not token.level]
    for _, first, behind in lines.blocks("fence"):
        assert first in lines.cuts or lines.is_small(first, behind)
        assert not lines.cuts & set(range(first + 1, behind))


def test_the_specification_has_all_its_examples() -> None:
    """A file that was cut off would pass every other test."""
    assert len(_EXAMPLES) == 652


@pytest.mark.parametrize("size", [32, 64, 400])
@pytest.mark.parametrize("overlap", [0, 24])
def test_every_example_keeps_every_promise(chunk_checked: CheckedChunker, size: int, overlap: int) -> None:
    """No character of any example is lost, in no chunk, whatever the size is."""
    for example in _EXAMPLES:
        if example.strip():
            chunk_checked(example, size=size, overlap=overlap, minimum=16)


@pytest.mark.parametrize(("size", "overlap"), [(32, 0), (100, 20), (400, 0), (1_000, 200), (8_192, 4_096)])
def test_the_specification_itself_keeps_every_promise(chunk_checked: CheckedChunker, size: int, overlap: int) -> None:
    """200,000 characters of Markdown about Markdown: nothing lost, and each chunk under its own headings."""
    result = chunk_checked(_SPEC, size=size, overlap=overlap)

    _check_paths(_SPEC, result)
    if not overlap:
        assert "".join("".join(chunk.text.split()) for chunk in result.chunks) == "".join(_SPEC.split())


def test_the_blocks_of_the_specification_are_those_of_a_parser() -> None:
    """Every heading, every fence, and every block outside of quotes and lists begins at the same line."""
    _check_blocks(_SPEC)


@pytest.mark.corpora
def test_the_blocks_of_the_rfc_corpus_are_those_of_a_parser(corpora: Path) -> None:
    """Hundreds of documents that people wrote."""
    for text in _read_rfcs(corpora):
        _check_blocks(text)


@pytest.mark.corpora
@pytest.mark.parametrize(("size", "overlap", "step"), [(64, 16, 12), (400, 0, 4), (400, 80, 12)])
def test_the_rfc_corpus_keeps_every_promise(
    chunk_checked: CheckedChunker, corpora: Path, size: int, overlap: int, step: int
) -> None:
    """Each chunk is under the headings that a parser finds above it, and no real file has a cluster that is cut."""
    for text in list(_read_rfcs(corpora))[::step]:
        result = chunk_checked(text, size=size, overlap=overlap)
        assert result.stats.cluster_cuts == 0
        _check_paths(text, result)


def _read_rfcs(corpora: Path) -> Iterator[str]:
    with tarfile.open(corpora / "rfcs-older.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".md") else None
            if file:
                yield file.read().decode()


def _check_blocks(text: str) -> None:
    lines = _Lines(text)
    assert lines.headings == [first for token, first, _ in lines.blocks("heading_open") if not token.level]
    cuts, below = lines.cuts | set(lines.headings), _lines_below_references(lines.text)
    for _, first, behind in lines.blocks("fence"):
        assert first in cuts or lines.is_small(first, behind)
        assert not cuts & set(range(first + 1, behind))
    types = "paragraph_open code_block html_block hr blockquote_open bullet_list_open ordered_list_open table_open"
    for token, first, behind in lines.blocks(*types.split()):
        # A paragraph right below reference definitions is one block with them, on purpose.
        assert token.level or first in cuts or first in below or lines.is_small(first, behind)


def _lines_below_references(text: str) -> set[int]:
    ends = (found.end() for found in re.finditer(r"^ {0,3}\[[^\]\n]+\]:.*\n", text, re.MULTILINE))
    return {text.count("\n", 0, end) for end in ends}


def _check_paths(text: str, result: ChunkingResult) -> None:
    """The path is made of the headings that a parser finds above the chunk, by their levels."""
    lines = _Lines(text)
    headings: list[tuple[int, int, str]] = []
    for index, token in enumerate(lines.tokens):
        if token.type == "heading_open" and not token.level and token.map:
            name = " ".join(lines.tokens[index + 1].content.split())
            headings.append((token.map[0], int(token.tag[1]), name))
    path: list[tuple[int, str]] = []
    covered, row = 0, 0
    for chunk in result.chunks:
        own = max(chunk.char_start, covered)
        own += len(text[own:]) - len(text[own:].lstrip())
        while row < len(headings) and headings[row][0] <= lines.at(own):
            _, level, name = headings[row]
            path = [*(above for above in path if above[0] < level), (level, name)]
            row += 1
        assert chunk.heading_path == tuple(name for _, name in path if name)
        covered = chunk.char_end
