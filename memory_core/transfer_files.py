"""The files of an export. In: names and bytes. Out: files that are whole or absent, and readings that stay inside.

Directories are made with mode 0700 and files with 0600. A file is written under a temporary name, synced, then renamed;
`sync_directory` makes the renames outlast a power cut. Nothing here knows what the files say, but for the head of an
array of vectors.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.lib import format as npy

from memory_core.errors import ConflictError, ValidationError

TEMPORARY_SUFFIX: Final = ".tmp"
# A document with 100 versions and the largest metadata, every character as an escape, is well below this.
MAX_LINE_BYTES: Final = 8_000_000
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_BLOCK_BYTES: Final = 1_000_000
_NPY_VERSION: Final = (1, 0)
_FLOAT32: Final = np.dtype("<f4")


def make_directory(path: Path) -> None:
    """Make a directory that is ours alone, and those above it; one that is there stays as it is."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Write a whole file."""
    with NewFile(path) as file:
        file.write(content)


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def hold_directory(path: Path) -> Generator[None]:
    """Keep other exports out of the directory; a killed process lets go of it.

    Raises:
        ConflictError: another process exports into it.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                f"Another export is writing to {path}. Wait until it is done, or choose another directory."
            ) from None
        yield
    finally:
        os.close(handle)


class NewFile:
    """A file that appears under its name only when it is complete; what an error ends leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        self._file: BinaryIO = os.fdopen(os.open(self._temporary, flags, _FILE_MODE), "w+b")
        self.sha256 = ""

    def write(self, content: bytes) -> None:
        """Append bytes."""
        self._file.write(content)

    def rewrite_head(self, content: bytes) -> None:
        """Replace the first bytes, as many as are given."""
        self._file.seek(0)
        self._file.write(content)

    def finish(self) -> None:
        """Sync and rename; `sha256` is known from here on."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.seek(0)
        self.sha256 = _digest(self._file)
        self._file.close()
        self._temporary.replace(self._path)

    def discard(self) -> None:
        """Give the file up."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.discard()


class NewVectors(NewFile):
    """A `.npy` file of float32 rows, appended in parts: the number of rows is written into its head at the end."""

    def __init__(self, path: Path, *, dimensions: int) -> None:
        super().__init__(path)
        self._dimensions = dimensions
        self._rows = 0
        self.write(_npy_head(0, dimensions))

    def append(self, vector: np.ndarray) -> None:
        """Append one row of `dimensions` numbers."""
        self.write(vector.astype(_FLOAT32, copy=False).tobytes())
        self._rows += 1

    def finish(self) -> None:
        """See NewFile."""
        self.rewrite_head(_npy_head(self._rows, self._dimensions))
        super().finish()


def _npy_head(rows: int, dimensions: int) -> bytes:
    """The head of a C-ordered float32 array; numpy pads it, so that it is as long for any number of rows."""
    head = BytesIO()
    npy.write_array_header_1_0(
        head, {"descr": npy.dtype_to_descr(_FLOAT32), "fortran_order": False, "shape": (rows, dimensions)}
    )
    return head.getvalue()


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """A directory to read from. Whatever its files say, nothing outside of it is opened. `root` has no links in it."""

    root: Path

    def open(self, name: str) -> BinaryIO:
        """Open a plain file by its path in the directory.

        Raises:
            ValidationError: it is missing, is no plain file, or lies outside (a path or a link that leaves it).
        """
        path = self.root / name
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a loop of links
            raise ValidationError(f"{name} is missing. Copy the whole export again.") from None
        if not real.is_relative_to(self.root):
            raise ValidationError(f"{name} leads out of the export. An export holds no links to other places.")
        try:
            handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise ValidationError(f"{name} cannot be read. Check its permissions.", cause=error) from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise ValidationError(f"{name} is no plain file. Copy the whole export again.")
        return os.fdopen(handle, "rb")

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """Read a whole file.

        Raises:
            ValidationError: as `open`, or it is larger than it can be.
        """
        with self.open(name) as file:
            content = _read_some(file, max_bytes + 1, name)
        if len(content) > max_bytes:
            raise ValidationError(f"{name} is larger than {max_bytes:,} bytes, which no export makes.")
        return content

    def read_lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        """The lines of a file with their numbers, from 1 on.

        Raises:
            ValidationError: as `open`, or a line is longer than it can be.
        """
        with self.open(name) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise ValidationError(f"{name}, line {number}: is longer than {MAX_LINE_BYTES:,} bytes.")
                yield number, line

    def hash(self, name: str) -> str:
        """The sha256 of a file, in hexadecimal digits.

        Raises:
            ValidationError: as `open`.
        """
        with self.open(name) as file:
            try:
                return _digest(file)
            except OSError as error:
                raise _unreadable(name, error) from None

    def open_vectors(self, name: str, *, rows: int, dimensions: int) -> BinaryIO:
        """Open an array of vectors, at its first row.

        Raises:
            ValidationError: it is no float32 array of that shape, or its length does not fit.
        """
        file = self.open(name)
        try:
            _check_vectors(file, name, (rows, dimensions))
        except BaseException:
            file.close()
            raise
        return file


def _check_vectors(file: BinaryIO, name: str, shape: tuple[int, int]) -> None:
    expected = f"an array of {shape[0]:,} x {shape[1]:,} float32 numbers"
    try:
        version = npy.read_magic(file)
        found, is_fortran, kind = npy.read_array_header_1_0(file)
    except (ValueError, EOFError, OSError, SyntaxError, TypeError) as error:
        raise ValidationError(f"{name} is not {expected}: it cannot be read as one.", cause=error) from None
    size = file.tell() + shape[0] * shape[1] * _FLOAT32.itemsize
    if version != _NPY_VERSION or is_fortran or kind != _FLOAT32 or tuple(found) != shape:
        raise ValidationError(f"{name} is not {expected}: its head says {kind} {found}. Copy the export again.")
    if os.fstat(file.fileno()).st_size != size:
        raise ValidationError(f"{name} is not {expected}: it is cut off or too long. Copy the export again.")


def read_vectors(file: BinaryIO, count: int, *, dimensions: int) -> np.ndarray:
    """The next rows of an array that `open_vectors` opened: float32, shape (count, dimensions).

    Raises:
        ValidationError: the file ended.
    """
    wanted = count * dimensions * _FLOAT32.itemsize
    content = file.read(wanted)
    if len(content) != wanted:
        raise ValidationError("The vectors ended too early. Copy the whole export again.")
    return np.frombuffer(content, dtype=_FLOAT32).reshape(count, dimensions)


def _read_some(file: BinaryIO, count: int, name: str) -> bytes:
    try:
        return file.read(count)
    except OSError as error:
        raise _unreadable(name, error) from None


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _unreadable(name: str, error: OSError) -> ValidationError:
    return ValidationError(f"{name} cannot be read to its end. Check the disk that it is on.", cause=error)
