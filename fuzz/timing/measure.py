"""Time implementations against one another: in each round every one of them runs once, in a freshly shuffled order.

Each has a worker of its own, and a new one now and then. Before it counts, its timed outputs are judged, and it runs
until it is warm; afterwards it runs on inputs that it has never seen, and many times in a row by no clock but the
supervisor's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex

from kernel_assay import __version__
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import ClockSample, Peaks, Timed, TimingRun
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.subjects import is_emulated
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.timing.costs import too_fast
from kernel_assay.fuzz.timing.rounds import LEAST_ROUNDS, CaseTimer, TimingLimits
from kernel_assay.fuzz.triage.failures import now
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.boundary.devices import Place, places_of
from kernel_assay.kernels.environment import environment, gpus
from kernel_assay.kernels.machine import cache_bytes, clocks_watched
from kernel_assay.kernels.sandbox.peaks import peaks_of

USUAL, CLOSED = TimingLimits(), SandboxLimits()


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
    roofline: bool = True,
) -> TimingRun:
    """Time subjects on cases, case by case; who cannot be timed is told with a problem, and the others go on.

    subjects: already placed on the device; seed: of the order within rounds; roofline: measure the peaks of the device,
    unless that was done before, and hold the times to them. Raises UsageError for a subject that cannot be loaded, for
    a device that is not here, and if peaks cannot be measured.
    """
    began, place = time.monotonic(), places_of(device)[0]
    peaks = peaks_of(place) if roofline else None
    timed: list[Timed] = []
    with (
        clocks_watched(place.device, place.environment) as clocks,
        Examiner(
            subjects,
            **asdict(sandbox),
            place=place,
            apart=True,
        ) as examiner,
    ):
        for number, case in enumerate(cases):
            say = partial(_say, on_event, case, number, len(cases))
            timed += CaseTimer(examiner, case, limits, seed, 0 if limits.warm else 2 * cache_bytes()).run(say)
    if peaks is not None:
        timed, peaks = _by_physics(timed, peaks, place)
    return TimingRun(
        run=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(2)}",
        version=__version__,
        at=now(),
        seed=seed,
        device=device,
        environment=_machine(place),
        warm=limits.warm,
        noise=limits.noise,
        limit=limits.seconds,
        seconds=time.monotonic() - began,
        peaks=peaks,
        clocks=tuple(clocks),
        notes=tuple(_notes(timed, subjects, clocks, limits)),
        subjects=tuple(subjects),
        timed=tuple(timed),
    )


def _say(listener: Listener | None, case: Case, number: int, cases: int, rounds: int, noise: float) -> None:
    if listener is not None:
        listener(RoundsTimed(case, number, cases, rounds, noise))


def _machine(place: Place) -> Environment:
    devices = tuple(f"{name}, driver {driver}" for name, driver in gpus()) if place.device != "cpu" else ()
    return environment().but(devices=devices)


def _by_physics(timed: list[Timed], peaks: Peaks, place: Place) -> tuple[list[Timed], Peaks]:
    """Find times that cannot be; before anybody is accused, the peaks are measured again: the machine was busy once."""
    cores = (os.cpu_count() or 1) if place.device == "cpu" else 1
    if too_fast(timed, peaks, cores):
        peaks = peaks_of(place, anew=True)
    found = too_fast(timed, peaks, cores)
    return [
        one.but(finding=found[one.case.id, one.subject]) if (one.case.id, one.subject) in found else one
        for one in timed
    ], peaks


def _notes(
    timed: Sequence[Timed], subjects: Sequence[Subject], clocks: Sequence[ClockSample], limits: TimingLimits
) -> list[str]:
    """Sentences about what makes the times less than they could be."""
    found = [
        f"{s.key} is {'emulated' if is_emulated(s) else 'interpreted'} on the CPU: its times say nothing about a GPU"
        for s in subjects
        if is_emulated(s) or loader_of(s.loader).interprets
    ]
    noisy = [one for one in timed if one.ranked and not one.noise <= limits.noise]
    if noisy and not limits.pairs:
        found.append(
            f"{len(noisy)} of {len(timed)} times are noisier than {limits.noise:.1%}, the noisiest by "
            f"{max(one.noise for one in noisy):.1%}: the time was over; a longer --limit, or a quieter machine, helps"
        )
    few = min((len(one.seconds) for one in timed if one.ranked), default=LEAST_ROUNDS)
    if few < LEAST_ROUNDS:
        found.append(f"some times are those of {few} rounds only")
    throttled = sorted({reason for sample in clocks for reason in sample.throttled})
    if throttled:
        found.append(f"the clock was held down while it ran: {', '.join(throttled)}")
    return found
