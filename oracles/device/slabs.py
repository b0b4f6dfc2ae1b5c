"""Common ground of what is computed on a device: slab by slab, in float64, by torch, if there is room."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.oracles.spec.axes import Attrs, Dims

SLAB = 1 << 24
"""Elements of a tensor whose float64 is in memory at a time: 128 MiB; so many that a GPU is busy with them."""
CPU_ROOM = 4 << 30
"""Bytes that may be taken on the CPU."""

Inputs = Mapping[str, Tensor]
"""By name, on one device, of their own dtypes."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula for the output of an op, `out`, where its inputs are."""

    fill: Callable[[Inputs, Attrs, Tensor], None]
    """Writes all of the output: contiguous, of float64 (of an op that moves bits, of its own dtype)."""
    least: Callable[[Dims], int]
    """Elements of the smallest slab there is, however small SLAB is."""


def wide(some: Tensor) -> Tensor:
    """Floats as float64, exactly; integers (indices, lengths, bytes of blocks) as they are."""
    if not some.is_floating_point():
        return some
    return (some.float() if some.itemsize == 1 else some).double()  # by two steps that torch has of every float


def stretches(extent: int, width: int) -> Iterator[slice]:
    """Some indices of an axis after others, so many that with this width they make a slab, but at least one."""
    step = max(1, SLAB // max(1, width))
    return (slice(start, min(start + step, extent)) for start in range(0, extent, step))


def tiles(extent: int, width: int) -> Iterator[slice]:
    """The same of either axis of a product: with as many of the other axis they make no more than a slab, either."""
    return stretches(extent, max(width, math.isqrt(SLAB)))


def by_rows(formula: Callable[..., Tensor], *cut: str) -> Callable[[Inputs, Attrs, Tensor], None]:
    """Make a function that fills an output whose rows (indices of the first axis) are independent of one another.

    formula: takes inputs and attributes by name, as the contract's reference does, and gives the same rows of the
    output; cut: inputs of which it gets these rows, the first of them in every case. Of the others it gets all.
    """

    def fill(inputs: Inputs, attrs: Attrs, out: Tensor) -> None:
        height = out.shape[0]
        width = max(inputs[cut[0]].numel(), out.numel()) // max(1, height)
        whole = {name: wide(given) for name, given in inputs.items() if name not in cut}
        for some in stretches(height, width):
            mine = {name: wide(inputs[name][some]) for name in cut if name in inputs}
            out[some] = formula(**mine, **whole, **attrs)

    return fill


def bytes_of_inputs(case: Case) -> int:
    """Bytes of all inputs, dense."""
    return sum(math.prod(t.shape) * format_of(t.dtype).dtype.itemsize for t in case.tensors.values())


def free_on(device: str) -> int:
    """Bytes that could be had on "cpu", "cuda" or "cuda:<index>"; what torch keeps there without using it counts."""
    if torch.device(device).type == "cpu":
        return CPU_ROOM
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept
