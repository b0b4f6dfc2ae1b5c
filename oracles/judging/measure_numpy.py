"""One pass over an output in numpy: the tally that measure_numba also makes, readable, and used where numba is not.

Both engines fill the same two rows of numbers, `counts` and `values`, whose columns are named here.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF, ZERO

Reals = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of counts. Distances are kept as the int64 pattern of a uint64.
BAD, CLASS_BAD, OVER, MISROUNDED, RHO_AT, ULP, ULP_AT, ABS_AT, REL_AT = range(9)
FIRST_CLASS, GOT_NONFINITE, WANT_NONFINITE, PAIRS, SIGMAS = range(9, 14)
FIRST_BAD, HISTOGRAM, COUNTS = 16, 32, 98
FIRST_BADS, BUCKETS = HISTOGRAM - FIRST_BAD, COUNTS - HISTOGRAM
# Columns of values.
RHO, REAL_ULP, MAX_ABS, MAX_REL, SUM_EE, SUM_RR, SUM_YY, PEAK, SUM_Z, EXCESS, VALUES = range(11)
# Columns of a format's facts.
MODE, DIGITS, HALF, EMIN, EMAX, TOP, OVERFLOW, HAS_INF, FAST_TOP, FACTS = range(10)
SMALL, SINGLE, DOUBLE, INTEGER = range(4)
UNIFORM_SIGMA = 0.2887
"""Deviation of a rounding error in ulps, 1/sqrt(12) (numerics.md 2.3)."""

CHUNK = 1 << 15
BLOCK = 2048
"""Elements that measure_numba looks at a time; it works in the innermost cache."""

_NOTHING = np.zeros(COUNTS, dtype=np.int64)
_NOTHING[[RHO_AT, ULP_AT, ABS_AT, REL_AT, FIRST_CLASS]] = -1
_NOTHING[FIRST_BAD:HISTOGRAM] = -1


class Operands(NamedTuple):
    """Arrays that one sweep reads, flat and C-contiguous. Rows of length 1 hold for every element; length 0: absent."""

    bits: Array
    """The output as unsigned integers of its own width (float64 ones for wide integer formats)."""
    values: Array
    """The output as numbers. For 8- and 16-bit formats, whose numbers stand in a table: room for BLOCK of them."""
    want: Array
    error: Reals
    accept: NDArray[np.uint8]
    sigma: Reals
    facts: Reals
    table: Reals
    steps: Array
    """Room for the distances of BLOCK elements: uint32 for float32, else uint64."""


@cache
def facts_of(name: str) -> Reals:
    """The constants of a format that judging needs, in columns MODE to FAST_TOP. Half a cell is 2**(e-p)."""
    f = format_of(name)
    if not f.is_float:
        return np.array([INTEGER, 0, 0.0, 1.0, 1.0, np.inf, np.inf, 1, np.inf])
    mode = {"float64": DOUBLE, "float32": SINGLE}.get(name, SMALL)
    with np.errstate(over="ignore"):
        overflow = float(np.float64(f.max) + np.float64(2.0 ** (f.emax - f.precision)))
    # The largest real that rounds to a finite value: at the threshold itself, ties to even decides.
    top = f.max if mode == DOUBLE else overflow if not f.has_inf else float(np.nextafter(overflow, 0.0))
    fast = 2.0**1021 if mode == DOUBLE else top
    return np.array([mode, f.precision - 1, f.unit, f.tiny, 2.0**f.emax, top, overflow, f.has_inf, fast])


@cache
def table_of(name: str) -> Reals:
    """The value of every bit pattern of an 8- or 16-bit format as float64, shape (2**bits,); else shape (1,)."""
    f = format_of(name)
    if f.bits > 16:
        return np.zeros(1)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values: Reals = np.arange(1 << f.bits, dtype=f.carrier).view(f.dtype).astype(np.float64)
    return values


def fresh() -> tuple[Ints, Reals]:
    """Counts and values of nothing yet."""
    return _NOTHING.copy(), np.zeros(VALUES)


def sweep(ops: Operands, base: int, counts: Ints, values: Reals) -> None:
    """Add all elements of ops, the first of which has flat index base, to counts and values."""
    with np.errstate(all="ignore"):
        for low in range(0, len(ops.want), CHUNK):
            _chunk(ops, slice(low, low + CHUNK), base + low, counts, values)


def exponent(x: Reals, facts: Reals) -> Reals:
    """2**e for 2**e <= |x| < 2**(e+1), clipped to the normal range of the format (Goldberg; numerics.md 1)."""
    power = np.where(x == 0, facts[EMIN], np.ldexp(1.0, np.frexp(x)[1] - 1))
    clipped: Reals = np.clip(power, facts[EMIN], facts[EMAX])
    return clipped


def cell_excess(got: Array, r: Reals, facts: Reals) -> Reals:
    """Distance from r to the reals that round to got; float64 of their common shape, for finite r.

    The cell is half an ulp either way, and a quarter below a power of two; that of Inf (of NaN, where there is no
    Inf) begins at the overflow threshold. NaN where got can be no rounding at all. (numerics.md 0.)
    """
    y = got.astype(np.float64)
    ae = np.abs(y - r)
    if got.dtype == np.int64:  # float64 cannot tell integers above 2**53 apart
        return np.where((ae == 0) & (np.abs(r) < 2.0**63), np.abs(got - r.astype(np.int64)), ae)
    if facts[MODE] == INTEGER:
        return ae
    power = exponent(y, facts)
    narrow = (np.abs(y) == power) & (np.abs(y) > facts[EMIN]) & ((y - r) * np.sign(y) > 0)
    excess = np.maximum(ae - np.where(narrow, power * 0.5, power) * facts[HALF], 0.0)
    beyond = np.maximum(facts[OVERFLOW] - np.where(np.isnan(y), np.abs(r), r * np.sign(y)), 0.0)
    spill = np.isinf(y) if facts[HAS_INF] else np.isnan(y)
    distance: Reals = np.where(spill, beyond, excess)
    return distance


def distance(bits: Array, y: Reals, want: Array, facts: Reals) -> NDArray[np.uint64]:
    """Representable steps between y and the rounded want, for finite pairs."""
    mode = facts[MODE]
    if want.dtype == np.int64:
        other = want.view(np.uint64)
        return np.where(bits.view(np.int64) > want, bits - other, other - bits)
    if mode == INTEGER:
        return np.minimum(np.rint(np.abs(y - want)), 2.0**63).astype(np.uint64)
    if mode == DOUBLE:
        rounded = want.view(np.uint64)
    elif mode == SINGLE:
        rounded = want.astype(np.float32).view(np.uint32)
    else:
        rounded = _ordinal(want, facts)
    width = 8 * bits.dtype.itemsize
    sign, mag = np.uint64(1 << (width - 1)), np.uint64((1 << (width - 1)) - 1)
    a = bits.astype(np.uint64)
    negative = np.signbit(want)
    one, other = a & mag, (rounded.astype(np.uint64) & (mag if mode != SMALL else np.uint64(2**63 - 1)))
    same = ((a & sign) != 0) == negative
    steps: NDArray[np.uint64] = np.where(same, np.maximum(one, other) - np.minimum(one, other), one + other)
    return steps


def _ordinal(want: Reals, facts: Reals) -> NDArray[np.uint64]:
    """Position of the rounded magnitude among the format's values."""
    power = exponent(want, facts)
    step = np.rint(np.abs(want) / power * 2.0 ** facts[DIGITS])
    scale = (np.frexp(power)[1] - np.frexp(facts[EMIN])[1]) * 2.0 ** facts[DIGITS]
    place: NDArray[np.uint64] = (np.minimum(np.where(np.isfinite(want), step, 0.0), 2.0**60) + scale).astype(np.uint64)
    return place


def _part(row: Array, where: slice, size: int) -> Array:
    return np.broadcast_to(row, (size,)) if len(row) == 1 else row[where]


def _chunk(ops: Operands, where: slice, base: int, counts: Ints, values: Reals) -> None:
    facts, bits = ops.facts, ops.bits[where]
    raw = ops.values[where] if len(ops.table) == 1 else ops.table[bits]
    y, given = raw.astype(np.float64), ops.want[where]
    r = given.astype(np.float64)
    pair = np.isfinite(y) & np.isfinite(r)
    counts[GOT_NONFINITE] += len(y) - int(np.isfinite(y).sum())
    counts[WANT_NONFINITE] += len(y) - int(np.isfinite(r).sum())
    counts[PAIRS] += int(pair.sum())
    _tally_size(y, r, pair, base, counts, values)
    near = pair & (np.abs(r) <= facts[TOP])
    steps = distance(bits, y, given, facts)
    _tally_distance(steps, near, base, counts)
    if facts[MODE] != INTEGER:
        real = np.where(pair, np.abs(y - r) / (exponent(r, facts) * (2.0 * facts[HALF])), 0.0)
        values[REAL_ULP] = max(values[REAL_ULP], float(real.max(initial=0.0)))
    excess = steps.astype(np.float64) if given.dtype == np.int64 else cell_excess(raw, r, facts)
    error = _part(ops.error, where, len(y))
    accept = _default(r, facts) if len(ops.accept) == 0 else _part(ops.accept, where, len(y))
    judged = _tally_verdict(y, r, excess, error, accept, base, counts, values)
    if len(ops.sigma):
        _tally_sigma(y, r, judged & pair, _part(ops.sigma, where, len(y)), facts, counts, values)


def _default(r: Reals, facts: Reals) -> NDArray[np.uint8]:
    infinite = np.where(r > 0, PINF, NINF) if facts[HAS_INF] else NAN
    return np.where(np.isfinite(r), INTERVAL, np.where(np.isnan(r), NAN, infinite)).astype(np.uint8)


def _record(found: Array, base: int, counts: Ints, at: int, values: Reals, column: int) -> None:
    i = int(np.argmax(found))
    if found[i] > values[column]:
        values[column], counts[at] = found[i], base + i


def _tally_size(y: Reals, r: Reals, pair: NDArray[Any], base: int, counts: Ints, values: Reals) -> None:
    y, r = np.where(pair, y, 0.0), np.where(pair, r, 0.0)
    ae, ar = np.abs(y - r), np.abs(r)
    for column, term in ((SUM_EE, ae * ae), (SUM_RR, r * r), (SUM_YY, y * y)):
        values[column] += float(term.sum())
    _record(ae, base, counts, ABS_AT, values, MAX_ABS)
    rel = np.where(ar > 0, ae / ar, 0.0)
    _record(rel, base, counts, REL_AT, values, MAX_REL)
    values[PEAK] = max(values[PEAK], float(ar.max(initial=0.0)))


def _tally_distance(steps: NDArray[np.uint64], near: NDArray[Any], base: int, counts: Ints) -> None:
    steps = np.where(near, steps, np.uint64(0))
    i = int(np.argmax(steps))
    if int(steps[i]) > int(counts[ULP : ULP + 1].view(np.uint64)[0]):
        counts[ULP : ULP + 1].view(np.uint64)[0], counts[ULP_AT] = steps[i], base + i
    edges = np.array([0, *(1 << k for k in range(BUCKETS - 2))], dtype=np.uint64)
    buckets = np.searchsorted(edges, steps[near], side="left")
    counts[HISTOGRAM:] += np.bincount(buckets, minlength=BUCKETS)


def _tally_verdict(
    y: Reals, r: Reals, excess: Reals, error: Reals, accept: Array, base: int, counts: Ints, values: Reals
) -> NDArray[np.bool_]:
    """Count what fails, and return which elements the interval judged."""
    taken = ((accept & NAN) != 0) & np.isnan(y) | ((accept & ZERO) != 0) & (y == 0)
    taken |= ((accept & PINF) != 0) & (y == np.inf) | ((accept & NINF) != 0) & (y == -np.inf)
    within = (excess == 0) | (excess <= error)
    judged: NDArray[np.bool_] = ~taken & ((accept & INTERVAL) != 0) & np.isfinite(r) & (np.isfinite(y) | within)
    misclassed = ~taken & ~judged
    over = judged & ~within
    counts[OVER] += int(over.sum())
    counts[MISROUNDED] += int((judged & (excess > 0)).sum())
    rho = np.where(judged & (excess > 0), np.where(error > 0, excess / error, np.inf), 0.0)
    _record(rho, base, counts, RHO_AT, values, RHO)
    wrong = np.flatnonzero(misclassed)
    if len(wrong) and counts[FIRST_CLASS] < 0:
        counts[FIRST_CLASS] = base + wrong[0]
    counts[CLASS_BAD] += len(wrong)
    bad = np.flatnonzero(misclassed | over)
    seen = min(int(counts[BAD]), FIRST_BADS)
    fresh_ones = bad[: FIRST_BADS - seen]
    counts[FIRST_BAD + seen : FIRST_BAD + seen + len(fresh_ones)] = base + fresh_ones
    counts[BAD] += len(bad)
    return judged


def _tally_sigma(
    y: Reals, r: Reals, judged: NDArray[Any], sigma: Reals, facts: Reals, counts: Ints, values: Reals
) -> None:
    e, deviation = (y - r)[judged], sigma[judged]
    unit = UNIFORM_SIGMA * (exponent(r[judged], facts) * (2.0 * facts[HALF]))
    variance = unit * unit + deviation * deviation
    values[SUM_Z] += float(np.where(e == 0, 0.0, e * e / variance).sum())
    counts[SIGMAS] += len(e)
