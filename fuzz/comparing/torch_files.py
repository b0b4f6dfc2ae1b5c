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

_SECONDS = 600.0
"""For torch to open a file, or to read a piece of it from a slow disk."""


def tensors_of(path: Path, stack: ExitStack) -> list[Tensor]:
    """The tensors of a file, for as long as the stack is open. Raises UsageError if torch refuses it."""
    memory = os.memfd_create("tensors")
    stack.callback(os.close, memory)
    process = ChildProcess("kernels.boundary.saved_tensors", memory, {"path": str(path.resolve())})
    stack.callback(process.close)

    def reader(name: str, dtype: np.dtype[Any]) -> Read:
        def read(low: int, high: int) -> Array:
            _heard(process, {"name": name, "low": low, "high": high})
            data = os.pread(memory, (high - low) * dtype.itemsize, 0)
            return np.frombuffer(data, f"u{dtype.itemsize}").view(dtype)

        return read

    return [
        Tensor(name, tuple(shape), full_name(dtype), reader(name, stored_as(full_name(dtype))))
        for name, shape, dtype in _heard(process, None)["tensors"]
    ]


def _heard(process: ChildProcess, question: Message | None) -> Message:
    try:
        answer = process.hear(_SECONDS) if question is None else process.ask(question, _SECONDS)
    except GoneError as error:
        raise UsageError(f"torch cannot load it: {error}") from error
    if "refused" in answer:
        raise UsageError(answer["refused"])
    return answer
