"""The page of a run of `time`: one sentence, a table a case, versions compared, speed-ups, pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_assay.corpus.model.timing import Change, Compared, Timed, TimingRun
from kernel_assay.reports.page.plots import Plot
from kernel_assay.reports.page.timing_plots import distribution, roofline, time_over_size
from kernel_assay.reports.words import DASH, count, listed, percent, short, time_of

MOST_STRIPS = 8
"""Cases of which the page shows every round."""
TONES = {Change.SLOWER: "bad", Change.FASTER: "good", Change.UNSURE: "warn", Change.SAME: "plain"}


@dataclass(frozen=True, slots=True)
class Line:
    """One subject on one case."""

    subject: str
    cells: tuple[str, ...]
    best: bool
    trouble: str


@dataclass(frozen=True, slots=True)
class Table:
    """All subjects on one case."""

    label: str
    lines: tuple[Line, ...]


HEAD = ("median", "5 of 100", "95 of 100", "99 of 100", "least", "noise", "GB/s", "GFLOP/s", "of roofline")


def tables(run: TimingRun) -> list[Table]:
    """The times of each case, as they were measured."""
    return [Table(case.label, _lines(run, timed)) for case, timed in run.by_case()]


def _lines(run: TimingRun, timed: Sequence[Timed]) -> tuple[Line, ...]:
    ranked = [one.median for one in timed if one.ranked]
    best = min(ranked, default=math.nan)
    return tuple(
        Line(one.subject, _cells(run, one), len(ranked) > 1 and one.ranked and one.median == best, trouble_of(one))
        for one in timed
    )


def _cells(run: TimingRun, one: Timed) -> tuple[str, ...]:
    if not one.seconds:
        return (DASH,) * len(HEAD)
    shown = [time_of(one.quantile(share)) for share in (0.5, 0.05, 0.95, 0.99, 0.0)]
    rates = [DASH if math.isnan(x) else f"{x / 1e9:.3g}" for x in (one.bandwidth, one.rate)]
    share = run.share(one)
    return (*shown, percent(one.noise), *rates, DASH if math.isnan(share) else f"{share:.0%}")


def trouble_of(one: Timed) -> str:
    """Say why times do not count; empty: they do."""
    wrong = one.verdict.message or one.verdict.kind.value if one.verdict and one.verdict.failed else ""
    return one.problem or one.finding or wrong


@dataclass(frozen=True, slots=True)
class SpeedUps:
    """Medians of one subject over those of the others, case by case."""

    base: str
    subjects: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def speed_ups(run: TimingRun) -> SpeedUps | None:
    """Speed-ups over the baseline, or else the first one; None if there is nothing to compare."""
    keys = list(dict.fromkeys(one.subject for one in run.timed if one.ranked))
    if len(keys) < 2:
        return None
    base = run.baseline if run.baseline in keys else keys[0]
    others = [key for key in keys if key != base]
    rows = []
    for case, timed in run.by_case():
        medians = {one.subject: one.median for one in timed if one.ranked}
        if base in medians:
            cells = (f"{medians[base] / medians[key]:.2f}x" if key in medians else DASH for key in others)
            rows.append((case.label, tuple(cells)))
    return SpeedUps(base, tuple(others), tuple(rows)) if rows else None


def plots(run: TimingRun) -> list[Plot]:
    """All pictures that the run has data for."""
    strips = [distribution(case.label, timed) for case, timed in run.by_case()[:MOST_STRIPS]]
    return [plot for plot in (roofline(run), *time_over_size(run), *strips) if plot is not None]


def sentence(run: TimingRun) -> str:
    """The whole page in one sentence."""
    if bad := [one for one in run.timed if one.failed]:
        return f"{listed(sorted({one.subject for one in bad}))}: wrong, or times that cannot be true"
    if run.compared:
        return compared_sentence(run.compared)
    ranked = [one for one in run.timed if one.ranked]
    if not ranked:
        return "Nothing could be timed"
    cases = len({one.case.id for one in ranked})
    best = [min(some, key=lambda o: o.median) for _, timed in run.by_case() if (some := [o for o in timed if o.ranked])]
    wins = {key: sum(one.subject == key for one in best) for key in dict.fromkeys(one.subject for one in best)}
    first = max(wins, key=wins.__getitem__)
    if len({one.subject for one in ranked}) == 1:
        return f"{first} timed on {count(cases, 'case')}"
    return f"{first} is the fastest on {wins[first]} of {count(cases, 'case')}"


def compared_sentence(compared: Sequence[Compared]) -> str:
    """Count what was said of versions that were compared."""
    many = {change: sum(one.comparison.change is change for one in compared) for change in TONES}
    said = [f"{n} {change.value}" for change, n in many.items() if n]
    return f"{count(len(compared), 'comparison')} with an earlier version: {listed(said)}"


def facts(run: TimingRun) -> list[tuple[str, str]]:
    """The circumstances of the run."""
    e, peaks = run.environment, run.peaks
    reached = [] if peaks is None else [f"copy {short(peaks.bandwidth)}B/s"]
    reached += [] if peaks is None else [f"product of {name} {short(n)}FLOP/s" for name, n in peaks.products.items()]
    clocks = [sample.mhz for sample in run.clocks if sample.mhz]
    said = [
        ("command", run.command),
        ("processor", e.processor or e.machine),
        ("devices", ", ".join(e.devices)),
        ("measured peaks", ", ".join(reached)),
        ("clocks", f"{min(clocks):.0f} to {max(clocks):.0f} MHz" if clocks else ""),
        ("throttled", listed(sorted({why for sample in run.clocks for why in sample.throttled}))),
        ("caches", "left warm" if run.warm else "emptied before each call"),
        ("revision", run.revision),
        ("packages", ", ".join(f"{name} {version}" for name, version in e.packages.items())),
    ]
    return [(name, text) for name, text in said if text]
