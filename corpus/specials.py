"""Special values and the places where kernels forget them. To add one, add one line or one function."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.errors import InternalError, UsageError
from corpus.formats import Format

Indices = NDArray[np.int64]

VALUES: dict[str, Callable[[Format], int]] = {
    "-0": lambda f: f.sign_bit,
    "subnormal": lambda _: 1,
    "-subnormal": lambda f: f.sign_bit | 1,
    "max_subnormal": lambda f: (1 << (f.precision - 1)) - 1,
    "min_normal": lambda f: 1 << (f.precision - 1),
    "max": lambda f: f.inf_bits - 1 if f.has_inf else f.inf_bits,
    "-max": lambda f: f.sign_bit | (f.inf_bits - 1 if f.has_inf else f.inf_bits),
    "inf": lambda f: f.inf_bits if f.has_inf else f.nan_bits,
    "-inf": lambda f: f.sign_bit | (f.inf_bits if f.has_inf else f.nan_bits),
    "nan": lambda f: f.nan_bits,
    "-nan": lambda f: f.sign_bit | f.nan_bits,
    "nan_payload": lambda f: f.nan_bits | 1,
}
"""Name -> bit pattern in a float format, from harmless to harmful."""

PLACES: dict[str, Callable[[tuple[int, ...]], Indices]] = {}
"""Name -> flat indices (C order) in a tensor of that shape; never called for empty tensors."""

TILE = 32
"""The width that 'tile' and 'lane' speak of: a warp."""


def place(find: Callable[[tuple[int, ...]], Indices]) -> Callable[[tuple[int, ...]], Indices]:
    """Enter a place into the table under its own name."""
    if find.__name__ in PLACES:
        raise InternalError(f"place {find.__name__!r} is defined twice in corpus/specials.py")
    PLACES[find.__name__] = find
    return find


def _grid(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the tensor seen as a matrix of its last axis."""
    cols = shape[-1] if shape else 1
    return int(np.prod(shape[:-1], dtype=np.int64)), cols


@place
def first(shape: tuple[int, ...]) -> Indices:
    """The first element."""
    del shape
    return np.zeros(1, np.int64)


@place
def last(shape: tuple[int, ...]) -> Indices:
    """The last element."""
    return np.array([int(np.prod(shape, dtype=np.int64)) - 1])


@place
def middle(shape: tuple[int, ...]) -> Indices:
    """An element in the middle."""
    return np.array([int(np.prod(shape, dtype=np.int64)) // 2])


@place
def tile_tail(shape: tuple[int, ...]) -> Indices:
    """In the first row, the first element behind the last full tile of 32 (or the last element)."""
    cols = _grid(shape)[1]
    return np.array([min(cols - 1, cols // TILE * TILE)])


@place
def one_lane(shape: tuple[int, ...]) -> Indices:
    """Every 32nd element of the first row, from the sixth on."""
    cols = _grid(shape)[1]
    return np.arange(min(5, cols - 1), cols, TILE)


@place
def one_row(shape: tuple[int, ...]) -> Indices:
    """All of the last row."""
    rows, cols = _grid(shape)
    return np.arange((rows - 1) * cols, rows * cols)


@place
def one_column(shape: tuple[int, ...]) -> Indices:
    """The last element of every row."""
    rows, cols = _grid(shape)
    return np.arange(cols - 1, rows * cols, cols)


def write(flat: NDArray[Any], fmt: Format, shape: tuple[int, ...], value: str, where: str) -> None:
    """Write a special value at a named place into the carrier view of a contiguous tensor.

    Raises UsageError for names that are not in the tables, and does nothing for integer types and empty tensors.
    """
    if value not in VALUES or where not in PLACES:
        raise UsageError(f"special {value!r} at {where!r} is not known; see `python -m fuzz list distributions`")
    if fmt.is_float and flat.size:
        flat[PLACES[where](shape)] = fmt.carrier.type(VALUES[value](fmt))
