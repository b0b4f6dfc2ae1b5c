"""The geometry of the page's pictures: histograms, lines over time, maps of failing elements. Templates draw them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kernel_assay.corpus.model.findings import Picture
from kernel_assay.reports.words import DASH, TIMES, short, span

LEFT, BOTTOM, TOP, MARGIN = 38, 34, 14, 6
"""Room around a plot for its labels, in pixels."""
NARROW = 24
"""Pixels that a bar needs to have its count above it."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FINE = 1200
"""Cells up to which a map shows its grid."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis."""

    at: int
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket of a histogram."""

    x: int
    y: int
    width: int
    count: str
    """Above it; empty where there is no room or nothing."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of a legend: where it begins, what it says, and the path of its mark."""

    x: int
    y: int
    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Trace:
    """One series of several: paths of its line and of its marks, in the colour of a number; 0: that of an axis."""

    name: str
    tone: int
    line: str = ""
    marks: str = ""
    thin: bool = False
    """Whether its marks are strokes."""
    key: Mark | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A histogram or a line, in pixels from the upper left."""

    width: int
    height: int
    left: int
    """Where the vertical axis lies."""
    right: int
    """Where the horizontal axis ends."""
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    across_name: str
    up_name: str
    words: str
    """What it shows, for those who do not see it."""
    bars: tuple[Bar, ...] = ()
    line: str = ""
    """Path of a line."""
    traces: tuple[Trace, ...] = ()
    """Several series."""
    legend: int = 0
    """Pixels below, for what tells them apart."""

    @property
    def floor(self) -> int:
        """The height of the horizontal axis."""
        return self.height - BOTTOM


def histogram(
    labels: Sequence[str], counts: Sequence[int], across: str, up: str = "outputs", *, linear: bool = False
) -> Plot:
    """Bars on a logarithmic scale: the few outputs in the tail are what one looks for; linear, where they are not."""
    tall: Callable[[int], float] = float if linear else _log
    width, height = 320, 138
    roomy = (width - 2 * MARGIN) // NARROW >= len(counts)
    left = MARGIN if roomy else LEFT
    floor, step = height - BOTTOM, (width - left - MARGIN) / max(1, len(counts))
    most = max(counts, default=0)
    scale = (floor - TOP) / (tall(most) or 1.0)
    bars = [
        Bar(
            round(left + (i + 0.08) * step),
            floor - round(tall(n) * scale),
            max(1, round(step * 0.84)),
            _above(n, roomy),
        )
        for i, n in enumerate(counts)
    ]
    every = max(1, math.ceil(max((len(label) for label in labels), default=1) * 7 / step))
    powers = [10**k for k in range(0, math.floor(math.log10(most or 1)) + 1, 2 if most > 10_000 else 1)]
    said = [f"{label}: {n:,}" for label, n in zip(labels, counts, strict=True) if n]
    return Plot(
        width=width,
        height=height,
        left=left,
        right=width - MARGIN,
        across=tuple(Tick(round(left + (i + 0.5) * step), labels[i]) for i in range(0, len(labels), every)),
        up=() if roomy else tuple(Tick(floor - round(tall(n) * scale), short(n)) for n in powers),
        across_name=across,
        up_name=up if linear else f"{up}, log scale",
        words=f"{up.capitalize()} by {across}. {'; '.join(said) or 'none'}.",
        bars=tuple(bars),
    )


def _above(n: int, roomy: bool) -> str:
    return short(n) if n and roomy else ""


def _log(n: int) -> float:
    return math.log10(1 + n)


def budget_labels(buckets: int) -> list[str]:
    """Names of the buckets of Statistics.rho: none, then up to 2**-8, ..., up to the whole budget."""
    return ["0", *(_power(k - buckets + 1) for k in range(1, buckets))][:buckets]


def _power(exponent: int) -> str:
    return f"2{str(exponent).translate(RAISED)}" if exponent else "1"


def ulps_labels(buckets: int) -> list[str]:
    """Names of the buckets of distances: 0, 1, 2, 3-4, 5-8, ..."""
    return [_steps(k) for k in range(buckets)]


def _steps(bucket: int) -> str:
    if bucket <= 2:
        return str(bucket)
    low, high = 2 ** (bucket - 2) + 1, 2 ** (bucket - 1)
    return (
        f"{low}{DASH}{high}"
        if high <= 64
        else f"≤{short(high)}"
        if high < 1e6
        else f"≤2{str(bucket - 1).translate(RAISED)}"
    )


def growth(points: Sequence[tuple[float, float]], up: str, width: int = 460) -> Plot:
    """A line over seconds; points ascend in time."""
    height = 170
    floor, right = height - BOTTOM, width - LEFT // 2
    room = right - LEFT
    end = max((x for x, _ in points), default=0.0) or 1.0
    most = max((y for _, y in points), default=0.0) or 1.0
    spots = [(LEFT + x / end * room, floor - y / most * (floor - TOP)) for x, y in points]
    times = _round_steps(end, 5, (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400))
    counts = _round_steps(most, 5, [d * 10**k for k in range(12) for d in (1, 2, 5)])
    return Plot(
        width=width,
        height=height,
        left=LEFT,
        right=right,
        across=tuple(Tick(round(LEFT + t / end * room), span(t)) for t in times),
        up=tuple(Tick(round(floor - n / most * (floor - TOP)), short(n)) for n in counts),
        across_name="time",
        up_name=up,
        words=_told(points, up),
        line=f"M{' '.join(f'{x:.1f},{y:.1f}' for x, y in spots)}" if spots else "",
    )


def _round_steps(most: float, many: int, steps: Sequence[int]) -> list[float]:
    """0 and the multiples of the smallest round step that gives at most `many` of them."""
    step = next((s for s in steps if most / s <= many), most)
    return [i * step for i in range(int(most / step) + 1)]


def _told(points: Sequence[tuple[float, float]], up: str) -> str:
    if not points:
        return f"No {up} recorded."
    (end, last) = points[-1]
    half = next(x for x, y in points if y >= last / 2)
    return f"{up.capitalize()} over time: {last:,.0f} after {span(end)}, half of them after {span(half)}."


@dataclass(frozen=True, slots=True)
class Map:
    """A map of where an output fails: one path for each level, cells as units."""

    columns: int
    rows: int
    width: int
    """In pixels."""
    height: int
    levels: tuple[tuple[str, str], ...]
    """(level, path): 1 to 9 tenths fail, or a for all."""
    grid: str
    caption: str
    across: str
    """What lies along the upper edge, and along the left one."""
    down: str
    words: str


def failure_map(picture: Picture) -> Map | None:
    """A picture as paths; None if there is nothing to see: no element, or a single one."""
    rows, columns = len(picture.lines), max((len(line) for line in picture.lines), default=0)
    if not rows or not columns or picture.height * picture.width <= 1:
        return None
    pixels = max(4, min(16, 420 // columns, 320 // rows))
    runs = list(_runs(picture.lines))
    shown = sorted({cell for cell, *_ in runs if cell != "."})
    fine = picture.scaled is False and rows * columns <= FINE
    return Map(
        columns=columns,
        rows=rows,
        width=columns * pixels,
        height=rows * pixels,
        levels=tuple(("a" if cell == "#" else cell, _path(runs, cell)) for cell in shown),
        grid="".join([*(f"M{x} 0v{rows}" for x in range(1, columns)), *(f"M0 {y}h{columns}" for y in range(1, rows))])
        if fine
        else "",
        caption=f"{picture.height:,} {TIMES} {picture.width:,}, {_scale(picture, rows, columns)}",
        across=_axis("column", picture.width),
        down=_axis("row", picture.height),
        words=_extremes(picture, runs, rows, columns),
    )


Run = tuple[str, int, int, int]
"""Cell, row, first column, length."""


def _runs(lines: Sequence[str]) -> Iterator[Run]:
    """Equal neighbours in a row are one."""
    for y, line in enumerate(lines):
        x = 0
        for cell, same in groupby(line):
            length = sum(1 for _ in same)
            yield cell, y, x, length
            x += length


def _path(runs: Sequence[Run], wanted: str) -> str:
    """Strokes through the middle of rows, as wide as a row: the shortest way to write many cells."""
    return "".join(f"M{x} {y}.5h{length}" for cell, y, x, length in runs if cell == wanted)


def _scale(picture: Picture, rows: int, columns: int) -> str:
    if not picture.scaled:
        return "a cell is an element"
    down, along = -(-picture.height // rows), -(-picture.width // columns)
    return f"a cell is {down} {TIMES} {along} elements"


def _extremes(picture: Picture, runs: Sequence[Run], rows: int, columns: int) -> str:
    """The box that holds everything that fails, in elements."""
    bad = [run for run in runs if run[0] != "."]
    if not bad:
        return "No element of the map fails."
    down, along = -(-picture.height // rows), -(-picture.width // columns)
    box = (
        _between("row", min(y for _, y, *_ in bad) * down, (max(y for _, y, *_ in bad) + 1) * down, picture.height),
        _between("column", min(x for *_, x, _ in bad) * along, max(x + n for *_, x, n in bad) * along, picture.width),
    )
    cells = sum(n for *_, n in bad)
    if cells == rows * columns:
        return "Every element fails." if all(cell == "#" for cell, *_ in bad) else "Every cell holds failures."
    return f"{cells:,} of {rows * columns:,} cells hold failures: {box[0]}, {box[1]}."


def _axis(name: str, size: int) -> str:
    return f"{name} 0" if size == 1 else f"{name}s 0 to {size - 1}"


def _between(axis: str, low: int, end: int, size: int) -> str:
    last = min(end, size) - 1
    if (low, last) == (0, size - 1):
        return f"all {axis}s" if size > 1 else f"the only {axis}"
    return f"{axis} {low}" if low == last else f"{axis}s {low} to {last}"
