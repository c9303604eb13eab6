"""Strategies of generated texts out: ordinary structure of each type, whole or broken, and what breaks other splitters.

`texts(type)` draws lines and pieces of that type, repeated or not, with all kinds of line ends, or a well-formed text
of it that may then be damaged; `sizes()` draws every legal combination of size, overlap and minimum.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from types import MappingProxyType

from hypothesis import strategies as st

from memory_core.chunk.code_kinds import KINDS
from memory_core.models import ContentType
from tests.unit.chunk.hostile_fragments import FRAGMENTS, HOSTILE, LONG_RUNS

MIN_SIZE, MAX_SIZE, MAX_SHARED = 32, 8_192, 4_096

_ALL = [line for lines in (*FRAGMENTS.values(), HOSTILE) for line in lines]
_ENDS = ("\n", "\n", "\n", "\n\n", "\r\n", "\r", "\n \n", "\r\n\r\n", "")
_LONG_RUN_ONE_IN = 60

_any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
_words = st.lists(st.sampled_from((*"memory search agent chunk token of the and".split(), *HOSTILE)), max_size=6)
_phrase = st.one_of(_words.map(" ".join), _any_text)


def languages() -> st.SearchStrategy[str]:
    """A language with a grammar, one without, or none."""
    return st.sampled_from(("", "python", "python", "javascript", "unknown", *KINDS))


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, int]:
    """Every legal combination, the small ones more often."""
    size = draw(st.one_of(st.integers(MIN_SIZE, 128), st.integers(MIN_SIZE, MAX_SIZE)))
    overlap = draw(st.one_of(st.just(0), st.integers(0, min(size - 1, MAX_SHARED))))
    minimum = draw(st.one_of(st.just(1), st.integers(0, min(size, MAX_SHARED))))
    return {"size": size, "overlap": overlap, "minimum": minimum}


@st.composite
def texts(draw: st.DrawFn, content_type: ContentType) -> str:
    """A text for the type; never blank."""
    if draw(st.integers(0, _LONG_RUN_ONE_IN)) == _LONG_RUN_ONE_IN:
        text = draw(lines(content_type, most=3)) + draw(st.sampled_from(LONG_RUNS)) + draw(lines(content_type, most=3))
    elif content_type in _WHOLE and draw(st.booleans()):
        whole = _WHOLE[content_type]
        text = _damage(draw, draw(whole)) if draw(st.booleans()) else draw(whole)
    else:
        text = draw(lines(content_type, most=25))
    return text if text.strip() else text + "x"


@st.composite
def lines(draw: st.DrawFn, content_type: ContentType, *, most: int) -> str:
    """Lines and pieces of the type and, less often, of all others, repeated or not, with line ends of all kinds."""
    own = st.sampled_from(FRAGMENTS[content_type])
    line = st.one_of(own, own, own, st.sampled_from(HOSTILE), st.sampled_from(_ALL), _any_text)
    parts: list[str] = []
    for _ in range(draw(st.integers(1, most))):
        parts += [draw(line) * draw(st.one_of(st.just(1), st.integers(1, 12))), draw(st.sampled_from(_ENDS))]
    return "".join(parts)


def _damage(draw: st.DrawFn, text: str) -> str:
    """Cut a piece out of the text and put something else there."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 40, len(text))))
    return text[:start] + draw(st.one_of(st.just(""), st.sampled_from(_ALL), _any_text)) + text[end:]


@st.composite
def _json_texts(draw: st.DrawFn) -> str:
    scalar = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _phrase)
    value = st.recursive(
        scalar, lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(_phrase, inner, max_size=6))
    )
    indent, is_ascii = draw(st.sampled_from((None, None, 2, "\t"))), draw(st.booleans())
    values = draw(st.one_of(value.map(lambda one: [one]), st.lists(value, min_size=2, max_size=8)))
    if len(values) > 1:
        return "\n".join(json.dumps(one, ensure_ascii=is_ascii) for one in values)
    return json.dumps(values[0], ensure_ascii=is_ascii, indent=indent)


@st.composite
def _csv_texts(draw: st.DrawFn) -> str:
    width = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(_phrase, min_size=width, max_size=width), min_size=1, max_size=12))
    target = io.StringIO()
    writer = csv.writer(
        target, delimiter=draw(st.sampled_from(",;\t|")), lineterminator=draw(st.sampled_from(("\n", "\r\n")))
    )
    writer.writerow([f"column {number}" for number in range(width)])
    writer.writerows(rows * draw(st.integers(1, 4)))
    return target.getvalue()


@st.composite
def _html_texts(draw: st.DrawFn) -> str:
    """Elements that are closed, inside each other."""
    name = st.sampled_from("div section p ul li h1 h2 h3 table tr td th thead pre em a script blockquote dl dt".split())
    tree = st.recursive(
        _phrase, lambda inner: st.tuples(name, st.lists(inner, max_size=5)).map(_write_element), max_leaves=25
    )
    return "".join(draw(st.lists(tree, min_size=1, max_size=4)))


def _write_element(element: tuple[str, list[str]]) -> str:
    name, inner = element
    return f"<{name}>{''.join(inner)}</{name}>"


@st.composite
def _rst_texts(draw: st.DrawFn) -> str:
    """Sections with adornments of their titles' length, and blocks with indented bodies."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 12))):
        title, mark = draw(st.sampled_from(("Title", "A longer one", "漢字"))), draw(st.sampled_from("=-~^"))
        phrase = draw(_phrase)
        parts.append(
            draw(
                st.sampled_from(
                    (f"{title}\n{mark * 12}", phrase, f".. note:: {title}\n\n   {phrase}", f"- {phrase}\n- {title}")
                )
            )
        )
    return "\n\n".join(parts)


_WHOLE: Mapping[ContentType, st.SearchStrategy[str]] = MappingProxyType(
    {
        ContentType.JSON: _json_texts(),
        ContentType.CSV: _csv_texts(),
        ContentType.HTML: _html_texts(),
        ContentType.RST: _rst_texts(),
    }
)
