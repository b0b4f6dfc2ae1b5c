"""Standard output and error that outlive whoever reads them: `| head` and a closed terminal end no work.

What nobody reads any more goes nowhere, so that a command does what it has to and its exit code says what it found.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from kernel_assay.corpus.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GONE = frozenset({errno.EPIPE, errno.EIO})


class _Enduring(io.FileIO):
    """A descriptor that is turned to nowhere once nobody reads it, or nothing more can be written there."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as much as is taken. Raises UsageError, once, where a disk is full."""
        try:
            return super().write(data) or 0
        except OSError as error:
            trouble = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if trouble.errno not in _GONE:
            raise UsageError(f"what it says cannot be written ({trouble.strerror})") from trouble
        return memoryview(data).nbytes


def outlive_readers() -> None:
    """Have this program go on when nobody reads what it says."""
    sys.stdout, sys.stderr = _enduring(sys.stdout), _enduring(sys.stderr)


def _enduring(stream: TextIO) -> TextIO:
    if stream is None:  # its descriptor was closed before this program began
        return stream
    stream.flush()
    buffer = io.BufferedWriter(_Enduring(stream.fileno(), "w", closefd=False))
    lines = stream.isatty() or stream is sys.stderr
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=lines)
