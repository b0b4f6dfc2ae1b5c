"""Stages for a subject that is tried on billions of inputs: the host here, a GPU in resident.py."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.corpus.process.channel import Message
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.support.signature import Bound, Interface, bind
from kernel_assay.kernels.catalog import resolve


class Stage(ABC):
    """A stage where a subject runs, and its output lies."""

    handle = b""
    """By which another process opens the output's memory; empty: it is the memory that both were given."""

    @abstractmethod
    def load(self, subject: Subject, face: Interface) -> Bound:
        """The subject, so that it may be called. Raises UsageError."""

    @abstractmethod
    def fill(self, case: Case) -> None:
        """Make the inputs of a part, for the calls that follow."""

    @abstractmethod
    def poison(self, byte: int, output: TensorSpec) -> None:
        """Set every byte of the output."""

    @abstractmethod
    def call(self, bound: Bound, attrs: Message, output: TensorSpec) -> None:
        """Run the subject to its end, its result in the output. Raises what it raises."""

    def fetch(self, output: TensorSpec) -> None:
        """Copy the output into the memory that both processes were given; nothing, if it lies there."""
        del output


class Host(Stage):
    """The CPU, and memory that both processes map."""

    def __init__(self, shared: Array, loader: str) -> None:
        self._shared, self._loader = shared, loader_of(loader)
        self._inputs: list[Array] = []

    def load(self, subject: Subject, face: Interface) -> Bound:
        """Load it by its backend's loader."""
        self._loader.preload()
        function = self._loader.load_with(resolve(subject), subject.function, subject.launch)
        return bind(function, face, f"{subject.path}:{subject.function}")

    def fill(self, case: Case) -> None:
        """Fill by the recipe."""
        self._inputs = list(materialize_all(case).values())

    def poison(self, byte: int, output: TensorSpec) -> None:
        """Poison in place."""
        self._out(output).view(np.uint8)[...] = byte

    def call(self, bound: Bound, attrs: Message, output: TensorSpec) -> None:
        """Call it on views of the inputs; a result of another form is a TypeError."""
        inputs = [self._loader.wrap(x) for x in self._inputs]
        if not bound.returns:
            bound.call(self._loader.wrap(self._out(output)), *inputs, **bound.attributes(attrs))
            return
        result = self._loader.unwrap(bound.call(*inputs, **bound.attributes(attrs)))
        check_form(result.dtype, result.array.shape, output)
        self._out(output)[...] = result.array

    def _out(self, output: TensorSpec) -> Array:
        fmt = format_of(output.dtype)
        count = int(np.prod(output.shape, dtype=np.int64))
        return self._shared[: count * fmt.dtype.itemsize].view(fmt.dtype).reshape(output.shape)


def check_form(dtype: str, shape: tuple[int, ...], output: TensorSpec) -> None:
    """Raises TypeError if what was returned is no such output."""
    if (dtype, shape) != (output.dtype, output.shape):
        raise TypeError(f"it returned {dtype} of shape {shape}, not {output.dtype} of shape {output.shape}")
