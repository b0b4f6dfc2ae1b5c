"""One finding on the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_assay.corpus.formats import spelled
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.findings import STATES, Element, Exhibit, Finding, Variant
from kernel_assay.corpus.model.verdict import Measurement
from kernel_assay.reports.book import Book, judged, sanitized, shows_in, stopped_at
from kernel_assay.reports.explain import short as meaning_of
from kernel_assay.reports.explain import topics
from kernel_assay.reports.page.plots import Map, Plot, failure_map, histogram, ulps_labels
from kernel_assay.reports.page.summary import Entry, entry, environment
from kernel_assay.reports.tensors import filled
from kernel_assay.reports.words import (
    DASH,
    bits,
    count,
    extent,
    figure,
    moment,
    only_bits_tell,
    place,
    relation,
    times,
    value,
)

RELATED = 8
"""Findings of the same subject and kind that are named."""
POKES = 6
"""Written-out elements of a tensor that are named one by one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input, in words; same: columns in which the original is what the smallest case is."""

    name: str
    columns: tuple[str, ...]
    """Shape, dtype, layout, values."""
    same: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """A case."""

    title: str
    label: str
    elements: str
    tensors: tuple[Tensor, ...]
    attrs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """An element of the output, each number as it is shown."""

    index: str
    got: str
    bits: str
    wanted: str
    bound: str
    rho: str
    ulps: str
    fails: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """A table of who else fails: subjects by dtypes."""

    dtypes: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Variant | None, ...]], ...]
    """Key and name of the subject, and what it makes of the case."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to a finding."""

    at: str
    state: str
    what: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """A finding with everything that has to be computed for the page."""

    entry: Entry
    title: str
    facts: tuple[str, ...]
    inputs: tuple[Inputs, ...]
    spots: tuple[Spot, ...]
    map: Map | None
    distances: Plot | None
    metrics: tuple[tuple[str, str, str, str], ...]
    matrix: Matrix | None
    sanitized: tuple[str, ...]
    steps: tuple[Step, ...]
    related: tuple[Finding, ...]
    more: int
    """Related ones that are not named."""
    commands: Mapping[str, str]
    details: tuple[tuple[str, str], ...]
    reproducer: str


def sheet(book: Book, f: Finding, related: Iterable[Finding], reproducer: str) -> Sheet:
    """Make the sheet of one finding; related: those of the same subject and kind."""
    shown = f.exhibit or Exhibit()
    others = tuple(other for other in related if other is not f)
    return Sheet(
        entry=entry(book, f),
        title=f.verdict.message or f"{f.subject.key}: {f.verdict.kind.value}",
        facts=tuple(filter(None, _facts(f))),
        inputs=tuple(_inputs(f)),
        spots=tuple(_spot(e, shown.dtype) for e in shown.elements),
        map=failure_map(shown.picture) if shown.picture else None,
        distances=_distances(shown),
        metrics=tuple(_metric(m, shown.dtype) for m in f.verdict.measurements),
        matrix=_matrix(f.variants),
        sanitized=tuple(sanitized(f)),
        steps=tuple(Step(moment(e.at), e.state.value, e.what or STATES[e.state]) for e in f.history),
        related=others[:RELATED],
        more=len(others[RELATED:]),
        commands=book.commands(f),
        details=tuple((name, text) for name, text in _details(book, f) if text),
        reproducer=reproducer,
    )


def meanings(findings: Sequence[Finding]) -> dict[str, str]:
    """Texts for the kinds and rules of these findings; a rule of an old record may have no text any more."""
    found = {"law" if f.verdict.law else f.verdict.rule for f in findings} & set(topics())
    kinds = {f.verdict.kind.value for f in findings}
    return {name: meaning_of(name) for name in (*sorted(kinds), *sorted(found - kinds))}


def _facts(f: Finding) -> Iterator[str]:
    yield f"seen {count(f.count, 'time')}"
    yield f"rule {f.verdict.rule}" if f.verdict.rule else ""
    if f.probability < 1:
        yield f"shows in {shows_in(f)}"
    if f.exhibit and f.exhibit.failing:
        fail = "fails" if f.exhibit.failing == 1 else "fail"
        yield f"{count(f.exhibit.failing, 'element')} of {f.exhibit.output or 'the output'} {fail}"
    yield judged(f.verdict.shares)
    if f.expect == "fail":
        until = f" until {f.expires}" if f.expires else ""
        yield f"expected to fail{until}{f': {f.reason}' if f.reason else ''}"
    if f.first_seen:
        yield f"first seen {moment(f.first_seen)}"
    if f.last_seen and f.last_seen != f.first_seen:
        yield f"last {moment(f.last_seen)}"
    if f.found_by:
        yield f"found by {f.found_by}"


def _inputs(f: Finding) -> Iterator[Inputs]:
    same = f.original.id == f.case.id
    yield _case("Smallest case that fails" if not same else "The case that fails, as found", f.case, None)
    for number, case in enumerate(f.before, 1):
        yield _case(f"Must run before it in the same process, {number} of {len(f.before)}", case, f.case)
    if not same:
        yield _case("As it was found", f.original, f.case)
    if f.exhibit and f.exhibit.partner is not None:
        yield _case(f"The other case of the pair{relation(f.exhibit)}", f.exhibit.partner, f.case)


def _case(title: str, case: Case, smallest: Case | None) -> Inputs:
    before = {name: _columns(t) for name, t in smallest.tensors.items()} if smallest else {}
    tensors = []
    for name, recipe in case.tensors.items():
        columns = _columns(recipe)
        other = before.get(name, ("",) * len(columns))
        same = tuple(a == b for a, b in zip(columns, other, strict=True))
        tensors.append(Tensor(name, columns, same))
    attrs = [(name, f"{v:g}" if isinstance(v, float) else str(v)) for name, v in case.attrs.items()]
    return Inputs(title, case.label, count(case.elements, "element"), tuple(tensors), (*attrs, *case.outputs.items()))


def _columns(t: TensorRecipe) -> tuple[str, ...]:
    origin = f", from {place(t.origin)}" if any(t.origin) else ""
    values = filled(t.but(pokes=())) + origin
    if t.pokes:
        shown = ((at, spelled(pattern, t.dtype), bits(pattern, t.dtype)) for at, pattern in t.pokes[:POKES])
        named = ", ".join(f"[{at}] = {said} ({raw})" for at, said, raw in shown)
        more = f" and {len(t.pokes) - POKES:,} more" if len(t.pokes) > POKES else ""
        values += f"; written out: {named}{more}"
    return (extent(t.shape), t.dtype, t.layout, values)


def _spot(e: Element, dtype: str) -> Spot:
    got, wanted = value(e.got, dtype), value(e.wanted, dtype)
    due = f" ({bits(e.wanted_bits, dtype)})" if only_bits_tell(e, got, wanted) else ""
    return Spot(
        index=place(e.index),
        got=got,
        bits=bits(e.bits, dtype),
        wanted=wanted + due,
        bound=figure(e.bound),
        rho=times(e.rho),
        ulps=figure(e.ulps) if e.ulps >= 0 else DASH,
        fails=e.fails,
    )


def _distances(shown: Exhibit) -> Plot | None:
    if not any(shown.ulps):
        return None
    return histogram(ulps_labels(len(shown.ulps)), shown.ulps, "distance in ULP", "elements")


def _metric(m: Measurement, dtype: str) -> tuple[str, str, str, str]:
    """Name, value, line, and where."""
    where = place(m.index)
    if m.got is not None and m.wanted is not None:
        where += f": {value(m.got, dtype)}, wanted {value(m.wanted, dtype)}"
    said = times(m.value) if m.metric == "rho" else figure(m.value)
    return m.metric.replace("_", " "), said, "" if m.limit is None else figure(m.limit), where


def _matrix(variants: Iterable[Variant]) -> Matrix | None:
    cells = {(v.subject, v.dtype): v for v in variants}
    if not cells:
        return None
    dtypes = tuple(dict.fromkeys(dtype for _, dtype in cells))
    subjects = dict.fromkeys(subject for subject, _ in cells)
    rows = [(s, s.rpartition("/")[2], tuple(cells.get((s, d)) for d in dtypes)) for s in subjects]
    return Matrix(dtypes, tuple(rows))


def _details(book: Book, f: Finding) -> Iterator[tuple[str, str]]:
    """Yield details that one rarely needs."""
    s = f.subject
    yield "kernel", f"{s.path or s.name}, line {s.line}, {s.function}() on {s.backend} {s.device}"
    yield "stopped at", f"line {stopped_at(f)}" if stopped_at(f) else ""
    yield "source digest", s.source_digest
    yield "contract", f.contract
    yield "signature", f.signature.key
    yield "met before as", ", ".join(f.aliases)
    yield "input digest", f.input_digest
    if book.campaign is None or book.campaign.environment.id != f.environment.id:
        yield from environment(f.environment)
