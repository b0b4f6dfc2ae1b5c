"""One long search: generate, run, judge, and see to what fails; until time, cases or patience run out.

The loop is a pipeline of depth two. While the worker runs batch b + 1, this process judges batch b and generates batch
b + 2; so elites found in batch b steer batch b + 2, whatever the timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from itertools import zip_longest
from typing import Any

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.fuzz.campaign.batches import Round, Runner
from kernel_assay.fuzz.campaign.clock import FILE, FLIGHT, LOOK, SHRINK, Clock, Ended
from kernel_assay.fuzz.campaign.counters import Counters
from kernel_assay.fuzz.campaign.garbage import seldom
from kernel_assay.fuzz.campaign.hang_allowance import HANG_SHARE
from kernel_assay.fuzz.campaign.parallel import Fleet
from kernel_assay.fuzz.campaign.recorder import Recorder
from kernel_assay.fuzz.campaign.triage_queue import TriageQueue
from kernel_assay.fuzz.checking import extents, library_calls
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.events import BatchJudged, Event, Listener, RunEnded, nobody
from kernel_assay.fuzz.generation.declines import Declines
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import BATCH, ENGINES, Proposal, Target
from kernel_assay.fuzz.planning.plan import targets

AFTER_CASES = 60.0
"""Seconds for the end of a search that ends with its last case."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search."""

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
    store: RunStore
    campaign: Campaign
    limits: Limits
    max_elements: int | None = None
    on_event: Listener = nobody
    fleet: Fleet | None = None
    """Who does the work where one process is not enough; then the examiner sees to what fails."""
    began: InitVar[Clock | None] = None
    """Of the whole run; None: one that begins now."""
    clock: Clock = field(init=False)
    ledger: Counters = field(init=False)
    """Of the whole run."""
    queue: TriageQueue = field(init=False)
    recorder: Recorder = field(init=False)
    ended_by: UsageError | InternalError | None = None
    """What ended the search before its time; whoever runs it notes it here to tell what was found first."""
    deaf: Exception | None = None
    """What a listener raised: it is told nothing more, and the run ends as if it had been stopped."""

    def __post_init__(self, began: Clock | None) -> None:
        """Take up what the record and the store already know."""
        c = self.campaign
        self.clock = began or self.limits.clock()
        self.ledger = Counters.of(c, self.store.covered(c))
        self.elites = Elites(self.store.read_journal(c.run, "elites"), c.most_lead, c.tried)
        self.declines = Declines(c.tried)
        self.queue = TriageQueue(
            self.examiner, self.store, c, self.clock, self.tell, lambda: self.recorder.elapsed, self._pump
        )
        self.recorder = Recorder(self.store, c, self.ledger, self.queue, self.declines)

    def tell(self, event: Event) -> None:
        """Tell whoever listens, unless that has failed before."""
        if self.deaf is None:
            try:
                self.on_event(event)
            except Exception as error:  # noqa: BLE001  a stranger's code: what was found must not be lost by it
                self.deaf = error
                self.clock.stop()

    def _where(self) -> BatchJudged:
        return BatchJudged(
            cases=self.ledger.cases,
            judged=self.ledger.judged,
            here=self.ledger.judged - self.recorder.judged_before,
            seconds=self.recorder.elapsed,
            left=self.clock.over_at - time.monotonic(),
            cases_left=None if self.limits.cases is None else max(0, self.limits.cases - self.ledger.cases),
            grace=self.clock.grace,
            findings=len(self.queue.findings),
            pending=len(self.queue.pending),
            cells=self.ledger.coverage.size,
            by_subject=self.ledger.by_subject,
        )

    def _pump(self) -> None:
        if self.fleet is not None:
            self.fleet.pump()

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
        self.recorder.begin()
        with seldom(), self.clock.ticking():
            try:
                self._until(FLIGHT, self._search)
                self.clock.finish()
                if not self.stop_requested:
                    self._until(SHRINK, self.queue.all)
                    self._until(LOOK, self._keep_closest)
                    self._until(LOOK, self._note_calls)
                    self._until(LOOK, self._note_limits)
            except (UsageError, InternalError):
                self.queue.file_as_met()
                self._conclude(finished=False)
                raise
            self._until(FILE, self.queue.file_rest)
        self._conclude(finished=not self.stop_requested and not self.queue.pending)
        return self.campaign

    def _conclude(self, *, finished: bool) -> None:
        """Write the record for the last time."""
        self.recorder.checkpoint(finished=finished)
        self.campaign = self.recorder.campaign.but(coverage=self.ledger.coverage.flat())
        self.tell(RunEnded(self.campaign))

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
        self._pump()
        self.clock.check()

    def _keep_closest(self) -> None:
        """The outputs that came closest to the line, so that they can be judged again under another contract."""
        if not getattr(self.store, "keeps_outputs", True):  # a store of one's own need not know the word
            return
        looks = (self.examiner.look(case, key) for key, case in self._closest())
        kept = list(self.queue.fitting(look.kept for look in looks if not look.verdict.failed))
        if kept:
            self.store.keep(self.campaign.run, kept)

    def _note_limits(self) -> None:
        """Note sizes, larger than any that are run, at which kernels would be wrong."""
        self.recorder.campaign = extents.noted(self.recorder.campaign, self.examiner, self.clock.left)

    def _note_calls(self) -> None:
        """Note which kernels call what their references call."""
        self.recorder.campaign = library_calls.noted(self.recorder.campaign, self.examiner, self.clock.left)

    def _closest(self) -> list[tuple[str, Case]]:
        """Closest cases by subject key, of each the closest first; of a large case nothing would be kept."""
        ranks = zip_longest(*([(key, case) for _, case in near] for key, near in self.ledger.closest.items()))
        pairs = [pair for rank in ranks for pair in rank if pair is not None]
        return [(key, case) for key, case in pairs if not self.examiner.is_large(case)]

    def _last_index(self) -> int:
        return self.limits.cases if self.limits.cases is not None else 1 << 62

    def _search(self) -> None:
        """Search until a limit, alone or with a fleet."""
        begin, last = self.campaign.next_index, self._last_index()
        if begin >= last:
            return
        if self.fleet is None:
            self._search_alone()
            return
        known = self.store.read_journal(self.campaign.run, "elites")
        for done in self.fleet.rounds(begin, last, self._over, self._admit, known, self.clock.check):
            self._take(done)
            self._see_to_failures(done.next_index)

    def _search_alone(self) -> None:
        """A pipeline of two: one batch runs, while another is judged and a third made."""
        hangs = HANG_SHARE * self.limits.seconds
        stream, runner = self._stream(), Runner(self.examiner, self.campaign, self.elites, hangs)
        proposals = next(stream)
        in_flight = runner.launch(proposals)
        while True:
            following = next(stream)
            outcomes = runner.collect(in_flight)
            next_index = following[0].index if following else self._last_index()
            self._see_to_failures(next_index)
            upcoming = None if self._over(next_index) else runner.launch(following)
            done = runner.judge(proposals, in_flight, outcomes, upcoming)
            self._admit(done)
            self._take(done)
            if upcoming is None:
                return
            proposals, in_flight = following, upcoming

    def _stream(self) -> Iterator[list[Proposal]]:
        """Batches up to the last index, of which the last one may be short, and an empty one."""
        engine = ENGINES[self.campaign.engine]
        start = self.campaign.next_index // BATCH * BATCH
        for batch in engine(self._targets(), self.campaign.seed, start, self.elites):
            yield [p for p in batch if self.campaign.next_index <= p.index < self._last_index()]
            if batch[-1].index + 1 >= self._last_index():
                yield []
                return

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
                self.queue.meet(failure)
            self.recorder.advance(done.next_index)
        self.tell(self._where())

    def _see_to_failures(self, next_index: int) -> None:
        """Look into failures now, as long as that does not take the search's time."""
        before = len(self.queue.pending)
        self.queue.some(lambda: self._over(next_index))
        if len(self.queue.pending) != before:
            self.tell(self._where())
