"""The rules of one request: what is accepted, what is told, and that nothing of the caller's is repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.chunk_values import ChunkOptions
from memory_core.errors import ValidationError
from memory_core.models import ContentType
from memory_core.rules import CheckedRequest, check_request, normalise_text
from memory_core.store_request import MAX_CONTENT_CHARS, StoreContentRequest

DEFAULTS = ChunkOptions(size=400, overlap=0, minimum=32)


def check(
    content: str = "words", *, defaults: ChunkOptions = DEFAULTS, limit: int | None = None, **fields: Any
) -> CheckedRequest:
    return check_request(StoreContentRequest(content=content, **fields), defaults=defaults, max_input_tokens=limit)


def problems_of(content: str = "words", *, limit: int | None = None, **fields: Any) -> str:
    with pytest.raises(ValidationError) as refusal:
        check(content, limit=limit, **fields)
    return refusal.value.message


def nest(depth: int, leaf: object) -> dict[str, Any]:
    """An object of so many levels, the innermost holding the leaf."""
    value: dict[str, Any] = {"k": leaf}
    for _ in range(depth - 1):
        value = {"k": value}
    return value


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "content: is empty"),
        (" \t\r\n\u2028", "content: is blank"),
        ("\ufeff", "content: is blank"),
        ("a\x00b", "content: has a NUL (U+0000) at character 1; remove it"),
        ("ab\ud800c", "content: has half a surrogate pair at character 2; encode it as UTF-8 text"),
        ("x" * (MAX_CONTENT_CHARS + 1), "content: has 5,000,001 characters, at most 5,000,000 are accepted"),
    ],
)
def test_a_text_that_cannot_be_remembered_is_refused_with_the_place(content: str, expected: str) -> None:
    """Empty, blank, too long, NUL, lone surrogate."""
    assert expected in problems_of(content)


@pytest.mark.parametrize("content", ["\U0001f469\u200d\U0001f467", "a\u2028b\x85c\x0c", "x" * MAX_CONTENT_CHARS, "0"])
def test_a_strange_text_is_kept_as_it_is(content: str) -> None:
    """Only line ends and one leading BOM are touched."""
    assert check(content).content == content


def test_a_text_is_normalised_once() -> None:
    """One BOM goes, CRLF and CR become LF; a second run changes nothing."""
    assert normalise_text("\ufeff\ufeffa\r\nb\rc\n\r\n") == "\ufeffa\nb\nc\n\n"
    assert check("\ufeffa\r\nb").content == "a\nb"


@given(text=st.text(alphabet="a\r\n\ufeff ", max_size=30))
def test_a_normalised_text_has_one_kind_of_line_end(text: str) -> None:
    """For every mixture."""
    once = normalise_text(text)
    assert "\r" not in once
    assert once.removeprefix("\ufeff") == normalise_text(once)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"title": "x" * 513}, "title: has 513 characters, at most 512 are accepted"),
        ({"title": "  a\x00"}, "title: has a NUL (U+0000) at character 3"),
        ({"uri": "x" * 2_049}, "uri: has 2,049 characters, at most 2,048 are accepted"),
        ({"uri": "\udfff"}, "uri: has half a surrogate pair at character 0"),
        ({"agent": "x" * 129}, "agent: has 129 characters, at most 128 are accepted"),
        ({"session_id": "x" * 129}, "sessionId: has 129 characters, at most 128 are accepted"),
        ({"source_id": "x" * 257}, "sourceId: has 257 characters, at most 256 are accepted"),
        ({"source_id": "-a"}, "sourceId: must begin with a letter or digit"),
        ({"source_id": "a b"}, "sourceId: must begin with a letter or digit"),
        ({"source_id": "\ud800"}, "sourceId: must begin with a letter or digit"),
        ({"content_type": "pdf"}, "contentType: is not known; accepted are markdown, text, code, html, json, rst, csv"),
        ({"tags": ["a", "A", " "]}, "tags: number 3 must have 1 to 64 characters"),
        ({"tags": ["x" * 65]}, "tags: number 1 must have 1 to 64 characters"),
        ({"tags": ["a", "b\x00"]}, "tags: number 2 has a NUL (U+0000) at character 1"),
        ({"tags": [str(n) for n in range(51)]}, "tags: 51 were given, at most 50 are accepted"),
        ({"chunk_size_tokens": 31}, "chunkSizeTokens: must be 32 to 8,192"),
        ({"chunk_size_tokens": 8_193}, "chunkSizeTokens: must be 32 to 8,192"),
        ({"chunk_overlap_tokens": -1}, "chunkOverlapTokens: must be 0 to 4,096"),
        ({"chunk_size_tokens": 64, "chunk_overlap_tokens": 64}, "chunkOverlapTokens: must be below the chunk size"),
        ({"chunk_overlap_tokens": 400}, "chunkOverlapTokens: must be below the chunk size, which is 400"),
    ],
)
def test_a_bad_argument_is_named_with_what_is_accepted(fields: Mapping[str, Any], expected: str) -> None:
    """One sentence an argument, by its JSON name."""
    assert expected in problems_of(**fields)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ok": 1, "$where": 1}, "metadata: key 2: the name begins with $"),
        ({"a": {"b": [{"__proto__": 1}]}}, "metadata: key 1, key 1, item 1, key 1: the name is one of __proto__"),
        ({"constructor": 1, "prototype": 1}, "metadata: key 2: the name is one of __proto__, constructor, prototype"),
        ({"a\x00": 1}, "metadata: key 1: the name has a NUL (U+0000) at character 1"),
        ({"\ud800": 1}, "metadata: key 1: the name has half a surrogate pair at character 0"),
        ({"a": "\udc00"}, "metadata: key 1: the value has half a surrogate pair at character 0"),
        ({"a": [1, "x\x00"]}, "metadata: key 1, item 2: the value has a NUL (U+0000) at character 1"),
        ({"a": 2**70}, "metadata: key 1: the value is an integer beyond 64 bits; store it as text"),
        ({"a": -(2**63) - 1}, "metadata: key 1: the value is an integer beyond 64 bits; store it as text"),
        ({"a": float("nan")}, "metadata: key 1: the value is not a finite number"),
        ({"a": [float("inf")]}, "metadata: key 1, item 1: the value is not a finite number"),
        ({"a": {1, 2}}, "metadata: key 1: the value is not JSON"),
        ({"a": "x" * 32_768}, "metadata: has 32,776 characters of JSON, at most 32,768 are accepted"),
        (nest(17, 1), "is deeper than 16 levels"),
        (nest(16, []), "is deeper than 16 levels"),
    ],
)
def test_metadata_that_is_not_plain_json_is_refused_with_the_place(metadata: dict[str, Any], expected: str) -> None:
    """At every level; a key is told by its number."""
    assert expected in problems_of(metadata=metadata)


def test_metadata_up_to_its_limits_is_kept_verbatim() -> None:
    """16 levels, 64 bits, dots in keys, no order but the caller's."""
    metadata = {"a.b": -(2**63), "": 2**63 - 1, "n": None, "t": [True, 1.5, "é"], "x": nest(14, {}), "z": nest(15, 1)}
    assert check(metadata=metadata).given_attributes["metadata"] == metadata


def test_a_drivers_own_integers_are_integers() -> None:
    """What MongoDB gives back for a staged request is judged at once, and not by counting up to it."""

    class Int64(int):
        """As a driver has it."""

    assert check(metadata={"k": Int64(2**62)}).given_attributes["metadata"] == {"k": 2**62}
    assert "beyond 64 bits" in problems_of(metadata={"k": Int64(2**63)})


def test_all_problems_are_told_at_once() -> None:
    """A caller corrects everything in one go; a thousand problems end in a count."""
    message = problems_of("\x00", title="x" * 513, tags=[""], metadata={"$a": 1, "b": float("nan"), "__proto__": 2})
    for part in ("content:", "title:", "tags:", "key 1: ", "key 2: ", "key 3: "):
        assert part in message
    flooded = problems_of(metadata={f"${number}": 1 for number in range(1_000)})
    assert "and 950 more" in flooded


MARKER = "Zq7xMARKERx"
BAD = st.sampled_from(
    [
        {"content": f"{MARKER}\x00"},
        {"content": f"{MARKER}\ud800"},
        {"title": MARKER * 50},
        {"title": f"{MARKER}\x00"},
        {"uri": MARKER * 200},
        {"agent": MARKER * 20},
        {"session_id": f"{MARKER}\udfff"},
        {"source_id": f"-{MARKER}"},
        {"source_id": MARKER * 30},
        {"content_type": MARKER},
        {"tags": [MARKER * 10]},
        {"tags": [f"{MARKER}{number}" for number in range(60)]},
        {"metadata": {f"${MARKER}": 1}},
        {"metadata": {MARKER: 2**70}},
        {"metadata": {MARKER: {MARKER: [float("nan")]}}},
        {"metadata": {MARKER: MARKER * 4_000}},
        {"metadata": {MARKER: {MARKER}}},
        {"chunk_size_tokens": 5, "agent": MARKER},
    ]
)


@given(chosen=st.lists(BAD, min_size=1, max_size=4))
def test_no_message_repeats_what_the_caller_sent(chosen: list[dict[str, Any]]) -> None:
    """Whatever is wrong, alone or together: messages travel further than the content may."""
    arguments: dict[str, Any] = {"content": "words"}
    for one in chosen:
        arguments |= one
    with pytest.raises(ValidationError) as refusal:
        check_request(StoreContentRequest.model_validate(arguments), defaults=DEFAULTS, max_input_tokens=None)
    assert MARKER not in refusal.value.message
    assert refusal.value.cause is None


def test_arguments_are_normalised() -> None:
    """Trimmed, folded, deduplicated in the caller's order."""
    checked = check(
        title="  A \n title ",
        uri=" https://example.org ",
        source_id=" notes/a ",
        content_type="Text/Markdown; charset=utf-8",
        tags=[" B", "a", "b", "A "],
        agent=" ann ",
        session_id="",
    )
    assert checked.given_attributes == {
        "title": "A title",
        "uri": "https://example.org",
        "contentType": ContentType.MARKDOWN,
        "tags": ("b", "a"),
    }
    assert (checked.source_id, checked.agent, checked.session_id) == ("notes/a", "ann", None)


def test_what_was_not_sent_is_not_given_and_what_is_empty_clears() -> None:
    """None is the same as leaving out."""
    assert check(title=None, tags=None).given_attributes == {}
    cleared = check(title="", uri=" ", content_type="", tags=[], metadata={}, source_id=" ")
    assert cleared.given_attributes == {"title": None, "uri": None, "contentType": None, "tags": (), "metadata": {}}
    assert cleared.source_id is None


def test_a_long_title_is_shortened_but_told_apart_in_full() -> None:
    """The attribute has 200 characters; an id is derived from all 512."""
    checked = check(title="x" * 300)
    assert checked.given_attributes["title"] == "x" * 199 + "…"
    assert checked.title == "x" * 300


def test_chunk_options_fit_each_other() -> None:
    """The caller's go first; a configured overlap that does not fit is lowered, and the outcome will say so."""
    configured = ChunkOptions(size=400, overlap=100, minimum=64)
    assert check(defaults=configured).options == configured
    assert check(chunk_size_tokens=8_192, chunk_overlap_tokens=4_096).options.overlap == 4_096
    lowered = check(defaults=configured, chunk_size_tokens=50)
    assert 0 <= lowered.options.overlap < lowered.options.size == 50
    assert lowered.options.minimum <= 50
    assert lowered.notes == (
        f"The configured overlap of 100 tokens was lowered to {lowered.options.overlap} to fit the size.",
    )


def test_a_size_beyond_the_models_input_is_refused_with_both_numbers() -> None:
    """Nothing is cut off in silence."""
    message = problems_of(limit=256, chunk_size_tokens=300)
    assert "300" in message
    assert "256" in message
    assert check(limit=8_192).options == DEFAULTS


@pytest.mark.parametrize("content", ['{"a":1}', "[1]", "null", '"x"', "true"])
def test_a_text_that_is_json_stays_that_text(content: str) -> None:
    """A text is never parsed, whatever it looks like."""
    assert check(content).content == content
