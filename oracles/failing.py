"""Which elements fail: the whole mask, computed only when something does fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.formats import Array, format_of
from oracles import plain
from oracles.contract import INTERVAL, NAN, NINF, PINF, ZERO, Budget, Reals

Mask = NDArray[np.bool_]


def failing(got: Array, want: Reals, budget: Budget) -> Mask:
    """True where an element is not accepted; the same rule as oracles.measure, element by element."""
    fmt = format_of(got.dtype)
    y = got.astype(np.float64)
    error = np.broadcast_to(np.asarray(budget.error, np.float64), want.shape)
    with np.errstate(all="ignore"):
        excess = plain.cell_excess(y, want, plain.facts_of(fmt.name))
        within = ((excess <= error) | (excess == 0)) & np.isfinite(want)
    accept = default_accept(want, has_inf=fmt.has_inf) if budget.accept is None else budget.accept
    return ~_accepted(y, within, np.broadcast_to(accept, want.shape))


def failing_bits(got: Array, want: Array) -> Mask:
    """True where the bits differ."""
    carrier = format_of(got.dtype).carrier
    differ: Mask = np.ascontiguousarray(got).view(carrier) != np.ascontiguousarray(want).view(carrier)
    return differ


def default_accept(want: Reals, *, has_inf: bool) -> NDArray[np.uint8]:
    """INTERVAL where the reference is finite, else exactly its own class."""
    plus, minus = (PINF, NINF) if has_inf else (NAN, NAN)
    mask = np.where(np.isfinite(want), INTERVAL, np.where(np.isnan(want), NAN, np.where(want > 0, plus, minus)))
    return mask.astype(np.uint8)


def _accepted(y: Reals, within: Mask, accept: NDArray[Any]) -> Mask:
    ok: Mask = within & ((accept & INTERVAL) != 0)
    for bit, is_class in ((ZERO, y == 0), (PINF, y == np.inf), (NINF, y == -np.inf), (NAN, np.isnan(y))):
        ok |= ((accept & bit) != 0) & is_class
    return ok
