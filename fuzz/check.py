"""The one road of a case: materialize, run in the sandbox, judge. Campaign, shrink, replay and tests all walk it.

Large cases go one by one, when the rest of their batch is done: their outputs are let go of before the next one runs.
The whole of their inputs is made by the worker alone, and they have a road of their own (fuzz/large_road.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import numpy as np

from corpus.campaign import Fidelity
from corpus.errors import InternalError, UsageError
from corpus.findings import Exhibit
from corpus.kept import Kept
from corpus.materialize import digest, materialize_all
from corpus.records import Case, Execution, Kind, Status, Subject, Verdict
from fuzz.large import is_large
from fuzz.large_road import LargeRoad
from kernels.calling import Interface
from kernels.nursery import Nursery
from kernels.places import Place
from kernels.protocol import Task
from kernels.sandbox import Sandbox
from kernels.tickets import Outcome, Ticket
from oracles.blame import Heard, blame
from oracles.catalog import contract_of, origin_of
from oracles.contract import Contract, Invariant, Law
from oracles.exhibit import exhibit, exhibit_of_invariant, exhibit_of_law
from oracles.invariants import invariants, judge_invariant
from oracles.judge import Evidence, judge
from oracles.large import Where, places_of
from oracles.laws import applies, judge_law, law_of
from oracles.reference import Reference

DEAR = frozenset({Kind.TIMEOUT, Kind.OUT_OF_MEMORY})
"""Kinds of failure that are not run again to be seen closely: each try may cost a whole timeout."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A case to be checked: by which subjects, and under which laws besides the oracle."""

    case: Case
    subjects: tuple[str, ...]
    """Keys."""
    laws: tuple[str, ...] = ()
    places: tuple[Where, ...] = ()
    """Of a large case: elements that are judged, whatever the sample is."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of an inquiry; everything by subject key."""

    case: Case
    input_digest: str
    """Of a large case empty."""
    verdicts: dict[str, Verdict]
    executions: dict[str, Execution]
    laws: int = 0
    """Laws that could be tested on this case."""
    classes: tuple[str, ...] = ()
    """Which of nan, inf and -inf the reference demands."""
    fidelity: dict[str, tuple[str, Fidelity]] = field(default_factory=dict)
    """Of those that passed, if the op has such a thing: the kind, and this case's number as the worst."""


@dataclass(slots=True)
class _Prepared:
    """An inquiry with what can be computed while the worker runs."""

    inquiry: Inquiry
    reference: Reference
    digest: str
    laws: list[tuple[Law, Reference]]
    """Laws of two runs that apply, each with the other case and its inputs."""


@dataclass(slots=True)
class Flight:
    """A batch of inquiries in the sandbox."""

    ticket: Ticket
    prepared: list[_Prepared]
    large: dict[int, Inquiry] = field(default_factory=dict)
    """By their places in the batch: those that run when the rest is done."""
    checked: dict[int, Checked] = field(default_factory=dict)
    """What came of them."""


@dataclass(frozen=True, slots=True)
class Look:
    """One subject's run of one case, seen closely."""

    verdict: Verdict
    exhibit: Exhibit
    kept: Kept | None
    """None: the outputs are too large to keep, or there are none."""


class Examiner:
    """Checks cases for a fixed set of subjects. Use it as a context manager."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        timeout: float = 10.0,
        memory_mb: int = 4096,
        place: Place | None = None,
        judge: str | None = None,
    ) -> None:
        """Starts the sandbox and loads every subject once. Raises UsageError for those that cannot be called.

        place: which device the subjects see; None: the first there is. judge: the device (cuda, cpu) where a process of
        its own judges what large cases leave, or `here`: in this one; None: the GPU, if one of them runs there, else
        here.
        """
        self.subjects = {s.key: s for s in subjects}
        if len(self.subjects) != len(subjects):
            twice = next(s for s in subjects if self.subjects[s.key] is not s)
            raise UsageError(f"subject {twice.key} stands twice: {twice.path} and {self.subjects[twice.key].path}")
        self.contracts = {s.op: contract_of(s.op) for s in subjects}
        self._faces = {op: interface_of(c) for op, c in self.contracts.items()}
        self._limits = timeout, memory_mb
        self._road = LargeRoad(self.subjects, self.contracts, place, judge)
        self._box = Sandbox(subjects, self._faces, timeout=timeout, memory_mb=memory_mb, place=place)
        try:
            wrong = self._box.probe()
            if wrong:
                raise UsageError(next(iter(wrong.values())))  # noqa: TRY301  the box must be closed on the way out
        except BaseException:
            self._box.close()
            raise

    def __enter__(self) -> Self:
        """The examiner itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the sandbox, and what judges large cases."""
        self._box.close()
        self._road.close()

    def twin(self, nursery: Nursery, place: Place) -> Examiner:
        """One for the same subjects, which are not loaded again to see whether that can be done."""
        made, (timeout, memory_mb) = copy(self), self._limits
        subjects = list(self.subjects.values())
        box = Sandbox(subjects, self._faces, timeout=timeout, memory_mb=memory_mb, place=place, nursery=nursery)
        box.knows_as(self._box)
        vars(made).update(_box=box, _road=self._road.twin())
        return made

    @property
    def sandbox(self) -> Sandbox:
        """The box the subjects run in."""
        return self._box

    def check(self, inquiries: Iterable[Inquiry]) -> list[Checked]:
        """Check a batch now."""
        return self.land(self.launch(inquiries))

    def look(self, case: Case, key: str, law: str = "", places: tuple[Where, ...] = ()) -> Look:
        """Run one case once more and keep what a person will want to see of it; of a large one no outputs."""
        if self.is_large(case):
            return self._look_large(self._in_order(Inquiry(case, (key,), places=places)))
        laws = (law,) if law else ()
        flight = self.launch([Inquiry(case, (key,), laws)])
        outcomes = self.collect(flight)
        prepared, outcome = flight.prepared[0], outcomes[0][key]
        verdict = self.judge(flight, outcomes)[0].verdicts[key]
        mine = Evidence(prepared.reference, self.subjects[key], outcome.execution, outcome.outputs)
        returns, broken = key in self._box.returning, law_of(self.contracts[case.op], verdict.law)
        if isinstance(broken, Law):
            second = outcomes[1][key]
            other = Evidence(prepared.laws[0][1], self.subjects[key], second.execution, second.outputs)
            shown = exhibit_of_law(broken, mine, other, verdict, returns=returns)
        elif isinstance(broken, Invariant):
            shown = exhibit_of_invariant(broken, mine, verdict, returns=returns)
        else:
            shown = exhibit(mine, verdict, returns=returns)
        place = origin_of(case.op)
        kept = Kept.of(case, self.subjects[key], outcome.execution, verdict, outcome.outputs, place)
        return Look(verdict, shown, kept)

    def look_at(self, case: Case, key: str, verdict: Verdict) -> Look:
        """A failure seen closely; where another try is dear, what is known without it."""
        if verdict.kind not in DEAR:
            return self.look(case, key, verdict.law, places_of(verdict))
        name, spec = next(iter(self.contracts[case.op].output_specs(case).items()))
        unseen = Exhibit(output=name, shape=spec.shape, dtype=spec.dtype, returns=key in self._box.returning)
        return Look(verdict, unseen, None)

    def launch(self, inquiries: Iterable[Inquiry]) -> Flight:
        """Send a batch to the sandbox, and prepare its judgement while it runs."""
        asked: list[tuple[Inquiry, Task, list[tuple[Law, Task]]]] = []
        large: dict[int, Inquiry] = {}
        for n, given in enumerate(inquiries):
            q = self._in_order(given)
            task = self._task(q.case, q.subjects)
            if is_large(self.contracts[q.case.op], q.case, task.outputs):
                large[n] = q
            else:
                asked.append((q, task, [(law, self._task(c, q.subjects)) for law, c in self._other_cases(q)]))
        ticket = self._box.submit([t for _, task, others in asked for t in (task, *(other for _, other in others))])
        prepared = []
        for q, task, others in asked:
            prepared.append(self._prepare(q, task, others))
            self._box.pump(ticket)
        return Flight(ticket, prepared, large)

    def collect(self, flight: Flight) -> list[dict[str, Outcome]]:
        """Wait until the sandbox is free again; judging can then go on beside the next batch."""
        outcomes = self._box.collect(flight.ticket)
        for place, inquiry in flight.large.items():
            if place not in flight.checked:
                flight.checked[place] = self._check_large(inquiry)
        return outcomes

    def land(self, flight: Flight) -> list[Checked]:
        """Wait for a batch and judge it."""
        return self.judge(flight, self.collect(flight))

    def judge(self, flight: Flight, outcomes: list[dict[str, Outcome]], beside: Flight | None = None) -> list[Checked]:
        """Judge what came back; beside: the batch that runs meanwhile, whose results are taken in between."""
        rest = iter(outcomes)
        judged = []
        for p in flight.prepared:
            judged.append(self._judge(p, next(rest), rest))
            if beside is not None:
                self._box.pump(beside.ticket)
        for place, checked in sorted(flight.checked.items()):
            judged.insert(place, checked)
        return judged

    def _in_order(self, inquiry: Inquiry) -> Inquiry:
        """With the tensors of its case as the op has them, for they are handed over by position: JSON sorts names."""
        tensors = inquiry.case.tensors
        names = [name for name in self.contracts[inquiry.case.op].inputs if name in tensors]
        if names == list(tensors) or len(names) != len(tensors):
            return inquiry
        return replace(inquiry, case=inquiry.case.but(tensors={name: tensors[name] for name in names}))

    def is_large(self, case: Case) -> bool:
        """Whether a case is judged by parts of it and by its peers."""
        return is_large(self.contracts[case.op], case)

    def _task(self, case: Case, subjects: tuple[str, ...]) -> Task:
        return Task(case, self.contracts[case.op].output_specs(case), subjects)

    def _check_large(self, inquiry: Inquiry) -> Checked:
        """No laws, no invariants, no fidelity: each of them looks at everything."""
        with self._road.judged(self._box, inquiry.case, inquiry.subjects, inquiry.places) as judged:
            verdicts = {k: judged.verdicts[k] for k in inquiry.subjects}
            executions = {k: judged.ran[k].execution for k in inquiry.subjects}
        return Checked(inquiry.case, "", verdicts, executions, classes=judged.reference.classes)

    def _look_large(self, inquiry: Inquiry) -> Look:
        (key,) = inquiry.subjects
        with self._road.judged(self._box, inquiry.case, inquiry.subjects, inquiry.places) as judged:
            verdict, returns = judged.verdicts[key], key in self._box.returning
            shown = judged.reference.exhibit(judged.ran[key], verdict, returns=returns)
        return Look(verdict, shown, None)

    def _other_cases(self, inquiry: Inquiry) -> Iterable[tuple[Law, Case]]:
        for law in self.contracts[inquiry.case.op].laws:
            asked = law if law.name in inquiry.laws and isinstance(law, Law) else None
            if asked is not None and (other := asked.transform(inquiry.case)) is not None:
                yield asked, other

    def _prepare(self, inquiry: Inquiry, task: Task, others: list[tuple[Law, Task]]) -> _Prepared:
        inputs = materialize_all(inquiry.case)
        contract = self.contracts[inquiry.case.op]
        reference = Reference(contract, inquiry.case, inputs, task.outputs)
        for numerics in {self.subjects[k].numerics.id: self.subjects[k].numerics for k in inquiry.subjects}.values():
            reference.budget(numerics)
        laws = [(law, Reference(contract, t.case, materialize_all(t.case), t.outputs)) for law, t in others]
        return _Prepared(inquiry, reference, digest(inputs), laws)

    def _judge(self, p: _Prepared, outcomes: dict[str, Outcome], rest: Iterable[dict[str, Outcome]]) -> Checked:
        heard: dict[str, Heard] = {}
        for key, outcome in outcomes.items():
            _same_inputs(p.digest, outcome.execution)
            verdict = judge(p.reference, self.subjects[key], outcome.execution, outcome.outputs)
            heard[key] = Heard(self.subjects[key], verdict, outcome.outputs)
        verdicts = {k: h.verdict for k, h in heard.items()}
        if any(v.failed for v in verdicts.values()):
            for key, text in blame(p.reference, heard).items():
                verdicts[key] = verdicts[key].but(blame=text)
        tested = self._judge_laws(p, outcomes, rest, verdicts)
        executions = {k: o.execution for k, o in outcomes.items()}
        passed = {k: o for k, o in outcomes.items() if verdicts[k].kind is Kind.PASS}
        fidelity = _fidelity(p.reference, passed)
        return Checked(p.inquiry.case, p.digest, verdicts, executions, tested, p.reference.classes, fidelity)

    def _judge_laws(
        self,
        p: _Prepared,
        outcomes: dict[str, Outcome],
        rest: Iterable[dict[str, Outcome]],
        verdicts: dict[str, Verdict],
    ) -> int:
        tested = 0
        bases = {k: Evidence(p.reference, self.subjects[k], o.execution, o.outputs) for k, o in outcomes.items()}
        for (law, second), others in zip(p.laws, rest, strict=False):
            if not applies(p.inquiry.case, p.reference.inputs, second.case, second.inputs):
                continue
            tested += 1
            for key, base in bases.items():
                if verdicts[key].kind is Kind.PASS and others[key].execution.status is Status.OK:
                    other = Evidence(second, base.subject, others[key].execution, others[key].outputs)
                    verdicts[key] = judge_law(law, base, other) or verdicts[key]
        for kept in invariants(p.reference, p.inquiry.laws):
            tested += 1
            for key, base in bases.items():
                if verdicts[key].kind is Kind.PASS:
                    verdicts[key] = judge_invariant(kept, base) or verdicts[key]
        return tested


def _fidelity(reference: Reference, passed: Mapping[str, Outcome]) -> dict[str, tuple[str, Fidelity]]:
    """How far right results are from what they stand for, by subject key."""
    asked = reference.contract.fidelity
    if asked is None or not reference.iid:
        return {}
    kind = str(reference.attrs[asked.by])
    with np.errstate(all="ignore"):  # right results may be Inf
        found = {k: asked.measure(o.outputs, reference.inputs, reference.attrs) for k, o in passed.items()}
    limit = asked.customary[kind]
    told = {k: Fidelity(what=asked.what, worst=lost, limit=limit) for k, lost in found.items() if lost is not None}
    return {key: (kind, one) for key, one in told.items()}


def interface_of(contract: Contract) -> Interface:
    """What the op hands to its subjects."""
    optional = {name: contract.attrs[name][0] for name in contract.optional if name in contract.attrs}
    extra = tuple(name for name in contract.inputs if name in contract.optional)
    return Interface(tuple(contract.inputs), tuple(contract.outputs), tuple(contract.attrs), optional, extra)


def all_laws(case: Case) -> tuple[str, ...]:
    """Names of the laws of a case's op."""
    return tuple(law.name for law in contract_of(case.op).laws)


def _same_inputs(mine: str, execution: Execution) -> None:
    if execution.input_digest and execution.input_digest != mine:
        raise InternalError(f"{execution.subject} ran on other input bytes than the oracle saw")
