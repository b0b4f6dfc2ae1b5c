"""Times for people, as tables; and for programs, with all that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.timing import Timed, TimingRun
from kernel_assay.reports.junit import Result, junit
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import count

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_HEAD = ("median", "p5", "p95", "p99", "min", "noise %", "GFLOP/s", "GB/s", "roof %", "speed-up")


class TimedSummary(Timed):
    """Times with all that follows from them; seconds, and operations and bytes a second."""

    median_seconds: float
    p5: float
    p95: float
    p99: float
    least: float
    relative_noise: float
    operations_per_second: float
    bytes_per_second: float
    roofline_share: float
    speed_up: float
    """Over the baseline of the run; NaN: there is none, or it could not be timed."""


class TimingSummary(TimingRun):
    """A run with all that follows from its times."""

    timed: tuple[TimedSummary, ...]


def summary(run: TimingRun) -> TimingSummary:
    """Work out all that follows."""
    fields = {name: getattr(run, name) for name in TimingRun.model_fields}
    found = [_summary(run, one, _base(run, timed)) for _, timed in run.by_case() for one in timed]
    return TimingSummary(**{**fields, "timed": tuple(found)})


def _summary(run: TimingRun, one: Timed, base: float) -> TimedSummary:
    return TimedSummary(
        **{name: getattr(one, name) for name in Timed.model_fields},
        median_seconds=one.median,
        p5=one.quantile(0.05),
        p95=one.quantile(0.95),
        p99=one.quantile(0.99),
        least=one.quantile(0.0),
        relative_noise=one.noise,
        operations_per_second=one.rate,
        bytes_per_second=one.bandwidth,
        roofline_share=run.share(one),
        speed_up=base / one.median if one.ranked else math.nan,
    )


def _base(run: TimingRun, timed: list[Timed]) -> float:
    """The median of the baseline on a case; NaN if there is none."""
    return next((one.median for one in timed if one.subject == run.baseline and one.ranked), math.nan)


def told(run: TimingRun) -> Iterator[str]:
    """The texts of a run, one for each case, and one about all."""
    for case, timed in run.by_case():
        yield "\n".join(_case_lines(run, case, timed))
    yield "\n".join(_last_lines(run))


def _case_lines(run: TimingRun, case: Case, timed: list[Timed]) -> Iterator[str]:
    ranked = sorted((one for one in timed if one.ranked), key=lambda one: one.median)
    yield case.label
    if ranked:
        unit, name = next((u for u in _UNITS if ranked[0].median >= u[0]), _UNITS[-1])
        base = _base(run, timed)
        rows = [_row(run, one, unit, base) for one in ranked]
        yield table((f"times in {name}", *_HEAD), rows)
    for one in timed:
        if not one.ranked:
            yield f"  {one.subject}: {_why(one)}"


def _row(run: TimingRun, one: Timed, unit: float, base: float) -> tuple[str, ...]:
    times = [one.median, *(one.quantile(share) for share in (0.05, 0.95, 0.99, 0.0))]
    rates = (100 * one.noise, one.rate / 1e9, one.bandwidth / 1e9, 100 * run.share(one), base / one.median)
    return (one.subject.partition("/")[2], *(_short(t / unit) for t in times), *map(_short, rates))


def _short(number: float) -> str:
    """A number in three digits; - for none."""
    if not math.isfinite(number):
        return "-"
    digits = 2 - math.floor(math.log10(number)) if number > 0 else 0
    return f"{number:,.{min(max(digits, 0), 6)}f}"


def _why(one: Timed) -> str:
    """The reason why times do not count."""
    if one.verdict is not None and one.verdict.failed:
        return f"WRONG, not ranked: {one.verdict.kind}: {one.verdict.message}"
    return f"NOT RANKED: {one.finding}" if one.finding else f"not timed: {one.problem}"


def _last_lines(run: TimingRun) -> Iterator[str]:
    cold = "caches are warm" if run.warm else "caches are emptied before each call"
    where = "; ".join(run.environment.devices) if run.device != "cpu" else run.environment.processor
    rounds = max((len(one.seconds) for one in run.timed), default=0)
    threads = "" if run.device != "cpu" else f", {count(run.threads, 'thread')}"
    yield f"on {where}{threads}; {cold}; up to {count(rounds, 'round')}, seed {run.seed}, {run.seconds:.1f} s"
    if run.peaks is not None:
        products = ", ".join(f"{t} {rate / 1e9:,.0f}" for t, rate in run.peaks.products.items())
        yield f"measured peaks: {run.peaks.bandwidth / 1e9:,.1f} GB/s; products in GFLOP/s: {products}"
    if clocks := [sample.mhz for sample in run.clocks if sample.mhz is not None]:
        yield f"clock: {min(clocks):,.0f} to {max(clocks):,.0f} MHz"
    if run.baseline:
        yield f"speed-up: over {run.baseline}"
    yield from (f"note: {note}" for note in run.notes)
    found = sum(one.failed for one in run.timed)
    yield f"findings: {found or 'none'}; the run is {run.run}"


def as_junit(run: TimingRun, more: Sequence[Result] = ()) -> str:
    """JUnit XML: a test for each implementation on each case, and more."""
    return junit("time", [*(_result(one) for one in run.timed), *more])


def _result(one: Timed) -> Result:
    why = "" if one.ranked else _why(one)
    return Result(
        name=one.case.label,
        group=one.subject.replace("/", "."),
        failure=why if one.failed else "",
        skipped="" if one.failed else why,
    )
