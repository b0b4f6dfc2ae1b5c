"""Run and judge batches of cases, in one pipeline for searches, shrinking, replay and tests: see Examiner.

Large cases go one by one, when the rest of their batch is done: their outputs are let go of before the next one runs.
The whole of their inputs is made by the worker alone, and they have a road of their own (fuzz/checking/large_check.py).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType, TracebackType
from typing import Any, Self

from threadpoolctl import ThreadpoolController

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.campaign import Call
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.fuzz.checking.large_check import LargeCaseChecker
from kernel_assay.fuzz.checking.large_policy import is_large
from kernel_assay.fuzz.checking.requests import CheckBatch, Checked, CheckRequest, Sent
from kernel_assay.fuzz.checking.same_inputs import on_its_inputs
from kernel_assay.kernels.backends.support.signature import Interface
from kernel_assay.kernels.boundary.devices import Place, is_made_on_gpu
from kernel_assay.kernels.boundary.protocol import Round, Task
from kernel_assay.kernels.sandbox.batch import Outcome
from kernel_assay.kernels.sandbox.decode import left_undone
from kernel_assay.kernels.sandbox.probing import ReadyBy
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.kernels.sandbox.side_by_side import sandbox_of
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool
from kernel_assay.oracles.catalog import contract_of, origin_of
from kernel_assay.oracles.judging.consensus import Heard, blame
from kernel_assay.oracles.judging.failure_detail import exhibit, exhibit_of_invariant, exhibit_of_law, several
from kernel_assay.oracles.judging.invariants import invariants, judge_invariant
from kernel_assay.oracles.judging.judge import RULES, Evidence, judge, unsupported
from kernel_assay.oracles.judging.laws import applies, judge_law, law_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.judge_large import Where, places_of
from kernel_assay.oracles.spec.contract import Contract, Invariant, Law
from kernel_assay.oracles.spec.domain import outside, stays
from kernel_assay.oracles.spec.elsewhere import OutsideError

MOST_BEFORE = 512
"""Cases that a subject had run before a failure, with which it is told: its worker's state may be why."""


@dataclass(frozen=True, slots=True)
class Look:
    """One subject's run of one case, seen closely."""

    verdict: Verdict
    exhibit: Exhibit
    kept: Kept | None
    """None: the outputs are too large to keep, or there are none."""


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Have products of matrices use no threads of their own: for small ones they take more time than they save.

    They spin where there is nothing to do, and take the processors that workers and other searches need.
    """
    limited: contextlib.AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limited


class Examiner:
    """Checks cases for a fixed set of subjects. Use it as a context manager."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        timeout: float = 10.0,
        memory_mb: int = 4096,
        closed: bool = True,
        place: Place | None = None,
        judge: str | None = None,
        ready_by: ReadyBy = lambda _: math.inf,
        calls: Mapping[str, Call] = MappingProxyType({}),
        pool: WorkerPool | None = None,
        apart: bool = False,
    ) -> None:
        """Starts the sandbox and loads every subject once. Raises UsageError for those that cannot be called.

        place: which device the subjects see; None: the first there is. judge: the device (cuda, cpu) where a process of
        its own judges what large cases leave, or `here`: in this one; None: the GPU, if one of them runs there, else
        here. ready_by: until when a subject may take to load; those that take longer are not among its subjects.
        calls: how each is called, where that is known: then each is loaded when it is first run. pool: where workers
        come from, closed with this; None: one of its own. apart: whether each subject has workers of its own.
        """
        self.subjects = {s.key: s for s in subjects}
        if len(self.subjects) != len(subjects):
            twice = next(s for s in subjects if self.subjects[s.key] is not s)
            raise UsageError(f"subject {twice.key} stands twice: {twice.path} and {self.subjects[twice.key].path}")
        self.contracts = {s.op: contract_of(s.op) for s in subjects}
        self._faces = {op: interface_of(c) for op, c in self.contracts.items()}
        self._limits: dict[str, Any] = {"timeout": timeout, "memory_mb": memory_mb, "closed": closed, "apart": apart}
        self.beside: Examiner | None = None
        """Who emulates some cases meanwhile; it is closed with this one."""
        self._large_cases = LargeCaseChecker(self.subjects, self.contracts, place, judge)
        self.latest: CheckBatch | None = None
        """The batch that was checked last."""
        self._sandbox = self._sandbox_for(subjects, place, pool)
        try:
            if calls:
                self._sandbox.know(calls)
            wrong = {} if calls else self._sandbox.probe(ready_by)
            self.unready = [self.subjects.pop(key) for key in list(self.subjects) if key in self._sandbox.unready]
            """Subjects that there was no time to load."""
            self._probed(wrong)
        except BaseException:
            self._sandbox.close()
            raise

    def _sandbox_for(self, subjects: Sequence[Subject], place: Place | None, pool: WorkerPool | None) -> Sandbox:
        return sandbox_of(subjects, self._faces, place=place, pool=pool, **self._limits)

    def _probed(self, wrong: dict[str, str]) -> None:
        """Told which subjects cannot be called, and why."""
        if first := next((key for key in self.subjects if key in wrong), ""):
            raise UsageError(wrong[first])

    def __enter__(self) -> Self:
        """The examiner itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the sandbox, and what judges large cases."""
        self._sandbox.close()
        self._large_cases.close()
        if self.beside is not None:
            self.beside.__exit__(kind, error, where)

    def where(self, subject: Subject) -> Examiner:
        """The examiner of a subject where it was seen to fail: this one, or the one that emulates it beside."""
        here = self.beside is None or self.subjects[subject.key].device == subject.device
        return self if here or self.beside is None else self.beside

    def twin(self, pool: WorkerPool | None = None, place: Place | None = None) -> Self:
        """One for the same subjects, which are not loaded again to see whether that can be done."""
        made, sandbox = copy(self), self._sandbox_for(list(self.subjects.values()), place, pool)
        sandbox.know(self._sandbox.calls())
        vars(made).update(
            _sandbox=sandbox, _large_cases=self._large_cases.twin(), beside=self.beside and self.beside.twin()
        )
        return made

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox the subjects run in."""
        return self._sandbox

    def check(self, requests: Iterable[CheckRequest]) -> list[Checked]:
        """Check a batch now."""
        in_flight = self.latest = self.launch(requests)
        self.prepare(in_flight)
        return self.land(in_flight)

    def check_after(self, before: Sequence[Case], request: CheckRequest) -> Checked:
        """Check a case in a worker whose subjects have run these cases before, and nothing else."""
        in_flight, outcomes = self._run_after(before, request)
        return self.judge(in_flight, outcomes)[0]

    def _run_after(self, before: Sequence[Case], request: CheckRequest) -> tuple[CheckBatch, list[dict[str, Outcome]]]:
        """The batch and the outcomes of the last case alone: what came of those before is nobody's question."""
        self._sandbox.renew(*request.subjects)
        whole = self.launch([*(CheckRequest(case, request.subjects) for case in before), request])
        outcomes = self.collect(whole)
        mine = {0: whole.checked[len(before)]} if len(before) in whole.checked else {}
        last = CheckBatch(whole.pending, [] if mine else whole.sent[-1:], checked=mine)
        return last, outcomes[len(whole.sent) - len(last.sent) :]

    def look(
        self,
        case: Case,
        key: str,
        law: str = "",
        places: tuple[Where, ...] = (),
        before: Sequence[Case] = (),
    ) -> Look:
        """Run one case once more and keep what a person will want to see of it; of a large one no outputs.

        before: what the subject runs first, in the same new worker.
        """
        if self.is_large(case):
            return self._look_large(self._in_order(CheckRequest(case, (key,), places=places)))
        asked = (law,) if law else ()
        in_flight, outcomes = (
            self._run_after(before, CheckRequest(case, (key,), asked)) if before else self._run_once(case, key, asked)
        )
        sent, outcome = in_flight.sent[0], outcomes[0][key]
        verdict = self.judge(in_flight, outcomes)[0].verdicts[key]
        mine = Evidence(sent.reference, self.subjects[key], outcome.execution, outcome.outputs)
        returns, broken = key in self._sandbox.returning, law_of(self.contracts[case.op], verdict.law)
        if isinstance(broken, Law):
            second = outcomes[1][key]
            other = Evidence(sent.laws[0][1], self.subjects[key], second.execution, second.outputs)
            shown = exhibit_of_law(broken, mine, other, verdict, returns=returns)
        elif isinstance(broken, Invariant):
            shown = exhibit_of_invariant(broken, mine, verdict, returns=returns)
        else:
            shown = exhibit(mine, verdict, returns=returns)
        place = origin_of(case.op)
        kept = Kept.of(case, self.subjects[key], outcome.execution, verdict, outcome.outputs, place)
        return Look(verdict, shown, kept)

    def _run_once(self, case: Case, key: str, laws: tuple[str, ...]) -> tuple[CheckBatch, list[dict[str, Outcome]]]:
        in_flight = self.launch([CheckRequest(case, (key,), laws)])
        self.prepare(in_flight)
        return in_flight, self.collect(in_flight)

    def outputs(self, case: Case, key: str) -> tuple[Checked, Tensors]:
        """One run of a case, which is not large: what is said of it, and what it gave; nothing if it did not end."""
        in_flight, outcomes = self._run_once(case, key, ())
        checked = self.judge(in_flight, outcomes)[0]
        sound = checked.executions[key].status is Status.OK
        return checked, outcomes[0][key].outputs if sound else {}

    def evidence(self, case: Case, key: str) -> Evidence:
        """The evidence of one run of a case, which is not large."""
        in_flight, outcomes = self._run_once(case, key, ())
        outcome = outcomes[0][key]
        return Evidence(in_flight.sent[0].reference, self.subjects[key], outcome.execution, outcome.outputs)

    def look_at(self, case: Case, key: str, verdict: Verdict, before: Sequence[Case] = ()) -> Look:
        """A failure seen closely; where another try is dear, what is known without it. before: as of look."""
        if not verdict.kind.facts.dear:
            return self.look(case, key, verdict.law, places_of(verdict), before)
        specs = self.contracts[case.op].output_specs(case)
        name, spec = next(iter(specs.items()))
        unseen = Exhibit(
            output=name,
            outputs=several(specs),
            shape=spec.shape,
            dtype=spec.dtype,
            returns=key in self._sandbox.returning,
        )
        return Look(verdict, unseen, None)

    def launch(self, requests: Iterable[CheckRequest], most_deaths: int = 0, hang_counts: int = 1) -> CheckBatch:
        """Send a batch to the sandbox. most_deaths, hang_counts: as Sandbox.submit."""
        sent: list[Sent] = []
        large: dict[int, CheckRequest] = {}
        refused: dict[int, Checked] = {}
        asked = [self._in_order(given) for given in requests]
        for op, contract in self.contracts.items():
            if contract.elsewhere is not None:  # it is asked about a whole batch at once
                contract.elsewhere.prepare([q.case for q in asked if q.case.op == op])
        for n, q in enumerate(asked):
            try:
                task = self._task(q.case, q.subjects, q.round)
            except OutsideError as outside_of:
                refused[n] = _refused(q, str(outside_of))
                continue
            contract = self.contracts[q.case.op]
            if is_large(contract, q.case, task.outputs) or self.is_timed_on_gpu(q):
                large[n] = q
            else:
                others = [(law, self._task(c, q.subjects)) for law, c in self._other_cases(q)]
                sent.append(Sent(q, contract, task, others))
        tasks = [t for s in sent for t in (s.task, *(other for _, other in s.others))]
        pending = self._sandbox.submit(tasks, most_deaths=most_deaths, hang_counts=hang_counts)
        return CheckBatch(pending, sent, large, refused)

    def prepare(self, in_flight: CheckBatch) -> None:
        """Make what judging takes while the worker runs: the caller waits for it, and has nothing else to do.

        Where that fails, judging will say so, when the worker is free again. It ends when the worker does, which is
        not to wait for its next batch.
        """
        with contextlib.suppress(UsageError, InternalError), one_blas_thread():
            for sent in in_flight.sent:
                if in_flight.pending.done:
                    return
                for key in sent.request.subjects:
                    sent.reference.budget(self.subjects[key].numerics)
                self._sandbox.pump(in_flight.pending)

    def collect(self, in_flight: CheckBatch) -> list[dict[str, Outcome]]:
        """Wait until the sandbox is free again; judging can then go on beside the next batch."""
        outcomes = self._sandbox.collect(in_flight.pending)
        for place, request in in_flight.large.items():
            if place not in in_flight.checked:
                in_flight.checked[place] = self._check_large(request)
        if in_flight.beside is not None and self.beside is not None:
            in_flight.emulated = self.beside.collect(in_flight.beside)
        return outcomes

    def give_up(self, in_flight: CheckBatch, why: str) -> list[dict[str, Outcome]]:
        """Collect a batch that there is no more time for: what is missing was not run."""
        outcomes = self._sandbox.give_up(in_flight.pending, why)
        for place, request in in_flight.large.items():
            if place not in in_flight.checked:
                in_flight.checked[place] = _refused(request, why)
        if in_flight.beside is not None and self.beside is not None:
            self.beside.give_up(in_flight.beside, why)
            in_flight.beside = None
        return outcomes

    def abandon(self) -> None:
        """Forget what is under way, here and beside."""
        self._sandbox.abandon()
        if self.beside is not None:
            self.beside.abandon()

    def ran_before(self, case: Case, key: str, in_flight: CheckBatch | None = None) -> tuple[Case, ...]:
        """Cases that a subject had run in the same worker when it came to a case, the latest, as far as remembered.

        in_flight: that the case was in; None: the latest.
        """
        in_flight = in_flight or self.latest
        tasks = in_flight.pending.tasks if in_flight else ()
        number = next((n for n, task in enumerate(tasks) if task.case is case), None)
        if in_flight is None or number is None:
            return ()
        return tuple(in_flight.pending.ran_before((number, key))[-MOST_BEFORE:])

    def land(self, in_flight: CheckBatch) -> list[Checked]:
        """Wait for a batch and judge it."""
        return self.judge(in_flight, self.collect(in_flight))

    def judge(
        self, in_flight: CheckBatch, outcomes: list[dict[str, Outcome]], beside: CheckBatch | None = None
    ) -> list[Checked]:
        """Judge what came back; beside: the batch that runs meanwhile, whose results are taken in between."""
        rest = iter(outcomes)
        judged = []
        with one_blas_thread():
            for sent in in_flight.sent:
                judged.append(self._judge(sent, next(rest), rest))
                if beside is not None:
                    self._sandbox.pump(beside.pending)
        for place, checked in sorted(in_flight.checked.items()):
            judged.insert(place, checked)
        return judged

    def _in_order(self, request: CheckRequest) -> CheckRequest:
        """Put the tensors of its case in the op's order, for they are handed over by position: JSON sorts names."""
        tensors = request.case.tensors
        names = [name for name in self.contracts[request.case.op].inputs if name in tensors]
        if names == list(tensors) or len(names) != len(tensors):
            return request
        return replace(request, case=request.case.but(tensors={name: tensors[name] for name in names}))

    def is_large(self, case: Case) -> bool:
        """Whether a case is judged by parts of it and by its peers."""
        return is_large(self.contracts[case.op], case)

    def is_timed_on_gpu(self, request: CheckRequest) -> bool:
        """Whether it lies in memory of the GPU, as large cases do: copies to it are not what is timed."""
        return request.round is not None and any(is_made_on_gpu(self.subjects[key]) for key in request.subjects)

    def _task(self, case: Case, subjects: tuple[str, ...], timed: Round | None = None) -> Task:
        return Task(case, self.contracts[case.op].output_specs(case), subjects, round=timed)

    def _check_large(self, request: CheckRequest) -> Checked:
        """No laws, no invariants, no fidelity: each of them looks at everything."""
        with self._large_cases.judged(
            self._sandbox, request.case, request.subjects, request.places, request.round
        ) as judged:
            verdicts = {k: judged.verdicts[k] for k in request.subjects}
            executions = {k: judged.ran[k].execution for k in request.subjects}
        return Checked(request.case, "", verdicts, executions, classes=judged.reference.classes)

    def _look_large(self, request: CheckRequest) -> Look:
        (key,) = request.subjects
        with self._large_cases.judged(self._sandbox, request.case, request.subjects, request.places) as judged:
            verdict, returns = judged.verdicts[key], key in self._sandbox.returning
            shown = judged.reference.exhibit(judged.ran[key], verdict, returns=returns)
        return Look(verdict, shown, None)

    def _other_cases(self, request: CheckRequest) -> Iterable[tuple[Law, Case]]:
        contract = self.contracts[request.case.op]
        for law in contract.laws:
            asked = law if law.name in request.laws and isinstance(law, Law) else None
            if asked is None or (other := asked.transform(request.case)) is None:
                continue
            if stays(contract, other, lambda: outside(contract, request.case)):
                yield asked, other

    def _judge(self, sent: Sent, outcomes: dict[str, Outcome], rest: Iterable[dict[str, Outcome]]) -> Checked:
        executions = {k: o.execution for k, o in outcomes.items()}
        if not sent.request.laws and all(e.status is Status.UNSUPPORTED for e in executions.values()):
            verdicts = {k: unsupported(e) for k, e in executions.items()}
            said = next((e.input_digest for e in executions.values() if e.input_digest), "")
            return Checked(sent.request.case, said, verdicts, executions)
        verdicts = {}
        outcomes = {k: on_its_inputs(self._sandbox, sent.task, o, sent.digest) for k, o in outcomes.items()}
        executions = {k: o.execution for k, o in outcomes.items()}
        for key, outcome in outcomes.items():
            verdicts[key] = judge(sent.reference, self.subjects[key], outcome.execution, outcome.outputs)
        if any(v.failed for v in verdicts.values()):
            heard = {k: Heard(self.subjects[k], verdicts[k], o.outputs) for k, o in outcomes.items()}
            for key, text in blame(sent.reference, heard).items():
                verdicts[key] = verdicts[key].but(blame=text)
        tested, beside = self._judge_laws(sent, outcomes, rest, verdicts)
        passed = {k: o for k, o in outcomes.items() if verdicts[k].kind is Kind.PASS}
        classes = sent.reference.classes if passed else ()
        fidelity = sent.reference.fidelity({k: o.outputs for k, o in passed.items()})
        return Checked(sent.request.case, sent.digest, verdicts, executions, tested, classes, tuple(beside), fidelity)

    def _judge_laws(
        self,
        sent: Sent,
        outcomes: dict[str, Outcome],
        rest: Iterable[dict[str, Outcome]],
        verdicts: dict[str, Verdict],
    ) -> tuple[int, list[tuple[Case, str, Verdict]]]:
        """Judge laws: how many could be tested, and what failed of the other cases on their own."""
        tested, beside = 0, list[tuple[Case, str, Verdict]]()
        if not sent.request.laws:
            return tested, beside
        bases = {k: Evidence(sent.reference, self.subjects[k], o.execution, o.outputs) for k, o in outcomes.items()}
        for (law, second), others in zip(sent.laws, rest, strict=False):
            beside += self._broken(second, others)
            if not applies(sent.request.case, sent.reference.inputs, second.case, second.inputs):
                continue
            tested += 1
            for key, base in bases.items():
                if verdicts[key].kind is Kind.PASS and others[key].execution.status is Status.OK:
                    other = Evidence(second, base.subject, others[key].execution, others[key].outputs)
                    verdicts[key] = judge_law(law, base, other) or verdicts[key]
        for kept in invariants(sent.reference, sent.request.laws):
            tested += 1
            for key, base in bases.items():
                if verdicts[key].kind is Kind.PASS:
                    verdicts[key] = judge_invariant(kept, base) or verdicts[key]
        return tested, beside

    def _broken(self, second: Reference, outcomes: dict[str, Outcome]) -> Iterable[tuple[Case, str, Verdict]]:
        """Find what is wrong with runs of a law's other case whatever their values are."""
        for key, outcome in outcomes.items():
            evidence = Evidence(second, self.subjects[key], outcome.execution, outcome.outputs)
            verdict = next((said for rule in RULES if (said := rule(evidence))), None)
            if verdict is not None and verdict.failed:
                yield second.case, key, verdict


def _refused(request: CheckRequest, why: str) -> Checked:
    """A case that nobody runs."""
    executions = {key: left_undone(key, why).execution for key in request.subjects}
    return Checked(request.case, "", {k: unsupported(e) for k, e in executions.items()}, executions)


def interface_of(contract: Contract) -> Interface:
    """The interface that the op gives its subjects."""
    optional = {name: contract.attrs[name][0] for name in contract.optional if name in contract.attrs}
    extra = tuple(name for name in contract.inputs if name in contract.optional)
    sources = (contract.elsewhere.source,) if contract.elsewhere is not None else ()
    return Interface(tuple(contract.inputs), tuple(contract.outputs), tuple(contract.attrs), optional, extra, sources)


def all_laws(case: Case) -> tuple[str, ...]:
    """Names of the laws of a case's op."""
    return tuple(law.name for law in contract_of(case.op).laws)
