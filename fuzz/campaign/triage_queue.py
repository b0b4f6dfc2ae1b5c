"""Failures that a run has met, and what has become of each: counted with a known one, waiting, or filed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.merging import stays
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.fuzz.campaign.clock import Clock, Ended
from kernel_assay.fuzz.campaign.known_findings import Known
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.events import FailureMet, FindingFiled, Listener
from kernel_assay.fuzz.triage.failures import Failure, Found, met_again, now, put_away
from kernel_assay.fuzz.triage.sanitize import watched
from kernel_assay.fuzz.triage.triage import SEQUENCE_SECONDS, as_met, investigate

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
MOST_KEPT = 64 << 20
"""Bytes of outputs that a run keeps, of its findings and of its closest calls; what comes later has none."""
PER_PLANTED = 1
"""The same for seeded bugs: one is proof enough, and further ones are counted with it."""


@dataclass
class TriageQueue:
    """Failures that wait to be looked into while a search goes on, and at its end."""

    examiner: Examiner
    store: RunStore
    campaign: Campaign
    """As it was when this session began."""
    clock: Clock
    tell: Listener
    elapsed: Callable[[], float]
    """Seconds of this session."""
    beside: Callable[[], None]
    """Called while a failure is looked into, so that other processes do not wait."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """By id: those met in this run, as stored."""
    known_hits: int = 0
    pending: dict[str, Failure] = field(default_factory=dict)
    """By signature key: failures nobody has looked into yet."""
    troubles: list[UsageError | InternalError] = field(default_factory=list)
    """What went wrong with us, or with a contract, while failures were looked into: they were filed all the same."""
    known: Known = field(init=False)
    room: int = field(init=False)
    """Bytes of outputs that this run may still keep."""
    _tries: Counter[str] = field(default_factory=Counter)
    """Finding id -> failures of it that were looked into in this session."""
    _hits: Counter[str] = field(default_factory=Counter)
    """Finding id -> failing executions not yet added to the store."""
    _uncounted: set[str] = field(default_factory=set)
    """Keys of pending failures that no finding has counted yet."""
    _repeats: Counter[str] = field(default_factory=Counter)
    """Signature key -> times it was met again before anybody looked into it."""
    _unwatched: list[str] = field(default_factory=list)
    """Ids of findings that compute-sanitizer has not been asked about."""
    _late: set[str] = field(default_factory=set)
    """Keys of pending failures that wait for the search's end."""
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        """Take up what the record and the store already know."""
        c = self.campaign
        self.known_hits = c.known_hits
        self.known = Known(self.examiner, self.store, c.run, lambda: self.clock.hurried, self.troubles)
        keys, stored = set(self.examiner.subjects), self.store.findings()
        # A kill between the storing of a finding and the run's record leaves those that the record does not know.
        own = {f.id for f in stored if f.found_by.partition(":")[0] == c.run}
        for finding in [*(f for _, f in self.store.regressions()), *stored]:
            if finding.subject.key in keys:
                self.known.remember(finding, fresh=finding.id in own.union(c.fresh))
        self.findings = {f.id: f for f in stored if f.id in own.union(c.findings)}
        self.room = MOST_KEPT - sum(map(self.store.kept_size, self.findings))
        met = [Failure.read(said) for said in self.store.read_journal(c.run, "pending")]
        self.pending = {key: f for f in met if self._wanting(key := self._key(f.verdict))}
        self._uncounted = {key for key in self.pending if key not in self.known}

    def count(self) -> None:
        """Add what was met since then to the findings in the store."""
        for finding_id, hits in self._hits.items():
            seen = self.known.filed[finding_id].but(count=hits, last_seen=now())
            met = seen if finding_id in self.known.fresh else met_again(seen, self.campaign.run)
            self.findings[finding_id] = self.known.filed[finding_id] = self.store.save_finding(met)
        self._hits.clear()

    def file_as_met(self) -> None:
        """File everything that waits, unseen: the search ends by an error."""
        self.known.asking = False
        for key in list(self.pending):
            self._look_into(key, None, late=True)

    def meet(self, failure: Failure) -> None:
        """Count a failure; queue it if it is new, or known but not shrunk yet."""
        key = self._key(failure.verdict)
        if key in self.known:
            self._hit(self.known.ids[key])
        elif key in self.pending:
            self._repeats[key] += 1
            self.known_hits += 1
        else:
            self._uncounted.add(key)
        if self._wanting(key):
            self._queue(key, failure)

    def _wanting(self, key: str) -> bool:
        """Whether a signature has no finding today, or only one that was never shrunk."""
        if key not in self.known:
            return True
        finding = self.known[key]
        elusive = not finding.shows_again and self._tries[finding.id] < MOST_TRIES
        return finding.state in UNSHRUNK or elusive

    def _queue(self, key: str, failure: Failure) -> None:
        """Look into it later; the journal first, so that a kill loses nothing."""
        if key not in self.pending:
            self.pending[key] = failure
            self.store.journal(self.campaign.run, "pending", failure.plain())
            self.tell(FailureMet(failure))

    def _hit(self, finding_id: str) -> None:
        """A known finding was met again."""
        self._hits[finding_id] += 1
        self.known_hits += 1
        self.findings.setdefault(finding_id, self.known.filed[finding_id])

    def _key(self, verdict: Verdict) -> str:
        assert verdict.signature is not None
        return verdict.signature.key

    def some(self, over: Callable[[], bool]) -> None:
        """See to new failures now, as long as they do not take the search's time; its last quarter is for them."""
        try:
            while not over() and (self.clock.closing or self._seconds < SHRINK_SHARE * self.elapsed() + SHRINK_GRACE):
                key = next((k for k in self.pending if k not in self._late), None)
                if key is not None:
                    self._look_into(key, SHRINK_SECONDS)
                elif self._unwatched:
                    self._watch()
                else:
                    return
        except Ended as ended:
            if not ended.in_time:
                raise
            self.examiner.abandon()

    def all(self) -> None:
        """See to what is left while there is time for it, the most different failures first."""
        while not self.clock.hurried and (key := next((k for k in self.pending if k not in self._late), None)):
            self._look_into(key, SHRINK_SECONDS)
        deadline = time.monotonic() + max(LATE_LEAST, LATE_SHARE * self.elapsed())
        while not self.clock.hurried and self.pending:
            in_time = time.monotonic() < deadline
            self._look_into(next(iter(self.pending)), LATE_SECONDS if in_time else 0.0, late=True)
        while not self.clock.hurried and self._unwatched:
            self._watch()

    def file_rest(self) -> None:
        """File what nobody has looked into, as it was met; what there is no time for stays in the journal."""
        self.known.asking = False
        for key in list(self.pending):
            if self.clock.hurried:
                return
            self._look_into(key, None, late=True)

    def _look_into(self, key: str, seconds: float | None, *, late: bool = False) -> None:
        """See to one failure. seconds: for shrinking it; None: it is not even run again."""
        begin = time.monotonic()
        failure = self.pending[key]
        if key not in self.known:
            self.known.ask_the_old(key)
        if key in self.known and key in self._uncounted:
            self._hit(self.known.ids[key])
        self._uncounted.discard(key)
        filed = self.known.like(failure.verdict)
        alike = self._alike(failure, filed)
        if key not in self.known and alike:
            self.known.ids[key] = alike
            self._hit(alike)
        elif not late and len(filed) >= PER_COARSE:
            self._late.add(key)
            return
        elif key not in self.known or (seconds and self._wanting(key)):
            self._investigate(key, failure, seconds)
        if key in self.known:
            self._hits[self.known.ids[key]] += self._repeats.pop(key, 0)
        del self.pending[key]
        self._seconds += time.monotonic() - begin

    def _watch(self) -> None:
        """Run compute-sanitizer on a finding. It takes seconds, so that other failures come first."""
        begin = time.monotonic()
        filed = self.known.filed.get(self._unwatched.pop(0))
        told = watched(filed, self._stopping) if filed is not None else None
        if told is not None and told is not filed:
            self.findings[told.id] = self.known.filed[told.id] = self.store.save_finding(told.but(count=0))
        self._seconds += time.monotonic() - begin

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
                is_told=self._is_told,
                sequence_seconds=ANOTHER_SEQUENCE if self.known.is_stateful(failure.subject) else SEQUENCE_SECONDS,
            )
        if found.trouble:
            self.troubles.append(InternalError(f"{found.finding.id} was not looked into to the end: {found.trouble}"))
        found = replace(found, finding=self.known.own(found.finding))
        with self.clock.undisturbed():
            self._put_away(key, found)

    def _is_told(self, met: Finding) -> bool:
        """Whether this run has filed all that there is to say of what a failure has come down to."""
        return met.id in self.known.fresh and stays(self.known.filed[met.id], met)

    def _put_away(self, key: str, found: Found) -> None:
        """Store a finding; one that was filed unshrunk before gives way to it."""
        before = self.known.filed.get(self.known.ids.get(key, ""))
        finding = found.finding
        known = {finding.id} & set(self.known.filed) | {self.known.ids[k] for k in finding.keys if k in self.known}
        found = replace(found, kept=next(iter(self.fitting([found.kept])), None))
        kept = put_away(self.store, found, before)
        if before is not None and before.id != kept.id:
            self.store.drop(before)
            self.findings.pop(before.id, None)
            self._hits[kept.id] += self._hits.pop(before.id, 0)
        self.known.learn(kept, key, fresh=known <= self.known.fresh)
        self.findings[kept.id] = kept
        self._tries[kept.id] += 1
        if kept.id not in self._unwatched:
            self._unwatched.append(kept.id)
        self.tell(FindingFiled(kept))

    def fitting(self, kept: Iterable[Kept | None]) -> Iterator[Kept]:
        """Yield those for which there is room, which they take."""
        for each in kept:
            if each is not None and each.size <= self.room:
                self.room -= each.size
                yield each

    def _stopping(self) -> bool:
        """Whether time is nearly up; asked again and again, so other processes are kept busy here, too."""
        self.beside()
        return self.clock.hurried

    def _on_other(self, failure: Failure) -> Callable[[Case, Verdict], None]:
        def meet(case: Case, verdict: Verdict) -> None:
            key = self._key(verdict)
            if key not in self.known:
                before = self.examiner.ran_before(case, failure.subject.key)
                self._queue(key, Failure(case, failure.subject, verdict, failure.found_by, before))

        return meet
