"""Compare kernels with earlier versions: another file or a revision of git, timed in turns; or a run that was kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import Change, Compared, Comparison, Timed, TimingRun, noise_of
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.corpus.storage.reading import read_object, record_of
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.timing.compare import FALSE_ALARM, compare, unsure
from kernel_assay.fuzz.timing.history import form_of, machine_of
from kernel_assay.fuzz.timing.revisions import checked_out
from kernel_assay.kernels.backends.support.edits import CUDA
from kernel_assay.kernels.catalog import resolve
from kernel_assay.reports.junit import Result
from kernel_assay.reports.plain.terminal import table

QUIET = 0.02
"""Relative noise of a median, at most, of runs that are compared although they were not measured in turns."""
DAYS = 0.05
"""By how much two runs of one machine may differ besides their noise, as they are not in turns."""
FailOn = Literal["slower", "unsure", "never"]
Pairs = tuple[tuple[str, str], ...]
"""Keys: the earlier version, and the one of now."""


@contextmanager
def earlier(against: str, subjects: Sequence[Subject]) -> Iterator[dict[str, Subject]]:
    """Lend the earlier versions: by the key of each subject; against: `FILE[:NAME]`, or a revision; empty: none.

    Raises UsageError if it is neither, and for a version that cannot be read.
    """
    with ExitStack() as kept:
        file, _, name = against.partition(":")
        if not against:
            yield {}
            return
        if Path(file).is_file():
            if len(subjects) != 1:
                raise UsageError(
                    f"{file} is the earlier version of one kernel, and {len(subjects)} are timed: name one"
                )
            subject = subjects[0]
            yield {subject.key: _version(subject, Path(file), name, Path(file).stem)}
            return
        found = {}
        for subject in subjects:
            place = kept.enter_context(checked_out(resolve(subject), against))
            with about(f"in {against}"):
                found[subject.key] = _version(subject, place, subject.function, against)
        yield found


def _version(subject: Subject, file: Path, function: str, called: str) -> Subject:
    """The subject, from another file, under another name."""
    launch = subject.launch.split("\n") if subject.launch and file.suffix in CUDA else ()
    text = f"{file.resolve()}:{function}" if function else str(file.resolve())
    (there,) = UserKernels((text,), launch, subject.python).subjects((subject.op,))
    return there.but(name=f"{subject.name}@{called}", device=subject.device)


def kept_run(against: str, store: CorpusStore) -> TimingRun | None:
    """A run that was kept: the name of one in the store, or a file that --json wrote; None: it is neither."""
    if Path(against).suffix == ".json":
        raw = read_object(Path(against))
        if isinstance(timed := raw.get("timed"), list):  # --json says more of each than is kept
            raw["timed"] = [{k: v for k, v in dict(one).items() if k in Timed.model_fields} for one in timed]
        return record_of(json.dumps(raw), TimingRun, against)
    return store.timing(against) if against in store.timings() else None


def judged(run: TimingRun, pairs: Pairs, false_alarm: float = FALSE_ALARM) -> TimingRun:
    """The run, with what is said of each pair on each case; false_alarm: of each of them."""
    made = []
    for case, timed in run.by_case():
        by_key = {one.subject: one for one in timed}
        made += [_compared(by_key[old], by_key[new], old, case, false_alarm) for old, new in pairs if new in by_key]
    return run.but(compared=tuple(made))


def share_of(cases: int, pairs: int) -> float:
    """The level of each comparison, so that all of a run together give a false alarm once in 1,000 runs."""
    return FALSE_ALARM / max(1, cases * pairs)


def _compared(old: Timed, new: Timed, before: str, case: Case, false_alarm: float) -> Compared:
    broken = next((one for one in (new, old) if not one.ranked), None)
    if broken is not None:
        said = unsure(f"{broken.subject} has no times that count", false_alarm)
    else:
        rounds = min(len(old.seconds), len(new.seconds))
        said = compare(
            old.seconds[:rounds], new.seconds[:rounds], launches=new.launches[:rounds], false_alarm=false_alarm
        )
    return Compared(subject=new.subject, before=before, case=case, device=new.device, comparison=said)


def beside(run: TimingRun, kept: TimingRun, mine: Sequence[Subject]) -> TimingRun:
    """The run, compared with one that was kept: not in turns, so both noise and what a day changes widen the interval.

    Raises UsageError if they have no subject and case in common.
    """
    keys = {subject.key for subject in mine}
    known = {(one.subject, form_of(one.case)): one for one in kept.timed if one.subject in keys}
    both = [(known[at], one) for one in run.timed if (at := (one.subject, form_of(one.case))) in known]
    if not both:
        raise UsageError(f"the run {kept.run} has no case and kernel in common with this one")
    level = share_of(len(both), 1)
    made = [
        Compared(
            subject=new.subject,
            before=f"{new.subject} in {kept.run}",
            case=new.case,
            device=new.device,
            comparison=_apart(run, kept, old, new, level),
        )
        for old, new in both
    ]
    return run.but(compared=tuple(made))


def _apart(run: TimingRun, kept: TimingRun, old: Timed, new: Timed, level: float) -> Comparison:
    if not (old.ranked and new.ranked):
        return unsure("one of the runs has no times that count", level)
    if machine_of(kept, old) != machine_of(run, new):
        return unsure(f"that run is of another machine: {machine_of(kept, old)}", level)
    if kept.warm != run.warm:
        return unsure("one of the runs had warm caches, and the other had not", level)
    noise = max(noise_of(old.seconds), noise_of(new.seconds))
    if noise > QUIET:
        return unsure(
            f"one of the runs was noisy ({noise:.1%}); only what is below {QUIET:.0%} is compared apart", level
        )
    rounds = min(len(old.seconds), len(new.seconds))
    return compare(old.seconds[:rounds], new.seconds[:rounds], false_alarm=level, widen=DAYS)


def failed(run: TimingRun, fail_on: FailOn) -> bool:
    """Whether what was compared counts as a failure."""
    bad = {"slower": {Change.SLOWER}, "unsure": {Change.SLOWER, Change.UNSURE}, "never": set[Change]()}[fail_on]
    return any(one.comparison.change in bad for one in run.compared)


def told(run: TimingRun) -> str:
    """A table of what was compared, for people."""
    head = ("is", "time", "interval", "finds", "kernel", "case")
    rows = [
        (c.change.value.upper(), c.percent, c.interval, c.detectable, one.subject, _shape(one.case))
        for one in run.compared
        for c in [one.comparison]
    ]
    reasons = [
        f"  {one.subject}, {_shape(one.case)}: {c.reason}" for one in run.compared if (c := one.comparison).reason
    ]
    return "\n".join([table(head, rows), *reasons])


def _shape(case: Case) -> str:
    """Type and extents of the inputs: the values of all cases are plain ones."""
    return f"{case.dtype} {' '.join('x'.join(map(str, t.shape)) for t in case.tensors.values())}"


def results_of(run: TimingRun, fail_on: FailOn) -> list[Result]:
    """One test each for JUnit: SLOWER is a failure, UNSURE a skipped test unless it is to fail."""
    return [_result(one, fail_on) for one in run.compared]


def _result(one: Compared, fail_on: FailOn) -> Result:
    c, group = one.comparison, one.subject.replace("/", ".")
    name, text = f"{one.case.label} against {one.before}", f"{c.change.value}: {c.percent} ({c.interval})"
    if c.change is Change.SLOWER and fail_on != "never":
        return Result(name, group, failure=text)
    if c.change is Change.UNSURE:
        reason = f"{text}; {c.reason}"
        return Result(name, group, failure=reason) if fail_on == "unsure" else Result(name, group, skipped=reason)
    return Result(name, group)
