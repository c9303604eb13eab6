"""A chunk size in, the splitters to measure out: ours and those of other projects, each a function from text to chunks.

The others come from `benchmarks/requirements.lock`; `make bench-chunk` installs it. No splitter may ask the network:
their token lengths come from our vocabulary, or from one that the splitter carries.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chunk_texts import Text

from memory_core.adapters.tiktoken_counter import load_encoding, load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkOptions

OURS = "ours"
BARE = "bare pass"
NO_TOKENS = "semantic, characters"
"""The one that counts characters: it does not keep a size in tokens, and so saves the work of counting them."""
# A token of English has about four characters; the splitter that counts characters gets as many as the others.
_CHARS_PER_TOKEN = 4
# The model whose encoding is cl100k_base, as semantic-text-splitter knows it by name.
_MODEL = "gpt-4"


@dataclass(frozen=True, slots=True)
class Splitter:
    """A name for the tables, and the work that is measured."""

    name: str
    cut: Callable[[Text], Sequence[str]]


def bare_pass() -> Splitter:
    """No splitter: the least that any splitter with exact token counts must do, once."""
    encoding = load_encoding()

    def encode(text: Text) -> Sequence[str]:
        encoding.encode_to_numpy(text.content, disallowed_special=())
        return ()

    return Splitter(BARE, encode)


def our_splitter(size: int) -> Splitter:
    """The product's chunker with its other options at their defaults."""
    counter = load_tiktoken_counter()

    def cut(text: Text) -> Sequence[str]:
        options = ChunkOptions(size=size, language=text.language)
        chunking = chunk_content(text.content, text.content_type, options, counter)
        return [chunk.text for chunk in chunking.chunks]

    return Splitter(OURS, cut)


def peer_splitters(size: int) -> tuple[Splitter, ...]:
    """The splitters of other projects, without overlap.

    Raises:
        SystemExit: they are not installed.
    """
    langchain, semantic = _import_peer("langchain_text_splitters"), _import_peer("semantic_text_splitter")
    encoding = load_encoding()

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    sizes = {"chunk_size": size, "chunk_overlap": 0, "length_function": count}
    return (
        _splitter("langchain, recursive", langchain.RecursiveCharacterTextSplitter(**sizes).split_text),
        _splitter("langchain, Markdown", langchain.MarkdownTextSplitter(**sizes).split_text),
        _splitter(NO_TOKENS, semantic.MarkdownSplitter(size * _CHARS_PER_TOKEN).chunks),
        _splitter("semantic, tiktoken", semantic.MarkdownSplitter.from_tiktoken_model(_MODEL, size).chunks),
    )


def _splitter(name: str, split: Callable[[str], Sequence[str]]) -> Splitter:
    return Splitter(name, lambda text: split(text.content))


def _import_peer(name: str) -> Any:  # noqa: ANN401 - these packages are not in the environment of the type checker
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{error}. The other splitters have an environment of their own: run `make {_TARGETS}`."
        ) from error


_TARGETS = "bench-chunk` or `make bench-chunk-quality"
