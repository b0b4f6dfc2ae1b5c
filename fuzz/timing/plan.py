"""Choose what is timed: a target becomes cases and implementations, and the result goes to the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import TimingRun
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.checking.selection import UserKernels, of_described_dtype, only_dtypes, placed
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.replay.replay import gather
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.timing import baselines
from kernel_assay.fuzz.timing.against import beside, earlier, judged, kept_run, share_of
from kernel_assay.fuzz.timing.measure import CLOSED, USUAL, Listener, measure
from kernel_assay.fuzz.timing.revisions import head
from kernel_assay.fuzz.timing.rounds import TimingLimits
from kernel_assay.fuzz.timing.shapes import timing_cases
from kernel_assay.oracles.catalog import contract_of, load_contracts

NOBODY = UserKernels()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSettings:
    """Settings of a timing run."""

    target: str = ""
    """An op, or stored cases as replay takes them; empty: the op of the kernels, or the reference."""
    own: UserKernels = NOBODY
    baselines: Sequence[str] = ()
    """naive, torch, cublas, ggml, reference or builtin:NAME; none: torch, or the plainest, beside one's own."""
    shapes: Sequence[str] = ()
    """Names of sets, and files."""
    dtypes: Sequence[str] = ()
    device: str = "cpu"
    seed: int = 0
    """Of the values of the inputs, and of the order within rounds."""
    limits: TimingLimits = USUAL
    sandbox: SandboxLimits = CLOSED
    roofline: bool = True
    """Whether the peaks of the device are measured, and times held to them."""
    command: str = ""
    """The words of a command line, for the record."""
    against: str = ""
    """An earlier version: a file, a revision of git, or a kept run of times; empty: nothing is compared."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is timed."""

    cases: list[Case]
    subjects: list[Subject]
    baseline: str
    """Key of the one over which speed-ups are; empty: none."""


def time_kernels(settings: TimeSettings, *, store: CorpusStore, on_event: Listener | None = None) -> TimingRun:
    """Choose, time, and keep the result in the store. Raises UsageError for what cannot be chosen, loaded or kept."""
    chosen, s = choose(settings, store), settings
    store.prepare()
    mine = [subject for subject in chosen.subjects if subject.is_own] or chosen.subjects
    kept = kept_run(s.against, store)
    with earlier("" if kept else s.against, mine) as versions:
        pairs = tuple((old.key, key) for key, old in versions.items())
        level = share_of(len(chosen.cases), len(pairs))
        run = measure(
            chosen.cases,
            [*versions.values(), *chosen.subjects],
            limits=replace(s.limits, pairs=pairs, false_alarm=level),
            seed=s.seed,
            device=s.device,
            on_event=on_event,
            sandbox=s.sandbox,
            roofline=s.roofline,
        ).but(command=s.command, baseline=chosen.baseline, revision=head(Path.cwd()))
    run = beside(run, kept, mine) if kept else judged(run, pairs, level)
    store.save_timing(run)
    return run


def choose(settings: TimeSettings, store: CorpusStore) -> Chosen:
    """Find the cases and the implementations. Raises UsageError if there are none."""
    if settings.device.endswith(":all"):
        raise UsageError("times are those of one device; name it, as --device cuda:0")
    if settings.target and settings.target not in load_contracts():
        return _stored(settings, store)
    op = settings.target or _op_of(settings.own)
    own = [of_described_dtype(s) for s in settings.own.subjects([op])]
    dtypes = settings.dtypes or _plainest(op, own)
    cases = timing_cases(contract_of(op), settings.shapes, dtypes, settings.seed)
    return _with_baselines(settings, op, only_dtypes(own, settings.dtypes), cases)


def _op_of(own: UserKernels) -> str:
    """The op of kernels of one's own. Raises UsageError if it is none, or several."""
    references = [c.name for c in load_contracts().values() if c.elsewhere is not None]
    ops = sorted({s.op for s in own.subjects(references)}) or references
    if len(ops) != 1:
        raise UsageError(f"one op is timed at a time, not {len(ops)}; name it, as in: time softmax")
    return ops[0]


def _plainest(op: str, own: Sequence[Subject]) -> list[str]:
    """The first dtype that the first kernel takes."""
    return [t for t in contract_of(op).dtypes if not own or takes(own[0], t)][:1]


def _stored(settings: TimeSettings, store: CorpusStore) -> Chosen:
    """Cases that are stored, or given as a word. Raises UsageError if they are of several ops."""
    if settings.shapes or settings.dtypes:
        raise UsageError(
            f"{settings.target} is a stored case: it has its shape and dtype; leave out --shapes and --dtype"
        )
    try:
        items = gather(store, [settings.target], settings.own)
    except UsageError as error:
        ops = ", ".join(load_contracts())
        raise UsageError(f"{settings.target!r} is no op ({ops}), and no stored case: {error}") from error
    op, *others = sorted({item.case.op for item in items})
    if others:
        raise UsageError(f"one op is timed at a time, and {settings.target} has cases of {', '.join([op, *others])}")
    subjects = list({item.subject.key: item.subject for item in items}.values())
    cases = list({item.case.id: item.case for item in items}.values())
    return _with_baselines(settings, op, subjects, cases)


def _with_baselines(settings: TimeSettings, op: str, mine: Sequence[Subject], cases: list[Case]) -> Chosen:
    """Add the baselines. Raises UsageError if nothing is left to be timed."""
    device = settings.device
    found = placed(mine, device) if mine else baselines.built_in(op, device) if not settings.baselines else []
    if left := [s.key for s in found if s.device != device.partition(":")[0]]:
        raise UsageError(f"{left[0]} does not run on device {device!r}")
    beside = baselines.baselines_of(op, settings.baselines, device)
    if mine and not settings.baselines:
        beside = baselines.usual(op, device)
    known = {s.key for s in found}
    beside = [s for s in beside if s.key not in known and any(takes(s, case.dtype) for case in cases)]
    found = [s for s in found if s.is_own or any(takes(s, case.dtype) for case in cases)]
    if not found + beside:
        raise UsageError(f"no implementation of {op} is compiled for device {device!r} here; name yours with --subject")
    plainest = next((s.key for s in found if s.name in {"numpy_float32", "cuda_naive"}), "")
    return Chosen(cases, found + beside, beside[0].key if beside else plainest)
