"""Text that steers no terminal. In: any text. Out: the same without what steers. Prints nothing."""

from __future__ import annotations

import json
import unicodedata

# The joiners make one sign of several (emoji, Persian, Hindi) and steer nothing.
_KEPT_CONTROLS = frozenset("\n\t\u200c\u200d")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text with a dot for whatever a terminal would obey; lines and tabs stay."""
    return "".join("·" if _is_obeyed(c) else c for c in text)


def visible_line(text: object) -> str:
    """The same for what stands inside a line (a title, tag, id or path): it cannot begin a line of its own."""
    return visible(str(text)).replace("\n", "·").replace("\t", "·")


def visible_json(text: str) -> str:
    """JSON with an escape for whatever a terminal would obey: it still means the same."""
    return "".join(json.dumps(c)[1:-1] if _is_obeyed(c) else c for c in text)


def _is_obeyed(character: str) -> bool:
    return character not in _KEPT_CONTROLS and unicodedata.category(character) in _HIDDEN_CATEGORIES
