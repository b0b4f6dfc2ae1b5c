"""A clock for one kernel in the sandbox: shapes are timed in rounds, in a shuffled order, in memory that stays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.large_policy import bytes_of
from kernel_assay.kernels.boundary.devices import is_made_on_gpu
from kernel_assay.kernels.boundary.protocol import Round, Task
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Reals
from kernel_assay.oracles.spec.plain_case import plain_case

ROUND_SECONDS, MOST_CALLS, FEW_CALLS = 2e-4, 1000, 4
"""Calls of a round take so long together: far above the resolution of the clock, and so short that few rounds are
disturbed by whatever else runs there. They are counted by a round of the few."""
ROOMS, ROOM_BYTES = 64, 1 << 26
"""Shapes whose inputs and outputs stay in memory at once, and their bytes; there are guards and copies besides."""


@dataclass
class KernelClock:
    """Seconds of a kernel by shape, as the worker's clock has them, which was bound before the kernel was loaded."""

    examiner: Examiner
    key: str
    dtype: str
    seed: int = 0
    problem: str = ""
    """Why a shape could not be timed; the first reason."""
    timed: int = 0
    """Rounds that were timed."""
    _calls: dict[str, int] = field(default_factory=dict)
    """By case: calls of a round."""
    _tasks: dict[str, Task] = field(default_factory=dict)
    """By case: what is asked, but for the round."""

    def case_of(self, dims: Dims) -> Case:
        """The case that is timed: plain values in contiguous tensors, and no input that may be left out."""
        contract = self.examiner.contracts[self.examiner.subjects[self.key].op]
        case = plain_case(contract, dims, self.dtype, self.seed)
        needed = {other for name in self.examiner.sandbox.needs.get(self.key, ()) for other in contract.group(name)}
        left_out = set(contract.optional) - needed
        return case.but(tensors={name: t for name, t in case.tensors.items() if name not in left_out})

    def __call__(self, shapes: Sequence[Dims], rounds: int, *, fresh: bool = False) -> Reals:
        """Time shapes: seconds of a call, an array [shapes, rounds]; NaN where they cannot be timed (search.Clock)."""
        return self.of_cases([self.case_of(dims) for dims in shapes], rounds, fresh=fresh)

    def of_cases(self, cases: Sequence[Case], rounds: int, *, fresh: bool) -> Reals:
        """Time cases in the same way."""
        if fresh:
            self.examiner.sandbox.renew(self.key)
        contract = self.examiner.contracts[self.examiner.subjects[self.key].op]
        if contract.elsewhere is not None:  # it is asked once for all of them
            contract.elsewhere.prepare([case for case in cases if case.id not in self._tasks])
        return np.concatenate([self._timed(some, rounds) for some in self._chunks(cases)])

    def _chunks(self, cases: Sequence[Case]) -> Iterator[list[Case]]:
        """Cases in their order, so many at a time as there is room for."""
        chunk, room = list[Case](), 0
        for case in cases:
            needed = bytes_of(self.examiner.contracts[case.op], case)
            if chunk and (len(chunk) == ROOMS or room + needed > ROOM_BYTES):
                yield chunk
                chunk, room = [], 0
            chunk.append(case)
            room += needed
        if chunk:
            yield chunk

    def _timed(self, cases: Sequence[Case], rounds: int) -> Reals:
        """Rounds of all of these, behind some that warm up; of two each has as many calls: it is disturbed as often."""
        first = self._round(cases, [1] * len(cases))
        timed = [n for n, seconds in enumerate(first) if seconds > 0]
        self._count([cases[n] for n in timed])
        calls = [self._calls.get(case.id, 1) for case in cases]
        calls = [max(calls)] * len(calls) if len(calls) == 2 else calls
        found = np.full((len(cases), rounds), np.nan)
        random = Random(f"{self.seed}:{len(self._calls)}")
        for number in range(-1, rounds):  # the first of them makes it warm, and is written over by the last
            order = random.sample(timed, len(timed))
            found[order, number] = self._round([cases[n] for n in order], [calls[n] for n in order])
        return found

    def _count(self, cases: Sequence[Case]) -> None:
        """Choose the calls of a round, where nobody has."""
        new = [case for case in cases if case.id not in self._calls]
        for case, seconds in zip(new, self._round(new, [FEW_CALLS] * len(new)), strict=True):
            if seconds > 0:
                self._calls[case.id] = max(1, min(MOST_CALLS, math.ceil(ROUND_SECONDS / seconds)))

    def _round(self, cases: Sequence[Case], calls: Sequence[int]) -> list[float]:
        """Seconds of a call of each case."""
        asked = [Round(n, quiet=True, lead=int(n > 1), rooms=ROOMS) for n in calls]
        tasks = [self._task(case, one) for case, one in zip(cases, asked, strict=True)]
        answers = self.examiner.sandbox.run(tasks)
        return [self._seconds(answer[self.key].execution, r.calls) for answer, r in zip(answers, asked, strict=True)]

    def _task(self, case: Case, asked: Round) -> Task:
        """A round in a message; on a GPU the inputs lie there, as those of large cases do."""
        if case.id not in self._tasks:
            large = self.examiner.is_large(case) or is_made_on_gpu(self.examiner.subjects[self.key])
            specs = self.examiner.contracts[case.op].output_specs(case)
            self._tasks[case.id] = Task(case, specs, (self.key,), large=large)
        return replace(self._tasks[case.id], round=asked)

    def _seconds(self, ran: Execution, calls: int) -> float:
        """Those of a call; NaN if it did not come to its end, or took no time, which nothing does."""
        if ran.status is Status.OK and ran.nanoseconds > 0:
            self.timed += 1
            return ran.nanoseconds / calls / 1e9
        self.problem = self.problem or f"{self.key} could not be timed: {ran.message or ran.status.value}"
        return math.nan
