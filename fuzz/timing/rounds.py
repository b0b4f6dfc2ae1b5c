"""The rounds of one case: judged first, then warmed up, then timed until the noise is low, and distrusted at last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from statistics import mean, median
from typing import Any, NamedTuple

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import Timed, noise_of
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.settings import LONGEST
from kernel_assay.fuzz.timing.compare import FALSE_ALARM, WANTED, compare
from kernel_assay.fuzz.timing.costs import bytes_of, least_bytes_of, operations_of, product_of
from kernel_assay.kernels.backend_registry import is_on_gpu
from kernel_assay.kernels.boundary.devices import is_made_on_gpu
from kernel_assay.kernels.boundary.protocol import Round, Task
from kernel_assay.oracles.spec.elsewhere import OutsideError

VARIANTS = 3
"""Inputs of one shape, which rounds take in turn; of a large case there is one."""
LEAST_ROUNDS, FEWEST = 7, 2
"""Rounds after which noise is believed, and that are run even if time is over."""
ROUND_SECONDS, MOST_SECONDS, MOST_CALLS = 1e-3, 0.03, 1000
"""Calls of a round take so long together, unless the whole round then takes longer than the second."""
ALIKE, RENEW = 3, 20
"""How many times its own number of calls somebody has at most, and the rounds after which processes are new."""
LEAD_SECONDS = 0.01
"""A call that takes less has one before it in each round that is not timed."""
STABLE, WARM_SHARE, WARM_ROUNDS = 0.05, 0.2, 10
"""How much two rounds of a warm one may differ, and the share of the time, and the rounds, in which all become warm."""
BURST_SECONDS, BURST_CALLS, BURSTS = 0.03, 20_000, 6
"""Of calls in a row, and how often that is tried: a machine that is busy makes anybody late."""
UNTRUE, SLACK, GPU_SLACK = 2.0, 3e-5, 1e-3
"""Times are untrue from this factor on, beyond so many seconds a call, which a launch on a GPU may take on the host."""
LAUNCH_ROUNDS, LAUNCH_WARM, FEWEST_LAUNCHES = 6, 2, 20
"""Where versions are compared, in new processes again and again: rounds of a launch at least, and those before that do
not count; launches before it is believed that the noise is low."""
NEW, KEPT = 5, 3.0
"""Inputs that are tried at most to see that no results were kept, as one call is easily disturbed; and the factor."""


@dataclass(frozen=True, slots=True)
class TimingLimits:
    """The end of the rounds of a case: relative noise of each median, or seconds."""

    noise: float = 0.005
    seconds: float = 10.0
    warm: bool = False
    """Whether caches keep what they have between calls."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Keys of versions to compare, the earlier one first: each is launched again and again, in new processes, until a
    slowdown of 3 % would be found (fuzz/timing/compare.py), or the seconds are over. `noise` ends nothing then."""
    false_alarm: float = FALSE_ALARM
    """Most often that equally fast versions of a pair are told apart."""

    def __post_init__(self) -> None:
        """Raises UsageError for limits that no round could keep."""
        if not 0 < self.noise < 1:
            raise UsageError(f"the noise must be a share between 0 and 1, not {self.noise:g}")
        if not 0 < self.seconds <= LONGEST:
            raise UsageError(
                f"the limit of a case must be above 0 and at most {LONGEST:g} seconds, not {self.seconds:g}"
            )


@dataclass(slots=True)
class _Lane:
    """One implementation in the rounds of one case."""

    subject: Subject
    calls: int = 1
    lead: int = 0
    """Calls before those."""
    seconds: list[float] = field(default_factory=list)
    verdict: Verdict | None = None
    problem: str = ""
    finding: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it goes on."""
        return not (self.problem or self.finding or (self.verdict is not None and self.verdict.failed))

    @property
    def slack(self) -> float:
        """Seconds of a call that only the host sees."""
        return GPU_SLACK if is_on_gpu(self.subject) else SLACK


class _Launch(NamedTuple):
    """A launch of new processes: its number, when it began, and when it was warm."""

    number: int
    began: float
    ready: float


class CaseTimer:
    """Times all subjects of an examiner on one case."""

    def __init__(self, examiner: Examiner, case: Case, limits: TimingLimits, seed: int, flush: int) -> None:
        """flush: bytes that are gone through before each call; 0: none."""
        self._examiner, self._case, self._limits, self._flush = examiner, case, limits, flush
        self._random = Random(f"{seed}:{case.id}")
        self._lanes = [_Lane(s) for s in examiner.subjects.values() if s.op == case.op]
        self._contract = examiner.contracts[case.op]
        self._variants = 1 if limits.warm else VARIANTS
        self._launched = _Launch(0, began := time.monotonic(), began)
        self._launches: list[int] = []
        """The launch of each round."""
        self._look = FEWEST_LAUNCHES

    def run(self, told: Callable[[int, float], object]) -> list[Timed]:
        """Time them; told: called with the number of each round and the largest noise so far."""
        for lane in self._lanes:
            self._prepare(lane)
        calls = max(lane.calls for lane in self._lanes)
        for lane in self._lanes:  # alike where they are about as fast: the first call of a round is not like the others
            lane.calls = min(calls, ALIKE * lane.calls)
        self._share_calls()
        began = time.monotonic()
        self._warm_up(began)
        rounds = 0
        while live := [lane for lane in self._lanes if lane.is_live]:
            if self._limits.pairs and self._launch_is_over():
                if self._are_told_apart():
                    break
                self._launch(live)
            self._round(live, rounds)
            self._launches.append(self._launched.number)
            rounds += 1
            if rounds % RENEW == 0 and not self._limits.pairs:
                self._renew(live)
            noise = max((noise_of(tuple(lane.seconds)) for lane in live if lane.is_live), default=0.0)
            told(rounds, noise)
            if rounds >= LEAST_ROUNDS and noise <= self._limits.noise and not self._limits.pairs:
                break
            if rounds >= FEWEST and time.monotonic() - began >= self._limits.seconds:
                break
        for lane in live:
            self._distrust(lane)
        return [self._timed(lane) for lane in self._lanes]

    def _launch_is_over(self) -> bool:
        """Whether its rounds have taken as long as its start, as neither the one nor the other is to be rare."""
        here = self._launched
        now = time.monotonic()
        return self._launches.count(here.number) >= LAUNCH_ROUNDS and now - here.ready >= here.ready - here.began

    def _launch(self, live: list[_Lane]) -> None:
        """Go on in new processes: what one is by chance, its memory and its core, is not another's."""
        began, number = time.monotonic(), self._launched.number + 1
        self._launched = _Launch(number, began, began)
        self._random.shuffle(live)
        for lane in live:
            self._examiner.sandbox.renew(lane.subject.key)
        for _ in range(LAUNCH_WARM):
            for lane in live:
                self._turn(lane, number)
        self._launched = _Launch(number, began, time.monotonic())

    def _are_told_apart(self) -> bool:
        """Whether a slowdown of 3 % would be found by now in each pair that is still timed."""
        launches = self._launched.number + 1
        if launches < self._look:
            return False
        self._look = next_look(launches)
        lanes = {lane.subject.key: lane.seconds for lane in self._lanes if lane.is_live}
        there = [pair for pair in self._limits.pairs if all(key in lanes for key in pair)]
        said: dict[str, Any] = {"launches": self._launches, "false_alarm": self._limits.false_alarm}
        return all(compare(lanes[old], lanes[new], **said).detects <= 1 + WANTED for old, new in there)

    def _timed(self, lane: _Lane) -> Timed:
        case, contract = self._case, self._contract
        outside = not lane.verdict
        return Timed(
            subject=lane.subject.key,
            case=case,
            device=lane.subject.device,
            seconds=tuple(lane.seconds) if not lane.problem else (),
            launches=tuple(self._launches[: len(lane.seconds)]) if self._limits.pairs and not lane.problem else (),
            calls=lane.calls,
            bytes=None if outside else bytes_of(contract, case),
            least_bytes=0 if outside else least_bytes_of(contract, case),
            operations=None if outside else operations_of(contract, case),
            product=product_of(contract, lane.subject, case),
            verdict=lane.verdict,
            problem=lane.problem,
            finding=lane.finding,
        )

    def _variant(self, number: int) -> Case:
        """The case with other values; 0: as it is."""
        if not number:
            return self._case
        tensors = {
            name: t.but(fill=t.fill.but(seed=t.fill.seed + (number << 20))) for name, t in self._case.tensors.items()
        }
        return self._case.but(tensors=tensors)

    def _asked(self, calls: int, *, new: bool = False, quiet: bool = False) -> Round:
        return Round(calls, self._flush, quiet=quiet, new=new, rooms=self._variants)

    def _prepare(self, lane: _Lane) -> None:
        """Judge timed outputs of each variant, and choose the calls of a round."""
        subject, case = lane.subject, self._case
        if not takes(subject, case.dtype):
            lane.problem = f"it is for {', '.join(subject.dtypes)} only"
        elif is_on_gpu(subject) and not is_made_on_gpu(subject):
            lane.problem = "its inputs cannot be made on the GPU, as torch is not installed"
        else:
            if self._is_large(subject):
                self._variants = 1
            took = self._judged(lane, *((self._variant(n), self._asked(1)) for n in range(self._variants)))
            if lane.is_live:
                self._choose_calls(lane, min(took))

    def _is_large(self, subject: Subject) -> bool:
        try:
            return is_made_on_gpu(subject) or self._examiner.is_large(self._case)
        except OutsideError:
            return False

    def _judged(self, lane: _Lane, *asked: tuple[Case, Round]) -> list[float]:
        """Judge rounds that follow one another at once; seconds of a call of each."""
        key = lane.subject.key
        try:
            found = self._examiner.check([CheckRequest(case, (key,), round=one) for case, one in asked])
        except UsageError as error:  # no part of it is small enough to be judged
            lane.problem = str(error)
            return [float("nan")] * len(asked)
        for checked in found:
            self._note(lane, checked)
        return [self._seconds(lane, one.executions[key], 1) for one in found]

    def _note(self, lane: _Lane, checked: Checked) -> None:
        verdict = checked.verdicts[lane.subject.key]
        if verdict.kind is Kind.UNSUPPORTED:
            lane.problem = verdict.message or "it declines the case"
        elif lane.verdict is None or not lane.verdict.failed:
            lane.verdict = verdict if lane.verdict is None or verdict.failed else lane.verdict

    def _seconds(self, lane: _Lane, ran: Execution, calls: int, outer: float = float("inf")) -> float:
        """Seconds of a call, as its worker says, unless that cannot be. outer: what passed outside."""
        took = ran.nanoseconds / 1e9
        if lane.is_live and ran.status is Status.OK and not 0 < took <= outer:
            lane.finding = (
                f"its clock cannot be trusted: {calls} calls took {took:.3g} s as its process says, "
                f"in which {outer:.3g} s passed outside"
            )
        return took / calls

    def _choose_calls(self, lane: _Lane, took: float) -> None:
        """So many that the clock's resolution is nothing beside them, and a round is short all the same."""
        began = time.monotonic()
        self._once(lane, self._case, self._asked(1, quiet=True))
        whole = time.monotonic() - began
        lane.calls = int(max(1, min(ROUND_SECONDS / max(took, 1e-9), MOST_SECONDS / whole, MOST_CALLS)))
        lane.lead = int(took < LEAD_SECONDS)

    def _once(self, lane: _Lane, case: Case, asked: Round) -> tuple[float, float]:
        """Run a round, which is judged only if its outputs are not those of the first.

        Seconds of a call, as its worker says, and those outside in all, without those in which others ran in its place.
        """
        key = lane.subject.key
        large = self._examiner.is_large(case) or is_made_on_gpu(lane.subject)
        task = Task(case, self._contract.output_specs(case), (key,), large=large, round=asked)
        sandbox = self._examiner.sandbox
        began, waited = time.monotonic(), sandbox.waited(key)
        ran = sandbox.run([task])[0][key].execution
        outer = time.monotonic() - began
        ready = outer - max(0.0, sandbox.waited(key) - waited)
        if wrong := _amiss(lane.subject, ran):
            self._look_again(lane, case, wrong)
        return self._seconds(lane, ran, asked.calls, outer), ready

    def _look_again(self, lane: _Lane, case: Case, wrong: str) -> None:
        """A round went wrong: judge one like it, for a verdict in the usual words."""
        self._judged(lane, (case, self._asked(1)))
        if lane.is_live:
            lane.finding = f"a timed round went wrong, and one after it did not: {wrong}"

    def _warm_up(self, began: float) -> None:
        """Run rounds that do not count, until two of them take as long, or it has taken enough of the time."""
        before: dict[str, float] = {}
        for number in range(WARM_ROUNDS):
            live = [lane for lane in self._lanes if lane.is_live]
            now = {lane.subject.key: self._turn(lane, number) for lane in live}
            stable = all(abs(now[key] - before.get(key, 0.0)) <= STABLE * now[key] for key in now)
            if stable or time.monotonic() - began > WARM_SHARE * self._limits.seconds:
                return
            before = now

    def _renew(self, live: list[_Lane]) -> None:
        """Have new processes: where the memory of one lies makes it a little faster or slower for all its life."""
        for lane in live:
            if lane.is_live and not is_on_gpu(lane.subject):
                self._examiner.sandbox.renew(lane.subject.key)
                for number in range(self._variants + 1):
                    self._turn(lane, number)

    def _share_calls(self) -> None:
        """Give both of a pair as many calls: the first one of a round is not as the others."""
        lanes = {lane.subject.key: lane for lane in self._lanes}
        for pair in self._limits.pairs:
            both = [lanes[key] for key in pair if key in lanes]
            for lane in both:
                lane.calls = min(one.calls for one in both)

    def _turn(self, lane: _Lane, number: int) -> float:
        if self._limits.pairs:  # one kind of inputs a launch, as a new process makes its own
            number = self._launched.number
        asked = replace(self._asked(lane.calls, quiet=True), lead=lane.lead)
        return self._once(lane, self._variant(number % self._variants), asked)[0]

    def _round(self, live: list[_Lane], number: int) -> None:
        """Time each once, in an order that was never the same: what one leaves to the next is not always the same."""
        order = list(live)
        self._random.shuffle(order)
        for lane in order:
            took = self._turn(lane, number)
            if lane.is_live:
                lane.seconds.append(took)

    def _distrust(self, lane: _Lane) -> None:
        """See that it is as fast with new inputs as with known ones, one call each, and by the supervisor's clock."""
        if not lane.is_live:
            return
        new = known = float("inf")
        for number in range(NEW):
            (first,) = self._judged(lane, (self._variant(self._variants + number), self._asked(1, new=True)))
            usual = [self._once(lane, self._case, self._asked(1))[0] for _ in range(2)]
            known, new = min(known, *usual), min(new, first)
            if not lane.is_live or new <= KEPT * known + lane.slack:
                break
        else:
            lane.finding = (
                f"its times are those of results that were there before the call: with new inputs it takes "
                f"{new:.3g} s, with others {known:.3g} s"
            )
        if lane.is_live:
            self._burst(lane)

    def _burst(self, lane: _Lane) -> None:
        """Compare with what many calls in a row take outside: by the difference of two, as messages take time."""
        usual = median(lane.seconds)
        most, outside = int(max(2, min(BURST_SECONDS / usual, BURST_CALLS))), 0.0
        for _ in range(BURSTS):
            short, calls, spent = self._in_a_row(lane, 1), 1, 0.0
            while calls < most and spent < BURST_SECONDS:  # step by step: what it says of its time may be untrue
                calls = min(4 * calls, most)
                spent = self._in_a_row(lane, 1 + calls) - short
            outside = spent / calls
            if not lane.is_live or outside <= UNTRUE * usual + lane.slack:
                return
        if outside <= UNTRUE * mean(lane.seconds) + lane.slack:
            lane.problem = (
                f"half of its calls take {usual:.3g} s, and on average they take {outside:.3g} s: some are far slower "
                "than others, so that no median tells how fast it is"
            )
            return
        lane.finding = (
            f"its clock cannot be trusted: a call takes {usual:.3g} s as its process says, and {outside:.3g} s outside"
        )

    def _in_a_row(self, lane: _Lane, calls: int) -> float:
        return self._once(lane, self._case, replace(self._asked(calls, quiet=True), burst=True))[1]


def next_look(launches: int) -> int:
    """Launches after which it is asked again whether the noise is low: seldom, as each question may stop by chance."""
    return launches + max(1, launches // 6)


def _amiss(subject: Subject, ran: Execution) -> str:
    """Words for what went wrong in a round; empty if nothing did."""
    if ran.status is not Status.OK:
        return f"{ran.status}: {ran.message}"
    if ran.damage or ran.mutated:
        return "it wrote where nothing may be written"
    differing = sum(report.differing for report in ran.outputs if subject.numerics.order == "fixed")
    unwritten = sum(report.unwritten for report in ran.outputs)
    return f"{differing + unwritten} elements are not those of the first call" if differing + unwritten else ""
