"""Variants of a failure: the smallest case run by the other subjects, and with the op's other dtypes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import bits_of, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS, limits
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.findings import Variant
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.spec.domain import outside, stays


def variants(examiner: Examiner, case: Case, subject: Subject, kind: Kind, law: str = "") -> tuple[Variant, ...]:
    """Run the case, and its other dtypes unless it is large, by every well-meaning subject of the op."""
    well_meaning = [s for s in examiner.subjects.values() if s.key == subject.key or not s.planted]
    laws = (law,) if law else ()
    others = [case] if examiner.is_large(case) else recast(case)
    pairs = [(other, _asked(fitting(well_meaning, other), subject.key, kind)) for other in others]
    asked = [CheckRequest(other, keys, laws) for other, keys in pairs if keys]
    cells: dict[tuple[str, str], Verdict] = {}
    for checked in examiner.check(asked):
        for key, verdict in checked.verdicts.items():
            cell = key, checked.case.dtype
            if cell not in cells or (verdict.failed and not cells[cell].failed):  # of several variants one that fails
                cells[cell] = verdict
    return tuple(Variant(subject=key, dtype=dtype, kind=v.kind, rho=v.rho) for (key, dtype), v in cells.items())


def _asked(keys: tuple[str, ...], accused: str, kind: Kind) -> tuple[str, ...]:
    """The failing subject first, or left out where each try of it is dear."""
    others = tuple(k for k in keys if k != accused)
    return others if kind.facts.dear or accused not in keys else (accused, *others)


def recast(case: Case) -> list[Case]:
    """The case in every combination of dtypes the op admits and its distributions suit, its own first."""
    present = {name: t.dtype for name, t in case.tensors.items()}
    contract = contract_of(case.op)
    others = [v for v in contract.variants if dict(v) != present]
    recast_to = (_recast(case, v) for v in others if _suits(case, v))
    return [case, *(c for c in recast_to if stays(contract, c, lambda: outside(contract, case)))]


def _suits(case: Case, variant: Mapping[str, str]) -> bool:
    """Whether every tensor's distribution exists for its new dtype; not all make integers."""
    kinds = [(DISTRIBUTIONS[t.fill.distribution], format_of(variant[name])) for name, t in case.tensors.items()]
    fit = all((d.floats if fmt.is_float else d.integers) or d.by_name_only for d, fmt in kinds)
    return fit and all(_reaches(t, variant[name]) for name, t in case.tensors.items())


def _reaches(recipe: TensorRecipe, dtype: str) -> bool:
    """Whether a dtype has a number in the range that a tensor is filled from, if it has one."""
    low, high = (recipe.fill.params.get(end) for end in ("low", "high"))
    if low is None or high is None:
        return True
    try:
        with np.errstate(over="ignore"):  # of a narrower type
            return bool(limits(low, high, dtype))
    except UsageError:
        return False


def _recast(case: Case, variant: Mapping[str, str]) -> Case:
    return case.but(tensors={name: _converted(t, variant[name]) for name, t in case.tensors.items()})


def _converted(recipe: TensorRecipe, dtype: str) -> TensorRecipe:
    """The recipe with another dtype; written-out elements keep their value as far as it goes."""
    if dtype == recipe.dtype:
        return recipe
    old, new = format_of(recipe.dtype), format_of(dtype)
    with np.errstate(all="ignore"):
        values = [(at, np.array(bits, old.carrier).view(old.dtype)) for at, bits in recipe.pokes]
        pokes = tuple((at, bits_of(float(value), new.dtype)) for at, value in values)
    return recipe.but(dtype=dtype, pokes=pokes)
