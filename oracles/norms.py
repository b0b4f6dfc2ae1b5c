"""What the norms without a mean share: the root mean square, its error, and what it may legally turn into."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from corpus.records import Fill
from oracles.bounds import ALL, LIMIT, classes_of, range_of, reference_error, row_sum_rel, saturated
from oracles.contract import NAN, NINF, PINF, ZERO, Budget, Dims, Question, Reals


def rms_normalized(x: Reals, weight: Reals, eps: float) -> Reals:
    """Rows divided by sqrt(mean(x**2) + eps), times a weight."""
    v = (x * x).sum(axis=-1, keepdims=True) / max(1, x.shape[-1]) + eps
    return saturated(x / np.sqrt(v) * weight)


def rms_budget(q: Question, weight: Reals, off: float = 0.0) -> Budget:
    """|y| (e_v / 2 + 7u), plus what flushing x, 1 / sqrt(v), their product or the weight to zero can cost.

    weight: what the rows are multiplied by, known to a relative error of off.
    """
    x, factor, n = q.real("x"), np.abs(weight), q.inputs["x"].shape[-1]
    least, largest = range_of(q)
    sum_square = np.einsum("ij,ij->i", x, x)[:, None]
    v = sum_square / max(1, n) + float(q.attrs["eps"])
    relative = _relative(q, x, v, least) + off
    lost = v < 8.0 * least
    relative[lost] = np.inf
    error = np.abs(q.want["out"]) * relative
    if q.tiny:
        error += (q.tiny * (1.0 + 1.0 / np.sqrt(v))) * factor
        error += q.tiny * (1.0 + n**0.5)
    highest = np.abs(q.want["out"]) if largest == LIMIT else factor
    if _below(sum_square, 0.99 * largest) and _below(highest, 0.99 * largest) and not lost.any():
        return Budget(error)
    error[lost[:, 0]] = np.inf
    return Budget(error, accept=_accept(q, weight, sum_square, v, lost))


def _below(x: Reals, limit: float) -> bool:
    """False also if there is a NaN."""
    return bool(x.max(initial=0.0) <= limit)


def _relative(q: Question, x: Reals, v: Reals, least: float) -> Reals:
    """Relative error of each row; squares that underflow cost v at most 2 least."""
    n, eps = x.shape[-1], float(q.attrs["eps"])
    e_v = row_sum_rel(q, n) * (1.0 - eps / v) + 2.0 * q.u + 2.0 * least / v
    relative = 0.5 * e_v + (7.0 + reference_error(q)) * q.u
    if q.exact and n & (n - 1) == 0:  # mean 1 and its root are exact; so are the products
        relative[(np.abs(x) == 1.0).all(axis=-1, keepdims=True) & ((v == 1.0) | (v == 4.0))] = 0.0
    return relative


def _accept(q: Question, weight: Reals, sum_square: Reals, v: Reals, lost: NDArray[np.bool_]) -> NDArray[np.uint8]:
    x, y = q.real("x"), q.want["out"]
    least, largest = range_of(q)
    mask = classes_of(y)
    vanishes = (sum_square > 0.99 * largest) & np.isfinite(x)
    mask[vanishes & ~np.isnan(y)] |= ZERO
    mask[np.isinf(y) & (vanishes | (np.abs(x) < 2.0 * least * np.maximum(1.0, np.sqrt(v))))] |= NAN  # 0 * Inf
    mask[np.isfinite(y) & (y > 0.99 * LIMIT)] |= PINF
    mask[np.isfinite(y) & (y < -0.99 * LIMIT)] |= NINF
    mask[lost & ~np.isnan(y)] = ALL
    zero_row = lost & ~x.any(axis=-1, keepdims=True) & np.isfinite(weight)
    mask[zero_row] = NAN | ZERO
    return mask


def signs(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Ones of either sign: their mean square is 1, and with eps 0 or 3 so is its root, or 2."""
    del dims, dtypes
    return {"x": Fill(distribution="unit_steps")}
