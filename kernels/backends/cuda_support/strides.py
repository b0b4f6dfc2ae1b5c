"""Tensors that a kernel in CUDA C++ takes: those without gaps, but along axes whose strides its launch asks for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.layouts import LAYOUTS

_EXTENTS = (2, 3, 5, 7)
"""Of a tensor of which layouts are told apart."""


def fits(shape: Sequence[int], strides: Sequence[int], free: Collection[int] = ()) -> bool:
    """Whether a tensor has no gaps but along free axes. strides: in elements; free: may be negative, as indices are.

    Without free axes it is what numpy calls C-contiguous. Every other axis begins where the one behind it ends, also
    where that is a free one: a kernel that is told the distance of rows has matrices that lie behind one another.
    """
    if not math.prod(shape):
        return True
    rank, behind = len(shape), 1
    for axis in reversed(range(rank)):
        if {axis, axis - rank} & set(free):
            behind = strides[axis]
        elif shape[axis] > 1 and strides[axis] != behind:
            return False
        behind *= shape[axis]
    return True


def refused(tensors: Mapping[str, Array], strided: Mapping[str, Collection[int]]) -> str:
    """The reason why a kernel does not take these; empty if it does. strided: free axes, by name."""
    for name, x in tensors.items():
        free = sorted(strided.get(name, ()))
        if not fits(x.shape, [s // x.itemsize for s in x.strides], free):
            told = " and ".join(f"{name}.strides[{axis}]" for axis in free)
            return (
                f"takes {name} with gaps only where {told} tells of them" if free else "takes contiguous tensors only"
            )
    return ""


def layouts_of(rank: int, free: Collection[int]) -> frozenset[str]:
    """Layouts that a tensor of so many axes may have."""
    shape = tuple(_EXTENTS[axis % len(_EXTENTS)] for axis in range(rank))
    return frozenset(name for name, arrange in LAYOUTS.items() if fits(shape, arrange(shape).strides, free))
