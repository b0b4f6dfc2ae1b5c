"""The axes of tensors: products of named dimensions, numbers, and sizes that an attribute of the case decides.

`rows` is the dimension, `half*2` twice the dimension, `heads*group` the product of two, `half*2*{part}` times the value
of the attribute `part`, an integer. `blocks*{format}` counts the bytes of packed blocks; the attribute `format` names
one of corpus.blocks.BLOCKS, as `blocks*q8_1` does; so does `activations`, of packed factors that come in other blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from kernel_assay.corpus.blocks import BLOCKS, BlockFormat, block_format
from kernel_assay.corpus.model.base import Scalar

Dims = Mapping[str, int]
Attrs = Mapping[str, Scalar]

_NAMES_OF_FORMATS = frozenset({"{format}", "{activations}"})
"""Attributes whose values are block formats, as they stand in an axis."""


@cache
def parse_axis(axis: str) -> tuple[tuple[str, ...], int]:
    """`half*2` -> (("half",), 2). Braces must have been filled in."""
    dims: list[str] = []
    factor = 1
    for part in axis.split("*"):
        if part in BLOCKS:
            factor *= BLOCKS[part].size
        elif part.isdecimal():
            factor *= int(part)
        else:
            dims.append(part)
    return tuple(dims), factor


def filled(axis: str, attrs: Attrs) -> str:
    """An axis with the values of attributes in the places of their names."""
    return axis.format(**attrs) if "{" in axis else axis


def dims_in(axis: str) -> tuple[str, ...]:
    """The dimensions an axis speaks of, whatever the attributes are."""
    return tuple(part for part in axis.split("*") if not (part.isdecimal() or part in BLOCKS or part[:1] == "{"))


def shape_of(axes: Sequence[str], dims: Dims, attrs: Attrs) -> tuple[int, ...]:
    """The shape that axes have for given dims and attributes."""
    return tuple([_extent(axis, dims, attrs) for axis in axes])  # a list is built faster than a generator runs


def product_of(axes: Sequence[str], attrs: Attrs) -> tuple[tuple[str, ...], int]:
    """All axes of a tensor as one, as parse_axis has it: what its number of elements is a product of."""
    return parse_axis("*".join([filled(axis, attrs) for axis in axes]) or "1")


def _extent(axis: str, dims: Dims, attrs: Attrs) -> int:
    names, factor = parse_axis(filled(axis, attrs))
    return dims[names[0]] * factor if len(names) == 1 else math.prod(dims[n] for n in names) * factor


@lru_cache(1 << 12)
def solve(extents: tuple[tuple[str, int], ...]) -> Dims | None:
    """The dims that axes (filled in) of these extents have; None if they contradict one another.

    Remembered, for a case is asked several times: nobody may change what it returns.

    A product of dimensions is divided by those that other axes tell; if these are 0, the rest is 1.
    """
    found: dict[str, int] = {}
    parsed = [(*parse_axis(axis), extent) for axis, extent in extents]
    for names, factor, extent in parsed:
        if len(names) == 1:
            value, rest = divmod(extent, factor)
            if rest or found.setdefault(names[0], value) != value:
                return None
    for names, factor, extent in parsed:
        if len(names) == 1:
            continue
        unknown = [n for n in names if n not in found]
        known = math.prod(found[n] for n in names if n in found) * factor
        if unknown:
            found |= dict.fromkeys(unknown, 1) | {unknown[0]: extent // known if known else 1}
        if math.prod(found[n] for n in names) * factor != extent:
            return None
    return found


def is_packed(axis: str) -> bool:
    """Whether an axis counts bytes of packed blocks."""
    return any(part in _NAMES_OF_FORMATS or part in BLOCKS for part in axis.split("*"))


def packed_format(axis: str, attrs: Attrs) -> BlockFormat:
    """The block format whose bytes an axis counts. Raises UsageError for an attribute that names none."""
    return next(block_format(filled(part, attrs)) for part in axis.split("*") if is_packed(part))
