"""Records of a search over the inputs of a kernel: a launch with all that it is given, and what came of it."""

from __future__ import annotations

import base64
import struct
from typing import Any, Literal

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.base import Record

HEAD = struct.Struct("<QQ")
"""At the head of the memory that a search shares with who started it: the number of the launch, bytes of its record."""
_SHOWN = 32
"""Elements of an array that are printed."""


class Given(Record):
    """An argument of a launch, with its values before it."""

    name: str
    role: Literal["in", "out", "inout", "value"]
    dtype: str
    shape: tuple[int, ...] = ()
    data: str
    """Its bytes in base64."""

    @classmethod
    def of(cls, name: str, role: str, array: Array) -> Given:
        """Keep an array, or a number as one without axes."""
        data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
        return cls.model_validate(
            {"name": name, "role": role, "dtype": array.dtype.name, "shape": array.shape, "data": data}
        )

    def array(self) -> Array:
        """The values, in an array of their own."""
        raw = np.frombuffer(base64.b64decode(self.data), np.dtype(self.dtype))
        return raw.reshape(self.shape).copy()

    def told(self) -> str:
        """One line for a person."""
        if self.role == "value":
            return f"{self.name} = {self.array()[()]}"
        extent = "x".join(map(str, self.shape))
        if self.role == "out":
            return f"{self.name} = {self.dtype}[{extent}], not written yet"
        flat = self.array().ravel()
        words = ", ".join(map(str, flat[:_SHOWN])) + (", ..." if flat.size > _SHOWN else "")
        return f"{self.name} = {self.dtype}[{extent}] {{{words}}}" + ", changed in place" * (self.role == "inout")


class Witness(Record):
    """A launch that shows a finding; it can be repeated by this record, the kernel and, if it compares, the inputs."""

    kernel: str
    entry: str
    inputs: str
    """The file that has `serial`."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int = 0
    order: str
    seed: int
    arguments: tuple[Given, ...]
    kind: str = ""
    """race, out-of-bounds, wrong-result, order-dependent and so on; empty: nothing was found."""
    message: str = ""

    def told(self) -> list[str]:
        """Lines for a person: the launch, and what it is given."""
        extents = [", ".join(map(str, extent)) for extent in (self.grid, self.block)]
        extents = [f"({words})" if "," in words else words for words in extents]
        shared = [str(self.shared)] if self.shared else []
        name, order = self.entry, f"order {self.order}, seed {self.seed}"
        call = f"{name}<<<{', '.join([*extents, *shared])}>>>({', '.join(a.name for a in self.arguments)})"
        return [f"{call}; {order}", *(a.told() for a in self.arguments)]


class KernelSearch(Record):
    """The result of a search, or of one launch again."""

    kernel: str
    entry: str
    seed: int
    cases: int
    """Launches that were tried before a finding, each in two orders of threads; and those of its shrinking are more."""
    seconds: float = 0.0
    """All that it took, compiling and shrinking included."""
    shrunk: bool = True
    """Whether the finding was shrunk to its end."""
    compared: bool = False
    """Whether `serial` said what is right."""
    finding: Witness | None = None
    notes: tuple[str, ...] = ()
    """The first of each kind of what is no finding: outputs that depend on the order, writes of the same value."""
    file: str = ""
    """Where the finding is kept."""

    @property
    def replay(self) -> list[str]:
        """The words of a command that shows the finding again."""
        return ["fuzz-kernel", "--replay", self.file] if self.file else []


def extent_of(value: Any) -> tuple[int, ...]:
    """Blocks or threads along x, y, z of a number, or of up to three. Raises ValueError."""
    given = tuple(map(int, value)) if isinstance(value, (tuple, list)) else (int(value),)
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise ValueError(f"{value!r} is no number of blocks or threads, nor up to three of them")
    return given
