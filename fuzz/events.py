"""Events of a run, as whoever follows it is told: called in the thread of the run, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.fuzz.triage.failures import Failure


@dataclass(frozen=True, slots=True)
class RunStarted:
    """All kernels have loaded, and the run is in the store."""

    campaign: Campaign
    resumed: bool = False
    left_out: tuple[str, ...] = ()
    """Keys of built-in implementations that took half of the time to load."""
    why_open: str = ""
    """Why kernels are not closed in; empty: they are."""


@dataclass(frozen=True, slots=True)
class BatchJudged:
    """A batch of cases was judged, or a failure was looked into: where the run is."""

    cases: int
    judged: int
    """Outputs of the whole run, earlier sessions of it included."""
    here: int
    """Outputs of this session."""
    seconds: float
    """Of this session."""
    left: float
    """Seconds until the search is over; below 0 in its end."""
    cases_left: int | None
    """Where cases limit it, and not seconds."""
    grace: float
    """Seconds for that end."""
    findings: int
    pending: int
    """Failures nobody has looked into yet."""
    cells: int
    """Of coverage."""
    by_subject: Mapping[str, Mapping[str, int]]
    """Key of a subject -> verdict -> times; counted on while the run goes on: copy what you keep."""


@dataclass(frozen=True, slots=True)
class FailureMet:
    """A failure whose like this run has not met before; it is in the run's journal."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class FindingFiled:
    """A failure was looked into, and is in the store as a finding."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The record of the run is in the store, finished or to be resumed."""

    campaign: Campaign


Event = RunStarted | BatchJudged | FailureMet | FindingFiled | RunEnded
Listener = Callable[[Event], None]


def nobody(event: Event) -> None:
    """Listen to nothing."""
    del event
