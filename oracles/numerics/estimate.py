"""Budgets for contracts that give none: what rounding can do to the reference's own formula (numerics.md 6).

The formula runs once more on arrays of which every number carries the limits between which a kernel's may lie that does
the same operations in the declared arithmetic, sums in any order. How far the limits of an output are from the exact
answer, times the contract's factor, is E.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.numerics.bounds import classes_of, reference_error
from kernel_assay.oracles.numerics.following.interval_array import Followed, followed
from kernel_assay.oracles.numerics.following.intervals import Arithmetic, Span, freed
from kernel_assay.oracles.numerics.tf32_nans import lost_nans
from kernel_assay.oracles.spec.contract import ALL, INTERVAL, NAN, NINF, PINF, ZERO, Budget, Contract, Question, Reals

AMPLIFIED = 2.0**16
"""Times the smallest normal number: what is larger, though a flushed operand makes 0 of it, is no sum of such."""


@dataclass(frozen=True, slots=True)
class Spans:
    """A formula that was followed."""

    of: Mapping[str, Span]
    """By output."""
    forms: tuple[str, ...]
    """Where it cancels: the forms that were followed instead, whose values are the true ones."""


def spans_of(contract: Contract, q: Question) -> Spans:
    """Follow the formula from the inputs to the spans of each output.

    Raises UsageError if the reference does something that cannot be followed.
    """
    if contract.elsewhere is not None:
        limits = contract.elsewhere.limits(q.case, q.numerics)
        return Spans({name: Span(*three) for name, three in limits.items()}, ())
    a = Arithmetic.of(q)
    inputs = {name: array if contract.inputs[name].below else input_of(a, name) for name, array in q.inputs.items()}
    try:
        reference = contract.reference
        if isinstance(reference, FunctionType):
            reference = _Swap(_replacements(a)).function(reference)
        answer = reference(**inputs, **q.attrs)
        found = {name: followed(a, answer[name]).span for name in contract.outputs}
    except Exception as error:  # it has just run on plain arrays, so whatever comes up is about following it
        said = " ".join(str(error).split())
        raise UsageError(
            f"{contract.origin or contract.name}: no budget can be estimated, because the reference cannot be followed "
            f"({said}); write it with functions of numpy that take its inputs as they are, or give it a budget"
        ) from error
    return Spans(found, tuple(dict.fromkeys(a.log.forms)))


def settled(want: Reals, span: Span) -> Reals:
    """The exact answer, but 0 where it is NaN or Inf and a kernel may have a number: the budget accepts anything."""
    return np.where(np.isfinite(want) | _sure(want, span), want, 0.0)


def _sure(want: Reals, span: Span) -> Array:
    low, high = np.asarray(span.low, np.float64), np.asarray(span.high, np.float64)
    return np.asarray(((low == want) & (high == want)) | (np.isnan(low) & np.isnan(high) & np.isnan(want)))


def estimate(contract: Contract, q: Question, spans: Spans) -> dict[str, Budget]:
    """The budgets of all outputs."""
    specs, found = contract.output_specs(q.case), {}
    kept = spans_of(contract, replace(q, numerics=q.numerics.but(ftz=False))).of if _may_flush(q) else {}
    for name, whole in spans.of.items():
        flushed = _all_or_nothing(q, whole, kept.get(name, whole))
        span = Span(*(np.where(flushed, x, y) for x, y in zip(kept.get(name, whole), whole, strict=True)))
        made = _budget(q, span, q.want[name], contract.factor, has_inf=format_of(specs[name].dtype).has_inf)
        accept = classes_of(q.want[name]) if made.accept is None else made.accept
        found[name] = replace(made, accept=accept | flushed * np.uint8(ZERO)) if flushed.any() else made
    return {name: replace(budget, instead=spans.forms) for name, budget in found.items()} if spans.forms else found


def _may_flush(q: Question) -> bool:
    """Whether an input has a subnormal number, which a kernel may take for 0."""
    floats = [x for x in q.inputs.values() if format_of(x.dtype).is_float] if q.tiny else []
    return any(bool(((x != 0) & (np.abs(x) < q.tiny)).any()) for x in map(widened, floats))


def _all_or_nothing(q: Question, span: Span, kept: Span) -> Array:
    """Mark where a flushed operand makes 0 of a number that is far from it: between the two nothing is right.

    kept: the span where nothing is flushed. cbrt(1e-40) is 0 or 4.6e-14, not half of it, nor of another sign.
    """
    far = AMPLIFIED * q.tiny
    return np.asarray(((span.low <= 0.0) & (kept.low > far)) | ((span.high >= 0.0) & (kept.high < -far)))


def input_of(a: Arithmetic, name: str) -> Followed:
    """An input as the reference gets it, one width up; subnormal numbers may be taken for 0, and some NaN for Inf."""
    array, lost = a.question.inputs[name], lost_nans(a.question, name)
    if not format_of(array.dtype).is_float:
        return followed(a, array)
    array = widened(array, np.float64 if a.question.as_wide else np.longdouble)
    span = a.within_range(Span(array.copy(), array.copy(), array.copy()))
    return Followed(a, span if lost is None else freed(span, lost))


def widened(array: Array, widest: type[np.floating[Any]] = np.longdouble) -> Array:
    """Floats one width up: float64 as longdouble, narrower ones as float64; integers (indices, quants) as they are.

    widest: what float64 becomes.
    """
    fmt = format_of(array.dtype)
    if not fmt.is_float:
        return array
    return array.astype(widest if fmt.name == "float64" else np.float64)


def _budget(q: Question, span: Span, want: Reals, factor: float, *, has_inf: bool) -> Budget:
    low, high = np.asarray(span.low, np.float64), np.asarray(span.high, np.float64)
    below, above = np.where(np.isneginf(low), 0.0, want - low), np.where(np.isposinf(high), 0.0, high - want)
    error = (factor + q.as_wide) * np.maximum(np.maximum(below, above), 0.0)  # the reference's own, too
    error = np.where(error > 0, error + reference_error(q) * q.u * np.abs(want), error)
    mask = classes_of(want)
    mask[np.isfinite(want) & np.isposinf(high)] |= PINF
    mask[np.isfinite(want) & np.isneginf(low)] |= NINF
    free = np.where(np.isfinite(want), np.isnan(error) | (np.isposinf(high) & np.isneginf(low)), ~_sure(want, span))
    mask[free | (np.isfinite(want) & ~np.isfinite(np.asarray(span.value, np.float64)))] = ALL
    if not has_inf:
        mask[(mask & (PINF | NINF)) != 0] |= NAN
    error = np.where(mask == ALL, np.inf, np.where(np.isfinite(want), error, 0.0))
    return Budget(error, None if (mask == INTERVAL).all() else mask, estimated=True)


class _Swap:
    """Copies of functions, and of those they call beside them, whose numpy never makes plain arrays of what it gets."""

    def __init__(self, replaced: Mapping[str, Callable[..., Any]]) -> None:
        self._numpy = _Numpy(replaced)
        self._functions = {id(getattr(np, name)): instead for name, instead in replaced.items()}
        self._made: dict[int, Any] = {}

    def function(self, old: FunctionType) -> Any:
        """The copy of a function; what it closes over is copied too."""
        if id(old) not in self._made:
            self._made[id(old)] = old  # for a function that closes over itself
            cells = tuple(CellType(self._value(cell.cell_contents)) for cell in old.__closure__ or ())
            copy = FunctionType(old.__code__, self._names(old.__globals__), old.__name__, old.__defaults__, cells)
            copy.__kwdefaults__ = old.__kwdefaults__
            self._made[id(old)] = copy
        return self._made[id(old)]

    def _names(self, old: dict[str, Any]) -> dict[str, Any]:
        if id(old) not in self._made:
            new = self._made[id(old)] = dict(old)
            for name, value in old.items():
                if not isinstance(value, FunctionType) or value.__globals__ is old:
                    new[name] = self._value(value)
        names: dict[str, Any] = self._made[id(old)]
        return names

    def _value(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            return self.function(value)
        return self._numpy if value is np else self._functions.get(id(value), value)


class _Numpy(ModuleType):
    """Numpy, but for some functions."""

    def __init__(self, replaced: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__("numpy")
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _replacements(a: Arithmetic) -> dict[str, Callable[..., Any]]:
    """Functions that would make plain arrays of what is followed, or plain arrays into which it is then written."""
    makers: dict[str, Any] = {
        "zeros": np.zeros,
        "ones": np.ones,
        "empty": np.zeros,  # what nobody has written yet may as well be 0
        "full": np.full,
        "arange": np.arange,
        "linspace": np.linspace,
    }
    table: dict[str, Callable[..., Any]] = {name: partial(_made, a, make) for name, make in makers.items()}
    return table | dict.fromkeys(("array", "asarray", "asanyarray", "ascontiguousarray"), _kept)


def _made(a: Arithmetic, make: Callable[..., Array], *args: Any, **kwargs: Any) -> Any:
    array = make(*args, **kwargs)
    return array if array.dtype.kind == "b" else followed(a, array)


def _kept(x: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    if isinstance(x, list | tuple) and any(isinstance(part, Followed | list | tuple) for part in x):
        return np.stack([_kept(part, dtype) for part in x])
    if not isinstance(x, Followed):
        return np.asarray(x, dtype, *args, **kwargs)
    return x.copy() if dtype is None else x.astype(dtype)
