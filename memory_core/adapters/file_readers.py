"""A directory in, the list of its files out; a file in, its text or in words why there is none out. Writes nothing.

Both functions block: callers use a thread. What a scan does with names that are not plain files: a link to a file below
the root is read like a file; a link to a directory is not followed, so that no loop can catch the scan; everything else
is listed with a reason. `.gitignore` files at the root and below are honoured, those above the root are not: a feed is
the directory that its owner named.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from memory_core.adapters.file_types import content_type_of, explain_not_text, is_always_ignored
from memory_core.adapters.text_decoding import decode_text
from memory_core.errors import SyncError
from memory_core.files import Blank, Changed, DirectoryScan, FileReading, FileText, Quarantine, ScannedFile

_IGNORE_FILE = ".gitignore"
_READ_ATTEMPTS = 2
_OWN_DIRECTORIES = ("services", "logs", "search")  # of MEMORY_HOME
_APART_REASON = "these are files of the memory itself (MEMORY_HOME)"
_LARGEST_INT64 = 2**63 - 1


def scan_directory(
    root: Path, *, include: Sequence[str], exclude: Sequence[str], memory_home: Path | None = None
) -> DirectoryScan:
    r"""List what is below a root, by path. `include` and `exclude` are gitignore-style globs; no include means all.

    Names are NFC in `path` and as the system has them in `absolute`; bytes that are not UTF-8 show as \xNN in `path`.
    `memory_home` holds passwords and databases: below the root it is listed with a reason, and never entered.

    Raises:
        SyncError: the root is missing, is not a directory, cannot be listed or is the memory's own, or a glob is not
            valid.
    """
    _check_root(root)
    walk = _Walk(
        root,
        include=_compile_globs(include, "include"),
        exclude=_compile_globs(exclude, "exclude"),
        apart=_find_own_directories(root, memory_home) if memory_home else frozenset(),
    )
    files = list(walk.list_files())
    files.sort(key=lambda file: file.path)
    return DirectoryScan(files=tuple(_set_twins_apart(files)), unreadable=tuple(sorted(walk.unreadable)))


def read_text_file(path: Path, *, max_bytes: int) -> FileReading:
    """Read and decode one file; a file that changes meanwhile is read once more, and then left to the next run.

    Raises:
        SyncError: the system does not let us read it.
    """
    for _ in range(_READ_ATTEMPTS):
        try:
            reading = _read_once(path, max_bytes=max_bytes)
        except FileNotFoundError:
            return Changed(reason="it was removed or renamed before it could be read; the next run looks again")
        except OSError as error:
            raise SyncError(
                f"The file could not be read ({_say(error)}). Give the user that runs this the right to read it.",
                cause=error,
            ) from None
        if reading is not None:
            return reading
    return Changed(reason="it changed while it was read, twice; the next run reads it again")


# --- the scan ---------------------------------------------------------------------------------------------------------


def _check_root(root: Path) -> None:
    try:
        found = root.stat()
    except FileNotFoundError:
        raise SyncError(f"The directory {root} does not exist. Check the path, or mount it; nothing changed.") from None
    except ValueError as error:  # a NUL in the name
        raise SyncError(
            "The directory's name is not a legal path. Check the path; nothing changed.", cause=error
        ) from None
    except OSError as error:
        raise SyncError(
            f"The directory {root} cannot be reached ({_say(error)}). Check its rights; nothing changed.", cause=error
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise SyncError(f"{root} is not a directory. Name the directory that holds the file; nothing changed.")


def _find_own_directories(root: Path, memory_home: Path) -> frozenset[str]:
    """Where the memory keeps its files below the root. Other directories inside its home are the user's own."""
    real_root, home = os.path.realpath(root), os.path.realpath(memory_home)
    own = [os.path.realpath(memory_home / name) for name in _OWN_DIRECTORIES]
    if any(_lies_in(real_root, directory) for directory in own):
        raise SyncError(
            f"{root} holds files of the memory itself (passwords, databases, logs) and is never read. Name another "
            "directory; nothing changed."
        )
    return frozenset(path for path in (home, *own) if path != real_root and _lies_in(path, real_root))


def _lies_in(path: str, directory: str) -> bool:
    return os.path.commonpath([path, directory]) == directory


def _compile_globs(globs: Sequence[str], option: str) -> GitIgnoreSpec | None:
    try:
        return GitIgnoreSpec.from_lines(map(_compose, globs)) if globs else None
    except GitIgnorePatternError as error:
        raise SyncError(
            f"One of the {option} globs is not valid. Write it as in a .gitignore, such as docs/**/*.md.", cause=error
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """A directory to list. `path` ends in a slash, or is empty for the root; `rules` are the ignore files in force.

    Each rule goes with the length of the prefix that its own paths lack; the deepest comes first, as in git.
    """

    absolute: str
    path: str
    rules: tuple[tuple[GitIgnoreSpec, int], ...]

    def ignores(self, path: str) -> bool:
        for spec, prefix in self.rules:
            verdict = spec.check_file(path[prefix:]).include
            if verdict is not None:
                return verdict
        return False


class _Walk:
    """One walk over a tree with a list of folders to visit: no recursion, so that depth is no limit."""

    def __init__(
        self, root: Path, *, include: GitIgnoreSpec | None, exclude: GitIgnoreSpec | None, apart: frozenset[str]
    ) -> None:
        self.unreadable: set[str] = set()
        self._root = root
        self._real_root = os.path.realpath(root)
        self._include = include
        self._exclude = exclude
        self._apart = apart
        self._waiting: list[_Folder] = []

    def list_files(self) -> Iterator[ScannedFile]:
        self._waiting.append(_Folder(absolute=os.fspath(self._root), path="", rules=()))
        while self._waiting:
            folder = self._waiting.pop()
            try:
                with os.scandir(folder.absolute) as listing:
                    entries = list(listing)
                folder = _add_rules(folder, entries)
            except OSError as error:
                self._give_up(folder, error)
                continue
            for entry in entries:
                yield from self._visit(folder, entry)

    def _give_up(self, folder: _Folder, error: OSError) -> None:
        # A folder that vanished since its parent was listed is treated alike: only the next run knows it is gone.
        if not folder.path:
            raise SyncError(
                f"The directory {self._root} cannot be listed ({_say(error)}). Give the user that runs this the right "
                "to read it; nothing changed.",
                cause=error,
            ) from None
        self.unreadable.add(folder.path.rstrip("/"))

    def _visit(self, folder: _Folder, entry: os.DirEntry[str]) -> Iterator[ScannedFile]:
        if is_always_ignored(entry.name):
            return
        path = folder.path + _spell(entry.name)
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if self._leaves_out(folder, f"{path}/" if is_folder else path, is_folder=is_folder):
                return
            if is_folder and self._apart and os.path.realpath(entry.path) in self._apart:
                yield self._describe(entry, path)
            elif is_folder:
                self._waiting.append(_Folder(absolute=entry.path, path=f"{path}/", rules=folder.rules))
            else:
                yield self._describe(entry, path)
        except FileNotFoundError:
            return  # gone since its folder was listed
        except OSError:
            self.unreadable.add(path)

    def _leaves_out(self, folder: _Folder, path: str, *, is_folder: bool) -> bool:
        if self._exclude and self._exclude.check_file(path).include:
            return True
        if folder.rules and folder.ignores(path):
            return True
        return bool(self._include and not is_folder and not self._include.check_file(path).include)

    def _describe(self, entry: os.DirEntry[str], path: str) -> ScannedFile:
        found, reason = self._resolve(entry) if entry.is_symlink() else (entry.stat(follow_symlinks=False), None)
        if stat.S_ISDIR(found.st_mode):
            reason = _APART_REASON
        elif reason is None and not stat.S_ISREG(found.st_mode):
            reason = "a pipe, socket or device is not a file with text"
        return ScannedFile(
            path=path,
            absolute=Path(entry.path),
            size=found.st_size,
            mtime_ns=_bounded(found.st_mtime_ns),
            ctime_ns=_bounded(found.st_ctime_ns),
            content_type=content_type_of(entry.name),
            skip_reason=reason or explain_not_text(entry.name),
        )

    def _resolve(self, entry: os.DirEntry[str]) -> tuple[os.stat_result, str | None]:
        """What a link leads to; or the link itself, with the reason why it is not followed."""
        own = entry.stat(follow_symlinks=False)
        try:
            found = entry.stat()
            target = os.path.realpath(entry.path, strict=True)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}:
                raise
            return own, "the link leads nowhere"
        if stat.S_ISDIR(found.st_mode):
            return own, "a link to a directory is not followed; make the directory a feed of its own"
        if os.path.commonpath([self._real_root, target]) != self._real_root:
            return own, "the link leads out of the directory"
        if any(_lies_in(target, apart) for apart in self._apart):
            return own, _APART_REASON
        return found, None


def _add_rules(folder: _Folder, entries: Sequence[os.DirEntry[str]]) -> _Folder:
    """Put the folder's own ignore file in front; an OSError makes the folder unreadable: what it hides stays out."""
    own = next((entry for entry in entries if entry.name == _IGNORE_FILE and entry.is_file()), None)
    if own is None:
        return folder
    lines = Path(own.path).read_text(encoding="utf-8-sig", errors="replace").splitlines()
    spec = GitIgnoreSpec.from_lines(_compose(line) for line in lines if _is_valid_glob(line))
    return replace(folder, rules=((spec, len(folder.path)), *folder.rules))


def _is_valid_glob(line: str) -> bool:
    """As git does, pass over a line that is no pattern."""
    try:
        GitIgnoreSpec.from_lines([line])
    except GitIgnorePatternError:
        return False
    return True


def _spell(name: str) -> str:
    if name.isascii():
        return name
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        name = os.fsencode(name).decode("utf-8", "backslashreplace")
    return _compose(name)


def _compose(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _set_twins_apart(files: Sequence[ScannedFile]) -> Iterator[ScannedFile]:
    """Of two names that are one in NFC, read the one that is written so; list the other as it is written."""
    by_path: dict[str, list[ScannedFile]] = {}
    for file in files:
        by_path.setdefault(file.path, []).append(file)
    for path, twins in by_path.items():
        if len(twins) == 1:
            yield twins[0]
            continue
        first, *others = sorted(twins, key=lambda file: (not os.fspath(file.absolute).endswith(path), file.absolute))
        yield first
        for other in others:
            reason = "another file has the same name in composed letters (Unicode NFC); rename one of the two"
            native = ascii(os.fspath(other.absolute.name))[1:-1]
            yield replace(other, path=f"{path} ({native})", skip_reason=reason)


# --- one file ---------------------------------------------------------------------------------------------------------


def _read_once(path: Path, *, max_bytes: int) -> FileReading | None:
    """The reading, or None where the file was not the same before and after."""
    before = path.stat()
    if not stat.S_ISREG(before.st_mode):
        return Quarantine(reason="it is not a regular file")
    if before.st_size > max_bytes:
        return Quarantine(reason=f"it has {before.st_size:,} bytes and the limit is {max_bytes:,}; split it")
    with path.open("rb") as stream:
        content = stream.read(max_bytes + 1)
        opened = os.fstat(stream.fileno())
    after = path.stat()
    if not (_same(before, opened) and _same(opened, after) and len(content) == after.st_size):
        return None
    decoded = decode_text(content)
    if isinstance(decoded, Quarantine):
        return decoded
    if not decoded.text.strip():
        return Blank(reason="it is empty" if not content else "it holds nothing but blanks")
    return FileText(
        text=decoded.text,
        encoding=decoded.encoding,
        notes=decoded.notes,
        size=after.st_size,
        mtime_ns=_bounded(after.st_mtime_ns),
        ctime_ns=_bounded(after.st_ctime_ns),
    )


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two looks saw the same file unchanged; a file that was replaced by renaming has another inode."""
    return (one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) == (
        other.st_dev,
        other.st_ino,
        other.st_size,
        other.st_mtime_ns,
    )


def _bounded(nanoseconds: int) -> int:
    """A time that fits the 64 bits of the manifest: file systems hold dates behind 2262 too."""
    return max(-_LARGEST_INT64, min(nanoseconds, _LARGEST_INT64))


def _say(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
