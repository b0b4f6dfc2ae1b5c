"""Sums of products: how wrong a matrix product may be in the declared arithmetic (numerics.md 2.1, 4).

Higham, "Accuracy and Stability of Numerical Algorithms", 3.1 and 4.2; Khattak and Mikaitis for tensor cores.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from corpus.formats import Format, format_of
from corpus.records import Fill
from oracles.bounds import LAMBDA, classes_of, grain, sum_error
from oracles.contract import NAN, NINF, PINF, Budget, Question, Reals

TENSOR_CORES: dict[str, tuple[int, int]] = {
    "volta": (23, 4),
    "ampere": (24, 8),
    "hopper": (25, 16),
    "blackwell": (25, 16),
    "fp8_hopper": (13, 32),
}
"""F, L: blocks of L products (half of that for tf32) are aligned and truncated to F fractional bits (numerics.md 5)."""

TF32_UNIT = {"none": 0.0, "rn": 2.0**-11, "rz": 2.0**-10}


def product_budget(q: Question, a: Reals, b: Reals, out: Reals) -> Budget:
    """Of out = a @ b: rounding of the sum, of tf32 operands, of the reference itself, and flushing.

    0 where no rounding can happen.
    """
    size_a, size_b = np.abs(a), np.abs(b)
    total = size_a @ size_b
    root = _root_square(q, a, b) if q.iid else total
    error = _sum_error(q, a.shape[1], out, total, root)
    if q.numerics.tf32 != "none":
        error += _operand_error(q, out, total, root)
    if q.case.dtype == "float64":
        error += _oracle_error(a.shape[1], out, total)
    error += _underflow_error(q, size_a, size_b)
    if q.exact:
        error[_is_exact(q, a, b, total)] = 0.0
    sigma = 0.1 * error if q.iid and q.case.dtype in {"float16", "bfloat16"} else None
    return Budget(error, _accept(q, a, b, out, total), sigma=sigma, rows=max(1, out.size))


def _root_square(q: Question, a: Reals, b: Reals) -> Reals:
    """R = sqrt(sum (a b)**2); float64 inputs are scaled first, so that their squares stay in range."""
    if q.case.dtype != "float64":
        return np.sqrt((a * a) @ (b * b))
    top_a, top_b = np.abs(a).max(initial=0.0) or 1.0, np.abs(b).max(initial=0.0) or 1.0
    return np.asarray(np.sqrt((a / top_a) ** 2 @ (b / top_b) ** 2) * top_a * top_b)


def _sum_error(q: Question, k: int, out: Reals, total: Reals, root: Reals) -> Reals:
    if q.numerics.accumulate not in TENSOR_CORES:
        narrow = q.numerics.accumulate in {"float16", "bfloat16"}
        return sum_error(q, k, out, total, root, products=narrow or q.case.dtype in {"float32", "float64"})
    bits, block = TENSOR_CORES[q.numerics.accumulate]
    block = block if q.numerics.tf32 == "none" else block // 2
    step = (2.0**-13 if bits == 13 else 2.0**-23) + (block + 1) * 2.0**-bits
    steps = (math.ceil(k / block) + 1) * step
    worst = np.asarray(steps * total)
    return np.minimum(worst, steps * (0.5 * np.abs(out) + 1.25 * root)) if q.iid else worst


def _operand_error(q: Question, out: Reals, total: Reals, root: Reals) -> Reals:
    u = TF32_UNIT[q.numerics.tf32]
    if not q.iid:
        return np.asarray((2.0 * u + u * u) * total)
    bias = 2.0 * u if q.numerics.tf32 == "rz" else 0.0
    return np.asarray(bias * np.abs(out) + LAMBDA * 0.85 * u * root)


def _oracle_error(k: int, out: Reals, total: Reals) -> Reals:
    """What the reference of a float64 kernel may itself be off by."""
    unit = float(np.finfo(np.longdouble).eps) / 2.0
    return np.asarray(2.0**-53 * np.abs(out) + (k + 1) * unit * total)


def _underflow_error(q: Question, size_a: Reals, size_b: Reals) -> Reals | float:
    """Products below the accumulator's range, and with ftz also subnormal operands taken for zero."""
    acc = _accumulator(q)
    flat: float = size_a.shape[1] * (acc.tiny if q.tiny else acc.eta)
    if not q.tiny or format_of(q.case.dtype).eta >= q.tiny:
        return flat
    lost_a, lost_b = np.where(size_a < q.tiny, size_a, 0.0), np.where(size_b < q.tiny, size_b, 0.0)
    if not lost_a.any() and not lost_b.any():
        return flat
    return np.asarray(flat + lost_a @ size_b + size_a @ lost_b)


def _accumulator(q: Question) -> Format:
    if q.numerics.accumulate in {"float16", "bfloat16"}:
        return format_of(q.numerics.accumulate)
    return format_of("float64" if q.case.dtype == "float64" else "float32")


def _is_exact(q: Question, a: Reals, b: Reals, total: Reals) -> NDArray[np.bool_]:
    """Where all products are multiples of g and S <= 2**B g: each partial sum in any order is exact (numerics.md 4)."""
    acc = _accumulator(q)
    bits = min(acc.precision, TENSOR_CORES.get(q.numerics.accumulate, (99, 0))[0] + 1)
    grain_a, grain_b = grain(a, axis=1), grain(b, axis=0)
    both = grain_a * grain_b
    smallest = np.minimum(np.minimum(grain_a, grain_b), both)
    exact = np.asarray((smallest >= (q.tiny or acc.eta)) & (total <= np.minimum(2.0**bits * both, acc.max)))
    if q.numerics.tf32 != "none":
        exact &= _fits_tf32(a, grain_a, axis=1) & _fits_tf32(b, grain_b, axis=0)
    return exact


def _fits_tf32(x: Reals, grain: Reals, axis: int) -> NDArray[np.bool_]:
    return np.asarray(np.abs(x).max(axis=axis, keepdims=True, initial=0.0) <= 2.0**11 * grain)


def _accept(q: Question, a: Reals, b: Reals, out: Reals, total: Reals) -> NDArray[np.uint8] | None:
    limit = _accumulator(q).max * 0.999
    beyond = _beyond_tf32(a, 1) | _beyond_tf32(b, 0) if q.numerics.tf32 == "rn" else np.zeros((), np.bool_)
    if not total.size or (total.max() <= limit and not beyond.any()):  # the comparison is false for NaN
        return None
    finite_a, finite_b = (np.where(np.isfinite(x), np.abs(x), 0.0) for x in (a, b))
    free = ~np.isnan(out) & ((finite_a @ finite_b > limit) | beyond)
    from_finite = np.isfinite(a).all(axis=1, keepdims=True) & np.isfinite(b).all(axis=0, keepdims=True)
    mask = classes_of(out)
    mask[free & ~from_finite] |= NAN
    mask[free & from_finite] |= PINF | NINF | NAN
    if q.tiny:  # Inf times an operand flushed to zero
        flushed = np.where(np.abs(a) < q.tiny, 0.0, a) @ np.where(np.abs(b) < q.tiny, 0.0, b)
        mask[np.isnan(flushed)] |= NAN
    return mask


def _beyond_tf32(x: Reals, axis: int) -> NDArray[np.bool_]:
    """Rows or columns with a finite number that tf32, rounding to nearest, makes Inf."""
    size = np.abs(x)
    return np.asarray(((size >= 2.0**128 * (1.0 - 2.0**-12)) & np.isfinite(size)).any(axis=axis, keepdims=True))


def product_probe(dtype: str, k: int) -> tuple[Fill, Fill]:
    """Integers, k * bound_a * bound_b <= 2**24 (2**53), that fit the dtype; b scaled so that fp16 cannot overflow."""
    limit = (1 << (53 if dtype == "float64" else 24)) // max(1, k)
    if dtype == "float32":  # wide times narrow: a needs more bits than tf32 has
        return _integers(min(limit // 4, 1 << 24)), _integers(4)
    bound = min(math.isqrt(limit), 1 << format_of(dtype).precision)
    return _integers(bound), _integers(bound, scale=2.0**-9 if dtype == "float16" else 1.0)


def _integers(bound: int, scale: float = 1.0) -> Fill:
    return Fill(distribution="exact_integers", params={"bound": bound}, scale=scale)
