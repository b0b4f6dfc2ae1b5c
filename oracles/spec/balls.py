"""Ball arithmetic (Arb, by python-flint): numbers that carry a rigorous bound on their own error.

A ball is a midpoint and a radius, and every operation gives one that certainly contains the exact result. So a
comparison of balls has three answers: certainly, certainly not, and neither, which more precision may settle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from flint import arb, ctx

from kernel_assay.corpus.formats import Array, Format, format_of

Ball = arb


@contextmanager
def working(bits: int) -> Iterator[None]:
    """Whatever is computed inside is rounded to this many bits; flint's own setting comes back afterwards."""
    with ctx.workprec(bits):
        yield


def ball(value: Any) -> Ball:
    """A number as it is: a Python or numpy scalar of any format, without any error."""
    return Ball(int(value)) if isinstance(value, int | np.integer) else Ball(float(value))


def balls(row: Array) -> list[Ball]:
    """The elements of an array, in C order."""
    whole = not format_of(row.dtype).is_float
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = row.reshape(-1) if whole else row.reshape(-1).astype(np.float64)
    return [Ball(value) for value in values.tolist()]


def total(terms: Iterable[Ball]) -> Ball:
    """The sum; 0 of nothing."""
    return sum(terms, Ball(0))


def dot(a: Iterable[Ball], b: Iterable[Ball]) -> Ball:
    """The sum of products of two rows of one length."""
    return total(x * y for x, y in zip(a, b, strict=True))


def shares(scores: Sequence[Ball]) -> list[Ball]:
    """exp(s) / sum exp(s) of each score. The largest counts as the middle, without an error however large it is."""
    most = max(range(len(scores)), key=scores.__getitem__)
    e = [Ball(1) if i == most else (s - scores[most]).exp() for i, s in enumerate(scores)]
    whole = total(e)
    return [part / whole for part in e]


def cell(y: float, fmt: Format) -> tuple[Ball, Ball]:
    """The ends of the interval of reals that round to a finite number y of a float format (numerics.md 0)."""
    size, power = abs(y), max(math.frexp(y)[1] - 1, fmt.emin) if y else fmt.emin
    half = Ball((1, power - fmt.precision))
    narrow = size == 2.0**power and power > fmt.emin  # below a power of two numbers lie twice as close
    low, high = Ball(size) - (half / 2 if narrow else half), Ball(size) + half
    return (low, high) if y >= 0 else (-high, -low)


def excess(got: np.generic[Any], true: Ball) -> Ball:
    """Distance of an exact value from the reals that round to got, as oracles.judging.measure has it; negative inside.

    What overflows becomes Inf, or NaN in a format without Inf. Other NaN are the rounding of nothing: Inf away.
    """
    fmt, y = format_of(got.dtype), float(got)
    if not fmt.is_float:
        return abs(true - ball(got))
    if math.isfinite(y):
        low, high = cell(y, fmt)
        return (low - true).max(true - high)
    overflow = cell(fmt.max, fmt)[1]
    if math.isnan(y):
        return Ball.pos_inf() if fmt.has_inf else overflow - abs(true)
    return overflow - (true if y > 0 else -true)


def beyond(got: np.generic[Any], true: Ball, error: float) -> bool | None:
    """Whether an exact value is farther than error from the reals that round to got; None: it cannot be told."""
    apart, line = excess(got, true), Ball(error)
    if apart > line:
        return True
    return False if apart <= line else None
