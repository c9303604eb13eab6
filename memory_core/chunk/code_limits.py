"""A text of code in, how much of it is unfinished at once out: what a parser keeps waiting, and may take squared.

A parser that knows several readings of a text keeps all of them until a statement ends, and an error makes it copy
what is waiting, for each reading: 8,000 bytes of `a=>a=>` take 2 GB. Real code never waits for much. The count is made
without knowing the language: it is one pass over brackets, signs, separators and lines.
"""

from __future__ import annotations

import re
from typing import Final

_SIGNS = b"=<>?:!~+-*&|^%@$#\\/"
_CLASS = re.escape(_SIGNS)
# A line that can end a statement: nothing on it or on the next one says that it goes on.
_LINE_END = re.compile(rb"(?<![\s" + _CLASS + rb".(\[{,])[ \t]*+\n\s*+(?=[\w})\]\"'@#/$])")
_LINE_MARK = b"\x01"
_DIRECTIVE = re.compile(rb"\n[ \t]*+#")
# A ruler in a comment is one sign.
_RULER = re.compile(rb"([" + _CLASS + rb"])\1{3,}+")
_SIGN, _OPEN, _CLOSE, _CLOSE_BRACE, _COMMA, _END, _LINE, _LESS, _GREATER = range(9)
_CODES = bytes.maketrans(
    _SIGNS + b"([{)]},;" + _LINE_MARK,
    bytes(_LESS if sign == ord("<") else _GREATER if sign == ord(">") else _SIGN for sign in _SIGNS)
    + bytes([_OPEN, _OPEN, _OPEN, _CLOSE, _CLOSE, _CLOSE_BRACE, _COMMA, _END, _LINE]),
)
_OTHERS: Final = bytes(set(range(256)) - set(_SIGNS + b"([{)]},;" + _LINE_MARK))
# A bracket that is open weighs more than a sign: so many signs.
_NESTING_WEIGHT: Final = 2


def count_unfinished(source: bytes, *, is_ended_by_lines: bool, has_directives: bool) -> int:
    """Count what is unfinished at the worst place: signs since their statement or item began, and what they stand in.

    `is_ended_by_lines` is true where a statement can end with its line, `has_directives` where a line that begins with
    a number sign ends what stands above it. Brackets and angles that are open, whatever they are there for, count
    twice.
    """
    if has_directives:
        source = _DIRECTIVE.sub(b";", source)
    marked = _RULER.sub(rb"\1", _LINE_END.sub(_LINE_MARK, source))
    total = angles = worst = 0
    counts = [0]
    before = _LINE
    for code in marked.translate(_CODES, _OTHERS):
        if code == _SIGN or code >= _LESS:
            total += 1
            counts[-1] += 1
            angles = max(0, angles + (code == _LESS) - (code == _GREATER))
            worst = max(worst, total, angles * _NESTING_WEIGHT)
        elif code == _OPEN:
            counts.append(0)
            worst = max(worst, len(counts) * _NESTING_WEIGHT)
        elif code in {_CLOSE, _CLOSE_BRACE}:
            if len(counts) > 1:
                total -= counts.pop()
        elif code != _LINE or is_ended_by_lines or before == _CLOSE_BRACE:
            total -= counts[-1]
            counts[-1] = 0
        angles = 0 if code in {_END, _CLOSE_BRACE} else angles
        before = code
    return worst
