"""The geometry of pictures of times: roofline, time over size, and what rounds took; pixels, as plots.html.j2 draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from kernel_assay.corpus.model.timing import Timed, TimingRun
from kernel_assay.reports.page.plots import Mark, Plot, Tick, Trace
from kernel_assay.reports.words import figure, short, time_of

WIDTH, HEIGHT = 340, 220
"""Of a picture without its legend: a telephone shows it as it is."""
LEFT, RIGHT, TOP, BOTTOM, ROW, MARGIN, BAND = 52, 12, 10, 34, 16, 22, 44
LETTERS = 50
"""Of a name in the legend."""
MARKS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.8 3.6 6.4h-7.2z",
    "m0-4 4 4-4 4-4-4z",
    "m0 3.8 3.6-6.4h-7.2z",
    "m-3.4-1h2.4v-2.4h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4z",
)
"""Shapes that tell series apart where colours do not."""
Points = Sequence[tuple[float, float]]
Axis = tuple[str, Sequence[Tick]]
"""Its name, and its ticks."""


class _Scale:
    """A logarithmic axis from one pixel to another, as wide as values need, and at least a factor of 2."""

    def __init__(self, values: Iterable[float], begin: float, end: float) -> None:
        logs = [math.log10(v) for v in values]
        middle = (min(logs) + max(logs)) / 2
        half = max((max(logs) - min(logs)) / 2 * 1.08, 0.15)
        self.low, self.high = middle - half, middle + half
        self._begin, self._factor = begin, (end - begin) / (2 * half)

    def __call__(self, value: float) -> float:
        return self._begin + (math.log10(value) - self.low) * self._factor

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers: powers of ten, of a narrow axis 2 and 5 times these, too."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
            found = [d * 10.0**k for k in powers for d in digits if self.low <= math.log10(d * 10.0**k) <= self.high]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]


def _chart(series: Sequence[tuple[str, Points]], across: str, up: str, words: str, *, roof: Points = ()) -> Plot:
    """Points by series on two logarithmic axes, joined where a series is a line, under a roof.

    Axes named `time` are in seconds.
    """
    points = [point for _, some in series for point in some] + list(roof)
    x = _Scale([a for a, _ in points], LEFT, WIDTH - RIGHT)
    y = _Scale([b for _, b in points], HEIGHT - BOTTOM, TOP)
    traces = [] if not roof else [Trace("the roofline of this machine", 0, _line(roof, x, y))]
    traces += [
        Trace(name, 1 + i % len(MARKS), "" if roof else _line(some, x, y), _marks(some, x, y, i))
        for i, (name, some) in enumerate(series)
    ]
    below = [Tick(round(x(v)), short(v) if v >= 1 else figure(v)) for v in x.ticks()]
    beside = [Tick(round(y(v)), time_of(v) if up.startswith("time") else short(v)) for v in y.ticks()]
    return _with_legend(_framed((across, below), (up, beside), words), traces)


def _framed(across: Axis, up: Axis, words: str) -> Plot:
    """An empty plot with its two axes."""
    return Plot(
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        across=tuple(across[1]),
        up=tuple(up[1]),
        across_name=across[0],
        up_name=up[0],
        words=words,
    )


def _with_legend(plot: Plot, traces: Sequence[Trace]) -> Plot:
    """The plot, with a line for each series below."""
    keys = [
        replace(trace, key=Mark(LEFT, plot.height + 12 + ROW * i, trace.name[:LETTERS], _key(trace)))
        for i, trace in enumerate(traces)
    ]
    return replace(plot, traces=tuple(keys), legend=ROW * len(keys) + 4)


def _key(trace: Trace) -> str:
    return MARKS[trace.tone - 1] if trace.tone else "m-6 0h12"


def _line(points: Points, x: _Scale, y: _Scale) -> str:
    return "M" + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points) if len(points) > 1 else ""


def _marks(points: Points, x: _Scale, y: _Scale, number: int) -> str:
    return "".join(f"M{x(a):.1f} {y(b):.1f}{MARKS[number % len(MARKS)]}" for a, b in points)


def _by_subject(timed: Iterable[Timed]) -> dict[str, list[Timed]]:
    found: dict[str, list[Timed]] = {}
    for one in timed:
        found.setdefault(one.subject, []).append(one)
    return found


def roofline(run: TimingRun) -> Plot | None:
    """Operations a second over operations a byte, under what the machine was measured to reach; None: unknown.

    The roof is that of the products of the largest rate that any case here can use.
    """
    known = [one for one in run.timed if one.ranked and one.bytes and one.operations]
    if run.peaks is None or not known:
        return None
    spots = {
        name: [(one.operations / one.bytes, one.rate) for one in some if one.operations and one.bytes]
        for name, some in _by_subject(known).items()
    }
    peak = max((run.peaks.products.get(one.case.dtype, 0.0) for one in known), default=0.0)
    across = [a for some in spots.values() for a, _ in some]
    width = run.peaks.bandwidth
    ends = [min(across) / 2, max(max(across) * 2, 2 * peak / width)]
    corner = [peak / width] if peak else []
    roof = [(a, min(a * width, peak or math.inf)) for a in sorted({*ends, *corner})]
    best = max(known, key=run.share)
    words = f"Operations a second over operations a byte; {best.subject} reaches {run.share(best):.0%} of the roof."
    return _chart(list(spots.items()), "operations a byte", "operations a second", words, roof=roof)


def time_over_size(run: TimingRun) -> list[Plot]:
    """Median times over the elements of a case, for each op and dtype that has several sizes."""
    groups: dict[tuple[str, str], list[Timed]] = {}
    for one in run.timed:
        if one.ranked and one.case.elements:
            groups.setdefault((one.case.op, one.case.dtype), []).append(one)
    several = {name: some for name, some in groups.items() if len({one.case.elements for one in some}) > 1}
    return [_growth(f"{op} {dtype}", some) for (op, dtype), some in several.items()]


def _growth(name: str, timed: Sequence[Timed]) -> Plot:
    lines = [
        (key, sorted((float(o.case.elements), o.median) for o in some)) for key, some in _by_subject(timed).items()
    ]
    largest = max(one.case.elements for one in timed)
    said = [f"{one.subject} {time_of(one.median)}" for one in timed if one.case.elements == largest]
    words = f"Median time of {name} over elements of inputs; at {largest:,}: {'; '.join(said)}."
    return _chart(lines, "elements", f"time of {name}", words)


def over_commits(runs: Sequence[tuple[str, float, float, float]], changes: dict[int, bool], words: str) -> Plot:
    """The median time of each run and the middle 90 of 100 rounds, one run beside the other.

    runs: what each is called; 5 of 100, median and 95 of 100, in seconds. changes: index of a run since which it is
    slower (True) or faster; these are marked.
    """
    room = (WIDTH - RIGHT - LEFT) / len(runs)
    x = [LEFT + (i + 0.5) * room for i in range(len(runs))]
    y = _Scale([end for _, low, _, high in runs for end in (low, high)], HEIGHT - BOTTOM, TOP)
    spots = [(a, y(median)) for a, (_, _, median, _) in zip(x, runs, strict=True)]
    spans = "".join(f"M{a:.1f} {y(low):.1f}V{y(high):.1f}" for a, (_, low, _, high) in zip(x, runs, strict=True))
    line = "M" + " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
    traces = [Trace("5 to 95 of 100 rounds", 0, spans), Trace("median", 1, line, _placed(spots, 1))]
    for name, tone, slower in (("slower since", 6, True), ("faster since", 3, False)):
        if marked := [spots[i] for i, how in changes.items() if how is slower]:
            traces.append(Trace(name, tone, marks=_placed(marked, tone)))
    below = [Tick(round(x[i]), runs[i][0]) for i in range(0, len(runs), math.ceil(60 / room))]
    beside = [Tick(round(y(v)), time_of(v)) for v in y.ticks()]
    return _with_legend(_framed(("commit, or day", below), ("time of a call", beside), words), traces)


def _placed(spots: Points, tone: int) -> str:
    return "".join(f"M{a:.1f} {b:.1f}{MARKS[tone - 1]}" for a, b in spots)


def distribution(name: str, timed: Sequence[Timed]) -> Plot | None:
    """Every round of each subject as a stroke, with a box from the first to the last quarter; None: there are none."""
    shown = [one for one in timed if one.ranked]
    if not shown:
        return None
    least, most = (float(np.quantile([t for o in shown for t in o.seconds], share)) for share in (0.0, 0.99))
    x = _Scale([least, max(most, least * 1.01)], MARGIN, WIDTH - MARGIN)
    height = TOP + BAND * len(shown) + BOTTOM
    traces = [_strip(one, 1 + i % len(MARKS), x, TOP + BAND * i) for i, one in enumerate(shown)]
    said = [f"{o.subject} {time_of(o.median)}, 5 to 95 of 100 in {_span(o)}" for o in shown]
    return Plot(
        width=WIDTH,
        height=height,
        left=MARGIN,
        right=WIDTH - MARGIN,
        across=tuple(Tick(round(x(v)), time_of(v)) for v in x.ticks(4)),
        up=(),
        across_name="time of a call, one stroke a round; box: the middle half",
        up_name=name,
        words=f"Times of {name}: {'; '.join(said)}.",
        traces=tuple(traces),
    )


def _span(one: Timed) -> str:
    return f"{time_of(one.quantile(0.05))} to {time_of(one.quantile(0.95))}"


def _strip(one: Timed, tone: int, x: _Scale, top: float) -> Trace:
    last = WIDTH - 4
    spots = sorted({round(min(x(t), last), 1) for t in one.seconds})
    low, middle, high = (min(x(one.quantile(share)), last) for share in (0.25, 0.5, 0.75))
    box = f"M{low:.1f} {top + 17}H{high:.1f}v18H{low:.1f}zM{middle:.1f} {top + 14}v24"
    rug = "".join(f"M{at} {top + 20}v12" for at in spots)
    text = f"{one.subject}  {time_of(one.median)}"
    return Trace(one.subject, tone, box, rug, thin=True, key=Mark(MARGIN, round(top + 9), text[:LETTERS], ""))
