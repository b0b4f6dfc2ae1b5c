"""Metamorphic relations: two runs of one subject, compared with one another; no oracle is needed."""

from __future__ import annotations

import numpy as np

from corpus.formats import format_of
from corpus.materialize import Tensors
from corpus.records import Case, Kind, Verdict
from oracles.contract import Contract, Law, Reals
from oracles.failing import Mask
from oracles.judge import RULES, Evidence, place_of
from oracles.patterns import index_pattern

TAME = (2.0**-30, 2.0**30)
"""Magnitudes within which no product of two inputs leaves the range of float32."""


def law_of(contract: Contract, name: str) -> Law | None:
    """A contract's law by name."""
    return next((law for law in contract.laws if law.name == name), None)


def applies(law: Law, case: Case, inputs: Tensors, other: Case, others: Tensors) -> bool:
    """Whether rounding kept the law's relation between the two sets of inputs, and nothing is extreme.

    Values that became subnormal, infinite or zero when they were scaled do not scale, and prove nothing.
    """
    for name, array in inputs.items():
        if not format_of(array.dtype).is_float:
            if case.tensors[name].id != other.tensors[name].id:
                return False  # integers saturate
            continue
        with np.errstate(invalid="ignore"):  # signalling NaNs
            x, y = array.astype(np.float64), others[name].astype(np.float64)
        sizes = np.abs(x[x != 0])
        if sizes.size and not (TAME[0] <= sizes.min() and sizes.max() <= TAME[1]):
            return False
        if x.shape != y.shape or not np.array_equal(_transformed(law, case, other, name, x), y):
            return False
    return True


def _transformed(law: Law, case: Case, other: Case, name: str, x: Reals) -> Reals:
    """What the other case's values must be, were there no rounding."""
    before, after = case.tensors[name].fill, other.tensors[name].fill
    moved = law.shift if before.params.get("shift") != after.params.get("shift") else 0.0
    return x * (after.scale / before.scale) + moved


def judge_law(law: Law, base: Evidence, other: Evidence) -> Verdict | None:
    """None if the law holds for these two runs (both ok), or if they cannot tell: the other must be in good form."""
    if any(rule(other) for rule in RULES):
        return None  # a failure of the other case, not of the law between them
    for name in base.outputs:
        a, b = base.outputs[name], other.outputs[name]
        bad = np.flatnonzero(broken(law, a.astype(np.float64), b.astype(np.float64), a.dtype.name).reshape(-1))
        if bad.size:
            first = int(bad[0])
            y, x = float(b.reshape(-1)[first]), float(a.reshape(-1)[first]) * law.factor
            text = (
                f"law {law.name}: {name}{place_of(first, a.shape)} is {y:.9g}, must be exactly {x:.9g} "
                f"({bad.size} of {a.size} elements break it)"
            )
            return base.verdict(Kind.MISMATCH, f"law:{law.name}", text, name, index_pattern(bad, a.shape), "law")
    return None


def broken(law: Law, a: Reals, b: Reals, dtype: str) -> Mask:
    """Elements that break it, among those where all three values are normal numbers of the output's format."""
    fmt = format_of(dtype)
    expected = a * law.factor
    normal = np.ones(a.shape, np.bool_)
    for value in (a, b, expected):
        normal &= (np.abs(value) > fmt.tiny) & (np.abs(value) <= fmt.max)
    found: Mask = normal & (expected != b)
    return found
