"""Errors of mixtures of values whose weights come from scores (numerics.md 2.2, attention).

Arrays have the shape (batch, kv_heads, rows, keys), with head for keys where they are values: rows are the queries of
all heads that share their keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import format_of
from kernel_assay.oracles.numerics.bounds import (
    EVEN,
    LAMBDA,
    exp_error,
    grown,
    log_error,
    quotient_error,
    range_of,
    reference_error,
    row_sum_rel,
    sum_error,
    sum_range,
    sum_unit,
)
from kernel_assay.oracles.numerics.products import TENSOR_CORES, TF32_UNIT, aligned_more, aligned_steps, tf32_of
from kernel_assay.oracles.spec.contract import Question, Reals

Mask = NDArray[np.bool_]

LEAST = float(np.finfo(np.float64).tiny)
"""The smallest normal number."""
UNSURE = 2.0**-6
"""Where a score is off by more than this, any mixture of the values that its row sees may be nearer."""
ROUNDED = 1e-14
"""Of a difference of squares in float64, relative to them."""
LOG2E = 1.4427
"""What a score is multiplied with if its exponential is a power of two."""
FAR = {"float64": 800.0}
"""The exponential of a number this far below 0 is 0 in the arithmetic; 128 in float32."""
LEAST_SQUARE = 2.0**-900
"""A sum of squares below it may have lost terms, and is taken for as much."""
CELLS = 16.0
"""Weights within so many units of one another are all rounded in the same direction."""


def scale_of(scale: float, q: NDArray[Any]) -> np.floating[Any] | float:
    """The factor of scores; for 0, 1/sqrt(head) in the type of q."""
    return scale or 1 / np.sqrt(q.dtype.type(max(1, q.shape[-1])))


def visible(
    q: tuple[int, ...],
    k: tuple[int, ...],
    lengths: NDArray[np.int32] | None = None,
    *,
    causal: bool = False,
    behind: int = 0,
) -> Mask:
    """A mask of the keys that each query sees, by the shapes of q and k: (batch or 1, 1, queries or 1, keys).

    behind: queries that come after these.
    """
    queries, keys = q[2], k[2]
    length = np.array([keys]) if lengths is None else lengths
    last = length[:, None] - 1  # of the keys that a query sees
    if causal:
        last = last + np.arange(1 - queries, 1) - behind
    return np.asarray((np.arange(keys) <= last[..., None])[:, None])


@dataclass(frozen=True)
class Scores:
    """Scores and what they are made of."""

    a: Reals
    """q: (batch, kv_heads, rows, head)."""
    bt: Reals
    """k: (batch, kv_heads, head, keys); 0 behind the lengths, as v is."""
    v: Reals
    finite: Reals
    """v with 0 for what is not finite."""
    inside: Mask
    """Which keys belong to a sequence: (batch or 1, 1, 1, keys)."""
    seen: Mask
    """Which of them a row sees: (batch or 1, 1, rows or 1, keys)."""
    weighed: Mask
    """Which of those have a weight: none whose score is -Inf or NaN, and beside a score of +Inf no other."""
    scale: float
    dot: Reals
    size: Reals
    """S = sum |q k|, over what is finite."""
    s: Reals
    """-Inf where a key is not seen; infinite for an operand that is, NaN where float64 does not hold it."""
    top: Reals
    z: Reals
    """s - top, and 0 where that is not finite, or without a weight."""
    p: Reals

    @property
    def keys(self) -> int:
        """The number of keys."""
        return int(self.s.shape[-1])

    @cached_property
    def sizes(self) -> tuple[Reals, Reals]:
        """|v| and v**2, over what is finite."""
        return np.abs(self.finite), self.finite * self.finite

    @cached_property
    def sums(self) -> list[Reals]:
        """Sums of p |v| and p v**2."""
        return _moments(self.p, *self.sizes)


def scores_of(q: Question) -> Scores:
    """The scores of all rows, in float64."""
    a, b, v = q.real("q"), q.real("k"), q.real("v")
    lengths, group = q.inputs.get("lengths"), a.shape[1] // max(1, b.shape[1])
    inside = visible(a.shape, b.shape, lengths)
    seen, behind = inside, int(q.attrs.get("behind", 0))
    if q.attrs["causal"]:
        seen = np.tile(visible(a.shape, b.shape, lengths, causal=True, behind=behind), (1, 1, group, 1))
    scale = float(scale_of(float(q.attrs["scale"]), a))
    if lengths is not None:
        b, v = (np.where(np.swapaxes(inside, -1, -2), x, 0.0) for x in (b, v))
    a = a.reshape(*b.shape[:2], group * a.shape[2], a.shape[3])
    bt = np.swapaxes(b, -1, -2)
    dot, size = a @ bt, _finite(np.abs(a)) @ _finite(np.abs(bt))
    scaled, infinite = scale * dot, np.isinf(dot) & np.isfinite(size)
    s = np.where(seen, np.where(np.isfinite(scaled) | infinite, scaled, np.nan), -np.inf)
    top = np.fmax.reduce(s, axis=-1, keepdims=True, initial=-np.inf)
    finite = np.isfinite(s)
    weighed = np.where(top == np.inf, s == np.inf, finite)
    z = np.where(weighed & finite, s - top, 0.0)
    p = np.where(weighed, np.exp(z), 0.0)
    p /= np.maximum(p.sum(axis=-1, keepdims=True), LEAST)
    return Scores(a, bt, v, _finite(v), inside, seen, weighed, scale, dot, size, s, top, z, p)


def _finite(x: Reals) -> Reals:
    """The numbers, with 0 for what is not finite."""
    return np.where(np.isfinite(x), x, 0.0)


def held(q: Question, w: Scores) -> Mask:
    """Mark scores that do not leave the range of the arithmetic, whatever the order of the sum and of scaling."""
    return np.asarray(max(1.0, LOG2E * abs(w.scale)) * w.size <= _score_top(q))


def coarse(q: Question) -> bool:
    """Whether exponents are rounded more often than the formula demands."""
    return bool(q.rounding("s")) or "log" in q.numerics.intermediates


def _score_top(q: Question) -> float:
    """The limit that a score, or a part of its sum, must not exceed."""
    return min(sum_range(q)[1], q.rounding("s").top) * 0.999


def doubtful(w: Scores, fits: Mask) -> Mask:
    """Mark scores that are finite, but may be anything in the arithmetic; fits: see `held`."""
    infinite = ~np.isfinite(w.dot) & np.isfinite(w.size)  # for an operand is
    return np.asarray(w.seen & ~fits & ~infinite)


def sinking(q: Question, w: Scores) -> Mask:
    """Mark scores that may become -Inf, because the negative products of their sums may leave the range."""
    a, bt = _finite(np.sign(w.scale) * w.a), _finite(w.bt)
    below = np.maximum(a, 0.0) @ np.maximum(-bt, 0.0) + np.maximum(-a, 0.0) @ np.maximum(bt, 0.0)
    return np.asarray(max(1.0, LOG2E * abs(w.scale)) * below > _score_top(q))


def score_error(q: Question, w: Scores, fits: Mask) -> Reals:
    """Error of a score, its exponential included, which is then relative; Inf where it is `doubtful`; fits: `held`."""
    root = np.sqrt((w.a * w.a) @ (w.bt * w.bt)) if q.iid else w.size
    terms, more = w.a.shape[-1], aligned_more(q, np.abs(w.a), np.abs(w.bt))
    off = abs(w.scale) * (_products_error(q, terms, w.dot, w.size, root) + _flushed(q, w))
    if more is not None:
        off += abs(w.scale) * aligned_steps(q, terms) * more
    off += 2.0 * q.u * (np.abs(w.s) + np.abs(w.top))
    off = np.where(np.isfinite(w.s), off + _rounded(q, w), 0.0)
    off += exp_error(q, w.z) - (3.0 if q.numerics.exp == "fast" else 1.0) * q.u * w.z
    off += _rescalings(q, w) * (8.0 if q.numerics.exp == "fast" else 4.0) * q.u
    off = np.where(w.weighed, off, 0.0)
    return off if fits.all() else np.where(doubtful(w, fits), np.inf, off)


def _rounded(q: Question, w: Scores) -> Reals | float:
    """Errors of roundings of an exponent to a narrower type: of a product, of a score, of its difference from m."""
    narrow, every = q.rounding("s"), q.every
    off: Reals | float = narrow.of(w.s, 2.0) + abs(w.scale) * narrow.half if narrow else 0.0
    return off + every.of(w.z) + 2.0 * every.unit if every else off


def _products_error(q: Question, terms: int, sums: Reals, size: Reals, root: Reals) -> Reals:
    """Of a sum of products in the declared arithmetic (2.1). All products round: a factor may have been scaled."""
    error, operand = sum_error(q, terms, sums, size, root, products=True), TF32_UNIT[tf32_of(q)]
    if q.numerics.accumulate in TENSOR_CORES:
        blocks = np.minimum(size, 0.5 * np.abs(sums) + 1.25 * root) if q.iid else size
        error = np.maximum(error, aligned_steps(q, terms) * blocks)
    return error + (2.0 * operand + operand * operand) * size if operand else error


def _flushed(q: Question, w: Scores) -> Reals | float:
    """The share of subnormal products, and of products of subnormal numbers, in a dot product."""
    if not q.tiny or format_of(q.case.dtype).eta >= q.tiny:
        return 0.0
    least, flat = q.tiny / min(1.0, abs(w.scale)), float(w.a.shape[-1] * q.tiny)
    low_a, low_b = (np.where(np.abs(x) < least, np.abs(x), 0.0) for x in (w.a, w.bt))
    if not low_a.any() and not low_b.any():
        return flat
    return np.asarray(flat + low_a @ np.abs(w.bt) + np.abs(w.a) @ low_b)


def _rescalings(q: Question, w: Scores) -> int:
    """Changes of a running maximum: of random scores, as many records as H(n) and six deviations."""
    last = max(0, w.keys - 1)
    if not q.iid:
        return last
    records = math.log(last + 1) + 0.58
    return min(last, math.ceil(records + LAMBDA * math.sqrt(records)))


def _moments(weights: Reals, *values: Reals) -> list[Reals]:
    """Sums of several values with one set of weights."""
    sums, width = weights @ np.concatenate(values, axis=-1), values[0].shape[-1]
    return [sums[..., n * width : (n + 1) * width] for n in range(len(values))]  # np.split takes as long as the sums


def mixture_error(q: Question, w: Scores, out: Reals, off: Reals, rest: Reals) -> Reals:
    """Error of sum p v, before it is rounded; out: the exact result, off: see `score_error`, rest: see `left`."""
    mixed, square = w.sums
    least = range_of(q)[0] * (1.0 if q.tiny else 2.0 * q.u)  # weights below it are lost, and what is made of them
    flushed = 4.0 * w.keys * least * (1.0 + w.sizes[0].max(axis=(-2, -1), keepdims=True, initial=0.0))
    flushed = flushed * grown(q, rest)
    sums = _sums_error(q, w, out, mixed) + _narrow_error(q, w, out, mixed, square)
    return np.asarray(_weight_error(q, w, out, off) + _log_error(q, w, off) + sums + flushed)


def _log_error(q: Question, w: Scores, off: Reals) -> Reals | float:
    """Error of weights that are exponentials of their logarithms: nothing makes their sum 1. They are at most 1."""
    if "log" not in q.numerics.intermediates:
        return 0.0
    wrong = np.minimum(log_error(q, np.where(np.isfinite(w.top), w.top, 0.0), w.z, w.p), 700.0)
    most = _grown(w, off + (w.p * off).sum(axis=-1, keepdims=True))
    return np.asarray((np.fmin(most, 1.0) * np.expm1(wrong)) @ w.sizes[0])


def _weight_error(q: Question, w: Scores, out: Reals, off: Reals) -> Reals:
    """Change of a mixture by scores that are off by d: sum p (exp(d) - 1) |v - out| / sum p exp(d), for any d.

    The lesser of a worst case and of Cauchy's inequality; and the result is a mixture of the values that may have any
    weight.
    """
    weights, small = w.p * np.expm1(off), off < 1.0
    if not small.all():
        weights = np.where(small, weights, _grown(w, off))
    second = np.exp((w.p * off).sum(axis=-1, keepdims=True))
    shift = weights.sum(axis=-1, keepdims=True)
    size, square, mean = _moments(weights, *w.sizes, w.finite)
    spread = square - 2.0 * out * mean + out * out * shift + ROUNDED * square
    error = second * np.fmin(size + np.abs(out) * shift, np.sqrt(shift * np.maximum(spread, LEAST_SQUARE)))
    sole = np.count_nonzero(w.p, axis=-1, keepdims=True) == 1  # one has all weight, and keeps it
    if not (off > UNSURE).any():
        return np.where(sole, 0.0, error)
    some = near(q, w, off)
    unsure = (some & (off > UNSURE)).any(axis=-1, keepdims=True)
    return np.where(unsure, np.fmin(error, _reach(w, some, out)), np.where(sole, 0.0, error))


def _grown(w: Scores, off: Reals) -> Reals:
    """Weights whose scores are larger by off, the others' the same; also of a weight that float64 has not."""
    largest = np.log(np.maximum(w.p.max(axis=-1, keepdims=True, initial=0.0), LEAST))
    return np.where(w.weighed, np.exp(w.z + largest + off), 0.0)


def near(q: Question, w: Scores, off: Reals) -> Mask:
    """Mark keys that may have a weight at all; where it is only one, the others' are 0."""
    least = np.max(w.s - off, axis=-1, keepdims=True, initial=-np.inf, where=w.weighed & np.isfinite(off))
    return np.asarray((w.weighed & (w.s + off >= least - FAR.get(q.case.dtype, 128.0))) | (off == np.inf))


def left(q: Question, w: Scores) -> Reals:
    """The rest of the largest score of a row if its maximum is subtracted, as `wild` has it."""
    size = np.where(np.isnan(w.s), np.inf, np.abs(w.s))
    return np.asarray(2.0 * q.u * np.max(size, axis=-1, keepdims=True, initial=0.0, where=w.seen & ~np.isinf(w.s)))


def vanishing(q: Question, w: Scores, off: Reals) -> Mask:
    """Mark keys whose weight may be 0 in the arithmetic, before or after it is divided by the sum."""
    narrow = q.rounding("p")
    least = max(range_of(q)[0], narrow.half / narrow.unit if narrow else 0.0)  # the smallest normal number
    return np.asarray(w.weighed & (w.p * np.exp(-off) < 2.0 * least))


def _reach(w: Scores, some: Mask, out: Reals) -> Reals:
    """Distance of any mixture of some values from the right one; twice that, for all of it is right."""
    count = np.count_nonzero(some, axis=-1, keepdims=True)
    mean, square = _moments(some.astype(np.float64), w.finite, w.sizes[1])
    spread = square - 2.0 * out * mean + count * out * out + ROUNDED * square
    widest = w.sizes[0].max(axis=-2, keepdims=True, initial=0.0) + np.abs(out)
    root = np.sqrt(np.maximum(spread, LEAST_SQUARE))
    return 2.0 * np.where(count == 1, np.abs(mean - out), np.fmin(widest, root))


def _sums_error(q: Question, w: Scores, out: Reals, mixed: Reals) -> Reals:
    """Summing p v and p, multiplying both when the running maximum changes, dividing; mixed: sum p |v|."""
    root = np.sqrt((w.p * w.p) @ w.sizes[1]) if q.iid else mixed
    error, rescaled = _products_error(q, w.keys, out, mixed, root), _rescalings(q, w) * sum_unit(q)
    error = error + rescaled * mixed + rescaled * np.abs(out)
    rounded = (8.0 + reference_error(q)) * q.u + quotient_error(q) + q.every.unit

    def weights() -> Reals:
        return np.asarray(w.p / np.maximum(w.p.max(axis=-1, keepdims=True, initial=0.0), LEAST))

    return np.asarray(error + (row_sum_rel(q, w.keys, weights) + rounded) * np.abs(out))


def _narrow_error(q: Question, w: Scores, out: Reals, mixed: Reals, square: Reals) -> Reals | float:
    """Error of weights that are rounded, before or after they are divided by their sum; square: sum p v**2."""
    unit, least = q.rounding("p").unit, q.rounding("p").half
    if not unit:
        return 0.0
    seen = w.seen.astype(np.float64)
    if not q.iid:
        spread = np.sqrt(np.maximum(square - out * out, 0.0))
        return np.asarray(unit * np.maximum(mixed, spread) + least * (seen @ w.sizes[0]))
    squares = w.sizes[1]
    spread = unit * np.sqrt((w.p * w.p) @ squares) + least * np.sqrt(seen @ squares)
    return np.asarray(LAMBDA * 0.6 * spread + unit * np.abs(out))


def deviation(q: Question, w: Scores, out: Reals, error: Reals) -> Reals:
    """The expected error; almost equal weights are all off by the same."""
    unit, least = q.rounding("p").unit, q.rounding("p").half
    own = (EVEN if coarse(q) else 0.1) * error
    if not unit:
        return own
    squares = w.sizes[1]
    variance = (0.42 * unit) ** 2 * ((w.p * w.p) @ squares) + (0.58 * least) ** 2 * (w.seen @ squares)
    smallest = np.min(w.p, axis=-1, keepdims=True, initial=1.0, where=w.seen)
    largest = np.max(w.p, axis=-1, keepdims=True, initial=0.0)
    alike = largest - smallest <= CELLS * unit * largest
    return np.asarray(np.sqrt(variance + own**2 + np.where(alike, unit * out, 0.0) ** 2))
