"""The top of the page: one sentence, the figures, the list of findings, the seeded bugs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.findings import Environment, Finding
from kernel_assay.corpus.model.interpreter_mends import is_mended, mended_text
from kernel_assay.corpus.program import program
from kernel_assay.corpus.storage.matrix_record import MatrixRun, Standing
from kernel_assay.reports.book import Book, checked_here, headline, planted_missed
from kernel_assay.reports.bugs import grouped
from kernel_assay.reports.plain.matrix_text import matrix_headline
from kernel_assay.reports.words import (
    count,
    estimates,
    figure,
    first_of,
    listed,
    moment,
    notes,
    span,
    workloads,
)

LOUD = frozenset({"new", "regression", "expectation expired"})
QUIET = frozenset({"seeded bug", "known on the base", "expected to fail", "fixed"})
"""Standings that ask for a person at once, and those that do not ask at all."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One total."""

    name: str
    value: str
    remark: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something a reader must know before believing the figures."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A finding in the list."""

    finding: Finding
    standing: str
    tone: str


@dataclass(frozen=True, slots=True)
class Group:
    """Findings that are most likely one bug."""

    key: str
    kind: str
    dtypes: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Planted:
    """A seeded bug, and what became of it."""

    key: str
    summary: str
    wanted: str
    earned: int | None
    """Outputs with that verdict; None: no run counts them."""
    smallest: Finding | None
    others: tuple[Finding, ...]


def tone_of(book: Book) -> str:
    """bad: somebody must look; calm: findings that are no news; open: nothing was judged; good: nothing was found."""
    if book.matrix is not None:
        counts = book.matrix.counts
        bad = any(n for standing, n in counts.items() if standing.bad)
        return "bad" if bad else "open" if counts[Standing.NOT_RUN] else "good"
    missed = book.campaign is not None and planted_missed(book.campaign)
    if missed or any(book.news(f) for f in book.real):
        return "bad"
    if book.real:
        return "calm"
    return "good" if book.campaign is not None and book.campaign.judged else "open"


def sentence(book: Book) -> str:
    """The whole report in one sentence."""
    c = book.campaign
    if book.matrix is not None:
        return matrix_headline(book.matrix)
    if book.real:
        return headline(book)
    if c is None:
        return "Only findings about seeded bugs" if book.planted else "No findings, and no run that looked for them"
    if not c.judged:
        return "Nothing was judged"
    beside = " beside the seeded bugs" if any(s.planted for s in c.subjects) else ""
    return f"{headline(book)}{beside}"


def facts(c: Campaign) -> list[tuple[str, str]]:
    """Name, seed and circumstances of a run."""
    said = [
        ("run", c.run),
        ("seed", str(c.seed)),
        ("started", moment(c.started)),
        ("took", span(c.seconds)),
        ("revision", c.revision),
    ]
    return [(name, text) for name, text in said if text]


def matrix_facts(run: MatrixRun) -> list[tuple[str, str]]:
    """Name, file and seed of a run of a test matrix."""
    said = [("matrix", run.file), ("run", run.name), ("seed", str(run.seed)), ("started", moment(run.started))]
    return [*said, ("took", span(run.seconds))]


def circumstances(c: Campaign | None, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """The place and way of the run; without a run, of the first finding."""
    if c is None:
        return environment(findings[0].environment) if findings else []
    said = [("engine", c.engine), ("last update", moment(c.updated))]
    said += [(f"option {name}", str(value)) for name, value in c.options.items() if value not in {"", None}]
    said += [(f"contract of {op}", place) for op, place in c.contracts.items()]
    return environment(c.environment) + [(name, text) for name, text in said if text]


def environment(e: Environment) -> list[tuple[str, str]]:
    """Rows of everything that an observation may depend on."""
    said = [
        ("python", e.python),
        ("platform", e.platform),
        ("machine", e.machine),
        ("processor", e.processor),
        ("devices", ", ".join(e.devices)),
        ("packages", ", ".join(f"{name} {version}" for name, version in e.packages.items())),
    ]
    return [(name, text) for name, text in said if text]


def figures(book: Book) -> list[Figure]:
    """The row of totals."""
    c = book.campaign
    found = Figure("findings", f"{len(book.groups):,}", _beside(book), tone_of(book) if book.real else "")
    if book.matrix is not None:
        results = book.matrix.results
        done = sum(one.done for one in results)
        totals = [("cells", f"{len(results):,}"), ("run", f"{done:,}"), ("cases", f"{sum(r.cases for r in results):,}")]
        judged = f"{sum(r.judged for r in results):,}"
        return [*(Figure(*one) for one in totals), Figure("outputs judged", judged), found]
    if c is None:
        return [found]
    bugs = sum(bool(s.planted) for s in c.subjects)
    reached, goals = sum(index >= 0 for index in c.goals.values()), len(c.goals)
    return [
        Figure("cases", f"{c.cases:,}"),
        Figure("outputs judged", f"{c.judged:,}"),
        Figure("outputs a second", f"{c.judged / c.seconds:,.0f}" if c.seconds > 0 else figure(None)),
        Figure("ops", f"{len(c.ops):,}"),
        Figure("kernels", f"{len(c.subjects):,}", f"{bugs:,} with seeded bugs" if bugs else ""),
        found,
        Figure(
            "goals reached", f"{reached} of {goals}" if goals else "none set", "", "warn" if reached < goals else ""
        ),
    ]


def _beside(book: Book) -> str:
    several = len(book.real) > len(book.groups)
    said = [
        f"{len(book.real):,} by dtype and pattern" if several else "",
        f"{len(book.planted):,} about seeded bugs" if book.planted else "",
    ]
    return ", ".join(filter(None, said))


def remarks(book: Book) -> Iterator[Remark]:
    """Yield what a reader must know to believe the figures, loudest first."""
    if book.campaign is None:
        return
    yield from _weaknesses(book.campaign)
    fresh = sum(any(f.id in book.campaign.fresh for f in bug) for bug in book.groups)
    known = book.campaign.known_hits
    said = f"{count(fresh, 'finding')} nobody had met before this run" if book.real else ""
    again = f"{count(known, 'further failure')} had been met before" if known else ""
    if said or again:
        yield Remark("quiet", f"{'; '.join(filter(None, (said, again)))}.")


def _weaknesses(c: Campaign) -> Iterator[Remark]:
    if missed := planted_missed(c):
        verb = "was" if len(missed) == 1 else "were"
        yield Remark("bad", f"{count(len(missed), 'seeded bug')} {verb} not found: {first_of(missed)}.")
    if not c.finished:
        yield Remark("warn", f"The run was interrupted; {program()} run --resume goes on with it.")
    if c.estimated:
        ops = listed(c.estimated)
        yield Remark(
            "warn",
            f"The error budget of {ops} is estimated from the formula: weaker than a derived one, "
            "so a pass there says less.",
        )
    known = (*estimates(c)[1:], *workloads(c), *checked_here(c), *notes(c))
    yield from (Remark("quiet", f"{said[:1].upper()}{said[1:]}.") for said in known)
    if is_mended(c):
        yield Remark("quiet", f"{mended_text()}.")


def groups(book: Book) -> list[Group]:
    """The list of findings; those that need a person first."""
    made = [_group(book, each) for each in book.groups]
    return sorted(made, key=lambda g: not any(book.news(e.finding) for e in g.entries))


def _group(book: Book, findings: Sequence[Finding]) -> Group:
    dtypes = ", ".join(dict.fromkeys(f.case.dtype for f in findings))
    first = findings[0]
    return Group(first.subject.key, first.verdict.kind.value, dtypes, tuple(entry(book, f) for f in findings))


def entry(book: Book, finding: Finding) -> Entry:
    """A finding with its place in the life of findings."""
    standing = book.standing(finding)
    return Entry(finding, standing, "bad" if standing in LOUD else "quiet" if standing in QUIET else "plain")


def choices(made: Iterable[Group]) -> tuple[list[str], list[str]]:
    """Kinds and standings to choose from."""
    listed_groups = list(made)
    standings = {e.standing for group in listed_groups for e in group.entries}
    kinds = {e.finding.verdict.kind.value for group in listed_groups for e in group.entries}
    return sorted(kinds), sorted(standings)


def planted(book: Book) -> list[Planted]:
    """Every seeded bug, those that were missed first."""
    subjects = {f.subject.key: f.subject for f in book.planted}
    if book.campaign is not None:
        subjects |= {s.key: s for s in book.campaign.subjects if s.planted}
    rows = []
    for key, subject in subjects.items():
        mine = [f for group in grouped((f for f in book.planted if f.subject.key == key), book.news) for f in group]
        mine.sort(key=lambda f: f.verdict.kind != subject.planted)
        kinds = book.campaign.by_subject.get(key, {}) if book.campaign else {}
        earned = kinds.get(subject.planted, 0) if book.campaign else None
        hit = bool(mine) and mine[0].verdict.kind == subject.planted
        rows.append(Planted(key, subject.summary, subject.planted, earned, mine[0] if hit else None, tuple(mine[hit:])))
    return sorted(rows, key=lambda row: (row.earned != 0, row.key))
