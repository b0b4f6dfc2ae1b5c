"""Softmax of rows.

    out[i, j] = exp(x[i, j] - m[i]) / sum_k exp(x[i, k] - m[i]),    m[i] = max_k x[i, k]

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 2. Budget: an exponent
z = x - m is off by u|z| and its exponential by e_exp; the sum inherits the mean of both over p and its own e_s; four
roundings (numerics.md 2.2). A row with a +Inf may be NaN or shared among its infinities; a row of -Inf may be NaN or 0.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from corpus.records import Fill
from oracles.bounds import exp_error, reference_error, row_sum_rel
from oracles.contract import INTERVAL, NAN, ZERO, Budget, Contract, Dim, Dims, Input, Output, Question, Reals
from oracles.relations import shifted

VANISHED = -1100.0
"""exp of this is 0 in every format; finite, so that it can be multiplied by 0."""


def reference(x: Reals) -> dict[str, Reals]:
    """The formula. A +Inf takes all."""
    top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    z = x - top
    if (top == np.inf).any():
        z = np.where(top == np.inf, np.where(x == np.inf, 0.0, -np.inf), z)
    e = np.exp(z)
    return {"out": e / e.sum(axis=-1, keepdims=True)}


def budget(q: Question) -> dict[str, Budget]:
    """Error p (rel + sum p rel + e_s + 4u) with rel = u|z| + e_exp(z); what is masked or exact has no error at all."""
    x, p = q.real("x"), q.want["out"]
    top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    z = np.maximum(x - top, VANISHED)
    rel = exp_error(q, z) - (3.0 if q.numerics.exp == "fast" else 1.0) * q.u * z
    shared = np.einsum("ij,ij->i", p, rel)[:, None] + (row_sum_rel(q, x.shape[-1]) + 4.0 * q.u)
    shared = shared + reference_error(q) * q.u
    error = p * (rel + shared) + 4.0 * q.tiny
    if q.exact and q.numerics.exp != "poly3":
        error = np.where(_is_exact(x, z), 0.0, error)
    if np.isfinite(x).all():
        return {"out": Budget(error)}
    return {"out": Budget(np.where(np.isnan(error), 4.0 * q.u, error), accept=_accept(x, top))}


def _is_exact(x: Reals, z: Reals) -> NDArray[np.bool_]:
    """Rows of a power of two of maxima c and otherwise nothing: exp(0) = 1, the sum c, the quotient 1/c."""
    maxima = np.count_nonzero(z == 0.0, axis=-1, keepdims=True)
    alone = ((z == 0.0) | (z == VANISHED)).all(axis=-1, keepdims=True) & np.isfinite(x).all(axis=-1, keepdims=True)
    exact: NDArray[np.bool_] = alone & (maxima & (maxima - 1) == 0)
    return exact


def _accept(x: Reals, top: Reals) -> NDArray[np.uint8]:
    choices = [np.isnan(top), top == np.inf, top == -np.inf, x == -np.inf]
    return np.select(choices, [NAN, INTERVAL | NAN, NAN | ZERO, ZERO], INTERVAL).astype(np.uint8)


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Two levels, 2048 apart: half of the row shares 1, the other half vanishes (exact if the half is a power of two).

    Odd rows and rows of other lengths get equal values.
    """
    del dtypes
    half, odd = divmod(dims["cols"], 2)
    two_levels = not odd and half & (half - 1) == 0
    return {"x": Fill(distribution="unit_steps", scale=1024.0) if two_levels else Fill(distribution="ones")}


CONTRACT = Contract(
    name="softmax",
    summary="exponentials of a row divided by their sum",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    reference=reference,
    budget=budget,
    probe=probe,
    laws=(shifted("shift", "x", 8),),
)
