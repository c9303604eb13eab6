"""What counts as structure in JSON: elements at any depth, JSON Lines, and what is no JSON at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.chunk.json_elements import (
    ELEMENTS_STRATEGY,
    LINES_STRATEGY,
    MAX_JSON_DEPTH,
    RECORDS_STRATEGY,
    scan_json,
)
from memory_core.chunk_values import ChunkingResult
from memory_core.models import ContentType

_examples = settings.get_profile(os.environ.get("HYPOTHESIS_CHUNK_PROFILE", "chunk-suite"))

_SENTENCE = "This says a few plain words about nothing at all, and then a few more."
_SERVICES = {
    "services": {
        "app": {"ports": [{"host": 8000 + port, "about": _SENTENCE} for port in range(3)], "image": _SENTENCE},
        "db": {"about": _SENTENCE, "image": "db:1"},
    }
}


def _chunk(chunk_checked: Callable[..., ChunkingResult], text: str, *, size: int) -> ChunkingResult:
    return chunk_checked(text, ContentType.JSON, size=size, minimum=1)


def _paths(result: ChunkingResult) -> list[tuple[str, ...]]:
    return [chunk.heading_path for chunk in result.chunks]


def test_the_keys_of_an_object_appear_as_paths(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Two members that do not fit together are two chunks, each under its key."""
    text = json.dumps({"first": {"about": _SENTENCE, "id": 1}, "second": {"about": _SENTENCE, "id": 2}}, indent=2)
    result = _chunk(chunk_checked, text, size=40)

    assert result.strategy == ELEMENTS_STRATEGY
    assert _paths(result) == [("first",), ("second",)]


@pytest.mark.parametrize(("indent", "size"), [(None, 40), (2, 56)])
def test_a_wrapper_of_one_key_is_in_the_path(
    chunk_checked: Callable[..., ChunkingResult], indent: int | None, size: int
) -> None:
    """What is inside `data` is found under it, the first element too."""
    members = {name: {"id": number, "about": _SENTENCE} for number, name in enumerate("ab")}
    result = _chunk(chunk_checked, json.dumps({"data": members}, indent=indent), size=size)

    assert _paths(result) == [("data", "a"), ("data", "b")]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_path_of_an_array_element_is_its_key_and_index(
    chunk_checked: Callable[..., ChunkingResult], indent: int | None
) -> None:
    """`services > app > ports[0]`."""
    paths = _paths(_chunk(chunk_checked, json.dumps(_SERVICES, indent=indent), size=48))

    assert [path for path in paths if path[-1].startswith("ports[")] == [
        ("services", "app", "ports[0]"),
        ("services", "app", "ports[1]"),
        ("services", "app", "ports[2]"),
    ]
    assert paths[-1] == ("services", "db")


def test_several_elements_of_an_array_have_the_path_of_the_array(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A path is true of the whole chunk."""
    result = _chunk(chunk_checked, json.dumps({"a": {"numbers": list(range(200))}, "b": 1}), size=64)

    assert ("a", "numbers") in _paths(result)
    assert all(path in {("a", "numbers"), ("a",), ()} for path in _paths(result))


def test_arrays_in_arrays_are_counted_at_each_level(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A top-level array has no key, so its elements are `[0]`, and `[1][0]` inside of one."""
    text = json.dumps([["x " * 20], [["y " * 60, "z " * 60], {"deep": [["w " * 60]]}]])
    paths = _paths(_chunk(chunk_checked, text, size=40))

    assert paths[0] == ("[0][0]",)
    assert ("[1][0][0]",) in paths
    assert ("[1][0][1]",) in paths
    assert ("[1][1]", "deep[0][0]") in paths


def test_the_pieces_of_a_long_string_are_under_its_key(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A value that no chunk holds is cut inside and keeps its path."""
    result = _chunk(chunk_checked, json.dumps({"id": 7, "body": f"{_SENTENCE} " * 20, "end": True}), size=64)

    assert len([path for path in _paths(result) if path == ("body",)]) > 2


def test_records_of_an_array_stay_whole_where_they_fit(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """Two printed records, each in one chunk with its id."""
    records = [{"id": f"record-{number}", "about": _SENTENCE, "tags": ["a", "b"]} for number in (1, 2)]
    result = _chunk(chunk_checked, json.dumps(records, indent=2), size=60)

    assert [re.findall(r'"id": "record-(\d)"', chunk.text) for chunk in result.chunks] == [["1"], ["2"]]
    assert _paths(result) == [("[0]",), ("[1]",)]


@pytest.mark.parametrize("indent", [None, 1])
def test_a_chunk_begins_with_an_element(chunk_checked: Callable[..., ChunkingResult], indent: int | None) -> None:
    """Never with a comma or a closing bracket, as long as elements fit."""
    text = json.dumps(
        [{"id": number, "in": {"a": [1, 2, {"b": None}], "c": {}}} for number in range(40)], indent=indent
    )
    for size in (32, 48, 100):
        for chunk in _chunk(chunk_checked, text, size=size).chunks:
            assert chunk.text[0] not in ",]}"


def test_json_lines_are_whole_records(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """One value a line: cut between the lines, inside of one only where it is too big."""
    lines = [json.dumps({"id": number, "about": _SENTENCE}) for number in range(6)]
    lines[3] = json.dumps({"id": 3, "long": [_SENTENCE * 2] * 8})
    result = _chunk(chunk_checked, "\n\n".join(lines) + "\n", size=40)

    assert result.strategy == RECORDS_STRATEGY
    for number in (0, 1, 2, 4, 5):
        assert (lines[number], (f"[{number}]",)) in [(chunk.text, chunk.heading_path) for chunk in result.chunks]
    assert ("[3]", "long[4]") in _paths(result)


def test_what_is_no_json_is_cut_by_lines(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A comma too many: three lines, and the strategy says so."""
    text = '{\n  "about": "' + _SENTENCE + '",\n}'
    result = _chunk(chunk_checked, "\n".join([text] * 4), size=32)

    assert result.strategy == LINES_STRATEGY
    assert all(path == () for path in _paths(result))


_DEEPEST = "[" * MAX_JSON_DEPTH + "1" + "]" * MAX_JSON_DEPTH


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ('"a top-level scalar"', ELEMENTS_STRATEGY),
        (" 12.5e3\r\n", ELEMENTS_STRATEGY),
        ('\ufeff{"a": 1}', ELEMENTS_STRATEGY),
        ('{"a": NaN, "a": -Infinity}', ELEMENTS_STRATEGY),
        ("9" * 5_000, ELEMENTS_STRATEGY),
        ('"\u2028\u2029\x7f"', ELEMENTS_STRATEGY),
        (_DEEPEST, ELEMENTS_STRATEGY),
        ('{"a": 1}', ELEMENTS_STRATEGY),
        ("1\n2", RECORDS_STRATEGY),
        ('\ufeff{"a": 1}\r\n \r\n[\t]\r\n', RECORDS_STRATEGY),
        ("1\r2", RECORDS_STRATEGY),
        (f"[{_DEEPEST}]", LINES_STRATEGY),
        ('{"a": 1}\n{"b":\n2}', LINES_STRATEGY),
        ('{"a": 1}\n{"b": 2},', LINES_STRATEGY),
        ('{"a": 1},\n{"b": 2}', LINES_STRATEGY),
        ("[\n1]\n2", LINES_STRATEGY),
        ('{"a": 1} {"b": 2}', LINES_STRATEGY),
        ("// a comment\n{}", LINES_STRATEGY),
        ("{'a': 1}", LINES_STRATEGY),
        ("1\u20282", LINES_STRATEGY),
        ("\xa01", LINES_STRATEGY),
        ("text", LINES_STRATEGY),
        (" \n ", LINES_STRATEGY),
        ("", LINES_STRATEGY),
    ],
)
def test_the_strategy_says_what_the_text_is(text: str, strategy: str) -> None:
    """JSON, JSON Lines, or neither."""
    assert scan_json(text).strategy == strategy


_TOKENS = [
    *("{", "}", "[", "]", ",", ":", "[]", "{ }", '{"k":', '"k":1', ',"b":2', "[1,2]", '"a"', '""', '"\\n"', '"\\x"'),
    *('"\\ud800"', '"\\u12"', '"', "\\", "0", "-0", "01", "1.5", "1.", ".5", "1e5", "1E+5", "1e", "-", "--1", "+1"),
    *("true", "True", "null", "nul", "NaN", "-NaN", "Infinity", "-Infinity", "\n", "\n", " ", "\t", "\r", "\r\n"),
    *("a", "\u2028", "\x0b", "\xa0", '"\t"', "\ufeff"),
]
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)


@st.composite
def _nearly_json(draw: st.DrawFn) -> str:
    """A value as text, or several lines of them, with a few characters taken out, put in or moved."""
    layout = draw(st.sampled_from([None, 0, 1]))
    texts = [json.dumps(value, indent=layout) for value in draw(st.lists(_values, min_size=1, max_size=3))]
    text = draw(st.sampled_from(["\n", "\r\n", " "])).join(texts)
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(st.sampled_from(["", *_TOKENS])) + text[start + draw(st.integers(0, 2)) :]
    return text


@_examples
@given(text=st.one_of(_nearly_json(), st.lists(st.sampled_from(_TOKENS), max_size=8).map("".join)))
def test_the_verdict_is_that_of_the_standard_library(text: str) -> None:
    """Whatever the text is, it counts as JSON exactly where `json.loads` reads it, whole or line by line."""
    lines = [line for line in re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")) if line.strip(" \t")]
    if _is_json(text.removeprefix("\ufeff")):
        expected = ELEMENTS_STRATEGY
    else:
        expected = RECORDS_STRATEGY if len(lines) > 1 and all(map(_is_json, lines)) else LINES_STRATEGY

    assert scan_json(text).strategy == expected


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ('"plain"', "plain"),
        (r'"tab\tand \"quotes\" and \u00e9"', 'tab and "quotes" and é'),
        (r'"\ud83d\ude80"', "🚀"),
        (r'"half \ud83d"', "half \ufffd"),
        (r'"nul \u0000"', "nul \ufffd"),
        ('""', '""'),
        ('"  "', '""'),
    ],
)
def test_a_key_is_read_as_a_reader_sees_it(chunk_checked: Callable[..., ChunkingResult], key: str, name: str) -> None:
    """Escapes are decoded; what no database takes is replaced; an empty key shows its quotes."""
    text = f'{{{key}: [{json.dumps(_SENTENCE)}, 1], "other": {json.dumps(_SENTENCE)}}}'

    assert _paths(_chunk(chunk_checked, text, size=36))[0][0].removesuffix("[0]") == name


def test_the_index_of_an_element_shows_behind_a_long_key(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A key of a thousand letters is shortened and its index is not."""
    paths = _paths(_chunk(chunk_checked, json.dumps({"k" * 1_000: [_SENTENCE, _SENTENCE]}), size=40))

    assert paths[-1][0].endswith("…[1]")


def test_deep_elements_are_one_block(chunk_checked: Callable[..., ChunkingResult]) -> None:
    """A path has at most fifty names, however deep the text is."""
    depth = 200
    text = "".join(f'{{"k{level}": [' for level in range(depth)) + json.dumps([_SENTENCE] * 9) + "]}" * depth
    result = _chunk(chunk_checked, text, size=64)

    assert result.strategy == ELEMENTS_STRATEGY
    assert max(map(len, _paths(result))) <= 50


@st.composite
def _documents(draw: st.DrawFn) -> object:
    """An object or array of any shape in which every leaf is another string."""
    count = 0

    def grow(depth: int) -> object:
        nonlocal count
        kind = draw(st.sampled_from(["leaf", "array", "object"] if depth else ["array", "object"]))
        if kind == "leaf" or depth == 5:
            count += 1
            return f"<{count}> " + "word " * draw(st.sampled_from([0, 1, 8, 50]))
        children = [grow(depth + 1) for _ in range(draw(st.integers(0, 5)))]
        return children if kind == "array" else {f"key{number}": child for number, child in enumerate(children)}

    return grow(0)


@_examples
@given(document=_documents(), size=st.integers(32, 120), indent=st.sampled_from([None, 0, 2]))
def test_a_path_leads_to_what_the_chunk_holds(
    chunk_checked: Callable[..., ChunkingResult], document: object, size: int, indent: int | None
) -> None:
    """Whoever follows the keys and indexes from the top finds every value of the chunk there."""
    for chunk in _chunk(chunk_checked, json.dumps(document, indent=indent), size=size).chunks:
        place = document
        for name in re.findall(r"key\d+|\[\d+\]", "".join(chunk.heading_path)):
            place = cast("Any", place)[name if name.startswith("key") else int(name[1:-1])]
        assert set(re.findall(r"<\d+>", chunk.text)) <= set(re.findall(r"<\d+>", json.dumps(place)))
        for name in chunk.heading_path:
            assert re.fullmatch(r"key\d+(?:\[\d+\])*|(?:\[\d+\])+", name)


_HOSTILE: dict[str, Callable[[int], str]] = {
    "minified": lambda chars: "[" + '{"id":17,"name":"abc","tags":["x","y"]},' * (chars // 40) + "0]",
    "printed": lambda chars: json.dumps([{"id": 17, "tags": ["x", "y"]}] * (chars // 70), indent=2),
    "numbers": lambda chars: "[" + "1," * (chars // 2) + "1]",
    "empty arrays": lambda chars: "[" + "[]," * (chars // 3) + "1]",
    "openers": lambda chars: "[" * chars,
    "nested": lambda chars: "[" + ("[" * 40 + "]" * 40 + ",") * (chars // 81) + "0]",
    "members without end": lambda chars: '{"a":' * (chars // 5),
    "members": lambda chars: '{"a":1},' * (chars // 8),
    "quotes": lambda chars: '"' * chars,
    "escapes": lambda chars: '"\\\\' * (chars // 3),
    "records": lambda chars: "1\n" * (chars // 2),
    "long key": lambda chars: '{"' + "k" * (chars // 2) + '":[' + "[1]," * (chars // 8) + "1]}",
    "blanks": lambda chars: "[1" + " " * chars + "]",
}


@pytest.mark.parametrize("kind", list(_HOSTILE))
def test_time_is_linear_on_hostile_json(kind: str, assert_linear: Callable[..., None]) -> None:
    """However long a text is, each character costs the same."""
    assert_linear(scan_json, _HOSTILE[kind], chars=50_000)
