"""The distributions of inputs/distributions.py on a device: for each a function of the same name, with the same bits.

A sampler takes a DeviceWindow and returns float64 or int64 values, which are scaled and rounded to the dtype later, or
elements that already have the window's dtype. Only integer operations and exactly rounded ones are allowed, and each is
a call of its own: within one, a GPU may fuse a product and a sum. What is returned may be a view, as of `expand`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.formats import bits_of
from kernel_assay.corpus.inputs.distributions import limits_of, lowest, nearest_zero, whole_of
from kernel_assay.corpus.inputs.field import MASK, mixed
from kernel_assay.corpus.inputs.torch.blocks import exact, packed, plain, ramp, wild
from kernel_assay.corpus.inputs.torch.field import (
    CARRIERS,
    DeviceWindow,
    bit_count,
    patterned,
    power_of_two,
    real,
    remainder,
    shifted,
    signed,
    steps,
)
from kernel_assay.corpus.inputs.torch.rounding import converted

Sampler = Callable[[DeviceWindow], Tensor]

SAMPLERS: dict[str, Sampler] = {}
"""Name of a distribution -> what makes its values here."""


def sampler(sample: Sampler) -> Sampler:
    """Enter a sampler into the table under its own name."""
    if sample.__name__ in SAMPLERS:
        raise InternalError(f"sampler {sample.__name__!r} is defined twice in corpus/inputs/torch/distributions.py")
    SAMPLERS[sample.__name__] = sample
    return sample


def sampler_of(name: str) -> Sampler:
    """The sampler of a distribution. Raises InternalError if the distribution has none."""
    if name not in SAMPLERS:
        raise InternalError(
            f"distribution {name!r} has no function of that name in corpus/inputs/torch/distributions.py"
        )
    return SAMPLERS[name]


@sampler
def zeros(w: DeviceWindow) -> Tensor:
    """All zero."""
    return w.filled(0.0)


@sampler
def ones(w: DeviceWindow) -> Tensor:
    """All one."""
    return w.filled(1.0)


@sampler
def small_integers(w: DeviceWindow) -> Tensor:
    """Integers from -4 to 4 (0 to 8 for unsigned types)."""
    low = 0.0 if w.format.kind == "uint" else -4.0
    return real(remainder(w.bits(), 9)) + low


@sampler
def uniform(w: DeviceWindow) -> Tensor:
    """Uniform in [-1, 1); the whole range for integer types; integers below `below` if given."""
    if "below" in w.params:
        return remainder(w.bits(), max(1, int(w.params["below"])))
    if not w.format.is_float:
        return raw_bits(w)
    return w.uniform() * 2.0 - 1.0


@sampler
def positive(w: DeviceWindow) -> Tensor:
    """Uniform in (0, 1]."""
    return 1.0 - w.uniform()


@sampler
def normal(w: DeviceWindow) -> Tensor:
    """The number of set bits of a word, dithered."""
    centred = real(bit_count(w.bits(0))).sub_(32.0)
    return centred.add_(w.uniform(1)).sub_(0.5).mul_(0.24935)


@sampler
def sparse(w: DeviceWindow) -> Tensor:
    """Normal, but seven of eight elements are zero."""
    return torch.where((w.bits(2) & 7) == 0, normal(w), 0.0)


@sampler
def lone_tile(w: DeviceWindow) -> Tensor:
    """Normal in one tile of a row, and zero elsewhere."""
    return torch.where(_in_tile(w), normal(w), 0.0)


@sampler
def lone_lane(w: DeviceWindow) -> Tensor:
    """Normal in every 32nd column, and zero elsewhere."""
    return torch.where((w.columns() & 31) == (w.per_row() & 31), normal(w), 0.0)


@sampler
def wide(w: DeviceWindow) -> Tensor:
    """Normal times a power of two from 2**-6 to 2**6."""
    return normal(w) * power_of_two(remainder(w.bits(2), 13) - 6)


@sampler
def exact_integers(w: DeviceWindow) -> Tensor:
    """Integers up to `bound` in magnitude."""
    bound = max(0, int(w.params.get("bound", 8)))
    return real(remainder(w.bits(), 2 * bound + 1)) - float(bound)


@sampler
def powers_of_two(w: DeviceWindow) -> Tensor:
    """Plus or minus 2**k, k from -3 to 3."""
    sign = 1.0 - real(w.bits(1) & 1) * 2.0
    return sign * power_of_two(remainder(w.bits(), 7) - 3)


@sampler
def unit_steps(w: DeviceWindow) -> Tensor:
    """Plus or minus one, by column."""
    return (1.0 - real(w.columns() & 1) * 2.0).expand(w.shape)


@sampler
def constant_rows(w: DeviceWindow) -> Tensor:
    """Each row repeats one value."""
    return (real(shifted(w.per_row(), 11)) * 2.0**-52 - 1.0).expand(w.shape)


@sampler
def ties(w: DeviceWindow) -> Tensor:
    """Only the values 0, 1 and 2."""
    return real(remainder(w.bits(), 3))


@sampler
def offset(w: DeviceWindow) -> Tensor:
    """Uniform in [-1, 1) around 1000."""
    return w.uniform() * 2.0 + 999.0


@sampler
def cancellation(w: DeviceWindow) -> Tensor:
    """Pairs x, -x along each row."""
    pairs = normal(w.paired())
    return torch.where((w.columns() & 1) == 1, -pairs, pairs)


@sampler
def huge_row(w: DeviceWindow) -> Tensor:
    """Normal; about one row in four is 2**12 times larger."""
    values = normal(w)
    return torch.where((w.per_row() & 3) == 0, values * 4096.0, values)


@sampler
def masked_rows(w: DeviceWindow) -> Tensor:
    """Normal with -Inf as a mask: rows masked whole, at random, from some column below 32 on, or not at all."""
    row = w.per_row()
    style = row & 3
    chosen = (style == 1) & ((w.bits(3) & 1) == 1)
    tail = (style == 2) & (w.columns() >= ((row >> 8) & 31))
    return torch.where((style == 0) | chosen | tail, lowest(w.format), normal(w))


@sampler
def masked_start(w: DeviceWindow) -> Tensor:
    """Normal, but the first 32, 64, 128 or 256 columns of a row are -Inf."""
    return torch.where(w.columns() < _tile_width(w), lowest(w.format), normal(w))


@sampler
def masked_first_rows(w: DeviceWindow) -> Tensor:
    """Normal, but the first 32, 64, 128 or 256 rows begin with -Inf."""
    if len(w.shape) < 2:
        return normal(w)
    rows = steps(w.of.origin[-2], w.shape[-2], w.device)[:, None]
    masked = (rows < 32 << (mixed(w.of.seed & MASK) & 3)) & (w.columns() == 0)
    return torch.where(masked, lowest(w.format), normal(w))


@sampler
def log_uniform(w: DeviceWindow) -> Tensor:
    """Finite bit patterns in strata: any exponent, subnormal, almost overflow, almost underflow, zero."""
    f = w.format
    mantissa_bits = f.precision - 1
    mantissa = w.bits(1) & ((1 << mantissa_bits) - 1)
    top = f.emax - f.emin + 1
    exponent = remainder(w.bits(2), top).add_(1)
    stratum = w.bits(3) & 15
    for number, settled in ((11, 0), (12, top), (13, 1)):
        exponent.masked_fill_(stratum == number, settled)
    pattern = (exponent << mantissa_bits).bitwise_or_(mantissa).masked_fill_(stratum == 15, 0)
    if not f.has_inf:
        pattern.clamp_(max=f.inf_bits)
    return patterned(pattern.bitwise_or_((w.bits(4) & 1) << (f.bits - 1)), f)


@sampler
def raw_bits(w: DeviceWindow) -> Tensor:
    """Any bit pattern at all; integers below `below` if given."""
    if "below" in w.params:
        return uniform(w)
    return patterned(w.bits() >> (64 - w.format.bits), w.format)


@sampler
def edge_indices(w: DeviceWindow) -> Tensor:
    """Only the first and the last index."""
    last = max(1, int(w.params.get("below", 1))) - 1
    return (w.bits() & 1) * last


@sampler
def least(w: DeviceWindow) -> Tensor:
    """All the number of [low, high] that is nearest to zero."""
    return _listed(w, nearest_zero(*limits_of(w.of)))[0].expand(w.shape)


@sampler
def ends(w: DeviceWindow) -> Tensor:
    """Only low, high and the number of [low, high] that is nearest to zero."""
    low, high = limits_of(w.of)
    return _listed(w, nearest_zero(low, high), low, high)[remainder(w.bits(), 3)]


@sampler
def between(w: DeviceWindow) -> Tensor:
    """Uniform in [low, high], both ends included."""
    low, high = limits_of(w.of)
    if isinstance(low, int) and isinstance(high, int):
        span = high - low + 1
        words = w.bits() if span >> 64 else remainder(w.bits(), span)
        return converted(words + signed(low), w.format)
    share = w.uniform()
    values = (1.0 - share) * low + share * high
    return converted(_clipped(values, low, high), w.format)


@sampler
def tapered(w: DeviceWindow) -> Tensor:
    """Draw as `between`, but row by row towards the number nearest to zero."""
    low, high = limits_of(w.of)
    if not w.format.is_float:
        return between(w)
    start, share = nearest_zero(low, high), power_of_two(-remainder(w.per_row(1), 24))
    values = (1.0 - share) * start + real(between(w)) * share
    return converted(_clipped(values, low, high), w.format)


@sampler
def whole(w: DeviceWindow) -> Tensor:
    """Integers of [low, high], nine at most, around the one nearest to zero; without any, what is nearest to it."""
    low, high = limits_of(w.of)
    centre, first, last = whole_of(low, high)
    if first > last:
        return least(w)
    values = _clipped(real(remainder(w.bits(), 9)) + (centre - 4.0), first, last)
    return converted(_clipped(values, low, high), w.format)


@sampler
def every_bits(w: DeviceWindow) -> Tensor:
    """Every bit pattern of a type, 256 in a row; with `skip` the index without so many bits."""
    skip = max(0, min(int(w.params.get("skip", 0)), 63))
    columns = w.columns()
    if len(w.shape) < 2:
        return patterned(columns >> skip, w.format).expand(w.shape)
    rows = steps(w.of.origin[0], w.shape[0], w.device).reshape(-1, *(1,) * (len(w.shape) - 1)) * 256
    if skip > 8 and w.of.origin[-1] + w.shape[-1] > 256:
        return patterned((rows + columns) >> skip, w.format).expand(w.shape)
    # No bit is carried from the columns to the rows: shifted parts can be added, in no more bits than are asked for.
    word = CARRIERS[w.format.bits]
    return patterned((rows >> skip).to(word) + (columns >> skip).to(word), w.format).expand(w.shape)


def _tile_width(w: DeviceWindow) -> Tensor:
    """Columns of a tile in each row: 32, 64, 128 or 256."""
    return torch.bitwise_left_shift(32, w.per_row() & 3)


def _in_tile(w: DeviceWindow) -> Tensor:
    """One tile of each row: the first in half of the rows, else the second or the fourth."""
    width, drawn = _tile_width(w), (w.per_row() >> 8) & 3
    begin = width * ((drawn * (drawn - 1)) >> 1)
    return (w.columns() >= begin) & (w.columns() < begin + width)


def _listed(w: DeviceWindow, *values: float) -> Tensor:
    """A few numbers as elements of the window's dtype."""
    patterns = [signed(bits_of(value, w.format.dtype)) for value in values]
    return patterned(torch.tensor(patterns, dtype=torch.int64, device=w.device), w.format)


def _clipped(values: Tensor, low: float, high: float) -> Tensor:
    """Clip to [low, high]; a zero keeps its sign beside a limit of zero, which torch.clamp does not promise."""
    return values.masked_fill(values < low, low).masked_fill_(values > high, high)


@sampler
def exact_blocks(w: DeviceWindow) -> Tensor:
    """Packed blocks, scales plus or minus 1/2, 1 or 2, quants of a byte up to `bound` (8)."""
    return packed(w, exact, max(1, min(int(w.params.get("bound", 8)), 127)))


@sampler
def blocks(w: DeviceWindow) -> Tensor:
    """Packed blocks with scales from 2**-8 to 1 (sums: to 2**8) and random quants."""
    return packed(w, plain)


@sampler
def wild_blocks(w: DeviceWindow) -> Tensor:
    """Packed blocks whose scales are any finite float16."""
    return packed(w, wild)


@sampler
def every_blocks(w: DeviceWindow) -> Tensor:
    """Packed blocks with every pattern of d once in 256 rows of 256 blocks."""
    return ramp(w)


@sampler
def either(w: DeviceWindow) -> Tensor:
    """Only low and high."""
    return _listed(w, *limits_of(w.of))[remainder(w.bits(), 2)]
