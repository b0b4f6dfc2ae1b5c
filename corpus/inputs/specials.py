"""Special values and the places where kernels forget them. To add one, add one line or one function."""

import math
from collections.abc import Callable

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Format
from kernel_assay.corpus.program import program

Place = Callable[[tuple[int, ...]], range]

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
    "signalling_nan": lambda f: f.inf_bits | 1 if f.has_inf else f.nan_bits,
}
"""Name -> bit pattern in a float format, from harmless to harmful."""

PLACES: dict[str, Place] = {}
"""Name -> flat indices (C order) in a tensor of that shape; never called for empty tensors."""

SINCE = {"signalling_nan": 2, "first_tile": 2}
"""The generation of cases (corpus/model/campaign.py) from which on a value or a place is drawn, if not the first."""

TILE = 32
"""The width that 'tile' and 'lane' speak of: a warp."""


def place(find: Place) -> Place:
    """Enter a place into the table under its own name."""
    if find.__name__ in PLACES:
        raise InternalError(f"place {find.__name__!r} is defined twice in corpus/inputs/specials.py")
    PLACES[find.__name__] = find
    return find


def _grid(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the tensor seen as a matrix of its last axis."""
    cols = shape[-1] if shape else 1
    return math.prod(shape[:-1]), cols


def _only(index: int) -> range:
    return range(index, index + 1)


@place
def first(shape: tuple[int, ...]) -> range:
    """The first element."""
    del shape
    return _only(0)


@place
def last(shape: tuple[int, ...]) -> range:
    """The last element."""
    return _only(math.prod(shape) - 1)


@place
def middle(shape: tuple[int, ...]) -> range:
    """An element in the middle."""
    return _only(math.prod(shape) // 2)


@place
def tile_tail(shape: tuple[int, ...]) -> range:
    """The first element of the first row behind the last full tile of 32 (or the last element)."""
    cols = _grid(shape)[1]
    return _only(min(cols - 1, cols // TILE * TILE))


@place
def first_tile(shape: tuple[int, ...]) -> range:
    """The first 32 elements of the first row."""
    return range(min(TILE, _grid(shape)[1]))


@place
def one_lane(shape: tuple[int, ...]) -> range:
    """Every 32nd element of the first row, from the sixth on."""
    cols = _grid(shape)[1]
    return range(min(5, cols - 1), cols, TILE)


@place
def one_row(shape: tuple[int, ...]) -> range:
    """All of the last row."""
    rows, cols = _grid(shape)
    return range((rows - 1) * cols, rows * cols)


@place
def one_column(shape: tuple[int, ...]) -> range:
    """The last element of every row."""
    rows, cols = _grid(shape)
    return range(cols - 1, rows * cols, cols)


def written(fmt: Format, shape: tuple[int, ...], value: str, where: str) -> tuple[range, int]:
    """The place of a special value in a flat tensor, and the bit pattern that is written there.

    Nowhere, for integer types and empty tensors. Raises UsageError for names that are not in the tables.
    """
    if value not in VALUES or where not in PLACES:
        raise UsageError(f"special {value!r} at {where!r} is not known; see `{program()} list distributions`")
    if not fmt.is_float or 0 in shape:
        return range(0), 0
    return PLACES[where](shape), VALUES[value](fmt)
