"""Run stored cases again and say what has changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.inputs.fingerprint import rows_digest
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import TOKEN, Case
from kernel_assay.corpus.model.findings import Event, Finding, State
from kernel_assay.corpus.model.interpreter_mends import AS_IS, INTERPRETED
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.corpus.storage.reading import case_of, load_record
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.large_policy import is_large
from kernel_assay.fuzz.checking.requests import Checked, CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels, placed, select
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.checking.user_contracts import know_contracts
from kernel_assay.fuzz.cliffs.kernel import timed_again
from kernel_assay.fuzz.planning.regenerate import case_of_run
from kernel_assay.fuzz.triage.failures import Failure, Observed, file, now
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.catalog import resolve, source_digest
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import stateful
from kernel_assay.oracles.large.judge_large import places_of

SURE = 0.01
"""Probability of missing a failure that shows only sometimes, which decides how often it is run again."""
MAX_RUNS = 64
NOBODY = UserKernels()
BOTH = (INTERPRETED, AS_IS)
"""A process has one interpreter of Triton."""


class Outcome(StrEnum):
    """The meaning of a replay, given what was expected."""

    PASSES = "passes"
    FAILS = "fails"
    FAILS_AS_EXPECTED = "fails as expected"
    KNOWN_ON_BASE = "fails on the base, too"
    EXPIRED = "fails, and is no longer expected to"
    STARTED_TO_PASS = "started to pass"  # noqa: S105  (an outcome, no password)
    FIXED = "does not fail any more"
    NOT_TOLD = "cannot be told"
    DRIFTED = "recipe drifted"


GOOD = frozenset(set(Outcome) - {Outcome.FAILS, Outcome.EXPIRED, Outcome.DRIFTED})
"""Outcomes that do not fail a replay; a seeded bug that is not caught any more does, whatever its outcome."""


@dataclass(frozen=True, slots=True)
class Item:
    """One case to be run again by one subject."""

    name: str
    case: Case
    subject: Subject
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of replaying an item."""

    item: Item
    outcome: Outcome
    verdict: Verdict

    def as_finding(self) -> Finding:
        """The finding with today's verdict; a bare case becomes one."""
        failure = Failure(self.item.case, self.item.subject, self.verdict, self.item.name)
        if self.item.finding is not None:
            return self.item.finding.but(verdict=self.verdict, subject=self.item.subject)
        return file(failure, Observed(self.item.case, self.verdict), [Event(at=now(), state=State.NEW)])

    @property
    def shows(self) -> bool:
        """Whether the finding's own failure is there, and not another one in its place."""
        mine, seen = self.item.finding, self.verdict.signature
        return mine is not None and seen is not None and self.verdict.failed and seen.coarse == mine.signature.coarse

    @property
    def repaired(self) -> bool:
        """Whether what failed until now passes."""
        return self.outcome in {Outcome.FIXED, Outcome.STARTED_TO_PASS} and not self.lost

    @property
    def doubtful(self) -> bool:
        """Whether a failure did not show this time, and nobody knows whether it is gone."""
        finding = self.item.finding
        met = finding is not None and not self.item.subject.planted
        return met and self.outcome is Outcome.NOT_TOLD and self.verdict.kind.facts.decided

    @property
    def good(self) -> bool:
        """Whether nothing needs a person."""
        return self.outcome in GOOD and not self.lost

    @property
    def lost(self) -> bool:
        """A seeded bug that was caught once and is not caught any more."""
        finding = self.item.finding
        planted = finding is not None and bool(self.item.subject.planted) and finding.shows_again
        return planted and self.outcome not in {Outcome.FAILS_AS_EXPECTED, Outcome.NOT_TOLD, Outcome.DRIFTED}


def gather(store: CorpusStore, targets: Sequence[str], own: UserKernels = NOBODY) -> list[Item]:
    """Find what words name: files, folders, ids of findings, run:index; none: the whole corpus.

    own: to be run instead of the recorded ones. Raises UsageError for what cannot be found.
    """
    if not targets:
        found = [(str(path), finding) for path, finding in store.regressions()]
        known = {finding.id for _, finding in found}
        found += [(f.id, f) for f in store.findings() if f.id not in known]
        return [item for name, f in found for item in _items(name, f, own)]
    gathered = [(target, _gather_one(store, target, own)) for target in targets]
    if nobody := next((target for target, items in gathered if not items), None):
        raise UsageError(f"{_named(nobody)} has a dtype that none of the kernels takes; name another with --subject")
    return [item for _, items in gathered for item in items]


def moved(items: Sequence[Item], device: str) -> list[Item]:
    """The items on a device, but for subjects that cannot run there; "": where they are recorded to have run.

    What the emulator has seen of a kernel in CUDA C++ no GPU shows: that stays on the CPU.
    Raises UsageError if there is no such device.
    """
    if not device:
        return list(items)
    there = placed([item.subject for item in items], device)
    return [item if _is_emulated(item) else replace(item, subject=s) for item, s in zip(items, there, strict=True)]


def _is_emulated(item: Item) -> bool:
    on_cpu = item.subject.loader == "cuda"
    return on_cpu and item.finding is not None and item.finding.verdict.rule == "check" and not item.subject.planted


def _named(target: str) -> str:
    """A target in words; a token tells nobody anything."""
    return f"the case {case_of(target).label}" if target.startswith(TOKEN) else target


def _gather_one(store: CorpusStore, target: str, own: UserKernels) -> list[Item]:
    if not target:
        raise UsageError("the name of what to run again is empty: is a variable not set?")
    if target.startswith(TOKEN):
        case = case_of(target)
        _refuse_unsound(case, f"the case {target[:40]!r}")
        return [Item(case.id, case, s) for s in _chosen(case, own, ())]
    path = Path(target)
    if path.is_dir():
        files = sorted(path.rglob("*.json"))
        if not files:
            raise UsageError(f"there is no .json file under {target}")
        return [item for f in files for item in _items(str(f), load_record(f), own)]
    if path.suffix == ".json" or path.exists():
        return _items(target, load_record(path), own)
    run, colon, index = target.rpartition(":")
    if colon and index.isdigit():
        case, ran = case_of_run(store, run, int(index))
        return [Item(target, case, s) for s in _chosen(case, own, ran)]
    finding = store.finding(target)
    return _items(finding.id, finding, own)


def _items(name: str, record: Case | Finding, own: UserKernels) -> list[Item]:
    if isinstance(record, Finding):
        know_contracts({record.case.op: record.contract}, f"finding {record.id}")
    for case in (record,) if isinstance(record, Case) else (*record.before, record.case):
        _refuse_unsound(case, name)
    if isinstance(record, Case):
        return [Item(name, record, s) for s in _chosen(record, own, ())]
    if own.files:
        return [Item(name, record.case, s, record) for s in _chosen(record.case, own, ())]
    if not resolve(record.subject).is_file():
        raise UsageError(f"the subject of {name} is gone: {record.subject.path} does not exist; name it with --subject")
    return [Item(name, record.case, record.subject, record)]


def _refuse_unsound(case: Case, where: str) -> None:
    """Raise UsageError, before anything runs, for a case that its op cannot have or that nothing can be made of."""
    with about(where):
        contract = contract_of(case.op)
        contract.check(case)
        if is_large(contract, case):
            rows_digest(case)
        else:
            materialize_all(case)


def _chosen(case: Case, own: UserKernels, ran: Iterable[Subject]) -> list[Subject]:
    chosen = own.subjects([case.op]) or list(ran) or select([case.op])
    keys = set(fitting(chosen, case))
    return [s for s in chosen if s.key in keys]


def replay(
    items: Sequence[Item],
    store: CorpusStore | None,
    *,
    timeout: float,
    memory_mb: int,
    closed: bool = True,
    place: Place | None = None,
) -> list[Replayed]:
    """Run every item again; findings in the store are told what came of it."""
    replayed: dict[int, Replayed] = {}
    for group in _without_namesakes(items):
        subjects = list({i.subject.key: i.subject for _, i in group}.values())
        with Examiner(subjects, timeout=timeout, memory_mb=memory_mb, closed=closed, place=place) as examiner:
            for number, item in group:
                replayed[number] = replay_one(examiner, item)
                if store is not None:
                    _remember(store, replayed[number])
    return [replayed[number] for number in sorted(replayed)]


class Replayer:
    """Runs items again one by one; each subject's sandbox is kept until it is closed. Nothing is written."""

    def __init__(self, *, timeout: float, memory_mb: int, closed: bool = True) -> None:
        self._timeout, self._memory_mb, self._closed = timeout, memory_mb, closed
        self._examiners: dict[str, Examiner] = {}

    def replay(self, item: Item) -> Replayed:
        """Replay an item. Raises UsageError for a subject that cannot be loaded."""
        if item.subject.id not in self._examiners:
            made = Examiner([item.subject], timeout=self._timeout, memory_mb=self._memory_mb, closed=self._closed)
            self._examiners[item.subject.id] = made
        return replay_one(self._examiners[item.subject.id], item)

    def close(self) -> None:
        """End the sandboxes."""
        for examiner in self._examiners.values():
            examiner.__exit__(None, None, None)
        self._examiners = {}


def _without_namesakes(items: Sequence[Item]) -> list[list[tuple[int, Item]]]:
    """The items, numbered, in groups in which a subject's name means one file only, and one interpreter is used."""
    groups: list[dict[str, str]] = []
    members: list[list[tuple[int, Item]]] = []
    for numbered in enumerate(items):
        subject = numbered[1].subject
        place = f"{resolve(subject)}:{subject.function}"
        names = {subject.key: place, **({"interpreter": subject.backend} if subject.backend in BOTH else {})}
        fitting_group = (i for i, known in enumerate(groups) if all(known.get(k, v) == v for k, v in names.items()))
        at = next(fitting_group, len(groups))
        if at == len(groups):
            groups.append({})
            members.append([])
        groups[at] |= names
        members[at].append(numbered)
    return members


def replay_one(examiner: Examiner, item: Item, times: int = 0) -> Replayed:
    """Run one item again, as often as it takes to see a failure that shows only sometimes, and at least so many times.

    Of a finding it is run in a process that has run nothing else, or what the finding says that must run before.
    """
    if item.finding is not None and item.finding.cliff is not None:
        verdict = timed_again(examiner, item.subject, item.finding)
        return Replayed(item, _outcome(item, verdict), verdict)
    checked, verdict = rerun(examiner, item, times)
    recorded = item.finding.input_digest if item.finding else ""
    if recorded and checked.input_digest and recorded != checked.input_digest:
        return Replayed(item, Outcome.DRIFTED, verdict)
    return Replayed(item, _outcome(item, verdict), verdict)


def rerun(examiner: Examiner, item: Item, times: int = 0) -> tuple[Checked, Verdict]:
    """Run an item again; the results, and what they say of its subject."""
    key, finding = item.subject.key, item.finding
    request = CheckRequest(item.case, (key,), all_laws(item.case), places_of(finding.verdict) if finding else ())
    if finding is not None and finding.before:
        return _rerun_after(examiner, request, finding)
    if finding is not None:
        examiner.sandbox.renew(key)
    checked = examiner.check([request] * max(times, _times(finding)))
    verdicts = [c.verdicts[key] for c in checked]
    return checked[0], next((v for v in verdicts if v.failed), verdicts[0])


def _rerun_after(examiner: Examiner, request: CheckRequest, finding: Finding) -> tuple[Checked, Verdict]:
    """The same of a case that fails after others; if it has come to fail alone, that is another failure."""
    (key,) = request.subjects
    for _ in range(_times(finding)):
        checked = examiner.check_after(finding.before, request)
        if checked.verdicts[key].failed:
            alone = examiner.check_after((), request).verdicts[key]
            return checked, alone if alone.failed else stateful(checked.verdicts[key], len(finding.before))
    return checked, checked.verdicts[key]


def _times(finding: Finding | None) -> int:
    """The number of times to run a finding: one that never showed again as often as anything."""
    if finding is None or finding.probability >= 1.0:
        return 1
    if not finding.shows_again:
        return 1 if finding.verdict.kind.facts.dear else MAX_RUNS
    return min(MAX_RUNS, math.ceil(math.log(SURE) / math.log(1.0 - finding.probability)))


def _outcome(item: Item, verdict: Verdict) -> Outcome:
    finding = item.finding
    if not verdict.kind.facts.decided:
        return Outcome.NOT_TOLD
    if verdict.failed:
        return _failing(finding, verdict)
    if finding is not None and (not finding.shows_again or _is_as_met(finding, item.subject)):
        return Outcome.NOT_TOLD
    expected = finding is not None and (finding.expect == "fail" or bool(finding.subject.planted))
    if finding is None or finding.state in {State.REGRESSION, State.FIXED}:
        return Outcome.PASSES
    return Outcome.STARTED_TO_PASS if expected else Outcome.FIXED


def _is_as_met(finding: Finding, subject: Subject) -> bool:
    """Whether nobody has seen it fail alone, in a file that is the same now: what ran before it may have mattered."""
    if finding.state is not State.NEW:
        return False
    return finding.subject.source_digest == source_digest(resolve(subject), subject.launch)


def _failing(finding: Finding | None, verdict: Verdict) -> Outcome:
    """The meaning of a failure: only the one that was expected is, not another one in its place."""
    if finding is None:
        return Outcome.FAILS
    if verdict.signature and verdict.signature.coarse != finding.signature.coarse:
        meant = finding.subject.planted and not finding.shows_again
        return Outcome.FAILS_AS_EXPECTED if meant else Outcome.FAILS
    if finding.expect == "fail" and finding.expired() and not finding.subject.planted:
        return Outcome.EXPIRED
    return Outcome.FAILS_AS_EXPECTED if finding.expected() else Outcome.FAILS


def _same_place(a: Subject, b: Subject) -> bool:
    return (a.key, a.device) == (b.key, b.device)


def _remember(store: CorpusStore, replayed: Replayed) -> None:
    """A finding is fixed by replay only, and comes back as a regression."""
    finding = replayed.item.finding
    if finding is None or not store.has(finding) or not _same_place(replayed.item.subject, finding.subject):
        return
    if replayed.repaired:
        event = Event(at=now(), state=State.FIXED, what="a replay passed")
        store.save_finding(finding.but(state=State.FIXED, count=0, history=(event,)))
    elif replayed.verdict.failed and finding.state is State.FIXED:
        event = Event(at=now(), state=State.REGRESSION, what="a replay failed again")
        store.save_finding(finding.but(state=State.REGRESSION, history=(event,), last_seen=now()))
