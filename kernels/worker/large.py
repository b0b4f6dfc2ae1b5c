"""A large case where its subject runs: inputs are made there, everything is checked there, and outputs stay there.

What the first run left is handed over to the judge, or sent (kernels/boundary/output_transfer.py). Beside CUDA, the CPU
is a device like any other: the same code runs. There is no run on a stream of its own
(kernels/backends/cuda_support/late_streams.py): small cases have those.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.torch.field import CARRIERS, signed
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.driver import DRIVER, address_of
from kernel_assay.kernels.backends.support.base import Loader, PythonLoader
from kernel_assay.kernels.backends.support.guard import POISONS
from kernel_assay.kernels.backends.support.signature import Bound, Interface, bind
from kernel_assay.kernels.backends.torch import TorchLoader
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.worker.device_guard import DeviceBuffer, DeviceMemory
from kernel_assay.kernels.worker.exceptions import SubjectError, as_tuple, raised, timed
from kernel_assay.kernels.worker.resident import ResidentCudaLoader, ResidentCudaSubject

PIECE = 1 << 26
"""Elements of an output that are compared at once."""


class Road(ABC):
    """An interface to load subjects of one backend, and call them with tensors that are where they run."""

    def __init__(self, loader: Loader, device: str) -> None:
        self.loader, self.device = loader, device

    @abstractmethod
    def load(self, subject: Subject) -> Callable[..., Any]:
        """The function. Raises UsageError."""

    @abstractmethod
    def given(self, buffer: DeviceBuffer) -> Any:
        """The array that a subject is called with. Raises NotImplementedError for a dtype that the backend has not."""

    def result(self, result: Any) -> Tensor:
        """The tensor that a subject returned. Raises TypeError for what is none."""
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"it returned {type(result).__name__}, not a tensor")
        return result.detach()

    def bound(self, subject: Subject, face: Interface) -> Bound:
        """The subject, so that it may be called. Raises UsageError."""
        return bind(self.load(subject), face, f"{subject.path}:{subject.function}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A call, up to its end on the device: an error after which nothing runs there ends the process."""
        with torch.device(self.device):
            try:
                yield
            finally:
                if self.device == "cuda":
                    DRIVER.check()


class TorchRoad(Road):
    """Subjects of torch and Triton get the tensors themselves."""

    def load(self, subject: Subject) -> Callable[..., Any]:
        """Load it without the copies that a loader on a GPU makes."""
        assert isinstance(self.loader, TorchLoader)
        return PythonLoader.load(self.loader, resolve(subject), subject.function)

    def given(self, buffer: DeviceBuffer) -> Tensor:
        """A view of its own for every call."""
        return buffer.view[...]


class CudaRoad(Road):
    """Files in CUDA C++ get arrays that stand for the tensors, and are never touched."""

    def load(self, subject: Subject) -> Callable[..., Any]:
        """Load it by its front matter."""
        return ResidentCudaLoader().load_with(Path(resolve(subject)), subject.function, subject.launch)

    def given(self, buffer: DeviceBuffer) -> Any:
        """An array of the same layout, whose address means the tensor's."""
        item = buffer.item
        room = np.empty(max(1, item.nbytes), np.uint8)  # takes no memory before it is touched
        stand = np.ndarray(item.shape, item.dtype, room.data, item.offset, item.strides)
        ResidentCudaSubject.there[address_of(stand)] = buffer.view.data_ptr()
        return stand


class CupyRoad(Road):
    """Subjects of cupy get its arrays over the same memory."""

    def load(self, subject: Subject) -> Callable[..., Any]:
        """Load it without the copies that its loader makes."""
        assert isinstance(self.loader, PythonLoader)
        return PythonLoader.load(self.loader, resolve(subject), subject.function)

    def given(self, buffer: DeviceBuffer) -> Any:
        """Strided as it is."""
        import cupy  # noqa: PLC0415  only where there is a GPU

        dtype = buffer.item.dtype
        if dtype.kind not in "fiu" or dtype.isbuiltin != 1:
            raise NotImplementedError(f"cupy has no {dtype.name}")
        memory = cupy.cuda.UnownedMemory(buffer.view.data_ptr(), max(1, buffer.item.nbytes), buffer)
        return cupy.ndarray(
            buffer.item.shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0), strides=buffer.item.strides
        )

    def result(self, result: Any) -> Tensor:
        """Through the interface that both have."""
        if not hasattr(result, "__cuda_array_interface__"):
            raise TypeError(f"it returned {type(result).__name__}, not an array of cupy")
        return torch.as_tensor(result, device="cuda")


_ROADS: dict[str, type[Road]] = {"torch": TorchRoad, "triton": TorchRoad, "cuda": CudaRoad, "cupy": CupyRoad}


def road_of(subject: Subject) -> Road:
    """The road of a subject that runs on a GPU."""
    return _ROADS[subject.backend](loader_of(subject.loader), "cuda")


class LargeSetting:
    """One case on a device, in guarded memory; shared by all subjects that run it there."""

    def __init__(self, case: Case, outputs: dict[str, TensorSpec], device: str) -> None:
        """Raises what torch raises where there is no room."""
        self.case, self.specs = case, outputs
        self.memory = DeviceMemory(case, outputs, device)
        self.rows = self.memory.rows_digest(case)

    def arguments(self, road: Road, extra: Collection[str], *, returns: bool) -> tuple[list[Any], dict[str, Any]]:
        """The tensors to call with, outputs first unless the subject returns them; the extra inputs by name."""
        inputs = [road.given(b) for b in self.memory.inputs if b.name not in extra]
        named = {b.name: road.given(b) for b in self.memory.inputs if b.name in extra}
        return inputs if returns else [road.given(b) for b in self.memory.outputs] + inputs, named


@dataclass(frozen=True, slots=True)
class Given:
    """One output of one run, in memory of its own."""

    values: Tensor
    """On the device, contiguous."""
    dtype: str
    contiguous: bool
    address: int
    """Where it was."""


@dataclass(frozen=True, slots=True)
class LargeRun:
    """One call: how long, what came back, what was damaged."""

    nanoseconds: int
    results: list[Given]
    damage: list[dict[str, Any]]
    mutated: list[str]
    warnings: list[str]


def run_on(
    setting: LargeSetting, bound: Bound | UsageError, road: Road, extra: Collection[str]
) -> tuple[dict[str, Any], list[Any]]:
    """Two runs of one subject; what came out as the head of a message, and the first run's bytes.

    These are flat tensors of uint8 where the case is; of a result in a dtype that is none of ours, no bytes.
    """
    head: dict[str, Any] = {"status": Status.OK, "input_digest": "", "input_rows": setting.rows}
    if isinstance(bound, UsageError):
        return {**head, "status": Status.BUILD_FAILED, "message": str(bound)}, []
    if reason := bound.declines(setting.case.attrs, setting.case.tensors):
        return {**head, "status": Status.UNSUPPORTED, "message": reason}, []
    try:
        found, payload = _run_twice(setting, bound, road, extra)
    except SubjectError as error:
        return {**head, **raised(error.cause, road.loader)}, []
    return {**head, **found}, payload


def _run_twice(
    setting: LargeSetting, bound: Bound, road: Road, extra: Collection[str]
) -> tuple[dict[str, Any], list[Any]]:
    """Run a subject twice: the head of a message, and the first run's bytes. Raises SubjectError."""
    first, second = (_run_once(setting, bound, road, extra, run) for run in (0, 1))
    pairs = list(zip(setting.specs, first.results, second.results, strict=True))
    reports = [_compare(name, a, b) for name, a, b in pairs]
    for report, (_, result, _) in zip(reports, pairs, strict=True):
        report["alias_of"] = setting.memory.holds(result.address) if bound.returns and result.values.numel() else ""
    payload = [_bits(r).reshape(-1).view(torch.uint8) if r.dtype in FORMATS else b"" for r in first.results]
    head = {
        "nanoseconds": first.nanoseconds,
        "outputs": reports,
        "damage": first.damage or second.damage,
        "mutated": first.mutated or second.mutated,
        "warnings": first.warnings or second.warnings,
    }
    return head, payload


def _run_once(setting: LargeSetting, bound: Bound, road: Road, extra: Collection[str], run: int) -> LargeRun:
    memory = setting.memory
    memory.reset(run)
    try:
        arguments, named = setting.arguments(road, extra, returns=bound.returns)
        with road.watched():
            pass  # what was enqueued before is done
        call = road.watched()(bound.call)
        answer, took = timed(lambda: call(*arguments, **named, **bound.attributes(setting.case.attrs)))
        tensors = [road.result(r) for r in as_tuple(answer, len(setting.specs))] if bound.returns else []
    except BaseException as error:
        raise SubjectError(error) from error
    damage, mutated = memory.damage()
    tensors = tensors or [b.view for b in memory.outputs]
    results = [_given(t, memory.device) for t in tensors]
    return LargeRun(took, results, [d.model_dump() for d in damage], mutated, road.loader.warnings())


def _given(tensor: Tensor, device: str) -> Given:
    name = str(tensor.dtype).removeprefix("torch.")
    copied = tensor.to(device).clone(memory_format=torch.contiguous_format)
    return Given(copied, name, tensor.is_contiguous(), tensor.data_ptr())


def _bits(given: Given) -> Tensor:
    return given.values.view(CARRIERS[FORMATS[given.dtype].bits])


def _compare(name: str, first: Given, second: Given) -> dict[str, Any]:
    """Compare two runs of one output, as kernels.worker.worker does on the host."""
    a, b = first.values, second.values
    form = {"name": name, "shape": tuple(a.shape), "dtype": first.dtype, "contiguous": first.contiguous}
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return {**form, "differing": max(a.numel(), b.numel()), "first_differing": 0}
    if first.dtype not in FORMATS:
        return form
    found = {"unwritten": 0, "differing": 0}
    places: dict[str, int] = {}
    x, y = (_bits(given).reshape(-1) for given in (first, second))
    for start in range(0, x.numel(), PIECE):
        masks = _masks(first.dtype, x[start : start + PIECE], y[start : start + PIECE])
        for word, mask in masks.items():
            if count := int(mask.sum()):
                found[word] += count
                places.setdefault(f"first_{word}", start + int(mask.to(torch.uint8).argmax()))
    return {**form, **{word: count for word, count in found.items() if count}, **places}


def _masks(dtype: str, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Masks of two runs' bits: which elements kept both poisons, and which others differ."""
    if torch.equal(x, y):
        return {}
    fmt = format_of(dtype)
    poisons = [signed(int.from_bytes(bytes([byte]) * fmt.dtype.itemsize, "little"), fmt.bits) for byte in POISONS]
    unwritten = (x == poisons[0]) & (y == poisons[1])
    differing = (x != y) & ~unwritten
    if fmt.is_float:  # which NaN it is, is up to the compiler
        a, b = (bits.view(getattr(torch, dtype)) for bits in (x, y))
        differing &= ~(_nan(a) & _nan(b))
    return {"unwritten": unwritten, "differing": differing}


def _nan(values: Tensor) -> Tensor:
    """Torch has no isnan of every narrow type."""
    return (values if values.dtype == torch.float64 else values.float()).isnan()
