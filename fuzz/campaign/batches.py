"""A batch of the search, from its cases to what they count: the same work, whoever does it, here or beside others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.campaign.clock import Ended
from kernel_assay.fuzz.campaign.counters import Counters
from kernel_assay.fuzz.campaign.hang_allowance import Hangs
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.check_mode import EmulatingExaminer
from kernel_assay.fuzz.checking.requests import CheckBatch, Checked, CheckRequest
from kernel_assay.fuzz.checking.subjects import bears, bears_far, fitting
from kernel_assay.fuzz.generation.declines import Tries, traits_of
from kernel_assay.fuzz.generation.elites import Elite, Elites
from kernel_assay.fuzz.generation.engines import BATCH, Proposal
from kernel_assay.fuzz.generation.model_shapes import FAR, LONG
from kernel_assay.fuzz.planning.coverage import elite_cells
from kernel_assay.fuzz.planning.plan import deciding
from kernel_assay.fuzz.triage.failures import Failure
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.sandbox.batch import Outcome
from kernel_assay.kernels.sandbox.decode import left_undone
from kernel_assay.oracles.judging.judge import unsupported

LAW_EVERY = 4
"""One case in so many is also run under a law of its op."""
INTERPRETED_EVERY = 5
"""One case of an op in so many is also run by right built-in kernels that are interpreted, where none is a person's
own: they take as long as all others together. It shares no divisor with LAW_EVERY: laws meet them, too."""
NOT_RUN = "not run: the time of the search was up"
PATIENT_EVERY = 32
"""One long case of an op in so many is also run by emulated kernels that take seconds for it."""
MOST_DEATHS = 3
"""Crashes and time-outs of a subject in a batch after which it is skipped until the next: they tell the same."""
MOST_DEATHS_BESIDE = 1
"""The same of a subject that is emulated beside a GPU."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one batch."""

    batch: int
    next_index: int
    """Of the first case behind it."""
    ledger: Counters
    offers: list[Elite]
    """Passing cases that may be elites, in their order."""
    failures: list[Failure]
    tries: dict[str, Tries] = field(default_factory=dict)
    """By op: which of its cases the subjects took for which they are made."""


class Runner:
    """Runs the batches of a campaign with an examiner."""

    def __init__(self, examiner: Examiner, campaign: Campaign, elites: Elites, hang_seconds: float = math.inf) -> None:
        """elites: those known so far; who owns them adds to them. hang_seconds: what time-outs may cost in all."""
        self.examiner = examiner
        self._beside = examiner.beside if isinstance(examiner.beside, EmulatingExaminer) else None
        self._campaign = campaign
        self._elites = elites
        self._known: dict[tuple[str, str, bool], tuple[str, ...]] = {}
        subjects = examiner.subjects.values()
        others = () if any(s.is_own for s in subjects) else (s for s in subjects if not s.planted)
        self._spared = {s.key for s in others if loader_of(s.loader).interprets}
        self._hangs = Hangs(hang_seconds, examiner.sandbox.timeout)
        self._deciding = {s.key for op in campaign.ops for s in deciding(op, campaign.subjects)}
        self._judging = {s.key for s in subjects if loader_of(s.loader).judges}
        """Keys of those that have a check mode."""
        self._slow: set[str] = set()
        """Keys of subjects that did not get through a long case."""
        self._slow_far: set[str] = set()
        """The same of cases with more elements than 32 bits count: for those there may be no room, either."""
        self._told: dict[str, int] = {}
        """Keys of the signatures of which a failure was told with what led to it, and the index of its case.

        A batch of a process that is lost is run again, here perhaps, behind later ones: what it has is the first."""
        self._open = {name for name, index in campaign.goals.items() if index < 0}

    def request(self, proposal: Proposal) -> CheckRequest:
        """Decide who runs a case, and under which law besides the oracle."""
        contract = self.examiner.contracts[proposal.case.op]
        laws: tuple[str, ...] = ()
        turn = proposal.index // len(self._campaign.ops)  # of its op: the index would always hit the same ops
        if contract.laws and turn % LAW_EVERY == 0:
            laws = (contract.laws[turn // LAW_EVERY % len(contract.laws)].name,)
        takers = self._takers(proposal.case, spare=turn % INTERPRETED_EVERY != 0)
        if proposal.is_far:
            takers = self._one_of(takers, turn)
        elif proposal.is_long:
            rounds = turn // min(LONG.values())
            takers = self._bearing(proposal.case, takers, patient=not rounds or rounds % PATIENT_EVERY == 1)
        return CheckRequest(proposal.case, self._hangs.without(proposal.case, takers), laws)

    def _bearing(self, case: Case, takers: tuple[str, ...], *, patient: bool) -> tuple[str, ...]:
        """Keys of those that have the time for a long case."""
        contract, subjects = self.examiner.contracts[case.op], self.examiner.subjects
        able = (key for key in takers if key not in self._slow)
        return tuple(key for key in able if bears(subjects[key], contract, case, patient=patient))

    def _one_of(self, takers: tuple[str, ...], turn: int) -> tuple[str, ...]:
        """The key of the subject whose turn it is to run a case with more elements than 32 bits count, if there is one.

        Those for which cases are made come first: others would only be in the way.
        """
        able = [k for k in takers if bears_far(self.examiner.subjects[k]) and k not in self._slow_far]
        able = [k for k in able if k in self._deciding] or able
        return (able[turn // min(FAR.values()) % len(able)],) if able else ()

    def _takers(self, case: Case, *, spare: bool) -> tuple[str, ...]:
        """Keys of the subjects that run a case; all cases of an op and a dtype have the same, or the same less some."""
        form = case.op, case.dtype, spare
        if form not in self._known:
            takers = fitting(self.examiner.subjects.values(), case)
            others = tuple(key for key in takers if key not in self._spared)
            self._known[form] = others if spare and others else takers
        return self._known[form]

    def launch(self, proposals: Sequence[Proposal]) -> CheckBatch:
        """Send a batch to the sandbox, and what is emulated of it to that beside."""
        asked, deaths = [self.request(p) for p in proposals], self._hangs.counts(MOST_DEATHS)
        in_flight = self.examiner.launch(asked, MOST_DEATHS, deaths)
        if self._beside is not None:
            beside = {n: q for n, p in enumerate(proposals) if (q := self._beside.request(p.index, p.case)) is not None}
            in_flight.asked, in_flight.beside = tuple(beside), self._beside.launch(beside.values(), MOST_DEATHS_BESIDE)
        return in_flight

    def collect(self, in_flight: CheckBatch) -> list[dict[str, Outcome]]:
        """Wait for a batch; when time is up for what it has come to.

        Raises Ended if somebody wants an end, for a resumed run makes it again.
        """
        try:
            self.examiner.prepare(in_flight)
            return self.examiner.collect(in_flight)
        except Ended as ended:
            if not ended.in_time:
                raise
            return self.examiner.give_up(in_flight, NOT_RUN)

    def judge(
        self,
        proposals: Sequence[Proposal],
        in_flight: CheckBatch,
        outcomes: list[dict[str, Outcome]],
        upcoming: CheckBatch | None = None,
    ) -> Round:
        """Judge a batch that has come back; upcoming: the one that runs meanwhile."""
        last = proposals[-1].index
        done = Round(last // BATCH, last + 1, Counters(), [], [])
        for proposal, ran in zip(proposals, self.examiner.judge(in_flight, outcomes, upcoming), strict=True):
            checked = self._forgiven(proposal, ran) if proposal.is_long else self._with_left_out(proposal, ran)
            done.ledger.count(proposal.index, checked, self._open, self._deciding)
            done.ledger.count_checked(checked, self._judging)
            if proposal.wanted >= 0 and any(checked.verdicts[k].kind.facts.decided for k in self._mine(checked)):
                done.ledger.wanted.add((checked.case.op, proposal.wanted))
            self._sort(proposal, checked, in_flight, done)
            self._try(proposal, ran, done)
        if self._beside is not None and in_flight.beside is not None:
            emulated = self._beside.judge(in_flight.beside, in_flight.emulated)
            for number, checked in zip(in_flight.asked, emulated, strict=True):
                done.ledger.count_emulated(checked)
                self._fail_beside(proposals[number], checked, done)
        self._open -= done.ledger.reached.keys()
        return done

    def _with_left_out(self, proposal: Proposal, checked: Checked) -> Checked:
        """Add those that would have run, but have hung too often: the report says so."""
        self._hangs.meet(checked)
        if not self._hangs.spent:
            return checked
        turn = proposal.index // len(self._campaign.ops)
        out = set(self._takers(proposal.case, spare=turn % INTERPRETED_EVERY != 0)) - checked.verdicts.keys()
        if not out:
            return checked
        executions = {key: left_undone(key, self._hangs.reason).execution for key in sorted(out)}
        verdicts = {key: unsupported(execution) for key, execution in executions.items()}
        return replace(checked, verdicts=checked.verdicts | verdicts, executions=checked.executions | executions)

    def _forgiven(self, proposal: Proposal, checked: Checked) -> Checked:
        """Drop verdicts that say only that a case was long."""
        # The limits are made for ordinary cases.
        late = {key for key, verdict in checked.verdicts.items() if verdict.kind.facts.dear}
        (self._slow_far if proposal.is_far else self._slow).update(late)
        verdicts = {k: _only_long(checked.case, v) if k in late else v for k, v in checked.verdicts.items()}
        return replace(checked, verdicts=verdicts) if late else checked

    def _mine(self, checked: Checked) -> list[str]:
        """Keys of the subjects that have run a case and for whom cases are made."""
        return [key for key in checked.verdicts if key in self._deciding]

    def _try(self, proposal: Proposal, checked: Checked, done: Round) -> None:
        """Note whether a case was taken, if it is no mutant of one that was."""
        mine = [checked.verdicts[key] for key in self._mine(checked)]
        if self._campaign.generation < 2 or proposal.parent or not mine:
            return
        traits = traits_of(self.examiner.contracts[checked.case.op], checked.case)
        declined = all(v.kind is Kind.UNSUPPORTED for v in mine)
        done.tries.setdefault(checked.case.op, Tries()).add(traits, [v.message for v in mine if declined])

    def _sort(self, proposal: Proposal, checked: Checked, in_flight: CheckBatch, done: Round) -> None:
        """Let passes steer, and have failures looked into."""
        found_by = f"{self._campaign.run}:{proposal.index}"
        failed = [(checked.case, key, v) for key, v in checked.verdicts.items() if v.failed]
        for case, key, verdict in (*failed, *checked.beside):
            before = self._before(in_flight, case, key, verdict, proposal.index)
            done.failures.append(Failure(case, self.examiner.subjects[key], verdict, found_by, before))
        cells = elite_cells(checked.case, checked.verdicts)
        for key, verdict in checked.verdicts.items():
            if verdict.kind is Kind.PASS and self._elites.worth(cell := cells[key], verdict.rho):
                elite = Elite(cell, checked.case.op, verdict.rho, done.batch, proposal.index, proposal.choices)
                done.offers.append(elite)

    def _fail_beside(self, proposal: Proposal, checked: Checked, done: Round) -> None:
        """Queue what fails in check mode, on the processors beside a GPU, to be looked into there."""
        assert self._beside is not None
        found_by = f"{self._campaign.run}:{proposal.index}"
        failed = {key: verdict for key, verdict in checked.verdicts.items() if verdict.failed}
        done.failures.extend(Failure(checked.case, self._beside.subjects[k], v, found_by) for k, v in failed.items())

    def _before(self, in_flight: CheckBatch, case: Case, key: str, verdict: Verdict, index: int) -> tuple[Case, ...]:
        """Cases that led to a failure, if it is the first of its signature: only that one is looked into."""
        assert verdict.signature is not None
        if self._told.get(verdict.signature.key, index + 1) <= index:
            return ()
        self._told[verdict.signature.key] = index
        return self.examiner.ran_before(case, key, in_flight)


def _only_long(case: Case, verdict: Verdict) -> Verdict:
    said = f"{verdict.kind.value} on a long case of {case.elements:,} elements, which says nothing: {verdict.message}"
    return Verdict(kind=Kind.INCONCLUSIVE, rule=verdict.rule, message=said)
