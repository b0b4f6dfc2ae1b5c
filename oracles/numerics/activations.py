"""Activations that stand alone and in front of a gate: their values, errors and classes (numerics.md 2.2)."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray

from kernel_assay.oracles.numerics.bounds import classes_of, exp_error, quotient_error, range_of, reference_error
from kernel_assay.oracles.spec.balls import Ball
from kernel_assay.oracles.spec.contract import NAN, NINF, PINF, ZERO, Question, Reals

ROOT, CUBIC = 0.7978845608028654, 0.044715
"""sqrt(2 / pi) and the factor of x**3, of the tanh approximation of GELU."""
TANH_ERROR = {"accurate": 4.0, "approx": 4.0 + 2.0**14}
"""Relative error of tanh in units of 2**-24; the approximation of the PTX ISA is off by 2**-11, with room 2**-10."""
ERF_ERROR, ERF_FLOOR = 6.0, 12.0
"""Of erf in units of u, relative and absolute: those of vector units are 1 - p exp(-z z), off by up to 7.3u near 0."""


def silu(x: Reals) -> Reals:
    """The quotient x / (1 + exp(-x))."""
    return x / (1.0 + np.exp(-x))


def gelu(x: Reals, approximate: str) -> Reals:
    """X / 2 (1 + erf(x / sqrt 2)) or its tanh form, without the cancellation of 1 + f for negative x."""
    if approximate == "tanh":
        return x / (1.0 + np.exp(-2.0 * (ROOT * (x * (1.0 + CUBIC * x * x)))))
    return np.asarray(0.5 * x * _erfc(-x * np.sqrt(x.dtype.type(0.5))))


_SERIES = np.cumprod([np.longdouble(1), *(1 / (np.arange(1, 42, dtype=np.longdouble) + 0.5))])
"""2**n / (1 3 5 ... (2n + 1)): erf(z) = 2 / sqrt(pi) exp(-z**2) z sum_n of these times z**2n (Abramowitz and Stegun,
7.1.6), a sum of positive terms; so many are enough for z <= 2."""


def _erfc(z: Reals) -> Reals:
    """1 - erf. scipy has no longdouble: of one only the tail, which is small, is scipy's; the rest is a series."""
    from scipy import special  # noqa: PLC0415  a tenth of a second, which every command would wait

    if z.dtype == np.float64:
        return np.asarray(special.erfc(z))
    size = np.abs(z)
    near = np.minimum(size, 2.0)
    erf = np.exp(-near * near) / np.sqrt(np.arctan(np.longdouble(1))) * near * polyval(near * near, _SERIES)  # pi / 4
    tail = np.where(size < 2.0, 1.0 - erf, special.erfc(np.asarray(size, np.float64)))
    return np.asarray(np.where(z < 0.0, 2.0 - tail, tail))


def widened(q: Question, name: str) -> Reals:
    """An input as the reference gets it, where float64 would overflow on the way to the activation's value."""
    return np.asarray(q.inputs[name], np.longdouble if q.case.dtype == "float64" else np.float64)


def silu_error(q: Question, x: Reals, y: Reals) -> Reals:
    """Relative error e_exp (1 - sigma) + 6u of y = silu(x); what can vanish is |x| sigma where sigma < 4 tiny."""
    magnitude, size, least = np.abs(x), np.abs(y), range_of(q)[0]
    constant = (6.0 + reference_error(q)) * q.u + quotient_error(q)
    relative = exp_error(q, np.minimum(magnitude, 1e4)) / (1.0 + np.exp(x)) + constant
    vanishing = 1.25 * np.minimum(size, (4.0 * least) * magnitude)
    error = size * relative + vanishing + 4.0 * q.tiny + 4.0 * q.u * least
    return _nothing_at_zero(x, error + _silu_rounded(q, x, size) if q.rounding("sigmoid") else error)


def _silu_rounded(q: Question, x: Reals, size: Reals) -> Reals:
    """Errors of roundings on the way: of the sigmoid, or of all: 2 of an exponential, one of a sum, one of a quotient.

    An exponential that overflows leaves nothing.
    """
    sigmoid, every, magnitude = q.rounding("sigmoid"), q.every, np.abs(x)
    if not every:
        return sigmoid.unit * size + sigmoid.half * magnitude
    vanishing = np.where(size <= 1.5 * magnitude / every.top, size, 0.0)
    return size * every.unit * (2.0 / (1.0 + np.exp(x)) + 2.1) + 2.0 * every.half * (1.0 + magnitude) + vanishing


def gelu_error(q: Question, x: Reals, y: Reals, approximate: str) -> Reals:
    """|x| / 2 times what 1 + f is off by, for y = gelu(x): f's error, its argument's, and the rounding of the sum."""
    magnitude, size, least = np.abs(x), np.abs(y), range_of(q)[0]
    if approximate == "tanh":
        z = np.minimum(ROOT * (magnitude + CUBIC * magnitude**3), 1e4)
        f = np.tanh(z)
        unit = 4.0 * q.u if q.case.dtype == "float64" else TANH_ERROR[q.numerics.tanh] * 2.0**-24
        off = unit * f + q.u + (1.0 - f * f) * z * (6.0 * q.u)
    else:
        z = np.minimum(magnitude * np.sqrt(0.5), 1e4)
        from scipy import special  # noqa: PLC0415  as above

        f = special.erf(z)
        off = (
            q.u * (ERF_ERROR * f + ERF_FLOOR)
            + q.u
            + 2.0 / np.sqrt(np.pi) * np.exp(-z * z) * z * (3.0 * q.u + quotient_error(q))
        )
    if every := q.every:  # 5 roundings of the argument, one of f and of 1 + f, then two products
        times = 5.0 if approximate == "tanh" else 2.0
        near = z * (1.0 - times * every.unit)  # where f is steeper
        slope = 1.0 / np.cosh(near) ** 2 if approximate == "tanh" else 2.0 / np.sqrt(np.pi) * np.exp(-near * near)
        off = off + every.unit * (1.05 * f + times * slope * z) + 4.0 * every.half
    flushed = np.minimum(size, 2.0 * least * (1.0 + magnitude)) if q.tiny else 0.0
    error = 0.5 * magnitude * off + (3.0 + reference_error(q)) * q.u * size + flushed + 4.0 * q.u * least
    return _nothing_at_zero(x, error + every.of(size, 3.1))


def _nothing_at_zero(x: Reals, error: Reals) -> Reals:
    """0 times any number is 0, however it is computed; that matters where the result is multiplied with Inf."""
    return np.where(x == 0.0, 0.0, error)


def kept(q: Question, act: Reals, own: Reals) -> Reals:
    """The error of an activation with that of its rounding, if it is claimed to be rounded before its product."""
    rounding = q.rounding("act")
    return own + np.where(act == 0.0, 0.0, rounding.of(act)) if rounding else own


def flushed(q: Question, a: Reals, b: Reals) -> Reals:
    """The loss of a product of two numbers where a subnormal one is taken for zero: all of it."""
    lost = (np.abs(a) < q.tiny) | (np.abs(b) < q.tiny)
    size = np.abs(a * b)
    return np.where(lost & np.isfinite(size), size, 0.0)


def almost_top(q: Question) -> float:
    """The largest number less half a step: what is larger may be Inf for having been rounded up."""
    return (1.0 - 16.0 * q.u) * range_of(q)[1]


def silu_classes(q: Question, x: Reals, y: Reals) -> NDArray[np.uint8]:
    """silu(-inf) is -inf * 0: NaN as computed, 0 as the limit. What rounds up from the largest number is Inf."""
    mask = classes_of(y)
    mask[x == -np.inf] = NAN | ZERO
    mask[np.isfinite(y) & (y > almost_top(q))] |= PINF
    return mask


def gelu_classes(q: Question, x: Reals, y: Reals) -> NDArray[np.uint8]:
    """gelu(-inf) is -inf * 0; x (1 + erf) overflows for half of the largest numbers, and Inf may become NaN."""
    mask = classes_of(y)
    mask[x == -np.inf] = NAN | ZERO
    mask[x == np.inf] = PINF | NAN
    mask[np.isfinite(x) & (x > 0.49 * range_of(q)[1])] |= PINF
    return mask


def gated_classes(
    y: Reals, act: Reals, ends: tuple[Reals, Reals], mask: NDArray[np.uint8], up: Reals
) -> NDArray[np.uint8]:
    """Classes of y = act * up where act lies between two ends and is of the classes in mask."""
    found, (low, high) = classes_of(y), ends
    others = [low, high, np.where((mask & ZERO != 0) | ((low <= 0.0) & (high >= 0.0)), 0.0, act)]
    others += [np.where(mask & bit != 0, value, act) for bit, value in ((NAN, np.nan), (PINF, np.inf))]
    for value in others:
        product = value * up
        for bit, met in ((NAN, np.isnan(product)), (PINF, product == np.inf), (NINF, product == -np.inf)):
            found[met] |= bit
        found[(product == 0.0) & ~np.isfinite(y)] |= ZERO
    return found


def silu_ball(x: Ball) -> Ball:
    """The formula, x / (1 + exp(-x)), with exp only of negative numbers: that of large ones is no finite ball."""
    e = (-abs(x)).exp()
    return x * (e if x < 0 else 1) / (1 + e)


def gelu_ball(x: Ball, approximate: str) -> Ball:
    """The formula as it stands, x / 2 (1 + f)."""
    if approximate == "tanh":
        return x / 2 * (1 + ((2 / Ball.pi()).sqrt() * (x + Ball(44715) / 1000000 * x**3)).tanh())
    return x / 2 * (1 + (x / Ball(2).sqrt()).erf())
