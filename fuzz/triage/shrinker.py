"""Make a failing case smaller while it still fails the same way.

Works on a case from anywhere. Candidates are judged in batches; the first that still fails, in the order of the moves,
is kept. A failure that depends on the random values is judged on several fields at once (K seeds a candidate), which
is what turns "fails for three seeds in ten" into an exact minimum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.triage.shrink_passes import SHRINK_PASSES, next_seeds, weight
from kernel_assay.kernels.backends.simt.schedule import in_check_mode
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.spec.domain import outside, stays

BATCH = 12
"""Candidates judged at once."""
MAX_SEEDS = 64
SEED_TRIALS = 8
"""Fields on which a failure is tried to see whether it depends on the values."""
HANG_SECONDS = 0.5
"""While a hang is shrunk, a case that takes longer counts as hanging."""
CLEAR = 2.0
"""Times its budget: an error as large as this is hardly rounding that a budget has left out."""
CAUGHT = "check"
"""The rule of what a kernel's own backend has seen: no worker dies of it."""

Other = Callable[[Case, Verdict], None]
"""Told about failures of another kind that were met on the way."""
Among = Callable[[Case], tuple[Sequence[Case], Case]]
"""The cases that run before a candidate's verdict is given, and the case that it is given on."""


@dataclass(slots=True)
class Shrunk:
    """The result."""

    case: Case
    verdict: Verdict
    input_digest: str
    executions: int
    seconds: float
    complete: bool
    """False: time ran out before no move helped any more."""


def _ask_at_once(cases: Sequence[Case]) -> None:
    """Ask a reference in a process of its own about all of these cases, which else is asked about each."""
    elsewhere = contract_of(cases[0].op).elsewhere if cases else None
    if elsewhere is not None:
        elsewhere.prepare(cases)


def is_dear(verdict: Verdict) -> bool:
    """Whether it costs a worker each time it shows, or a long wait: not what the emulator has caught."""
    return verdict.kind.facts.ends_worker and verdict.rule != CAUGHT


@dataclass
class Shrinker:
    """One failure being shrunk."""

    examiner: Examiner
    subject: str
    """Key."""
    target: Verdict
    deadline: float = math.inf
    stopping: Callable[[], bool] = lambda: False
    """Asked between batches: true ends the search early with what there is."""
    on_other: Other | None = None
    seeds: int = 1
    executions: int = 0
    trouble: str = ""
    """What the oracle failed of on a candidate, which was left out then; the first of them."""
    granted: frozenset[str] = frozenset()
    """What is outside of the contract in the failing case itself, and may be in what is made of it."""
    among: Among | None = None
    """What a process of its own runs to judge a candidate: the cases before, and the one whose verdict counts.
    None: candidates run one after the other, in a process that has run others, too."""
    _memo: dict[str, Checked] = field(default_factory=dict)

    def same(self, verdict: Verdict) -> bool:
        """Whether it is the failure being shrunk: op, subject, kind and dtype, and the law if it is one.

        An error that is clearly over the line does not become one of rounding that hardly is.
        """
        if not verdict.failed or verdict.signature is None or self.target.signature is None:
            return False
        kept = not self.target.law or verdict.law == self.target.law
        if verdict.rule == self.target.rule == "rho":
            kept &= verdict.rho >= min(self.target.rho, CLEAR)
        return kept and verdict.signature.coarse == self.target.signature.coarse

    def admits(self, case: Case) -> bool:
        """Whether a candidate is a case that its op may be asked."""
        return stays(contract_of(case.op), case, lambda: self.granted)

    def grant(self, case: Case) -> None:
        """Let candidates be where this case is, which was given."""
        self.granted |= outside(contract_of(case.op), case)

    def judge(self, cases: Sequence[Case]) -> list[Checked]:
        """Verdicts on cases, from memory where they are known; those outside of the contract are dropped.

        So are those on which the oracle fails: that says nothing of the failure being shrunk. What only check mode sees
        is looked for in check mode: a case that would not be run in it has other fields.
        """
        if self.target.rule == CAUGHT:
            cases = [in_check_mode(c) for c in cases]
        unknown = {c.id: c for c in cases if c.id not in self._memo}
        _ask_at_once(list(unknown.values()))
        new = {key: c for key, c in unknown.items() if self.admits(c)}
        for checked in self._check(list(new.values())):
            self._memo[checked.case.id] = checked
            self.executions += 1
        return [self._memo[c.id] for c in cases if c.id in self._memo]

    def _check(self, cases: list[Case]) -> list[Checked]:
        laws = (self.target.law,) if self.target.law else ()
        try:
            if self.among is not None:
                return [self._check_among(c, self.among, laws) for c in cases]
            return self.examiner.check(CheckRequest(c, (self.subject,), laws) for c in cases)
        except (UsageError, InternalError) as error:
            self.trouble = self.trouble or str(error)
            self.examiner.sandbox.renew()
            return [] if len(cases) == 1 else [checked for c in cases for checked in self._check([c])]

    def _check_among(self, case: Case, among: Among, laws: tuple[str, ...]) -> Checked:
        before, last = among(case)
        return replace(self.examiner.check_after(before, CheckRequest(last, (self.subject,), laws)), case=case)

    @property
    def one_by_one(self) -> bool:
        """Whether each try costs a process, so that none is made for nothing."""
        return is_dear(self.target) or self.among is not None

    def estimate_seeds(self, case: Case) -> None:
        """Choose K from how often the failure shows on other fields: 1 if always, else ceil(3/p), at most 64.

        Not of a large case, of which each try is dear: when it has got small.
        """
        if self.one_by_one or self.examiner.is_large(case):
            return
        self.seeds = 1
        hits = self.hits(case)
        if 0 < hits < SEED_TRIALS:
            self.seeds = min(MAX_SEEDS, math.ceil(3 * SEED_TRIALS / hits))

    def hits(self, case: Case) -> int:
        """Count the fields, of SEED_TRIALS, its own among them, on which the failure shows."""
        return sum(self.same(c.verdicts[self.subject]) for c in self.judge(next_seeds(case, SEED_TRIALS)))

    def run(self, case: Case) -> Case:
        """The smallest case found."""
        self.grant(case)
        self.estimate_seeds(case)
        was_large, improved = self.examiner.is_large(case), True
        while improved and not self.expired():
            improved = False
            for candidates in SHRINK_PASSES:
                while (smaller := self._first_failing(case, candidates(case))) is not None:
                    case, improved = smaller, True
                    if was_large and not self.examiner.is_large(case):
                        was_large = False
                        self.estimate_seeds(case)
        return case

    def _first_failing(self, case: Case, candidates: Iterator[Case]) -> Case | None:
        """The first candidate that is lighter and still fails (on one of K fields)."""
        limit = weight(case)
        lighter = (c for c in candidates if weight(c) < limit)
        size = 1 if self.one_by_one or self.examiner.is_large(case) else max(1, BATCH // self.seeds)
        while not self.expired() and (group := list(islice(lighter, size))):
            swept = [s for c in group for s in next_seeds(c, self.seeds) if weight(s) < limit]
            for checked in self.judge(swept):
                if self.same(checked.verdicts[self.subject]) and weight(checked.case) < limit:
                    return checked.case
                self._report_other(checked)
        return None

    def forget(self) -> None:
        """Judge everything anew."""
        self._memo.clear()

    def expired(self) -> bool:
        """Whether time is over, or nobody wants to wait any longer."""
        return time.monotonic() >= self.deadline or self.stopping()

    def _report_other(self, checked: Checked) -> None:
        verdict = checked.verdicts[self.subject]
        if verdict.failed and self.on_other is not None:
            self.on_other(checked.case, verdict)


def shrink(shrinker: Shrinker, case: Case) -> Shrunk:
    """Shrink a failing case; what is returned fails in the same way as the shrinker's target.

    A hang is searched with a short timeout, and the result must then hang under the full one too.
    """
    begin = time.monotonic()
    patience = shrinker.examiner.sandbox.timeout
    if shrinker.target.kind is Kind.TIMEOUT:
        shrinker.examiner.sandbox.timeout = min(patience, HANG_SECONDS)
    try:
        small = shrinker.run(case)
    finally:
        shrinker.examiner.sandbox.timeout = patience
    if shrinker.target.kind is Kind.TIMEOUT and small.id != case.id:
        shrinker.forget()
        if not any(shrinker.same(c.verdicts[shrinker.subject]) for c in shrinker.judge([small])):
            small = case  # it was only slow
    final, digest = shrinker.target, ""
    for checked in shrinker.judge([small]):
        digest = checked.input_digest
        if shrinker.same(
            checked.verdicts[shrinker.subject]
        ):  # else it failed once, elsewhere: nothing smaller is known
            final = checked.verdicts[shrinker.subject]
    took = time.monotonic() - begin
    return Shrunk(small, final, digest, shrinker.executions, took, complete=time.monotonic() < shrinker.deadline)
