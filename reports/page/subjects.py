"""The kernels under test on the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernel_assay.corpus.model.campaign import Campaign, Statistics
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.reports.book import failing, judged_of
from kernel_assay.reports.page.plots import Plot, budget_labels, histogram, ulps_labels
from kernel_assay.reports.plain.run_text import claims
from kernel_assay.reports.words import DASH, largest_first, percent, short


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel."""

    subject: Subject
    anchor: str
    judged: int
    passed: int
    unsupported: int
    inconclusive: int
    failing: int
    microseconds: str
    """Mean time of a run."""
    rate: str
    """Input elements a second."""
    rho: float | None
    """Largest share of an error budget that it used; None: no value was judged by a budget."""
    meter: int
    """The same in percent, at most 100."""
    claims: str
    plots: tuple[Plot, ...]
    classes: Mapping[str, int]
    skipped: Mapping[str, int]
    lost: tuple[tuple[str, str, str, str], ...]
    """What right results lose by design: quantity, kind, the worst, and up to where it is in use."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """All kernels of one op."""

    op: str
    lines: tuple[Line, ...]

    @property
    def inconclusive(self) -> int:
        """Outputs that could not be decided: they have a column where there are any."""
        return sum(line.inconclusive for line in self.lines)


def kernels_of(c: Campaign) -> tuple[Kernels, ...]:
    """The kernels that were not planted, by op."""
    lines: dict[str, list[Line]] = {}
    for subject in c.subjects:
        if not subject.planted:
            lines.setdefault(subject.op, []).append(_line(c, subject))
    return tuple(Kernels(op, tuple(each)) for op, each in lines.items())


def anchor(key: str) -> str:
    """The place of a subject on the page."""
    return f"subject-{key}"


def _line(c: Campaign, subject: Subject) -> Line:
    kinds = c.by_subject.get(subject.key, {})
    seen = c.statistics.get(subject.key, Statistics())
    rho = c.max_rho.get(subject.key)
    return Line(
        subject=subject,
        anchor=anchor(subject.key),
        judged=judged_of(kinds),
        passed=kinds.get(Kind.PASS, 0),
        unsupported=kinds.get(Kind.UNSUPPORTED, 0),
        inconclusive=kinds.get(Kind.INCONCLUSIVE, 0),
        failing=failing(kinds),
        microseconds=_microseconds(seen),
        rate=_rate(seen),
        rho=rho,
        meter=round(100 * min(1.0, rho)) if rho is not None and rho > 0 else 0,
        claims=claims(subject),
        plots=_plots(seen),
        classes=largest_first(seen.classes),
        skipped=largest_first(seen.skipped),
        lost=tuple((f.what, kind, percent(f.worst), percent(f.limit)) for kind, f in seen.fidelity.items()),
    )


def _microseconds(seen: Statistics) -> str:
    if not seen.timed:
        return DASH
    mean = seen.nanoseconds / seen.timed / 1000
    return f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}"


def _rate(seen: Statistics) -> str:
    return short(seen.elements / seen.nanoseconds * 1e9) if seen.nanoseconds else DASH


def _plots(seen: Statistics) -> tuple[Plot, ...]:
    kinds: Iterable[tuple[tuple[int, ...], list[str], str]] = (
        (seen.rho, budget_labels(len(seen.rho)), "share of the budget used, up to"),
        (seen.ulps, ulps_labels(len(seen.ulps)), "largest distance in ULP"),
    )
    return tuple(histogram(labels, counts, across) for counts, labels, across in kinds if any(counts))
