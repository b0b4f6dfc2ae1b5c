"""Activations that stand alone and in front of a gate: their values, errors and classes (numerics.md 2.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from oracles.bounds import classes_of, exp_error, range_of, reference_error
from oracles.contract import NAN, NINF, PINF, ZERO, Question, Reals

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
    # scipy has no longdouble; what float64 costs stands in gelu_error
    return np.asarray(0.5 * x * special.erfc(np.asarray(-x, np.float64) * np.sqrt(0.5)))


def widened(q: Question, name: str) -> Reals:
    """An input as the reference gets it, where float64 would overflow on the way to the activation's value."""
    return np.asarray(q.inputs[name], np.longdouble if q.case.dtype == "float64" else np.float64)


def silu_error(q: Question, x: Reals, y: Reals) -> Reals:
    """Relative error e_exp (1 - sigma) + 6u of y = silu(x); what can vanish is |x| sigma where sigma < 4 tiny."""
    magnitude, size, least = np.abs(x), np.abs(y), range_of(q)[0]
    constant = (6.0 + reference_error(q)) * q.u
    relative = exp_error(q, np.minimum(magnitude, 1e4)) / (1.0 + np.exp(x)) + constant
    return np.asarray(
        size * relative + 1.25 * np.minimum(size, (4.0 * least) * magnitude) + 4.0 * q.tiny + 4.0 * q.u * least
    )


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
        off = (
            q.u * (ERF_ERROR * special.erf(z) + ERF_FLOOR)
            + q.u
            + 2.0 / np.sqrt(np.pi) * np.exp(-z * z) * z * (3.0 * q.u)
        )
    flushed = np.minimum(size, 2.0 * least * (1.0 + magnitude)) if q.tiny else 0.0
    return np.asarray(0.5 * magnitude * off + (3.0 + reference_error(q)) * q.u * size + flushed + 4.0 * q.u * least)


def silu_classes(x: Reals, y: Reals) -> NDArray[np.uint8]:
    """silu(-inf) is -inf * 0: NaN as computed, 0 as the limit."""
    mask = classes_of(y)
    mask[x == -np.inf] = NAN | ZERO
    return mask


def gelu_classes(q: Question, x: Reals, y: Reals) -> NDArray[np.uint8]:
    """gelu(-inf) is -inf * 0; x (1 + erf) overflows for half of the largest numbers, and Inf may become NaN."""
    mask = classes_of(y)
    mask[x == -np.inf] = NAN | ZERO
    mask[x == np.inf] = PINF | NAN
    mask[np.isfinite(x) & (x > 0.49 * range_of(q)[1])] |= PINF
    return mask


def gated_classes(y: Reals, act: Reals, error: Reals, mask: NDArray[np.uint8], gate: Reals) -> NDArray[np.uint8]:
    """Classes of y = act * gate where act is off by up to error and of the classes in mask."""
    found = classes_of(y)
    others = [act - error, act + error, np.where((mask & ZERO != 0) | (np.abs(act) <= error), 0.0, act)]
    others += [np.where(mask & bit != 0, value, act) for bit, value in ((NAN, np.nan), (PINF, np.inf))]
    for value in others:
        product = value * gate
        for bit, met in ((NAN, np.isnan(product)), (PINF, product == np.inf), (NINF, product == -np.inf)):
            found[met] |= bit
        found[(product == 0.0) & ~np.isfinite(y)] |= ZERO
    return found
