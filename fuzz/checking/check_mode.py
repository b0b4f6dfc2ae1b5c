"""Check mode beside a GPU: what the hardware lets pass in silence is looked for on the processors that it leaves idle.

A share of the cases of each kernel in CUDA C++ that runs on a GPU is emulated, too, by a sandbox of its own, while the
GPU goes on, and of those in Triton interpreted. Only what is seen there counts (races, divergence, memory): values are
judged where they belong. A failure is filed under the same name, with the CPU as its device; a replay takes it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckBatch, Checked, CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.kernels.sandbox.batch import Outcome
from kernel_assay.oracles.judging.judge import judge

FIRST = 1024
"""Cases of a run of which every one is emulated that check mode would see on a CPU."""
EVERY = 8
"""Of those behind them, one in so many."""
MOST_ELEMENTS = 1 << 13
"""Of the inputs: an access to memory takes a hundred times as long as elsewhere."""
SECONDS = 2.0
"""For one execution, at most; who takes longer waits for what is not emulated, and is not asked again."""
BACKENDS = ("cuda", "triton")


def wanted(subjects: Iterable[Subject]) -> dict[str, str]:
    """Key of each kernel in CUDA C++ or Triton on a GPU -> "", or why none is emulated; no seeded bugs."""
    asked = [s for s in subjects if s.backend in BACKENDS and s.device != "cpu" and not s.planted]
    why = {backend: loader_of(backend).unavailable() for backend in {s.backend for s in asked}}
    return {s.key: why[s.backend] for s in asked}


def noted(campaign: Campaign, examiner: Examiner) -> Campaign:
    """The campaign with what trying to emulate its subjects has told."""
    wrong = examiner.beside.wrong if isinstance(examiner.beside, EmulatingExaminer) else {}
    return campaign.but(checked={**campaign.checked, **wrong}) if wrong else campaign


class EmulatingExaminer(Examiner):
    """Emulates kernels that run on a GPU, or interprets them, and judges only what the emulator reports."""

    def __init__(self, subjects: Sequence[Subject], *, timeout: float, memory_mb: int, closed: bool = True) -> None:
        """subjects: as they are placed on the GPU."""
        self.wrong: dict[str, str] = {}
        """By key: why a subject cannot be emulated; it is none of `subjects` then."""
        self._silent: set[str] = set()
        """Keys of those that told nothing, and took their time."""
        emulated = [s.but(device="cpu") for s in subjects]
        super().__init__(emulated, timeout=min(timeout, SECONDS), memory_mb=memory_mb, closed=closed)

    def _probed(self, wrong: dict[str, str]) -> None:
        self.wrong, self.subjects = wrong, {k: s for k, s in self.subjects.items() if k not in wrong}

    def request(self, index: int, case: Case) -> CheckRequest | None:
        """Decide who emulates case number index of a run; None: nobody, as it is with most."""
        if not is_checked(case) or case.elements > MOST_ELEMENTS or (index >= FIRST and index % EVERY):
            return None
        keys = tuple(k for k in fitting(self.subjects.values(), case) if k not in self._silent)
        return CheckRequest(case, keys) if keys else None

    def judge(
        self, in_flight: CheckBatch, outcomes: list[dict[str, Outcome]], beside: CheckBatch | None = None
    ) -> list[Checked]:
        """Judge what the emulator has caught; whoever ran through passes, whatever it has computed."""
        del beside
        checked = []
        for sent, found in zip(in_flight.sent, outcomes, strict=True):
            executions = {key: o.execution for key, o in found.items()}
            self._silent.update(k for k, e in executions.items() if e.status in {Status.TIMEOUT, Status.CRASHED})
            caught = {k: o for k, o in found.items() if o.execution.status is Status.FAULTED}
            verdicts = {k: _told(e) for k, e in executions.items() if k not in caught} | {
                k: judge(sent.reference, self.subjects[k], o.execution, o.outputs) for k, o in caught.items()
            }
            said = next((e.input_digest for e in executions.values()), "")
            checked.append(Checked(sent.request.case, said, verdicts, executions))
        return checked


def _told(execution: Execution) -> Verdict:
    """The verdict on an execution in which nothing was caught."""
    kind = _TOLD.get(execution.status, Kind.INCONCLUSIVE)
    why = "" if kind is Kind.PASS else execution.message or execution.status.value
    return Verdict(kind=kind, rule="status", message=why)


_TOLD = {Status.OK: Kind.PASS, Status.UNSUPPORTED: Kind.UNSUPPORTED}
