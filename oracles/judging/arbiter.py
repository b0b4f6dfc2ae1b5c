"""Decide close calls anew, in ball arithmetic, which bounds its own error.

A reference in float64 has an error of its own. Far from the line that changes nothing; close to it (numerics.md 7) the
worst elements are computed once more by the contract's `element`, rigorously. Exact rules need none of this: where the
budget is 0 the reference is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.failure_mask import failing
from kernel_assay.oracles.judging.measure import Measured
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.balls import Ball, beyond, excess, working
from kernel_assay.oracles.spec.contract import Budget, Reals

CLOSE, FAR = 0.5, 2.0
"""Between these times its budget an element is a close call."""
PRECISIONS = (128, 256, 512)
"""Bits, one after the other until it is decided."""
EXAMINED, DOUBTS = 256, 16
"""Failing elements that are examined at most, the worst first; undecided ones after which nobody goes on."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The ruling on a close call."""

    fails: bool
    rho: float
    """Of the element that decided; of an output that passes the largest, of elements examined and not."""
    at: int = -1
    """Flat index of the element that decided."""
    true: float = math.nan
    """Its exact value, rounded to float64."""
    doubt: str = ""
    """What could not be decided."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One element in ball arithmetic."""

    at: int
    outside: bool | None
    rho: float
    true: float


def arbitrate(reference: Reference, want: Reals, budget: Budget, got: Array, m: Measured) -> Ruling | None:
    """Decide an output anew that fails by less than FAR or passes by more than CLOSE; None: it is no close call.

    m: what oracles.judging.measure found. Of an output that passes the worst element is examined, and must be proved to
    be outside if the output is to fail. One that fails needs a proof: it passes if all that fails is proved to be
    inside.
    """
    if not CLOSE < m.rho < FAR or m.class_bad or reference.contract.element is None or len(reference.specs) > 1:
        return None
    bench = _Bench(reference, np.broadcast_to(np.asarray(budget.error, np.float64), got.shape).reshape(-1), got)
    if not m.bad:
        seen = bench.examine(m.rho_index)
        return Ruling(True, seen.rho, seen.at, seen.true) if seen.outside else None
    return _appeal(bench, np.flatnonzero(failing(got, want, budget)), want.reshape(-1))


def _appeal(bench: _Bench, bad: Array, want: Reals) -> Ruling:
    """Examine what fails, the worst first, until one element is proved to be outside."""
    rho = bench.rho(want)
    inside: list[float] = [0.0]
    doubts: list[float] = []
    for at in bad[np.argsort(-rho[bad], kind="stable")][:EXAMINED].tolist():
        seen = bench.examine(at)
        if seen.outside:
            return Ruling(True, seen.rho, at, seen.true)
        (doubts if seen.outside is None else inside).append(seen.rho)
        if len(doubts) == DOUBTS:
            break
    if doubts:
        text = f"{len(doubts)} of its elements are too close to the error budget for {PRECISIONS[-1]} bits to tell"
        return Ruling(False, 0.0, doubt=text)
    if bad.size > EXAMINED:
        text = f"the {EXAMINED} worst of {bad.size} failing elements do not fail in ball arithmetic; the rest is open"
        return Ruling(False, 0.0, doubt=text)
    others = rho[rho <= 1.0]  # more than 1, and no failure: accepted for its class
    return Ruling(False, max(*inside, float(others.max(initial=0.0))))


@dataclass(frozen=True, slots=True)
class _Bench:
    """A bench for the elements of one output."""

    reference: Reference
    error: Reals
    """Flat, one for each element."""
    got: Array

    def examine(self, at: int) -> _Seen:
        """One element, with more and more precision."""
        y, error = self.got.reshape(-1)[at], float(self.error[at])
        index = tuple(int(i) for i in np.unravel_index(at, self.got.shape))
        for bits in PRECISIONS:
            with working(bits):
                true = self._true(index)
                outside = beyond(y, true, error)
                rho = max(float(excess(y, true) / error), 0.0)
            if outside is not None:
                break
        return _Seen(at, outside, rho, float(true))

    def _true(self, index: tuple[int, ...]) -> Ball:
        contract, case = self.reference.contract, self.reference.case
        assert contract.element is not None
        try:
            return Ball(contract.element(self.reference.inputs, self.reference.attrs, index))
        except Exception as error:
            text = f"the element {list(index)} fails on {case.label} ({type(error).__name__}: {error})"
            if contract.origin:
                raise UsageError(f"{contract.origin}: {text}") from error
            raise InternalError(f"{contract.name}: {text}") from error

    def rho(self, want: Reals) -> Reals:
        """Excess over budget of every element, by the reference."""
        with np.errstate(all="ignore"):
            apart = measure_numpy.cell_excess(
                self.got.reshape(-1), want, measure_numpy.facts_of(format_of(self.got.dtype).name)
            )
            return np.where(apart > 0, apart / self.error, 0.0)
