"""A line of Markdown in, how far it is indented or the pattern of the lines below that are alike out."""

from __future__ import annotations

import re
from functools import lru_cache

TAB_COLUMNS = 4
CODE_INDENT_COLUMNS = 4
_ATX_CLOSING = re.compile(r"(?:^|[ \t])#+[ \t]*$")


def count_columns(indent: str) -> int:
    """Columns of blanks and tabs."""
    return len(indent.expandtabs(TAB_COLUMNS)) if "\t" in indent else len(indent)


def atx_name(text: str) -> str:
    """The text of a heading behind its marks, without the closing ones."""
    name = text.strip()
    return _ATX_CLOSING.sub("", name) if name.endswith("#") else name


@lru_cache(maxsize=6)
def atx_lines(depth: int) -> re.Pattern[str]:
    """Headings of so many marks at the left edge, a line each."""
    return re.compile(rf"(?:\n#{{{depth}}}[ \t][^\n]*+)++")


@lru_cache(maxsize=256)
def closing_fence(mark: str, length: int, column: int) -> re.Pattern[str]:
    """The line that ends a fence of so many marks inside an item at this column."""
    return re.compile(rf"\n[ \t]{{0,{column + CODE_INDENT_COLUMNS - 1}}}{re.escape(mark)}{{{length},}}+[ \t]*+\n")


@lru_cache(maxsize=256)
def item_lines(indent: str, mark: str, gap: str) -> re.Pattern[str]:
    """Items of a line each, with this mark and text that is a paragraph."""
    bullet = r"\d{1,9}+" + re.escape(mark) if mark in ".)" else re.escape(mark)
    return re.compile(rf"(?:\n{re.escape(indent)}{bullet}{gap}(?=[A-Za-z(\[])[^\n]*+)++")


@lru_cache(maxsize=256)
def left_of(column: int) -> re.Pattern[str]:
    """A line that is not blank and begins left of the column."""
    return re.compile(rf"\n(?=[^\n])(?! {{{column}}}|[ \t]*+(?:\n|\Z)|\t)")
