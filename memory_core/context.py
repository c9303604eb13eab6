"""A document's text, title and headings in, the context of its chunks out. Pure: no I/O, no clock, no settings.

A context goes ahead of a chunk in the embedding input and beside it in the text index; the stored text is never
touched. It is made of the title, the heading path and the document's most telling words. Title and words are a
recorded value (`ContextBasis`): an edit that moves the words a little must not move every vector of the document.

Whoever changes what these functions return for what is stored changes the policy's version with it: it is part of every
fingerprint. (The lead came without: whatever has one is chunked anew, because its recipe changed.)
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from memory_core.embedding_settings import ContextPolicy
from memory_core.models import ContextBasis

_VERSIONS: Final[Mapping[ContextPolicy, str]] = MappingProxyType(
    {
        ContextPolicy.PREFIX: "prefix-1",
        ContextPolicy.NATIVE: "native-1",
        ContextPolicy.NONE: "none-1",
        ContextPolicy.LLM: "llm-1",
    }
)

CONTEXT_WORDS: Final = 12  # in a context; worth 3.7 points of pass@5 on contextual-eval
TELLING_WORDS: Final = 24  # a recorded word may sink so far before it counts as replaced
MAX_CONTEXT_TITLE_CHARS: Final = 120
MAX_CONTEXT_PATH_CHARS: Final = 160
MAX_CONTEXT_LEAD_CHARS: Final = 240  # some thirty names of columns; in all a context stays under 1,000 characters

_MINIMUM_WORD_CHARS = 3
_WORD = re.compile(r"\b\w{3,32}\b")  # a longer run is data: a key, a hash, a sentence without blanks
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")

_UNDERLINED_HEADING = re.compile(
    r"^(?! {0,3}(?:[-*+>#|`~]|\d+[.)])) {0,3}(\S[^\n]*)\n {0,3}(?:=+|-{2,})[ \t]*$", re.MULTILINE
)
_MARKED_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+([^\n]*)$", re.MULTILINE)
_HTML_HEADING = re.compile(r"(</?h)[1-6](?=[\s>/])", re.IGNORECASE)

# English words, then words of programming languages: frequent everywhere, telling nowhere.
_FREQUENT_WORDS = """
about above after again against all also always and another any are around because been before being below between
both but can cannot com could did does doing done down during each either else end even every example few first for
from further get gets give given got had has have having her here hers him his how however http https into its itself
just know like made make makes many may means might more most much must need needs new nor not now off often once one
only onto org other our out over own per possible rather same say see set shall she should simply since some still
such take than that the their them then there therefore these they thing things this those through thus too two under
until upon use used uses using very via want was way well were what when where whether which while who whom whose why
will with within without would www yet you your
async await bool break case catch class const continue crate def default del elif enum err except export extends
extern false final finally float foo function impl implements import int interface lambda let loop match mod move mut
namespace nil none null package pass private protected pub public raise ref return self static str string struct super
switch template throw trait true try type typedef typename undefined unsafe unsigned usize var vec void yield
"""
_STOP_WORDS: Final = frozenset(_FREQUENT_WORDS.split())


def name_policy(policy: ContextPolicy, chat_model: str | None = None) -> str:
    """The policy and its version as a fingerprint has it; contexts of two chat models are two policies."""
    version = _VERSIONS[policy]
    return f"{version}:{chat_model}" if policy is ContextPolicy.LLM else version


def rank_words(content: str, limit: int = TELLING_WORDS) -> tuple[str, ...]:
    """The document's most telling words in lower case, most telling first; equal ranks in alphabetical order.

    A word's rank is its count within the document times the root of its length: long words are rare ones, so this
    needs no corpus. It was better than plain counts on contextual-eval (hybrid pass@5/10/20 85.5/93.1/94.5 against
    83.7/91.7/94.3). A compound (`read_body`, `readBody`) counts for itself and for its parts.
    """
    counts: Counter[str] = Counter()
    for word, count in Counter(_WORD.findall(content)).items():
        for form in _forms_of(word):
            counts[form] += count
    # The squares rank alike and are whole numbers: equal on every platform.
    ranked = ((-count * count * len(word), word) for word, count in counts.items() if word not in _STOP_WORDS)
    return tuple(word for _, word in heapq.nsmallest(limit, ranked))


def choose_basis(title: str, ranked: Sequence[str], recorded: ContextBasis | None) -> tuple[ContextBasis, bool]:
    """The basis of the vectors, and whether it is stale. `ranked` is what `rank_words` said of the document as it is.

    Without a recorded basis it is a fresh one. A recorded one stays in use, whatever changed: new contexts would mean
    new vectors for the whole document. It is stale once the title is another, one of its words is no longer among the
    most telling, or the document now has more than twice as many words to offer.
    """
    title = _one_line(title)
    fresh = ContextBasis(title=title, words=tuple(sorted(ranked[:CONTEXT_WORDS])))
    if recorded is None:
        return fresh, False
    fits = (
        recorded.title == title
        and set(recorded.words) <= set(ranked[:TELLING_WORDS])
        and 2 * len(recorded.words) >= len(fresh.words)
    )
    return recorded, not fits


def write_context(basis: ContextBasis, heading_path: Sequence[str], lead: str = "") -> str:
    """The context of a chunk: title, heading path, lead and words, a line each, under 1,000 characters in all.

    Of a long path the innermost headings stay; a heading that repeats the title says nothing new. Of a long lead (the
    header row of the table that the chunk goes on with) the first columns stay.
    """
    title = basis.title[:MAX_CONTEXT_TITLE_CHARS].rstrip()
    headings = [text for heading in heading_path if (text := _one_line(heading)) and text != basis.title]
    path = " > ".join(headings)
    if len(path) > MAX_CONTEXT_PATH_CHARS:
        path = path[-MAX_CONTEXT_PATH_CHARS:].lstrip(" >")
    columns = _one_line(lead)[:MAX_CONTEXT_LEAD_CHARS].rstrip()
    return "\n".join(line for line in (title, path, columns, " ".join(basis.words)) if line)


def embedding_input(context: str, chunk_text: str) -> str:
    """What the model reads of a chunk: its context, then its text with all headings marked alike.

    A section that moves one level down keeps its input, and with it its vector. Only the input is changed. Of a chunk
    that shows nothing to a reader the context alone is left.
    """
    if not chunk_text or chunk_text.isspace():
        return context
    text = _UNDERLINED_HEADING.sub(r"# \1", chunk_text)
    text = _MARKED_HEADING.sub(_mark_alike, text)
    text = _HTML_HEADING.sub(r"\1", text)
    return f"{context}\n\n{text}" if context else text


def _forms_of(word: str) -> Iterator[str]:
    """The forms that an occurrence counts for: none for a number, itself and its parts for a compound."""
    if word.islower() and word.isalpha():
        yield word
        return
    whole = word.strip("_").lower()
    if len(whole) < _MINIMUM_WORD_CHARS or whole.isdigit():
        return
    yield whole
    parts = {part.lower() for part in _PART.findall(word)}
    if len(parts) > 1:
        yield from (part for part in parts if len(part) >= _MINIMUM_WORD_CHARS)


def _mark_alike(heading: re.Match[str]) -> str:
    text = heading[1].rstrip()
    bare = text.rstrip("#")
    # Closing marks stand behind a blank; the sharp of `C#` does not.
    return f"# {bare.rstrip() if not bare or bare[-1].isspace() else text}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
