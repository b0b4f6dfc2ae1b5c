"""Patterns of failures, in one word for the place and one for the values; they decide what is the same bug.

Only called on failures. Both look at no more than 65536 failing elements, evenly spread, and depend on nothing else.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import FORMATS, Array, Format, format_of
from kernel_assay.oracles.judging.measure_numpy import Reals, exponent, facts_of
from kernel_assay.oracles.numerics.rounding import round_to

Mask = NDArray[np.bool_]

MOST = 1 << 16
"""Failing elements looked at."""
SHARE = 0.9
"""Of them must look alike for a word to hold; a few may be right by chance, or wrong for another reason."""
TILES = (256, 128, 64, 32, 16, 8)
SMALL_RHO = 100.0
SMALL_STEPS = 16.0


def index_pattern(bad: Array, shape: tuple[int, ...]) -> str:
    """The pattern of the failing elements' places in an output of this shape.

    bad: ascending flat indices, or a mask of the shape. The last axis runs along columns, the one before along rows;
    a row of another batch is another row. The first word that holds:

        none                 nothing fails
        all                  everything fails
        first_element, last_element, single
        tile_tail_columns    the columns behind the last full tile of 8 to 256 (the largest that fits), nothing else
        tile_tail_rows       the same for rows
        one_row, one_column  all failures are in one
        rows, columns        some fail as a whole, and nothing else fails
        scattered            none of these
    """
    size = int(np.prod(shape, dtype=np.int64))
    picked, count = _pick(bad)
    if count == 0:
        return "none"
    if count == size:
        return "all"
    if count == 1:
        return {0: "first_element", size - 1: "last_element"}.get(int(picked[0]), "single")
    width = shape[-1]
    height = shape[-2] if len(shape) > 1 else 1
    row, column = np.divmod(picked, width)
    rows, columns = np.unique(row), np.unique(column)
    if _is_tail(columns, width):
        return "tile_tail_columns"
    if _is_tail(np.unique(rows % height), height):
        return "tile_tail_rows"
    return _lines(len(rows), len(columns), count, size // width, width)


def _lines(rows: int, columns: int, count: int, height: int, width: int) -> str:
    if height > 1 and rows == 1:
        return "one_row"
    if width > 1 and height > 1 and columns == 1:
        return "one_column"
    if height > 1 and width > 1 and count == rows * width:
        return "rows"
    if height > 1 and width > 1 and count == columns * height:
        return "columns"
    return "scattered"


def _is_tail(lines: NDArray[np.int64], extent: int) -> bool:
    """Whether these lines begin where the last full tile ends, and are at least half of those behind it."""
    starts = {extent // tile * tile for tile in TILES if extent > tile and extent % tile}
    return int(lines[0]) in starts and 2 * len(lines) >= extent - int(lines[0])


def _pick(bad: Array) -> tuple[NDArray[np.int64], int]:
    """Pick at most MOST of the failing flat indices; they, and how many there are.

    One from each stretch, at a place that jumps about (multiplicative hashing), so that no period hides columns.
    """
    indices = np.flatnonzero(bad) if bad.dtype == np.bool_ else np.asarray(bad, dtype=np.int64).reshape(-1)
    step = -(-len(indices) // MOST) or 1
    start = np.arange(0, len(indices), step)
    place = start + (start // step * 0x9E3779B1 >> 16) % step
    return indices[np.minimum(place, len(indices) - 1)], len(indices)


def error_pattern(got: Array, want: Array, bad: Array, poison: int | None = None, rho: float | None = None) -> str:
    """The pattern of the failing elements' values.

    got: array of any format; want: float64, same shape; bad: ascending flat indices or a mask of the shape; poison:
    the byte that unwritten memory is filled with; rho: the largest of this failure, if known. The first word that
    holds for nine in ten of them:

        none                      nothing fails
        missing_nan, missing_inf  want is NaN (Inf), got is not
        poison                    the bytes are the poison
        nan, inf                  got is NaN (Inf), want is not
        zeros                     got is 0
        sign                      got is -want, but for rounding
        shifted                   got is the element before or after, along the last axis (at least 2 elements)
        scaled                    got / want is one number, to 1 % (at least 3 elements that are not all equal)
        low_precision             got is a number of a narrower float format, and less than one of its ulps from want
        small                     rho is below 100, or got at most 16 ulps from want
        other                     none of these
    """
    picked, count = _pick(bad)
    if count == 0:
        return "none"
    failing = _elements(got, picked)
    y, r = failing.astype(np.float64), _elements(want, picked).astype(np.float64)
    with np.errstate(all="ignore"):
        return _class_word(failing, y, r, poison) or _value_word(y, r, want, picked, format_of(got.dtype), rho)


def _class_word(failing: Array, y: Reals, r: Reals, poison: int | None) -> str:
    for word, test in _CLASSES:
        if word == "nan" and poison is not None and _mostly(_poisoned(failing, poison)):
            return "poison"
        if _mostly(test(y, r)):
            return word
    return ""


def _value_word(y: Reals, r: Reals, want: Array, picked: NDArray[np.int64], fmt: Format, rho: float | None) -> str:
    near = _Near(fmt)
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("sign", lambda: _mostly(near(y, -r) & (r != 0))),
        ("shifted", lambda: _is_shifted(near, y, r, want, picked)),
        ("scaled", lambda: _is_scaled(near, y, r)),
        ("low_precision", lambda: any(map(_mostly, _as_narrower(y, r, fmt)))),
        (
            "small",
            lambda: (rho is not None and rho < SMALL_RHO) or _mostly(np.abs(y - r) <= SMALL_STEPS * _ulp(r, fmt)),
        ),
    )
    return next((word for word, test in tests if test()), "other")


_CLASSES: tuple[tuple[str, Callable[[Reals, Reals], Mask]], ...] = (
    ("missing_nan", lambda y, r: np.isnan(r) & ~np.isnan(y)),
    ("missing_inf", lambda y, r: np.isinf(r) & (y != r) & ~np.isnan(y)),
    ("nan", lambda y, r: np.isnan(y) & ~np.isnan(r)),
    ("inf", lambda y, r: np.isinf(y) & (y != r)),
    ("zeros", lambda y, r: (y == 0) & (r != 0)),
)


def _elements(row: Array, picked: NDArray[np.int64]) -> Array:
    """The picked elements, without a copy of the whole."""
    return row.reshape(-1)[picked] if row.flags.c_contiguous else row[np.unravel_index(picked, row.shape)]


def _mostly(mask: Mask) -> bool:
    return bool(mask.mean() >= SHARE)


def _ulp(r: Reals, fmt: Format) -> Reals:
    facts = facts_of(fmt.name)
    return exponent(r, facts) * (2.0 * fmt.unit) if fmt.is_float else np.ones_like(r)


class _Near:
    """Equality but for the rounding to a format and a few ulps of arithmetic; finite numbers only."""

    def __init__(self, fmt: Format) -> None:
        self.fmt = fmt

    def __call__(self, y: Reals, r: Reals) -> Mask:
        near: Mask = np.isfinite(y) & (np.abs(y - r) <= (4.0 if self.fmt.is_float else 0.0) * _ulp(r, self.fmt))
        return near


def _poisoned(failing: Array, poison: int) -> Mask:
    raw = np.ascontiguousarray(failing).view(np.uint8).reshape(len(failing), -1)
    found: Mask = (raw == poison).all(axis=1)
    return found


def _is_shifted(near: _Near, y: Reals, r: Reals, want: Array, picked: NDArray[np.int64]) -> bool:
    """Whether y is want one place to the left or right. A constant want is not shifted, whatever y is."""
    width = want.shape[-1] if want.ndim else 1
    for by in (-1, 1):
        inside = (picked % width + by >= 0) & (picked % width + by < width)
        if inside.sum() < 2:
            continue
        neighbour = _elements(want, picked[inside] + by).astype(np.float64)
        if _mostly(near(y[inside], neighbour) & (neighbour != r[inside])) and inside.mean() >= 0.5:
            return True
    return False


def _is_scaled(near: _Near, y: Reals, r: Reals) -> bool:
    """Whether y = c * r for one c other than 1, for numbers that do not all agree (then any y would do)."""
    use = np.isfinite(y) & np.isfinite(r) & (r != 0)
    if use.sum() < 3 or use.mean() < SHARE or len(np.unique(np.abs(r[use]))) < 2:
        return False
    ratio = y[use] / r[use]
    middle = float(np.median(ratio))
    alike = np.abs(ratio - middle) <= 0.01 * abs(middle) + near.fmt.unit
    return _mostly(alike) and abs(middle - 1.0) > 0.02 and middle != 0.0


def _as_narrower(y: Reals, r: Reals, fmt: Format) -> Iterator[Mask]:
    """Yield, for every format with fewer bits of precision, the y that it has, at most one of its ulps from r."""
    for other in FORMATS.values():
        if fmt.is_float and other.is_float and other.precision < fmt.precision:
            held: Any = round_to(y, other).astype(np.float64) == y
            yield held & (np.abs(y - r) < _ulp(r, other))


def at_index(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A flat index as one along each axis."""
    return tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()


def place_of(index: int, shape: tuple[int, ...]) -> str:
    """A flat index as `[row, column]`; `[]` for a scalar."""
    return f"[{', '.join(map(str, at_index(index, shape)))}]"
