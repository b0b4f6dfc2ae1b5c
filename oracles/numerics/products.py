"""Sums of products: how wrong a matrix product may be in the declared arithmetic (numerics.md 2.1, 4).

Higham, "Accuracy and Stability of Numerical Algorithms", 3.1 and 4.2; Khattak and Mikaitis for tensor cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Format, compute_format, format_of
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.bounds import ACCUMULATOR_UNIT, EVEN, LAMBDA, LIMIT, classes_of, grain, sum_error
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import NAN, NINF, PINF, Budget, Question, Reals

TENSOR_CORES: dict[str, tuple[int, int]] = {
    "volta": (23, 4),
    "ampere": (24, 8),
    "hopper": (25, 16),
    "blackwell": (25, 16),
    "fp8_hopper": (13, 32),
}
"""F, L: blocks of L products (half of that for tf32) are aligned and truncated to F fractional bits (numerics.md 5)."""

VARIANTS = (
    *((t, t, t) for t in ("float32", "float16", "bfloat16", "float64")),
    ("float8_e4m3fn", "float8_e4m3fn", "float32"),
    ("float8_e5m2", "float8_e5m2", "float32"),
    ("float8_e5m2", "float8_e4m3fn", "float32"),
)
"""Dtypes of two factors and of a summand."""
ALPHAS, BETAS = (1.0, -1.0, 0.5, 0.3, 0.0), (1.0, 0.5, -1.7, 0.0)
"""What the product and the summand are multiplied with."""

TF32_UNIT = {"none": 0.0, "rn": 2.0**-11, "rz": 2.0**-10}


@dataclass(frozen=True, slots=True)
class Scaling:
    """The use of a product: alpha * product + beta * c."""

    alpha: float = 1.0
    beta: float = 1.0
    c: Reals | None = None

    @property
    def plain(self) -> bool:
        """Whether the product itself is the result."""
        return self.alpha == 1.0 and self.c is None

    @property
    def unread(self) -> NDArray[np.bool_]:
        """Mark where 0 is multiplied with a summand that is not finite: it may be read, which gives NaN, or not."""
        return np.zeros((1, 1), np.bool_) if self.c is None or self.beta else ~np.isfinite(self.c)

    @property
    def exact(self) -> bool:
        """Whether both factors are powers of two, or 0: multiplying by them rounds nothing."""
        return is_power(self.alpha) and (self.c is None or is_power(self.beta))

    @property
    def added(self) -> Reals:
        """|beta * c|, 0 where c is not finite; the largest number where the product overflows."""
        if self.c is None or self.beta == 0.0:
            return np.zeros((1, 1))
        return np.where(np.isfinite(self.c), np.minimum(np.abs(self.beta * self.c), LIMIT), 0.0)

    @property
    def grain(self) -> Reals:
        """The numbers that c and beta * c are multiples of, element by element; Inf without a summand."""
        if self.c is None or self.beta == 0.0:
            return np.full((1, 1), np.inf)
        return np.asarray(grain(self.c[None], axis=0)[0] * min(1.0, abs(self.beta)))

    def reach(self, total: Reals) -> Reals:
        """The limit that no partial sum exceeds, of sums of magnitudes of the product."""
        return self.added + (abs(self.alpha) * total if self.alpha else np.zeros(total.shape))


PLAIN = Scaling()


def scaling_of(q: Question, c: Reals | None) -> Scaling:
    """The scaling of a case, whose summand is c if it has one."""
    return Scaling(float(q.attrs.get("alpha", 1.0)), float(q.attrs.get("beta", 1.0)), c)


def product_budget(q: Question, a: Reals, b: Reals, out: Reals, scaling: Scaling = PLAIN) -> Budget:
    """The budget of out = alpha * a @ b + beta * c: the sum, tf32 operands, the reference itself, and flushing.

    0 where no rounding can happen.
    """
    size_a, size_b = np.abs(a), np.abs(b)
    total = size_a @ size_b
    size = np.minimum(total, LIMIT)  # a sum that stays finite rounds no more than that
    root = _root_square(q, a, b) if q.iid else size
    acc = out if scaling.plain else a @ b
    error, more = _sum_error(q, a.shape[1], acc, size, root), aligned_more(q, size_a, size_b)
    if more is not None:
        error += aligned_steps(q, a.shape[1]) * more
    if tf32_of(q) != "none":
        error += _operand_error(q, acc, size, root)
    if not scaling.plain:
        error = _scaled_error(q, scaling, a.shape[1], error, _factor_error(q, acc, size, root))
    rounded = _rounded_error(q, a.shape[1], scaling, acc, size, root)
    if q.case.dtype == "float64":
        error += _oracle_error(a.shape[1] + 2, out, scaling.reach(size))
    error += _underflow_error(q, size_a, size_b, scaling)
    if q.exact and scaling.exact and rounded is None:
        error[_is_exact(q, a, b, total if more is None else total + more, scaling)] = 0.0
    sigma = 0.1 * error if q.iid and q.case.dtype in {"float16", "bfloat16"} else None
    if rounded is not None:
        error = error + rounded
        sigma = None if sigma is None else np.hypot(sigma, EVEN * rounded)
    return Budget(error, _accept(q, a, b, out, total, scaling), sigma=sigma, rows=max(1, out.size))


@dataclass(frozen=True, slots=True)
class RowNorms:
    """Euclidean norms along each row of a product of n columns, or bounds of them: vectors of as many as it has rows.

    The budget's terms are sums, products with numbers, lesser ones and roots of sums of squares of these, so its own
    norm is at most what the same formula makes of the norms; of the larger of two, sqrt(2) times as much.
    """

    acc: Reals
    """Of a @ b."""
    size: Reals
    """Of |a| @ |b|."""
    root: Reals
    """Of R."""
    lost: Reals
    """Of what operands that are flushed to zero take with them, from |a| |b|."""
    out: Reals
    c: Reals | None = None
    """Of the summand."""
    more: Reals | float = 0.0
    """Of what aligned_more adds to |a| @ |b|."""


def row_norms_budget(q: Question, k: int, n: int, norms: RowNorms) -> Reals:
    """No less than the norm of each row of the E of product_budget, of which no element need be known."""
    scaling = scaling_of(q, norms.c)
    error = _sum_error(q, k, norms.acc, norms.size, norms.root)
    if q.numerics.accumulate in TENSOR_CORES:
        error = error * math.sqrt(2.0) + aligned_steps(q, k) * norms.more
    if tf32_of(q) != "none":
        error = error + _operand_error(q, norms.acc, norms.size, norms.root)
    if not scaling.plain:
        factor = _factor_error(q, norms.acc, norms.size, norms.root)
        error = _scaled_error(q, scaling, k, error, factor)
    if q.case.dtype == "float64":
        error = error + _oracle_error(k + 2, norms.out, scaling.reach(norms.size))
    rounded = _rounded_error(q, k, scaling, norms.acc, norms.size, norms.root, n)
    error = error if rounded is None else error + rounded
    error = error + _flat_error(q, k, scaling) * math.sqrt(n) + abs(scaling.alpha) * norms.lost
    return np.asarray(error).reshape(-1)


def tf32_of(q: Question) -> str:
    """The way operands are rounded to tf32; the claim is about float32, and tf32 holds all narrower numbers."""
    return q.numerics.tf32 if q.case.dtype == "float32" else "none"


def summed(product: Reals, alpha: float, beta: float, c: Reals | None) -> Reals:
    """Alpha * product + beta * c; what is multiplied with 0 is not read."""
    scaled = product if alpha == 1.0 else alpha * product if alpha else np.zeros(product.shape, product.dtype)
    return scaled if c is None or beta == 0.0 else scaled + beta * c


def scaled_ball(product: Ball, attrs: Attrs, c: Ball | None) -> Ball:
    """Alpha * product + beta * c in ball arithmetic; what is multiplied with 0 is not read."""
    alpha, beta = ball(attrs.get("alpha", 1.0)), ball(attrs.get("beta", 1.0))
    scaled = alpha * product if alpha != 0 else Ball(0)
    return scaled if c is None or beta == 0 else scaled + beta * c


def is_power(x: float) -> bool:
    """Whether multiplying by it is exact: plus or minus a power of two, or 0."""
    return x == 0.0 or abs(math.frexp(x)[0]) == 0.5


def _scaled_error(q: Question, scaling: Scaling, k: int, product: Reals, factor: Reals) -> Reals:
    """The summand may stand at the head of the sum, so that each addition rounds it again (numerics.md 2.1)."""
    alpha, unit = abs(scaling.alpha), ACCUMULATOR_UNIT.get(q.numerics.accumulate, q.u)
    scaled = alpha * (product if is_power(alpha) else product + factor) if alpha else np.zeros(product.shape)
    held = max((k + 1) * unit, aligned_steps(q, k + 1) if q.numerics.accumulate in TENSOR_CORES else 0.0)
    held += 0.0 if is_power(scaling.beta) else 2.0 * unit
    return np.asarray(scaled + held * scaling.added)


def _factor_error(q: Question, acc: Reals, total: Reals, root: Reals) -> Reals:
    """Of a factor alpha: rounded itself, and multiplied into the sum or into an operand, whose products then round."""
    unit = ACCUMULATOR_UNIT.get(q.numerics.accumulate, q.u)
    worst = 3.0 * unit * total
    return np.minimum(worst, unit * (2.0 * np.abs(acc) + LAMBDA * root)) if q.iid else worst


PART = 64
"""Products that a part of a sum has at least, where it is made of many parts."""
FEW_PARTS = 4
"""Parts that a sum of fewer products may have: cuBLAS splits 10 products on an H200."""
INTERMEDIATES = {
    "product": "the product, and it and the summand times their factors, before they are added",
    "parts": f"sums of parts, {FEW_PARTS} or of at least {PART} products each, and of some of these",
}
"""What is rounded where a sum of products is made in several steps."""


def _rounded_error(
    q: Question, k: int, scaling: Scaling, acc: Reals, size: Reals, root: Reals, columns: int = 1
) -> Reals | None:
    """Errors of roundings to a narrower type, before the last one (numerics.md 2.4); None if there are none.

    columns: of how many elements the numbers are norms.
    """
    product, parts, alpha = q.rounding("product"), q.rounding("parts", alone=True), abs(scaling.alpha)
    count, many, found = max(-(-k // PART), min(k, FEW_PARTS)), math.sqrt(columns), None
    if parts and count > 1:
        steps = 2.0 * count * parts.half * many
        whole = 2.0 * count * parts.unit * size + steps
        if q.iid:  # no part, and no sum of parts, is likely to be larger; they are rounded either way
            typical = LAMBDA * EVEN * parts.unit * math.sqrt(2.0 * count) * (np.abs(acc) + root)
            whole = np.minimum(whole, typical + steps)
        found = alpha * whole
    if product and not scaling.plain:
        times = (0.0 if scaling.c is None else 1.0) + (0.0 if is_power(alpha) else 1.0)
        once = product.unit * (times * alpha * np.abs(acc) + (not is_power(scaling.beta)) * scaling.added)
        found = once + 4.0 * product.half * many * max(1.0, alpha) + (0.0 if found is None else found)
    return found


def _root_square(q: Question, a: Reals, b: Reals) -> Reals:
    """R = sqrt(sum (a b)**2); float64 inputs are scaled first, so that their squares stay in range."""
    if q.case.dtype != "float64":
        return np.sqrt((a * a) @ (b * b))
    top_a, top_b = np.abs(a).max(initial=0.0) or 1.0, np.abs(b).max(initial=0.0) or 1.0
    return np.asarray(np.sqrt((a / top_a) ** 2 @ (b / top_b) ** 2) * top_a * top_b)


def _sum_error(q: Question, k: int, out: Reals, total: Reals, root: Reals) -> Reals:
    """Error of the sum in float32, or the declared accumulator if coarser; parts are added in float32 all the same."""
    narrow = q.numerics.accumulate in {"float16", "bfloat16"}
    plain = sum_error(q, k, out, total, root, products=narrow or q.case.dtype in {"float32", "float64"})
    if q.numerics.accumulate not in TENSOR_CORES:
        return plain
    steps = aligned_steps(q, k)
    blocks = steps * np.minimum(total, 0.5 * np.abs(out) + 1.25 * root) if q.iid else steps * total
    return np.maximum(plain, blocks)


def aligned_more(q: Question, size_a: Reals, size_b: Reals) -> Reals | None:
    """The growth of |a| @ |b| in a tensor core that aligns the products; None if it is none.

    Subnormal operands are not normalized first: to it their products are as large as those of the least normal number
    (numerics.md 2.1).
    """
    if not (least := least_aligned(q)):
        return None
    low_a, low_b = ((x > 0.0) & (x < least) for x in (size_a, size_b))
    if not low_a.any() and not low_b.any():
        return None
    more_a, more_b = np.where(low_a, least - size_a, 0.0), np.where(low_b, least - size_b, 0.0)
    a, b = (np.where(np.isfinite(x), x, 0.0) for x in (size_a, size_b))
    return np.asarray(np.minimum((a + more_a) @ more_b + more_a @ b, LIMIT))


def least_aligned(q: Question) -> float:
    """The number as which a tensor core aligns subnormal operands; 0 if the products are none of a tensor core's."""
    if q.numerics.accumulate not in TENSOR_CORES:
        return 0.0
    return max(format_of(t.dtype).tiny for t in q.case.tensors.values() if format_of(t.dtype).is_float)


def aligned_steps(q: Question, k: int) -> float:
    """The loss of a tensor core's aligned blocks in a sum of k products' magnitudes, relative to it."""
    bits, block = TENSOR_CORES[q.numerics.accumulate]
    block = block if tf32_of(q) == "none" else block // 2
    step = (2.0**-13 if bits == 13 else 2.0**-23) + (block + 1) * 2.0**-bits
    return (math.ceil(k / block) + 1) * step


def _operand_error(q: Question, out: Reals, total: Reals, root: Reals) -> Reals:
    u = TF32_UNIT[tf32_of(q)]
    if not q.iid:
        return np.asarray((2.0 * u + u * u) * total)
    bias = 2.0 * u if tf32_of(q) == "rz" else 0.0
    return np.asarray(bias * np.abs(out) + LAMBDA * 0.85 * u * root)


def _oracle_error(k: int, out: Reals, total: Reals) -> Reals:
    """Error of the reference itself, for a float64 kernel."""
    unit = float(np.finfo(np.longdouble).eps) / 2.0
    return np.asarray(2.0**-53 * np.abs(out) + (k + 1) * unit * total)


def _underflow_error(q: Question, size_a: Reals, size_b: Reals, scaling: Scaling) -> Reals | float:
    """Products below the accumulator's range, and with ftz also subnormal operands taken for zero."""
    flat, alpha = _flat_error(q, size_a.shape[1], scaling), abs(scaling.alpha)
    least = least_operand(q, alpha)
    if not least:
        return flat
    lost_a, lost_b = np.where(size_a < least, size_a, 0.0), np.where(size_b < least, size_b, 0.0)
    if not lost_a.any() and not lost_b.any():
        return flat
    return np.asarray(flat + alpha * (lost_a @ size_b + size_a @ lost_b))


def _flat_error(q: Question, k: int, scaling: Scaling) -> float:
    """Error of k products, and of what becomes of their sum, that fall below the accumulator's range."""
    acc = _accumulator(q)
    flushes = k * max(1.0, abs(scaling.alpha)) + (0.0 if scaling.plain else 4.0 + abs(scaling.beta))
    return flushes * (acc.tiny if q.tiny else acc.eta)


def least_operand(q: Question, alpha: float) -> float:
    """Operands below it may be taken for zero; 0 where none are."""
    if not q.tiny or format_of(q.case.dtype).eta >= q.tiny or not alpha:
        return 0.0
    return _least(q, alpha)


def _least(q: Question, alpha: float) -> float:
    """The smallest operand that is surely not flushed, also if alpha is multiplied into it first."""
    return q.tiny / min(1.0, alpha)


def _accumulator(q: Question) -> Format:
    if q.numerics.accumulate in {"float16", "bfloat16"}:
        return format_of(q.numerics.accumulate)
    return compute_format(q.case.dtype)


def exact_bits(q: Question) -> int:
    """The declared accumulator holds every multiple of g up to 2**this g."""
    return min(_accumulator(q).precision, TENSOR_CORES.get(q.numerics.accumulate, (99, 0))[0] + 1)


def _is_exact(q: Question, a: Reals, b: Reals, total: Reals, scaling: Scaling) -> NDArray[np.bool_]:
    """Where all summands are multiples of g and S <= 2**B g: each partial sum in any order is exact (numerics.md 4)."""
    acc, bits, alpha = _accumulator(q), exact_bits(q), abs(scaling.alpha)
    grain_a, grain_b = grain(a, axis=1), grain(b, axis=0)
    both = grain_a * grain_b
    smallest = np.minimum(np.minimum(grain_a, grain_b), both) * min(1.0, alpha or 1.0)
    least_kept = max(q.tiny, acc.tiny) if q.tiny else acc.eta
    exact = np.asarray((smallest >= least_kept) & (total <= np.minimum(2.0**bits * both, acc.max)))
    if not scaling.plain:
        least = np.minimum(alpha * both if alpha else np.inf, scaling.grain)
        exact &= (least >= least_kept) & (scaling.reach(total) <= np.minimum(2.0**bits * least, acc.max))
    if tf32_of(q) != "none":
        exact &= _fits_tf32(a, grain_a, axis=1) & _fits_tf32(b, grain_b, axis=0)
    return exact


def _fits_tf32(x: Reals, grain: Reals, axis: int) -> NDArray[np.bool_]:
    return np.asarray(np.abs(x).max(axis=axis, keepdims=True, initial=0.0) <= 2.0**11 * grain)


def _accept(q: Question, a: Reals, b: Reals, out: Reals, total: Reals, scaling: Scaling) -> NDArray[np.uint8] | None:
    parts, product = q.rounding("parts", alone=True), q.rounding("product")
    limit = min(_accumulator(q).max, parts.top, np.inf if scaling.plain else product.top) * 0.999
    top = np.maximum(total, scaling.reach(total))
    beyond = _beyond_tf32(a, 1) | _beyond_tf32(b, 0) if tf32_of(q) == "rn" else np.zeros((), np.bool_)
    tame = not total.size or (top.max() <= limit and not beyond.any())  # the comparison is false for NaN
    if tame and not scaling.unread.any():
        return None
    mask = classes_of(out)
    mask[np.broadcast_to(scaling.unread, out.shape)] |= NAN
    finite_a, finite_b = (np.where(np.isfinite(x), np.abs(x), 0.0) for x in (a, b))
    over = (finite_a @ finite_b > limit) | beyond
    free = ~np.isnan(out) & (scaling.reach(finite_a @ finite_b) > limit)
    if scaling.alpha:
        free |= ~np.isnan(out) & over
    else:
        mask[over | ~np.isfinite(total)] |= NAN
    from_finite = np.isfinite(a).all(axis=1, keepdims=True) & np.isfinite(b).all(axis=0, keepdims=True)
    if scaling.c is not None and scaling.beta:
        from_finite = from_finite & np.isfinite(scaling.c)
    mask[free & ~from_finite] |= NAN
    up, down = _signs(a, b, scaling)
    mask[free & from_finite & up] |= PINF
    mask[free & from_finite & down] |= NINF
    mask[free & from_finite & ((up & down) | beyond)] |= NAN
    if q.tiny and scaling.alpha:  # Inf times an operand flushed to zero
        least = _least(q, abs(scaling.alpha))
        flushed = np.where(np.abs(a) < least, 0.0, a) @ np.where(np.abs(b) < least, 0.0, b)
        mask[np.isnan(flushed)] |= NAN
    return mask


def _signs(a: Reals, b: Reals, scaling: Scaling) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark where there are positive summands, and negative ones: a sum of one sign overflows to one side."""
    a, b = np.sign(a) * np.sign(scaling.alpha), np.sign(b)
    signed, count = a @ b, np.abs(a) @ np.abs(b)
    up, down = count + signed > 0, count - signed > 0
    if scaling.c is not None and scaling.beta:
        added = np.sign(scaling.c) * np.sign(scaling.beta)
        up, down = up | (added > 0), down | (added < 0)
    return up, down


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
