"""Counters of each subject while a run goes on: speed, budget used, distance, classes met, cases declined."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_assay.corpus.model.campaign import Fidelity, Moment, Statistics
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.requests import Checked

BUDGET_BUCKETS = 10
"""None of the budget, then up to 2**-8, ..., up to 2**0."""
REASONS = 12
"""Different reasons for declining that are counted one by one; the rest is one more."""
OTHER_REASONS = "other reasons"
MOMENTS = 240
_NOTHING = Statistics()


class SubjectCounters:
    """Counts about one subject; `record` is what lasts. Its dicts are plain: thousands a second change processes."""

    def __init__(self, before: Statistics | None = None) -> None:
        said = before or _NOTHING
        self._timed, self._nanoseconds, self._elements = said.timed, said.nanoseconds, said.elements
        self._rho = list(said.rho) or [0] * BUDGET_BUCKETS
        self._ulps = list(said.ulps)
        self._classes, self._skipped = dict(said.classes), dict(said.skipped)
        self._fidelity = dict(said.fidelity)
        self._warned, self._warning = said.warned, said.warning
        self._checked, self._unchecked = said.checked, said.unchecked

    def add_emulated(self, verdict: Verdict) -> None:
        """Count a case that was to be run in check mode beside a GPU."""
        if verdict.kind is Kind.INCONCLUSIVE:
            self._unchecked = self._unchecked or verdict.message
        elif verdict.kind is not Kind.UNSUPPORTED:
            self._checked += 1

    def add(self, checked: Checked, key: str) -> None:
        """Count what came of one case."""
        verdict, execution = checked.verdicts[key], checked.executions[key]
        if execution.warnings:
            self._warned += 1
            self._warning = self._warning or execution.warnings[0]
        if execution.status is Status.OK:
            self._timed += 1
            self._nanoseconds += execution.nanoseconds
            self._elements += checked.case.elements
        if verdict.kind is Kind.PASS:
            self._rho[budget_bucket(verdict.rho)] += 1
            self._count_ulps(ulps_bucket(verdict.ulps))
            self._count_classes(dict.fromkeys(checked.classes, 1))
            if key in checked.fidelity:
                self._keep_worst(*checked.fidelity[key])
        elif verdict.kind is Kind.UNSUPPORTED:
            self._skip(verdict.message)

    def merge(self, part: SubjectCounters) -> None:
        """Add the counts of what came after these."""
        self._timed += part._timed
        self._nanoseconds += part._nanoseconds
        self._elements += part._elements
        self._warned += part._warned
        self._warning = self._warning or part._warning
        self._checked += part._checked
        self._unchecked = self._unchecked or part._unchecked
        self._rho = [a + b for a, b in zip(self._rho, part._rho, strict=True)]
        longer = len(part._ulps) - len(self._ulps)
        mine, theirs = self._ulps + [0] * longer, part._ulps + [0] * -longer
        self._ulps = [a + b for a, b in zip(mine, theirs, strict=True)]
        self._count_classes(part._classes)
        for reason, count in part._skipped.items():
            self._skip(reason, count)
        for kind, one in part._fidelity.items():
            self._keep_worst(kind, one)

    def _skip(self, reason: str, count: int = 1) -> None:
        known = reason in self._skipped or len(self._skipped) < REASONS
        word = reason if known else OTHER_REASONS
        self._skipped[word] = self._skipped.get(word, 0) + count

    def _count_classes(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self._classes[name] = self._classes.get(name, 0) + count

    def _count_ulps(self, bucket: int) -> None:
        self._ulps += [0] * (bucket + 1 - len(self._ulps))
        self._ulps[bucket] += 1

    def _keep_worst(self, kind: str, one: Fidelity) -> None:
        if kind not in self._fidelity or one.worst > self._fidelity[kind].worst:
            self._fidelity[kind] = one

    def record(self) -> Statistics:
        """The counts so far."""
        return Statistics(
            timed=self._timed,
            nanoseconds=self._nanoseconds,
            elements=self._elements,
            rho=tuple(self._rho),
            ulps=tuple(self._ulps),
            classes=dict(self._classes),
            skipped=dict(self._skipped),
            warned=self._warned,
            warning=self._warning,
            fidelity=dict(sorted(self._fidelity.items())),
            checked=self._checked,
            unchecked=self._unchecked,
        )


def budget_bucket(rho: float) -> int:
    """0 for no budget used; the last bucket ends at 1."""
    if rho <= 0.0:
        return 0
    return max(1, min(BUDGET_BUCKETS - 1, BUDGET_BUCKETS - 1 + math.ceil(math.log2(rho))))


def ulps_bucket(ulps: int) -> int:
    """0, 1, 2, 3-4, 5-8, ..."""
    return 0 if ulps == 0 else 1 + (ulps - 1).bit_length()


def thinned(moments: list[Moment]) -> list[Moment]:
    """Every second moment and the last one, once there are too many."""
    return [*moments[:-1:2], moments[-1]] if len(moments) >= MOMENTS else moments
