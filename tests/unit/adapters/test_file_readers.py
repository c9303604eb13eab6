"""What a scan lists and what reading a file gives, on real directories."""

from __future__ import annotations

import os
import socket
import unicodedata
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Literal

import pytest

from memory_core.adapters import file_readers
from memory_core.adapters.file_readers import read_text_file, scan_directory
from memory_core.errors import SyncError
from memory_core.files import Blank, Changed, DirectoryScan, FileText, Quarantine, ScannedFile
from memory_core.models import ContentType

LIMIT_BYTES = 10_000


def fill(root: Path, *paths: str, text: str = "text") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def scan(root: Path, *, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> DirectoryScan:
    return scan_directory(root, include=include, exclude=exclude)


def paths_of(found: DirectoryScan) -> list[str]:
    return [file.path for file in found.files]


def by_path(found: DirectoryScan) -> dict[str, ScannedFile]:
    return {file.path: file for file in found.files}


# --- the scan ---------------------------------------------------------------------------------------------------------


def test_a_tree_is_listed_by_path_with_size_and_time(tmp_path: Path) -> None:
    """Every file at every depth, sorted, with what the system says of it."""
    fill(tmp_path, "b.md", "a/deep/er/c.txt", "a.py")
    found = scan(tmp_path)
    assert paths_of(found) == ["a.py", "a/deep/er/c.txt", "b.md"]
    assert found.unreadable == ()
    stat = (tmp_path / "b.md").stat()
    assert found.files[2] == ScannedFile(
        path="b.md",
        absolute=tmp_path / "b.md",
        size=4,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        content_type=ContentType.MARKDOWN,
    )


def test_a_date_that_no_manifest_can_hold_is_bounded(tmp_path: Path) -> None:
    """A file dated to the year 2350 must not end the whole run."""
    fill(tmp_path, "a.md")
    os.utime(tmp_path / "a.md", (12_000_000_000, 12_000_000_000))
    assert scan(tmp_path).files[0].mtime_ns <= 2**63 - 1
    reading = read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES)
    assert isinstance(reading, FileText)
    assert reading.mtime_ns == scan(tmp_path).files[0].mtime_ns


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("a.md", "markdown"),
        ("a.MARKDOWN", "markdown"),
        ("a.txt", "text"),
        ("a.unheard-of", "text"),
        ("README", "text"),
        (".gitattributes", "text"),
        ("a.py", "code"),
        ("a.TS", "code"),
        ("Dockerfile", "code"),
        ("a.yaml", "code"),
        ("a.htm", "html"),
        ("a.html", "html"),
        ("a.json", "json"),
        ("a.ndjson", "json"),
        ("a.rst", "rst"),
        ("a.csv", "csv"),
        ("a.tsv", "csv"),
    ],
)
def test_the_name_says_the_content_type(tmp_path: Path, name: str, content_type: str) -> None:
    """What is unknown is text, and its bytes decide later whether it is."""
    fill(tmp_path, name)
    file = scan(tmp_path).files[0]
    assert (file.content_type, file.skip_reason) == (content_type, None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.svg", "an .svg picture is not text"),
        ("a.PNG", "a .png picture is not text"),
        ("a.zip", "a .zip archive is not text"),
        ("a.tar.gz", "a .gz archive is not text"),
        ("a.mp3", "an .mp3 sound is not text"),
        ("a.woff2", "a .woff2 font is not text"),
        ("a.docx", "a .docx office document is not text"),
    ],
)
def test_what_is_not_text_is_listed_with_the_reason(tmp_path: Path, name: str, reason: str) -> None:
    """Nothing disappears in silence."""
    fill(tmp_path, name)
    assert scan(tmp_path).files[0].skip_reason == reason


def test_ignore_files_count_at_every_level(tmp_path: Path) -> None:
    """As git does it: the deepest file decides, its patterns start at its folder, an ignored folder is not entered."""
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n/top.md\n# comment\n\n!\n", encoding="utf-8")
    (tmp_path / "sub" / ".gitignore").write_text("\ufeff!keep.log\n/own.md\n", encoding="utf-8")
    fill(tmp_path, "a.log", "top.md", "build/x.md", "a.md", "sub/top.md", "sub/keep.log", "sub/other.log")
    fill(tmp_path, "sub/own.md", "sub/deep/own.md", "sub/build/x.md", "sub/deep/keep.log")
    found = [path for path in paths_of(scan(tmp_path)) if not path.endswith(".gitignore")]
    assert found == ["a.md", "sub/deep/keep.log", "sub/deep/own.md", "sub/keep.log", "sub/top.md"]


def test_globs_choose_what_belongs(tmp_path: Path) -> None:
    """Include narrows, exclude takes away and wins."""
    fill(tmp_path, "a.md", "b.txt", "docs/c.md", "docs/d.txt", "drafts/e.md")
    assert paths_of(scan(tmp_path, include=("*.md",))) == ["a.md", "docs/c.md", "drafts/e.md"]
    assert paths_of(scan(tmp_path, include=("docs/",))) == ["docs/c.md", "docs/d.txt"]
    assert paths_of(scan(tmp_path, include=("*.md",), exclude=("drafts/", "a.*"))) == ["docs/c.md"]


def test_a_glob_that_is_none_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """A typing mistake must not silently mean everything."""
    with pytest.raises(SyncError, match=r"exclude globs is not valid\. Write it as"):
        scan(tmp_path, exclude=("!",))


def test_tool_folders_and_editor_leftovers_are_no_part_of_a_feed(tmp_path: Path) -> None:
    """Version control, caches and half-written copies; other hidden files are like any other."""
    fill(tmp_path, ".git/config", "x/node_modules/a.md", "__pycache__/a.md", ".venv/a.md", ".hg/a", ".svn/a")
    fill(tmp_path, "a.md~", ".a.md.swp", ".#a.md", "#a.md#", "~$a.docx", ".DS_Store", ".github/guide.md", ".env.sample")
    assert paths_of(scan(tmp_path)) == [".env.sample", ".github/guide.md"]


def test_a_missing_root_fails_and_says_what_to_do(tmp_path: Path) -> None:
    """S4: an unmounted directory is an error, not an empty one."""
    with pytest.raises(SyncError, match=r"does not exist\. Check the path, or mount it"):
        scan(tmp_path / "gone")


def test_a_file_as_root_fails(tmp_path: Path) -> None:
    """A file is not a directory."""
    fill(tmp_path, "a.md")
    with pytest.raises(SyncError, match="is not a directory"):
        scan(tmp_path / "a.md")


def forbid(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    real: Callable[..., object] = os.scandir
    forbidden = {os.fspath(folder) for folder in folders}

    def guarded(path: str) -> object:
        if path in forbidden:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(file_readers.os, "scandir", guarded)


def test_an_unreadable_root_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4: nothing can be concluded from a root that cannot be listed."""
    forbid(monkeypatch, tmp_path)
    with pytest.raises(SyncError, match=r"cannot be listed \(permission denied\)\. Give the user"):
        scan(tmp_path)


def test_an_unreadable_folder_is_named_and_the_rest_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4: the plan keeps what is below it."""
    fill(tmp_path, "a.md", "sub/closed/b.md", "sub/c.md")
    forbid(monkeypatch, tmp_path / "sub" / "closed")
    found = scan(tmp_path)
    assert paths_of(found) == ["a.md", "sub/c.md"]
    assert found.unreadable == ("sub/closed",)


def test_a_folder_whose_ignore_file_cannot_be_read_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file would have hidden must not become public by an error."""
    fill(tmp_path, "a.md", "sub/.gitignore", "sub/secret.md")

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    found = scan(tmp_path)
    assert paths_of(found) == ["a.md"]
    assert found.unreadable == ("sub",)


def test_links_are_followed_to_files_inside_only(tmp_path: Path) -> None:
    """S22: no loop can catch the scan, and no link leads out of the root."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    fill(root, "a.md", "sub/b.md", text="inside")
    fill(outside, "secret.md", "folder/x.md")
    (root / "to-file.md").symlink_to("a.md")
    (root / "out.md").symlink_to(outside / "secret.md")
    (root / "sub" / "loop").symlink_to(root)
    (root / "out-folder").symlink_to(outside / "folder")
    (root / "nowhere.md").symlink_to("missing.md")
    (root / "self.md").symlink_to("self.md")
    found = by_path(scan(root))
    assert {path: file.skip_reason for path, file in found.items()} == {
        "a.md": None,
        "sub/b.md": None,
        "to-file.md": None,
        "out.md": "the link leads out of the directory",
        "sub/loop": "a link to a directory is not followed; make the directory a feed of its own",
        "out-folder": "a link to a directory is not followed; make the directory a feed of its own",
        "nowhere.md": "the link leads nowhere",
        "self.md": "the link leads nowhere",
    }
    assert found["to-file.md"].size == len("inside")


def test_a_root_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    """The owner named it; links inside are still inside."""
    fill(tmp_path / "real", "a.md")
    (tmp_path / "real" / "b.md").symlink_to("a.md")
    (tmp_path / "root").symlink_to("real")
    assert [file.skip_reason for file in scan(tmp_path / "root").files] == [None, None]


def test_a_hard_link_is_a_file_of_its_own(tmp_path: Path) -> None:
    """S22: two names are two documents."""
    fill(tmp_path, "a.md")
    os.link(tmp_path / "a.md", tmp_path / "b.md")
    assert paths_of(scan(tmp_path)) == ["a.md", "b.md"]


def test_pipes_and_sockets_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that waits for a pipe waits for ever."""
    os.mkfifo(tmp_path / "pipe.md")
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.md")
        found = scan(tmp_path)
    assert {file.skip_reason for file in found.files} == {"a pipe, socket or device is not a file with text"}
    assert read_text_file(tmp_path / "pipe.md", max_bytes=LIMIT_BYTES) == Quarantine(reason="it is not a regular file")


@pytest.mark.parametrize("name", ["a b.md", "a#b.md", "a?b%20.md", "🎉.md", "-a.md", "a\nb.md", "a\\b.md", " .md"])
def test_any_name_is_listed_and_read(tmp_path: Path, name: str) -> None:
    """S22: blanks, signs and emoji in names."""
    fill(tmp_path, name, text="words")
    (file,) = scan(tmp_path).files
    reading = read_text_file(file.absolute, max_bytes=LIMIT_BYTES)
    assert file.path == name
    assert isinstance(reading, FileText)


def test_decomposed_names_are_composed_in_the_path(tmp_path: Path) -> None:
    """S22: the path is NFC, the file is still found under the name that it has."""
    fill(tmp_path, unicodedata.normalize("NFD", "é/café.md"))
    (file,) = scan(tmp_path).files
    assert file.path == unicodedata.normalize("NFC", "é/café.md")
    assert file.absolute.exists()


def test_of_two_names_that_are_one_in_nfc_one_is_read(tmp_path: Path) -> None:
    """S22: the composed name wins, the other is listed with the remedy and not lost in silence."""
    composed, decomposed = unicodedata.normalize("NFC", "é.md"), unicodedata.normalize("NFD", "é.md")
    fill(tmp_path, composed, decomposed)
    first, second = scan(tmp_path).files
    assert (first.path, first.absolute.name, first.skip_reason) == (composed, composed, None)
    assert second.path == "é.md (e\\u0301.md)"
    assert "rename one of the two" in (second.skip_reason or "")


def test_a_name_that_is_not_utf8_is_spelled_out_and_read(tmp_path: Path) -> None:
    """An old name costs no document and no lone surrogate gets into a path."""
    with open(os.fsencode(tmp_path) + b"/caf\xe9.md", "w", encoding="utf-8") as stream:  # noqa: PTH123 - bytes as name
        stream.write("words")
    (file,) = scan(tmp_path).files
    assert file.path == "caf\\xe9.md"
    assert isinstance(read_text_file(file.absolute, max_bytes=LIMIT_BYTES), FileText)


# --- one file ---------------------------------------------------------------------------------------------------------


def test_a_file_is_read_with_its_encoding_and_its_stat(tmp_path: Path) -> None:
    """What belongs in the manifest comes from the moment of reading; line ends stay as they are."""
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffcafé\r\nb\0".encode())
    stat = path.stat()
    assert read_text_file(path, max_bytes=LIMIT_BYTES) == FileText(
        text="café\r\nb",
        encoding="utf-8-sig",
        notes=("1 NUL character (U+0000) removed.",),
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
    )


def test_a_picture_called_txt_is_quarantined(tmp_path: Path) -> None:
    """S9: the bytes decide, not the name."""
    (tmp_path / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0")
    reading = read_text_file(tmp_path / "a.txt", max_bytes=LIMIT_BYTES)
    assert reading == Quarantine(reason="it is binary: its first bytes are those of a PNG picture")


def test_a_file_over_the_limit_is_quarantined_with_both_numbers(tmp_path: Path) -> None:
    """The limit itself is allowed."""
    fill(tmp_path, "a.md", text="a" * (LIMIT_BYTES + 1))
    reading = read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES)
    assert reading == Quarantine(reason="it has 10,001 bytes and the limit is 10,000; split it")
    assert isinstance(read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES + 1), FileText)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        (" \n\t\u3000\u2028", "it holds nothing but blanks"),
        ("\ufeff\n", "it holds nothing but blanks"),
        ("\0", "it holds nothing but blanks"),
    ],
)
def test_a_blank_file_is_no_document(tmp_path: Path, text: str, reason: str) -> None:
    """There is nothing to remember in it."""
    fill(tmp_path, "a.md", text=text)
    assert read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES) == Blank(reason=reason)


def disturb(monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], *, times: int) -> None:
    """Let somebody change the file after each of the first openings."""
    real = Path.open
    left = [times]

    def opening(path: Path, mode: Literal["rb"]) -> BufferedReader:
        stream = real(path, mode)
        if left[0]:
            left[0] -= 1
            change(path)
        return stream

    monkeypatch.setattr(Path, "open", opening)


def append(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b" more")
    os.close(descriptor)


def replace_by_rename(path: Path) -> None:
    stat = path.stat()
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, b"NEW!")
    os.close(descriptor)
    os.utime(new, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    new.replace(path)


@pytest.mark.parametrize(("change", "text"), [(append, "text more"), (replace_by_rename, "NEW!")])
def test_a_file_that_changes_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], text: str
) -> None:
    """S22: neither a partial write nor an atomic rename of equal size and time gives a mixed text."""
    fill(tmp_path, "a.md")
    disturb(monkeypatch, change, times=1)
    reading = read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES)
    assert isinstance(reading, FileText)
    assert reading.text == text


def test_a_file_that_never_rests_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S22: the next run reads it, and the reason says so."""
    fill(tmp_path, "a.md")
    disturb(monkeypatch, append, times=9)
    reading = read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES)
    assert reading == Changed(reason="it changed while it was read, twice; the next run reads it again")


def test_a_file_that_is_gone_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that vanished after the scan, or while it was read, is not a failure."""
    assert isinstance(read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES), Changed)
    fill(tmp_path, "b.md")
    disturb(monkeypatch, Path.unlink, times=1)
    assert isinstance(read_text_file(tmp_path / "b.md", max_bytes=LIMIT_BYTES), Changed)


def test_a_file_that_must_not_be_read_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed, so the next run tries it again."""
    fill(tmp_path, "a.md")

    def refuse(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SyncError, match=r"could not be read \(permission denied\)\. Give the user"):
        read_text_file(tmp_path / "a.md", max_bytes=LIMIT_BYTES)
