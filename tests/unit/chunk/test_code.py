"""How code is cut: at its definitions where a grammar reads it, at blank lines and indentations where none does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from importlib import metadata

import pytest

from memory_core.chunk.chunk_content import chunk_content, describe_recipe
from memory_core.chunk.code import CODE_STRATEGY, scan_code
from memory_core.chunk.code_grammars import (
    MAX_PARSED_BYTES,
    MAX_UNFINISHED,
    Grammar,
    describe_code_parser,
    describe_code_parsers,
    load_grammar,
    parse_code,
)
from memory_core.chunk.code_kinds import KINDS
from memory_core.chunk.code_limits import count_unfinished
from memory_core.chunk.structure import Structure
from memory_core.chunk_values import Chunk, ChunkOptions
from memory_core.models import ContentType
from memory_core.ports import TokenCounter

_TYPESCRIPT = """\
import { read } from "./file";
const limit = 20;

export function first(text: string) {
  return text.slice(0, limit);
}

export function last(text: string) {
  return text.slice(-limit);
}

const again = first;
const end = last;
"""


def _no_grammar(_language: str) -> Grammar | None:
    return None


def _cut(text: str, counter: TokenCounter, *, language: str = "", size: int = 80) -> tuple[Chunk, ...]:
    options = ChunkOptions(size=size, minimum=1, language=language)
    result = chunk_content(text, ContentType.CODE, options, counter)
    assert result.strategy == CODE_STRATEGY
    return result.chunks


def _cut_lines(structure: Structure, text: str) -> list[str]:
    """The first line behind each cut."""
    return [text[position:].split("\n", 1)[0] for position in structure.cuts.positions.tolist()]


def _are_line_edges(chunks: tuple[Chunk, ...], text: str) -> bool:
    return all(
        not text[: chunk.char_start].rpartition("\n")[2].strip()
        and not text[chunk.char_end :].partition("\n")[0].strip()
        for chunk in chunks
    )


# --- without a grammar ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["", "typescript"])
def test_twelve_lines_of_code_are_cut_between_lines(language: str, char_counter: TokenCounter) -> None:
    """A small file with groups of lines becomes several chunks, each of whole lines."""
    chunks = _cut(_TYPESCRIPT, char_counter, language=language, size=90)
    assert len(chunks) > 1
    assert _are_line_edges(chunks, _TYPESCRIPT)


def test_a_group_of_lines_that_fits_is_whole(char_counter: TokenCounter) -> None:
    """Blank lines part a file first; lines that stand together stay together while they fit."""
    chunks = _cut(_TYPESCRIPT, char_counter, size=90)
    assert [chunk.text.split("\n", 1)[0] for chunk in chunks] == [
        'import { read } from "./file";',
        "export function first(text: string) {",
        "export function last(text: string) {",
        "const again = first;",
    ]


def test_less_indentation_is_a_stronger_cut() -> None:
    """A file is parted between functions before it is parted inside of one."""
    text = "def a():\n    x\n\n    y\n\ndef b():\n    z\n\n        deep\n"
    structure = scan_code(text, "python", grammar_of=_no_grammar)
    levels = dict(zip(_cut_lines(structure, text), structure.cuts.levels.tolist(), strict=True))
    assert levels["def b():"] < levels["    y"] < levels["        deep"]


def test_what_closes_stays_with_what_it_closes() -> None:
    """No chunk begins with a closing bracket, an `end` or an `else` because a blank line stands ahead of it."""
    text = "if a {\n    b\n\n}\n\nelse {\n    c\n\n}\n\nf(\n    d,\n)\n\nbegin\n    e\n\nend\n\nlast\n"
    structure = scan_code(text, "", grammar_of=_no_grammar)
    assert _cut_lines(structure, text) == ["if a {", "f(", "begin", "last"]


def test_an_indentation_that_ends_is_a_cut_without_a_blank_line() -> None:
    """Functions that stand close together are still cut between."""
    text = "def a():\n    x\ndef b():\n\ty\ndef c():\n    z\n"
    structure = scan_code(text, "", grammar_of=_no_grammar)
    assert _cut_lines(structure, text) == ["def a():", "def b():", "def c():"]


def test_a_tab_is_an_indentation_like_four_blanks() -> None:
    """Files that are indented with tabs are cut like those with blanks."""
    spaced = "a {\n    b\n\n    c\n\n        d\n\n}\n\ne\n"
    tabbed = spaced.replace("    ", "\t")
    levels = [scan_code(text, "", grammar_of=_no_grammar).cuts.levels.tolist() for text in (spaced, tabbed)]
    assert levels[0] == levels[1]


@pytest.mark.parametrize("language", ["", "python"])
@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_of_every_system_are_cut_at_the_same_lines(
    language: str, line_end: str, char_counter: TokenCounter
) -> None:
    """A file from Windows has the same chunks as one from Linux."""
    text = "class A:\n    def b(self):\n        return 1\n\n    def c(self):\n        return 2\n\n\nx = 1\n"
    expected = _cut(text, char_counter, language=language, size=64)
    found = _cut(text.replace("\n", line_end), char_counter, language=language, size=64)
    assert [chunk.text.replace(line_end, "\n") for chunk in found] == [chunk.text for chunk in expected]
    assert [chunk.heading_path for chunk in found] == [chunk.heading_path for chunk in expected]


# --- with a grammar ---------------------------------------------------------------------------------------------------


def test_what_stands_directly_above_a_definition_goes_with_it(char_counter: TokenCounter) -> None:
    """Comments and decorators are part of a function; a comment behind a blank line is not."""
    text = "# Not about f.\n\n# About f.\n@cache\n@retry(3)\ndef f():\n    return 1\n"
    text += "x = 2  # not about g\ndef g():\n    return 'three, and more'\n"
    chunks = _cut(text, char_counter, language="python", size=50)
    assert [(chunk.heading_path, chunk.text.split("\n", 1)[0]) for chunk in chunks] == [
        ((), "# Not about f."),
        (("f",), "# About f."),
        ((), "x = 2  # not about g"),
        (("g",), "def g():"),
    ]


def test_nested_classes_make_a_path(char_counter: TokenCounter) -> None:
    """The path goes from the outermost definition to the innermost that holds the chunk."""
    text = "class A:\n    class B:\n        class C:\n"
    text += "            def d(self):\n                return 'the innermost of all'\n"
    text += "\n            def e(self):\n                return 'the innermost of all, again'\n"
    chunks = _cut(text, char_counter, language="python", size=90)
    assert chunks[-1].heading_path == ("A", "B", "C", "e")


def test_a_function_that_does_not_fit_is_cut_at_its_blank_lines(char_counter: TokenCounter) -> None:
    """Groups of statements stay whole, and each knows the function it is of."""
    groups = [f"    step_{number} = start({number})\n    finish(step_{number})\n" for number in range(4)]
    text = "def run():\n" + "\n".join(groups)
    chunks = _cut(text, char_counter, language="python", size=64)
    assert [chunk.heading_path for chunk in chunks] == [("run",)] * 4
    assert all(f"finish(step_{number})" in chunk.text for number, chunk in enumerate(chunks))


def test_names_and_offsets_hold_in_every_script(char_counter: TokenCounter) -> None:
    """Definitions are found at their places in a text that is not ASCII."""
    text = '"""Ünïcode 👩‍👩‍👧 文書"""\n\n\nclass 図書館:\n    x = "é"\n\n'
    text += '    def größe(self):\n        return "📚📚📚" * 2 + "本"\n\n    def été(self):\n        return "日本語"\n'
    chunks = _cut(text, char_counter, language="python", size=56)
    assert [chunk.heading_path for chunk in chunks[-2:]] == [("図書館", "größe"), ("図書館", "été")]
    assert chunks[-1].text.startswith("def été")
    assert _are_line_edges(chunks, text)


def test_a_package_that_is_followed_by_another_ends_there(char_counter: TokenCounter) -> None:
    """Two namespaces in one file are beside each other."""
    text = "<?php\nnamespace One;\nfunction f() { return 'one'; }\nnamespace Two;\nfunction g() { return 'two'; }\n"
    chunks = _cut(text, char_counter, language="php", size=52)
    assert [chunk.heading_path for chunk in chunks] == [("One",), ("Two",)]


def test_definitions_in_the_middle_of_a_line_are_no_cuts(char_counter: TokenCounter) -> None:
    """A line is one thing, however much it defines."""
    text = "class A { b() {} c() {} }\n" * 8
    chunks = _cut(text, char_counter, language="javascript", size=60)
    assert len(chunks) == 4
    assert _are_line_edges(chunks, text)


def test_a_mistake_in_a_file_costs_no_other_definition(char_counter: TokenCounter) -> None:
    """Half-written code keeps the names of the rest."""
    text = "def a():\n    return 'the first one'\n\ndef b(:\n    return )\n\ndef c():\n    return 'the third one'\n"
    chunks = _cut(text, char_counter, language="python", size=46)
    assert {chunk.heading_path for chunk in chunks} >= {("a",), ("c",)}


# --- what is not parsed -----------------------------------------------------------------------------------------------


def _mix(signs: str, length: int) -> str:
    chosen = random.Random(7)
    return "".join(chosen.choice(signs) for _ in range(length))


_HOSTILE = {
    "one line": "x=f(1);" * 10_000,
    "brackets": "(\n" * 20_000,
    "angles": "A<\n" * 20_000,
    "arrows": "a=>\n" * 10_000,
    "quotes": "'\n\"\n`\n" * 10_000,
    "backslashes": "\\\n" * 20_000,
    "percents": "%w(\n" * 10_000,
    "indented": "".join(" " * depth + "if a:\n" for depth in range(300)),
    "functions": "def f():\n    pass\n\n" * 2_000,
    "braces": "class A {\n" * 5_000 + "}\n" * 5_000,
    "garbage": _mix("(){}[]<>=;:'\"`$#%&/\\|!? \n\tabAB01\x01é文", 40_000),
    "scripts": _mix("中é👍\u0301\u200d\n", 40_000),
    "carriage returns": "\r" * 10_000 + "a",
    "blank lines": "\n" * 50_000 + "a",
    "controls": "\x0b\x0c\x1c\x85\u2028\ufeff\n" * 2_000 + "a",
}


@pytest.mark.parametrize("name", list(_HOSTILE))
@pytest.mark.parametrize("language", sorted(KINDS))
def test_hostile_text_is_read_as_lines_in_no_time(language: str, name: str) -> None:
    """Whatever is called code becomes a structure whose cuts ascend; nothing raises and nothing hangs."""
    structure = scan_code(_HOSTILE[name], language)
    positions = structure.cuts.positions.tolist()
    assert positions == sorted(set(positions))
    assert positions[0] == 0
    assert len(structure.lines) == len(_HOSTILE[name])


@pytest.mark.parametrize("name", ["one line", "brackets", "angles", "arrows", "percents", "braces"])
def test_text_that_would_keep_a_parser_waiting_never_reaches_it(name: str) -> None:
    """What makes parsers take memory by the square is refused ahead of them, in every language."""
    for language in KINDS:
        grammar = load_grammar(language)
        assert grammar is not None
        assert parse_code(_HOSTILE[name].encode(), grammar) is None


def test_a_file_beyond_the_limit_has_no_tree() -> None:
    """A file that is too long for a tree is cut by its lines."""
    function = b"def f():\n    return 1\n\n\n"
    grammar = load_grammar("python")
    assert grammar is not None
    assert parse_code(function * (MAX_PARSED_BYTES // len(function)), grammar) is not None
    assert parse_code(function * (MAX_PARSED_BYTES // len(function) + 1), grammar) is None


def test_a_text_that_makes_no_sense_to_the_grammar_has_no_tree() -> None:
    """A wrong file name gives no wrong names."""
    prose = b"It was a dark night, and (as ever) nobody knew why; the rain fell on.\n\n" * 40
    grammar = load_grammar("rust")
    assert grammar is not None
    assert parse_code(prose, grammar) is None


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        ("a = b;\n" * 100, 1),
        ("a = " * 300, 300),
        ("f(a, b = {c: d})\n" * 100, 6),
        ("/* " + "-" * 80 + " */\n", 6),
        ("A<B<C<D", 8),
        ("a " + "= {\n}\n" * 100, 101),
    ],
)
def test_what_waits_is_counted_since_the_statement_began(text: str, waiting: int) -> None:
    """Brackets nest, separators end; a ruler in a comment is no heap of signs."""
    assert count_unfinished(text.encode(), is_ended_by_lines=False, has_directives=False) <= waiting + 2
    assert waiting - 2 <= count_unfinished(text.encode(), is_ended_by_lines=False, has_directives=False)


def test_lines_end_statements_only_where_the_language_says_so() -> None:
    """A chain of assignments over many lines waits in C and not in Python; a macro ends what stands above it."""
    chain = "a = b\n" * 1_000
    assert count_unfinished(chain.encode(), is_ended_by_lines=True, has_directives=False) < MAX_UNFINISHED
    assert count_unfinished(chain.encode(), is_ended_by_lines=False, has_directives=False) > MAX_UNFINISHED
    macros = "#define A (1 << 2)\n" * 1_000
    assert count_unfinished(macros.encode(), is_ended_by_lines=False, has_directives=True) < MAX_UNFINISHED


@pytest.mark.parametrize("language", sorted(KINDS))
def test_the_installed_grammar_knows_every_kind_that_is_looked_for(language: str) -> None:
    """A grammar that renames a kind of node is noticed, instead of losing its definitions in silence."""
    grammar = load_grammar(language)
    assert grammar is not None
    unknown = [kind for kind in KINDS[language].roles() if grammar.language.id_for_node_kind(kind, True) is None]
    assert not unknown


# --- the recipe -------------------------------------------------------------------------------------------------------


def test_the_recipe_names_what_parses_the_code() -> None:
    """Another grammar or parser gives another recipe; what no grammar reads names none."""
    grammar, parser = metadata.version("tree-sitter-python"), metadata.version("tree-sitter")
    python = describe_recipe(ContentType.CODE, ChunkOptions(language="python"), "cl100k_base")
    assert python.split("/", 1)[1] == f"code.python-{grammar}-{parser}/400-0-32/cl100k_base"
    assert describe_recipe(ContentType.CODE, ChunkOptions(language="cobol"), "x").endswith("/code/400-0-32/x")
    assert describe_recipe(ContentType.TEXT, ChunkOptions(language="python"), "x").endswith("/text/400-0-32/x")
    assert describe_code_parser("") == ""


@pytest.fixture
def forget_versions() -> Iterator[None]:
    """The versions are read once a process."""
    describe_code_parsers.cache_clear()
    yield
    describe_code_parsers.cache_clear()


@pytest.mark.usefixtures("forget_versions")
def test_the_parsers_of_code_have_one_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of any of them gives another name; without the parser itself there is none."""
    ours = describe_code_parsers()
    asked: list[str] = []

    def version(name: str, *, newer: str = "tree-sitter-go", missing: str = "") -> str:
        asked.append(name)
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return "99.0.0" if name == newer else real(name)

    real = metadata.version
    monkeypatch.setattr(metadata, "version", version)
    describe_code_parsers.cache_clear()
    assert (len(ours), describe_code_parsers() != ours) == (8, True)
    assert {"tree-sitter", "tree-sitter-python", "tree-sitter-c-sharp", "tree-sitter-typescript"} <= set(asked)
    monkeypatch.setattr(metadata, "version", partial(version, missing="tree-sitter"))
    describe_code_parsers.cache_clear()
    assert describe_code_parsers() == ""
