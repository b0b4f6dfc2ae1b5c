"""Save the outputs of a kernel on a list of cases: a folder with a manifest, and a file of tensors for each case."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, count, islice
from pathlib import Path

from kernel_assay import __version__
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.campaign import RunOptions
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.atomic_files import claimed, named_trouble, write_atomic
from kernel_assay.corpus.storage.golden_record import Golden, GoldenCase
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.selection import UserKernels, of_described_dtype, on_device, only_dtypes
from kernel_assay.fuzz.checking.subjects import bears, takes
from kernel_assay.fuzz.comparing.safetensors_files import bytes_of
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import propose
from kernel_assay.fuzz.planning.plan import fitted, new_campaign, targets
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.fuzz.triage.failures import now
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import imports_of
from kernel_assay.kernels.environment import environment_of
from kernel_assay.oracles.catalog import load_contracts, origin_of
from kernel_assay.oracles.spec.elsewhere import OutsideError

MANIFEST = "manifest.json"
"""Written last: a folder that has none is no whole one."""
CASES, MOST_CASES = 64, 10_000
"""Cases that are drawn if nobody says how many, and at most: each is a file, and an entry of the manifest."""
USUAL = SandboxLimits()
_DRAWS = 8
"""Cases that are drawn for each that is wanted, where a kernel declines most of them."""
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Saved:
    """The result of a save."""

    golden: Golden
    declined: int
    """Cases that the kernel, or its reference, does not take, and those that are too large; others came in their place
    where there were any."""
    lost: tuple[tuple[Case, Verdict], ...]
    """Cases that gave no outputs, and what was said of them."""

    @property
    def failing(self) -> list[tuple[Case, Verdict]]:
        """Cases in which the kernel is wrong already."""
        return [*self.lost, *((one.case, one.verdict) for one in self.golden.cases if one.verdict.failed)]


def save(
    folder: str | Path,
    *,
    own: UserKernels,
    op: str = "",
    given: Sequence[Case] = (),
    cases: int = CASES,
    seed: int = 0,
    dtypes: Sequence[str] = (),
    device: str = "cpu",
    limits: SandboxLimits = USUAL,
) -> Saved:
    """Save the outputs of one kernel on a list of cases in a new folder, with versions and devices.

    own: the kernel; op: its op, if its file does not say it; given: cases besides those that are drawn; cases: how many
    are drawn, by the seed. Raises UsageError for a kernel that cannot be run, a folder that exists or cannot be
    written, and if no case gives outputs.
    """
    folder = Path(folder)
    subject = of_described_dtype(only_kernel(own, op))
    subject = on_device(only_dtypes([subject], dtypes)[0], device)
    if other := next((case for case in given if case.op != subject.op), None):
        raise UsageError(f"{subject.key} is no kernel of {other.op}, of which a stored case is: {other.label}")
    place = places_of(device)[0]
    with _made(folder) as made, Examiner([subject], **asdict(limits), place=place) as examiner:
        drawn = _drawn(examiner, subject, seed, limits.memory_mb)
        wanted, kept, lost, why = len(given) + cases, list[GoldenCase](), list[tuple[Case, Verdict]](), list[str]()
        for case in chain(given, islice(drawn, _DRAWS * cases)):
            if len(kept) + len(lost) == wanted:
                break
            verdict, digest, outputs = ran(examiner, subject, case)
            if verdict.kind is Kind.UNSUPPORTED:
                why.append(verdict.message)
            elif not outputs:
                lost.append((case, verdict))
            else:
                data = bytes_of(outputs)
                with named_trouble(folder):
                    (made / file_name(len(kept))).write_bytes(data)
                file_digest = hashlib.blake2b(data, digest_size=16).hexdigest()
                kept.append(GoldenCase(case=case, input_digest=digest, digest=file_digest, verdict=verdict))
        if not kept:
            reason = [f"{v.kind}: {v.message}" for _, v in lost] or why or ["there is no case that it takes"]
            raise UsageError(f"{subject.key} gave no outputs that could be saved: {reason[0]}")
        golden = Golden(
            version=__version__,
            at=now(),
            subject=subject,
            contract=origin_of(subject.op),
            environment=environment_of(subject, imports_of(subject)),
            seed=seed,
            cases=tuple(kept),
        )
        write_atomic(made / MANIFEST, json.dumps(golden.plain(), indent=1) + "\n")
    return Saved(golden, len(why), tuple(lost))


def file_name(number: int) -> str:
    """The file of the outputs of a case."""
    return f"{number:05}.safetensors"


def _drawn(examiner: Examiner, subject: Subject, seed: int, memory_mb: int) -> Iterator[Case]:
    """The cases of a search with this seed that has learned nothing from its results; long ones if there is time."""
    campaign = new_campaign("golden", seed, "conjecture", [subject], RunOptions(memory_mb=memory_mb))
    aims, elites = targets(fitted(campaign, examiner.sandbox)), Elites()
    contract = examiner.contracts[subject.op]
    for index in count():
        proposal = propose(aims, seed, index, elites)
        if not proposal.is_long or bears(subject, contract, proposal.case, patient=False):
            yield proposal.case


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """A new folder under a temporary name; it gets its own when all is well, so that a kill leaves no half one."""
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already; name a folder that does not")
    made = folder.with_name(f".{folder.name}.tmp")
    lock = claimed(made / _LOCK)
    if lock is None:
        raise UsageError(f"another process is saving to {folder}; wait for it, or name another folder")
    try:
        with named_trouble(made):
            for left in made.iterdir():  # by a process that was killed
                if left.name != _LOCK:
                    left.unlink()
        yield made
        with named_trouble(folder):
            (made / _LOCK).unlink()
            made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def only_kernel(own: UserKernels, op: str = "") -> Subject:
    """The one kernel that is named. Raises UsageError if it is none, or several, or cannot be read."""
    references = [c.name for c in load_contracts().values() if c.elsewhere is not None]
    found = own.subjects([op] if op else references)
    if len(found) != 1:
        raise UsageError("golden outputs are those of one kernel; name it, as --subject my_kernel.py")
    return found[0]


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
