"""A text and a window of it in, the place where a sentence ends out; nothing outside of the window is searched.

The rules are those of Unicode's Annex 29 (SB6 to SB11), with three differences: a line end is a blank, since prose is
hard-wrapped; a mark that Latin scripts use ends a sentence only ahead of a blank or of a script without blanks, so a
file name and an address are none; and a full stop behind an abbreviation, an initial or an ordinal ends none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import regex

# Without their full stop; one letter alone (`U.S.`, `e.g.`, an initial) needs no entry. Case counts.
_ABBREVIATIONS = frozenset(
    """
    Mr Mrs Ms Mx Messrs Dr Drs Prof Rev Hon Gov Sen Rep Pres Gen Col Maj Capt Cpt Lt Sgt Adm Cmdr Supt St Ste Mt Ft Jr
    Sr Esq Ph Inc Ltd Co Corp Cos Bros Dept Univ Assn Ave Blvd Rd Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
    vs cf al etc ca approx est resp viz ibid op seq et incl excl max min avg std temp ext tel fax
    Nr Fig fig Figs figs Eq eq Eqs eqs Ref Refs ref refs Sec sec Sect Ch ch Chap chap Vol vol Vols pp Pp Par par
    Art Tab Ex ex Ed ed eds Eds trans repr Def Thm Prop Lem Cor App Pt pt pts Ver ver Rel
    bzw usw vgl Vgl evtl ggf inkl exkl zzgl bspw Bsp sog Abb Abs Abt Aufl Bd Bde Hrsg Kap Str Tel Hr Fr Frl geb gest
    Mio Mrd Anm Nrn Ziff lfd
    Mme Mlle Mmes MM av env fasc hab éd chap coll Cie boul
    Sra Srta Sres Ud Uds pág págs núm aprox Dra Lic Ing Av
    Sig Dott Avv Egr ecc sigg pag
    г гг ул им др пр см рис табл стр тыс млн млрд руб проф акад
    """.split()  # noqa: RUF001 - Russian abbreviations are written in Cyrillic
)
# Marks of scripts that part words by blanks: those that may end an abbreviation, and those that always end a sentence.
_STOPS = r".\u2024\ufe52\u2026"
_CALLS = r"!?\u203c\u203d\u2047-\u2049"
_MARKS = r"\p{SB=ATerm}\p{SB=STerm}\u2026"
_BLANK = r"[\s\x1c-\x1f]"
_ATTACHED = r"\p{SB=Extend}\p{SB=Format}"
# What belongs to the sentence behind its mark. Ahead of a blank an opening quote closes, as it does in German.
_CLOSERS = rf"(?P<closers>[\p{{SB=Close}}{_ATTACHED}]*+)"
_CLOSERS_WITHOUT_BLANK = rf"(?P<closers>[\p{{Pe}}\p{{Pf}}\"'{_ATTACHED}]*+)"
_WITHOUT_BLANKS = r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]"
_CONTINUES = rf"(?![{_MARKS}\p{{SB=SContinue}}])"
# A full stop that lower case goes on behind. Looked at only so far: what comes later is of another sentence.
_LOWER = rf"(?![^{_MARKS}\p{{SB=OLetter}}\p{{SB=Upper}}\p{{SB=Lower}}\p{{SB=Sep}}]{{0,16}}+\p{{SB=Lower}})"
_BEHIND = (
    rf"(?:(?<=[{_STOPS}])(?={_CLOSERS}{_BLANK}++{_CONTINUES}{_LOWER})"
    rf"|(?<=[{_CALLS}])(?={_CLOSERS}{_BLANK}++{_CONTINUES})"
    rf"|(?<=[{_STOPS}{_CALLS}])(?<!\p{{N}}.)(?={_CLOSERS_WITHOUT_BLANK}{_WITHOUT_BLANKS})"
    rf"|(?<![{_STOPS}{_CALLS}])(?={_CLOSERS_WITHOUT_BLANK}{_BLANK}*+{_CONTINUES})(?!(?<=\uff0e)[\p{{N}}\p{{L}}]))"
)
_SHORT = (
    r"(?:(?<!\w)\L<abbreviations>|(?<!\w)[Nn]os?(?=\.\s*+\p{N})"
    r"|(?<![\w'\u2019])[\p{Lu}\p{Ll}]|(?<![\p{N}\p{L}.,])\p{N}{1,2})"
)
_SENTENCE_END = regex.compile(rf"[{_MARKS}](?<!{_SHORT}\.){_BEHIND}", abbreviations=_ABBREVIATIONS)
_FIRST_MARKS = regex.compile(rf"[{_MARKS}]++")
_LAST_MARKS = regex.compile(rf"(?r)[{_MARKS}]++")
_LAST_LINE = regex.compile(rf"(?r)[{_MARKS}:][\p{{SB=Close}}{_ATTACHED}]*+[ \t]*+\n")
# So much behind the window decides whether a mark in it ends a sentence.
_LOOK_AHEAD_CHARS = 64
# Where so many marks in a row end no sentence (a table of numbers), what they stand in is no prose.
_MAX_MARKS = 32


def has_sentence_marks(text: str) -> bool:
    """False where no sentence can end."""
    return _FIRST_MARKS.search(text) is not None


def first_sentence_end(text: str, start: int, end: int) -> int | None:
    """Where the first sentence that ends in the window ends: behind its mark and what closes it."""
    return next(_find_ends(text, end, _FIRST_MARKS.finditer(text, start, end)), None)


def last_sentence_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Where sentences in the window end, the last one first."""
    return _find_ends(text, end, _LAST_MARKS.finditer(text, start, end))


def last_sentence_line_end(lines: str, start: int, end: int) -> int | None:
    """Behind the last line end in the window that ends a sentence, too."""
    found = _LAST_LINE.search(lines, start, end)
    return found.end() if found else None


def _find_ends(text: str, end: int, marks: Iterator[regex.Match[str]]) -> Iterator[int]:
    for run in islice(marks, _MAX_MARKS):
        found = _SENTENCE_END.match(text, run.end() - 1, min(end + _LOOK_AHEAD_CHARS, len(text)))
        if found and found.end("closers") <= end:
            yield found.end("closers")
