"""Bytes become the words that were written, or a quarantine; never noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.adapters.text_decoding import Decoded, decode_text
from memory_core.files import Quarantine

# The signs that ruff takes for mistyped ASCII are what these encodings are about.
# ruff: noqa: RUF001
FRENCH = "Le café où naïve façade déjà vu à l’été, élève et garçon.\n"
MIXED = "# Café\n\nGrüße aus Köln, señor Müller: « déjà vu », naïve façade.\n"
JAPANESE = (
    "# 設定\n\nThe deploy 手順 は次の通りです。\n\n- `make` を実行する。検索エンジンのための文章を書いています。\n"
)
CHINESE = "# 部署\n\n这是一个中文文本，用于测试编码检测。密钥 key 每九十天轮换一次。\n"
TAIWANESE = "這是一個中文文本，用於測試編碼檢測。我們希望能夠正確地讀取它。\n"
KOREAN = "이것은 한국어 텍스트입니다. 인코딩을 확인하기 위한 문장입니다.\n"
RUSSIAN = "Привет, мир. Это русский текст для проверки кодировки файлов.\n"
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. To je český text o kódování.\n"
POLISH = "Zażółć gęślą jaźń. To jest polski tekst do sprawdzenia kodowania.\n"
TURKISH = "Bu Türkçe bir metindir. İstanbul’da yağmur yağıyor, şimdi düşünüyorum.\n"
ENGLISH = "The deploy key rotates every 90 days. Ask the team for it.\n" * 3


def decoded(content: bytes) -> Decoded:
    reading = decode_text(content)
    assert isinstance(reading, Decoded), reading
    return reading


def refused(content: bytes) -> str:
    reading = decode_text(content)
    assert isinstance(reading, Quarantine), reading
    return reading.reason


@pytest.mark.parametrize(
    "text", [FRENCH, MIXED, JAPANESE, CHINESE, KOREAN, RUSSIAN, ENGLISH, "👩‍👩‍👧‍👦 \u2028 \u0085 \f\r"]
)
@pytest.mark.parametrize(
    ("encoding", "mark", "recorded"),
    [
        ("utf-8", b"", "utf-8"),
        ("utf-8", b"\xef\xbb\xbf", "utf-8-sig"),
        ("utf-16-le", b"\xff\xfe", "utf-16"),
        ("utf-16-be", b"\xfe\xff", "utf-16"),
        ("utf-32-le", b"\xff\xfe\0\0", "utf-32"),
        ("utf-32-be", b"\0\0\xfe\xff", "utf-32"),
    ],
)
def test_unicode_with_and_without_its_mark_is_read(text: str, encoding: str, mark: bytes, recorded: str) -> None:
    """S9: the mark is no part of the text, and what is certain needs no note."""
    assert decoded(mark + text.encode(encoding)) == Decoded(text=text, encoding=recorded)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", [FRENCH, MIXED, JAPANESE, CHINESE, KOREAN, RUSSIAN, ENGLISH])
def test_wide_unicode_without_a_mark_is_recognised(text: str, encoding: str) -> None:
    """S9: UTF-16 and UTF-32 of either byte order, noted as recognised."""
    reading = decoded(text.encode(encoding))
    assert (reading.text, reading.encoding) == (text, encoding)
    assert encoding in reading.notes[0]


@pytest.mark.parametrize(
    ("text", "encoding", "recorded"),
    [
        (FRENCH.replace("’", "'"), "latin-1", "cp1252"),
        (MIXED, "latin-1", "cp1252"),
        (FRENCH, "cp1252", "cp1252"),
        (MIXED, "cp1252", "cp1252"),
        ("It’s a “quoted” word – and more…\n", "cp1252", "cp1252"),
        (JAPANESE, "shift_jis", "cp932"),
        (JAPANESE, "euc_jp", "euc_jis_2004"),
        (JAPANESE, "iso2022_jp", "iso2022_jp"),
        (CHINESE, "gb18030", "gb18030"),
        (CHINESE, "gbk", "gb18030"),
        (TAIWANESE, "big5", "big5"),
        (KOREAN, "euc_kr", "cp949"),
        (RUSSIAN, "cp1251", "cp1251"),
        (CZECH, "cp1250", "cp1250"),
        (CZECH, "iso8859-2", "iso8859-2"),
        (POLISH, "cp1250", "cp1250"),
        (TURKISH, "cp1254", "cp1254"),
    ],
)
def test_older_encodings_are_read_with_a_note(text: str, encoding: str, recorded: str) -> None:
    """S9: the same words are found, the encoding is recorded, and the note says that it is a guess."""
    reading = decoded(text.encode(encoding))
    assert (reading.text, reading.encoding) == (text, recorded)
    assert "guess" in reading.notes[0]


@pytest.mark.parametrize("text", [FRENCH, JAPANESE, CZECH, RUSSIAN])
@pytest.mark.parametrize("bad", [b"\xff", b"\xfe", b"\x80", b"\xc3", b"\xe9", b"\xed\xa0\x80"])
def test_one_bad_byte_in_utf8_is_never_turned_into_noise(text: str, bad: bytes) -> None:
    """S9: the file is quarantined and the reason names the byte and its place, so that it can be mended."""
    content = text.encode() + bad + text.encode()
    assert f"0x{bad[0]:02X} at offset {len(text.encode())}" in refused(content)


@pytest.mark.parametrize("bad", [b"\xff", b"\xfe", b"\x81", b"\x8d", b"\xc3", b"\xd0", b"\x83", b"\x9d", b"\xb3"])
def test_a_stray_byte_in_plain_english_is_quarantined(bad: bytes) -> None:
    """S9: a byte that no Western text has in that place is not read as a letter of some language."""
    assert "save it as UTF-8" in refused(b"The dep" + bad + b"loy key.\n" + ENGLISH.encode())


def test_a_lone_quote_of_windows_is_read_and_noted() -> None:
    """One byte of cp1252 in plain English is what Windows editors leave, and it is plausible where it stands."""
    reading = decoded(b"Don\x92t panic.\n" + ENGLISH.encode())
    assert reading.text.startswith("Don’t")
    assert reading.encoding == "cp1252"
    assert reading.notes


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(RUSSIAN, "koi8_r"), (FRENCH * 20, "mac_roman"), ("Мама мыла раму.", "cp1251"), ("Só þór ðið", "cp1252")],
)
def test_a_guess_that_is_not_sure_is_no_guess(text: str, encoding: str) -> None:
    """Where several readings are as good, or none is, the file waits for its owner."""
    reading = decode_text(text.encode(encoding, "ignore"))
    assert isinstance(reading, Quarantine) or reading.text == text.encode(encoding, "ignore").decode(encoding)


@pytest.mark.parametrize(
    ("content", "noun"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG picture"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG picture"),
        (b"GIF89a\x01\0\x01\0", "GIF picture"),
        (b"%PDF-1.7\n1 0 obj\n", "PDF document"),
        (b"PK\x03\x04\x14\0", "ZIP archive"),
        (b"\x1f\x8b\x08\0", "gzip archive"),
        (b"\x7fELF\x02\x01", "ELF program"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"a" * 257 + b"ustar", "tar archive"),
    ],
)
def test_known_formats_are_named(content: bytes, noun: str) -> None:
    """S9: a picture that is called .txt goes to quarantine with its real name."""
    assert noun in refused(content)


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 4,
        b"\0" * 100,
        b"\x01\x02\x03\x04\x05\x06\x07\x0e" * 9,
        (b"\x01\0\0\0\x02\0\0\0\x07\0\0\0") * 50,
        b"text" + b"\0\x01\x02\xff" * 60,
        b"\xff\xfe" + b"\x00\xd8" * 9,
    ],
)
def test_other_binaries_are_refused(content: bytes) -> None:
    """S9: NUL bytes, control characters and broken marks are not text."""
    assert refused(content)


def test_stray_nul_characters_are_removed_with_a_note() -> None:
    """S10: U+0000 cannot be stored; it goes, and the note says how many."""
    assert decoded(b"a\0b") == Decoded(text="ab", encoding="utf-8", notes=("1 NUL character (U+0000) removed.",))
    assert decoded(ENGLISH.encode() + b"\0\0").notes == ("2 NUL characters (U+0000) removed.",)
    assert decoded(b"\xff\xfe" + "a\0bcd".encode("utf-16-le")).text == "abcd"


@pytest.mark.parametrize("content", [b"\xed\xa0\x80abc", b"\xff\xfe\x00\xd8a\x00", b"abc\xed\xbf\xbf"])
def test_a_lone_surrogate_cannot_come_from_a_file(content: bytes) -> None:
    """S10: what no UTF-8 writer can store is refused before it is decoded."""
    assert refused(content)


@given(content=st.binary(max_size=200))
def test_any_bytes_give_clean_text_or_a_reason(content: bytes) -> None:
    """Whatever a file holds: no exception, no NUL, no surrogate, and no replacement character of our own."""
    reading = decode_text(content)
    if isinstance(reading, Quarantine):
        assert reading.reason
    else:
        assert "\0" not in reading.text
        assert reading.text.encode("utf-8").decode("utf-8") == reading.text
        assert reading.encoding in {"utf-8", "utf-8-sig"} or reading.notes or reading.encoding.startswith("utf-")


@given(text=st.text(max_size=300))
def test_every_utf8_text_comes_back_as_it_was(text: str) -> None:
    """UTF-8 is never second-guessed, unless it is a file full of control characters or of a format's first bytes."""
    reading = decode_text(text.encode())
    if isinstance(reading, Decoded) and reading.encoding == "utf-8":
        assert reading.text == text.replace("\0", "")


def test_random_bytes_are_not_taken_for_text() -> None:
    """Of a thousand files of noise of ordinary length, none becomes a document."""
    source = random.Random(7)
    assert all(isinstance(decode_text(source.randbytes(64)), Quarantine) for _ in range(1_000))
