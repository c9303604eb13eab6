"""What language a name means, and which of a document's names is asked."""

from __future__ import annotations

import pytest

from memory_core.chunk.code_kinds import KINDS
from memory_core.languages import choose_language, language_of
from memory_core.models import ContentType


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("main.py", "python"),
        ("src/App.TSX", "tsx"),
        ("file:///home/a/My%20Code/server.go", "go"),
        ("https://example.org/blob/main/lib.rs?raw=1#L10-L20", "rust"),
        ("C:\\work\\Program.cs", "csharp"),
        ("repo:src/list.h", "cpp"),
        ("build.gradle.kts", "kotlin"),
        ("deploy/Dockerfile", "dockerfile"),
        ("Rakefile", "ruby"),
        ("https://example.org/a.sh/", "bash"),
        (" spaced.rb ", "ruby"),
    ],
)
def test_a_name_says_its_language_by_how_it_ends(name: str, language: str) -> None:
    """Paths, addresses and ids of any system are read alike."""
    assert language_of(name) == language


@pytest.mark.parametrize(
    "name", ["", "   ", "notes", "notes.unknown", ".py", "a/.bashrc", "py", "https://example.org", "?.py"]
)
def test_a_name_without_a_known_ending_says_nothing(name: str) -> None:
    """A language is never guessed."""
    assert language_of(name) == ""


def test_the_first_name_that_says_a_language_decides() -> None:
    """A document is known by its address first, then by its id, then by its title."""
    names = {"uri": "https://example.org/a.go", "source_id": "b.rs", "title": "c.py"}
    assert choose_language(ContentType.CODE, **names) == "go"
    assert choose_language(ContentType.CODE, **{**names, "uri": "https://example.org/view"}) == "rust"
    assert choose_language(ContentType.CODE, uri=None, source_id="b", title="c.py") == "python"
    assert choose_language(ContentType.CODE, uri=None, source_id="b", title="c") == ""


@pytest.mark.parametrize("content_type", [kind for kind in ContentType if kind is not ContentType.CODE])
def test_only_code_has_a_language(content_type: ContentType) -> None:
    """A page about main.py is no Python."""
    assert choose_language(content_type, uri="main.py", source_id="main.py", title="main.py") == ""


def test_every_language_with_a_grammar_can_be_named() -> None:
    """No grammar lies idle because no file name leads to it."""
    endings = "sh c cpp cs go java js kt php py rb rs scala tsx ts".split()
    assert {language_of(f"a.{ending}") for ending in endings} == set(KINDS)
