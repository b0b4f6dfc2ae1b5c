"""Files of torch.save, opened by torch in a process of its own: they come from anywhere, and torch is large."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import ChildProcess, GoneError
from kernel_assay.fuzz.comparing.tensors import Read, Tensor, full_name, stored_as

_MOST = 3
"""Files that are open at a time: one of A, one of B, one of the truth."""
_SECONDS = 600.0
"""For torch to open a file, or to read a piece of it from a slow disk."""


class TorchFiles:
    """Files of torch.save that are open; few at a time, for each takes a process that has loaded torch."""

    def __init__(self, stack: ExitStack) -> None:
        """stack: when it ends, so do the processes."""
        self._memory = os.memfd_create("tensors")
        self._open: dict[Path, ChildProcess] = {}
        stack.callback(os.close, self._memory)
        stack.callback(self._close, 0)

    def tensors_of(self, path: Path) -> list[Tensor]:
        """Name the tensors of a file. Raises UsageError if torch refuses it."""
        return [
            Tensor(name, tuple(shape), full_name(dtype), self._reader(path, name, stored_as(full_name(dtype))))
            for name, shape, dtype in self._begun(path)
        ]

    def _reader(self, path: Path, name: str, dtype: np.dtype[Any]) -> Read:
        def read(low: int, high: int) -> Array:
            if path not in self._open:
                self._begun(path)
            _heard(self._open[path], {"name": name, "low": low, "high": high})
            data = bytearray((high - low) * dtype.itemsize)  # arrays that cannot be written to are other ones to numba
            os.preadv(self._memory, [data], 0)
            return np.frombuffer(data, f"u{dtype.itemsize}").view(dtype)

        return read

    def _begun(self, path: Path) -> list[tuple[str, list[int], str]]:
        """Open a file, and close the one that was opened first if they become too many."""
        self._close(_MOST - 1)
        settings = {"path": str(path.resolve())}
        self._open[path] = ChildProcess("kernels.boundary.saved_tensors", self._memory, settings)
        found: list[tuple[str, list[int], str]] = _heard(self._open[path], None)["tensors"]
        return found

    def _close(self, most: int) -> None:
        """Close those that were opened first, until so many are left."""
        while len(self._open) > most:
            self._open.pop(next(iter(self._open))).close()


def _heard(process: ChildProcess, question: Message | None) -> Message:
    try:
        answer = process.hear(_SECONDS) if question is None else process.ask(question, _SECONDS)
    except GoneError as error:
        raise UsageError(f"torch cannot load it: {error}") from error
    if "refused" in answer:
        raise UsageError(answer["refused"])
    return answer
