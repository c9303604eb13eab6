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
from memory_core.adapters.script_evidence import is_plausible_cp1252, speaks_for

# Longest first: the mark of UTF-16-LE begins that of UTF-32-LE.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE_ENCODINGS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
# What text does not hold: C0 without tab, line ends, form feed, backspace (overstrike) and escape (colours).
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\b\x1b") + b"\x7f"
_MAX_CONTROL_SHARE = 0.1
# In UTF-16 every second byte of Latin text is NUL, in UTF-8 only a stray one: 30 % lies far from both.
_WIDE_NUL_SHARE = 0.3
_MAX_STRAY_NULS_IN_TINY_FILE = 3
_SAMPLE_BYTES = 262_144
_SAMPLE_CHARS = 65_536
_COMMON_IN_WIDE_TEXT = re.compile(r"[\t\n\r -~\u3000-\u3002\u3040-\u30ff\uff01-\uff5e]")
# charset-normalizer's chaos is 0 for clean text; its default tolerance of 0.2 lets mojibake through.
_MAX_CHAOS = 0.1
_CLEAR_LEAD = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Text without byte order mark and U+0000. `notes` are sentences about what was guessed or taken out."""

    text: str
    encoding: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The content is not taken in. `reason` is a phrase for people, with the remedy where there is one."""

    reason: str


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
        return _finish(content.decode("ascii"), "utf-8")
    text = _read_strictly(content, "utf-8")
    return _finish(text, "utf-8") if text is not None else _guess(content)


def _read_marked(content: bytes) -> Decoded | Quarantine | None:
    marks = [(mark, encoding) for mark, encoding in _BYTE_ORDER_MARKS if content.startswith(mark)]
    for mark, encoding in marks:
        text = _read_strictly(content[len(mark) :], encoding)
        if text is not None:
            return _finish(text, f"{encoding} with byte order mark")
    if not marks:
        return None
    return Quarantine(reason=f"its byte order mark says {marks[0][1]}, but its bytes are not; save it as UTF-8")


def _read_with_nuls(content: bytes) -> Decoded | Quarantine:
    nuls = content.count(0)
    is_dense = nuls >= _WIDE_NUL_SHARE * len(content)
    text = _read_strictly(content, "utf-8")
    if text is None or is_dense:
        wide = max(_read_wide(content), key=lambda reading: reading[0], default=None)
        if wide:
            _, encoding, wide_text = wide
            return _finish(wide_text, encoding, f"It was read as {encoding}, which its bytes show without saying so.")
    if text is None or (is_dense and nuls > _MAX_STRAY_NULS_IN_TINY_FILE):
        return Quarantine(reason=f"it is binary: {nuls:,} of its {len(content):,} bytes are NUL")
    return _finish(text, "utf-8")


def _read_wide(content: bytes) -> Iterator[tuple[float, str, str]]:
    """Readings as UTF-16 or UTF-32 that hold no odd character, each with its share of very common ones."""
    for encoding in _WIDE_ENCODINGS:
        text = _read_strictly(content, encoding)
        if not text or "\0" in text:
            continue
        sample = text[:_SAMPLE_CHARS]
        common = len(_COMMON_IN_WIDE_TEXT.findall(sample)) / len(sample)
        if common and not any(_is_odd(character) for character in set(sample)):
            yield common, encoding, text


def _is_odd(character: str) -> bool:
    return unicodedata.category(character) in {"Cn", "Co", "Cc"} and not character.isspace()


def _guess(content: bytes) -> Decoded | Quarantine:
    damage = _find_damage(content)
    if damage is not None:
        return Quarantine(
            reason=f"it is UTF-8 but for the byte 0x{content[damage]:02X} at offset {damage:,}; mend that byte"
        )
    western = _read_strictly(content, "cp1252")
    if western is not None and is_plausible_cp1252(western):
        return _finish(western, "cp1252", _note_guess("cp1252"))
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
    if good < bad:
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
        if text is not None and speaks_for(match.encoding, text[:_SAMPLE_CHARS]):
            doubt = match.chaos - match.coherence * _CLEAR_LEAD
            readings.setdefault(text, (doubt, match.encoding, text))
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
