"""The bytes of a file in; their text with the name of its encoding, or a quarantine with its reason, out. Pure.

In this order: a format known by its first bytes, a byte order mark, NUL bytes, strict UTF-8, and only then a guess. A
guess must be sure of itself, because a wrong one is stored as noise that nobody notices: where two readings are as good
as each other, or where UTF-8 is merely damaged, the file is quarantined. No decoder here replaces a byte that it cannot
read, and whatever is not plain UTF-8 leaves a note.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from charset_normalizer import from_bytes

from memory_core.adapters.file_types import identify_binary
from memory_core.adapters.script_evidence import read_as_latin, weigh_script
from memory_core.files import Quarantine

# Longest first: the mark of UTF-16-LE begins that of UTF-32-LE.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE_ENCODINGS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
# What text does not hold: C0 without tab, line ends, form feed, backspace (overstrike) and escape (colours).
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\b\x1b") + b"\x7f"
_MAX_CONTROL_SHARE = 0.1
_PLAIN_CONTROLS = frozenset("\t\n\r\f\x85")
# In UTF-16 every second byte of Latin text is NUL, in UTF-8 only a stray one: 30 % lies far from both.
_WIDE_NUL_SHARE = 0.3
_MAX_STRAY_NULS_IN_TINY_FILE = 3
_JAPANESE_ESCAPES = (b"\x1b$B", b"\x1b$@")
_SAMPLE_BYTES = 262_144
_SAMPLE_CHARS = 65_536
_MIN_ASCII_SHARE = 0.5
_ASCII = re.compile(r"[\t\n\r -~]")
_COMMON_IN_WIDE_TEXT = re.compile(r"[\t\n\r -~\u3000-\u3002\u3040-\u30ff\uff01-\uff5e]")
# A lead byte with what may follow it: a cut character, or a surrogate, where nothing else is beyond ASCII.
_PIECE_OF_UTF8 = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
# charset-normalizer's chaos is 0 for clean text; its default tolerance of 0.2 lets mojibake through.
_MAX_CHAOS = 0.1
_COHERENCE_WEIGHT = 0.05
_CLEAR_LEAD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Text without byte order mark and U+0000. `notes` are sentences about what was guessed or taken out."""

    text: str
    encoding: str
    notes: tuple[str, ...] = ()


def decode_text(content: bytes) -> Decoded | Quarantine:
    """Decode a whole file, strictly."""
    noun = identify_binary(content)
    if noun:
        return Quarantine(reason=f"it is binary: its first bytes are those of a {noun}")
    marked = _read_marked(content)
    if marked is not None:
        return marked
    if b"\0" in content:
        return _read_with_nuls(content)
    if content.isascii():
        return _read_ascii(content)
    text = _read_strictly(content, "utf-8")
    return _finish(text, "utf-8") if text is not None else _guess(content)


def _read_marked(content: bytes) -> Decoded | Quarantine | None:
    codecs_by_mark = [codec for mark, codec in _BYTE_ORDER_MARKS if content.startswith(mark)]
    for codec in codecs_by_mark:
        text = _read_strictly(content, codec)
        if text is not None:
            return _finish(text, codec)
    if not codecs_by_mark:
        return None
    return Quarantine(
        reason=f"its byte order mark says {codecs_by_mark[-1]}, but its bytes do not fit; save it as UTF-8"
    )


def _read_ascii(content: bytes) -> Decoded | Quarantine:
    text = content.decode("ascii")
    if any(escape in content for escape in _JAPANESE_ESCAPES):  # as old mail does it: ASCII on the outside only
        japanese = _read_strictly(content, "iso2022_jp")
        if japanese is not None and weigh_script("iso2022_jp", japanese[:_SAMPLE_CHARS]):
            return _finish(japanese, "iso2022_jp", _note_guess("iso2022_jp"))
    return _finish(text, "utf-8")


def _read_with_nuls(content: bytes) -> Decoded | Quarantine:
    nuls = content.count(0)
    is_dense = nuls >= _WIDE_NUL_SHARE * len(content)
    text = _read_strictly(content, "utf-8")
    narrow = None if text is None else _finish(text, "utf-8")
    if isinstance(narrow, Decoded) and not is_dense:
        return narrow
    wide = max(_read_wide(content), key=lambda reading: reading[0], default=None)
    if wide:
        _, encoding, wide_text = wide
        return _finish(wide_text, encoding, f"It was read as {encoding}, which its bytes show without saying so.")
    if isinstance(narrow, Decoded) and nuls <= _MAX_STRAY_NULS_IN_TINY_FILE:
        return narrow
    return Quarantine(reason=f"it is binary: {nuls:,} of its {len(content):,} bytes are NUL")


def _read_wide(content: bytes) -> Iterator[tuple[float, str, str]]:
    """Readings as UTF-16 or UTF-32 that are all one script, each with its share of very common characters."""
    for encoding in _WIDE_ENCODINGS:
        text = _read_strictly(content, encoding)
        if not text or "\0" in text:  # NUL characters in a guess: it is another width, or binary
            continue
        sample = text[:_SAMPLE_CHARS]
        is_latin = len(_ASCII.findall(sample)) >= _MIN_ASCII_SHARE * len(sample)
        if not _is_odd(sample) and (is_latin or weigh_script("utf-16", sample)):
            yield len(_COMMON_IN_WIDE_TEXT.findall(sample)) / len(sample), encoding, text


def _is_odd(text: str) -> bool:
    """Whether it holds a character that no text has, not even once, where its encoding is only a guess."""
    return any(
        unicodedata.category(letter) in {"Cc", "Cn", "Co"} for letter in set(text[:_SAMPLE_CHARS]) - _PLAIN_CONTROLS
    )


def _guess(content: bytes) -> Decoded | Quarantine:
    damage = _find_damage(content)
    if damage is not None:
        return Quarantine(
            reason=f"it is UTF-8 but for the byte 0x{content[damage]:02X} at offset {damage:,}; mend that byte"
        )
    latin = read_as_latin(content)
    if latin and not _is_odd(latin[0]):
        return _finish(*latin, _note_guess(latin[1]))
    candidates = _find_candidates(content)
    if candidates and (len(candidates) == 1 or candidates[1][0] - candidates[0][0] >= _CLEAR_LEAD):
        _, encoding, text = candidates[0]
        return _finish(text, encoding, _note_guess(encoding))
    return Quarantine(
        reason="it is neither UTF-8 nor surely in any other encoding, or it is binary; if it is text, save it as UTF-8"
    )


def _note_guess(encoding: str) -> str:
    return f"It is not UTF-8 and was read as {encoding}, which is a guess; save it as UTF-8 to be sure."


def _find_damage(content: bytes) -> int | None:
    """Offset of the first bad byte where most of what is not ASCII is UTF-8; None where it is another encoding."""
    text = content.decode("utf-8", "surrogateescape")
    bad = sum(1 for character in text if "\udc80" <= character <= "\udcff")
    good = sum(1 for character in text if character > "\x7f") - bad
    if good < bad and not _PIECE_OF_UTF8.sub(b"", content).isascii():
        return None
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def _find_candidates(content: bytes) -> list[tuple[float, str, str]]:
    """Readings whose letters fit their encoding's language, the cleanest first, each text once."""
    sample = content[:_SAMPLE_BYTES]
    sample = sample[: sample.rfind(b"\n") + 1] or sample  # a character of two bytes must not be cut
    readings: dict[str, tuple[float, str, str]] = {}
    for match in from_bytes(sample):
        text = _read_strictly(content, match.encoding) if match.chaos <= _MAX_CHAOS else None
        weight = 0.0 if text is None or _is_odd(text) else weigh_script(match.encoding, text[:_SAMPLE_CHARS])
        if text is not None and weight:
            doubt = match.chaos - match.coherence * _COHERENCE_WEIGHT - weight
            readings.setdefault(text, (doubt, codecs.lookup(match.encoding).name, text))
    return sorted(readings.values())


def _read_strictly(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None


def _finish(text: str, encoding: str, note: str | None = None) -> Decoded | Quarantine:
    notes = [note] if note else []
    nuls = text.count("\0")
    if nuls:
        text = text.replace("\0", "")
        notes.append(f"{nuls:,} NUL character{'s' if nuls > 1 else ''} (U+0000) removed.")
    head = text[:_SAMPLE_CHARS].encode()
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls > _MAX_CONTROL_SHARE * len(head):
        return Quarantine(reason=f"it is binary: {controls:,} of its first {len(head):,} bytes are control characters")
    return Decoded(text=text, encoding=encoding, notes=tuple(notes))
