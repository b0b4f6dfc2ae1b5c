"""An arithmetic that any honest kernel may have: every choice that a compiler or a library makes is made by chance.

Sums run in a random order, products are fused into sums or not, quotients are products with a reciprocal or not, roots,
quotients and functions are off by one more unit in the last place than they need be, subnormal numbers are flushed or
not. The choices follow from a seed and the number of operations before, never from values, and a function is off by the
same at the same argument; so what is made twice is made alike, also of inputs that are scaled by a power of two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[Any]
"""Of the compute type, float32 or float64."""

LANES = 1 << 15
"""Numbers that are added side by side at most."""


class Value:
    """Numbers of the compute type. One that is a product remembers its factors, and a sum may fuse with it."""

    __array_ufunc__ = None

    def __init__(self, machine: Machine, data: Reals, factors: tuple[Reals, Reals] | None = None) -> None:
        self.machine, self.data, self.factors = machine, data, factors

    def __mul__(self, other: Value | float) -> Value:
        a, b = self.data, self.machine.value(other).data
        return Value(self.machine, self.machine.kept(a * b), (a, b))

    def __add__(self, other: Value | float) -> Value:
        return self.machine.sum_of(self, self.machine.value(other))

    def __neg__(self) -> Value:
        return Value(self.machine, -self.data, self.factors and (-self.factors[0], self.factors[1]))

    def __sub__(self, other: Value | float) -> Value:
        return self + -self.machine.value(other)

    def __rsub__(self, other: float) -> Value:
        return -self + other

    def __truediv__(self, other: Value | float) -> Value:
        return self.machine.quotient(self, self.machine.value(other))

    def __rtruediv__(self, other: float) -> Value:
        return self.machine.value(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, index: Any) -> Value:
        factors = self.factors and tuple(np.broadcast_to(f, self.data.shape)[index] for f in self.factors)
        return Value(self.machine, self.data[index], factors)

    def along(self, move: Callable[[Reals], Reals]) -> Value:
        """The same numbers in another shape or order."""
        return Value(self.machine, move(self.data), self.factors and (self._moved(0, move), self._moved(1, move)))

    def _moved(self, side: int, move: Callable[[Reals], Reals]) -> Reals:
        assert self.factors
        return move(np.broadcast_to(self.factors[side], self.data.shape))

    @property
    def rounded(self) -> Value:
        """What a store and a load leave of it: no factors."""
        return Value(self.machine, self.data)

    def top(self) -> Value:
        """The largest along the last axis, -Inf of nothing."""
        return Value(self.machine, self.data.max(axis=-1, keepdims=True, initial=-np.inf))


class Machine:
    """One such arithmetic."""

    def __init__(self, kind: type[np.float32 | np.float64], seed: int, *, flush: bool) -> None:
        self.kind, self.flush = kind, flush
        self.random = np.random.default_rng(seed)
        self._salt = np.uint64(self.random.integers(1 << 62))
        self._wide = np.float64 if kind is np.float32 else np.longdouble
        self._tiny = np.finfo(kind).tiny

    def either(self) -> bool:
        """Toss a coin."""
        return bool(self.random.integers(2))

    def pick(self, *styles: str) -> str:
        """One of several ways to compute the same."""
        return styles[int(self.random.integers(len(styles)))]

    def kept(self, x: Reals) -> Reals:
        """What remains of results: subnormal ones may be flushed."""
        return np.where(np.abs(x) < self._tiny, x * self.kind(0), x) if self.flush else x

    def value(self, x: Any) -> Value:
        """Numbers of any type as those of this machine."""
        return x if isinstance(x, Value) else Value(self, self.kept(np.asarray(x).astype(self.kind)))

    # ---- sums and products -------------------------------------------------------------------------------------------

    def sum_of(self, a: Value, b: Value) -> Value:
        """Of two numbers; one that is a product may be fused into it."""
        for product, other in ((a, b), (b, a)):
            if product.factors is not None and self.either():
                return Value(self, self.fused(*product.factors, other.data))
        return Value(self, self.kept(a.data + b.data))

    def fused(self, a: Reals, b: Reals, c: Reals) -> Reals:
        """The sum a * b + c, rounded once (in some cases to the farther neighbour)."""
        if self.kind is np.float32:
            return self.kept((a.astype(np.float64) * b + c).astype(np.float32))
        product = a * b
        lost = _lost_of_product(a, b, product)
        found = product + c
        apart = found - product
        lost = lost + ((product - (found - apart)) + (c - apart))
        return self.kept(np.where(np.isfinite(lost), found + lost, found))

    def sum(self, x: Value) -> Value:
        """Along the last axis, which stays, in some order."""
        n = x.data.shape[-1]
        if n == 0:
            return self.value(np.zeros((*x.data.shape[:-1], 1)))
        if self.either():
            order = self.random.permutation(n) if self.either() else np.arange(n)[::-1]
            x = x.along(lambda some: some[..., order])
        if n > 3 and self.random.integers(3) == 0:  # parts, each in an order of its own
            at = int(self.random.integers(1, n))
            return self.sum(x.along(lambda some: some[..., :at])) + self.sum(x.along(lambda some: some[..., at:]))
        return self._pairwise(x) if self.either() else self._by_lanes(x)

    def _pairwise(self, x: Value) -> Value:
        while (n := x.data.shape[-1]) > 1:
            half = n // 2
            both = x.along(partial(_columns, 0, half)) + x.along(partial(_columns, half, 2 * half))
            rest = x.data[..., 2 * half :]
            x = Value(self, np.concatenate([both.data, rest], axis=-1))
        return x

    def _by_lanes(self, x: Value) -> Value:
        """One after the other, in some lanes side by side."""
        n, rows = x.data.shape[-1], max(1, x.data.size // max(1, x.data.shape[-1]))
        lanes = min(int(2 ** self.random.integers(6)), max(1, LANES // rows), n)
        steps = -(-n // lanes)
        fuse = x.factors is not None and self.either()
        x = x.along(lambda some: _padded(some, steps * lanes).reshape(*some.shape[:-1], steps, lanes))
        if not fuse and not self.flush:
            found = np.add.accumulate(x.data, axis=-2, dtype=self.kind)[..., -1, :]
            return self._pairwise(Value(self, found))
        found = x.data[..., 0, :]
        for step in range(1, steps):
            if fuse and x.factors:
                found = self.fused(x.factors[0][..., step, :], x.factors[1][..., step, :], found)
            else:
                found = self.kept(found + x.data[..., step, :])
        return self._pairwise(Value(self, found))

    def product(self, a: Value, b: Value) -> Value:
        """Of matrices (..., m, k) and (..., k, n), each element summed in the same order."""
        m, (k, n) = a.data.shape[-2], b.data.shape[-2:]
        if k * m * n * max(1, int(np.prod(a.data.shape[:-2]))) <= 8 * LANES:
            left, right = a.data[..., :, None, :], np.swapaxes(b.data, -1, -2)[..., None, :, :]
            left, right = np.broadcast_arrays(left, right)
            return self.sum(Value(self, self.kept(left * right), (left, right)))[..., 0]
        shape = np.broadcast_shapes(a.data.shape[:-2], b.data.shape[:-2])
        found, fuse = np.zeros((*shape, m, n), self.kind), self.either()
        for i in self.random.permutation(k) if self.either() else range(k):
            left, right = a.data[..., :, i, None], b.data[..., i, None, :]
            found = self.fused(left, right, found) if fuse else self.kept(found + self.kept(left * right))
        return Value(self, found)

    # ---- quotients, roots and functions ------------------------------------------------------------------------------

    def quotient(self, a: Value, b: Value, *, faithful: bool = False) -> Value:
        """A quotient, or a product with a reciprocal; faithful: exact where it can be."""
        if self.either():
            return self.near(a.data.astype(self._wide) / b.data, a.data, b.data, faithful=faithful)
        one = self.near(np.reciprocal(b.data.astype(self._wide)), b.data, faithful=faithful)
        return a * one

    def reciprocal_root(self, x: Value) -> Value:
        """The number 1 / sqrt(x), in one step or in two."""
        wide = x.data.astype(self._wide)
        if self.either():
            return self.near(1 / np.sqrt(wide), *_halved(x.data))
        return Value(self, self.kept(self.kind(1) / self.near(np.sqrt(wide), *_halved(x.data)).data))

    def root(self, x: Value) -> Value:
        """The square root."""
        return self.near(np.sqrt(x.data.astype(self._wide)), *_halved(x.data))

    def function(self, name: Callable[[Any], Any], x: Value) -> Value:
        """A function off by at most 1.5 units in the last place, and not at all where its value is 0 or 1."""
        return self.near(name(x.data.astype(self._wide)), x.data, places=True, faithful=True)

    def near(self, exact: Any, *arguments: Reals, faithful: bool = False, places: bool = False) -> Value:
        """A neighbour of a result, which one depends on the digits of its arguments; places: on their exponents too."""
        nearest = exact.astype(self.kind)
        digits = sum((_digits(x, places=places) for x in arguments), np.asarray(self._salt))
        side = _scrambled(digits) % np.uint64(3)
        off = np.nextafter(nearest, np.where(side == 1, self.kind(0), np.copysign(self.kind(np.inf), nearest)))
        stays = (side == 0) | ~np.isfinite(off) | (nearest == 0) | ~np.isfinite(nearest)
        stays |= faithful & (nearest == exact)
        return Value(self, self.kept(np.where(stays, nearest, off)))


def _columns(begin: int, end: int, some: Reals) -> Reals:
    return some[..., begin:end]


def _padded(x: Reals, n: int) -> Reals:
    return np.concatenate([x, np.zeros((*x.shape[:-1], n - x.shape[-1]), x.dtype)], axis=-1)


def _lost_of_product(a: Reals, b: Reals, product: Reals) -> Reals:
    """What rounding took from a product of float64 (Dekker, TwoProduct)."""
    (ah, al), (bh, bl) = _split(a), _split(b)
    return np.asarray(((ah * bh - product) + ah * bl + al * bh) + al * bl)


def _split(x: Reals) -> tuple[Reals, Reals]:
    scaled = x * np.float64(2**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _halved(x: Reals) -> tuple[Reals, Reals]:
    """Digits of a number and whether its exponent is odd: a root has the same digits four times as far."""
    _, exponent = np.frexp(x)
    return x, (exponent & 1).astype(x.dtype) + x.dtype.type(1)


def _digits(x: Reals, *, places: bool) -> NDArray[np.uint64]:
    """The significand of a number, without its sign; places: its exponent as well."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), np.abs(x), x.dtype.type(1)).astype(np.float64))
    found = (mantissa * 2.0**53).astype(np.uint64)
    return found + (exponent.astype(np.int64) & 0xFFFF).astype(np.uint64) if places else found


def _scrambled(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mixed bits of each (after splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB) >> np.uint64(33)
