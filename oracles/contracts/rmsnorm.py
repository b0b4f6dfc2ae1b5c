"""RMS normalization of rows with a weight.

    out[i, j] = x[i, j] / sqrt(v[i]) * weight[j],    v[i] = mean_j(x[i, j]**2) + eps

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. Budget: the sum of n squares gives v an error
e_v, of which the root takes half; one reciprocal square root (4u), three roundings (numerics.md 2.2). A sum of squares
that overflows may legally give 0; one that underflows, without eps, may give anything.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from corpus.records import Fill
from oracles.bounds import ALL, LIMIT, classes_of, range_of, reference_error, row_sum_rel, saturated
from oracles.contract import NAN, NINF, PINF, ZERO, Budget, Contract, Dim, Dims, Input, Output, Question, Reals
from oracles.relations import scaled


def reference(x: Reals, weight: Reals, *, eps: float) -> dict[str, Reals]:
    """The formula."""
    v = (x * x).sum(axis=-1, keepdims=True) / max(1, x.shape[-1]) + eps
    return {"out": saturated(x / np.sqrt(v) * weight)}


def budget(q: Question) -> dict[str, Budget]:
    """|y| (e_v / 2 + 7u), plus what flushing x, 1 / sqrt(v), their product or the weight to zero can cost."""
    x, weight, n = q.real("x"), np.abs(q.real("weight")), q.inputs["x"].shape[-1]
    least, largest = range_of(q)
    sum_square = np.einsum("ij,ij->i", x, x)[:, None]
    v = sum_square / max(1, n) + float(q.attrs["eps"])
    relative = _relative(q, x, v, least)
    lost = v < 8.0 * least
    relative[lost] = np.inf
    error = np.abs(q.want["out"]) * relative
    if q.tiny:
        error += (q.tiny * (1.0 + 1.0 / np.sqrt(v))) * weight
        error += q.tiny * (1.0 + n**0.5)
    highest = np.abs(q.want["out"]) if largest == LIMIT else weight
    if _below(sum_square, 0.99 * largest) and _below(highest, 0.99 * largest) and not lost.any():
        return {"out": Budget(error)}
    error[lost[:, 0]] = np.inf
    return {"out": Budget(error, accept=_accept(q, sum_square, v, lost))}


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


def _accept(q: Question, sum_square: Reals, v: Reals, lost: NDArray[np.bool_]) -> NDArray[np.uint8]:
    x, y = q.real("x"), q.want["out"]
    least, largest = range_of(q)
    mask = classes_of(y)
    vanishes = (sum_square > 0.99 * largest) & np.isfinite(x)
    mask[vanishes & ~np.isnan(y)] |= ZERO
    mask[np.isinf(y) & (vanishes | (np.abs(x) < 2.0 * least * np.maximum(1.0, np.sqrt(v))))] |= NAN  # 0 * Inf
    mask[np.isfinite(y) & (y > 0.99 * LIMIT)] |= PINF
    mask[np.isfinite(y) & (y < -0.99 * LIMIT)] |= NINF
    mask[lost & ~np.isnan(y)] = ALL
    zero_row = lost & ~x.any(axis=-1, keepdims=True) & np.isfinite(q.real("weight"))
    mask[zero_row] = NAN | ZERO
    return mask


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Ones of either sign: their mean square is 1, and with eps 0 or 3 so is its root, or 2."""
    del dims, dtypes
    return {"x": Fill(distribution="unit_steps")}


CONTRACT = Contract(
    name="rmsnorm",
    summary="rows divided by their root mean square, times a weight",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols")), "weight": Input(("cols",))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t, "weight": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"eps": (1e-5, 1e-6, 0.0, 0.1, 3.0)},
    reference=reference,
    budget=budget,
    laws=(scaled("weight_scaling", {"weight": 4.0}, factor=4.0), scaled("negation", {"x": -1.0}, factor=-1.0)),
    probe=probe,
)
