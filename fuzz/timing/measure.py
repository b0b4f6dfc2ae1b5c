"""Time implementations against one another: in each round every one of them runs once, in a freshly shuffled order.

Each has a worker of its own that stays. Before it counts, its timed outputs are judged, and it runs until it is warm;
afterwards it runs on inputs that it has never seen, and many times in a row with nobody's clock but the supervisor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex

from kernel_assay import __version__
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import Timed, TimingRun
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.timing.rounds import CaseTimer, TimingLimits
from kernel_assay.fuzz.triage.failures import now
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.environment import environment
from kernel_assay.kernels.machine import cache_bytes


@dataclass(frozen=True, slots=True)
class RoundsTimed:
    """An event: where a run is."""

    case: Case
    number: int
    """Of the case, from 0 on."""
    cases: int
    rounds: int
    noise: float
    """The largest of its medians."""


USUAL, CLOSED = TimingLimits(), SandboxLimits()
Listener = Callable[[RoundsTimed], None]


def measure(
    cases: Sequence[Case],
    subjects: Sequence[Subject],
    *,
    limits: TimingLimits = USUAL,
    seed: int = 0,
    device: str = "cpu",
    on_event: Listener | None = None,
    sandbox: SandboxLimits = CLOSED,
) -> TimingRun:
    """Time subjects on cases, case by case; who cannot be timed is told with a problem, and the others go on.

    subjects: already placed on the device; seed: of the order within rounds. Raises UsageError for a subject that
    cannot be loaded, and for a device that is not here.
    """
    began, place = time.monotonic(), places_of(device)[0]
    timed: list[Timed] = []
    with Examiner(
        subjects,
        timeout=sandbox.timeout,
        memory_mb=sandbox.memory_mb,
        closed=sandbox.closed,
        place=place,
        apart=True,
    ) as examiner:
        for number, case in enumerate(cases):
            say = partial(_say, on_event, case, number, len(cases))
            timed += CaseTimer(examiner, case, limits, seed, 0 if limits.warm else 2 * cache_bytes(device)).run(say)
    return TimingRun(
        run=_name(),
        version=__version__,
        at=now(),
        seed=seed,
        device=device,
        environment=environment(),
        warm=limits.warm,
        noise=limits.noise,
        limit=limits.seconds,
        seconds=time.monotonic() - began,
        subjects=tuple(subjects),
        timed=tuple(timed),
    )


def _say(listener: Listener | None, case: Case, number: int, cases: int, rounds: int, noise: float) -> None:
    if listener is not None:
        listener(RoundsTimed(case, number, cases, rounds, noise))


def _name() -> str:
    """An id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(2)}"
