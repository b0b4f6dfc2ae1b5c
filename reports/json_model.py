"""The report for programs; the schema is reports/schema.json. A field that changes its meaning raises the version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.campaign import Campaign, Statistics, Workload
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.findings import Cliff, Environment, Event, Exhibit, Finding, Sanitized, Variant
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Measurement
from kernel_assay.corpus.storage.matrix_record import MatrixRun
from kernel_assay.reports.book import Book, blind, failing, planted_missed
from kernel_assay.reports.coverage_gaps import holes


class SubjectReport(Record):
    """One subject in a run."""

    key: str
    backend: str
    path: str
    planted: str = ""
    """For a seeded bug: the verdict it must earn."""
    claims: dict[str, Any] = {}
    """Declared arithmetic that is not the default."""
    kinds: dict[str, int] = {}
    failing: int = 0
    max_rho: float | None = None
    """Largest share of the error budget used by an output that passes."""
    microseconds: float | None = None
    """Mean wall time of one run."""
    statistics: Statistics = Statistics()
    limits: tuple[str, ...] = ()
    """Sizes, larger than any that are run, at which it would be wrong."""
    library: str = ""
    """How it calls of torch what its reference calls, instead of a kernel of its own or beside one."""


class FindingReport(Record):
    """One finding."""

    finding: str
    """Its id."""
    subject: str
    planted: bool
    kind: Kind
    rule: str
    message: str
    blame: str = ""
    claim: str = ""
    """An arithmetic that the subject does not declare, and that would excuse it."""
    shares: tuple[Share, ...] = ()
    """Of a large case: how much of each output was judged, and by what."""
    state: str
    standing: str
    news: bool
    """Whether it needs a person: it reproduces, is not expected, and the base does not have it."""
    count: int
    probability: float
    signature: str
    dtype: str
    case_id: str
    case: Case
    original: Case
    before: tuple[Case, ...] = ()
    """What must run before it in the same process; without it the case passes."""
    elements: int
    original_elements: int
    gates: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    blind: tuple[str, ...] = ()
    """Customary checks that would have passed it."""
    cliff: Cliff | None = None
    exhibit: Exhibit | None = None
    variants: tuple[Variant, ...] = ()
    sanitized: tuple[Sanitized, ...] = ()
    history: tuple[Event, ...] = ()
    commands: dict[str, str] = {}


class HoleReport(Record):
    """Classes that no case was in."""

    op: str
    dtype: str
    axis: str
    missing: tuple[str, ...]


class WorkloadReport(Record):
    """Calls of a model run whose shapes a run began with."""

    file: str
    shapes: int
    judged: int
    """Shapes on which a kernel was judged."""
    calls: int
    left_out: tuple[str, ...] = ()


class Report(Record):
    """One run, or everything that was found if there was none."""

    report_version: Literal[3] = 3
    run: str = ""
    seed: int = 0
    revision: str = ""
    started: str = ""
    finished: bool = False
    cases: int = 0
    judged: int = 0
    """Outputs judged; those of cases that were declined are none."""
    declined: int = 0
    """Executions that were declined."""
    seconds: float = 0.0
    kinds: dict[str, int] = {}
    failing: int = 0
    """Executions that failed."""
    subjects: tuple[SubjectReport, ...] = ()
    findings: tuple[FindingReport, ...] = ()
    planted_missed: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()
    """Ops whose error budgets are estimated, not derived."""
    unjudged: dict[str, float] = {}
    """Op -> share of the elements of its gradients that were not judged."""
    references: dict[str, str] = {}
    """Op -> what a user's reference was found to be."""
    unfollowed: dict[str, tuple[str, ...]] = {}
    """Op -> what of its reference no estimate follows."""
    workload: dict[str, WorkloadReport] = {}
    """By op."""
    coverage_cells: int = 0
    holes: tuple[HoleReport, ...] = ()
    reach: dict[str, dict[str, int]] = {}
    """Subject key -> how large dims were in cases that it was judged on, and `elements` of the largest tensor."""
    goals: dict[str, int] = {}
    """Goal -> index of the case that reached it, -1 for none."""
    goals_open: tuple[str, ...] = ()
    environment: Environment | None = None
    matrix: MatrixRun | None = None
    """A run of a test matrix, whose cells the findings are of; then it has what is told of a run above."""


def report(book: Book) -> Report:
    """The report of a book."""
    c = book.campaign
    findings = tuple(finding_report(book, f) for f in book.findings)
    if c is None:
        return Report(findings=findings, matrix=book.matrix)
    return Report(
        run=c.run,
        seed=c.seed,
        revision=c.revision,
        started=c.started,
        finished=c.finished,
        cases=c.cases,
        judged=c.judged,
        declined=c.kinds.get(Kind.UNSUPPORTED, 0),
        seconds=round(c.seconds, 3),
        kinds=c.kinds,
        failing=failing(c.kinds),
        subjects=tuple(_subject(c, s) for s in c.subjects),
        findings=findings,
        planted_missed=tuple(planted_missed(c)),
        estimated=c.estimated,
        unjudged=c.unjudged,
        references=c.references,
        unfollowed=c.unfollowed,
        workload={op: _workload(one) for op, one in c.workload.items()},
        coverage_cells=len(c.coverage),
        holes=tuple(HoleReport(op=h.op, dtype=h.dtype, axis=h.axis, missing=h.missing) for h in holes(c)),
        reach=c.reach,
        goals=c.goals,
        goals_open=tuple(name for name, index in c.goals.items() if index < 0),
        environment=c.environment,
    )


def _workload(one: Workload) -> WorkloadReport:
    return WorkloadReport(
        file=one.file, shapes=len(one.cases), judged=len(one.judged), calls=one.calls, left_out=one.left_out
    )


def _subject(c: Campaign, s: Subject) -> SubjectReport:
    kinds, seen = c.by_subject.get(s.key, {}), c.statistics.get(s.key, Statistics())
    return SubjectReport(
        key=s.key,
        backend=s.backend,
        path=s.path,
        planted=s.planted,
        claims=s.numerics.model_dump(mode="json", exclude_defaults=True),
        kinds=kinds,
        failing=failing(kinds),
        max_rho=c.max_rho.get(s.key),
        microseconds=seen.nanoseconds / seen.timed / 1000 if seen.timed else None,
        statistics=seen,
        limits=c.limits.get(s.key, ()),
        library=c.library.get(s.key, ""),
    )


def finding_report(book: Book, f: Finding) -> FindingReport:
    """One finding of a book."""
    return FindingReport(
        finding=f.id,
        subject=f.subject.key,
        planted=bool(f.subject.planted),
        kind=f.verdict.kind,
        rule=f.verdict.rule,
        message=f.verdict.message,
        blame=f.verdict.blame,
        claim=f.claim,
        shares=f.verdict.shares,
        state=f.state.value,
        standing=book.standing(f),
        news=book.news(f),
        count=f.count,
        probability=f.probability,
        signature=f.signature.key,
        dtype=f.signature.dtype,
        case_id=f.case.id,
        case=f.case,
        original=f.original,
        before=f.before,
        elements=f.case.elements,
        original_elements=f.original.elements,
        gates=f.gates,
        measurements=f.verdict.measurements,
        blind=tuple(blind(f)),
        cliff=f.cliff,
        exhibit=f.exhibit,
        variants=f.variants,
        sanitized=f.sanitized,
        history=f.history,
        commands=book.commands(f),
    )


def to_json(data: Record | Sequence[Record | dict[str, Any]]) -> str:
    """Indented JSON; infinities and NaN by name, which JSON has no numbers for."""
    plain = data.plain() if isinstance(data, Record) else [_plain(item) for item in data]
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def _plain(item: Record | dict[str, Any]) -> dict[str, Any]:
    return item.plain() if isinstance(item, Record) else item


def schema() -> str:
    """The JSON schema of a report, as it stands in reports/schema.json."""
    return json.dumps(Report.model_json_schema(mode="serialization"), indent=2) + "\n"
