"""The record of a run while it goes on: how far it is, what was counted, and when that is written."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_assay.corpus.model.campaign import Campaign, Moment
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.fuzz.campaign.counters import Counters
from kernel_assay.fuzz.campaign.coverage_journal import CoverageJournal
from kernel_assay.fuzz.campaign.subject_counters import thinned
from kernel_assay.fuzz.campaign.triage_queue import TriageQueue
from kernel_assay.fuzz.checking.user_references import unfollowed_of, unjudged_of
from kernel_assay.fuzz.generation.declines import Declines
from kernel_assay.fuzz.triage.failures import now

CHECKPOINT_SECONDS = 2.0
CHECKPOINT_SHARE = 0.04
"""Of the time that checkpoints may take: they come more rarely where there is more to write."""
CHECKPOINT_RATE = 20_000
"""Bytes a second that they may write, for the same reason."""


@dataclass
class Recorder:
    """Writes the record of a run now and then, so that a kill loses seconds."""

    store: RunStore
    campaign: Campaign
    ledger: Counters
    queue: TriageQueue
    declines: Declines
    timeline: list[Moment] = field(init=False)
    judged_before: int = field(init=False)
    """Outputs, in earlier sessions of the same run."""
    _before: float = field(init=False)
    """Seconds of earlier sessions of the same run."""
    _journal: CoverageJournal = field(init=False)
    _begin: float = 0.0
    _saved: float = 0.0
    """When the last checkpoint began, and how long it took."""
    _saving: float = 0.0
    _written: int = 0
    """Bytes of it."""

    def __post_init__(self) -> None:
        """Take up what the record already says."""
        self.timeline, self.judged_before = list(self.campaign.timeline), self.campaign.judged
        self._before, self._journal = self.campaign.seconds, CoverageJournal(self.store, self.campaign.run)

    def begin(self) -> None:
        """Start this session's time; the first step is recorded at once."""
        self._begin, self._saved = time.monotonic(), -math.inf

    @property
    def elapsed(self) -> float:
        """Seconds this session has run."""
        return time.monotonic() - self._begin if self._begin else 0.0

    def advance(self, next_index: int) -> None:
        """Note how far the run is, and write it if that is due."""
        self.campaign = self.campaign.moved(next_index)
        pause = max(CHECKPOINT_SECONDS, self._saving / CHECKPOINT_SHARE, self._written / CHECKPOINT_RATE)
        if time.monotonic() - self._saved > pause:
            self.checkpoint(finished=False)

    def checkpoint(self, *, finished: bool) -> None:
        """Write the record, and the findings' counts."""
        self._saved = time.monotonic()
        self.queue.count()
        found = self.queue.findings
        self.campaign = self._counted(finished=finished).but(
            findings=tuple(sorted(found)),
            known_hits=self.queue.known_hits,
            fresh=tuple(sorted(self.queue.known.fresh & set(found))),
        )
        covered = self.ledger.coverage
        lined = 0 if finished else self._journal.add(covered, self.campaign.next_index)
        self._written = lined + self.store.checkpoint(self.campaign)
        self._journal.keep_short(covered, self.campaign.next_index, finished=finished)
        self._saving = time.monotonic() - self._saved

    def _counted(self, *, finished: bool) -> Campaign:
        """The record with what was counted so far."""
        ledger = self.ledger
        self.timeline = thinned([*self.timeline, self._moment()])
        return self.campaign.but(
            cases=ledger.cases,
            judged=ledger.judged,
            seconds=self._before + self.elapsed,
            updated=now(),
            finished=finished,
            kinds=dict(ledger.kinds),
            by_subject=_copied(ledger.by_subject),
            coverage=ledger.coverage.flat() if finished else {},
            goals={name: ledger.reached.get(name, -1) for name in self.campaign.goals},
            max_rho=dict(ledger.max_rho),
            reach=_copied(ledger.reach),
            tried=self.declines.record(),
            statistics=ledger.statistics(),
            workload={
                op: one.but(judged=sorted(n for of, n in ledger.wanted if of == op))
                for op, one in self.campaign.workload.items()
            },
            unfollowed=unfollowed_of(self.campaign.ops),
            unjudged=unjudged_of(self.campaign.ops),
            timeline=tuple(self.timeline),
        )

    def _moment(self) -> Moment:
        return Moment(
            seconds=self._before + self.elapsed,
            judged=self.ledger.judged,
            cells=self.ledger.coverage.size,
            findings=len(self.queue.findings),
        )


def _copied(table: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {key: dict(row) for key, row in table.items()}
