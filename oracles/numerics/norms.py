"""Common ground of the norms without a mean: the root mean square, its error, what it may legally turn into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.bounds import (
    LIMIT,
    classes_of,
    quotient_error,
    range_of,
    reference_error,
    row_sum_rel,
    saturated,
    sum_range,
)
from kernel_assay.oracles.numerics.products import exact_bits
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.balls import Ball, ball, dot
from kernel_assay.oracles.spec.contract import ALL, INTERVAL, NAN, NINF, PINF, ZERO, Budget, Question, Reals


def rms_normalized(x: Reals, weight: Reals, eps: float) -> Reals:
    """Rows divided by sqrt(mean(x**2) + eps), times a weight."""
    v = (x * x).sum(axis=-1, keepdims=True) / max(1, x.shape[-1]) + eps
    return saturated(x / np.sqrt(v) * weight)


def rms_ball(row: Sequence[Ball], column: int, eps: float) -> Ball:
    """One element of a row divided by sqrt(mean(x**2) + eps)."""
    return row[column] / (dot(row, row) / len(row) + ball(eps)).sqrt()


def rms_budget(q: Question, weight: Reals, off: float = 0.0) -> Budget:
    """|y| (e_v / 2 + 7u), plus what flushing x, 1 / sqrt(v), their product or the weight to zero can cost.

    weight: what the rows are multiplied by, known to a relative error of off.
    """
    x, factor, n, every = q.real("x"), np.abs(weight), q.inputs["x"].shape[-1], q.every
    least, largest = sum_range(q)
    sum_square = np.einsum("ij,ij->i", x, x)[:, None]
    v = sum_square / max(1, n) + float(q.attrs["eps"])
    relative = _relative(q, x, v, least) + off + (every.unit if off else 0.0)
    lost = (v < np.maximum(8.0 * least, 40.0 * every.half)) | np.isinf(row_sum_rel(q, n))
    relative[lost] = np.inf
    error = np.abs(q.want["out"]) * relative
    if (narrow := q.rounding("xr")) and narrow.half:
        error += narrow.half * factor
    error += (q.least * (2.0 + 1.0 / np.sqrt(v))) * factor
    error += q.least * (1.0 + n**0.5)
    over, more = in_any_order(q, np.abs(x), 1.0 / np.sqrt(v), factor)
    error += more
    error[lost[:, 0]] = np.inf
    error[x == 0.0] = 0.0  # times anything finite
    top = range_of(q)[1]
    highest = np.abs(q.want["out"]) if top == LIMIT else factor
    usual = _below(sum_square, 0.99 * min(largest, every.top)) and _below(highest, 0.99 * top) and not lost.any()
    if usual and not over.any():
        return Budget(error)
    mask = _accept(q, weight, sum_square, v, lost)
    mask[over] |= PINF | NINF | NAN
    return Budget(error, accept=mask)


def in_any_order(q: Question, x: Reals, root: Reals, weight: Reals) -> tuple[NDArray[np.bool_], Reals]:
    """Say what x * root * weight may come to where a kernel multiplies by the weight first, all as magnitudes.

    Marked is where a product of two overflows, so that Inf comes out, or NaN of Inf times 0. The error is that of a
    product of two that is less than a normal number.
    """
    (tiny, top), number = range_of(q), np.isfinite(x) & np.isfinite(weight) & np.isfinite(root)
    with np.errstate(all="ignore"):
        of_x, of_root = x * weight, root * weight
        over = number & ((of_x > 0.99 * top) | (of_root > 0.99 * top))
        error = q.least * (np.where(of_x < tiny, root, 0.0) + np.where(of_root < tiny, x, 0.0))
    return over, np.where(number & (weight > 0) & np.isfinite(error), error, 0.0)


def _below(x: Reals, limit: float) -> bool:
    """False also if there is a NaN."""
    return bool(x.max(initial=0.0) <= limit)


def _relative(q: Question, x: Reals, v: Reals, least: float) -> Reals:
    """Relative error of each row; squares that underflow cost v at most 2 least."""
    n, eps = x.shape[-1], float(q.attrs["eps"])
    sums, every = np.zeros(v.shape) + row_sum_rel(q, n, lambda: x * x), q.every
    if q.exact and not every and n & (n - 1) == 0 and n <= 2.0 ** exact_bits(q):
        sums[(np.abs(x) == 1.0).all(axis=-1, keepdims=True)] = 0.0  # of ones, and their mean; a root rounds
    e_v = sums * (1.0 - eps / v) + 2.0 * q.u + quotient_error(q) + 2.0 * least / v
    relative = 0.5 * e_v + (7.0 + reference_error(q)) * q.u + quotient_error(q) + q.rounding("xr").unit
    if every:  # of squares and their mean in row_sum_rel, of v, its root and the root's reciprocal here
        relative = relative + 2.55 * every.unit + 2.2 * every.half / v
    return np.asarray(relative)


INTERMEDIATES = {"xr": "x divided by the root, before its product with the weight"}
"""What the modules of Hugging Face's transformers round to the type of x."""


def _accept(q: Question, weight: Reals, sum_square: Reals, v: Reals, lost: NDArray[np.bool_]) -> NDArray[np.uint8]:
    x, y = q.real("x"), q.want["out"]
    least, largest = sum_range(q)
    mask = classes_of(y)
    squares = (x * x).max(axis=-1, keepdims=True, initial=0.0)
    vanishes = ((sum_square > 0.99 * largest) | (squares > 0.99 * q.every.top)) & np.isfinite(x)
    mask[vanishes & np.isfinite(y)] |= ZERO
    floor = np.maximum(2.0 * least * np.maximum(1.0, np.sqrt(v)), 2.0 * q.rounding("xr").half * np.sqrt(v))
    mask[np.isinf(y) & (vanishes | (np.abs(x) < floor))] |= NAN  # 0 * Inf
    mask[np.isfinite(y) & (y > 0.99 * LIMIT)] |= PINF
    mask[np.isfinite(y) & (y < -0.99 * LIMIT)] |= NINF
    mask[lost & ~np.isnan(y)] = ALL
    zero_row = lost & ~x.any(axis=-1, keepdims=True) & np.isfinite(weight)
    mask[zero_row] = INTERVAL | ZERO | NAN
    return mask


def signs(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Ones of either sign: in a power of two of columns their mean square is 1, whatever the order."""
    del dims, dtypes
    return {"x": Fill(distribution="unit_steps")}
