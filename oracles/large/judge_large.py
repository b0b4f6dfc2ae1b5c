"""Judge what several subjects made of a large case: form on the whole, values in parts, elements against peers.

The whole is never made here. Who is right in the parts is compared with a reference in float64, where a device holds
one, or with a peer that is right there, too; whatever is elsewhere, the comparison sees (oracles/large/peers.py), and
the oracle judges. How much each verdict rests on, its shares say. Where a device holds a product and no reference, sums
of its rows are checked (oracles/large/freivalds.py): they need whole inputs, which are made there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.remote_array import Outputs
from kernel_assay.oracles.judging.consensus import Heard, blame
from kernel_assay.oracles.judging.failure_detail import exhibit, unseen
from kernel_assay.oracles.judging.judge import Evidence, judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.parts import Part, around, sample
from kernel_assay.oracles.large.peers import Pair, confront, refer
from kernel_assay.oracles.large.remote_output import Held
from kernel_assay.oracles.large.sampled import Sampled, judge_form, judge_part, judge_parts
from kernel_assay.oracles.spec.contract import Contract

Where = tuple[str, tuple[int, ...]]
"""An output, and the index of an element of it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One subject's execution of a large case, and what it left, by name: host arrays, or what a device holds."""

    subject: Subject
    execution: Execution
    outputs: Outputs


class LargeReference:
    """The oracle's answer to parts of a large case; computed once, used for every subject that ran it."""

    def __init__(
        self, contract: Contract, case: Case, claims: Iterable[Numerics], places: Sequence[Where] = ()
    ) -> None:
        """claims: arithmetics whose budgets are wanted; places: elements that are judged beside the sample.

        Raises UsageError if no part is small enough.
        """
        self.contract, self.case = contract, case
        parts = [*sample(contract, case), *(part for place in places for part in self._around(place))]
        self.pairs: list[Pair] = [(part, part.reference()) for part in parts]
        self.add(claims)

    def add(self, claims: Iterable[Numerics]) -> None:
        """Make the budgets of further arithmetics."""
        for numerics in {n.id: n for n in claims}.values():
            for _, reference in self.pairs:
                reference.budget(numerics)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of nan, inf and -inf, as far as the parts demand them."""
        return tuple(dict.fromkeys(name for _, reference in self.pairs for name in reference.classes))

    def judge(self, ran: Mapping[str, Ran], right: Mapping[str, Held] | None = None) -> dict[str, Verdict]:
        """The verdicts, by the keys of ran; of those that fail by their values, with who else does.

        right: the outputs as the op's formula gives them in float64, held where those of all subjects are; with it
        nobody needs a peer.
        """
        said = {key: self._alone(one) for key, one in ran.items()}
        passed = [key for key, one in said.items() if one.verdict.kind is Kind.PASS]
        if right:
            said |= {k: self._refer(ran[k], right) for k in passed}
        else:
            self._confront(passed, ran, said)
            for key in passed:
                said[key] = said[key].plus(self._summed(ran[key])) if not said[key].verdict.failed else said[key]
        verdicts = {key: one.verdict.but(shares=one.shares) for key, one in said.items()}
        if not any(v.failed for v in verdicts.values()):
            return verdicts
        part, reference = self.pairs[0]
        heard = {k: Heard(ran[k].subject, v, _outputs_of(part, ran[k])) for k, v in verdicts.items()}
        return {**verdicts, **{k: verdicts[k].but(blame=text) for k, text in blame(reference, heard).items()}}

    def _alone(self, ran: Ran) -> Sampled:
        """Judge by form, then by parts."""
        if verdict := judge_form(self.contract, self.case, ran.subject, ran.execution, ran.outputs):
            return Sampled(verdict, tuple(Share(output=n, of=x.size) for n, x in ran.outputs.items()))
        return _total([judge_part(part, reference, ran.subject, ran.outputs) for part, reference in self.pairs])

    def _refer(self, ran: Ran, right: Mapping[str, Held]) -> Sampled:
        return refer(self.contract, self.case, ran.subject, ran.outputs, right, self.pairs)

    def _summed(self, ran: Ran) -> Sampled:
        """Judge by the algebra of products, if it is one that a device holds."""
        nothing = Sampled(Verdict(kind=Kind.PASS), tuple(Share(output=n, of=x.size) for n, x in ran.outputs.items()))
        one = next(iter(ran.outputs.values()), None)
        ours = not self.contract.origin  # a user's contract may mean something else by the same name
        found = one.algebra(self.case, ran.subject) if ours and isinstance(one, Held) else None
        if found is None:
            return nothing
        said = Sampled(nothing.verdict, (found.share,))
        parts, _ = around(self.contract, self.case, found.share.output, found.places)
        return said.plus(judge_parts(parts, ran.subject, ran.outputs)) if parts else said

    def _confront(self, keys: Sequence[str], ran: Mapping[str, Ran], said: dict[str, Sampled]) -> None:
        """Compare each with the first; if that one turns out to be wrong, the others once more among themselves."""
        if len(keys) < 2:
            return
        peer, *others = keys
        for key in others:
            mine, theirs = ((ran[k].subject, ran[k].outputs) for k in (key, peer))
            found = confront(self.contract, self.case, mine, theirs, self.pairs)
            said[key] = found.mine
            said[peer] = replace(found.theirs, verdict=_worse(said[peer].verdict, found.theirs.verdict))
        if said[peer].verdict.failed:
            self._confront([k for k in others if said[k].verdict.kind is Kind.PASS], ran, said)

    def exhibit(self, ran: Ran, verdict: Verdict, *, returns: bool) -> Exhibit:
        """Show a part that fails: elements have the places of the whole, and there is no picture."""
        whole = Evidence(Reference(self.contract, self.case, {}), ran.subject, ran.execution, {})
        base = unseen(whole, verdict, returns=returns)
        if not verdict.kind.facts.of_values:
            return base
        near = [(part, part.reference()) for place in places_of(verdict) for part in self._around(place)]
        for part, reference in (*self.pairs, *near):
            execution = Execution(status=Status.OK, subject=ran.subject.key)
            evidence = Evidence(reference, ran.subject, execution, part.of(ran.outputs))
            found = judge(reference, ran.subject, execution, evidence.outputs)
            if found.failed:
                return _of_the_whole(part, base, exhibit(evidence, found, returns=returns))
        return base

    def _around(self, place: Where) -> list[Part]:
        """The part around an element; none if the output has no such."""
        name, index = place
        spec = self.contract.output_specs(self.case).get(name)
        if spec is None or len(index) != len(spec.shape) or any(i >= n for i, n in zip(index, spec.shape, strict=True)):
            return []
        at = int(np.ravel_multi_index(index, spec.shape)) if index else 0
        return around(self.contract, self.case, name, [at])[0]


def places_of(verdict: Verdict) -> tuple[Where, ...]:
    """The element that a verdict names, if it names one."""
    index = next((m.index for m in verdict.measurements if m.index is not None), None)
    return () if index is None else ((verdict.output, index),)


def _outputs_of(part: Part, ran: Ran) -> Tensors:
    """The part of what a subject left, if it has the right form."""
    specs = part.contract.output_specs(part.whole)
    alike = all(name in ran.outputs and ran.outputs[name].shape == spec.shape for name, spec in specs.items())
    return part.of(ran.outputs) if alike else {}


def _total(found: Sequence[Sampled]) -> Sampled:
    total = found[0]
    for one in found[1:]:
        total = total.plus(one)
    return total


def _worse(one: Verdict, other: Verdict) -> Verdict:
    return one if one.failed or not other.failed else other


def _of_the_whole(part: Part, base: Exhibit, shown: Exhibit) -> Exhibit:
    elements = tuple(e.but(index=part.place(shown.output, e.index)) for e in shown.elements)
    return shown.but(shape=base.shape, elements=elements, picture=None)
