"""A reference's own backward pass against finite differences, over generated shapes: no kernel takes part."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import SystemRandom

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Case, Fill
from kernel_assay.corpus.process.channel import Message
from kernel_assay.fuzz.checking.user_references import ReferenceProcess, add_reference
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.plain_case import plain_case

CASES, SECONDS = 32, 60.0
SIZES = (1, 2, 3, 5)
"""Extents of all dimensions that are tried to show in a small case what is wrong."""


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """The result of comparing the gradients of a reference with finite differences."""

    op: str
    summary: str
    seed: int
    cases: int = 0
    declined: int = 0
    """Cases near a kink, where differences say nothing, and those that the reference does not take."""
    twice: int = 0
    """Cases in which second derivatives are right, too."""
    wrong: str = ""
    """The fault in a sentence; empty: there is none."""
    case: Case | None = None
    """The smallest case that was found in which it is."""

    @property
    def failed(self) -> bool:
        """Whether something is wrong."""
        return bool(self.wrong)


def check_gradients(
    reference: str, *, cases: int | None = None, seconds: float | None = None, seed: int | None = None
) -> GradientCheck:
    """Compare the backward pass of a reference of your own with finite differences of it, in float64.

    reference: `FILE[:NAME]` or `module:NAME`. cases: how many, 32 if neither is given; seconds: no longer than that.
    Raises UsageError for a reference without a gradient, and if no case could be tried.
    """
    contract = add_reference(reference, grad=True)
    process = contract.elsewhere
    assert isinstance(process, ReferenceProcess)
    seed = SystemRandom().getrandbits(32) if seed is None else seed
    most, end = cases or (CASES if seconds is None else 1 << 30), time.monotonic() + (seconds or SECONDS)
    target, done, declined, twice, why = Target(contract, contract.dtypes[:1]), 0, 0, 0, ""
    later: Case | None = None
    while done < most and (time.monotonic() < end or not done):
        case = _plain(contract, propose([target], seed, done, Elites()).case)
        found, done = process.differences(case), done + 1
        if found.get("wrong") and found["first"]:
            words, smallest = _smaller(contract, process, case, found)
            return GradientCheck(contract.name, contract.summary, seed, done, declined, twice, words, smallest)
        if found.get("wrong"):  # of a second derivative: told if no first one is wrong
            later, said = later or case, found
        declined += "refused" in found or found["declined"]
        twice += bool(found.get("twice"))
        why = found.get("refused", why)
    if declined == done:
        because = f": {why}" if why else ", as the gradient jumps near all of them, or has no value"
        raise UsageError(f"no gradient of {contract.name} could be compared in {done} cases{because}")
    second = _smaller(contract, process, later, said) if later else ("", None)
    return GradientCheck(contract.name, contract.summary, seed, done, declined, twice, *second)


def _plain(contract: Contract, case: Case) -> Case:
    """The case with numbers that differences are good for: normal ones, or those of the input's range."""
    tensors = {}
    for number, (name, recipe) in enumerate(case.tensors.items()):
        spec = contract.inputs[name]
        plain = format_of(recipe.dtype).is_float
        usual = "normal" if not spec.ranged else spec.distributions[0] if spec.distributions else "between"
        fill = Fill(distribution=usual, seed=number, params=recipe.fill.params)
        tensors[name] = recipe.but(layout="contiguous", specials=(), pokes=(), **({"fill": fill} if plain else {}))
    return case.but(tensors=tensors)


def _smaller(contract: Contract, process: ReferenceProcess, case: Case, found: Message) -> tuple[str, Case]:
    """Find a small case in which the same derivative is wrong, and what; else both as they were found."""
    for size in SIZES:
        dims = {name: min(max(size * dim.multiple, dim.least), dim.most) for name, dim in contract.dims.items()}
        small = plain_case(contract, dims)
        again = process.differences(small)
        if again.get("wrong") and again["first"] == found["first"]:
            return again["wrong"], small
    return found["wrong"], case
