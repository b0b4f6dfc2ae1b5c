"""Error bounds that several ops share (numerics.md 2): sums, exponentials, and the range of the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import compute_format, format_of
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF, Question, Reals

LIMIT = float(np.finfo(np.float64).max)

REFERENCE_ERROR = 4.0
"""Of a reference in longdouble that is rounded to float64, in units of 2**-53: counts only beside a float64 subject."""


def reference_error(q: Question) -> float:
    """Relative error of the reference itself, in units of u: nothing to subjects that compute in float32."""
    return REFERENCE_ERROR if q.case.dtype == "float64" else 0.0


def range_of(q: Question) -> tuple[float, float]:
    """Smallest normal and largest number of the arithmetic: float64 for float64 inputs, else float32.

    Where every result is rounded to a narrower type, the largest is that of the type.
    """
    fmt = compute_format(q.case.dtype)
    return fmt.tiny, min(fmt.max, q.every.top)


def saturated(y: NDArray[Any]) -> NDArray[Any]:
    """Numbers that stay finite when they are rounded to float64; whether they may be Inf is the budget's word."""
    return np.where(np.isfinite(y), np.clip(y, -LIMIT, LIMIT), y)


def classes_of(y: Reals) -> NDArray[np.uint8]:
    """The accept mask that allows each element its own class: INTERVAL, NAN, PINF or NINF."""
    mask = np.full(y.shape, INTERVAL, np.uint8)
    if not np.isfinite(y).all():
        for mine, name in ((np.isnan(y), NAN), (y == np.inf, PINF), (y == -np.inf, NINF)):
            mask[mine] = name
    return mask


EVEN = 0.58
"""The deviation of an error that is spread evenly, by its bound: 1 / sqrt(3)."""

LAMBDA = 6.0
"""Deviations allowed by the bounds for random terms (numerics.md 2.1)."""


def sum_error(q: Question, terms: int, total: Reals, magnitude: Reals, root_square: Reals, *, products: bool) -> Reals:
    """Bound on the error of summing `terms` numbers in the declared accumulator, in any order (numerics.md 2.1).

    total: the exact sums s; magnitude: S = sum |t|; root_square: R = sqrt(sum t**2); products: the terms themselves
    were rounded once (no fused multiply-add with inputs as wide as the accumulator).
    """
    u = sum_unit(q)
    worst = (terms + 1 + (1 if products else 0)) * u * magnitude
    if not q.iid:
        return worst
    drift = terms * (total**2 / 3.0 + root_square**2 / 6.0) + (root_square**2 if products else 0.0)
    size = np.abs(total)
    typical = LAMBDA * u * np.sqrt(drift) + 2.0 * u * size

    def variance() -> Reals:
        return np.asarray(np.maximum(root_square**2 - size**2 / max(1, terms), 0.0) / max(1, terms))

    return np.minimum(worst, typical + drift_together(u, terms, size, variance))


ACCUMULATOR_UNIT: dict[str, float] = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of the narrow accumulators a subject may declare; tensor cores come with their own steps."""


def sum_unit(q: Question) -> float:
    """Unit roundoff of the declared accumulator."""
    return ACCUMULATOR_UNIT.get(q.numerics.accumulate, q.u)


def sum_range(q: Question) -> tuple[float, float]:
    """Smallest normal and largest number of the declared accumulator."""
    if q.numerics.accumulate not in ACCUMULATOR_UNIT:
        return range_of(q)
    fmt = format_of(q.numerics.accumulate)
    return fmt.tiny, fmt.max


STAGNANT = 0.25
"""From a relative error like this on a sum has no first-order bound: new terms may vanish beside it, all one way."""


BIASED = 2.0**-16
"""Terms times unit roundoff of a sum from which on what its roundings have in common is looked at.

A sum so far lies on its own grid: who adds a term rounds that term to it. Terms that are alike, or most of them small,
are then rounded one way, all of them, and errors do not cancel.
"""


def drift_together(u: float, terms: int, size: Reals, variance: Callable[[], Reals]) -> Reals | float:
    """The error that all roundings of a running sum may have in common, for terms of a smooth density.

    size: of the sum; variance: makes that of its terms, for long sums only: of a deviation s a grid g leaves at most
    g**2 / (8 s) in the mean.
    """
    if terms * u < BIASED:
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(terms * u * size * np.fmin(0.5, u * size / (8.0 * np.sqrt(variance()))))


def common_error(u: float, terms: Reals) -> Reals:
    """The relative error that all roundings of a running sum of each row have in common, its grid being any of three.

    terms: non-negative, as a kernel adds them up; of rows of 0 or of what is not finite it is 0.
    """
    total = terms.sum(axis=-1, keepdims=True)
    total = np.where(np.isfinite(total) & (total > 0.0), total, 1.0)
    grid, worst = 2.0 * u * 2.0 ** np.floor(np.log2(total)), np.zeros(total.shape)
    for step in (grid, grid / 2.0, grid / 4.0):
        lost = (np.rint(terms / step) * step - terms).sum(axis=-1, keepdims=True)
        worst = np.fmax(worst, np.abs(lost))
    return np.asarray(worst / total)


def row_sum_rel(q: Question, terms: int, each: Callable[[], Reals] | None = None) -> Reals | float:
    """Relative error of a sum of `terms` non-negative numbers: (n+2)u, or for random terms LAMBDA u sqrt(n/3) + 3u.

    u is the declared accumulator's; Inf where the bound is STAGNANT. Terms and sum may each be rounded once more. each:
    makes rows of the terms themselves, whose errors may have something in common; the result is then a column.
    """
    u = sum_unit(q)
    worst = (terms + 2) * u
    if worst > STAGNANT:
        return float(np.inf)
    typical: Reals | float = LAMBDA * u * float(np.sqrt(terms / 3.0)) + 3.0 * u
    if q.iid and each is not None and terms * u >= BIASED:
        typical = typical + common_error(u, each())
    return (np.minimum(worst, typical) if q.iid else worst) + 2.0 * q.every.unit


def exp_error(q: Question, x: Reals) -> Reals | float:
    """Relative error of the subject's exp at x (numerics.md 2.2, 5)."""
    accurate = 4.0 * q.u
    if q.numerics.exp == "fast":
        return accurate + 2.0 * q.u * (2.0 + 1.173 * np.abs(x))
    return accurate + (1.25e-4 if q.numerics.exp == "poly3" else 0.0)


def log_error(q: Question, top: Reals, z: Reals, p: Reals) -> Reals:
    """Error of exponents where a share is the exponential of its logarithm, s - (m + l) with l = log sum exp z.

    The logarithm l is off by 4u of itself; what it is taken of, its sum with m and the difference are rounded to the
    type that is claimed. top: m; z: s - m; p: the shares.
    """
    log = -np.log(np.maximum(p.max(axis=-1, keepdims=True, initial=0.0), LEAST_SHARE))
    unit = max(q.u, q.rounding("log", alone=True).unit)
    return np.asarray(4.0 * q.u * log + unit * (1.0 + log + np.abs(top) + np.abs(top + log) + np.abs(z - log)))


LEAST_SHARE = 2.0**-1000
"""Whose logarithm is a number."""


def wild(q: Question, left: Reals) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark where a maximum less itself, which may leave so much, may be beyond all exponents, and where at their end.

    Fused with a difference, a product is not its own maximum: exp(s - max) of the largest is not 1. That divides out,
    but Inf / Inf and 0 / 0 are NaN, or 0 if somebody looks, and few digits are left at the end of the range. What the
    fusion leaves has a last digit, too: of much larger numbers it is nothing, or beyond the end for sure.
    """
    beyond = left > exponents(q)
    return beyond, beyond & (left * q.u < 4.0 * exponents(q))


def grown(q: Question, left: Reals) -> Reals:
    """The factor by which all exponentials of a row may be too large or too small, short of the end of the range."""
    return np.where(left > exponents(q), 1.0, np.exp(np.minimum(left, exponents(q))))


def exponents(q: Question) -> float:
    """The largest exponent with an exponential; the lowest is hardly more.

    Of the arithmetic: who rounds every result to a narrower type fuses nothing.
    """
    return math.log(compute_format(q.case.dtype).max)


def quotient_error(q: Question) -> float:
    """The part that fast math adds to the rounding of a quotient or a root: 2.5 ulp are 5u (numerics.md 2.2)."""
    return 4.0 * q.u if q.numerics.fast_math else 0.0


def sine_error(q: Question, x: Reals) -> Reals:
    """Absolute error of a sine or a cosine that is not exactly known: 2 ulp.

    Those of fast math multiply with 1 / 2 pi first and have some fixed number of bits: 2**-20.5 for one turn, 2**-14.7
    for fifty (PTX ISA, sin.approx).
    """
    return (2.0**-20 + 2.0 * q.u * np.abs(x)) if q.numerics.fast_math else np.full(x.shape, 4.0 * q.u)


def grain(x: Reals, axis: int) -> Reals:
    """The largest power of two that divides every number along an axis; Inf for zeros, negative for NaN and Inf."""
    mantissa, exponent = np.frexp(x)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    lowest[x == 0] = np.inf
    lowest[~np.isfinite(x)] = -1.0
    return np.asarray(lowest.min(axis=axis, keepdims=True, initial=np.inf))
