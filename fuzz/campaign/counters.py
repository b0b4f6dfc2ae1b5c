"""Counts of a run, of every judged case and of everything together. A part of a run has a ledger of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Self

from kernel_assay.corpus.model.campaign import Campaign, Statistics
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.campaign.subject_counters import SubjectCounters
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.planning.coverage import cell_of
from kernel_assay.fuzz.planning.goals import reached_now
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.oracles.catalog import contract_of

CLOSEST = 4
"""Passing cases of each subject that are kept with their outputs: the closest calls."""


class Counters:
    """Counts that can be added up; begun from a run's record, or from nothing."""

    def __init__(self) -> None:
        self.cases = 0
        self.judged = 0
        """Outputs; those of cases that were declined are none."""
        self.coverage = Coverage()
        self.kinds: Counter[str] = Counter()
        self.by_subject: dict[str, dict[str, int]] = {}
        self.max_rho: dict[str, float] = {}
        self.closest: dict[str, list[tuple[float, Case]]] = {}
        """Subject key -> its passing cases with the largest share of their budget used, the closest first."""
        self.reached: dict[str, int] = {}
        """Goal -> index of the first case that reached it."""
        self.reach: dict[str, dict[str, int]] = {}
        """Subject key -> how large the dims were, and `elements` of the largest tensor, of cases it was judged on."""
        self.wanted: set[tuple[str, int]] = set()
        """Op, and position in its workload, of cases on which somebody was judged for whom cases are made."""
        self._tallies: dict[str, SubjectCounters] = {}

    @classmethod
    def of(cls, campaign: Campaign, coverage: Coverage) -> Self:
        """Read the counts of a run so far."""
        made = cls()
        made.cases, made.judged, made.max_rho = campaign.cases, campaign.judged, dict(campaign.max_rho)
        made.coverage, made.kinds = coverage, Counter(campaign.kinds)
        made.by_subject = {k: dict(v) for k, v in campaign.by_subject.items()}
        made.reached = {name: index for name, index in campaign.goals.items() if index >= 0}
        made.reach = {key: dict(sizes) for key, sizes in campaign.reach.items()}
        made.wanted = {(op, n) for op, one in campaign.workload.items() for n in one.judged}
        made._tallies = {s.key: SubjectCounters(campaign.statistics.get(s.key)) for s in campaign.subjects}
        return made

    def count(
        self, index: int, checked: Checked, goals: AbstractSet[str], deciding: AbstractSet[str] | None = None
    ) -> None:
        """A judged case. goals: those that may still be open; deciding: keys of those that reach them; None: of all."""
        self.cases += 1
        judged = tuple(_name(k) for k, verdict in checked.verdicts.items() if verdict.kind is not Kind.UNSUPPORTED)
        self.judged += len(judged)
        self.coverage.count(cell_of(checked.case), judged)
        for name in reached_now(goals - self.reached.keys(), checked, deciding) if goals else ():
            self.reached[name] = index
        self._count_size(checked)
        for key, verdict in checked.verdicts.items():
            self._count_kind(key, verdict)
            self._tally(key).add(checked, key)
            if verdict.kind is Kind.PASS:
                self._count_close(checked.case, key, verdict)

    def count_checked(self, checked: Checked, judging: AbstractSet[str]) -> None:
        """Count who ran a case in check mode that was counted; judging: keys of those that have one."""
        for key in judging & checked.verdicts.keys() if is_checked(checked.case) else ():
            if checked.verdicts[key].kind is not Kind.INCONCLUSIVE:
                self._tally(key).add_emulated(checked.verdicts[key])

    def count_emulated(self, checked: Checked) -> None:
        """A case that was counted, and was emulated besides: of its verdicts only failures count with the others."""
        for key, verdict in checked.verdicts.items():
            self._tally(key).add_emulated(verdict)
            if verdict.failed:
                self.judged += 1
                self._count_kind(key, verdict)

    def _count_kind(self, key: str, verdict: Verdict) -> None:
        self.kinds[verdict.kind.value] += 1
        mine = self.by_subject.setdefault(key, {})
        mine[verdict.kind.value] = mine.get(verdict.kind.value, 0) + 1

    def add(self, part: Counters) -> None:
        """Add what came after it."""
        self.cases += part.cases
        self.judged += part.judged
        self.coverage.add(part.coverage)
        self.kinds.update(part.kinds)
        self.reached = {**part.reached, **self.reached}
        self.wanted |= part.wanted
        for key, kinds in part.by_subject.items():
            mine = self.by_subject.setdefault(key, {})
            for kind, count in kinds.items():
                mine[kind] = mine.get(kind, 0) + count
        for key, rho in part.max_rho.items():
            self.max_rho[key] = max(rho, self.max_rho.get(key, 0.0))
        for key, sizes in part.reach.items():
            _enlarge(self.reach.setdefault(key, {}), sizes)
        for key, near in part.closest.items():
            self.closest[key] = _nearest([*self.closest.get(key, ()), *near])
        for key, tally in part._tallies.items():
            self._tally(key).merge(tally)

    def statistics(self) -> dict[str, Statistics]:
        """Statistics by subject key."""
        return {key: tally.record() for key, tally in self._tallies.items()}

    def _count_size(self, checked: Checked) -> None:
        judged = [key for key, verdict in checked.verdicts.items() if verdict.kind.facts.decided]
        if not judged:
            return
        largest = max((t.size for t in checked.case.tensors.values()), default=0)
        sizes = {**contract_of(checked.case.op).dims_of(checked.case), "elements": largest}
        for key in judged:
            _enlarge(self.reach.setdefault(key, {}), sizes)

    def _tally(self, key: str) -> SubjectCounters:
        if key not in self._tallies:
            self._tallies[key] = SubjectCounters()
        return self._tallies[key]

    def _count_close(self, case: Case, key: str, verdict: Verdict) -> None:
        if verdict.rho > self.max_rho.get(key, 0.0):
            self.max_rho[key] = verdict.rho
        mine = self.closest.setdefault(key, [])
        if verdict.rho > 0.0 and (len(mine) < CLOSEST or verdict.rho > mine[-1][0]):
            self.closest[key] = _nearest([*mine, (verdict.rho, case)])


@cache
def _name(key: str) -> str:
    """Name of a subject, without its op."""
    return key.partition("/")[2]


def _enlarge(known: dict[str, int], sizes: Mapping[str, int]) -> None:
    for name, extent in sizes.items():
        if extent > known.get(name, -1):
            known[name] = extent


def _nearest(cases: list[tuple[float, Case]]) -> list[tuple[float, Case]]:
    return sorted(cases, key=lambda pair: -pair[0])[:CLOSEST]
