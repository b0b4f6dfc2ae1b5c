"""Memory layouts: how a tensor's elements lie in its buffer. To add one, add one function; plainest first."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from kernel_assay.corpus.errors import InternalError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """The place of a tensor in a buffer, all in elements."""

    length: int
    """Elements the buffer must hold."""
    offset: int
    strides: tuple[int, ...]


LAYOUTS: dict[str, Callable[[Shape], Placement]] = {}


def layout(arrange: Callable[[Shape], Placement]) -> Callable[[Shape], Placement]:
    """Enter a layout into the table under its own name."""
    if arrange.__name__ in LAYOUTS:
        raise InternalError(f"layout {arrange.__name__!r} is defined twice in corpus/inputs/layouts.py")
    LAYOUTS[arrange.__name__] = arrange
    return arrange


def _dense(shape: Shape) -> tuple[int, ...]:
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _size(shape: Shape) -> int:
    return math.prod(shape)


@layout
def contiguous(shape: Shape) -> Placement:
    """C order, no gaps."""
    return Placement(_size(shape), 0, _dense(shape))


@layout
def offset_one(shape: Shape) -> Placement:
    """C order, one element into the buffer: vector loads are misaligned."""
    return Placement(_size(shape) + 1, 1, _dense(shape))


@layout
def offset_room(shape: Shape) -> Placement:
    """C order, 16 elements of room before and after: reading out of the window finds poison, not a fault."""
    return Placement(_size(shape) + 32, 16, _dense(shape))


@layout
def row_gaps(shape: Shape) -> Placement:
    """Rows are three elements apart."""
    if not shape:
        return contiguous(shape)
    padded = (*shape[:-1], shape[-1] + 3)
    return Placement(_size(padded), 0, _dense(padded))


@layout
def element_gaps(shape: Shape) -> Placement:
    """Every second element of the buffer."""
    return Placement(2 * _size(shape), 0, tuple(2 * s for s in _dense(shape)))


@layout
def transposed(shape: Shape) -> Placement:
    """The last two axes lie in memory the other way round (Fortran order for matrices)."""
    if len(shape) < 2:
        return contiguous(shape)
    swapped = (*shape[:-2], shape[-1], shape[-2])
    strides = _dense(swapped)
    return Placement(_size(shape), 0, (*strides[:-2], strides[-1], strides[-2]))


@layout
def broadcast(shape: Shape) -> Placement:
    """Stride 0 along the first axis: every row is the same memory."""
    if not shape or shape[0] == 0:
        return contiguous(shape)
    rest = shape[1:]
    return Placement(_size(rest), 0, (0, *_dense(rest)))
