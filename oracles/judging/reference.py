"""The oracle's word on one case: the exact answer and, per declared arithmetic, how wrong an answer may be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.campaign import Fidelity
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.subject import Numerics, TensorSpec
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.numerics.estimate import Spans, estimate, settled, spans_of, widened
from kernel_assay.oracles.spec.contract import Budget, Contract, Question, Reals
from kernel_assay.oracles.spec.elsewhere import OutsideError
from kernel_assay.oracles.spec.positions import alternatives

EXACT = frozenset(
    {"zeros", "ones", "small_integers", "exact_integers", "powers_of_two", "unit_steps", "ties", "exact_blocks"}
)
"""Distributions whose values have few enough bits that sums and products can be exact."""


class Reference:
    """The oracle's answer to one case; computed once, used for every subject that ran it."""

    def __init__(
        self, contract: Contract, case: Case, inputs: Tensors, specs: dict[str, TensorSpec] | None = None
    ) -> None:
        """specs: what the contract says of the case's outputs, where that is known already."""
        self.contract = contract
        self.case = case
        self.attrs = contract.attrs_of(case)
        self.inputs = inputs
        self.specs = contract.output_specs(case) if specs is None else specs
        self.passed: dict[str, list[tuple[dict[str, bytes], Verdict]]] = {}
        """By the id of an arithmetic: outputs that were judged to be right, and the verdict."""
        self.picked = False
        """Its elements were picked by what a subject gave there: their errors are no sample of all."""
        self._budgets: dict[str, Mapping[str, Budget]] = {}
        self._followed: dict[str, Spans] = {}
        self._made: dict[Callable[[Question], Any], Any] = {}

    @cached_property
    def _answered(self) -> tuple[Mapping[str, Reals], bool]:
        """Evaluate the formula; the values, and whether they were computed no wider than the subject does.

        A user's reference may be made of functions that take no longdouble, as scipy's are.
        """
        if self.contract.elsewhere is not None:
            return self.contract.elsewhere.want(self.case), self.case.dtype == "float64"
        try:
            return self._computed(np.longdouble), False
        except Exception:
            if not self.contract.origin or self.case.dtype != "float64":
                raise
        return self._computed(np.float64), True

    def _computed(self, widest: type[np.floating[Any]]) -> Mapping[str, Reals]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a formula's mean of nothing is NaN, and nobody's mistake
            answer = self.contract.reference(**{k: widened(v, widest) for k, v in self.inputs.items()}, **self.attrs)
            return {name: np.asarray(values, dtype=np.float64) for name, values in answer.items()}

    @cached_property
    def want(self) -> Mapping[str, Reals]:
        """The exact outputs as float64.

        Raises UsageError if the reference of a user's contract fails or has the wrong form; InternalError if it is one
        of the built-in ones.
        """
        try:
            want, _ = self._answered
        except OutsideError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            empty = any(t.size == 0 for t in self.case.tensors.values())
            advice = "; let it take empty inputs, or give its dims a low end, as in Dim(1, 512)" if empty else ""
            raise self._fault(f"the reference fails on {self.case.label} ({said}){advice}") from error
        for name, spec in self.specs.items():
            if name not in want or want[name].shape != spec.shape:
                got = want[name].shape if name in want else "nothing"
                raise self._fault(f"the reference gives {got} for {name}, not {spec.shape}")
        if not self.contract.estimated:
            return want
        spans = self._spans(self._question(Numerics(), want))
        with np.errstate(all="ignore"):
            if spans.forms:  # there the reference cancels, too
                want = {name: np.asarray(span.value, np.float64) for name, span in spans.of.items()}
            if all(np.isfinite(values).all() for values in want.values()):
                return want
            return {name: settled(values, spans.of[name]) for name, values in want.items()}

    def _fault(self, text: str) -> UsageError | InternalError:
        """An error whose class says whose the contract is."""
        if self.contract.origin:
            return UsageError(f"{self.contract.origin}: {text}")
        return InternalError(f"{self.contract.name}: {text}")

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of nan, inf and -inf, as far as the exact outputs hold them."""
        if all(np.isfinite(values).all() for values in self.want.values()):
            return ()
        tests: dict[str, Callable[[Reals], Array]] = {"nan": np.isnan, "inf": np.isposinf, "-inf": np.isneginf}
        return tuple(name for name, test in tests.items() if any(test(v).any() for v in self.want.values()))

    @cached_property
    def iid(self) -> bool:
        """Whether every value is an independent draw, as bounds for sums of random terms demand (numerics.md 2.1)."""
        return is_iid(self.case, self.contract)

    @cached_property
    def copies(self) -> Mapping[str, Array]:
        """Exact outputs in their own dtype, for ops that only move bits."""
        if self.contract.copies is None:
            raise InternalError(f"{self.contract.name}: a bitwise budget needs a `copies` function")
        return self.contract.copies(**self.inputs, **self.attrs)

    def chosen(self, name: str, got: Array) -> NDArray[np.bool_] | None:
        """True where an output is one of several right answers; None: there is one everywhere."""
        if self.contract.choices is not None:
            return self.contract.choices({name: got}, self.inputs, self.attrs)[name]
        positions = self.contract.elsewhere.positions(self.case) if self.contract.elsewhere is not None else {}
        return alternatives(got, self.want[name], *positions[name]) if name in positions else None

    def budget(self, numerics: Numerics) -> Mapping[str, Budget]:
        """The error budgets under a declared arithmetic."""
        if numerics.id not in self._budgets:
            question = self._question(numerics, self.want)
            with np.errstate(all="ignore"):
                self._budgets[numerics.id] = self._answer(question)
        return self._budgets[numerics.id]

    def _question(self, numerics: Numerics, want: Mapping[str, Reals]) -> Question:
        return Question(
            case=self.case,
            inputs=self.inputs,
            attrs=self.attrs,
            want=want,
            numerics=numerics.spelled_out(self.case.dtype),
            iid=self.iid,
            exact=is_exact(self.case, self.contract),
            as_wide=self._answered[1],
            made=self._made,
        )

    def _answer(self, question: Question) -> Mapping[str, Budget]:
        if self.contract.budget is not None:
            found = self.contract.budget(question)
            if not question.as_wide:
                return found
            return {name: replace(b, error=2.0 * np.asarray(b.error)) for name, b in found.items()}
        if self.contract.estimated:
            return estimate(self.contract, question, self._spans(question))
        return {name: Budget(0.0, bitwise=True) for name in self.specs}

    def _spans(self, question: Question) -> Spans:
        """Spans that an estimate is made of; under one arithmetic they are needed twice."""
        if question.numerics.id not in self._followed:
            with np.errstate(all="ignore"):
                self._followed[question.numerics.id] = spans_of(self.contract, question)
        return self._followed[question.numerics.id]

    def fidelity(self, passed: Mapping[str, Tensors]) -> dict[str, tuple[str, Fidelity]]:
        """Fidelity of right results, by subject key: the kind, and this case's number."""
        asked = self.contract.fidelity
        if asked is None or not self.iid:
            return {}
        kind = str(self.attrs[asked.by])
        with np.errstate(all="ignore"):  # right results may be Inf
            found = {k: asked.measure(outputs, self.inputs, self.attrs) for k, outputs in passed.items()}
        limit = asked.customary[kind]
        told = {k: Fidelity(what=asked.what, worst=lost, limit=limit) for k, lost in found.items() if lost is not None}
        return {key: (kind, one) for key, one in told.items()}


def _values(case: Case, contract: Contract) -> list[TensorRecipe]:
    """The tensors whose values are computed with (indices are not)."""
    return [t for name, t in case.tensors.items() if not contract.inputs[name].counts]


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
