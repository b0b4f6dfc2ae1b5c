"""Softmax of rows.

    s = scale * x + mask,    out[i, j] = exp(s[i, j] - m[i]) / sum_k exp(s[i, k] - m[i]),    m[i] = max_k s[i, k]

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 2; scale and mask as in
attention. Budget: scaling and masking leave s off by 2u|scale x| + u|s|; an exponent z = s - m is off by that and u|z|,
and its exponential by e_exp; the sum inherits the mean of all over p and its own e_s; four roundings (numerics.md 2.2).
Where s itself is too uncertain to tell shares apart, any number from 0 to 1 will do; where exp(s - m) of the maximum
itself may overflow or vanish, as s - m is no 0 if a product is fused into it, anything. A row with a +Inf may be NaN or
shared among its infinities; a row of -Inf may be NaN or 0.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Case, Fill
from kernel_assay.oracles.numerics.bounds import (
    exp_error,
    grown,
    log_error,
    quotient_error,
    range_of,
    reference_error,
    row_sum_rel,
    wild,
)
from kernel_assay.oracles.numerics.products import exact_bits, is_power
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.balls import Ball, ball, balls, shares
from kernel_assay.oracles.spec.contract import (
    ALL,
    INTERVAL,
    NAN,
    ZERO,
    Budget,
    Contract,
    Dim,
    Input,
    Output,
    Question,
    Reals,
)
from kernel_assay.oracles.spec.law_library import alone, only_if, reversed_along, row_sums, shifted

VANISHED = -1100.0
"""exp of this is 0 in every format; finite, so that it can be multiplied by 0."""


UNSURE = 2.0**-6
"""An exponent that is off by more than this has no first-order bound; its row may be anything from 0 to 1."""


def logits(x: Reals, mask: Reals | None, scale: float) -> Reals:
    """The exponents, but for the maximum."""
    s = x if scale == 1.0 else x * scale
    return s if mask is None else s + mask


def reference(x: Reals, mask: Reals | None = None, *, scale: float = 1.0) -> dict[str, Reals]:
    """The formula. A +Inf takes all."""
    s = logits(x, mask, scale)
    top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
    z = s - top
    if (top == np.inf).any():
        z = np.where(top == np.inf, np.where(s == np.inf, 0.0, -np.inf), z)
    e = np.exp(z)
    return {"out": e / e.sum(axis=-1, keepdims=True)}


def budget(q: Question) -> dict[str, Budget]:
    """Error p (rel + sum p rel + e_s + 4u) with rel = d + u|z| + e_exp(z); only 4u p where nothing else can round."""
    x, p, scale = q.real("x"), q.want["out"], float(q.attrs.get("scale", 1.0))
    mask = q.real("mask") if "mask" in q.inputs else None
    s = logits(x, mask, scale)
    top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
    z = np.maximum(s - top, VANISHED)
    differ, claims = _logit_error(q, x, mask, s, scale), _claimed(q, mask, scale)
    off = differ * (1.0 + differ)  # exp(d) - 1 is more than d, by no more than d**2 for what is below UNSURE
    rel = off + exp_error(q, z) - (3.0 if q.numerics.exp == "fast" else 1.0) * q.u * z
    shared = row_sum_rel(q, x.shape[-1], lambda: np.exp(z)) + 4.0 * q.u + reference_error(q) * q.u + quotient_error(q)
    if claims:
        error = _coarse_error(q, p, rel + _rounded(q, mask, (x * scale, s, top, z), p), shared)
    else:
        of_sum = np.einsum("ij,ij->i", p, np.where(p == 0.0, 0.0, rel))  # 0 of something that is off by Inf is 0
        error = p * (rel + (of_sum[:, None] + shared)) + 4.0 * q.least
    if q.exact and not claims and q.numerics.exp != "poly3" and not q.numerics.fast_math:
        error = np.where(_is_exact(q, s, z), (4.0 + reference_error(q)) * q.u * p, error)
    unsure = ((off > UNSURE) & (s + 2.0 * off > top - 128.0)).any(axis=-1, keepdims=True)
    over = _overflows(x, mask, s, scale, min(range_of(q)[1], q.rounding("s").top) * 0.999)
    over |= p.max(axis=-1, keepdims=True, initial=0.0) * q.every.top < 1.01  # the sum overflows
    apart = 2.0 * _fused(differ, scale)  # the sum's exponents and the result's
    beyond, free = wild(q, apart)
    error = np.where(unsure | over, grown(q, apart), error)
    if np.isfinite(s).all() and not over.any() and not beyond.any():
        return {"out": Budget(error)}
    accept = _accept(s, top)
    accept[np.broadcast_to(over, s.shape)] = INTERVAL | ZERO | NAN
    accept |= np.where(beyond, np.uint8(NAN), np.uint8(0))
    accept[np.broadcast_to(free, s.shape)] = ALL
    return {"out": Budget(np.where(free, np.inf, np.where(np.isnan(error), 4.0 * q.u, error)), accept=accept)}


def _logit_error(q: Question, x: Reals, mask: Reals | None, s: Reals, scale: float) -> Reals:
    """Error of scale * x + mask: a scale rounded to the arithmetic, a product, a sum. What a mask hides has none."""
    off = np.zeros(s.shape)
    if scale != 1.0:
        off += 2.0 * q.u * np.where(np.isfinite(x) & np.isfinite(s), np.abs(scale * x), 0.0)
    if mask is not None:
        off += q.u * np.where(np.isfinite(s), np.abs(s), 0.0)
    return off


def _fused(differ: Reals, scale: float) -> Reals:
    """The rest of a maximum less itself; differ: how far scores may be off. Without a product nothing fuses."""
    largest = differ.max(axis=-1, keepdims=True, initial=0.0)
    return largest if scale != 1.0 else np.zeros(largest.shape)


def _claimed(q: Question, mask: Reals | None, scale: float) -> bool:
    """Whether something on the way is rounded more often than the formula demands."""
    scaled = bool(q.rounding("s")) and (scale != 1.0 or mask is not None)
    return scaled or bool(q.every) or "log" in q.numerics.intermediates


def _rounded(q: Question, mask: Reals | None, parts: tuple[Reals, Reals, Reals, Reals], p: Reals) -> Reals:
    """Errors of exponents beyond the arithmetic's: scores rounded, differences, logarithms of shares."""
    scaled, s, top, z = (np.where(np.isfinite(x), x, 0.0) for x in parts)
    narrow, every, off = q.rounding("s"), q.every, np.zeros(s.shape)
    if float(q.attrs.get("scale", 1.0)) != 1.0:
        off += narrow.of(scaled)
    if mask is not None:
        off += narrow.of(s)
    if every:
        off += every.of(z) + 2.0 * every.unit
    if "log" in q.numerics.intermediates:
        off += log_error(q, top, z, p)
    return off


def _coarse_error(q: Question, p: Reals, rel: Reals, shared: Reals | float) -> Reals:
    """Error p (exp(rel) sum p exp(rel) exp(shared) - 1), which holds for exponents that are off by any number.

    Exponentials that are rounded, and are less than 1 by their largest, are off by half a step of it, and so is their
    sum as often as it has terms.
    """
    largest, rel = p.max(axis=-1, keepdims=True, initial=0.0), np.minimum(rel, 300.0)
    steps = q.every.half * largest
    more = np.log1p(np.einsum("ij,ij->i", p, np.expm1(rel)))[:, None] + shared + q.every.unit + p.shape[-1] * steps
    return np.asarray(np.minimum(p * np.expm1(rel + more) + 2.0 * steps + 4.0 * q.least, 1.0))


def _overflows(x: Reals, mask: Reals | None, s: Reals, scale: float, limit: float) -> NDArray[np.bool_]:
    """Rows with finite numbers of which a product with the scale, or a sum with the mask, may be Inf."""
    over = np.zeros(s.shape, np.bool_)
    if scale != 1.0:
        over |= np.isfinite(x) & (np.abs(x * scale) > limit)  # also where the mask is -Inf: their sum is NaN
    if mask is not None:
        over |= np.isfinite(x) & np.isfinite(mask) & (np.abs(s) > limit)
    return np.asarray(over.any(axis=-1, keepdims=True))


def _is_exact(q: Question, s: Reals, z: Reals) -> NDArray[np.bool_]:
    """Rows of a power of two of maxima c and otherwise nothing: exp(0) = 1, the sum c; the quotient keeps its error.

    Only if the arithmetic holds their s: fused with the difference, a product that rounds is not its own maximum.
    """
    maxima = np.count_nonzero(z == 0.0, axis=-1, keepdims=True)
    alone = ((z == 0.0) | (z == VANISHED)).all(axis=-1, keepdims=True) & np.isfinite(s).all(axis=-1, keepdims=True)
    scale = float(q.attrs.get("scale", 1.0))
    held = is_power(scale) & ((s == s.astype(np.float32)) if q.case.dtype != "float64" else "mask" not in q.inputs)
    exact: NDArray[np.bool_] = alone & (maxima & (maxima - 1) == 0) & (maxima <= 2.0 ** exact_bits(q))
    return np.asarray(exact & np.all(held, axis=-1, keepdims=True))


def _accept(x: Reals, top: Reals) -> NDArray[np.uint8]:
    choices = [np.isnan(top), top == np.inf, top == -np.inf, x == -np.inf]
    return np.select(choices, [NAN, INTERVAL | NAN, NAN | ZERO, ZERO], INTERVAL).astype(np.uint8)


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Two levels, far apart: half of the row shares 1, the other half vanishes (exact if the half is a power of two).

    A mask turns them round, whatever the scale. Odd rows and rows of other lengths get equal values.
    """
    del dtypes
    half, odd = divmod(dims["cols"], 2)
    if odd or half & (half - 1):
        return {"x": Fill(distribution="ones"), "mask": Fill(distribution="ones")}
    levels = {"x": 2.0**13, "mask": -(2.0**15)}
    return {name: Fill(distribution="unit_steps", scale=scale) for name, scale in levels.items()}


def _is_plain(case: Case) -> bool:
    """Whether nothing is rounded before the maximum is subtracted."""
    return "mask" not in case.tensors and case.attrs.get("scale", 1.0) == 1.0


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula, with a +Inf that takes all."""
    row, column = index
    mask = balls(inputs["mask"][row]) if "mask" in inputs else [Ball(0)] * inputs["x"].shape[1]
    scale = ball(attrs.get("scale", 1.0))
    s = [scale * x + m for x, m in zip(balls(inputs["x"][row]), mask, strict=True)]
    infinite = [score == Ball.pos_inf() for score in s]
    return Ball(infinite[column]) / sum(infinite) if any(infinite) else shares(s)[column]


_MASKS = ("zeros", "masked_rows", "masked_start", "normal")

CONTRACT = Contract(
    name="softmax",
    summary="exponentials of a row divided by their sum",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={
        "x": Input(("rows", "cols")),
        "mask": Input(("rows", "cols"), distributions=_MASKS, specials=False),
    },
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t, "mask": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"scale": (1.0, 0.125, 0.3, -2.0)},
    intermediates={
        "s": "scale times x, and that plus the mask",
        "log": "the logarithm of a share, which is exponentiated",
    },
    optional=("scale", "mask"),
    separable=("rows",),
    on_device="rows.SOFTMAX",
    reference=reference,
    element=element,
    budget=budget,
    probe=probe,
    laws=(
        only_if(_is_plain, shifted("shift", "x", 8)),
        row_sums("sum", 1.0),
        alone("row_alone", {"x": 0, "mask": 0}),
        reversed_along("rows_reversed", {"x": 0, "mask": 0}, out=0),
        reversed_along("columns_reversed", {"x": 1, "mask": 1}, out=1),
    ),
)
