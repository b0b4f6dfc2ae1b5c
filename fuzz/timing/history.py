"""Find out since when a kernel is slower or faster: change points in the medians of kept runs, one series a machine.

A series is cut where that lowers the sum of absolute deviations from the parts' medians by more than a penalty for each
cut, the least sum over all ways to cut it (optimal partitioning: Jackson et al. 2005, An algorithm for optimal
partitioning of data on an interval). Deviations are in units of the noise between neighbouring runs, so one odd run
moves nothing. A part has three runs or more; the penalty makes a cut in a flat series of up to 200 runs one in a
hundred (tests/fuzz/test_timing_history.py simulates that).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.timing import Timed, TimingRun
from kernel_assay.fuzz.timing.compare import LEAST
from kernel_assay.reports.words import count, moment, time_of

NAME = "history.json"
"""Name of the file in which a run's times are kept for it."""
SHORTEST, LONGEST = 3, 200
"""Runs of a part, at least, and of a series, of which the latest count."""
PENALTY, QUIETEST = 9.0, 0.002
"""Of a cut, in deviations; and the least noise between runs that is believed."""


@dataclass(frozen=True, slots=True)
class Point:
    """The median of one run."""

    run: str
    at: str
    revision: str
    seconds: float
    low: float = 0.0
    """Ends of the middle 90 of 100 rounds."""
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """All runs of one subject on one case and one machine, in their order."""

    subject: str
    label: str
    machine: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A change point: the first run of a part whose median differs."""

    first: Point
    ratio: float
    """Median since then over the median before."""
    runs: int
    """Of the part, and of the one before it."""
    before: int


def histories(runs: Iterable[TimingRun], op: str = "") -> list[Series]:
    """Series of those times that count, by subject, case and machine. op: "": of every op."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for run in sorted(runs, key=lambda one: one.at):
        earlier = {one.before for one in run.compared}
        for timed in run.timed:
            if timed.ranked and timed.subject not in earlier and op in {"", timed.case.op}:
                label = form_of(timed.case) + (", warm caches" if run.warm else "")
                ends = timed.quantile(0.05), timed.quantile(0.95)
                at = (timed.subject, label, machine_of(run, timed))
                found.setdefault(at, []).append(Point(run.run, run.at, run.revision, timed.median, *ends))
    return [Series(*key, tuple(points)) for key, points in sorted(found.items())]


_SERIES = TypeAdapter(tuple[Series, ...])


def kept(run: TimingRun) -> str:
    """Write what the history needs of a run as JSON: a hundredth of the run."""
    return _SERIES.dump_json(tuple(histories([run]))).decode()


def read(text: str) -> tuple[Series, ...]:
    """Read what `kept` wrote, or what somebody says it did; what makes no sense is left out."""
    try:
        return tuple(one for one in _SERIES.validate_json(text) if all(_is_sound(point) for point in one.points))
    except ValidationError:
        return ()


def _is_sound(point: Point) -> bool:
    return 0 < point.low <= point.seconds <= point.high < math.inf


def form_of(case: Case) -> str:
    """Name a case without its random values: they are others in each run, and times do not depend on them."""
    return re.sub(r"#\d+", "", case.label)


def machine_of(run: TimingRun, timed: Timed) -> str:
    """Name what times depend on besides the code: the device, or the processor and the threads that may use it."""
    e = run.environment
    if timed.device == "cpu":
        return f"{e.processor or e.machine}, {count(run.threads, 'thread')}"
    return ", ".join(e.devices) if timed.device.startswith("cuda") else timed.device


def steps(series: Series) -> list[Step]:
    """All change points of at least 1 %, in their order."""
    points = series.points[-LONGEST:]
    logs = np.log([point.seconds for point in points])
    ends = [*cuts(logs), len(logs)]
    parts = list(zip([0, *ends[:-1]], ends, strict=True))
    return [step for one, two in pairwise(parts) for step in _step(points, logs, one, two)]


def _step(
    points: Sequence[Point], logs: NDArray[np.float64], before: tuple[int, int], since: tuple[int, int]
) -> Iterator[Step]:
    old, new = (logs[slice(*part)] for part in (before, since))
    change = float(np.median(new) - np.median(old))
    if abs(change) >= np.log1p(LEAST):
        yield Step(points[since[0]], float(np.exp(change)), len(new), len(old))


def cuts(x: NDArray[np.float64]) -> list[int]:
    """Find where the parts of the best partition begin; the first part's beginning is left out."""
    n = len(x)
    if n < 2 * SHORTEST:
        return []
    noise = max(1.4826 * float(np.median(np.abs(np.diff(x)))) / 2**0.5, QUIETEST)
    costs = np.full((n + 1, n + 1), np.inf)
    for size in range(SHORTEST, n + 1):
        parts = np.lib.stride_tricks.sliding_window_view(x, size)
        begins = np.arange(len(parts))
        costs[begins, begins + size] = np.abs(parts - np.median(parts, axis=1, keepdims=True)).sum(axis=1) / noise
    best, since = np.full(n + 1, np.inf), np.zeros(n + 1, int)
    best[0] = -PENALTY
    for end in range(SHORTEST, n + 1):
        sums = best[:end] + PENALTY + costs[:end, end]
        since[end] = np.argmin(sums)
        best[end] = sums[since[end]]
    found, at = [], n
    while at := int(since[at]):
        found.append(at)
    return found[::-1]


def told(all_series: Sequence[Series]) -> Iterator[str]:
    """A line for each series: the latest change, or that there is none."""
    for series in all_series:
        runs, last = len(series.points), series.points[-1]
        found = steps(series)
        said = since(found[-1]) if found else "no change" if runs >= 2 * SHORTEST else f"{count(runs, 'run')} so far"
        many = f"{count(runs, 'run')}, {series.machine}"
        yield f"{series.subject} on {series.label}: {time_of(last.seconds)}; {said} ({many})"


def since(step: Step) -> str:
    """Say how much slower or faster it is, and since when."""
    ratio, word = (step.ratio, "slower") if step.ratio > 1 else (1 / step.ratio, "faster")
    at = f"{moment(step.first.at)}{f', {step.first.revision[:12]}' if step.first.revision else ''}"
    return f"{ratio:.2f}x {word} since {at}, {count(step.runs, 'run')} after {step.before}"
