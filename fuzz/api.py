"""Find bugs in kernels from Python: run, replay, shrink, prove, compare, golden and time call these functions.

    from kernel_assay.fuzz.api import RunSettings, Store, run

    with Store("corpus") as store:
        result = run(RunSettings(subjects=("my_softmax.py",), seconds=30), store=store)
    for finding in result.findings:
        print(finding.verdict.message, finding.case.label)

Kernels run in the sandbox, never in the process that calls. Mistakes of the caller raise UsageError with one sentence,
faults of the tool InternalError.
"""

from __future__ import annotations

import atexit
import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.corpus.model.findings import Cliff, Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.timing import Timed, TimingRun
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.opening import open_store
from kernel_assay.corpus.storage.protocol import CorpusStore, RunStore
from kernel_assay.fuzz.campaign.session import CancelledError, RunResult, Stop, run
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.gradient_check import GradientCheck, check_gradients
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import UserKernels, on_device, only_dtypes
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.cliffs.chosen import chosen, dtype_of, usual_baseline
from kernel_assay.fuzz.cliffs.kernel import CliffEvent, CliffFound, CliffLimits, CliffListener, KernelCliffs
from kernel_assay.fuzz.cliffs.result import CliffSearch
from kernel_assay.fuzz.comparing.compare import Allowed, compare
from kernel_assay.fuzz.comparing.result import Comparison
from kernel_assay.fuzz.events import BatchJudged, Event, FailureMet, FindingFiled, Listener, RunEnded, RunStarted
from kernel_assay.fuzz.exhaustive import prove as exhaustive
from kernel_assay.fuzz.golden.check import GoldenCheck, Rechecked, Same
from kernel_assay.fuzz.golden.check import check as check_golden
from kernel_assay.fuzz.golden.save import Saved
from kernel_assay.fuzz.golden.save import save as save_golden
from kernel_assay.fuzz.replay import replay as replaying
from kernel_assay.fuzz.replay.baseline import beside_base
from kernel_assay.fuzz.replay.replay import Item, Outcome, Replayed, Replayer, gather, moved
from kernel_assay.fuzz.settings import RunSettings, SandboxLimits
from kernel_assay.fuzz.timing.baselines import baselines_of
from kernel_assay.fuzz.timing.measure import RoundsTimed, measure
from kernel_assay.fuzz.timing.plan import TimeSettings
from kernel_assay.fuzz.timing.plan import time_kernels as time
from kernel_assay.fuzz.timing.rounds import TimingLimits
from kernel_assay.fuzz.triage.failures import Failure, Found, put_away
from kernel_assay.fuzz.triage.sanitize import watched
from kernel_assay.fuzz.triage.triage import investigate
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.kernels.sandbox.closing import ASKED
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool
from kernel_assay.oracles.catalog import contract_of

__all__ = [
    "Allowed",
    "BatchJudged",
    "CancelledError",
    "Case",
    "Cliff",
    "CliffEvent",
    "CliffFound",
    "CliffLimits",
    "CliffSearch",
    "Comparison",
    "CorpusStore",
    "Event",
    "FailureMet",
    "Finding",
    "FindingFiled",
    "GoldenCheck",
    "GradientCheck",
    "InternalError",
    "Item",
    "Listener",
    "Numerics",
    "Outcome",
    "Proof",
    "Rechecked",
    "Replayed",
    "Replayer",
    "RoundsTimed",
    "RunEnded",
    "RunResult",
    "RunSettings",
    "RunStarted",
    "RunStore",
    "Same",
    "SandboxLimits",
    "Saved",
    "Shrunk",
    "Stop",
    "Store",
    "TimeSettings",
    "Timed",
    "TimingLimits",
    "TimingRun",
    "UsageError",
    "UserKernels",
    "Verdict",
    "check",
    "check_golden",
    "check_gradients",
    "cliffs",
    "compare",
    "gather",
    "measure",
    "open_store",
    "prove",
    "replay",
    "run",
    "save_golden",
    "shrink",
    "time",
]

USUAL, NOBODY, CLIFFS = SandboxLimits(), UserKernels(), CliffLimits()
Kernel = str | Path | Callable[..., Any]
"""A file, `FILE:NAME`, or a function of a module, which is loaded again, in the sandbox, from its file."""


def check(case: Case, kernel: Kernel, *, laws: bool = True, limits: SandboxLimits = USUAL) -> Verdict:
    """Run a kernel on one case and judge its outputs. The sandbox is kept for the next case of the same kernel.

    laws: hold it to the laws of the op, too. Raises UsageError for a kernel that cannot be loaded or called.
    """
    examiner, subject = sandbox_of(kernel, case.op, limits)
    if subject.dtypes and case.dtype not in subject.dtypes:
        return Verdict(kind=Kind.UNSUPPORTED, rule="status", message=f"it is for {', '.join(subject.dtypes)} only")
    request = CheckRequest(case, (subject.key,), all_laws(case) if laws else ())
    return examiner.check([request])[0].verdicts[subject.key]


def sandbox_of(kernel: Kernel, op: str, limits: SandboxLimits = USUAL) -> tuple[Examiner, Subject]:
    """Whoever examines a kernel, for as long as this process lives, and the kernel. Raises UsageError as `check`."""
    return _examiner(place_of(kernel), op, Path.cwd(), limits)


def place_of(kernel: Kernel) -> str:
    """`FILE[:NAME]` of a kernel, or of a reference. Raises UsageError for a function that has no file of its own."""
    if not callable(kernel):
        return str(kernel)
    try:
        file = inspect.getsourcefile(kernel)
    except TypeError:
        file = None
    if file is None or kernel.__name__ != kernel.__qualname__:
        raise UsageError(f"{kernel!r} is no function of a module's own: name its file, as 'my_kernel.py:name'")
    return f"{file}:{kernel.__name__}"


@cache
def _examiner(place: str, op: str, folder: Path, limits: SandboxLimits) -> tuple[Examiner, Subject]:
    """One sandbox a kernel; folder: where a relative place begins."""
    (subject,) = UserKernels((place,)).subjects((op,))
    pool = _pool(subject.loader, folder, limits).branch({}) if _shares(subject) else None
    examiner = Examiner([subject], **asdict(limits), pool=pool)
    atexit.register(examiner.__exit__, None, None, None)
    return examiner, examiner.subjects[subject.key]


def _shares(subject: Subject) -> bool:
    """Whether it runs in this interpreter; if its backend is not there, its own sandbox says so."""
    return not subject.python and not loader_of(subject.loader).unavailable()


@cache
def _pool(loader: str, folder: Path, limits: SandboxLimits) -> WorkerPool:
    """One zygote for all kernels of a backend, as to import torch takes a second; each has a fork of it."""
    del folder
    pool = WorkerPool((loader,), limits.memory_mb, why_open="" if limits.closed else ASKED)
    atexit.register(pool.close)
    return pool


def replay(
    targets: Sequence[str] = (),
    *,
    store: CorpusStore,
    own: UserKernels = NOBODY,
    device: str = "",
    base: Path | None = None,
    limits: SandboxLimits = USUAL,
) -> list[Replayed]:
    """Run stored cases again and say what has changed; findings in the store are told what came of it.

    targets: findings, files, folders, RUN:INDEX or case:TOKEN; none: the whole store. own: kernels that run instead of
    the recorded ones. device: where those run that can; "": where each failed. base: a checkout to compare with, whose
    failures do not count. Raises UsageError for what cannot be found or run.
    """
    items = moved(gather(store, targets, own), device)
    place = places_of(device)[0] if device else None
    results = replaying.replay(
        items, store, timeout=limits.timeout, memory_mb=limits.memory_mb, closed=limits.closed, place=place
    )
    if base is None:
        return results
    return beside_base(results, base, timeout=limits.timeout, memory_mb=limits.memory_mb, closed=limits.closed)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The fate of a failing case that was to be made smaller."""

    item: Item
    """As it was."""
    finding: Finding
    """As it is stored now."""
    seconds: float
    replaced: Finding | None = None
    """The finding whose place it takes: a smaller case may fail otherwise."""


def shrink(
    target: str,
    *,
    store: CorpusStore,
    own: UserKernels = NOBODY,
    device: str = "",
    seconds: float = 30.0,
    limits: SandboxLimits = USUAL,
) -> list[Shrunk]:
    """Make a failing case smaller while it fails in the same way, and store the finding; one entry a kernel that fails.

    target, own and device are as in `replay`; seconds: for each. Raises UsageError for what cannot be found or run.
    """
    items = moved(gather(store, [target], own), device)
    if any(i.finding is not None and i.finding.cliff is not None for i in items):
        raise UsageError(
            f"{target} is a performance cliff, which lies at its boundary already; `replay` times it again"
        )
    subjects = list({i.subject.key: i.subject for i in items}.values())
    place = places_of(device)[0] if device else None
    with Examiner(subjects, **asdict(limits), place=place) as examiner:
        found = [(i, *made) for i in items if (made := _shrink_one(examiner, i, seconds)) is not None]
    if found:
        store.prepare()
    return [_stored(store, *each) for each in found]


def _shrink_one(examiner: Examiner, item: Item, seconds: float) -> tuple[Found, float] | None:
    """Shrink one item; what was found, and how long it took; None: it does not fail."""
    begin = monotonic()
    checked, verdict = replaying.rerun(examiner, item)
    if not verdict.failed:
        return None
    known = item.finding
    found_by, before = (known.found_by, known.before) if known else (item.name, ())
    met = checked.verdicts[item.subject.key] if before else verdict
    found = investigate(examiner, Failure(item.case, item.subject, met, found_by, before), seconds=seconds)
    if known is not None:
        aliases = tuple(sorted({*found.finding.aliases, *known.keys}))
        finding = found.finding.but(aliases=aliases, original=known.original, first_seen=known.first_seen)
        found = replace(found, finding=finding)
    return replace(found, finding=watched(found.finding)), monotonic() - begin


def _stored(store: CorpusStore, item: Item, found: Found, seconds: float) -> Shrunk:
    """Store what has become of a finding.

    Findings are told apart by how they fail, and a smaller case may fail otherwise: then it takes the place of what was
    stored before, unless that is expected to fail as it is.
    """
    before = item.finding
    finding = put_away(store, found, before)
    gone = before is not None and before.id != finding.id and before.expect != "fail" and store.has(before)
    if before is not None and gone:
        store.drop(before)
    return Shrunk(item, finding, seconds, before if gone else None)


def prove(
    op: str,
    kernel: str,
    *,
    dtypes: Sequence[str] = (),
    device: str = "cpu",
    store: CorpusStore | None = None,
    limits: SandboxLimits = USUAL,
) -> Proof:
    """Judge a kernel on every input there is, where an op takes elements of at most 16 bits one by one.

    kernel: the name of a built-in one, or `FILE[:NAME]`. store: where the result is kept. Raises UsageError for an op
    whose inputs cannot be counted out, and a kernel that does not run there.
    """
    contract = contract_of(op)
    house = next((s for s in subjects_of(op) if s.name == kernel), None)
    (subject,) = only_dtypes([house or user_subject(kernel, (op,))], dtypes)
    subject = subject if device == "cpu" else on_device(subject, device)
    proof = exhaustive.prove(contract, subject, **asdict(limits))
    if store is not None:
        store.prepare()
        store.save_proof(proof)
    return proof


def cliffs(
    op: str = "",
    *,
    own: UserKernels = NOBODY,
    baseline: str = "",
    dtypes: Sequence[str] = (),
    device: str = "cpu",
    limits: CliffLimits = CLIFFS,
    seed: int = 0,
    store: CorpusStore | None = None,
    sandbox: SandboxLimits = USUAL,
    on_event: CliffListener | None = None,
) -> list[CliffSearch]:
    """Search for sizes at which kernels cost far more than at the sizes beside them; one record a kernel.

    own: files, and `builtin:NAME`; none: all built-in implementations of the op. baseline: who must not have a cliff,
    too, as `time` names them, or `none`; "": another library's implementation. dtypes: the plainest of these that a
    kernel takes. store: where cliffs are kept as findings. Raises UsageError for what cannot be found or timed.
    """
    found, kernels = list[CliffSearch](), chosen(op, own, dtypes, device)
    beside = [_beside(subject, baseline, device) for subject in kernels]
    if store is not None:
        store.prepare()

    def take(event: CliffEvent) -> None:
        if isinstance(event, CliffFound) and store is not None:
            store.save_finding(event.finding)
        if on_event is not None:
            on_event(event)

    for subject, other in zip(kernels, beside, strict=True):
        made = KernelCliffs(subject, dtype_of(subject), other, device, seed, limits, sandbox, take)
        found.append(made.run())
    return found


def _beside(subject: Subject, baseline: str, device: str) -> Subject | None:
    """The baseline of a kernel. Raises UsageError for one that cannot be it."""
    if baseline in {"", "none"}:
        return None if baseline else usual_baseline(subject, device)
    there = [s for s in baselines_of(subject.op, [baseline], device) if takes(s, dtype_of(subject))]
    fit = next((s for s in there if s.key != subject.key and s.device == subject.device), None)
    if fit is None:
        raise UsageError(f"--baseline {baseline} is {subject.key} itself, or does not take {dtype_of(subject)} there")
    return fit
