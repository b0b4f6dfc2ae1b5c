"""The cliffs of one kernel: its dimensions searched in the sandbox, and what is found made a finding."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Cliff, Exhibit, Finding, State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.cliffs.clock import KernelClock
from kernel_assay.fuzz.cliffs.probes import LEAST, Line, lines
from kernel_assay.fuzz.cliffs.result import CliffSearch
from kernel_assay.fuzz.cliffs.search import FACTOR, SURE, Pair, Search, explained
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.triage.failures import Failure, Observed, event, file
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.environment import environment_of

AGAIN = 2 * SURE
"""Rounds of a replay."""
CHOICES = 3
"""Choices of the other dimensions with which each is searched, as far as the time goes."""


@dataclass(frozen=True, slots=True)
class CliffLimits:
    """The end of a search, and what counts."""

    seconds: float = 60.0
    factor: float = FACTOR

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if not self.seconds > 0:
            raise UsageError(f"seconds must be above 0, not {self.seconds!r}")
        if not 1.1 <= self.factor <= 100:
            raise UsageError(f"the factor of a cliff must be between 1.1 and 100, not {self.factor:g}")


@dataclass(frozen=True, slots=True)
class LineSearched:
    """An event: the sizes along a dimension have been timed."""

    subject: str
    axis: str
    others: dict[str, int]
    sizes: int


@dataclass(frozen=True, slots=True)
class CliffFound:
    """An event: a cliff was confirmed."""

    finding: Finding


CliffEvent = LineSearched | CliffFound
CliffListener = Callable[[CliffEvent], object]
USUAL, CLOSED = CliffLimits(), SandboxLimits()


@dataclass
class KernelCliffs:
    """One kernel, already placed on its device, whose cliffs are looked for."""

    subject: Subject
    dtype: str
    baseline: Subject | None = None
    """Who is asked about each cliff: what it has, too, is the machine's doing."""
    device: str = "cpu"
    seed: int = 0
    limits: CliffLimits = USUAL
    sandbox: SandboxLimits = CLOSED
    on_event: CliffListener = lambda _: None
    found: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> CliffSearch:
        """Search until every dimension is done, or time is over. Raises UsageError if there is nothing to be timed."""
        with self._examiner() as examiner:
            began = time.monotonic()  # how long it takes to load is no part of the search
            contract = examiner.contracts[self.subject.op]
            every = lines(contract, self.device, Random(self.seed), CHOICES)
            if not every:
                raise UsageError(f"{contract.name} has no dimension with sizes from {LEAST} to {2 * LEAST} and beyond")
            clock = KernelClock(examiner, self.subject.key, self.dtype, self.seed)
            search = Search(
                contract,
                clock,
                factor=self.limits.factor,
                deadline=began + self.limits.seconds,
                seed=self.seed,
                on_line=self._tell,
            )
            if self.baseline is not None:
                search.baseline = KernelClock(examiner, self.baseline.key, self.dtype, self.seed)
                search.baseline_name = self.baseline.key
            for cliff in search.run(every):
                self._take(examiner, clock, cliff)
            if clock.problem and not clock.timed:
                raise UsageError(clock.problem)
            self.notes += [clock.problem] if clock.problem else []
            self.notes += search.notes
        return CliffSearch(
            subject=self.subject.key,
            device=self.device,
            dtype=self.dtype,
            seed=self.seed,
            factor=self.limits.factor,
            searched=search.searched,
            seconds=time.monotonic() - began,
            complete=search.complete,
            cliffs=tuple(f.cliff for f in self.found if f.cliff is not None),
            findings=tuple(f.id for f in self.found),
            notes=tuple(self.notes),
        )

    @contextmanager
    def _examiner(self) -> Iterator[Examiner]:
        subjects = [self.subject, *([self.baseline] if self.baseline is not None else [])]
        with Examiner(
            subjects,
            timeout=self.sandbox.timeout,
            memory_mb=self.sandbox.memory_mb,
            closed=self.sandbox.closed,
            place=places_of(self.device)[0],
            apart=True,
        ) as examiner:
            yield examiner

    def _tell(self, line: Line, sizes: int) -> None:
        self.on_event(LineSearched(self.subject.key, line.axis, dict(line.others), sizes))

    def _take(self, examiner: Examiner, clock: KernelClock, cliff: Cliff) -> None:
        """Make it a finding, unless the outputs there are wrong: how long a wrong answer takes is of no interest."""
        slow, fine = (clock.case_of({**cliff.others, cliff.axis: n}) for n in (cliff.slow, cliff.fine))
        checked = examiner.check([CheckRequest(case, (self.subject.key,)) for case in (slow, fine)])
        for one in checked:
            verdict = one.verdicts[self.subject.key]
            if verdict.failed:
                said = f"a cliff does not count, as the output is wrong there ({verdict.kind}): {one.case.label}"
                self.notes.append(said)
                return
        finding = self._finding(examiner, cliff.but(neighbour=fine), checked[0])
        self.found.append(finding)
        self.on_event(CliffFound(finding))

    def _finding(self, examiner: Examiner, cliff: Cliff, checked: Checked) -> Finding:
        """The finding that a cliff is: its case has the slow size."""
        case, subject = checked.case, self.subject
        specs = examiner.contracts[case.op].output_specs(case)
        output, spec = next(iter(specs.items()))
        verdict = verdict_of(subject, case.dtype, cliff)
        shown = Exhibit(
            output=output,
            outputs=tuple(specs) if len(specs) > 1 else (),
            shape=spec.shape,
            dtype=spec.dtype,
            returns=subject.key in examiner.sandbox.returning,
        )
        seen = Observed(case, verdict, checked.input_digest, exhibit=shown)
        said = f"confirmed in {len(cliff.seconds_slow)} rounds of two processes, each time above {cliff.asked:g}x"
        finding = file(
            Failure(case, subject, verdict, f"a search for cliffs with seed {self.seed}"),
            seen,
            [event(State.MINIMIZED, said)],
        )
        return finding.but(cliff=cliff, environment=environment_of(subject, ()))


def verdict_of(subject: Subject, dtype: str, cliff: Cliff) -> Verdict:
    """The verdict that says that a cliff is there."""
    signature = Signature(
        op=subject.op,
        subject=subject.name,
        kind=Kind.CLIFF,
        rule="jump",
        dtype=dtype,
        index_pattern=cliff.axis,
        error_pattern=cliff.where.partition(", as ")[0],
    )
    measured = (
        Measurement(metric="factor", value=cliff.factor, limit=cliff.asked),
        Measurement(metric="least factor", value=cliff.least, limit=cliff.asked),
        Measurement(metric="factor of the baseline", value=cliff.baseline_factor),
        Measurement(metric="noise", value=cliff.noise),
    )
    shown = measured if cliff.baseline else (*measured[:2], measured[3])
    return Verdict(kind=Kind.CLIFF, rule="jump", message=cliff.sentence, measurements=shown, signature=signature)


def timed_again(examiner: Examiner, subject: Subject, finding: Finding) -> Verdict:
    """Time a cliff again, in a fresh process: it is there, or is gone, or nobody can tell.

    On another machine it may be gone without anybody having mended it: then that it does not show tells nothing.
    """
    cliff, case = finding.cliff, finding.case
    assert cliff is not None
    assert cliff.neighbour is not None
    clock = KernelClock(examiner, subject.key, case.dtype)
    seconds = clock.of_cases([case, cliff.neighbour], AGAIN, fresh=True)
    if not np.all(seconds > 0):
        return Verdict(kind=Kind.INCONCLUSIVE, rule="jump", message=clock.problem)
    dims = [examiner.contracts[case.op].dims_of(one) for one in (case, cliff.neighbour)]
    logs = np.log(seconds[0] / seconds[1]) - explained(examiner.contracts[case.op], *dims)
    pair, line = Pair(cliff.slow, cliff.fine, logs, seconds), math.log(cliff.asked)
    now = {"factor": math.exp(pair.jump), "least": math.exp(pair.limits[0]), "noise": pair.noise}
    said = f"{cliff.axis} = {cliff.slow} costs {now['factor']:.2f}x of {cliff.fine} now, noise {pair.noise:.1%}"
    if pair.limits[0] > line:
        times = {"seconds_slow": tuple(seconds[0].tolist()), "seconds_fine": tuple(seconds[1].tolist())}
        return verdict_of(subject, case.dtype, cliff.but(**now, **times))
    if pair.limits[1] > line:
        return Verdict(kind=Kind.INCONCLUSIVE, rule="jump", message=f"{said}: too much to tell")
    here, there = environment_of(subject, ()), finding.environment
    if (here.processor, here.devices) != (there.processor, there.devices):
        return Verdict(kind=Kind.INCONCLUSIVE, rule="jump", message=f"{said}, on another machine than it was found on")
    return Verdict(kind=Kind.PASS, rule="jump", message=said)
