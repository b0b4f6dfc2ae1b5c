"""Files that a kill -9 cannot spoil: atomic replacement, a lock between processes, journals of JSON lines."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import InternalError, UsageError

TEMPORARY = ".*.tmp"
"""What a file is called while it is being written; no pattern that looks for data matches it."""


_FULL = "make room there or name another folder"
_FORBIDDEN = "name a folder that may be written to"
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOENT: "somebody has removed it, or the folder that it was in, while it was in use",
}


@contextmanager
def named_trouble(path: Path) -> Iterator[None]:
    """Turn an OSError into a UsageError that names the file or folder, and says what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "name another folder")
        raise UsageError(f"{path} cannot be used ({error.strerror}); {advice}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at path, alone among processes and threads. Not re-entrant."""
    with named_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # said aloud: a child forked meanwhile holds a copy of the descriptor
        os.close(fd)


def claimed(path: Path) -> int | None:
    """A descriptor that holds the lock file at path for as long as this process lives; None if another one does."""
    with named_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def write_atomic(path: Path, text: str) -> None:
    """Replace a file in one step and make it last. To be called under the lock, which keeps `sweep` away.

    Lone surrogates (from a subject's message) become JSON escapes. Raises UsageError if the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with named_trouble(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_through(temporary, text.encode("utf-8", "backslashreplace"))
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(folder: Path) -> None:
    """Remove what killed writers left behind. To be called under the lock."""
    for leftover in folder.rglob(TEMPORARY):
        leftover.unlink(missing_ok=True)


_JOURNAL_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT


class Journal:
    """An append-only file of JSON lines with one writer; what `append` has taken survives the death of the process."""

    def __init__(self, path: Path) -> None:
        """Open for appending; cut off a torn last line (its writer was killed), lest it become a middle one."""
        self._path = path
        with named_trouble(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, _JOURNAL_FLAGS, 0o666)
            os.ftruncate(self._fd, _sound_length(path.read_bytes()))

    def append(self, record: dict[str, Any]) -> int:
        """Hand one line to the kernel in one write; how long it is.

        Raises UsageError, and leaves no torn line, if the disk is full.
        """
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with named_trouble(self._path):
            written = os.write(self._fd, line)
            if written < len(line):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    def sync(self) -> None:
        """Make it last through a power failure, too; a file that was removed is written once more."""
        with named_trouble(self._path):
            if os.fstat(self._fd).st_nlink == 0:
                self._write_again()
            os.fsync(self._fd)

    def _write_again(self) -> None:
        """Write a file again that was removed, which is still there for who has it open."""
        removed = self._fd
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, _JOURNAL_FLAGS, 0o666)
            os.write(self._fd, os.pread(removed, os.fstat(removed).st_size, 0))
        finally:
            if self._fd != removed:
                os.close(removed)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a journal, without a torn last one; no file is no lines.

    Raises InternalError for a line in the middle that is no JSON object: only the last can be torn by a kill.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    records = []
    for number, line in enumerate(data[: _sound_length(data)].split(b"\n")[:-1], 1):
        record = _object(line)
        if record is None:
            raise InternalError(f"{path}, line {number}, is torn although others follow")
        records.append(record)
    return records


def _sound_length(data: bytes) -> int:
    """Length up to which the last line is whole."""
    end = data.rfind(b"\n") + 1
    begin = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return end if end == 0 or _object(data[begin:end]) is not None else begin


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
