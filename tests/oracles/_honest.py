"""Cases for honest kernels, as a campaign draws them and as nobody would wish them, and what the judge says to both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from _arithmetic import Machine
from _kernels import run
from numpy.typing import NDArray

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.invariants import judge_invariant
from kernel_assay.oracles.judging.judge import Evidence, judge
from kernel_assay.oracles.judging.laws import applies, judge_law
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import Invariant, Law

FLAT = ("ones", "zeros", "ties", "unit_steps", "small_integers", "exact_integers", "powers_of_two", "constant_rows")
"""Distributions on which an exact rule may hold."""
SIZES = (2, 8, 32, 128, 512)
"""Elements of the largest tensor."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A case and what it takes to make the same kernel run again."""

    case: Case
    seed: int
    flush: bool
    claims: Numerics

    @property
    def subject(self) -> Subject:
        """The kernel, as the judge knows it."""
        return Subject(op=self.case.op, name="honest", backend="numpy", numerics=self.claims)

    def ran(self, case: Case) -> Evidence:
        """The kernel's results for a case, with the reference's."""
        reference = Reference(contract_of(case.op), case, materialize_all(case))
        kind = np.float64 if case.dtype == "float64" else np.float32
        with np.errstate(all="ignore"):
            machine = Machine(kind, self.seed, flush=self.flush)
            found = run(case.op, machine, reference.inputs, reference.attrs)
            outputs = {name: stored(found, spec.dtype) for name, spec in reference.specs.items()}
        reports = tuple(
            OutputReport(name=n, shape=x.shape, dtype=format_of(x.dtype).name, contiguous=True)
            for n, x in outputs.items()
        )
        execution = Execution(status=Status.OK, subject=self.subject.key, outputs=reports)
        return Evidence(reference, self.subject, execution, outputs)

    def verdicts(self) -> Iterator[Verdict]:
        """What the judge says to the results, and to those of the laws that speak of this case."""
        first = self.ran(self.case)
        yield judge(first.reference, first.subject, first.execution, first.outputs)
        for law in first.reference.contract.laws:
            found = judge_invariant(law, first) if isinstance(law, Invariant) else self._judged(law, first)
            if found is not None:
                yield found

    def _judged(self, law: Law, first: Evidence) -> Verdict | None:
        other = law.transform(self.case)
        if other is None or not applies(self.case, first.reference.inputs, other, materialize_all(other)):
            return None
        return judge_law(law, first, self.ran(other))


def stored(found: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Results rounded once to the type of an output."""
    fmt = format_of(dtype)
    if found.dtype == fmt.dtype or not fmt.is_float:
        return np.ascontiguousarray(found.astype(fmt.dtype))
    return np.ascontiguousarray(round_to(found.astype(np.float64), fmt))


def trials(op: str, seed: int, count: int) -> Iterator[Trial]:
    """So many of an op: half of them as a campaign has them, half flat or at the ends of what numbers there are."""
    contract = contract_of(op)
    for number in range(count):
        random = Random(f"{seed}:{op}:{number}")
        case, _ = generate(Target(contract, max_elements=random.choice(SIZES)), random)
        if random.random() < 0.5:
            case = strange(case, random)
        flush = random.random() < 0.3
        claims = Numerics(ftz=flush or random.random() < 0.7)
        yield Trial(case, random.getrandbits(32), flush, claims)


def strange(case: Case, random: Random) -> Case:
    """The same shapes with values of few bits, each tensor of a size of its own, and no eps."""
    contract = contract_of(case.op)
    tensors = {
        name: recipe if contract.inputs[name].distributions or contract.inputs[name].packed else other(recipe, random)
        for name, recipe in case.tensors.items()
    }
    attrs = {**case.attrs, **({"eps": 0.0} if "eps" in case.attrs and random.random() < 0.5 else {})}
    return case.but(tensors=tensors, attrs=attrs)


def other(recipe: TensorRecipe, random: Random) -> TensorRecipe:
    """A recipe with flat values, plain or scaled to any size."""
    fmt = format_of(recipe.dtype)
    if not fmt.is_float:
        return recipe
    scale = random.choice((1.0, 1.0, 30.0, 2.0 ** random.randint(fmt.emin - fmt.precision, fmt.emax), random.random()))
    fill = Fill(distribution=random.choice(FLAT), seed=recipe.fill.seed, scale=scale)
    return recipe.but(fill=fill, specials=recipe.specials if random.random() < 0.3 else ())
