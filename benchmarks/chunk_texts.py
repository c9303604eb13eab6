"""The texts that splitters are timed on: real documents, real code, and hostile inputs made to a length.

Every hostile input is named by what it is made of; equal calls make equal texts.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import random
import site
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType

from memory_core.models import ContentType

CORPORA = Path(__file__).parents[2] / "shared" / "corpora"
_RFCS = "rfcs-older.tar.gz"
_SEED = 3
_CJK = (0x4E00, 0x9FA5)


@dataclass(frozen=True, slots=True)
class Text:
    """A text to cut, and what the product would know of it."""

    content: str
    content_type: ContentType = ContentType.TEXT
    language: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a hostile input of a given length is made, and its type."""

    make: Callable[[int], str]
    content_type: ContentType = ContentType.TEXT
    language: str = ""

    def text(self, chars: int) -> Text:
        """The input, exactly so long."""
        return Text(self.make(chars), self.content_type, self.language)


def find_corpora() -> Path:
    """Where the shared corpora are: MEMORY_CORPORA, else beside the project.

    Raises:
        SystemExit: they are not there.
    """
    path = Path(os.environ.get("MEMORY_CORPORA", CORPORA))
    if not path.is_dir():
        raise SystemExit(f"There is no {path}. Set MEMORY_CORPORA to the folder of the shared corpora.")
    return path


def read_rfcs(corpora: Path) -> list[Text]:
    """The Markdown files of the older state of the RFC corpus."""
    with tarfile.open(corpora / _RFCS) as archive:
        files = sorted((file for file in archive if file.name.endswith(".md")), key=lambda file: file.name)
        contents = [content.read().decode() for file in files if (content := archive.extractfile(file))]
    return [Text(content, ContentType.MARKDOWN) for content in contents if content.strip()]


def read_code(max_bytes: int) -> list[Text]:
    """Python files of this interpreter and its packages, in the order of their names, up to so many bytes in all."""
    texts: list[Text] = []
    left = max_bytes
    for path in _python_files():
        content = path.read_bytes()
        if len(content) <= left and (decoded := _decode(content)).strip():
            texts.append(Text(decoded, ContentType.CODE, "python"))
            left -= len(content)
    return texts


def _python_files() -> Iterator[Path]:
    for folder in dict.fromkeys([sysconfig.get_path("stdlib"), *site.getsitepackages()]):
        yield from sorted(path for path in Path(folder).rglob("*.py") if path.is_file())


def _decode(content: bytes) -> str:
    """Text, or nothing where a file is not UTF-8: some are test files for just that."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""


def _repeat(pattern: str) -> Callable[[int], str]:
    return lambda chars: (pattern * (chars // len(pattern) + 1))[:chars]


def _between(opening: str, filling: str, closing: str) -> Callable[[int], str]:
    """One opening, as much filling as fits, one closing."""
    return lambda chars: opening + filling * ((chars - len(opening) - len(closing)) // len(filling)) + closing


def _make_cjk(chars: int) -> str:
    generator = random.Random(_SEED)  # noqa: S311 - a seeded generator makes the same text on every run
    return "".join(map(chr, generator.choices(range(*_CJK), k=chars)))


def _make_words(chars: int) -> str:
    generator = random.Random(_SEED)  # noqa: S311 - seeded: equal text on every run
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(generator.choices(letters, k=generator.randint(1, 12))) for _ in range(5_000)]
    return " ".join(generator.choices(words, k=chars // 4))[:chars]


def _make_base64(chars: int) -> str:
    return base64.b64encode(random.Random(_SEED).randbytes(chars)).decode()[:chars]  # noqa: S311 - seeded: equal text on every run


def _make_json(chars: int) -> str:
    """One line of valid JSON: a list of records."""
    records: list[str] = []
    length = 2
    for number in count():
        record = {
            "id": number,
            "name": f"service {number}",
            "ports": [number % 7, 443],
            "on": number % 2 == 0,
            "x": None,
        }
        records.append(json.dumps(record, separators=(",", ":")))
        length += len(records[-1]) + 1
        if length > chars:
            return f"[{','.join(records[:-1])}]"
    raise AssertionError  # numbers do not end


def _make_csv(chars: int) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(["id", "name", "note"])
    for number in count():
        if rows.tell() >= chars:
            break
        writer.writerow([number, f"name {number}", 'two\nlines, and a "quote"' if number % 10 == 0 else "plain"])
    return rows.getvalue()[:chars]


HOSTILE: Mapping[str, Recipe] = MappingProxyType(
    {
        "words, one line": Recipe(_make_words),
        "one letter": Recipe(_repeat("a")),
        "CJK, no punctuation": Recipe(_make_cjk),
        "base64, one line": Recipe(_make_base64),
        "JSON, one line": Recipe(_make_json, ContentType.JSON),
        "JSON, [ only": Recipe(_repeat("["), ContentType.JSON),
        "<h1 repeated": Recipe(_repeat("<h1 "), ContentType.HTML),
        "<div> never closed": Recipe(_repeat("<div>a "), ContentType.HTML),
        "# a and blanks": Recipe("# a".ljust, ContentType.MARKDOWN),
        "# a, blanks, b": Recipe(_between("# a", " ", "b"), ContentType.MARKDOWN),
        "emoji": Recipe(_repeat("\U0001f680")),
        "ZWJ chain": Recipe(_repeat("\U0001f469\u200d")),
        "combining marks": Recipe(_between("e", "\u0301", "e")),
        "a per line": Recipe(_repeat("a\n"), ContentType.MARKDOWN),
        "a per paragraph": Recipe(_repeat("a\n\n"), ContentType.MARKDOWN),
        "list items": Recipe(_repeat("- a\n"), ContentType.MARKDOWN),
        "nested list": Recipe(_repeat("- "), ContentType.MARKDOWN),
        "# a per line": Recipe(_repeat("# a\n"), ContentType.MARKDOWN),
        "underlined headings": Recipe(_repeat("a\n=\n"), ContentType.MARKDOWN),
        "blank lines": Recipe(_between("a", "\n", "a"), ContentType.MARKDOWN),
        "fences": Recipe(_repeat("```\n"), ContentType.MARKDOWN),
        "quotes": Recipe(_repeat("> "), ContentType.MARKDOWN),
        "quote lines": Recipe(_repeat("> a\n"), ContentType.MARKDOWN),
        "table rows": Recipe(_between("| a | b |\n| - | - |\n", "| 1 | 2 |\n", "\n"), ContentType.MARKDOWN),
        "CSV": Recipe(_make_csv, ContentType.CSV),
        "CSV, quote never closed": Recipe(_between('a,b\n"', "1,2\n", "3"), ContentType.CSV),
        "rst titles": Recipe(_repeat("a\n=\n\n"), ContentType.RST),
        "code, one line": Recipe(_repeat("x=f(1);"), ContentType.CODE, "python"),
        "code, ( only": Recipe(_repeat("("), ContentType.CODE, "python"),
        "code, short functions": Recipe(_repeat("def f():\n    pass\n\n"), ContentType.CODE, "python"),
    }
)
