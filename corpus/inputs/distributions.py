"""Named distributions of values. To add one, add a function; the order, plain to nasty, is the one shrinking follows.

A distribution takes a Window and returns float64 values (scaled and rounded to the dtype afterwards), or an array that
already has the window's dtype (bit patterns; then nothing is scaled). Only integer operations and exactly rounded
float64 operations (+ - * / and conversions) are allowed: no exp, log or cos, whose last bits differ between machines.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Format, format_of
from kernel_assay.corpus.inputs.block_distributions import exact, packed, plain, ramp, wild
from kernel_assay.corpus.inputs.field import MASK, Window, mixed, remainder

Values = NDArray[Any]
Nature = Literal["iid", "structured", "adversarial"]


@dataclass(frozen=True)
class Distribution:
    """A named way to fill a tensor."""

    name: str
    sample: Callable[[Window], Values]
    nature: Nature
    """iid: statistical error bounds hold; structured: only worst-case bounds; adversarial: also special values."""
    floats: bool
    """Float types may be filled with it unasked."""
    integers: bool
    patterns: bool
    """It gives bit patterns of the dtype, which are neither scaled nor rounded."""
    rank: int
    """Position in this file: lower is plainer."""
    summary: str
    since: int = 1
    """The generation of cases (corpus/model/campaign.py) from which on it is drawn: older runs give what they gave."""

    @property
    def by_name_only(self) -> bool:
        """Whether it fills any dtype, but is never chosen unasked."""
        return not self.floats and not self.integers

    @property
    def floats_only(self) -> bool:
        """Whether it has nothing to give to an integer type, not even by name."""
        return self.patterns and self.floats and not self.integers


DISTRIBUTIONS: dict[str, Distribution] = {}


def distribution(
    nature: Nature, *, floats: bool = True, integers: bool = True, patterns: bool = False, since: int = 1
) -> Callable[[Callable[[Window], Values]], Callable[[Window], Values]]:
    """Enter a sampler into the table under its own name."""

    def enter(sample: Callable[[Window], Values]) -> Callable[[Window], Values]:
        name = sample.__name__
        if name in DISTRIBUTIONS:
            raise InternalError(f"distribution {name!r} is defined twice in corpus/inputs/distributions.py")
        summary = (sample.__doc__ or "").strip().splitlines()[0]
        DISTRIBUTIONS[name] = Distribution(
            name, sample, nature, floats, integers, patterns, len(DISTRIBUTIONS), summary, since
        )
        return sample

    return enter


@distribution("structured")
def zeros(w: Window) -> Values:
    """All zero."""
    return w.filled(0.0)


@distribution("structured")
def ones(w: Window) -> Values:
    """All one."""
    return w.filled(1.0)


@distribution("structured")
def small_integers(w: Window) -> Values:
    """Integers from -4 to 4 (0 to 8 for unsigned types)."""
    low = 0.0 if w.format.kind == "uint" else -4.0
    return remainder(w.bits(), 9).astype(np.float64) + low


@distribution("iid")
def uniform(w: Window) -> Values:
    """Uniform in [-1, 1); the whole range for integer types; integers below `below` if given."""
    if "below" in w.params:
        return remainder(w.bits(), max(1, int(w.params["below"]))).astype(np.int64)
    if not w.format.is_float:
        return raw_bits(w)
    return w.uniform() * 2.0 - 1.0


@distribution("iid", integers=False)
def positive(w: Window) -> Values:
    """Uniform in (0, 1]: no cancellation, errors add up on one side."""
    return 1.0 - w.uniform()


@distribution("iid", integers=False)
def normal(w: Window) -> Values:
    """Bell-shaped with mean 0 and deviation 1: the number of set bits of a word, dithered; tails to 8 deviations."""
    centred = np.bitwise_count(w.bits(0)).astype(np.float64) - 32.0
    # Binomial(64, 1/2) has variance 16, the dither adds 1/12.
    return (centred + w.uniform(1) - 0.5) * 0.24935


@distribution("structured", integers=False)  # equal terms round alike: bounds for random terms do not hold
def sparse(w: Window) -> Values:
    """Normal, but seven of eight elements are zero."""
    keep = (w.bits(2) & np.uint64(7)) == 0
    return np.where(keep, normal(w), 0.0)


@distribution("structured", integers=False, since=2)
def lone_tile(w: Window) -> Values:
    """Normal in one tile of a row, of 32 to 256 columns, and zero elsewhere."""
    return np.where(_in_tile(w), normal(w), 0.0)


@distribution("structured", integers=False, since=2)
def lone_lane(w: Window) -> Values:
    """Normal in every 32nd column, the row decides which, and zero elsewhere: one lane of each warp has it all."""
    return np.where((w.columns() & 31) == (w.per_row() & np.uint64(31)).astype(np.int64), normal(w), 0.0)


@distribution("iid", integers=False)
def wide(w: Window) -> Values:
    """Normal times a power of two from 2**-6 to 2**6."""
    exponent = remainder(w.bits(2), 13).astype(np.int64) - 6
    return np.ldexp(normal(w), exponent)


@distribution("structured", integers=False)
def exact_integers(w: Window) -> Values:
    """Integers up to `bound` in magnitude (default 8): sums stay exact in any order if the contract chose the bound."""
    bound = max(0, int(w.params.get("bound", 8)))
    return remainder(w.bits(), 2 * bound + 1).astype(np.float64) - float(bound)


@distribution("structured", integers=False)
def powers_of_two(w: Window) -> Values:
    """Plus or minus 2**k, k from -3 to 3: products are exact."""
    sign = 1.0 - 2.0 * (w.bits(1) & np.uint64(1)).astype(np.float64)
    return np.ldexp(sign, remainder(w.bits(), 7).astype(np.int64) - 3)


@distribution("structured", integers=False)
def unit_steps(w: Window) -> Values:
    """Plus or minus one, in balance along each row: means and variances come out exact."""
    return np.broadcast_to(1.0 - 2.0 * (w.columns() & 1).astype(np.float64), w.shape).copy()


@distribution("structured", integers=False)
def constant_rows(w: Window) -> Values:
    """Each row repeats one value: rounding errors of a sum all point the same way."""
    value = (w.per_row() >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return np.broadcast_to(value, w.shape).copy()


@distribution("structured")
def ties(w: Window) -> Values:
    """Only the values 0, 1 and 2: many equal maxima."""
    return remainder(w.bits(), 3).astype(np.float64)


@distribution("structured", integers=False)
def offset(w: Window) -> Values:
    """Uniform in [-1, 1) around 1000: variance by E[x^2] - E[x]^2 cancels."""
    return w.uniform() * 2.0 + 999.0


@distribution("structured", integers=False)
def cancellation(w: Window) -> Values:
    """Pairs x, -x along each row: the exact sum is 0 (or one element) and every rounding error shows."""
    pairs = normal(w.paired())
    return np.where((w.columns() & 1) == 1, -pairs, pairs)


@distribution("structured", integers=False)
def huge_row(w: Window) -> Values:
    """Normal; about one row in four is 2**12 times larger."""
    big = (w.per_row() & np.uint64(3)) == 0
    return np.where(big, 4096.0, 1.0) * normal(w)


@distribution("adversarial", integers=False)
def masked_rows(w: Window) -> Values:
    """Normal with -Inf as a mask: rows masked whole, at random, from some column below 32 on, or not at all."""
    row = w.per_row()
    begin = ((row >> np.uint64(8)) & np.uint64(31)).astype(np.int64)
    style = row & np.uint64(3)
    masked = (style == 0) | ((style == 1) & ((w.bits(3) & np.uint64(1)) == 1)) | ((style == 2) & (w.columns() >= begin))
    return np.where(masked, lowest(w.format), normal(w))


@distribution("adversarial", integers=False, since=2)
def masked_start(w: Window) -> Values:
    """Normal, but the first 32, 64, 128 or 256 columns of a row are -Inf: whole tiles are masked, later ones not."""
    return np.where(w.columns() < _tile_width(w), lowest(w.format), normal(w))


@distribution("adversarial", integers=False, since=2)
def masked_first_rows(w: Window) -> Values:
    """Normal, but the first 32, 64, 128 or 256 rows begin with -Inf: so many keys are masked, and later ones not."""
    if len(w.shape) < 2:
        return normal(w)
    rows = np.arange(w.origin[-2], w.origin[-2] + w.shape[-2], dtype=np.int64)[:, None]
    masked = (rows < 32 << (mixed(w.seed & MASK) & 3)) & (w.columns() == 0)
    return np.where(masked, lowest(w.format), normal(w))


@distribution("adversarial", integers=False, patterns=True)
def log_uniform(w: Window) -> Values:
    """Finite bit patterns in strata: any exponent, subnormal, almost overflow, almost underflow, zero."""
    f = w.format
    mantissa_bits = f.precision - 1
    mantissa = w.bits(1) & np.uint64((1 << mantissa_bits) - 1)
    top = f.emax - f.emin + 1  # biased exponent of the largest binade
    any_exponent = np.uint64(1) + remainder(w.bits(2), top)
    stratum = w.bits(3) & np.uint64(15)
    exponent = np.select(
        [stratum < 11, stratum < 12, stratum < 13, stratum < 14],
        [any_exponent, np.zeros_like(mantissa), np.full_like(mantissa, top), np.full_like(mantissa, 1)],
        any_exponent,
    )
    pattern = np.where(stratum == np.uint64(15), np.uint64(0), (exponent << np.uint64(mantissa_bits)) | mantissa)
    if not f.has_inf:  # e4m3fn: the topmost pattern is NaN
        pattern = np.minimum(pattern, np.uint64(f.inf_bits))
    pattern |= (w.bits(4) & np.uint64(1)) << np.uint64(f.bits - 1)
    return pattern.astype(f.carrier).view(f.dtype)


@distribution("adversarial", patterns=True)
def raw_bits(w: Window) -> Values:
    """Any bit pattern at all, NaN and Inf included; integers below `below` if given."""
    if "below" in w.params:
        return uniform(w)
    return (w.bits() >> np.uint64(64 - w.format.bits)).astype(w.format.carrier).view(w.format.dtype)


@distribution("structured", floats=False)
def edge_indices(w: Window) -> Values:
    """Only the first and the last index."""
    last = max(1, int(w.params.get("below", 1))) - 1
    return np.where((w.bits() & np.uint64(1)) == 1, last, 0).astype(np.int64)


RANGED = {"floats": False, "integers": False, "patterns": True}
"""Distributions over [`low`, `high`], for inputs whose contract gives a range: never chosen for any other input."""


@distribution("structured", **RANGED)
def least(w: Window) -> Values:
    """All the number of [low, high] that is nearest to zero."""
    low, high = limits_of(w)
    return np.full(w.shape, nearest_zero(low, high)).astype(w.format.dtype)


@distribution("structured", **RANGED)
def ends(w: Window) -> Values:
    """Only low, high and the number of [low, high] that is nearest to zero."""
    low, high = limits_of(w)
    values = np.array([nearest_zero(low, high), low, high])
    return values.astype(w.format.dtype)[remainder(w.bits(), 3).astype(np.int64)]


@distribution("structured", **RANGED)  # independent, but equal terms round alike in a narrow range, as in `offset`
def between(w: Window) -> Values:
    """Uniform in [low, high], both ends included."""
    low, high = limits_of(w)
    if isinstance(low, int) and isinstance(high, int):
        span = high - low + 1
        steps = w.bits() if span >> 64 else remainder(w.bits(), span)
        return (steps + np.uint64(low & 0xFFFFFFFFFFFFFFFF)).view(np.int64).astype(w.format.dtype)
    share = w.uniform()
    values = low * (1.0 - share) + high * share  # high - low may overflow
    return np.clip(values, low, high).astype(w.format.dtype)  # rounding is monotone, so it cannot leave the range


@distribution("structured", **RANGED)
def tapered(w: Window) -> Values:
    """Draw as `between`, but row by row towards the number nearest to zero: to 2**-k of the way, k from 0 to 23."""
    low, high = limits_of(w)
    if not w.format.is_float:
        return between(w)
    start, share = nearest_zero(low, high), np.ldexp(1.0, -(w.per_row(1) % np.uint64(24)).astype(np.int64))
    values = start * (1.0 - share) + between(w).astype(np.float64) * share
    return np.clip(values, low, high).astype(w.format.dtype)


@distribution("structured", **RANGED)
def whole(w: Window) -> Values:
    """Integers of [low, high], nine at most, around the one nearest to zero; without any, what is nearest to it."""
    low, high = limits_of(w)
    centre, first, last = whole_of(low, high)
    if first > last:
        return least(w)
    values = remainder(w.bits(), 9).astype(np.float64) + (centre - 4.0)
    return np.clip(np.clip(values, first, last), low, high).astype(w.format.dtype)


@distribution("structured", floats=False, integers=False, patterns=True)
def every_bits(w: Window) -> Values:
    """Every bit pattern of a type, 256 in a row: 16 bits take 256 rows. With `skip` the index without so many bits.

    Two tensors of 16 bits, one of which skips 16, hold every pair in 2**24 rows.
    """
    patterns = w.columns()
    if len(w.shape) > 1:
        rows = np.arange(w.shape[0], dtype=np.int64) + w.origin[0]
        patterns = rows.reshape(-1, *(1,) * (len(w.shape) - 1)) * 256 + patterns
    patterns = patterns >> max(0, min(int(w.params.get("skip", 0)), 63))
    return np.ascontiguousarray(np.broadcast_to(patterns, w.shape)).astype(w.format.carrier).view(w.format.dtype)


def _tile_width(w: Window) -> NDArray[np.int64]:
    """Columns of a tile in each row: 32, 64, 128 or 256."""
    return np.left_shift(32, (w.per_row() & np.uint64(3)).astype(np.int64))


def _in_tile(w: Window) -> NDArray[np.bool_]:
    """One tile of each row: the first in half of the rows, else the second or the fourth."""
    width, drawn = _tile_width(w), ((w.per_row() >> np.uint64(8)) & np.uint64(3)).astype(np.int64)
    begin = width * (drawn * (drawn - 1) // 2)
    return np.asarray((w.columns() >= begin) & (w.columns() < begin + width))


def lowest(fmt: Format) -> float:
    """The number that stands for -Inf as a mask: the most negative one, where a format has no Inf."""
    return -math.inf if fmt.has_inf else -fmt.max


def limits_of(w: Window) -> tuple[int, int] | tuple[float, float]:
    """The least and the largest number that the window may show. Raises UsageError without `low` and `high`."""
    if not {"low", "high"} <= set(w.params):
        raise UsageError(
            "the distributions least, ends, either, between, tapered and whole need the params low and high"
        )
    return limits(w.params["low"], w.params["high"], w.format.name)


def whole_of(low: float, high: float) -> tuple[float, float, float]:
    """The integer of [low, high] nearest to zero, the least and the largest; the least is larger if there is none.

    Beyond 2**52 there is none: every float64 is an integer there, and their neighbours are not.
    """
    first, last = (float(max(-WHOLE, min(n, WHOLE))) for n in (math.ceil(low), math.floor(high)))
    return nearest_zero(first, last), max(first, float(low)), min(last, float(high))


WHOLE = 1 << 52


def nearest_zero(low: float, high: float) -> float:
    """The number of [low, high] that is nearest to zero."""
    return min(max(low, 0), high)


@cache
def limits(low: float, high: float, dtype: str) -> tuple[int, int] | tuple[float, float]:
    """The least and the largest number of a dtype in [low, high]. Raises UsageError if there is none."""
    fmt = format_of(dtype)
    first, last = _within(low, high, fmt) if fmt.is_float else _integers_within(low, high, fmt)
    if not first <= last:  # a NaN, where the format has no Inf
        raise UsageError(f"no {dtype} number lies in the range from {low} to {high}")
    return first, last


def _within(low: float, high: float, fmt: Format) -> tuple[float, float]:
    inside = max(low, -fmt.max), min(high, fmt.max)
    first, last = (np.array(end, np.float64).astype(fmt.dtype) for end in inside)
    up, down = (np.array(sign * fmt.max).astype(fmt.dtype) for sign in (1.0, -1.0))
    if float(first) < inside[0]:
        first = np.nextafter(first, up)
    if float(last) > inside[1]:
        last = np.nextafter(last, down)
    return float(first), float(last)


def _integers_within(low: float, high: float, fmt: Format) -> tuple[int, int]:
    info = np.iinfo(fmt.dtype)
    return max(math.ceil(low), int(info.min)), min(math.floor(high), int(info.max))


PACKED = {"floats": False, "integers": False, "patterns": True}
"""Distributions of packed blocks (corpus/blocks.py): never chosen for an input whose contract does not name them."""


@distribution("structured", **PACKED)
def exact_blocks(w: Window) -> Values:
    """Packed blocks, scales plus or minus 1/2, 1 or 2, quants of a byte up to `bound` (8): sums stay exact."""
    return packed(w, exact, max(1, min(int(w.params.get("bound", 8)), 127)))


@distribution("iid", **PACKED)
def blocks(w: Window) -> Values:
    """Packed blocks of `block` bytes: `scales` float16 numbers from 2**-8 to 1 (sums: to 2**8), then random quants."""
    return packed(w, plain)


@distribution("adversarial", **PACKED)
def wild_blocks(w: Window) -> Values:
    """Packed blocks whose scales are any finite float16: subnormal, zero and the largest often."""
    return packed(w, wild)


@distribution("structured", **PACKED)
def every_blocks(w: Window) -> Values:
    """Packed blocks with every pattern of d once in 256 rows of 256 blocks; quants in order from `start` on."""
    return ramp(w)


@distribution("structured", **RANGED)  # the last: ranks of others decide what is shrunk to what
def either(w: Window) -> Values:
    """Only low and high."""
    return np.array(limits_of(w)).astype(w.format.dtype)[remainder(w.bits(), 2).astype(np.int64)]
