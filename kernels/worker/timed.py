"""Rounds of calls that are timed: one implementation in memory that stays, with caches emptied before each call.

The first call of a case is not timed: its outputs are kept, and those that the last timed call leaves must be the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.boundary.protocol import Round
from kernel_assay.kernels.worker.exceptions import SubjectError, timed
from kernel_assay.kernels.worker.executor import Executor, Head, Run, Setting

_LINE = 64 // 8
"""Numbers of 8 bytes in a line of a cache."""
_THRESHOLDS = {-1: (1 << 31) - 1, -3: 1 << 25}
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h, in bytes."""
Make = Callable[[int], Callable[[], Any]]
"""Prepares the call of a number."""


@cache
def _gone_through(size: int) -> Array:
    """Bytes that are read to have caches forget everything else; each page has memory of its own."""
    return np.ones(size // 8, np.int64)


@cache
def _keep_memory() -> None:
    """Have the process keep what is freed: given back, it is mapped anew in each call, page by page, for some sizes.

    Which sizes those are depends on what was freed before. glibc's thresholds are set to their largest values; another
    library keeps its own.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for name, most in _THRESHOLDS.items():
            library.mallopt(name, most)


def host_round(make: Make, asked: Round) -> tuple[Any, int]:
    """Time calls one by one, by the clock of the host: what the last one returned, and the sum in nanoseconds."""
    _keep_memory()
    total, answer = 0, None
    for number in range(-asked.lead, asked.calls):
        call = None if asked.new else make(number)
        if asked.flush:
            _gone_through(asked.flush)[::_LINE].sum()
        answer = None  # a caller who needs no result lets it go
        answer, took = timed(call or make(number))  # new inputs are there at the last moment
        total += took if number >= 0 else 0
    return answer, total


def repeated(call: Callable[[], Any], calls: int) -> Any:
    """Call again and again; what came back at last."""
    answer = None
    for _ in range(calls):
        answer = None
        answer = call()
    return answer


@dataclass(frozen=True, slots=True)
class TimedExecutor(Executor):
    """An executor whose second run is a round."""

    asked: Round = field(default_factory=lambda: Round(1))
    kept: dict[str, Run] = field(default_factory=dict)
    """The first run of the case, by `first`, if there was one."""
    before: Setting | None = None
    """Where a call is made before one with new inputs: what was done since the last call has left memory cold."""

    def call(self, run: int, order: int, given: list[Any] | None = None) -> tuple[Any, int]:
        """Run 0 as always; run 1 is the round, and its time that of all calls."""
        if run == 0:
            return Executor.call(self, run, order, given)
        try:
            return self._round(given)
        except BaseException as error:
            raise SubjectError(error) from error

    def _round(self, given: list[Any] | None) -> tuple[Any, int]:
        access, asked = self.access, self.asked
        if asked.burst:
            call = self._made(-asked.lead, given)
            return timed(lambda: access.call(lambda: repeated(call, asked.calls)))
        if asked.new:
            access.hide(self.setting.memory)
        return access.timed_round(lambda number: self._made(number, given), asked)

    def _made(self, number: int, given: list[Any] | None) -> Callable[[], Any]:
        """A call with arguments of its own. Outputs are poisoned before the first one, and before the last."""
        setting, access, bound = self.setting, self.access, self.bound
        if number in {-self.asked.lead, self.asked.calls - 1}:
            setting.memory.reset(1)
            access.settle(setting.memory)
        if number == -self.asked.lead:
            access.prepare(setting.memory, setting.case, 1, 0)
        arguments, named = setting.arguments(access, self.extra, returns=bound.returns)
        if given is not None:
            given[:] = [(one, access.form(one)) for one in (*arguments, *named.values())]
        attributes = bound.attributes(setting.case.attrs)
        return lambda: bound.call(*arguments, **named, **attributes)

    def twice(self, order: int) -> tuple[Run, Run]:
        """The first run of the case, and a round of it; where its inputs are new the round comes before."""
        if not self.asked.new and "first" in self.kept:
            return self.kept["first"], self.once(1, order)
        if self.asked.new:
            if self.before is not None:
                replace(self, setting=self.before).once(0, order)
            second = self.once(1, order)
            second.results = [self.access.kept(result, large=self.setting.large) for result in second.results]
            self.kept["first"] = self.once(0, order)
            return self.kept["first"], second
        self.kept["first"] = self.once(0, order)
        return self.kept["first"], self.once(1, order)

    def report(self, first: Run, second: Run) -> tuple[Head, list[Any]]:
        """The same, with the time of the round, and without the outputs if nobody wants them."""
        head, payload = Executor.report(self, first, second)
        return {**head, "nanoseconds": second.nanoseconds}, [] if self.asked.quiet else payload
