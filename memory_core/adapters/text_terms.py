"""The words of the text leg. In: text, any language, prose or code. Out: terms. It may not do I/O or keep the text.

One analysis serves index and query: the index takes every term, a query the telling ones among the same terms.

- a word is kept whole and, where it is an identifier, in its parts too: `readPrivateField` is found by `private field`;
- case, width and the accents of Latin and Greek letters are folded, then the word is stemmed in the language of
  `SEARCH_LANGUAGE`;
- `C++` and `C#` are words of their own;
- scripts that are written without blanks are cut in single characters and pairs of neighbours.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

import regex
import Stemmer

from memory_core.adapters.embedded_stop_words import read_stop_words
from memory_core.errors import ConfigError

TERMS_VERSION: Final = 1
"""Part of what an index must be rebuilt for: raise it with every change of the terms."""

_LONGEST_WORD_CHARS = 128  # a longer one is data (base64, a minified line): kept whole and cut here, not taken apart
_CACHED_WORDS = 200_000
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_CURLY_APOSTROPHE = "\u2019"
_WORD = regex.compile(rf"\w+(?:['{_CURLY_APOSTROPHE}]\w+|\+\+|#(?!\w))?")
_RUN = regex.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|[^{_UNSPACED}]+")
_PART = regex.compile(r"\p{Lu}+(?=\p{Lu}\p{Ll})|\p{Lu}?[\p{Ll}\p{M}]+|\p{Lu}+|\p{Nd}+|[\p{Lo}\p{Lm}\p{M}]+")
_ACCENTED_SCRIPT = regex.compile(r"[\p{Latin}\p{Greek}]")


@dataclass(frozen=True, slots=True)
class _WordTerms:
    """What one written word becomes: in the index, and in a query with and without its stop words."""

    indexed: tuple[str, ...]
    asked: tuple[str, ...]
    telling: tuple[str, ...]


class TextTerms:
    """The analysis of one language. Safe to share between threads: a word is analysed once, under a lock."""

    def __init__(self, language: str) -> None:
        """Raises ConfigError for a language without a stemmer; the message lists those that have one."""
        self.language: Final = language.strip().lower()
        known = cast("list[str]", Stemmer.algorithms())
        if self.language not in known:
            raise ConfigError(f"SEARCH_LANGUAGE: no stemmer has this name; use one of {', '.join(sorted(known))}.")
        self._stemmer = Stemmer.Stemmer(self.language, 0)  # our own cache is in front of it
        self._stop_words = read_stop_words(self.language)
        self._cache: dict[str, _WordTerms] = {}
        self._lock = threading.Lock()  # a Stemmer object is not safe to share

    def index_terms(self, text: str) -> list[str]:
        """Every term of a text, in order and with repeats: BM25 counts them."""
        terms: list[str] = []
        for word in _WORD.findall(text):
            terms.extend(self._read_word(word).indexed)
        return terms

    def query_terms(self, text: str) -> tuple[str, ...]:
        """The different terms of a question in order, without its stop words unless nothing else is there."""
        words = [self._read_word(word) for word in _WORD.findall(text)]
        return _unique(term for word in words for term in word.telling) or _unique(
            term for word in words for term in word.asked
        )

    def _read_word(self, word: str) -> _WordTerms:
        found = self._cache.get(word)
        if found is None:
            with self._lock:
                found = self._analyse(word)
                if len(word) <= _LONGEST_WORD_CHARS:
                    if len(self._cache) >= _CACHED_WORDS:
                        self._cache.clear()
                    self._cache[word] = found
        return found

    def _analyse(self, word: str) -> _WordTerms:
        indexed: list[str] = []
        asked: list[str] = []
        telling: list[str] = []
        for run in _RUN.finditer(unicodedata.normalize("NFKC", word)):
            if run.group("unspaced"):
                characters, pairs = _cut_unspaced(run.group())
                indexed += characters + pairs
                asked += pairs or characters
                telling += pairs or characters
            else:
                words = self._cut_word(run.group())
                terms = [self._stem(part) for part in words]
                indexed += terms
                asked += terms
                if words[0] not in self._stop_words:
                    telling += [term for part, term in zip(words, terms, strict=True) if part not in self._stop_words]
        return _WordTerms(tuple(indexed), tuple(asked), tuple(telling))

    def _cut_word(self, word: str) -> list[str]:
        """The whole word first, then its parts where it has several."""
        whole = fold(word)[:_LONGEST_WORD_CHARS]
        if len(word) > _LONGEST_WORD_CHARS:
            return [whole]
        parts = [fold(part) for part in _PART.findall(word)]
        # A single letter is no part worth finding: the t of don't, the l of l'homme.
        return [whole, *(part for part in parts if part != whole and (len(part) > 1 or part.isdigit()))]

    def _stem(self, word: str) -> str:
        return cast("str", self._stemmer.stemWord(word))


def fold(word: str) -> str:
    """One spelling for all ways to write a word: case folded, accents of Latin and Greek letters dropped."""
    folded = word.casefold().replace(_CURLY_APOSTROPHE, "'")
    if folded.isascii():
        return folded
    kept: list[str] = []
    after_accented = False
    for char in unicodedata.normalize("NFD", folded):
        if not unicodedata.combining(char):
            after_accented = _ACCENTED_SCRIPT.match(char) is not None
            kept.append(char)
        elif not after_accented:  # й is not и, and a vowel sign of Hindi is no accent
            kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept))


def _cut_unspaced(run: str) -> tuple[list[str], list[str]]:
    """Single characters (found by a query of one character) and pairs (by any longer one)."""
    return list(run), [run[start : start + 2] for start in range(len(run) - 1)]


def _unique(terms: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(terms))
