"""Consensus when several subjects ran the same case: the odd one out, or perhaps the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.judging.reference import Reference

"""Kinds that are about values, so that outputs can be compared with one another."""
ORACLE_SPLIT = "oracle split"


@dataclass(frozen=True, slots=True)
class Heard:
    """One subject, what it returned and what the oracle said."""

    subject: Subject
    verdict: Verdict
    outputs: Tensors


def blame(reference: Reference, heard: Mapping[str, Heard]) -> dict[str, str]:
    """Make one sentence about the others for every subject that fails by its values. Keys as in heard."""
    failing = [k for k, h in heard.items() if h.verdict.kind.facts.of_values and not h.verdict.law]
    passing = [k for k, h in heard.items() if h.verdict.kind is Kind.PASS]
    if not failing or len(failing) + len(passing) < 2:
        return {}
    if passing:
        return {k: _odd_one(k, failing, passing, heard) for k in failing}
    if all(_agree(reference, heard[failing[0]], heard[k]) for k in failing[1:]):
        return dict.fromkeys(
            failing, f"{ORACLE_SPLIT}: {_names(failing, heard)} agree with one another against the oracle"
        )
    return dict.fromkeys(failing, f"nobody agrees with the oracle, nor {_names(failing, heard)} with one another")


def _odd_one(key: str, failing: Sequence[str], passing: Sequence[str], heard: Mapping[str, Heard]) -> str:
    others = [k for k in failing if k != key]
    supporters = f"{_names(passing, heard)} agree{'s' if len(passing) == 1 else ''} with the oracle"
    if not others:
        return f"{heard[key].subject.name} differs from the others; {supporters}"
    return f"{_names([key, *others], heard)} fail; {supporters}"


def _names(keys: Sequence[str], heard: Mapping[str, Heard]) -> str:
    names = [heard[k].subject.name for k in keys]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _agree(reference: Reference, a: Heard, b: Heard) -> bool:
    """Whether two outputs differ by no more than two correct ones might: twice the budget, between rounding cells."""
    budgets = reference.budget(a.subject.numerics)
    for name, budget in budgets.items():
        x, y = a.outputs[name], b.outputs[name]
        if x.tobytes() == y.tobytes():
            continue
        if x.shape != y.shape or budget.bitwise:
            return False
        want = y.astype(np.float64)
        with np.errstate(over="ignore"):
            allowed = 2.0 * np.asarray(budget.error) + np.abs(want) * (2.0 * format_of(y.dtype).unit)
        if measure(x, want, allowed).bad:
            return False
    return True
