"""The pipeline of a large case: alone in the sandbox, judged by parts and against others (oracles.large).

Where subjects run on a GPU, what they leave stays there: a process of the oracle's takes it over
(fuzz/checking/output_holder.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.fingerprint import rows_digest
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import OutputReport
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.process.channel import Message
from kernel_assay.fuzz.checking.large_policy import patience
from kernel_assay.fuzz.checking.output_holder import HolderProcess
from kernel_assay.fuzz.checking.same_inputs import on_its_inputs
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.kernels.boundary.devices import Place, is_made_on_gpu
from kernel_assay.kernels.boundary.output_transfer import SHARED, mapped
from kernel_assay.kernels.boundary.protocol import Round, Task
from kernel_assay.kernels.sandbox.batch import LostError
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.oracles.large.judge_large import LargeReference, Ran, Where
from kernel_assay.oracles.large.parts import is_beyond
from kernel_assay.oracles.spec.contract import Contract

HERE = "here"
"""In place of a device on which outputs are judged: this process, to which they are sent."""


class Lender:
    """The taker of outputs that are judged in this process: it sees the files that they lie in."""

    way = SHARED

    def take(self, subject: str, report: OutputReport, offer: Message) -> Array:
        """Map an output; it is copied if its worker could still change it. Raises LostError if that has died."""
        del subject
        try:
            with Path(f"/proc/{offer['pid']}/fd/{offer['file']}").open("rb") as file:
                values = mapped(file.fileno(), offer["bytes"], writable=True)
        except OSError as error:
            raise LostError(str(error)) from error
        return values.view(format_of(report.dtype).dtype).reshape(report.shape)


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts on a large case, by subject key; of a peer that nobody asked for, too."""

    reference: LargeReference
    ran: dict[str, Ran]
    verdicts: dict[str, Verdict]


class LargeCaseChecker:
    """Runs and judges large cases for a fixed set of subjects."""

    def __init__(
        self,
        subjects: Mapping[str, Subject],
        contracts: Mapping[str, Contract],
        place: Place | None = None,
        judge: str | None = None,
    ) -> None:
        """place: of the subjects' device; judge: as of fuzz.checking.check.Examiner."""
        self._subjects, self._contracts = subjects, contracts
        self._made = place, judge
        environment = place.environment if place else {}
        self.holder = HolderProcess(judge or "cuda", environment)
        self._latest: LargeReference | None = None

    def twin(self) -> LargeCaseChecker:
        """One for the same subjects, which shares nothing that runs."""
        return LargeCaseChecker(self._subjects, self._contracts, *self._made)

    def close(self) -> None:
        """End the oracle's process, if there is one."""
        self.holder.close()

    @contextlib.contextmanager
    def judged(
        self,
        sandbox: Sandbox,
        case: Case,
        keys: tuple[str, ...],
        places: Sequence[Where] = (),
        timed: Round | None = None,
    ) -> Iterator[Judged]:
        """Run one large case, while nothing else runs, and judge it. places: elements that are judged in any case.

        timed: how its calls are timed.

        A subject alone gets a peer, if there is one, and no reference in float64: judged by a sample alone it would
        pass with what a peer has shown before. With more elements than 32 bits count, on the host, the sample is all.
        Raises InternalError if the oracle's process fails.
        """
        holder = self.holder if self._is_held(keys) else None
        try:
            right = holder.refer(case) if holder and not self._contracts[case.op].origin else {}
            alone = len(keys) == 1 and not right and (holder is not None or not self._is_beyond(case))
            keys += self._peer(case, keys[0]) if alone else ()
            reference, ran = self._run(sandbox, case, keys, places, timed)
            yield Judged(reference, ran, reference.judge(ran, right))
        except BaseException:
            self.holder.close()  # it may be in the middle of an answer
            raise
        if holder:
            holder.forget()

    def _run(
        self, sandbox: Sandbox, case: Case, keys: tuple[str, ...], places: Sequence[Where], timed: Round | None
    ) -> tuple[LargeReference, dict[str, Ran]]:
        contract, usual = self._contracts[case.op], sandbox.timeout
        task = Task(case, contract.output_specs(case), keys, large=True, round=timed)
        sandbox.timeout = usual + patience(contract, case)
        try:
            pending = sandbox.submit([task], self.holder if self._is_held(keys) else Lender())
            mine = rows_digest(case)
            reference = self._reference(case, keys, places)
            outcomes = sandbox.collect(pending)[0]
        finally:
            sandbox.timeout = usual
        outcomes = {k: on_its_inputs(sandbox, task, o, mine) for k, o in outcomes.items()}
        return reference, {k: Ran(self._subjects[k], o.execution, o.left) for k, o in outcomes.items()}

    def _reference(self, case: Case, keys: Sequence[str], places: Sequence[Where]) -> LargeReference:
        """The oracle's answer; that to the case before, if it is asked of this one: who is timed gets the same case."""
        claims = [self._subjects[key].numerics for key in keys]
        if places:
            return LargeReference(self._contracts[case.op], case, claims, places)
        if self._latest is None or self._latest.case != case:
            self._latest = LargeReference(self._contracts[case.op], case, claims)
        else:
            self._latest.add(claims)
        return self._latest

    def _is_held(self, keys: Sequence[str]) -> bool:
        """Whether the oracle's process takes over what these leave."""
        _, judge = self._made
        return judge != HERE and (judge is not None or any(is_made_on_gpu(self._subjects[key]) for key in keys))

    def _is_beyond(self, case: Case) -> bool:
        return is_beyond(self._contracts[case.op], case)

    def _peer(self, case: Case, key: str) -> tuple[str, ...]:
        """Another subject for a case, if there is one: on the same device, and a library's, which is fast."""
        mine = self._subjects[key]
        fit = set(fitting(self._subjects.values(), case))
        others = [s for s in self._subjects.values() if s.key != key and s.key in fit and not s.planted]
        best = min(others, key=lambda s: (s.device != mine.device, s.backend != "torch"), default=None)
        return () if best is None else (best.key,)
