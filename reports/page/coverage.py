"""Coverage on the page: heat maps over classes, the gaps by name, goals, growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernel_assay.corpus.model.campaign import Campaign, Space
from kernel_assay.reports.coverage_gaps import AXES, THIN, margins, possible
from kernel_assay.reports.page.plots import Plot, growth
from kernel_assay.reports.words import count, listed, short

HEAT = (THIN, 100, 1_000, 10_000, 100_000)
"""Outputs from which a cell of a map is one shade darker."""
SHAPE, LAYOUT, VALUES, SUBJECT = range(len(AXES))
NAMES = (
    ("shape class", "shape classes"),
    ("layout", "layouts"),
    ("value class", "value classes"),
    ("kernel", "kernels"),
)
"""What people call the axes."""

Seen = Mapping[str, Sequence[Counter[str]]]
"""`op|dtype` -> for every axis, class -> outputs."""
NOTHING = tuple(Counter[str]() for _ in AXES)


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a map."""

    shade: str
    """hole: possible and never tried; none: not possible; thin; or h1 to h5."""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One op and dtype, or one subject."""

    op: str
    name: str
    first: bool
    """Of its op."""
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Heat:
    """A table of counts."""

    title: str
    rows_are: str
    groups: tuple[tuple[str, int], ...]
    """Names of groups of columns, with their widths."""
    columns: tuple[str, ...]
    starts: frozenset[int]
    """Columns that begin a group."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Lack:
    """Gaps of one op and dtype: what was never tried, or hardly."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Goal:
    """Something a run should reach at least once."""

    name: str
    index: int
    """Of the case that reached it; -1: none did."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The page's section on coverage."""

    cells: int
    verdict: str
    """How complete it is, in one sentence."""
    maps: tuple[Heat, ...]
    holes: tuple[Lack, ...]
    thin: tuple[Lack, ...]
    goals: tuple[Goal, ...]
    plots: tuple[Plot, ...]

    @property
    def unreached(self) -> list[str]:
        """Goals that no case reached."""
        return [g.name for g in self.goals if g.index < 0]


def coverage_of(c: Campaign) -> Coverage:
    """Add up a run's cells and set them against what was possible."""
    seen: Seen = margins(c)
    space = dict(sorted({**{key: Space() for key in seen}, **c.space}.items()))
    planted = {s.key for s in c.subjects if s.planted}
    holes = list(_lacking(seen, space, planted, range(1)))
    thin = list(_lacking(seen, space, planted, range(1, THIN)))
    return Coverage(
        cells=len(c.coverage),
        verdict=_verdict(bool(c.space), sum(len(names) for *_, names in holes)),
        maps=_maps(seen, space, planted) if space else (),
        holes=_in_words(holes, seen),
        thin=_in_words(thin, seen),
        goals=tuple(Goal(name.replace("_", " "), index) for name, index in sorted(c.goals.items(), key=_open_first)),
        plots=_plots(c),
    )


def _open_first(item: tuple[str, int]) -> tuple[bool, int, str]:
    return item[1] >= 0, item[1], item[0]


def _lacking(
    seen: Seen, space: Mapping[str, Space], planted: set[str], few: range
) -> Iterable[tuple[str, int, list[str]]]:
    """Op and dtype, axis, and the possible classes with so few outputs; seeded bugs may come up as they like."""
    for key, each in space.items():
        op = key.partition("|")[0]
        for axis, names in enumerate(possible(each)):
            wanted = [n for n in names if axis != SUBJECT or f"{op}/{n}" not in planted]
            lacking = [n for n in wanted if seen.get(key, NOTHING)[axis][n] in few]
            if lacking:
                yield key, axis, lacking


def _in_words(found: Iterable[tuple[str, int, Sequence[str]]], seen: Seen) -> tuple[Lack, ...]:
    words: dict[str, list[str]] = {}
    for key, axis, names in found:
        said = f"{NAMES[axis][len(names) > 1]} {listed(names, 'or')}"
        words.setdefault(key, []).append(said)
    return tuple(
        Lack(key.replace("|", " "), "; ".join(each) if key in seen else "any input at all")
        for key, each in words.items()
    )


def _verdict(known: bool, missing: int) -> str:
    if not known:
        return "The run does not say what its cases could have been, so holes cannot be named."
    if not missing:
        return "Every class that was possible was tried."
    return f"{count(missing, 'combination')} of op, dtype and class could have been tried and never came up."


def _maps(seen: Seen, space: Mapping[str, Space], planted: set[str]) -> tuple[Heat, ...]:
    shapes = _class_map("Shape classes and layouts", (SHAPE, LAYOUT), seen, space)
    return shapes, _class_map("Value classes", (VALUES,), seen, space), _subject_map(seen, space, planted)


def _class_map(title: str, axes: Sequence[int], seen: Seen, space: Mapping[str, Space]) -> Heat:
    columns = [(axis, name) for axis in axes for name in _columns(axis, seen, space)]
    widths = Counter(axis for axis, _ in columns)
    rows, before = [], ""
    for key, each in space.items():
        op, _, dtype = key.partition("|")
        mine, can = seen.get(key, NOTHING), possible(each)
        cells = tuple(_cell(mine[axis][name], name in can[axis]) for axis, name in columns)
        rows.append(Row(op, dtype, op != before, cells))
        before = op
    return Heat(
        title=title,
        rows_are="op and dtype",
        groups=tuple((NAMES[axis][0], widths[axis]) for axis in axes if widths[axis]),
        columns=tuple(name for _, name in columns),
        starts=frozenset(i for i, (axis, _) in enumerate(columns) if i and axis != columns[i - 1][0]),
        rows=tuple(rows),
    )


def _columns(axis: int, seen: Seen, space: Mapping[str, Space]) -> list[str]:
    """Classes in the order of the op that has most of them, then the others'."""
    known = sorted((possible(each)[axis] for each in space.values()), key=len, reverse=True)
    met = sorted({name for counters in seen.values() for name in counters[axis]})
    return list(dict.fromkeys([name for names in (*known, met) for name in names]))


def _subject_map(seen: Seen, space: Mapping[str, Space], planted: set[str]) -> Heat:
    dtypes = tuple(dict.fromkeys(key.partition("|")[2] for key in space))
    takers: dict[str, dict[str, None]] = {}
    for key, each in space.items():
        met = (*each.subjects, *sorted(seen.get(key, NOTHING)[SUBJECT]))
        takers.setdefault(key.partition("|")[0], {}).update(dict.fromkeys(met))
    rows, before = [], ""
    for op, names in takers.items():
        for name in (n for n in names if f"{op}/{n}" not in planted):
            keys = [f"{op}|{dtype}" for dtype in dtypes]
            cells = tuple(
                _cell(seen.get(k, NOTHING)[SUBJECT][name], name in space.get(k, Space()).subjects) for k in keys
            )
            rows.append(Row(op, name, op != before, cells))
            before = op
    return Heat("Kernels", "kernel", (("dtype", len(dtypes)),), dtypes, frozenset(), tuple(rows))


def _cell(outputs: int, could: bool) -> Cell:
    if not outputs:
        return Cell("hole", "0") if could else Cell("none")
    return Cell(shade(outputs), short(outputs))


def shade(outputs: int) -> str:
    """The shade of a count."""
    return "thin" if outputs < THIN else f"h{sum(outputs >= line for line in HEAT)}"


def _plots(c: Campaign) -> tuple[Plot, ...]:
    if len(c.timeline) < 2:
        return ()
    cells = [(m.seconds, float(m.cells)) for m in c.timeline]
    findings = [(m.seconds, float(m.findings)) for m in c.timeline]
    return growth(cells, "coverage cells"), growth(findings, "findings")
