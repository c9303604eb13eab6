"""Text as one encoding reads it in; whether people write such text out. Pure.

A wrong encoding gives legal characters, but not those that go together: Korean with Chinese characters, Japanese
without kana, a capital inside a word. Each rule tells a right reading from the wrong ones that were seen in its place.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

_HANZI = re.compile(r"[\u4e00-\u9fff]")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_CYRILLIC = re.compile(r"[\u0400-\u045f]")
_GREEK = re.compile(r"[\u0384-\u03ce]")
_ALPHABETIC_SCRIPTS = frozenset(
    {"ARABIC", "ARMENIAN", "BENGALI", "CYRILLIC", "DEVANAGARI", "ETHIOPIC", "GEORGIAN", "GREEK", "GUJARATI", "HEBREW"}
    | {"TAMIL", "TELUGU", "THAI"}
)
_MIXED_WORD = re.compile(r"[A-Za-z][\u0370-\u04ff]|[\u0370-\u04ff][A-Za-z]")
_MIN_LETTERS = 3  # fewer can be one stray byte
_MIN_SHARE = 0.9
_MIN_KANA_SHARE = 0.1
_MIN_COMMON_HANZI_SHARE = 0.7
_BYTES_OF_COMMON_HANGUL = 2  # in EUC-KR; the rest is spelled out in eight bytes
_PLAIN_WEIGHT = 0.05
_KANA_WEIGHT = 0.1  # kana do not come up by chance, ideographs do

# Letters beyond ASCII, in lower case, of the languages that each encoding was made for.
_WESTERN = (
    "àâçèéêëîïôöùûüœ",  # French
    "äöüßéà",  # German
    "áéíñóúü",  # Spanish
    "àáâãçéêíóôõú",  # Portuguese
    "àèéìíòóùú",  # Italian
    "àçèéíïòóúü",  # Catalan
    "åäöéüà",  # Swedish, Finnish
    "åæøéèêóòôäöü",  # Danish, Norwegian
    "áéëèïíóöúü",  # Dutch
    "áæéíðóöúýþ",  # Icelandic
    "äöõüšž",  # Estonian
)
_CENTRAL = (
    "ąćęłńóśźż",  # Polish
    "áčďéěíňóřšťúůýž",  # Czech
    "áäčďéíĺľňóôŕšťúýž",  # Slovak
    "áéíóöőúüű",  # Hungarian
    "ăâîșşțţ",  # Romanian
    "čćđšž",  # Croatian, Slovene
)
# The plain i is what İ becomes in lower case.
_TURKISH = ("çğıöşüâîûi",)  # noqa: RUF001 - the dotless i is meant
# Read as cp1252, the letters of Central European, Baltic and Turkish encodings turn into these, and into hardly others.
_FOREIGN_SIGNS = frozenset("ìøùòõûãþðýÿæšž")
# One of these alone is a stray byte rather than a language.
_WEAK_SIGNS = frozenset("þðýÿšž")
_MIN_ALPHABET_SHARE = 0.95
_MIN_MIXED_SHARE = 0.5
_ONE_LETTER_WORDS = frozenset("àèéìòóôíúåøæöáíýÀÈÉÓÅØÖÁ")
# What stands between words, never between two letters, and what may also join them.
_LOOSE_SIGNS = frozenset("“”„«»‹›…•€£¥©®™§¶°±×÷¡¿†‡‰¼½¾¹²³µ·ªº¢¬")  # noqa: RUF001 - these very signs are meant
_JOINING_SIGNS = frozenset("’‘–—·\xa0\xad´")  # noqa: RUF001 - the same


def read_as_latin(content: bytes) -> tuple[str, str] | None:
    """The text and the encoding of a European text in Latin letters, the western one before the others; or None."""
    for encoding, alphabets, longest_run in (
        ("cp1252", _WESTERN, 2),
        ("cp1250", _CENTRAL, 4),
        ("iso8859-2", _CENTRAL, 4),
        ("cp1254", _TURKISH, 4),
    ):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if _is_latin_text(text, alphabets, longest_run=longest_run):
            return text, encoding
    return None


def _is_latin_text(text: str, alphabets: Sequence[str], *, longest_run: int) -> bool:
    """Whether all that is beyond ASCII stands where such signs stand, and its letters are those of one language.

    A western mixture (Müller, señor and café in one text) passes where it holds nothing that another encoding would
    have put there. A longer run of such letters than the language has is another script.
    """
    if re.search(rf"[^\W\d_a-zA-Z]{{{longest_run + 1}}}", text):
        return False
    beyond = [match.start() for match in re.finditer(r"[^\x00-\x7f]", text)]
    if not all(_stands_well(text, place) for place in beyond):
        return False
    letters = Counter(text[place].lower()[0] for place in beyond if _is_letter(text[place]))
    total = letters.total()
    if alphabets is not _WESTERN and total < _MIN_LETTERS:
        return False
    covered = max(sum(count for letter, count in letters.items() if letter in alphabet) for alphabet in alphabets)
    if covered >= _MIN_ALPHABET_SHARE * total:
        return not letters or not letters.keys() <= _WEAK_SIGNS
    return alphabets is _WESTERN and covered >= _MIN_MIXED_SHARE * total and not (letters.keys() & _FOREIGN_SIGNS)


def _is_letter(sign: str) -> bool:
    return sign.isalpha() and sign not in _LOOSE_SIGNS


def _stands_well(text: str, place: int) -> bool:
    sign = text[place]
    before, after = text[place - 1 : place] or " ", text[place + 1 : place + 2] or " "
    if sign in _JOINING_SIGNS:
        return True
    if sign in _LOOSE_SIGNS:
        return not (before.isalpha() and after.isalpha())
    return sign.isalpha() and _is_in_word(text, place, before, after)


def _is_in_word(text: str, place: int, before: str, after: str) -> bool:
    sign = text[place]
    beside_letter = any(other.isalpha() or other in _JOINING_SIGNS for other in (before, after))
    if not beside_letter and (sign not in _ONE_LETTER_WORDS or before.isalnum() or after.isalnum()):
        return False
    capital_inside = (sign.isupper() and before.islower()) or (sign.islower() and after.isupper())
    following = text[place + 2 : place + 3]
    two_capitals = sign.isupper() and after.isupper() and following.islower()
    return not (capital_inside or two_capitals)


def weigh_script(encoding: str, text: str) -> float:
    """How surely the text is what people write in the language that the encoding was made for: 0 is not at all.

    Encodings without a rule here count as nothing: the detector alone takes French in one for Romanian in another.
    """
    beyond = "".join(letter for letter in text if letter > "\x7f" and unicodedata.category(letter)[0] in "LMN")
    rule = _RULES.get(encoding.replace("_", "").replace("-", "").lower())
    if len(beyond) < _MIN_LETTERS or rule is None or _MIXED_WORD.search(text) or not rule(beyond):
        return 0.0
    return _KANA_WEIGHT if rule is _is_japanese else _PLAIN_WEIGHT


def _share(pattern: re.Pattern[str], letters: str) -> float:
    return len(pattern.findall(letters)) / len(letters)


def _is_japanese(letters: str) -> bool:
    kana = _share(_KANA, letters)
    return kana >= _MIN_KANA_SHARE and kana + _share(_HANZI, letters) >= _MIN_SHARE


def _is_korean(letters: str) -> bool:
    """Hangul of the first standard, which holds the syllables in use; a wrong reading falls into the rest as well."""
    common = sum(1 for letter in letters if len(letter.encode("euc_kr", "ignore")) == _BYTES_OF_COMMON_HANGUL)
    return _share(_HANGUL, letters) >= _MIN_SHARE and common >= _MIN_SHARE * len(letters)


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


def _is_one_script(letters: str) -> bool:
    """Any language, for encodings that hold all; Latin apart, because it comes with more ASCII than this."""
    if any(rule(letters) for rule in (_is_japanese, _is_korean, _is_simplified, _is_traditional)):
        return True
    scripts = Counter(unicodedata.name(letter, "?").split()[0] for letter in letters)
    script, count = scripts.most_common(1)[0]
    return count >= _MIN_SHARE * len(letters) and script in _ALPHABETIC_SCRIPTS


def _is_cyrillic(letters: str) -> bool:
    return _share(_CYRILLIC, letters) >= _MIN_SHARE


def _is_greek(letters: str) -> bool:
    return _share(_GREEK, letters) >= _MIN_SHARE


_RULES: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(("cp932", "shiftjis", "shiftjis2004", "shiftjisx0213"), _is_japanese),
    **dict.fromkeys(("eucjp", "eucjis2004", "eucjisx0213", "iso2022jp"), _is_japanese),
    **dict.fromkeys(("cp949", "euckr", "johab", "iso2022kr"), _is_korean),
    **dict.fromkeys(("gb18030", "gbk", "gb2312", "hz"), _is_simplified),
    **dict.fromkeys(("big5", "big5hkscs", "cp950"), _is_traditional),
    **dict.fromkeys(("utf16", "utf16le", "utf16be", "utf32", "utf32le", "utf32be"), _is_one_script),
    **dict.fromkeys(("cp1251", "koi8r", "koi8u", "iso88595", "cp866", "cp855", "maccyrillic", "kz1048"), _is_cyrillic),
    **dict.fromkeys(("cp1253", "iso88597", "macgreek", "cp737", "cp869"), _is_greek),
}
