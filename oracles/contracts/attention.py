"""Scaled dot-product attention with grouped heads, a causal mask and ragged lengths.

    s[i, j] = scale * sum_d q[i, d] * k[j, d],  p[i] = softmax(s[i]) over the keys i sees,  out[i] = sum_j p[i, j] v[j]

of every sequence and head; `group` heads of q share a head of k and v. A sequence has its first lengths[b] keys (all
without lengths), what lies behind is no input. With causal, query i sees key j where j <= i + length - queries: the
last query sees all. scale 0 stands for 1/sqrt(head). Source: Vaswani et al., "Attention is all you need", 2017, eq. 1;
Dao, "FlashAttention-2", 2023, for the online form and the alignment of the mask.

Budget (numerics.md 2.2): a score is off by d = |scale| e_dot + u(2|s| + 2|m| + |z|) + e_exp, which moves the result by
the lesser of sum p d |v| + |out| sum p d and sqrt(A sum p d (v - out)**2), A = sum p d; then the sum of p v in the
declared accumulator, the sum of p, rescaling both whenever the running maximum changes and, if declared, the rounding
of p. A row that sees no key, or only scores of -Inf, may be 0 or NaN; one with a score of +Inf is NaN, or shared among
those. A finite score beyond the range of the arithmetic may be any number, Inf or NaN: its row is NaN, or any mixture
of values. One so large that fusing its scale into the difference from the maximum leaves hundreds leaves anything. What
has no weight may show as NaN if it is not finite, for 0 * Inf and -Inf + Inf are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.attention_error import (
    Mask,
    Scores,
    coarse,
    deviation,
    doubtful,
    held,
    left,
    mixture_error,
    scale_of,
    score_error,
    scores_of,
    sinking,
    vanishing,
    visible,
)
from kernel_assay.oracles.numerics.bounds import classes_of, grain, grown, reference_error, sum_range, wild
from kernel_assay.oracles.numerics.products import exact_bits, tf32_of
from kernel_assay.oracles.numerics.tf32_nans import free_rows
from kernel_assay.oracles.spec.attention_laws import ATTENTION_LAWS
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.balls import Ball, ball, balls, dot, shares, total
from kernel_assay.oracles.spec.contract import (
    ALL,
    INTERVAL,
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
)


def reference(
    q: Reals,
    k: Reals,
    v: Reals,
    lengths: NDArray[np.int32] | None = None,
    *,
    causal: bool = False,
    scale: float = 0.0,
    behind: int = 0,
) -> dict[str, Reals]:
    """The formula; rows that see nothing are 0, and scores of +Inf take all.

    behind: queries that come after these, of a part of a case.
    """
    seen = visible(q.shape, k.shape, lengths, causal=causal, behind=behind)
    group = q.shape[1] // max(1, k.shape[1])
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s = np.where(seen, scale_of(scale, q) * (q @ np.swapaxes(k, -1, -2)), -np.inf)
    top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
    z = np.where(top == np.inf, np.where(s == np.inf, 0.0, -np.inf), s - np.where(top == -np.inf, 0.0, top))
    e = np.exp(z)
    sums = e.sum(axis=-1, keepdims=True)
    known = np.isfinite(v)
    out = e @ np.where(known, v, 0.0) / np.where(sums == 0.0, 1.0, sums)
    return {"out": out if known.all() else _with_infinities(out, z > -np.inf, v)}


def _with_infinities(out: Reals, weighed: Mask, v: Reals) -> Reals:
    """The result where values that have a weight are not finite."""
    up, down, lost = (_meet(weighed, some) for some in (v == np.inf, v == -np.inf, np.isnan(v)))
    signed = np.where(up, np.inf, np.where(down, -np.inf, out))
    return np.where(lost | (up & down) | np.isnan(out), np.nan, signed)


def _meet(keys: Mask, values: Mask) -> Mask:
    """Elements to which one of these keys contributes one of these values."""
    return np.asarray(keys.astype(np.float64) @ values.astype(np.float64) > 0)


def budget(q: Question) -> dict[str, Budget]:
    """See above; the terms are in oracles/numerics/attention_error.py."""
    w: Scores = q.once(scores_of)
    fits, rest = held(q, w), left(q, w)
    off = score_error(q, w, fits)
    shape, want = q.want["out"].shape, q.want["out"].reshape(w.a.shape)
    out = np.where(np.isfinite(want), want, 0.0)
    error = mixture_error(q, w, out, off, rest)
    if q.exact and not q.numerics.fast_math and not coarse(q):
        error = np.where(_is_flat(q, w), (4.0 + reference_error(q)) * q.u * np.abs(out), error)
    error = np.where(np.isnan(error), np.inf, np.where(_blind(w), 0.0, error))
    accept = _accept(q, w, want, off, fits, rest)
    free = wild(q, rest)[1]
    if (lost := free_rows(q, want.shape)) is not None:
        free = free | lost
    if free.any():
        error = np.where(free, np.inf, error)
        accept = np.where(free, ALL, classes_of(want) if accept is None else accept).astype(np.uint8)
    accept = None if accept is None else accept.reshape(shape)
    if not q.iid or q.case.dtype not in {"float16", "bfloat16"}:
        return {"out": Budget(error.reshape(shape), accept)}
    sigma = deviation(q, w, out, error).reshape(shape)
    return {"out": Budget(error.reshape(shape), accept, sigma=sigma, rows=_different_rows(q))}


def _different_rows(q: Question) -> int:
    """Queries that mix the values of their sequence alike are all rounded alike."""
    rounded = q.want["out"].astype(q.inputs["q"].dtype).view(np.uint16)
    return max(1, len(np.unique(rounded.reshape(-1, rounded.shape[-1]), axis=0)))


def _is_flat(q: Question, w: Scores) -> Mask:
    """Rows of products that are all 0, of a power of two of keys: exp(0) = 1, and all sums exact; the quotient is not.

    Other equal scores may round: fused with the difference, a product is not its own maximum.
    """
    bits = exact_bits(q) if tf32_of(q) == "none" else 11
    step = grain(w.finite, axis=-2)
    count = np.count_nonzero(w.seen, axis=-1, keepdims=True)
    equal = ~w.size.any(axis=-1, keepdims=True) & np.isfinite(w.dot).all(axis=-1, keepdims=True)
    equal = equal & (count > 0) & (count & (count - 1) == 0) & (count <= 2.0**bits)
    equal = equal & (w.seen.astype(np.float64) @ np.abs(w.finite) <= 2.0**bits * step)
    return np.asarray(equal & (step >= sum_range(q)[0] * w.keys) & (q.numerics.exp != "poly3"))


def _accept(q: Question, w: Scores, want: Reals, off: Reals, fits: Mask, rest: Reals) -> NDArray[np.uint8] | None:
    """None where all is finite, stays so and is seen: a number."""
    limit = sum_range(q)[1] * 0.999
    blind = _blind(w)
    finite = fits.all() and np.isfinite(w.dot).all() and np.isfinite(w.v).all()
    beyond, _ = wild(q, rest)
    factor = grown(q, rest)
    if finite and not beyond.any() and (np.abs(w.v).sum(axis=-2, keepdims=True) * factor).max(initial=0.0) <= limit:
        return classes_of(want) | _where(blind, NAN) if blind.any() else None
    mask = classes_of(want) | _from_scores(q, w, fits) | _from_values(q, w, off) | _where(beyond, NAN | ZERO)
    seen = w.seen * factor
    up, down = (seen @ np.maximum(sign * w.finite, 0.0) > limit for sign in (1.0, -1.0))
    mask |= _where(up | down, NAN) | _where((mask & INTERVAL) != 0, _where(up, PINF) | _where(down, NINF))
    mask[np.isnan(want)] = NAN
    mask[np.broadcast_to(blind, mask.shape)] = INTERVAL | NAN
    return mask


def _blind(w: Scores) -> Mask:
    """Rows without a key that has a weight."""
    return np.asarray(~(w.seen & (w.s != -np.inf)).any(axis=-1, keepdims=True))  # NaN is no mask


def _from_scores(q: Question, w: Scores, fits: Mask) -> NDArray[np.uint8]:
    """Kinds that rows may be because of scores that are not finite, or may not be in the arithmetic."""
    doubt = doubtful(w, fits)
    hidden = w.inside & ~w.seen & ~np.isfinite(w.dot)
    lost = np.asarray(((w.inside & ~fits) | hidden).any(axis=-1, keepdims=True) | (w.top == np.inf))
    if q.tiny:
        lost = lost | _flushed(q, w)
    staying = (w.seen & (w.s != -np.inf) & ~sinking(q, w)).any(axis=-1, keepdims=True)
    masked = doubt.any(axis=-1, keepdims=True) & ~staying
    up, down = (_meet(doubt, w.v == infinity) for infinity in (np.inf, -np.inf))
    return _where(lost, NAN) | _where(masked, ZERO) | _where(up, PINF) | _where(down, NINF)


def _from_values(q: Question, w: Scores, off: Reals) -> NDArray[np.uint8]:
    """Kinds that elements may be for values that are not finite: NaN, where they have no weight or may lose it."""
    idle = _meet(w.inside & ~w.weighed, ~np.isfinite(w.v))
    return _where(idle | _meet(vanishing(q, w, off), np.isinf(w.v)), NAN)


def _where(rows: Mask | np.bool_, classes: int | NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.where(rows, np.asarray(classes, np.uint8), np.uint8(0))


def _flushed(q: Question, w: Scores) -> Mask:
    """Rows that see Inf times a number that may be flushed to 0."""
    least = q.tiny / min(1.0, abs(w.scale))
    a, bt = (np.where(np.abs(x) < least, 0.0, x) for x in (w.a, w.bt))
    return np.asarray((w.seen & np.isnan(a @ bt)).any(axis=-1, keepdims=True))


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Scores of 0, so that a row is the mean of a power of two of keys; else scores so far apart that one key has all.

    Values are as wide as their sum allows; scores as far apart in every dtype.
    """
    keys, precision = dims["keys"], format_of(dtypes["v"]).precision
    wide = 1 << min(precision, 15)
    bounds = wide, min(1 << min(precision, 20), (1 << 24) // max(1, keys))
    k, v = (Fill(distribution="exact_integers", params={"bound": bound}) for bound in bounds)
    apart = Fill(distribution="powers_of_two", scale=(1 << 15) / wide)
    return {"q": Fill(distribution="zeros") if keys & (keys - 1) == 0 else apart, "k": k, "v": v}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula over the keys that are seen; 0 if none has a weight."""
    batch, head, query, column = index
    q, group = inputs["q"], inputs["q"].shape[1] // inputs["k"].shape[1]
    k, v = (inputs[name][batch, head // group] for name in ("k", "v"))
    length = int(inputs["lengths"][batch]) if "lengths" in inputs else len(k)
    end = length - (q.shape[2] - 1 - query) - int(attrs.get("behind", 0)) if attrs["causal"] else length
    if end <= 0:
        return Ball(0)
    scale = ball(attrs["scale"]) if attrs.get("scale", 0.0) else 1 / Ball(q.shape[3]).sqrt()
    s = [scale * dot(balls(q[batch, head, query]), balls(key)) for key in k[:end]]
    pairs = list(zip(s, balls(v[:end, column]), strict=True))
    if leading := [value for score, value in pairs if score == Ball.pos_inf()]:
        return total(leading) / len(leading)
    pairs = [(score, value) for score, value in pairs if score != Ball.neg_inf()]
    return dot(shares([score for score, _ in pairs]), [value for _, value in pairs]) if pairs else Ball(0)


_HEADS, _KEYS = ("batch", "kv_heads*group", "queries", "head"), ("batch", "kv_heads", "keys", "head")
_LENGTHS = ("zeros", *("uniform",) * 4, "edge_indices")
"""Only some keys of a sequence tell whether the others are read; repeats are weights."""

_DRAWN = (*(d.name for d in DISTRIBUTIONS.values() if d.floats), *("masked_first_rows",) * 3)
"""Keys without weight before others is what kernels that go tile by tile forget."""

CONTRACT = Contract(
    name="attention",
    summary="mixtures of values, weighted by how well queries and keys agree",
    dims={
        "batch": Dim(0, 6),
        "kv_heads": Dim(1, 4),
        "group": Dim(1, 4),
        "queries": Dim(0, 256),
        "keys": Dim(0, 512),
        "head": Dim(1, 256),
    },
    inputs={
        "q": Input(_HEADS),
        "k": Input(_KEYS, distributions=_DRAWN),
        "v": Input(_KEYS),
        "lengths": Input(("batch",), upto="keys", distributions=_LENGTHS),
    },
    outputs={"out": Output(_HEADS, like="q")},
    variants=tuple({"q": t, "k": t, "v": t, "lengths": "int32"} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"causal": (False, True), "scale": (0.0, 0.125, 1.0, 0.3)},
    intermediates={
        "s": "products of q and k, and scores",
        "p": "weights, before their products with v",
        "log": "the logarithm of a weight, which is exponentiated",
    },
    optional=("lengths", "scale"),
    separable=("batch", "kv_heads", "queries"),
    placed={"queries": lambda attrs, _, behind: {**attrs, "behind": behind}},
    on_device="sums.ATTENTION",
    reference=reference,
    element=element,
    budget=budget,
    probe=probe,
    laws=ATTENTION_LAWS,
    work=lambda d: d["batch"] * d["kv_heads"] * d["group"] * d["queries"] * d["keys"] * (d["head"] + 16),
)
