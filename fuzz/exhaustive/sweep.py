"""Every input there is, where these are billions: part after part, the subject in one process, the oracle in another.

The subject makes its inputs from their numbers and leaves its output where the oracle's process finds it, in memory of
the GPU if the driver lets two processes share that. Each part is run twice, on outputs full of different bytes, and
judged both times: so what was never written is seen. What fails is judged once more by the oracle, which has the last
word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution
from kernel_assay.corpus.model.exhaustive_result import Sweep
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import ChildProcess, GoneError
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.fuzz.checking.check import interface_of
from kernel_assay.kernels.sandbox.closing import enclosure_of
from kernel_assay.kernels.sandbox.worker_pool import ONE_THREAD
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import Contract, Domain

ROW = 256
"""Elements of a row."""
ROWS = 1 << 24
"""Of them hold 2**32 inputs, or pairs."""
PARTS = {"cpu": 1 << 20, "cuda": 1 << 21}
"""Rows that are tried at once, by device: on a GPU 1 GiB of outputs and twice as much of inputs."""
_START_SECONDS = 120.0
_SCRATCH_MB = 64
"""What the folder that a subject may write to holds."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_JUDGE_SECONDS = 600.0


def domains(contract: Contract, subject: Subject) -> list[Case]:
    """Each domain of 2**32 inputs, or pairs of them, as one case; none, if the op has no such domain."""
    if contract.origin:
        return []
    return [_case_of(contract, domain) for domain in contract.domains if _takes(subject, domain.dtype)]


def _case_of(contract: Contract, domain: Domain) -> Case:
    tensors = {
        name: TensorRecipe(shape=(ROWS, ROW), dtype=domain.dtype, fill=Fill(distribution="every_bits", params=params))
        for name, params in domain.fills.items()
    }
    return Case(op=contract.name, tensors=tensors, attrs=dict(domain.attrs))


def _takes(subject: Subject, dtype: str) -> bool:
    return not subject.dtypes or dtype in subject.dtypes


def part_of(case: Case, first: int, rows: int) -> Case:
    """Some rows of a case that holds every input."""
    return case.but(
        tensors={name: t.but(shape=(rows, ROW), origin=(first, 0)) for name, t in case.tensors.items()},
    )


@dataclass(slots=True)
class Tried:
    """The result of a domain, and the seconds that the subject and the oracle took for it."""

    sweep: Sweep
    subject_seconds: float = 0.0
    judge_seconds: float = 0.0


class Sweeper:
    """A subject and a judge, ready to go through domains. Use it as a context manager."""

    def __init__(self, subject: Subject, *, timeout: float = 60.0, part: int = 0, closed: bool = True) -> None:
        """timeout: seconds for one part; part: rows of one, 0: as many as PARTS says; closed: whether it is closed in.

        Raises UsageError for a subject that cannot be loaded; InternalError if the oracle does not start.
        """
        self.subject, self._timeout = subject, timeout
        self.part = part or PARTS["cpu" if subject.device == "cpu" else "cuda"]
        contract = contract_of(subject.op)
        size = self.part * ROW * 2  # all outputs have 16 bits
        self._memory = os.memfd_create("sweep")
        os.ftruncate(self._memory, size)
        self._peers: list[ChildProcess] = []
        self._scratch = Scratch()
        enclosure = enclosure_of(self._scratch.path, _SCRATCH_MB, {}) if closed else {}
        common = {"bytes": size, "device": subject.device}
        face = interface_of(contract)
        try:
            told = {**common, "subject": subject, "face": face, "enclosure": enclosure}
            self._tested = self._started("kernels.worker.exhaustive", told, ONE_THREAD)
            hello = self._greeting(self._tested)
            if "refused" in hello:
                raise UsageError(hello["refused"])  # noqa: TRY301  the processes must be ended on the way out
            settings = {**common, "numerics": subject.numerics, "handle": hello["handle"]}
            self._judge = self._started("oracles.device.sweep_process", settings)
            self.shared = bool(self._heard_of_judge()["opened"]) or subject.device == "cpu"
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """The sweeper itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End both processes."""
        self.close()

    def close(self) -> None:
        """End both processes, and let go of the memory."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()
        self._scratch.close()
        os.close(self._memory)

    def _started(self, module: str, settings: Message, environment: Mapping[str, str] = _NOTHING) -> ChildProcess:
        peer = ChildProcess(module, self._memory, settings, environment)
        self._peers.append(peer)
        return peer

    def _greeting(self, peer: ChildProcess) -> Message:
        try:
            return peer.hear(_START_SECONDS)
        except GoneError as gone:
            raise UsageError(f"{self.subject.key} cannot be loaded: {gone}") from gone

    def _heard_of_judge(self, message: Message | None = None) -> Message:
        try:
            return self._judge.hear(_START_SECONDS) if message is None else self._judge.ask(message, _JUDGE_SECONDS)
        except GoneError as gone:
            raise InternalError(f"the oracle of {self.subject.key}: {gone}") from gone

    def sweep(self, case: Case, first: int = 0, rows: int = 0) -> Tried:
        """Try every input of a case, or some rows of it. It ends with the first part that fails."""
        tried = Tried(Sweep(case=case, kind=Kind.PASS))
        end = first + (rows or next(iter(case.tensors.values())).shape[0])
        rho = 0.0
        for at in range(first, end, self.part):
            part = part_of(case, at, min(self.part, end - at))
            for found in self._judged(part, tried):
                if isinstance(found, Verdict):
                    tried.sweep = Sweep(case=case, kind=found.kind, message=found.message, rho=found.rho)
                    return tried
                rho = max(rho, found)
        tried.sweep = Sweep(case=case, kind=Kind.PASS, rho=rho)
        return tried

    def _judged(self, part: Case, tried: Tried) -> Iterator[Verdict | float]:
        """Yield, for each run of a part, what failed, or the largest share of a budget that was used."""
        ((_, spec),) = contract_of(part.op).output_specs(part).items()
        for run in (0, 1):
            asked = {"case": part, "output": spec, "run": run}
            start = time.perf_counter()
            try:
                said = self._tested.ask({**asked, "fetch": not self.shared}, self._timeout)
            except GoneError as gone:
                yield Verdict(kind=_kind_of(gone), rule="status", message=f"{gone} ({_where(part)})")
                return
            tried.subject_seconds += time.perf_counter() - start
            if said["status"] != Status.OK:
                kind = Kind.UNSUPPORTED if said["status"] == Status.UNSUPPORTED else Kind.RAISED
                yield Verdict(kind=kind, rule="status", message=said["message"])
                return
            start = time.perf_counter()
            found = self._heard_of_judge({"case": part})
            tried.judge_seconds += time.perf_counter() - start
            yield last_word(self.subject, part, found) if found["failed"] else float(found["rho"])


def _kind_of(gone: GoneError) -> Kind:
    return Kind.TIMEOUT if gone.silent else Kind.CRASHED


def _where(part: Case) -> str:
    recipe = next(iter(part.tensors.values()))
    first = recipe.origin[0] * ROW
    return f"inputs {first:,} to {first + recipe.size - 1:,}"


def last_word(subject: Subject, part: Case, found: Message) -> Verdict | float:
    """The oracle's verdict on the elements that were found to fail: the one of billions names some of them.

    Raises InternalError if an op without any error before its rounding is judged in two ways.
    """
    small, outputs = excerpt(part, found["listed"])
    reference = Reference(contract_of(part.op), small, materialize_all(small))
    verdict = judge(reference, subject, Execution(status=Status.OK, subject=subject.key), outputs)
    share = f"{found['failed']:,} of {_where(part)} fail"
    if verdict.failed or verdict.kind is Kind.INCONCLUSIVE:
        return verdict.but(message=f"{verdict.message}; {share}; shown by {small.token}")
    if found["failed"] > len(found["listed"]):
        text = f"{share}, but the oracle clears those that were looked at one by one"
        return Verdict(kind=Kind.INCONCLUSIVE, rule="rho", message=text)
    return 1.0  # so close to their budgets that only ball arithmetic could tell


def excerpt(part: Case, listed: list[tuple[int, int]]) -> tuple[Case, dict[str, Any]]:
    """A case of some inputs alone, and the outputs that were got. listed: their numbers, and bits of the outputs."""
    numbers = np.array([number for number, _ in listed], np.int64)
    tensors = {}
    for name, t in part.tensors.items():
        patterns = numbers >> int(t.fill.params.get("skip", 0)) & ((1 << format_of(t.dtype).bits) - 1)
        tensors[name] = TensorRecipe(shape=(1, len(listed)), dtype=t.dtype, pokes=tuple(enumerate(patterns.tolist())))
    small = part.but(tensors=tensors)
    ((name, spec),) = contract_of(part.op).output_specs(small).items()
    fmt = format_of(spec.dtype)
    got = np.array([[bits for _, bits in listed]], fmt.carrier).view(fmt.dtype)
    return small, {name: got}
