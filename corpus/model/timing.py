"""Times of implementations: what each round took, on which machine, and what was said of the timed outputs.

A round times every implementation once, in a shuffled order: the n-th numbers of two of them are a pair.
"""

from __future__ import annotations

import math
from enum import StrEnum
from operator import not_
from typing import Literal

import numpy as np
from pydantic import Field

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict

_NORMAL_MAD, _NORMAL_MEDIAN = 1.4826, math.sqrt(math.pi / 2)
"""Of normal noise: its deviation over its MAD; the error of a median over that of a mean."""


def noise_of(seconds: tuple[float, ...]) -> float:
    """Estimate the standard error of the median of these, from their MAD, as a share of it; inf: fewer than two."""
    if len(seconds) < 2:
        return math.inf
    middle = float(np.median(seconds))
    spread = float(np.median(np.abs(np.asarray(seconds) - middle)))
    return _NORMAL_MEDIAN * _NORMAL_MAD * spread / math.sqrt(len(seconds)) / middle


class Timed(Record):
    """The times of one implementation on one case."""

    subject: str
    """Its key; for a baseline, too."""
    case: Case
    device: str = "cpu"
    """cpu, or the name of the GPU."""
    seconds: tuple[float, ...] = ()
    """One number per round that counts, the mean of its calls; empty if there is a problem."""
    launches: tuple[int, ...] = Field((), exclude_if=not_)
    """The launch of new processes that each round belongs to; empty, and left out: all to one."""
    calls: int = 0
    """Calls of a round."""
    bytes: int | None = None
    """Of its inputs and outputs."""
    least_bytes: int = 0
    """Those of them that must be moved, whatever it does."""
    operations: int | None = None
    """Arithmetic operations: 2mnk of a product, else elements of the largest tensor; None: unknown."""
    product: str = ""
    """Of a product of matrices: the dtype of its operands, or tf32; empty: another op."""
    verdict: Verdict | None = None
    """The oracle's word on the timed outputs; None: there were none."""
    problem: str = ""
    """Why there are no times that count, in one sentence; empty: there are."""
    finding: str = ""
    """A finding besides a failing verdict, in one sentence: faster than the machine can be, or untrue times."""

    @property
    def ranked(self) -> bool:
        """Whether its times may be compared with others."""
        return bool(self.seconds) and not self.problem and not self.failed

    @property
    def failed(self) -> bool:
        """Whether something was found: a wrong output, or times that cannot be true."""
        return bool(self.finding) or (self.verdict is not None and self.verdict.failed)

    @property
    def median(self) -> float:
        """The median of the rounds, in seconds; NaN if there are none."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> float:
        """A quantile of the rounds, in seconds; 0 is the minimum; NaN if there are no rounds."""
        return float(np.quantile(self.seconds, share)) if self.seconds else math.nan

    @property
    def noise(self) -> float:
        """The standard error of the median, as a share of it (see noise_of)."""
        return noise_of(self.seconds)

    @property
    def bandwidth(self) -> float:
        """Bytes of inputs and outputs a second; NaN if unknown."""
        return self.bytes / self.median if self.bytes is not None else math.nan

    @property
    def rate(self) -> float:
        """Operations a second; NaN if unknown."""
        return self.operations / self.median if self.operations is not None else math.nan


class Change(StrEnum):
    """The fate of a time."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNSURE = "unsure"


class Comparison(Record):
    """Two samples of times, `before` and `now`, after a test (fuzz/timing/compare.py)."""

    change: Change
    ratio: float
    """Estimate of time now over time before: 1.03 is 3 % slower."""
    low: float
    """Ends of the interval of that ratio, at the level `false_alarm` asks for."""
    high: float
    samples: int
    """Independent samples: launches of new processes, or blocks of rounds where there was one launch."""
    detects: float
    """Smallest ratio above 1 that would have been called slower in 99 of 100 such measurements."""
    false_alarm: float
    """Most often that two equally fast versions are told apart."""
    reason: str = ""
    """Why it is unsure, in one sentence."""

    @property
    def percent(self) -> str:
        """The estimate in words: `+3.1 %`."""
        return _percent(self.ratio)

    @property
    def interval(self) -> str:
        """The interval in words: `+2.2 % to +4.0 %`."""
        return f"{_percent(self.low)} to {_percent(self.high)}" if self.high < math.inf else "unknown"

    @property
    def detectable(self) -> str:
        """The smallest slowdown that would have been found."""
        return _percent(self.detects) if self.detects < math.inf else "none"


class Compared(Record):
    """One subject on one case, against an earlier version of it."""

    subject: str
    """Its key, and that of the earlier version."""
    before: str
    case: Case
    device: str = "cpu"
    comparison: Comparison


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"


class Peaks(Record):
    """The measured limits of a device: what a copy and products of matrices reach there."""

    schema_version: Literal[1] = 1
    device: str
    """Model of the processor, or of the GPU with its driver."""
    at: str
    """ISO 8601, UTC, when they were measured."""
    bandwidth: float
    """Bytes that a large copy reads and writes a second."""
    products: dict[str, float] = {}
    """By dtype: operations of a large product a second."""
    cache: int = 0
    """Bytes of the last level cache."""

    def least_seconds(self, one: Timed) -> float:
        """Seconds that a case takes at least by these numbers: the roofline; NaN if its bytes are unknown."""
        if one.bytes is None:
            return math.nan
        return max(one.bytes / self.bandwidth, self._arithmetic(one))

    def _arithmetic(self, one: Timed) -> float:
        rate = self.products.get(one.product, 0.0)
        return one.operations / rate if rate and one.operations is not None else 0.0

    def possible_seconds(self, one: Timed, cores: int) -> float:
        """The same, where nothing may be counted twice: without what a cache may hold, and with so many cores."""
        moved = max(0, one.least_bytes - self.cache) / self.bandwidth
        return max(moved, self._arithmetic(one)) / cores


class ClockSample(Record):
    """The clocks of a device at one moment; they are read, never changed."""

    at: float
    """Seconds since the run began."""
    mhz: float | None = None
    """Of the processor, or of the GPU's multiprocessors."""
    memory_mhz: float | None = None
    celsius: float | None = None
    throttled: tuple[str, ...] = ()
    """Reasons why the clock is lower than it could be, as NVML has them."""


class TimingRun(Record):
    """One run of `time`: where, when, how, and all times."""

    schema_version: Literal[1] = 1
    run: str
    """Its id: a date and random letters, as of a search."""
    version: str
    """Of this tool."""
    at: str
    """ISO 8601, UTC."""
    command: str = ""
    """The words of the command line; empty: it was called from Python."""
    revision: str = ""
    """Of git, in the working directory; empty: there is none."""
    seed: int
    device: str
    environment: Environment
    """The machine: system, processor, versions, GPUs with their drivers."""
    threads: int = 1
    """Threads that libraries of linear algebra may use."""
    warm: bool = False
    """Whether inputs may be in a cache when a call begins; else caches are flushed before each."""
    noise: float
    """Relative noise of the median at which rounds end."""
    limit: float
    """Seconds of rounds for a case, at most."""
    seconds: float = 0.0
    """The whole run took so long."""
    peaks: Peaks | None = None
    clocks: tuple[ClockSample, ...] = ()
    notes: tuple[str, ...] = ()
    """What makes the times less than they could be, in a sentence each: throttling, few rounds, an emulated kernel."""
    baseline: str = ""
    """Key of the subject over which speed-ups are; empty: there is none."""
    subjects: tuple[Subject, ...] = ()
    compared: tuple[Compared, ...] = Field((), exclude_if=not_)
    """What `--against` says; left out where nothing was asked."""
    timed: tuple[Timed, ...] = ()
    """One for each case and subject, case by case; the subjects in their order."""

    @property
    def failed(self) -> bool:
        """Whether something was found."""
        return any(one.failed for one in self.timed)

    def share(self, one: Timed) -> float:
        """The share of the roofline that an implementation reaches; NaN if that is unknown."""
        return self.peaks.least_seconds(one) / one.median if self.peaks else math.nan

    def by_case(self) -> list[tuple[Case, list[Timed]]]:
        """The times of each case, in their order."""
        found: dict[str, tuple[Case, list[Timed]]] = {}
        for one in self.timed:
            found.setdefault(one.case.id, (one.case, []))[1].append(one)
        return list(found.values())
