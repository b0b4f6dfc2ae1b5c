"""Positions of numbers, as argmax and topk give them: where numbers are equal, several are right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.spec.contract import Reals


def alternatives(got: Array, want: Reals, axis: int, low: Reals, high: Reals) -> NDArray[np.bool_]:
    """True where a number that may be equal stands at the position that was given, and no other one is given twice.

    low, high: limits of the numbers; axis: on which the positions are; -1: on that of all numbers in a row.
    """
    if axis < 0:
        low, high, axis = low.reshape(-1), high.reshape(-1), 0
    shape = got.shape if got.ndim == low.ndim else (*got.shape[:axis], 1, *got.shape[axis:])
    if axis == 0 and low.ndim == 1 and got.size == 1:
        shape = (1,)
    given, wanted = got.reshape(shape).astype(np.int64), want.reshape(shape).astype(np.int64)
    inside = (given >= 0) & (given < low.shape[axis])
    given = np.where(inside, given, 0)
    lows, highs = ([np.take_along_axis(x, at, axis) for at in (given, wanted)] for x in (low, high))
    equal = (lows[0] <= highs[1]) & (highs[0] >= lows[1]) | np.isnan(lows[0]) & np.isnan(lows[1])
    right: NDArray[np.bool_] = (inside & equal & ~_twice(given, axis)).reshape(got.shape)
    return right


def _twice(given: NDArray[np.int64], axis: int) -> NDArray[np.bool_]:
    """True where a position has been given before."""
    order = np.argsort(given, axis=axis, kind="stable")
    ordered = np.take_along_axis(given, order, axis)
    again = np.zeros(given.shape, np.bool_)
    first = np.zeros_like(np.take(again, [0][: given.shape[axis]], axis))
    np.put_along_axis(again, order, np.concatenate([first, np.diff(ordered, axis=axis) == 0], axis), axis)
    return again
