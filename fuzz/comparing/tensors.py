"""A tensor in a file, which is read in pieces, and the names that files have for types of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, Array, Format, format_of

PIECE = 1 << 21
"""Elements that are in memory at a time, of either side."""
SAFETENSORS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""What the safetensors format calls them."""
_SHORT = {short.lower(): name for short, name in SAFETENSORS.items()}
_SHORT |= {"fp64": "float64", "fp32": "float32", "fp16": "float16"}
_CARRIED = {"bool": "uint8", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""Types that are compared as another one, which holds all their values (of uint64, those below 2**63)."""

_AXES = 64
"""Of an array of numpy, at most."""
Read = Callable[[int, int], Array]
"""Elements from one flat index up to another, in C order, as they are stored."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, none of which is in memory."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As it is stored: a format of corpus.formats, or a kind of integers that fits into one."""
    read: Read

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes that it takes in memory."""
        return self.size * stored_as(self.dtype).itemsize

    @property
    def format(self) -> Format:
        """The format in which its elements are compared."""
        return format_of(_CARRIED.get(self.dtype, self.dtype))

    def part(self, low: int, high: int) -> Array:
        """Elements from low up to high, in C order. Raises UsageError if they cannot be read, or compared."""
        raw = self.read(low, high)
        if self.dtype == "uint64" and raw.size and int(raw.max()) >> 63:
            raise UsageError(f"{self.name} holds integers from 2**63 on, which are not compared")
        return raw if self.dtype == self.format.name else raw.astype(self.format.dtype)

    def spans(self, most: int) -> Iterator[tuple[int, int]]:
        """Where its pieces begin and end."""
        for low in range(0, self.size, most):
            yield low, min(low + most, self.size)


def full_name(dtype: str) -> str:
    """The full name of a type of elements: `bfloat16` for bf16. Raises UsageError for one that is not known."""
    name = _SHORT.get(dtype.lower(), dtype)
    return name if name in _CARRIED else format_of(name).name


def stored_as(dtype: str) -> np.dtype[Any]:
    """The dtype of numpy (or ml_dtypes) of a full name."""
    return FORMATS[dtype].dtype if dtype in FORMATS else np.dtype(dtype)


def from_file(path: Path, offset: int, dtype: np.dtype[Any]) -> Read:
    """Whatever reads a tensor that lies in a file as a whole, in C order; dtype: as stored, in either byte order."""
    plain = np.dtype(f"u{dtype.itemsize}")  # fromfile knows no types of ml_dtypes

    def read(low: int, high: int) -> Array:
        with path.open("rb") as file:
            found = np.fromfile(file, plain, high - low, offset=offset + low * dtype.itemsize)
        if found.size < high - low:
            raise UsageError("the file has become shorter while it was read")
        return native(found.view(dtype))

    return read


def native(values: Array) -> Array:
    """The same values in this machine's order of bytes."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def fits(shape: tuple[int, ...], itemsize: int, held: int) -> None:
    """Raise UsageError unless a shape takes as many bytes as there are."""
    if len(shape) > _AXES:
        raise UsageError(f"a shape of {len(shape):,} axes is none; up to {_AXES} are known")
    wanted = math.prod(shape) * itemsize
    if wanted != held:
        raise UsageError(f"shape {list(shape)} takes {wanted:,} bytes, but there are {held:,}")
