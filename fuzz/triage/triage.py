"""Make a finding of a failing case: confirm it, shrink it, look closely, learn its conditions, file it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import BESIDE, Event, Finding, State
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.triage.failure_conditions import learn_gates
from kernel_assay.fuzz.triage.failures import Failure, Found, Observed, event, file
from kernel_assay.fuzz.triage.sequences import TRIALS, Chain, ChainShrinker
from kernel_assay.fuzz.triage.shrinker import Other, Shrinker, Shrunk, is_dear, shrink
from kernel_assay.fuzz.triage.variants import variants
from kernel_assay.oracles.judging.judge import stateful
from kernel_assay.oracles.judging.unclaimed_arithmetic import trials, unclaimed, would_excuse
from kernel_assay.oracles.large.judge_large import places_of

CONFIRMATIONS = 5
"""Times a failure is run again, alone, before it is called confirmed."""
SLOW_CONFIRMATIONS = 1
"""The same for crashes and timeouts, which the sandbox has already seen twice or which take long, and large cases."""
RARE_CONFIRMATIONS = 60
"""Further times where it showed in none of those: a kernel that is wrong once in 50 calls must not pass for right."""
RARE_AT_ONCE, RARE_SECONDS = 12, 2.0
MOST_BESIDE, TIMES_BESIDE = 8, 3
"""Other subjects beside which one is run that does not fail alone, and how often."""
LARGE_SECONDS = 20.0
"""Time for shrinking a large case beside that for any: its first steps cost about as much as the case itself."""
PROBE_SECONDS = 10.0
"""Time for the gates, beside the time for shrinking; mostly they take less than half a second."""
CRASH_PROBE_SECONDS = 30.0
"""The same where each failure costs two workers; on a GPU that is a third of a second."""
SEQUENCE_SECONDS = 15.0
"""Time for shrinking a sequence of cases, of which each step costs a worker."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The result of running a failure again, in a process that had run nothing else."""

    hits: int
    """Times it showed, ..."""
    times: int
    """... of so many."""
    digest: str
    """Of its inputs; empty if nobody could tell."""
    first: bool
    """Whether it showed at once, when the process had run nothing at all."""

    @property
    def probability(self) -> float:
        """Probability that it shows when it is run."""
        return self.hits / self.times


def confirm(examiner: Examiner, failure: Failure, stopping: Callable[[], bool] = lambda: False) -> Confirmed:
    """Run a failure again until it is known how often it shows; stopping: whether that is enough."""
    dear = is_dear(failure.verdict) or examiner.is_large(failure.case)
    shrinker = Shrinker(examiner, failure.subject.key, failure.verdict)
    laws = (failure.verdict.law,) if failure.verdict.law else ()
    request = CheckRequest(failure.case, (failure.subject.key,), laws, places_of(failure.verdict))
    if not stopping():  # else the one that is there must do
        examiner.sandbox.renew(failure.subject.key)
    checked = examiner.check([request] * (SLOW_CONFIRMATIONS if dear else CONFIRMATIONS))
    shown = [shrinker.same(c.verdicts[failure.subject.key]) for c in checked]
    rare, deadline = 0 if dear else CONFIRMATIONS + RARE_CONFIRMATIONS, time.monotonic() + RARE_SECONDS
    while not any(shown) and len(shown) < rare and time.monotonic() < deadline and not stopping():
        more = examiner.check([request] * RARE_AT_ONCE)
        shown += [shrinker.same(c.verdicts[failure.subject.key]) for c in more]
    return Confirmed(sum(shown), len(shown), checked[0].input_digest, shown[0])


def as_met(failure: Failure) -> Found:
    """The finding behind a failure that there is no time to run again."""
    events = [event(State.NEW, f"found by {failure.found_by or 'a replay'}")]
    return Found(file(failure, Observed(failure.case, failure.verdict), events))


def investigate(
    examiner: Examiner,
    failure: Failure,
    *,
    seconds: float,
    stopping: Callable[[], bool] = lambda: False,
    on_other: Other | None = None,
    sequence_seconds: float = SEQUENCE_SECONDS,
    is_told: Callable[[Finding], bool] = lambda _: False,
) -> Found:
    """The finding behind a failure. It is shrunk for at most so many seconds; 0 keeps the case as it is.

    sequence_seconds: the same for a sequence of cases, if it takes one to show the failure. is_told: whether another
    failure came down to the same finding, so that once this one is shrunk there is no more to learn.

    Whatever goes wrong with us on the way, what is known by then is filed.
    """
    return _Investigation(examiner, failure, seconds, stopping, on_other, sequence_seconds, is_told).found()


@dataclass
class _Investigation:
    """One failure being looked into, and what is known of it so far."""

    examiner: Examiner
    failure: Failure
    seconds: float
    stopping: Callable[[], bool]
    on_other: Other | None
    sequence_seconds: float
    is_told: Callable[[Finding], bool]
    events: list[Event] = field(default_factory=list)
    kept: Kept | None = None
    trouble: str = ""

    def __post_init__(self) -> None:
        """Begin with what the search has seen."""
        self.seen = Observed(self.failure.case, self.failure.verdict)
        self._note(State.NEW, f"found by {self.failure.found_by or 'a replay'}")

    def found(self) -> Found:
        """The finding, as good as it gets."""
        try:
            self._look_into()
        except Exception as error:  # noqa: BLE001  a contract of a person's own may raise anything, and we may, too
            self.trouble = self.trouble or f"{type(error).__name__}: {error}"
            with suppress(InternalError):  # the search will meet that again
                self.examiner.sandbox.renew()
        if self.trouble:
            self._note(self.events[-1].state, f"not looked into to the end: {self.trouble}")
        return Found(file(self.failure, self.seen, self.events), self.kept, self.trouble)

    def _note(self, state: State, what: str) -> None:
        self.events.append(event(state, what))

    def _look_into(self) -> None:
        if self.seconds <= 0.0 and is_dear(self.failure.verdict):
            return  # no time to hang again
        confirmed = confirm(self.examiner, self.failure, lambda: self.seconds <= 0.0 or self.stopping())
        if not confirmed.first and self._is_stateful():
            self._closely()
            return
        if not confirmed.hits and (self.seconds <= 0.0 or self.stopping()):
            self._note(State.NEW, f"0 of {confirmed.times} runs failed; there was no time to see why")
            return
        self.seen = replace(self.seen, digest=confirmed.digest, probability=confirmed.probability)
        state = State.CONFIRMED if confirmed.hits == confirmed.times else State.FLAKY
        beside = "" if confirmed.hits else self._beside()
        cause = f"{BESIDE}{beside}, which changes the process that both run in" if beside else ""
        self._note(state, f"{confirmed.hits} of {confirmed.times} runs failed{cause}")
        if confirmed.hits and (self.seconds <= 0.0 or self._shrink()):
            self._closely()

    def _beside(self) -> str:
        """The subject beside which this one fails each time, though not alone; empty: none that was tried."""
        key, case, verdict = self.failure.subject.key, self.failure.case, self.failure.verdict
        if is_dear(verdict) or self.examiner.is_large(case):
            return ""
        same = Shrinker(self.examiner, key, verdict).same
        mine = self.failure.subject
        others = [s for s in self.examiner.subjects.values() if s.op == case.op and s.is_own is mine.is_own]
        for other in [s for s in others if s.key != key][:MOST_BESIDE]:
            if self.stopping():
                break
            self.examiner.sandbox.renew(other.key, key)
            both = [CheckRequest(case, (other.key, key))] * TIMES_BESIDE
            if all(same(checked.verdicts[key]) for checked in self.examiner.check(both)):
                return other.key
        return ""

    def _shrinker(self, seconds: float) -> Shrinker:
        failure, deadline = self.failure, time.monotonic() + seconds
        shrinker = Shrinker(self.examiner, failure.subject.key, failure.verdict, deadline, self.stopping, self.on_other)
        shrinker.grant(failure.case)
        return shrinker

    def _is_stateful(self) -> bool:
        """Whether it fails after what its process had run before, and not alone; if so, that is shrunk."""
        chain = Chain(self.failure.before, self.failure.case)
        if not chain.before or self.seconds <= 0.0 or self.examiner.is_large(chain.case):
            return False
        shrinker = self._shrinker(self.sequence_seconds)
        chains = ChainShrinker(shrinker)
        if not chains.shows(chain):
            return False
        if not (hits := self._know(chain, chains)):
            return False
        self._note(State.CONFIRMED if hits == TRIALS else State.FLAKY, f"{hits} of {TRIALS} new processes failed")
        small = chains.shrink(chain)
        self.trouble = self.trouble or shrinker.trouble
        if self._know(small, chains) == TRIALS:
            self._note(State.MINIMIZED, f"{len(chain.before):,} -> {len(small.before):,} cases before it")
        return True

    def _know(self, chain: Chain, chains: ChainShrinker) -> int:
        """Take down a chain, if it shows what it is said to; in how many of TRIALS processes it does."""
        hits, checked = chains.hits(chain), chains.check(chain)
        verdict = checked.verdicts[self.failure.subject.key] if checked else None
        if not hits or checked is None or verdict is None or not verdict.failed:
            return 0
        told = stateful(verdict, len(chain.before))
        self.seen = Observed(chain.case, told, checked.input_digest, chain.before, hits / TRIALS)
        return hits

    def _shrink(self) -> bool:
        """Make the case smaller, and learn what decides whether it fails; whether there is more to learn."""
        case, failure, probability = self.failure.case, self.failure, self.seen.probability
        shrinker = self._shrinker(self.seconds + LARGE_SECONDS * self.examiner.is_large(case))
        small = self._alone(shrinker, shrink(shrinker, case))
        self.seen = replace(self.seen, case=small.case, verdict=small.verdict, digest=small.input_digest)
        if is_new := not self.is_told(file(failure, self.seen, self.events)):
            shrinker.deadline = time.monotonic() + (CRASH_PROBE_SECONDS if is_dear(small.verdict) else PROBE_SECONDS)
            gates = () if self.stopping() else learn_gates(shrinker, small.case, case)
            verdict = _blamed(self.examiner, failure.subject, small.case, small.verdict)
            self.seen = replace(self.seen, verdict=verdict, gates=gates)
        self.trouble = self.trouble or shrinker.trouble
        if not self.stopping() and probability == 1.0:  # an interrupted one is shrunk again when it is met again
            self._note(State.MINIMIZED, f"{case.elements:,} -> {small.case.elements:,} elements")
        return is_new

    def _alone(self, shrinker: Shrinker, small: Shrunk) -> Shrunk:
        """Check that what was shrunk fails in a new process, too; else shrink it again, each candidate in one of those.

        A kernel that keeps something between two calls may fail on anything after other candidates.
        """
        case = self.failure.case
        if small.case.id == case.id or is_dear(small.verdict) or self.seen.probability < 1.0:
            return small
        if self.stopping() or self.examiner.is_large(case):
            return small
        fresh = replace(shrinker, among=lambda candidate: ((), candidate), seeds=1, _memo={})
        if any(fresh.same(c.verdicts[fresh.subject]) for c in fresh.judge([small.case])):
            return small
        fresh.deadline = time.monotonic() + max(self.seconds, SEQUENCE_SECONDS)
        return shrink(fresh, case)

    def _closely(self) -> None:
        """Look at what a person will want to see: elements, picture, who else fails."""
        seen, key = self.seen, self.failure.subject.key
        verdict = self.failure.verdict if seen.before else seen.verdict  # which says what is wrong at the end
        look = self.examiner.look_at(seen.case, key, verdict, seen.before)
        self.seen, self.kept = replace(seen, exhibit=look.exhibit), look.kept
        if not seen.before:  # alone it passes
            others = variants(self.examiner, seen.case, self.failure.subject, seen.verdict.kind, seen.verdict.law)
            claim = _claim(self.examiner, self.failure, seen)
            self.seen = replace(self.seen, variants=others, claim=claim)


def _claim(examiner: Examiner, failure: Failure, seen: Observed) -> str:
    """A claim under which neither the smallest case nor the one it was found with fails, in words; empty: none."""
    cases = list({case.id: case for case in (seen.case, failure.case)}.values())
    if not would_excuse(seen.verdict) or any(examiner.is_large(case) for case in cases):
        return ""
    key, others = failure.subject.key, trials(examiner.contracts[failure.case.op], failure.case)
    return unclaimed(
        [examiner.evidence(case, key) for case in cases], lambda: [examiner.evidence(case, key) for case in others]
    )


def _blamed(examiner: Examiner, subject: Subject, case: Case, verdict: Verdict) -> Verdict:
    """The verdict with what the other, well-meaning subjects say about the smallest case."""
    others = fitting((s for s in examiner.subjects.values() if not s.planted and s.key != subject.key), case)
    if not others or is_dear(verdict):
        return verdict
    checked = examiner.check([CheckRequest(case, (subject.key, *others))])[0]
    return verdict.but(blame=checked.verdicts[subject.key].blame)
