"""Text as one encoding reads it in; whether people write such text out. Pure.

A wrong encoding gives legal characters, but not those that go together: Korean with Chinese characters, Japanese without
kana, a capital inside a word. Each rule here tells a right reading from the wrong ones that were seen in its place.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping

_HANZI = re.compile(r"[\u4e00-\u9fff]")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc]")
_HALF_KANA = re.compile(r"[\uff61-\uff9f]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_CYRILLIC = re.compile(r"[\u0400-\u045f]")
_GREEK = re.compile(r"[\u0384-\u03ce]")
_MIN_SHARE = 0.9
_MIN_KANA_SHARE = 0.1
_MIN_COMMON_HANZI_SHARE = 0.7

# Letters beyond ASCII of the languages that cp1252 was made for, in lower case.
_ALPHABETS = tuple(
    frozenset(letters)
    for letters in (
        "àâçèéêëîïôöùûüœ",  # French
        "äöüßéà",  # German
        "áéíñóúü",  # Spanish
        "àáâãçéêíóôõúü",  # Portuguese
        "àèéìíòóùú",  # Italian
        "àçèéíïòóúü",  # Catalan
        "åäöéüà",  # Swedish, Finnish
        "åæøéèêóòôäöü",  # Danish, Norwegian
        "áéëèïíóöúü",  # Dutch
        "áæéíðóöúýþ",  # Icelandic
        "äöõüšž",  # Estonian
    )
)
# Read as cp1252, the letters of Central European, Baltic and Turkish encodings turn into these, and into hardly others.
_FOREIGN_SIGNS = frozenset("ìøùòõûãþðýÿæšž")
_ICELANDIC_SIGNS = frozenset("þðýÿ")
_MIN_ALPHABET_SHARE = 0.95
_MIN_MIXED_SHARE = 0.5
_MAX_RUN = 2
_ONE_LETTER_WORDS = frozenset("àèéìòóôíúåøæöáíýÀÈÉÓÅØÖÁ")
# What stands between words, never between two letters, and what may also join them.
_LOOSE_SIGNS = frozenset("“”„«»‹›…•€£¥©®™§¶°±×÷¡¿†‡‰¼½¾¹²³µ·ªº¢¬")
_JOINING_SIGNS = frozenset("’‘–—·\xa0\xad´")


def is_plausible_cp1252(text: str) -> bool:
    """Whether text that was read as cp1252 is Western European: the letters of one language, in words, and quotes."""
    beyond = [match.start() for match in re.finditer(r"[^\x00-\x7f]", text)]
    letters = Counter(text[place].lower() for place in beyond if text[place].isalpha() and text[place] not in "ªºµ")
    return all(_stands_well(text, place) for place in beyond) and (not letters or _is_one_language(letters))


def _stands_well(text: str, place: int) -> bool:
    sign = text[place]
    before, after = text[place - 1 : place] or " ", text[place + 1 : place + 2] or " "
    if sign in _JOINING_SIGNS:
        return True
    if sign in _LOOSE_SIGNS:
        return not (before.isalpha() and after.isalpha())
    if not sign.isalpha():
        return False
    in_word = before.isalpha() or after.isalpha()
    capital_inside = sign.isupper() and before.isalpha() and before.islower()
    run = text[max(0, place - _MAX_RUN) : place + 1]
    too_long = len(run) > _MAX_RUN and not any(letter.isascii() for letter in run)
    joined = in_word or before in _JOINING_SIGNS or after in _JOINING_SIGNS
    return (joined or sign in _ONE_LETTER_WORDS) and not capital_inside and not too_long


def _is_one_language(letters: Counter[str]) -> bool:
    """One alphabet covers nearly all, or a mixture holds nothing that another encoding would have put there."""
    total = letters.total()
    covered = max(sum(count for letter, count in letters.items() if letter in alphabet) for alphabet in _ALPHABETS)
    if covered >= _MIN_ALPHABET_SHARE * total:
        return not (letters.keys() <= _ICELANDIC_SIGNS)
    return covered >= _MIN_MIXED_SHARE * total and not (letters.keys() & _FOREIGN_SIGNS)


def speaks_for(encoding: str, text: str) -> bool:
    """Whether the text is what people write in the language that the encoding was made for."""
    beyond = "".join(letter for letter in text if letter > "\x7f" and unicodedata.category(letter)[0] in "LMN")
    rule = _RULES.get(encoding.replace("_", "").replace("-", "").lower(), _is_any_script)
    return bool(beyond) and rule(beyond)


def _share(pattern: re.Pattern[str], letters: str) -> float:
    return len(pattern.findall(letters)) / len(letters)


def _is_japanese(letters: str) -> bool:
    kana = _share(_KANA, letters)
    return kana >= _MIN_KANA_SHARE and kana + _share(_HANZI, letters) >= _MIN_SHARE


def _is_korean(letters: str) -> bool:
    return _share(_HANGUL, letters) >= _MIN_SHARE


def _is_chinese(letters: str, *, charset: str, common_leads: range) -> bool:
    """Mostly ideographs of the first level, which holds the common ones; a wrong reading falls into both alike."""
    if _share(_HANZI, letters) < _MIN_SHARE:
        return False
    codes = [letter.encode(charset, "ignore") for letter in letters]
    common = sum(1 for code in codes if code and code[0] in common_leads)
    return common >= _MIN_COMMON_HANZI_SHARE * len(letters)


def _is_simplified(letters: str) -> bool:
    return _is_chinese(letters, charset="gb2312", common_leads=range(0xB0, 0xD8))


def _is_traditional(letters: str) -> bool:
    return _is_chinese(letters, charset="big5", common_leads=range(0xA4, 0xC7))


def _is_cjk(letters: str) -> bool:
    return any(rule(letters) for rule in (_is_japanese, _is_korean, _is_simplified, _is_traditional))


def _is_cyrillic(letters: str) -> bool:
    return _share(_CYRILLIC, letters) >= _MIN_SHARE


def _is_greek(letters: str) -> bool:
    return _share(_GREEK, letters) >= _MIN_SHARE


def _is_any_script(letters: str) -> bool:
    """No rule of its own: the detector's word must do, but never for a mixture of scripts."""
    names = Counter(unicodedata.name(letter, "?").split()[0] for letter in letters)
    return names.most_common(1)[0][1] >= _MIN_SHARE * len(letters) and not _share(_HALF_KANA, letters)


_RULES: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(("cp932", "shiftjis", "shiftjis2004", "shiftjisx0213"), _is_japanese),
    **dict.fromkeys(("eucjp", "eucjis2004", "eucjisx0213", "iso2022jp"), _is_japanese),
    **dict.fromkeys(("cp949", "euckr", "johab", "iso2022kr"), _is_korean),
    **dict.fromkeys(("gb18030", "gbk", "gb2312", "hz"), _is_simplified),
    **dict.fromkeys(("big5", "big5hkscs", "cp950"), _is_traditional),
    **dict.fromkeys(("utf16", "utf16le", "utf16be", "utf32", "utf32le", "utf32be"), _is_cjk),
    **dict.fromkeys(("cp1251", "koi8r", "koi8u", "iso88595", "cp866", "cp855", "maccyrillic", "kz1048"), _is_cyrillic),
    **dict.fromkeys(("cp1253", "iso88597", "macgreek", "cp737", "cp869"), _is_greek),
}
