"""Headings stay with what is below them and blocks stay whole, on generated documents whose blocks are known."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.models import Chunk, ChunkingResult

_examples = settings.get_profile(os.environ.get("HYPOTHESIS_CHUNK_PROFILE", "chunk-suite"))


@dataclass(frozen=True)
class _Block:
    kind: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@st.composite
def _blocks(draw: st.DrawFn) -> _Block:
    words = st.lists(st.sampled_from("memory search agent chunk token of the and".split()), min_size=1, max_size=40)
    kind = draw(st.sampled_from(["heading", "paragraph", "fence", "items", "rows"]))
    lines = [" ".join(draw(words)) for _ in range(draw(st.integers(1, 6)))]
    match kind:
        case "heading":
            return _Block(kind, (f"{'#' * draw(st.integers(1, 4))} {lines[0].split()[0]}",))
        case "fence":
            return _Block(kind, ("```sh", *(f"# {line}" for line in lines), "```"))
        case "items":
            return _Block(kind, tuple(f"- {line}" for line in lines))
        case "rows":
            return _Block(kind, ("| a |", "|---|", *(f"| {line} |" for line in lines)))
        case _:
            return _Block(kind, tuple(lines))


@_examples
@given(blocks=st.lists(_blocks(), min_size=1, max_size=14), size=st.integers(32, 200), overlap=st.integers(0, 31))
def test_what_fits_is_whole_and_headings_keep_their_text(
    chunk_checked: Callable[..., ChunkingResult], blocks: list[_Block], size: int, overlap: int
) -> None:
    """A fence, an item and a row that fit are in one chunk, and no heading is torn from the text below it."""
    text = "\n\n".join(block.text for block in blocks)
    chunks = chunk_checked(text, size=size, overlap=overlap, minimum=1).chunks
    count = load_tiktoken_counter().count
    start = 0
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        end = start + len(block.text)
        units = {"fence": [block.text], "items": block.lines, "rows": block.lines}.get(block.kind, [])
        at = start
        for unit in units:
            assert count(unit) > size or _is_in_one(chunks, at, at + len(unit))
            at += len(unit) + 1
        if block.kind == "heading" and following is not None and following.kind != "heading":
            first = following.text if following.kind == "fence" else following.lines[0]
            if following.kind in {"paragraph", "rows"}:
                first = first.split()[0]
            body_end = end + 2 + len(first)
            fits = count(text[start:body_end]) <= size
            # A fence that does not fit by itself is cut between its lines; one of these fits here.
            assert not fits or _is_in_one(chunks, start, body_end)
        start = end + 2


def _is_in_one(chunks: tuple[Chunk, ...], start: int, end: int) -> bool:
    return any(chunk.char_start <= start and end <= chunk.char_end for chunk in chunks)
