"""All invariants on generated texts: ordinary structure, repeats, and what breaks other splitters."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.chunk.markdown import scan_markdown
from memory_core.models import ChunkingResult, ContentType

_examples = settings.get_profile(os.environ.get("HYPOTHESIS_CHUNK_PROFILE", "chunk-suite"))

_LINES = [
    *("# One", "## Two\t", "### Three ###", "####### seven", "Over\n===", "Under\n---", "#", "---", "***", "- - -"),
    *("- item", "  - nested item", "1. first", "2) second", "* ", "    code # no heading", "\tcode", "   text"),
    *(
        "```",
        "```py",
        "~~~",
        "````",
        "  ```",
        "> quote",
        "> # quoted",
        "> ```",
        ">",
        ">> deep",
        "| a | b |",
        "|---|---|",
    ),
    *("<div>", "<!-- open", "-->", "<pre>", "<h1 ", "[ref]: http://x", "key: value", "+++", "...", '{"a": [1, 2]}'),
    *("A sentence. Another one! And a third? e.g. this one, by Dr. Who.", "word " * 40, "今日は。散歩に行く。" * 5),
    *("x" * 200, "漢字" * 60, "aGVsbG8gd29ybGQ" * 12, "🚀" * 30, "👩\u200d👩\u200d👧" * 12, "e" + "\u0301" * 90),
    *(
        "🇩🇪" * 25,
        "ภาษาไทย" * 20,
        "123 456.789,10" * 9,
        "\u202eright to left\u202c",
        "\u0600 12",
        " \u0301",
        "a\x1cb\x85c",
    ),
    *("<|endoftext|>", "\x0b", "\x0c", "\u2028", "\u2029", "\u3000", "\xa0" * 30, " " * 300, "\t" * 50, "", "", ""),
]
_ENDS = ["\n", "\n", "\n\n", "\r\n", "\r", "\n \n", ""]
_any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    """Lines of all kinds, repeated or not, with line ends of all kinds; never blank."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 25))):
        line = draw(st.one_of(st.sampled_from(_LINES), st.sampled_from(_LINES), _any_text))
        parts += [line * draw(st.one_of(st.just(1), st.integers(1, 12))), draw(st.sampled_from(_ENDS))]
    text = "".join(parts)
    return text if text.strip() else text + "x"


@st.composite
def _sizes(draw: st.DrawFn) -> dict[str, int]:
    """Every legal combination, the small ones more often."""
    size = draw(st.one_of(st.integers(32, 128), st.integers(32, 8_192)))
    overlap = draw(st.one_of(st.just(0), st.integers(0, min(size - 1, 4_096))))
    minimum = draw(st.one_of(st.just(1), st.integers(1, min(size, 4_096))))
    return {"size": size, "overlap": overlap, "minimum": minimum}


@pytest.mark.parametrize("content_type", list(ContentType))
@_examples
@given(text=_texts(), sizes=_sizes())
def test_every_chunking_keeps_its_promises(
    chunk_checked: Callable[..., ChunkingResult], content_type: ContentType, text: str, sizes: dict[str, int]
) -> None:
    """Whatever the text and the sizes are, slices, cover, budget, overlap and clusters hold."""
    result = chunk_checked(text, content_type, **sizes)

    assert result == chunk_checked(text, content_type, **sizes)
    assert all(isinstance(chunk.heading_path, tuple) for chunk in result.chunks)


@_examples
@given(text=_texts(), sizes=_sizes())
def test_a_chunk_stays_inside_the_section_it_begins_in(
    chunk_checked: Callable[..., ChunkingResult], text: str, sizes: dict[str, int]
) -> None:
    """The heading path of a chunk is that of its own start, and true of all of it."""
    structure = scan_markdown(text)
    covered = 0
    for chunk in chunk_checked(text, ContentType.MARKDOWN, **sizes).chunks:
        own = max(chunk.char_start, covered)
        own += len(text[own:]) - len(text[own:].lstrip())
        section = structure.section_at(own)
        assert chunk.heading_path == section.path
        assert chunk.char_end <= section.end
        covered = chunk.char_end


@_examples
@given(text=_texts())
def test_a_scan_names_places_in_the_text_in_order(text: str) -> None:
    """Cuts ascend, sections are nested in order, and lines have the text's length."""
    structure = scan_markdown(text)

    positions = [cut.position for cut in structure.cuts]
    assert positions == sorted(set(positions))
    assert all(0 <= position <= len(text) for position in positions)
    starts = [section.start for section in structure.sections]
    assert starts[1:] == sorted(set(starts[1:]))
    assert all(section.start <= section.end <= len(text) for section in structure.sections)
    assert len(structure.lines) == len(text)
