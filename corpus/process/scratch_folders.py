"""Temporary folders that do not outlive who has made them: the next one to make one removes those of the dead."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_PREFIX = "kernel-assay-run-"
"""Only of folders that are locked while they are in use."""
_YOUNG_SECONDS = 60.0
"""A folder that is younger may not have been locked yet."""


class Scratch:
    """A folder that this process has locked for as long as it lives, or until it is closed."""

    def __init__(self, what: str = "") -> None:
        """Make a folder. what: a word for its name."""
        _sweep()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX + what))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __fspath__(self) -> str:
        """Path of the folder."""
        return str(self.path)

    def close(self) -> None:
        """Remove it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:  # it may be closed twice, and the number be another file's by then
            os.close(self._lock)
            self._lock = -1


@cache
def _sweep() -> None:
    """Remove the folders of this user's whose owners are dead; once."""
    for path in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with suppress(OSError):
            _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    """Remove a folder that nobody has locked: a number of a process may be another's in another container."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        seen = os.fstat(fd)
        if seen.st_uid != os.getuid() or seen.st_mtime > time.time() - _YOUNG_SECONDS:
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)
