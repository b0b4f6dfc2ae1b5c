"""What a worker may report of: the kernels of its job, and no other finding. What it says is hostile input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.reference_place import ReferencePlace, Target
from kernel_assay.fuzz.service.protocol import MADE, SENT, JobKind, JobRequest, JobState, Outcome

VERDICTS = ("right", "right_if_ordinary", "wrong", "declined", "fixed", "fails", "flaky", "passes")


def check_own(request: JobRequest, outcome: Outcome) -> None:
    """Raise UsageError for a finding that is not about a kernel and an op of the job, and for a verdict of nothing."""
    if outcome.state is JobState.DONE and (why := _unfounded(request.kind, outcome)):
        raise UsageError(f"the verdict {outcome.verdict} is none: {why}")
    for finding in outcome.findings:
        if why := _foreign(request, finding):
            raise UsageError(f"the finding {finding.id} is none of this job's: {why}")


def _unfounded(kind: JobKind, outcome: Outcome) -> str:
    """Why a verdict that others are answered by says more than what was tried; empty: it does not."""
    if outcome.verdict and outcome.verdict not in VERDICTS:
        return f"a worker says one of {', '.join(VERDICTS)}"
    if outcome.verdict == "right" and outcome.findings:
        return "it comes with a finding"
    if kind is not JobKind.JUDGE:
        return ""
    if outcome.verdict == "wrong" and not outcome.findings:
        return "it comes without a finding"
    tried = outcome.progress.cases and outcome.progress.judged
    return "it comes without a case that was judged" if outcome.verdict.startswith("right") and not tried else ""


def _foreign(request: JobRequest, finding: Finding) -> str:
    """Why a finding is not the job's; empty: it is."""
    subject, target, named = finding.subject, request.target, request.finding
    if subject.python or not finding.verdict.failed:
        return "it names another interpreter" if subject.python else "it does not fail"
    ops = {subject.op, finding.case.op, finding.original.op, finding.signature.op}
    if len(ops) > 1 or finding.signature.subject != subject.name:
        return "it says several names of one kernel or op"
    judge = judged_by(finding)
    if named is not None:
        same = subject.key == named.subject.key and judge == judged_by(named)
        return "" if same else f"it is about {subject.key}, not {named.subject.key}, or judged by another file"
    if target.ops and not target.references and subject.op not in target.ops:
        return f"it is about the op {subject.op}"
    if subject.is_own and not _is_sent(request, subject.path, target.subjects):
        return f"it is about {subject.path}"
    return f"{judge} judges it" if judge and not _is_sent(request, judge, target.references) else ""


def judged_by(finding: Finding) -> str:
    """The file, or the module, of a reference or a contract that is not built in; empty: it is."""
    origin = ReferencePlace.read(finding.contract)
    return Target.read(origin.target).where if origin and not origin.folder else finding.contract


def _is_sent(request: JobRequest, path: str, named: Sequence[str]) -> bool:
    """Whether a path, as it leaves a worker, is that of a kernel of the job; named: as the job names them."""
    target, place = request.target, PurePosixPath(path)
    if target.folder and place.is_relative_to(MADE):
        return ".." not in place.parts
    if target.folder or request.checkout:  # there kassay.toml may say which, and links may lead from one to another
        return place.is_relative_to(SENT) and ".." not in place.parts
    return path in {f"{SENT}/{one.partition(':')[0]}" for one in named}
