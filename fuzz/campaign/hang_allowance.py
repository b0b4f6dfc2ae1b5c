"""The time that time-outs may cost a run: each takes all that an execution may have, and most tell the same."""

from __future__ import annotations

import math

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.planning.coverage import shape_class

HANG_SHARE = 0.25
"""Of a run's budget that time-outs of all its subjects may cost together, besides the first of each."""


class Hangs:
    """The subjects that have hung, where, and what they are left out of because of it."""

    def __init__(self, seconds: float, timeout: float) -> None:
        """seconds: what time-outs may cost in all; timeout: what one costs."""
        self._seconds, self._timeout = seconds, timeout
        self._spent = 0.0
        self._where: dict[str, set[str]] = {}
        """Subject key -> kinds of cases in which it has hung."""
        self._out: set[str] = set()
        """Subjects that have hung again in another kind of cases, when there was no more time for it."""

    @property
    def spent(self) -> bool:
        """Whether there is no more time for time-outs."""
        return self._spent > 0.0 and self._spent >= self._seconds

    @property
    def reason(self) -> str:
        """The reason why a subject is left out, for the report."""
        return f"not run: it hangs on such cases, and the {self._seconds:.0f} s of this run for time-outs are used up"

    def counts(self, most_deaths: int) -> int:
        """Deaths that a time-out of the next batch counts as: all that are allowed, if there is time for one."""
        affordable = (self._seconds - self._spent) / self._timeout
        return 1 if affordable >= most_deaths else max(1, math.ceil(most_deaths / max(1.0, affordable)))

    def meet(self, checked: Checked) -> None:
        """Count what a case has cost."""
        for key, verdict in checked.verdicts.items():
            if verdict.kind is Kind.TIMEOUT:
                kinds = self._where.setdefault(key, set())
                if self.spent and kinds:
                    self._out.add(key)
                kinds.add(_kind(checked.case))
                self._spent += self._timeout

    def without(self, case: Case, subjects: tuple[str, ...]) -> tuple[str, ...]:
        """The subjects that still run a case."""
        if not self.spent:
            return subjects
        kind = _kind(case)
        return tuple(k for k in subjects if k not in self._out and kind not in self._where.get(k, ()))


def _kind(case: Case) -> str:
    return f"{case.dtype}|{shape_class(case)}"
