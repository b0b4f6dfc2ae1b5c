"""What the oracle says about one case: the exact answer and, per declared arithmetic, how wrong an answer may be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from corpus.distributions import DISTRIBUTIONS
from corpus.errors import InternalError
from corpus.formats import Array, format_of
from corpus.materialize import Tensors
from corpus.records import Case, Numerics, TensorRecipe, TensorSpec
from oracles.contract import Budget, Contract, Question, Reals

EXACT = frozenset({"zeros", "ones", "small_integers", "exact_integers", "powers_of_two", "unit_steps", "ties"})
"""Distributions whose values have few enough bits that sums and products can be exact."""


class Reference:
    """The oracle's answer to one case; computed once, used for every subject that ran it."""

    def __init__(self, contract: Contract, case: Case, inputs: Tensors) -> None:
        self.contract = contract
        self.case = case
        self.inputs = inputs
        self.specs: dict[str, TensorSpec] = contract.output_specs(case)
        self._budgets: dict[str, Mapping[str, Budget]] = {}

    @cached_property
    def want(self) -> Mapping[str, Reals]:
        """The exact outputs as float64. Raises InternalError if the contract's reference has the wrong form."""
        with np.errstate(all="ignore"):
            answer = self.contract.reference(**{k: _wide(v) for k, v in self.inputs.items()}, **self.case.attrs)
            want = {name: np.asarray(values, dtype=np.float64) for name, values in answer.items()}
        for name, spec in self.specs.items():
            if name not in want or want[name].shape != spec.shape:
                got = want[name].shape if name in want else "nothing"
                raise InternalError(f"{self.contract.name}: the reference gives {got} for {name}, not {spec.shape}")
        return want

    @cached_property
    def iid(self) -> bool:
        """Whether every value is an independent draw, as bounds for sums of random terms demand (numerics.md 2.1)."""
        return is_iid(self.case, self.contract)

    @cached_property
    def copies(self) -> Mapping[str, Array]:
        """For ops that only move bits: the exact outputs in their own dtype."""
        if self.contract.copies is None:
            raise InternalError(f"{self.contract.name}: a bitwise budget needs a `copies` function")
        return self.contract.copies(**self.inputs, **self.case.attrs)

    def budget(self, numerics: Numerics) -> Mapping[str, Budget]:
        """The error budgets under a declared arithmetic."""
        if numerics.id not in self._budgets:
            question = Question(
                case=self.case,
                inputs=self.inputs,
                attrs=self.case.attrs,
                want=self.want,
                numerics=numerics,
                iid=self.iid,
                exact=is_exact(self.case, self.contract),
            )
            with np.errstate(all="ignore"):
                self._budgets[numerics.id] = self.contract.budget(question)
        return self._budgets[numerics.id]


def _wide(array: Array) -> Array:
    """Floats one width up: float64 as longdouble, narrower ones as float64; integers (indices, quants) as they are."""
    fmt = format_of(array.dtype)
    if not fmt.is_float:
        return array
    return array.astype(np.longdouble if fmt.name == "float64" else np.float64)


def _values(case: Case, contract: Contract) -> list[TensorRecipe]:
    """The tensors whose values are computed with (indices are not)."""
    return [t for name, t in case.tensors.items() if not contract.inputs[name].below]


def is_iid(case: Case, contract: Contract) -> bool:
    """Whether every value is an independent draw, as bounds for sums of random terms demand (numerics.md 2.1)."""
    return all(
        DISTRIBUTIONS[t.fill.distribution].nature == "iid"
        and not t.specials
        and not t.pokes
        and t.layout != "broadcast"
        for t in _values(case, contract)
    )


def is_exact(case: Case, contract: Contract) -> bool:
    """Whether all values come from distributions of few bits; the budget then checks the data itself."""
    return all(t.fill.distribution in EXACT and not t.specials for t in _values(case, contract))
