"""Layer normalization of rows with a weight and a bias.

    out[i, j] = (x[i, j] - mu[i]) / sqrt(var[i] + eps) * weight[j] + bias[j],    mu and var (over n) of row i

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016. Budget, for two passes or Welford: the mean is off by dmu,
each difference by dmu + u|x - mu|, the variance by dvar = (e_s + 2u) var + dmu**2; the root takes half of it
(numerics.md 2.2). Squares that overflow may legally leave the bias or NaN; a row without any variance, without eps, may
give anything, and its reference is the bias, the limit for eps to 0.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.bounds import (
    LAMBDA,
    LIMIT,
    classes_of,
    drift_together,
    quotient_error,
    range_of,
    reference_error,
    row_sum_rel,
    saturated,
    sum_range,
    sum_unit,
)
from kernel_assay.oracles.numerics.norms import in_any_order
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.balls import Ball, ball, balls, total
from kernel_assay.oracles.spec.contract import (
    ALL,
    NAN,
    NINF,
    PINF,
    Budget,
    Contract,
    Dim,
    Input,
    Output,
    Question,
    Reals,
)
from kernel_assay.oracles.spec.law_library import alone, only_if, reversed_along, scaled


def reference(x: Reals, weight: Reals, bias: Reals, *, eps: float) -> dict[str, Reals]:
    """The formula."""
    n = max(1, x.shape[-1])
    centred = x - x.sum(axis=-1, keepdims=True) / n
    v = (centred * centred).sum(axis=-1, keepdims=True) / n + eps
    v[v == 0.0] = 1.0
    return {"out": saturated(centred / np.sqrt(v) * weight + bias)}


def budget(q: Question) -> dict[str, Budget]:
    """|w| r dmu + |y - b| (dvar / v / 2 + 8u) + u|y|, plus what flushing can cost."""
    x, weight, n = q.real("x"), np.abs(q.real("weight")), q.inputs["x"].shape[-1]
    least, largest = sum_range(q)
    size, eps = max(1, n), float(q.attrs["eps"])
    mean = x.sum(axis=-1, keepdims=True) / size
    centred = np.abs(x - mean)
    var = np.einsum("ij,ij->i", centred, centred)[:, None] / size
    v, dmu = var + eps, _mean_error(q, x, mean, var)
    root = 1.0 / np.sqrt(v)
    e_v = (
        ((row_sum_rel(q, n, lambda: centred * centred) + 2.0 * q.u) * var + dmu * dmu + 2.0 * least) / v
        + 2.0 * q.u
        + quotient_error(q)
    )
    normal = centred * root * weight
    error = normal * (0.5 * e_v + (8.0 + reference_error(q)) * q.u + quotient_error(q))
    error += (root * (dmu + q.least) + 2.0 * q.least) * weight
    error += _rounded(q, normal, root * weight, weight, v)
    error += (q.u if q.case.dtype != "float64" else 2.0 * q.u) * np.abs(q.want["out"]) + q.least * (1.0 + n**0.5)
    over, more = in_any_order(q, centred, root, weight)
    error += more
    lost = (v < max(8.0 * least, 40.0 * q.every.half)) | ~np.isfinite(e_v)
    lost |= (eps < 8.0 * least) & (dmu * dmu > 4.0 * var)
    # Welford's merge squares the difference of two means, up to twice the whole sum; also where the mean overflowed.
    huge = ~(2.0 * size * (var + mean * mean) <= 0.99 * largest)
    huge |= ~((np.abs(mean) + centred.max(axis=-1, keepdims=True, initial=0.0)) ** 2 <= 0.99 * q.every.top)
    top = _top(q)
    highest = normal + np.abs(q.real("bias")) if top == LIMIT else normal
    if highest.max(initial=0.0) <= 0.99 * top and not (lost | huge | over).any():
        return {"out": Budget(error)}
    normal[np.isnan(normal) & huge] = 0.0
    rest = 1.25 * np.abs(q.want["out"] - q.real("bias")) + 4.0 * q.u * np.abs(q.real("bias")) + q.least
    error = np.where(lost, np.inf, np.where(huge, np.fmax(error, rest), error))
    mask = _accept(q, normal, lost, huge, centred <= 2.0 * (dmu + least))
    mask[over] |= PINF | NINF | NAN
    return {"out": Budget(error, accept=mask)}


def _mean_error(q: Question, x: Reals, mean: Reals, var: Reals) -> Reals:
    """The error of the mean: (n + 2) u mean|x|, or less for random terms; with flushing also tiny (numerics.md 2.2)."""
    n = x.shape[-1]
    worst = (n + 2) * sum_unit(q) / max(1, n) * np.abs(x).sum(axis=-1, keepdims=True)
    if q.iid:
        size = np.abs(mean)
        typical = (
            LAMBDA * sum_unit(q) * (np.sqrt(n / 3.0) * size + np.sqrt(var + mean * mean)) + 2.0 * sum_unit(q) * size
        )
        worst = np.minimum(worst, typical + drift_together(sum_unit(q), n, n * size, lambda: var) / max(1, n))
    return np.asarray(worst + quotient_error(q) * np.abs(mean) + 2.0 * q.least + q.every.of(mean))


def _top(q: Question) -> float:
    """The largest number that the product with the weight may be."""
    return min(range_of(q)[1], q.rounding("xr").top)


def _rounded(q: Question, normal: Reals, slope: Reals, weight: Reals, v: Reals) -> Reals | float:
    """Errors of roundings to a narrower type: of (x - mu) / root and its product with the weight, or of all.

    All: differences, whose errors the variance has twice, squares and their mean in row_sum_rel, the variance, its root
    and the root's reciprocal. slope: the weight divided by the root.
    """
    xr, every = q.rounding("xr"), q.every
    if not xr:
        return 0.0
    error = 2.05 * xr.unit * normal + xr.half * (1.0 + weight)
    if every:
        error = error + normal * (4.55 * every.unit + 2.2 * every.half / v) + every.half * slope
    return np.asarray(error)


def _accept(
    q: Question, normal: Reals, lost: NDArray[np.bool_], huge: NDArray[np.bool_], unsure: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Unsure: the sign of x - mu is."""
    y, weight, bias = q.want["out"], q.real("weight"), q.real("bias")
    row = np.isfinite(q.real("x")).all(axis=-1, keepdims=True)
    mask = classes_of(y)
    mask[(huge & row) & ~np.isnan(y)] |= NAN
    total = np.abs(q.real("x")).sum(axis=-1, keepdims=True)
    mask[(total > 0.99 * sum_range(q)[1]) & row & ~np.isnan(y)] |= PINF | NINF | NAN  # the sum, so the mean, overflows
    over = (normal > 0.99 * _top(q)) & row & ~np.isnan(y)
    positive = (q.real("x") > q.real("x").sum(axis=-1, keepdims=True) / max(1, y.shape[-1])) == (weight > 0)
    mask[over] |= np.where(positive, PINF, NINF).astype(np.uint8)[over]
    mask[over & np.isinf(bias)] |= NAN
    mask[np.isfinite(y) & (y > 0.99 * LIMIT)] |= PINF
    mask[np.isfinite(y) & (y < -0.99 * LIMIT)] |= NINF
    mask[row & np.isinf(weight) & unsure & ~np.isnan(bias)] |= PINF | NINF | NAN
    mask[lost & row & ~np.isnan(weight) & ~np.isnan(bias)] = ALL
    return mask


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula; the bias where a row has no variance and there is no eps."""
    row, column = index
    x, weight, bias = balls(inputs["x"][row]), ball(inputs["weight"][column]), ball(inputs["bias"][column])
    if all(value == x[0] for value in x) and not attrs["eps"]:
        return bias
    mean = total(x) / len(x)
    variance = total((value - mean) ** 2 for value in x) / len(x)
    return (x[column] - mean) / (variance + ball(attrs["eps"])).sqrt() * weight + bias


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Two numbers that every dtype can tell apart, far from 0: sums are exact, and E[x^2] - E[x]^2 cancels.

    Of a spread around 1000 bfloat16 holds nothing.
    """
    del dims
    far = (1 << min(format_of(dtypes["x"]).precision, 24 if dtypes["x"] == "float64" else 11)) - 1
    return {"x": Fill(distribution="ends", params={"low": far - 2, "high": far})}


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
    intermediates={"xr": "(x - mu) / root, and its product with the weight"},
    separable=("rows",),
    on_device="rows.LAYERNORM",
    reference=reference,
    element=element,
    budget=budget,
    probe=probe,
    laws=(
        scaled("scaling", _SCALED, factor=4.0),
        only_if(lambda case: case.attrs["eps"] == 0.0, scaled("x_scaling", {"x": 4.0}, factor=1.0)),
        scaled("negation", _NEGATED, factor=-1.0),
        alone("row_alone", {"x": 0}),
        reversed_along("rows_reversed", {"x": 0}, out=0),
    ),
)
