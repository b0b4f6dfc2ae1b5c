"""Run the cases of golden outputs again: are the outputs equal to the bit, within the error budget, or changed?"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

import numpy as np

from kernel_assay import __version__
from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.materialize import digest, materialize_all
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.file_store import hide
from kernel_assay.corpus.storage.golden_record import Golden, GoldenCase
from kernel_assay.corpus.storage.reading import read_record
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.selection import UserKernels, on_device
from kernel_assay.fuzz.checking.user_contracts import know_contracts
from kernel_assay.fuzz.comparing.distance import Side, distance
from kernel_assay.fuzz.comparing.result import Distance
from kernel_assay.fuzz.comparing.safetensors_files import tensors_of
from kernel_assay.fuzz.comparing.tensors import Tensor
from kernel_assay.fuzz.golden.save import MANIFEST, USUAL, declined, file_name, only_kernel, ran
from kernel_assay.fuzz.replay.replay import NOBODY
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.kernels.backends.support.edits import CUDA
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import imports_of, resolve
from kernel_assay.kernels.environment import environment_of
from kernel_assay.oracles.catalog import contract_of

OTHER_INPUTS = "its recipe makes other inputs here than it did there"


class Same(StrEnum):
    """Outputs of a case, now, beside what they were."""

    BIT_EQUAL = "bit-equal"
    WITHIN_BUDGET = "within budget"
    CHANGED = "changed"
    NOT_TOLD = "cannot be told"


class Rechecked(Record):
    """One case, then and now."""

    case: Case
    same: Same
    then: Verdict
    now: Verdict
    differing: dict[str, int]
    """By output, of those that kept shape and dtype but not all bits: elements whose bits are not what they were."""
    distances: dict[str, Distance]
    """By output, of the same: how far it is from what it was."""

    @property
    def max_ulp(self) -> int:
        """Steps of representable numbers from what it was, at most; 0 if that cannot be measured."""
        return max((d.max_ulp for d in self.distances.values()), default=0)


class GoldenCheck(Record):
    """Golden outputs, and what the same cases give here and now."""

    folder: str
    at: str
    """When they were saved."""
    versions: tuple[str, str]
    """Of this tool, then and now, as all that follows."""
    subjects: tuple[Subject, Subject]
    environments: tuple[Environment, Environment]
    cases: tuple[Rechecked, ...]

    def of(self, same: Same) -> list[Rechecked]:
        """The cases of which that became, the farthest first."""
        found = [one for one in self.cases if one.same is same]
        return sorted(found, key=lambda one: (-one.max_ulp, -one.now.rho))

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """All that is another than it was, by name: then, and now; empty where there is no such thing."""
        then, now = (_facts(v, s, e) for v, s, e in zip(self.versions, self.subjects, self.environments, strict=True))
        names = dict.fromkeys([*then, *now])
        return [(n, then.get(n, ""), now.get(n, "")) for n in names if then.get(n) != now.get(n)]


def _facts(version: str, subject: Subject, e: Environment) -> dict[str, str]:
    devices = {f"GPU {n}" if n else "GPU": device for n, device in enumerate(e.devices)}
    kernel = {"kernel": subject.key, "its source": subject.source_digest, "its device": subject.device}
    place = {"system": e.platform, "processor": e.processor or e.machine, **devices}
    return {**kernel, **place, "kernel-assay": version, "python": e.python, **e.packages}


def check(
    folder: str | Path, *, own: UserKernels = NOBODY, device: str = "", limits: SandboxLimits = USUAL
) -> GoldenCheck:
    """Run the cases of a saved folder again, and say of each whether its outputs are equal, within budget, or changed.

    own: another kernel, or the same in another interpreter; device: where it runs; "": where it ran. Raises UsageError
    for a folder that is not whole, a kernel that cannot be run, and if nothing can be told of any case.
    """
    folder = Path(folder)
    golden = _read(folder)
    op, there = golden.subject.op, device or golden.subject.device
    know_contracts({op: golden.contract}, str(folder))
    with about(str(folder / MANIFEST)):
        for one in golden.cases:
            if one.case.op != op:
                raise UsageError(f"it has cases of {one.case.op}, and a kernel of {op}")
            contract_of(op).check(one.case)
    subject = on_device(only_kernel(own, op) if own.files else _again(golden.subject, folder), there)
    hide(folder)
    with Examiner([subject], **asdict(limits), place=places_of(there)[0]) as examiner:
        cases = [_rechecked(examiner, subject, folder / file_name(n), one) for n, one in enumerate(golden.cases)]
    if all(one.same is Same.NOT_TOLD for one in cases):
        raise UsageError(f"none of the {len(cases)} cases of {folder} can be told: {cases[0].now.message}")
    return GoldenCheck(
        folder=str(folder),
        at=golden.at,
        versions=(golden.version, __version__),
        subjects=(golden.subject, subject),
        environments=(golden.environment, environment_of(subject, imports_of(subject))),
        cases=tuple(cases),
    )


def _read(folder: Path) -> Golden:
    """The manifest. Raises UsageError unless all files of the folder are as they were written."""
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} holds no golden outputs: there is no {MANIFEST} in it")
    golden = read_record(folder / MANIFEST, Golden)
    for number, one in enumerate(golden.cases):
        path = folder / file_name(number)
        try:
            with path.open("rb") as file:
                there = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}); bring it back, or save anew") from error
        if there != one.digest:
            raise UsageError(f"{path} is not what was saved: it was cut off or altered; bring it back, or save anew")
    return golden


def _again(subject: Subject, folder: Path) -> Subject:
    """The kernel as its file is now. Raises UsageError if that is gone."""
    path = resolve(subject)
    if not path.is_file():
        raise UsageError(f"the kernel of {folder} is gone: {subject.path} does not exist; name it with --subject")
    launch = tuple(subject.launch.splitlines()) if path.suffix in CUDA else ()
    found = only_kernel(UserKernels((subject.but(path=str(path)).place,), launch), subject.op)
    return found.but(name=subject.name)


def _rechecked(examiner: Examiner, subject: Subject, file: Path, one: GoldenCase) -> Rechecked:
    """A case once more, held against the file of its outputs."""
    with about(str(file.with_name(MANIFEST))):
        drifted = digest(materialize_all(one.case)) != one.input_digest
    verdict, _, outputs = (declined(OTHER_INPUTS), "", {}) if drifted else ran(examiner, subject, one.case)
    with about(str(file)):
        then = {tensor.name: Side(tensor, str(file)) for tensor in tensors_of(file)}
    here = {name: Side(_tensor(name, values), "what it gives now") for name, values in outputs.items()}
    pairs = {name: (then[name], side) for name, side in here.items() if _form(then.get(name)) == _form(side)}
    differing = {name: n for name, (a, b) in pairs.items() if (n := _differing(a.tensor, b.tensor))}
    equal = not differing and len(pairs) == len(then) == len(here)
    return Rechecked(
        case=one.case,
        same=_same(one.verdict, verdict, equal=equal),
        then=one.verdict,
        now=verdict,
        differing=differing,
        distances={name: distance(*pairs[name]) for name in differing},
    )


def _tensor(name: str, values: Array) -> Tensor:
    flat = values.reshape(-1)
    return Tensor(name, values.shape, values.dtype.name, lambda low, high: flat[low:high])


def _form(side: Side | None) -> tuple[tuple[int, ...], str] | None:
    return (side.tensor.shape, side.tensor.dtype) if side else None


def _differing(a: Tensor, b: Tensor) -> int:
    """Elements of two tensors of one form whose bits differ: another NaN does, and so does the other zero."""
    x, y = (one.read(0, one.size).view(one.format.carrier) for one in (a, b))
    return int(np.count_nonzero(x != y))


def _same(then: Verdict, now: Verdict, *, equal: bool) -> Same:
    """Equal bits count as such unless the kernel fails in a way in which it did not."""
    if now.kind is Kind.UNSUPPORTED:
        return Same.NOT_TOLD
    if equal and (now.kind is then.kind or not now.failed):
        return Same.BIT_EQUAL
    if now.failed:
        return Same.CHANGED
    return Same.WITHIN_BUDGET if now.kind is Kind.PASS else Same.NOT_TOLD
