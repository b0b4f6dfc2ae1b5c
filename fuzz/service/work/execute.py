"""Execute one task by the library's Python API: each kind of job is one function here. Nothing here speaks HTTP."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.process.import_limit import IMPORT_SECONDS
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.memory_store import MemoryStore
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.user_contracts import know_contracts
from kernel_assay.fuzz.checking.user_references import add_reference, op_name
from kernel_assay.fuzz.exhaustive.prove import lines
from kernel_assay.fuzz.judge import FOLDER, SECONDS, complete, judge, written
from kernel_assay.fuzz.layout_registry import recognised
from kernel_assay.fuzz.replay.replay import Item, Replayed, replay_one
from kernel_assay.fuzz.service.project_file import at_commit
from kernel_assay.fuzz.service.protocol import (
    MADE,
    SENT,
    UNSEARCHED,
    Artifact,
    JobKind,
    JobRequest,
    JobState,
    Outcome,
    Progress,
)
from kernel_assay.fuzz.service.work.assignment import Work
from kernel_assay.fuzz.service.work.kernels_of_projects import as_the_project_says, without_who_does_not_load
from kernel_assay.fuzz.service.work.portable import BUNDLE
from kernel_assay.fuzz.timing import history
from kernel_assay.fuzz.timing import text as timing_text
from kernel_assay.kernels.catalog import read_subject, resolve
from kernel_assay.kernels.environment import environment
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.reports.plain.run_text import campaign_text
from kernel_assay.reports.plain.terminal import table

JUDGED_CASES = 64
"""Of a judge job that says neither cases nor seconds."""
LOAD_SECONDS, LOAD_BEYOND = 30.0, 5.0
"""For the import of a file of a job that has no budget in seconds, and beyond the budget of one that has."""
MOST_FINDINGS = 100
MOST_RECORD, MOST_MESSAGE = 2 << 20, 2000


def load_seconds(request: JobRequest) -> float:
    """Seconds that a file of a job may take to be imported; compilers for GPUs have all that is usual."""
    said = request.settings
    return IMPORT_SECONDS if said.device != "cpu" else (said.seconds or LOAD_SECONDS) + LOAD_BEYOND


def execute(work: Work) -> Outcome:
    """Do what a task asks for; what came of it. What cannot be done is `failed`, with its reason."""
    try:
        work = as_the_project_says(replace(work, request=at_commit(work.request, work.places.sources)))
        done = KINDS[work.request.kind](work)
    except (UsageError, InternalError) as error:
        state = JobState.CANCELLED if work.stop.asked else JobState.FAILED
        done = Outcome(epoch=1, state=state, reason=work.places.leaving(str(error))[:20_000])
    return done.but(environment=environment())


def _settings(work: Work, **more: object) -> api.RunSettings:
    """The settings of a search."""
    target, s = work.request.target, work.request.settings
    files, built_in = work.split()
    own = bool(files)
    given = {
        "ops": target.ops,
        "subjects": files,
        "references": work.files(target.references),
        "held": work.held,
        "backends": s.backends,
        "peers": s.peers if own else (*s.peers, *built_in),
        "dtypes": s.dtypes,
        "device": work.where,
        "strict": s.strict,
        "seed": work.seed,
        "limits": work.limits,
    }
    if own and built_in:
        raise UsageError("subjects are files that were sent, or names of built-in implementations, and not both")
    return api.RunSettings(**{**given, **more})  # type: ignore[arg-type]


def _searched(work: Work, settings: api.RunSettings, store: RunStore, *, first_only: bool = False) -> api.RunResult:
    """Run a search, and tell how far it is. first_only: whether it ends with the first failure, which is not shrunk."""
    most, grown = 0, 0.0

    def listen(event: api.Event) -> None:
        nonlocal most, grown
        if isinstance(event, api.BatchJudged):
            met = event.cells + event.findings + event.pending
            most, grown = (met, event.seconds) if met > most else (most, grown)
            work.tell(_progress(event).but(quiet=max(0.0, event.seconds - grown)))
        if first_only and isinstance(event, api.FailureMet):
            work.stop.ask()

    return api.run(settings, store=store, on_event=listen, stop=work.stop, ahead=work.ahead(work.limits))


def _progress(event: api.BatchJudged) -> Progress:
    return Progress(
        cases=event.cases,
        judged=event.judged,
        findings=event.findings + event.pending,
        cells=event.cells,
        seconds=max(0.0, event.seconds),
        line=f"{event.judged:,} outputs judged, {event.findings} findings, {event.pending} to be looked into",
    )


def _of_run(
    work: Work,
    result: api.RunResult,
    record: Record,
    verdict: str,
    message: str = "",
    most: int = MOST_FINDINGS,
    *,
    report: bool = True,
) -> Outcome:
    """The outcome of a search. most: findings that are told of, the most important first; report: with a text."""
    c = result.campaign
    cut = work.stop.asked and not result.failed
    told = Progress(
        cases=c.cases,
        judged=c.judged,
        findings=min(most, len(result.findings)),
        cells=len(c.coverage),
        seconds=max(0.0, c.seconds),
        quiet=_quiet(c),
    )
    first = f"{result.findings[0].subject.key}: {result.findings[0].verdict.message}" if result.findings else ""
    return Outcome(
        epoch=1,
        state=JobState.CANCELLED if cut else JobState.DONE,
        progress=told,
        verdict=verdict,
        message=work.places.leaving(message or first)[:MOST_MESSAGE],
        findings=tuple(work.places.record(f) for f in result.findings[:most]),
        record=_kept(work, record),
        artifacts=_artifacts(work, result.findings[:most], campaign_text(result.book()) if report else ""),
    )


def _quiet(c: Campaign) -> float:
    """Seconds before its end in which a search met nothing new."""
    end = [(one.cells, one.findings) for one in c.timeline[-1:]]
    last = next((one.seconds for one in c.timeline if [(one.cells, one.findings)] == end), c.seconds)
    return max(0.0, c.seconds - last)


def _kept(work: Work, record: Record) -> str:
    """A record as text; nothing, if it is too long."""
    text = work.places.leaving(json.dumps(record.plain(), separators=(",", ":")))
    return text if len(text) <= MOST_RECORD else ""


def _artifacts(work: Work, findings: Sequence[Finding], report: str) -> tuple[Artifact, ...]:
    """Texts for people, and the files that `pull` needs; reproducers are made from findings when they are asked for."""
    made = [Artifact(name="report.txt", text=work.places.leaving(report)[:MOST_RECORD])] if report else []
    if not findings:
        return tuple(made)
    if (bundle := work.places.bundle()) is not None:
        made.append(Artifact(name=BUNDLE, text=bundle.canonical()))
    return tuple(made)


def _fuzz(work: Work) -> Outcome:
    seconds = None if work.cases else work.request.settings.seconds
    cases = work.cases or (None if seconds else work.request.settings.cases)
    with Store(work.places.store) as store:
        while True:
            try:
                result = _searched(work, _settings(work, seconds=seconds, cases=cases), store)
                break
            except UsageError as error:
                work = without_who_does_not_load(work, error)
        if not work.stop.asked:
            result.verify()
    verdict = "wrong" if result.failed else "declined" if work.left_out else "right"
    done = _of_run(work, result, result.campaign, verdict)
    if not work.left_out:
        return done
    left_out = work.places.leaving("; ".join(work.left_out)).replace(f"{SENT}/", "")
    words = filter(None, (done.message, f"{UNSEARCHED}{left_out}"))
    return done.but(message="; ".join(words)[:MOST_MESSAGE])


def _judge(work: Work) -> Outcome:
    """Judge quickly where nothing says how long: the first failure is the verdict, and another job shrinks it."""
    s, target = work.request.settings, work.request.target
    if target.folder:
        return _judge_folder(work)
    if not target.ops and not target.subjects:
        raise UsageError("it names no kernel to judge, and no folder of a problem")
    cases = None if s.seconds else s.cases or JUDGED_CASES
    peers = s.peers or ("none",)
    settings = _settings(work, seconds=s.seconds, cases=cases, peers=peers if target.subjects else s.peers)
    result = _searched(work, settings, MemoryStore(), first_only=not s.seconds)
    if not result.failed and result.error is None and result.untested:
        return _of_run(work, result, result.campaign, "declined", result.untested)
    if not work.stop.asked:
        result.verify()
    most = MOST_FINDINGS if s.seconds else 1  # what else it fails by is most likely the same bug
    verdict, report = "wrong" if result.failed else "right", result.failed or bool(s.seconds)
    return _of_run(work, result, result.campaign, verdict, most=most, report=report)


def _judge_folder(work: Work) -> Outcome:
    s, folder = work.request.settings, work.places.inside(work.request.target.folder)
    settings = api.RunSettings(
        seconds=None if s.cases else s.seconds or SECONDS,
        cases=s.cases,
        seed=work.seed,
        dtypes=s.dtypes,
        device=work.where,
        limits=work.limits,
    )
    with Store(work.places.store) as store:
        judged = judge(
            [folder],
            settings,
            store,
            on_progress=lambda line: work.tell(Progress(line=work.places.leaving(line)[:500])),
            ahead=work.ahead(work.limits),
            stop=work.stop,
        )
    strict = judged.beyond is not None and s.strict
    result = judged.beyond if judged.beyond is not None else judged.result
    verdict = "wrong" if strict else judged.verdict
    return _of_run(work, result, judged.record("corpus"), verdict)


def _replay(work: Work) -> Outcome:
    """Replay a finding; without one, all that the corpus of a checkout keeps."""
    if work.request.finding is None:
        return _replay_corpus(work)
    began = time.monotonic()
    replayed = replay_finding(work, work.request.finding)
    return Outcome(
        epoch=1,
        state=JobState.DONE,
        progress=Progress(cases=1, judged=1, seconds=time.monotonic() - began),
        verdict=verdict_of(replayed),
        message=work.places.leaving(": ".join(filter(None, (replayed.outcome.value, replayed.verdict.message))))[
            :MOST_MESSAGE
        ],
    )


def verdict_of(replayed: Replayed) -> str:
    """`fails`, if the finding's own failure showed, or another in its place; `fixed`; `flaky`: that is not known."""
    if replayed.verdict.failed:
        return "fails"
    return "flaky" if not replayed.verdict.kind.facts.decided or replayed.doubtful else "fixed"


def replay_finding(work: Work, sent: Finding) -> Replayed:
    """Run the case of a finding again, by the kernel as it is now. Raises UsageError for one that does not load."""
    finding = _arrived(work, sent)
    subject = finding.subject
    know_contracts({finding.case.op: finding.contract}, "the finding")
    if subject.is_own:
        now = read_subject(resolve(subject), op=subject.op, function=subject.function, launch=subject.launch)
        subject = now.but(name=subject.name, device=subject.device, dtypes=subject.dtypes)
    contract_of(finding.case.op).check(finding.case)
    limits = work.limits
    pool = work.ahead(limits).take([subject])
    with Examiner([subject], timeout=limits.timeout, memory_mb=limits.memory_mb, pool=pool) as examiner:
        return replay_one(examiner, Item(finding.id, finding.case, subject, finding), work.times)


def _arrived(work: Work, sent: Finding) -> Finding:
    """A finding with the folders of this task; adapters of its layout are written anew. Raises UsageError."""
    text, folder = sent.canonical(), work.request.target.folder
    if MADE in text and folder:
        problem = written(recognised([work.places.inside(folder)]), work.places.store)
        complete(problem, add_reference(problem.reference, op=op_name(problem.name)))
        made = Path(problem.reference.rpartition(":")[0]).parent.name
        text = re.sub(rf"{MADE}/{FOLDER}/[^/\"]+", f"{MADE}/{FOLDER}/{made}", text)
    return work.places.arriving(Finding.model_validate_json(text))


def _written(work: Work, finding: Finding) -> str:
    """The path of a file with a finding."""
    path = work.places.store / f"{finding.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(finding.plain()), "utf-8")
    return str(path)


def _replay_corpus(work: Work) -> Outcome:
    files, _ = work.split()
    corpus = work.places.sources / "corpus" / "regressions"
    if not any(corpus.rglob("*.json")):
        return Outcome(epoch=1, state=JobState.DONE, verdict="right", message="no stored cases in corpus/regressions")
    with Store(work.places.sources / "corpus") as stored:
        kept = [work.places.arriving(finding) for _, finding in stored.regressions()]
    with Store(work.places.store) as store:
        own = api.UserKernels(files, held=work.held)
        found = api.replay([_written(work, one) for one in kept], store=store, own=own, limits=work.limits)
    bad = [one for one in found if not one.good and one.verdict.failed]
    said = [f"{one.item.subject.key}: {one.outcome.value}: {one.verdict.message}" for one in bad]
    return Outcome(
        epoch=1,
        state=JobState.DONE,
        progress=Progress(cases=len(found), judged=len(found), findings=len(bad)),
        verdict="wrong" if bad else "right",
        message=work.places.leaving(said[0] if said else f"{len(found)} stored cases replayed")[:MOST_MESSAGE],
        findings=tuple(work.places.record(one.as_finding()) for one in bad[:MOST_FINDINGS]),
        artifacts=tuple([Artifact(name="replayed.txt", text=work.places.leaving("\n".join(said)))] if said else []),
    )


def _shrink(work: Work) -> Outcome:
    assert work.request.finding is not None  # JobRequest sees to it
    finding = _arrived(work, work.request.finding)
    seconds = work.request.settings.seconds or 30.0
    with Store(work.places.store) as store:
        shrunk = api.shrink(_written(work, finding), store=store, seconds=seconds, limits=work.limits)
        found = [one.finding for one in shrunk]
    if not found:
        return Outcome(epoch=1, state=JobState.DONE, verdict="fixed", message="it does not fail any more")
    return Outcome(
        epoch=1,
        state=JobState.DONE,
        verdict="fails",
        progress=Progress(cases=1, findings=len(found), seconds=shrunk[0].seconds),
        message=work.places.leaving(f"{found[0].case.label}: {found[0].verdict.message}")[:MOST_MESSAGE],
        findings=tuple(work.places.record(f) for f in found),
        artifacts=_artifacts(work, found, ""),
    )


def _one(work: Work) -> tuple[str, str]:
    """The op and the kernel of a job about one. Raises UsageError if there are more, or none."""
    target, (files, built_in) = work.request.target, work.split()
    if len(target.ops) != 1 or len(target.subjects) != 1 or target.ops[0] not in load_contracts():
        raise UsageError(f"a job of kind {work.request.kind.value} needs one op and one subject")
    return target.ops[0], (*files, *built_in)[0]


def _prove(work: Work) -> Outcome:
    op, kernel = _one(work)
    dtypes = work.request.settings.dtypes
    with Store(work.places.store) as store:
        proof = api.prove(op, kernel, dtypes=dtypes, device=work.where, store=store, limits=work.limits)
    told = list(lines(proof))
    said = "holds for every one of them" if proof.holds else "does not hold"
    return Outcome(
        epoch=1,
        state=JobState.DONE,
        verdict="right" if proof.holds else "wrong",
        message=f"{proof.subject.key}: {said}",
        record=_kept(work, proof),
        artifacts=(Artifact(name="proof.txt", text=table(("inputs", "number", "verdict", ""), told)),),
    )


def _time(work: Work) -> Outcome:
    s, target = work.request.settings, work.request.target
    files, built_in = work.split()
    if len(target.ops) != 1 or target.ops[0] not in load_contracts():
        raise UsageError("a job of kind time needs one op")
    settings = api.TimeSettings(
        target=target.ops[0],
        own=api.UserKernels(files),
        baselines=(*(f"builtin:{name}" for name in built_in), *s.baselines),
        dtypes=s.dtypes,
        device=work.where,
        seed=work.seed % (1 << 16),
        limits=api.TimingLimits(seconds=s.seconds or 10.0),
        sandbox=work.limits,
        roofline=work.where != "cpu",  # on a processor that others use it takes a minute, and says little
    )
    with Store(work.places.store) as store:
        run = api.time(settings, store=store, on_event=lambda e: work.tell(_rounds(e)))
    told = "\n".join(timing_text.told(run))
    texts = (("times.txt", told), (history.NAME, history.kept(run)))
    return Outcome(
        epoch=1,
        state=JobState.DONE,
        verdict="wrong" if run.failed else "right",
        message=work.places.leaving(told.strip().partition("\n")[0])[:MOST_MESSAGE],
        record=_kept(work, run),
        artifacts=tuple(
            Artifact(name=name, text=work.places.leaving(text)) for name, text in texts if len(text) <= MOST_RECORD
        ),
    )


def _rounds(event: api.RoundsTimed) -> Progress:
    return Progress(cases=event.number, line=f"case {event.number + 1} of {event.cases}, round {event.rounds}")


KINDS: dict[JobKind, Callable[[Work], Outcome]] = {
    JobKind.FUZZ: _fuzz,
    JobKind.JUDGE: _judge,
    JobKind.REPLAY: _replay,
    JobKind.SHRINK: _shrink,
    JobKind.PROVE: _prove,
    JobKind.TIME: _time,
    JobKind.BISECT: _replay,
    JobKind.VERIFY: _replay,
}
"""Of a bisection and of a verification the worker asks for one replay after another, each at a commit."""
