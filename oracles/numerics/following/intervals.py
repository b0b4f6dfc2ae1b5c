"""Rules from spans to spans: what rounding can do to one operation (numerics.md 6).

A span is a number as the reference has it, and the limits between which a kernel's may lie. Limits are Inf where the
kernel may overflow, and both are where it may have anything, NaN included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from kernel_assay.corpus.formats import Array, compute_format, format_of
from kernel_assay.oracles.numerics.bounds import exp_error, quotient_error, range_of, sine_error
from kernel_assay.oracles.spec.contract import Question, Reals

SUMMING = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    **dict.fromkeys(("volta", "ampere", "hopper", "blackwell"), 2.0**-20),
    "fp8_hopper": 2.0**-7,
}
"""Error of one addition in a declared accumulator; on a tensor core of one product, whatever its blocks."""
OPERANDS = {"none": 0.0, "rn": 2.0**-11, "rz": 2.0**-10}
"""Error of an operand of a product under tf32."""
TANH = 2.0**-10
"""Error of a tanh that is declared to be approximate."""

VANISHING = 4.0
"""How many times the smallest normal number an exponential may be that a kernel has 0 for."""


def words(text: str) -> frozenset[str]:
    """Names of functions, one after the other."""
    return frozenset(text.split())


EXACT = words("""
    negative positive absolute fabs sign copysign maximum minimum fmax fmin floor ceil rint trunc conjugate ldexp
    heaviside
""")
"""Functions that round nothing."""
ONCE = frozenset({"add", "subtract", "multiply", "square"})
"""Functions of one correct rounding; all others are allowed 4u, as exp is (numerics.md 2.2)."""
POLES = frozenset({"divide", "floor_divide", "remainder", "fmod", "reciprocal"})
"""Functions without limits where the last operand may be 0."""


class Span(NamedTuple):
    """Three arrays of one shape, with low <= value <= high wherever value is a number."""

    value: Array
    low: Array
    high: Array

    @property
    def exact(self) -> bool:
        """Whether there is no error at all."""
        return bool(self.sure.all())

    @property
    def sure(self) -> Array:
        """Mark where there is no error."""
        return np.asarray(((self.low == self.value) & (self.high == self.value)) | self.nowhere)

    @property
    def nowhere(self) -> Array:
        """Mark where it is NaN for sure."""
        return np.isnan(self.value) & np.isnan(self.low) & np.isnan(self.high)

    @property
    def radius(self) -> Array:
        """The largest distance from the value to a limit; 0 for what is NaN or a sure Inf."""
        far = np.fmax(self.high - self.value, self.value - self.low)
        return np.where(np.isnan(far), 0.0, far)


@dataclass(slots=True)
class Log:
    """What happens while a formula is followed."""

    forms: list[str] = field(default_factory=list)
    """Forms without cancellation that were taken instead (oracles/numerics/following/stable_forms.py)."""
    stores: int = 0
    """How often elements were assigned."""


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of a kernel, as it is declared; all errors are relative."""

    question: Question
    unit: float
    """Of one operation: the unit roundoff of the coarsest type declared."""
    sums: float
    """Of one addition in a sum."""
    operands: float
    """Of an operand of a sum of products."""
    step: float
    """Smallest number there is."""
    top: float
    """Largest number there is."""
    sums_top: float
    sums_step: float
    """Smallest number of a narrow accumulator, else 0: sums of numbers of its own type have no other."""
    narrow: np.dtype[Any]
    """The type in which the kernel holds its constants."""
    log: Log = field(default_factory=Log, compare=False)

    @classmethod
    def of(cls, q: Question) -> Arithmetic:
        """Raises UsageError for an intermediate of a type that is not known."""
        n = q.numerics
        plain = compute_format(q.case.dtype)
        formats = [plain, *(format_of(n.intermediate(t, q.case.dtype)) for t in n.intermediates)]
        unit, top = max(f.unit for f in formats), range_of(q)[1]
        narrow = format_of(n.accumulate) if n.accumulate in {"float16", "bfloat16"} else None
        return cls(
            question=q,
            unit=unit,
            sums=max(unit, SUMMING.get(n.accumulate, 0.0)),
            operands=OPERANDS[n.tf32],
            step=max(f.eta for f in formats),
            top=top,
            sums_top=narrow.max if narrow else top,
            sums_step=narrow.eta if narrow else 0.0,
            narrow=plain.dtype,
        )

    def error_of(self, name: str, spans: Sequence[Span]) -> Reals | float:
        """Rounding error of one of numpy's elementwise functions."""
        if name in {"exp", "exp2", "expm1"}:
            size = np.minimum(np.abs(spans[0].value), 1e4).astype(np.float64)
            return exp_error(self.question, size) + 4.0 * (self.unit - self.question.u)  # a polynomial has its own
        if name == "tanh" and self.question.numerics.tanh == "approx":
            return TANH
        if self.question.numerics.fast_math and (fast := _fast_error(self.question, name, spans)) is not None:
            return fast
        return (0.0 if name in EXACT else 1.0 if name in ONCE else 4.0) * self.unit

    def rounded(self, span: Span, error: Reals | float) -> Span:
        """The limits moved apart by a relative error and the smallest step; 0 stays 0, and no sign changes."""
        if not np.any(error):
            return self.within_range(span)
        low, high = (limit + side * error * _size(limit) for limit, side in ((span.low, -1.0), (span.high, 1.0)))
        low = np.where(span.low > 0, np.maximum(low - self.step, 0.0), np.where(low == 0, low, low - self.step))
        high = np.where(span.high < 0, np.minimum(high + self.step, 0.0), np.where(high == 0, high, high + self.step))
        return self.within_range(Span(span.value, low, high))

    def within_range(self, span: Span) -> Span:
        """The span within the range: what is too large for the arithmetic may be Inf, what is subnormal may be 0."""
        low = np.where(span.low < -self.top, -np.inf, span.low)
        high = np.where(span.high > self.top, np.inf, span.high)
        if tiny := self.question.tiny:
            low = np.where((low > 0) & (low < tiny), 0.0, low)
            high = np.where((high < 0) & (high > -tiny), 0.0, high)
        return Span(span.value, low, high)

    def constant(self, value: Array) -> Span:
        """The span of a number that does not come from the inputs; a kernel has it in its own type."""
        if value.dtype.kind != "f":
            return Span(value, value, value)
        near = value.astype(self.narrow).astype(value.dtype)
        return Span(value, np.fmin(value, near), np.fmax(value, near))


def _fast_error(q: Question, name: str, spans: Sequence[Span]) -> Reals | float | None:
    """Relative error of functions that fast math makes coarser (numerics.md 2.2)."""
    x = spans[0].value
    if name in {"divide", "reciprocal"}:
        return 4.0 * q.u + quotient_error(q)
    if name in {"sin", "cos"}:
        return sine_error(q, x) / _nonzero(np.sin(x) if name == "sin" else np.cos(x))
    if name in {"log", "log2", "log10"}:
        return 4.0 * q.u + 2.0**-21 / _nonzero(np.log2(np.abs(x)))
    if name == "power":
        exponent = spans[1].value * np.log(_nonzero(x))
        return 12.0 * q.u + 6.0 * q.u * np.minimum(_size(exponent), 1e4)
    return None


def _nonzero(x: Array) -> Array:
    """Magnitude, something very small instead of 0."""
    return np.maximum(np.abs(x), np.finfo(np.float64).tiny)


def _size(x: Array) -> Array:
    """Magnitude, 0 for what is not finite: its rounding is no number."""
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def freed(span: Span, strange: Array | bool) -> Span:
    """The span without limits where it is strange."""
    if not np.any(strange):
        return span
    return Span(span.value, np.where(strange, -np.inf, span.low), np.where(strange, np.inf, span.high))


def elementwise(a: Arithmetic, name: str, function: Callable[..., Array], spans: Sequence[Span]) -> Span:
    """Any function of single elements: its values at the ends of all operands, rounded.

    A function that is not monotone between the ends is taken at its value too; what has a pole there has no limits.
    """
    value = function(*(s.value for s in spans))
    whole = value.dtype.kind in "biu"
    if whole and all(s.exact for s in spans):
        return Span(value, value, value)
    ends = product(*((s.value,) if s.exact else (s.low, s.high) for s in spans))
    corners = [function(*corner) for corner in ends]
    low, high = reduce(np.fmin, corners, value), reduce(np.fmax, corners, value)
    if name in {"equal", "not_equal"}:
        unsure = (spans[0].low <= spans[1].high) & (spans[1].low <= spans[0].high) & ~(spans[0].sure & spans[1].sure)
        low, high = low & ~unsure, high | unsure
    if name in {"absolute", "fabs", "square", "power"}:
        low = np.where((spans[0].low < 0) & (spans[0].high > 0), np.fmin(low, 0.0), low)
    if value.dtype.kind == "b":
        return Span(value, low, high)
    strange = _strange([np.isnan(x) for x in (value, *corners)], spans) | _pole(name, spans) | _anything(spans)
    span = Span(value, low, high)
    span = span if whole else a.rounded(span, a.error_of(name, spans))
    if name in PARTICULAR:
        span = PARTICULAR[name](a, span, spans)
    return freed(_vanishing(a, span) if name in {"exp", "exp2"} else span, strange)


def _periodic(a: Arithmetic, span: Span, spans: Sequence[Span]) -> Span:
    """A sine or cosine, which turns between the ends of an operand that is not sure."""
    del a
    radius = np.where(np.isfinite(spans[0].value), spans[0].radius, 0.0)
    far = np.where(radius > TURNS, radius, 0.0)
    low, high = np.maximum(span.value - far, -1.0), np.minimum(span.value + far, 1.0)
    return Span(span.value, np.fmin(span.low, low), np.fmax(span.high, high))


def _halves(a: Arithmetic, span: Span, spans: Sequence[Span]) -> Span:
    """A hyperbolic function; many halve the exponential when it has overflowed."""
    over = np.isfinite(span.value) & (2.0 * np.abs(span.value) > a.top) & np.isfinite(spans[0].value)
    low = np.where(over & (span.value < 0), -np.inf, span.low)
    return Span(span.value, low, np.where(over & (span.value > 0), np.inf, span.high))


def _added(a: Arithmetic, span: Span, spans: Sequence[Span]) -> Span:
    """The logarithm of a sum of two exponentials: the larger one and log1p, which cancel, each with its own error."""
    one, other = (np.where(np.isfinite(s.value), s.value, 0.0) for s in spans)
    apart = np.minimum(np.abs(one - other), 1e4)
    beside = np.where(np.isfinite(span.value), span.value - np.maximum(one, other), 0.0)
    error = (exp_error(a.question, apart) + (8.0 + apart) * a.unit) * np.abs(beside)
    error = np.where(np.isfinite(spans[0].value) & np.isfinite(spans[1].value), error, 0.0)
    return Span(span.value, span.low - error, span.high + error)


TURNS = 2.0**-6
"""Radius of an angle from which on it may pass a turning point that shows."""
PARTICULAR: dict[str, Callable[[Arithmetic, Span, Sequence[Span]], Span]] = {
    **dict.fromkeys(("sin", "cos"), _periodic),
    **dict.fromkeys(("sinh", "cosh"), _halves),
    **dict.fromkeys(("logaddexp", "logaddexp2"), _added),
}
"""What some functions do besides rounding."""


def _vanishing(a: Arithmetic, span: Span) -> Span:
    """An exponential's limits; where subnormals are flushed, fast ones are 0 a little before (numerics.md 2.2)."""
    return span._replace(low=np.where(span.low < VANISHING * a.question.tiny, np.fmin(span.low, 0.0), span.low))


def _anything(spans: Sequence[Span]) -> Array:
    """Mark where an operand may be anything: so may be what comes of it, NaN among it."""
    return reduce(np.logical_or, [np.isneginf(s.low) & np.isposinf(s.high) for s in spans])


def _pole(name: str, spans: Sequence[Span]) -> Array | bool:
    """Mark where a divisor may be 0, but need not be."""
    if name not in POLES and name != "power":
        return False
    x = spans[0] if name == "power" else spans[-1]
    divides = spans[1].low < 0 if name == "power" else True
    return np.asarray((x.low <= 0) & (x.high >= 0) & (x.low < x.high) & divides)


def _strange(lost: Sequence[Array], spans: Sequence[Span]) -> Array:
    """NaN at one of the corners; at all of them it is sure only if the operands are, for Inf times 0 hides numbers."""
    some, every = reduce(np.logical_or, lost), reduce(np.logical_and, lost)
    if not some.any():
        return some
    sure = reduce(np.logical_and, [s.sure for s in spans]) | reduce(np.logical_or, [s.nowhere for s in spans])
    return np.asarray(some & ~(every & sure))


def summed(a: Arithmetic, function: Callable[[Array], Array], span: Span) -> Span:
    """A sum in any order: n - 1 roundings of every term, and Inf where the terms of one sign overflow."""
    value = function(span.value)
    if value.dtype.kind in "biu":
        return Span(value, function(span.low), function(span.high))
    count = np.maximum(function(np.ones(span.value.shape)) - 1.0, 0.0)
    low = function(span.low) - count * (a.sums * function(_size(span.low)) + a.sums_step)
    high = function(span.high) + count * (a.sums * function(_size(span.high)) + a.sums_step)
    low = np.where(function(np.maximum(-span.low, 0.0)) > a.sums_top, -np.inf, low)
    high = np.where(function(np.maximum(span.high, 0.0)) > a.sums_top, np.inf, high)
    strange = (np.isnan(low) | np.isnan(high)) & ~np.isnan(value)
    return freed(a.within_range(Span(value, low, high)), strange)


def of_shares(a: Arithmetic, span: Span, exponent: float) -> Span:
    """A quotient of exponentials, whose exponents a kernel may make smaller first, by a difference that is rounded.

    exponent: the largest magnitude of an exponent, which the largest is taken from.
    """
    error = 2.0 * a.unit * exponent * _size(span.value)
    return a.within_range(Span(span.value, np.maximum(span.low - error, np.minimum(span.low, 0.0)), span.high + error))


def multiplied(
    a: Arithmetic, function: Callable[..., Array], spans: Sequence[Span], count: Callable[..., Array] | None = None
) -> Span:
    """A sum of products, linear in each operand: errors of the operands, one rounding of each product, and of the sum.

    count: how many roundings there are, from ones; the function itself unless it multiplies all its elements.
    """
    values = [s.value for s in spans]
    value = function(*values)
    if value.dtype.kind in "biu":
        return Span(value, value, value)
    sizes = [_size(v) for v in values]
    reach = function(*(size + s.radius for size, s in zip(sizes, spans, strict=True)))
    terms = (count or function)(*(np.ones(v.shape) for v in values))
    error = (reach - function(*sizes)) + (a.sums * terms + 2.0 * a.operands) * reach
    error = error + terms * max(a.step, a.sums_step, a.question.tiny)
    wide = ~(reach <= a.sums_top)  # also a NaN, from 0 times a limit that is Inf
    span = freed(Span(value, value - error, value + error), wide)
    if not (all(np.isfinite(v).all() for v in values) or all(s.exact for s in spans)):
        sure = np.isnan(function(*(np.where(s.nowhere, np.nan, 1.0) for s in spans)))
        zero = [np.where((s.low <= 0) & (s.high >= 0) & ~s.sure, 0.0, s.value) for s in spans]  # 0 times Inf
        ends = [function(*(s[side] for s in spans)) for side in range(3)] + [function(*zero)]
        span = freed(span, reduce(np.logical_or, map(np.isnan, ends)) & ~sure)
    return a.within_range(span)


def chosen(condition: Span, yes: Span, no: Span) -> Span:
    """One or the other; between the limits of both, where the condition may be either."""
    taken, always, ever = (part.astype(np.bool_) for part in condition)
    unsure = ever & ~always
    low = np.where(unsure, np.fmin(yes.low, no.low), np.where(taken, yes.low, no.low))
    high = np.where(unsure, np.fmax(yes.high, no.high), np.where(taken, yes.high, no.high))
    span = Span(np.where(taken, yes.value, no.value), low, high)
    return freed(span, unsure & (np.isnan(yes.value) != np.isnan(no.value)))


def tried(a: Arithmetic, function: Callable[..., Array], spans: Sequence[Span]) -> Span:
    """A function about which nothing is known, at neighbours of its operands and in the kernel's own type.

    The largest change is multiplied by the longest axis: that many operations may each do as much.
    """
    value = function(*(s.value for s in spans))
    change, lost = np.zeros(value.shape), np.zeros(value.shape, np.bool_)
    for operands in _neighbours(a, spans):
        near = function(*operands)
        change, lost = np.fmax(change, np.abs(near - value)), lost | (np.isnan(near) & np.isfinite(value))
    extent = max(n for s in spans for n in (1, *s.value.shape))
    error = extent * (change + a.unit * np.abs(value))
    span = Span(value, value - error, value + error)
    return freed(a.within_range(span), lost | (np.isnan(error) & ~np.isnan(value)))


def _neighbours(a: Arithmetic, spans: Sequence[Span]) -> list[list[Array]]:
    found = [[s.low for s in spans], [s.high for s in spans], [s.value.astype(a.narrow) for s in spans]]
    return found + [[s.value * (1.0 + a.unit * signs(s.value.shape, period)) for s in spans] for period in (2, 3)]


def signs(shape: tuple[int, ...], period: int) -> Array:
    """Signs of changes that are not alike in rows, nor in columns, next to one another: one of a period is down."""
    places = sum(np.indices(shape, sparse=True), np.zeros(shape, np.int64))
    return np.where(places % period, 1.0, -1.0)
