"""What `embed.py` measures. In: documents of the RFC corpus, embedders and a core. Out: seconds and counts.

Seconds are wall time. What is compared runs in turns, so that a busy moment meets all of it, and the best of each
counts. Nothing here judges.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import onnxruntime
from chunk_texts import Text
from embed_edits import Edit
from embed_server import SlowProvider, Tally
from numpy.typing import NDArray
from tokenizers import Tokenizer

from memory_core.adapters.local_embedder import WINDOW_TOKENS, ModelFiles, load_local_embedder
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkOptions, readable_text
from memory_core.context import choose_basis, embedding_input, rank_words, write_context
from memory_core.models import ContentType, Outcome, StoreOutcome, StoreRequest
from memory_core.ports import Core
from memory_core.rules import default_options
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest

OURS = "local embedder"
BARE_POOL = "bare session, a thread per processor"
BARE_ALONE = "bare session, text by text"

_BATCH_DOCUMENTS = 50
_TEXTS_A_TURN = 8

Inputs = Mapping[str, NDArray[np.int64]]


def take_inputs(texts: Sequence[Text], count: int) -> list[list[str]]:
    """So many texts as a model reads them, by document: the context of the policy `prefix`, then the chunk."""
    counter, options = load_tiktoken_counter(), ChunkOptions()
    groups: list[list[str]] = []
    for number, text in enumerate(texts):
        chunks = chunk_content(text.content, text.content_type, options, counter).chunks
        basis, _ = choose_basis(f"RFC {number}", rank_words(text.content), None)
        inputs = [
            embedding_input(write_context(basis, chunk.heading_path, chunk.lead), readable_text(chunk))
            for chunk in chunks[:count]
        ]
        groups.append(inputs)
        count -= len(inputs)
        if not count:
            break
    return groups


# --- the local model --------------------------------------------------------------------------------------------------


def measure_local(texts: Sequence[str], *, turns: int) -> dict[str, float]:
    """Seconds for all texts: our embedder, and the model's session on the same windows, tokenized beforehand.

    The bare session computes no mean and no norm. It is run as our embedder runs it, on a thread a processor with one
    text each, and as it comes, with its own threads on one text at a time. A few texts at a time go in turns.
    """
    embedder = load_local_embedder()
    files = embedder._files  # noqa: SLF001 - the same file, found in the same way
    single, several = open_session(files, threads=1), open_session(files, threads=0)
    with asyncio.Runner() as runner, ThreadPoolExecutor(os.cpu_count()) as pool:

        def run_ours(few: Sequence[str]) -> None:
            runner.run(embedder.embed([few], kind="document"))

        def run_pool(windows: Sequence[Inputs]) -> None:
            list(pool.map(partial(single.run, None), windows))

        def run_alone(windows: Sequence[Inputs]) -> None:
            list(map(partial(several.run, None), windows))

        total: dict[str, float] = {}
        for start in range(0, len(texts), _TEXTS_A_TURN):
            few = texts[start : start + _TEXTS_A_TURN]
            windows = tokenize(few, files)
            work = {
                OURS: partial(run_ours, few),
                BARE_POOL: partial(run_pool, windows),
                BARE_ALONE: partial(run_alone, windows),
            }
            for name, seconds in time_in_turns(work, turns=turns).items():
                total[name] = total.get(name, 0.0) + seconds
        runner.run(embedder.close())
    return total


def tokenize(texts: Sequence[str], files: ModelFiles) -> list[Inputs]:
    """The model's input for every window of every text."""
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    room = WINDOW_TOKENS - 2
    windows: list[Inputs] = []
    for text in texts:
        begin, *tokens, end = tokenizer.encode(text).ids
        for start in range(0, max(len(tokens), 1), room):
            ids = np.array([[begin, *tokens[start : start + room], end]], dtype=np.int64)
            windows.append(
                {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            )
    return windows


def open_session(files: ModelFiles, *, threads: int) -> Any:  # noqa: ANN401 - onnxruntime has no types
    """The model as its runtime opens it; 0: as many threads as it likes."""
    runtime = cast("Any", onnxruntime)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    return runtime.InferenceSession(str(files.model), options, providers=["CPUExecutionProvider"])


def time_in_turns(work: Mapping[str, Callable[[], object]], *, turns: int) -> dict[str, float]:
    """The best seconds of each, all of them run once a turn."""
    best = dict.fromkeys(work, float("inf"))
    for _ in range(turns):
        for name, run in work.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


# --- a paid provider --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidRun:
    """One call of the embedder. `requests` are those of this call; `tally` is what the server counted in all."""

    texts: int
    requests: int
    seconds: float
    tally: Tally


async def measure_paid(groups: Sequence[Sequence[str]], server: SlowProvider, core: Core) -> PaidRun:
    """Embed all documents in one call, through the embedder that the product wires, its cache included."""
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    await core.embedder.embed([["The first request opens the connections."]], kind="query")
    began = time.perf_counter()
    result = await core.embedder.embed(groups, kind="document")
    seconds = time.perf_counter() - began
    texts = sum(map(len, groups))
    assert sum(map(len, result.groups)) == texts
    return PaidRun(texts=texts, requests=result.usage.requests, seconds=seconds, tally=server.count())


# --- edits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRun:
    """Sums over all documents: chunks, those whose text the edit changed, and the texts that were embedded for it."""

    documents: int
    chunks: int
    changed: int
    embedded: int


async def measure_edits(edits: Sequence[Edit], core: Core) -> EditRun:
    """Store every document, then its edited text, down the path. A chunk changed where its text was not there before.

    A document has as many changed chunks as there are texts (counted, not only told apart) that it did not have.
    """
    await store_all([edit.before for edit in edits], core)
    outcomes = await store_all([edit.after for edit in edits], core)
    chunks = changed = 0
    for edit, outcome in zip(edits, outcomes, strict=True):
        before, after = (count_chunks(content, core) for content in (edit.before, edit.after))
        assert after.total() == outcome.chunk_count, "these are not the chunks that were stored"
        chunks += after.total()
        changed += (after - before).total()
    return EditRun(
        documents=len(edits),
        chunks=chunks,
        changed=changed,
        embedded=sum(outcome.texts_embedded for outcome in outcomes),
    )


async def store_all(contents: Sequence[str], core: Core) -> list[StoreOutcome]:
    """Store each content as the next version of its document."""
    requests = [
        StoreRequest(
            request=StoreContentRequest(content=content, source_id=f"rfcs/{number:03}", content_type="text/markdown"),
            provenance=Provenance(channel="benchmark"),
        )
        for number, content in enumerate(contents)
    ]
    outcomes: list[StoreOutcome] = []
    for start in range(0, len(requests), _BATCH_DOCUMENTS):
        outcomes += await store_content(requests[start : start + _BATCH_DOCUMENTS], core=core)
    assert {outcome.outcome for outcome in outcomes} <= {Outcome.CREATED, Outcome.UPDATED}
    return outcomes


def count_chunks(content: str, core: Core) -> Counter[str]:
    """The texts of a document's chunks."""
    options = default_options(core.settings)
    chunks = chunk_content(content, ContentType.MARKDOWN, options, core.counter).chunks
    return Counter(chunk.text for chunk in chunks)
