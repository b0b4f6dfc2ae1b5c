"""Products of several factors, which a kernel multiplies in any order: a part of one may overflow, or be too small.

x * r * w is small where x * w is too large for any number, or where r * w is subnormal and has lost its digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.following.intervals import Arithmetic, Span, freed

MOST = 12
"""Factors that are looked at together."""


class Factor(NamedTuple):
    """Numbers that something is multiplied by, or divided by."""

    span: Span
    divides: bool
    moves: tuple[tuple[tuple[int, ...], Callable[[Array], Array]], ...] = ()
    """Where its elements have gone since: the shape of the product that was moved, and how."""

    def moved(self, array: Array) -> Array:
        """Move something about its elements to where those are now."""
        for shape, move in self.moves:
            array = move(np.ascontiguousarray(np.broadcast_to(array, shape)))
        return array

    def logs(self) -> Array:
        """Logarithms of its magnitude, to the base 2; 0 for 0 and for what is not finite."""
        size = np.abs(np.asarray(self.span.value, np.float64))
        logs: Array = np.log2(np.where(np.isfinite(size) & (size > 0), size, 1.0))
        return self.moved(-logs if self.divides else logs)

    def ends(self) -> tuple[float, float]:
        """The least and the largest logarithm, or 0."""
        size = np.abs(np.asarray(self.span.value, np.float64))
        plain = np.isfinite(size) & (size > 0)
        ends = (size.min(initial=np.inf, where=plain), size.max(initial=0.0, where=plain))
        if not ends[1]:
            return 0.0, 0.0
        low, high = (float(np.log2(end)) for end in ends)
        return (-high, -low) if self.divides else (low, high)

    def may_vanish(self) -> Array:
        """Mark where it may be 0, or something may be divided by Inf."""
        _, low, high = self.span
        zero = np.isinf(low) | np.isinf(high) if self.divides else (low <= 0) & (high >= 0)
        return self.moved(np.asarray(zero))


class Product(NamedTuple):
    """The factors that a number is made of."""

    factors: tuple[Factor, ...]
    stores: int
    """How many elements had been assigned by then: factors may be others after the next one."""

    def moved(self, move: Callable[[Array], Array], shape: tuple[int, ...]) -> Product:
        """The product whose elements were moved. shape: what it had."""
        factors = (one._replace(moves=(*one.moves, (shape, move))) for one in self.factors)
        return self._replace(factors=tuple(factors))


class Operand(Protocol):
    """A span that may be a product."""

    span: Span
    product: Product | None


def product_of(name: str, operands: Sequence[Operand], stores: int) -> Product | None:
    """Find the factors of what an operation makes; None, if it makes no product, or one of too many."""
    if name not in {"multiply", "divide", "reciprocal", "square", "negative"}:
        return None
    first, last = _factors(operands[0], stores), _factors(operands[-1], stores)
    inverse = tuple(one._replace(divides=not one.divides) for one in last)
    made = {
        "multiply": (*first, *last),
        "divide": (*first, *inverse),
        "reciprocal": inverse,
        "square": (*first, *first),
        "negative": first,
    }[name]
    return Product(made, stores) if len(made) <= MOST else None


def _factors(x: Operand, stores: int) -> tuple[Factor, ...]:
    if x.product is not None and x.product.stores == stores:
        return x.product.factors
    return (Factor(x.span, divides=False),)


def in_any_order(a: Arithmetic, span: Span, product: Product | None) -> Span:
    """The span of a product, whichever of its factors are multiplied first."""
    if product is None or len(product.factors) < 2 or span.value.dtype.kind != "f":
        return span
    most, least = np.log2(float(a.top)), np.log2(max(a.step / (2.0 * a.unit), a.question.tiny))
    ends = [factor.ends() for factor in product.factors]
    if sum(max(high, 0.0) for _, high in ends) <= most and sum(min(low, 0.0) for low, _ in ends) >= least:
        return span
    logs = [np.broadcast_to(factor.logs(), span.value.shape) for factor in product.factors]
    up, down = (sum(function(x, 0.0) for x in logs) for function in (np.maximum, np.minimum))
    divisors = [x for x, factor in zip(logs, product.factors, strict=True) if factor.divides]
    value, low, high = span
    step = len(logs) * max(a.step, a.question.tiny)
    lost = down < least
    with np.errstate(all="ignore"):
        error = np.where(lost, step * np.exp2(np.minimum(up, 1000.0)), 0.0)
        vanishes, share = _below_the_line(divisors, step, most, least)
        error = error + share * np.abs(value)
        over = (up > most) | (share > 0.5)
        below = np.where(vanishes & (value > 0), 0.0, np.where(over & (value < 0), -np.inf, low - error))
        above = np.where(vanishes & (value < 0), 0.0, np.where(over & (value > 0), np.inf, high + error))
    # What is lost keeps its sign.
    below = np.where(low >= 0, np.maximum(below, 0.0), below)
    above = np.where(high <= 0, np.minimum(above, 0.0), above)
    numbers = np.isfinite(value) & (value != 0)
    made = Span(value, np.where(numbers, np.fmin(low, below), low), np.where(numbers, np.fmax(high, above), high))
    # 0 times Inf: where another factor is 0, or what is too small is multiplied by what is too large, or by Inf.
    zero = reduce(np.logical_or, [factor.may_vanish() for factor in product.factors])
    return freed(made, (over & (zero | lost)) | (np.isinf(value) & lost))


def _below_the_line(divisors: Sequence[Array], step: float, most: float, least: float) -> tuple[Array, Array]:
    """Say what a product of divisors does: whether it may be Inf, and its relative error where it is too small.

    divisors: logarithms of their reciprocals.
    """
    none = np.zeros(())
    if len(divisors) < 2:
        return none > 0, none
    large, small = (sum((function(x, 0.0) for x in divisors), none) for function in (np.minimum, np.maximum))
    return np.asarray(large < -most), np.where(small > -least, 2.0 * step * np.exp2(np.minimum(small, 1000.0)), 0.0)
