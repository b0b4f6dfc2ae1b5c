"""One pass over an output in numba: the same tally as oracles.judging.measure_numpy, at the speed of memory.

A block of 2048 elements stays in the innermost cache while short loops without branches, which LLVM turns into vector
code, look at it: distances in ulps, then sums and whether any record could be beaten. Only a block with something to
see (a failure, NaN or Inf, a mask) is walked through element by element. Two float32 arrays under one budget have a
shorter way: all but their sums is looked at in 32 bits. No threads here, but the GIL is let go.
"""

from typing import Any  # noqa: I001 (one column a line would fill the screen)

import numpy as np
from numba import njit

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF, ZERO
from kernel_assay.oracles.judging.measure_numpy import (
    ABS_AT, BAD, BLOCK, BUCKETS, CLASS_BAD, DIGITS, EMAX, EMIN, EXCESS, FAST_TOP, FIRST_BAD, FIRST_BADS,
    FIRST_CLASS, GOT_NONFINITE, HALF, HAS_INF, HISTOGRAM, INTEGER, MAX_ABS, MAX_REL, MISROUNDED, MODE, OVER,
    OVERFLOW, PAIRS, PEAK, REAL_ULP, REL_AT, RHO, RHO_AT, SIGMAS, SINGLE, SMALL, SUM_EE, SUM_RR, SUM_YY, SUM_Z, TOP,
    ULP, ULP_AT, UNIFORM_SIGMA, WANT_NONFINITE, Ints, Operands, Reals,
)  # fmt: skip

_EXP, _MANTISSA, _MAGNITUDE, _ONE = 0x7FF << 52, (1 << 52) - 1, (1 << 63) - 1, 1 << 52
_ROUNDER = 2.0**52
"""Added to a number below 2**52 it rounds to an integer, which then stands in the mantissa."""

_SINGLE_EXP, _LEAST = np.int32(0x7F800000), np.int32(-0x7FFFFFFF)
_CELL = np.int32((24 << 23) + 1)
"""Taken from a pattern of float32 it leaves, but for the mantissa, that of half a cell below the number."""
_SCALE = np.float32(2.0**64)
"""Keeps products with numbers that are hardly normal from being rounded to what is compared with them."""
_HUGE = np.float32(2.0**60).view(np.int32)
"""Pattern above which such products may overflow; NaN and Inf are above it, too."""

_kernel = njit(nogil=True, cache=True, error_model="numpy")
_summing = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
"""For sums alone: with these two flags LLVM reorders reductions, never comparisons or the differences they look at."""


def sweep(ops: Operands, base: int, counts: Ints, values: Reals) -> None:
    """Add all elements of ops, the first of which has flat index base, to counts and values."""
    if ops.want.itemsize == 4 and ops.error.size == 1 and not ops.accept.size and not ops.sigma.size:
        _sweep_singles(
            ops.bits, ops.values, ops.want, ops.error[0], ops.accept, ops.sigma, ops.facts, ops.steps, base, counts,
            values,
        )  # fmt: skip
        return
    _sweep(
        ops.bits, ops.values, ops.want, ops.error, ops.accept, ops.sigma, ops.facts, ops.table, ops.steps,
        base, counts, values,
    )  # fmt: skip


def kept_in() -> str:
    """The folder in which numba keeps what it has compiled of this file."""
    return str(_sweep.stats.cache_path)


@_kernel
def _pattern(x: Any) -> Any:
    return np.float64(x).view(np.int64)


@_kernel
def _real(pattern: Any) -> Any:
    return np.int64(pattern).view(np.float64)


@_kernel
def _exponent(x: Any, low: Any, high: Any) -> Any:
    """Pattern of 2**e for the e of |x|, kept between two patterns of powers of two."""
    return min(max(_pattern(x) & _EXP, low), high)


@_kernel
def _sweep(
    bits: Array, numbers: Array, want: Array, error: Reals, accept: Array, sigma: Reals,
    facts: Reals, table: Reals, steps: Array, base: int, counts: Ints, values: Reals,
) -> None:  # fmt: skip
    size = want.size
    uniform = error.size == 1
    spread = np.empty(min(size, BLOCK))
    if uniform:
        spread[:] = error[0]
    for low in range(0, size, BLOCK):
        high = min(low + BLOCK, size)
        b, r = bits[low:high], want[low:high]
        y = numbers[: high - low]
        if table.size > 1:
            for i in range(b.size):
                y[i] = table[b[i]]
        else:
            y = numbers[low:high]
        e = spread[: high - low] if uniform else error[low:high]
        m = accept[low:high] if accept.size > 1 else accept
        s = sigma[low:high] if sigma.size > 1 else sigma
        d = steps[: high - low]
        _distances(b, y, r, facts, d)  # first, because it streams: measured twice as fast as after the sums
        if not _quick(y, r, e, m, s, d, uniform, facts, base + low, counts, values):
            _walk(y, r, e, m, s, d, facts, base + low, counts, values)


@_kernel
def _sweep_singles(
    bits: Array, y: Array, r: Array, error: float, m: Array, s: Reals, facts: Reals, steps: Array, base: int,
    counts: Ints, values: Reals,
) -> None:  # fmt: skip
    """Tally two float32 arrays under one budget; there are no masks (m) and no deviations (s)."""
    spread = np.full(min(r.size, BLOCK), error)
    for low in range(0, r.size, BLOCK):
        block = slice(low, min(low + BLOCK, r.size))
        b, a, c, d = bits[block], y[block], r[block], steps[: block.stop - low]
        if _brisk(b, a, c, d, spread, facts, base + low, counts, values):
            continue
        if not _quick(a, c, spread, m, s, d, True, facts, base + low, counts, values):
            _walk(a, c, spread, m, s, d, facts, base + low, counts, values)


@_kernel
def _brisk(
    b: Array, y: Array, r: Array, d: Array, e: Reals, facts: Reals, base: int, counts: Ints, values: Reals
) -> bool:
    """Tally a block in which no record of rho or of a relative error may be beaten; False: only distances are known."""
    lean = _SCALE * np.float32(min(values[MAX_REL] * (1.0 - 2.0**-20), 0.25))
    peak, longest, far, other, excess, rel = _look_at_singles(b, y, r, d, lean)
    hit = rel > 0 or (excess > 0 and _single(excess) > min(values[EXCESS], e[0]))
    if hit or max(peak, far) > _HUGE or y.size == 1 or not e[0] >= 0.0:
        return False
    see, srr, syy = _single_sums(y, r)
    _add_sums(see, srr, syy, _single(peak), y.size, other, counts, values)
    if longest > np.uint32(1):
        _histogram(d, counts)
    else:
        counts[HISTOGRAM] += y.size - other
        counts[HISTOGRAM + 1] += other
    _note_ulps(y, r, longest, facts, values)
    _note(y, r, e, d, (0.0, 0.0, _single(far), np.uint64(longest)), facts, base, counts, values)
    return True


@_kernel
def _single(pattern: Any) -> Any:
    return np.float64(np.int32(pattern).view(np.float32))


@_summing
def _look_at_singles(b: Array, y: Array, r: Array, d: Array, lean: Any) -> Any:
    """Distances; patterns of the largest |r|, distance, |y-r|; how many differ; patterns that tell of possible records.

    The last two: the largest excess, and of |y-r| beyond lean times |r|, if above 0. Where that is not above 0, y and r
    are within a factor of two and |y-r| is exact, as is the excess but of powers of two, where it may be too large.
    """
    wanted = r.view(np.uint32)
    peak, far, excess, rel = np.int32(0), np.int32(0), np.int32(_LEAST), np.int32(_LEAST)
    longest, other = np.uint32(0), np.uint32(0)
    for i in range(b.size):  # numba makes 64 bits of all sums of integers; in 32 twice as many fit into a register
        p, q = b[i], wanted[i]
        mp, mq = np.uint32(p & np.uint32(0x7FFFFFFF)), np.uint32(q & np.uint32(0x7FFFFFFF))
        steps = np.uint32(mp + mq if (p ^ q) >> np.uint32(31) else max(mp, mq) - min(mp, mq))
        d[i] = steps
        longest, other = max(longest, steps), np.uint32(other + min(steps, np.uint32(1)))
        away = np.float32(abs(np.float32(y[i] - r[i])))
        peak, far = max(peak, np.int32(mq)), max(far, away.view(np.int32))
        cell = np.int32(np.int32(max(np.int32(mp), _CELL) - _CELL) & _SINGLE_EXP)
        excess = max(excess, np.float32(away - cell.view(np.float32)).view(np.int32))
        rel = max(rel, np.float32(away * _SCALE - np.float32(lean * np.float32(abs(r[i])))).view(np.int32))
    return peak, longest, far, other, excess, rel


@_summing
def _single_sums(y: Array, r: Array) -> Any:
    see, srr, syy = 0.0, 0.0, 0.0
    for i in range(y.size):
        a, b = np.float64(y[i]), np.float64(r[i])
        see += (a - b) * (a - b)
        srr += b * b
        syy += a * a
    return see, srr, syy


@_kernel
def _distances(bits: Array, y: Array, r: Array, facts: Reals, out: Array) -> None:
    """Representable steps between y and the rounded r, for finite pairs (numerics.md 1); garbage for others."""
    if facts[MODE] == SMALL:
        _small_distances(bits, r, facts, out)
    elif facts[MODE] == INTEGER:
        for i in range(bits.size):
            away = min(np.rint(abs(np.float64(y[i]) - r[i])), 2.0**63)
            out[i] = np.uint64(away) if away >= 0 else np.uint64(0)
    elif facts[MODE] == SINGLE:
        for i in range(bits.size):
            p, q = np.uint32(bits[i]), np.float32(r[i]).view(np.uint32)
            mp, mq = p & np.uint32(0x7FFFFFFF), q & np.uint32(0x7FFFFFFF)
            out[i] = np.uint32(mp + mq if (p ^ q) >> np.uint32(31) else max(mp, mq) - min(mp, mq))
    else:
        for i in range(bits.size):
            a, b = np.int64(bits[i]), _pattern(r[i])
            ma, mb = a & _MAGNITUDE, b & _MAGNITUDE
            out[i] = np.uint64(ma + mb if (a ^ b) < 0 else abs(ma - mb))


@_kernel
def _small_distances(bits: Array, r: Array, facts: Reals, out: Array) -> None:
    """Distances for at most 24 bits of precision: rounds r by adding 2**52 to |r| counted in ulps."""
    digits, low, high = np.int64(facts[DIGITS]), _pattern(facts[EMIN]), _pattern(facts[EMAX])
    width = np.int64(8 * bits.itemsize - 1)
    mask, grow, down = (np.int64(1) << width) - 1, _real((1023 + digits) << 52), 52 - digits
    for i in range(bits.size):
        x = np.float64(r[i])
        power = _exponent(x, low, high)
        step = abs(x) * _real(2046 * _ONE - power) * grow
        rounded = ((power - low) >> down) + (_pattern(step + _ROUNDER) & _MANTISSA)
        b = np.int64(bits[i])
        opposite = (b >> width != 0) != (_pattern(x) < 0)
        out[i] = np.uint64((b & mask) + rounded if opposite else abs((b & mask) - rounded))


@_kernel
def _quick(
    y: Array, r: Array, e: Reals, m: Array, s: Reals, d: Array, uniform: bool,
    facts: Reals, base: int, counts: Ints, values: Reals,
) -> bool:  # fmt: skip
    """Tally a block in which all is finite, judged by the interval and within budget; False: it is no such block."""
    if not _ordinary(y, e[:1] if uniform else e, m):
        return False
    flat, steep = 0.0, min(values[RHO], 1.0) * (1.0 - 2.0**-50)
    if uniform and y.size > 1:  # a lone element may be the last of a row of budgets
        flat, steep = min(values[EXCESS], e[0]), 0.0
    lean = values[MAX_REL] * (1.0 - 2.0**-50)
    far, peak, misrounded, hits, see, srr, syy = _sums(y, r, e, facts[HALF], facts[EMIN], flat, steep, lean)
    if far >= _EXP or _real(peak) > facts[FAST_TOP]:
        return False
    rho, rel = _ratios(y, r, e, facts) if hits else (0.0, 0.0)
    if rho > 1.0:
        return False
    _add_sums(see, srr, syy, _real(peak), y.size, misrounded, counts, values)
    longest = _histogram(d, counts)
    _note_ulps(y, r, longest, facts, values)
    if s.size:
        values[SUM_Z] += _sigmas(y, r, s, facts)
        counts[SIGMAS] += y.size
    _note(y, r, e, d, (rho, rel, _real(far), longest), facts, base, counts, values)
    return True


@_kernel
def _add_sums(
    see: float, srr: float, syy: float, peak: float, pairs: int, misrounded: int, counts: Ints, values: Reals
) -> None:
    counts[PAIRS] += pairs
    counts[MISROUNDED] += misrounded
    for column, total in ((SUM_EE, see), (SUM_RR, srr), (SUM_YY, syy)):
        values[column] += total
    values[PEAK] = max(values[PEAK], peak)


@_kernel
def _note_ulps(y: Array, r: Array, longest: Any, facts: Reals, values: Reals) -> None:
    """Take the largest |y-r| / ulp(r) of a block of finite pairs, if it may be a record; longest: its distance."""
    # One step is at most ulp(r), or 2.5 where r is no number of the format and rounds up to a power of two.
    half_steps = 2 * np.int64(longest) if r.itemsize == 4 and facts[MODE] == SINGLE else 1 + 4 * np.int64(longest)
    if facts[MODE] != INTEGER and (longest > 1 or values[REAL_ULP] < 0.5 * half_steps):
        values[REAL_ULP] = max(values[REAL_ULP], _real_ulps(y, r, facts))


@_kernel
def _ordinary(y: Array, e: Reals, m: Array) -> bool:
    """Whether all budgets are numbers >= 0, and every finite y is to be judged by the interval."""
    strange = np.int64(0)
    for i in range(e.size):
        strange += not e[i] >= 0.0
    if m.size == y.size:
        for i in range(m.size):
            strange += ((m[i] & INTERVAL) == 0) | (((m[i] & ZERO) != 0) & (y[i] == 0.0))
    elif m.size:  # one mask for all
        for i in range(y.size):
            strange += ((m[0] & INTERVAL) == 0) | (((m[0] & ZERO) != 0) & (y[i] == 0.0))
    return bool(strange == 0)


@_kernel
def _power(y: float, e: float, low: int) -> Any:
    """Pattern of the power of two at or below |y|, seen from y - e: one lower if |y| is one and y - e inside."""
    p = _pattern(y)
    return max((p & _MAGNITUDE) + ~((_pattern(e) ^ p) >> 63), low) & _EXP


@_kernel
def _excess(y: float, r: float, half: float, low: int) -> Any:
    """Distance of r from the cell of y, both finite; negative inside it (numerics.md 0)."""
    e = y - r
    # Half a cell of a subnormal float64 must round to 0; the min keeps LLVM from fusing product and difference.
    return abs(e) - min(_real(_power(y, e, low)) * half, 2.0**1023)


@_summing
def _sums(y: Array, r: Array, e: Reals, half: float, tiny: float, flat: float, steep: float, lean: float) -> Any:
    """Pattern of the largest |y-r| and |r|, how many lie outside their cell, and may beat a record; the three sums."""
    low, shift = _pattern(tiny), _pattern(1.0) - _pattern(half)
    far, peak, misrounded, hits = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    see, srr, syy = 0.0, 0.0, 0.0
    for i in range(y.size):
        a, b = np.float64(y[i]), np.float64(r[i])
        away, size = abs(a - b), abs(b)
        see += away * away
        srr += b * b
        syy += a * a
        far = max(far, _pattern(away))
        peak = max(peak, _pattern(size))
        # As _excess, but above it where half a cell is below 2**-1022: the count stays right, hits are candidates.
        excess = away - _real(max(_power(a, a - b, low) - shift, 0))
        misrounded += excess > 0.0
        hits += (excess > steep * e[i] + flat) | (away > lean * size)
    return far, peak, misrounded, hits, see, srr, syy


@_kernel
def _rho(excess: float, error: float) -> Any:
    return 0.0 if excess <= 0.0 else excess / error if error > 0.0 else np.inf


@_kernel
def _ratios(y: Array, r: Array, e: Reals, facts: Reals) -> Any:
    """Largest rho and largest relative error of a block of finite pairs with ordinary budgets."""
    low, half = _pattern(facts[EMIN]), facts[HALF]
    rho, rel = np.int64(0), np.int64(0)
    for i in range(y.size):
        a, b = np.float64(y[i]), np.float64(r[i])
        excess = max(_excess(a, b, half, low), 0.0)
        rho = max(rho, _pattern(excess / e[i] if excess > 0.0 else 0.0))
        rel = max(rel, _pattern(abs(a - b) / abs(b) if b != 0.0 else 0.0))
    return _real(rho), _real(rel)


@_kernel
def _real_ulps(y: Array, r: Array, facts: Reals) -> Any:
    """Largest |y-r| / ulp(r) of a block of finite pairs below 2**1022."""
    low, high = _pattern(facts[EMIN]), _pattern(facts[EMAX])
    most, units = np.int64(0), 0.5 / facts[HALF]
    for i in range(y.size):
        b = np.float64(r[i])
        most = max(most, _pattern(abs(np.float64(y[i]) - b) * _real(2046 * _ONE - _exponent(b, low, high)) * units))
    return _real(most)


@_summing
def _sigmas(y: Array, r: Array, s: Reals, facts: Reals) -> Any:
    """Sum of ((y-r)/sigma)**2 over a block of finite pairs (numerics.md 2.3)."""
    total, low, high, half = 0.0, facts[EMIN], facts[EMAX], facts[HALF]
    for i in range(y.size):
        r_i = np.float64(r[i])
        total += _deviation(np.float64(y[i]) - r_i, s[i if s.size > 1 else 0], _ulp(r_i, low, high, half))
    return total


@_kernel
def _deviation(e: float, sigma: float, ulp: float) -> Any:
    return e * e / ((UNIFORM_SIGMA * ulp) ** 2 + sigma * sigma) if e != 0.0 else 0.0


@_kernel
def _histogram(d: Array, counts: Ints) -> Any:
    """Count distances into buckets 0, 1, 2, 3-4, 5-8, ... and return the longest."""
    zero, one, longest = np.int64(0), np.int64(0), d[0]
    for i in range(d.size):
        zero += d[i] == 0
        one += d[i] == 1
        longest = max(longest, d[i])
    counts[HISTOGRAM] += zero
    counts[HISTOGRAM + 1] += one
    below, bucket, edge = zero + one, HISTOGRAM + 2, np.uint64(2)
    while below < d.size:
        upto = np.int64(0)
        limit = edge if edge != 0 and edge < longest else np.uint64(longest)
        for i in range(d.size):
            upto += d[i] <= limit
        counts[bucket] += upto - below
        below, bucket, edge = upto, bucket + 1, edge << np.uint64(1)
    return np.uint64(longest)


@_kernel
def _note(
    y: Array, r: Array, e: Reals, d: Array, most: Any, facts: Reals, base: int, counts: Ints, values: Reals
) -> None:
    """Take the records of a quick block; most: its largest rho, relative error, error and distance."""
    rho, rel, away, longest = most
    half, low, last, i = facts[HALF], _pattern(facts[EMIN]), y.size - 1, 0
    if away > values[MAX_ABS]:
        while i < last and abs(np.float64(y[i]) - np.float64(r[i])) < away:
            i += 1
        values[MAX_ABS], counts[ABS_AT] = away, base + i
    if longest > np.uint64(counts[ULP]):
        i = 0
        while i < last and d[i] < longest:
            i += 1
        counts[ULP], counts[ULP_AT] = np.int64(longest), base + i
    if rel > values[MAX_REL]:
        i = 0
        while i < last and (r[i] == 0 or abs(np.float64(y[i]) - np.float64(r[i])) / abs(np.float64(r[i])) < rel):
            i += 1
        values[MAX_REL], counts[REL_AT] = rel, base + i
    if rho > values[RHO]:
        i = 0
        while i < last and _rho(_excess(np.float64(y[i]), np.float64(r[i]), half, low), e[i]) < rho:
            i += 1
        values[EXCESS] = max(values[EXCESS], _excess(np.float64(y[i]), np.float64(r[i]), half, low))
        values[RHO], counts[RHO_AT] = rho, base + i


@_kernel
def _walk(  # noqa: C901, PLR0912 (see its docstring)
    y: Array, r: Array, e: Reals, m: Array, s: Reals, d: Array, facts: Reals, base: int, counts: Ints, values: Reals
) -> None:
    """Tally a block of anything, element by element. Helpers take numbers only: passing arrays costs ten times more."""
    mode, low, high, half, has_inf = facts[MODE], facts[EMIN], facts[EMAX], facts[HALF], facts[HAS_INF] != 0.0
    top, overflow = facts[TOP], facts[OVERFLOW]
    for i in range(y.size):
        a, b, at = np.float64(y[i]), np.float64(r[i]), base + i
        pair, away, size = np.isfinite(a) and np.isfinite(b), abs(a - b), abs(b)
        counts[GOT_NONFINITE] += not np.isfinite(a)
        counts[WANT_NONFINITE] += not np.isfinite(b)
        if pair:
            counts[PAIRS] += 1
            values[SUM_EE] += away * away
            values[SUM_RR] += b * b
            values[SUM_YY] += a * a
            values[PEAK] = max(values[PEAK], size)
            if away > values[MAX_ABS]:
                values[MAX_ABS], counts[ABS_AT] = away, at
            if size > 0.0 and away / size > values[MAX_REL]:
                values[MAX_REL], counts[REL_AT] = away / size, at
            if mode != INTEGER:
                values[REAL_ULP] = max(values[REAL_ULP], away / _ulp(b, low, high, half))
        if pair and size <= top:
            if np.uint64(d[i]) > np.uint64(counts[ULP]):
                counts[ULP], counts[ULP_AT] = np.int64(d[i]), at
            counts[HISTOGRAM + _bucket(np.uint64(d[i]))] += 1
        mask = np.int64(m[min(i, m.size - 1)]) if m.size else _plain_mask(b, has_inf)
        if _taken(a, mask):
            continue
        judged, excess = (mask & INTERVAL) != 0 and np.isfinite(b), _cell(a, b, mode, half, low, overflow, has_inf)
        fits = judged and (excess == 0.0 or excess <= e[i])
        if judged and (pair or fits):
            counts[MISROUNDED] += excess > 0.0
            values[EXCESS] = max(values[EXCESS], excess)
            if _rho(excess, e[i]) > values[RHO]:
                values[RHO], counts[RHO_AT] = _rho(excess, e[i]), at
        if judged and pair and s.size:
            values[SUM_Z] += _deviation(a - b, s[min(i, s.size - 1)], _ulp(b, low, high, half))
            counts[SIGMAS] += 1
        if not fits:
            over = judged and pair
            counts[OVER] += over
            if not over and counts[CLASS_BAD] == 0:
                counts[FIRST_CLASS] = at
            counts[CLASS_BAD] += not over
            if counts[BAD] < FIRST_BADS:
                counts[FIRST_BAD + counts[BAD]] = at
            counts[BAD] += 1


@_kernel
def _ulp(r: float, low: float, high: float, half: float) -> Any:
    return _real(_exponent(r, _pattern(low), _pattern(high))) * (2.0 * half)


@_kernel
def _bucket(steps: Any) -> Any:
    """0, 1, 2, 3-4, 5-8, ... -> 0, 1, 2, 3, 4, ..."""
    bucket, edge = 0, np.uint64(0)
    while steps > edge and bucket < BUCKETS - 1:
        bucket, edge = bucket + 1, max(np.uint64(1), edge << np.uint64(1))
    return bucket


@_kernel
def _plain_mask(r: float, has_inf: bool) -> Any:
    if np.isfinite(r):
        return INTERVAL
    return NAN if np.isnan(r) or not has_inf else PINF if r > 0.0 else NINF


@_kernel
def _taken(y: float, mask: Any) -> bool:
    """Whether y is of an accepted class other than the interval."""
    infinite = PINF if y == np.inf else NINF if y == -np.inf else 0
    return bool(mask & (NAN if np.isnan(y) else ZERO if y == 0.0 else infinite))


@_kernel
def _cell(y: float, r: float, mode: float, half: float, low: float, overflow: float, has_inf: bool) -> Any:
    """Distance from a finite r to the reals that round to y, for any y; NaN: none do."""
    if mode == INTEGER:
        return abs(y - r)
    if np.isfinite(y):
        return max(_excess(y, r, half, _pattern(low)), 0.0)
    if np.isnan(y):
        return np.nan if has_inf else max(overflow - abs(r), 0.0)
    return max(overflow - (r if y > 0.0 else -r), 0.0)
