"""Requests to check a case, batches of them in the sandbox, and what came of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from kernel_assay.corpus.inputs.materialize import Tensors, digest, materialize, materialize_all
from kernel_assay.corpus.model.campaign import Fidelity
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.kernels.boundary.protocol import Round, Task
from kernel_assay.kernels.sandbox.batch import Outcome, PendingBatch
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.judge_large import Where
from kernel_assay.oracles.spec.contract import Contract, Law


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A case to be checked: by which subjects, and under which laws besides the oracle."""

    case: Case
    subjects: tuple[str, ...]
    """Keys."""
    laws: tuple[str, ...] = ()
    places: tuple[Where, ...] = ()
    """Of a large case: elements that are judged, whatever the sample is."""
    round: Round | None = None
    """How the outputs come about: by calls that are timed; None: as always."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The results of a request; everything by subject key."""

    case: Case
    input_digest: str
    """Of a large case empty."""
    verdicts: dict[str, Verdict]
    executions: dict[str, Execution]
    laws: int = 0
    """Laws that could be tested on this case."""
    classes: tuple[str, ...] = ()
    """Which of nan, inf and -inf the reference demands; of a case that nobody passed empty."""
    beside: tuple[tuple[Case, str, Verdict], ...] = ()
    """Failures, by subject key, of the other cases that laws asked for; not of values, of which no oracle was asked."""
    fidelity: dict[str, tuple[str, Fidelity]] = field(default_factory=dict)
    """Of those that passed, if the op has such a thing: the kind, and this case's number as the worst."""


@dataclass
class Sent:
    """A request in the sandbox, with what its judgement takes: made when it is needed, for many cases nobody takes."""

    request: CheckRequest
    contract: Contract
    task: Task
    others: list[tuple[Law, Task]]
    """Laws of two runs that were asked for, each with the other case."""

    @cached_property
    def reference(self) -> Reference:
        """The oracle's word on the case."""
        return Reference(self.contract, self.task.case, materialize_all(self.task.case), self.task.outputs)

    @cached_property
    def digest(self) -> str:
        """Digest of the inputs."""
        return digest(self.reference.inputs)

    @cached_property
    def laws(self) -> list[tuple[Law, Reference]]:
        """The laws, each with the other case and its inputs."""
        return [(law, Reference(self.contract, t.case, self._inputs_of(t.case), t.outputs)) for law, t in self.others]

    def _inputs_of(self, other: Case) -> Tensors:
        """A law changes some tensors only; the others are there."""
        there, made = self.task.case.tensors, self.reference.inputs
        return {n: made[n] if r is there.get(n) else materialize(r) for n, r in other.tensors.items()}


@dataclass(slots=True)
class CheckBatch:
    """A batch of requests in the sandbox."""

    pending: PendingBatch
    sent: list[Sent]
    large: dict[int, CheckRequest] = field(default_factory=dict)
    """By their places in the batch: those that run when the rest is done."""
    checked: dict[int, Checked] = field(default_factory=dict)
    """What came of them."""
    beside: CheckBatch | None = None
    """What is emulated meanwhile (fuzz/checking/check_mode.py)."""
    asked: tuple[int, ...] = ()
    """The places in the batch of the cases that are."""
    emulated: list[dict[str, Outcome]] = field(default_factory=list)
    """What came of them."""
