"""Judge a problem that lies in a folder: is its solution right? Seconds, not minutes; the author's own shapes first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.place import Place
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.head_start import HeadStart, head_start
from kernel_assay.fuzz.checking.user_references import ReferenceProcess, add_reference, named_in, op_name
from kernel_assay.fuzz.layout_registry import recognised
from kernel_assay.fuzz.layouts.support.problem import HERE, Message, Problem
from kernel_assay.oracles.catalog import enter
from kernel_assay.oracles.references.contract import ordinary
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.plain_case import plain_case
from kernel_assay.reports.json_model import Report, report

SECONDS = 10.0
"""For the search, once the reference is known."""
END_SECONDS = 6.0
"""For the failures that were met besides the first one, which is the verdict: what is not shrunk by then is filed."""
MOST_DECLINED = 0.9
"""Share of its cases that a solution may decline and be judged."""
FOLDER = "problems"
"""Of the corpus: adapters, one folder each. It is none that workers must not see, and findings name it."""


class UnjudgedError(UsageError):
    """A problem was understood, and its solution cannot be run here."""

    def __init__(self, message: str, traces: Sequence[Message]) -> None:
        super().__init__(message)
        self.traces = traces
        """What the layout's own tools are told of it."""


class Judged(Record):
    """What came of it, for programs."""

    verdict: str
    """`right`, `right_if_ordinary` (it differs for NaN, Inf, very large or small numbers), `wrong` or `declined`."""
    layout: str
    reference: str
    subject: str
    first_verdict_seconds: float
    seconds: float
    shapes: tuple[dict[str, int], ...] = ()
    """Extents of the author's that were tried first."""
    too_large: tuple[dict[str, int], ...] = ()
    """Those that were not."""
    beyond: tuple[str, ...] = ()
    """Ids of findings whose inputs are not ordinary, where nothing else failed."""
    report: Report


EXTREME = 2.0**20, 2.0**-60
"""Numbers that are larger, or smaller and not 0, are no ordinary inputs, as NaN and Inf are none."""
ROUNDED, LEAST = 4, 8
"""Plain cases by which it is seen whether a reference rounds to 16 bits in between, and their extents."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of judging a problem."""

    problem: Problem
    contract: Contract
    result: api.RunResult
    first: float
    """Seconds until the first outputs were judged."""
    seconds: float
    traces: tuple[Message, ...] = ()
    beyond: api.RunResult | None = None
    """What failed on inputs that are not ordinary, where nothing else did."""
    rounds: frozenset[str] = frozenset()
    """Dtypes to which the reference itself rounds in between."""

    @property
    def wrong(self) -> bool:
        """Whether the solution failed."""
        return self.result.failed

    @property
    def hardly_tried(self) -> bool:
        """Whether nearly all cases were declined, so that nothing can be said of it."""
        kinds = self.result.campaign.kinds
        return not self.wrong and kinds.get(Kind.UNSUPPORTED, 0) > MOST_DECLINED * sum(kinds.values())

    @property
    def verdict(self) -> str:
        """`right`, `right_if_ordinary`, `wrong` or `declined`."""
        right = "right_if_ordinary" if self.beyond else "right"
        return "wrong" if self.wrong else "declined" if self.hardly_tried else right

    @property
    def too_large(self) -> list[dict[str, int]]:
        """The author's shapes that are not tried."""
        process = self.contract.elsewhere
        assert isinstance(process, ReferenceProcess)
        return [dims for dims in process.said["shapes"] if dims not in self.contract.shapes]

    def record(self, corpus: str) -> Judged:
        """The same for programs."""
        return Judged(
            verdict=self.verdict,
            layout=self.problem.layout,
            reference=self.problem.reference,
            subject=self.problem.subject,
            first_verdict_seconds=round(self.first, 2),
            seconds=round(self.seconds, 2),
            shapes=tuple(map(dict, self.contract.shapes)),
            too_large=tuple(self.too_large),
            beyond=tuple(f.id for f in self.beyond.findings) if self.beyond else (),
            report=report(self.result.book(corpus)),
        )


def judge(
    places: Sequence[Path],
    settings: api.RunSettings,
    store: CorpusStore,
    *,
    traced: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
    ahead: HeadStart | None = None,
    stop: api.Stop | None = None,
) -> Judgement:
    """Judge the problem of a folder, or of a pair of files; the search ends with the first finding.

    settings: of its time, its device and its sandbox. traced: judge the author's workloads one by one, too, for what
    the tools of the layout read. on_progress: is told what is being done, one line each. ahead: as of `run`; stop: ends
    it from outside. Raises UsageError for what cannot be judged; UnjudgedError, if it is because of the solution.
    """
    began = time.monotonic()
    problem = recognised(places)
    if traced and problem.trace is None:
        raise UsageError(f"a trace is written of definition.json and its like, not of {problem.layout}")
    if problem.unable:
        raise _unjudged(problem, problem.unable)
    if problem.files and not isinstance(store.place, Path):
        raise UsageError(
            f"{problem.layout} needs files written for it beside the corpus: name a folder, not {store.name}"
        )
    store.prepare()
    problem = written(problem, store.place)
    mine = replace(settings, references=(problem.reference,), subjects=(problem.subject,))
    stop = stop or api.Stop()
    with ahead or head_start(mine, "torch" if problem.later is not None else "") as start:
        contract = add_reference(problem.reference, op=op_name(problem.name), named=named_in(store))
        complete(problem, contract)
        on_progress(f"{problem.layout}: {problem.judged} against {problem.reference}")
        rounds = _let_round(contract, problem.dtypes or settings.dtypes or contract.dtypes[:1])
        result, first = _searched(problem, contract, settings, store, start, on_progress, stop)
    beyond = None
    if result.findings and not result.error and all(map(is_extreme, result.findings)):
        on_progress("it fails on inputs that are not ordinary; searching those that are")
        enter(ordinary(contract))
        again, _ = _searched(problem, contract, settings, store, ahead, on_progress, stop)
        result, beyond = again, None if again.failed else result
    result.verify()
    traces = tuple(_traces(problem, contract, settings.limits)) if traced else ()
    spent = time.monotonic() - began
    return Judgement(problem, contract, result, first - began if first else spent, spent, traces, beyond, rounds)


def is_extreme(finding: Finding) -> bool:
    """Whether an input of its case has NaN, Inf, or numbers that are very large or very small."""
    large, small = EXTREME
    floats = (x for x in materialize_all(finding.case).values() if format_of(x.dtype).is_float)
    with np.errstate(all="ignore"):
        sizes = [np.abs(x.astype(np.float64)) for x in floats]
    return any(bool((~(x < large) | ((x > 0) & (x < small))).any()) for x in sizes)


def _let_round(contract: Contract, dtypes: Sequence[str]) -> frozenset[str]:
    """Let a solution round to 16 bits where the reference itself, run in that type, is not within its budget."""
    process = contract.elsewhere
    assert isinstance(process, ReferenceProcess)
    dims = {name: dim.least for name, dim in contract.dims.items()}
    shapes = [*contract.shapes, {name: max(n, min(LEAST, contract.dims[name].most)) for name, n in dims.items()}]
    narrow = [dtype for dtype in dtypes if format_of(dtype).bits == 16 and format_of(dtype).is_float]
    cases = [plain_case(contract, shapes[0], dtype, seed) for dtype in narrow for seed in range(ROUNDED)]
    process.rounds = frozenset(case.dtype for case in cases if process.is_off(case))
    return process.rounds


def _searched(
    problem: Problem,
    contract: Contract,
    settings: api.RunSettings,
    store: CorpusStore,
    ahead: HeadStart | None,
    on_progress: Callable[[str], None],
    stop: api.Stop,
) -> tuple[api.RunResult, float]:
    """The result of the search, and when the first outputs were judged; 0: none were. Raises UnjudgedError."""
    first = list[float]()

    def listen(event: api.Event) -> None:
        if not first and isinstance(event, api.BatchJudged | api.FailureMet):
            first.append(time.monotonic())
            wrong = isinstance(event, api.FailureMet)
            on_progress(f"the first outputs: {'wrong; looking into it' if wrong else 'nothing wrong; searching on'}")
        if isinstance(event, api.FindingFiled):
            stop.enough()

    told = replace(
        settings,
        ops=(contract.name,),
        subjects=(problem.subject,),
        dtypes=problem.dtypes or settings.dtypes,
        workload=problem.workload,
        after_seconds=END_SECONDS,
        judged=True,
        launch=(f'op = "{contract.name}"',) if problem.subject.endswith(".cu") else (),
    )
    try:
        return api.run(told, store=store, on_event=listen, stop=stop, ahead=ahead), first[0] if first else 0.0
    except UsageError as error:
        raise _unjudged(problem, str(error)) from error


def _unjudged(problem: Problem, why: str) -> UnjudgedError:
    """The error for a solution that cannot be run, which is no finding, with a trace of each workload that says so."""
    verdict = Verdict(kind=Kind.BUILD_FAILED, rule="status", message=f"not judged: {why}")
    return UnjudgedError(why, [problem.trace(one, verdict) for one in problem.workloads] if problem.trace else [])


def written(problem: Problem, root: Place) -> Problem:
    """The problem with its adapters written."""
    if not problem.files or not isinstance(root, Path):
        return problem
    folder = (root / FOLDER / f"{op_name(problem.name)}-{problem.digest}").resolve()
    _write(folder, problem.files)
    reference, subject = (text.replace(HERE, str(folder)) for text in (problem.reference, problem.subject))
    return replace(problem, reference=reference, subject=subject)


def complete(problem: Problem, contract: Contract) -> None:
    """Write the adapters that depend on what the reference tells."""
    process = contract.elsewhere
    assert isinstance(process, ReferenceProcess)
    if problem.later is not None:
        _write(Path(problem.subject.rpartition(":")[0]).parent, problem.later(str(process.said["told"])))


def _write(folder: Path, files: dict[str, str] | Message) -> None:
    """Raises UsageError if the disk refuses."""
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror})") from error


def _traces(problem: Problem, contract: Contract, limits: api.SandboxLimits) -> list[Message]:
    """Of each workload, the verdict on a plain case of its extents, as the layout's own tools read it."""
    assert problem.trace is not None
    found = []
    for workload in problem.workloads:
        case = plain_case(contract, workload.dims)
        verdict: Verdict = api.check(case, problem.subject, laws=False, limits=limits)
        found.append(problem.trace(workload, verdict))
    return found
