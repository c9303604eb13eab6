"""A document in, its chunks out; pure: no I/O, no clock, no randomness, no log line, no settings.

`chunk_content` is the pure function; `chunk_documents` is the stage, which runs it in a thread and checks its promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from memory_core.chunk.code import scan_code
from memory_core.chunk.code_grammars import describe_code_parser, describe_code_parsers
from memory_core.chunk.csv_rows import scan_csv
from memory_core.chunk.html import scan_html
from memory_core.chunk.json_elements import scan_json
from memory_core.chunk.markdown import scan_markdown
from memory_core.chunk.pack import pack
from memory_core.chunk.rst import scan_rst
from memory_core.chunk.structure import Structure
from memory_core.chunk.text import scan_text
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.errors import ChunkingError, InternalError
from memory_core.models import ChunkedDocument, ContentType, Document, Failure
from memory_core.ports import Core, TokenCounter

# Part of every recipe: raised when equal input gives other chunks than before.
CHUNKER_VERSION: int = 2

# Code is read by its language too.
_SCANNERS: Mapping[ContentType, Callable[[str], Structure]] = MappingProxyType(
    {
        ContentType.MARKDOWN: scan_markdown,
        ContentType.HTML: scan_html,
        ContentType.JSON: scan_json,
        ContentType.CSV: scan_csv,
        ContentType.RST: scan_rst,
        ContentType.TEXT: scan_text,
    }
)


def chunk_content(
    content: str, content_type: ContentType, options: ChunkOptions, counter: TokenCounter
) -> ChunkingResult:
    """Cut content into chunks that keep the invariants of design.md 4. Offsets count Unicode code points.

    Raises:
        ChunkingError: blank content, a lone surrogate, or sizes that cannot work together.
    """
    _check_options(options)
    if not content or content.isspace():
        raise ChunkingError("The content is blank: there is nothing to chunk. Store text with at least one character.")
    try:
        return pack(content, _scan(content, content_type, options.language), options, counter)
    except UnicodeEncodeError as error:
        raise ChunkingError(
            f"The content has a lone surrogate at character {error.start}, which is no text. Remove it."
        ) from error


def describe_recipe(content_type: ContentType, options: ChunkOptions, counter_name: str) -> str:
    """Say how a document is chunked: version, type, sizes (size, overlap, minimum) and tokenizer.

    For example `2/markdown/400-0-32/cl100k_base`. Code names what parses it, where something does, as in
    `2/code.python-0.25.0-0.26.1/400-0-32/cl100k_base`. Equal recipes and equal content give equal chunks.
    """
    parser = describe_code_parser(options.language) if content_type is ContentType.CODE else ""
    kind = f"{content_type}.{parser}" if parser else str(content_type)
    sizes = f"{options.size}-{options.overlap}-{options.minimum}"
    return f"{CHUNKER_VERSION}/{kind}/{sizes}/{counter_name}"


def describe_default_recipe(options: ChunkOptions, counter_name: str) -> str:
    """Say how a process cuts texts that name no sizes of their own: version, sizes, tokenizer and parsers of code.

    For example `2/400-0-32/cl100k_base/code-5f0c2a91`, without the last part where no parser is installed. Processes
    of equal default recipes give every document the same recipe.
    """
    parsers = describe_code_parsers()
    sizes = f"{options.size}-{options.overlap}-{options.minimum}"
    return f"{CHUNKER_VERSION}/{sizes}/{counter_name}{f'/code-{parsers}' if parsers else ''}"


async def chunk_documents(documents: Sequence[Document], *, core: Core) -> list[ChunkedDocument | Failure]:
    """Chunk every document, in one thread for the batch. The results mirror `documents`."""
    return await asyncio.to_thread(lambda: [_chunk_document(document, core.counter) for document in documents])


def _chunk_document(document: Document, counter: TokenCounter) -> ChunkedDocument | Failure:
    try:
        chunking = chunk_content(document.content, document.attributes.content_type, document.options, counter)
        _check_result(document.content, document.options, chunking)
    except (ChunkingError, InternalError) as error:
        return Failure(error=error, source_id=document.source_id)
    return ChunkedDocument(document=document, chunking=chunking)


def _scan(content: str, content_type: ContentType, language: str) -> Structure:
    if content_type is ContentType.CODE:
        return scan_code(content, language)
    return _SCANNERS[content_type](content)


def _check_options(options: ChunkOptions) -> None:
    if options.size < 1:
        raise ChunkingError(f"The chunk size is {options.size} tokens. Use at least 1.")
    if not 0 <= options.overlap < options.size:
        raise ChunkingError(
            f"The overlap of {options.overlap} tokens does not fit a chunk size of {options.size}. Use 0 or more, "
            "below the size."
        )
    if not 0 <= options.minimum <= options.size:
        raise ChunkingError(
            f"The minimum of {options.minimum} tokens does not fit a chunk size of {options.size}. Use 0 or more, "
            "up to the size."
        )


def _check_result(content: str, options: ChunkOptions, chunking: ChunkingResult) -> None:
    """Hold the promises that are cheap to check: a broken one does not throw elsewhere, it makes search worse."""
    covered, start = 0, -1
    for index, chunk in enumerate(chunking.chunks):
        kept = (
            chunk.index == index,
            chunk.text == content[chunk.char_start : chunk.char_end],
            chunk.text != "" and chunk.text == chunk.text.strip(),
            chunk.token_count <= options.size,
            chunk.char_start > start and chunk.char_end > covered,
            not content[covered : chunk.char_start].strip(),
        )
        if not all(kept):
            raise InternalError(
                f"Chunk {index} of {len(chunking.chunks)} breaks a promise of the chunker ({kept}). Report this."
            )
        covered, start = chunk.char_end, chunk.char_start
    if content[covered:].strip():
        raise InternalError(f"The chunker left text behind character {covered} uncovered. Report this.")
