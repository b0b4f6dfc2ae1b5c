"""One long search: generate, run, judge, and see to what fails; until time, cases or patience run out.

The loop is a pipeline of depth two. While the worker runs batch b + 1, this process judges batch b and generates batch
b + 2; so elites found in batch b steer batch b + 2, whatever the timing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign, Moment
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.batches import Round, Runner
from kernel_assay.fuzz.campaign.clock import FILE, FLIGHT, LOOK, SHRINK, Clock, Ended
from kernel_assay.fuzz.campaign.counters import Ledger
from kernel_assay.fuzz.campaign.coverage_journal import CoverageJournal
from kernel_assay.fuzz.campaign.garbage import seldom
from kernel_assay.fuzz.campaign.hang_allowance import HANG_SHARE
from kernel_assay.fuzz.campaign.known_findings import Known
from kernel_assay.fuzz.campaign.parallel import Fleet
from kernel_assay.fuzz.campaign.subject_counters import thinned
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.extents import noted
from kernel_assay.fuzz.generation.declines import Declines
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import BATCH, ENGINES, Proposal, Target
from kernel_assay.fuzz.planning.plan import targets
from kernel_assay.fuzz.triage.failures import Failure, Found, met_again, now, put_away
from kernel_assay.fuzz.triage.triage import SEQUENCE_SECONDS, as_met, investigate

CHECKPOINT_SECONDS = 2.0
CHECKPOINT_SHARE = 0.04
"""Of the time that checkpoints may take: they come more rarely where there is more to write."""
CHECKPOINT_RATE = 20_000
"""Bytes a second that they may write, for the same reason."""
SHRINK_SECONDS = 5.0
SHRINK_SHARE = 0.25
"""Of the time so far that may go into findings while the search is on; the rest waits for its last quarter."""
SHRINK_GRACE = 3.0
"""Seconds of it granted from the start."""
PER_COARSE = 3
"""New findings of the same op, subject, kind and rule that are shrunk while the search is on; further signatures wait
for its end, and get less time: most are the same bug."""
PER_DTYPE = 2
"""New findings a run files of the same op, subject, kind, rule and dtype; further ones are counted with the first. What
earlier runs know does not count: a bug that an old one resembles is filed at the latest by the next run."""
LATE_SECONDS = 1.0
"""For shrinking each of those."""
LATE_SHARE = 0.25
"""Of the time the search had, for all of those; at least LATE_LEAST seconds. The rest is filed unshrunk."""
LATE_LEAST = 5.0
UNSHRUNK = frozenset({State.NEW, State.CONFIRMED})
"""States of findings that were filed in a hurry, and are shrunk when they are met again."""
ANOTHER_SEQUENCE = 2.0
"""Seconds for shrinking a sequence of cases of a kernel of which one is known: most are the same bug."""
MOST_TRIES = 3
"""Failures of a finding that never showed again which are looked into: the next one may be another bug, and show."""
PER_PLANTED = 1
"""The same for bugs that were planted: one is proof enough, and further ones are counted with it."""


AFTER_CASES = 60.0
"""Seconds for the end of a search that ends with its last case."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop."""

    seconds: float = 60.0
    cases: int | None = None
    after_seconds: float | None = None
    """For the end of the run, which files what is still unshrunk; None: as much as is usual."""

    def clock(self, began: float | None = None) -> Clock:
        """One that begins now, or has begun."""
        usual = AFTER_CASES if self.cases is not None else None
        return Clock(self.seconds, usual if self.after_seconds is None else self.after_seconds, began)


@dataclass
class Search:
    """A campaign in progress: the record of it, and everything that is not recorded."""

    examiner: Examiner
    store: Store
    campaign: Campaign
    limits: Limits
    max_elements: int | None = None
    progress: Callable[[Search], None] = lambda _: None
    fleet: Fleet | None = None
    """Who does the work where one process is not enough; then the examiner sees to what fails."""
    began: InitVar[Clock | None] = None
    """Of the whole run; None: one that begins now."""
    clock: Clock = field(init=False)
    findings: dict[str, Finding] = field(default_factory=dict)
    """By id: those met in this run, as stored."""
    ledger: Ledger = field(default_factory=Ledger)
    """Of the whole run."""
    timeline: list[Moment] = field(default_factory=list)
    judged_before: int = 0
    """Outputs, in earlier sessions of the same run."""
    known_hits: int = 0
    pending: dict[str, Failure] = field(default_factory=dict)
    """By signature key: failures nobody has looked into yet."""
    troubles: list[UsageError | InternalError] = field(default_factory=list)
    """What went wrong with us, or with a contract, while failures were looked into: they were filed all the same."""
    ended_by: UsageError | InternalError | None = None
    """What ended the search before its time; whoever runs it notes it here to tell what was found first."""
    _known: Known = field(init=False)
    _journal: CoverageJournal = field(init=False)
    _tries: Counter[str] = field(default_factory=Counter)
    """Finding id -> failures of it that were looked into in this session."""
    _hits: Counter[str] = field(default_factory=Counter)
    """Finding id -> failing executions not yet added to the store."""
    _uncounted: set[str] = field(default_factory=set)
    """Keys of pending failures that no finding has counted yet."""
    _repeats: Counter[str] = field(default_factory=Counter)
    """Signature key -> times it was met again before anybody looked into it."""
    _late: set[str] = field(default_factory=set)
    """Keys of pending failures that wait for the search's end."""
    _triage_seconds: float = 0.0
    _begin: float = 0.0
    _before: float = 0.0
    """Seconds of earlier sessions of the same run."""
    _saved: float = 0.0
    """When the last checkpoint began, and how long it took."""
    _saving: float = 0.0
    _written: int = 0
    """Bytes of it."""

    def __post_init__(self, began: Clock | None) -> None:
        """Take up what the record and the store already know."""
        c = self.campaign
        self.clock = began or self.limits.clock()
        self.ledger, self.judged_before = Ledger.of(c, self.store.covered(c)), c.judged
        self.known_hits, self._before = c.known_hits, c.seconds
        self.timeline, self._journal = list(c.timeline), CoverageJournal(self.store, c.run)
        self._known = Known(self.examiner, self.store, c.run, lambda: self.clock.hurried, self.troubles)
        self.elites = Elites(self.store.read_journal(c.run, "elites"), c.most_lead, c.tried)
        self.declines = Declines(c.tried)
        keys, stored = set(self.examiner.subjects), self.store.findings()
        for finding in [*(f for _, f in self.store.regressions()), *stored]:
            if finding.subject.key in keys:
                self._known.remember(finding, fresh=finding.id in c.fresh)
        self.findings = {f.id: f for f in stored if f.id in c.findings}
        met = [Failure.read(said) for said in self.store.read_journal(c.run, "pending")]
        self.pending = {key: f for f in met if self._wanting(key := self._key(f.verdict))}
        self._uncounted = {key for key in self.pending if key not in self._known}

    @property
    def elapsed(self) -> float:
        """Seconds this session has run."""
        return time.monotonic() - self._begin if self._begin else 0.0

    @property
    def stop_requested(self) -> bool:
        """Whether somebody wants an end."""
        return self.clock.stopped

    @stop_requested.setter
    def stop_requested(self, wanted: bool) -> None:
        if wanted:
            self.clock.stop()

    def run(self) -> Campaign:
        """Search until a limit, then see to what is left; the finished record."""
        self._begin = self._saved = time.monotonic()
        with seldom(), self.clock.ticking():
            try:
                self._until(FLIGHT, self._search)
                self.clock.finish()
                if not self.stop_requested:
                    self._until(SHRINK, self._triage_all)
                    self._until(LOOK, self._keep_closest)
                    self._until(LOOK, self._note_limits)
            except (UsageError, InternalError):
                self._known.asking = False
                for key in list(self.pending):
                    self._triage(key, None, late=True)
                self._checkpoint(finished=False)
                raise
            self._until(FILE, self._file_rest)
        self._checkpoint(finished=not self.stop_requested and not self.pending)
        self.campaign = self.campaign.but(coverage=self.ledger.coverage.flat())
        return self.campaign

    def _until(self, share: float, work: Callable[[], None]) -> None:
        """Do a part of the run, and cut it when its share of the time for the end is over."""
        if self.clock.broken and share < FILE:
            return
        self.examiner.sandbox.beside = self._beside
        try:
            with self.clock.until(share):
                work()
        except Ended:
            if not self.clock.broken:
                self.examiner.abandon()
        finally:
            self.examiner.sandbox.beside = None

    def _beside(self) -> None:
        """While a worker is waited for: the others go on, and time may be up."""
        if self.fleet is not None:
            self.fleet.pump()
        self.clock.check()

    def _keep_closest(self) -> None:
        """The outputs that came closest to the line, so that they can be judged again under another contract."""
        looks = [self.examiner.look(case, key) for key, case in self._closest()]
        kept = [look.kept for look in looks if look.kept is not None and not look.verdict.failed]
        if kept:
            self.store.keep(self.campaign.run, kept)

    def _note_limits(self) -> None:
        """At which sizes, larger than any that are run, kernels would be wrong."""
        self.campaign = noted(self.campaign, self.examiner, self.clock.left)

    def _closest(self) -> list[tuple[str, Case]]:
        """By subject key; of a large case nothing would be kept."""
        pairs = [(key, case) for key, near in self.ledger.closest.items() for _, case in near]
        return [(key, case) for key, case in pairs if not self.examiner.is_large(case)]

    def _last_index(self) -> int:
        return self.limits.cases if self.limits.cases is not None else 1 << 62

    def _search(self) -> None:
        """Until a limit, alone or with a fleet."""
        begin, last = self.campaign.next_index, self._last_index()
        if begin >= last:
            return
        if self.fleet is None:
            self._search_alone()
            return
        known = self.store.read_journal(self.campaign.run, "elites")
        for done in self.fleet.rounds(begin, last, self._over, self._admit, known, self.clock.check):
            self._take(done)
            self._triage_some(done.next_index)

    def _search_alone(self) -> None:
        """A pipeline of two: one batch runs, while another is judged and a third made."""
        hangs = HANG_SHARE * self.limits.seconds
        stream, runner = self._stream(), Runner(self.examiner, self.campaign, self.elites, hangs)
        proposals = next(stream)
        flight = runner.launch(proposals)
        while True:
            following = next(stream)
            outcomes = runner.collect(flight)
            next_index = following[0].index if following else self._last_index()
            self._triage_some(next_index)
            upcoming = None if self._over(next_index) else runner.launch(following)
            done = runner.judge(proposals, flight, outcomes, upcoming)
            self._admit(done)
            self._take(done)
            if upcoming is None:
                return
            proposals, flight = following, upcoming

    def _stream(self) -> Iterator[list[Proposal]]:
        """Batches up to the last index; the last one may be short, and then an empty one follows."""
        engine = ENGINES[self.campaign.engine]
        start = self.campaign.next_index // BATCH * BATCH
        for batch in engine(self._targets(), self.campaign.seed, start, self.elites):
            yield [p for p in batch if self.campaign.next_index <= p.index < self._last_index()]

    def _targets(self) -> list[Target]:
        return targets(self.campaign, self.max_elements)

    def _over(self, next_index: int) -> bool:
        return self.clock.over or next_index >= self._last_index()

    def _admit(self, done: Round) -> list[dict[str, Any]]:
        """The elites among what a batch offers, to be called in the order of batches; lines of the journal."""
        admitted = [said for elite in done.offers if (said := self.elites.offer(elite)) is not None]
        admitted += self.elites.weigh(done.batch, done.tries)
        for said in admitted:
            self.store.journal(self.campaign.run, "elites", said)
        return admitted

    def _take(self, done: Round) -> None:
        """Add what came of a batch, in the order of batches."""
        with self.clock.undisturbed():
            self.ledger.add(done.ledger)
            self.declines.weigh(done.tries)
            for failure in done.failures:
                self._meet(failure)
            self._advance(done.next_index)

    def _meet(self, failure: Failure) -> None:
        """Count a failure; queue it if it is new, or known but not shrunk yet."""
        key = self._key(failure.verdict)
        if key in self._known:
            self._hit(self._known.ids[key])
        elif key in self.pending:
            self._repeats[key] += 1
            self.known_hits += 1
        else:
            self._uncounted.add(key)
        if self._wanting(key):
            self._queue(key, failure)

    def _wanting(self, key: str) -> bool:
        """Whether a signature has no finding today, or only one that was never shrunk."""
        if key not in self._known:
            return True
        finding = self._known[key]
        elusive = not finding.shows_again and self._tries[finding.id] < MOST_TRIES
        return finding.state in UNSHRUNK or elusive

    def _queue(self, key: str, failure: Failure) -> None:
        """Look into it later; the journal first, so that a kill loses nothing."""
        if key not in self.pending:
            self.pending[key] = failure
            self.store.journal(self.campaign.run, "pending", failure.plain())

    def _hit(self, finding_id: str) -> None:
        """A known finding was met again."""
        self._hits[finding_id] += 1
        self.known_hits += 1
        self.findings.setdefault(finding_id, self._known.filed[finding_id])

    def _key(self, verdict: Verdict) -> str:
        assert verdict.signature is not None
        return verdict.signature.key

    def _triage_some(self, next_index: int) -> None:
        """See to new failures now, as long as they do not take the search's time; its last quarter is for them."""
        try:
            while not self._over(next_index) and (
                self.clock.closing or self._triage_seconds < SHRINK_SHARE * self.elapsed + SHRINK_GRACE
            ):
                key = next((k for k in self.pending if k not in self._late), None)
                if key is None:
                    return
                self._triage(key, SHRINK_SECONDS)
        except Ended as ended:
            if not ended.in_time:
                raise
            self.examiner.abandon()

    def _triage_all(self) -> None:
        """See to what is left while there is time for it, the most different failures first."""
        while not self.clock.hurried and (key := next((k for k in self.pending if k not in self._late), None)):
            self._triage(key, SHRINK_SECONDS)
        deadline = time.monotonic() + max(LATE_LEAST, LATE_SHARE * self.elapsed)
        while not self.clock.hurried and self.pending:
            in_time = time.monotonic() < deadline
            self._triage(next(iter(self.pending)), LATE_SECONDS if in_time else 0.0, late=True)

    def _file_rest(self) -> None:
        """File what nobody has looked into, as it was met; what there is no time for stays in the journal."""
        self._known.asking = False
        for key in list(self.pending):
            if self.clock.hurried:
                return
            self._triage(key, None, late=True)

    def _triage(self, key: str, seconds: float | None, *, late: bool = False) -> None:
        """See to one failure. seconds: for shrinking it; None: it is not even run again."""
        begin = time.monotonic()
        failure = self.pending[key]
        if key not in self._known:
            self._known.ask_the_old(key)
        if key in self._known and key in self._uncounted:
            self._hit(self._known.ids[key])
        self._uncounted.discard(key)
        filed = self._known.like(failure.verdict)
        alike = self._alike(failure, filed)
        if key not in self._known and alike:
            self._known.ids[key] = alike
            self._hit(alike)
        elif not late and len(filed) >= PER_COARSE:
            self._late.add(key)
            return
        elif key not in self._known or (seconds and self._wanting(key)):
            self._investigate(key, failure, seconds)
        if key in self._known:
            self._hits[self._known.ids[key]] += self._repeats.pop(key, 0)
        del self.pending[key]
        self._triage_seconds += time.monotonic() - begin
        self.progress(self)

    def _alike(self, failure: Failure, filed: list[Finding]) -> str:
        """Id of the finding that a failure is counted with, because enough of its like are filed; or nothing."""
        if failure.subject.planted:
            return filed[0].id if len(filed) >= PER_PLANTED else ""
        mine = [f.id for f in filed if f.signature.dtype == failure.case.dtype]
        return mine[0] if len(mine) >= PER_DTYPE else ""

    def _investigate(self, key: str, failure: Failure, seconds: float | None) -> None:
        """Make a finding of a failure."""
        found = as_met(failure)
        if seconds is not None:
            found = investigate(
                self.examiner.where(failure.subject),
                failure,
                seconds=min(seconds, max(0.0, self.clock.left)),
                stopping=self._stopping,
                on_other=self._on_other(failure),
                sequence_seconds=ANOTHER_SEQUENCE if self._known.is_stateful(failure.subject) else SEQUENCE_SECONDS,
            )
        if found.trouble:
            self.troubles.append(InternalError(f"{found.finding.id} was not looked into to the end: {found.trouble}"))
        found = replace(found, finding=self._known.own(found.finding))
        with self.clock.undisturbed():
            self._put_away(key, found)

    def _put_away(self, key: str, found: Found) -> None:
        """Store a finding; one that was filed unshrunk before gives way to it."""
        before = self._known.filed.get(self._known.ids.get(key, ""))
        finding = found.finding
        known = {finding.id} & set(self._known.filed) | {self._known.ids[k] for k in finding.keys if k in self._known}
        kept = put_away(self.store, found, before)
        if before is not None and before.id != kept.id:
            self.store.drop(before)
            self.findings.pop(before.id, None)
            self._hits[kept.id] += self._hits.pop(before.id, 0)
        self._known.learn(kept, key, fresh=known <= self._known.fresh)
        self.findings[kept.id] = kept
        self._tries[kept.id] += 1

    def _stopping(self) -> bool:
        """Whether time is nearly up; asked again and again, so the fleet is kept busy here, too."""
        if self.fleet is not None:
            self.fleet.pump()
        return self.clock.hurried

    def _on_other(self, failure: Failure) -> Callable[[Case, Verdict], None]:
        def meet(case: Case, verdict: Verdict) -> None:
            key = self._key(verdict)
            if key not in self._known:
                before = self.examiner.ran_before(case, failure.subject.key)
                self._queue(key, Failure(case, failure.subject, verdict, failure.found_by, before))

        return meet

    def _advance(self, next_index: int) -> None:
        self.campaign = self.campaign.moved(next_index)
        pause = max(CHECKPOINT_SECONDS, self._saving / CHECKPOINT_SHARE, self._written / CHECKPOINT_RATE)
        if time.monotonic() - self._saved > pause:
            self._checkpoint(finished=False)
        self.progress(self)

    def _checkpoint(self, *, finished: bool) -> None:
        self._saved = time.monotonic()
        for finding_id, hits in self._hits.items():
            seen = self._known.filed[finding_id].but(count=hits, last_seen=now())
            met = seen if finding_id in self._known.fresh else met_again(seen, self.campaign.run)
            self.findings[finding_id] = self._known.filed[finding_id] = self.store.save_finding(met)
        self._hits.clear()
        moment = Moment(
            seconds=self._before + self.elapsed,
            judged=self.ledger.judged,
            cells=self.ledger.coverage.size,
            findings=len(self.findings),
        )
        self.timeline = thinned([*self.timeline, moment])
        self.campaign = self.campaign.but(
            cases=self.ledger.cases,
            judged=self.ledger.judged,
            seconds=self._before + self.elapsed,
            updated=now(),
            finished=finished,
            kinds=dict(self.ledger.kinds),
            by_subject={k: dict(v) for k, v in self.ledger.by_subject.items()},
            findings=tuple(sorted(self.findings)),
            known_hits=self.known_hits,
            coverage=self.ledger.coverage.flat() if finished else {},
            goals={name: self.ledger.reached.get(name, -1) for name in self.campaign.goals},
            max_rho=dict(self.ledger.max_rho),
            reach={key: dict(sizes) for key, sizes in self.ledger.reach.items()},
            tried=self.declines.record(),
            statistics=self.ledger.statistics(),
            timeline=tuple(self.timeline),
            fresh=tuple(sorted(self._known.fresh & set(self.findings))),
        )
        covered = self.ledger.coverage
        lined = 0 if finished else self._journal.add(covered, self.campaign.next_index)
        self._written = lined + self.store.checkpoint(self.campaign)
        self._journal.keep_short(covered, self.campaign.next_index, finished=finished)
        self._saving = time.monotonic() - self._saved
