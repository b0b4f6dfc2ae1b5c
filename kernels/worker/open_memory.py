"""Memory of a subject that is tried on billions of inputs: its output lies where another process reads it.

Here memory of the host; of a GPU in open_gpu_memory.py. There are no guards: what fails is run once more, in a sandbox.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import GuardDamage
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.kernels.backends.support.base import Returned
from kernel_assay.kernels.worker.executor import Setting

POISONS = (0x5A, 0xA6)
"""Bytes that an output is full of before the first run, and before the second: numbers, of another sign each."""


class OpenMemory:
    """Memory that this process and the judge's map; the inputs of a part are made once, for all calls of it."""

    handle = b""
    """By which another process opens the output's memory; empty: it is the memory that both were given."""

    def __init__(self, shared: Array) -> None:
        self.slab = shared
        self._inputs: dict[str, Any] = {}
        self._spec = TensorSpec(shape=(0,), dtype="uint8")

    def fill(self, case: Case, output: TensorSpec) -> Setting:
        """Make the inputs of a part, and room for its output."""
        self._inputs, self._spec = {}, output  # first, so that there is room for others
        self._inputs = self._made(case)
        return Setting(case, {"out": output}, self)

    def _made(self, case: Case) -> dict[str, Any]:
        return dict(materialize_all(case))

    def tensors(self) -> tuple[dict[str, Any], list[Any]]:
        """The inputs by name, and the output."""
        return self._inputs, [self._out()]

    def _out(self) -> Any:
        fmt = format_of(self._spec.dtype)
        return self._bytes(self.slab).view(fmt.dtype).reshape(self._spec.shape)

    def _bytes(self, memory: Any) -> Any:
        """The part of some memory that the output takes."""
        size = int(np.prod(self._spec.shape, dtype=np.int64)) * format_of(self._spec.dtype).dtype.itemsize
        return memory[:size]

    def reset(self, run: int) -> None:
        """Poison the output."""
        self._bytes(self.slab)[...] = POISONS[run]

    def keep(self, result: Returned) -> None:
        """Copy what a subject returned into the output. Raises TypeError if it has another form."""
        form = (result.dtype, tuple(result.array.shape))
        if form != (self._spec.dtype, self._spec.shape):
            wanted = f"{self._spec.dtype} of shape {self._spec.shape}"
            raise TypeError(f"it returned {form[0]} of shape {form[1]}, not {wanted}")
        self._out()[...] = result.array

    def fetch(self) -> None:
        """Copy the output into the memory that both processes were given; nothing, where it lies there."""

    def damage(self, run: int) -> tuple[list[GuardDamage], list[str]]:
        """Find nothing: there are no guards."""
        del run
        return [], []

    def holds(self, address: int) -> str:
        """Know nobody's memory."""
        del address
        return ""
