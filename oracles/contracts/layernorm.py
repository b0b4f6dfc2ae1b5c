"""Layer normalization of rows with a weight and a bias.

    out[i, j] = (x[i, j] - mu[i]) / sqrt(var[i] + eps) * weight[j] + bias[j],    mu and var (over n) of row i

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016. Budget, for two passes or Welford: the mean is off by dmu,
each difference by dmu + u|x - mu|, the variance by dvar = (e_s + 2u) var + dmu**2; the root takes half of it
(NUMERICS 2.2). Squares that overflow may legally leave the bias or NaN; a row without any variance, without eps, may
give anything, and its reference is the bias, the limit for eps to 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.contract import (
    INTERVAL,
    LAMBDA,
    NAN,
    NINF,
    PINF,
    ZERO,
    Budget,
    Contract,
    Dim,
    Input,
    Output,
    Question,
    Reals,
    row_sum_rel,
    scaled,
)

REFERENCE_ERROR = 4.0
"""Of the reference, in units of 2**-53: counts only beside a float64 subject."""

_LIMIT = float(np.finfo(np.float64).max)

ALL = INTERVAL | ZERO | PINF | NINF | NAN


def reference(x: Reals, weight: Reals, bias: Reals, *, eps: float) -> dict[str, Reals]:
    """The formula in float64; in longdouble if an input does not fit into float32."""
    if not (_fits_float32(x) and _fits_float32(weight) and _fits_float32(bias)):
        wide = np.longdouble
        return {"out": _saturated(_formula(x.astype(wide), weight.astype(wide), bias.astype(wide), eps))}
    return {"out": _formula(x, weight, bias, eps)}


def _formula(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any], eps: float) -> NDArray[Any]:
    n = max(1, x.shape[-1])
    centred = x - x.sum(axis=-1, keepdims=True) / n
    v = (centred * centred).sum(axis=-1, keepdims=True) / n + eps
    v[v == 0.0] = 1.0
    y: NDArray[Any] = centred / np.sqrt(v) * weight + bias
    return y


def _saturated(y: NDArray[Any]) -> Reals:
    """What is finite stays finite, as it does for narrower formats; whether it may be Inf is the budget's word."""
    return np.where(np.isfinite(y), np.clip(y, -_LIMIT, _LIMIT), y).astype(np.float64)


def _fits_float32(x: Reals) -> bool:
    return bool((x.astype(np.float32) == x).all())


def budget(q: Question) -> dict[str, Budget]:
    """|w| r dmu + |y - b| (dvar / v / 2 + 8u) + u|y|, plus what flushing can cost."""
    x, weight, n = q.real("x"), np.abs(q.real("weight")), q.inputs["x"].shape[-1]
    least, largest = _range(q)
    size, eps = max(1, n), float(q.attrs["eps"])
    mean = x.sum(axis=-1, keepdims=True) / size
    centred = np.abs(x - mean)
    var = np.einsum("ij,ij->i", centred, centred)[:, None] / size
    v, dmu = var + eps, _mean_error(q, x, mean, var)
    root = 1.0 / np.sqrt(v)
    e_v = ((_square_error(q, n) + 2.0 * q.u) * var + dmu * dmu + 2.0 * least) / v + 2.0 * q.u
    normal = centred * root * weight
    error = normal * (0.5 * e_v + (8.0 + (REFERENCE_ERROR if q.case.dtype == "float64" else 0.0)) * q.u)
    error += (root * (dmu + q.tiny) + q.tiny) * weight
    error += (q.u if q.case.dtype != "float64" else 2.0 * q.u) * np.abs(q.want["out"]) + q.tiny * (1.0 + n**0.5)
    lost = (v < 8.0 * least) | ((eps < 8.0 * least) & (dmu * dmu > 4.0 * var))
    huge = ~(size * (var + mean * mean) <= 0.99 * largest)  # also where the mean itself has overflowed
    highest = normal + np.abs(q.real("bias")) if largest == _LIMIT else normal
    if highest.max(initial=0.0) <= 0.99 * largest and not lost.any() and not huge.any():
        return {"out": Budget(error)}
    normal[np.isnan(normal) & huge] = 0.0
    rest = 1.25 * np.abs(q.want["out"] - q.real("bias")) + 4.0 * q.u * np.abs(q.real("bias")) + q.tiny
    error = np.where(lost, np.inf, np.where(huge, rest, error))
    return {"out": Budget(error, accept=_accept(q, normal, lost, huge, centred <= 2.0 * (dmu + least)))}


def _range(q: Question) -> tuple[float, float]:
    """Smallest normal and largest number of the arithmetic."""
    info = np.finfo(np.float64 if q.case.dtype == "float64" else np.float32)
    return float(info.tiny), float(info.max)


def _mean_error(q: Question, x: Reals, mean: Reals, var: Reals) -> Reals:
    """The error of the mean: (n + 2) u mean|x|, or less for random terms; with flushing also tiny (NUMERICS 2.2)."""
    n = x.shape[-1]
    worst = (n + 2) * q.u / max(1, n) * np.abs(x).sum(axis=-1, keepdims=True)
    if q.iid:
        size = np.abs(mean)
        typical = LAMBDA * q.u * (np.sqrt(n / 3.0) * size + np.sqrt(var + mean * mean)) + 2.0 * q.u * size
        worst = np.minimum(worst, typical)
    return np.asarray(worst + 2.0 * q.tiny)


def _square_error(q: Question, terms: int) -> float:
    """e_s. Equal inputs give equal squares, whose rounding errors all point one way: then only the worst case holds."""
    if q.case.tensors["x"].fill.distribution == "sparse":
        return (terms + 2) * q.u
    return row_sum_rel(q, terms)


def _accept(
    q: Question, normal: Reals, lost: NDArray[np.bool_], huge: NDArray[np.bool_], unsure: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Unsure: the sign of x - mu is."""
    y, weight, bias = q.want["out"], q.real("weight"), q.real("bias")
    row = np.isfinite(q.real("x")).all(axis=-1, keepdims=True)
    mask = np.select([np.isnan(y), y == np.inf, y == -np.inf], [NAN, PINF, NINF], INTERVAL).astype(np.uint8)
    mask[(huge & row) & ~np.isnan(y)] |= NAN
    over = (normal > 0.99 * _range(q)[1]) & row & ~np.isnan(y)
    positive = (q.real("x") > q.real("x").mean(axis=-1, keepdims=True)) == (weight > 0)
    mask[over] |= np.where(positive, PINF, NINF).astype(np.uint8)[over]
    mask[over & np.isinf(bias)] |= NAN
    mask[np.isfinite(y) & (y > 0.99 * _LIMIT)] |= PINF
    mask[np.isfinite(y) & (y < -0.99 * _LIMIT)] |= NINF
    mask[row & np.isinf(weight) & unsure & ~np.isnan(bias)] |= PINF | NINF | NAN
    mask[lost & row & ~np.isnan(weight) & ~np.isnan(bias)] = ALL
    return mask


_NEGATED = {"x": -1.0, "bias": -1.0}
_SCALED = {"weight": 4.0, "bias": 4.0}

CONTRACT = Contract(
    name="layernorm",
    summary="rows minus their mean, divided by their deviation, times a weight plus a bias",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols")), "weight": Input(("cols",)), "bias": Input(("cols",))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t, "weight": t, "bias": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"eps": (1e-5, 1e-6, 0.0, 0.1)},
    reference=reference,
    budget=budget,
    laws=(scaled("scaling", _SCALED, factor=4.0), scaled("negation", _NEGATED, factor=-1.0)),
)
