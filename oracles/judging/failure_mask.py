"""The whole mask of failing elements, computed only when something does fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.judging import measure_numpy as plain
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF, ZERO, Budget, Reals

Mask = NDArray[np.bool_]


def failing(got: Array, want: Reals, budget: Budget) -> Mask:
    """True where an element is not accepted; the same rule as oracles.judging.measure, element by element."""
    taken, interval, within = _looks(got, want, budget)
    return ~(taken | (interval & within))


def misclassed(got: Array, want: Reals, budget: Budget) -> Mask:
    """True where the class of an element is not accepted; a judge names the first of these before any distance."""
    taken, interval, within = _looks(got, want, budget)
    return ~(taken | (interval & (np.isfinite(got.astype(np.float64)) | within)))


def failing_bits(got: Array, want: Array) -> Mask:
    """True where the bits differ."""
    carrier = format_of(got.dtype).carrier
    differ: Mask = np.ascontiguousarray(got).view(carrier) != np.ascontiguousarray(want).view(carrier)
    return differ


def tie_failures(got: Array, want: Reals, budget: Budget) -> Mask:
    """True where a tie without any error went to the odd neighbour; an integer is no rounding."""
    if not format_of(got.dtype).is_float:
        return np.zeros(want.shape, np.bool_)
    rounded = round_to(want, format_of(got.dtype))
    plain = True if budget.accept is None else budget.accept == INTERVAL
    wrong = (got != rounded) & np.isfinite(want) & (np.asarray(budget.error) == 0) & plain
    mask: Mask = np.broadcast_to(wrong, want.shape)
    return mask


def sign_failures(got: Array, want: Reals, budget: Budget) -> Mask:
    """True where a zero has the other sign than the number that is zero, or rounds to it."""
    if not budget.signed or not format_of(got.dtype).is_float:
        return np.zeros(want.shape, np.bool_)
    wrong: Mask = (got == 0) & np.isfinite(want) & (np.signbit(got) != np.signbit(want))
    return wrong


def ideal_z(got: Array, want: Reals, budget: Budget) -> float:
    """Return how large z may be of results that are all rounded correctly; at least 1 (numerics.md 2.3).

    Deviations take the last rounding's error for evenly spread. Of short sums of narrow numbers it is not: many are
    ties, off by half a unit. That error is known, so it counts itself where it is larger on the whole.
    """
    fmt = format_of(got.dtype)
    facts, inner = plain.facts_of(fmt.name), np.square(0.0 if budget.sigma is None else budget.sigma)
    taken, interval, _ = _looks(got, want, budget)
    with np.errstate(all="ignore"):
        own = round_to(want, fmt).astype(np.float64) - want
        unit = plain.UNIFORM_SIGMA * plain.exponent(want, facts) * (2.0 * facts[plain.HALF])
        share = (own**2 + inner) / (unit**2 + inner)
    counted = share[~taken & interval & np.isfinite(got.astype(np.float64))]
    return float(np.sqrt(max(1.0, np.where(np.isfinite(counted), counted, 1.0).sum() / max(1, counted.size))))


def default_accept(want: Reals, *, has_inf: bool) -> NDArray[np.uint8]:
    """INTERVAL where the reference is finite, else exactly its own class."""
    plus, minus = (PINF, NINF) if has_inf else (NAN, NAN)
    mask = np.where(np.isfinite(want), INTERVAL, np.where(np.isnan(want), NAN, np.where(want > 0, plus, minus)))
    return mask.astype(np.uint8)


def _looks(got: Array, want: Reals, budget: Budget) -> tuple[Mask, Mask, Mask]:
    """Whether its class alone lets an element pass, the interval may judge it, and it lies within its error."""
    fmt = format_of(got.dtype)
    error = np.broadcast_to(np.asarray(budget.error, np.float64), want.shape)
    with np.errstate(all="ignore"):
        excess = plain.cell_excess(got, want, plain.facts_of(fmt.name))
        within = (excess <= error) | (excess == 0)
    default = default_accept(want, has_inf=fmt.has_inf) if budget.accept is None else budget.accept
    accept = np.broadcast_to(default, want.shape)
    return _taken(got.astype(np.float64), accept), ((accept & INTERVAL) != 0) & np.isfinite(want), within


def _taken(y: Reals, accept: NDArray[Any]) -> Mask:
    ok = np.zeros(y.shape, np.bool_)
    for bit, is_class in ((ZERO, y == 0), (PINF, y == np.inf), (NINF, y == -np.inf), (NAN, np.isnan(y))):
        ok |= ((accept & bit) != 0) & is_class
    return ok
