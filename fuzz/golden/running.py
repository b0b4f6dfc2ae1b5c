"""One kernel, run and judged case by case, with its outputs: what saving and checking share."""

from __future__ import annotations

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.selection import UserKernels, placed
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import imports_of
from kernel_assay.kernels.environment import environment_of
from kernel_assay.oracles.catalog import load_contracts
from kernel_assay.oracles.spec.elsewhere import OutsideError


def only_kernel(own: UserKernels, op: str = "") -> Subject:
    """The one kernel that is named. Raises UsageError if it is none, or several, or cannot be read."""
    references = [c.name for c in load_contracts().values() if c.elsewhere is not None]
    found = own.subjects([op] if op else references)
    if len(found) != 1:
        raise UsageError("golden outputs are those of one kernel; name it, as --subject my_kernel.py")
    return found[0]


def on_device(subject: Subject, device: str) -> Subject:
    """The subject on a device. Raises UsageError if there is none, or if it does not run there."""
    found = placed([subject], device)[0]
    if places_of(device)[0].device != found.device:
        raise UsageError(f"{subject.key} does not run on device {device!r}")
    return found


def examiner_of(subject: Subject, device: str, limits: SandboxLimits) -> Examiner:
    """The examiner that runs and judges a subject on a device."""
    return Examiner(
        [subject],
        timeout=limits.timeout,
        memory_mb=limits.memory_mb,
        closed=limits.closed,
        place=places_of(device)[0],
    )


def ran(examiner: Examiner, subject: Subject, case: Case) -> tuple[Verdict, str, Tensors]:
    """The verdict on a run of a case, the digest of its inputs, and its outputs; of what is declined only why."""
    if not takes(subject, case.dtype):
        return declined(f"it is for {', '.join(subject.dtypes)} only"), "", {}
    try:
        if examiner.is_large(case):
            return declined("its outputs are too large to be kept"), "", {}
    except OutsideError as outside:
        return declined(str(outside)), "", {}
    checked, outputs = examiner.outputs(case, subject.key)
    return checked.verdicts[subject.key], checked.input_digest, outputs


def declined(why: str) -> Verdict:
    """The verdict on a case that nobody ran, or that says nothing."""
    return Verdict(kind=Kind.UNSUPPORTED, rule="status", message=why)


def surroundings(subject: Subject) -> Environment:
    """Versions and devices that the outputs of a subject may depend on."""
    return environment_of(subject, imports_of(subject))
