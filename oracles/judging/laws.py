"""Metamorphic relations: two runs of one subject, compared with one another; no oracle is needed (numerics.md 8)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.formats import Array, Format, compute_format, format_of
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.failure_mask import Mask, default_accept, failing, misclassed
from kernel_assay.oracles.judging.judge import MANY, RULES, Evidence, apart
from kernel_assay.oracles.judging.patterns import index_pattern, place_of
from kernel_assay.oracles.spec.contract import ALL, INTERVAL, NINF, PINF, Budget, Contract, Invariant, Law, Reals, View

TAME = (2.0**-30, 2.0**30)
"""Magnitudes within which no product of two inputs leaves the range of float32."""


def law_of(contract: Contract, name: str) -> Law | Invariant | None:
    """A contract's law by name."""
    return next((law for law in contract.laws if law.name == name), None)


def applies(case: Case, inputs: Tensors, other: Case, others: Tensors) -> bool:
    """Whether the other inputs are exactly what the two recipes say: scaled, shifted, cut, reversed.

    Where values or attributes were changed, nothing may be extreme: what becomes subnormal or infinite does not scale.
    """
    scaled = case.attrs != other.attrs or any(_scaling(t, other.tensors[n]) for n, t in case.tensors.items())
    for name, array in inputs.items():
        before, after = case.tensors[name], other.tensors[name]
        x = _rearranged(before, after, array)
        if x.shape != others[name].shape:
            return False
        if not (_follows(before, after, x, others[name]) if _scaling(before, after) else _same(x, others[name])):
            return False
        if scaled and not _tame(array):
            return False
    return True


def _scaling(before: TensorRecipe, after: TensorRecipe) -> bool:
    """Whether a recipe's values were scaled or shifted."""
    a, b = before.fill, after.fill
    return a.scale != b.scale or a.params.get("shift") != b.params.get("shift")


def _rearranged(before: TensorRecipe, after: TensorRecipe, x: Array) -> Array:
    """The values that a recipe leaves of those of the other, in its order."""
    none = (0,) * x.ndim
    starts = (b - a for a, b in zip(before.origin or none, after.origin or none, strict=True))
    x = x[tuple(slice(start, start + n) for start, n in zip(starts, after.shape, strict=True))]
    flips = {t.fill.params.get("flip") for t in (before, after)}
    return np.flip(x, tuple(int(axis) for axis in flips if axis is not None)) if len(flips) > 1 else x


def _same(x: Array, y: Array) -> bool:
    return x.tobytes() == y.tobytes()


def _follows(before: TensorRecipe, after: TensorRecipe, x: Array, y: Array) -> bool:
    """Whether y is x, scaled and shifted without any rounding."""
    if not format_of(x.dtype).is_float:
        return False  # integers saturate
    shift = after.fill.params.get("shift", 0.0) - before.fill.params.get("shift", 0.0)
    with np.errstate(invalid="ignore", over="ignore"):  # signalling NaNs; what overflows is not tame
        scaled = x.astype(np.float64) * (after.fill.scale / before.fill.scale)
        due = scaled + shift
        back = due - scaled
        lost = (scaled - (due - back)) + (shift - back)  # of the sum in float64, exactly (Knuth, TwoSum)
        return np.array_equal(due, y.astype(np.float64)) and not lost[np.isfinite(due)].any()


def _tame(array: Array) -> bool:
    if not format_of(array.dtype).is_float:
        return True
    with np.errstate(invalid="ignore"):
        sizes = np.abs(array.astype(np.float64))
    sizes = sizes[sizes != 0]
    return not sizes.size or bool(TAME[0] <= sizes.min() and sizes.max() <= TAME[1])


@dataclass(frozen=True, slots=True)
class Pair:
    """One output of two runs, side by side: what the second one is held to, and where it is not so."""

    got: Array
    want: Reals
    budget: Budget
    """How far the two may be apart before got is rounded."""
    bad: Mask
    lead: Mask
    """Those of bad that no distance tells from one another."""
    at: Array
    """Where in the first run's output each element is to be found, as a flat index."""

    def room(self, at: int) -> float:
        """The distance that the two may have at a flat index."""
        return float(np.broadcast_to(self.budget.error, self.got.shape).reshape(-1)[at])

    @property
    def worst(self) -> tuple[int, float]:
        """The element to be named, as a flat index, and how many times too far off it is."""
        error = np.asarray(self.budget.error)
        excess = measure_numpy.cell_excess(self.got, self.want, measure_numpy.facts_of(format_of(self.got.dtype).name))
        rho = np.where(self.bad & ~self.lead, np.where(error > 0.0, excess / error, np.inf), -1.0)
        at = int(np.argmax(np.where(self.lead, np.inf, rho) if self.lead.any() else rho))
        return at, float(rho.reshape(-1)[at])


def pair(law: Law, base: Evidence, other: Evidence, name: str) -> Pair:
    """The second run's output against the first one's."""
    whole, got = base.outputs[name], other.outputs[name]
    view = law.view(base.reference.case) if law.view is not None else ()
    want, budget, at = whole[view].astype(np.float64) * law.factor, Budget(0.0), _flat(whole)[view]
    if not law.within:
        copied = base.reference.budget(base.subject.numerics)[name].bitwise
        bad = broken(law, whole[view], got, bitwise=copied) & ~_chosen(base, name, view, got)
        bad &= limits(base, name)[1][view] != ALL
        return Pair(got, want, budget, bad, bad, at)
    fmt, (budget, known) = format_of(got.dtype), _allowed(law, base, name, view)
    overflowed = np.isinf(want) & (budget.accept == INTERVAL)
    want = np.where(overflowed, np.copysign(fmt.max * (1.0 + fmt.unit), want), want)
    bad = failing(got, want, budget) & known & ~_chosen(base, name, view, got)
    return Pair(got, want, budget, bad, bad & misclassed(got, want, budget), at)


def _flat(whole: Array) -> Array:
    return np.arange(whole.size).reshape(whole.shape)


def broken(law: Law, a: Array, b: Array, *, bitwise: bool = False) -> Mask:
    """Elements that break a law that holds to the bit: of those where both and what is due are normal numbers.

    They must be so large that what they are made of was normal, too, as far as it counts. Of integers, and of copies,
    all, if nothing was scaled.
    """
    fmt = format_of(b.dtype)
    x, y = a.astype(np.float64), b.astype(np.float64)
    due = x * law.factor
    found: Mask = due != y
    if law.factor == 1.0 and (bitwise or not fmt.is_float):
        return found & ~(np.isnan(due) & np.isnan(y))
    wide = compute_format(fmt.name)
    least = max(fmt.tiny, math.ldexp(wide.tiny, 2 * wide.precision)) if fmt.is_float else fmt.tiny
    for value in (x, y, due):
        found &= (np.abs(value) > least) & (np.abs(value) <= fmt.max)
    return found


def _allowed(law: Law, base: Evidence, name: str, view: View) -> tuple[Budget, Mask]:
    """So many error budgets and the rounding of the first result; nothing where nothing can round before it.

    And where the first result tells the second one's class: not where several classes are right.
    """
    first, fmt = base.outputs[name].astype(np.float64), format_of(base.outputs[name].dtype)
    error, accept = limits(base, name)
    room = law.within * error + rounding(np.clip(first, -fmt.max, fmt.max), fmt)
    coarse = (abs(law.factor) != 1.0) & (np.abs(first) < fmt.tiny)  # a subnormal number does not scale
    allowed = np.where((error > 0.0) | coarse, abs(law.factor) * room, 0.0)
    one = (accept & (accept - 1)) == 0
    known = one & ((accept != INTERVAL) | ~np.isnan(first)) & ((accept & (PINF | NINF) == 0) | (law.factor > 0.0))
    return Budget(np.where(np.isnan(allowed), np.inf, allowed)[view], accept[view]), known[view]


def limits(e: Evidence, name: str) -> tuple[Reals, Array]:
    """Error budget and accept mask of every element of an output."""
    budget, shape = e.reference.budget(e.subject.numerics)[name], e.outputs[name].shape
    accept = budget.accept
    if accept is None:
        accept = default_accept(e.want(name), has_inf=format_of(e.outputs[name].dtype).has_inf)
    return np.broadcast_to(np.asarray(budget.error, np.float64), shape), np.broadcast_to(accept, shape)


def rounding(values: Reals, fmt: Format) -> Reals:
    """Errors of numbers of a format for having been rounded to it."""
    return np.asarray(np.abs(values) * fmt.unit + fmt.eta / 2.0 if fmt.is_float else np.full(values.shape, 0.5))


def _chosen(base: Evidence, name: str, view: View, got: Array) -> Mask:
    """True where the second run gives another one of several right answers."""
    choose = base.reference.contract.choices
    if choose is None:
        return np.zeros(got.shape, np.bool_)
    whole = base.outputs[name].copy()
    whole[view] = got
    return choose({name: whole}, base.reference.inputs, base.reference.attrs)[name][view]


def judge_law(law: Law, base: Evidence, other: Evidence) -> Verdict | None:
    """None if the law holds for these two runs (both ok), or if they cannot tell: the other must be in good form."""
    if _resized(base.reference.case, other.reference.case) and _is_half(base):
        return None  # what the subject says of its arithmetic is less than TAME needs
    if any(rule(other) for rule in RULES):
        return None  # a failure of the other case, not of the law between them
    for name in base.outputs:
        with np.errstate(all="ignore"):
            if _alike(law, base, other, name):
                continue
            p = pair(law, base, other, name)
            bad = np.flatnonzero(p.bad.reshape(-1))
            if bad.size:
                pattern = index_pattern(bad, p.got.shape)
                return base.verdict(Kind.MISMATCH, f"law:{law.name}", _told(law, base, name, p), name, pattern, "law")
    return None


def _alike(law: Law, base: Evidence, other: Evidence, name: str) -> bool:
    """Whether a law is kept to the last number, as most are: no budget is needed to see that."""
    view = law.view(base.reference.case) if law.view is not None else ()
    first, second = base.outputs[name][view].astype(np.float64), other.outputs[name].astype(np.float64)
    return bool(np.isfinite(first).all()) and np.array_equal(first * law.factor, second)


def _resized(case: Case, other: Case) -> bool:
    """Whether more than signs and places differ."""
    pairs = ((t.fill, other.tensors[n].fill) for n, t in case.tensors.items())
    changed = (abs(a.scale) != abs(b.scale) or a.params.get("shift") != b.params.get("shift") for a, b in pairs)
    return case.attrs != other.attrs or any(changed)


def _is_half(e: Evidence) -> bool:
    """Whether anything before the result has the range of float16, which squares and sums leave soon."""
    numerics = e.subject.numerics
    types = (numerics.intermediate(name, e.reference.case.dtype) for name in numerics.intermediates)
    return "float16" in {numerics.accumulate, *types}


def _told(law: Law, base: Evidence, name: str, p: Pair) -> str:
    at, rho = p.worst
    y, x = apart(float(p.got.reshape(-1)[at]), float(p.want.reshape(-1)[at]))
    place = place_of(int(p.at.reshape(-1)[at]), base.outputs[name].shape)
    there = f"{f'{law.factor:g} times ' * (law.factor != 1.0)}{name}{place} of the first run"
    here, share = f"{name}{place_of(at, p.got.shape)} is {y}", f"{p.bad.sum()} of {p.bad.size} elements break it"
    if not law.within or rho == np.inf:
        said = f"{here}, must be exactly {x}{f', as {there}' * (law.view is not None)}"
    elif rho < 0.0:
        said = f"{here}, but {there} is {x}"
    else:
        within = f"{law.within:g} error budgets and rounding"
        said = f"{here}, but {there} is {x}: {rho:.3g} times as far as {within} explain"
        if rho >= MANY:
            said = f"{here}, but {there} is {x}, to within the {p.room(at):.3g} that {within} explain"
    return f"law {law.name}: {said} ({share})"
