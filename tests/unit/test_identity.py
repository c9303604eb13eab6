"""Who a document is: its type, its id and its title."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.identity import (
    SLUG_CHARS,
    derive_source_id,
    derive_title,
    fold_content_type,
    is_source_id,
    shorten,
    with_suffix,
)
from memory_core.models import ContentType, hash_text

HASH = hash_text("content")
TEXTS = st.text(min_size=1, max_size=300).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


def id_of(*, uri: str | None = None, title: str | None = None, content: str = "content") -> str:
    return derive_source_id(uri=uri, title=title, content_hash=hash_text(content))


@pytest.mark.parametrize(
    ("given_name", "expected"),
    [
        *[(name, ContentType.MARKDOWN) for name in ("md", "mkd", "markdown", "text/markdown", " Text/X-Markdown ")],
        *[(name, ContentType.TEXT) for name in ("txt", "plain", "plaintext", "text/plain; charset=utf-8")],
        *[(name, ContentType.HTML) for name in ("htm", "HTML", "text/html")],
        *[(name, ContentType.JSON) for name in ("json", "application/json", "text/json", "application/x-ndjson")],
        *[(name, ContentType.CODE) for name in ("source", "sourcecode", "javascript", "typescript", "python")],
        *[(name, ContentType.CODE) for name in ("shell", "sh", "sql", "code", "application/x-sh", "text/x-python")],
        ("restructuredtext", ContentType.RST),
        ("text/csv", ContentType.CSV),
        *[(name, None) for name in ("", ";charset=utf-8", "pdf", "application/pdf", "image/svg+xml", "x-python")],
    ],
)
def test_a_content_type_folds_from_its_aliases(given_name: str, expected: ContentType | None) -> None:
    """Names and MIME types mean one of seven types, or nothing."""
    assert fold_content_type(given_name) is expected


def test_an_id_comes_from_the_uri_else_the_title_else_the_text() -> None:
    """And a text that is already an id is taken as it is."""
    assert id_of(uri="https://example.org/a/b.md", title="other") == "https://example.org/a/b.md"
    assert id_of(title="deploy-notes") == "deploy-notes"
    assert id_of() == f"sha256:{HASH[:16]}"
    assert id_of(uri="日本語", title="日本語") == f"sha256:{HASH[:16]}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("README", "readme"),
        ("Guide 日本", "Guide 中国"),
        ("notes: a", "notes: A"),
        ("https://example.org/?a=1", "https://example.org/#a=1"),
        ("https://example.org/" + "x" * 100 + "/one", "https://example.org/" + "x" * 100 + "/two"),
        ("a" * 96 + "b", "a" * 96 + "c"),
        ("a--b", "a-b"),
        ("é", "e"),
        ("/a/", "a"),
    ],
)
def test_ids_of_texts_that_a_slug_makes_equal_stay_apart(one: str, other: str) -> None:
    """Cut, case, folded marks and dropped letters are told apart by 8 digits of the hash of the whole."""
    assert id_of(uri=one) != id_of(uri=other)
    assert id_of(title=one) != id_of(title=other)


def test_a_title_that_looks_like_a_derived_id_does_not_take_it() -> None:
    """Whoever reads an id and stores under it as a title makes another document."""
    derived = id_of(title="README")
    assert id_of(title=derived) != derived


@given(one=TEXTS, other=TEXTS)
def test_a_derived_id_is_legal_and_belongs_to_one_origin(one: str, other: str) -> None:
    """For every text: a legal id, and never that of another text."""
    derived = id_of(title=one)
    assert is_source_id(derived)
    assert len(derived) <= SLUG_CHARS + 9
    if one != other and not derived.startswith("sha256:"):
        assert derived != id_of(title=other)


@given(text=TEXTS)
def test_ids_that_differ_by_case_or_blanks_stay_apart(text: str) -> None:
    """The nearest neighbours of a text are the ones that a slug would fold onto it."""
    derived = id_of(title=text)
    for near in (text.upper(), text.lower(), f" {text}", f"{text}/", text.replace(" ", "-")):
        assert near == text or id_of(title=near) != derived or derived.startswith("sha256:")


@given(origin=TEXTS)
def test_a_suffix_keeps_the_longest_id_legal(origin: str) -> None:
    """256 characters stay 256."""
    suffixed = with_suffix("a" * 256, origin)
    assert len(suffixed) == 256
    assert is_source_id(suffixed)


@pytest.mark.parametrize("text", ["", "-a", " a", "a b", "é", "a\n", "a" * 257, "日本"])
def test_what_is_no_id_is_refused(text: str) -> None:
    """ASCII letters, digits and seven marks, the first a letter or digit."""
    assert not is_source_id(text)


@pytest.mark.parametrize(
    ("content", "content_type", "expected"),
    [
        ("intro\n\n# The  title #\nbody", ContentType.MARKDOWN, "The title"),
        ("---\ntitle: x\n---\n\n## Real\n", ContentType.MARKDOWN, "Real"),
        ("---\n\nA rule first, then text\n\n---\n\n# Heading\n", ContentType.MARKDOWN, "Heading"),
        ("```sh\n# no heading\n```\n# Heading\n", ContentType.MARKDOWN, "Heading"),
        ("~~~\n```\n# no heading\n~~~\n# Heading", ContentType.MARKDOWN, "Heading"),
        ("#hashtag and words", ContentType.MARKDOWN, "#hashtag and words"),
        ("    # code\nWords", ContentType.MARKDOWN, "# code"),
        ("# C#\n", ContentType.MARKDOWN, "C#"),
        ("---\n***\nWords", ContentType.MARKDOWN, "Words"),
        ("=====\n\nFirst words\n", ContentType.TEXT, "First words"),
        ("<!doctype html><html><title>The page</title>", ContentType.HTML, "The page"),
        ("<h1 class='a'>Tom &amp; Jerry&nbsp;&#x1F600;</h1>", ContentType.HTML, "Tom & Jerry \U0001f600"),
        ("<!doctype html><p>no title", ContentType.HTML, "fallback"),
        ('{"a": 1}', ContentType.JSON, "fallback"),
        ("# a comment\nprint()", ContentType.CODE, "fallback"),
        ("a,b\n1,2", ContentType.CSV, "fallback"),
        ("***", ContentType.TEXT, "fallback"),
    ],
)
def test_a_title_is_words_of_the_text_and_never_a_mark(content: str, content_type: ContentType, expected: str) -> None:
    """A rule, a brace, a doctype or a comment is no title."""
    assert derive_title(content, content_type, fallback="fallback") == expected


def test_a_long_title_ends_in_an_ellipsis() -> None:
    """200 characters at most."""
    title = derive_title("# " + "word " * 100, ContentType.MARKDOWN, fallback="f")
    assert len(title) <= 200
    assert title.endswith("…")
    assert shorten("a" * 200) == "a" * 200


@pytest.mark.parametrize("part", ["<h1 ", " ", "#", "```\n"])
def test_a_title_of_a_hostile_text_takes_no_time(part: str, assert_linear: Callable[..., None]) -> None:
    """Only the first 8,192 characters are looked at."""

    def make_text(chars: int) -> str:
        return "# a" + part * (chars // len(part))

    def work(text: str) -> None:
        for content_type in ContentType:
            derive_title(text, content_type, fallback="f")

    assert_linear(work, make_text, chars=400_000)
    beyond = "# a" + " " * 8_192
    assert derive_title(beyond + "b", ContentType.MARKDOWN, fallback="f") == "a"


@pytest.mark.parametrize(
    ("content", "file_name", "title"),
    [
        ("# Guide\n\n## One\n\n## Two\n", "g.md", "Guide"),
        ("- Date: 1\n\n# Summary\n\ntext\n\n# Motivation\n\ntext\n", "0001-private-fields.md", "0001-private-fields"),
        ("# Summary\n\ntext\n\n# Motivation\n", "", "Summary"),
        ("## Early\n\n# Late\n", "notes.md", "notes"),
        ("Words without a heading.\n", "todo.md", "todo"),
        ("Words without a heading.\n", "", "Words without a heading."),
        ("# Shell\n\n```sh\n# not a heading\n```\n", "s.md", "Shell"),
    ],
)
def test_a_file_whose_headings_are_all_sections_is_named_by_its_file(content: str, file_name: str, title: str) -> None:
    """578 of 625 real documents begin with the section "Summary": that names none of them."""
    found = derive_title(content, ContentType.MARKDOWN, fallback="fallback", file_name=file_name)
    assert found == title
