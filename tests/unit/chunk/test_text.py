"""Plain text: where sentences, words and runs without a blank may be cut, in all scripts, and how long that takes."""

# ruff: noqa: RUF001 - text of other scripts is what is tested here

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk.sentences import first_sentence_end, last_sentence_ends
from memory_core.chunk.words import first_word_edge, last_run_edge, last_word_edge
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.models import ContentType

CheckedChunker = Callable[..., ChunkingResult]

_FAMILY = "👩\u200d👩\u200d👧\u200d👦"


def _sentences(text: str) -> list[str]:
    ends: list[int] = []
    while (end := first_sentence_end(text, ends[-1] if ends else 0, len(text))) is not None:
        ends.append(end)
    assert ends == list(last_sentence_ends(text, 0, len(text)))[::-1]
    places = [0, *ends, len(text)]
    return [part for start, end in pairwise(places) if (part := text[start:end].strip())]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there.", "How are you?", "Fine!"],
        ["Pi is 3.14 and not 3,000.5.", "Next."],
        ["Mr. Smith met Dr. Who, e.g. at No. 10, i.e. in the U.S. Army.", "Then he left at 5 p.m. for St. Ives."],
        ["She said no.", "No.", "Really."],
        ['He said "Stop."', 'Then "Go!"', "(Really?)", "Yes."],
        ["and so on. then it goes on.", "New."],
        ["Wait... what?", "What?!", "No..."],
        ["See file.txt or https://a.b/c?d=e!ff.", "Now."],
        ["1. Introduction\n2. Methods of it.", "End"],
        ["It's.", "Don't.", "Go"],
        ["It was in 1999.", "Then it ended."],
        ["hard wrapped\nprose goes on.", "Here\nit ends."],
        ["Sie sagte: „Ja.“", "Dann kam z.B. Herr Nr. 5 bzw. Frau Dr. Abel.", "Ende."],
        ["т.е. Москва и др. Города.", "Новое предложение."],
        ["今日は。", "散歩に行く！", "「はい。」", "と言った？！", "ほんと。"],
        ["你好!", "我很好。", "价格是3.14元。", "再见"],
        ["３．１４です。", "次"],
        ["अब यह है।", "फिर वह॥", "अंत"],
        ["هل انت بخير؟", "نعم۔", "اردو"],
        ["End.\u200f", "Next"],
    ],
    ids=lambda sentences: sentences[0],
)
def test_sentences_end_where_unicode_says(sentences: list[str]) -> None:
    """Not in a number, an address or an abbreviation, and behind the quotes that close."""
    separator = "" if re.search("[\u3002\uff01]", "".join(sentences)) else " "
    assert _sentences(separator.join(sentences)) == sentences


def test_a_sentence_ends_in_its_window_or_not_at_all() -> None:
    """What is behind the window is looked at, but never returned."""
    text = "One two. Three four. Five"
    assert first_sentence_end(text, 0, 7) is None
    assert first_sentence_end(text, 0, 8) == 8
    assert list(last_sentence_ends(text, 0, 19)) == [8]
    assert list(last_sentence_ends("Mr. X is", 2, 8)) == []


@pytest.mark.parametrize(
    ("text", "limit", "before"),
    [
        ("the quick brown", 12, "the quick"),
        ("the quick brown", 9, "the quick"),
        ("at 10\xa0km from", 7, "at"),
        ("今日は良い天気です", 5, "今日は良い"),
        ("これは、とても良い天気", 8, "これは、とても良"),
        ("長い文で、あった", 6, "長い文で、"),
        ("彼は言った。」と", 6, "彼は言っ"),
        ("使用Python编程", 6, "使用"),
        ("到2024年5月12日止", 8, "到"),
        ("価格は1,234,567.89円です", 10, "価格は"),
        ("東京コンピューター", 6, "東京"),
        ("しゃっくり", 2, None),
        ("ちょっと", 3, "ちょっ"),
    ],
)
def test_words_end_at_blanks_or_between_ideographs(text: str, limit: int, before: str | None) -> None:
    """Not ahead of closing punctuation or small kana, not in katakana, a number or a date."""
    edge = last_word_edge(text, 0, limit)
    assert (None if edge is None else text[:edge].rstrip()) == before


def test_the_next_word_begins_behind_a_blank_or_at_an_ideograph() -> None:
    """From inside a word the next one is found; at its start, itself."""
    assert [first_word_edge("the quick", place, 9) for place in (1, 3, 4, 5)] == [3, 3, 4, None]
    assert first_word_edge("漢、字", 1, 3) == 2
    assert first_word_edge("abc漢", 1, 4) == 3


@pytest.mark.parametrize(
    ("text", "limit", "before"),
    [
        ("https://example.com/some/path/to-a/page?x=1&yy=2", 46, "https://example.com/some/path/to-a/page?x=1&"),
        ("https://example.com/some/path/to/page", 32, "https://example.com/some/path/"),
        ('{"id":17,"size":1234567.89,"name":"abc"}', 24, '{"id":17,"size":'),
        ("some_long_identifier_of_words", 26, "some_long_identifier_of_"),
        ("someLongIdentifierOfWords", 22, "someLongIdentifierOf"),
        ("[11,22,33,44,55,66,77,88]", 14, "[11,22,33,44,"),
        ("aGVsbG8gd29ybGQh/kdjfKJDF", 20, "aGVsbG8gd29ybGQh/"),
        ("ราคาสินค้าทั้งหมดวันนี้1,234,567.89บาท", 30, "ราคาสินค้าทั้งหมดวันนี้"),
        ("a" * 40, 30, None),
        ("1234567890" * 4, 30, None),
    ],
)
def test_a_run_is_cut_at_a_sign_near_its_end(text: str, limit: int, before: str | None) -> None:
    """Behind punctuation, not in a number, where one is near; else any place is as good."""
    edge = last_run_edge(text, 0, limit)
    assert (None if edge is None else text[:edge]) == before


_TOKENS = re.compile(r"1,234,567\.89|192\.168\.0\.1|2024-01-05|https://\S+|some_name\.py|U\.S\.|e\.g\.|Dr\. ?Who|3\.14")


@pytest.mark.parametrize("size", [32, 47, 64])
def test_no_number_name_or_abbreviation_is_cut_where_another_cut_fits(chunk_checked: CheckedChunker, size: int) -> None:
    """One line of prose that is full of them."""
    text = (
        "In the U.S. of 2024-01-05 we paid 1,234,567.89 for 192.168.0.1, e.g. by some_name.py or Dr. Who. It was 3.14 "
        "times https://example.com/a/b.html?c=1&d=2.5 and more! "
    ) * 20
    edges = {
        edge for c in chunk_checked(text, ContentType.TEXT, size=size).chunks for edge in (c.char_start, c.char_end)
    }
    for token in _TOKENS.finditer(text):
        assert not edges & set(range(token.start() + 1, token.end()))


def test_thai_is_cut_at_blanks_and_else_at_any_cluster(chunk_checked: CheckedChunker) -> None:
    """Thai writes no blanks between words, but between phrases."""
    phrase = "ภาษาไทยกำลังดี"
    for chunk in chunk_checked(f"{phrase} " * 60, ContentType.TEXT, size=64).chunks:
        assert set(chunk.text.split(" ")) == {phrase}
    chunks = chunk_checked(phrase * 60, ContentType.TEXT, size=64).chunks
    assert "".join(chunk.text for chunk in chunks) == phrase * 60


def test_chinese_is_cut_at_sentences_and_overlaps(chunk_checked: CheckedChunker) -> None:
    """Without blanks there are sentences, clauses and overlaps all the same."""
    text = "今天天气很好，我们去公园散步。孩子们在那里玩，大人坐着聊天。" * 30
    chunks = chunk_checked(text, ContentType.TEXT, size=64, overlap=24, minimum=8).chunks
    assert all(chunk.text.endswith("。") for chunk in chunks)
    assert all(after.char_start < before.char_end for before, after in pairwise(chunks))
    clauses = chunk_checked(text.replace("。", "，"), ContentType.TEXT, size=64, minimum=8).chunks
    assert all(chunk.text.endswith("，") for chunk in clauses)
    plain = text.replace("。", "").replace("，", "")
    overlapping = chunk_checked(plain, ContentType.TEXT, size=64, overlap=24, minimum=8).chunks
    assert all(after.char_start < before.char_end for before, after in pairwise(overlapping))


def test_a_long_run_of_joined_emoji_is_never_cut_in_one(chunk_checked: CheckedChunker) -> None:
    """9,000 UTF-16 units of families: each chunk is whole families."""
    result = chunk_checked(_FAMILY * 818, ContentType.TEXT)
    assert result.stats.cluster_cuts == 0
    assert all(len(chunk.text) % len(_FAMILY) == 0 for chunk in result.chunks)


def test_base64_and_minified_json_keep_their_bounds(chunk_checked: CheckedChunker) -> None:
    """One line, no blank: all of it, in order, and JSON behind its commas."""
    blob = base64.b64encode(random.Random(1).randbytes(9_000)).decode()
    assert "".join(chunk.text for chunk in chunk_checked(blob, ContentType.TEXT).chunks) == blob
    records = '{"id":17.25,"name":"abc","tags":["x","y"]},' * 300
    chunks = chunk_checked(records, ContentType.TEXT, size=120).chunks
    assert "".join(chunk.text for chunk in chunks) == records
    assert all(chunk.text.endswith(",") for chunk in chunks)


def test_paragraphs_end_at_blank_lines_and_separators(chunk_checked: CheckedChunker) -> None:
    """A paragraph that fits is whole, whichever line end its author's system has."""
    paragraph = "Some words about one thing. And some more words about it, up to here."
    for gap in ("\n\n", "\r\n\r\n", "\r\r", "\n \t\n", "\u2029", "\x0c\n"):
        chunks = chunk_checked(gap.join([paragraph] * 12), ContentType.TEXT, size=40, minimum=8).chunks
        assert [chunk.text.strip("\u2029") for chunk in chunks] in ([paragraph] * 12, [gap.join([paragraph] * 2)] * 6)


_ONE_LINE: dict[str, Callable[[int], str]] = {
    "words": lambda chars: "the quick brown fox " * (chars // 20),
    "no blank": lambda chars: "a" * chars,
    "chinese": lambda chars: "漢字仮名" * (chars // 4),
    "thai": lambda chars: "ภาษาไทยกำ" * (chars // 9),
    "base64": lambda chars: base64.b64encode(random.Random(1).randbytes(chars * 3 // 4)).decode(),
    "json": lambda chars: '{"id":17,"name":"abc","tags":["x","y"]},' * (chars // 40),
    "emoji": lambda chars: "🚀" * chars,
    "families": lambda chars: _FAMILY * (chars // 7),
    "one cluster": lambda chars: "e" + "\u0301" * chars,
    "prepended": lambda chars: "\u0600" * chars,
    "full stops": lambda chars: "." * chars,
    "abbreviations": lambda chars: "Mr. " * (chars // 4),
    "closed stops": lambda chars: '."' * (chars // 2),
    "closers": lambda chars: "." + '"' * chars,
    "iteration marks": lambda chars: "々" * chars,
}


@pytest.mark.parametrize("kind", list(_ONE_LINE))
def test_time_is_linear_on_one_line(kind: str, assert_linear: Callable[..., None]) -> None:
    """Each character costs the same, whatever the line is made of."""
    counter, options = load_tiktoken_counter(), ChunkOptions()

    def chunk(text: str) -> None:
        chunk_content(text, ContentType.TEXT, options, counter)

    assert_linear(chunk, _ONE_LINE[kind], chars=20_000)


def test_time_is_linear_with_the_largest_overlap(assert_linear: Callable[..., None]) -> None:
    """Chinese in chunks of 64 tokens of which 63 may be shared."""
    counter, options = load_tiktoken_counter(), ChunkOptions(size=64, overlap=63)

    def chunk(text: str) -> None:
        chunk_content(text, ContentType.TEXT, options, counter)

    assert_linear(chunk, _ONE_LINE["chinese"], chars=3_000)
