"""Findings that a run knows: its own, and those from before it that were seen to fail today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.replay.replay import Item, replay_one
from kernel_assay.fuzz.triage.failures import coarse, event, now
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.environment import environment


@dataclass
class Known:
    """Every finding about the subjects of a run, and the signatures that need no new one."""

    examiner: Examiner
    store: RunStore
    run: str
    hurried: Callable[[], bool]
    """Whether there is no time to ask."""
    troubles: list[UsageError | InternalError]
    """Where it is noted what went wrong with us."""
    ids: dict[str, str] = field(default_factory=dict)
    """Signature key -> id of a finding of this run, or of one from before it that was seen to fail today."""
    filed: dict[str, Finding] = field(default_factory=dict)
    """By id: every finding about these subjects, of this run or of earlier ones."""
    fresh: set[str] = field(default_factory=set)
    """Ids of the findings that nobody knew before this run."""
    asking: bool = True
    """Whether findings from before this run can still be run again."""
    _others: set[str] = field(default_factory=set)
    """Ids of findings about other kernels of the same names, as files of two folders are: their names are taken."""
    _old: dict[str, list[str]] = field(default_factory=dict)
    """Signature key -> ids of findings from before this run that have it: known once they have failed today."""
    _today: dict[str, bool] = field(default_factory=dict)
    """Finding id -> whether its own case fails in this run, of those that were run again."""
    _coarse: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    """Op, subject, kind and rule -> ids of the findings that are new in this run (of seeded bugs: of all)."""

    def __contains__(self, key: str) -> bool:
        """Whether a signature has a finding."""
        return key in self.ids

    def __getitem__(self, key: str) -> Finding:
        """The finding of a signature."""
        return self.filed[self.ids[key]]

    def like(self, verdict: Verdict) -> list[Finding]:
        """New findings of the same op, subject, kind and rule."""
        return [self.filed[i] for i in self._coarse.get(coarse(verdict), [])]

    def is_stateful(self, subject: Subject) -> bool:
        """Whether a subject is known today to keep something between two calls."""
        return any(f.subject.key == subject.key and f.before for f in (self.filed[i] for i in {*self.ids.values()}))

    def remember(self, finding: Finding, *, fresh: bool) -> None:
        """Take up a finding from the store: one from before this run is known when it has failed again."""
        if fresh or finding.subject.planted:
            self.learn(finding, fresh=fresh)
            return
        if not self._is_mine(finding):
            self._others.add(finding.id)
            return
        self.filed[finding.id] = finding
        for key in finding.keys:
            if finding.id not in (ids := self._old.setdefault(key, [])):
                ids.append(finding.id)

    def learn(self, finding: Finding, *keys: str, fresh: bool = False) -> None:
        """Take these signatures for known from now on; fresh: nobody knew the finding before this run."""
        self.filed[finding.id] = finding
        for key in (*finding.keys, *keys):
            self.ids[key] = finding.id
        if fresh:
            self.fresh.add(finding.id)
        filed = self._coarse.setdefault(coarse(finding.verdict), [])
        if (fresh or finding.subject.planted) and finding.id not in filed:
            filed.append(finding.id)

    def _is_mine(self, finding: Finding) -> bool:
        """Whether it is about the kernel of this run, or about one whose file is gone, which may be this one."""
        theirs, mine = resolve(finding.subject), resolve(self.examiner.subjects[finding.subject.key])
        return theirs == mine or not theirs.is_file()

    def own(self, finding: Finding) -> Finding:
        """The finding under an id that none has which does not fail today, or is about another kernel.

        What was repaired stays so.
        """
        for twin in count(finding.twin):
            mine = finding.but(twin=twin)
            free = mine.id not in self.filed and mine.id not in self._others
            if free or (mine.id in self.filed and self.fails_today(self.filed[mine.id])):
                return mine
        raise AssertionError

    def ask_the_old(self, key: str) -> None:
        """Let a signature be known by a finding from before this run, if the finding's own case fails today."""
        for finding_id in self._old.pop(key, []):
            if key not in self.ids and self.fails_today(self.filed[finding_id]):
                self.learn(self.filed[finding_id])

    def fails_today(self, finding: Finding) -> bool:
        """Whether a finding still stands: its case is run again, once in a run. One that never showed again does.

        A seeded bug is there on purpose, and when somebody wants an end there is no time to ask.
        """
        if finding.id in self.fresh or finding.subject.planted:
            return True
        if not self.asking or self.hurried():
            return self._today.get(finding.id, True)
        if finding.id not in self._today:
            self._today[finding.id] = self._replayed(finding)
        return self._today[finding.id]

    def _replayed(self, finding: Finding) -> bool:
        """Run a finding's case again; what it shows now is what its finding says from now on."""
        item = Item(finding.id, finding.case, self.examiner.subjects[finding.subject.key], finding)
        try:
            again = replay_one(self.examiner, item)
        except (UsageError, InternalError) as error:
            self.troubles.append(error)
            self.examiner.sandbox.renew()
            return False
        if again.shows:
            self.filed[finding.id] = self._as_seen(again.as_finding(), finding.verdict)
        elif again.repaired and finding.state is not State.FIXED and self.store.has(finding):
            said = event(State.FIXED, f"its case passed in run {self.run}")
            fixed = finding.but(state=State.FIXED, count=0, history=(said,))
            self.filed[finding.id] = self.store.save_finding(fixed)
        return again.shows or not finding.shows_again

    def _as_seen(self, finding: Finding, before: Verdict) -> Finding:
        """A finding as it shows today; before: how it did."""
        shown, verdict = finding.exhibit, finding.verdict
        if verdict.message != before.message and not verdict.kind.facts.dear:
            shown = self.examiner.look_at(finding.case, finding.subject.key, verdict, finding.before).exhibit
        return finding.but(exhibit=shown, environment=environment(), last_seen=now())
