"""All promises on generated texts of every type: ordinary structure, repeats, and what breaks other splitters."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.models import ContentType
from memory_core.ports import TokenCounter
from tests.unit.chunk.hostile_texts import languages, sizes, texts

_examples = settings.get_profile(os.environ.get("HYPOTHESIS_CHUNK_PROFILE", "chunk-suite"))


@pytest.mark.parametrize("content_type", list(ContentType))
@_examples
@given(data=st.data(), options=sizes(), by_characters=st.integers(0, 5).map(lambda number: number == 5))
def test_every_chunking_keeps_its_promises(
    chunk_checked: Callable[..., ChunkingResult],
    char_counter: TokenCounter,
    content_type: ContentType,
    data: st.DataObject,
    options: dict[str, int],
    by_characters: bool,
) -> None:
    """Whatever the text and the sizes are, all that must hold of a chunking does, and a second run gives the same."""
    text = data.draw(texts(content_type), label="text")
    language = data.draw(languages(), label="language") if content_type is ContentType.CODE else ""
    counter = char_counter if by_characters else load_tiktoken_counter()

    result = chunk_checked(text, content_type, counter=counter, language=language, **options)

    assert result == chunk_content(text, content_type, ChunkOptions(language=language, **options), counter)


# Texts that broke a promise once, as they were found.
_PINNED: list[tuple[ContentType, str, dict[str, int]]] = [
    # The unit of headings without text crossed the end of the section ahead of it.
    (ContentType.MARKDOWN, "# One\n####### seven\n## Two\t\n# One\n", {"size": 32, "minimum": 1}),
    # An underlined heading right below another one was taken for its text.
    (ContentType.MARKDOWN, "# One\n\nOver\n===\n", {"size": 32, "minimum": 1}),
    # What is blank to Python and not to CommonMark is no text that a heading could keep.
    (ContentType.MARKDOWN, "# One\n\x0b\n# One\n", {"size": 32, "minimum": 1}),
    (ContentType.MARKDOWN, "# One\n\x0b\n## Two\t\n# One\n", {"size": 32, "minimum": 1}),
    # A heading that fills what a chunk aims at, but not the size, was torn from its text.
    (ContentType.MARKDOWN, f"# {'long heading ' * 12}\n\n{'word ' * 60}", {"size": 32, "minimum": 1}),
    (
        ContentType.RST,
        "Title\n============\n\nA longer one\n------------\n\nA longer one\n~~~~~~~~~~~~\n\n" + "word " * 60,
        {"size": 32, "minimum": 1},
    ),
    # A large cluster right below a heading that is not the chunk's first left the heading behind.
    (
        ContentType.MARKDOWN,
        "####### seven\n" + "# One\n" * 8 + "e" + "\u0301" * 90 + "\n2) second\n",
        {"size": 94, "minimum": 24},
    ),
    # A table whose header has no lines had a header row that ended ahead of its start.
    (ContentType.RST, "===  ===\n===  ===\nTitle\n=====\n", {"size": 32, "minimum": 1}),
]


@pytest.mark.parametrize(("content_type", "text", "options"), _PINNED, ids=range(len(_PINNED)))
def test_a_text_that_broke_a_promise_once_does_not_again(
    chunk_checked: Callable[..., ChunkingResult], content_type: ContentType, text: str, options: dict[str, int]
) -> None:
    """What the generated texts have found."""
    chunk_checked(text, content_type, **options)
